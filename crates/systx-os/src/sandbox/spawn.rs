//! The two processes of a command: pid 1 of its namespaces, and the command itself.
//!
//! Owns: their start, the messages between pid 1 and `systx`, and their end. Guarantees: when the command
//! ends, pid 1 ends, and with it the kernel kills whatever is left in the namespace before [`Child::reap`]
//! returns; when `systx` dies, pid 1 is killed. Does not: interpret the command's status.
//!
//! Between clone and exec only system calls are made: everything that needs memory is prepared before. What
//! pid 1 does last may need some: it is a copy of a process with one thread.

use super::root::{Root, Stage};
use super::watch::{self, Network, Watch};
use super::{clone3, close_all_but, exit_now, require_one_thread, Side};
use crate::fuse::EventFd;
use crate::process::{self, last_errno, set_of, Ended, Signals};
use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::ffi::CString;

/// A command to be started.
pub struct Command {
    /// Program and arguments; empty: pid 1 is alone, and others [join](super::join) it.
    pub argv: Vec<CString>,
    /// Environment, `NAME=value`.
    pub env: Vec<CString>,
    /// Working directory, absolute.
    pub directory: CString,
    /// File mode creation mask.
    pub umask: u32,
    /// The tree it sees.
    pub root: Root,
    /// Numbers of the descriptors from which questions of that tree are answered. Pid 1 closes its copies
    /// before it asks: else, when the answering process dies, the kernel takes pid 1 for one that still might
    /// answer, and lets it wait for ever.
    pub answering: Vec<RawFd>,
    /// Watches the calls by which it reaches peers outside.
    pub watch: Option<Watch>,
    /// Work to be done inside at the end.
    pub last: Option<Last>,
}

/// The work of pid 1 when no other process is left inside, before it reports the end.
pub struct Last {
    /// Rung when there is something to do.
    pub due: EventFd,
    /// Descriptors that `work` uses, by their numbers.
    pub keep: Vec<RawFd>,
    /// Does it; whether that has succeeded.
    pub work: Box<dyn Fn() -> bool>,
}

/// A message of pid 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The tree could not be built; the command was not started.
    NotBuilt {
        /// Where, as a path without leading slash; `None` for the root or the working directory.
        at: Option<CString>,
        /// The kernel's answer.
        error: Errno,
    },
    /// The working directory does not exist inside.
    NoDirectory(Errno),
    /// The command could not be executed.
    NotExecuted(Errno),
    /// The namespaces that were to be joined could not be entered.
    NotEntered(Errno),
    /// Its calls could not be watched, or it could not get a network of its own.
    NotWatched(Errno),
    /// The tree stands, and no command runs in it, as there was none.
    Ready,
    /// The work at the end has failed.
    NotFinished,
    /// The work at the end is done: the answer to [`Child::finish`].
    Finished,
    /// The command was stopped by a signal.
    Stopped,
    /// It was continued.
    Continued,
    /// The command ended; pid 1 is on its way out.
    Ended(Ended),
}

/// A started command. Dropped before it was reaped, it is killed with everything it started.
pub struct Child {
    /// `None`: a guest, which is pid 1's child; its end of the socket alone reports it.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) pid: libc::pid_t,
    pub(super) talk: OwnedFd,
    pub(super) reaped: bool,
    pub(super) places: Vec<CString>,
}

/// The process between `systx` and a command.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// Pid 1: its end is everybody's. With what it is to do last.
    Init(Option<&'a Last>),
    /// A later one, with a command of its own; others stay.
    Guest,
}

/// Sent to pid 1 instead of a signal: kill all others, then end. A guest kills its command.
const EVERYTHING: i32 = 0;

/// [`EVERYTHING`], with the work at the end. No signal has this number.
const FINISH: i32 = 255;

/// Ask all others to end. No signal has this number.
const HANG_UP: i32 = 254;

/// As on every architecture that we run on; libc has it for some C libraries only.
const F_SETSIG: libc::c_int = 10;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Far beyond what killing takes.
const SILENCE_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A message from pid 1: kind and value.
#[derive(Clone, Copy)]
pub(super) struct Message(pub(super) u32, pub(super) i32);

impl Message {
    const BASE_FAILED: u32 = 1;
    const ENTER_FAILED: u32 = 2;
    pub(super) const NO_DIRECTORY: u32 = 3;
    pub(super) const NOT_EXECUTED: u32 = 4;
    const STOPPED: u32 = 5;
    const EXITED: u32 = 6;
    const SIGNALED: u32 = 7;
    const READY: u32 = 8;
    pub(super) const NOT_ENTERED: u32 = 9;
    pub(super) const NOT_WATCHED: u32 = 10;
    const NOT_FINISHED: u32 = 11;
    const FINISHED: u32 = 12;
    const CONTINUED: u32 = 13;
    /// And from here on: the step with index kind - STEP_FAILED.
    const STEP_FAILED: u32 = 1000;

    pub(super) fn send(self, talk: &OwnedFd) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.0.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.1.to_ne_bytes());
        // No process is left to report to when this fails.
        let _ = rustix::io::write(talk, &bytes);
    }
}

/// Starts a command. `signals` has the mask that it starts with.
///
/// # Errors
///
/// `EBUSY` when this process has more than one thread; else what clone3 answers: `EPERM` without privilege,
/// `ENOSYS` where it is forbidden.
pub fn spawn(command: Command, signals: &Signals) -> Result<Child> {
    require_one_thread()?;
    let argv = pointers(&command.argv);
    let env = pointers(&command.env);
    let prepared = command.watch.as_ref().map(Watch::prepare);
    let (talk, theirs) = socket_pair()?;
    let flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | watch::namespaces(command.watch.as_ref());
    // SAFETY: one thread (checked); the child's side is `init`, which never returns.
    match unsafe { clone3(flags, None) }? {
        Side::Child => {
            drop(talk);
            init(&command, prepared.as_ref(), Words { argv: &argv, env: &env }, &theirs, signals)
        }
        Side::Parent(pidfd, pid) => {
            let places = command.root.steps.iter().map(|step| step.at().to_owned()).collect();
            Ok(Child { pidfd: Some(pidfd), pid, talk, reaped: false, places })
        }
    }
}

impl Child {
    /// Its number, as this process sees it; until it is reaped no other process has it.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Readable when there is [`Child::news`].
    pub fn talk(&self) -> &OwnedFd {
        &self.talk
    }

    /// The next message; `None` when pid 1 died without one. Waits for it.
    pub fn news(&self) -> Option<News> {
        let mut bytes = [0; 8];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.talk, &mut bytes)).ok()?;
        if n != bytes.len() {
            return None;
        }
        let kind = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let value = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        // Made only where the value is an error number: others don't fit.
        let error = || Errno::from_raw_os_error(value);
        Some(match kind {
            Message::BASE_FAILED | Message::ENTER_FAILED => News::NotBuilt { at: None, error: error() },
            Message::NO_DIRECTORY => News::NoDirectory(error()),
            Message::NOT_EXECUTED => News::NotExecuted(error()),
            Message::NOT_ENTERED => News::NotEntered(error()),
            Message::NOT_WATCHED => News::NotWatched(error()),
            Message::READY => News::Ready,
            Message::NOT_FINISHED => News::NotFinished,
            Message::FINISHED => News::Finished,
            Message::STOPPED => News::Stopped,
            Message::CONTINUED => News::Continued,
            Message::EXITED => News::Ended(Ended::Exited(value as u8)),
            Message::SIGNALED => News::Ended(Ended::Signaled(value as u8)),
            step => {
                let at =
                    step.checked_sub(Message::STEP_FAILED).and_then(|i| self.places.get(i as usize)).cloned();
                News::NotBuilt { at, error: error() }
            }
        })
    }

    /// Sends a signal to the command (not to what it started).
    pub fn signal(&self, signal: i32) {
        // It may have ended: then no process gets it.
        let _ = rustix::io::write(&self.talk, &[signal as u8]);
    }

    /// Stops this process, as ^Z does, until it is continued, or the command is by somebody who knows only of that. Returns
    /// true if the command is to be continued, too.
    pub fn stop_with_it(&self) -> bool {
        let talk = self.talk.as_raw_fd();
        // A stopped process reads no message: while this one is, the next one comes as the signal that continues it.
        // SAFETY: fcntl(2) with these commands takes and returns numbers; the descriptor is ours.
        let flags = unsafe {
            libc::fcntl(talk, libc::F_SETOWN, libc::getpid());
            libc::fcntl(talk, F_SETSIG, libc::SIGCONT);
            libc::fcntl(talk, libc::F_GETFL)
        };
        // SAFETY: as above.
        let set = |flags: i32| unsafe { libc::fcntl(talk, libc::F_SETFL, flags) };
        set(flags | libc::O_ASYNC);
        let is_told =
            || rustix::event::poll(&mut [PollFd::new(&self.talk, PollFlags::IN)], Some(&NOW)) != Ok(0);
        if !is_told() {
            process::stop_self();
        }
        set(flags);
        // Who has continued the command may stop it again, which is not for us to undo.
        !is_told()
    }

    /// Continues the command after a stop.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills everything in the namespace, in such a way that nothing of it runs on when this returns, also
    /// what waits for an answer of ours: pid 1 could reach it only after its own death, which takes longer
    /// than an answer.
    pub fn silence(&self) {
        self.signal(EVERYTHING);
        let mut fds = [PollFd::new(&self.talk, PollFlags::IN)];
        // Until it has left, which the end of the messages shows; a pid 1 that was stopped can't.
        while rustix::event::poll(&mut fds, Some(&SILENCE_LIMIT)) == Ok(1) && self.news().is_some() {}
        self.kill();
    }

    /// Has pid 1 ask everybody else to end, by the signals that programs expect of a terminal that goes and
    /// of a machine that shuts down.
    pub fn hang_up(&self) {
        self.signal(HANG_UP);
    }

    /// Asks pid 1 to kill all others, to do the work at the end, and to end itself. Its [news](Child::news)
    /// report it.
    pub fn finish(&self) {
        self.signal(FINISH);
    }

    /// Kills everything in the namespace; of a guest its command.
    pub fn kill(&self) {
        match &self.pidfd {
            // Only ESRCH is possible, and that is what is wanted.
            Some(pidfd) => drop(crate::process::kill(pidfd)),
            None => self.signal(EVERYTHING),
        }
    }

    /// Waits until pid 1 is gone, and with it every process of the namespace; or until the guest is.
    pub fn reap(&mut self) {
        if !self.reaped {
            match &self.pidfd {
                // ECHILD when our parent made us ignore SIGCHLD: the kernel waits for them all the same.
                Some(pidfd) => drop(crate::process::wait(pidfd)),
                None => while self.news().is_some() {},
            }
            self.reaped = true;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}

pub(super) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([core::ptr::null()]).collect()
}

/// Makes two ends that keep messages apart and show when the other one is gone.
pub(super) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: socketpair returned this descriptor to us alone.
    let ours = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let theirs = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((ours, theirs))
}

/// Arguments and environment of a program, each with a null pointer behind it.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) argv: &'a [*const libc::c_char],
    pub(super) env: &'a [*const libc::c_char],
}

/// The life of pid 1.
fn init(
    command: &Command,
    watched: Option<&watch::Prepared<'_>>,
    Words { argv, env }: Words<'_>,
    talk: &OwnedFd,
    signals: &Signals,
) -> ! {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    for fd in &command.answering {
        // SAFETY: this copy of the process uses none of them and drops nothing: it ends in `_exit` or `execve`.
        unsafe { libc::close(*fd) };
    }
    // `systx` may have died before that line: its end of the socket is then closed.
    if hung_up(talk) {
        exit_now(1);
    }
    if let Err((stage, error)) = command.root.build() {
        let kind = match stage {
            Stage::Base => Message::BASE_FAILED,
            Stage::Enter => Message::ENTER_FAILED,
            Stage::Step(index) => Message::STEP_FAILED.saturating_add(index as u32),
        };
        Message(kind, error.raw_os_error()).send(talk);
        exit_now(1);
    }
    if let Err(error) = rustix::process::chdir(command.directory.as_c_str()) {
        Message(Message::NO_DIRECTORY, error.raw_os_error()).send(talk);
        exit_now(1);
    }
    if command.watch.as_ref().is_some_and(|watch| watch.network == Network::Own) {
        if let Err(error) = watch::loopback_up() {
            Message(Message::NOT_WATCHED, error.raw_os_error()).send(talk);
            exit_now(1);
        }
    }
    // Those who join this process are watched by themselves.
    if let Some(watched) = watched.filter(|_| !command.argv.is_empty()) {
        if let Err(error) = watch::begin(watched) {
            Message(Message::NOT_WATCHED, error.raw_os_error()).send(talk);
            exit_now(1);
        }
    }
    // Children must be waited for even if `systx` was started with SIGCHLD ignored.
    let child_signal = ChildSignal::Default.set();
    let Ok(children) = children_signal() else { exit_now(1) };
    if command.argv.is_empty() {
        let mut keep = command.last.as_ref().map_or_else(Vec::new, Last::descriptors);
        keep.extend([talk.as_raw_fd(), children.as_raw_fd()]);
        // SAFETY: this process uses nothing but these from here on and ends in `_exit`.
        unsafe { close_all_but(&mut keep) };
        Message(Message::READY, 0).send(talk);
        serve(talk, &children, None, Role::Init(command.last.as_ref()))
    }
    // SAFETY: this copy has one thread; the child's side is `execute`, which never returns.
    let (pidfd, pid) = match unsafe { clone3(0, None) } {
        Ok(Side::Child) => {
            // Pid 1 keeps them for the end.
            if let Err(error) = super::own::drop_privileges() {
                Message(Message::ENTER_FAILED, error.raw_os_error()).send(talk);
                exit_now(1);
            }
            execute(command.umask, argv, env, talk, signals, child_signal)
        }
        Ok(Side::Parent(pidfd, pid)) => (pidfd, pid),
        Err(error) => {
            Message(Message::NOT_EXECUTED, error.raw_os_error()).send(talk);
            exit_now(1);
        }
    };
    let mut keep = command.last.as_ref().map_or_else(Vec::new, Last::descriptors);
    keep.extend([talk.as_raw_fd(), children.as_raw_fd(), pidfd.as_raw_fd()]);
    // SAFETY: this process uses nothing but these from here on and ends in `_exit`.
    unsafe { close_all_but(&mut keep) };
    serve(talk, &children, Some((&pidfd, pid)), Role::Init(command.last.as_ref()))
}

impl Last {
    fn descriptors(&self) -> Vec<RawFd> {
        self.keep.iter().copied().chain([self.due.as_fd().as_raw_fd()]).collect()
    }

    /// Ends everybody else, and does it if there is something to do; whether that has succeeded.
    fn done(&self) -> bool {
        // SAFETY: kill takes two numbers. -1 is everybody that this process can see, but itself: its namespace.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        // Locks that prove a living process go with its address space: a process that can be waited for has
        // none any more.
        // SAFETY: a null status is allowed; nothing else is memory.
        while unsafe { libc::waitpid(-1, core::ptr::null_mut(), libc::__WALL) } > 0
            || last_errno() == Errno::INTR
        {}
        if !self.due.is_rung() {
            return true;
        }
        // A panic here must not run on into the caller's frames.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.work)())).unwrap_or(false)
    }
}

/// Reaps, reports and forwards until the command ends; without one, until `systx` says or dies.
pub(super) fn serve(
    talk: &OwnedFd,
    children: &OwnedFd,
    command: Option<(&OwnedFd, libc::pid_t)>,
    role: Role<'_>,
) -> ! {
    let is_init = matches!(role, Role::Init(_));
    loop {
        let mut fds = [PollFd::new(talk, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
        if rustix::event::poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            let mut signal = [0u8];
            match rustix::io::read(talk, &mut signal) {
                // `systx` is gone. The kernel kills everybody with pid 1.
                Ok(0) | Err(_) if is_init => exit_now(1),
                Ok(_) if i32::from(signal[0]) == FINISH && is_init => {
                    leave(talk, role, Message(Message::FINISHED, 0));
                }
                Ok(_) if i32::from(signal[0]) == HANG_UP && is_init => {
                    // Guests hold these two, as who started them does.
                    for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGCONT] {
                        // SAFETY: kill takes two numbers. -1 is everybody that this process can see, but
                        // itself: its namespace.
                        unsafe { libc::kill(-1, signal) };
                    }
                }
                Ok(_) if i32::from(signal[0]) == EVERYTHING && is_init => {
                    // SAFETY: kill takes two numbers. -1 is everybody that this process can see, but itself:
                    // its namespace.
                    unsafe { libc::kill(-1, libc::SIGKILL) };
                    exit_now(1)
                }
                told => {
                    let signal =
                        told.map_or(EVERYTHING, |n| if n == 0 { EVERYTHING } else { signal[0].into() });
                    if let Some((pidfd, _)) = command {
                        send_signal(pidfd, if signal == EVERYTHING { libc::SIGKILL } else { signal });
                    }
                    if signal == EVERYTHING {
                        exit_now(1);
                    }
                }
            }
        }
        if !fds[1].revents().is_empty() {
            let mut taken = [0u8; size_of::<libc::signalfd_siginfo>()];
            let _ = rustix::io::read(children, &mut taken);
            reap_children(talk, command.map(|(_, pid)| pid), role);
        }
    }
}

/// Reports the end when the work before it is done, and ends.
fn leave(talk: &OwnedFd, role: Role<'_>, message: Message) -> ! {
    let done = match role {
        Role::Init(Some(last)) => last.done(),
        Role::Init(None) | Role::Guest => true,
    };
    (if done { message } else { Message(Message::NOT_FINISHED, 0) }).send(talk);
    // Of pid 1: the kernel now kills what is left, and this process can be reaped only when all of it is
    // gone.
    exit_now(0)
}

fn reap_children(talk: &OwnedFd, command: Option<libc::pid_t>, role: Role<'_>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for an int.
        let pid =
            unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
        if pid <= 0 {
            return;
        }
        if Some(pid) != command {
            continue;
        }
        if libc::WIFSTOPPED(status) {
            Message(Message::STOPPED, libc::WSTOPSIG(status)).send(talk);
        } else if libc::WIFCONTINUED(status) {
            Message(Message::CONTINUED, 0).send(talk);
        } else {
            let message = if libc::WIFEXITED(status) {
                Message(Message::EXITED, libc::WEXITSTATUS(status))
            } else {
                Message(Message::SIGNALED, libc::WTERMSIG(status))
            };
            leave(talk, role, message);
        }
    }
}

fn send_signal(pidfd: &OwnedFd, signal: i32) {
    // SAFETY: a null siginfo is allowed and means SI_USER; nothing else is memory.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            core::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
}

/// Returns true if the other end is closed.
pub(super) fn hung_up(talk: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(talk, PollFlags::empty())];
    let now = Timespec::default();
    let _ = rustix::event::poll(&mut fds, Some(&now));
    fds[0].revents().contains(PollFlags::HUP)
}

/// Blocks SIGCHLD and makes it readable.
pub(super) fn children_signal() -> Result<OwnedFd> {
    let set = set_of(&[libc::SIGCHLD]);
    // SAFETY: `set` is valid; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, core::ptr::null_mut()) };
    // SAFETY: `set` is a valid set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: signalfd returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The disposition of SIGCHLD.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildSignal {
    Default,
    Ignored,
}

impl ChildSignal {
    /// Sets it; returns the one before.
    pub(super) fn set(self) -> ChildSignal {
        let disposition = match self {
            ChildSignal::Default => libc::SIG_DFL,
            ChildSignal::Ignored => libc::SIG_IGN,
        };
        // SAFETY: SIGCHLD exists, and neither disposition runs code of ours.
        match unsafe { libc::signal(libc::SIGCHLD, disposition) } {
            libc::SIG_IGN => ChildSignal::Ignored,
            _ => ChildSignal::Default,
        }
    }
}

/// The command's side: from fork to exec.
pub(super) fn execute(
    umask: u32,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
    talk: &OwnedFd,
    signals: &Signals,
    child_signal: ChildSignal,
) -> ! {
    // As found when `systx` was started.
    child_signal.set();
    // Rust's runtime ignores SIGPIPE in `systx`; a command expects to die from it.
    // SAFETY: SIGPIPE exists and SIG_DFL runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    crate::process::restore_size_limit();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    let mask = signals.mask_before();
    // SAFETY: `mask` is a valid set; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut()) };
    let Some(program) = argv.first().filter(|program| !program.is_null()) else { exit_now(127) };
    // SAFETY: both arrays end with a null pointer and, like their strings, live in this process's own copy of memory.
    unsafe { libc::execvpe(*program, argv.as_ptr(), env.as_ptr()) };
    Message(Message::NOT_EXECUTED, last_errno().raw_os_error()).send(talk);
    exit_now(127)
}
