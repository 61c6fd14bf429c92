//! System calls on the contents of regular files, and shared mappings of them.
//!
//! Guarantees: reads, writes and mapped words are coherent, as in one page cache; every change moves the stamps and is
//! one journal operation. Does not: move the stamps for stores through a mapping.

use systx_os::{Errno, Fallocate, FileType, FsKind, Result, Seek};

use super::data::BLOCK;
use super::mapped::Mapped;
use super::state::{FileId, Inode, State, S_ISGID, S_ISUID};
use super::FsId;
use crate::machine::meta::Id;

/// Largest file: 16 TiB less a block, as on ext4 with 4 KiB blocks.
const SIZE_MAX: u64 = (1 << 44) - BLOCK;
/// Execute permission of the group: with it, S_ISGID is a privilege.
const S_IXGRP: u32 = 0o010;

impl State {
    fn contents(&self, file: FileId, write: bool) -> Result<Id> {
        let open = self.file(file)?;
        let kind = self.inode(open.id).meta.kind();
        // A pipe has no offsets, whatever it is open for: Source: fs/read_write.c, FMODE_PREAD and FMODE_PWRITE.
        let seeks = open.path_only() || matches!(kind, FileType::File | FileType::Directory);
        if seeks && !(if write { open.write } else { open.read }) {
            return Err(Errno::BADF);
        }
        match kind {
            FileType::File => Ok(open.id),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::SPIPE),
        }
    }

    /// pread(2).
    pub(super) fn read(&mut self, file: FileId, buf: &mut [u8], offset: u64) -> Result<usize> {
        if buf.is_empty() {
            return self.file(file).map(|_| 0);
        }
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let id = self.contents(file, false)?;
        self.fold(id);
        let inode = self.inode(id);
        let len = inode.meta.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        inode.data.read(offset, &mut buf[..len]);
        Ok(len)
    }

    /// pwrite(2).
    pub(super) fn write(&mut self, file: FileId, buf: &[u8], offset: u64) -> Result<usize> {
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let id = self.contents(file, true)?;
        if buf.is_empty() {
            return Ok(0);
        }
        if offset >= SIZE_MAX {
            return Err(Errno::FBIG);
        }
        let len = (buf.len() as u64).min(SIZE_MAX - offset) as usize;
        let privileged = self.process(self.file(file)?.process).uid == 0;
        self.fold(id);
        self.drop_privileges(id, !privileged);
        self.store(id, offset, &buf[..len]);
        Ok(len)
    }

    /// The rest of a write whose beginning has moved the times.
    pub(super) fn write_on(&mut self, file: FileId, bytes: &[u8], offset: u64) -> Result<()> {
        let id = self.contents(file, true)?;
        self.fold(id);
        self.put(id, offset, bytes);
        Ok(())
    }

    /// Writes into an inode.
    fn store(&mut self, id: Id, offset: u64, bytes: &[u8]) {
        self.touch(id, true);
        self.put(id, offset, bytes);
    }

    fn put(&mut self, id: Id, offset: u64, bytes: &[u8]) {
        let fs = self.inode(id).fs;
        let seq = self.next_seq(fs);
        let mut changed = self.inode_mut(id).data.write(offset, bytes, seq);
        let end = offset + bytes.len() as u64;
        if end > self.inode(id).meta.size {
            self.meta_mut(id).size = end;
            changed = true;
        }
        self.systems[fs.0].dirty.insert(id);
        self.log(fs, &[(id, changed)], Vec::new());
        self.unfold(id);
    }

    /// Removes what a change of contents or owner takes away: file capabilities, and (`all`) set-id bits.
    pub(super) fn drop_privileges(&mut self, id: Id, all: bool) {
        let meta = self.meta_mut(id);
        meta.xattrs.remove(b"security.capability".as_slice());
        if all {
            meta.mode &= !S_ISUID;
            if meta.mode & S_IXGRP != 0 {
                meta.mode &= !S_ISGID;
            }
        }
    }

    /// ftruncate(2).
    /// Returns true if the block that holds an end is written out before the journal commits that end (data=ordered).
    fn is_ordered(&self, fs: FsId) -> bool {
        self.spec(fs).info.kind == FsKind::Ext4
    }

    pub(super) fn truncate(&mut self, file: FileId, size: u64) -> Result<()> {
        if size > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let open = self.file(file)?;
        let id = open.id;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        if !open.write || self.inode(id).meta.kind() != FileType::File {
            return Err(Errno::INVAL);
        }
        if size > SIZE_MAX {
            return Err(Errno::FBIG);
        }
        let privileged = self.process(open.process).uid == 0;
        self.fold(id);
        self.drop_privileges(id, !privileged);
        let fs = self.inode(id).fs;
        let seq = self.next_seq(fs);
        let old = self.inode(id).meta.size;
        self.touch(id, true);
        if size < old {
            let ordered = self.is_ordered(fs);
            self.inode_mut(id).data.zero(size, SIZE_MAX, seq, true, ordered);
            self.systems[fs.0].dirty.insert(id);
        }
        let meta = self.meta_mut(id);
        (meta.size, meta.size_out, meta.reserved) = (size, size, None);
        self.log(fs, &[(id, size != old)], Vec::new());
        self.unfold(id);
        Ok(())
    }

    /// fallocate(2).
    pub(super) fn fallocate(&mut self, file: FileId, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        if len == 0 || offset > i64::MAX as u64 || len > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        if !self.file(file)?.write {
            return Err(Errno::BADF);
        }
        let id = self.file(file)?.id;
        match self.inode(id).meta.kind() {
            FileType::File => {}
            FileType::Fifo => return Err(Errno::SPIPE),
            _ => return Err(Errno::NODEV),
        }
        let end = end.filter(|end| *end <= SIZE_MAX).ok_or(Errno::FBIG)?;
        self.fold(id);
        let fs = self.inode(id).fs;
        let seq = self.next_seq(fs);
        self.touch(id, true);
        let ordered = self.is_ordered(fs);
        let data = &mut self.inode_mut(id).data;
        match mode {
            Fallocate::Allocate | Fallocate::KeepSize => {
                data.allocate(offset, end);
            }
            Fallocate::PunchHole => data.zero(offset, end, seq, true, ordered),
            Fallocate::Zero | Fallocate::ZeroKeepSize => {
                data.zero(offset, end, seq, false, ordered);
                data.allocate(offset, end);
            }
        }
        if matches!(mode, Fallocate::Allocate | Fallocate::Zero) {
            let meta = self.meta_mut(id);
            meta.size = meta.size.max(end);
            meta.size_out = meta.size;
        }
        if mode == Fallocate::KeepSize && offset >= self.inode(id).meta.size {
            self.meta_mut(id).reserved = Some(offset / BLOCK * BLOCK);
        }
        self.systems[fs.0].dirty.insert(id);
        self.log(fs, &[(id, true)], Vec::new());
        self.unfold(id);
        Ok(())
    }

    /// copy_file_range(2).
    pub(super) fn copy(&mut self, from: (FileId, u64), to: (FileId, u64), len: u64) -> Result<u64> {
        let (source, target) = (self.file(from.0)?, self.file(to.0)?);
        if source.path_only() || target.path_only() {
            return Err(Errno::BADF);
        }
        let allowed = source.read && target.write;
        let (source, target, process) = (source.id, target.id, target.process);
        // In the order of fs/read_write.c, generic_file_rw_checks.
        let kinds = [source, target].map(|id| self.inode(id).meta.kind());
        if kinds.contains(&FileType::Directory) {
            return Err(Errno::ISDIR);
        }
        if kinds != [FileType::File; 2] {
            return Err(Errno::INVAL);
        }
        if !allowed {
            return Err(Errno::BADF);
        }
        if self.inode(source).fs != self.inode(target).fs {
            return Err(Errno::XDEV);
        }
        let ends = (from.1.checked_add(len), to.1.checked_add(len));
        let (Some(_), Some(_)) = ends else { return Err(Errno::OVERFLOW) };
        self.fold(source);
        self.fold(target);
        let size = self.inode(source).meta.size;
        let len = len.min(size.saturating_sub(from.1));
        if to.1 >= SIZE_MAX && len > 0 {
            return Err(Errno::FBIG);
        }
        let len = len.min(SIZE_MAX.saturating_sub(to.1));
        if source == target && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(Errno::INVAL);
        }
        if len == 0 {
            return Ok(0);
        }
        let mut bytes = vec![0; len as usize];
        self.inode(source).data.read(from.1, &mut bytes);
        let privileged = self.process(process).uid == 0;
        self.drop_privileges(target, !privileged);
        self.store(target, to.1, &bytes);
        Ok(len)
    }

    /// lseek(SEEK_DATA, SEEK_HOLE).
    pub(super) fn seek(&mut self, file: FileId, offset: u64, to: Seek) -> Result<u64> {
        let open = self.file(file)?;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        let id = open.id;
        match self.inode(id).meta.kind() {
            FileType::File => {}
            FileType::Directory => return Err(Errno::INVAL),
            _ => return Err(Errno::SPIPE),
        }
        self.fold(id);
        let inode = self.inode(id);
        inode.data.seek(offset, inode.meta.size, to).ok_or(Errno::NXIO)
    }

    // ---- mappings ------------------------------------------------------------------------------------------------

    /// Maps the first `words` words; returns the description that keeps the file open.
    pub(super) fn map(&mut self, file: FileId, words: usize) -> Result<Id> {
        let open = self.file(file)?;
        let id = open.id;
        if open.path_only() {
            return Err(Errno::BADF);
        }
        if self.inode(id).meta.kind() != FileType::File {
            return Err(Errno::NODEV);
        }
        if !open.read || !open.write {
            return Err(Errno::ACCESS);
        }
        // A store past the last page would be SIGBUS.
        if words == 0 || words as u64 * 8 > self.inode(id).meta.size.next_multiple_of(BLOCK) {
            return Err(Errno::INVAL);
        }
        self.fold(id);
        // What is mapped already shows every change.
        if self.inode(id).mapped.as_ref().is_none_or(|mapped| mapped.len() < words) {
            self.show(id, words);
        }
        if let Some(open) = self.files.get_mut(&file) {
            open.refs += 1;
        }
        Ok(id)
    }

    /// Brings what was stored through mappings into the file's sectors.
    pub(super) fn fold(&mut self, id: Id) {
        let inode = self.inode(id);
        if !inode.mapped.as_ref().is_some_and(Mapped::is_newer) {
            return;
        }
        let (fs, mut fresh) = (inode.fs, false);
        let seq = self.next_seq(fs);
        let Inode { mapped: Some(mapped), data, .. } = self.inode_mut(id) else { return };
        let (mut changed, mut old) = (false, Vec::new());
        for (offset, bytes) in mapped.take_newer() {
            old.resize(bytes.len(), 0);
            data.read(offset, &mut old);
            if old != bytes {
                fresh |= data.write(offset, &bytes, seq);
                changed = true;
            }
        }
        if changed {
            self.systems[fs.0].dirty.insert(id);
        }
        if fresh {
            self.log(fs, &[(id, true)], Vec::new());
        }
    }

    /// Shows the file's sectors through its mappings.
    fn unfold(&mut self, id: Id) {
        if let Some(len) = self.inode(id).mapped.as_ref().map(Mapped::len) {
            self.show(id, len);
        }
    }

    /// Shows so many words of the file's sectors through its mappings.
    fn show(&mut self, id: Id, words: usize) {
        let mapped = Mapped::of(words, self.inode(id).data.sectors());
        self.inode_mut(id).mapped = Some(mapped);
    }
}
