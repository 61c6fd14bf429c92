//! Kills, faults, hooks and schedules.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use systx_os::{Errno, FsKind, Lease, Open, Os, Words};
use systx_sim::machine::{
    run_process, Call, Crash, Effect, Ended, Fault, Machine, Plant, Report, Schedule, SimOs,
};

const TABLE: &[u8] = &[0; 4096];

fn machine() -> Machine {
    let machine = Machine::with(FsKind::Ext4);
    machine
        .plant(0, &[("table", Plant::File(TABLE)), ("owners", Plant::File(b"")), ("f", Plant::File(b"old"))])
        .unwrap();
    machine.settle();
    machine
}

/// Takes an owner byte, the lock word, a lease, and replaces a file.
fn workload(os: &SimOs) -> systx_os::Result<()> {
    let owners = os.open_path(0, "owners", Open::ReadWrite)?;
    let _owned = os.own_byte(&owners, 3)?;
    let table = os.map(&os.open_path(0, "table", Open::ReadWrite)?, 8)?;
    if table.compare_exchange(0, 0, 4).is_err() {
        return Err(Errno::BUSY);
    }
    let root = os.root(0);
    let file = os.open(&root, b"f", Open::ReadWrite)?;
    os.lease(&file, Lease::Write)?;
    os.pwrite(&file, b"new", 0)?;
    os.fsync(&file)?;
    os.lease(&file, Lease::None)?;
    table.store(0, 0, Release);
    table.wake(0);
    Ok(())
}

#[test]
fn a_kill_at_every_point_releases_all_that_the_process_held_and_nothing_else() {
    let whole = machine().spawn("whole");
    workload(&whole).unwrap();
    let points = whole.points();
    assert!(points > 8);
    let mut contents = Vec::new();
    for k in 0..points {
        let machine = machine();
        let os = machine.spawn("victim");
        machine.kill_at(&os, k);
        assert_eq!(run_process(&os, || workload(&os)).map_err(|k| k.0), Err(os.process()), "point {k}");
        assert_eq!(os.points(), k + 1);
        assert_eq!(os.boot_id(), Err(Errno::IO), "the dead do nothing");
        machine.check().unwrap();
        let helper = machine.spawn("helper");
        let owners = helper.open_path(0, "owners", Open::ReadWrite).unwrap();
        assert_eq!(helper.byte_owned(&owners, 3), Ok(false));
        let file = helper.open_path(0, "f", Open::ReadWrite).unwrap();
        helper.lease(&file, Lease::Write).unwrap();
        let table = helper.map(&helper.open_path(0, "table", Open::ReadWrite).unwrap(), 8).unwrap();
        // The word is shared memory: it says what the victim last stored.
        contents.push((table.load(0, Acquire), machine.look(0, "f").unwrap().content));
    }
    contents.dedup();
    let old = b"old".to_vec();
    let new = b"new".to_vec();
    assert_eq!(contents, [(0, old.clone()), (4, old), (4, new.clone()), (0, new)]);
}

#[test]
fn destructors_of_a_killed_process_have_no_effect() {
    struct Undo(SimOs, Arc<Mutex<Option<systx_os::Result<()>>>>);
    impl Drop for Undo {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(self.0.unlink(&self.0.root(0), b"f"));
        }
    }
    let (machine, result) = (machine(), Arc::new(Mutex::new(None)));
    let os = machine.spawn("p");
    machine.kill_at(&os, 1);
    let killed = run_process(&os, || {
        let _undo = Undo(os.clone(), result.clone());
        let stats = (os.stat(&os.root(0)), os.stat(&os.root(0)));
        unreachable!("killed before {stats:?}")
    });
    assert!(killed.is_err());
    assert_eq!(*result.lock().unwrap(), Some(Err(Errno::IO)));
    assert!(machine.look(0, "f").is_some());
}

#[test]
fn faults_hit_the_call_they_are_meant_for() {
    let machine = machine();
    let os = machine.spawn("p");
    let root = os.root(0);
    machine.fault(Fault { skip: 1, ..Fault::fail(Call::Mkdir, Errno::NOSPC) });
    assert_eq!(os.mkdir(&root, b"a", 0o755), Ok(()));
    assert_eq!(os.mkdir(&root, b"b", 0o755), Err(Errno::NOSPC));
    assert_eq!(os.mkdir(&root, b"b", 0o755), Ok(()));
    machine.fault(Fault::fail_point(&os, 2, Errno::MFILE));
    assert!(os.stat(&root).is_ok() && os.stat(&root).is_ok());
    assert_eq!(os.stat(&root), Err(Errno::MFILE));
    let file = os.create(&root, b"c", 0o600).unwrap();
    machine.fault(Fault { effect: Effect::Short(2), ..Fault::fail(Call::Pwrite, Errno::IO) });
    assert_eq!(os.pwrite(&file, b"four", 0), Ok(2));
    assert_eq!(os.pwrite(&file, b"four", 0), Ok(4));
}

#[test]
fn a_hook_acts_as_an_outsider_before_the_call_and_is_no_point_itself() {
    let machine = machine();
    let (os, outsider) = (machine.spawn("p"), machine.spawn("outsider"));
    let theirs = outsider.clone();
    machine.start_trace();
    machine.set_hook(move |machine, info| {
        if info.call == Call::Open && info.name == b"f" {
            theirs.unlink(&theirs.root(0), b"f").unwrap();
            machine.plant(0, &[("f", Plant::File(b"theirs"))]).unwrap();
        }
    });
    let file = os.open(&os.root(0), b"f", Open::Read).unwrap();
    let mut buf = [0; 10];
    assert_eq!(os.pread(&file, &mut buf, 0), Ok(6));
    assert_eq!(outsider.points(), 0);
    let calls: Vec<Call> = machine.take_trace().into_iter().map(|t| t.call).collect();
    assert_eq!(calls, [Call::Open, Call::Pread]);
    machine.clear_hook();
    machine.set_hook(|machine, _| machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::new()));
    assert!(run_process(&os, || os.stat(&file)).is_err(), "power loss kills whoever runs");
    assert_eq!(machine.look(0, "f").unwrap().content, b"old");
}

/// Two processes that add to a counter under a lock word with futex waits.
fn counters(seed: u64, wakes: bool, timeout_ns: u64) -> (Report, u64) {
    let machine = machine();
    let processes = (0..2)
        .map(|n| {
            let os = machine.spawn(["a", "b"][n]);
            let body = {
                let os = os.clone();
                move || {
                    let file = os.open_path(0, "table", Open::ReadWrite).unwrap();
                    let table = os.map(&file, 8).unwrap();
                    for _ in 0..5 {
                        while table.compare_exchange(0, 0, 1).is_err() {
                            table.wait(0, 1, timeout_ns);
                        }
                        let n = table.load(1, Acquire);
                        table.store(1, n + 1, Release);
                        table.store(0, 0, Release);
                        if wakes {
                            table.wake(0);
                        }
                    }
                }
            };
            (os, Box::new(body) as Box<dyn FnOnce() + Send>)
        })
        .collect();
    let report = Schedule::run(seed, processes);
    let os = machine.outsider("look");
    let table = os.map(&os.open_path(0, "table", Open::ReadWrite).unwrap(), 8).unwrap();
    let count = table.load(1, Acquire);
    (report, count)
}

#[test]
fn two_processes_share_a_lock_by_futex_and_a_seed_replays_exactly() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (report, count) = counters(seed, true, u64::MAX);
        assert_eq!((count, &report.ended), (10, &vec![Ended::Finished; 2]), "{seed}: {report:?}");
        assert_eq!(counters(seed, true, u64::MAX).0, report);
        digests.insert(report.digest);
    }
    assert!(digests.len() > 50, "schedules differ: {}", digests.len());
}

#[test]
fn a_forgotten_wake_is_a_deadlock_and_a_timeout_heals_it() {
    let deadlocked = (0..50).filter(|seed| counters(*seed, false, u64::MAX).0.deadlock.is_some()).count();
    assert!(deadlocked > 0);
    for seed in 0..50 {
        let (report, count) = counters(seed, false, 1_000_000);
        assert_eq!((count, report.deadlock), (10, None));
    }
}

#[test]
fn a_lost_update_is_found_by_some_seed() {
    let lost = (0..100).any(|seed| {
        let machine = machine();
        let processes = (0..2)
            .map(|_| {
                let os = machine.spawn("adder");
                let mine = os.clone();
                let body = move || {
                    let file = mine.open_path(0, "table", Open::ReadWrite).unwrap();
                    let table = mine.map(&file, 8).unwrap();
                    let n = table.load(1, Acquire);
                    table.store(1, n + 1, Release);
                };
                (os, Box::new(body) as Box<dyn FnOnce() + Send>)
            })
            .collect();
        Schedule::run(seed, processes);
        let os = machine.outsider("look");
        let table = os.map(&os.open_path(0, "table", Open::ReadWrite).unwrap(), 8).unwrap();
        table.load(1, Acquire) == 1
    });
    assert!(lost);
}

#[test]
fn a_kill_within_a_schedule_lets_the_others_go_on_and_a_panic_is_reported() {
    let machine = machine();
    let (victim, waiter, faulty) =
        (machine.spawn("victim"), machine.spawn("waiter"), machine.spawn("faulty"));
    machine.kill_at(&victim, 3);
    let (v, w) = (victim.clone(), waiter.clone());
    let report = Schedule::run(
        1,
        vec![
            (victim, Box::new(move || workload(&v).unwrap())),
            (
                waiter,
                Box::new(move || {
                    let owners = w.open_path(0, "owners", Open::ReadWrite).unwrap();
                    while w.own_byte(&owners, 3).is_err() {
                        w.pause(1_000_000);
                    }
                }),
            ),
            (faulty, Box::new(|| std::panic::resume_unwind(Box::new("its own fault")))),
        ],
    );
    assert_eq!(report.ended, [Ended::Killed, Ended::Finished, Ended::Panicked("its own fault".into())]);
    assert_eq!((report.deadlock, report.endless), (None, false));
}

#[test]
fn a_fork_goes_its_own_way() {
    let machine = machine();
    let fork = machine.fork();
    fork.remove(0, "f").unwrap();
    assert!(machine.look(0, "f").is_some() && fork.look(0, "f").is_none());
    fork.check().unwrap();
}

#[test]
fn a_kill_releases_at_once_what_nobody_has_dropped_yet() {
    let machine = machine();
    let (os, helper) = (machine.spawn("victim"), machine.spawn("helper"));
    let owners = os.open_path(0, "owners", Open::ReadWrite).unwrap();
    let held = (os.own_byte(&owners, 1).unwrap(), os.open_path(0, "f", Open::ReadWrite).unwrap());
    os.lease(&held.1, Lease::Write).unwrap();
    let theirs = helper.open_path(0, "owners", Open::ReadWrite).unwrap();
    assert_eq!(helper.own_byte(&theirs, 1).err(), Some(Errno::AGAIN));
    assert_eq!(helper.open_path(0, "f", Open::Read).err(), Some(Errno::AGAIN));
    machine.kill(os.process());
    let taken = helper.own_byte(&theirs, 1).unwrap();
    drop(helper.open_path(0, "f", Open::Read).unwrap());
    drop(held);
    assert_eq!(helper.byte_owned(&theirs, 1), Ok(true), "the late drop is of the dead one's byte only");
    drop(taken);
    assert_eq!(helper.byte_owned(&theirs, 1), Ok(false));
}

/// Words that are cleared together are cleared by one store each, as far as a kill, a count, a clock or a
/// trace can tell.
#[test]
fn words_that_are_cleared_are_stored_to_page_by_page() {
    const WORDS: usize = 1500;
    const FIRST: usize = 3;
    let play = |plan: &dyn Fn(&Machine, &SimOs)| {
        let machine = machine();
        let os = machine.spawn("owner");
        let root = os.root(0);
        let file = os.create(&root, b"words", 0o600).unwrap();
        os.truncate(&file, WORDS as u64 * 8).unwrap();
        let mem = os.map(&file, WORDS).unwrap();
        (0..WORDS).for_each(|index| mem.store(index, !0, Release));
        plan(&machine, &os);
        let (begun, began) = (os.points(), machine.clock_ns());
        let killed = run_process(&os, || mem.clear(FIRST..WORDS)).is_err();
        let words: Vec<_> = machine.take_trace().iter().map(|call| call.word).collect();
        let content = machine.look(0, "words").unwrap().content;
        let kept = content.chunks(8).skip(FIRST).filter(|word| **word == [0xff; 8]).count();
        assert_eq!(content[..FIRST * 8], [0xff; FIRST * 8], "words before them");
        (killed, os.points() - begun, machine.clock_ns() > began, words, kept)
    };
    let all = WORDS - FIRST;
    assert_eq!(play(&|_, _| ()), (false, 3, true, vec![], 0));
    for point in 0..5 {
        let cleared = (point as usize * 512).min(all);
        let (killed, .., kept) = play(&|machine, os| machine.kill_at(os, point));
        assert_eq!((killed, kept), (point < 3, all - cleared), "killed at {point}");
        let (killed, .., kept) = play(&|machine, _| machine.kill_anybody_at(point));
        assert_eq!((killed, kept), (point < 3, all - cleared), "anybody, at {point}");
    }
    let traced = play(&|machine, _| machine.start_trace()).3;
    assert_eq!(traced, [Some(FIRST), Some(FIRST + 512), Some(FIRST + 1024)]);
    assert_eq!(play(&|machine, _| machine.set_word_points(false)), (false, 0, false, vec![], 0));
    assert_eq!(play(&|machine, os| machine.kill(os.process())).4, all, "a dead process stores nothing");
    let hooked = |machine: &Machine, _: &SimOs| {
        machine.set_hook(|machine, info| {
            if info.word == Some(FIRST + 512) {
                machine.kill(info.process);
            }
        });
    };
    let (killed, .., kept) = play(&hooked);
    assert_eq!((killed, kept), (true, all - 512));
}
