//! The helper process, which outlives `systx` and finishes what it left behind.
//!
//! Owns: its start, its wait and its dismissal. Guarantees: it shares no terminal, no process group, no
//! standard stream and, where cgroup v2 lets it, no cgroup with `systx`; it does its work if and only if
//! `systx` is dead and has not dismissed it, or has left it some. Does not: know the work.
//!
//! On the pipe one byte is the dismissal, its end without a byte is death, and words are work that is left to
//! the helper. After a death the pidfd shows when the address space, too, is gone, on which locks of owners
//! depend. Another pipe tells `systx` that the helper has taken over what it was left.

use super::{clone3, close_all_but, exit_now, require_one_thread, withdraw, Side};
use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;

/// Why a helper is to work.
pub enum Call {
    /// This process has died.
    Died,
    /// This process goes, and has left it these words ([`Helper::leave`]).
    Left(Vec<u64>, Taken),
}

/// To be dropped when the helper has taken over: until then [`Helper::leave`] waits.
pub struct Taken {
    _told: OwnedFd,
}

/// Words that can be left to a helper.
pub const WORDS_MAX: usize = 500;

/// The parent's end of a helper.
pub struct Helper {
    leave: OwnedFd,
    taken: OwnedFd,
    pidfd: OwnedFd,
}

/// Starts a helper that keeps only the descriptors in `keep` and runs `work` if this process dies, or leaves it
/// something.
///
/// # Errors
/// `EBUSY` when this process has more than one thread; else what pipe, pidfd_open or clone3 answer.
pub fn start(keep: &[BorrowedFd<'_>], work: impl FnOnce(Call)) -> Result<Helper> {
    require_one_thread()?;
    let me = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    let (wait, leave) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (taken, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: one thread (checked); the child's side is `watch`, which never returns.
    match unsafe { clone3_apart() }? {
        Side::Child => watch(keep, &wait, &me, Taken { _told: told }, work),
        Side::Parent(pidfd, _) => Ok(Helper { leave, taken, pidfd }),
    }
}

impl Helper {
    /// Dismisses the helper process: it is not needed any more.
    pub fn dismiss(&self) {
        // It can only have died before us.
        let _ = rustix::io::write(&self.leave, &[DISMISSED]);
    }

    /// Leaves the work to the helper: it begins when this process is gone.
    pub fn bequeath(self) {
        // The end of the pipe stays open as long as this process lives.
        core::mem::forget(self.leave);
    }

    /// Leaves something to be done to the helper, which begins at once; not more than [`WORDS_MAX`]. Returns
    /// when it has taken over, or is gone, or after a moment in which it did not get to run.
    pub fn leave(&self, words: &[u64]) {
        let mut message = vec![LEFT];
        message.extend(words.iter().take(WORDS_MAX).flat_map(|word| word.to_ne_bytes()));
        // At once, as a pipe takes so much at once. It can only have died before us.
        let _ = rustix::io::write(&self.leave, &message);
        let mut taken = [PollFd::new(&self.taken, PollFlags::IN)];
        let _ = rustix::event::poll(&mut taken, Some(&Timespec { tv_sec: 0, tv_nsec: TAKES_MAX_NS }));
    }

    /// Dismisses the helper and waits until it is gone.
    pub fn reap(self) {
        self.dismiss();
        // ECHILD when our parent made us ignore SIGCHLD.
        let _ = crate::process::wait(&self.pidfd);
    }
}

/// First byte of what comes through the pipe.
const DISMISSED: u8 = 1;
const LEFT: u8 = 2;

/// Longest wait for a helper that takes over, in nanoseconds.
const TAKES_MAX_NS: i64 = 100_000_000;

/// clone3(2) into the cgroup for helpers, where that can be.
///
/// # Safety
/// As of [`clone3`].
pub(super) unsafe fn clone3_apart() -> Result<Side> {
    let cgroup = cgroup();
    // SAFETY: the caller's.
    match unsafe { clone3(0, cgroup.as_ref().map(AsFd::as_fd)) } {
        // Not our cgroup to enter after all.
        // SAFETY: the caller's.
        Err(_) if cgroup.is_some() => unsafe { clone3(0, None) },
        other => other,
    }
}

/// A cgroup for helpers, so that stopping a service's or a session's group does not take them along.
fn cgroup() -> Option<OwnedFd> {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    if rustix::fs::statfs(c"/sys/fs/cgroup").ok()?.f_type as u64 != CGROUP2_SUPER_MAGIC {
        return None;
    }
    let path = c"/sys/fs/cgroup/systx";
    let open =
        || rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    open().or_else(|_| rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755)).and_then(|()| open())).ok()
}

/// Moves this process there, if it may: a watcher, which a process of some service has started.
pub fn enter_cgroup() {
    if let Some(cgroup) = cgroup() {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        // One that may not stays where it is, and ends with its service.
        let _ = rustix::fs::openat(&cgroup, c"cgroup.procs", flags, Mode::empty())
            .and_then(|procs| rustix::io::write(procs, b"0"));
    }
}

/// The life of the helper.
fn watch(
    keep: &[BorrowedFd<'_>],
    wait: &OwnedFd,
    systx: &OwnedFd,
    taken: Taken,
    work: impl FnOnce(Call),
) -> ! {
    withdraw();
    let _ = rustix::thread::set_name(c"systx-helper");
    let ours = [wait.as_raw_fd(), systx.as_raw_fd(), taken._told.as_raw_fd()];
    let mut fds: Vec<_> = keep.iter().map(AsRawFd::as_raw_fd).chain(ours).collect();
    // SAFETY: what `work` may use is in `keep`; the copies of all other values are never touched or dropped again.
    unsafe { close_all_but(&mut fds) };
    let mut message = [0u8; 1 + 8 * WORDS_MAX];
    let call = match rustix::io::retry_on_intr(|| rustix::io::read(wait, &mut message)) {
        Ok(0) => Call::Died,
        Ok(length) if message[0] == LEFT => {
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
            Call::Left(message[1..length].chunks(8).map(word).collect(), taken)
        }
        _ => exit_now(0),
    };
    if matches!(call, Call::Died) {
        let mut gone = [PollFd::new(systx, PollFlags::IN)];
        while rustix::event::poll(&mut gone, None) == Err(Errno::INTR) {}
    }
    // A panic here must not run on into the caller's frames.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(call)));
    exit_now(if done.is_ok() { 0 } else { 1 })
}
