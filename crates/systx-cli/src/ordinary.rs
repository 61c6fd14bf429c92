//! An ordinary user: what a run needs of the machine, where the user's areas are, and how they are found
//! again.
//!
//! Owns: the texts for what the machine forbids, and the choice of the directory for an area. Guarantees: root never gets here, and no right but the user's own is needed. Does not: serve other
//! users' objects: in a user namespace they belong to no known user, and the kernel lets no one change them.
//!
//! [`places`] finds the directories that a run over the whole tree serves; `systx_places::register` has those that have
//! areas.

pub mod places;

use crate::failure::{Failure, Result};
use crate::tree::owned::narrow;
use crate::words::shown;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use systx_os::sandbox::mounts::{self, Mount};
use systx_os::sandbox::own::{self, Entry};
use systx_os::{Errno, Linux, Os};
pub use systx_places::register::{remember, remembered, with_areas};
use systx_places::site::users_top;

/// A thing that the machine forbids, and what would change it.
pub struct Refusal {
    /// As a fragment of a sentence.
    pub text: String,
    /// A sentence without its full stop.
    pub hint: &'static str,
}

impl Refusal {
    fn new(text: impl Into<String>, hint: &'static str) -> Refusal {
        Refusal { text: text.into(), hint }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        format!("{}. {}", refusal.text, refusal.hint).into()
    }
}

/// Returns true if this process is an ordinary user's.
pub fn is_ordinary() -> bool {
    Linux::new().uid() != 0
}

/// Becomes able to mount, in a mount namespace of its own.
pub fn enter() -> Result<(), Refusal> {
    if let Some(refusal) = is_nobody() {
        return Err(refusal);
    }
    own::enter().map_err(|(entry, error)| forbidden(entry, error))
}

/// Returns why this user can't be served, if so: other users could not be told from this one.
pub fn is_nobody() -> Option<Refusal> {
    let uid = Linux::new().uid();
    (uid == own::nobody()).then(|| {
        let text = format!("user {uid} is what everybody else is called in a user namespace");
        Refusal::new(text, "Use sudo")
    })
}

/// Checks that /dev/fuse opens.
pub fn fuse() -> Result<(), Refusal> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::PermissionDenied if is_ordinary() => {
                "Let everybody open it, as most systems do: chmod 0666 /dev/fuse"
            }
            // Of a container's list of devices.
            std::io::ErrorKind::PermissionDenied => "Give the container the device: --device /dev/fuse",
            _ => "Load the module: modprobe fuse; and give a container the device: --device /dev/fuse",
        };
        Refusal::new(format!("/dev/fuse: {e}"), hint)
    })
}

/// Which of the machine's settings keeps ordinary users out of user namespaces. AppArmor's need not hold for
/// every program. A capability of the program file opens two of the three.
pub fn forbidden_by_settings() -> Option<Refusal> {
    let says = |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    let (text, hint) = if says("/proc/sys/user/max_user_namespaces", "0") {
        (
            "no user namespaces are allowed here (user.max_user_namespaces)",
            "As root: sysctl user.max_user_namespaces=10000",
        )
    } else if own::may_more() {
        return None;
    } else if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        (
            "user namespaces are for root only (kernel.unprivileged_userns_clone)",
            "As root: sysctl kernel.unprivileged_userns_clone=1, or for those who may execute systx: setcap cap_sys_admin+ep on its program file",
        )
    } else if says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        (
            "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns)",
            "As root: give systx an AppArmor profile with `userns,`, or setcap cap_sys_admin+ep on its program file",
        )
    } else {
        return None;
    };
    Some(Refusal::new(text, hint))
}

/// Why there is no user namespace.
fn forbidden(entry: Entry, error: Errno) -> Refusal {
    let what = match entry {
        Entry::Make => "making a user namespace",
        Entry::Map => "mapping the user into a user namespace",
        Entry::Mount => "mounting in a user namespace",
    };
    let hint = match error {
        Errno::NOSPC => "As root: raise sysctl user.max_user_namespaces",
        _ => "A container's seccomp profile, a chroot or a security module may forbid it: allow it there, or run as root",
    };
    forbidden_by_settings().unwrap_or_else(|| Refusal::new(format!("{what}: {error}"), hint))
}

/// The mount that a directory is on. `None`: it came just now.
pub fn mount_of(table: &[Mount], dir: &[u8]) -> Option<Mount> {
    let id = mounts::look(dir).ok()?.mount_id;
    table.iter().find(|mount| mount.id == id).cloned()
}

/// Returns the topmost directory of the user on the way to `dir`, on its file system: the same for all
/// directories below it, as long as no mount lies below it that the kernel would not let the user copy.
fn top(table: &[Mount], dir: &[u8]) -> Result<(Vec<u8>, Mount)> {
    let mount = mount_of(table, dir).ok_or_else(|| Failure::on_no_mount(dir))?;
    let uid = Linux::new().uid();
    let top = users_top(table, uid, dir, &mount);
    top.map(|top| (top, mount)).ok_or_else(|| {
        let why = format!(
            "neither {} nor a directory above it belongs to user {uid}: only root can serve it",
            shown(dir)
        );
        Failure::from(why).hint("name a directory of yours, or use sudo")
    })
}

/// The mount table in which these places are mounts.
pub fn table_with(table: &[Mount], places: &[Vec<u8>]) -> Result<Vec<Mount>> {
    let mount = |place: &Vec<u8>| match mount_of(table, place) {
        Some(mount) => Ok((place.clone(), mount)),
        None => Err(Failure::on_no_mount(place)),
    };
    Ok(narrow(table, &places.iter().map(mount).collect::<Result<Vec<_>, _>>()?))
}

/// The mount table in which the user's own directories above `only` are mounts.
pub fn table_for(table: &[Mount], only: &[Vec<u8>]) -> Result<Vec<Mount>> {
    let mut tops: Vec<(Vec<u8>, Mount)> = Vec::new();
    for dir in only {
        let top = top(table, dir)?;
        if !tops.iter().any(|(known, _)| *known == top.0) {
            tops.push(top);
        }
    }
    Ok(narrow(table, &tops))
}

/// S_ISVTX: only the owner of a file, or of the directory, removes a name from such a directory.
const STICKY: u32 = 0o1000;

/// The mount table in which this very directory is a mount: the one that has an area need not be the topmost
/// any more. It is the user's, or sticky as /tmp.
pub fn table_of(table: &[Mount], top: &[u8]) -> Result<Vec<Mount>> {
    let mount = mount_of(table, top).ok_or_else(|| Failure::on_no_mount(top))?;
    let of_his = |m: std::fs::Metadata| m.uid() == Linux::new().uid() || m.mode() & STICKY != 0;
    if std::fs::symlink_metadata(OsStr::from_bytes(top)).is_ok_and(of_his) {
        Ok(narrow(table, &[(top.to_vec(), mount)]))
    } else {
        Err(Failure::at(top, "another user's"))
    }
}

/// Explains why a mount in a directory that is to be served can't be held.
pub fn cannot_hold(point: &[u8], error: Errno) -> Failure {
    match error {
        // The kernel does not show a user what lies below other users' mounts.
        Errno::INVAL if is_ordinary() => {
            Failure::at(point, "something is mounted below it, so only root can serve it")
                .hint("name a directory beside that")
        }
        Errno::INVAL => Failure::at(
            point,
            "what is mounted below it can't be looked under from this user namespace: name directories with --only, \
             a container's volumes for instance",
        ),
        Errno::PERM if !is_ordinary() => Failure::at(point, error).hint(
            "root without CAP_SYS_ADMIN can't mount: give a container --cap-add SYS_ADMIN, or use systx outside of it",
        ),
        error => Failure::at(point, error).with_step(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_on_no_mount_is_told_what_to_do() {
        let root = b"/".to_vec();
        for told in [
            table_with(&[], std::slice::from_ref(&root)).unwrap_err(),
            table_for(&[], std::slice::from_ref(&root)).unwrap_err(),
            table_of(&[], &root).unwrap_err(),
        ] {
            let told = told.to_string();
            assert!(told.starts_with("/ is on none") && told.contains("run again"), "{told}");
        }
    }
}
