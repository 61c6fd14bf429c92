//! The parts of the table under a scheduler that explores interleavings and deaths, with tiny capacities.
//!
//! Each promise is checked over a bounded number of random schedules. Three mutants at the end show that the checks
//! would notice.

use super::model::{info_of, only, signature_of, Faults, Model, Patience};
use super::uniform::Uniform;
use crate::domain::layout::{RING_ENTRY_LEN, SLOT_LEN, UNSYNCED_LEN};
use crate::domain::ring::{Ring, Scan, Who};
use crate::domain::slots::{Place, SlotInfo, SlotState, Slots};
use crate::domain::unsynced::{Token, Unsynced};
use crate::id::{Footprint, Lsn, ObjectId, Objects, OwnerIx, Signature, TxId};
use crate::lock::{Locked, RobustLock};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{thread, Config, Runner};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use systx_os::Words;

const SCHEDULES: usize = 2000;

const LOCK: RobustLock = RobustLock { word: 0 };
const NEXT: usize = 1;
const BITMAP: usize = 2;
/// Two "files" of a model.
const FILES: [usize; 2] = [3, 4];
const BASE: usize = 8;

fn lock(mem: &impl Words, model: &Model, me: OwnerIx) -> Locked {
    LOCK.lock(mem, me, &|o| model.alive(o)).unwrap()
}

fn unlock(mem: &impl Words, locked: Locked) {
    LOCK.unlock(mem, locked).unwrap();
}

/// Runs `f` under schedules of three kinds: every thread as likely at each access, every interleaving as likely, and
/// few preemptions at any place. Each finds what the others rarely meet.
fn explore(f: impl Fn() + Send + Sync + 'static, schedules: usize) {
    let f = Arc::new(f);
    let (a, b, c) = (f.clone(), f.clone(), f);
    let seed = systx_runner::seed();
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), Config::default()).run(move || a());
    Runner::new(Uniform::new(seed, schedules), Config::default()).run(move || b());
    Runner::new(PctScheduler::new_from_seed(seed, 3, schedules), Config::default()).run(move || c());
}

fn run(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

// ---- lock ---------------------------------------------------------------------------------------------------------

fn critical_section(mem: &impl Words, model: &Model, me: OwnerIx, locked: Locked) {
    let before = model.inside.swap(me.0, Ordering::SeqCst);
    let heir = locked.taken_over.is_some_and(|dead| dead.0 == before);
    assert!(before == 0 || heir, "{me:?} entered while {before} was inside");
    mem.load(NEXT, Ordering::Relaxed);
    model.inside.store(0, Ordering::SeqCst);
    unlock(mem, locked);
}

fn contend(mem: &impl Words, model: &Model, me: OwnerIx) {
    (0..2).for_each(|_| critical_section(mem, model, me, lock(mem, model, me)));
}

#[test]
fn a_lock_has_one_living_holder_and_is_taken_over_from_a_dead_one() {
    explore(
        || {
            let model = Model::new(BASE, Patience::TimesOut, Faults::default());
            let life = |me: u32| {
                let model = model.clone();
                Box::new(move || contend(&*model, &model, OwnerIx(me))) as Box<dyn FnOnce() + Send>
            };
            let mortal = model.clone();
            let death = Box::new(move || {
                let me = OwnerIx(3);
                if mortal.mortal(me, 40, |mem| contend(mem, &mortal, me)).is_none() {
                    // Another process claims the index; one that saw the dead holder must not take from this
                    // one.
                    mortal.revive(me);
                    if let Some(locked) = LOCK.inherit(&*mortal, me).unwrap() {
                        critical_section(&*mortal, &mortal, me, locked);
                    }
                    contend(&*mortal, &mortal, me);
                }
            });
            run(vec![life(1), life(2), death]);
        },
        SCHEDULES * 4,
    );
}

fn lock_with(faults: Faults) {
    let model = Model::new(BASE, Patience::Endless, faults);
    let life = |me: u32| {
        let model = model.clone();
        Box::new(move || contend(&*model, &model, OwnerIx(me))) as Box<dyn FnOnce() + Send>
    };
    run(vec![life(1), life(2), life(3)]);
}

#[test]
fn a_lock_loses_no_wake_up() {
    explore(|| lock_with(Faults::default()), SCHEDULES * 4);
}

// ---- slots --------------------------------------------------------------------------------------------------------

fn slots_are_consistent(count: usize) {
    // Two words of a footprint show a torn one as well as all of them.
    let quiet = |word: usize| word >= BASE && (word - BASE) % SLOT_LEN >= 10;
    let model = Model::new(
        BASE + count * SLOT_LEN,
        Patience::Endless,
        Faults { quiet: Some(quiet), ..Faults::default() },
    );
    // Per writer: the LSN that it has in flight.
    let in_flight: Arc<[AtomicU64; 2]> = Default::default();
    let writer = |n: usize| {
        let (model, in_flight) = (model.clone(), in_flight.clone());
        Box::new(move || {
            let slots = Slots::at(&*model, BITMAP, BASE, count);
            for lsn in [1 + n as u64, 3 + n as u64] {
                let (ix, seen) = loop {
                    let locked = lock(&*model, &model, OwnerIx(1 + n as u32));
                    if let Some(ix) = slots.find_free(&locked).unwrap() {
                        let seen = slots.fill(&locked, ix, &info_of(lsn), SlotState::Validated).unwrap();
                        unlock(&*model, locked);
                        break (ix, seen);
                    }
                    unlock(&*model, locked);
                    let other = slots.in_flight().next();
                    if let Some(other) = other.transpose().unwrap() {
                        slots.wait_change(other.ix, other.seen, u64::MAX);
                    }
                };
                in_flight[n].store(lsn, Ordering::SeqCst);
                let seen = slots.set_state(ix, seen, SlotState::Publishing);
                in_flight[n].store(0, Ordering::SeqCst);
                // Waiters sleep through PUBLISHING and must be woken here.
                slots.free(ix, seen.unwrap()).unwrap();
            }
        }) as Box<dyn FnOnce() + Send>
    };
    let reader = {
        let (model, in_flight) = (model.clone(), in_flight.clone());
        Box::new(move || {
            let slots = Slots::at(&*model, BITMAP, BASE, count);
            for _ in 0..3 {
                let before = [0, 1].map(|n: usize| in_flight[n].load(Ordering::SeqCst));
                let seen: Vec<u64> = slots
                    .in_flight()
                    .map(|found| {
                        let info = found.unwrap().info;
                        assert_eq!(info, info_of(info.lsn.0), "torn");
                        info.lsn.0
                    })
                    .collect();
                for (n, lsn) in before.into_iter().enumerate().filter(|(_, lsn)| *lsn != 0) {
                    let still = in_flight[n].load(Ordering::SeqCst) == lsn;
                    assert!(!still || seen.contains(&lsn), "missed a slot that was in flight");
                }
            }
        })
    };
    run(vec![writer(0), writer(1), reader]);
}

#[test]
fn a_slot_is_never_read_torn_and_never_missed() {
    explore(|| slots_are_consistent(2), SCHEDULES);
}

/// Freeing a slot and its next use, with a reader who must not miss that use.
fn a_reused_slot_is_found() {
    let quiet = |word: usize| word > BASE;
    let model =
        Model::new(BASE + SLOT_LEN, Patience::TimesOut, Faults { quiet: Some(quiet), ..Faults::default() });
    let slots = Slots::at(&*model, BITMAP, BASE, 1);
    let locked = lock(&*model, &model, OwnerIx(1));
    let ix = slots.find_free(&locked).unwrap().unwrap();
    let first = slots.fill(&locked, ix, &info_of(1), SlotState::Validated).unwrap();
    unlock(&*model, locked);

    let owner = model.clone();
    let owner = Box::new(move || Slots::at(&*owner, BITMAP, BASE, 1).free(ix, first).unwrap());
    let next = model.clone();
    let next = Box::new(move || {
        let slots = Slots::at(&*next, BITMAP, BASE, 1);
        let locked = lock(&*next, &next, OwnerIx(2));
        if let Some(ix) = slots.find_free(&locked).unwrap() {
            slots.fill(&locked, ix, &info_of(2), SlotState::Validated).unwrap();
        }
        unlock(&*next, locked);
    });
    run(vec![owner, next]);
    let in_flight = slots.in_flight().count();
    assert_eq!(in_flight == 1, slots.state(ix).unwrap().state() == SlotState::Validated, "missed");
}

#[test]
fn a_slot_that_is_used_again_while_it_is_being_freed_is_not_missed() {
    explore(a_reused_slot_is_found, SCHEDULES);
}

#[test]
fn with_all_slots_taken_who_waits_is_woken() {
    explore(|| slots_are_consistent(1), SCHEDULES);
}

// ---- ring ---------------------------------------------------------------------------------------------------------

const RING: usize = 2;

fn ring_with(faults: Faults) {
    let quiet = |word: usize| word >= BASE && (word - BASE) % RING_ENTRY_LEN >= 10;
    let faults = Faults { quiet: Some(quiet), ..faults };
    let model = Model::new(BASE + RING * RING_ENTRY_LEN, Patience::Endless, faults);
    model.store(NEXT, 1, Ordering::SeqCst);
    let writer = |n: u32| {
        let model = model.clone();
        Box::new(move || {
            for _ in 0..2 {
                let locked = lock(&*model, &model, OwnerIx(n));
                let lsn = model.load(NEXT, Ordering::Acquire);
                let who = Who { tx: TxId(lsn), pid: lsn as u32, recorded: lsn % 2 == 0 };
                Ring::at(&*model, BASE, RING).put(&locked, Lsn(lsn), who, &signature_of(lsn));
                model.store(NEXT, lsn + 1, Ordering::Release);
                unlock(&*model, locked);
            }
        }) as Box<dyn FnOnce() + Send>
    };
    let reader = {
        let model = model.clone();
        Box::new(move || {
            let ring = Ring::at(&*model, BASE, RING);
            let mut from = 1;
            while from < 5 {
                let to = model.load(NEXT, Ordering::Acquire);
                let mut expected = from;
                let end = ring.scan(Lsn(from), Lsn(to), |lsn, who, signature| {
                    assert_eq!(lsn.0, expected);
                    assert_eq!((who.tx.0, u64::from(who.pid)), (lsn.0, lsn.0), "torn");
                    assert_eq!(*signature, signature_of(lsn.0), "torn");
                    expected += 1;
                });
                match end {
                    Scan::Done => assert_eq!(expected, to, "missed an entry"),
                    Scan::Overrun => {
                        let now = model.load(NEXT, Ordering::Acquire);
                        assert!(now - from >= RING as u64, "cried overrun for nothing");
                    }
                }
                from = to;
                thread::yield_now();
            }
        })
    };
    run(vec![writer(1), writer(2), reader]);
}

#[test]
fn a_ring_scan_is_whole_or_says_overrun() {
    explore(|| ring_with(Faults::default()), SCHEDULES);
}

// ---- slots, next and ring together
// -----------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Order {
    SlotThenNext,
    NextThenSlot,
}

/// One commit that changes two files, one reader of both by R1 and R2: it must not see half of it.
fn half_commits_are_not_seen(order: Order) {
    let slot_words = 2 * SLOT_LEN;
    let ring_at = BASE + slot_words;
    let quiet = |word: usize| word >= BASE + 8 && word % 8 >= 2;
    let faults = Faults { quiet: Some(quiet), ..Faults::default() };
    let model = Model::new(ring_at + RING * RING_ENTRY_LEN, Patience::Endless, faults);
    model.store(NEXT, 1, Ordering::SeqCst);
    let objects = FILES.map(|f| ObjectId(f as u64 | (f as u64 + 64) << 10));
    let changed: Signature = objects.into_iter().collect();

    let committer = {
        let model = model.clone();
        Box::new(move || {
            let (slots, ring) = (Slots::at(&*model, BITMAP, BASE, 2), Ring::at(&*model, ring_at, RING));
            let locked = lock(&*model, &model, OwnerIx(1));
            let lsn = Lsn(model.load(NEXT, Ordering::Acquire));
            let next = || model.store(NEXT, lsn.0 + 1, Ordering::Release);
            let ix = slots.find_free(&locked).unwrap().unwrap();
            let footprint = Footprint { written: changed, ..Footprint::EMPTY };
            let info = SlotInfo { lsn, footprint, body: Place::default(), ..info_of(1) };
            if order == Order::NextThenSlot {
                next();
            }
            let seen = slots.fill(&locked, ix, &info, SlotState::Validated).unwrap();
            ring.put(&locked, lsn, Who { tx: info.tx, pid: info.pid, recorded: false }, &changed);
            if order == Order::SlotThenNext {
                next();
            }
            unlock(&*model, locked);
            let seen = slots.set_state(ix, seen, SlotState::Publishing).unwrap();
            FILES.iter().for_each(|f| model.store(*f, 1, Ordering::SeqCst));
            slots.free(ix, seen).unwrap();
        }) as Box<dyn FnOnce() + Send>
    };
    let reader = {
        let model = model.clone();
        Box::new(move || {
            let (slots, ring) = (Slots::at(&*model, BITMAP, BASE, 2), Ring::at(&*model, ring_at, RING));
            let snapshot = Lsn(model.load(NEXT, Ordering::Acquire));
            let mut seen = [0; 2];
            for (file, value) in FILES.into_iter().zip(&mut seen) {
                let object = objects[file - FILES[0]];
                while let Some(slot) = slots
                    .in_flight()
                    .map(Result::unwrap)
                    .find(|s| s.info.footprint.changed().may_contain(object))
                {
                    slots.wait_change(slot.ix, slot.seen, u64::MAX);
                }
                *value = model.load(file, Ordering::SeqCst);
                let mut hit = false;
                let next = Lsn(model.load(NEXT, Ordering::Acquire));
                let end =
                    ring.scan(snapshot, next, |_, _, s| hit |= objects.iter().any(|o| s.may_contain(*o)));
                if hit || end == Scan::Overrun {
                    // A real reader compares facts; here it is enough that the ring gave a hit.
                    return;
                }
            }
            assert_eq!(seen[0], seen[1], "half a commit was seen");
        })
    };
    run(vec![committer, reader]);
}

#[test]
fn a_reader_never_sees_half_a_commit() {
    explore(|| half_commits_are_not_seen(Order::SlotThenNext), SCHEDULES);
}

// ---- unsynced -------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq)]
enum Clearing {
    OwnEpoch,
    Always,
}

fn objects_are_unsynced_until_synced(clearing: Clearing) {
    const OBJECTS: usize = 2;
    let model = Model::new(BASE + UNSYNCED_LEN, Patience::TimesOut, Faults::default());
    // Per object: the version in memory, the version whose `add` has returned, the version on disk.
    type Versions = Arc<[AtomicU64; OBJECTS]>;
    let (memory, added, disk): (Versions, Versions, Versions) = Default::default();
    let object = |n: usize| ObjectId((n as u64 + 1) | (n as u64 + 300) << 10);
    // Worst case of a syncfs: it covers what was written before it began and nothing else.
    let sync = {
        let (memory, disk) = (memory.clone(), disk.clone());
        move |mem: &dyn Fn() -> Token, end: &dyn Fn(Token)| {
            let token = mem();
            let covered: Vec<u64> = memory.iter().map(|v| v.load(Ordering::SeqCst)).collect();
            thread::yield_now();
            disk.iter().zip(covered).for_each(|(d, v)| {
                d.fetch_max(v, Ordering::SeqCst);
            });
            end(token);
        }
    };

    let writer = {
        let (model, memory, added) = (model.clone(), memory.clone(), added.clone());
        Box::new(move || {
            for n in [0, 1, 0] {
                let version = memory[n].fetch_add(1, Ordering::SeqCst) + 1;
                Unsynced::at(&*model, BASE).add(&only(object(n)));
                added[n].store(version, Ordering::SeqCst);
            }
        }) as Box<dyn FnOnce() + Send>
    };
    let syncer = |me: u32| {
        let (model, sync) = (model.clone(), sync.clone());
        Box::new(move || {
            let me = OwnerIx(me);
            // A process that dies may leave its sync at any point, also between syncfs and the clearing.
            let _ = model.mortal(me, 250, |mem| {
                let unsynced = Unsynced::at(mem, BASE);
                let begin = || {
                    let locked = lock(mem, &model, me);
                    let token = unsynced.begin_sync(&locked);
                    unlock(mem, locked);
                    token
                };
                let end = |mut token: Token| {
                    let locked = lock(mem, &model, me);
                    if clearing == Clearing::Always {
                        token.epoch = mem.load(BASE, Ordering::Acquire);
                    }
                    unsynced.end_sync(&locked, token);
                    unlock(mem, locked);
                };
                (0..2).for_each(|_| sync(&begin, &end));
            });
        }) as Box<dyn FnOnce() + Send>
    };
    let check = {
        let (model, added, disk) = (model.clone(), added.clone(), disk.clone());
        move || {
            for n in 0..OBJECTS {
                let must = added[n].load(Ordering::SeqCst);
                let objects = Objects { read: vec![object(n)], ..Objects::default() };
                if !Unsynced::at(&*model, BASE).hits(&objects) {
                    assert!(disk[n].load(Ordering::SeqCst) >= must, "cleared before it was synced");
                }
            }
        }
    };
    let checker = check.clone();
    run(vec![writer, syncer(1), syncer(2), Box::new(move || (0..2).for_each(|_| checker()))]);
    check();

    // A process that is left gets everything clean with two syncs of its own.
    let (me, unsynced) = (OwnerIx(5), Unsynced::at(&*model, BASE));
    for _ in 0..2 {
        let locked = lock(&*model, &model, me);
        let token = unsynced.begin_sync(&locked);
        unsynced.end_sync(&locked, token);
        unlock(&*model, locked);
    }
    assert!(unsynced.signature().is_empty(), "two syncs did not clear everything");
}

#[test]
fn unsynced_is_never_cleared_too_early_and_two_syncs_clear_it() {
    explore(|| objects_are_unsynced_until_synced(Clearing::OwnEpoch), SCHEDULES);
}

// ---- mutants
// ----------------------------------------------------------------------------------------------------------

#[test]
#[should_panic(expected = "deadlock")]
fn mutant_unlock_without_wake_is_noticed() {
    explore(|| lock_with(Faults { no_wake: true, ..Faults::default() }), SCHEDULES);
}

#[test]
#[should_panic(expected = "torn")]
fn mutant_ring_entry_not_invalidated_first_is_noticed() {
    let swallow = |word: usize, value: u64| value == 0 && word >= BASE && (word - BASE) % RING_ENTRY_LEN == 0;
    explore(move || ring_with(Faults { swallow: Some(swallow), ..Faults::default() }), SCHEDULES * 4);
}

#[test]
#[should_panic(expected = "half a commit was seen")]
fn mutant_next_moved_before_the_slot_is_visible_is_noticed() {
    explore(|| half_commits_are_not_seen(Order::NextThenSlot), SCHEDULES * 4);
}

#[test]
#[should_panic(expected = "cleared before it was synced")]
fn mutant_unsynced_cleared_by_an_older_sync_is_noticed() {
    explore(|| objects_are_unsynced_until_synced(Clearing::Always), SCHEDULES * 4);
}
