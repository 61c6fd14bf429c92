//! Permissions, owners, times, extended attributes, of any object by any descriptor: O_PATH and symbolic links too.
//!
//! Where a call refuses O_PATH descriptors, the magic link in /proc names the same object, a symbolic link itself
//! included. (setxattrat(2) and its siblings are no way out: with an empty path they refuse O_PATH too, as 6.18 shows.)

use std::ffi::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, Uid, XattrFlags, UTIME_OMIT};

use super::raw::{c_string, check, is_unavailable, permissions, FdPath, Name};
use crate::types::{Errno, Result, SetXattr, Timestamp};

/// fchmodat2(2). Minimum kernel version: 6.6.
const SYS_FCHMODAT2: c_long = 452;

/// First guess at the size of a value or of a list of names, in bytes.
const XATTR_BYTES_USUAL: usize = 512;
/// XATTR_SIZE_MAX and XATTR_LIST_MAX of the kernel.
const XATTR_BYTES_MAX: usize = 64 << 10;

pub(super) fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    let mode = mode & 0o7777;
    // SAFETY: the path is a NUL-terminated constant; the other arguments are numbers.
    let returned =
        unsafe { libc::syscall(SYS_FCHMODAT2, fd.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    match check(returned) {
        Err(e) if is_unavailable(e) => rustix::fs::chmod(FdPath::new(fd).as_c_str(), permissions(mode)),
        result => result.map(drop),
    }
}

/// With the effective ids, as the kernel will ask when a name is changed.
pub(super) fn may_change_names(dir: BorrowedFd<'_>) -> Result<()> {
    let (mode, flags) = (libc::W_OK | libc::X_OK, libc::AT_EACCESS | libc::AT_EMPTY_PATH);
    // SAFETY: the path is a NUL-terminated constant; the other arguments are numbers.
    let returned = unsafe { libc::syscall(libc::SYS_faccessat2, dir.as_raw_fd(), c"".as_ptr(), mode, flags) };
    check(returned).map(drop)
}

/// As chown(2), `u32::MAX` leaves one as it is.
pub(super) fn chown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<()> {
    let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
    let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)
}

pub(super) fn utimens(fd: BorrowedFd<'_>, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Result<()> {
    let times = Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
    rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)
}

fn timespec(time: Option<Timestamp>) -> Result<Timespec> {
    Ok(match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        // Larger values mean "now" and "leave" to the kernel, which no caller asked for.
        Some(t) if t.nsec >= 1_000_000_000 => return Err(Errno::INVAL),
        Some(t) => Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
    })
}

pub(super) fn setxattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8], mode: SetXattr) -> Result<()> {
    let name = c_string(name)?;
    let flags = match mode {
        SetXattr::Any => XattrFlags::empty(),
        SetXattr::Create => XattrFlags::CREATE,
        SetXattr::Replace => XattrFlags::REPLACE,
    };
    match rustix::fs::fsetxattr(fd, &name, value, flags) {
        Err(Errno::BADF) => rustix::fs::setxattr(FdPath::new(fd).as_c_str(), &name, value, flags),
        result => result,
    }
}

pub(super) fn getxattr(fd: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>> {
    let name = c_string(name)?;
    growing(|buf| match rustix::fs::fgetxattr(fd, &name, &mut *buf) {
        Err(Errno::BADF) => rustix::fs::getxattr(FdPath::new(fd).as_c_str(), &name, buf),
        result => result,
    })
}

/// Of a name, never through a symbolic link. What is mounted over the name is asked in its place: callers look what
/// answers.
pub(super) fn getxattr_at(dir: BorrowedFd<'_>, of: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let (_, name) = (Name::new(of)?, c_string(name)?);
    let path = [FdPath::new(dir).as_c_str().to_bytes(), b"/", of].concat();
    growing(|buf| rustix::fs::lgetxattr(path.as_slice(), &name, buf))
}

pub(super) fn removexattr(fd: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let name = c_string(name)?;
    match rustix::fs::fremovexattr(fd, &name) {
        Err(Errno::BADF) => rustix::fs::removexattr(FdPath::new(fd).as_c_str(), &name),
        result => result,
    }
}

pub(super) fn listxattr(fd: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>> {
    let list = growing(|buf| match rustix::fs::flistxattr(fd, &mut *buf) {
        Err(Errno::BADF) => rustix::fs::listxattr(FdPath::new(fd).as_c_str(), buf),
        result => result,
    })?;
    Ok(list.split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Calls `fill` with a buffer of the usual size and, on `ERANGE`, with one that holds everything there can be.
fn growing(mut fill: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut usual = [0; XATTR_BYTES_USUAL];
    match fill(&mut usual) {
        Ok(n) => Ok(usual[..n.min(XATTR_BYTES_USUAL)].to_vec()),
        Err(Errno::RANGE) => {
            let mut buf = vec![0; XATTR_BYTES_MAX];
            let n = fill(&mut buf)?;
            buf.truncate(n);
            Ok(buf)
        }
        Err(e) => Err(e),
    }
}
