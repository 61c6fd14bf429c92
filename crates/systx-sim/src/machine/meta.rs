//! What a journal entry holds of an inode.

use std::collections::BTreeMap;

use systx_os::{FileType, Timestamp};

/// Identity of an inode over all times and file systems of one machine.
pub(super) type Id = u64;

/// Attributes of an inode: what a journal entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) ino: u64,
    pub(super) generation: u32,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u64,
    pub(super) nlink: u32,
    pub(super) size: u64,
    /// The size that a journal has: bytes behind it have been written, and not been written out.
    pub(super) size_out: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) made: Timestamp,
    /// Start of a block that is allocated behind the end.
    pub(super) reserved: Option<u64>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) target: Vec<u8>,
    pub(super) immutable: bool,
    pub(super) append_only: bool,
    /// Inode flags but for these two.
    pub(super) flags: u32,
}

impl Meta {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }
}
