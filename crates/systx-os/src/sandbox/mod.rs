//! The kernel side of `systx run`: a command in namespaces of its own, and the helper that watches over its
//! commit.
//!
//! Owns: reading the mount table ([`mounts`]), the steps that build the command's root ([`root`]), the two
//! processes of a command, its pid 1 and itself ([`spawn`]), commands that come into namespaces that are
//! there ([`join`]), the process that holds such namespaces open ([`apart`]), the user namespace of who has
//! no privileges ([`own`]), calls that reach what is outside ([`watch`], [`calls`], [`inside`]), directories that
//! the kernel serves by itself ([`bind`]) and calls across their border ([`across`]), threads that look into a view of
//! their own process ([`few`]), the helper ([`helper`]), and processes that try whether a file system answers
//! ([`answers`]). Guarantees: no process of a command outlives its pid 1, its pid 1 never outlives `systx`, and mounts
//! live in the command's own mount namespace, so that nothing is left to clean up however any of them dies. Does not: decide what is mounted where, or know what a transaction is.
//!
//! ```text
//! systx ──clone3──► pid 1 of the namespaces ──clone3──► the command
//!   └────clone3──► helper (own session)
//! ```
//!
//! Who holds namespaces open starts pid 1 alone; who joins has a guest in place of pid 1.
//!
//! All are started while `systx` has one thread only; that is checked, because a copy of a process with
//! several threads may find any lock taken for ever.
//!
//! Minimum kernel version: 5.12 (mount_setattr).

pub mod across;
pub mod answers;
pub mod apart;
pub mod bind;
pub mod calls;
pub mod few;
pub mod helper;
pub mod inside;
pub mod join;
pub mod mounts;
pub mod own;
pub mod root;
pub mod spawn;
pub mod vigil;
pub mod watch;

use crate::process::last_errno;
use crate::types::Result;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;

/// `CLONE_INTO_CGROUP` of linux/sched.h; libc's constant has too few bits for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a clone we are on.
enum Side {
    /// The child.
    Child,
    /// The parent, with a pidfd of the child and its number.
    Parent(OwnedFd, libc::pid_t),
}

/// clone3(2) without a new stack: a fork with flags.
///
/// # Safety
/// The process has one thread, or the child calls only async-signal-safe functions. The child must not return past the
/// frame of the caller's caller: it ends in `_exit` or exec.
unsafe fn clone3(flags: i32, cgroup: Option<BorrowedFd<'_>>) -> Result<Side> {
    let mut pidfd: RawFd = -1;
    let into = if cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 };
    // SAFETY: clone_args is plain old data for which all zeroes is valid.
    let mut args: libc::clone_args = unsafe { core::mem::zeroed() };
    args.flags = (flags | libc::CLONE_PIDFD) as u32 as u64 | into;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = cgroup.map_or(0, |fd| fd.as_raw_fd() as u64);
    // SAFETY: `args` is a valid clone_args of the size given, `pidfd` outlives the call; no memory is shared.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        0 => Ok(Side::Child),
        // SAFETY: the kernel stored a new descriptor of ours in `pidfd`.
        1.. => Ok(Side::Parent(unsafe { OwnedFd::from_raw_fd(pidfd) }, pid as libc::pid_t)),
        _ => Err(last_errno()),
    }
}

/// Fails with `EBUSY` when this process has more than one thread. The kernel counts a joined thread until it
/// has ended altogether, a moment later, and nothing reports when: so it is asked for a while.
fn require_one_thread() -> Result<()> {
    const TIMES: usize = 200;
    const BETWEEN: std::time::Duration = std::time::Duration::from_micros(500);
    for n in 0..TIMES {
        match std::fs::metadata("/proc/self/task") {
            // A directory's link count is 2 and one for each directory in it: proc(5).
            Ok(task) if std::os::unix::fs::MetadataExt::nlink(&task) == 3 => return Ok(()),
            Ok(_) if n + 1 < TIMES => std::thread::sleep(BETWEEN),
            Ok(_) => {}
            Err(e) => return Err(Errno::from_io_error(&e).unwrap_or(Errno::NOENT)),
        }
    }
    Err(Errno::BUSY)
}

/// Closes every descriptor from 3 on but those in `keep`, which is sorted in place.
///
/// # Safety
/// Nothing in this process may use any of the others again; a child that ends in `_exit` has no destructors to run.
unsafe fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut first: libc::c_uint = 3;
    for fd in keep.iter().filter_map(|fd| libc::c_uint::try_from(*fd).ok()).filter(|fd| *fd >= 3) {
        if fd > first {
            // SAFETY: the caller gave up these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = first.max(fd + 1);
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
}

/// Gives up session, working directory and standard streams, and takes no signal that can be refused.
/// Failures leave this process less well hidden, which is no reason to go without it.
fn withdraw() {
    let _ = rustix::process::setsid();
    block_all_signals();
    let _ = rustix::process::chdir(c"/");
    if let Ok(null) = rustix::fs::openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn block_all_signals() {
    let mut all = core::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset writes a whole sigset_t.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: initialised by the line above; the old mask is not asked for.
    if unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut()) } != 0 {
        // Without it the process may die early; recovery by the next use still holds.
        let _ = last_errno();
    }
}

/// Ends this process without running destructors or exit handlers.
fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes any number and does not return.
    unsafe { libc::_exit(status) }
}
