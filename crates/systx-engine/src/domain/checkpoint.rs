//! C: a sync after which older records are never redone, and the log can let go of them.

use super::open::Domain;
use crate::id::{Lsn, OwnerIx, TxId};
use crate::log::{Cell, LogError, Replay};
use crate::mutant::{self, Mutant};
use crate::publish::reclaim::reclaim;
use crate::publish::site::{Pass, Site};
use crate::record::Body;
use crate::recovery::Logs;
use std::collections::{HashMap, HashSet};
use systx_os::{Errno, Open, Os};

/// Log bytes after which whoever commits makes a checkpoint.
const BYTES_BETWEEN_CHECKPOINTS: u64 = 64 << 20;

/// Age of the last checkpoint after which whoever commits makes one, in nanoseconds: slots whose bytes a redo may need
/// take space until then.
const AGE_NS: u64 = 60_000_000_000;

impl<O: Os> Domain<O> {
    /// Makes a checkpoint when enough was logged since the last one, or that is long ago. Errors leave it to the next commit.
    pub(crate) fn checkpoint_if_due(&self) {
        let bytes = self.log.bytes_since_checkpoint();
        let age = self.os.monotonic_ns().saturating_sub(self.table.checkpointed_ns());
        if bytes > BYTES_BETWEEN_CHECKPOINTS || (bytes > 0 && age > AGE_NS) {
            let _ = self.checkpoint();
        }
    }

    /// Makes a checkpoint now: reclaims, syncs the file system, says so in the log, drops what nobody needs any more.
    ///
    /// Whatever is at or below a checkpoint has been reclaimed by its record: what is left in its slots is ours alone.
    ///
    /// # Errors
    /// The log keeps what it has.
    pub fn checkpoint(&self) -> Result<(), LogError> {
        let os_error = |doing| move |error| LogError::Os { doing, segment: 0, error };
        self.table.set_checkpointed_ns(self.os.monotonic_ns());
        let in_flight = self.lowest_in_flight().map_err(os_error("reading the domain table"))?;
        let replay = crate::log::replay(&self.os, &self.area.dir, self.info.uuid)?;
        let mut bound = self.lowest_unsettled(&replay, in_flight);
        let mut done = Vec::new();
        for (lsn, body) in published(&replay) {
            if lsn > bound {
                continue;
            }
            match self.reclaim(body) {
                Ok(()) => done.push((lsn, body.id)),
                Err(_) => bound = bound.min(Lsn(lsn.0.saturating_sub(1))),
            }
        }
        // The sync begins after the bound was taken: everything up to it is published, so it is on the disk afterwards.
        if !mutant::on(Mutant::DropWithoutSyncfs) {
            self.os.syncfs(&self.area.dir).map_err(os_error("syncing the file system"))?;
        }
        let pos = self.append_cell(Cell::Checkpoint { lsn: bound })?;
        self.sync_log(pos).map_err(|e| LogError::Poisoned { error: e.error })?;
        for (_, id) in done.into_iter().filter(|(lsn, _)| *lsn <= bound) {
            self.discard_staging(id);
        }
        self.log.drop_segments(self.me(), &|ix: OwnerIx| self.alive(ix), bound)?;
        Ok(())
    }

    /// Reclaims the slots of a published record.
    fn reclaim(&self, body: &Body) -> Result<(), Errno> {
        if !body.has_slots() {
            return Ok(());
        }
        let slots = match self.os.open(&self.area.tx, body.id.to_string().as_bytes(), Open::Directory) {
            Ok(slots) => slots,
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e),
        };
        let (root, aside) = (&self.area.root, &self.area.aside);
        let mut site = Site::new(&self.os, root, &slots, aside, body.id, Pass::First)?;
        reclaim(&mut site, body)
    }

    /// The highest LSN such that nothing up to it is in flight. The lock closes the gap between `next` and the slots.
    fn lowest_in_flight(&self) -> Result<Lsn, Errno> {
        let _held = self.lock()?;
        let mut bound = self.table.next().0 - 1;
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.lsn.0 > 0 && !mutant::on(Mutant::CheckpointTooHigh) {
                bound = bound.min(slot.info.lsn.0 - 1);
            }
        }
        Ok(Lsn(bound))
    }

    /// Below the first record that a participant elsewhere may still ask for.
    fn lowest_unsettled(&self, replay: &Replay, bound: Lsn) -> Lsn {
        let mut logs = Logs::new(&self.os, &self.peers);
        // Participants in this process are made to forget, once: their COMMITTED is synced with everything else. One in the
        // same area has it in this very log.
        let mut forgot: HashMap<[u8; 16], bool> = HashMap::from([(self.key, true)]);
        let mut records = replay.redo().filter(|(lsn, body)| *lsn <= bound && !body.participants.is_empty());
        let unsettled = records.find(|(_, body)| {
            let all_forgot = body.participants.iter().all(|(key, _)| {
                let ask = || self.peers.get(key).is_some_and(|peer| peer.checkpoint().is_ok());
                *forgot.entry(*key).or_insert_with(ask)
            });
            !all_forgot && !logs.settled(body)
        });
        unsettled.map_or(bound, |(lsn, _)| Lsn(lsn.0.saturating_sub(1)).min(bound))
    }
}

/// Records above the last checkpoint that are committed here, participants' included.
fn published(replay: &Replay) -> impl Iterator<Item = (Lsn, &Body)> {
    let decided: HashSet<TxId> = replay
        .records
        .iter()
        .filter_map(|e| match e.cell {
            Cell::Committed { id } => Some(id),
            _ => None,
        })
        .collect();
    replay.records.iter().filter_map(move |e| match (e.cell, &e.body) {
        (Cell::Commit { lsn, .. }, Some(body)) => Some((lsn, body)),
        (Cell::Prepared { lsn, id, .. }, Some(body)) if decided.contains(&id) => Some((lsn, body)),
        _ => None,
    })
}
