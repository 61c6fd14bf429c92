//! Probes of what may be relied on, on one file system.
//!
//! Two ways: [`fs_info`] is quick (one nameless file, about twenty calls) and takes what follows from the
//! kind of file system for granted; [`probe_thoroughly`] tries everything. Guarantees: nothing is left behind
//! in `scratch`. Does not: trust the stamps of file systems outside the allow-list, even if an experiment
//! succeeds: over NFS or FUSE a change made elsewhere shows late.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::bytes::EXT4_MAGIC;
use super::{attributes, bytes, flags, lease, look, machine, names, open};
use crate::types::{Errno, FsInfo, FsKind, Lease, Open, Rename, Result, Stat, Timestamp};

/// EXT4_INLINE_DATA_FL.
const INLINE_DATA: u32 = 0x1000_0000;
const XFS_MAGIC: u64 = 0x5846_5342;
pub(super) const BTRFS_MAGIC: u64 = 0x9123_683e;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const SYSFS_MAGIC: u64 = 0x6265_6572;
/// Of FUSE, only views of transactions are ever asked about for a transaction.
const VIEW_MAGIC: u64 = 0x6573_5546;

/// Rounds of change → stat until two fall into one tick of the coarse clock. A tick is 1–10 ms and a round takes
/// microseconds; who is so slow that none do would have to straddle a tick in each of them to be misled.
const ROUNDS: u32 = 20;
/// Rounds with a directory, without that proof.
const DIRECTORY_ROUNDS: u32 = 100;

pub(super) fn fs_info(scratch: BorrowedFd<'_>) -> Result<FsInfo> {
    let dir = open::reopen(scratch, Open::Directory)?;
    let (stat, kind, (uuid, fsid)) = identify(&dir)?;
    let life = life(&dir, kind, stat.dev);
    let file = Scratch::file(&dir)?;
    let (listed, view) = (!matches!(kind, FsKind::Other(_)), kind == FsKind::Other(VIEW_MAGIC));
    let file_stamps = listed && file_stamps(file.fd())?;
    let (handles, open_by_handle) = handles(&dir, &stat, kind, file.fd())?;
    Ok(FsInfo {
        kind,
        uuid,
        fsid,
        life,
        file_stamps,
        // Multigrain timestamps are one flag for a whole file system, but tmpfs does not use them for directories.
        dir_stamps: file_stamps && kind != FsKind::Tmpfs,
        reflinks: match kind {
            FsKind::Btrfs => true,
            FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Tmpfs | FsKind::Other(VIEW_MAGIC) => false,
            FsKind::Xfs | FsKind::Other(_) => reflinks(&dir, file.fd())?,
        },
        // Experiments have names, which who clears an area takes away.
        rename_flags: listed || view || rename_flags(&dir)?,
        leases: leases(file.fd()),
        handles,
        open_by_handle,
    })
}

/// Probes by experiment only; some tens of milliseconds.
pub(super) fn probe_thoroughly(scratch: BorrowedFd<'_>) -> Result<FsInfo> {
    let dir = open::reopen(scratch, Open::Directory)?;
    let (stat, kind, (uuid, fsid)) = identify(&dir)?;
    let life = life(&dir, kind, stat.dev);
    let file = Scratch::file(&dir)?;
    let listed = !matches!(kind, FsKind::Other(_));
    let (handles, open_by_handle) = handles(&dir, &stat, kind, file.fd())?;
    Ok(FsInfo {
        kind,
        uuid,
        fsid,
        life,
        file_stamps: listed && file_stamps(file.fd())?,
        dir_stamps: listed && dir_stamps(&dir)?,
        reflinks: reflinks(&dir, file.fd())?,
        rename_flags: rename_flags(&dir)?,
        leases: leases(file.fd()),
        handles,
        open_by_handle,
    })
}

pub(super) fn try_to_make(scratch: BorrowedFd<'_>) -> Result<()> {
    Scratch::file(&open::reopen(scratch, Open::Directory)?).map(drop)
}

pub(super) fn try_to_sync(scratch: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::fsync(Scratch::file(&open::reopen(scratch, Open::Directory)?)?.fd())
}

fn identify(dir: &OwnedFd) -> Result<(Stat, FsKind, Signs)> {
    let stat = look::stat(dir.as_fd())?;
    let statfs = rustix::fs::fstatfs(dir)?;
    let kind = match statfs.f_type as u64 {
        EXT4_MAGIC if ext4_has_journal(stat.dev) => FsKind::Ext4,
        EXT4_MAGIC => FsKind::Ext4NoJournal,
        XFS_MAGIC => FsKind::Xfs,
        BTRFS_MAGIC => FsKind::Btrfs,
        TMPFS_MAGIC => FsKind::Tmpfs,
        other => FsKind::Other(other),
    };
    Ok((stat, kind, signs(kind, uuid(dir), rustix::fs::fstatvfs(dir)?.f_fsid)))
}

/// Inode number of the directory that the kernel makes for a superblock when it is mounted. Numbers of sysfs
/// are given in turn, so the next mount has another one.
///
/// Source: ext4_register_sysfs, xfs_mount_sysfs_init, btrfs_sysfs_add_fsid; __kernfs_new_node in
/// fs/kernfs/dir.c.
fn life(dir: &OwnedFd, kind: FsKind, dev: u64) -> u64 {
    let directory = match kind {
        FsKind::Ext4 | FsKind::Ext4NoJournal => block_device(dev).map(|name| format!("/sys/fs/ext4/{name}")),
        FsKind::Xfs => block_device(dev).map(|name| format!("/sys/fs/xfs/{name}")),
        FsKind::Btrfs => btrfs_id(dir).map(|id| format!("/sys/fs/btrfs/{id}")),
        FsKind::Tmpfs | FsKind::Other(VIEW_MAGIC) => return FsInfo::LIVES_ONCE,
        FsKind::Other(_) => None,
    };
    let Some(found) = directory.and_then(|path| std::fs::File::open(path).ok()) else { return 0 };
    // In a chroot anything may have that name.
    let in_sysfs = rustix::fs::fstatfs(&found).is_ok_and(|statfs| statfs.f_type as u64 == SYSFS_MAGIC);
    rustix::fs::fstat(&found).map_or(0, |stat| if in_sysfs { stat.st_ino } else { 0 })
}

/// Name of a block device, as directories of sysfs are called.
fn block_device(dev: u64) -> Option<String> {
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    Some(std::fs::read_link(device).ok()?.file_name()?.to_str()?.to_owned())
}

/// _IOR(0x94, 31, struct btrfs_ioctl_fs_info_args), of 1024 bytes.
const BTRFS_IOC_FS_INFO: u32 = 0x8400_941f;

/// Identity of a btrfs as sysfs has it, which may be another than that of its disk when a copy is mounted, too.
fn btrfs_id(dir: &OwnedFd) -> Option<String> {
    let mut info = [0u64; 128];
    // SAFETY: the request writes one struct btrfs_ioctl_fs_info_args, 1024 bytes, which is what it is given.
    let returned = unsafe { libc::ioctl(dir.as_raw_fd(), BTRFS_IOC_FS_INFO as _, &mut info) };
    // Behind two numbers of 64 bits each.
    let id: Vec<u8> = info[2..4].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]];
    (returned == 0).then(|| parts.map(hex).join("-"))
}

/// Returns true if the ext file system on that device has a journal. Not knowing means no: that is the
/// careful answer.
///
/// Source: fs/ext4/sysfs.c: journal_task is a thread id, or `<none>`; fs/jbd2/journal.c: a directory
/// `/proc/fs/jbd2/<device>-<inode>` for each journal.
fn ext4_has_journal(dev: u64) -> bool {
    let Some(name) = block_device(dev) else { return false };
    match std::fs::read(format!("/sys/fs/ext4/{name}/journal_task")) {
        Ok(task) => task.first().is_some_and(u8::is_ascii_digit),
        Err(_) => std::fs::read_dir("/proc/fs/jbd2").is_ok_and(|mut journals| {
            journals.any(|journal| {
                let journal = journal.map(|j| j.file_name()).unwrap_or_default();
                journal.to_str().and_then(|j| j.rsplit_once('-')).is_some_and(|(device, _)| device == name)
            })
        }),
    }
}

/// struct fsuuid2 of the kernel.
#[repr(C)]
struct FsUuid {
    len: u8,
    uuid: [u8; 16],
}

/// _IOR(0x15, 0, struct fsuuid2). Minimum kernel version: 6.9.
const FS_IOC_GETFSUUID: u32 = 0x8011_1500;

/// UUID and f_fsid, as far as they say which file system this is.
type Signs = (Option<[u8; 16]>, Option<u64>);

/// Returns the kernel's answers as signs of an identity, without what is derived from anything but the UUID.
///
/// Source: ext4_statfs, btrfs_statfs; xfs_statfs_data: huge_encode_dev(mp->m_ddev_targp->bt_dev).
fn signs(kind: FsKind, uuid: Option<[u8; 16]>, fsid: u64) -> Signs {
    let of_uuid = matches!(kind, FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Btrfs);
    (uuid.filter(|uuid| *uuid != [0; 16]), Some(fsid).filter(|fsid| of_uuid && *fsid != 0))
}

fn uuid(dir: &OwnedFd) -> Option<[u8; 16]> {
    let mut found = FsUuid { len: 0, uuid: [0; 16] };
    // SAFETY: the request writes one struct fsuuid2, 17 bytes, which is what it is given.
    let returned = unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_GETFSUUID as _, &mut found) };
    (returned == 0 && found.len == 16).then_some(found.uuid)
}

/// Returns true if two changes within one tick of the clock of coarse stamps leave different stamps.
///
/// The changes are of the mode: that needs no free block, and the change time is taken by the same function
/// for every change.
///
/// Source: inode_set_ctime_current in fs/inode.c, called by file_update_time and, through notify_change, by
/// setattr_copy; ktime_get_coarse_real_ts64 in kernel/time/timekeeping.c, which CLOCK_REALTIME_COARSE shows.
fn file_stamps(file: BorrowedFd<'_>) -> Result<bool> {
    let ctime = || -> Result<Timestamp> { Ok(look::stat(file)?.ctime) };
    let mut before = (ctime()?, None);
    for round in 0..ROUNDS {
        let tick = machine::coarse_now();
        attributes::chmod(file, [0o600, 0o700][round as usize % 2])?;
        let after = ctime()?;
        if after == before.0 {
            return Ok(false);
        }
        // The stamp before was made after this tick was seen for the first time.
        if before.1 == Some(tick) && machine::coarse_now() == tick {
            return Ok(true);
        }
        before = (after, Some(tick));
    }
    Ok(true)
}

fn dir_stamps(dir: &OwnedFd) -> Result<bool> {
    let below = Scratch::directory(dir)?;
    let fd = below.fd();
    let ctime = || -> Result<Timestamp> { Ok(look::stat(fd)?.ctime) };
    let changed = |change: Result<()>, before: &mut Timestamp| -> Result<bool> {
        change?;
        let after = ctime()?;
        Ok(std::mem::replace(before, after) != after)
    };
    let mut before = ctime()?;
    let mut differs = true;
    for _ in 0..DIRECTORY_ROUNDS {
        differs = changed(names::mknod(fd, b"a", 0o600, 0), &mut before)?
            && changed(names::mknod(fd, b"b", 0o600, 0), &mut before)?
            && changed(names::rename((fd, b"a"), (fd, b"b"), Rename::Replace), &mut before)?
            && changed(names::unlink(fd, b"b"), &mut before)?;
        if !differs {
            break;
        }
    }
    for name in [b"a", b"b"] {
        absent_is_fine(names::unlink(fd, name))?;
    }
    Ok(differs)
}

/// Without room it can't be probed now, and none are relied on.
fn reflinks(dir: &OwnedFd, file: BorrowedFd<'_>) -> Result<bool> {
    let shares = || {
        bytes::pwrite(file, &[1; 4096], 0)?;
        let copy = Scratch::file(dir)?;
        Ok(rustix::fs::ioctl_ficlone(copy.fd(), file).is_ok())
    };
    match shares() {
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(false),
        told => told,
    }
}

fn rename_flags(dir: &OwnedFd) -> Result<bool> {
    let below = Scratch::directory(dir)?;
    let fd = below.fd();
    names::mknod(fd, b"a", 0o600, 0)?;
    names::mkdir(fd, b"b", 0o700)?;
    let refused = names::rename((fd, b"a"), (fd, b"b"), Rename::NoReplace) == Err(Errno::EXIST);
    let moved = names::rename((fd, b"a"), (fd, b"c"), Rename::NoReplace).is_ok();
    let swapped = names::rename((fd, b"c"), (fd, b"b"), Rename::Exchange).is_ok();
    for name in [b"a", b"b", b"c"] {
        match names::unlink(fd, name) {
            Err(Errno::ISDIR) => names::rmdir(fd, name)?,
            result => absent_is_fine(result)?,
        }
    }
    Ok(refused && moved && swapped)
}

fn leases(file: BorrowedFd<'_>) -> bool {
    let taken = lease::lease(file, Lease::Write).is_ok();
    // It also ends with the descriptor, right after.
    let _ = lease::lease(file, Lease::None);
    taken
}

fn handles(dir: &OwnedFd, stat: &Stat, kind: FsKind, file: BorrowedFd<'_>) -> Result<(bool, bool)> {
    let Ok(handle) = open::handle(dir.as_fd(), None) else { return Ok((false, false)) };
    let Ok(again) = open::open_handle(dir.as_fd(), &handle, Open::Path) else { return Ok((true, false)) };
    Ok((true, look::stat(again.as_fd())?.ino == stat.ino && !has_inline_data(kind, file)))
}

/// ext4 with inline_data finds a directory by its handle only while the kernel has it in memory: ESTALE after each
/// mount (seen with 6.18). Without room for a byte it has no such data.
fn has_inline_data(kind: FsKind, file: BorrowedFd<'_>) -> bool {
    matches!(kind, FsKind::Ext4 | FsKind::Ext4NoJournal)
        && bytes::pwrite(file, &[0], 0).is_ok()
        && flags::get(file).is_ok_and(|flags| flags & INLINE_DATA != 0)
}

fn absent_is_fine(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// A file or directory of ours for the length of a probe.
struct Scratch<'a> {
    fd: OwnedFd,
    /// Directory to remove on drop.
    named: Option<(&'a OwnedFd, String)>,
}

impl<'a> Scratch<'a> {
    fn file(dir: &'a OwnedFd) -> Result<Scratch<'a>> {
        let fd = match open::tmpfile(dir.as_fd(), 0o600) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let name = Self::name();
                let fd = open::create(dir.as_fd(), name.as_bytes(), 0o600)?;
                names::unlink(dir.as_fd(), name.as_bytes())?;
                fd
            }
            result => result?,
        };
        Ok(Scratch { fd, named: None })
    }

    fn directory(dir: &'a OwnedFd) -> Result<Scratch<'a>> {
        let name = Self::name();
        names::mkdir(dir.as_fd(), name.as_bytes(), 0o700)?;
        let fd = open::open(dir.as_fd(), name.as_bytes(), Open::Directory)?;
        Ok(Scratch { fd, named: Some((dir, name)) })
    }

    fn name() -> String {
        format!(".systx-probe-{:016x}", machine::random())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some((dir, name)) = &self.named {
            // Best effort: an error on the way out must not hide the first one.
            let _ = names::rmdir(dir.as_fd(), name.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_made_of_the_uuid_says_which_file_system_it_is() {
        let uuid = Some([7; 16]);
        for kind in [FsKind::Ext4, FsKind::Ext4NoJournal, FsKind::Btrfs] {
            assert_eq!(signs(kind, uuid, 5), (uuid, Some(5)));
            assert_eq!(signs(kind, None, 5), (None, Some(5)), "before Linux 6.9");
            assert_eq!(signs(kind, Some([0; 16]), 0), (None, None));
        }
        for kind in [FsKind::Xfs, FsKind::Tmpfs, FsKind::Other(1)] {
            assert_eq!(signs(kind, uuid, 5), (uuid, None), "a device number");
            assert_eq!(signs(kind, None, 5), (None, None));
        }
    }
}
