//! Waiting for others, and what commits see of them. Whoever waits here holds nothing.

use super::layout::SLOTS;
use super::on_disk::Began;
use super::{Domain, InFlight, Scan, SlotIx, SlotState, Who};
use crate::id::{Footprint, Lsn, ObjectId, Objects, Signature};
use crate::outcome::Party;
use crate::recovery;
use systx_os::{Errno, Os, Result};

/// Between two probes of an owner for whom somebody waits, in nanoseconds.
pub(super) const PROBE_NS: u64 = 50_000_000;
/// Who has waited for so long, in nanoseconds, looks whether he waits for a reason: most commits are done by then.
pub(crate) const MOMENT_NS: u64 = 5_000_000;
/// How often an open that meets a lease is tried again, and the pause between, in nanoseconds: a commit in flight and a
/// reader's probe give theirs back soon, an outsider need not.
pub(crate) const LEASE_ROUNDS: u32 = 50;
pub(crate) const LEASE_PAUSE_NS: u64 = 1_000_000;

/// A transaction in flight for which there is no point in waiting: its end may take any time.
pub(crate) struct Stuck {
    /// Whose it is.
    pub with: Party,
    /// Why, as the fragment of a conflict.
    pub what: &'static str,
    /// What it has read and written.
    pub footprint: Footprint,
}

impl<O: Os> Domain<O> {
    /// Whether nothing is in flight and nobody has been numbered since `snapshot`. One load each.
    pub(crate) fn quiet(&self) -> Result<bool> {
        match self.table.slots().in_flight().next() {
            None => Ok(true),
            Some(slot) => self.checked(slot).map(|_| false),
        }
    }

    /// Waits for every in-flight transaction that changes one of the objects; helps the dead. An error inside: one of
    /// them is prepared (or can't be finished here).
    pub(crate) fn await_slots(&self, objects: &[ObjectId]) -> Result<core::result::Result<(), Stuck>> {
        let mut ours = None;
        loop {
            let mut waiting = None;
            for slot in self.table.slots().in_flight() {
                let slot = self.checked(slot)?;
                let changed = slot.info.footprint.changed();
                if !objects.iter().any(|o| changed.may_contain(*o)) {
                    continue;
                }
                let ours =
                    ours.get_or_insert_with(|| Objects { read: objects.to_vec(), ..Objects::default() });
                if !self.is_apart(&slot, ours) {
                    waiting = Some(slot);
                    break;
                }
            }
            let Some(slot) = waiting else { return Ok(Ok(())) };
            if let Err(stuck) = self.await_slot(slot.ix, ours.as_ref())? {
                return Ok(Err(stuck));
            }
        }
    }

    /// Opens a file of which a commit in flight, or somebody who looks at it, may hold a lease for a moment. Holding nothing.
    ///
    /// # Errors
    /// `EAGAIN` when the lease stays: it is an outsider's.
    pub(crate) fn open_past_leases<T>(&self, id: ObjectId, open: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..LEASE_ROUNDS {
            match open() {
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
            // Prepared or in doubt: it holds no lease any more, its objects are somebody else's question.
            let _ = self.await_slots(&[id])?;
            self.os.pause(LEASE_PAUSE_NS);
        }
        Err(Errno::AGAIN)
    }

    /// Waits until one slot is free or somebody else's, finishing it if its owner is dead; or until it is known not to be in the way
    /// of `ours`, if that is what it is waited for.
    pub(crate) fn await_slot(
        &self,
        ix: SlotIx,
        ours: Option<&Objects>,
    ) -> Result<core::result::Result<(), Stuck>> {
        let slots = self.table.slots();
        let Some(first) = self.checked(slots.read(ix))? else { return Ok(Ok(())) };
        let apart = |slot: &InFlight| ours.is_some_and(|ours| self.is_apart(slot, ours));
        // Its end may take any time: filters are no reason to give up.
        let stuck = |slot: &InFlight| {
            self.get_to_know(slot);
            (!apart(slot)).then(|| self.stuck(slot))
        };
        let mut waited = false;
        loop {
            let Some(now) = self.checked(slots.read(ix))? else { return Ok(Ok(())) };
            if now.info.lsn != first.info.lsn {
                return Ok(Ok(()));
            }
            if waited && ours.is_some() {
                self.get_to_know(&now);
            }
            if apart(&now) {
                return Ok(Ok(()));
            }
            if now.seen.state() == SlotState::Prepared {
                return Ok(stuck(&now).map_or(Ok(()), Err));
            }
            if now.left && self.alive(now.info.owner) {
                match self.finish_left(ix)? {
                    true => continue,
                    false => return Ok(stuck(&now).map_or(Ok(()), Err)),
                }
            }
            if self.alive(now.info.owner) {
                slots.wait_change(ix, now.seen, if waited { PROBE_NS } else { MOMENT_NS });
                waited = true;
                continue;
            }
            recovery::help(self, now.info.owner)?;
            let after = self.checked(slots.read(ix))?;
            let unfinished = after.filter(|a| a.info.lsn == now.info.lsn && !self.alive(a.info.owner));
            if let Some(after) = unfinished {
                return Ok(stuck(&after).map_or(Ok(()), Err));
            }
        }
    }

    /// Waits until any slot is free, whichever: who has stopped in one of them holds up nobody longer than the others do.
    pub(crate) fn await_any_slot(&self) -> Result<()> {
        let slots = self.table.slots();
        let mut limit = MOMENT_NS;
        loop {
            let (mut taken, mut waiting) = (0, None);
            for slot in slots.in_flight() {
                let slot = self.checked(slot)?;
                taken += 1;
                let going = slot.seen.state() != SlotState::Prepared && !slot.left;
                if going && self.alive(slot.info.owner) {
                    waiting = waiting.or(Some(slot));
                } else if self.await_slot(slot.ix, None)?.is_ok() {
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

    /// Hands out the signatures of commits in [from, to); whether some were overwritten already.
    pub(crate) fn scan_ring(&self, from: Lsn, to: Lsn, mut each: impl FnMut(&Signature, Who)) -> bool {
        let scan = self.table.ring().scan(from, to, |_, who, changed| each(changed, who));
        scan == Scan::Overrun
    }

    // ---- unsynced --------------------------------------------------------------------------------------------------

    /// Whether a transaction builds on a `none` commit that is not on stable storage yet.
    pub(crate) fn builds_on_unsynced(&self, objects: &Objects) -> bool {
        self.table.unsynced().hits(objects)
    }

    /// Syncs the file system and forgets what was unsynced when that began.
    pub(crate) fn sync_unsynced(&self) -> Result<()> {
        let token = {
            let held = self.lock()?;
            self.table.unsynced().begin_sync(held.proof())
        };
        self.sync_everything()?;
        let held = self.lock()?;
        self.table.unsynced().end_sync(held.proof(), token);
        Ok(())
    }

    /// Syncs the file system, and remembers when that began: whatever is older is on the disk.
    pub(crate) fn sync_everything(&self) -> Result<()> {
        let began = Began::now(&self.os);
        self.os.syncfs(&self.area.dir)?;
        let held = self.lock()?;
        self.table.on_disk().synced(held.proof(), began);
        Ok(())
    }

    /// Tries again to finish a slot that this process has left; whether it is free now. Somebody else's is his.
    fn finish_left(&self, ix: SlotIx) -> Result<bool> {
        let before = self.checked(self.table.slots().read(ix))?;
        self.finish_mine()?;
        let after = self.checked(self.table.slots().read(ix))?;
        Ok(after.map(|slot| slot.info.lsn) != before.map(|slot| slot.info.lsn) || after.is_none())
    }

    /// Goes on with all that this process has left.
    pub(crate) fn finish_mine(&self) -> Result<recovery::Recovered> {
        let _alone = self.finishing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut recovered = recovery::Recovered::default();
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.left && slot.info.owner == self.me() {
                recovery::finish(self, &slot, &mut Vec::new(), &mut recovered)?;
            }
        }
        Ok(recovered)
    }

    /// My slot stays in flight, and nobody is to wait for it.
    pub(crate) fn leave_slot(&self, ix: SlotIx) {
        if let Ok(seen) = self.table.slots().state(ix) {
            self.table.slots().leave(ix, seen);
        }
    }

    // ---- slots, for their owner ------------------------------------------------------------------------------------

    /// Moves my slot from one state to another.
    pub(crate) fn set_slot(&self, ix: SlotIx, from: SlotState, to: SlotState) -> Result<()> {
        let seen = self.checked(self.table.slots().state(ix))?;
        if seen.state() != from {
            return Err(Errno::UCLEAN);
        }
        self.table.slots().set_state(ix, seen, to).map(|_| ()).map_err(|_| Errno::UCLEAN)
    }

    /// Frees my slot and wakes whoever waits for it.
    pub(crate) fn free_slot(&self, ix: SlotIx) -> Result<()> {
        let seen = self.checked(self.table.slots().state(ix))?;
        self.table.slots().free(ix, seen).map_err(|_| Errno::UCLEAN)
    }

    fn stuck(&self, slot: &InFlight) -> Stuck {
        let what = match slot.seen.state() {
            SlotState::Prepared => "held (prepared, not decided yet)",
            SlotState::Publishing => "held (committed, publication pending)",
            _ => "held (in doubt)",
        };
        Stuck { with: self.party(slot.info.tx, slot.info.pid), what, footprint: slot.info.footprint }
    }
}
