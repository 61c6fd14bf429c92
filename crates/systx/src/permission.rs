//! Checks of access to an object, by its attributes as the transaction sees them.
//!
//! The kernel judges the files that a transaction really opens, but a mode, owner or list that the
//! transaction itself has changed is only remembered until the commit. So each call is judged here as well.
//!
//! Owns: the rules of access for files (generic_permission, setattr_prepare and may_delete in linux/fs).
//! Guarantees: gives no thread more than the kernel would. Does not: know security modules; they see the real
//! calls.

use systx_engine::acl::Acl;
use systx_engine::transaction::Attr;
use systx_os::caller::{Caller, Capability, Protected};
use systx_os::Errno;

/// Bits of an access, as in a mode.
pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const SEARCH: u32 = 1;

const STICKY: u32 = 0o1000;
const SETGID: u32 = 0o2000;
const SETUID: u32 = 0o4000;
/// The bits that let a program run as another user or group.
pub(crate) const SET_IDS: u32 = SETUID | SETGID;
const GROUP_EXECUTE: u32 = 0o010;
const GROUP_BITS: u32 = 0o070;
const ANY_EXECUTE: u32 = 0o111;

pub(crate) type Judged = Result<(), Errno>;

fn judge(may: bool, error: Errno) -> Judged {
    may.then_some(()).ok_or(error)
}

/// Returns true if the mode's group bits are a list's mask, so that a list may have a say.
pub(crate) fn asks_for_a_list(uid: u32, attr: &Attr) -> bool {
    uid != attr.uid && attr.mode & GROUP_BITS != 0
}

/// Returns true if the object is the user's and its mode says yes, which needs neither groups nor capabilities.
pub(crate) fn owner_may(uid: u32, attr: &Attr, want: u32) -> bool {
    uid == attr.uid && attr.mode >> 6 & want == want
}

/// Checks an access to an object with this access list.
pub(crate) fn access(caller: &Caller, attr: &Attr, list: Option<&Acl>, want: u32) -> Judged {
    let is_in = |group| caller.is_in(group);
    let granted = match list.filter(|_| asks_for_a_list(caller.uid, attr)) {
        Some(list) => list.permits(caller.uid, attr.uid, attr.gid, want, &is_in),
        None => {
            let shift = match () {
                () if caller.uid == attr.uid => 6,
                () if is_in(attr.gid) => 3,
                () => 0,
            };
            attr.mode >> shift & want == want
        }
    };
    if granted {
        return Ok(());
    }
    let is_dir = attr.mode & libc_mode::TYPE == libc_mode::DIRECTORY;
    let searches = if is_dir { want & WRITE == 0 } else { want == READ };
    if searches && caller.has(Capability::DacReadSearch) {
        return Ok(());
    }
    // Nobody executes what has no execute bit at all.
    let overrides = is_dir || want & SEARCH == 0 || attr.mode & ANY_EXECUTE != 0;
    judge(overrides && caller.has(Capability::DacOverride), Errno::ACCESS)
}

/// Type bits of a mode.
mod libc_mode {
    pub const TYPE: u32 = 0o170_000;
    pub const DIRECTORY: u32 = 0o040_000;
    pub const REGULAR: u32 = 0o100_000;
}

/// Returns true if the caller counts as the owner.
pub(crate) fn is_owner(caller: &Caller, attr: &Attr) -> bool {
    caller.uid == attr.uid || caller.has(Capability::Fowner)
}

/// Checks that a name of `object` may be taken from a directory that may be written to: where the sticky bit
/// is set only by an owner.
pub(crate) fn take(caller: &Caller, dir: &Attr, object: &Attr) -> Judged {
    let restricted = dir.mode & STICKY != 0 && caller.uid != object.uid && caller.uid != dir.uid;
    judge(!restricted || caller.has(Capability::Fowner), Errno::PERM)
}

/// Checks a change of the mode; returns the bits that are set then.
pub(crate) fn chmod(caller: &Caller, attr: &Attr, mode: u32) -> Result<u32, Errno> {
    judge(is_owner(caller, attr), Errno::PERM)?;
    let mode = mode & 0o7777;
    if caller.is_in(attr.gid) || caller.has(Capability::Fsetid) {
        Ok(mode)
    } else {
        Ok(mode & !SETGID)
    }
}

/// The set-id bits that a change of owner, or of the bytes by one without CAP_FSETID, takes (setattr_should_drop_sgid
/// in linux/fs). That of the group means nothing without its execute bit, and stays for its members.
pub(crate) fn privileges_lost(caller: &Caller, attr: &Attr) -> u32 {
    let stays = attr.mode & GROUP_EXECUTE == 0 && (caller.is_in(attr.gid) || caller.has(Capability::Fsetid));
    attr.mode & if stays { SETUID } else { SETUID | SETGID }
}

/// Checks a change of owner and group, or of neither. It takes the set-id bits of what is no directory, which is a change
/// of the mode.
pub(crate) fn chown(caller: &Caller, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> Judged {
    let is_dir = attr.mode & libc_mode::TYPE == libc_mode::DIRECTORY;
    let is_harmless = is_dir || privileges_lost(caller, attr) == 0;
    judge(is_harmless || is_owner(caller, attr), Errno::PERM)?;
    if caller.has(Capability::Chown) {
        return Ok(());
    }
    let owns = caller.uid == attr.uid;
    judge(uid.is_none_or(|uid| owns && uid == attr.uid), Errno::PERM)?;
    judge(gid.is_none_or(|gid| owns && (gid == attr.gid || caller.is_in(gid))), Errno::PERM)
}

/// Checks that a symbolic link in a directory with this mode and owner may be followed: in a sticky one that
/// all can write to only the caller's and the directory owner's links lead anywhere.
pub(crate) fn follow(caller: &Caller, protected: Protected, (mode, owner): (u32, u32), link: u32) -> Judged {
    const OPEN_TO_ALL: u32 = STICKY | 0o002;
    let risky = protected.symlinks && mode & OPEN_TO_ALL == OPEN_TO_ALL;
    judge(!risky || link == caller.uid || link == owner, Errno::ACCESS)
}

/// Checks that an existing file may be opened by a call that would also have made it: in a sticky directory
/// that others can write to not another user's.
pub(crate) fn open_to_create(caller: &Caller, protected: Protected, dir: &Attr, file: &Attr) -> Judged {
    let open_to = match protected.regular {
        0 => 0,
        1 => 0o002,
        _ => 0o022,
    };
    let risky = dir.mode & STICKY != 0 && dir.mode & open_to != 0;
    judge(!risky || file.uid == caller.uid || file.uid == dir.uid, Errno::ACCESS)
}

/// Checks that an object may get one more name: anybody's only if it is a harmless file that the caller can
/// read and write.
pub(crate) fn link(caller: &Caller, protected: Protected, attr: &Attr, list: Option<&Acl>) -> Judged {
    if !protected.hard_links || is_owner(caller, attr) {
        return Ok(());
    }
    let runs_as_group = attr.mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
    let is_file = attr.mode & libc_mode::TYPE == libc_mode::REGULAR;
    let harmless = is_file && attr.mode & SETUID == 0 && !runs_as_group;
    judge(harmless && access(caller, attr, list, READ | WRITE).is_ok(), Errno::PERM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::Timestamp;

    fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
        let epoch = Timestamp { sec: 0, nsec: 0 };
        Attr {
            ino: 1,
            size: 0,
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            mode,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
        }
    }

    fn user(uid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid: uid, groups: groups.to_vec(), capabilities: 0 }
    }

    fn with(capability: Capability) -> Caller {
        Caller { uid: 7, gid: 7, groups: Vec::new(), capabilities: 1 << capability as u8 }
    }

    const FILE: u32 = libc_mode::REGULAR;
    const DIR: u32 = libc_mode::DIRECTORY;

    #[test]
    fn the_first_class_that_fits_decides_alone() {
        let file = attr(FILE | 0o046, 1, 2);
        assert!(access(&user(1, &[2]), &file, None, READ).is_err(), "the owner has no bits");
        assert!(access(&user(3, &[2]), &file, None, READ).is_ok());
        assert!(access(&user(3, &[2]), &file, None, WRITE).is_err(), "the others' bit is not the group's");
        assert!(access(&user(3, &[]), &file, None, READ | WRITE).is_ok());
    }

    #[test]
    fn an_owner_may_what_the_whole_judgement_says() {
        for (mode, uid, want) in (0..0o1000)
            .flat_map(|mode| [0, 1].into_iter().flat_map(move |uid| (0..8).map(move |w| (mode, uid, w))))
        {
            let file = attr(FILE | mode, 1, 2);
            if owner_may(uid, &file, want) {
                assert!(access(&user(uid, &[]), &file, None, want).is_ok(), "{mode:o} {uid} {want}");
            }
        }
    }

    #[test]
    fn each_capability_gives_what_the_kernel_gives() {
        let (file, dir) = (attr(FILE, 1, 2), attr(DIR, 1, 2));
        let all = with(Capability::DacOverride);
        assert!(access(&all, &file, None, READ | WRITE).is_ok());
        assert!(access(&all, &file, None, SEARCH).is_err(), "nobody executes what has no bit for it");
        assert!(access(&all, &attr(FILE | 0o100, 1, 2), None, SEARCH).is_ok());
        assert!(access(&all, &dir, None, WRITE | SEARCH).is_ok());
        let reads = with(Capability::DacReadSearch);
        assert!(access(&reads, &file, None, READ).is_ok() && access(&reads, &file, None, WRITE).is_err());
        assert!(access(&reads, &dir, None, READ | SEARCH).is_ok());
        assert!(access(&reads, &dir, None, WRITE | SEARCH).is_err());
    }

    #[test]
    fn from_a_sticky_directory_only_owners_take() {
        let dir = attr(DIR | 0o1777, 1, 1);
        assert_eq!(take(&user(3, &[]), &dir, &attr(FILE, 4, 4)), Err(Errno::PERM));
        assert!(take(&user(4, &[]), &dir, &attr(FILE, 4, 4)).is_ok());
        assert!(take(&user(1, &[]), &dir, &attr(FILE, 4, 4)).is_ok());
        assert!(take(&with(Capability::Fowner), &dir, &attr(FILE, 4, 4)).is_ok());
        assert!(take(&user(3, &[]), &attr(DIR | 0o777, 1, 1), &attr(FILE, 4, 4)).is_ok());
    }

    #[test]
    fn modes_and_owners_change_by_right_only() {
        let file = attr(FILE | 0o644, 1, 2);
        assert_eq!(chmod(&user(1, &[2]), &file, 0o102_755), Ok(0o2755));
        assert_eq!(chmod(&user(1, &[]), &file, 0o2755), Ok(0o755), "not of its group");
        assert_eq!(chmod(&user(3, &[2]), &file, 0o755), Err(Errno::PERM));
        assert!(chown(&user(1, &[5]), &file, None, Some(5)).is_ok());
        assert!(chown(&user(1, &[5]), &file, Some(1), Some(2)).is_ok());
        assert_eq!(chown(&user(1, &[5]), &file, Some(9), None), Err(Errno::PERM));
        assert_eq!(chown(&user(1, &[5]), &file, None, Some(6)), Err(Errno::PERM));
        assert_eq!(chown(&user(3, &[5]), &file, None, Some(5)), Err(Errno::PERM));
        assert!(chown(&with(Capability::Chown), &file, Some(9), Some(6)).is_ok());
        // Of nobody to nobody is allowed to all, as long as it changes nothing.
        assert!(chown(&user(3, &[]), &file, None, None).is_ok());
        for set_id in [0o4755, 0o2755, 0o2644] {
            let program = attr(FILE | set_id, 1, 2);
            assert_eq!(chown(&user(3, &[]), &program, None, None), Err(Errno::PERM));
            assert!(chown(&user(1, &[]), &program, None, None).is_ok());
        }
        assert!(chown(&user(3, &[2]), &attr(FILE | 0o2644, 1, 2), None, None).is_ok());
        assert!(chown(&user(3, &[]), &attr(DIR | 0o2755, 1, 2), None, None).is_ok());
    }

    #[test]
    fn what_the_machine_protects_is_protected() {
        let all = Protected { symlinks: true, hard_links: true, regular: 2 };
        let none = Protected::default();
        let (tmp, theirs) = (attr(DIR | 0o1777, 0, 0), attr(FILE | 0o644, 4, 4));
        let me = user(3, &[]);
        let sticky = (tmp.mode, tmp.uid);
        assert_eq!(follow(&me, all, sticky, 4), Err(Errno::ACCESS));
        assert!(follow(&me, none, sticky, 4).is_ok());
        assert!(follow(&user(4, &[]), all, sticky, 4).is_ok());
        assert!(follow(&me, all, sticky, 0).is_ok());
        assert!(follow(&me, all, (DIR | 0o755, 0), 4).is_ok());
        assert_eq!(open_to_create(&me, all, &tmp, &theirs), Err(Errno::ACCESS));
        assert!(open_to_create(&me, none, &tmp, &theirs).is_ok());
        assert!(open_to_create(&me, all, &tmp, &attr(FILE, 3, 3)).is_ok());
        let group = attr(DIR | 0o1770, 0, 0);
        assert!(open_to_create(&me, Protected { regular: 1, ..all }, &group, &theirs).is_ok());
        assert_eq!(open_to_create(&me, all, &group, &theirs), Err(Errno::ACCESS));
        assert!(link(&me, all, &attr(FILE | 0o666, 4, 4), None).is_ok());
        assert_eq!(link(&me, all, &theirs, None), Err(Errno::PERM));
        assert_eq!(link(&me, all, &attr(FILE | 0o4666, 4, 4), None), Err(Errno::PERM));
        assert!(link(&me, none, &theirs, None).is_ok());
    }
}
