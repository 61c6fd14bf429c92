//! An entry of a directory.

use crate::metadata::FileType;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    name: OsString,
    kind: FileType,
    ino: u64,
}

impl DirEntry {
    /// Returns the type as the system's interface has it.
    pub(crate) fn kind(&self) -> systx_os::FileType {
        self.kind.kind()
    }

    pub(crate) fn new(name: &[u8], kind: systx_os::FileType, ino: u64) -> DirEntry {
        DirEntry { name: OsStr::from_bytes(name).to_owned(), kind: FileType::new(kind), ino }
    }

    /// Returns the name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the type of the object.
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// Returns the inode number of the object.
    pub fn ino(&self) -> u64 {
        self.ino
    }
}
