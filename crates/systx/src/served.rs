//! The file systems that transactions of this process have touched, as open domains.
//!
//! Owns: the mount table as of its last change, and one domain for each directory that has an area.
//! Guarantees: a table is read again when the kernel says that mounts have changed. Does not: walk paths.

use crate::error::{Error, Failed};
use crate::kernel::Kernel;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard};
use systx_engine::domain::{Domain, Location};
use systx_os::guest::GuestFd;
use systx_os::sandbox::mounts;
use systx_os::{Errno, Linux, Os};
use systx_places::site::{Site, Table};

/// An open domain.
#[derive(Clone)]
pub(crate) struct Open {
    pub domain: Arc<Domain<Kernel>>,
    /// The directory that has the area.
    pub root: Arc<GuestFd<Linux>>,
    /// Path of that directory from the root of the file system, without a leading slash.
    pub path: Vec<u8>,
    /// Device, inode and mount of that directory.
    key: (u64, u64, u64),
}

impl Open {
    /// Returns true if the program of this process has closed a descriptor without which nothing works.
    fn is_lost(&self, os: &Kernel) -> bool {
        [&*self.root, &self.domain.area.dir].iter().any(|fd| os.is_lost(fd))
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
    pub fn new(os: Kernel, area: Vec<u8>) -> io::Result<Served> {
        let mounts = Mutex::new(Mounts::read(&os)?);
        Ok(Served { os, area, mounts, open: Mutex::default() })
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
        // Held while it is opened: a second owner of this process for one area would cost a place for nothing.
        let mut open = held(&self.open);
        // What has lost its descriptors is opened anew.
        open.retain(|known| !known.is_lost(&self.os));
        if let Some(known) = open.iter().find(|known| known.key == key) {
            return Ok(Some(known.clone()));
        }
        let root = Arc::new(self.os.adopt(dir).map_err(|e| failed("looking at", e))?);
        let others: Vec<_> = open.iter().map(|known| known.domain.clone()).collect();
        let location = Location { root: root.clone(), parent: &*root, name: &self.area };
        let domain = Domain::open_beside(&self.os, location, &others)
            .map_err(|e| Error::Refused(format!("{}: {e}", top.to_string_lossy())))?;
        domain.mounted_at(&site.top);
        let opened = Open { domain, root, path: site.path.clone(), key };
        open.push(opened.clone());
        Ok(Some(opened))
    }
}
