//! Objects of a file system: how one is identified, found again and opened, and what a slot is called.
//!
//! Owns: the way from a handle to a descriptor, with and without the right to open handles; directories kept
//! open while many steps ask for the same few; slot names; the removal of whole trees ([`remove`]).
//! Guarantees: what is opened is the object that the handle names, or nothing. Does not: know records,
//! transactions or where an area is.

pub(crate) mod remove;

pub(crate) use remove::{clear, remove_all};

use crate::acl;
use crate::mutant::{self, Mutant};
use crate::paths::join;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Errno, FsKind, Handle, Open, Os, Result};

/// Directories kept open while steps are looked at or published; more are opened again by handle. Steps on
/// one directory mostly follow each other.
pub(crate) const DIRECTORIES_MAX: usize = 64;

/// How often an open that meets a lease is tried again, and the pause between, in nanoseconds: a commit in flight and a
/// reader's probe give theirs back soon, an outsider need not.
const LEASE_ROUNDS: u32 = 50;
const LEASE_PAUSE_NS: u64 = 1_000_000;
/// Length of the first pause, as a commit publishes under its leases for some 20 µs. Each further one is twice as long.
const LEASE_PAUSE_LEAST_NS: u64 = 20_000;

/// This many entries have names that are only numbers.
const SHORT_NAMES: u32 = 64;

/// Bytes of the names of all others (73 fill a block), and what makes them so long.
const LONG_NAME: usize = 48;

const FILL: u8 = b'-';

/// Name of a slot in `tx/<id>`: its number. Where there are many it is a long name: ext4 goes through a block
/// of a directory entry by entry, at each look and each change of a name, and of long names few fill one.
pub(crate) fn slot_name(slot: u32) -> Vec<u8> {
    let mut name = slot.to_string().into_bytes();
    if slot >= SHORT_NAMES {
        name.resize(LONG_NAME, FILL);
    }
    name
}

/// The number of a slot, by its name.
pub(crate) fn slot_number(name: &[u8]) -> Option<u32> {
    let digits = name.iter().position(|byte| *byte == FILL).map_or(name, |at| &name[..at]);
    let slot = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (slot_name(slot) == name).then_some(slot)
}

/// The object under a name, if any.
pub(crate) fn identify<O: Os>(os: &O, dir: &O::Fd, name: &[u8]) -> Result<Option<Handle>> {
    match os.handle_at(dir, name) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens an object by handle; where handles can't be opened, by walking `path` below `root` and comparing.
///
/// `Ok(None)`: the object is gone.
pub(crate) fn open_object<O: Os>(
    os: &O,
    root: &Top<O>,
    handle: &Handle,
    path: &[u8],
    name: &[u8],
    how: Open,
) -> Result<Option<O::Fd>> {
    match by_handle(os, root, handle, how)? {
        ByHandle::Found(fd) => Ok(Some(fd)),
        ByHandle::Gone => Ok(None),
        ByHandle::Forbidden => walk(os, root, handle, &join(path, name), how),
    }
}

/// How far the objects of a domain may be from its top directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// The directory is the top of its file system. Objects are opened by handle.
    FileSystem,
    /// It may be a part of one, as a bind mount shows. A handle leads anywhere on a file system, and those of a
    /// log may be forged: unless it is the top of a subvolume of btrfs, objects are found by walking from it.
    Directory,
}

impl Bounds {
    /// Of a directory at this path from the root of its file system, where a leading slash may be left out.
    pub fn at(path: &[u8]) -> Bounds {
        match path {
            b"" | b"/" => Bounds::FileSystem,
            _ => Bounds::Directory,
        }
    }
}

/// Inode number of the top directory of each subvolume of btrfs (BTRFS_FIRST_FREE_OBJECTID).
const SUBVOLUME_TOP: u64 = 256;

/// The top directory of a domain: all that its records lead to lies below it.
pub(crate) struct Top<O: Os> {
    fd: Arc<O::Fd>,
    bounds: Bounds,
    /// Device of the directory on btrfs, where each subvolume has its own, and a handle leads to any.
    subvolume: Option<u64>,
}

impl<O: Os> Top<O> {
    /// On a file system of this kind.
    pub fn new(os: &O, fd: Arc<O::Fd>, bounds: Bounds, kind: FsKind) -> Result<Top<O>> {
        if kind != FsKind::Btrfs {
            return Ok(Top { fd, bounds, subvolume: None });
        }
        let stat = os.stat(&fd)?;
        let bounds = if stat.ino == SUBVOLUME_TOP { Bounds::FileSystem } else { bounds };
        Ok(Top { fd, bounds, subvolume: Some(stat.dev) })
    }

    /// Returns true if objects may be opened by handle.
    pub fn takes_handles(&self) -> bool {
        self.bounds == Bounds::FileSystem || mutant::on(Mutant::HandlesLeadOut)
    }

    /// Of a whole file system that is not btrfs.
    #[cfg(test)]
    pub fn whole(fd: O::Fd) -> Top<O> {
        Top { fd: Arc::new(fd), bounds: Bounds::FileSystem, subvolume: None }
    }

    /// Another owner of its descriptor.
    pub fn fd(&self) -> Arc<O::Fd> {
        self.fd.clone()
    }

    /// Opens an object by handle.
    ///
    /// # Errors
    /// `EPERM` where handles may lead outside; `ESTALE` for an object of another subvolume.
    pub fn open_handle(&self, os: &O, handle: &Handle, how: Open) -> Result<O::Fd> {
        if !self.takes_handles() {
            return Err(Errno::PERM);
        }
        let fd = os.open_handle(&self.fd, handle, how)?;
        match self.subvolume {
            Some(dev) if os.stat(&fd)?.dev != dev && !mutant::on(Mutant::HandlesLeadOut) => Err(Errno::STALE),
            _ => Ok(fd),
        }
    }
}

impl<O: Os> core::ops::Deref for Top<O> {
    type Target = O::Fd;

    fn deref(&self) -> &O::Fd {
        &self.fd
    }
}

pub(crate) enum ByHandle<Fd> {
    Found(Fd),
    Gone,
    /// Nothing can be opened that way.
    Forbidden,
}

pub(crate) fn by_handle<O: Os>(os: &O, root: &Top<O>, handle: &Handle, how: Open) -> Result<ByHandle<O::Fd>> {
    match root.open_handle(os, handle, how) {
        Ok(fd) => Ok(ByHandle::Found(fd)),
        Err(Errno::STALE | Errno::NOENT) => Ok(ByHandle::Gone),
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(ByHandle::Forbidden),
        Err(e) => Err(e),
    }
}

/// Opens the object at a path, if it is that one.
pub(crate) fn walk<O: Os>(
    os: &O,
    base: &O::Fd,
    handle: &Handle,
    path: &[u8],
    how: Open,
) -> Result<Option<O::Fd>> {
    let mut fd = os.dup(base)?;
    for component in path.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
        // No record of ours has one, and it would lead out of what may be reached.
        if component == b".." {
            return Ok(None);
        }
        fd = match os.open(&fd, component, Open::Path) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if os.are_names_locked(&fd)? => return Err(Errno::NOKEY),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => return Ok(None),
            Err(e) => return Err(e),
        };
    }
    // Compared before it is opened for real: a stranger's may not let itself be opened that way.
    if os.handle(&fd)? != *handle {
        return Ok(None);
    }
    if how == Open::Path {
        return Ok(Some(fd));
    }
    os.reopen(&fd, how).map(Some)
}

/// Directories of steps, open: each is found by its handle once, for every look and for publication.
pub(crate) struct Directories<O: Os>(HashMap<Handle, Arc<O::Fd>>);

impl<O: Os> Default for Directories<O> {
    fn default() -> Directories<O> {
        Directories(HashMap::new())
    }
}

impl<O: Os> Directories<O> {
    /// Takes over a descriptor that is open already. One of a directory that is removed since is as in
    /// [`Directories::find`].
    pub fn keep(&mut self, dir: Handle, fd: Arc<O::Fd>) {
        if self.0.len() < DIRECTORIES_MAX {
            self.0.entry(dir).or_insert(fd);
        }
    }

    /// Returns a directory, by its handle, or below `root` at `path`; `None` when it is gone.
    ///
    /// The link count of one that is removed while it is kept here shows that, and so does every call that
    /// would make a name in it.
    pub fn find(&mut self, os: &O, root: &Top<O>, dir: &Handle, path: &[u8]) -> Result<Option<Arc<O::Fd>>> {
        self.find_by(dir, || open_object(os, root, dir, path, b"", Open::Path))
    }

    /// A directory that is open.
    pub fn kept(&self, dir: &Handle) -> Option<&O::Fd> {
        self.0.get(dir).map(|fd| &**fd)
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As [`Directories::find`], with another way to open one that is not kept.
    pub fn find_by(
        &mut self,
        dir: &Handle,
        open: impl Fn() -> Result<Option<O::Fd>>,
    ) -> Result<Option<Arc<O::Fd>>> {
        if let Some(fd) = self.0.get(dir) {
            return Ok(Some(fd.clone()));
        }
        let mut found = open();
        if matches!(found, Err(Errno::MFILE | Errno::NFILE)) && !self.0.is_empty() {
            self.0.clear();
            found = open();
        }
        let Some(fd) = found? else { return Ok(None) };
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.clear();
        }
        let fd = Arc::new(fd);
        self.0.insert(*dir, fd.clone());
        Ok(Some(fd))
    }
}

/// Value of an extended attribute; `None` when there is none.
pub(crate) fn current_xattr<O: Os>(os: &O, fd: &O::Fd, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match os.getxattr(fd, name) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn current_names<O: Os>(os: &O, fd: &O::Fd) -> Result<Vec<Vec<u8>>> {
    let mut names = acl::each_list_once(os.listxattr(fd)?);
    names.sort_unstable();
    Ok(names)
}

/// Most names of a file: EXT4_LINK_MAX, XFS_MAXLINK, BTRFS_LINK_MAX. On others the kernel says it when it is asked.
pub(crate) fn links_max(kind: FsKind) -> u32 {
    match kind {
        FsKind::Ext4 | FsKind::Ext4NoJournal => 65_000,
        FsKind::Xfs => i32::MAX as u32,
        FsKind::Btrfs => 65_535,
        FsKind::Tmpfs | FsKind::Other(_) => u32::MAX,
    }
}

/// Tries until no other process has a lease in the way: who reads a file, or looks at it, is soon done, and what was
/// closed counts as open until the kernel comes to it (a view's private reads end that way).
///
/// Bounded, since an entry may be held meanwhile and an outsider may keep its lease for as long as it likes (I10).
///
/// # Errors
///
/// `EAGAIN` when the lease stays.
pub(crate) fn past_leases<O: Os, T>(
    os: &O,
    meanwhile: impl Fn() -> Result<()>,
    attempt: impl Fn() -> Result<T>,
) -> Result<T> {
    let rounds = if mutant::on(Mutant::LeasesNotAwaited) { 1 } else { LEASE_ROUNDS };
    let mut pause = LEASE_PAUSE_LEAST_NS;
    for _ in 1..rounds {
        match attempt() {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
        meanwhile()?;
        os.pause(pause);
        pause = LEASE_PAUSE_NS.min(2 * pause);
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::FsKind;
    use systx_sim::machine::{Call, Fault, Machine, Plant, SimOs};

    #[test]
    fn a_directory_is_found_without_a_descriptor_to_spare() {
        let machine = Machine::with(FsKind::Ext4);
        machine.plant(0, &[("one", Plant::Dir), ("two", Plant::Dir)]).expect("planting");
        let os = machine.spawn("publisher");
        let root = Top::<SimOs>::whole(os.root(0));
        let of = |name: &[u8]| os.handle_at(&root, name).expect("there");
        let mut directories = Directories::default();
        let mut find = |name: &[u8]| directories.find(&os, &root, &of(name), name).map(|dir| dir.is_some());
        assert_eq!(find(b"one"), Ok(true));
        machine.fault(Fault::fail(Call::OpenHandle, Errno::MFILE));
        assert_eq!(find(b"two"), Ok(true), "what is kept is let go of");
        machine.fault(Fault { times: 2, ..Fault::fail(Call::OpenHandle, Errno::MFILE) });
        assert_eq!(find(b"one"), Err(Errno::MFILE));
        os.exit();
    }
}
