//! Opening: by name, by descriptor, by handle.
//!
//! Guarantees: descriptors are O_CLOEXEC; no symbolic link is followed and no mount crossed; nothing here
//! blocks on a FIFO or on a lease. Does not: check that an object is a regular file; opening a device has its
//! side effects.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, CWD};

use super::raw::{check, permissions, FdPath, Name};
use super::umask::as_asked;
use crate::types::{Errno, Handle, Open, Result};

const WITHIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// Flags for `how`. O_NOATIME needs the owner or CAP_FOWNER: see [`unless_foreign`].
fn flags(how: Open) -> OFlags {
    let base = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match how {
        Open::Path => base | OFlags::PATH,
        Open::Directory => base | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME,
        Open::Read => base | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME,
        Open::ReadWrite => base | OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME,
        Open::Write => base | OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    }
}

/// Tries with O_NOATIME and, for another user's object, once more without.
fn unless_foreign(flags: OFlags, mut open: impl FnMut(OFlags) -> Result<OwnedFd>) -> Result<OwnedFd> {
    match open(flags) {
        Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => open(flags - OFlags::NOATIME),
        result => result,
    }
}

pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8], how: Open) -> Result<OwnedFd> {
    let name = Name::new(name)?;
    unless_foreign(flags(how), |flags| {
        rustix::fs::openat2(dir, name.as_c_str(), flags, Mode::empty(), WITHIN)
    })
}

/// Opens a whole path, following symbolic links up to its last component: the caller's way in.
pub(super) fn open_path(path: &Path, how: Open) -> Result<OwnedFd> {
    unless_foreign(flags(how), |flags| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

pub(super) fn reopen(fd: BorrowedFd<'_>, how: Open) -> Result<OwnedFd> {
    if how == Open::Directory {
        // No /proc needed, and anything but a directory fails with ENOTDIR.
        return unless_foreign(flags(how), |flags| rustix::fs::openat(fd, c".", flags, Mode::empty()));
    }
    // Without O_NOFOLLOW: the last component is the magic link itself.
    let path = FdPath::new(fd);
    unless_foreign(flags(how) - OFlags::NOFOLLOW, |flags| {
        rustix::fs::openat(CWD, path.as_c_str(), flags, Mode::empty())
    })
}

/// struct file_handle of the kernel, with room for the longest handle there is (MAX_HANDLE_SZ).
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; 128],
}

/// Tries a handle for which there is no memory this often again. While a program makes an object with the
/// inode number of one that is gone, the kernel says so of the old one (iget_locked(), ext4 among others): a
/// moment later it is stale.
const INODE_IN_THE_MAKING: u32 = 1000;

pub(super) fn open_handle(mount: BorrowedFd<'_>, handle: &Handle, how: Open) -> Result<OwnedFd> {
    let bytes = handle.as_bytes();
    let mut raw =
        RawHandle { handle_bytes: bytes.len() as u32, handle_type: handle.kind, f_handle: [0; 128] };
    raw.f_handle[..bytes.len()].copy_from_slice(bytes);
    let once = |mount: BorrowedFd<'_>| {
        unless_foreign(flags(how), |flags| {
            // SAFETY: `raw` is a struct file_handle whose handle_bytes are within f_handle; the kernel only reads it.
            let fd =
                unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw, flags.bits()) };
            // SAFETY: a non-negative result is a new descriptor without another owner.
            check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
        })
    };
    let attempt = |mount: BorrowedFd<'_>| {
        let mut result = once(mount);
        for _ in 0..INODE_IN_THE_MAKING {
            if !matches!(result, Err(Errno::NOMEM)) {
                break;
            }
            std::thread::yield_now();
            result = once(mount);
        }
        result
    };
    match attempt(mount) {
        // The mount must not be named by an O_PATH descriptor; such a one of a directory can be opened for real.
        Err(Errno::BADF) => attempt(reopen(mount, Open::Directory)?.as_fd()),
        result => result,
    }
}

/// Handle of `name` in `dir`, or of `dir` itself for an empty name.
pub(super) fn handle(dir: BorrowedFd<'_>, name: Option<&[u8]>) -> Result<Handle> {
    let mut raw = RawHandle { handle_bytes: 128, handle_type: 0, f_handle: [0; 128] };
    let mut mount_id: libc::c_int = 0;
    let name = name.map(Name::new).transpose()?;
    let (path, flags) = match &name {
        Some(name) => (name.as_c_str(), 0),
        None => (c"", libc::AT_EMPTY_PATH),
    };
    // SAFETY: `path` is NUL-terminated, `raw` has the 128 bytes it says, `mount_id` takes an int.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            path.as_ptr(),
            &mut raw,
            &mut mount_id,
            flags,
        )
    };
    check(returned)?;
    let bytes = raw.f_handle.get(..raw.handle_bytes as usize).ok_or(Errno::OVERFLOW)?;
    Handle::new(raw.handle_type, bytes).ok_or(Errno::OVERFLOW)
}

pub(super) fn create(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = Name::new(name)?;
    let fd = rustix::fs::openat2(dir, name.as_c_str(), flags, permissions(mode), WITHIN)?;
    if let Err(e) = as_asked(dir, fd.as_fd(), mode) {
        let _ = rustix::fs::unlinkat(dir, name.as_c_str(), rustix::fs::AtFlags::empty());
        return Err(e);
    }
    Ok(fd)
}

pub(super) fn tmpfile(dir: BorrowedFd<'_>, mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, c".", flags, permissions(mode))?;
    as_asked(dir, fd.as_fd(), mode)?;
    Ok(fd)
}

/// High numbers begin here. Higher ones would cost the process: the kernel keeps, and a fork copies, a table that
/// reaches to the highest.
const HIGH: i32 = 2048;

/// Moves a descriptor to a number from 2048 on, or, where fewer may be open, from the middle on. Where that can't be
/// had, it stays.
///
/// Source: fcntl(2), F_DUPFD_CLOEXEC.
pub(super) fn lift(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() >= HIGH {
        return fd;
    }
    let above = |least| rustix::io::fcntl_dupfd_cloexec(&fd, least);
    let lifted = above(HIGH).or_else(|_| {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(0);
        above(most.min(HIGH as u64) as i32 / 2)
    });
    let Ok(lifted) = lifted else { return fd };
    close(fd);
    lifted
}

/// Closes a descriptor that another thread may have closed in this very moment: where that can be, a drop ends a program
/// that was built for debugging.
pub(super) fn close(fd: OwnedFd) {
    // SAFETY: it is owned, and is not used again.
    unsafe { libc::close(fd.into_raw_fd()) };
}
