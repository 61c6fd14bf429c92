//! Living processes: one byte of the owners file for each.
//!
//! A lock of an open file description lives as long as anything refers to that description. Here that is one
//! mapping alone, which fork does not copy: so the byte is held exactly as long as the address space,
//! whatever the program does to its descriptors, and no process id is ever compared.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::lineage::lineage;
use super::open;
use super::raw::{check_int, Blocked};
use crate::types::{Errno, Open, Result};

/// Length of the mapping in bytes; its contents are never touched.
const MAPPED_BYTES: usize = 4096;

/// A byte of the owners file held by this process; dropping it gives the byte back.
#[derive(Debug)]
pub struct OwnedByte {
    mapping: NonNull<std::ffi::c_void>,
    /// The process that made the mapping: in a forked child the address belongs to other memory, or to none. Not its
    /// id, which a child in a namespace of its own may have, too.
    lineage: u64,
}

// SAFETY: the pointer stands for the mapping as a whole and is only ever unmapped, once.
unsafe impl Send for OwnedByte {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for OwnedByte {}

/// Held while a byte is taken, and during each fork(2) of the C library.
static NO_FORK: AtomicBool = AtomicBool::new(false);
/// True once forks take it.
static FORKS_WAIT: AtomicBool = AtomicBool::new(false);

/// Keeps the other threads from forking until it is dropped: a child that is forked between the lock and the advice
/// would have a share in the lock, and its parent would look alive as long as it lives. A signal handler could fork in
/// this very thread, so there is none meanwhile.
struct NoFork {
    _signals: Blocked,
}

impl NoFork {
    fn hold() -> NoFork {
        let signals = Blocked::all();
        before_fork();
        if !FORKS_WAIT.load(Ordering::Relaxed) {
            // SAFETY: handlers that swap an atomic and yield. A failure, for want of memory, leaves forks as they are.
            let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
            FORKS_WAIT.store(true, Ordering::Relaxed);
        }
        NoFork { _signals: signals }
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        after_fork();
    }
}

extern "C" fn before_fork() {
    while NO_FORK.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

extern "C" fn after_fork() {
    NO_FORK.store(false, Ordering::Release);
}

/// Takes the byte. A thread that makes a process without the C library's fork during this call, and without exec, hands
/// it a share in the lock.
pub(super) fn own_byte(owners: BorrowedFd<'_>, byte: u64) -> Result<OwnedByte> {
    let _no_fork = NoFork::hold();
    let file = open::reopen(owners, Open::ReadWrite)?;
    // The lock before the mapping: a refusal, the common case in a search for a free byte, costs nothing then.
    lock(file.as_fd(), libc::F_OFD_SETLK, byte)?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
    let mapped = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), MAPPED_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0)
    }?;
    let mapping = NonNull::new(mapped).ok_or(Errno::NOMEM)?;
    let owned = OwnedByte { mapping, lineage: lineage() };
    // SAFETY: the range is exactly the mapping just made, and the advice changes what fork does with it only.
    unsafe { rustix::mm::madvise(mapped, MAPPED_BYTES, Advice::LinuxDontFork) }?;
    Ok(owned)
}

impl Drop for OwnedByte {
    fn drop(&mut self) {
        if self.lineage == lineage() {
            // SAFETY: the mapping is ours, made by this very process, and nothing points into it. It cannot
            // fail for a whole mapping, so there is nothing to report.
            let _ = unsafe { rustix::mm::munmap(self.mapping.as_ptr(), MAPPED_BYTES) };
        }
    }
}

pub(super) fn byte_owned(owners: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    // `owners` holds no lock itself (own_byte opens anew), so every lock there counts as another process's.
    Ok(lock(owners, libc::F_OFD_GETLK, byte)? != libc::F_UNLCK as libc::c_short)
}

/// Sets or asks for a write lock on one byte; returns the type that the kernel left in the request.
fn lock(fd: BorrowedFd<'_>, command: c_int, byte: u64) -> Result<libc::c_short> {
    // SAFETY: struct flock is plain numbers; all zero is valid, and the l_pid = 0 that OFD locks want.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = libc::F_WRLCK as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = libc::off_t::try_from(byte).map_err(|_| Errno::INVAL)?;
    request.l_len = 1;
    // SAFETY: both OFD commands take a pointer to one struct flock, which lives until the call returns.
    let returned = unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut request) };
    check_int(returned)?;
    Ok(request.l_type)
}
