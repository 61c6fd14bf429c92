//! All slots of the table are taken: who commits next waits, holding nothing, and goes on when one of them is free.

use super::world::*;
use crate::domain::{Place, SlotInfo, SlotState, Who};
use crate::id::Footprint;
use crate::outcome::Durability;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use systx_os::{FsKind, Os};
use systx_sim::machine::{Ended, Schedule, SimOs};

/// Commits that can be in flight at once.
const SLOTS: usize = 64;
/// Turns of the other one, long enough to come to where it waits.
const TURNS: usize = 500;
/// More than enough to commit.
const TURNS_MAX: usize = 5000;
/// Virtual time of each.
const TURN_NS: u64 = 10_000_000;
/// The calls of a transaction up to its commit are more than these.
const CALLS_MIN: u64 = 40;

type Body = Box<dyn FnOnce() + Send>;

fn who_finds_all_slots_taken_waits(seed: u64, kind: Kind, durability: Durability) {
    let machine = machine(FsKind::Ext4);
    machine.set_word_points(false);
    let [full, freed, ended] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let (crowd, next) = (machine.spawn("crowd"), machine.spawn("next"));
    let (os, is_full, is_freed, has_ended) = (crowd.clone(), full.clone(), freed.clone(), ended.clone());
    let other = next.clone();
    let takes: Body = Box::new(move || {
        let domain = open(&os).expect("opens");
        let table = &domain.table;
        let mut slots: Vec<_> = (0..SLOTS)
            .map(|_| {
                let held = domain.lock().expect("locks");
                let (lsn, tx, pid) = (table.next(), domain.new_tx(), os.pid());
                let slot = table.slots().find_free(held.proof()).expect("sound").expect("one is left");
                let (body, footprint, owner) = (Place::default(), Footprint::EMPTY, domain.me());
                let (durable, multi_domain, redo) = (false, false, false);
                let info = SlotInfo { lsn, tx, owner, pid, durable, multi_domain, redo, body, footprint };
                table.slots().fill(held.proof(), slot, &info, SlotState::Validated).expect("is free");
                table.ring().put(
                    held.proof(),
                    lsn,
                    Who { tx, pid, recorded: false },
                    &Footprint::EMPTY.changed(),
                );
                table.advance_next(held.proof());
                slot
            })
            .collect();
        is_full.store(true, SeqCst);
        (0..TURNS).for_each(|_| os.pause(TURN_NS));
        assert!(other.points() > CALLS_MIN, "seed {seed}: {} calls: it does not try", other.points());
        assert!(!has_ended.load(SeqCst), "seed {seed}: it has found a slot");
        assert_eq!(table.lock_holder(), Ok(None), "seed {seed}: it waits with the lock");
        is_freed.store(true, SeqCst);
        domain.free_slot(slots.swap_remove(seed as usize % SLOTS)).expect("mine");
        let found = (0..TURNS_MAX).any(|_| {
            os.pause(TURN_NS);
            has_ended.load(SeqCst)
        });
        assert!(found, "seed {seed}: a free slot is not found");
        slots.into_iter().for_each(|slot| domain.free_slot(slot).expect("mine"));
    });
    let (os, is_freed) = (next.clone(), freed.clone());
    let commits: Body = Box::new(move || {
        while !full.load(SeqCst) {
            os.pause(1_000_000);
        }
        let done = transact(&os, kind, durability).expect("commits");
        assert!(is_freed.load(SeqCst), "seed {seed}: it is committed without a slot");
        assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
        ended.store(true, SeqCst);
    });
    let processes: Vec<(SimOs, Body)> = vec![(crowd, takes), (next, commits)];
    let report = Schedule::run(seed, processes);
    assert_eq!(report.deadlock, None, "seed {seed}");
    assert!(!report.endless && report.ended.iter().all(|e| *e == Ended::Finished), "seed {seed}");
    assert_eq!(public(&machine)["w/patched"].content[600], 0xee, "seed {seed}");
}

#[test]
fn who_finds_all_slots_taken_waits_until_one_is_free_and_holds_nothing() {
    for seed in 0..4 {
        for (kind, durability) in [
            (Kind::Everything, Durability::Durable),
            (Kind::Small, Durability::Durable),
            (Kind::Everything, Durability::None),
        ] {
            who_finds_all_slots_taken_waits(seed, kind, durability);
        }
    }
}
