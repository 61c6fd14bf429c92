//! What outsiders do to the size of a file that a commit has let grow, or has cut, and then its owner is
//! killed, or the power goes.

use super::stuck::change;
use super::world::*;
use crate::outcome::{CommitError, Committed};
use crate::transaction::{Access, SetAttr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Call, Crash, Machine, Plant, SimOs};

const KINDS: [FsKind; 3] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
/// Two sectors, and a part of a third one.
const OLD: &[u8] = &[b'o'; 1300];

fn world(kind: FsKind) -> Machine {
    let machine = machine(kind);
    machine.plant(0, &[("w/f", Plant::File(OLD))]).expect("planting");
    machine.settle();
    machine.advance_ns(120_000_000_000);
    machine
}

/// Cuts the file, or lets it grow, and writes behind `from`.
fn commit(os: &SimOs, size: u64, from: u64, bytes: &[u8]) -> Result<Committed, CommitError> {
    change(&open(os).expect("opens"), |t, w| {
        let (f, _) = t.lookup(w, b"f")?.expect("it is there");
        t.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        t.open(f, Access::Write, false)?;
        t.write_at(f, bytes, from)?;
        t.close(f);
        Ok(())
    })
}

/// An outsider cuts the file to a size, and writes into it.
fn outsider(machine: &Machine, size: u64, bytes: &[u8]) {
    let os = machine.outsider("outsider");
    let f = os.open_path(0, "w/f", Open::ReadWrite).expect("opens");
    os.truncate(&f, size).expect("cuts");
    os.pwrite(&f, bytes, 0).expect("writes");
    os.syncfs(&f).expect("syncs");
    os.exit();
}

fn recover(machine: &Machine) {
    let os = machine.spawn("recovery");
    run_process(&os, || open(&os).expect("opens").finish_dead().expect("recovers")).expect("lives");
    os.exit();
}

fn content(machine: &Machine) -> Vec<u8> {
    machine.look(0, "w/f").expect("it is there").content
}

fn crashes() -> impl Iterator<Item = (u64, Crash)> {
    Crash::WORST.into_iter().chain([Crash::Random; 2]).enumerate().map(|(seed, crash)| (seed as u64, crash))
}

#[test]
fn what_is_left_of_a_file_that_had_grown_is_not_let_grow_again_by_a_redo() {
    for kind in KINDS {
        let machine = world(kind);
        let os = machine.spawn("owner");
        run_process(&os, || commit(&os, 1300, 1300, &[b'n'; 3000]).expect("commits")).expect("lives");
        os.exit();
        assert_eq!(content(&machine).len(), 4300);
        outsider(&machine, 4291, b"");
        let theirs = content(&machine);
        for (seed, crash) in crashes() {
            let machine = copy(&machine);
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            recover(&machine);
            assert_eq!(content(&machine), theirs, "{kind:?} {crash:?}: cut by an outsider, and undone");
        }
    }
}

/// The new size of the file, where a commit writes to it, and how many bytes.
const CHANGES: [(u64, u64, usize); 8] = [
    (0, 0, 0),
    (2, 0, 2),
    (700, 0, 0),
    (700, 0, 300),
    (700, 0, 700),
    (1024, 0, 600),
    (1313, 1300, 13),
    (9000, 1300, 7700),
];

#[test]
fn what_is_written_to_a_file_that_was_cut_or_had_grown_stays_although_it_is_as_much_as_before() {
    // All of it, and a part of the sector in which the end is.
    for theirs in [vec![b't'; OLD.len()], [&OLD[..800], &[b't'; 500]].concat()] {
        for (n, (size, from, ours)) in CHANGES.into_iter().enumerate() {
            let kind = KINDS[n % 3];
            let machine = world(kind);
            let os = machine.spawn("owner");
            run_process(&os, || commit(&os, size, from, &vec![b'n'; ours]).expect("commits")).expect("lives");
            os.exit();
            outsider(&machine, 0, &theirs);
            for (seed, crash) in crashes() {
                let machine = copy(&machine);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                let (is, what) = (content(&machine), format!("{kind:?} {crash:?} {size} {from}"));
                assert_eq!(is.len(), theirs.len(), "{what}: written by an outsider, and cut off or let grow");
                assert_eq!(is[512..], theirs[512..], "{what}: written by an outsider, and overwritten");
                // A sector that is put back exactly is redone (docs/guarantees.md, (c)).
                assert!(is == theirs || theirs[..512] == OLD[..512], "{what}: overwritten");
            }
        }
    }
}

#[test]
fn what_is_written_to_a_file_whose_publisher_was_killed_stays_although_it_is_as_much_as_before() {
    let theirs = vec![b't'; OLD.len()];
    for (n, (size, from, ours)) in CHANGES.into_iter().enumerate() {
        let world = world(FsKind::Ext4);
        for point in (n as u64..).step_by(4) {
            let machine = copy(&world);
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let work = || commit(&os, size, from, &vec![b'n'; ours]).expect("commits");
            let told = run_process(&os, work).is_ok();
            machine.clear_plans();
            outsider(&machine, 0, &theirs);
            recover(&machine);
            assert_eq!(content(&machine), theirs, "{size}, killed at call {point}");
            if told {
                break;
            }
        }
    }
}

/// No outsider acts; any part of the commit may be on the disk.
#[test]
fn a_file_gets_its_new_size_after_a_power_loss_at_any_call() {
    for (n, (size, from, ours)) in CHANGES.into_iter().enumerate() {
        let world = world(KINDS[n % 3]);
        let mut after = OLD.to_vec();
        after.resize(size as usize, 0);
        after[from as usize..][..ours].fill(b'n');
        for point in (n as u64..).step_by(4) {
            let mut told = false;
            for seed in 0..2 {
                let machine = copy(&world);
                let os = machine.spawn("owner");
                machine.kill_at(&os, point);
                let work = || commit(&os, size, from, &vec![b'n'; ours]).expect("commits");
                told = run_process(&os, work).is_ok();
                machine.clear_plans();
                machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                let is = content(&machine);
                assert!(is == after || (is == OLD && !told), "{size}, power lost at call {point}, {seed}");
            }
            if told {
                break;
            }
        }
    }
}

#[test]
fn holes_of_a_sparse_file_are_not_read_to_be_compared_with_holes() {
    const SIZE: u64 = 1 << 30;
    let machine = world(FsKind::Ext4);
    let os = machine.outsider("outsider");
    os.truncate(&os.open_path(0, "w/f", Open::ReadWrite).expect("opens"), SIZE).expect("grows");
    machine.settle();
    let (reads, os) = (Arc::new(AtomicUsize::new(0)), machine.spawn("owner"));
    let counted = reads.clone();
    machine.set_hook(move |_, point| {
        counted.fetch_add(usize::from(point.call == Call::Pread), Ordering::Relaxed);
    });
    let work = || {
        let done = change(&open(&os).expect("opens"), |t, w| {
            let (f, _) = t.lookup(w, b"f")?.expect("it is there");
            for size in [0, SIZE] {
                t.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
            Ok(())
        });
        done.map(drop).expect("commits");
    };
    run_process(&os, work).expect("lives");
    machine.clear_hook();
    let is = os.open_path(0, "w/f", Open::Read).expect("opens");
    let mut begins = [1; 1300];
    assert_eq!((os.pread(&is, &mut begins, 0), begins), (Ok(1300), [0; 1300]));
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 100, "{reads} reads of a file that has 1300 bytes and else holes");
}

/// The bytes of the second one reach the disk before the size of the first one.
#[test]
fn two_commits_on_the_ends_of_a_file_are_both_redone() {
    for (n, (size, from, ours)) in CHANGES.into_iter().enumerate() {
        for (seed, crash) in [Crash::DataWithoutNames, Crash::Random, Crash::Random].into_iter().enumerate() {
            let machine = copy(&world(KINDS[n % 3]));
            let os = machine.spawn("owner");
            let work = || {
                commit(&os, size, from, &vec![b'n'; ours]).expect("commits");
                let last = size.saturating_sub(3);
                commit(&os, size.max(3), last, b"end").map(drop).expect("commits");
            };
            run_process(&os, work).expect("lives");
            os.exit();
            let after = content(&machine);
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed as u64));
            recover(&machine);
            assert_eq!(content(&machine), after, "{size} {from} {crash:?}: reported durable, and lost");
        }
    }
}
