//! A command that comes into namespaces whose pid 1 runs already.
//!
//! Owns: the way in. Guarantees: the command has its caller's session, group, terminal, streams and limits;
//! and it dies with pid 1, as the kernel kills everybody in there. Nobody in there has a parent outside, who
//! might not reap him: pid 1 could not end before. So the command is the child of a *guest*, and that is pid
//! 1's child since the one who made it has gone at once; he alone was a child of `systx`, which ignores
//! SIGCHLD meanwhile. When `systx` is killed, the guest kills the command; what that has started stays. Does
//! not: ask whether it may.
//!
//! ```text
//! pid 1 ──(adopted)──► guest ──clone3──► the command
//!                        └─socket─ systx (outside)
//! ```
//!
//! Source: setns(2), pid_namespaces(7); zap_pid_ns_processes in the kernel, which waits for children of
//! parents outside.

use super::spawn::{
    children_signal, execute, hung_up, pointers, serve, socket_pair, Child, ChildSignal, Message, Role, Words,
};
use super::watch::{self, Calls, Network, Watch};
use super::{clone3, close_all_but, exit_now, own, require_one_thread, Side};
use crate::process::Signals;
use crate::types::Result;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use std::ffi::CString;

/// The namespaces of a pid 1, and its root.
pub struct Entry {
    mounts: OwnedFd,
    ipc: OwnedFd,
    pids: OwnedFd,
    root: OwnedFd,
    /// Of an ordinary user.
    user: Option<OwnedFd>,
    /// Where who answers for the commands' calls gets to know of them.
    watch: Option<OwnedFd>,
    /// If it is not everybody's.
    network: Option<OwnedFd>,
}

/// A command that joins.
pub struct Guest {
    /// Program and arguments; not empty.
    pub argv: Vec<CString>,
    /// Environment, `NAME=value`.
    pub env: Vec<CString>,
    /// Working directory, absolute.
    pub directory: CString,
    /// File mode creation mask.
    pub umask: u32,
}

impl Entry {
    /// The way in to the namespaces of a child that is ready, for commands that are watched as this says.
    pub fn of(child: &Child, watch: Option<Watch>) -> Result<Entry> {
        let open = |what: &str, flags: OFlags| {
            rustix::fs::open(format!("/proc/{}/{what}", child.pid), flags | OFlags::CLOEXEC, Mode::empty())
        };
        let user =
            if rustix::process::geteuid().is_root() { None } else { Some(open("ns/user", OFlags::RDONLY)?) };
        let network = if watch.as_ref().is_some_and(|watch| watch.network == Network::Own) {
            Some(open("ns/net", OFlags::RDONLY)?)
        } else {
            None
        };
        Ok(Entry {
            watch: watch.map(|watch| watch.to),
            network,
            mounts: open("ns/mnt", OFlags::RDONLY)?,
            ipc: open("ns/ipc", OFlags::RDONLY)?,
            pids: open("ns/pid", OFlags::RDONLY)?,
            root: open("root", OFlags::PATH | OFlags::DIRECTORY)?,
            user,
        })
    }

    /// Returns its descriptors, to be handed to another process.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let all = [&self.mounts, &self.ipc, &self.pids, &self.root];
        all.into_iter().chain(&self.user).chain(&self.watch).chain(&self.network).map(AsFd::as_fd).collect()
    }

    /// Makes it from descriptors that another process has handed over; `None`: they are something else.
    pub fn from_descriptors(fds: Vec<OwnedFd>) -> Option<Entry> {
        let mut fds = fds.into_iter();
        let (mounts, ipc, pids, root) = (fds.next()?, fds.next()?, fds.next()?, fds.next()?);
        let user = if rustix::process::geteuid().is_root() { None } else { Some(fds.next()?) };
        let (watch, network) = (fds.next(), fds.next());
        fds.next().is_none().then_some(Entry { mounts, ipc, pids, root, user, watch, network })
    }
}

/// Starts a command in there. From here on this process ignores SIGCHLD, and what it starts is in there; an
/// ordinary user's is in the user namespace itself.
///
/// # Errors
/// `EBUSY` when this process has more than one thread. `ENOMEM`: pid 1 is gone. Else what setns and clone3
/// answer.
pub fn join(guest: &Guest, entry: &Entry, signals: &Signals) -> Result<Child> {
    require_one_thread()?;
    let argv = pointers(&guest.argv);
    let env = pointers(&guest.env);
    let network = if entry.network.is_some() { Network::Own } else { Network::Shared };
    // Whoever joins is watched for the sake of peers alone.
    let watched = entry.watch.as_ref().map(|to| watch::prepare(to.as_fd(), network, Calls::Peers));
    let (talk, theirs) = socket_pair()?;
    if let Some(user) = &entry.user {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    move_into_link_name_space(entry.pids.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    let child_signal = ChildSignal::Ignored.set();
    // SAFETY: one thread (checked); the child's side is `usher`, which never returns.
    let side = unsafe { clone3(0, None) };
    match side? {
        Side::Child => {
            drop(talk);
            usher(
                guest,
                Way { entry, watched: watched.as_ref() },
                Words { argv: &argv, env: &env },
                &theirs,
                signals,
                child_signal,
            )
        }
        Side::Parent(_, pid) => {
            drop(theirs);
            own::drop_privileges()?;
            Ok(Child { pidfd: None, pid, talk, reaped: false, places: Vec::new() })
        }
    }
}

/// The way in.
#[derive(Clone, Copy)]
struct Way<'a> {
    entry: &'a Entry,
    /// Calls are watched.
    watched: Option<&'a watch::Prepared<'a>>,
}

/// Makes the guest, and goes: pid 1 adopts it.
fn usher(
    guest: &Guest,
    way: Way<'_>,
    words: Words<'_>,
    talk: &OwnedFd,
    signals: &Signals,
    child_signal: ChildSignal,
) -> ! {
    // SAFETY: this copy has one thread; the child's side is `attend`, which never returns.
    match unsafe { clone3(0, None) } {
        Ok(Side::Child) => attend(guest, way, words, talk, signals, child_signal),
        Ok(Side::Parent(..)) => exit_now(0),
        Err(error) => tell(talk, Message::NOT_ENTERED, error),
    }
}

fn tell(talk: &OwnedFd, kind: u32, error: Errno) -> ! {
    Message(kind, error.raw_os_error()).send(talk);
    exit_now(1)
}

/// The life of the guest.
fn attend(
    guest: &Guest,
    Way { entry, watched }: Way<'_>,
    Words { argv, env }: Words<'_>,
    talk: &OwnedFd,
    signals: &Signals,
    child_signal: ChildSignal,
) -> ! {
    if let Err(error) = enter(entry) {
        tell(talk, Message::NOT_ENTERED, error);
    }
    if let Err(error) = rustix::process::chdir(guest.directory.as_c_str()) {
        tell(talk, Message::NO_DIRECTORY, error);
    }
    if let Some(error) = watched.and_then(|watched| watch::begin(watched).err()) {
        tell(talk, Message::NOT_WATCHED, error);
    }
    if let Err(error) = own::drop_privileges() {
        tell(talk, Message::NOT_ENTERED, error);
    }
    ChildSignal::Default.set();
    let Ok(children) = children_signal() else { exit_now(1) };
    if hung_up(talk) {
        exit_now(1);
    }
    // SAFETY: this copy has one thread; the child's side is `execute`, which never returns.
    let (pidfd, pid) = match unsafe { clone3(0, None) } {
        Ok(Side::Child) => execute(guest.umask, argv, env, talk, signals, child_signal),
        Ok(Side::Parent(pidfd, pid)) => (pidfd, pid),
        Err(error) => tell(talk, Message::NOT_EXECUTED, error),
    };
    // SAFETY: this process uses nothing but these three from here on and ends in `_exit`.
    unsafe { close_all_but(&mut [talk.as_raw_fd(), children.as_raw_fd(), pidfd.as_raw_fd()]) };
    serve(talk, &children, Some((&pidfd, pid)), Role::Guest)
}

/// Into the namespaces that a process changes for itself, and the tree that stands there.
fn enter(entry: &Entry) -> Result<()> {
    if let Some(network) = &entry.network {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    move_into_link_name_space(entry.ipc.as_fd(), Some(LinkNameSpaceType::InterProcessCommunication))?;
    move_into_link_name_space(entry.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    // Pid 1's root need not be that of its mount namespace, where a chroot is.
    rustix::process::fchdir(&entry.root)?;
    rustix::process::chroot(c".")
}
