//! fsync and its relatives: what they promise, and not more.
//!
//! Guarantees only what the file systems do: ext4 and xfs commit their journal up to the last operation that touched
//! the synced inode, not up to now (an inode without a change commits nothing: docs/decisions.md, "Measured"), and
//! flush the disk; btrfs and ext4 without a journal make the inode and its names durable by themselves.

use systx_os::{Errno, FileType, FsKind, Result};

use super::state::{FileId, Inode, State};
use super::{CommitRule, FsId};
use crate::machine::meta::Id;

impl State {
    /// Returns the inode that a sync would work on: the one behind a descriptor that is more than O_PATH.
    pub(super) fn syncable(&self, file: FileId) -> Result<Id> {
        let open = self.file(file)?;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        match self.inode(open.id).meta.kind() {
            FileType::File | FileType::Directory => Ok(open.id),
            _ => Err(Errno::INVAL),
        }
    }

    /// sync_file_range(2) with all three flags: the bytes are in the disk's cache.
    pub(super) fn write_out(&mut self, id: Id) {
        self.fold(id);
        self.inode_mut(id).data.write_out();
        let Inode { fs, meta, .. } = self.inode(id);
        let (fs, size) = (*fs, meta.size);
        if meta.size_out != size {
            self.meta_mut(id).size_out = size;
            self.log(fs, &[(id, true)], Vec::new());
        }
    }

    /// fsync(2), fdatasync(2).
    pub(super) fn sync(&mut self, id: Id, datasync: bool) {
        self.write_out(id);
        let inode = self.inode(id);
        let (fs, is_dir) = (inode.fs, inode.is_dir());
        match self.spec(fs).info.kind {
            FsKind::Tmpfs => {}
            FsKind::Btrfs => {
                self.force(fs, id, is_dir);
                if is_dir {
                    self.systems[fs.0].journal.force_children(id);
                }
                self.flush_file(fs, id);
                return;
            }
            FsKind::Ext4NoJournal => self.force(fs, id, is_dir),
            _ => {
                let journal = &self.systems[fs.0].journal;
                let end = journal.end_of(id, datasync);
                let all = self.spec(fs).commit_rule == CommitRule::Whole && end > journal.base_seq;
                let end = if all { journal.next_seq } else { end };
                self.commit(fs, end);
            }
        }
        self.flush(fs);
    }

    /// syncfs(2).
    pub(super) fn sync_all(&mut self, fs: FsId) {
        let ids: Vec<Id> = self.inodes.iter().filter(|(_, i)| i.fs == fs).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.write_out(id));
        let end = self.next_seq(fs);
        self.commit(fs, end);
        self.flush(fs);
    }

    /// A sync failed: dirty pages are called clean, the metadata stays where it was.
    pub(super) fn lose(&mut self, id: Id) {
        self.fold(id);
        self.inode_mut(id).data.lose();
    }

    /// Like `lose`, for all files of a file system.
    pub(super) fn lose_all(&mut self, fs: FsId) {
        let dirty: Vec<Id> = self.systems[fs.0].dirty.iter().copied().collect();
        dirty.into_iter().for_each(|id| self.lose(id));
    }

    /// EIO if a write has failed since the descriptor was last told of that. Source: lib/errseq.c.
    pub(super) fn write_error_of(&mut self, file: FileId, fs: FsId) -> Result<()> {
        let errors = self.systems[fs.0].write_errors;
        match self.files.get_mut(&file) {
            Some(open) if open.told < errors => {
                open.told = errors;
                Err(Errno::IO)
            }
            _ => Ok(()),
        }
    }

    fn force(&mut self, fs: FsId, id: Id, is_dir: bool) {
        let mut journal = std::mem::take(&mut self.systems[fs.0].journal);
        journal.force(id, is_dir, &|e| {
            self.inodes.get(&e.dir).is_some_and(|d| d.entries.get(&e.name).copied() == e.to)
        });
        self.systems[fs.0].journal = journal;
    }

    /// The disk's cache reaches the medium.
    fn flush(&mut self, fs: FsId) {
        let dirty: Vec<Id> = self.systems[fs.0].dirty.iter().copied().collect();
        dirty.into_iter().for_each(|id| self.flush_file(fs, id));
    }

    fn flush_file(&mut self, fs: FsId, id: Id) {
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        let journal = &self.systems[fs.0].journal;
        let inode = std::sync::Arc::make_mut(inode);
        inode.data.flush(&|seq| journal.committed(id, seq));
        if !inode.data.dirty() {
            self.systems[fs.0].dirty.remove(&id);
        }
    }
}
