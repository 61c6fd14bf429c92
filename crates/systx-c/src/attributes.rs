//! Attributes: `systx_fstatat`, modes, owners, times, access; extended attributes are in `xattrs`.

use crate::border::{border, zeros, Answer, In, Out, Text};
use crate::subject::{only, Subject};
use libc::{c_int, c_uint, gid_t, mode_t, stat, timespec, uid_t};
use systx::posix::{Errno, FileType, Identity, Link, Stat, Time, Timestamp};

const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const EMPTY: c_int = libc::AT_EMPTY_PATH;

pub(crate) fn link_of(flags: c_int) -> Link {
    if flags & NOFOLLOW == 0 {
        Link::Followed
    } else {
        Link::Kept
    }
}

fn stat_of(subject: &Subject, flags: c_int) -> Answer<Stat> {
    subject.call(|file| file.posix_stat(), |dir, path| dir.posix_stat(path, link_of(flags)))
}

fn put(out: &mut Out<stat>, found: &Stat) -> Answer<c_int> {
    let mut all = zeros::<stat>();
    all.st_dev = found.dev;
    all.st_ino = found.ino;
    all.st_mode = found.mode;
    all.st_nlink = found.nlink.into();
    (all.st_uid, all.st_gid, all.st_rdev) = (found.uid, found.gid, found.rdev);
    all.st_size = found.size as _;
    all.st_blksize = found.blksize as _;
    all.st_blocks = found.blocks as _;
    (all.st_atime, all.st_atime_nsec) = (found.atime.sec, found.atime.nsec.into());
    (all.st_mtime, all.st_mtime_nsec) = (found.mtime.sec, found.mtime.nsec.into());
    (all.st_ctime, all.st_ctime_nsec) = (found.ctime.sec, found.ctime.nsec.into());
    out.put(all).map(|()| 0)
}

/// fstatat(2).
#[no_mangle]
pub extern "C" fn systx_fstatat(dirfd: c_int, path: Text, mut out: Out<stat>, flags: c_int) -> c_int {
    border(|| {
        only(flags, NOFOLLOW | EMPTY | libc::AT_NO_AUTOMOUNT)?;
        out.is_there()?;
        put(&mut out, &stat_of(&Subject::at(dirfd, &path, flags)?, flags)?)
    })
}

/// fstat(2).
#[no_mangle]
pub extern "C" fn systx_fstat(fd: c_int, mut out: Out<stat>) -> c_int {
    border(|| {
        out.is_there()?;
        put(&mut out, &stat_of(&Subject::of(fd)?, 0)?)
    })
}

/// stat(2).
#[no_mangle]
pub extern "C" fn systx_stat(path: Text, out: Out<stat>) -> c_int {
    systx_fstatat(libc::AT_FDCWD, path, out, 0)
}

/// lstat(2).
#[no_mangle]
pub extern "C" fn systx_lstat(path: Text, out: Out<stat>) -> c_int {
    systx_fstatat(libc::AT_FDCWD, path, out, NOFOLLOW)
}

/// statx(2): the basic attributes.
#[no_mangle]
pub extern "C" fn systx_statx(
    dirfd: c_int,
    path: Text,
    flags: c_int,
    mask: c_uint,
    mut out: Out<libc::statx>,
) -> c_int {
    border(|| {
        only(
            flags,
            NOFOLLOW | EMPTY | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC,
        )?;
        // STATX__RESERVED
        if mask >> 31 != 0 {
            return Err(Errno::INVAL);
        }
        out.is_there()?;
        let found = stat_of(&Subject::at(dirfd, &path, flags)?, flags)?;
        let time = |of: Timestamp, mut to: libc::statx_timestamp| {
            (to.tv_sec, to.tv_nsec) = (of.sec, of.nsec);
            to
        };
        let mut all = zeros::<libc::statx>();
        all.stx_mask = libc::STATX_BASIC_STATS;
        (all.stx_blksize, all.stx_nlink, all.stx_mode) = (found.blksize, found.nlink, found.mode as u16);
        (all.stx_uid, all.stx_gid, all.stx_ino) = (found.uid, found.gid, found.ino);
        (all.stx_size, all.stx_blocks) = (found.size, found.blocks);
        all.stx_atime = time(found.atime, all.stx_atime);
        all.stx_mtime = time(found.mtime, all.stx_mtime);
        all.stx_ctime = time(found.ctime, all.stx_ctime);
        (all.stx_dev_major, all.stx_dev_minor) = (libc::major(found.dev), libc::minor(found.dev));
        (all.stx_rdev_major, all.stx_rdev_minor) = (libc::major(found.rdev), libc::minor(found.rdev));
        out.put(all).map(|()| 0)
    })
}

/// faccessat(2).
#[no_mangle]
pub extern "C" fn systx_faccessat(dirfd: c_int, path: Text, mode: c_int, flags: c_int) -> c_int {
    border(|| {
        only(flags, NOFOLLOW | EMPTY | libc::AT_EACCESS)?;
        only(mode, libc::R_OK | libc::W_OK | libc::X_OK)?;
        let identity = if flags & libc::AT_EACCESS == 0 { Identity::Real } else { Identity::Effective };
        let Subject::Path(base, path) = Subject::at(dirfd, &path, flags)? else {
            // By a descriptor for a file that is open: no path leads there any more.
            return Err(Errno::OPNOTSUPP);
        };
        let asked = base.dir.posix_access(&path, link_of(flags), mode as u32, identity);
        asked.map(|()| 0).map_err(crate::errors::refusal)
    })
}

/// access(2).
#[no_mangle]
pub extern "C" fn systx_access(path: Text, mode: c_int) -> c_int {
    systx_faccessat(libc::AT_FDCWD, path, mode, 0)
}

fn chmod(subject: &Subject, mode: mode_t, flags: c_int) -> Answer<c_int> {
    let link = link_of(flags);
    subject.call(|file| file.set_mode(mode), |dir, path| dir.posix_chmod(path, link, mode)).map(|()| 0)
}

/// fchmodat(2), with AT_SYMLINK_NOFOLLOW (`EOPNOTSUPP` for a symbolic link).
#[no_mangle]
pub extern "C" fn systx_fchmodat(dirfd: c_int, path: Text, mode: mode_t, flags: c_int) -> c_int {
    border(|| {
        only(flags, NOFOLLOW | EMPTY)?;
        let subject = Subject::at(dirfd, &path, flags)?;
        if flags & NOFOLLOW != 0
            && FileType::from_mode(stat_of(&subject, flags)?.mode) == Some(FileType::Symlink)
        {
            return Err(Errno::OPNOTSUPP);
        }
        chmod(&subject, mode, flags)
    })
}

/// chmod(2).
#[no_mangle]
pub extern "C" fn systx_chmod(path: Text, mode: mode_t) -> c_int {
    systx_fchmodat(libc::AT_FDCWD, path, mode, 0)
}

/// fchmod(2).
#[no_mangle]
pub extern "C" fn systx_fchmod(fd: c_int, mode: mode_t) -> c_int {
    border(|| chmod(&Subject::of(fd)?, mode, 0))
}

fn chown(subject: &Subject, uid: uid_t, gid: gid_t, flags: c_int) -> Answer<c_int> {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    let (uid, gid) = (given(uid), given(gid));
    let path = |dir: &systx::Dir, path: &[u8]| dir.posix_chown(path, link_of(flags), uid, gid);
    subject.call(|file| file.posix_chown(uid, gid), path).map(|()| 0)
}

/// fchownat(2).
#[no_mangle]
pub extern "C" fn systx_fchownat(dirfd: c_int, path: Text, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
    border(|| {
        only(flags, NOFOLLOW | EMPTY)?;
        chown(&Subject::at(dirfd, &path, flags)?, uid, gid, flags)
    })
}

/// chown(2).
#[no_mangle]
pub extern "C" fn systx_chown(path: Text, uid: uid_t, gid: gid_t) -> c_int {
    systx_fchownat(libc::AT_FDCWD, path, uid, gid, 0)
}

/// lchown(2).
#[no_mangle]
pub extern "C" fn systx_lchown(path: Text, uid: uid_t, gid: gid_t) -> c_int {
    systx_fchownat(libc::AT_FDCWD, path, uid, gid, NOFOLLOW)
}

/// fchown(2).
#[no_mangle]
pub extern "C" fn systx_fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    border(|| chown(&Subject::of(fd)?, uid, gid, 0))
}

/// The two times; without them, the present.
fn times_of(times: &In<timespec>) -> Answer<[Time; 2]> {
    if times.is_null() {
        return Ok([Time::Now, Time::Now]);
    }
    let time = |n| {
        let given = times.nth(n)?;
        match given.tv_nsec {
            libc::UTIME_NOW => Ok(Time::Now),
            libc::UTIME_OMIT => Ok(Time::Omit),
            nsec @ 0..=999_999_999 => Ok(Time::At(Timestamp { sec: given.tv_sec, nsec: nsec as u32 })),
            _ => Err(Errno::INVAL),
        }
    };
    Ok([time(0)?, time(1)?])
}

fn utimens(subject: &Subject, times: &In<timespec>, flags: c_int) -> Answer<c_int> {
    let [atime, mtime] = times_of(times)?;
    let path = |dir: &systx::Dir, path: &[u8]| dir.posix_utimens(path, link_of(flags), atime, mtime);
    subject.call(|file| file.posix_utimens(atime, mtime), path).map(|()| 0)
}

/// utimensat(2); the path is not null.
#[no_mangle]
pub extern "C" fn systx_utimensat(dirfd: c_int, path: Text, times: In<timespec>, flags: c_int) -> c_int {
    border(|| {
        only(flags, NOFOLLOW | EMPTY)?;
        utimens(&Subject::at(dirfd, &path, flags)?, &times, flags)
    })
}

/// futimens(3).
#[no_mangle]
pub extern "C" fn systx_futimens(fd: c_int, times: In<timespec>) -> c_int {
    border(|| utimens(&Subject::of(fd)?, &times, 0))
}
