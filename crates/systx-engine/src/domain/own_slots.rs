//! The slots of a domain as their owners and those who look at them use them.

use super::layout::RING;
use super::ring::{Scan, Who};
use super::slots::{InFlight, SlotIx, SlotState};
use super::Domain;
use crate::id::{Lsn, Objects, Signature};
use crate::mutant::{self, Mutant};
use std::sync::Arc;
use systx_os::{Errno, Os, Result};

impl<O: Os> Domain<O> {
    /// Looks at something in several file systems at an instant between commits: none was active before the look, and none
    /// has got a number meanwhile. `None`: one has, so that what was seen may be half of it.
    ///
    /// # Errors
    /// A damaged table.
    pub fn between_commits<T>(domains: &[Arc<Self>], look: impl FnOnce() -> T) -> Result<Option<T>> {
        let numbers: Vec<Lsn> = domains.iter().map(|domain| domain.table.next()).collect();
        for domain in domains {
            if !domain.is_quiet()? {
                return Ok(None);
            }
        }
        let seen = look();
        let unmoved = domains.iter().zip(numbers).all(|(domain, number)| domain.table.next() == number);
        Ok((unmoved || mutant::on(Mutant::NumbersUnasked)).then_some(seen))
    }

    /// Returns true if no commit is active.
    ///
    /// # Errors
    /// A damaged table.
    pub(crate) fn is_quiet(&self) -> Result<bool> {
        self.checked(self.table.slots().are_free())
    }

    /// Hands out the signatures of commits in [from, to); whether some were overwritten already.
    pub(crate) fn scan_ring(&self, from: Lsn, to: Lsn, mut each: impl FnMut(&Signature, Who)) -> bool {
        let scan = self.table.ring().scan(from, to, |_, who, changed| each(changed, who));
        scan == Scan::Overrun
    }

    /// Hands out the signatures of commits with a record, behind `covered` up to `last`; `None`: some are not known any
    /// more.
    pub(crate) fn each_since(&self, covered: Lsn, last: Lsn, mut each: impl FnMut(Option<&Signature>)) {
        let kept = last.0.saturating_sub(RING as u64);
        if kept > covered.0 {
            each(None);
        }
        for lsn in covered.0.max(kept) + 1..=last.0 {
            match self.table.ring().get(Lsn(lsn)) {
                Some((who, changed)) if who.recorded => each(Some(&changed)),
                Some(_) => {}
                None => each(None),
            }
        }
    }

    /// Leaves this process's entry active, and releases its waiters.
    pub(crate) fn leave_slot(&self, ix: SlotIx) {
        if let Ok(seen) = self.table.slots().state(ix) {
            self.table.slots().leave(ix, seen);
        }
    }

    /// Moves my slot from one state to another.
    pub(crate) fn set_slot(&self, ix: SlotIx, from: SlotState, to: SlotState) -> Result<()> {
        let seen = self.checked(self.table.slots().state(ix))?;
        if seen.state() != from {
            return Err(Errno::UCLEAN);
        }
        self.table.slots().set_state(ix, seen, to).map(|_| ()).map_err(|_| Errno::UCLEAN)
    }

    /// Frees this process's entry and wakes its waiters.
    pub(crate) fn free_slot(&self, ix: SlotIx) -> Result<()> {
        let seen = self.checked(self.table.slots().state(ix))?;
        self.table.slots().free(ix, seen).map_err(|_| Errno::UCLEAN)
    }

    /// Reads the record of a slot, once, so that [`Domain::is_apart`] can answer.
    pub(crate) fn get_to_know(&self, slot: &InFlight) {
        self.known.get_to_know(&self.table.slots(), slot, || self.body_of(slot).ok().flatten());
    }

    /// Whether a slot is known not to be in the way of `ours`, whatever its filters say. Memory only: it may
    /// be asked under the commit lock.
    pub(crate) fn is_apart(&self, slot: &InFlight, ours: &Objects) -> bool {
        self.known.is_apart(slot, ours)
    }
}

/// Pause between two probes of an owner that a transaction waits for, in nanoseconds.
pub(crate) const PROBE_NS: u64 = 50_000_000;
