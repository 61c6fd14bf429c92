//! Processes as the command line needs them: signals held for a descriptor, pidfds, the terminal, inherited
//! descriptors.
//!
//! Owns: the mask of signals that `systx` takes care of, and what a process says when it ends. Guarantees:
//! nothing here changes a signal's disposition, so that a command started later finds every disposition as
//! `systx` found it. Does not: start processes (that is [`crate::sandbox`]).

use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
};
use std::sync::OnceLock;

/// Signals that `systx run` takes by descriptor instead of dying from them.
const HELD: [i32; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGTSTP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    // Giving the terminal back from the background must not stop us.
    libc::SIGTTOU,
];

/// The limit on the size of files as [`lift_size_limit`] found it.
static SIZE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Lifts this process's limit on the size of files (RLIMIT_FSIZE), as far as it may: it holds for what a
/// command writes, not for the table and the log. What is left of it becomes `EFBIG` instead of death in
/// mid-commit. A command gets both back.
///
/// Source: setrlimit(2).
pub fn lift_size_limit() {
    let found = *SIZE_LIMIT.get_or_init(|| getrlimit(Resource::Fsize));
    let limits =
        [Rlimit { current: None, maximum: None }, Rlimit { current: found.maximum, maximum: found.maximum }];
    let _ = limits.into_iter().find(|limit| setrlimit(Resource::Fsize, *limit).is_ok());
    // SAFETY: SIGXFSZ exists and SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Restores what [`lift_size_limit`] has changed, for a command that is about to be executed.
pub(crate) fn restore_size_limit() {
    if let Some(found) = SIZE_LIMIT.get() {
        let _ = setrlimit(Resource::Fsize, *found);
        // SAFETY: SIGXFSZ exists and SIG_DFL runs no code of ours.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

impl Ended {
    /// The status as shells count it: 128 + n for a signal.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(status) => status,
            Ended::Signaled(signal) => signal.wrapping_add(128),
        }
    }
}

/// The signal of a terminal's interrupt key.
pub const INTERRUPT: i32 = libc::SIGINT;

/// Returns true if a held signal asks a process to end.
pub fn asks_for_an_end(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP)
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Number of the signal.
    pub signal: i32,
    /// True if the kernel sent it, as a terminal does: then the whole foreground group has it already.
    pub by_kernel: bool,
}

/// Runs `work` with all signals blocked in the calling thread: one that it starts never gets any of the host
/// program's signals.
///
/// Source: pthread_sigmask(3).
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = empty_set();
    let mut before = empty_set();
    // SAFETY: sigfillset writes a whole set.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: both sets are valid and initialised for the whole call; it cannot fail with this operation.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    let done = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    done
}

/// The held signals: blocked in this process and readable from a descriptor until dropped.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Starts to hold the signals. Threads started later inherit the mask.
    pub fn hold() -> Result<Signals> {
        let set = set_of(&HELD);
        let mut before = empty_set();
        // SAFETY: both sets are valid and initialised for the whole call.
        if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) } != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: `set` is a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: signalfd returned this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, before })
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The next signal that arrived, if any.
    pub fn next(&self) -> Option<Arrived> {
        let mut buf = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut buf) {
            Ok(n) if n == buf.len() => {}
            _ => return None,
        }
        let word = |at: usize| i32::from_ne_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]]);
        // ssi_signo is at 0 and ssi_code at 8: signalfd(2).
        Some(Arrived { signal: word(0), by_kernel: word(8) > 0 })
    }

    /// The mask from before, for a command to start with.
    pub(crate) fn mask_before(&self) -> libc::sigset_t {
        self.before
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that came too late to matter must not kill us with the transaction's outcome unsaid.
        while self.next().is_some() {}
        // SAFETY: `before` was filled in by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut()) };
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset writes a whole sigset_t.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above, which can't fail for a valid pointer.
    unsafe { set.assume_init() }
}

/// The set of these signals.
pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` is initialised; an unknown number is refused with EINVAL and changes nothing.
        unsafe { libc::sigaddset(&mut set, *signal) };
    }
    set
}

/// errno of the libc call that just failed.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Waits until at least one of the descriptors is readable or at its end; returns which.
pub fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N]) -> [bool; N] {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // Only a signal or lack of memory can end it early, and then it is waited again.
    while rustix::event::poll(&mut fds, None).is_err() {}
    fds.map(|fd| !fd.revents().is_empty())
}

/// Waits for any number of descriptors, of which some may be left out; returns which are readable or at their
/// ends.
pub fn wait_readable_of(fds: &[Option<BorrowedFd<'_>>]) -> Vec<bool> {
    let mut polled: Vec<_> =
        fds.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    while rustix::event::poll(&mut polled, None).is_err() {}
    let mut found = polled.iter().map(|fd| !fd.revents().is_empty());
    fds.iter().map(|fd| fd.is_some() && found.next().unwrap_or(false)).collect()
}

/// Standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Standard input and output.
    InAndOut,
    /// Standard error, too.
    All,
}

/// Puts /dev/null in place of standard streams, so that a reader that waits for their end does not wait for
/// this process, or for those that it starts.
pub fn let_go_of_streams(streams: Streams) -> Result<()> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open(c"/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if streams == Streams::All {
        rustix::stdio::dup2_stderr(&null)
    } else {
        Ok(())
    }
}

/// The group that this process acts as.
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// A point in time that can be waited for like a descriptor.
#[derive(Debug)]
pub struct Deadline(OwnedFd);

impl Deadline {
    /// Sets a time from now, on a clock that can't be set; `None`: never.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new(time: Option<core::time::Duration>) -> Result<Deadline> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        if let Some(time) = time {
            let never_again = Timespec::default();
            // Beyond what the kernel can count is never.
            if let Ok(it_value) = Timespec::try_from(time) {
                let once = Itimerspec { it_interval: never_again, it_value };
                timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
            }
        }
        Ok(Deadline(timer))
    }

    /// Waits for so long, or until it is over. A signal may end the wait sooner.
    pub fn pause(&self, time: core::time::Duration) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        // Without a way to wait, go on.
        let _ = rustix::event::poll(&mut fds, time.as_ref());
    }
}

impl AsFd for Deadline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns true if a terminal or a pipe takes some bytes at once.
pub fn takes_more(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(1)
}

/// Returns a descriptor that is readable when the process has ended; the process may have any parent.
///
/// # Errors
///
/// `ESRCH`: there is none with that number.
pub fn watch(pid: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
}

/// Returns true if a process of that number is alive, here: one that has ended and waits for its parent is
/// not.
pub fn lives(pid: u32) -> bool {
    let Ok(process) = watch(pid) else { return false };
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

/// Stops this process, as ^Z does; returns when it is continued.
pub(crate) fn stop_self() {
    // Nothing can be done about a failure, and none is possible for a signal to oneself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Kills the process behind a pidfd.
pub fn kill(pidfd: &OwnedFd) -> Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Err(Errno::SRCH) => Ok(()),
        other => other,
    }
}

/// Waits for the child behind a pidfd and reaps it.
pub fn wait(pidfd: &OwnedFd) -> Result<Ended> {
    wait_for(pidfd, WaitIdOptions::EXITED)
}

/// As [`wait`]; but a child that is stopped is killed.
pub(crate) fn wait_unless_stopped(pidfd: &OwnedFd) -> Result<Ended> {
    wait_for(pidfd, WaitIdOptions::EXITED | WaitIdOptions::STOPPED)
}

fn wait_for(pidfd: &OwnedFd, options: WaitIdOptions) -> Result<Ended> {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Err(Errno::INTR) | Ok(None) => {}
            Err(e) => return Err(e),
            Ok(Some(status)) if status.stopped() => kill(pidfd)?,
            Ok(Some(status)) => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ended::Exited(code as u8),
                    (None, signal) => Ended::Signaled(signal.unwrap_or(0) as u8),
                })
            }
        }
    }
}

/// The terminal's foreground process group, if one of the standard streams is our terminal.
pub struct Terminal {
    tty: OwnedFd,
    ours: Pid,
    /// Settings of the terminal at that moment.
    settings: Option<rustix::termios::Termios>,
}

impl Terminal {
    /// The controlling terminal, when this process group is in its foreground.
    pub fn foreground() -> Option<Terminal> {
        // A group that was made outside of this pid namespace has the number 0 here, which rustix's getpgrp takes for
        // impossible; such a group's terminal is none that we could hand on.
        // SAFETY: getpgrp(2) takes nothing and can't fail.
        let ours = Pid::from_raw(unsafe { libc::getpgrp() })?;
        let std = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let tty = std.into_iter().find(|fd| rustix::termios::tcgetpgrp(fd) == Ok(ours))?;
        let tty = rustix::io::fcntl_dupfd_cloexec(tty, 3).ok()?;
        let settings = rustix::termios::tcgetattr(&tty).ok();
        Some(Terminal { tty, ours, settings })
    }

    /// Returns true if our own process group is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.holder() == Some(self.ours)
    }

    /// Returns the process group in the foreground.
    pub fn holder(&self) -> Option<Pid> {
        rustix::termios::tcgetpgrp(&self.tty).ok()
    }

    /// Puts a group into the foreground. SIGTTOU must be held ([`Signals::hold`]).
    pub fn give(&self, group: Pid) {
        // A group that has died meanwhile is no harm: the shell takes its terminal anyway.
        let _ = rustix::termios::tcsetpgrp(&self.tty, group);
    }

    /// Puts its settings back, as after a program that was killed and had no time to. SIGTTOU must be held.
    pub fn restore(&self) {
        if let Some(settings) = &self.settings {
            let now = rustix::termios::OptionalActions::Drain;
            // One that is gone needs none.
            let _ = rustix::termios::tcsetattr(&self.tty, now, settings);
        }
    }

    /// Puts our own group back into the foreground: a shell inside a pid namespace can't name it.
    pub fn take_back(&self) {
        if self.holder() != Some(self.ours) {
            self.give(self.ours);
        }
    }
}

/// Takes over descriptor `n` that our parent opened for us, closed on exec from now on.
///
/// To be called once per number, before anything else could own it: the first three are refused.
pub fn inherited(n: RawFd) -> Result<OwnedFd> {
    if n < 3 {
        return Err(Errno::BADF);
    }
    // SAFETY: fcntl on a number is harmless whatever it stands for; it fails for a closed one.
    if unsafe { libc::fcntl(n, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(last_errno());
    }
    // A duplicate has one owner for certain, though other code may know `n`.
    // SAFETY: `n` is open (checked above) and is borrowed for this one call only.
    let fd = unsafe { BorrowedFd::borrow_raw(n) };
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

/// Replaces this process by a command, found like execvp(3) does. Returns only on failure.
pub fn exec(argv: &[std::ffi::OsString]) -> Errno {
    use std::os::unix::process::CommandExt;
    let Some((program, args)) = argv.split_first() else { return Errno::INVAL };
    let failed = std::process::Command::new(program).args(args).exec();
    Errno::from_io_error(&failed).unwrap_or(Errno::INVAL)
}
/// System calls that write to an open file. In none of the numberings that one kernel may have at the same
/// time does another one that changes a file have one of these numbers (x86: chown and its like are 16, 95,
/// 182, 198, 207, 212 and 298 for 32-bit programs).
const WRITES: [libc::c_long; 10] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_io_uring_enter,
];

/// Returns true if a thread that sleeps in the kernel is in a system call that writes to an open file. False
/// where that can't be known.
pub fn is_writing(thread: u32) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let number = said.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| WRITES.contains(&number))
}

/// The nice value of the calling thread.
pub fn nice() -> i8 {
    // The kernel's answer is 20 less the value, so that it is no error.
    // SAFETY: numbers only; 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
    if answer < 1 {
        0
    } else {
        (20 - answer) as i8
    }
}

/// The process group of this process; 0 if its leader is in a process namespace above.
pub fn process_group() -> u32 {
    // SAFETY: takes nothing and can't fail.
    unsafe { libc::getpgrp() }.unsigned_abs()
}

/// Returns true if a process group has members that this process can see.
pub fn group_exists(group: u32) -> bool {
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    group.is_some_and(|group| rustix::process::test_kill_process_group(group) != Err(Errno::SRCH))
}
