//! The calling thread as the kernel sees it when it checks access to files.
//!
//! Owns: [`Caller`], a snapshot of identity and capabilities. Guarantees: it is the thread's own, not the
//! process's: threads may differ (setfsuid(2), capset(2), unshare(2) with CLONE_FS). Does not: decide
//! anything by it.

use crate::types::{Errno, Result};

/// Capabilities that count for files (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// CAP_CHOWN: changes owners and groups.
    Chown = 0,
    /// CAP_DAC_OVERRIDE: reads, writes and searches everything.
    DacOverride = 1,
    /// CAP_DAC_READ_SEARCH: reads and searches everything.
    DacReadSearch = 2,
    /// CAP_FOWNER: acts as the owner of everything.
    Fowner = 3,
    /// CAP_FSETID: keeps set-id bits where others lose them.
    Fsetid = 4,
    /// CAP_SYS_ADMIN: sees and sets attributes `trusted.*`, sets `security.*`.
    SysAdmin = 21,
    /// CAP_SETFCAP: gives capabilities to files.
    Setfcap = 31,
}

/// Identity and capabilities of a thread, for access to files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
}

impl Caller {
    /// The calling thread as of now. Four system calls, none of which blocks.
    pub fn now() -> Result<Caller> {
        let uid = fs_uid();
        // SAFETY: an id that no one may set changes nothing; the answer is the present one.
        let gid = unsafe { libc::syscall(libc::SYS_setfsgid, u32::MAX) } as u32;
        let groups = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        let capabilities = rustix::thread::capabilities(None)?.effective.bits();
        Ok(Caller { uid, gid, groups, capabilities })
    }

    /// The calling thread as access(2) judges it: by its real user and group.
    ///
    /// Source: access(2), access_override_creds in linux/fs/open.c.
    pub fn really_now() -> Result<Caller> {
        let uid = rustix::process::getuid().as_raw();
        let groups = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
        let permitted = rustix::thread::capabilities(None)?.permitted.bits();
        let capabilities = if uid == 0 { permitted } else { 0 };
        Ok(Caller { uid, gid: rustix::process::getgid().as_raw(), groups, capabilities })
    }

    /// Returns true if the thread has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u8 & 1 == 1
    }

    /// Returns true if the thread is in a group.
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// Protection of other users' names in directories that all can write to.
///
/// Source: proc_sys_fs(5), protected_symlinks and its relatives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// Symbolic links lead only their owners, and those of the directory's owner.
    pub symlinks: bool,
    /// Only harmless files of others can be linked to.
    pub hard_links: bool,
    /// Others' files are not opened by calls that would make them: 1 where all can write to the directory, 2
    /// also where its group can.
    pub regular: u32,
}

impl Protected {
    /// Reads the settings of the machine; one that it does not have is off.
    pub fn now() -> Protected {
        let says = |name: &str| -> u32 {
            let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        Protected {
            symlinks: says("symlinks") > 0,
            hard_links: says("hardlinks") > 0,
            regular: says("regular"),
        }
    }
}

/// File-system user id of the calling thread.
pub fn fs_uid() -> u32 {
    // SAFETY: an id that no one may set changes nothing; the answer is the present one.
    let uid = unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) };
    uid as u32
}

/// The umask of the calling thread, without changing it.
///
/// # Errors
/// Of reading /proc, or `ENOSYS` where it does not say (before Linux 4.7).
///
/// Source: proc_pid_status(5).
pub fn umask() -> Result<u32> {
    let text = std::fs::read_to_string("/proc/thread-self/status")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    umask_in(&text).ok_or(Errno::NOSYS)
}

fn umask_in(status: &str) -> Option<u32> {
    let value = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(value.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_is_known_without_being_changed() {
        let (before, again) = (Caller::now().unwrap(), Caller::now().unwrap());
        assert_eq!(before, again);
        assert_eq!(before.uid, rustix::process::geteuid().as_raw());
        assert!(before.is_in(before.gid));
    }

    #[test]
    fn a_umask_is_read_as_octal_digits() {
        assert_eq!(umask_in("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o27));
        assert_eq!(umask_in("Name:\tx\n"), None);
    }
}
