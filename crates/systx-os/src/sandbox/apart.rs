//! A process that goes on when the one that started it has ended, and its terminal is closed.
//!
//! Owns: its start. Guarantees: it has a session of its own and none of the other's descriptors but the
//! standard streams, which it gives up itself ([`crate::process::let_go_of_streams`]) when it has no more to
//! say there. Does not: know what it does.

use super::{clone3, close_all_but, exit_now, require_one_thread, Side};
use crate::types::Result;
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Starts a process that runs `work` and ends with its status. `work` gets one end of a connected pair of
/// sockets, and the caller the other one.
///
/// # Errors
/// `EBUSY` when this process has more than one thread; else what socketpair or clone3 answer.
pub fn start(work: impl FnOnce(UnixStream) -> u8) -> Result<UnixStream> {
    require_one_thread()?;
    let (ours, theirs) = UnixStream::pair().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    // SAFETY: one thread (checked); the child's side ends in `exit_now`.
    match unsafe { clone3(0, None) }? {
        Side::Child => {
            // A process that was just made leads no group, so nothing can keep it from it.
            let _ = rustix::process::setsid();
            // SAFETY: `work` gets this one only; the copies of all others are never touched or dropped again.
            unsafe { close_all_but(&mut [theirs.as_raw_fd()]) };
            // A panic here must not run on into the caller's frames.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(theirs)));
            exit_now(done.map_or(101, i32::from))
        }
        Side::Parent(..) => Ok(ours),
    }
}
