//! Attributes of an object, in the manner of [`std::fs::Metadata`].

use std::time::{Duration, SystemTime};
use systx_engine::transaction::Attr;
use systx_os::{Stat, Timestamp};

/// Attributes of an object as the transaction sees them.
///
/// Times, size and link count of directories are as of the first look and are not compared at commit.
#[derive(Clone, Debug)]
pub struct Metadata(Attr);

impl From<Attr> for Metadata {
    fn from(attr: Attr) -> Metadata {
        Metadata(attr)
    }
}

impl From<&Stat> for Metadata {
    fn from(stat: &Stat) -> Metadata {
        Metadata(attr_of(stat))
    }
}

/// Attributes as the engine has them.
pub(crate) fn attr_of(stat: &Stat) -> Attr {
    Attr {
        ino: stat.ino,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        mode: stat.mode,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        blksize: stat.blksize,
    }
}

/// Type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(systx_os::FileType);

impl FileType {
    pub(crate) fn new(kind: systx_os::FileType) -> FileType {
        FileType(kind)
    }

    pub(crate) fn kind(self) -> systx_os::FileType {
        self.0
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.0 == systx_os::FileType::Directory
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.0 == systx_os::FileType::File
    }

    /// A symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == systx_os::FileType::Symlink
    }
}

impl Metadata {
    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType(systx_os::FileType::from_mode(self.0.mode).unwrap_or(systx_os::FileType::File))
    }

    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// A regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// A symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the name that std::fs::Metadata has")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Type and permission bits.
    pub fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Number of names.
    pub fn nlink(&self) -> u64 {
        self.0.nlink.into()
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// Time of the last modification.
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime)
    }

    /// Time of the last access; not part of what a transaction compares or restores.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime)
    }

    /// Time of the last change of attributes.
    pub fn changed(&self) -> SystemTime {
        time(self.0.ctime)
    }
}

fn time(stamp: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(stamp.nsec.into());
    let seconds = Duration::from_secs(stamp.sec.unsigned_abs());
    let whole = match stamp.sec {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time as the engine has it.
pub(crate) fn stamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { sec: -(before.as_secs() as i64), nsec: 0 },
                nsec => Timestamp { sec: -(before.as_secs() as i64) - 1, nsec: 1_000_000_000 - nsec },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        for (sec, nsec) in [(0, 0), (5, 7), (-1, 999_999_999), (-3, 0), (1 << 40, 1)] {
            let before = Timestamp { sec, nsec };
            assert_eq!(stamp(time(before)), before);
        }
    }
}
