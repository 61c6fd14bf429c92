//! Opening, handles and leases.
//!
//! Guarantees: a lease is granted only while no other handle of the file is open, an open that conflicts with
//! one fails with `EAGAIN` (every open of the trait is O_NONBLOCK) and marks it as being broken; after the
//! lease-break time it is gone. Does not: block, nor deliver signals.

use systx_os::{Errno, FileType, FsKind, Handle, Lease, Open, Result};

use super::state::{FileId, Leased, OpenFile, State};
use super::{FsId, ProcId};
use crate::machine::meta::Id;

/// /proc/sys/fs/lease-break-time.
const LEASE_BREAK_NS: u64 = 45_000_000_000;
/// FILEID_INO32_GEN.
const HANDLE_KIND: i32 = 1;
/// FILEID_BTRFS_WITHOUT_PARENT.
const HANDLE_KIND_BTRFS: i32 = 0x4d;

impl State {
    /// A new open file description.
    pub(super) fn describe(&mut self, process: ProcId, id: Id, read: bool, write: bool) -> FileId {
        // Descriptions share the counter of identities: one number means one thing in a trace.
        let (file, told) = (self.next_id, self.systems[self.inode(id).fs.0].write_errors);
        self.next_id += 1;
        self.files.insert(file, OpenFile { process, id, read, write, refs: 1, lease: None, told });
        file
    }

    /// Opens an inode.
    pub(super) fn open(&mut self, process: ProcId, id: Id, how: Open) -> Result<FileId> {
        let meta = &self.inode(id).meta;
        let (read, write) = match how {
            Open::Path => return Ok(self.describe(process, id, false, false)),
            Open::Directory if meta.kind() != FileType::Directory => return Err(Errno::NOTDIR),
            Open::Directory | Open::Read => (true, false),
            Open::ReadWrite => (true, true),
            Open::Write => (false, true),
        };
        match meta.kind() {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Directory if write => return Err(Errno::ISDIR),
            FileType::Socket | FileType::CharDevice | FileType::BlockDevice => return Err(Errno::NXIO),
            FileType::Fifo if write && !read && !self.files.values().any(|f| f.id == id && f.read) => {
                return Err(Errno::NXIO)
            }
            _ => {}
        }
        if write && (meta.immutable || meta.append_only) {
            return Err(Errno::PERM);
        }
        self.break_leases(id, write)?;
        Ok(self.describe(process, id, read, write))
    }

    /// Starts breaking every lease on `id` that an open for reading or writing conflicts with.
    fn break_leases(&mut self, id: Id, write: bool) -> Result<()> {
        let now = self.clock;
        let mut conflict = false;
        for lease in self.files.values_mut().filter(|f| f.id == id).filter_map(|f| f.lease.as_mut()) {
            expire(lease, now);
            if lease.kind == Lease::None || (lease.kind == Lease::Read && !write) {
                continue;
            }
            conflict = true;
            let down_to = if write { Lease::None } else { Lease::Read };
            let deadline = lease.breaking.map_or(now.saturating_add(LEASE_BREAK_NS), |(_, at)| at);
            let further = lease.breaking.is_none_or(|(to, _)| to == Lease::Read && down_to == Lease::None);
            if further {
                lease.breaking = Some((down_to, deadline));
            }
        }
        if conflict {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    }

    /// fcntl(F_SETLEASE).
    pub(super) fn set_lease(&mut self, process: ProcId, file: FileId, kind: Lease) -> Result<()> {
        let open = self.file(file)?;
        let id = open.id;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        let inode = self.inode(id);
        let uid = self.process(process).uid;
        if uid != 0 && uid != inode.meta.uid {
            return Err(Errno::ACCESS);
        }
        if inode.meta.kind() != FileType::File || !self.spec(inode.fs).info.leases {
            return Err(Errno::INVAL);
        }
        if kind == Lease::None {
            self.files.get_mut(&file).ok_or(Errno::BADF)?.lease = None;
            return Ok(());
        }
        let now = self.clock;
        let mut others = self.files.iter().filter(|(n, f)| **n != file && f.id == id && !f.path_only());
        let refused = match kind {
            Lease::Write => others.next().is_some(),
            _ => {
                open.write
                    || others.any(|(_, f)| {
                        f.write || f.lease.is_some_and(|mut l| expire(&mut l, now).breaking.is_some())
                    })
            }
        };
        if refused {
            return Err(Errno::AGAIN);
        }
        if let Some(open) = self.files.get_mut(&file) {
            let breaking = open.lease.and_then(|mut lease| expire(&mut lease, now).breaking);
            // Taking one's own lease again doesn't stop the process that breaks it, unless the lease is
            // reduced as that process needs it. Source: fs/locks.c, lease_modify.
            let breaking = breaking.filter(|(to, _)| kind == Lease::Write || *to == Lease::None);
            open.lease = Some(Leased { kind, breaking });
        }
        Ok(())
    }

    /// fcntl(F_GETLEASE): what is being broken counts as what it is broken down to.
    pub(super) fn get_lease(&mut self, file: FileId) -> Result<Lease> {
        let now = self.clock;
        let open = self.files.get_mut(&file).ok_or(Errno::BADF)?;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        let Some(lease) = open.lease.as_mut() else { return Ok(Lease::None) };
        expire(lease, now);
        Ok(lease.breaking.map_or(lease.kind, |(to, _)| to))
    }

    /// File handle of an inode.
    pub(super) fn handle(&self, id: Id) -> Result<Handle> {
        let inode = self.inode(id);
        let info = &self.spec(inode.fs).info;
        if !info.handles {
            return Err(Errno::OPNOTSUPP);
        }
        let mut bytes = inode.meta.ino.to_le_bytes().to_vec();
        bytes.extend(inode.meta.generation.to_le_bytes());
        let kind = if info.kind == FsKind::Btrfs { HANDLE_KIND_BTRFS } else { HANDLE_KIND };
        Handle::new(kind, &bytes).ok_or(Errno::OVERFLOW)
    }

    /// The inode that a handle means.
    pub(super) fn by_handle(&self, fs: FsId, handle: &Handle) -> Result<Id> {
        let info = &self.spec(fs).info;
        if !info.open_by_handle {
            return Err(Errno::PERM);
        }
        let (ino, generation) = handle.as_bytes().split_at_checked(8).ok_or(Errno::STALE)?;
        self.inodes
            .iter()
            .find(|(_, i)| {
                i.fs == fs
                    && !i.freed
                    && i.meta.ino.to_le_bytes() == *ino
                    && i.meta.generation.to_le_bytes() == *generation
            })
            .map(|(id, _)| *id)
            .ok_or(Errno::STALE)
    }
}

/// Takes away what the holder did not give back in time.
fn expire(lease: &mut Leased, now: u64) -> &Leased {
    if let Some((to, deadline)) = lease.breaking {
        if now >= deadline {
            *lease = Leased { kind: to, breaking: None };
        }
    }
    lease
}
