//! The commit lock as a value, and the repairs of a process that takes it over from a dead one.
//!
//! Guarantees: it is given back by drop, but not by a panic, which may have left what the lock protects half
//! changed; then it stays held until this process is gone, and a successor repairs. Does not: wait for
//! anything but the lock.

use super::{Domain, Who};
use crate::id::OwnerIx;
use crate::lock::Locked;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Os, Result};

impl<O: Os> Domain<O> {
    /// Lets go of the commit lock if the last owner of an index that this process holds now died with it.
    pub(crate) fn inherit_lock_of(&self, ix: OwnerIx) -> Result<()> {
        self.log.inherit(ix).map_err(|_| Errno::UCLEAN)?;
        match self.checked(self.table.inherit_lock(ix))? {
            Some(locked) => self.repair(&Held { domain: self, locked: Some(locked) }),
            None => Ok(()),
        }
    }

    /// Takes the commit lock, which a forked child does not get. It is let go when the value is dropped, but not by a panic: then a successor repairs.
    pub(crate) fn lock(&self) -> Result<Held<'_, O>> {
        self.ours()?;
        let locked = self.checked(self.table.lock(self.me(), &|ix| self.alive(ix)))?;
        let taken_over = locked.taken_over.is_some();
        let held = Held { domain: self, locked: Some(locked) };
        if taken_over {
            self.repair(&held)?;
        }
        Ok(held)
    }

    /// Repairs after a takeover: an entry that its dead owner made visible before `next` moved gets its place
    /// in the ring now, so that no LSN is given twice. The transaction that meets the entry finishes it.
    fn repair(&self, held: &Held<'_, O>) -> Result<()> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            let next = self.table.next();
            if slot.info.lsn == next && !mutant::on(Mutant::NextNotRaised) {
                let who = Who { tx: slot.info.tx, pid: slot.info.pid, recorded: slot.info.durable };
                self.table.ring().put(held.proof(), next, who, &slot.info.footprint.changed());
                self.table.advance_next(held.proof());
            } else if slot.info.lsn > next {
                self.table.condemn();
                return Err(Errno::UCLEAN);
            }
        }
        Ok(())
    }
}

/// The commit lock, held.
pub(crate) struct Held<'d, O: Os> {
    domain: &'d Domain<O>,
    locked: Option<Locked>,
}

impl<O: Os> Held<'_, O> {
    /// Returns what the parts of the table ask for.
    pub fn proof(&self) -> &Locked {
        self.locked.as_ref().unwrap_or_else(|| unreachable!("the lock is given back only by drop"))
    }
}

impl<O: Os> Drop for Held<'_, O> {
    fn drop(&mut self) {
        // A panic may have left what the lock protects half-changed: it stays held until this process is gone.
        if std::thread::panicking() {
            return;
        }
        if let Some(locked) = self.locked.take() {
            let _ = self.domain.checked(self.domain.table.unlock(locked));
        }
    }
}
