//! Syncing the file system, and what is forgotten of it then.
//!
//! Guarantees: where a sync has failed, nothing is committed and no checkpoint made as long as the file system is
//! mounted. The kernel reports a failed write once to each descriptor, and its pages count as clean from then on: the next
//! sync writes nothing and succeeds. It does not say whose bytes were lost. After the next mount files show what the disk
//! has, and the log holds the rest. Does not: notice what was reported to another program, or to a process that was
//! killed in its sync.

use super::on_disk::Began;
use super::Domain;
use crate::id::Objects;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Os, Result, Writing};

impl<O: Os> Domain<O> {
    /// Returns true if a transaction builds on a `none` commit that is not on stable storage yet.
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
        self.closing(self.os.syncfs(&self.area.dir))?;
        let held = self.lock()?;
        self.table.on_disk().synced(held.proof(), began);
        Ok(())
    }

    /// Writes files out, and syncs all names and attributes that changed before: only where these go to the
    /// disk in order.
    pub(crate) fn sync_files<'f>(&self, files: impl Iterator<Item = &'f O::Fd> + Clone) -> Result<()>
    where
        O::Fd: 'f,
    {
        let os = &self.os;
        // For one file, too: an fsync of its own would be one more flush.
        self.closing(files.clone().try_for_each(|fd| os.write_out(fd, Writing::Start)))?;
        // The kernel reports a write-back error once, to this call: the barrier file must not be the one to
        // ask.
        self.closing(files.clone().try_for_each(|fd| os.write_out(fd, Writing::Wait)))?;
        // The barrier inode changes after the last wait, so that its sync commits the journal up to here.
        let barrier = self.barrier_file()?;
        let now = os.now();
        os.utimens(&barrier, None, Some(now))?;
        self.closing(os.fsync(&barrier))
    }

    /// Closes the log behind a sync that failed.
    pub(crate) fn closing(&self, synced: Result<()>) -> Result<()> {
        if let Some(error) = synced.err().filter(|error| may_have_lost(*error)) {
            self.log.lose(error);
        }
        synced
    }

    /// After a publication that came upon an error, perhaps that of a sync: the area's descriptor is told of it, too.
    pub(crate) fn ask_for_lost(&self) {
        if !mutant::on(Mutant::LostUnasked) {
            // It is asked for the error alone.
            let _ = self.sync_everything();
        }
    }
}

/// Returns true if a sync with this error may have lost bytes. A disk that fails gives many: EIO, ENODATA for a medium,
/// ENOLINK and ETIMEDOUT for what is between, ENOSPC for a thin device or a full disk below a virtual machine. These
/// here are about the call.
/// Source: block/blk-core.c, `blk_errors`.
fn may_have_lost(error: Errno) -> bool {
    let about_the_call = [Errno::INTR, Errno::BADF, Errno::INVAL, Errno::SPIPE, Errno::NOSYS, Errno::PERM];
    match error {
        Errno::IO => true,
        _ => !about_the_call.contains(&error) && !mutant::on(Mutant::OneErrorLoses),
    }
}
