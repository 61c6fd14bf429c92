//! An object that comes out of a name is compared with what was read (C5); of two that come between, the
//! later one stays at the name; and what is kept is noted before it is moved.

use super::super::world::{open, public, transact, Finds, Kind};
use super::{alone, copy, everything, Stage};
use crate::outcome::{CommitError, Committed, Durability};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_os::{Open, Os, Rename};
use systx_sim::machine::{run_process, Call, Crash, Machine, PointInfo};

/// Bytes as short as the shortest of what is there, so that the size says nothing.
const HIS: &[u8] = b"?";
const SECOND: &[u8] = b"a second file of his";

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    Kill(u64),
    PowerLoss(u64),
}

type Told = Option<Result<Committed, CommitError>>;

/// Runs the transaction; before each of its calls `hook` is asked.
fn run(
    stage: &Stage,
    machine: &Machine,
    kill_at: Option<u64>,
    mut hook: impl FnMut(u64, &PointInfo) + Send + 'static,
) -> Told {
    let (os, mut count) = (machine.spawn("owner"), 0);
    machine.set_hook(move |_, info| {
        hook(count, info);
        count += 1;
    });
    if let Some(at) = kill_at {
        machine.kill_at(&os, at);
    }
    let told = run_process(&os, || transact(&os, stage.kind, stage.durability)).ok();
    machine.clear_hook();
    machine.clear_plans();
    os.exit();
    told
}

/// Checks that the next process finishes what is left, and says why something is aside.
fn recover(machine: &Machine) {
    let helper = machine.spawn("helper");
    let noted = run_process(&helper, || {
        let domain = open(&helper).expect("opens");
        domain.finish_dead().expect("recovers");
        domain.checkpoint().expect("works");
        let reports = domain.reports().expect("readable");
        let kept = domain.kept_aside().expect("readable");
        let noted = |name: &Vec<u8>| {
            reports
                .iter()
                .any(|report| report.aside.as_ref().is_some_and(|aside| aside.as_bytes() == &name[..]))
        };
        kept.iter().all(noted)
    });
    assert!(noted.expect("lives"), "something is aside, and nothing says why");
}

/// Time at which the outsider opens the file that it writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    ToWrite,
    /// Between the read and the final look: the stamp still shows it.
    AfterTheRead,
    /// Then only the bytes show if the outsider has stored.
    Before,
}

/// Lets the outsider write before the call `at`, if the file is at its name still, and perhaps set its time
/// back. Returns true if its bytes are there afterwards (`None`: it could not write), and what the commit
/// said.
fn writes(
    stage: &Stage,
    target: &'static str,
    at: u64,
    (opens, back, then): (Opens, bool, Then),
) -> (Option<bool>, Told) {
    let machine = copy(&stage.machine);
    alone(&machine, target.trim_start_matches("w/"));
    let outsider = machine.outsider("outsider");
    let first =
        outsider.handle(&outsider.open_path(0, target, Open::Path).expect("is there")).expect("works");
    let mut held =
        (opens == Opens::Before).then(|| outsider.open_path(0, target, Open::ReadWrite).expect("opens"));
    let wrote = Arc::new(AtomicBool::new(false));
    let (shared, opened_at) = (wrote.clone(), stage.v6);
    let kill = match then {
        Then::Nothing => None,
        Then::Kill(later) | Then::PowerLoss(later) => Some(at + later),
    };
    let told = run(stage, &machine, kill, move |count, _| {
        if count == opened_at && opens == Opens::AfterTheRead {
            held = outsider.open_path(0, target, Open::ReadWrite).ok();
        }
        let there =
            || outsider.open_path(0, target, Open::Path).and_then(|fd| outsider.handle(&fd)) == Ok(first);
        if count != at || !there() {
            return;
        }
        let fd = match &held {
            Some(fd) => outsider.dup(fd),
            None => outsider.open_path(0, target, Open::ReadWrite),
        };
        let Ok(fd) = fd else { return };
        let before = outsider.stat(&fd).expect("works");
        outsider.pwrite(&fd, HIS, 0).expect("works");
        if back {
            outsider.utimens(&fd, None, Some(before.mtime)).expect("works");
        }
        shared.store(true, Ordering::Relaxed);
    });
    if matches!(then, Then::PowerLoss(_)) {
        machine.settle();
        machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(at));
    }
    if then != Then::Nothing {
        recover(&machine);
    }
    machine.check().expect("consistent file system");
    let there = machine.tree(0).into_values().any(|look| look.content.starts_with(HIS));
    (wrote.load(Ordering::Relaxed).then_some(there), told)
}

const TARGETS: [&str; 3] = ["w/removed", "w/replaced", "w/tree/x"];

#[test]
fn bytes_that_come_between_the_final_look_and_a_removal_are_kept() {
    bytes_are_kept(Finds::ByHandle);
}

#[test]
fn bytes_that_come_between_the_final_look_and_a_removal_are_kept_without_handles() {
    bytes_are_kept(Finds::ByPath);
}

fn bytes_are_kept(finds: Finds) {
    let mut kept = [0; 3];
    for (kind, durability) in [
        (Kind::Everything, Durability::Durable),
        (Kind::Everything, Durability::None),
        (Kind::Small, Durability::Durable),
    ] {
        let stage = Stage::new(kind, durability, finds);
        let targets = if kind == Kind::Small { &TARGETS[..1] } else { &TARGETS };
        for (n, opens) in [Opens::ToWrite, Opens::AfterTheRead, Opens::Before].into_iter().enumerate() {
            for target in targets {
                // Every call of the usual commit, a third of the others'.
                let step = if (kind, durability) == (Kind::Everything, Durability::Durable) { 1 } else { 3 };
                let calls = (stage.look..stage.calls.len() as u64).step_by(step);
                for at in calls.filter(|at| finds.takes(at / step as u64)) {
                    let back = at % 2 == 0;
                    let (there, told) = writes(&stage, target, at, (opens, back, Then::Nothing));
                    let told = told.expect("lives");
                    let what = format!("{target} before call {at}, {opens:?}, time set back: {back}");
                    assert_ne!(there, Some(false), "{what}: an acknowledged write is lost");
                    if let (Some(_), Ok(committed)) = (there, told) {
                        assert!(!committed.conflict_copies.is_empty(), "{what}: kept, and not reported");
                        kept[n] += 1;
                    }
                }
            }
        }
    }
    assert!(kept.iter().all(|n| *n > 0), "{kept:?}");
}

#[test]
fn bytes_that_come_between_the_final_look_and_a_removal_are_kept_by_whoever_goes_on() {
    bytes_are_kept_by_whoever_goes_on(Finds::ByHandle);
}

#[test]
fn bytes_that_come_between_the_final_look_and_a_removal_are_kept_by_whoever_goes_on_without_handles() {
    bytes_are_kept_by_whoever_goes_on(Finds::ByPath);
}

fn bytes_are_kept_by_whoever_goes_on(finds: Finds) {
    let stage = everything(finds);
    let (mut rng, mut wrote) = (fastrand::Rng::with_seed(3), [0; 2]);
    for target in TARGETS {
        for at in (stage.look..stage.calls.len() as u64).filter(|at| finds.takes(*at)) {
            for lost in [false, true] {
                let later = rng.u64(1..12);
                let then = if lost { Then::PowerLoss(later) } else { Then::Kill(later) };
                let opens = [Opens::ToWrite, Opens::AfterTheRead, Opens::Before][rng.usize(0..3)];
                let (there, _) = writes(&stage, target, at, (opens, false, then));
                let what = format!("{target} before call {at}, {opens:?}, {then:?}");
                assert_ne!(there, Some(false), "{what}: an acknowledged write is lost");
                wrote[usize::from(lost)] += u32::from(there.is_some());
            }
        }
    }
    assert!(wrote.iter().all(|n| *n > 10), "{wrote:?}");
}

/// One of the outsider's files comes to the name before the exchange, another one before the exchange back.
#[test]
fn of_two_files_that_come_to_a_name_within_its_exchange_the_later_one_stays() {
    let stage = everything(Finds::ByHandle);
    let machine = copy(&stage.machine);
    let outsider = machine.outsider("outsider");
    let o = outsider.open_path(0, "o", Open::Path).expect("is there");
    let second = outsider.create(&o, b"second", 0o600).expect("is free");
    outsider.pwrite(&second, SECOND, 0).expect("works");
    drop(second);
    let mut exchanges = 0;
    let told = run(&stage, &machine, None, move |_, info| {
        if info.call != Call::Rename || info.name != b"2" {
            return;
        }
        let mine: &[u8] = match exchanges {
            0 => b"mine",
            1 => b"second",
            _ => return,
        };
        exchanges += 1;
        let w = outsider.open_path(0, "w", Open::Path).expect("is there");
        outsider.rename((&o, mine), (&w, b"replaced"), Rename::Replace).expect("works");
    });
    let committed = told.expect("lives").expect("commits");
    let tree = public(&machine);
    assert!(!tree.contains_key("o/second"), "he has acted twice");
    assert_eq!(tree["w/replaced"].content, SECOND, "an older file of his is at the name: {committed:?}");
    assert!(committed.conflict_copies.iter().any(|d| d.aside.is_some()), "{committed:?}");
}

#[test]
fn what_is_displaced_is_noted_wherever_the_publisher_is_killed() {
    let stage = everything(Finds::ByHandle);
    let mut kept = 0;
    for kill in stage.publishing..stage.calls.len() as u64 {
        let machine = copy(&stage.machine);
        let outsider = machine.outsider("outsider");
        let at = stage.publishing;
        run(&stage, &machine, Some(kill), move |count, _| {
            if count == at {
                let w = outsider.open_path(0, "w", Open::Path).expect("is there");
                outsider.create(&w, b"new", 0o600).expect("is free");
            }
        });
        recover(&machine);
        kept += machine.tree(0).keys().filter(|path| path.starts_with(".systx/aside/")).count();
    }
    assert!(kept > 0);
}
