//! Syncing the file system, and what is forgotten of it then.

use super::on_disk::Began;
use super::Domain;
use crate::id::Objects;
use systx_os::{Os, Result};

impl<O: Os> Domain<O> {
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
}
