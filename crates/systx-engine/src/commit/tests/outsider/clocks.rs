//! The wall clock is set by days between a commit and an outsider's later act; then the power fails, and the
//! log is redone.
//!
//! Stamps of files go by that clock, so the outsider's may be older than the transaction's. Everything that
//! the outsider did stays: redo goes by what things are, not by when they say that they were made.
//! Exceptions: where the outsider leaves nothing but zeros or nothing at all of a small new file (residue c
//! in docs/guarantees.md), which only a time could distinguish from a loss.

use super::super::world::{machine_where, open, public, transact, Finds, Kind};
use super::acts::{plant, Act, Outsider, ACTS, TARGETS};
use super::later::{commit, write, ME};
use super::{copy, long};
use crate::outcome::Durability;
use systx_os::FsKind;
use systx_sim::machine::{run_process, Crash, Machine};

const DAY_S: i64 = 86_400;

/// The clock at the commit, at the outsider's act, and at the redo, in days beside the time that passes.
const CLOCKS: [[i64; 3]; 4] = [[0, -5, -5], [0, -5, 0], [9, 0, -9], [0, 5, 0]];

/// The world as the transactions find it, at a clock.
fn begun(days: i64, finds: Finds) -> Machine {
    let machine = copy(&machine_where(FsKind::Ext4, finds));
    plant(&machine);
    machine.set_wall_clock(days * DAY_S);
    machine
}

/// One of every kind of step.
fn every_step(days: i64, finds: Finds) -> Machine {
    let machine = begun(days, finds);
    let os = machine.spawn("owner");
    let told = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable));
    let done = told.expect("lives").expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    os.exit();
    machine
}

/// A small new file, which rides in the record.
fn small_file(days: i64, finds: Finds) -> Machine {
    let machine = begun(days, finds);
    commit(&machine, |t, dir| {
        let (node, _) = t.create(dir, b"small", 0o644, ME)?;
        write(t, node, &[7; 3 * 512 + 100], 0)
    });
    machine
}

fn redo(machine: &Machine) {
    machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
    let os = machine.spawn("helper");
    let recovered = run_process(&os, || open(&os).expect("opens").recovered.clone()).expect("lives");
    assert_eq!((recovered.finished, recovered.unfinished.len()), (1, 0), "it is redone: {recovered:?}");
    os.exit();
}

fn what_he_did_survives(
    committed: fn(i64, Finds) -> Machine,
    finds: Finds,
    targets: &[&'static str],
    every: usize,
) {
    let every = if long() { 1 } else { every };
    let mut wrong = Vec::new();
    let mut acted = 0;
    for (n, days) in CLOCKS.into_iter().enumerate() {
        let world = committed(days[0], finds);
        let acts = targets.iter().flat_map(|target| ACTS.map(|act| (act, *target)));
        for (at, (act, target)) in acts.enumerate() {
            // A long run has every act with every clock. And where nothing is left, nothing can be
            // distinguished.
            if (every > 1 && at % every != n) || act == Act::EmptyAndTimeBack {
                continue;
            }
            let machine = copy(&world);
            machine.set_wall_clock(days[1] * DAY_S);
            if Outsider::new(&machine, act, target).act().is_err() {
                continue;
            }
            acted += 1;
            machine.settle();
            let his = public(&machine);
            machine.set_wall_clock(days[2] * DAY_S);
            redo(&machine);
            if public(&machine) != his {
                wrong.push(format!("{act:?} of {target}, clocks at {days:?}"));
            }
        }
    }
    assert!(acted * every > targets.len() * ACTS.len(), "only {acted} acts were possible");
    assert!(wrong.is_empty(), "{} of {acted} did not survive: {wrong:#?}", wrong.len());
}

#[test]
fn what_an_outsider_does_after_the_clock_was_set_back_survives_a_redo() {
    what_he_did_survives(every_step, Finds::ByHandle, &TARGETS, 7);
}

#[test]
fn what_an_outsider_does_after_the_clock_was_set_back_survives_a_redo_without_handles() {
    what_he_did_survives(every_step, Finds::ByPath, &TARGETS, 29);
}

#[test]
fn what_an_outsider_does_to_a_small_new_file_after_the_clock_was_set_back_survives_a_redo() {
    for finds in [Finds::ByHandle, Finds::ByPath] {
        what_he_did_survives(small_file, finds, &["small"], 1);
    }
}
