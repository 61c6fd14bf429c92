//! Directories of the committed tree, open or not.
//!
//! Owns: the descriptor of a [`LowerDir`] and the way back to one that was closed. Guarantees: a reopened one
//! is the same object, as its handle names no other; one that is gone is reported as gone. Does not: count
//! descriptors and decide which are closed ([`crate::workset::held`]).

use super::Facts;
use crate::domain::Domain;
use crate::objects::open_object;
use crate::outcome::{ConflictKind, Verb};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use systx_os::{Dirent, Handle, Open, Os, Result, Timestamp};

/// A directory of the committed tree that the transaction touched.
pub struct LowerDir<O: Os> {
    /// Index of the mount in the transaction.
    pub domain: usize,
    /// Identity.
    pub handle: Handle,
    /// Path from the root of the mount when first found, without leading `/`.
    pub path: Vec<u8>,
    /// Usable as a base for names, while it is kept.
    fd: Mutex<Option<Arc<O::Fd>>>,
    /// That is from an earlier transaction, and nobody has looked whether the program has closed it since.
    unsure: AtomicBool,
    /// Change time before the names that are counted on it were looked for.
    stamp: OnceLock<Timestamp>,
    /// How many names were missing in it.
    misses: AtomicU32,
}

/// A directory that was opened without being kept: a comparison of facts asks for the same one many times in
/// a row.
pub(super) struct LastOpened<O: Os>(Mutex<Option<Opened<O>>>);

struct Opened<O: Os> {
    domain: usize,
    handle: Handle,
    fd: Arc<O::Fd>,
}

impl<O: Os> Default for LastOpened<O> {
    fn default() -> LastOpened<O> {
        LastOpened(Mutex::new(None))
    }
}

impl<O: Os> LowerDir<O> {
    pub(super) fn new(domain: usize, fd: Arc<O::Fd>, handle: Handle, path: Vec<u8>) -> Arc<LowerDir<O>> {
        let (fd, unsure, misses) = (Mutex::new(Some(fd)), AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(LowerDir { domain, handle, path, fd, unsure, stamp: OnceLock::new(), misses })
    }

    /// One whose descriptor the process has from an earlier transaction.
    pub(super) fn remembered(
        domain: usize,
        fd: Arc<O::Fd>,
        handle: Handle,
        path: Vec<u8>,
    ) -> Arc<LowerDir<O>> {
        let dir = LowerDir::new(domain, fd, handle, path);
        dir.unsure.store(true, Ordering::Relaxed);
        dir
    }

    /// Such a descriptor, for a look that says whether it is still what it was ([`LowerDir::is_sure`]).
    pub(super) fn unsure(&self) -> Option<Arc<O::Fd>> {
        self.kept().filter(|_| self.unsure.load(Ordering::Relaxed))
    }

    /// Says that it is.
    pub(super) fn is_sure(&self) {
        self.unsure.store(false, Ordering::Relaxed);
    }

    /// Returns true if a descriptor is kept.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.fd).is_some()
    }

    /// The descriptor, if one is kept.
    pub(crate) fn kept(&self) -> Option<Arc<O::Fd>> {
        lock(&self.fd).clone()
    }

    /// Change time, once it was taken.
    pub(super) fn stamp(&self) -> Option<Timestamp> {
        self.stamp.get().copied()
    }

    /// Counts one more name that is missing in it: how many there are now.
    pub(super) fn missed(&self) -> u32 {
        self.misses.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Remembers its change time, unless an earlier one is known.
    pub(super) fn set_stamp(&self, ctime: Timestamp) {
        self.stamp.get_or_init(|| ctime);
    }

    /// Gives up the descriptor; the next who needs one opens it again.
    pub(crate) fn let_go(&self) {
        *lock(&self.fd) = None;
    }
}

impl<O: Os> Facts<O> {
    /// Makes a directory keep a descriptor again.
    pub(crate) fn keep_open(&mut self, dir: &LowerDir<O>) -> Verb<()> {
        let fd = self.opened_now(dir)?;
        *lock(&dir.fd) = Some(fd);
        Ok(())
    }

    /// Makes a directory that is no fact keep a descriptor again; whether it is still there.
    pub(crate) fn reopen(&mut self, dir: &LowerDir<O>) -> Result<bool> {
        let fd = self.opened(dir)?;
        let there = fd.is_some();
        *lock(&dir.fd) = fd;
        Ok(there)
    }

    /// A descriptor of a directory; `None`: it is gone.
    pub(super) fn opened(&self, dir: &LowerDir<O>) -> Result<Option<Arc<O::Fd>>> {
        let mut kept = lock(&dir.fd);
        let domain = &self.domains[dir.domain];
        if dir.unsure.swap(false, Ordering::Relaxed) && kept.take_if(|fd| domain.os.is_lost(fd)).is_some() {
            *kept = open_dir(domain, dir)?.map(Arc::new);
            kept.iter().for_each(|fd| domain.remembered.set_dir(&dir.handle, fd));
            return Ok(kept.clone());
        }
        if let Some(fd) = &*kept {
            return Ok(Some(fd.clone()));
        }
        drop(kept);
        let mut last_opened = lock(&self.last_opened.0);
        match &*last_opened {
            Some(last) if (last.domain, last.handle) == (dir.domain, dir.handle) => {
                return Ok(Some(last.fd.clone()))
            }
            _ => {}
        }
        Ok(open_dir(domain, dir)?.map(|fd| {
            let fd = Arc::new(fd);
            *last_opened = Some(Opened { domain: dir.domain, handle: dir.handle, fd: fd.clone() });
            fd
        }))
    }

    /// Opens it for a running transaction. The directory was seen under a name, so one that is gone dooms the
    /// transaction; the conflict names the party that removed it.
    pub(super) fn opened_now(&mut self, dir: &LowerDir<O>) -> Verb<Arc<O::Fd>> {
        match self.opened(dir)? {
            Some(fd) => Ok(fd),
            None => {
                Err(self.changed(self.domains[dir.domain].shown(&dir.path), ConflictKind::ReplacedOrRemoved))
            }
        }
    }
}

fn open_dir<O: Os>(domain: &Domain<O>, dir: &LowerDir<O>) -> Result<Option<O::Fd>> {
    open_object(&domain.os, &domain.area.root, &dir.handle, &dir.path, b"", Open::Path)
}

/// Names of a directory that is open as `fd`, without our area.
pub(super) fn visible_names<O: Os>(domain: &Domain<O>, dir: &LowerDir<O>, fd: &O::Fd) -> Result<Vec<Dirent>> {
    let mut names = domain.os.read_dir(fd)?;
    if dir.path.is_empty() {
        names.retain(|d| !domain.os.handle_at(fd, &d.name).is_ok_and(|h| domain.is_area(&h)));
    }
    Ok(names)
}

/// The guarded value is complete at any time, also behind a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
