//! A user namespace for an unprivileged user: inside it the user may mount, and make the other namespaces of
//! a command.
//!
//! Owns: the way in ([`enter`]), and the way back to no privileges ([`drop_privileges`]). Guarantees: the one
//! user and the one group of this process are themselves in there, all others have no number, and others'
//! objects refuse what they refuse outside. Does not: know whether it was needed.
//!
//! Where the machine keeps such namespaces for root, the program file may have CAP_SYS_ADMIN (setcap(8)): it
//! is good for making the namespace, and for nothing else ([`lay_down`]).
//!
//! Minimum kernel version: 4.18 (FUSE in user namespaces). Source: user_namespaces(7), capabilities(7).

use super::{clone3, exit_now, require_one_thread, Side};
use crate::process::{last_errno, set_of, Ended};
use crate::types::Result;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, set_dumpable_behavior, DumpableBehavior};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};

/// The number of a user without one in a user namespace, unless fs.overflowuid says otherwise.
const OVERFLOW_ID: u32 = 65534;

/// To mount; and to pass permission bits of objects that belong to this user *and* this group
/// (capable_wrt_inode_uidgid in the kernel): a transaction that may change a mode needs no other right to
/// publish the change. And for `--network`: to take the loopback device of a command's own network into use,
/// and to read the addresses that it names.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_PTRACE);

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Making the namespaces.
    Make,
    /// Being oneself in there.
    Map,
    /// Using the privilege to mount that comes with it.
    Mount,
}

/// Lays down what the program file's capabilities have given, but for the one that [`enter`] may take up. For
/// the beginning of a program: until then it is privileged, and its user can't look at it in /proc.
///
/// # Errors
/// Of capset(2) and prctl(2).
pub fn lay_down() -> Result<()> {
    // SAFETY: getauxval takes a number and reads what the kernel has left for this process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if !secure || geteuid().is_root() {
        return Ok(());
    }
    let permitted = capabilities(None)?.permitted & CapabilitySet::SYS_ADMIN;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted, inheritable: none })?;
    LAID_DOWN.store(!permitted.is_empty(), Ordering::Relaxed);
    // Else its own files in /proc belong to root. No process gains access by that: one with fewer
    // capabilities can't trace it.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// Set if [`lay_down`] has kept something for [`enter`], which has not used it yet.
static LAID_DOWN: AtomicBool = AtomicBool::new(false);

/// Returns true if [`enter`] may do what is kept for root, by a capability of the program file.
pub fn may_more() -> bool {
    LAID_DOWN.load(Ordering::Relaxed)
}

/// Takes up what was laid down.
fn take_up() -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: now.permitted, ..now })
}

/// Lays down again what was taken up.
fn put_down() -> Result<()> {
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..now })
}

/// Moves this process into new user and mount namespaces.
///
/// # Errors
/// `EBUSY` when this process has more than one thread. [`Entry::Make`]: `ENOSPC` beyond
/// user.max_user_namespaces, `EPERM` where it is forbidden or in a chroot. [`Entry::Map`], [`Entry::Mount`]:
/// `EPERM`, `EACCES` where a security module takes back what the namespace gave.
pub fn enter() -> core::result::Result<(), (Entry, Errno)> {
    require_one_thread().map_err(|e| (Entry::Make, e))?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let more = may_more();
    if more {
        take_up().map_err(|e| (Entry::Make, e))?;
    }
    // SAFETY: unshare takes a number; with one thread nothing else of this process depends on the namespaces
    // that it leaves.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } != 0 {
        let error = last_errno();
        if more {
            put_down().map_err(|e| (Entry::Make, e))?;
        }
        return Err((Entry::Make, error));
    }
    // It was one of the namespace that is left behind.
    LAID_DOWN.store(false, Ordering::Relaxed);
    let write = |path: &str, text: String| {
        std::fs::write(path, text).map_err(|e| (Entry::Map, Errno::from_io_error(&e).unwrap_or(Errno::IO)))
    };
    // Else a group that keeps its members out could be left.
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    keep(KEPT).map_err(|e| (Entry::Map, e))?;
    super::mounts::Detached::of(b"/proc/self/fd").map(drop).map_err(|e| (Entry::Mount, e))
}

/// What a terminal sends to all in its foreground, and what asks a process to end.
const TERMINALS_SIGNALS: [i32; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Does something as another user, in a process of its own; whether it has said yes. For root.
///
/// Other processes of that user may send it signals: if they stop it, it is killed, and has not said yes.
/// Those that a terminal sends don't reach it.
///
/// # Errors
/// `EBUSY` when this process has more than one thread; else what clone3 answers.
pub fn as_user(uid: u32, gid: u32, work: impl FnOnce() -> bool) -> Result<bool> {
    require_one_thread()?;
    // SAFETY: one thread (checked); the child ends in `_exit` below.
    match unsafe { clone3(0, None) }? {
        Side::Child => {
            let set = set_of(&TERMINALS_SIGNALS);
            // SAFETY: `set` is valid; the old mask is not asked for.
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, core::ptr::null_mut()) };
            // SAFETY: no groups are read from the null pointer; the other two take numbers.
            let became = unsafe {
                libc::setgroups(0, core::ptr::null()) == 0
                    && libc::setresgid(gid, gid, gid) == 0
                    && libc::setresuid(uid, uid, uid) == 0
            };
            // A panic here must not run on into the caller's frames.
            let done =
                became && std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            exit_now(i32::from(!done))
        }
        Side::Parent(pidfd, _) => Ok(crate::process::wait_unless_stopped(&pidfd)? == Ended::Exited(0)),
    }
}

/// Gives up all privileges of this process, unless it is root's.
pub(super) fn drop_privileges() -> Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    keep(CapabilitySet::empty())
}

/// Gives up all privileges but these. What the process executes later has none at all.
fn keep(wanted: CapabilitySet) -> Result<()> {
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & wanted, now.permitted & wanted);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Returns the number of all users without one of their own in a user namespace: such a user can't be told
/// from others there.
pub fn nobody() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(OVERFLOW_ID)
}
