//! What a working set comes to at commit, in one domain: the contract between the working set and the commit protocol.

use crate::id::ObjectId;
use crate::record::Step;

/// Everything the commit protocol has to know of one domain's part of a transaction.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In publication order (COMMIT.md §3 U).
    pub steps: Vec<Step>,
    /// W.
    pub written: Vec<ObjectId>,
    /// C.
    pub commuting: Vec<ObjectId>,
    /// Slots that start as a token, and of which type.
    pub tokens: Vec<(u32, Token)>,
    /// Objects in slots that must survive a power loss before the record may be written, i.e. all staged objects but those
    /// whose step carries them whole.
    pub staged: Staged,
}

/// Type of a token: rename(2) replaces a directory by a directory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
}

/// How much is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Regular files whose contents are needed from the slots.
    pub files: u64,
    /// Other objects: directories, links, nodes.
    pub others: u64,
    /// Bytes in those files.
    pub bytes: u64,
}
