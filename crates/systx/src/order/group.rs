//! The file that the processes of one group share.
//!
//! Owns: its place and name. Guarantees: a group that gets the number of one that is gone has another file, as long as
//! its leader lives; what another user made is not used. Does not: outlive a boot.

use crate::kernel::Kernel;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use systx_os::guest::GuestFd;
use systx_os::process::group_exists;
use systx_os::{Errno, FileType, Linux, Open, Os};

/// The directory for such things of this boot, and the name there.
fn place(uid: u32, name: &str) -> (PathBuf, String) {
    let own = match uid {
        0 => PathBuf::from("/run"),
        uid => PathBuf::from(format!("/run/user/{uid}")),
    };
    match std::fs::symlink_metadata(&own) {
        Ok(found) if found.is_dir() && found.uid() == uid => (own, format!("{name}-order")),
        _ => (PathBuf::from("/dev/shm"), format!("{name}-order-{uid}")),
    }
}

/// Checks that only this user could have put something there.
fn is_own(os: &Kernel, fd: &GuestFd<Linux>, kind: FileType, uid: u32) -> Result<(), Errno> {
    let stat = os.stat(fd)?;
    let own = stat.kind() == kind && stat.uid == uid && stat.perm() & 0o022 == 0;
    own.then_some(()).ok_or(Errno::PERM)
}

fn directory(os: &Kernel, uid: u32, name: &str) -> Result<GuestFd<Linux>, Errno> {
    let (above, name) = place(uid, name);
    let above = os.open_path(&above, Open::Directory)?;
    match os.mkdir(&above, name.as_bytes(), 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let dir = os.open(&above, name.as_bytes(), Open::Directory)?;
    is_own(os, &dir, FileType::Directory, uid)?;
    Ok(dir)
}

/// When a process started, in ticks since the boot.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, which may contain anything, is in parentheses: fields are counted from behind it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// What names the file of a group: its id in this process namespace, and the start of its leader.
struct Known {
    namespace: u64,
    group: u32,
    leader: u64,
}

impl Known {
    fn name(&self) -> String {
        format!("{}.{}.{}", self.namespace, self.group, self.leader)
    }

    fn of_name(name: &[u8]) -> Option<Known> {
        let mut parts = std::str::from_utf8(name).ok()?.split('.');
        let mut next = || parts.next()?.parse::<u64>().ok();
        let (namespace, group, leader) = (next()?, u32::try_from(next()?).ok()?, next()?);
        Some(Known { namespace, group, leader })
    }
}

/// Opens the file of a process group, or makes it.
pub(super) fn open(os: &Kernel, uid: u32, name: &str, group: u32) -> Result<GuestFd<Linux>, Errno> {
    // 0: the leader is in another process namespace.
    if group == 0 {
        return Err(Errno::SRCH);
    }
    let dir = directory(os, uid, name)?;
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    let names = os.read_dir(&dir)?;
    let known = || {
        let known = names.iter().filter_map(|entry| Known::of_name(&entry.name));
        known.filter(|known| known.namespace == namespace)
    };
    let leader = match started(group) {
        Some(leader) => leader,
        // The leader is gone, and the group is not.
        None => known().filter(|known| known.group == group).map(|known| known.leader).max().unwrap_or(0),
    };
    // What groups have left that are gone.
    for old in known().filter(|old| old.group != group && !group_exists(old.group)) {
        let _ = os.unlink(&dir, old.name().as_bytes());
    }
    let name = Known { namespace, group, leader }.name();
    let file = match os.create(&dir, name.as_bytes(), 0o600) {
        Err(Errno::EXIST) => os.open(&dir, name.as_bytes(), Open::ReadWrite),
        made => made,
    }?;
    is_own(os, &file, FileType::File, uid)?;
    Ok(file)
}

/// The name of a user's files, from that of areas.
pub(crate) fn name_of(area: &[u8]) -> String {
    let name = Path::new(std::ffi::OsStr::from_bytes(area)).to_string_lossy().into_owned();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_groups_apart() {
        let known = Known { namespace: 4_026_531_836, group: 17, leader: 99 };
        let again = Known::of_name(known.name().as_bytes()).unwrap();
        assert_eq!((again.namespace, again.group, again.leader), (4_026_531_836, 17, 99));
        assert!(Known::of_name(b"1.2").is_none() && Known::of_name(b"x").is_none());
        assert_eq!(name_of(b".systx"), "systx");
    }

    #[test]
    fn the_start_of_a_process_is_known_as_long_as_it_lives() {
        assert!(started(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert!(started(u32::MAX).is_none());
    }
}
