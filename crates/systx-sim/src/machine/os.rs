//! `impl Os for SimOs`: each method is one point and one call into the state.

use systx_os::{
    Dirent, Errno, Fallocate, FileType, FsInfo, FsKind, Handle, Lease, Limit, Open, Os, Rename, Result, Seek,
    SetXattr, Stat, StatFs, Timestamp, Writing,
};

use super::mem::{SimMem, SimOwned};
use super::names::check_name;
use super::plan::Call;
use super::process::{SimFd, SimOs, Stop};
use crate::machine::meta::Id;

/// Largest buffer that one copy_range fills.
const COPY_MAX: u64 = 16 << 20;

impl Os for SimOs {
    type Fd = SimFd;
    type Mem = SimMem;
    type Owned = SimOwned;

    fn open(&self, dir: &SimFd, name: &[u8], how: Open) -> Result<SimFd> {
        let file = self.call(Call::Open, name, Some(dir.file), |s, _| {
            let id = s.lookup(s.dir_for(dir.file, name)?, name)?;
            s.open(self.process, id, how)
        })?;
        Ok(self.fd(file))
    }

    fn reopen(&self, fd: &SimFd, how: Open) -> Result<SimFd> {
        let file = self.call(Call::Reopen, b"", Some(fd.file), |s, _| {
            let id = s.file(fd.file)?.id;
            s.open(self.process, id, how)
        })?;
        Ok(self.fd(file))
    }

    fn open_handle(&self, mount: &SimFd, handle: &Handle, how: Open) -> Result<SimFd> {
        let file = self.call(Call::OpenHandle, b"", Some(mount.file), |s, _| {
            let fs = s.inode(s.file(mount.file)?.id).fs;
            let id = s.by_handle(fs, handle)?;
            s.open(self.process, id, how)
        })?;
        Ok(self.fd(file))
    }

    fn create(&self, dir: &SimFd, name: &[u8], mode: u32) -> Result<SimFd> {
        let file = self.call(Call::Create, name, Some(dir.file), |s, _| {
            let dir = s.dir_for(dir.file, name)?;
            let id = s.make(self.process, dir, name, FileType::File.mode_bits() | (mode & 0o7777), 0)?;
            Ok(s.describe(self.process, id, true, true))
        })?;
        Ok(self.fd(file))
    }

    fn tmpfile(&self, dir: &SimFd, mode: u32) -> Result<SimFd> {
        let file = self.call(Call::Tmpfile, b"", Some(dir.file), |s, _| {
            let dir = s.dir(dir.file)?;
            let kind = s.spec(s.inode(dir).fs).info.kind;
            if s.inode(dir).dead && matches!(kind, FsKind::Ext4 | FsKind::Ext4NoJournal) {
                // Source: fs/ext4/ialloc.c, __ext4_new_inode; others don't care.
                return Err(Errno::PERM);
            }
            let id = s.new_child(self.process, dir, FileType::File.mode_bits() | (mode & 0o7777));
            s.inode_mut(id).linkable = true;
            let fs = s.inode(id).fs;
            s.log(fs, &[(id, true)], Vec::new());
            Ok(s.describe(self.process, id, true, true))
        })?;
        Ok(self.fd(file))
    }

    fn dup(&self, fd: &SimFd) -> Result<SimFd> {
        self.call(Call::Dup, b"", Some(fd.file), |s, _| {
            s.files.get_mut(&fd.file).map(|f| f.refs += 1).ok_or(Errno::BADF)
        })?;
        Ok(self.fd(fd.file))
    }

    // No point: it belongs to the opening before it.
    fn identity(&self, fd: &SimFd) -> Result<(u64, u64)> {
        let state = &self.machine.lock().state;
        let stat = state.stat(state.file(fd.file)?.id);
        Ok((stat.dev, stat.ino))
    }

    fn still(&self, fd: &SimFd, is: (u64, u64)) -> bool {
        let still = self.call(Call::Still, b"", Some(fd.file), |s, _| {
            let stat = s.stat(s.file(fd.file)?.id);
            Ok((stat.dev, stat.ino) == is)
        });
        still.unwrap_or(false)
    }

    fn stat(&self, fd: &SimFd) -> Result<Stat> {
        self.call(Call::Stat, b"", Some(fd.file), |s, _| Ok(s.stat(s.file(fd.file)?.id)))
    }

    fn stat_at(&self, dir: &SimFd, name: &[u8]) -> Result<Stat> {
        self.call(Call::StatAt, name, Some(dir.file), |s, _| {
            let id = s.lookup_across(s.dir_for(dir.file, name)?, name)?;
            Ok(s.stat(id))
        })
    }

    fn handle(&self, fd: &SimFd) -> Result<Handle> {
        self.call(Call::Handle, b"", Some(fd.file), |s, _| s.handle(s.file(fd.file)?.id))
    }

    fn handle_at(&self, dir: &SimFd, name: &[u8]) -> Result<Handle> {
        self.call(Call::HandleAt, name, Some(dir.file), |s, _| {
            let id = s.lookup_across(s.dir_for(dir.file, name)?, name)?;
            s.handle(id)
        })
    }

    fn read_dir(&self, fd: &SimFd) -> Result<Vec<Dirent>> {
        self.call(Call::ReadDir, b"", Some(fd.file), |s, _| s.list(s.dir(fd.file)?))
    }

    fn read_link(&self, fd: &SimFd) -> Result<Vec<u8>> {
        self.call(Call::ReadLink, b"", Some(fd.file), |s, _| {
            let meta = &s.inode(s.file(fd.file)?.id).meta;
            if meta.kind() != FileType::Symlink {
                return Err(Errno::INVAL);
            }
            Ok(meta.target.clone())
        })
    }

    fn statfs(&self, fd: &SimFd) -> Result<StatFs> {
        self.call(Call::StatFs, b"", Some(fd.file), |s, _| Ok(s.statfs(s.inode(s.file(fd.file)?.id).fs)))
    }

    fn fs_info(&self, scratch: &SimFd) -> Result<FsInfo> {
        self.call(Call::FsInfo, b"", Some(scratch.file), |s, _| {
            let fs = s.inode(s.dir(scratch.file)?).fs;
            Ok(s.spec(fs).info)
        })
    }

    fn mkdir(&self, dir: &SimFd, name: &[u8], mode: u32) -> Result<()> {
        self.call(Call::Mkdir, name, Some(dir.file), |s, _| {
            let dir = s.dir_for(dir.file, name)?;
            // mkdir takes no set-id bits: Source: fs/namei.c, vfs_mkdir.
            let mode = FileType::Directory.mode_bits() | (mode & 0o1777);
            s.make(self.process, dir, name, mode, 0).map(|_| ())
        })
    }

    fn mknod(&self, dir: &SimFd, name: &[u8], mode: u32, rdev: u64) -> Result<()> {
        self.call(Call::Mknod, name, Some(dir.file), |s, _| {
            s.make_node(self.process, dir.file, name, mode, rdev)
        })
    }

    fn symlink(&self, dir: &SimFd, name: &[u8], target: &[u8]) -> Result<()> {
        self.call(Call::Symlink, name, Some(dir.file), |s, _| {
            let dir = s.dir_for(dir.file, name)?;
            s.make_symlink(self.process, dir, name, target)
        })
    }

    fn link(&self, fd: &SimFd, dir: &SimFd, name: &[u8]) -> Result<()> {
        self.call(Call::Link, name, Some(fd.file), |s, _| {
            let id = s.file(fd.file)?.id;
            let dir = s.dir_for(dir.file, name)?;
            s.make_link(id, dir, name)
        })
    }

    fn unlink(&self, dir: &SimFd, name: &[u8]) -> Result<()> {
        self.call(Call::Unlink, name, Some(dir.file), |s, _| {
            s.remove(s.dir_for(dir.file, name)?, name, false)
        })
    }

    fn rmdir(&self, dir: &SimFd, name: &[u8]) -> Result<()> {
        self.call(Call::Rmdir, name, Some(dir.file), |s, _| s.remove(s.dir_for(dir.file, name)?, name, true))
    }

    fn rename(&self, from: (&SimFd, &[u8]), to: (&SimFd, &[u8]), mode: Rename) -> Result<()> {
        self.call(Call::Rename, from.1, Some(from.0.file), |s, _| {
            check_name(from.1)?;
            check_name(to.1)?;
            s.rename((s.dir(from.0.file)?, from.1), (s.dir(to.0.file)?, to.1), mode)
        })
    }

    fn pread(&self, fd: &SimFd, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.call(Call::Pread, b"", Some(fd.file), |s, _| s.read(fd.file, buf, offset))
    }

    fn pwrite(&self, fd: &SimFd, buf: &[u8], offset: u64) -> Result<usize> {
        self.call(Call::Pwrite, b"", Some(fd.file), |s, short| {
            s.write(fd.file, &buf[..buf.len().min(short)], offset)
        })
    }

    fn truncate(&self, fd: &SimFd, size: u64) -> Result<()> {
        self.call(Call::Truncate, b"", Some(fd.file), |s, _| s.truncate(fd.file, size))
    }

    fn fallocate(&self, fd: &SimFd, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.call(Call::Fallocate, b"", Some(fd.file), |s, _| s.fallocate(fd.file, mode, offset, len))
    }

    fn copy_range(
        &self,
        from: &SimFd,
        from_offset: u64,
        to: &SimFd,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.call(Call::CopyRange, b"", Some(from.file), |s, short| {
            let len = len.min(short as u64).min(COPY_MAX);
            s.copy((from.file, from_offset), (to.file, to_offset), len)
        })
    }

    fn compare_exchange(&self, fd: &SimFd, offset: u64, before: &[u8], after: &[u8]) -> Result<bool> {
        // A kill comes between any two words: here within a sector.
        let half = ((before.len() / 16) | 1) * 8;
        let exchange = |from: usize, to: usize| {
            self.call(Call::Pwrite, b"", Some(fd.file), |s, _| {
                let mut all = true;
                let words = before[from..to].chunks(8).zip(after[from..to].chunks(8)).enumerate();
                for (n, (old, new)) in words.filter(|(_, (old, new))| old != new) {
                    let at = offset + (from + n * 8) as u64;
                    let mut now = vec![0; old.len()];
                    if s.read(fd.file, &mut now, at)? < old.len() || now != old {
                        all = false;
                    } else {
                        s.write(fd.file, new, at)?;
                    }
                }
                Ok(all)
            })
        };
        if before.len() <= half {
            return exchange(0, before.len());
        }
        let first = exchange(0, half)?;
        Ok(exchange(half, before.len())? && first)
    }

    fn append(&self, fd: &SimFd, bytes: &[u8]) -> Result<(u64, usize)> {
        self.call(Call::Pwrite, b"", Some(fd.file), |s, short| {
            let end = s.stat(s.file(fd.file)?.id).size;
            s.write(fd.file, &bytes[..bytes.len().min(short)], end).map(|n| (end, n))
        })
    }

    fn seek(&self, fd: &SimFd, offset: u64, to: Seek) -> Result<u64> {
        self.call(Call::Seek, b"", Some(fd.file), |s, _| s.seek(fd.file, offset, to))
    }

    fn chmod(&self, fd: &SimFd, mode: u32) -> Result<()> {
        self.call(Call::Chmod, b"", Some(fd.file), |s, _| s.chmod(self.process, fd.file, mode))
    }

    // No point of its own: it never changes.
    fn made(&self, fd: &SimFd) -> Result<Option<Timestamp>> {
        let inner = self.machine.lock();
        let id = inner.state.file(fd.file)?.id;
        Ok(Some(inner.state.inode(id).meta.made))
    }

    // No point of its own, nor has the next one: only calls on the file itself change it.
    fn was_written_out(&self, fd: &SimFd) -> Result<bool> {
        let mut inner = self.machine.lock();
        let id = inner.state.file(fd.file)?.id;
        Ok(inner.state.inode_mut(id).data.was_written_out())
    }

    fn reserved_at(&self, fd: &SimFd, offset: u64) -> Result<bool> {
        let inner = self.machine.lock();
        let id = inner.state.file(fd.file)?.id;
        Ok(inner.state.inode(id).meta.reserved == Some(offset))
    }

    // No point of its own: nobody can change them from outside but by the hand.
    fn are_names_locked(&self, dir: &SimFd) -> Result<bool> {
        let inner = self.machine.lock();
        Ok(inner.state.locked.contains(&inner.state.file(dir.file)?.id))
    }

    fn inode_flags(&self, fd: &SimFd) -> Result<u32> {
        let inner = self.machine.lock();
        let id = inner.state.file(fd.file)?.id;
        Ok(inner.state.inode(id).meta.flags)
    }

    fn add_inode_flags(&self, fd: &SimFd, flags: u32) -> Result<()> {
        self.call(Call::Chmod, b"", Some(fd.file), |s, _| s.add_inode_flags(self.process, fd.file, flags))
    }

    fn chown(&self, fd: &SimFd, uid: u32, gid: u32) -> Result<()> {
        self.call(Call::Chown, b"", Some(fd.file), |s, _| s.chown(self.process, fd.file, uid, gid))
    }

    fn utimens(&self, fd: &SimFd, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Result<()> {
        self.call(Call::Utimens, b"", Some(fd.file), |s, _| s.utimens(self.process, fd.file, atime, mtime))
    }

    fn getxattr(&self, fd: &SimFd, name: &[u8]) -> Result<Vec<u8>> {
        self.call(Call::GetXattr, name, Some(fd.file), |s, _| s.getxattr(self.process, fd.file, name))
    }

    fn setxattr(&self, fd: &SimFd, name: &[u8], value: &[u8], mode: SetXattr) -> Result<()> {
        self.call(Call::SetXattr, name, Some(fd.file), |s, _| {
            s.setxattr(self.process, fd.file, name, value, mode)
        })
    }

    fn removexattr(&self, fd: &SimFd, name: &[u8]) -> Result<()> {
        self.call(Call::RemoveXattr, name, Some(fd.file), |s, _| s.removexattr(self.process, fd.file, name))
    }

    fn listxattr(&self, fd: &SimFd) -> Result<Vec<Vec<u8>>> {
        self.call(Call::ListXattr, b"", Some(fd.file), |s, _| s.listxattr(self.process, fd.file))
    }

    fn write_out(&self, fd: &SimFd, writing: Writing) -> Result<()> {
        self.call(Call::WriteOut, b"", Some(fd.file), |s, _| {
            // sync_file_range says it in its own way.
            let spipe = |e| if e == Errno::INVAL { Errno::SPIPE } else { e };
            let id = s.syncable(fd.file).map_err(spipe)?;
            // A write that was only started may be anywhere: a dirty sector already is in that state.
            if writing == Writing::Wait {
                s.write_out(id);
            }
            Ok(())
        })
    }

    fn fsync(&self, fd: &SimFd) -> Result<()> {
        self.sync_call(Call::Fsync, fd.file, |s| {
            let id = s.syncable(fd.file)?;
            s.sync(id, false);
            Ok(())
        })
    }

    fn fdatasync(&self, fd: &SimFd) -> Result<()> {
        self.sync_call(Call::Fdatasync, fd.file, |s| {
            let id = s.syncable(fd.file)?;
            s.sync(id, true);
            Ok(())
        })
    }

    fn syncfs(&self, fd: &SimFd) -> Result<()> {
        self.sync_call(Call::Syncfs, fd.file, |s| {
            let open = s.file(fd.file)?;
            if open.path_only() {
                return Err(Errno::BADF);
            }
            let fs = s.inode(open.id).fs;
            s.sync_all(fs);
            s.write_error_of(fd.file, fs)
        })
    }

    fn lease(&self, fd: &SimFd, lease: Lease) -> Result<()> {
        self.call(Call::Lease, b"", Some(fd.file), |s, _| s.set_lease(self.process, fd.file, lease))
    }

    fn lease_held(&self, fd: &SimFd) -> Result<Lease> {
        self.call(Call::LeaseHeld, b"", Some(fd.file), |s, _| s.get_lease(fd.file))
    }

    fn map(&self, fd: &SimFd, words: usize) -> Result<SimMem> {
        let id = self.call(Call::Map, b"", Some(fd.file), |s, _| s.map(fd.file, words))?;
        Ok(SimMem { os: self.clone(), id, len: words, _file: self.fd(fd.file) })
    }

    fn own_byte(&self, owners: &SimFd, byte: u64) -> Result<SimOwned> {
        let key = self.call(Call::OwnByte, b"", Some(owners.file), |s, _| {
            let key: (Id, u64) = (s.file(owners.file)?.id, byte);
            if s.owned.contains_key(&key) {
                return Err(Errno::AGAIN);
            }
            s.owned.insert(key, self.process);
            Ok(key)
        })?;
        Ok(SimOwned { machine: self.machine.clone(), process: self.process, key })
    }

    fn byte_owned(&self, owners: &SimFd, byte: u64) -> Result<bool> {
        self.call(Call::ByteOwned, b"", Some(owners.file), |s, _| {
            Ok(s.owned.contains_key(&(s.file(owners.file)?.id, byte)))
        })
    }

    fn boot_id(&self) -> Result<[u8; 16]> {
        self.call(Call::BootId, b"", None, |s, _| {
            Ok((0x626f_6f74u128 << 64 | u128::from(s.boots)).to_le_bytes())
        })
    }

    fn now(&self) -> Timestamp {
        let mut inner = self.machine.lock();
        inner.state.tick(1);
        inner.state.timestamp(inner.state.clock)
    }

    fn monotonic_ns(&self) -> u64 {
        let mut inner = self.machine.lock();
        inner.state.tick(1);
        let days = if inner.state.time_namespaces { u64::from(self.process.0 % 3) } else { 0 };
        inner.state.clock - inner.state.booted + days * 86_400_000_000_000
    }

    fn random(&self) -> u64 {
        self.machine.lock().state.rng.u64(..)
    }

    fn uid(&self) -> u32 {
        self.machine.lock().state.process(self.process).uid
    }

    fn is_limited(&self, by: Limit) -> bool {
        self.machine.lock().state.process(self.process).limited.contains(&by)
    }

    fn lineage(&self) -> u64 {
        self.machine.lock().state.process(self.process).lineage
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn pause(&self, ns: u64) {
        match self.enter(Call::Pause, b"", None) {
            Ok(entered) => {
                // For ever is not a pause.
                let inner = self.machine.block(entered.inner, None, ns.min(u64::MAX - 1));
                drop(self.living(inner));
            }
            Err(Stop::Fail(_) | Stop::Dead) => {}
        }
    }
}
