//! Plain values that cross the boundary.

use serde::{Deserialize, Serialize};

/// A kernel error number.
pub use rustix::io::Errno;

/// Result of one call to the kernel.
pub type Result<T> = core::result::Result<T, Errno>;

/// Identity of a file-system object: inode number and generation, as name_to_handle_at(2) gives them.
///
/// Two objects of one file system that ever existed have different handles. Compared bytewise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Handle {
    /// The file system's handle type.
    pub kind: i32,
    /// Number of valid bytes.
    pub len: u8,
    /// The bytes; those past `len` are 0. Handles of ext4, xfs, btrfs and tmpfs fit.
    pub bytes: [[u8; 10]; 4],
}

/// In one go: as derived, each of the small arrays would be hashed with its length.
impl core::hash::Hash for Handle {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl Handle {
    /// Longest handle that can be kept, in bytes.
    pub const BYTES_MAX: usize = 40;

    /// Builds a handle; `None` when it is longer than [`Handle::BYTES_MAX`].
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Handle> {
        if bytes.len() > Self::BYTES_MAX {
            return None;
        }
        let mut h = Handle { kind, len: bytes.len() as u8, bytes: [[0; 10]; 4] };
        h.bytes.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        Some(h)
    }

    /// The valid bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes.as_flattened()[..usize::from(self.len).min(Self::BYTES_MAX)]
    }
}

impl core::fmt::Debug for Handle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x}:", self.kind)?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A point in time: seconds and nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds, 0..1e9.
    pub nsec: u32,
}

/// Inode flags (chattr(1)), bits as in linux/fs.h.
#[allow(missing_docs)]
pub mod inode_flag {
    pub const SECRM: u32 = 0x1;
    pub const UNRM: u32 = 0x2;
    pub const SYNC: u32 = 0x8;
    pub const NODUMP: u32 = 0x40;
    pub const NOATIME: u32 = 0x80;
    pub const NOCOMP: u32 = 0x400;
    pub const ENCRYPT: u32 = 0x800;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const NOTAIL: u32 = 0x8000;
    pub const DIRSYNC: u32 = 0x1_0000;
    pub const NOCOW: u32 = 0x80_0000;
    pub const CASEFOLD: u32 = 0x4000_0000;
    pub const COMPR: u32 = 0x4;
    pub const DAX: u32 = 0x200_0000;
    /// Flags that a program has given to a file, or that its directory has passed on: the kernel sets others
    /// for itself.
    pub const GIVEN: u32 = SECRM
        | UNRM
        | COMPR
        | SYNC
        | NODUMP
        | NOATIME
        | NOCOMP
        | ENCRYPT
        | JOURNAL_DATA
        | NOTAIL
        | NOCOW
        | DAX;
}

/// Type of a file-system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileType {
    /// From the type bits of `st_mode`.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => FileType::File,
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFCHR => FileType::CharDevice,
            libc::S_IFBLK => FileType::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::File => libc::S_IFREG,
            FileType::Directory => libc::S_IFDIR,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Fifo => libc::S_IFIFO,
            FileType::Socket => libc::S_IFSOCK,
            FileType::CharDevice => libc::S_IFCHR,
            FileType::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// Attributes of an object (statx).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Device of the file system, as st_dev.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Mount id (unique per mount, not persistent).
    pub mnt_id: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Status change time.
    pub ctime: Timestamp,
    /// Immutable flag (chattr +i).
    pub immutable: bool,
    /// Append-only flag (chattr +a).
    pub append_only: bool,
}

impl Stat {
    /// The object's type; unknown types count as regular files.
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }
    /// Permission bits without the type.
    pub fn perm(&self) -> u32 {
        self.mode & 0o7777
    }
    /// The part by which an object that was not changed since is known again.
    pub fn sight(&self) -> Sight {
        Sight { dev: self.dev, ino: self.ino, ctime: self.ctime }
    }
}

/// A state of an object: where change times move with each change, nothing else ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Status change time.
    pub ctime: Timestamp,
}

/// A part of a commit, for [`Os::phase`](crate::Os::phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its record is on the way to the log: its fate is unknown until the next phase begins.
    Decide,
    /// It was taken back.
    Withdrawn,
    /// Steps are taken: it is committed.
    Publish,
    /// The objects that steps took out are deleted.
    Reclaim,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dirent {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// Type; asked for by stat where the file system does not give it with the name.
    pub kind: FileType,
}

/// File-system totals, in units of `bsize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// f_type.
    pub magic: u64,
    /// Block size in bytes.
    pub bsize: u32,
    /// Fragment size in bytes.
    pub frsize: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Blocks free for ordinary users.
    pub bavail: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name in bytes.
    pub namelen: u32,
}

/// The number by which the kernel shows a user or group without a number in this user namespace, by default
/// (fs.overflowuid).
pub const NOBODY: u32 = 65534;

/// Kind of file system, as far as the protocol treats them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsKind {
    /// ext4 with a journal.
    Ext4,
    /// ext4 without a journal: names may be lost or doubled at power failure.
    Ext4NoJournal,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
    /// tmpfs: gone at power failure, so everything is as durable as it gets.
    Tmpfs,
    /// Anything else, by f_type.
    Other(u64),
}

/// The properties of one file system that may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    /// Kind of file system.
    pub kind: FsKind,
    /// UUID, where the kernel gives it (FS_IOC_GETFSUUID). Minimum kernel version: 6.9.
    pub uuid: Option<[u8; 16]>,
    /// f_fsid of statfs(2), where it is made of the UUID: ext4 and btrfs. Others make it of a device number
    /// (xfs), which is another one when disks are found in another order.
    pub fsid: Option<u64>,
    /// Which life of its superblock this is: another number after each mount of it, the same for second
    /// mounts, remounts and lazy unmounts. 0: not known. [`FsInfo::LIVES_ONCE`]: it never comes back.
    pub life: u64,
    /// stat → change → stat always differs (multigrain timestamps): stamps of files can be trusted.
    pub file_stamps: bool,
    /// The same as `file_stamps`, for directories.
    pub dir_stamps: bool,
    /// Files can share blocks (reflinks).
    pub reflinks: bool,
    /// RENAME_EXCHANGE and RENAME_NOREPLACE work.
    pub rename_flags: bool,
    /// File leases work.
    pub leases: bool,
    /// File handles work.
    pub handles: bool,
    /// Objects can be opened by handle by this process.
    pub open_by_handle: bool,
}

impl FsInfo {
    /// The life of what is gone for good when it is unmounted.
    pub const LIVES_ONCE: u64 = u64::MAX;

    /// Returns true if it is a transaction's view, whose areas never need their log: of all other kinds only
    /// tmpfs lives once.
    pub fn is_view(&self) -> bool {
        self.life == FsInfo::LIVES_ONCE && matches!(self.kind, FsKind::Other(_))
    }
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// O_PATH | O_NOFOLLOW: identity only; works on every type of object.
    Path,
    /// A directory for reading entries and as a base: O_RDONLY | O_DIRECTORY.
    Directory,
    /// O_RDONLY | O_NOFOLLOW | O_NONBLOCK, without following or blocking; regular files.
    Read,
    /// O_RDWR, as `Read`. O_NONBLOCK so that an outsider's lease cannot stall us: `EAGAIN`.
    ReadWrite,
    /// O_WRONLY, as `ReadWrite`.
    Write,
}

/// Behaviour of rename when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails with `EEXIST`.
    NoReplace,
    /// Swaps the two; fails with `ENOENT` when one is missing.
    Exchange,
}

/// The kind of range that lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// None; the end of the file is one.
    Hole,
}

/// How far write-out goes before a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// It has begun.
    Start,
    /// It is over.
    Wait,
}

/// fallocate modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates and extends the size.
    Allocate,
    /// Allocates, keeps the size.
    KeepSize,
    /// Makes a hole, keeps the size.
    PunchHole,
    /// Zeroes; extends the size.
    Zero,
    /// Zeroes, keeps the size.
    ZeroKeepSize,
}

/// setxattr flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces.
    Any,
    /// XATTR_CREATE: `EEXIST` when there is one.
    Create,
    /// XATTR_REPLACE: `ENODATA` when there is none.
    Replace,
}

/// Kind of lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// None.
    None,
    /// F_RDLCK: no process has it open or mapped for writing.
    Read,
    /// F_WRLCK: no other process has it open, mapped or executing.
    Write,
}

/// The object of a path that ends in a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkAtEnd {
    /// The one to which it leads.
    Followed,
    /// The link.
    Itself,
}

/// A right or resource that a process may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One of root's capabilities that concern owners, modes and contents.
    Rights,
    /// That for attributes of the name spaces `trusted` and `security`.
    Trusted,
    /// Files of any size.
    Size,
}
