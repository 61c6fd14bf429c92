//! Waiting for transactions in flight, and finishing those whose owners are dead. The waiter holds nothing meanwhile.

use super::owner::{finish, help};
use crate::domain::layout::SLOTS;
use crate::domain::waits::{self, Entry, Hold, Owner, Wait};
use crate::domain::{Domain, InFlight, SlotIx, SlotState, PROBE_NS};
use crate::id::{Footprint, ObjectId, Objects};
use crate::objects::past_leases;
use crate::outcome::{ConflictKind, Party, Recovered, Waiting};
use systx_os::{Errno, Os, Result};
use tracing::{debug_span, trace};

/// Wait this long (ns) before decoding the other commit's record to rule out a Bloom-filter false positive.
/// Most commits finish sooner.
pub(crate) const MOMENT_NS: u64 = 5_000_000;

/// How long a commit is waited for that keeps a checkpoint back, before it is looked at again.
const LOOK_NS: u64 = 50_000_000;
/// A transaction in flight for which there is no point in waiting: its end may take any time.
pub(crate) struct Stuck {
    /// Owner of the transaction.
    pub with: Party,
    /// Why.
    pub what: ConflictKind,
    /// Objects that it has read and written.
    pub footprint: Footprint,
}

impl<O: Os> Domain<O> {
    /// Waits for every in-flight transaction that changes one of the objects; helps the dead. An error inside: one of
    /// them is prepared (or can't be finished here).
    pub(crate) fn await_slots(
        &self,
        objects: &[ObjectId],
        waiting: Waiting,
    ) -> Result<core::result::Result<(), Stuck>> {
        let mut ours = None;
        loop {
            let mut found = None;
            for slot in self.table.slots().changing(objects) {
                let slot = self.checked(slot)?;
                let ours =
                    ours.get_or_insert_with(|| Objects { read: objects.to_vec(), ..Objects::default() });
                if !self.is_apart(&slot, ours) {
                    found = Some(slot);
                    break;
                }
            }
            let Some(slot) = found else { return Ok(Ok(())) };
            // All are looked at again after this wait, in which a free entry may have been filled.
            if let Err(stuck) = self.await_slot(slot.ix, ours.as_ref(), waiting)? {
                return Ok(Err(stuck));
            }
        }
    }

    /// The transactions in flight that change one of `ours` and whose end may take any time. This waits for none and
    /// finishes none: those at work are left out, and those of the dead, which a helper is about to finish.
    pub(crate) fn held(&self, ours: &Objects) -> Result<Vec<Stuck>> {
        let mut held = Vec::new();
        for slot in self.table.slots().changing(&ours.read) {
            let slot = self.checked(slot)?;
            if slot.seen.state() != SlotState::Prepared && !slot.left {
                continue;
            }
            self.get_to_know(&slot);
            if !self.is_apart(&slot, ours) {
                held.push(self.stuck(&slot));
            }
        }
        Ok(held)
    }

    /// Opens a file of which an active commit, or another process that looks at it, may hold a lease for a
    /// moment. Holds nothing.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when the lease stays: it is an outsider's.
    pub(crate) fn open_past_leases<T>(&self, id: ObjectId, open: impl Fn() -> Result<T>) -> Result<T> {
        let meanwhile = || {
            // Prepared or in doubt: it holds no lease any more, and its objects are checked elsewhere.
            let _ = self.await_slots(&[id], Waiting::Waits)?;
            trace!(object = ?id, "waiting for a lease");
            Ok(())
        };
        past_leases(&self.os, meanwhile, open)
    }

    /// Waits until one entry is free or has another transaction, finishing it if its owner is dead; or until
    /// it is known not to be in the way of `ours`, if that is the reason to wait.
    pub(crate) fn await_slot(
        &self,
        ix: SlotIx,
        ours: Option<&Objects>,
        waiting: Waiting,
    ) -> Result<core::result::Result<(), Stuck>> {
        let slots = self.table.slots();
        let Some(first) = self.checked(slots.read(ix))? else { return Ok(Ok(())) };
        let apart = |slot: &InFlight| ours.is_some_and(|ours| self.is_apart(slot, ours));
        // Its end may take any time: a filter is no reason to give up.
        let stuck = |slot: &InFlight| {
            self.get_to_know(slot);
            (!apart(slot)).then(|| self.stuck(slot))
        };
        let mut waited = false;
        let _waiting = debug_span!(
            "wait_for_transaction",
            tx = first.info.tx.0,
            lsn = first.info.lsn.0,
            pid = first.info.pid
        );
        let _waiting = _waiting.entered();
        loop {
            let now = self.checked(slots.read(ix))?.filter(|now| now.info.lsn == first.info.lsn);
            // Another number is another transaction: the one that was in the way is done, and its entry used again.
            let Some(now) = now else { return Ok(Ok(())) };
            // Not at once: most commits are over within a moment, and then their records need not be read.
            if waited && ours.is_some() {
                self.get_to_know(&now);
            }
            let hold = if now.left { Hold::Left } else { Hold::Working };
            let entry = if apart(&now) { Entry::Apart } else { Entry::InTheWay(now.seen.state(), hold) };
            let owner = || if self.alive(now.info.owner) { Owner::Alive } else { Owner::Dead };
            match waits::wait_for(entry, waiting, owner) {
                Wait::No => return Ok(Ok(())),
                Wait::Stuck => return Ok(stuck(&now).map_or(Ok(()), Err)),
                Wait::FinishLeft => {
                    if !self.finish_left(ix)? {
                        return Ok(stuck(&now).map_or(Ok(()), Err));
                    }
                }
                Wait::ForOwner => {
                    // A limit, since an owner that is killed wakes no waiter: then its byte is asked again.
                    slots.wait_change(ix, now.seen, if waited { PROBE_NS } else { MOMENT_NS });
                    waited = true;
                }
                Wait::Help => {
                    help(self, now.info.owner)?;
                    let after = self.checked(slots.read(ix))?;
                    let unfinished =
                        after.filter(|a| a.info.lsn == now.info.lsn && !self.alive(a.info.owner));
                    // It can't be finished now (a full disk, a doubt): helping once more at once would not end.
                    if let Some(after) = unfinished {
                        return Ok(stuck(&after).map_or(Ok(()), Err));
                    }
                }
            }
        }
    }

    /// Waits a moment for the commits in flight that keep a checkpoint from covering the last record. Returns true if there is
    /// none any more.
    pub(crate) fn await_uncovered(&self, waiting: Waiting) -> Result<bool> {
        let (recorded, covered) = (self.table.on_disk().recorded(), self.log.checkpointed());
        let slots: core::result::Result<Vec<_>, _> = self.table.slots().in_flight().collect();
        let mut is_free = true;
        for slot in self.checked(slots)? {
            if slot.info.lsn <= covered || slot.info.lsn > recorded {
                continue;
            }
            if slot.info.redo {
                // A recovery could not finish it.
                is_free = false;
            } else if !self.alive(slot.info.owner) {
                is_free &= self.await_slot(slot.ix, None, waiting)?.is_ok();
            } else {
                // It may be stopped, and shares nothing with ours, perhaps.
                if waiting != Waiting::Never {
                    self.table.slots().wait_change(slot.ix, slot.seen, LOOK_NS);
                }
                let now = self.checked(self.table.slots().read(slot.ix))?;
                is_free &= now.is_none_or(|now| now.info.lsn != slot.info.lsn);
            }
        }
        Ok(is_free)
    }

    /// Waits until any entry is free: a stopped owner of one holds up no more than the others do.
    pub(crate) fn await_any_slot(&self) -> Result<()> {
        let slots = self.table.slots();
        let mut limit = MOMENT_NS;
        let _waiting = debug_span!("wait_for_any_entry").entered();
        loop {
            let (mut taken, mut waiting) = (0, None);
            for slot in slots.in_flight() {
                let slot = self.checked(slot)?;
                taken += 1;
                let going = slot.seen.state() != SlotState::Prepared && !slot.left;
                if going && self.alive(slot.info.owner) {
                    waiting = waiting.or(Some(slot));
                } else if self.await_slot(slot.ix, None, Waiting::Waits)?.is_ok() {
                    return Ok(());
                }
            }
            if taken < SLOTS {
                return Ok(());
            }
            // Every one of them is prepared, or waits for space.
            let slot = waiting.ok_or(Errno::AGAIN)?;
            slots.wait_change(slot.ix, slot.seen, limit);
            limit = PROBE_NS;
        }
    }

    /// Tries again to finish an entry that this process has left; returns true if it is free now. Another
    /// process's entry is left to that.
    fn finish_left(&self, ix: SlotIx) -> Result<bool> {
        let before = self.checked(self.table.slots().read(ix))?;
        self.finish_mine()?;
        let after = self.checked(self.table.slots().read(ix))?;
        Ok(after.map(|slot| slot.info.lsn) != before.map(|slot| slot.info.lsn) || after.is_none())
    }

    /// Goes on with all that this process has left.
    pub(crate) fn finish_mine(&self) -> Result<Recovered> {
        self.ours()?;
        // Steps are taken by one thread at a time: other processes are kept out by the owner's byte, threads by this.
        let _alone = self.finishing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut recovered = Recovered::default();
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.left && slot.info.owner == self.me() {
                finish(self, &slot, &mut Vec::new(), &mut recovered)?;
            }
        }
        Ok(recovered)
    }

    fn stuck(&self, slot: &InFlight) -> Stuck {
        let what = match slot.seen.state() {
            SlotState::Prepared => ConflictKind::HeldPrepared,
            // Its owner is at work: only one that does not wait asks.
            _ if !slot.left && self.alive(slot.info.owner) => ConflictKind::HeldNow,
            SlotState::Publishing => ConflictKind::HeldPending,
            _ => ConflictKind::HeldInDoubt,
        };
        Stuck { with: self.party(slot.info.tx, slot.info.pid), what, footprint: slot.info.footprint }
    }
}
