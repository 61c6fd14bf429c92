//! The end of the log is proven: records behind a damaged place are reported, and nothing is redone of a log
//! that holds something that this version does not know.

use super::stuck::make;
use super::world::*;
use crate::domain::OpenError;
use crate::log::format::{self, CELL_BYTES, HEADER_BYTES};
use crate::log::LogError;
use crate::outcome::Recovered;
use crate::record::DecodeError;
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine};

const NAMES: [&[u8]; 4] = [b"n0", b"n1", b"n2", b"n3"];

/// Four commits, each synced, and the power is gone: nothing of them is in the tree. Also the path of their
/// segment, and the place of the first one's cell.
fn lost() -> (Machine, String, usize) {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let (segment, first) = run_process(&os, || {
        let domain = open(&os).expect("opens");
        for name in NAMES {
            make(&domain, name).expect("commits");
        }
        let end = domain.log.end();
        (end.segment, end.cell as usize - NAMES.len())
    })
    .expect("lives");
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    let name = String::from_utf8(format::name(segment)).expect("digits");
    (machine, format!(".systx/log/{name}"), HEADER_BYTES + first * CELL_BYTES)
}

fn overwrite(machine: &Machine, path: &str, offset: u64, bytes: &[u8]) {
    let os = machine.spawn("damage");
    let file = os.open_path(0, path, Open::Write).expect("opens");
    assert_eq!(os.pwrite(&file, bytes, offset), Ok(bytes.len()));
    os.exit();
}

/// Changes bytes of the segment, and makes its cell at `cell` valid, as if written so.
fn rewrite(machine: &Machine, path: &str, cell: usize, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = machine.look(0, path).expect("it is there").content;
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes[cell..cell + CELL_BYTES - 4]);
    bytes[cell + CELL_BYTES - 4..cell + CELL_BYTES].copy_from_slice(&crc.to_le_bytes());
    overwrite(machine, path, 0, &bytes);
}

fn recover(machine: &Machine) -> Result<Recovered, OpenError> {
    let os = machine.spawn("recovery");
    let recovered = run_process(&os, || open(&os).map(|domain| domain.recovered.clone())).expect("lives");
    os.exit();
    recovered
}

fn there(machine: &Machine) -> Vec<&[u8]> {
    let os = machine.spawn("looks");
    let w = os.open_path(0, "w", Open::Directory).expect("it is there");
    NAMES.into_iter().filter(|name| os.stat_at(&w, name).is_ok()).collect()
}

#[test]
fn what_stands_behind_a_damaged_cell_is_told() {
    let (machine, path, first) = lost();
    let second = first + CELL_BYTES;
    overwrite(&machine, &path, second as u64, &[0xa5; CELL_BYTES]);
    let told = recover(&machine).expect("opens").unfinished;
    assert_eq!(there(&machine), NAMES[..1]);
    assert_eq!(told.len(), 1, "two durable commits are left out without a word: {told:?}");
    assert!(told[0].contains("is damaged at") && told[0].contains("2 transactions"), "{told:?}");
    // The recovery made a new log; the reported damage is over.
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    assert_eq!(recover(&machine).expect("opens").unfinished, [""; 0]);
}

/// The cell is zeros now, as a sector that the disk has lost.
#[test]
fn what_stands_behind_a_cell_that_is_gone_is_told() {
    let (machine, path, first) = lost();
    overwrite(&machine, &path, (first + CELL_BYTES) as u64, &[0; CELL_BYTES]);
    let told = recover(&machine).expect("opens").unfinished;
    assert!(told.len() == 1 && told[0].contains("2 transactions"), "{told:?}");
}

#[test]
fn a_cell_of_an_unknown_kind_is_refused_before_anything_is_redone() {
    let (machine, path, first) = lost();
    let second = first + CELL_BYTES;
    rewrite(&machine, &path, second, |bytes| bytes[second + 8] = 7);
    for _ in 0..2 {
        match recover(&machine) {
            Err(OpenError::Log(LogError::UnknownCell { kind: 7, .. })) => {}
            other => panic!("durable commits are dropped silently: {other:?}"),
        }
        assert_eq!(there(&machine), NAMES[..0]);
    }
    // A version that knows it goes on where nothing was lost.
    rewrite(&machine, &path, second, |bytes| bytes[second + 8] = 1);
    assert!(recover(&machine).expect("opens").unfinished.is_empty());
    assert_eq!(there(&machine), NAMES);
}

#[test]
fn a_record_of_an_unknown_version_is_refused_before_anything_is_redone() {
    let (machine, path, first) = lost();
    let last = first + 3 * CELL_BYTES;
    let known = machine.look(0, &path).expect("it is there").content;
    rewrite(&machine, &path, last, |bytes| {
        let field = |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        let place = field(last + 32).expect("fits");
        let len = u32::from_le_bytes(bytes[last + 40..last + 44].try_into().unwrap()) as usize;
        bytes[place] = 99;
        let crc = crc32c::crc32c(&bytes[place..place + len]);
        bytes[last + 12..last + 16].copy_from_slice(&crc.to_le_bytes());
    });
    for _ in 0..2 {
        match recover(&machine) {
            Err(OpenError::Log(LogError::Unreadable { why: DecodeError::Version(99), .. })) => {}
            other => panic!("it is taken for known: {other:?}"),
        }
        assert_eq!(there(&machine), NAMES[..0], "each opening redoes the first half");
    }
    overwrite(&machine, &path, 0, &known);
    assert!(recover(&machine).expect("opens").unfinished.is_empty());
    assert_eq!(there(&machine), NAMES);
}
