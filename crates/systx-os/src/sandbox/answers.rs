//! Which file systems answer: processes that try them in place of this one.
//!
//! Owns: these processes and how long they are waited for. Guarantees: a file system that is frozen
//! (FIFREEZE), or whose device is stuck, keeps only its own process waiting, which holds nothing of the
//! caller's and ends when the file system answers. Not even SIGKILL ends such a wait. Does not: say anything
//! of a moment later.

use super::{close_all_but, exit_now, helper, require_one_thread, withdraw, Side};
use crate::process;
use crate::types::Result;
use crate::Linux;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The operation that is tried.
#[derive(Clone, Copy)]
pub enum Trial {
    /// Makes a nameless file, which a frozen file system does not.
    Write,
    /// Makes a file and syncs it, which a stuck device does not.
    Sync,
}

/// Tries it below each of `dirs` at once; whether it had an end (an error is one) within `limit`.
///
/// # Errors
/// `EBUSY` when this process has more than one thread; else what clone3 answers.
pub fn answer(dirs: &[OwnedFd], trial: Trial, limit: Duration) -> Result<Vec<bool>> {
    require_one_thread()?;
    let tries = dirs.iter().map(|dir| start(dir, trial)).collect::<Result<Vec<_>>>()?;
    let deadline = Instant::now() + limit;
    Ok(tries.iter().map(|pidfd| has_ended(pidfd, deadline)).collect())
}

/// A process that tries it below `dir`.
fn start(dir: &OwnedFd, trial: Trial) -> Result<OwnedFd> {
    // SAFETY: one thread (checked); the child's side ends in `exit_now`.
    match unsafe { helper::clone3_apart() }? {
        Side::Child => {
            withdraw();
            // SAFETY: only `dir` is used from here on.
            unsafe { close_all_but(&mut [dir.as_raw_fd()]) };
            let done = std::panic::catch_unwind(|| match trial {
                Trial::Write => Linux::new().try_to_make(dir),
                Trial::Sync => Linux::new().try_to_sync(dir),
            });
            exit_now(if done.is_ok() { 0 } else { 1 })
        }
        Side::Parent(pidfd, _) => Ok(pidfd),
    }
}

/// Returns true if the process has ended by then. One that has not is killed, which takes effect when its
/// call returns.
fn has_ended(pidfd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(1) => {
                // ECHILD when our parent made us ignore SIGCHLD.
                let _ = process::wait(pidfd);
                return true;
            }
            Ok(_) if left.is_zero() => {
                let _ = process::kill(pidfd);
                return false;
            }
            // A signal, or the last moment: once more.
            _ => {}
        }
    }
}
