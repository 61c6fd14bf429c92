//! The steps by which a tree is put together, mount by mount, a mount before those on it.
//!
//! Guarantees: a file system that is mounted in several places is one view, shown in all of them. Does not: decide what
//! becomes of a mount ([`super::fate`] does).

use super::path::{c_string, relative};
use super::{Lower, Seen};
use crate::failure::{Failure, Result};
use crate::words::shown;
use std::collections::HashMap;
use std::ffi::CString;
use systx_engine::domain::Bounds;
use systx_os::sandbox::mounts::Mount;
use systx_os::sandbox::root::{Base, Step};
use systx_places::fate::{fate, Fate, SERVED};
use systx_places::path::{is_below, join};

/// On what a mount stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// On one that is moved or copied with all that is on it.
    Moved,
    /// On one that a view covers; `moved`: and that one on one that is moved.
    View { moved: bool },
    /// On the tree that stays.
    Base,
}

/// Provisional number of the first copy.
pub const COPIED: usize = usize::MAX / 2;

/// A tree that is being planned.
pub struct Planner {
    pub lower: Vec<Lower>,
    /// For each of `lower`: device, and the directory of the file system that is the view's root.
    windows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Parent of each mount, hidden ones included.
    parents: HashMap<u64, u64>,
    /// Mounts that a view stands in for.
    replaced: Vec<u64>,
    pub copied: Vec<Vec<u8>>,
    pub steps: Vec<Step>,
    pub read_only: Vec<(Vec<u8>, String)>,
    /// Directories that were named.
    pub named: Vec<Vec<u8>>,
}

impl Planner {
    pub fn new(mounts: &[Mount]) -> Planner {
        Planner {
            lower: Vec::new(),
            windows: Vec::new(),
            parents: mounts.iter().map(|m| (m.id, m.parent)).collect(),
            replaced: Vec::new(),
            copied: Vec::new(),
            steps: Vec::new(),
            read_only: Vec::new(),
            named: Vec::new(),
        }
    }

    /// All of the tree.
    pub fn whole(&mut self, visible: &[(&Mount, Seen)]) -> Result<Base> {
        let root =
            visible.iter().find(|(m, _)| m.point == b"/").ok_or_else(|| Failure::from("no mount at / in /proc/self/mountinfo").hint("in a chroot name directories on mounts with --only, or make its root a mount: mount --bind ROOT ROOT"))?;
        let base = match fate(root.0, root.1) {
            Fate::Served => {
                self.replaced.push(root.0.id);
                Base::Mount(self.add(root.0))
            }
            fate => {
                if fate == Fate::ReadOnly {
                    return Err(format!(
                        "/ is on {}, which can't be served: name directories on other mounts, a container's volumes for instance, with --only",
                        shown(&root.0.fs_type)
                    )
                    .into());
                }
                Base::Same
            }
        };
        let mut along: Vec<u64> = Vec::new();
        let mut kernels_proc = None;
        for (mount, seen) in visible.iter().filter(|(m, _)| m.point != b"/") {
            let at = relative(&mount.point, b"/")?;
            match (mount.point.as_slice(), mount.fs_type.as_slice()) {
                (b"/proc", b"proc") => {
                    self.steps.push(fresh("proc", None, at));
                    kernels_proc = Some(mount.id);
                    continue;
                }
                (b"/dev/shm", b"tmpfs") => {
                    self.steps.push(fresh("tmpfs", Some(("mode", "1777")), at));
                    continue;
                }
                // Nothing of the old /dev/shm is in the new one, mount points included.
                (point, _) if is_below(point, b"/dev/shm").is_some() => continue,
                (_, b"mqueue") => {
                    self.steps.push(fresh("mqueue", None, at));
                    continue;
                }
                _ => {}
            }
            // The new /proc covers the old one where that stays: its mounts are gone, which only hides masks.
            if kernels_proc == Some(mount.parent) && base == Base::Same {
                continue;
            }
            if self.stands_in(mount, *seen, visible, &at)? {
                continue;
            }
            match (self.stands_on(mount, &along), base) {
                (Stands::Moved, _) => {}
                (Stands::View { moved: false }, Base::Mount(_)) => {
                    self.steps.push(Step::Move { at: at.clone() })
                }
                (Stands::View { .. }, _) => self.copy(mount, at.clone()),
                (Stands::Base, _) => {}
            }
            along.push(mount.id);
            if fate(mount, *seen) == Fate::ReadOnly {
                self.make_read_only(mount, *seen, at);
            }
        }
        Ok(base)
    }

    /// Everything as it stands, and read-only, but what the kernel talks through.
    pub fn read_only(&mut self, visible: &[(&Mount, Seen)]) -> Result<()> {
        self.steps.push(Step::AllReadOnly);
        // A new /proc comes over the old one, and what is on it.
        let elsewhere = |m: &Mount| m.point != b"/" && is_below(&m.point, b"/proc").is_none();
        for (mount, seen) in visible.iter().filter(|(m, _)| elsewhere(m)) {
            let at = relative(&mount.point, b"/")?;
            let read_only = mount.attributes.read_only || mount.file_system_read_only;
            match (mount.point.as_slice(), mount.fs_type.as_slice()) {
                (b"/dev/shm", b"tmpfs") => {
                    self.steps.push(fresh("tmpfs", Some(("mode", "1777")), at));
                }
                (_, b"mqueue") => self.steps.push(fresh("mqueue", None, at)),
                _ if fate(mount, *seen) == Fate::Stays && !read_only => {
                    self.steps.push(Step::Writable { at });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A view for each file system that can be served.
    pub fn views(&mut self, visible: &[(&Mount, Seen)]) {
        for (mount, _) in visible.iter().filter(|(m, seen)| fate(m, *seen) == Fate::Served) {
            self.view_of(mount, visible);
        }
    }

    /// Only these directories and what is mounted below them.
    pub fn parts(&mut self, visible: &[(&Mount, Seen)], only: &[Vec<u8>]) -> Result<()> {
        if visible.iter().any(|(m, _)| m.point == b"/proc") {
            self.steps.push(fresh("proc", None, relative(b"/proc", b"/")?));
        }
        for dir in only {
            if only.iter().any(|outer| outer != dir && is_below(dir, outer).is_some()) {
                continue;
            }
            let (mount, seen) = visible
                .iter()
                .rfind(|(m, _)| is_below(dir, &m.point).is_some())
                .ok_or_else(|| Failure::on_no_mount(dir))?;
            if fate(mount, *seen) != Fate::Served {
                return Err(not_served(mount, *seen, dir));
            }
            let at = relative(dir, b"/")?;
            self.named.push(dir.clone());
            self.replaced.push(mount.id);
            let known = self.lower.len();
            let (index, inside) = self.view_of(mount, visible);
            if index >= known {
                // A part can be taken only from a mount that is in the tree, so the whole view lies hidden
                // below the first one.
                self.steps.push(Step::Mount { mount: index, at: at.clone() });
            }
            let part = join(&inside, is_below(dir, &mount.point).unwrap_or_default());
            self.steps.push(Step::Part {
                mount: index,
                part: c_string(&part)?,
                at,
                attributes: mount.attributes,
            });
            let mut along: Vec<u64> = Vec::new();
            for (below, seen) in
                visible.iter().filter(|(m, _)| m.point != *dir && is_below(&m.point, dir).is_some())
            {
                let at = relative(&below.point, b"/")?;
                if self.stands_in(below, *seen, visible, &at)? {
                    continue;
                }
                if self.stands_on(below, &along) != Stands::Moved {
                    self.copy(below, at.clone());
                }
                along.push(below.id);
                if fate(below, *seen) == Fate::ReadOnly {
                    self.make_read_only(below, *seen, at);
                }
            }
        }
        Ok(())
    }

    /// On what a mount stands in the old tree, looking through hidden mounts.
    fn stands_on(&self, mount: &Mount, moved: &[u64]) -> Stands {
        let mut on_view = false;
        let mut at = mount.id;
        // No chain of parents is longer than the table.
        for _ in 0..self.parents.len() {
            let Some(parent) = self.parents.get(&at) else { break };
            at = *parent;
            if moved.contains(&at) {
                return if on_view { Stands::View { moved: true } } else { Stands::Moved };
            }
            on_view |= self.replaced.contains(&at);
        }
        if on_view {
            Stands::View { moved: false }
        } else {
            Stands::Base
        }
    }

    /// Mounts a copy of an old mount and of what is on it, taken before any view covers it.
    fn copy(&mut self, mount: &Mount, at: CString) {
        self.steps.push(Step::Mount { mount: COPIED + self.copied.len(), at });
        self.copied.push(mount.point.clone());
    }

    /// Puts a view, or a part of one, in the place of a mount; false when its file system is not served.
    fn stands_in(
        &mut self,
        mount: &Mount,
        seen: Seen,
        visible: &[(&Mount, Seen)],
        at: &CString,
    ) -> Result<bool> {
        if fate(mount, seen) == Fate::Served {
            self.replaced.push(mount.id);
            let known = self.lower.len();
            let (index, part) = self.view_of(mount, visible);
            if index >= known && part.is_empty() {
                self.steps.push(Step::Mount { mount: index, at: at.clone() });
                return Ok(true);
            }
            if index >= known {
                // The whole view of the mount is mounted later on; meanwhile it lies hidden here.
                self.steps.push(Step::Mount { mount: index, at: at.clone() });
            }
            self.part(mount, index, &part, at)?;
            return Ok(true);
        }
        // Another, read-only or single-file, window on a served file system has to show the same as the view.
        let window = (fate(mount, seen) != Fate::Stays || mount.attributes.read_only) && !mount.idmapped;
        if window && SERVED.contains(&mount.fs_type.as_slice()) && !mount.file_system_read_only {
            if let Some((index, part)) = self.shown_in(mount) {
                self.replaced.push(mount.id);
                self.part(mount, index, &part, at)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn part(&mut self, mount: &Mount, index: usize, part: &[u8], at: &CString) -> Result<()> {
        let part = c_string(part)?;
        self.steps.push(Step::Part { mount: index, part, at: at.clone(), attributes: mount.attributes });
        Ok(())
    }

    /// The view of a mount's file system and the path of the mount's root in it; a new view if there is none yet.
    fn view_of(&mut self, mount: &Mount, visible: &[(&Mount, Seen)]) -> (usize, Vec<u8>) {
        if let Some(known) = self.shown_in(mount) {
            return known;
        }
        // The widest writable window on the same file system, so that all the others are parts of its view.
        let widest = visible
            .iter()
            .filter(|(m, seen)| fate(m, *seen) == Fate::Served && contains(m, mount))
            .min_by_key(|(m, _)| m.root.len())
            .map_or(mount, |(m, _)| *m);
        let index = self.add(widest);
        let part = is_below(&mount.root, &widest.root).unwrap_or_default().to_vec();
        (index, part)
    }

    fn shown_in(&self, mount: &Mount) -> Option<(usize, Vec<u8>)> {
        self.windows.iter().enumerate().find_map(|(index, (device, root))| {
            let same = *device == mount.device && (mount.fs_type != b"btrfs" || *root == mount.root);
            let part = is_below(&mount.root, root).filter(|_| same)?;
            Some((index, part.to_vec()))
        })
    }

    fn add(&mut self, mount: &Mount) -> usize {
        self.lower.push(Lower {
            point: mount.point.clone(),
            attributes: mount.attributes,
            fs_type: shown(&mount.fs_type),
            bounds: Bounds::at(&mount.root),
        });
        self.windows.push((mount.device.clone(), mount.root.clone()));
        self.lower.len() - 1
    }

    fn make_read_only(&mut self, mount: &Mount, seen: Seen, at: CString) {
        self.steps.push(Step::ReadOnly { at });
        let why = match seen {
            Seen::Silent => " that can't be looked at",
            _ if mount.idmapped => " with mapped numbers of users and groups",
            _ => "",
        };
        self.read_only.push((mount.point.clone(), format!("{}{why}", shown(&mount.fs_type))));
    }
}

/// Returns true if `inner` shows a part of what `outer` shows. Each btrfs subvolume counts as a file system.
fn contains(outer: &Mount, inner: &Mount) -> bool {
    outer.device == inner.device
        && is_below(&inner.root, &outer.root).is_some()
        && (inner.fs_type != b"btrfs" || inner.root == outer.root)
}

/// Why a directory that is named by `--only` is not served, as its mount is not.
fn not_served(mount: &Mount, seen: Seen, dir: &[u8]) -> Failure {
    let (mounted, step) = if mount.attributes.read_only || mount.file_system_read_only {
        ("read-only", "mount it writable, or name another directory")
    } else if mount.idmapped {
        ("with mapped numbers of users and groups", "name it by a mount without, where it has one")
    } else if seen == Seen::Silent {
        ("but can't be looked at", "look at the kernel's log (dmesg), or name another directory")
    } else {
        let step = "name a directory on ext4, xfs, btrfs or tmpfs, and not below /proc, /sys or /dev";
        ("where systx leaves everything as it is", step)
    };
    let fs_type = shown(&mount.fs_type);
    let why = format!("{} can't be served: it is on {fs_type}, mounted {mounted}", shown(dir));
    Failure::from(why).hint(step)
}

fn fresh(fs_type: &str, option: Option<(&str, &str)>, at: CString) -> Step {
    let c = |s: &str| CString::new(s).unwrap_or_default();
    Step::Fresh { fs_type: c(fs_type), option: option.map(|(key, value)| (c(key), c(value))), at }
}
