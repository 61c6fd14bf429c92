//! Getting bytes to the disk. The kernel reports an error once, and it is never retried here: after a failed
//! sync the pages count as clean.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::raw::check_int;
use crate::types::{Result, Writing};

pub(super) fn write_out(fd: BorrowedFd<'_>, writing: Writing) -> Result<()> {
    let flags = match writing {
        Writing::Start => libc::SYNC_FILE_RANGE_WRITE,
        Writing::Wait => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: takes numbers only; length 0 means to the end of the file.
    let returned = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, flags) };
    check_int(returned).map(drop)
}

pub(super) fn fsync(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::fsync(fd)
}

pub(super) fn fdatasync(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::fdatasync(fd)
}

pub(super) fn syncfs(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::syncfs(fd)
}
