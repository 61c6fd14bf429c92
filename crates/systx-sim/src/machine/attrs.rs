//! System calls on attributes.
//!
//! Guarantees: works on every type of object, also through O_PATH descriptors, as the trait asks. Does not: know
//! access-control lists other than as extended attributes.

use systx_os::{Errno, FileType, FsKind, Result, SetXattr, Stat, StatFs, Timestamp};

use super::state::{FileId, State};
use super::{FsId, ProcId};
use crate::machine::meta::Id;

/// Longest name and value of an extended attribute.
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: usize = 65536;
/// Blocks and inodes that every file system claims to have.
const BLOCKS: u64 = 1 << 20;

impl State {
    /// statx(2).
    pub(super) fn stat(&self, id: Id) -> Stat {
        let inode = self.inode(id);
        let meta = &inode.meta;
        let size = if inode.is_dir() { 4096 } else { meta.size };
        Stat {
            dev: 0x800 + inode.fs.0 as u64,
            ino: meta.ino,
            mnt_id: 20 + inode.fs.0 as u64,
            mode: meta.mode,
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            rdev: meta.rdev,
            size,
            blocks: inode.data.allocated(),
            blksize: 4096,
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            immutable: meta.immutable,
            append_only: meta.append_only,
        }
    }

    /// statfs(2).
    pub(super) fn statfs(&self, fs: FsId) -> StatFs {
        let used: u64 =
            self.inodes.values().filter(|i| i.fs == fs && !i.freed).map(|i| i.data.allocated() / 8).sum();
        let free = BLOCKS.saturating_sub(used);
        let magic = match self.spec(fs).info.kind {
            FsKind::Ext4 | FsKind::Ext4NoJournal => 0xef53,
            FsKind::Xfs => 0x5846_5342,
            FsKind::Btrfs => 0x9123_683e,
            FsKind::Tmpfs => 0x0102_1994,
            FsKind::Other(magic) => magic,
        };
        StatFs {
            magic,
            bsize: 4096,
            frsize: 4096,
            blocks: BLOCKS,
            bfree: free,
            bavail: free,
            files: BLOCKS,
            ffree: BLOCKS - self.inodes.len() as u64,
            namelen: 255,
        }
    }

    fn changeable(&self, process: ProcId, file: FileId) -> Result<Id> {
        let id = self.file(file)?.id;
        let meta = &self.inode(id).meta;
        if meta.immutable || meta.append_only {
            return Err(Errno::PERM);
        }
        let uid = self.process(process).uid;
        if uid != 0 && uid != meta.uid {
            return Err(Errno::PERM);
        }
        Ok(id)
    }

    fn changed(&mut self, id: Id) {
        self.touch(id, false);
        let fs = self.inode(id).fs;
        self.log(fs, &[(id, false)], Vec::new());
    }

    /// fchmodat2(2).
    pub(super) fn chmod(&mut self, process: ProcId, file: FileId, mode: u32) -> Result<()> {
        let id = self.file(file)?.id;
        if self.inode(id).meta.kind() == FileType::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        let id = self.changeable(process, file)?;
        let meta = self.meta_mut(id);
        meta.mode = (meta.mode & !0o7777) | (mode & 0o7777);
        self.changed(id);
        Ok(())
    }

    /// FS_IOC_SETFLAGS, with what is there already.
    pub(super) fn add_inode_flags(&mut self, process: ProcId, file: FileId, flags: u32) -> Result<()> {
        let id = self.changeable(process, file)?;
        self.meta_mut(id).flags |= flags;
        self.changed(id);
        Ok(())
    }

    /// fchownat(2).
    pub(super) fn chown(&mut self, process: ProcId, file: FileId, uid: u32, gid: u32) -> Result<()> {
        let id = self.changeable(process, file)?;
        let meta = &self.inode(id).meta;
        if self.process(process).uid != 0 && (uid != meta.uid || gid != meta.gid) {
            return Err(Errno::PERM);
        }
        if !self.inode(id).is_dir() {
            self.drop_privileges(id, true);
        }
        let meta = self.meta_mut(id);
        (meta.uid, meta.gid) = (uid, gid);
        self.changed(id);
        Ok(())
    }

    /// utimensat(2).
    pub(super) fn utimens(
        &mut self,
        process: ProcId,
        file: FileId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<()> {
        if atime.is_none() && mtime.is_none() {
            return self.file(file).map(|_| ());
        }
        if [atime, mtime].iter().flatten().any(|t| t.nsec >= 1_000_000_000) {
            return Err(Errno::INVAL);
        }
        let id = self.changeable(process, file)?;
        let meta = self.meta_mut(id);
        meta.atime = atime.unwrap_or(meta.atime);
        meta.mtime = mtime.unwrap_or(meta.mtime);
        self.changed(id);
        Ok(())
    }

    /// Checks an attribute's name: which name spaces exist, and where `user.` may be used.
    fn xattr_target(&self, process: ProcId, file: FileId, name: &[u8], write: bool) -> Result<Id> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE);
        }
        let id = if write { self.file(file)?.id } else { return self.xattr_readable(process, file, name) };
        let meta = &self.inode(id).meta;
        if meta.immutable || meta.append_only {
            return Err(Errno::PERM);
        }
        let own = [0, meta.uid].contains(&self.process(process).uid);
        let root = self.process(process).uid == 0;
        match name.split(|b| *b == b'.').next() {
            Some(b"user") if !matches!(meta.kind(), FileType::File | FileType::Directory) => Err(Errno::PERM),
            Some(b"user") if own => suffix(name, id),
            Some(b"trusted" | b"security") if root => suffix(name, id),
            Some(b"user" | b"trusted" | b"security") => Err(Errno::PERM),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn xattr_readable(&self, process: ProcId, file: FileId, name: &[u8]) -> Result<Id> {
        let id = self.file(file)?.id;
        let meta = &self.inode(id).meta;
        match name.split(|b| *b == b'.').next() {
            Some(b"user") if !matches!(meta.kind(), FileType::File | FileType::Directory) => {
                Err(Errno::NODATA)
            }
            Some(b"trusted") if self.process(process).uid != 0 => Err(Errno::NODATA),
            Some(b"user" | b"trusted" | b"security") => suffix(name, id),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// getxattr(2).
    pub(super) fn getxattr(&self, process: ProcId, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        let id = self.xattr_target(process, file, name, false)?;
        self.inode(id).meta.xattrs.get(name).cloned().ok_or(Errno::NODATA)
    }

    /// setxattr(2).
    pub(super) fn setxattr(
        &mut self,
        process: ProcId,
        file: FileId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> Result<()> {
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        let id = self.xattr_target(process, file, name, true)?;
        match (mode, self.inode(id).meta.xattrs.contains_key(name)) {
            (SetXattr::Create, true) => return Err(Errno::EXIST),
            (SetXattr::Replace, false) => return Err(Errno::NODATA),
            _ => {}
        }
        self.meta_mut(id).xattrs.insert(name.to_vec(), value.to_vec());
        self.changed(id);
        Ok(())
    }

    /// removexattr(2).
    pub(super) fn removexattr(&mut self, process: ProcId, file: FileId, name: &[u8]) -> Result<()> {
        let id = self.xattr_target(process, file, name, true)?;
        self.meta_mut(id).xattrs.remove(name).ok_or(Errno::NODATA)?;
        self.changed(id);
        Ok(())
    }

    /// listxattr(2).
    pub(super) fn listxattr(&self, process: ProcId, file: FileId) -> Result<Vec<Vec<u8>>> {
        let id = self.file(file)?.id;
        let root = self.process(process).uid == 0;
        let names = self.inode(id).meta.xattrs.keys();
        Ok(names.filter(|n| root || !n.starts_with(b"trusted.")).cloned().collect())
    }
}

/// The name space alone is no name.
fn suffix(name: &[u8], id: Id) -> Result<Id> {
    match name.iter().position(|b| *b == b'.') {
        None => Err(Errno::OPNOTSUPP),
        Some(dot) if dot + 1 == name.len() => Err(Errno::INVAL),
        Some(_) => Ok(id),
    }
}
