//! File leases: the kernel's word that no other process has a file open, for the microseconds of a
//! publication.
//!
//! Guarantees: a break kills no process, and the process that this runs in gets no signal. The default signal is SIGIO,
//! which ends a process, and taking the lease makes this process the one that gets it; so SIGURG, ignored by default, is
//! set before, and nobody right after. Only a break between the two sends it.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::raw::check_int;
use crate::types::{Errno, Lease, Result};

const F_SETSIG: c_int = 10;
const F_SETLEASE: c_int = 1024;
const F_GETLEASE: c_int = 1025;

/// Set when this process must do without leases.
static NO_PROOF: AtomicBool = AtomicBool::new(false);

/// Refuses this process every lease from now on, as if another process always had the file open: for work
/// over a transaction's view. A file that the kernel reads and writes there by itself is mapped as the one
/// behind it (fs/fuse/passthrough.c, fuse_passthrough_mmap), so a lease is granted although a program may
/// store through a mapping.
pub fn prove_nothing() {
    NO_PROOF.store(true, Ordering::Relaxed);
}

pub(super) fn lease(fd: BorrowedFd<'_>, lease: Lease) -> Result<()> {
    let kind = match lease {
        Lease::None => {
            return match fcntl(fd, F_SETLEASE, libc::F_UNLCK) {
                Err(Errno::AGAIN) => Ok(()), // There was none.
                result => result.map(drop),
            };
        }
        _ if NO_PROOF.load(Ordering::Relaxed) => return Err(Errno::AGAIN),
        Lease::Read => libc::F_RDLCK,
        Lease::Write => libc::F_WRLCK,
    };
    fcntl(fd, F_SETSIG, libc::SIGURG)?;
    fcntl(fd, F_SETLEASE, kind)?;
    // The kernel knows no reason to refuse it; the lease would be as good with its signal.
    let _ = fcntl(fd, libc::F_SETOWN, 0);
    Ok(())
}

/// While an open breaks a lease, the kernel answers with what it is being reduced to, which is less than was
/// taken.
pub(super) fn lease_held(fd: BorrowedFd<'_>) -> Result<Lease> {
    Ok(match fcntl(fd, F_GETLEASE, 0)? {
        libc::F_RDLCK => Lease::Read,
        libc::F_WRLCK => Lease::Write,
        _ => Lease::None,
    })
}

fn fcntl(fd: BorrowedFd<'_>, command: c_int, argument: c_int) -> Result<c_int> {
    // SAFETY: the commands of this module that come here take a number.
    let returned = unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) };
    check_int(returned)
}
