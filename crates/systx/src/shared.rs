//! What a process keeps between its transactions.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::served::Served;
use crate::upkeep::Upkeep;
use std::io;
use systx_engine::outcome::ConflictKind;
use systx_os::caller::{fs_uid, Protected};
use systx_os::{Guest, Linux, Os};
use systx_places::area_name;

/// State that all transactions of a [`crate::Systx`] share.
pub(crate) struct Shared {
    pub os: Kernel,
    /// The user whose transactions these are: areas have an owner.
    pub uid: u32,
    /// Of the process that made it; a forked child has another one.
    lineage: u64,
    /// Protection of names in sticky directories on this machine.
    pub protected: Protected,
    pub served: Served,
    pub upkeep: Upkeep,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.upkeep.finish();
        }
    }
}

impl Shared {
    /// Of the user that the calling thread acts for; areas have this name for root.
    pub fn new(area: &[u8]) -> io::Result<Shared> {
        let os = Guest::over(Linux::new());
        let uid = fs_uid();
        let served = Served::new(os.clone(), uid, area_name(area, uid).into_owned())?;
        let (lineage, protected, upkeep) = (os.lineage(), Protected::now(), Upkeep::default());
        Ok(Shared { os, uid, lineage, protected, served, upkeep })
    }

    /// Returns true in a child of the process that made it.
    pub fn is_forked(&self) -> bool {
        self.os.lineage() != self.lineage
    }

    /// Checks that the calling thread may act in transactions of this value.
    pub fn is_ours(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if fs_uid() != self.uid {
            return Err(Error::OtherUser);
        }
        Ok(())
    }

    /// Settles what a dead process has left in doubt, if that is what a transaction has met: its next try need not.
    pub fn settle_after(&self, error: &Error) {
        if let Error::Conflict(conflict) = error {
            if matches!(conflict.of_engine().what, ConflictKind::HeldPrepared | ConflictKind::HeldInDoubt) {
                self.served.settle();
            }
        }
    }
}
