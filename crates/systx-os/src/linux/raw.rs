//! The shapes in which arguments reach the kernel: single names, `/proc/self/fd` paths, results of raw calls.
//!
//! Guarantees: a [`Name`] is one component, so no call below can leave the directory it was given. Does not: open.

use std::ffi::{c_long, CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::Mode;

use crate::types::{Errno, Result};

/// Longest name of a directory entry, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// One component of a path, NUL-terminated, on the stack.
pub(super) struct Name {
    bytes: [u8; NAME_BYTES_MAX + 1],
    len: usize,
}

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// `EINVAL` for an empty name, `.`, `..`, and one with `/` or NUL; `ENAMETOOLONG` past 255 bytes.
    pub(super) fn new(name: &[u8]) -> Result<Name> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; NAME_BYTES_MAX + 1];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Name { bytes, len: name.len() })
    }

    /// The name as the kernel takes it.
    pub(super) fn as_c_str(&self) -> &CStr {
        // A `Name` has exactly one NUL within ..=len, at its end; the default is never used.
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or_default()
    }
}

/// The magic link of a descriptor, for calls that take a path only. Following it reaches the very object, also when
/// that is a symbolic link, which is then not followed any further (fs/namei.c, nd_jump_link).
pub(super) struct FdPath {
    bytes: [u8; 32],
    len: usize,
}

impl FdPath {
    const PREFIX: &'static [u8] = b"/proc/self/fd/";

    pub(super) fn new(fd: BorrowedFd<'_>) -> FdPath {
        let mut path = FdPath { bytes: [0; 32], len: Self::PREFIX.len() };
        path.bytes[..path.len].copy_from_slice(Self::PREFIX);
        let mut digits = [0; 10];
        let mut count = 0;
        let mut rest = fd.as_raw_fd().unsigned_abs();
        while rest > 0 || count == 0 {
            digits[count] = b'0' + (rest % 10) as u8;
            count += 1;
            rest /= 10;
        }
        for &digit in digits[..count].iter().rev() {
            path.bytes[path.len] = digit;
            path.len += 1;
        }
        path
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        // As in `Name::as_c_str`: 14 + 10 bytes and the NUL fit.
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or_default()
    }
}

/// A byte string as a C string; `EINVAL` when it holds a NUL.
pub(super) fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

/// Turns what libc returned into a result.
pub(super) fn check(returned: c_long) -> Result<u64> {
    u64::try_from(returned).map_err(|_| last_errno())
}

/// As [`check`], for calls that return an `int`.
pub(super) fn check_int(returned: libc::c_int) -> Result<libc::c_int> {
    if returned < 0 {
        return Err(last_errno());
    }
    Ok(returned)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns true if a new system call failed because it is missing: `ENOSYS`, or `EPERM` from a seccomp filter
/// that does not know it. After the latter the old call shows a true `EPERM`.
pub(super) fn is_unavailable(e: Errno) -> bool {
    e == Errno::NOSYS || e == Errno::PERM
}

/// The permission bits alone: openat2 refuses others.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_bits_retain(mode & 0o7777)
}

/// All signals of this thread, held back until it is dropped.
pub(super) struct Blocked(libc::sigset_t);

impl Blocked {
    pub fn all() -> Blocked {
        let mut all = crate::process::set_of(&[]);
        let mut before = all;
        // SAFETY: a valid set, which it fills.
        unsafe { libc::sigfillset(&mut all) };
        // SAFETY: both sets are valid and initialised for the whole call, which can't fail with them.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before) };
        Blocked(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_name_is_exactly_one_component() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(Name::new(bad).err(), Some(Errno::INVAL), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'x'; 256]).err(), Some(Errno::NAMETOOLONG));
        let longest = Name::new(&[b'x'; 255]).unwrap();
        assert_eq!(longest.as_c_str().to_bytes(), &[b'x'; 255]);
        assert_eq!(Name::new(b"...").unwrap().as_c_str(), c"...");
    }

    #[test]
    fn the_path_of_a_descriptor_names_its_number() {
        let file = std::fs::File::open("/").unwrap();
        let expected = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(FdPath::new(file.as_fd()).as_c_str().to_bytes(), expected.as_bytes());
        // SAFETY: the descriptor is used for its number only; no call is made on it.
        let longest = unsafe { BorrowedFd::borrow_raw(i32::MAX) };
        assert_eq!(FdPath::new(longest).as_c_str(), c"/proc/self/fd/2147483647");
    }
}
