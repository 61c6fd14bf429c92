//! Group commit: one sync for all waiting transactions.
//!
//! Guarantees: [`Log::sync`] returns `Ok` only after an fdatasync that began after the cell was appended; a
//! failed one is never repeated (the kernel drops the error with the pages): it closes the log for all until
//! the next recovery. Does not: hold back appends.
//!
//! A transaction that comes during a sync waits for its end, and then one of the waiting ones syncs for all.
//! That one waits a moment longer if the last batches were larger: two flushes cost more than an eighth of
//! one (docs/decisions.md, "Measured").

use super::error::SyncError;
use super::format::LogPos;
use super::shared::{self, State};
use super::writer::{Alive, Log};
use crate::id::OwnerIx;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Os};

/// The leader waits at most this part of an average sync for others.
const WAIT_PART: u64 = 8;
/// Waits shorter than this cost more than they bring (a timer is no more precise), in nanoseconds.
const WAIT_LEAST_NS: u64 = 20_000;

impl<O: Os> Log<O> {
    /// Makes everything up to and including the cell at `upto` durable.
    ///
    /// # Errors
    /// The cell may or may not survive: *in doubt*.
    pub fn sync(&self, me: OwnerIx, alive: Alive<'_>, upto: LogPos) -> Result<(), SyncError> {
        let wanted = upto.next().pack();
        loop {
            if let Some(done) = self.synced(upto, wanted) {
                return done;
            }
            if let Some(_held) = self.syncing().take_or_wait(me, alive) {
                return match self.synced(upto, wanted) {
                    Some(done) => done,
                    None => self.lead(),
                };
            }
        }
    }

    /// Returns true if the question is answered already.
    fn synced(&self, upto: LogPos, wanted: u64) -> Option<Result<(), SyncError>> {
        let synced = self.shared.load(shared::SYNCED);
        // After a restart everything seems synced, but the recovery decided what became of it.
        if upto.segment < self.shared.load(shared::FIRST) {
            return Some(Err(SyncError { error: Errno::IO }));
        }
        if synced >= wanted {
            return Some(Ok(()));
        }
        match self.shared.state() {
            State::Ready => None,
            State::Poisoned(error) | State::Lost(error) => Some(Err(SyncError { error })),
            State::NotStarted => Some(Err(SyncError { error: Errno::IO })),
        }
    }

    /// Syncs all that is appended. The latch is held.
    fn lead(&self) -> Result<(), SyncError> {
        let s = &self.shared;
        self.gather();
        // Loaded before the sync begins; a cell below this was written before.
        let end = s.cells();
        let batch = u64::from(end.cell.saturating_sub(LogPos::unpack(s.load(shared::SYNCED)).cell));
        let began = self.os.monotonic_ns();
        // Where no sync happened, only this caller is in doubt.
        self.sync_segment(end.segment).map_err(|e| SyncError { error: e.errno().unwrap_or(Errno::IO) })?;
        let took = self.os.monotonic_ns().saturating_sub(began);
        let end = if mutant::on(Mutant::SyncCountsLate) { s.cells() } else { end };
        s.raise(shared::SYNCED, end.pack());
        let average = s.load(shared::SYNC_NS);
        s.store(
            shared::SYNC_NS,
            if average == 0 { took } else { (average / 8).saturating_mul(7) + took / 8 },
        );
        s.store(shared::BATCHES, s.load(shared::BATCHES) << 32 | batch);
        Ok(())
    }

    /// Waits until as many are pending as the larger of the last two batches held, but not long.
    fn gather(&self) {
        let s = &self.shared;
        let batches = s.load(shared::BATCHES);
        let usual = (batches >> 32).max(batches & 0xffff_ffff);
        let wait = s.load(shared::SYNC_NS) / WAIT_PART;
        if wait < WAIT_LEAST_NS {
            return;
        }
        let synced = LogPos::unpack(s.load(shared::SYNCED));
        let slice = (wait / 4).max(WAIT_LEAST_NS);
        // Counted, too: the words are untrusted, and a clock may stand still.
        let began = self.os.monotonic_ns();
        for _ in 0..4 {
            let pending = u64::from(s.cells().cell.saturating_sub(synced.cell));
            let waited = self.os.monotonic_ns().saturating_sub(began);
            if pending >= usual || waited >= wait {
                return;
            }
            self.os.pause(slice.min(wait - waited).min(10_000_000));
        }
    }
}
