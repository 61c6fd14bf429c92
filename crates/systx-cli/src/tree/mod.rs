//! Which mounts a run serves, and how the command's tree is put together from them.
//!
//! Owns: the decision, mount by mount. Guarantees: a mount that can be written is served, is one through
//! which the kernel talks, or is made read-only in the command's tree, so that nothing it does to files
//! escapes the transaction unnoticed. Does not: mount anything ([`systx_os::sandbox::root`] does) or open
//! domains.
//!
//! | mount | without `--only` |
//! |---|---|
//! | writable ext4, xfs, btrfs, tmpfs | served; several mounts of one file system share one view |
//! | /proc | a new one, for the new process ids; what was mounted on it moves |
//! | /dev/shm, /dev/mqueue | empty ones: POSIX IPC does not leave a transaction |
//! | other file systems through which the kernel talks: /sys, /dev/pts, … | moves, with everything on it |
//! | /dev | moves and becomes read-only: its devices work, nothing can be made in it |
//! | one that fails, or that nobody else may look at | moves and becomes read-only |
//! | read-only | moves; a bind mount of a served file system is a read-only part of its view |
//! | anything else | moves and becomes read-only |
//!
//! With `--only DIR…` views cover these directories; below them the same rules hold, outside of them the
//! command runs natively: what it does there takes effect at once and stays, whatever becomes of the
//! transaction.
//!
//! An ordinary user's whole tree is what stands, made read-only, with views over the places in which he can
//! change anything ([`plan_places`]); what the kernel talks through stays, and POSIX IPC is the command's
//! own.

mod path;
mod planner;
#[cfg(test)]
mod tests;

pub use systx_places::fate::{NATIVE, VIEW};
pub use systx_places::owned;
pub use systx_places::path::is_below;
pub use systx_places::Seen;

use crate::failure::Result;
use crate::words::shown;
use path::depth;
use planner::{Planner, COPIED};
use systx_engine::domain::Bounds;
use systx_os::sandbox::mounts::{Attributes, Mount};
use systx_os::sandbox::root::{Base, Step};
use systx_places::fate::{obstacle, Obstacle};

/// A mount whose file system is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lower {
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Mount options, which the view gets as well.
    pub attributes: Attributes,
    /// Type of the file system.
    pub fs_type: String,
    /// How far handles may lead from there.
    pub bounds: Bounds,
}

/// The command's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The base of the tree.
    pub base: Base,
    /// Served mounts; the view of the n-th is detached mount n.
    pub lower: Vec<Lower>,
    /// Trees to be copied as they are; the n-th is detached mount `lower.len()` + n.
    pub copied: Vec<Vec<u8>>,
    /// How it is put together.
    pub steps: Vec<Step>,
    /// Mounts that the command finds read-only although they are not, with their type.
    pub read_only: Vec<(Vec<u8>, String)>,
    /// The directories to which it is confined, without those that lie in another one; none: it is the whole tree.
    pub named: Vec<Vec<u8>>,
}

/// Why the directories of a mount can't be served, if they can't.
pub fn can_be_served(mount: &Mount) -> Result<()> {
    match obstacle(mount) {
        None => Ok(()),
        Some(Obstacle::ReadOnly) => Err("mounted read-only".into()),
        Some(Obstacle::MappedNumbers) => Err("mounted with mapped numbers of users and groups".into()),
        Some(Obstacle::FileSystem) => Err(format!("{} can't be served", shown(&mount.fs_type)).into()),
    }
}

/// Returns true if nothing else keeps the directories of a mount from being served.
pub fn is_only_read_only(mount: &Mount) -> bool {
    matches!(obstacle(mount), Some(Obstacle::ReadOnly))
}

/// Returns the mounts that can be served, also where the rest of the tree can't be: in most containers `/` is
/// an overlay.
pub fn served(mounts: &[Mount], see: &dyn Fn(&Mount) -> Seen) -> Vec<Lower> {
    let visible = visible(mounts, see);
    let mut planner = Planner::new(mounts);
    planner.views(&visible);
    planner.lower
}

/// Plans the tree. `only` are absolute paths without symbolic links; empty for the whole tree.
pub fn plan(mounts: &[Mount], only: &[Vec<u8>], see: &dyn Fn(&Mount) -> Seen) -> Result<Tree> {
    let visible = visible(mounts, see);
    let mut planner = Planner::new(mounts);
    let base = match only {
        [] => planner.whole(&visible)?,
        only => {
            planner.parts(&visible, only)?;
            Base::Same
        }
    };
    Ok(planned(planner, base))
}

/// Plans the whole tree of an ordinary user. `narrowed`: the mount table in which the user's `places` are
/// mounts.
pub fn plan_places(
    mounts: &[Mount],
    narrowed: &[Mount],
    places: &[Vec<u8>],
    see: &dyn Fn(&Mount) -> Seen,
) -> Result<Tree> {
    let mut planner = Planner::new(narrowed);
    planner.read_only(&visible(mounts, see))?;
    planner.parts(&visible(narrowed, see), places)?;
    Ok(planned(planner, Base::Same))
}

fn planned(mut planner: Planner, base: Base) -> Tree {
    let served = planner.lower.len();
    // Copies were numbered from the end of the address space, because the number of views was not known yet.
    for step in &mut planner.steps {
        if let Step::Mount { mount, .. } = step {
            *mount = if *mount >= COPIED { *mount - COPIED + served } else { *mount };
        }
    }
    Tree {
        base,
        lower: planner.lower,
        copied: planner.copied,
        steps: planner.steps,
        read_only: planner.read_only,
        named: planner.named,
    }
}

/// The mounts that are not hidden by others, from the root downwards.
fn visible<'m>(mounts: &'m [Mount], see: &dyn Fn(&Mount) -> Seen) -> Vec<(&'m Mount, Seen)> {
    let mut visible: Vec<_> =
        mounts.iter().map(|m| (m, see(m))).filter(|(_, seen)| *seen != Seen::Hidden).collect();
    visible.sort_by_key(|(m, _)| depth(&m.point));
    visible
}
