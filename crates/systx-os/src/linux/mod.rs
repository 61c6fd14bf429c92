//! [`Os`] on Linux.
//!
//! Owns: every call to the kernel that the engine makes; one submodule a subject. Guarantees: what [`Os`] promises, for
//! callers with and without privileges, in a process of systx's own and in any other, of which nothing is changed
//! ([`this_process_is_ours`]). Keeps no state but the process-wide umask: which new system calls exist is found out by
//! calling them, and an object is always named by a descriptor.
//! Minimum kernel version: 5.8 (openat2, utimensat on AT_EMPTY_PATH); /proc must be mounted.

mod attributes;
pub(crate) mod borrowed;
mod bytes;
mod durability;
mod exchange;
mod flags;
mod lease;
mod lineage;
mod look;
mod machine;
mod memory;
mod names;
mod open;
mod owner;
mod probe;
mod project;
mod raw;
mod umask;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::os::Os;
use crate::types::LinkAtEnd;
use crate::types::*;

pub use flags::{features, Features};
pub use lease::prove_nothing;
pub use machine::{kernel_release, local_time, raise_nofile_limit, NofileLimit};
pub use memory::MappedWords;
pub use owner::OwnedByte;
pub use umask::this_process_is_ours;

/// Attributes of an open object, as the engine has them.
pub(crate) fn stat(fd: BorrowedFd<'_>) -> Result<Stat> {
    look::stat(fd)
}

/// Attributes of the object at an absolute path, as the engine has them.
pub(crate) fn stat_path(path: &[u8], link: LinkAtEnd) -> Result<Stat> {
    look::stat_path(path, link)
}

/// Entries of an open directory, as the engine has them.
pub(crate) fn read_dir(fd: BorrowedFd<'_>) -> Result<Vec<Dirent>> {
    look::read_dir(fd)
}

/// The running kernel, seen from this process.
#[derive(Clone, Debug)]
pub struct Linux(());

impl Linux {
    /// Modes are as asked for, whatever the umask of the process, but for a default ACL of the directory, which takes
    /// the umask's place. In a process that [is ours](this_process_is_ours) it sets the umask to 0; programs that such
    /// a process starts want [`Linux::inherited_umask`] back. Of any other process it changes nothing.
    #[expect(
        clippy::new_without_default,
        reason = "it may change the process: nothing that a default should do"
    )]
    pub fn new() -> Linux {
        umask::settle();
        Linux(())
    }

    /// The umask before [`Linux::new`] set it to 0, which it does in a process that is ours.
    pub fn inherited_umask(&self) -> u32 {
        umask::inherited().unwrap_or(0)
    }

    /// Opens a whole path, of any length and through symbolic links but for the last component: the way in, for
    /// paths that the user names. Everything below goes by [`Os::open`].
    pub fn open_path(&self, path: &Path, how: Open) -> Result<OwnedFd> {
        open::open_path(path, how)
    }

    /// Probes by experiment only (some tens of milliseconds), for `systx doctor`; see [`Os::fs_info`].
    pub fn probe_thoroughly(&self, scratch: &OwnedFd) -> Result<FsInfo> {
        probe::probe_thoroughly(scratch.as_fd())
    }

    /// Makes a nameless file below `scratch`. Returns, with whatever error, once the file system has
    /// answered, which one that is frozen does not.
    pub fn try_to_make(&self, scratch: &OwnedFd) -> Result<()> {
        probe::try_to_make(scratch.as_fd())
    }

    /// Tries to make a file and to sync it: on a stuck device neither returns.
    pub fn try_to_sync(&self, scratch: &OwnedFd) -> Result<()> {
        probe::try_to_sync(scratch.as_fd())
    }
}

impl Os for Linux {
    type Fd = OwnedFd;
    type Mem = MappedWords;
    type Owned = OwnedByte;

    fn open(&self, dir: &OwnedFd, name: &[u8], how: Open) -> Result<OwnedFd> {
        open::open(dir.as_fd(), name, how)
    }
    fn reopen(&self, fd: &OwnedFd, how: Open) -> Result<OwnedFd> {
        open::reopen(fd.as_fd(), how)
    }
    fn open_handle(&self, mount: &OwnedFd, handle: &Handle, how: Open) -> Result<OwnedFd> {
        open::open_handle(mount.as_fd(), handle, how)
    }
    fn create(&self, dir: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd> {
        open::create(dir.as_fd(), name, mode)
    }
    fn tmpfile(&self, dir: &OwnedFd, mode: u32) -> Result<OwnedFd> {
        open::tmpfile(dir.as_fd(), mode)
    }
    fn dup(&self, fd: &OwnedFd) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(fd, 3)
    }

    fn lift(&self, fd: OwnedFd) -> OwnedFd {
        open::lift(fd)
    }
    fn close(&self, fd: OwnedFd) {
        open::close(fd)
    }
    fn identity(&self, fd: &OwnedFd) -> Result<(u64, u64)> {
        rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
    }

    fn stat(&self, fd: &OwnedFd) -> Result<Stat> {
        look::stat(fd.as_fd())
    }
    fn stat_at(&self, dir: &OwnedFd, name: &[u8]) -> Result<Stat> {
        look::stat_at(dir.as_fd(), name)
    }
    fn handle(&self, fd: &OwnedFd) -> Result<Handle> {
        open::handle(fd.as_fd(), None)
    }
    fn handle_at(&self, dir: &OwnedFd, name: &[u8]) -> Result<Handle> {
        open::handle(dir.as_fd(), Some(name))
    }
    fn read_dir(&self, fd: &OwnedFd) -> Result<Vec<Dirent>> {
        look::read_dir(fd.as_fd())
    }
    fn read_link(&self, fd: &OwnedFd) -> Result<Vec<u8>> {
        look::read_link(fd.as_fd())
    }
    fn may_change_names(&self, dir: &OwnedFd) -> Result<()> {
        attributes::may_change_names(dir.as_fd())
    }
    fn project_passed_on(&self, dir: &OwnedFd) -> Result<Option<u32>> {
        project::passed_on(dir.as_fd())
    }
    fn set_project(&self, dir: &OwnedFd, name: &[u8], project: u32) -> Result<bool> {
        project::set(dir.as_fd(), name, project)
    }
    fn made(&self, fd: &OwnedFd) -> Result<Option<Timestamp>> {
        look::made(fd.as_fd())
    }
    fn reserved_at(&self, fd: &OwnedFd, offset: u64) -> Result<bool> {
        bytes::reserved_at(fd.as_fd(), offset)
    }
    fn was_written_out(&self, fd: &OwnedFd) -> Result<bool> {
        bytes::was_written_out(fd.as_fd())
    }
    fn inode_flags(&self, object: &OwnedFd) -> Result<u32> {
        flags::get(object.as_fd())
    }
    fn add_inode_flags(&self, object: &OwnedFd, flags: u32) -> Result<()> {
        flags::add(object.as_fd(), flags)
    }
    fn are_names_locked(&self, dir: &OwnedFd) -> Result<bool> {
        flags::are_names_locked(dir.as_fd())
    }
    fn encryption_policy(&self, dir: &OwnedFd) -> Result<Option<Vec<u8>>> {
        flags::policy(dir.as_fd())
    }
    fn statfs(&self, fd: &OwnedFd) -> Result<StatFs> {
        look::statfs(fd.as_fd())
    }
    fn fs_info(&self, scratch: &OwnedFd) -> Result<FsInfo> {
        probe::fs_info(scratch.as_fd())
    }

    fn mkdir(&self, dir: &OwnedFd, name: &[u8], mode: u32) -> Result<()> {
        names::mkdir(dir.as_fd(), name, mode)
    }
    fn mknod(&self, dir: &OwnedFd, name: &[u8], mode: u32, rdev: u64) -> Result<()> {
        names::mknod(dir.as_fd(), name, mode, rdev)
    }
    fn symlink(&self, dir: &OwnedFd, name: &[u8], target: &[u8]) -> Result<()> {
        names::symlink(dir.as_fd(), name, target)
    }
    fn link(&self, fd: &OwnedFd, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        names::link(fd.as_fd(), dir.as_fd(), name)
    }
    fn unlink(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        names::unlink(dir.as_fd(), name)
    }
    fn rmdir(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        names::rmdir(dir.as_fd(), name)
    }
    fn rename(&self, from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8]), mode: Rename) -> Result<()> {
        names::rename((from.0.as_fd(), from.1), (to.0.as_fd(), to.1), mode)
    }

    fn pread(&self, fd: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize> {
        bytes::pread(fd.as_fd(), buf, offset)
    }
    fn pwrite(&self, fd: &OwnedFd, buf: &[u8], offset: u64) -> Result<usize> {
        bytes::pwrite(fd.as_fd(), buf, offset)
    }
    fn may_end_at(&self, fd: &OwnedFd, size: u64) -> Result<()> {
        bytes::may_end_at(fd.as_fd(), size)
    }
    fn truncate(&self, fd: &OwnedFd, size: u64) -> Result<()> {
        bytes::truncate(fd.as_fd(), size)
    }
    fn fallocate(&self, fd: &OwnedFd, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        bytes::fallocate(fd.as_fd(), mode, offset, len)
    }
    fn copy_range(
        &self,
        from: &OwnedFd,
        from_offset: u64,
        to: &OwnedFd,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        bytes::copy_range(from.as_fd(), from_offset, to.as_fd(), to_offset, len)
    }
    fn compare_exchange(&self, fd: &OwnedFd, offset: u64, before: &[u8], after: &[u8]) -> Result<bool> {
        exchange::compare_exchange(fd.as_fd(), offset, before, after)
    }

    fn append(&self, fd: &OwnedFd, bytes: &[u8]) -> Result<(u64, usize)> {
        bytes::append(fd.as_fd(), bytes)
    }

    fn seek(&self, fd: &OwnedFd, offset: u64, to: Seek) -> Result<u64> {
        bytes::seek(fd.as_fd(), offset, to)
    }

    fn chmod(&self, fd: &OwnedFd, mode: u32) -> Result<()> {
        attributes::chmod(fd.as_fd(), mode)
    }
    fn chown(&self, fd: &OwnedFd, uid: u32, gid: u32) -> Result<()> {
        attributes::chown(fd.as_fd(), uid, gid)
    }
    fn utimens(&self, fd: &OwnedFd, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Result<()> {
        attributes::utimens(fd.as_fd(), atime, mtime)
    }
    fn getxattr(&self, fd: &OwnedFd, name: &[u8]) -> Result<Vec<u8>> {
        attributes::getxattr(fd.as_fd(), name)
    }
    fn getxattr_at(&self, dir: &OwnedFd, of: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        attributes::getxattr_at(dir.as_fd(), of, name)
    }
    fn setxattr(&self, fd: &OwnedFd, name: &[u8], value: &[u8], mode: SetXattr) -> Result<()> {
        attributes::setxattr(fd.as_fd(), name, value, mode)
    }
    fn removexattr(&self, fd: &OwnedFd, name: &[u8]) -> Result<()> {
        attributes::removexattr(fd.as_fd(), name)
    }
    fn listxattr(&self, fd: &OwnedFd) -> Result<Vec<Vec<u8>>> {
        attributes::listxattr(fd.as_fd())
    }

    fn write_out(&self, fd: &OwnedFd, writing: Writing) -> Result<()> {
        durability::write_out(fd.as_fd(), writing)
    }
    fn fsync(&self, fd: &OwnedFd) -> Result<()> {
        durability::fsync(fd.as_fd())
    }
    fn fdatasync(&self, fd: &OwnedFd) -> Result<()> {
        durability::fdatasync(fd.as_fd())
    }
    fn syncfs(&self, fd: &OwnedFd) -> Result<()> {
        durability::syncfs(fd.as_fd())
    }

    fn lease(&self, fd: &OwnedFd, lease: Lease) -> Result<()> {
        lease::lease(fd.as_fd(), lease)
    }
    fn lease_held(&self, fd: &OwnedFd) -> Result<Lease> {
        lease::lease_held(fd.as_fd())
    }

    fn map(&self, fd: &OwnedFd, words: usize) -> Result<MappedWords> {
        memory::map(fd.as_fd(), words)
    }
    fn own_byte(&self, owners: &OwnedFd, byte: u64) -> Result<OwnedByte> {
        owner::own_byte(owners.as_fd(), byte)
    }
    fn byte_owned(&self, owners: &OwnedFd, byte: u64) -> Result<bool> {
        owner::byte_owned(owners.as_fd(), byte)
    }

    fn boot_id(&self) -> Result<[u8; 16]> {
        machine::boot_id()
    }
    fn now(&self) -> Timestamp {
        machine::now()
    }
    fn monotonic_ns(&self) -> u64 {
        machine::monotonic_ns()
    }
    fn phase(&self, phase: Phase) {
        crate::no_room::follow(phase);
    }
    fn steps_taken(&self, taken: usize, of: usize) {
        crate::progress::note(taken, of);
    }
    fn random(&self) -> u64 {
        machine::random()
    }
    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
    fn sees_all_owners(&self) -> bool {
        machine::maps_all_owners()
    }
    fn is_limited(&self, by: Limit) -> bool {
        machine::is_limited(by)
    }
    fn lineage(&self) -> u64 {
        lineage::lineage()
    }
    fn pid(&self) -> u32 {
        lineage::pid()
    }
    fn pause(&self, ns: u64) {
        machine::pause(ns);
    }
}
