//! System calls on names: look up, make, link, remove, rename.
//!
//! Guarantees: each call checks in the order of the kernel's `fs/namei.c`, so that the same errno wins, and is one
//! journal operation. Does not: check directory permissions (only ownership rules that the engine can meet).

use systx_os::{Dirent, Errno, FileType, FsKind, Rename, Result};

use super::journal::EntryDelta;
use super::state::{FileId, State, S_ISGID};
use super::{FsId, ProcId};
use crate::machine::meta::Id;

/// Longest name.
const NAME_MAX: usize = 255;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

/// Checks a name as `systx_os::Linux` does, before any call.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::INVAL);
    }
    Ok(())
}

fn entry(dir: Id, name: &[u8], to: Option<Id>) -> EntryDelta {
    EntryDelta { dir, name: name.to_vec(), to }
}

impl State {
    /// Returns the inode that `name` in `dir` leads to, without crossing mounts; `None` when it is missing.
    fn find(&self, dir: Id, name: &[u8]) -> Result<Option<Id>> {
        let inode = self.inode(dir);
        if inode.dead {
            return Err(Errno::NOENT);
        }
        Ok(inode.entries.get(name).filter(|_| !self.locked.contains(&dir)).copied())
    }

    /// The directory behind a descriptor, for a call on `name` in it.
    pub(super) fn dir_for(&self, file: FileId, name: &[u8]) -> Result<Id> {
        check_name(name)?;
        self.dir(file)
    }

    /// Returns the inode that an open of `name` in `dir` leads to; mounts are not crossed.
    pub(super) fn lookup(&self, dir: Id, name: &[u8]) -> Result<Id> {
        let id = self.find(dir, name)?.ok_or(Errno::NOENT)?;
        if self.mounts.contains_key(&id) {
            return Err(Errno::XDEV);
        }
        Ok(id)
    }

    /// Returns the inode that a stat of `name` in `dir` leads to: on a mount point, the mounted root.
    pub(super) fn lookup_across(&self, dir: Id, name: &[u8]) -> Result<Id> {
        let id = self.find(dir, name)?.ok_or(Errno::NOENT)?;
        Ok(self.mounts.get(&id).map_or(id, |fs| self.systems[fs.0].root))
    }

    /// All names of a directory, in an order of its own.
    pub(super) fn list(&self, dir: Id) -> Result<Vec<Dirent>> {
        let inode = self.inode(dir);
        if inode.dead {
            return Err(Errno::NOENT);
        }
        let mut all: Vec<(u64, Dirent)> = inode
            .entries
            .iter()
            .map(|(name, id)| {
                let meta = &self.inode(*id).meta;
                // Hash order, as in an indexed directory: no caller may count on sorted names.
                let hash = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
                    (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
                });
                (hash, Dirent { name: name.clone(), ino: meta.ino, kind: meta.kind() })
            })
            .collect();
        all.sort();
        Ok(all.into_iter().map(|(_, entry)| entry).collect())
    }

    fn must_be_free(&self, dir: Id, name: &[u8]) -> Result<()> {
        if self.find(dir, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        if self.inode(dir).meta.immutable {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn may_remove(&self, dir: Id, id: Id) -> Result<()> {
        let (dir, meta) = (&self.inode(dir).meta, &self.inode(id).meta);
        if dir.append_only || dir.immutable || meta.append_only || meta.immutable {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn counts_subdirectories(&self, fs: FsId) -> bool {
        self.spec(fs).info.kind != FsKind::Btrfs
    }

    /// A new inode as a child of `dir` would be: group and set-group-id are inherited.
    pub(super) fn new_child(&mut self, process: ProcId, dir: Id, mut mode: u32) -> Id {
        let (uid, mut gid) = (self.process(process).uid, self.process(process).gid);
        let parent = self.inode(dir);
        let fs = parent.fs;
        if parent.meta.mode & S_ISGID != 0 {
            gid = parent.meta.gid;
            if FileType::from_mode(mode) == Some(FileType::Directory) {
                mode |= S_ISGID;
            }
        }
        let flags = passed_on(parent.meta.flags, FileType::from_mode(mode));
        let id = self.new_inode(fs, mode, uid, gid);
        self.meta_mut(id).flags = flags;
        id
    }

    fn insert(&mut self, dir: Id, name: &[u8], id: Id) {
        let fs = self.inode(dir).fs;
        self.inode_mut(dir).entries.insert(name.to_vec(), id);
        self.touch(dir, true);
        let is_dir = self.inode(id).is_dir();
        if is_dir {
            self.inode_mut(id).parent = dir;
            if self.counts_subdirectories(fs) {
                self.meta_mut(dir).nlink += 1;
            }
        }
    }

    fn take_out(&mut self, dir: Id, name: &[u8]) {
        let fs = self.inode(dir).fs;
        let Some(id) = self.inode_mut(dir).entries.remove(name) else { return };
        self.touch(dir, true);
        if self.inode(id).is_dir() && self.counts_subdirectories(fs) {
            self.meta_mut(dir).nlink -= 1;
        }
    }

    /// An inode loses a name that was removed or replaced.
    fn lose_name(&mut self, id: Id) {
        self.touch(id, false);
        if self.inode(id).is_dir() {
            self.inode_mut(id).dead = true;
            self.meta_mut(id).nlink = 0;
        } else {
            self.meta_mut(id).nlink -= 1;
        }
    }

    /// Makes an object of any type but a symbolic link.
    pub(super) fn make(&mut self, process: ProcId, dir: Id, name: &[u8], mode: u32, rdev: u64) -> Result<Id> {
        self.must_be_free(dir, name)?;
        let fs = self.inode(dir).fs;
        let directory = FileType::from_mode(mode) == Some(FileType::Directory);
        if directory
            && self.counts_subdirectories(fs)
            && self.inode(dir).meta.nlink >= self.spec(fs).links_max
        {
            return Err(Errno::MLINK);
        }
        let id = self.new_child(process, dir, mode);
        let nlink = if directory && self.counts_subdirectories(fs) { 2 } else { 1 };
        let meta = self.meta_mut(id);
        (meta.nlink, meta.rdev) = (nlink, rdev);
        self.insert(dir, name, id);
        self.log(fs, &[(id, true), (dir, false)], vec![entry(dir, name, Some(id))]);
        Ok(id)
    }

    /// mknod(2): `mode` with type bits; none means a regular file.
    pub(super) fn make_node(
        &mut self,
        process: ProcId,
        dir: FileId,
        name: &[u8],
        mode: u32,
        rdev: u64,
    ) -> Result<()> {
        let file = FileType::File.mode_bits();
        let mode = if mode & !0o7777 == 0 { mode | file } else { mode };
        let kind = FileType::from_mode(mode).ok_or(Errno::INVAL)?;
        check_name(name)?;
        match kind {
            FileType::Symlink => return Err(Errno::INVAL),
            FileType::Directory => return Err(Errno::PERM),
            _ => {}
        }
        let dir = self.dir(dir)?;
        let device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        if device {
            self.must_be_free(dir, name)?;
            if self.process(process).uid != 0 {
                return Err(Errno::PERM);
            }
        }
        self.make(process, dir, name, mode, if device { rdev } else { 0 }).map(|_| ())
    }

    /// symlink(2).
    pub(super) fn make_symlink(
        &mut self,
        process: ProcId,
        dir: Id,
        name: &[u8],
        target: &[u8],
    ) -> Result<()> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        if target.len() > TARGET_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.must_be_free(dir, name)?;
        let id = self.new_child(process, dir, FileType::Symlink.mode_bits() | 0o777);
        let fs = self.inode(id).fs;
        let meta = self.meta_mut(id);
        meta.nlink = 1;
        (meta.size, meta.size_out) = (target.len() as u64, target.len() as u64);
        meta.target = target.to_vec();
        self.insert(dir, name, id);
        self.log(fs, &[(id, true), (dir, false)], vec![entry(dir, name, Some(id))]);
        Ok(())
    }

    /// linkat(2) of an open object.
    pub(super) fn make_link(&mut self, id: Id, dir: Id, name: &[u8]) -> Result<()> {
        self.must_be_free(dir, name)?;
        let (inode, fs) = (self.inode(id), self.inode(dir).fs);
        if inode.fs != fs {
            return Err(Errno::XDEV);
        }
        if inode.meta.immutable || inode.meta.append_only || inode.is_dir() {
            return Err(Errno::PERM);
        }
        if inode.meta.nlink == 0 && !inode.linkable {
            return Err(Errno::NOENT);
        }
        if inode.meta.nlink >= self.spec(fs).links_max {
            return Err(Errno::MLINK);
        }
        self.inode_mut(id).linkable = false;
        self.meta_mut(id).nlink += 1;
        self.touch(id, false);
        self.insert(dir, name, id);
        self.log(fs, &[(id, false), (dir, false)], vec![entry(dir, name, Some(id))]);
        Ok(())
    }

    /// unlink(2) and rmdir(2).
    pub(super) fn remove(&mut self, dir: Id, name: &[u8], directory: bool) -> Result<()> {
        let id = self.find(dir, name)?.ok_or(Errno::NOENT)?;
        self.may_remove(dir, id)?;
        match (self.inode(id).is_dir(), directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        if self.mounts.contains_key(&id) {
            return Err(Errno::BUSY);
        }
        if !self.inode(id).entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let fs = self.inode(dir).fs;
        self.take_out(dir, name);
        self.lose_name(id);
        self.log(fs, &[(id, false), (dir, false)], vec![entry(dir, name, None)]);
        self.reap(id);
        Ok(())
    }

    /// Returns true if `above` is `id` or a directory above it.
    fn holds(&self, above: Id, mut id: Id) -> bool {
        loop {
            if above == id {
                return true;
            }
            let parent = self.inode(id).parent;
            if parent == id || !self.inodes.contains_key(&parent) {
                return false;
            }
            id = parent;
        }
    }

    /// renameat2(2).
    pub(super) fn rename(&mut self, from: (Id, &[u8]), to: (Id, &[u8]), mode: Rename) -> Result<()> {
        let ((from_dir, from_name), (to_dir, to_name)) = (from, to);
        let fs = self.inode(from_dir).fs;
        if fs != self.inode(to_dir).fs {
            return Err(Errno::XDEV);
        }
        if mode != Rename::Replace && !self.spec(fs).info.rename_flags {
            return Err(Errno::INVAL);
        }
        let id = self.find(from_dir, from_name)?.ok_or(Errno::NOENT)?;
        let target = self.find(to_dir, to_name)?;
        match (mode, target) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (Rename::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        let exchange = mode == Rename::Exchange;
        if self.inode(id).is_dir() && self.holds(id, to_dir) {
            return Err(Errno::INVAL);
        }
        if let Some(t) = target.filter(|t| self.inode(*t).is_dir() && self.holds(*t, from_dir)) {
            debug_assert_ne!(t, id);
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if target == Some(id) {
            return Ok(());
        }
        self.may_rename(id, from_dir, target, to_dir, exchange)?;
        match target {
            Some(target) if exchange => {
                self.exchange((from_dir, from_name, id), (to_dir, to_name, target), fs)
            }
            _ => self.move_entry((from_dir, from_name, id), (to_dir, to_name, target), fs),
        }
        Ok(())
    }

    fn may_rename(&self, id: Id, from: Id, target: Option<Id>, to: Id, exchange: bool) -> Result<()> {
        let is_dir = self.inode(id).is_dir();
        let target_is_dir = target.is_some_and(|t| self.inode(t).is_dir());
        self.may_remove(from, id)?;
        if let Some(target) = target {
            self.may_remove(to, target)?;
            if !exchange && is_dir && !target_is_dir {
                return Err(Errno::NOTDIR);
            }
            if !exchange && !is_dir && target_is_dir {
                return Err(Errno::ISDIR);
            }
        } else if self.inode(to).meta.immutable {
            return Err(Errno::PERM);
        }
        if self.mounts.contains_key(&id) || target.is_some_and(|t| self.mounts.contains_key(&t)) {
            return Err(Errno::BUSY);
        }
        let fs = self.inode(from).fs;
        let full =
            |dir: Id| self.counts_subdirectories(fs) && self.inode(dir).meta.nlink >= self.spec(fs).links_max;
        if from != to
            && ((is_dir && !target_is_dir && full(to))
                || (exchange && target_is_dir && !is_dir && full(from)))
        {
            return Err(Errno::MLINK);
        }
        if !exchange && target.is_some_and(|t| !self.inode(t).entries.is_empty()) {
            return Err(Errno::NOTEMPTY);
        }
        Ok(())
    }

    fn move_entry(&mut self, from: (Id, &[u8], Id), to: (Id, &[u8], Option<Id>), fs: FsId) {
        let ((from_dir, from_name, id), (to_dir, to_name, target)) = (from, to);
        self.take_out(from_dir, from_name);
        let mut changed = vec![(id, false), (from_dir, false), (to_dir, false)];
        if let Some(target) = target {
            self.take_out(to_dir, to_name);
            self.lose_name(target);
            changed.push((target, false));
        }
        self.insert(to_dir, to_name, id);
        self.touch(id, false);
        let entries = vec![entry(from_dir, from_name, None), entry(to_dir, to_name, Some(id))];
        self.log(fs, &changed, entries);
        target.into_iter().for_each(|t| self.reap(t));
    }

    fn exchange(&mut self, a: (Id, &[u8], Id), b: (Id, &[u8], Id), fs: FsId) {
        let ((a_dir, a_name, a_id), (b_dir, b_name, b_id)) = (a, b);
        self.take_out(a_dir, a_name);
        self.take_out(b_dir, b_name);
        self.insert(b_dir, b_name, a_id);
        self.insert(a_dir, a_name, b_id);
        for id in [a_id, b_id] {
            // xfs leaves the times of exchanged files alone (docs/decisions.md, "Measured").
            if self.inode(id).is_dir() || self.spec(fs).info.kind != FsKind::Xfs {
                self.touch(id, false);
            }
        }
        let changed = [(a_id, false), (b_id, false), (a_dir, false), (b_dir, false)];
        self.log(fs, &changed, vec![entry(a_dir, a_name, Some(b_id)), entry(b_dir, b_name, Some(a_id))]);
    }
}

/// What ext4 passes on of a directory's flags (EXT4_FL_INHERITED), as far as there are tests.
fn passed_on(flags: u32, to: Option<FileType>) -> u32 {
    use systx_os::inode_flag::{DIRSYNC, NOATIME, NODUMP, SYNC};
    match to {
        Some(FileType::Directory) => flags & (SYNC | NODUMP | NOATIME | DIRSYNC),
        Some(FileType::File) => flags & (SYNC | NODUMP | NOATIME),
        _ => 0,
    }
}
