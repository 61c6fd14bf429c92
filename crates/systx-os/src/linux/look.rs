//! Looking: attributes, listings, link targets, totals. Changes nothing, not even access times where that is allowed.

use std::cell::Cell;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, RawDir, Statx, StatxAttributes, StatxFlags};

use super::open;
use super::raw::Name;
use crate::types::LinkAtEnd;
use crate::types::{Dirent, Errno, FileType, Open, Result, Stat, StatFs, Timestamp};

/// STATX_MNT_ID_UNIQUE: a mount id that is not given out twice.
/// Minimum kernel version: 6.8; older ones answer with the id that /proc/self/mountinfo shows.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Room for entries per getdents64, in bytes.
const LISTING_BYTES: usize = 64 << 10;

pub(super) fn stat(fd: BorrowedFd<'_>) -> Result<Stat> {
    statx(fd, c"", AtFlags::EMPTY_PATH)
}

pub(super) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat> {
    statx(dir, Name::new(name)?.as_c_str(), AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

pub(super) fn stat_path(path: &[u8], link: LinkAtEnd) -> Result<Stat> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let link = match link {
        LinkAtEnd::Followed => AtFlags::empty(),
        LinkAtEnd::Itself => AtFlags::SYMLINK_NOFOLLOW,
    };
    statx(rustix::fs::CWD, &path, link | AtFlags::NO_AUTOMOUNT)
}

fn statx(dir: BorrowedFd<'_>, path: &std::ffi::CStr, flags: AtFlags) -> Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | MNT_ID_UNIQUE;
    let x: Statx = rustix::fs::statx(dir, path, flags, mask)?;
    Ok(Stat {
        dev: rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor),
        ino: x.stx_ino,
        mnt_id: x.stx_mnt_id,
        mode: u32::from(x.stx_mode),
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        rdev: rustix::fs::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        size: x.stx_size,
        blocks: x.stx_blocks,
        blksize: x.stx_blksize,
        atime: Timestamp { sec: x.stx_atime.tv_sec, nsec: x.stx_atime.tv_nsec },
        mtime: Timestamp { sec: x.stx_mtime.tv_sec, nsec: x.stx_mtime.tv_nsec },
        ctime: Timestamp { sec: x.stx_ctime.tv_sec, nsec: x.stx_ctime.tv_nsec },
        immutable: x.stx_attributes.contains(StatxAttributes::IMMUTABLE),
        append_only: x.stx_attributes.contains(StatxAttributes::APPEND),
    })
}

pub(super) fn made(fd: BorrowedFd<'_>) -> Result<Option<Timestamp>> {
    let x = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let made = Timestamp { sec: x.stx_btime.tv_sec, nsec: x.stx_btime.tv_nsec };
    Ok(StatxFlags::from_bits_retain(x.stx_mask).contains(StatxFlags::BTIME).then_some(made))
}

pub(super) fn read_dir(fd: BorrowedFd<'_>) -> Result<Vec<Dirent>> {
    // Opened anew: the position of a directory belongs to the open file, which `fd` may share with another thread.
    let dir = open::reopen(fd, Open::Directory)?;
    // A thread that ends may abort a transaction when its values are gone.
    let mut buf = LISTING.try_with(Cell::take).unwrap_or_default();
    buf.reserve_exact(LISTING_BYTES);
    let entries = entries(&dir, buf.spare_capacity_mut());
    let _ = LISTING.try_with(|room| room.set(buf));
    entries
}

thread_local! {
    /// Room for entries. Allocated for each listing it would make the allocator tidy up each time.
    static LISTING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn entries(dir: &OwnedFd, room: &mut [MaybeUninit<u8>]) -> Result<Vec<Dirent>> {
    let mut entries = Vec::new();
    let mut raw = RawDir::new(dir, room);
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match kind_told(entry.file_type()) {
            Some(kind) => kind,
            None => match stat_at(dir.as_fd(), name) {
                Ok(stat) => stat.kind(),
                Err(Errno::NOENT) => continue, // Gone since: as if it had been listed a moment later.
                Err(e) => return Err(e),
            },
        };
        entries.push(Dirent { name: name.to_vec(), ino: entry.ino(), kind });
    }
    Ok(entries)
}

fn kind_told(d_type: rustix::fs::FileType) -> Option<FileType> {
    Some(match d_type {
        rustix::fs::FileType::RegularFile => FileType::File,
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::Unknown => return None,
    })
}

pub(super) fn read_link(fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
    match rustix::fs::readlinkat(fd, c"", Vec::with_capacity(256)) {
        Ok(target) => Ok(target.into_bytes()),
        // With an empty path the kernel says ENOENT for what is no symbolic link; readlink(2) with a path, EINVAL.
        Err(Errno::NOENT) => Err(Errno::INVAL),
        Err(e) => Err(e),
    }
}

pub(super) fn statfs(fd: BorrowedFd<'_>) -> Result<StatFs> {
    let s = rustix::fs::fstatfs(fd)?;
    Ok(StatFs {
        magic: s.f_type as u64,
        bsize: s.f_bsize as u32,
        frsize: s.f_frsize as u32,
        blocks: s.f_blocks,
        bfree: s.f_bfree,
        bavail: s.f_bavail,
        files: s.f_files,
        ffree: s.f_ffree,
        namelen: s.f_namelen as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ListsAtItsEnd;

    impl Drop for ListsAtItsEnd {
        fn drop(&mut self) {
            read_dir(std::fs::File::open("/").unwrap().as_fd()).unwrap();
        }
    }

    #[test]
    fn a_thread_that_ends_can_still_list() {
        thread_local! {
            static LAST: ListsAtItsEnd = const { ListsAtItsEnd };
        }
        // A value that is made later is dropped earlier.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                LAST.with(|_| ());
                read_dir(std::fs::File::open("/").unwrap().as_fd()).unwrap();
            });
        });
    }
}
