//! A process that has stopped in mid-commit holds up those that want what it changes, and no other ones,
//! though its filters may say so.

use super::world::*;
use crate::domain::InFlight;
use crate::id::{Footprint, ObjectId};
use crate::outcome::{CommitError, ConflictKind, Durability, Options, Verb, VerbError, Waiting};
use crate::transaction::{Caller, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Ended, Machine, Schedule, SimOs};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
/// A process that makes so many calls waits: no other one goes on here.
const CALLS_MAX: u64 = 5000;

/// The machine with a commit that stands still before one of its calls, for every such call from its number to its end.
fn stopped(kind: Kind, durability: Durability) -> Vec<(Machine, InFlight)> {
    let world = machine(FsKind::Ext4);
    world.set_word_points(false);
    let other = world.spawn("watcher");
    let domain = run_process(&other, || open(&other).expect("opens")).expect("not killed");
    let os = world.spawn("owner");
    let (owner, seen) = (os.process(), Arc::new(Mutex::new(Vec::new())));
    let stops = seen.clone();
    world.set_hook(move |machine, info| {
        if info.process != owner || domain.table.lock_holder().expect("sound").is_some() {
            return;
        }
        if let Some(slot) = domain.table.slots().in_flight().next() {
            stops.lock().expect("sound").push((machine.fork(), slot.expect("sound")));
        }
    });
    run_process(&os, || transact(&os, kind, durability)).expect("not killed").expect("commits");
    world.clear_hook();
    let stopped = std::mem::take(&mut *seen.lock().expect("sound"));
    assert!(stopped.len() > 5, "{}", stopped.len());
    stopped
}

/// Returns what another process sees beside the stopped one; `None`: it waits.
fn beside<T>(machine: &Machine, work: impl FnOnce(&SimOs, &mut Transaction<SimOs>) -> Verb<T>) -> Option<T> {
    let os = machine.spawn("other");
    machine.set_word_points(true);
    machine.kill_at(&os, CALLS_MAX);
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        // The stopped one may be the one who syncs the log for all.
        let options = Options { durability: Durability::None, ..Options::default() };
        let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
        let got = work(&os, &mut t).expect("nothing is in doubt");
        let done = t.commit().expect("nothing conflicts");
        assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
        got
    });
    os.exit();
    machine.clear_plans();
    done.ok()
}

/// A name at the top that is missing, as all of them are, and that a filter answers as asked.
pub(super) fn name(
    os: &SimOs,
    footprint: &Footprint,
    wanted: impl Fn(ObjectId, &Footprint) -> bool,
) -> String {
    let top = os.handle(&os.root(0)).expect("has a handle");
    let mut names = (0..).map(|n| format!("missing{n}"));
    names.find(|name| wanted(ObjectId::entry(&top, name.as_bytes()), footprint)).expect("without end")
}

pub(super) fn false_hit(object: ObjectId, footprint: &Footprint) -> bool {
    footprint.changed().may_contain(object)
}

/// Asks for what the filter of the stopped one holds falsely.
fn asks_falsely(machine: &Machine, slot: &InFlight) -> Option<()> {
    beside(machine, |os, t| {
        let (top, name) = (t.root(0), name(os, &slot.info.footprint, false_hit));
        assert!(t.lookup(top, name.as_bytes())?.is_none());
        Ok(())
    })
}

fn asks_truly(machine: &Machine, what: &[u8]) -> Option<()> {
    beside(machine, |_, t| {
        let top = t.root(0);
        let (w, _) = t.lookup(top, b"w")?.expect("it is there");
        t.lookup(w, what).map(drop)
    })
}

#[test]
fn who_stops_in_mid_commit_holds_up_who_wants_what_it_changes_and_nobody_else() {
    for (kind, durability) in [(Kind::Small, Durability::Durable), (Kind::Small, Durability::None)] {
        for (n, (machine, slot)) in stopped(kind, durability).into_iter().enumerate() {
            let at = format!("{durability:?}, stopped at call {n}, {:?}", slot.seen.state());
            for what in [&b"new"[..], b"link", b"patched", b"removed", b"attr"] {
                let asked = asks_truly(&machine.fork(), what);
                assert_eq!(asked, None, "{at}: {} was not waited for", String::from_utf8_lossy(what));
            }
            assert_eq!(asks_falsely(&machine.fork(), &slot), Some(()), "{at}: held up for nothing");
            // A writer of something else is not held up, either, because of what it has read.
            let made = beside(&machine, |os, t| {
                let footprint = slot.info.footprint;
                let asked = name(os, &footprint, false_hit);
                let made = name(os, &footprint, |o, f| !f.read.may_contain(o) && !false_hit(o, f));
                let top = t.root(0);
                assert!(t.lookup(top, asked.as_bytes())?.is_none());
                t.create(top, made.as_bytes(), 0o644, ROOT).map(drop)
            });
            assert_eq!(made, Some(()), "{at}: a writer is held up for nothing");
        }
    }
}

#[test]
fn who_never_waits_ends_at_once_beside_a_commit_that_stands_still() {
    for (n, (machine, slot)) in stopped(Kind::Small, Durability::Durable).into_iter().enumerate() {
        for what in [&b"new"[..], b"link", b"patched", b"removed", b"attr"] {
            let machine = machine.fork();
            let os = machine.spawn("other");
            // A look for the other's name takes thousands of words.
            machine.set_word_points(false);
            machine.kill_at(&os, CALLS_MAX);
            let met = run_process(&os, || {
                let domain = open(&os).expect("opens");
                // The stopped one may be the one who syncs the log for all.
                let durability = Durability::None;
                let options = Options { durability, waiting: Waiting::Never, ..Options::default() };
                let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
                let top = t.root(0);
                let met = t.lookup(top, b"w").and_then(|w| t.lookup(w.expect("it is there").0, what));
                let conflict = match met {
                    Err(VerbError::Doomed(conflict)) => conflict,
                    Err(VerbError::Os(error)) => panic!("{error:?}"),
                    // A name may be looked at before the entry is met.
                    Ok(_) => match t.commit() {
                        Err(CommitError::Conflict(conflict)) => conflict,
                        ended => panic!("{ended:?}"),
                    },
                };
                conflict.what
            });
            let state = slot.seen.state();
            let what = String::from_utf8_lossy(what);
            let found = met.ok();
            assert_eq!(found, Some(ConflictKind::HeldNow), "it did not end: {what}, call {n}, {state:?}");
        }
    }
}

#[test]
fn who_stops_while_a_whole_tree_goes_is_waited_for_by_its_filter() {
    for (machine, slot) in stopped(Kind::Everything, Durability::Durable).into_iter().step_by(9) {
        assert_eq!(asks_falsely(&machine, &slot), None, "the record doesn't have all names");
    }
}

#[test]
fn who_stops_and_has_a_record_that_cant_be_read_is_waited_for_by_its_filter() {
    for (machine, slot) in stopped(Kind::Small, Durability::Durable).into_iter().step_by(5) {
        let os = machine.spawn("outsider");
        let garbled = run_process(&os, || -> systx_os::Result<()> {
            let area = os.open(&os.root(0), AREA, Open::Directory)?;
            let log = os.open(&area, b"log", Open::Directory)?;
            for segment in os.read_dir(&log)? {
                let fd = os.open(&log, &segment.name, Open::ReadWrite)?;
                // Behind header and cells.
                let at = 4096 + 1024 * 64;
                let len = os.stat(&fd)?.size - at;
                os.pwrite(&fd, &vec![0xa5; len as usize], at)?;
            }
            Ok(())
        });
        garbled.expect("lives").expect("writes");
        os.exit();
        assert_eq!(asks_falsely(&machine, &slot), None, "{:?}", slot.seen.state());
    }
}

/// A commit stands still before any of its calls and accesses to the table; another process looks at one of
/// its names, and at another when it has gone on.
#[test]
fn who_looks_twice_beside_a_commit_that_stands_still_anywhere_sees_it_whole() {
    let world = machine(FsKind::Ext4);
    let points = {
        let machine = world.fork();
        machine.set_word_points(true);
        let os = machine.spawn("owner");
        run_process(&os, || transact(&os, Kind::Small, Durability::None)).expect("lives").expect("commits");
        os.points()
    };
    let mut seen = [0; 3];
    for fall in 0..points {
        let machine = world.fork();
        machine.set_word_points(true);
        let (owner, reader) = (machine.spawn("owner"), machine.spawn("reader"));
        let commits = || {
            let done = transact(&owner, Kind::Small, Durability::None).expect("commits");
            assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
        };
        let looks = || {
            let domain = open(&reader).expect("opens");
            let mut t = Transaction::begin(reader.clone(), vec![domain], Options::default()).expect("begins");
            let mut shown = |name: &[u8]| -> Verb<bool> {
                let top = t.root(0);
                let (w, _) = t.lookup(top, b"w")?.expect("it is there");
                Ok(t.lookup(w, name)?.is_some())
            };
            let removed = shown(b"removed");
            // The other one goes on to its end.
            reader.pause(1_000_000_000);
            match (removed, shown(b"new")) {
                (Ok(removed), Ok(new)) => {
                    assert_ne!(removed, new, "half of it is shown, stopped at {fall} of {points}");
                    usize::from(new)
                }
                _ => 2,
            }
        };
        let mut saw = None;
        let report = {
            let saw = &mut saw;
            Schedule::run_until(
                fall,
                vec![(owner.clone(), Box::new(commits)), (reader.clone(), Box::new(|| *saw = Some(looks())))],
            )
        };
        for ended in &report.ended {
            assert_eq!(*ended, Ended::Finished, "stopped at {fall} of {points}");
        }
        seen[saw.expect("it has looked")] += 1;
    }
    assert!(seen[1] > 0 && seen[2] > 0, "before it, after it, conflict: {seen:?}");
}
