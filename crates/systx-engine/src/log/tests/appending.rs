//! Records that are appended are read again, in order, over segments, recoveries and takeovers.

use super::*;
use std::os::unix::fs::FileExt;

#[test]
fn nothing_is_appended_before_a_recovery_and_opening_makes_no_file() {
    let rig = Rig::new();
    assert_eq!(rig.log.append_body(ME, &alive, &body(1, 1)), Err(LogError::NotStarted));
    assert_eq!(rig.cell(Cell::Abort { lsn: Lsn(1) }), Err(LogError::NotStarted));
    rig.start(Lsn(0));
    assert!(!rig.path.join("log").exists());
    assert_eq!(rig.replay().unwrap().segments, []);
}

#[test]
fn commits_are_read_again_and_aborts_and_checkpoints_take_their_bodies() {
    let rig = Rig::started();
    for n in 1..=6 {
        rig.commit(n, 100);
    }
    rig.cell(Cell::Abort { lsn: Lsn(5) }).unwrap();
    let end = rig.cell(Cell::Checkpoint { lsn: Lsn(2) }).unwrap();
    rig.sync(end).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!(redone(&replay), [3, 4, 6]);
    assert_eq!(replay.records.len(), 8);
    assert!(replay.records.iter().all(|e| e.body.as_ref().is_none_or(|b| *b == body(b.id.0, 100))));
    assert_eq!((replay.checkpoint, replay.highest_lsn, replay.highest_id), (Lsn(2), Lsn(6), TxId(6)));
    assert_eq!((replay.end, replay.damaged), (LogPos { segment: 1, cell: 8 }, None));
    assert!(replay.aborted.contains(&Lsn(5)));
}

#[test]
fn the_first_segment_is_small_and_written_not_only_allocated() {
    let rig = Rig::started();
    let pos = rig.commit(1, 10);
    rig.sync(pos).unwrap();
    let stat = std::fs::metadata(rig.segment_path(1)).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((stat.len(), stat.mode() & 0o7777), (1 << 20, 0o600));
    assert!(stat.blocks() * 512 >= 1 << 20, "{} blocks", stat.blocks());
}

#[test]
fn a_full_segment_goes_on_in_larger_ones_and_all_is_read_in_order() {
    let rig = Rig::started();
    let mut last = LogPos::default();
    for n in 1..=1500 {
        let pos = rig.commit(n, if n % 7 == 0 { 20_000 } else { 50 });
        assert!(pos > last);
        last = pos;
    }
    rig.sync(last).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!(redone(&replay), (1..=1500).collect::<Vec<_>>());
    let sizes: Vec<_> = replay.segments.iter().map(|s| s.bytes).collect();
    assert_eq!(sizes, [1 << 20, 4 << 20]);
    assert_eq!(replay.segments[0].end, End::Next(2));
}

#[test]
fn cells_without_body_fill_a_segment_to_its_end_and_go_on() {
    let rig = Rig::started();
    for n in 1..=1030 {
        rig.cell(Cell::Abort { lsn: Lsn(n) }).unwrap();
    }
    let replay = rig.replay().unwrap();
    assert_eq!(replay.aborted.len(), 1030);
    assert_eq!((replay.segments[0].cells, replay.segments[0].end), (1023, End::Next(2)));
}

#[test]
fn a_body_larger_than_any_segment_gets_one_of_its_own() {
    let rig = Rig::started();
    rig.commit(1, 10);
    rig.commit(2, 30 << 20);
    let last = rig.commit(3, 10);
    rig.sync(last).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!(redone(&replay), [1, 2, 3]);
    assert_eq!(replay.segments[1].bytes % (1 << 20), 0);
    assert!(replay.segments[1].bytes < 32 << 20);
    assert_eq!(replay.records[1].body, Some(body(2, 30 << 20)));
}

#[test]
fn a_body_whose_segment_was_left_is_written_again() {
    let rig = Rig::started();
    let (old, text) = (rig.body(&body(1, 10)), body(1, 10));
    rig.commit(2, 2 << 20);
    let cell = |body| Cell::Commit { lsn: Lsn(1), id: TxId(1), body };
    assert_eq!(rig.cell(cell(old)), Err(LogError::Moved));
    rig.cell(cell(rig.body(&text))).unwrap();
    assert_eq!(redone(&rig.replay().unwrap()), [2, 1]);
}

#[test]
fn cells_may_jump_over_a_segment_that_has_bodies_only() {
    let rig = Rig::started();
    rig.commit(1, 10);
    let skipped = rig.body(&body(9, 2 << 20));
    let ahead = rig.body(&body(2, 20 << 20));
    assert!((skipped.segment, ahead.segment) == (2, 3));
    rig.cell(Cell::Commit { lsn: Lsn(2), id: TxId(2), body: ahead }).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!(redone(&replay), [1, 2]);
    assert_eq!(replay.segments[1].end, End::Unreached);
    assert_eq!(replay.damaged, None);
}

#[test]
fn a_body_is_read_again_in_the_same_boot_and_nothing_else_is() {
    let rig = Rig::started();
    let at = rig.body(&body(1, 300));
    assert_eq!(rig.another().read_body(at), Ok(body(1, 300)));
    for wrong in [
        BodyAt { crc: !at.crc, ..at },
        BodyAt { len: u32::MAX, ..at },
        BodyAt { offset: u64::MAX, ..at },
        BodyAt { offset: 0, ..at },
    ] {
        assert!(matches!(rig.log.read_body(wrong), Err(LogError::Confused { .. })));
    }
}

#[test]
pub fn a_recovery_begins_a_new_segment_and_nothing_older_comes_back() {
    let rig = Rig::started();
    for n in 1..=3 {
        rig.commit(n, 10);
    }
    let old_body = rig.body(&body(4, 10));
    let old_pos = LogPos { segment: 1, cell: 0 };
    rig.start(Lsn(3));
    assert_eq!(rig.cell(Cell::Commit { lsn: Lsn(4), id: TxId(4), body: old_body }), Err(LogError::Moved));
    assert!(rig.sync(old_pos).is_err(), "the recovery decided what became of it");
    let pos = rig.commit(5, 10);
    assert_eq!(pos, LogPos { segment: 2, cell: 0 });
    rig.sync(pos).unwrap();
    let replay = rig.replay().unwrap();
    assert_eq!((redone(&replay), replay.checkpoint), (vec![5], Lsn(3)));
    // Another one, after a crash that left nothing in the segment that it would have used.
    rig.start(Lsn(5));
    rig.commit(6, 10);
    assert_eq!(redone(&rig.replay().unwrap()), [6]);
    assert_eq!(rig.segments(), [1, 2, 3]);
}

#[test]
pub fn a_cell_that_its_writer_did_not_live_to_count_is_overwritten() {
    let rig = Rig::started();
    rig.commit(1, 10);
    let at = rig.log.end();
    rig.commit(2, 10);
    // The holder of the commit lock died after the cell was written whole, or half.
    for cut in [64, 32, 1] {
        rig.mem_store(shared::CELLS, at.pack());
        let file = std::fs::OpenOptions::new().write(true).open(rig.segment_path(1)).unwrap();
        file.write_all_at(&vec![0xee; 64 - cut], 4096 + 64 + cut as u64).unwrap();
        rig.cell(Cell::Abort { lsn: Lsn(2) }).unwrap();
        rig.commit(3, 10);
        assert_eq!(redone(&rig.replay().unwrap()), [1, 3]);
    }
}

#[test]
fn a_half_made_segment_of_somebody_dead_is_replaced() {
    let rig = Rig::started();
    rig.commit(1, 10);
    std::fs::write(rig.segment_path(2), [1; 5000]).unwrap();
    rig.commit(2, 2 << 20);
    assert_eq!(redone(&rig.replay().unwrap()), [1, 2]);
}

#[test]
fn the_raw_listing_shows_every_cell_and_where_they_end() {
    let rig = Rig::started();
    rig.commit(1, 10);
    rig.cell(Cell::Checkpoint { lsn: Lsn(1) }).unwrap();
    rig.commit(2, 2 << 20);
    std::fs::write(rig.segment_path(9), b"?").unwrap();
    let lines: Vec<String> = raw(&rig.os, &rig.area).unwrap().iter().map(Raw::to_string).collect();
    let starts =
        ["segment 1: 1048576 bytes", "1:0 COMMIT lsn 1 id 1 body ", "1:1 CKPT lsn 1,", "1:2 NEXT 2,"];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert_eq!(lines.last().unwrap(), "segment 9: no header");
    assert_eq!(lines.len(), 7);
}

#[test]
fn damaged_words_are_errors_and_lead_nowhere() {
    for (word, value) in [
        (shared::CELLS, LogPos { segment: 1, cell: 1 << 20 }.pack()),
        (shared::BODIES, shared::Bodies { segment: 1, unit: 1 }.pack()),
        (shared::BODIES, u64::MAX),
        (shared::CELLS, u64::MAX),
        (shared::MAKING, u64::MAX),
    ] {
        let rig = Rig::started();
        rig.commit(1, 10);
        rig.mem_store(word, value);
        let body = rig.log.append_body(ME, &alive, &body(2, 2 << 20));
        let cell = rig.cell(Cell::Abort { lsn: Lsn(1) });
        assert!(body.is_err() || cell.is_err(), "word {word}: {body:?} {cell:?}");
    }
}

impl Rig {
    pub fn mem_store(&self, word: usize, value: u64) {
        use systx_os::Words;
        self.mem.store(BASE + word, value, Ordering::SeqCst);
    }
}
