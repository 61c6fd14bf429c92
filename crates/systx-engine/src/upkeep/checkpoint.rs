//! C: a sync after which older records are never redone, and the log can let go of them.

use super::covered::{Covered, Scope};
use crate::corrupt::Corrupt;
use crate::domain::history::{self, Past};
use crate::domain::layout::NEXT_WORD;
use crate::domain::marks;
use crate::domain::shared_staging::shared_staging_of;
use crate::domain::Domain;
use crate::id::{Lsn, OwnerIx, TxId};
use crate::invariant::invariant;
use crate::log::{Cell, LogError};
use crate::mutant::{self, Mutant};
use crate::publish::reclaim::reclaim;
use crate::publish::site::{Pass, Site};
use crate::record::Body;
use crate::recovery::{kept_for, Logs};
use crate::shown::Shown;
use std::collections::{HashMap, HashSet};
use systx_os::{Errno, Open, Os};
use tracing::{debug, debug_span};

/// Log bytes after which a commit makes a checkpoint.
const BYTES_BETWEEN_CHECKPOINTS: u64 = 64 << 20;

/// Age of the last checkpoint after which a commit makes one, in nanoseconds, where several commits are not
/// covered: the process that was to make it sooner was killed each time ([`Domain::promise`]).
const AGE_NS: u64 = 60_000_000_000;

/// A checkpoint that failed is tried again after this time, by the next commit, in nanoseconds.
const RETRY_NS: u64 = 5_000_000_000;

impl<O: Os> Domain<O> {
    /// Makes a checkpoint when enough was logged since the last one, or that is long ago. Returns a warning
    /// when it fails; a later commit tries again.
    pub(crate) fn checkpoint_if_due(&self) -> Option<String> {
        let (bytes, now) = (self.log.bytes_since_checkpoint(), self.os.monotonic_ns());
        // A stamp ahead of us is of another time namespace, and says nothing.
        let age = now.checked_sub(self.table.checkpointed_ns()).unwrap_or(u64::MAX);
        let several = self.table.next().0.saturating_sub(self.log.checkpointed().0) > 2;
        let due = bytes > BYTES_BETWEEN_CHECKPOINTS || (several && age > AGE_NS);
        if !due || !self.table.try_checkpoint(now, RETRY_NS) {
            return None;
        }
        let error = self.checkpoint().err()?;
        let root = self.shown(b"");
        Some(format!("the checkpoint of {} failed, so its log can't be cut and grows: {error}", Shown(&root)))
    }

    /// Makes a checkpoint now: reclaims, syncs the file system, says so in the log, drops what is not needed
    /// any more.
    ///
    /// Every record at or below a checkpoint has been reclaimed: the rest in its staging entries is ours
    /// alone.
    ///
    /// # Errors
    ///
    /// The log keeps what it has. [`Domain::checkpoint_failed`] says so until one is made.
    pub fn checkpoint(&self) -> Result<(), LogError> {
        self.checkpoint_by(Scope::Everything)
    }

    /// The same; `scope`: what is synced.
    pub(super) fn checkpoint_by(&self, scope: Scope) -> Result<(), LogError> {
        self.may_use_log()?;
        let began = self.os.monotonic_ns();
        let made = debug_span!("checkpoint").in_scope(|| self.make_checkpoint(scope));
        match &made {
            Ok(()) => self.table.set_checkpointed_ns(began),
            Err(LogError::Os { error, .. } | LogError::Poisoned { error }) => {
                self.table.set_checkpoint_failed(*error)
            }
            Err(_) => self.table.set_checkpoint_failed(Errno::UCLEAN),
        }
        made
    }

    /// Why the last checkpoint failed, if it did.
    pub fn checkpoint_failed(&self) -> Option<Errno> {
        self.table.checkpoint_failed()
    }

    fn make_checkpoint(&self, scope: Scope) -> Result<(), LogError> {
        let os_error = |doing| move |error| LogError::Os { doing, segment: 0, error };
        let published = self.lowest_in_flight().map_err(os_error("reading the file table"))?;
        let mut bound = published;
        let outline = crate::log::outline(&self.os, &self.area.dir, self.area.id)?;
        let mut settled = Settled::new(self);
        let (mut done, mut past, mut left) = (Vec::new(), Vec::new(), None);
        let (mut marked, mut covered) = (Vec::new(), Covered::new(self, scope));
        let boot = self.os.boot_id().map_err(os_error("learning which boot this is"))?;
        let mut unanswered = Vec::new();
        for (lsn, entry) in outline.replay.published() {
            if lsn > bound {
                continue;
            }
            // One body at a time: there may be very many.
            let Some(body) = outline.body(&self.os, entry)? else { continue };
            let reclaimed = self.reclaim(&body);
            if reclaimed.is_err() {
                bound = bound.min(Lsn(lsn.0.saturating_sub(1)));
            }
            if !settled.asks_no_more(&body) {
                unanswered.push((lsn, kept_for(&body, &[], boot)));
            }
            past.push(Past::of(lsn, entry.written, &body));
            covered.add(self, &body);
            if marks::may_be(&body) {
                marked.push((lsn, body.id));
            }
            match reclaimed {
                Ok(true) => done.push((lsn, body.id)),
                Ok(false) => {}
                Err(error) => left = left.or(Some(error)),
            }
        }
        // Without room for the history the log still gets shorter.
        let noted = history::keep(&self.os, &self.area.dir, &past).unwrap_or_default();
        // The decision is kept for participants that have not answered: the log does not wait for them.
        let kept: Vec<_> =
            unanswered.iter().filter(|(lsn, _)| *lsn <= bound).map(|(_, d)| d.clone()).collect();
        if !mutant::on(Mutant::DecisionLate) && self.keep_decisions(&kept).is_err() {
            let first = unanswered.iter().map(|(lsn, _)| lsn.0).min().unwrap_or(1);
            bound = bound.min(Lsn(first.saturating_sub(1)));
        }
        invariant!("I7", bound <= published, "a checkpoint covers nothing that was active when it began");
        let are_kept = unanswered.iter().filter(|(lsn, _)| *lsn <= bound).count() <= kept.len();
        invariant!("I8", are_kept, "the log lets go of no decision that is not kept");
        // The sync begins after the bound was taken: everything up to it is published, so it is on the disk afterwards.
        if !mutant::on(Mutant::DropWithoutSyncfs) {
            let synced = covered.sync(self, &outline.replay, bound, &noted);
            synced.map_err(os_error("syncing the file system"))?;
        }
        debug!(up_to = bound.0, records = past.len(), "synced");
        let pos = self.append_cell(Cell::Checkpoint { lsn: bound })?;
        self.sync_log(pos).map_err(|e| LogError::Poisoned { error: e.error })?;
        if mutant::on(Mutant::DecisionLate) {
            let _ = self.keep_decisions(&kept);
        }
        let _ = self.forget_answered();
        for (_, id) in done.into_iter().filter(|(lsn, _)| *lsn <= bound) {
            self.discard_staging(id);
        }
        self.discard_marks(marked.into_iter().filter(|(lsn, _)| *lsn <= bound).map(|(_, id)| id).collect());
        // After its cell is in the log: an entry that is filled from now on has its record in that segment or
        // a later one.
        let needed = self.records_in_flight().map_err(os_error("reading the file table"))?.min(pos.segment);
        self.log.drop_segments(self.me(), &|ix: OwnerIx| self.alive(ix), bound, needed)?;
        match left {
            None => Ok(()),
            Some(error) => Err(os_error("deleting what was taken out, in tx/")(error)),
        }
    }

    /// Deletes marks and notes of records that are never redone. Any that stays goes with the next recovery.
    fn discard_marks(&self, of: HashSet<TxId>) {
        let listed = if of.is_empty() { Ok(Vec::new()) } else { self.os.read_dir(&self.area.tx) };
        for entry in listed.unwrap_or_default() {
            if marks::owner_of(&entry.name).is_some_and(|id| of.contains(&id)) {
                let _ = self.os.unlink(&self.area.tx, &entry.name);
            }
        }
    }

    /// Reclaims the slots of a published record; whether it has a directory of its own.
    fn reclaim(&self, body: &Body) -> Result<bool, Errno> {
        if !body.has_slots() {
            return Ok(false);
        }
        let (slots, own) = match self.os.open(&self.area.tx, body.id.to_string().as_bytes(), Open::Directory)
        {
            Ok(slots) => (slots, true),
            Err(Errno::NOENT) => match shared_staging_of(&self.os, &self.area.dir, body)? {
                Some(slots) => (slots, false),
                None => return Ok(false),
            },
            Err(e) => return Err(e),
        };
        let (root, aside) = (&self.area.root, &self.area.aside);
        // It may have been redone.
        let mut site = Site::new(&self.os, root, &slots, aside, body.id, Pass::Redo);
        if !mutant::on(Mutant::CheckpointsSilent) {
            site.area = Some(&self.area.dir);
        }
        reclaim(&mut site, body).map(|()| own)
    }

    /// The highest LSN such that nothing up to it is in flight. The lock closes the gap between `next` and the slots.
    pub(super) fn lowest_in_flight(&self) -> Result<Lsn, Errno> {
        if mutant::on(Mutant::BoundWithoutLock) {
            let lowest = self.lowest_slot(u64::MAX)?;
            return Ok(Lsn(lowest.min(self.last_number()?)));
        }
        let _held = self.lock()?;
        let bound = self.last_number()?;
        self.lowest_slot(bound).map(Lsn)
    }

    /// The number before the next one. A damaged table may have none: then nothing is covered, rather than everything.
    fn last_number(&self) -> Result<u64, Errno> {
        let none = Corrupt { what: "the next number", word: NEXT_WORD, value: 0 };
        self.checked(self.table.next().0.checked_sub(1).ok_or(none))
    }

    /// The lowest of `bound` and what stands right below the slots in flight.
    fn lowest_slot(&self, mut bound: u64) -> Result<u64, Errno> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.lsn.0 > 0 && !mutant::on(Mutant::CheckpointTooHigh) {
                bound = bound.min(slot.info.lsn.0 - 1);
            }
        }
        Ok(bound)
    }

    /// The lowest segment in which a helper would look for a record. It may be older than the checkpoint:
    /// cells go on to another segment while a transaction is in flight.
    fn records_in_flight(&self) -> Result<u64, Errno> {
        let mut lowest = u64::MAX;
        for slot in self.table.slots().in_flight() {
            lowest = lowest.min(self.record_segment(&self.checked(slot)?).unwrap_or(u64::MAX));
        }
        Ok(lowest)
    }
}

/// Returns true if participants elsewhere may still ask for records.
struct Settled<'d, O: Os> {
    domain: &'d Domain<O>,
    logs: Logs<'d, O>,
    /// Participants in this process are made to forget, once: their COMMITTED is synced with everything else.
    /// One in the same area has it in this very log.
    forgot: HashMap<[u8; 16], bool>,
}

impl<'d, O: Os> Settled<'d, O> {
    fn new(domain: &'d Domain<O>) -> Settled<'d, O> {
        let logs = Logs::new(&domain.os, &domain.peers);
        Settled { domain, logs, forgot: HashMap::from([(domain.key, true)]) }
    }

    fn asks_no_more(&mut self, body: &Body) -> bool {
        let all_forgot = body.participants.iter().all(|party| {
            let ask = || self.domain.peers.get(&party.area).is_some_and(|peer| peer.checkpoint().is_ok());
            *self.forgot.entry(party.area).or_insert_with(ask)
        });
        all_forgot || self.logs.settled(body)
    }
}
