//! C: a sync after which older records are never redone, and the log can let go of them.

use super::open::Domain;
use crate::id::{Lsn, OwnerIx};
use crate::log::{Cell, LogError};
use crate::publish::reclaim::remove_all;
use crate::recovery::settled;
use systx_os::{Errno, Open, Os};

/// Log bytes after which whoever commits makes a checkpoint.
const BYTES_BETWEEN_CHECKPOINTS: u64 = 64 << 20;

impl<O: Os> Domain<O> {
    /// Makes a checkpoint when enough was logged since the last one. Errors leave it to the next commit.
    pub(crate) fn checkpoint_if_due(&self) {
        if self.log.bytes_since_checkpoint() > BYTES_BETWEEN_CHECKPOINTS {
            let _ = self.checkpoint();
        }
    }

    /// Makes a checkpoint now: syncs the file system, says so in the log, drops what nobody needs any more.
    ///
    /// # Errors
    /// The log keeps what it has.
    pub fn checkpoint(&self) -> Result<(), LogError> {
        let os_error = |doing| move |error| LogError::Os { doing, segment: 0, error };
        let bound = self.lowest_in_flight().map_err(os_error("reading the domain table"))?;
        let bound = self.lowest_unsettled(bound)?;
        // The sync begins after the bound was taken: everything up to it is published, so it is on the disk afterwards.
        self.os.syncfs(&self.area.dir).map_err(os_error("syncing the file system"))?;
        let pos = self.append_cell(Cell::Checkpoint { lsn: bound })?;
        self.sync_log(pos).map_err(|e| LogError::Poisoned { error: e.error })?;
        let alive = |ix: OwnerIx| self.alive(ix);
        for id in self.log.drop_segments(self.me(), &alive, bound)? {
            let name = id.to_string();
            let Ok(dir) = self.os.open(&self.area.tx, name.as_bytes(), Open::Directory) else { continue };
            let _ = remove_all(&self.os, &dir);
            let _ = self.os.rmdir(&self.area.tx, name.as_bytes());
        }
        Ok(())
    }

    /// The highest LSN such that nothing up to it is in flight. The lock closes the gap between `next` and the slots.
    fn lowest_in_flight(&self) -> Result<Lsn, Errno> {
        let held = self.lock()?;
        let mut bound = self.table.next().0 - 1;
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.lsn.0 > 0 {
                bound = bound.min(slot.info.lsn.0 - 1);
            }
        }
        drop(held);
        Ok(Lsn(bound))
    }

    /// Below the first record that a participant elsewhere may still ask for.
    fn lowest_unsettled(&self, bound: Lsn) -> Result<Lsn, LogError> {
        let replay = crate::log::replay(&self.os, &self.area.dir, self.info.uuid)?;
        let unsettled = replay.redo().filter(|(_, body)| !body.participants.is_empty()).find(|(_, body)| {
            // Participants in this process are made to forget: their COMMITTED is synced with everything else.
            let forgot = body.participants.iter().all(|(uuid, _)| match self.peers.get(uuid) {
                Some(peer) => peer.checkpoint().is_ok(),
                None => false,
            });
            !forgot && !settled(&self.os, &self.peers, body)
        });
        Ok(unsettled.map_or(bound, |(lsn, _)| Lsn(lsn.0.saturating_sub(1)).min(bound)))
    }
}
