//! Building the tree of mounts that a command sees, inside its own mount namespace.
//!
//! Owns: the steps ([`Step`]) and how each is done. Guarantees: nothing that happens here is seen outside the
//! namespace (all propagation is cut first); no allocation, so that it can run between clone and exec. Does
//! not: choose the steps.
//!
//! Two shapes of tree. With [`Base::Mount`] a new mount (a view) becomes the root and what is not served
//! moves from the old tree into it; the old tree is then detached. With [`Base::Same`] the old tree stays and
//! views cover parts of it.
//!
//! Source: move_mount(2), open_tree(2), mount_setattr(2), pivot_root(2).

use super::mounts::Attributes;
use crate::types::Result;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};
use std::ffi::{CStr, CString};

/// The base of the new tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The tree as it is; its root stays.
    Same,
    /// The detached mount with this index becomes the root.
    Mount(usize),
}

/// One change of the tree. Paths have no leading slash and are seen from the base; none of them is empty. But
/// [`Step::AllReadOnly`] they change one mount each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Mounts a detached mount with all that is mounted on it.
    Mount {
        /// Index of the mount.
        mount: usize,
        /// Where.
        at: CString,
    },
    /// Mounts a part of one of the detached mounts that is mounted already.
    Part {
        /// Index of the mount.
        mount: usize,
        /// Path of the part from that mount's root; empty for all of it.
        part: CString,
        /// Where.
        at: CString,
        /// Options of the new mount.
        attributes: Attributes,
    },
    /// Moves the old tree's mount at this path, with everything mounted on it, to the same path.
    Move {
        /// Where.
        at: CString,
    },
    /// Makes a mount read-only.
    ReadOnly {
        /// Where.
        at: CString,
    },
    /// Makes every mount of the tree read-only, hidden ones included. Before the first mount of the base is changed.
    AllReadOnly,
    /// Makes a mount writable again.
    Writable {
        /// Where.
        at: CString,
    },
    /// Mounts a fresh instance of a kernel file system.
    Fresh {
        /// Type: `proc`, `tmpfs`, …
        fs_type: CString,
        /// One option and its value.
        option: Option<(CString, CString)>,
        /// Where.
        at: CString,
    },
}

impl Step {
    /// The place that the step changes.
    pub fn at(&self) -> &CStr {
        match self {
            Step::Mount { at, .. }
            | Step::Part { at, .. }
            | Step::Move { at }
            | Step::ReadOnly { at }
            | Step::Writable { at }
            | Step::Fresh { at, .. } => at,
            Step::AllReadOnly => c"",
        }
    }
}

/// A whole tree to build.
pub struct Root {
    /// The base of the tree.
    pub base: Base,
    /// Detached mounts.
    pub mounts: Vec<OwnedFd>,
    /// The operations in their order: a mount before those on it.
    pub steps: Vec<Step>,
}

/// Which part of the building failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the first step.
    Base,
    /// The step with this index.
    Step(usize),
    /// Entering the new root or its working directory.
    Enter,
}

impl Root {
    /// Builds the tree in the mount namespace of this process, which must be its own, and enters it.
    pub(crate) fn build(&self) -> core::result::Result<(), (Stage, Errno)> {
        let base = self.start().map_err(|e| (Stage::Base, e))?;
        for (index, step) in self.steps.iter().enumerate() {
            self.run(step, base.as_fd()).map_err(|e| (Stage::Step(index), e))?;
        }
        match self.base {
            Base::Same => Ok(()),
            Base::Mount(_) => enter(base.as_fd()).map_err(|e| (Stage::Enter, e)),
        }
    }

    fn start(&self) -> Result<OwnedFd> {
        rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        match self.base {
            Base::Same => rustix::fs::openat(
                CWD,
                c"/",
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            ),
            Base::Mount(index) => {
                let mount = self.mounts.get(index).ok_or(Errno::INVAL)?;
                // Over the old root: a lookup of "/" still starts below it, so the old tree stays reachable by path.
                attach(mount.as_fd(), CWD, c"/")?;
                rustix::io::fcntl_dupfd_cloexec(mount, 3)
            }
        }
    }

    fn run(&self, step: &Step, base: BorrowedFd<'_>) -> Result<()> {
        match step {
            Step::Mount { mount, at } => attach(self.mount(*mount)?, base, at),
            Step::Part { mount, part, at, attributes } => {
                let how = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_EMPTY_PATH
                    | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
                let tree = rustix::mount::open_tree(self.mount(*mount)?, part.as_c_str(), how)?;
                set_attributes(&tree, *attributes)?;
                attach(tree.as_fd(), base, at)
            }
            Step::Move { at } => {
                let old = rustix::fs::openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                rustix::mount::move_mount(old, at.as_c_str(), base, at.as_c_str(), MoveMountFlags::empty())
            }
            Step::ReadOnly { at } => {
                set_attributes_at(base, at, 0, Attributes { read_only: true, ..Default::default() }, 0)
            }
            Step::AllReadOnly => {
                let all = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
                set_attributes_at(base, c"", all, Attributes { read_only: true, ..Default::default() }, 0)
            }
            Step::Writable { at } => {
                set_attributes_at(base, at, 0, Attributes::default(), libc::MOUNT_ATTR_RDONLY)
            }
            Step::Fresh { fs_type, option, at } => {
                let context = rustix::mount::fsopen(fs_type.as_c_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
                if let Some((key, value)) = option {
                    rustix::mount::fsconfig_set_string(context.as_fd(), key.as_c_str(), value.as_c_str())?;
                }
                rustix::mount::fsconfig_create(context.as_fd())?;
                let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
                let fresh =
                    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
                attach(fresh.as_fd(), base, at)
            }
        }
    }

    fn mount(&self, index: usize) -> Result<BorrowedFd<'_>> {
        Ok(self.mounts.get(index).ok_or(Errno::INVAL)?.as_fd())
    }
}

fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, at: &CStr) -> Result<()> {
    rustix::mount::move_mount(mount, c"", dir, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Makes `new` the root directory of this process and its namespace.
fn enter(new: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(new)?;
    match rustix::process::pivot_root(c".", c".") {
        // The old root lies over the new one now.
        Ok(()) => rustix::mount::unmount(c".", UnmountFlags::DETACH)?,
        // The old root is the kernel's first file system or only a directory (chroot): cover it instead.
        Err(Errno::INVAL) => {
            rustix::mount::mount_move(c".", c"/")?;
            rustix::process::chroot(c".")?;
        }
        Err(e) => return Err(e),
    }
    rustix::process::chdir(c"/")
}

/// Sets options of a mount given by a descriptor of its root, attached or not.
pub fn set_attributes(mount: &OwnedFd, attributes: Attributes) -> Result<()> {
    if attributes == Attributes::default() {
        return Ok(());
    }
    set_attributes_at(mount.as_fd(), c"", libc::AT_EMPTY_PATH, attributes, 0)
}

/// Gives a detached mount the options of another one, and cuts it off from whatever the one that it is a copy of passes
/// on. The file system of the other one is asked.
pub(super) fn set_like(mount: &OwnedFd, other: &OwnedFd) -> Result<()> {
    let flags = rustix::fs::fstatvfs(other)?.f_flag.bits();
    let pairs = [
        (libc::ST_RDONLY, libc::MOUNT_ATTR_RDONLY),
        (libc::ST_NOSUID, libc::MOUNT_ATTR_NOSUID),
        (libc::ST_NODEV, libc::MOUNT_ATTR_NODEV),
        (libc::ST_NOEXEC, libc::MOUNT_ATTR_NOEXEC),
        (libc::ST_NODIRATIME, libc::MOUNT_ATTR_NODIRATIME),
        (ST_NOSYMFOLLOW, libc::MOUNT_ATTR_NOSYMFOLLOW),
    ];
    let attributes = pairs.iter().filter(|(flag, _)| flags & *flag != 0).fold(0, |all, (_, bit)| all | bit);
    // Of these a mount has exactly one.
    let (attr_set, attr_clr) = match flags & libc::ST_NOATIME {
        0 => (attributes, 0),
        _ => (attributes | libc::MOUNT_ATTR_NOATIME, libc::MOUNT_ATTR__ATIME),
    };
    let all = libc::mount_attr { attr_set, attr_clr, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    set(mount.as_fd(), c"", libc::AT_EMPTY_PATH, all)
}

/// Of linux/statfs.h.
const ST_NOSYMFOLLOW: libc::c_ulong = 0x2000;

/// Sets these options and clears those in `cleared`, bits as in linux/mount.h.
fn set_attributes_at(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
    attributes: Attributes,
    cleared: u64,
) -> Result<()> {
    set(dir, path, flags, libc::mount_attr { attr_clr: cleared, ..bits(attributes) })
}

fn bits(attributes: Attributes) -> libc::mount_attr {
    let Attributes { read_only, nosuid, nodev, noexec } = attributes;
    let bit = |on: bool, flag: u64| if on { flag } else { 0 };
    libc::mount_attr {
        attr_set: bit(read_only, libc::MOUNT_ATTR_RDONLY)
            | bit(nosuid, libc::MOUNT_ATTR_NOSUID)
            | bit(nodev, libc::MOUNT_ATTR_NODEV)
            | bit(noexec, libc::MOUNT_ATTR_NOEXEC),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    }
}

fn set(dir: BorrowedFd<'_>, path: &CStr, flags: i32, set: libc::mount_attr) -> Result<()> {
    // SAFETY: `path` is a C string, `set` a mount_attr of the size given; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags as libc::c_uint,
            &raw const set,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(crate::process::last_errno())
    }
}
