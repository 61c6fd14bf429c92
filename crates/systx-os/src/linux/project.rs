//! Projects of ext4 and xfs, by which quotas count whole trees.
//!
//! A directory may pass its project on: then the kernel refuses to move or link into it what belongs to
//! another one (fs/ext4/namei.c, ext4_rename; fs/xfs/xfs_inode.c, xfs_rename). Guarantees: no object is
//! opened in a way that waits or acts.

use std::ffi::{c_int, c_long, CStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::open;
use super::raw::{check, check_int, is_unavailable, Name};
use crate::types::{Errno, FileType, Open, Result};

/// struct fsxattr of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

/// struct file_attr of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct FileAttr {
    xflags: u64,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
}

/// _IOR('X', 31, struct fsxattr) and _IOW('X', 32, struct fsxattr).
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// file_getattr(2) and file_setattr(2). Minimum kernel version: 6.17.
const SYS_FILE_GETATTR: c_long = 468;
const SYS_FILE_SETATTR: c_long = 469;
const PROJINHERIT: u32 = 0x200;

const _: () = assert!(size_of::<FsXattr>() == 28 && size_of::<FileAttr>() == 24);

/// The project that a directory passes on.
pub(super) fn passed_on(dir: BorrowedFd<'_>) -> Result<Option<u32>> {
    let passed_on = |xflags, projid| (xflags & PROJINHERIT != 0).then_some(projid);
    // One call instead of three. (It takes no empty path on a descriptor of O_PATH.)
    match file_getattr(dir, c".", 0) {
        Ok(found) => return Ok(passed_on(found.xflags as u32, found.projid)),
        Err(e) if is_unavailable(e) => {}
        // The directory may not be passed through; or the file system has no projects.
        Err(_) => return Ok(None),
    }
    let dir = match open::reopen(dir, Open::Directory) {
        // Without read permission the caller has to find out by trying.
        Err(Errno::ACCESS) => return Ok(None),
        dir => dir?,
    };
    match get(dir.as_fd()) {
        Ok(found) => Ok(passed_on(found.xflags, found.projid)),
        // No file system with projects.
        Err(_) => Ok(None),
    }
}

fn file_getattr(dir: BorrowedFd<'_>, name: &CStr, flags: c_int) -> Result<FileAttr> {
    let mut attr = FileAttr::default();
    let (found, size) = (std::ptr::from_mut(&mut attr), size_of::<FileAttr>());
    // SAFETY: the name is NUL-terminated, and `attr` has the size that is passed.
    let returned =
        unsafe { libc::syscall(SYS_FILE_GETATTR, dir.as_raw_fd(), name.as_ptr(), found, size, flags) };
    check(returned).map(|_| attr)
}

/// Makes the object at a name one of a project; a directory passes it on. Whether it was of another one.
pub(super) fn set(dir: BorrowedFd<'_>, name: &[u8], project: u32) -> Result<bool> {
    let refused = |e| match e {
        // Not for a user in a namespace; or no file system with projects.
        Errno::INVAL | Errno::PERM | Errno::NOTTY | Errno::OPNOTSUPP => Errno::XDEV,
        e => e,
    };
    let path = open::open(dir, name, Open::Path)?;
    let path = path.as_fd();
    let inherit = match super::look::stat(path)?.kind() {
        FileType::Directory => PROJINHERIT,
        FileType::File => 0,
        _ => return set_special(dir, name, project).map_err(refused),
    };
    let object = open::reopen(path, if inherit == 0 { Open::Read } else { Open::Directory })?;
    let object = object.as_fd();
    let found = get(object).map_err(refused)?;
    if found.projid == project && found.xflags & PROJINHERIT == inherit {
        return Ok(false);
    }
    let wanted = FsXattr { projid: project, xflags: found.xflags | inherit, ..found };
    // SAFETY: the descriptor is open, and `wanted` has the layout and size that the request names.
    let returned =
        unsafe { libc::ioctl(object.as_raw_fd(), FS_IOC_FSSETXATTR as _, std::ptr::from_ref(&wanted)) };
    check_int(returned).map(|_| true).map_err(refused)
}

fn get(object: BorrowedFd<'_>) -> Result<FsXattr> {
    let mut found = FsXattr::default();
    // SAFETY: the descriptor is open, and `found` has the layout and size that the request names.
    let returned =
        unsafe { libc::ioctl(object.as_raw_fd(), FS_IOC_FSGETXATTR as _, std::ptr::from_mut(&mut found)) };
    check_int(returned)?;
    Ok(found)
}

/// For symbolic links, FIFOs, sockets and devices, which no descriptor for ioctl(2) can be had of.
fn set_special(dir: BorrowedFd<'_>, name: &[u8], project: u32) -> Result<bool> {
    let name = Name::new(name)?;
    let mut attr = match file_getattr(dir, name.as_c_str(), libc::AT_SYMLINK_NOFOLLOW) {
        Err(e) if is_unavailable(e) => return Err(Errno::XDEV),
        attr => attr?,
    };
    if attr.projid == project {
        return Ok(false);
    }
    attr.projid = project;
    let (dir, name, wanted) = (dir.as_raw_fd(), name.as_c_str().as_ptr(), std::ptr::from_ref(&attr));
    let (size, flags) = (size_of::<FileAttr>(), libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: the name is NUL-terminated, and `attr` has the size that is passed.
    let returned = unsafe { libc::syscall(SYS_FILE_SETATTR, dir, name, wanted, size, flags) };
    check(returned).map(|_| true)
}
