//! What a process keeps between its transactions.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::known_paths::Paths;
use crate::mutant::{self, Mutant};
use crate::order::{name_of, Order};
use crate::paused::Paused;
use crate::served::Served;
use crate::upkeep::Upkeep;
use crate::watcher::{Starter, Watcher};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
    pub watcher: Starter,
    /// Tells this user's files outside of areas from others.
    name: String,
    /// The sequence of the process group, once it was needed.
    order: Mutex<Option<Arc<Order>>>,
    /// What is known of paths.
    pub paths: Paths,
    /// What is paused; gone with the last [`crate::Systx`].
    pub paused: Weak<Paused>,
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
    pub fn new(area: &[u8], watcher: Watcher, paused: &Arc<Paused>) -> io::Result<Shared> {
        let os = Guest::over(Linux::new());
        let uid = fs_uid();
        let served = Served::new(os.clone(), uid, area_name(area, uid).into_owned())?;
        let (lineage, protected, upkeep) = (os.lineage(), Protected::now(), Upkeep::default());
        let (name, order, paused) = (name_of(area), Mutex::default(), Arc::downgrade(paused));
        let (paths, watcher) = (Paths::default(), Starter::new(watcher, area));
        Ok(Shared { os, uid, lineage, protected, served, upkeep, watcher, name, order, paths, paused })
    }

    /// The sequence of the present process group.
    ///
    /// # Errors
    /// [`Error::Order`].
    pub fn order(&self) -> Result<Arc<Order>, Error> {
        // It is replaced as a whole.
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        match &*order {
            Some(order) if order.is_present() => Ok(order.clone()),
            _ => {
                let opened = Order::open(&self.os, self.uid, &self.name).map_err(Error::Order)?;
                Ok(order.insert(Arc::new(opened)).clone())
            }
        }
    }

    /// Returns true in a child of the process that made it.
    pub fn is_forked(&self) -> bool {
        self.os.lineage() != self.lineage && !mutant::on(Mutant::ForkUnseen)
    }

    /// Checks that the calling thread may act in transactions of this value.
    pub fn is_ours(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if fs_uid() != self.uid && !mutant::on(Mutant::OtherUserUnseen) {
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
