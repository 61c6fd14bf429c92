//! Calls about names across the border of a directory that is mounted over ([`super::bind`]), made for their callers where
//! the mount can't be taken away: on a copy of the view's mount, which has no others on it.
//!
//! Owns: whose calls these may be ([`has_our_rights`]), what they name ([`named`], [`enter`]), and the
//! calls. Guarantees: a call is made only for a process that may do all that this one may; a directory is the one that its
//! caller names, and no symbolic link is followed on the way to it. Does not: decide which calls.
//!
//! This process is in another mount namespace than the mount is. So a directory that is a mount point there is none here,
//! and moves with what is mounted on it (`is_local_mountpoint` in fs/namei.c).

use super::bind::open_as;
use super::calls::Change;
use super::mounts;
use crate::types::{Lease, Result};
use crate::{Linux, Os};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Something that a thread has named.
#[derive(Debug)]
pub struct Named {
    fd: OwnedFd,
    /// Its path from the root of that thread's mount namespace.
    pub path: Vec<u8>,
    /// Device and inode number.
    pub id: (u64, u64),
    /// Number of its mount.
    pub mount: u64,
}

/// Returns true if a thread may do all that this one may, and sees the same tree as its mount namespace: by privileges, user
/// namespace, label of a security module, root. It counts only if the thread waits in its call afterwards still: one that has
/// executed another program meanwhile was looked at with the rights of that.
pub fn has_our_rights(thread: u32) -> bool {
    let of = |who: &str, what: &str| std::fs::read(format!("/proc/{who}/{what}")).ok();
    let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/user")).ok();
    let (theirs, ours) = (thread.to_string(), "thread-self");
    let status = [of(&theirs, "status"), of(ours, "status")];
    let [may, must] = status.each_ref().map(|status| rights_in(status.as_deref()?));
    may.is_some()
        && may == must
        && namespace(&theirs).is_some_and(|theirs| namespace(ours) == Some(theirs))
        && of(&theirs, "attr/current") == of(ours, "attr/current")
        && std::fs::read_link(format!("/proc/{theirs}/root")).is_ok_and(|root| root == Path::new("/"))
}

/// The user for file systems and the effective capabilities: proc_pid_status(5).
fn rights_in(status: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = |name: &[u8]| status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
    let user = line(b"Uid:")?.rsplit(|byte| *byte == b'\t').next()?;
    Some((user, line(b"CapEff:")?.trim_ascii()))
}

/// Returns what a thread names by a path from a descriptor of it, or from where it is. A symbolic link at its end is not
/// followed.
///
/// # Errors
/// As of the walk.
pub fn named(thread: u32, from: Option<i32>, path: &[u8]) -> Result<Named> {
    let fd = open_as(thread, from, path)?;
    let link = std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    let path = link.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?.into_os_string().into_vec();
    let (stat, mount) = (rustix::fs::fstat(&fd)?, mounts::mount_id(&fd)?);
    Ok(Named { fd, path, id: (stat.st_dev, stat.st_ino), mount })
}

/// Keeps everybody from opening something, while the descriptor lives. `None`: it is open or mapped, has several names, or
/// is neither a file nor a symbolic link, which is opened by nobody. Descriptors of O_PATH don't count.
pub fn alone(named: &Named) -> Option<OwnedFd> {
    let stat = rustix::fs::fstat(&named.fd).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink if stat.st_nlink == 1 => return named.fd.try_clone().ok(),
        FileType::RegularFile if stat.st_nlink == 1 => {}
        _ => return None,
    }
    let path = format!("/proc/thread-self/fd/{}", named.fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    // Granted only if it is open here alone. Whoever opens it meanwhile waits until it is given back.
    Linux::new().lease(&file, Lease::Write).ok()?;
    Some(file)
}

/// Opens a directory of a view by its path from the root of a copy of its mount.
///
/// # Errors
/// `ESTALE`: another one is there.
pub fn enter(view: &OwnedFd, path: &[u8], ino: u64) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = rustix::fs::openat2(view, path, flags, Mode::empty(), how)?;
    if rustix::fs::fstat(&dir)?.st_ino == ino {
        Ok(dir)
    } else {
        Err(Errno::STALE)
    }
}

/// Makes the call with names of directories: one, or two.
///
/// # Errors
/// As of the call. `EINVAL`: it is a link, or has another number of names.
pub fn change(change: Change, names: &[(&OwnedFd, &[u8])]) -> Result<()> {
    match (change, names) {
        (Change::Moves(flags), [(from, old), (to, new)]) => {
            rustix::fs::renameat_with(from, *old, to, *new, RenameFlags::from_bits_retain(flags))
        }
        (Change::Removes, [(dir, name)]) => rustix::fs::unlinkat(dir, *name, AtFlags::REMOVEDIR),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_the_user_for_files_and_what_it_may() {
        let status = b"Name:\tx\nUid:\t0\t0\t0\t7\nCapPrm:\t01\nCapEff:\t00ff\nCapBnd:\t1\n";
        assert_eq!(rights_in(status), Some((&b"7"[..], &b"00ff"[..])));
        assert_eq!(rights_in(b"Uid:\t0\t0\t0\t0\n"), None);
        let thread = std::thread::spawn(|| {
            assert!(has_our_rights(rustix::thread::gettid().as_raw_nonzero().get() as u32));
        });
        thread.join().unwrap();
        assert!(!has_our_rights(0));
    }
}
