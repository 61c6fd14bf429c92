//! A checkpoint soon after the last commit (C2): whether one is owed, and one for all that ask for it.
//!
//! Without it the last commits before a quiet time would be redone at the next boot, however late that is,
//! over changes that were put back since.
//!
//! Owns: the question what no checkpoint covers, and the latch of the process that makes one. Guarantees: a
//! commit counts as covered only by a checkpoint whose bound was taken when the commit's active entry was
//! free; of several processes that ask at one time one makes it. Does not: say when to ask.

use super::covered::Scope;
use crate::domain::Domain;
use crate::id::{Lsn, OwnerIx};
use crate::log::LogError;
use crate::mutant::{self, Mutant};
use systx_os::{Os, Result};

/// From the beginning of a checkpoint to that of the next one, in nanoseconds: however many commit, the disk
/// has one a second to write.
const BETWEEN_NS: u64 = 1_000_000_000;

/// Before one more checkpoint is made beside it, the latch of the process that makes one is watched for this
/// long: half a minute. A second one does no harm, and the other process's disk may be stuck.
const LOOKS_MAX: u32 = 600;

impl<O: Os> Domain<O> {
    /// The number up to which a checkpoint could cover everything now; `None` when all of it is covered.
    ///
    /// Commits of durability `none` count: what they have overwritten of a durable one is not to be redone over them.
    ///
    /// # Errors
    /// Of a table that makes no sense.
    pub fn owed(&self) -> Result<Option<Lsn>> {
        let bound = self.lowest_in_flight()?;
        Ok((bound > self.log.checkpointed()).then_some(bound))
    }

    /// Promises to make the checkpoint that is owed, and returns its time on the monotonic clock: now, or a
    /// second after the last one. `None`: none is owed, or none can be made, or a watching process has
    /// promised one that begins later than now, so that it covers this, too.
    ///
    /// # Errors
    ///
    /// As [`Domain::owed`].
    pub fn promise(&self) -> Result<Option<u64>> {
        self.ours()?;
        if self.owed()?.is_none() || self.log.is_poisoned() {
            return Ok(None);
        }
        let now = self.os.monotonic_ns();
        loop {
            let seen = self.table.checkpoint_promised_ns();
            let ahead = seen.saturating_sub(now);
            let at = match ahead {
                1..=BETWEEN_NS if self.owners.watched() || mutant::on(Mutant::PromisesOfTheDead) => {
                    return Ok(None)
                }
                // Of one who was killed.
                1..=BETWEEN_NS => return Ok(Some(seen)),
                0 => now.max(seen.saturating_add(BETWEEN_NS)),
                // Of another time namespace.
                _ => now,
            };
            if self.table.promise_checkpoint(seen, at) {
                return Ok(Some(at));
            }
        }
    }

    /// Makes the checkpoint that was promised for `at`, also before that time. It covers what is owed by now,
    /// whichever process has promised it.
    ///
    /// # Errors
    ///
    /// As [`Domain::checkpoint`].
    pub fn keep_promise(&self, at: u64) -> std::result::Result<(), LogError> {
        self.may_use_log()?;
        let failed = |error| LogError::Os { doing: "reading the domain table", segment: 0, error };
        // From here on no process relies on it: entries that are free by now are covered, later ones are not.
        if !mutant::on(Mutant::PromiseNotTakenBack) {
            self.table.promise_checkpoint(at, self.os.monotonic_ns().min(at));
        }
        match self.owed().map_err(failed)? {
            Some(goal) => self.cover(goal).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the checkpoint that is owed, whichever process has promised one: for callers that can't tell
    /// whether that one lives.
    ///
    /// # Errors
    ///
    /// As [`Domain::checkpoint`].
    pub fn keep_all_promises(&self) -> std::result::Result<(), LogError> {
        self.keep_promise(self.table.checkpoint_promised_ns())
    }

    /// Waits for a checkpoint that covers everything up to `goal`, and makes it unless another process does;
    /// returns true if it covers that.
    ///
    /// It may not: a transaction below is active, or there is no room to keep a decision that participants
    /// may ask for.
    ///
    /// # Errors
    ///
    /// As [`Domain::checkpoint`].
    pub fn cover(&self, goal: Lsn) -> std::result::Result<bool, LogError> {
        self.may_use_log()?;
        let alive = |ix: OwnerIx| self.alive(ix);
        let mut held = None;
        for _ in 0..LOOKS_MAX {
            if self.log.checkpointed() >= goal {
                // Its author may have been killed before the sync.
                let synced = self.log.checkpoint_at().map_or(Ok(()), |at| self.sync_log(at));
                return synced.map(|()| true).map_err(|e| LogError::Poisoned { error: e.error });
            }
            if held.is_some() {
                break;
            }
            held = self.log.covering().take_or_wait(self.me(), &alive);
            if held.is_none() && mutant::on(Mutant::AnyCheckpointCovers) {
                return Ok(true);
            }
        }
        self.checkpoint_by(Scope::Records)?;
        Ok(self.log.checkpointed() >= goal)
    }
}
