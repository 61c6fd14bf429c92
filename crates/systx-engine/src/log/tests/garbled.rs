//! Truncated, garbled, foreign and missing segments: never a panic, always a prefix, distinct errors.

use super::*;
use crate::log::format::{Header, HeaderRead};
use fastrand::Rng;
use std::fs;

/// A log of two segments with commits 1..=n; returns the bytes of both.
fn two_segments(rig: &Rig) -> (u64, [Vec<u8>; 2]) {
    let mut n = 0;
    while rig.log.end().segment < 2 || rig.log.end().cell < 20 {
        n += 1;
        rig.commit(n, if n % 3 == 0 { 30_000 } else { 100 });
    }
    (n, [1, 2].map(|s| fs::read(rig.segment_path(s)).unwrap()))
}

fn assert_prefix(replay: &Result<Replay, LogError>, n: u64, what: &str) -> u64 {
    match replay {
        Ok(r) => {
            let got = redone(r);
            assert!(got.len() as u64 <= n, "{what}");
            assert_eq!(got, (1..=got.len() as u64).collect::<Vec<_>>(), "{what}");
            assert!(r.redo().all(|(lsn, b)| b.id.0 == lsn.0 && b.version == BODY_VERSION), "{what}");
            got.len() as u64
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

#[test]
pub fn whatever_happens_to_the_bytes_what_is_read_is_a_prefix_of_what_was_appended() {
    let rig = Rig::started();
    let (n, good) = two_segments(&rig);
    let mut rng = Rng::with_seed(7);
    let (mut whole, mut short) = (0, 0);
    for round in 0..300 {
        let which = rng.usize(..2);
        let mut bytes = good[which].clone();
        let used = if rng.bool() { 4096 + 64 * 1024 } else { bytes.len() };
        let at = rng.usize(..used);
        let what = match rng.u8(..5) {
            0 => {
                bytes.truncate(at);
                format!("{round}: segment {which} cut at {at}")
            }
            1 => {
                bytes[at] ^= 1 << rng.u8(..8);
                format!("{round}: segment {which} bit at {at}")
            }
            2 => {
                let end = (at / 512 * 512 + 512).min(bytes.len());
                rng.fill(&mut bytes[at / 512 * 512..end]);
                format!("{round}: segment {which} garbage sector at {at}")
            }
            3 => {
                let end = (at / 4096 * 4096 + 4096).min(bytes.len());
                bytes[at / 4096 * 4096..end].fill(0);
                format!("{round}: segment {which} lost page at {at}")
            }
            _ => {
                let from = rng.usize(..bytes.len() - 64) / 64 * 64;
                let to = rng.usize(..used - 64) / 64 * 64;
                bytes.copy_within(from..from + 64, to);
                format!("{round}: segment {which} {from} copied to {to}")
            }
        };
        fs::write(rig.segment_path(which as u64 + 1), &bytes).unwrap();
        match assert_prefix(&rig.replay(), n, &what) {
            all if all == n => whole += 1,
            _ => short += 1,
        }
        raw(&rig.os, &rig.area).unwrap();
        fs::write(rig.segment_path(which as u64 + 1), &good[which]).unwrap();
    }
    assert!(whole > 10 && short > 10, "both outcomes: {whole} whole, {short} cut");
    assert_eq!(assert_prefix(&rig.replay(), n, "as it was"), n);
}

#[test]
pub fn a_log_cut_before_synced_cells_says_that_it_is_damaged() {
    let rig = Rig::started();
    let (_, [mut first, second]) = two_segments(&rig);
    first[4096 + 64 * 3] ^= 1;
    fs::write(rig.segment_path(1), &first).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!((redone(&replay), replay.damaged), (vec![1, 2, 3], Some(LogPos { segment: 1, cell: 3 })));
    // The newest segment may end anywhere: that is a crash, not damage.
    fs::write(rig.segment_path(2), &second[..4096 + 64 * 5]).unwrap();
    first[4096 + 64 * 3] ^= 1;
    fs::write(rig.segment_path(1), &first).unwrap();
    assert_eq!(rig.replay().unwrap().damaged, None);
}

/// A log of one segment with commits 1..=9, each synced before the next one; its bytes.
fn one_segment(rig: &Rig) -> Vec<u8> {
    for n in 1..=9 {
        let pos = rig.commit(n, 100);
        rig.sync(pos).unwrap();
    }
    fs::read(rig.segment_path(1)).unwrap()
}

fn cell_at(index: usize) -> usize {
    4096 + 64 * index
}

#[test]
pub fn cells_behind_a_damaged_one_of_their_segment_are_told() {
    let rig = Rig::started();
    let good = one_segment(&rig);
    let said = |bytes: &[u8]| {
        fs::write(rig.segment_path(1), bytes).unwrap();
        let replay = rig.replay().unwrap();
        (redone(&replay).len(), replay.damaged, replay.skipped.len())
    };
    let end = Some(LogPos { segment: 1, cell: 3 });
    let mut bytes = good.clone();
    bytes[cell_at(3)] ^= 1;
    assert_eq!(said(&bytes), (3, end, 5));
    // A sector that reads as zeros; a body.
    bytes[cell_at(3)..cell_at(4)].fill(0);
    assert_eq!(said(&bytes), (3, end, 5));
    let body = u64::from_le_bytes(good[cell_at(3) + 32..][..8].try_into().unwrap()) as usize;
    let mut bytes = good.clone();
    bytes[body] ^= 1;
    assert_eq!(said(&bytes), (3, end, 6), "whose it was can be read");
    // The last one is an end like any other: nothing says that it was synced.
    let mut bytes = good.clone();
    bytes[cell_at(8)] ^= 1;
    assert_eq!(said(&bytes), (8, None, 0));
    assert_eq!(said(&good), (9, None, 0));
}

/// The disk has written only some of several cells that one sync was to bring: a power loss, no damage.
#[test]
fn a_hole_among_cells_that_were_not_synced_is_an_end() {
    let rig = Rig::started();
    let pos = rig.commit(1, 100);
    rig.sync(pos).unwrap();
    for n in 2..=9 {
        rig.commit(n, 100);
    }
    let mut bytes = fs::read(rig.segment_path(1)).unwrap();
    bytes[cell_at(3)..cell_at(4)].fill(0);
    fs::write(rig.segment_path(1), &bytes).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!((redone(&replay), replay.damaged, replay.skipped.len()), (vec![1, 2, 3], None, 0));
}

/// A cell behind it that takes something from the redo was true when it was written.
#[test]
fn an_abort_and_a_checkpoint_behind_a_damaged_cell_hold() {
    let rig = Rig::started();
    one_segment(&rig);
    for cell in [Cell::Abort { lsn: Lsn(2) }, Cell::Checkpoint { lsn: Lsn(1) }] {
        let pos = rig.cell(cell).unwrap();
        rig.sync(pos).unwrap();
    }
    let mut bytes = fs::read(rig.segment_path(1)).unwrap();
    bytes[cell_at(4)] ^= 1;
    fs::write(rig.segment_path(1), &bytes).unwrap();
    let replay = rig.replay().unwrap();
    let redone: Vec<u64> = replay.redo().map(|(lsn, _)| lsn.0).collect();
    assert_eq!((redone, replay.highest_lsn, replay.highest_id), (vec![3, 4], Lsn(9), TxId(9)));
}

/// Segments that an older systx made are read, and written as that one would.
#[test]
fn a_segment_of_the_version_before_goes_on() {
    let rig = Rig::started();
    let pos = rig.commit(1, 100);
    rig.sync(pos).unwrap();
    change_header(&rig, 1, |_| (), 1);
    let log = rig.another();
    for n in 2..=4 {
        let at = log.append_body(ME, &alive, &body(n, 100)).unwrap();
        let lock = rig.lock();
        let cell = Cell::Commit { lsn: Lsn(n), id: TxId(n), body: at };
        let pos = log.append_cell(&lock, ME, &alive, cell).unwrap();
        rig.unlock(lock);
        log.sync(ME, &alive, pos).unwrap();
    }
    assert_eq!(redone(&rig.replay().unwrap()), [1, 2, 3, 4]);
    let mut bytes = fs::read(rig.segment_path(1)).unwrap();
    assert!((0..4).all(|n| bytes[cell_at(n) + 56..][..4] == [0; 4]), "a field that it does not know");
    bytes[cell_at(1)] ^= 1;
    fs::write(rig.segment_path(1), &bytes).unwrap();
    assert_eq!(rig.replay().unwrap().damaged, Some(LogPos { segment: 1, cell: 1 }));
}

#[test]
pub fn a_cell_of_a_later_version_is_an_error_not_an_end() {
    let rig = Rig::started();
    let mut bytes = one_segment(&rig);
    bytes[cell_at(3) + 8] = 7;
    let crc = crc32c::crc32c(&bytes[cell_at(3)..][..60]);
    bytes[cell_at(3) + 60..][..4].copy_from_slice(&crc.to_le_bytes());
    fs::write(rig.segment_path(1), &bytes).unwrap();
    let error = rig.replay().unwrap_err();
    assert_eq!(error, LogError::UnknownCell { pos: LogPos { segment: 1, cell: 3 }, kind: 7 });
    assert!(error.to_string().starts_with("cell 3 of log/0000000000000001 is of kind 7"), "{error}");
}

#[test]
pub fn a_newest_segment_without_header_is_an_end_not_an_error() {
    let rig = Rig::started();
    let (n, _) = two_segments(&rig);
    fs::write(rig.segment_path(2), b"").unwrap();
    let replay = rig.replay().unwrap();
    assert!(assert_prefix(&Ok(replay.clone()), n, "cut") > 0);
    assert_eq!(replay.segments[1].end, End::BadHeader);
    assert_eq!(replay.start(Lsn(0)).segment, 3, "its number is not used again");
}

#[test]
pub fn a_missing_middle_segment_is_an_error_that_names_it() {
    let rig = Rig::started();
    two_segments(&rig);
    rig.commit(9999, 17 << 20);
    fs::remove_file(rig.segment_path(2)).unwrap();
    assert_eq!(rig.replay().unwrap_err(), LogError::Missing { segment: 2, after: 1 });
    fs::remove_file(rig.segment_path(3)).unwrap();
    let error = rig.replay().unwrap_err();
    assert_eq!(error, LogError::Missing { segment: 2, after: 1 });
    assert!(error.to_string().starts_with("log/0000000000000002 is missing"), "{error}");
}

/// Rewrites a segment's header, with its checksum.
fn change_header(rig: &Rig, number: u64, change: impl FnOnce(&mut Header), version: u8) {
    let mut bytes = fs::read(rig.segment_path(number)).unwrap();
    let HeaderRead::Good(mut h) = Header::decode(&bytes[..4096], number) else { panic!("no header") };
    change(&mut h);
    let mut block = h.encode();
    block[8] = version;
    let crc = crc32c::crc32c(&block[..4092]);
    block[4092..].copy_from_slice(&crc.to_le_bytes());
    bytes[..4096].copy_from_slice(&block);
    fs::write(rig.segment_path(number), bytes).unwrap();
}

#[test]
pub fn a_segment_of_another_area_or_version_is_refused_and_left_alone() {
    let rig = Rig::started();
    two_segments(&rig);
    change_header(&rig, 2, |h| h.area = [1; 16], 2);
    let error = rig.replay().unwrap_err();
    assert_eq!(error, LogError::Foreign { segment: 2, found: [1; 16], expected: UUID });
    assert!(error.to_string().contains("01010101010101010101010101010101"), "{error}");
    change_header(&rig, 2, |h| h.area = UUID, 9);
    let error = rig.replay().unwrap_err();
    assert_eq!(error, LogError::Version { segment: 2, found: 9 });
    assert!(error.to_string().contains("has format 9, this systx knows 1 to 2"), "{error}");
}

#[test]
fn a_header_that_promises_more_than_the_file_has_costs_nothing() {
    let rig = Rig::started();
    rig.commit(1, 10);
    change_header(
        &rig,
        1,
        |h| {
            h.cells = 1 << 24;
            h.size = u64::MAX;
        },
        2,
    );
    // The body's place is now among the cells.
    assert_eq!(rig.replay().unwrap().segments[0].end, End::BadBody);
}

#[test]
fn a_record_of_a_newer_systx_is_an_error_not_an_end() {
    let rig = Rig::started();
    let at = rig.body(&Body { version: 77, ..body(1, 10) });
    rig.cell(Cell::Commit { lsn: Lsn(1), id: TxId(1), body: at }).unwrap();
    let error = rig.replay().unwrap_err();
    assert!(matches!(error, LogError::Unreadable { segment: 1, .. }));
    assert!(error.to_string().contains("version 77"), "{error}");
    // One that is not needed any more does not matter.
    rig.cell(Cell::Abort { lsn: Lsn(1) }).unwrap();
    assert_eq!(redone(&rig.replay().unwrap()), [0; 0]);
}

#[test]
fn a_body_of_another_transaction_is_no_record() {
    let rig = Rig::started();
    let at = rig.body(&body(2, 10));
    rig.cell(Cell::Commit { lsn: Lsn(1), id: TxId(1), body: at }).unwrap();
    assert!(matches!(rig.replay(), Err(LogError::Unreadable { .. })));
}

#[test]
fn a_log_is_read_in_one_pass_over_cells_and_twice_over_live_bodies() {
    let mut reads = Vec::new();
    for commits in [200, 400, 800] {
        let rig = Rig::started();
        for n in 1..=commits {
            rig.commit(n, 100);
        }
        reads.push(bytes_read(|| drop(rig.replay().unwrap())));
    }
    if let [Some(a), Some(b), Some(c)] = reads[..] {
        assert!(c - b <= 3 * (b - a), "linear: {a}, {b}, {c} bytes");
    } else {
        println!("not checked: /proc/thread-self/io can't be read");
    }
}

/// Bytes that this thread reads from files meanwhile (taskstats rchar).
fn bytes_read(work: impl FnOnce()) -> Option<u64> {
    let read = || {
        let text = fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|l| l.strip_prefix("rchar: "))?.parse::<u64>().ok()
    };
    let before = read()?;
    work();
    Some(read()? - before)
}
