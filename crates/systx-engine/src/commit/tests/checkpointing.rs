//! Checkpoints: what they cover is on the disk, and what is in flight is not covered.

use super::stuck::{change, make, ROOT};
use super::world::*;
use crate::domain::{Domain, SlotState};
use crate::mutant::{self, Mutant};
use crate::outcome::{Durability, Options};
use crate::transaction::{Access, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FsKind, Open, Os};
use systx_sim::machine::{
    run_process, Call, Crash, Effect, Fault, Machine, Plant, Schedule, SimOs, Traced, Tree,
};

fn recovered(machine: &Machine) -> Tree {
    let os = machine.spawn("helper");
    run_process(&os, || drop(open(&os).expect("opens"))).expect("lives");
    public(machine)
}

fn undisturbed() -> (Tree, Tree) {
    let machine = machine(FsKind::Ext4);
    let before = public(&machine);
    let os = machine.spawn("owner");
    run_process(&os, || transact(&os, Kind::Everything, Durability::Durable))
        .expect("lives")
        .expect("commits");
    (before, public(&machine))
}

#[test]
fn what_a_checkpoint_covers_survives_a_power_loss() {
    let (_, after) = undisturbed();
    for crash in Crash::WORST.into_iter().chain([Crash::Random; 8]) {
        let machine = machine(FsKind::Ext4);
        let os = machine.spawn("owner");
        run_process(&os, || {
            transact(&os, Kind::Everything, Durability::Durable).expect("commits");
            open(&os).expect("opens").checkpoint().expect("makes a checkpoint");
        })
        .expect("lives");
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(1));
        assert_eq!(recovered(&machine), after, "{crash:?}");
    }
}

#[test]
fn a_checkpoint_during_a_commit_does_not_cover_it() {
    let (before, after) = undisturbed();
    let mut seen = [0; 2];
    for seed in 0..480 {
        let machine = machine(FsKind::Ext4);
        let (owner, other) = (machine.spawn("owner"), machine.spawn("other"));
        let (first, mut rng) = (machine.points(), fastrand::Rng::with_seed(seed));
        let at = first + rng.u64(200..600);
        machine.set_hook(move |machine, info| {
            if info.global_point == at {
                machine.power_loss(Crash::Random, &mut rng);
            }
        });
        let (a, b) = (owner.clone(), other.clone());
        let commits = move || drop(transact(&a, Kind::Everything, Durability::Durable));
        let checkpoints = move || {
            let domain = open(&b).expect("opens");
            for _ in 0..8 {
                domain.checkpoint().expect("makes a checkpoint");
                b.pause(20_000);
            }
        };
        let both: Vec<(SimOs, Box<dyn FnOnce() + Send>)> =
            vec![(owner, Box::new(commits)), (other, Box::new(checkpoints))];
        Schedule::run(seed, both);
        machine.clear_hook();
        machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
        let tree = recovered(&machine);
        assert!(tree == before || tree == after, "seed {seed}: a mixture");
        seen[usize::from(tree == after)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both outcomes are seen: {seen:?}");
}

#[test]
fn a_checkpoint_that_fails_is_told_and_tried_again() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let commit = |name: &[u8]| make(&domain, name).expect("commits").warning;
        assert_eq!(commit(b"one"), None, "it is not due");
        machine.advance_ns(61_000_000_000);
        // It never comes to its sync.
        let call = Some(Call::ReadDir);
        machine.fault(Fault {
            process: None,
            call,
            skip: 0,
            times: u64::MAX,
            effect: Effect::Fail(Errno::MFILE),
        });
        let warning = commit(b"two").expect("it is due, and fails");
        assert!(warning.contains("checkpoint"), "{warning}");
        assert_eq!(domain.checkpoint_failed(), Some(Errno::MFILE));
        assert_eq!(commit(b"three"), None, "not by every commit");
        machine.advance_ns(6_000_000_000);
        assert!(commit(b"four").is_some(), "it is tried again");
        machine.clear_plans();
        machine.advance_ns(6_000_000_000);
        assert_eq!((commit(b"five"), domain.checkpoint_failed()), (None, None));
    });
    done.expect("lives");
}

const OLD: &[u8] = &[b'o'; 1500];
const NEW: &[u8] = &[b'n'; 1500];

/// Overwrites a file and makes another, durably.
fn write_two(os: &SimOs) -> Arc<Domain<SimOs>> {
    let domain = open(os).expect("opens");
    make(&domain, b"small").expect("commits");
    change(&domain, |t, w| {
        let (f, _) = t.lookup(w, b"f")?.expect("it is there");
        t.open(f, Access::Write, false)?;
        t.write_at(f, NEW, 0)?;
        t.close(f);
        Ok(())
    })
    .expect("commits");
    domain
}

fn with_a_file(kind: FsKind) -> Machine {
    let machine = machine(kind);
    machine.plant(0, &[("w/f", Plant::File(OLD))]).expect("planting");
    machine.settle();
    machine
}

fn both_are_there(machine: &Machine, what: &str) {
    let content = |path| machine.look(0, path).map(|look| look.content);
    let is = (content("w/f"), content("w/small"));
    assert!(is == (Some(NEW.to_vec()), Some(b"small".to_vec())), "{what}: lost, and reported durable");
}

/// A failed write is reported once, and its pages count as clean: only after a new mount do files show what the disk has.
#[test]
fn what_a_failed_sync_of_a_checkpoint_has_not_written_is_redone() {
    // Of a disk, of its medium, of a thin one.
    let errors = [Errno::IO, Errno::NODATA, Errno::NOSPC];
    let calls = [Call::Syncfs, Call::WriteOut].into_iter().flat_map(|call| errors.map(|error| (call, error)));
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Ext4NoJournal] {
        for (call, error) in calls.clone() {
            let machine = with_a_file(kind);
            let os = machine.spawn("owner");
            let failed = run_process(&os, || {
                let domain = write_two(&os);
                machine.fault(Fault::fail(call, error));
                let make_one = || match call {
                    Call::Syncfs => domain.checkpoint(),
                    _ => domain.keep_all_promises(),
                };
                let failed = make_one().is_err();
                machine.clear_plans();
                let _ = (make_one(), domain.checkpoint());
                failed
            });
            os.exit();
            let what = format!("{kind:?}, {call:?}, {error}");
            let failed = failed.expect("lives");
            let ordered = matches!(kind, FsKind::Ext4 | FsKind::Xfs);
            assert_eq!(failed, call == Call::Syncfs || ordered, "{what}");
            let os = machine.spawn("next");
            let refused = run_process(&os, || {
                let domain = open(&os).expect("opens");
                let _ = domain.checkpoint();
                make(&domain, b"more").is_err()
            });
            os.exit();
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            recovered(&machine);
            both_are_there(&machine, &what);
            assert_eq!(refused, Ok(failed), "{what}: it would stand on what may be lost");
        }
    }
}

#[test]
fn what_a_failed_sync_of_a_recovery_has_not_written_is_redone() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Ext4NoJournal] {
        let machine = with_a_file(kind);
        let os = machine.spawn("owner");
        run_process(&os, || drop(write_two(&os))).expect("lives");
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        machine.fault(Fault { times: 9, ..Fault::fail(Call::Syncfs, Errno::IO) });
        for _ in 0..2 {
            let os = machine.spawn("recovery");
            let told = run_process(&os, || open(&os).is_err());
            os.exit();
            machine.clear_plans();
            if !mutant::on(Mutant::RecoverySyncsAgain) {
                assert_eq!(told, Ok(true), "{kind:?}: not in this life");
            }
        }
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(2));
        recovered(&machine);
        both_are_there(&machine, &format!("{kind:?}"));
    }
}

fn history(domain: &Domain<SimOs>) -> Vec<(u64, String)> {
    let past = domain.history().expect("reads the log");
    past.iter().map(|past| (past.lsn.0, past.changes.iter().map(|c| c.letter).collect())).collect()
}

#[test]
fn each_commit_has_one_line_in_the_history_wherever_a_checkpoint_or_a_recovery_is_cut_off() {
    let start = machine(FsKind::Ext4);
    let os = start.spawn("owner");
    let expected = run_process(&os, || {
        let domain = open(&os).expect("opens");
        make(&domain, b"one").expect("commits");
        domain.checkpoint().expect("makes a checkpoint");
        transact(&os, Kind::Everything, Durability::Durable).expect("commits");
        make(&domain, b"two").expect("commits");
        history(&domain)
    });
    let expected = expected.expect("lives");
    assert_eq!(expected.len(), 3);
    assert_eq!((expected[0].1.as_str(), expected[2].1.as_str()), ("A", "A"));
    assert!("AMDR".chars().all(|letter| expected[1].1.contains(letter)), "{expected:?}");
    os.exit();
    let cuts = [None].into_iter().chain(Crash::WORST.map(Some));
    for power_loss in cuts {
        let mut at = 0;
        loop {
            let machine = start.fork();
            let os = machine.spawn("checkpoints");
            machine.kill_at(&os, at);
            let whole = run_process(&os, || open(&os).expect("opens").checkpoint()).is_ok();
            os.exit();
            machine.clear_plans();
            if let Some(crash) = power_loss {
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(at));
            }
            let helper = machine.spawn("helper");
            let found = run_process(&helper, || history(&open(&helper).expect("opens"))).expect("lives");
            assert_eq!(found, expected, "killed before call {at}, power loss: {power_loss:?}");
            if whole {
                break;
            }
            at += if power_loss.is_some() { 7 } else { 1 };
        }
        assert!(at > 10, "it was cut off somewhere: {at}");
    }
}

/// Commits something whose record fills a segment of the log.
fn fill(domain: &Arc<Domain<SimOs>>, os: &SimOs, name: &str) {
    let options =
        Options { durability: Durability::Durable, command: "x".repeat(1 << 20), ..Options::default() };
    let mut t = Transaction::begin(os.clone(), vec![domain.clone()], options).expect("begins");
    t.create(t.root(0), name.as_bytes(), 0o600, ROOT).expect("creates");
    t.commit().expect("commits");
}

/// Commits something whose record fills a segment of the log, and lets go of all that is published.
fn go_on_and_let_go(os: &SimOs, name: &str) {
    let domain = open(os).expect("opens");
    fill(&domain, os, name);
    domain.checkpoint().expect("makes a checkpoint");
}

/// Where a file system keeps its metadata in no order, a removal that survived above one that did not is a
/// hole in the log.
#[test]
fn segments_that_go_leave_no_hole_wherever_a_checkpoint_loses_power() {
    let start = machine(FsKind::Ext4NoJournal);
    let os = start.spawn("owner");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        (0..6).for_each(|n| fill(&domain, &os, &format!("big{n}")));
    })
    .expect("lives");
    os.exit();
    start.settle();
    let committed = public(&start);
    let checkpoint = |machine: &Machine, killed_at: Option<u64>| {
        let os = machine.spawn("checkpoints");
        killed_at.into_iter().for_each(|at| machine.kill_at(&os, at));
        let _ = run_process(&os, || open(&os).expect("opens").checkpoint().expect("is made"));
        machine.clear_plans();
    };
    let copy = start.fork();
    copy.start_trace();
    checkpoint(&copy, None);
    let calls = copy.take_trace();
    let removes = |c: &Traced| c.call == Call::Unlink && c.name.len() == 16;
    let first = calls.iter().find(|c| removes(c)).expect("segments go").point;
    let going = calls.iter().filter(|c| removes(c)).count();
    assert!(going >= 2, "several segments go: {going}");
    // Behind each removal of the first ones, and behind all of it.
    for cut in (first..first + 6).map(Some).chain([None]) {
        for seed in 0..8 {
            let machine = start.fork();
            checkpoint(&machine, cut);
            machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
            let helper = machine.spawn("helper");
            let opened =
                run_process(&helper, || open(&helper).map(|domain| domain.recovered.unfinished.clone()));
            let opened = opened.expect("lives");
            let clean = opened.as_ref().is_ok_and(Vec::is_empty);
            assert!(clean, "cut off before call {cut:?}, seed {seed}: the log has a hole: {opened:?}");
            assert_eq!(public(&machine), committed, "cut off before call {cut:?}, seed {seed}");
        }
    }
}

#[test]
fn a_record_in_flight_stays_where_others_fill_the_log_and_make_checkpoints() {
    for durability in [Durability::None, Durability::Durable] {
        let start = machine(FsKind::Ext4);
        let owner = start.spawn("owner");
        run_process(&owner, || drop(open(&owner).expect("opens"))).expect("lives");
        owner.exit();
        let copy = start.fork();
        copy.start_trace();
        let os = copy.spawn("owner");
        run_process(&os, || transact(&os, Kind::Everything, durability)).expect("lives").expect("commits");
        let (before, after) = (public(&start), public(&copy));
        let calls = copy.take_trace();
        // Published by renames, behind the commit point.
        let last = calls.iter().rposition(|point| point.call == Call::Rename).expect("is called") as u64;
        let mut finished = 0;
        for at in last - 20..last {
            let machine = start.fork();
            let (os, other) = (machine.spawn("owner"), machine.spawn("other"));
            let mut count = 0;
            machine.set_hook(move |_, _| {
                if count == at {
                    go_on_and_let_go(&other, "big");
                }
                count += 1;
            });
            machine.kill_at(&os, at + 1);
            let killed = run_process(&os, || transact(&os, Kind::Everything, durability)).is_err();
            assert!(killed, "before call {at}");
            machine.clear_hook();
            machine.clear_plans();
            let helper = machine.spawn("helper");
            let left = run_process(&helper, || {
                let domain = open(&helper).expect("opens");
                let mut recovered = domain.recovered.clone();
                recovered.merge(domain.finish_dead().expect("reads the area"));
                recovered.unfinished
            });
            assert_eq!(left.expect("lives"), Vec::<String>::new(), "{durability:?}, killed behind call {at}");
            let tree: Tree = public(&machine).into_iter().filter(|(path, _)| path != "big").collect();
            assert!(tree == before || tree == after, "{durability:?}, killed behind call {at}: a mixture");
            finished += u32::from(tree == after);
        }
        assert!(finished > 0, "{durability:?}: some were past the commit point");
    }
}

/// Inode numbers of the log's segments.
fn segments(os: &SimOs) -> systx_os::Result<Vec<u64>> {
    let log = os.open_path(0, ".systx/log", Open::Directory)?;
    os.read_dir(&log)?.iter().map(|segment| Ok(os.stat_at(&log, &segment.name)?.ino)).collect()
}

/// A commit that writes its body, or has written it, and has no number yet stands still while another process
/// fills the log and lets go of it, at the `stop`th of its calls and accesses to the table where that is so;
/// it is killed when half of its names are changed. Returns what is left then, and if it had such a call.
fn left_before_its_number(start: &Machine, durability: Durability, stop: usize) -> (Machine, bool) {
    let machine = start.fork();
    machine.set_word_points(true);
    let (os, other, watcher) = (machine.spawn("owner"), machine.spawn("other"), machine.spawn("watcher"));
    let domain = run_process(&watcher, || open(&watcher).expect("opens")).expect("lives");
    let (owner, segments) = (os.process(), segments(&watcher).expect("reads the log"));
    let (mut written, mut waiting, mut renames) = (false, 0, 0);
    let stopped = Arc::new(Mutex::new(false));
    let stops = stopped.clone();
    machine.set_hook(move |machine, info| {
        if info.process != owner || domain.table.lock_holder().expect("sound").is_some() {
            return;
        }
        match domain.table.slots().in_flight().next() {
            Some(slot) if slot.expect("sound").seen.state() == SlotState::Publishing => {
                renames += u32::from(info.call == Call::Rename);
                if renames == 4 {
                    machine.kill(owner);
                }
            }
            None => {
                // Cells are written under the lock.
                written |= info.call == Call::Pwrite && segments.contains(&info.ino);
                if written && waiting == stop {
                    go_on_and_let_go(&other, "big");
                    *stops.lock().expect("sound") = true;
                }
                waiting += usize::from(written);
            }
            Some(_) => {}
        }
    });
    let killed = run_process(&os, || transact(&os, Kind::Everything, durability)).is_err();
    assert!(killed, "{durability:?}, stop {stop}");
    machine.clear_hook();
    let stopped = *stopped.lock().expect("sound");
    (machine, stopped)
}

#[test]
fn a_record_that_has_no_number_yet_is_found_though_the_log_has_left_it() {
    let (_, after) = undisturbed();
    for durability in [Durability::None, Durability::Durable] {
        let start = machine(FsKind::Ext4);
        let mut stop = 0;
        loop {
            let (machine, stopped) = left_before_its_number(&start, durability, stop);
            if !stopped {
                break;
            }
            let helper = machine.spawn("helper");
            let unfinished = run_process(&helper, || {
                let domain = open(&helper).expect("opens");
                let mut recovered = domain.recovered.clone();
                recovered.merge(domain.finish_dead().expect("reads the area"));
                recovered.unfinished
            })
            .expect("lives");
            let tree: Tree = public(&machine).into_iter().filter(|(path, _)| path != "big").collect();
            assert!(
                tree == after && unfinished.is_empty(),
                "{durability:?}, stop {stop}: half of it is published, and nobody can go on: {unfinished:?}"
            );
            stop += 1;
        }
        assert!(stop > 3, "{durability:?}: it stood still somewhere: {stop}");
    }
}
