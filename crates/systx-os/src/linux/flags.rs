//! Inode flags (chattr(1)) and policies of encryption.
//!
//! Guarantees: what a file system has no word for is no flag, and no policy. No object is opened in a way
//! that waits or acts.
//!
//! Source: ioctl_iflags(2), Documentation/filesystems/fscrypt.rst.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::open;
use super::raw::check_int;
use crate::types::{Errno, Open, Result};

/// _IOR('f', 1, long) and _IOW('f', 2, long); what they carry is an int.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOWR('f', 22, __u8[9])`.
const FS_IOC_GET_ENCRYPTION_POLICY_EX: u32 = 0xc009_6616;

/// struct fscrypt_get_policy_ex_arg of linux/fscrypt.h.
#[repr(C)]
struct Policy {
    size: u64,
    bytes: [u8; 24],
}

/// Flags of a file or directory.
pub(super) fn get(object: BorrowedFd<'_>) -> Result<u32> {
    let read = |fd: BorrowedFd<'_>| -> Result<u32> {
        let mut flags = 0u32;
        // SAFETY: the descriptor is open, and the request stores an int.
        let returned =
            unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFLAGS as _, std::ptr::from_mut(&mut flags)) };
        check_int(returned).map(|_| flags)
    };
    match read(object) {
        // O_PATH.
        Err(Errno::BADF) => match open::reopen(object, Open::Read) {
            Ok(fd) => or_none(read(fd.as_fd())),
            // Without read permission it can't be asked.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOKEY) => Ok(0),
            Err(e) => Err(e),
        },
        read => or_none(read),
    }
}

/// No file system with flags has none of them.
fn or_none(read: Result<u32>) -> Result<u32> {
    match read {
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(0),
        read => read,
    }
}

/// Gives a file or directory these flags beside those that it has.
pub(super) fn add(object: BorrowedFd<'_>, flags: u32) -> Result<()> {
    let opened;
    let object = if rustix::fs::fcntl_getfl(object)?.contains(rustix::fs::OFlags::PATH) {
        opened = open::reopen(object, Open::Read)?;
        opened.as_fd()
    } else {
        object
    };
    let wanted = get(object)? | flags;
    // SAFETY: the descriptor is open, and the request reads an int.
    let returned =
        unsafe { libc::ioctl(object.as_raw_fd(), FS_IOC_SETFLAGS as _, std::ptr::from_ref(&wanted)) };
    check_int(returned).map(drop)
}

/// By what a directory is encrypted; `None`: it isn't.
pub(super) fn policy(dir: BorrowedFd<'_>) -> Result<Option<Vec<u8>>> {
    match get_policy(dir) {
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOTTY | Errno::ACCESS) => Ok(None),
        policy => policy.map(Some),
    }
}

/// Returns true if a directory is encrypted and its key is not there: no name in it is found.
pub(super) fn are_names_locked(dir: BorrowedFd<'_>) -> Result<bool> {
    // Nothing else says so of every kind of key.
    Ok(policy(dir)?.is_some() && open::tmpfile(dir, 0o600).is_err_and(|error| error == Errno::NOKEY))
}

/// Kinds of directories, of a file system, into which no object made elsewhere can be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Encrypted (fscrypt).
    pub encryption: bool,
    /// Blind to case (`chattr +F`).
    pub case_folding: bool,
}

/// Returns the kinds that are possible on the file system of `scratch`, a directory of ours.
pub fn features(scratch: &OwnedFd) -> Features {
    let name = format!(".systx-probe-{:016x}", super::machine::random());
    let name = name.as_bytes();
    let folds = || -> Result<()> {
        super::names::mkdir(scratch.as_fd(), name, 0o700)?;
        let folds = open::open(scratch.as_fd(), name, Open::Directory)
            .and_then(|dir| add(dir.as_fd(), crate::types::inode_flag::CASEFOLD));
        super::names::rmdir(scratch.as_fd(), name)?;
        folds
    };
    let encryption = matches!(get_policy(scratch.as_fd()), Ok(_) | Err(Errno::NODATA));
    Features { encryption, case_folding: folds().is_ok() }
}

fn get_policy(dir: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let dir = open::reopen(dir, Open::Directory)?;
    let mut policy = Policy { size: 24, bytes: [0; 24] };
    let found = std::ptr::from_mut(&mut policy);
    // SAFETY: the descriptor is open, and the request stores at most `size` bytes behind `size`.
    let returned = unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_GET_ENCRYPTION_POLICY_EX as _, found) };
    check_int(returned)?;
    Ok(policy.bytes[..(policy.size as usize).min(24)].to_vec())
}
