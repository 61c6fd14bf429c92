//! The structures of the FUSE protocol, byte for byte, native endian (include/uapi/linux/fuse.h, protocol 7.45).
//!
//! Field names are the kernel's. Every structure is free of padding, so that reading and writing it is a plain copy.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            #[allow(missing_docs)]
            pub struct $name { $(pub $field: $kind),* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

layouts! {
    /// Start of every request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Start of every reply; `error` is a negative error number or 0.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }

    /// INIT request. Kernels before 7.36 send the first four fields only.
    InitIn = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    /// INIT reply.
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }

    /// Attributes.
    WireAttr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// Reply that introduces a node.
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: WireAttr,
    }
    /// Reply to GETATTR and SETATTR.
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: WireAttr }

    /// SETATTR.
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// MKNOD; the name follows.
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; the name follows.
    MkdirIn = 8 { mode: u32, umask: u32 }
    /// RENAME; the old and the new name follow.
    RenameIn = 8 { newdir: u64 }
    /// RENAME2; the old and the new name follow.
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    /// LINK; the name follows.
    LinkIn = 8 { oldnodeid: u64 }
    /// OPEN.
    OpenIn = 8 { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE; the name follows.
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// Reply to OPEN, second part of the reply to CREATE.
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    /// RELEASE.
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// READ, READDIR, READDIRPLUS.
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// WRITE; the bytes follow.
    WriteIn = 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut = 8 { size: u32, padding: u32 }
    /// FALLOCATE.
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK.
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// Reply to LSEEK.
    LseekOut = 8 { offset: u64 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64; the source is the request's node.
    CopyFileRangeIn = 56 { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    /// Reply to COPY_FILE_RANGE_64.
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    /// Reply to STATFS.
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// SETXATTR as negotiated by SETXATTR_EXT; name and value follow.
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// SETXATTR as it was before; name and value follow.
    SetxattrCompatIn = 8 { size: u32, flags: u32 }
    /// GETXATTR (the name follows) and LISTXATTR.
    GetxattrIn = 8 { size: u32, padding: u32 }
    /// Reply to GETXATTR and LISTXATTR with size 0.
    GetxattrOut = 8 { size: u32, padding: u32 }
    /// Notification: what is cached of a node is no longer true. With a negative `off` only its attributes.
    NotifyInvalInodeOut = 24 { ino: u64, off: i64, len: i64 }
    /// Notification: the kernel should forget nodes that no program uses; `count` numbers follow.
    NotifyPruneOut = 16 { count: u32, padding: u32, spare: u64 }
    /// FORGET.
    ForgetIn = 8 { nlookup: u64 }
    /// BATCH_FORGET; so many of the next follow.
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    /// One node of a BATCH_FORGET.
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    /// Start of an entry of a READDIR reply; the name follows, padded to 8 bytes.
    WireDirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
}

/// Node number of the root of every connection.
pub const ROOT_ID: u64 = 1;
/// How long the kernel may keep names and attributes, in seconds: for ever. No other program can change what
/// a transaction sees, and the kernel itself drops what its own requests change.
pub const FOREVER: u64 = 1 << 30;

/// SETATTR: which fields count (`fuse_setattr_in.valid`).
#[allow(missing_docs)]
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of the reply to OPEN.
#[allow(missing_docs)]
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// The notification of [`NotifyInvalInodeOut`].
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// The notification of [`NotifyPruneOut`]. Minimum kernel version: 6.18 (protocol 7.45).
pub const NOTIFY_PRUNE: i32 = 9;
/// OPEN, CREATE: setuid and setgid bits are to be cleared with the truncation (`open_flags`).
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// WRITE: setuid and setgid bits are to be cleared (`write_flags`).
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// SETXATTR: the setgid bit is to be cleared (`setxattr_flags`).
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
