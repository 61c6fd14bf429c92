//! Objects that a transaction does not serve, as the kernel shows them: one name at a time, never through a
//! symbolic link, with the rights of the calling thread.
//!
//! Owns: [`Outside`], an object held by a descriptor (O_PATH). Does not: write to it.

use crate::types::{Dirent, Errno, FileType, LinkAtEnd, Result, Stat};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, CWD};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// To hold what a name stands for.
const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Device, inode and mount of a directory.
pub type Key = (u64, u64, u64);

/// An object, held open.
#[derive(Clone, Debug)]
pub struct Outside {
    fd: Arc<OwnedFd>,
    stat: Stat,
}

impl Outside {
    /// Holds the object behind a descriptor.
    pub fn of(fd: &Arc<OwnedFd>) -> Result<Outside> {
        Ok(Outside { fd: fd.clone(), stat: crate::linux::stat(fd.as_fd())? })
    }

    /// Looks at a name of a directory.
    pub fn look(dir: &OwnedFd, name: &[u8]) -> Result<Outside> {
        Outside::of(&Arc::new(rustix::fs::openat(dir, name, HELD, Mode::empty())?))
    }

    /// Looks at the end of an absolute path.
    pub fn at(path: &[u8]) -> Result<Outside> {
        Outside::of(&Arc::new(rustix::fs::openat(CWD, path, HELD, Mode::empty())?))
    }

    /// Returns the descriptor (O_PATH).
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Returns the type.
    pub fn kind(&self) -> FileType {
        self.stat.kind()
    }

    /// Returns the attributes as of the look.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Target of a symbolic link.
    pub fn target(&self) -> Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.fd, c"", Vec::new())?.into_bytes())
    }

    /// Entries of a directory, without `.` and `..`.
    pub fn read_dir(&self) -> Result<Vec<Dirent>> {
        crate::linux::read_dir(self.fd.as_fd())
    }

    /// Opens it for real, for reading or also for writing, without waiting for a FIFO's other end.
    pub fn open(&self, writes: bool) -> Result<OwnedFd> {
        let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
        let path = format!("/proc/thread-self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::openat(
            CWD,
            path,
            access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory of a directory, which may be `..` (O_PATH).
pub fn open_directory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    rustix::fs::openat(dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Opens the directory at a path, `.` or an absolute one (O_PATH).
pub fn open_at_path(path: &[u8]) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
}

/// Attributes of the object at an absolute path.
pub fn stat_at(path: &[u8], link: LinkAtEnd) -> Result<Stat> {
    crate::linux::stat_path(path, link)
}

/// Identity of the directory at a path.
pub fn key_at(path: &[u8]) -> Result<Key> {
    key(CWD, path)
}

/// Identity of an open directory.
pub fn key_of(fd: &OwnedFd) -> Result<Key> {
    key(fd.as_fd(), b"")
}

fn key(dir: BorrowedFd<'_>, path: &[u8]) -> Result<Key> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(dir, path, flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok((device, stat.stx_ino, stat.stx_mnt_id))
}

/// Path of an open directory, from the root of the calling thread.
///
/// # Errors
/// `ESTALE` if it is gone or cannot be reached from there.
pub fn path_of(fd: &OwnedFd) -> Result<Vec<u8>> {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, link, Vec::new())?.into_bytes();
    let gone = path.ends_with(b" (deleted)") && rustix::fs::fstat(fd)?.st_nlink == 0;
    if path.starts_with(b"/") && !gone {
        Ok(path)
    } else {
        Err(Errno::STALE)
    }
}

/// How a descriptor was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedAs {
    /// It can be read.
    pub reads: bool,
    /// It can be written to.
    pub writes: bool,
    /// It is written to at the end of the file.
    pub appends: bool,
}

/// Asks how a descriptor was opened; one of O_PATH is neither read nor written.
pub fn opened_as(fd: impl AsFd) -> Result<OpenedAs> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let access = flags & OFlags::ACCMODE;
    let usable = !flags.contains(OFlags::PATH);
    Ok(OpenedAs {
        reads: usable && access != OFlags::WRONLY,
        writes: usable && access != OFlags::RDONLY,
        appends: usable && flags.contains(OFlags::APPEND),
    })
}

/// Returns the offset of a descriptor, in bytes.
pub fn offset(fd: impl AsFd) -> Result<u64> {
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Current(0))
}

/// Moves the offset of a descriptor, in bytes.
pub fn set_offset(fd: impl AsFd, offset: u64) -> Result<()> {
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(offset)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_same_by_path_and_descriptor() {
        let tmp = open_at_path(b"/tmp").unwrap();
        assert_eq!(key_at(b"/tmp").unwrap(), key_of(&tmp).unwrap());
        assert_ne!(key_at(b"/tmp").unwrap(), key_at(b"/").unwrap());
        assert_eq!(path_of(&tmp).unwrap(), b"/tmp");
    }

    #[test]
    fn links_are_looked_at_and_not_followed() {
        let found = Outside::at(b"/proc/self").unwrap();
        assert_eq!(found.kind(), FileType::Symlink);
        assert_eq!(found.target().unwrap(), std::process::id().to_string().as_bytes());
    }
}
