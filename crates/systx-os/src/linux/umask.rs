//! The umask: 0 in a process of systx's own, and left alone in any other.
//!
//! Guarantees: a new object has the permissions that were asked for, in both. Does not: help a process whose program
//! changes its umask while an object is made.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use rustix::fs::Mode;

use super::attributes;
use crate::types::{Errno, Result};

/// The umask this process started with, if it is 0 now. Set once: the second answer of umask(2) is our own 0.
static INHERITED_UMASK: OnceLock<u32> = OnceLock::new();

/// Set in a process of systx's own.
static OURS: AtomicBool = AtomicBool::new(false);

/// Says that this process, and what it forks, is systx's own: then [`Linux::new`](crate::Linux::new) may set its umask to
/// 0, which saves a call for each new object. A library never says so.
pub fn this_process_is_ours() {
    OURS.store(true, Ordering::Relaxed);
}

/// Sets the umask to 0, if it may.
pub(super) fn settle() {
    if OURS.load(Ordering::Relaxed) {
        INHERITED_UMASK.get_or_init(|| rustix::process::umask(Mode::empty()).as_raw_mode());
    }
}

/// The umask before that.
pub(super) fn inherited() -> Option<u32> {
    INHERITED_UMASK.get().copied()
}

/// Returns true where the kernel's modes mean what they say, and no write is a signal.
pub(super) fn is_ours() -> bool {
    inherited().is_some()
}

/// Gives a new object of `dir` the permissions that the umask of a process that isn't ours has taken. A default ACL is
/// applied in place of the umask, and what it takes stays taken.
pub(super) fn as_asked(dir: BorrowedFd<'_>, object: BorrowedFd<'_>, mode: u32) -> Result<()> {
    if is_ours() {
        return Ok(());
    }
    let is = rustix::fs::fstat(object)?.st_mode;
    if mode & !is & 0o777 == 0 || has_default_acl(dir) {
        return Ok(());
    }
    attributes::chmod(object, (is & 0o7000) | (mode & 0o777))
}

/// Also where that can't be learned.
fn has_default_acl(dir: BorrowedFd<'_>) -> bool {
    let list = attributes::getxattr(dir, b"system.posix_acl_default");
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}
