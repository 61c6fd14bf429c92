//! A thread that may look into a view that its own process serves.
//!
//! Owns: the table of descriptors that such a thread has for itself. Guarantees: the thread does not hold the
//! connection from which its questions are answered, so when the process is killed, the connection ends with
//! the other threads, and the wait for an answer with it. A thread that shares their table would keep it
//! open, and wait for ever, unkillable. Does not: start the thread.
//!
//! Source: request_wait_answer in fs/fuse/dev.c (a request that was taken is waited for); files_struct lives
//! as long as its last thread.

use super::close_all_but;
use crate::types::Result;
use rustix::fd::RawFd;

/// Gives this thread a table of descriptors of its own, with the standard streams and `keep` in it.
///
/// A thread does this first, before it opens anything, and owns none of the descriptors that others have
/// opened: it borrows those in `keep`, which must stay open until this returns, and what it closes is closed
/// for itself alone.
pub fn keep_only(mut keep: Vec<RawFd>) -> Result<()> {
    // SAFETY: CLONE_FILES copies the table; no memory is concerned.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(crate::process::last_errno());
    }
    // SAFETY: the table is this thread's alone now, and the caller uses no others here.
    unsafe { close_all_but(&mut keep) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;
    use std::os::fd::BorrowedFd;

    #[test]
    fn what_a_thread_does_not_keep_is_closed_for_it_alone() {
        let open = |fd: RawFd| {
            // SAFETY: the descriptor is only asked about, and an error is an answer.
            rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok()
        };
        let (kept, other) = (std::fs::File::open("/").unwrap(), std::fs::File::open("/").unwrap());
        let (kept, other) = (&kept, &other);
        let (kept, other) = (kept.as_raw_fd(), other.as_raw_fd());
        let there = std::thread::spawn(move || {
            keep_only(vec![kept]).unwrap();
            (open(kept), open(other))
        });
        assert_eq!(there.join().unwrap(), (true, false));
        assert!(open(kept) && open(other));
    }
}
