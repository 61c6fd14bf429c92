//! The fate of one mount.
//!
//! Guarantees: nothing that can keep a user's data is left writable beside the transaction.

use crate::path::is_below;
use crate::Seen;
use systx_os::sandbox::mounts::Mount;

/// File system type of a transaction's view, in the mount table that its subtransactions are planned by. No
/// file system of the kernel has this name.
pub const VIEW: &[u8] = b"systx";
/// File system type, in that table, of mounts that the outer transaction has left as they are.
pub const NATIVE: &[u8] = b"systx.native";

/// File systems that the engine serves.
pub const SERVED: [&[u8]; 7] = [b"ext4", b"ext3", b"ext2", b"xfs", b"btrfs", b"tmpfs", VIEW];

/// File systems through which the kernel talks: a write there is a message to it, and is kept nowhere.
///
/// Not among them, although the kernel makes their files: devtmpfs, hugetlbfs and ramfs, where any user can
/// make files that stay; efivarfs and pstore, whose files outlive the machine's power. Device files work on a
/// read-only mount.
const KERNEL: [&[u8]; 19] = [
    NATIVE,
    b"proc",
    b"sysfs",
    b"devpts",
    b"cgroup",
    b"cgroup2",
    b"securityfs",
    b"debugfs",
    b"tracefs",
    b"bpf",
    b"configfs",
    b"fusectl",
    b"mqueue",
    b"binfmt_misc",
    b"selinuxfs",
    b"autofs",
    b"nsfs",
    b"rpc_pipefs",
    b"resctrl",
];

/// Treatment of a mount in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A view stands in its place.
    Served,
    /// It is as it is.
    Stays,
    /// It is there, and can't be changed.
    ReadOnly,
}

/// Why the directories of a mount can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is mounted read-only.
    ReadOnly,
    /// It shows other numbers of users and groups than the file system has.
    MappedNumbers,
    /// Neither this file system nor this place is served.
    FileSystem,
}

/// Returns why the directories of a mount can't be served, if they can't.
pub fn obstacle(mount: &Mount) -> Option<Obstacle> {
    match fate(mount, Seen::Directory) {
        Fate::Served => None,
        _ if mount.attributes.read_only || mount.file_system_read_only => Some(Obstacle::ReadOnly),
        _ if mount.idmapped => Some(Obstacle::MappedNumbers),
        _ => Some(Obstacle::FileSystem),
    }
}

/// Decides it.
pub fn fate(mount: &Mount, seen: Seen) -> Fate {
    let writable = !mount.attributes.read_only && !mount.file_system_read_only;
    // Mounts in the kernel's trees belong to them: programs find them with their devices, sockets and links.
    let kernels = [&b"/proc"[..], b"/sys", b"/dev"].iter().any(|top| is_below(&mount.point, top).is_some());
    // Facts and records have the file system's own numbers, and a program would give those of the mount.
    let serves = SERVED.contains(&mount.fs_type.as_slice()) && !mount.idmapped;
    match () {
        () if !writable || KERNEL.contains(&mount.fs_type.as_slice()) => Fate::Stays,
        () if serves && seen == Seen::Directory && !kernels => Fate::Served,
        () => Fate::ReadOnly,
    }
}
