//! What holds before every call of a commit, not only at its end: I1, I4, I10 of docs/protocol.md, as somebody sees them who
//! looks at the table and at the public tree between any two calls.

use super::world::*;
use crate::domain::{Domain, SlotState};
use crate::outcome::Durability;
use std::sync::{Arc, Mutex};
use systx_os::FsKind;
use systx_sim::machine::{run_process, Call, Machine, PointInfo, SimOs, Tree};

/// What was seen so far.
#[derive(Default)]
struct Witness {
    validated: u32,
    publishing: u32,
    locked: u32,
    /// The log was synced since the slot was taken.
    synced: bool,
    wrong: Vec<String>,
}

impl Witness {
    fn look(
        &mut self,
        domain: &Domain<SimOs>,
        durability: Durability,
        before: &Tree,
        (machine, info): (&Machine, &PointInfo),
    ) {
        let slots: Vec<_> = domain.table.slots().in_flight().map(|slot| slot.expect("sound")).collect();
        let state = slots.first().map(|slot| slot.seen.state());
        let changed = public(machine) != *before;
        let mut wrong = |what: &str| self.wrong.push(format!("{what} before {:?} {}", info.call, info.point));
        match state {
            Some(SlotState::Validated) => {
                self.validated += 1;
                if changed {
                    wrong("I1: public objects have changed while the slot is validated");
                }
            }
            Some(SlotState::Publishing) => {
                self.publishing += 1;
                if durability == Durability::Durable && !self.synced {
                    wrong("I4: publishing, and the header is not synced");
                }
            }
            _ if changed && self.publishing == 0 => wrong("I1: changed, and never published"),
            _ => {}
        }
        if domain.table.lock_holder().expect("sound").is_some() {
            self.locked += 1;
            let waits = [Call::Pause, Call::Lease, Call::OwnByte, Call::Open, Call::OpenHandle];
            let syncs = [Call::Fsync, Call::Fdatasync, Call::Syncfs, Call::WriteOut];
            if waits.contains(&info.call) || syncs.contains(&info.call) {
                wrong("I10: the commit lock is held");
            }
        }
        self.synced |= state == Some(SlotState::Validated) && info.call == Call::Fdatasync;
    }
}

fn holds_before_every_call(kind: Kind, durability: Durability) {
    let world = machine(FsKind::Ext4).fork();
    world.set_word_points(false);
    let before = public(&world);
    let watcher = world.spawn("watcher");
    let domain = run_process(&watcher, || open(&watcher).expect("opens")).expect("lives");
    let seen = Arc::new(Mutex::new(Witness::default()));
    let (shared, was) = (seen.clone(), before.clone());
    // A lock is held between accesses to words: those are calls, too.
    world.set_word_points(true);
    let busy = Arc::new(Mutex::new(()));
    world.set_hook(move |machine, info| {
        // Our own looks at the table come by here, too.
        let Ok(_alone) = busy.try_lock() else { return };
        let mut seen = shared.lock().expect("one at a time");
        seen.look(&domain, durability, &was, (machine, info));
    });
    let os = world.spawn("owner");
    run_process(&os, || transact(&os, kind, durability)).expect("lives").expect("commits");
    world.clear_hook();
    assert_ne!(public(&world), before);
    let seen = seen.lock().expect("nobody panicked");
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    let counts = [seen.validated, seen.publishing, seen.locked];
    assert!(counts.iter().all(|n| *n > 0), "every state was seen: {counts:?}");
}

#[test]
fn nothing_public_changes_before_the_commit_point_and_nobody_waits_under_the_lock() {
    for kind in [Kind::Everything, Kind::Small, Kind::Inline] {
        holds_before_every_call(kind, Durability::Durable);
    }
}

#[test]
fn so_without_durability() {
    holds_before_every_call(Kind::Everything, Durability::None);
}
