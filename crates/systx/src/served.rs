//! The file systems that transactions of this process have touched, as open domains.
//!
//! Owns: the mount table as of its last change, and one domain for each directory that has an area.
//! Guarantees: a table is read again when the kernel says that mounts have changed; what a dead process has left in doubt
//! is settled as soon as the file system that decides can be reached. Does not: walk paths.

use crate::error::{Error, Failed};
use crate::kernel::Kernel;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use systx_engine::domain::{said_at, Bounds, Domain, Location, Most};
use systx_os::guest::GuestFd;
use systx_os::outside::Key;
use systx_os::sandbox::mounts;
use systx_os::{Errno, Linux, Os};
use systx_places::register;
use systx_places::site::{Site, Table};

/// Bounds of what each domain remembers between transactions.
const REMEMBERED: Most = Most { names: 4096, open: 128 };

/// An open domain.
#[derive(Clone)]
pub(crate) struct Open {
    pub domain: Arc<Domain<Kernel>>,
    /// Path of the directory that has the area, as it was opened.
    pub top: Vec<u8>,
    /// The directory that has the area.
    pub root: Arc<GuestFd<Linux>>,
    /// Path of that directory from the root of the file system, without a leading slash.
    pub path: Vec<u8>,
    /// Device, inode and mount of that directory.
    key: Key,
    /// The table by which it was found.
    table: Arc<Table>,
    /// It was seen to that a watcher is there.
    pub seen_to: Arc<AtomicBool>,
}

impl Open {
    /// Returns false if it has to be opened anew: the program of this process has closed a descriptor without which
    /// nothing works, its log or table is used up, or its area or a part of it was removed (what tidies /tmp does so).
    fn is_usable(&self, os: &Kernel) -> bool {
        let in_place = || self.domain.is_in_place().is_ok_and(|there| there);
        !self.domain.is_spent() && !os.is_lost(&self.root) && in_place()
    }

    /// Device and mount.
    pub fn device_and_mount(&self) -> (u64, u64) {
        (self.key.0, self.key.2)
    }

    /// Returns true if both are one.
    pub fn is(&self, other: &Open) -> bool {
        self.key == other.key
    }
}

/// The mount table, and what tells of its changes.
struct Mounts {
    watched: GuestFd<Linux>,
    /// `None`: it has to be read again.
    table: Option<Arc<Table>>,
}

impl Mounts {
    fn read(os: &Kernel) -> Result<Mounts, Errno> {
        // Before the table, so that no change goes unnoticed.
        let watched = os.adopt(mounts::watch()?)?;
        Ok(Mounts { watched, table: Some(Arc::new(Table::read()?)) })
    }
}

/// All that this process has opened.
pub(crate) struct Served {
    os: Kernel,
    uid: u32,
    /// Name of this user's areas.
    area: Vec<u8>,
    mounts: Mutex<Mounts>,
    open: Mutex<Vec<Open>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are replaced or pushed to as a whole.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Served {
    /// Nothing is open yet.
    pub fn new(os: Kernel, uid: u32, area: Vec<u8>) -> io::Result<Served> {
        let mounts = Mutex::new(Mounts::read(&os)?);
        Ok(Served { os, uid, area, mounts, open: Mutex::default() })
    }

    /// The mounts as they are now.
    pub fn table(&self) -> Result<Arc<Table>, Errno> {
        let mut mounts = held(&self.mounts);
        if self.os.is_lost(&mounts.watched) {
            *mounts = Mounts::read(&self.os)?;
        } else if mounts::have_changed(&mounts.watched)? {
            // The question is answered once. If the table can't be read now, the next call tries again.
            mounts.table = None;
        }
        match &mounts.table {
            Some(table) => Ok(table.clone()),
            None => Ok(mounts.table.insert(Arc::new(Table::read()?)).clone()),
        }
    }

    /// Opens the domain of a site, or finds it open.
    ///
    /// `Ok(None)`: what is at its path is not what the table says, as something was mounted just now.
    pub fn open(&self, site: &Site) -> Result<Option<Open>, Error> {
        let table = self.table().map_err(|e| Error::Failed(Failed::new("looking at mounts", b"/", e)))?;
        // Held while it is opened: a second owner of this process for one area would cost a place for nothing.
        let mut open = held(&self.open);
        let (opened, is_new) = match self.open_in(&mut open, &table, site)? {
            Some(found) => found,
            None => return Ok(None),
        };
        if is_new {
            self.settle_in(&mut open, &table);
        }
        Ok(Some(opened))
    }

    /// The domain that is open in this very directory, if nothing was mounted since.
    pub fn top(&self, table: &Arc<Table>, key: Key) -> Option<Open> {
        let open = held(&self.open);
        let found = open.iter().find(|known| known.key == key && Arc::ptr_eq(&known.table, table));
        found.filter(|known| known.is_usable(&self.os)).cloned()
    }

    /// Finishes what dead processes have left prepared in what is open, if what decides can be reached.
    pub fn settle(&self) {
        if let Ok(table) = self.table() {
            self.settle_in(&mut held(&self.open), &table);
        }
    }

    /// A failure leaves the doubt: its objects conflict, and the next one tries again.
    fn settle_in(&self, open: &mut Vec<Open>, table: &Arc<Table>) {
        let undecided = |open: &[Open]| {
            let of = |known: &Open| known.domain.undecided().unwrap_or_default();
            open.iter().flat_map(of).collect::<Vec<_>>()
        };
        let wanted = undecided(open);
        if !wanted.is_empty() {
            let said = |site: &Site| {
                let dir = fs::File::open(OsStr::from_bytes(&site.top)).ok()?;
                said_at(&self.os, &self.os.adopt(OwnedFd::from(dir)).ok()?, &self.area)
            };
            let there: Vec<_> =
                self.sites(table).into_iter().filter_map(|site| Some((said(&site)?, site))).collect();
            for (id, site) in &there {
                // Of two that say they are one, neither answers.
                let is_single = there.iter().filter(|(other, _)| other == id).count() == 1;
                if is_single && wanted.contains(id) {
                    let _ = self.open_in(open, table, site);
                }
            }
        }
        for known in open.iter() {
            let _ = known.domain.finish_in_flight();
        }
    }

    /// Where this user's areas may be.
    fn sites(&self, table: &Table) -> Vec<Site> {
        if self.uid == 0 {
            return table.sites();
        }
        let site = |top: Vec<u8>| table.site_in(&top, mounts::look(&top).ok()?.mount_id);
        register::with_areas(&self.area).into_iter().filter_map(site).collect()
    }

    /// The domain of a site, and whether it was opened just now.
    fn open_in(
        &self,
        open: &mut Vec<Open>,
        table: &Arc<Table>,
        site: &Site,
    ) -> Result<Option<(Open, bool)>, Error> {
        let failed = |doing: &'static str, errno| Error::Failed(Failed::new(doing, &site.top, errno));
        let os_error = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        let top = OsStr::from_bytes(&site.top);
        let dir = fs::File::open(top).map_err(|e| failed("opening", os_error(e)))?;
        let found = dir.metadata().map_err(|e| failed("looking at", os_error(e)))?;
        let dir = OwnedFd::from(dir);
        let mount = mounts::mount_id(&dir).map_err(|e| failed("looking at", e))?;
        if mount != site.mount {
            return Ok(None);
        }
        let key = (found.dev(), found.ino(), mount);
        open.retain(|known| known.is_usable(&self.os));
        if let Some(known) = open.iter_mut().find(|known| known.key == key) {
            known.table = table.clone();
            return Ok(Some((known.clone(), false)));
        }
        let root = Arc::new(self.os.adopt(dir).map_err(|e| failed("looking at", e))?);
        self.open_by(open, table, site, root, key).map(|opened| Some((opened, true)))
    }

    /// Opens the domain of a site whose directory is open.
    fn open_by(
        &self,
        open: &mut Vec<Open>,
        table: &Arc<Table>,
        site: &Site,
        root: Arc<GuestFd<Linux>>,
        key: Key,
    ) -> Result<Open, Error> {
        let others: Vec<_> = open.iter().map(|known| known.domain.clone()).collect();
        let location =
            Location { root: root.clone(), bounds: Bounds::at(&site.path), parent: &*root, name: &self.area };
        let domain = Domain::open_beside(&self.os, location, &others).map_err(|e| {
            Error::Refused(format!("{}: {e}", OsStr::from_bytes(&site.top).to_string_lossy()))
        })?;
        domain.mounted_at(&site.top);
        domain.remember(REMEMBERED);
        if self.uid != 0 {
            register::remember(&site.top);
        }
        let (top, path, table) = (site.top.clone(), site.path.clone(), table.clone());
        let opened = Open { domain, top, root, path, key, table, seen_to: Arc::default() };
        open.push(opened.clone());
        Ok(opened)
    }

    /// Opens the domain of a site by a directory that the caller holds, wherever a path leads now.
    pub fn open_held(&self, site: &Site, root: Arc<GuestFd<Linux>>) -> Result<Open, Error> {
        let failed = |errno| Error::Failed(Failed::new("looking at", &site.top, errno));
        let table = self.table().map_err(failed)?;
        let is = self.os.identity(&root).map_err(failed)?;
        self.open_by(&mut held(&self.open), &table, site, root, (is.0, is.1, site.mount))
    }
}
