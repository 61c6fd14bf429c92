//! Making, moving and removing names. One name operation is one system call, so it is atomic as the file system has it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, RenameFlags, CWD};

use super::raw::{c_string, is_unavailable, permissions, FdPath, Name};
use super::umask;
use crate::types::{Errno, FileType, Open, Rename, Result};

pub(super) fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<()> {
    rustix::fs::mkdirat(dir, Name::new(name)?.as_c_str(), permissions(mode))?;
    as_asked(dir, name, mode, FileType::Directory)
}

/// As [`umask::as_asked`], of an object that has no descriptor yet. One that another process has put in its place
/// meanwhile is left alone, as far as it shows.
fn as_asked(dir: BorrowedFd<'_>, name: &[u8], mode: u32, kind: FileType) -> Result<()> {
    if umask::is_ours() {
        return Ok(());
    }
    let made = super::look::stat_at(dir, name)?;
    if mode & !made.mode & 0o777 == 0
        || made.kind() != kind
        || made.uid != rustix::process::geteuid().as_raw()
    {
        return Ok(());
    }
    let object = super::open::open(dir, name, Open::Path)?;
    umask::as_asked(dir, object.as_fd(), mode)
}

pub(super) fn mknod(dir: BorrowedFd<'_>, name: &[u8], mode: u32, rdev: u64) -> Result<()> {
    // As mknod(2): no type bits mean a regular file.
    let with_type = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
    let kind = FileType::from_mode(with_type).ok_or(Errno::INVAL)?;
    let kind = rustix::fs::FileType::from_raw_mode(kind.mode_bits());
    rustix::fs::mknodat(dir, Name::new(name)?.as_c_str(), kind, permissions(mode), rdev)?;
    as_asked(dir, name, mode, FileType::from_mode(with_type).ok_or(Errno::INVAL)?)
}

pub(super) fn symlink(dir: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> Result<()> {
    rustix::fs::symlinkat(c_string(target)?, dir, Name::new(name)?.as_c_str())
}

pub(super) fn link(fd: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let name = Name::new(name)?;
    match rustix::fs::linkat(fd, c"", dir, name.as_c_str(), AtFlags::EMPTY_PATH) {
        // ENOENT stands for a missing CAP_DAC_READ_SEARCH too; the magic link needs none.
        Err(e) if e == Errno::NOENT || is_unavailable(e) => {
            rustix::fs::linkat(CWD, FdPath::new(fd).as_c_str(), dir, name.as_c_str(), AtFlags::SYMLINK_FOLLOW)
        }
        result => result,
    }
}

pub(super) fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    rustix::fs::unlinkat(dir, Name::new(name)?.as_c_str(), AtFlags::empty())
}

pub(super) fn rmdir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    rustix::fs::unlinkat(dir, Name::new(name)?.as_c_str(), AtFlags::REMOVEDIR)
}

pub(super) fn rename(from: (BorrowedFd<'_>, &[u8]), to: (BorrowedFd<'_>, &[u8]), mode: Rename) -> Result<()> {
    let flags = match mode {
        Rename::Replace => RenameFlags::empty(),
        Rename::NoReplace => RenameFlags::NOREPLACE,
        Rename::Exchange => RenameFlags::EXCHANGE,
    };
    let (old, new) = (Name::new(from.1)?, Name::new(to.1)?);
    rustix::fs::renameat_with(from.0, old.as_c_str(), to.0, new.as_c_str(), flags)
}
