//! What the verbs of a transaction take and give: nodes, attributes, entries of directories.

use systx_os::{FileType, Stat, Timestamp};

/// An object as a transaction sees it. Dense, from 1; `Node(1 + i)` is the root of mount `i` of those that the
/// transaction began with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Node(pub u64);

/// On whose behalf an object is made.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Owner of what is made.
    pub uid: u32,
    /// Group of a new object, unless the directory gives its own.
    pub gid: u32,
    /// Taken from the mode, unless the directory has a default ACL.
    pub umask: u32,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number: the committed tree's, or that of the staged object.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Status change time.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
}

impl From<&Stat> for Attr {
    fn from(stat: &Stat) -> Attr {
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
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This.
    At(Timestamp),
}

/// Attributes to set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Drops setuid, setgid (of what the group may execute) and `security.capability`, as a change of bytes or owner by
    /// an unprivileged caller does.
    pub kill_priv: bool,
}

/// The access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// The place of bytes that were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendedAt {
    /// From the start of the file.
    Offset(u64),
    /// So many bytes behind the end that the file has before the transaction: it is not known yet.
    BehindEnd(u64),
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileType,
    /// The node, if there was one already.
    pub node: Option<Node>,
}
