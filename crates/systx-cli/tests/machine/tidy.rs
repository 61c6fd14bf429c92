//! Taking away what a test has mounted and made, within a bounded time.
//!
//! A kernel that doesn't come back from umount(2) or unlink(2) must not keep the other tests from running: what is left
//! goes with the mount namespace.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::process::{Command, Stdio};

/// Far beyond what unmounting takes on a busy machine.
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Runs a tool that takes something away. Its failure does not matter; if it hangs, that is reported, with
/// the place.
pub fn tidy(command: &mut Command) {
    // With nothing of the test's: a tool that hangs must not hold the pipe from which the test's words are
    // read.
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return };
    let pid = Pid::from_raw(child.id() as i32).expect("a child's number is positive");
    let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&LIMIT)) == Ok(0) {
        let stack = std::fs::read_to_string(format!("/proc/{}/stack", child.id())).unwrap_or_default();
        println!("left behind: {command:?} hasn't come back for {} s; it is in:\n{stack}", LIMIT.tv_sec);
        let _ = child.kill();
        return;
    }
    let _ = child.wait();
}
