//! Which mounts a run serves, and how the command's tree is put together from them.
//!
//! Owns: the decision, mount by mount. Guarantees: a mount that can be written is served, is one of the kernel's own
//! file systems, or is made read-only in the command's tree, so that nothing it does to files escapes the transaction
//! unnoticed. Does not: mount anything ([`systx_os::sandbox::root`] does) or open domains.
//!
//! | mount | without `--only` |
//! |---|---|
//! | writable ext4, xfs, btrfs, tmpfs | served; several mounts of one file system share one view |
//! | /proc | a new one, for the new process ids; what was mounted on it moves |
//! | /dev/shm, /dev/mqueue | empty ones: POSIX IPC does not leave a transaction |
//! | other kernel file systems: /sys, /dev, … | moves, with everything on it |
//! | read-only | moves; a bind mount of a served file system is a read-only part of its view |
//! | anything else | moves and becomes read-only |
//!
//! With `--only DIR…` views cover these directories; below them the same rules hold, outside of them the command runs
//! natively: what it does there takes effect at once and stays, whatever becomes of the transaction.

use std::collections::HashMap;
use std::ffi::CString;
use systx_os::sandbox::mounts::{Attributes, Mount};
use systx_os::sandbox::root::{Base, Step};

/// File systems that the engine serves.
const SERVED: [&[u8]; 6] = [b"ext4", b"ext3", b"ext2", b"xfs", b"btrfs", b"tmpfs"];

/// File systems through which the kernel talks: no storage, nothing to take back.
const KERNEL: [&[u8]; 23] = [
    b"proc",
    b"sysfs",
    b"devtmpfs",
    b"devpts",
    b"cgroup",
    b"cgroup2",
    b"securityfs",
    b"debugfs",
    b"tracefs",
    b"bpf",
    b"pstore",
    b"configfs",
    b"efivarfs",
    b"fusectl",
    b"mqueue",
    b"hugetlbfs",
    b"binfmt_misc",
    b"selinuxfs",
    b"autofs",
    b"nsfs",
    b"rpc_pipefs",
    b"ramfs",
    b"resctrl",
];

/// A mount whose file system is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lower {
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Its options, for the view to have as well.
    pub attributes: Attributes,
    /// Type of the file system.
    pub fs_type: String,
}

/// The command's tree.
#[derive(Debug, PartialEq, Eq)]
pub struct Tree {
    /// What it starts from.
    pub base: Base,
    /// Served mounts; the view of the n-th is detached mount n.
    pub lower: Vec<Lower>,
    /// Trees to be copied as they are; the n-th is detached mount `lower.len()` + n.
    pub copied: Vec<Vec<u8>>,
    /// How it is put together.
    pub steps: Vec<Step>,
    /// Mounts that the command finds read-only although they are not, with their type.
    pub read_only: Vec<(Vec<u8>, String)>,
}

/// What is found at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Something else: another mount lies over it.
    Hidden,
    /// The mount, and its root is a directory.
    Directory,
    /// The mount of a single file.
    File,
}

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

/// What becomes of one mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Served,
    Stays,
    ReadOnly,
}

fn fate(mount: &Mount, seen: Seen) -> Fate {
    let writable = !mount.attributes.read_only && !mount.file_system_read_only;
    // The kernel's trees, with whatever small tmpfs is mounted into them.
    let kernels = KERNEL.contains(&mount.fs_type.as_slice())
        || [&b"/proc"[..], b"/sys", b"/dev"].iter().any(|top| is_below(&mount.point, top).is_some());
    match () {
        () if kernels || !writable => Fate::Stays,
        () if SERVED.contains(&mount.fs_type.as_slice()) && seen == Seen::Directory => Fate::Served,
        () => Fate::ReadOnly,
    }
}

/// Plans the tree. `only` are absolute paths without symbolic links; empty for the whole tree.
pub fn plan(mounts: &[Mount], only: &[Vec<u8>], see: &dyn Fn(&Mount) -> Seen) -> Result<Tree, String> {
    let mut visible: Vec<_> =
        mounts.iter().map(|m| (m, see(m))).filter(|(_, seen)| *seen != Seen::Hidden).collect();
    visible.sort_by_key(|(m, _)| depth(&m.point));
    let mut planner = Planner {
        lower: Vec::new(),
        shown: Vec::new(),
        parents: mounts.iter().map(|m| (m.id, m.parent)).collect(),
        replaced: Vec::new(),
        copied: Vec::new(),
        steps: Vec::new(),
        read_only: Vec::new(),
    };
    let base = match only {
        [] => planner.whole(&visible)?,
        only => {
            planner.parts(&visible, only)?;
            Base::Same
        }
    };
    let served = planner.lower.len();
    // Copies were numbered from the end of the address space, because the number of views was not known yet.
    for step in &mut planner.steps {
        if let Step::Mount { mount, .. } = step {
            *mount = if *mount >= COPIED { *mount - COPIED + served } else { *mount };
        }
    }
    Ok(Tree {
        base,
        lower: planner.lower,
        copied: planner.copied,
        steps: planner.steps,
        read_only: planner.read_only,
    })
}

/// Provisional number of the first copy.
const COPIED: usize = usize::MAX / 2;

struct Planner {
    lower: Vec<Lower>,
    /// For each of `lower`: device, and the directory of the file system that is the view's root.
    shown: Vec<(Vec<u8>, Vec<u8>)>,
    /// Parent of each mount, hidden ones included.
    parents: HashMap<u64, u64>,
    /// Mounts that a view stands in for.
    replaced: Vec<u64>,
    copied: Vec<Vec<u8>>,
    steps: Vec<Step>,
    read_only: Vec<(Vec<u8>, String)>,
}

impl Planner {
    fn whole(&mut self, visible: &[(&Mount, Seen)]) -> Result<Base, String> {
        let root =
            visible.iter().find(|(m, _)| m.point == b"/").ok_or("no mount at / in /proc/self/mountinfo")?;
        let base = match fate(root.0, root.1) {
            Fate::Served => {
                self.replaced.push(root.0.id);
                Base::Mount(self.add(root.0))
            }
            fate => {
                if fate == Fate::ReadOnly {
                    return Err(format!(
                        "/ is on {}, which can't be served: name directories with --only",
                        name(&root.0.fs_type)
                    ));
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
                self.make_read_only(mount, at);
            }
        }
        Ok(base)
    }

    fn parts(&mut self, visible: &[(&Mount, Seen)], only: &[Vec<u8>]) -> Result<(), String> {
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
                .ok_or_else(|| format!("{} is on no mount", name(dir)))?;
            if fate(mount, *seen) != Fate::Served {
                return Err(format!(
                    "{} can't be served: it is on {}, mounted {}",
                    name(dir),
                    name(&mount.fs_type),
                    match mount.attributes.read_only || mount.file_system_read_only {
                        true => "read-only",
                        false => "where systx leaves everything as it is",
                    }
                ));
            }
            let at = relative(dir, b"/")?;
            self.replaced.push(mount.id);
            let (index, inside) = self.view_of(mount, visible);
            // A part can be taken only from a mount that is in the tree, so the whole view lies hidden below it.
            self.steps.push(Step::Mount { mount: index, at: at.clone() });
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
                    self.make_read_only(below, at);
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
            match moved.contains(&at) {
                true if on_view => return Stands::View { moved: true },
                true => return Stands::Moved,
                false => on_view |= self.replaced.contains(&at),
            }
        }
        match on_view {
            true => Stands::View { moved: false },
            false => Stands::Base,
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
    ) -> Result<bool, String> {
        if fate(mount, seen) == Fate::Served {
            self.replaced.push(mount.id);
            let known = self.lower.len();
            let (index, part) = self.view_of(mount, visible);
            if index >= known && part.is_empty() {
                self.steps.push(Step::Mount { mount: index, at: at.clone() });
                return Ok(true);
            }
            if index >= known {
                // Its whole view is mounted later on; meanwhile it lies hidden here.
                self.steps.push(Step::Mount { mount: index, at: at.clone() });
            }
            self.part(mount, index, &part, at)?;
            return Ok(true);
        }
        // Another, read-only or single-file, window on a served file system has to show the same as the view.
        let window = fate(mount, seen) != Fate::Stays || mount.attributes.read_only;
        if window && SERVED.contains(&mount.fs_type.as_slice()) && !mount.file_system_read_only {
            if let Some((index, part)) = self.shown_in(mount) {
                self.replaced.push(mount.id);
                self.part(mount, index, &part, at)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn part(&mut self, mount: &Mount, index: usize, part: &[u8], at: &CString) -> Result<(), String> {
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
        self.shown.iter().enumerate().find_map(|(index, (device, root))| {
            let same = *device == mount.device && (mount.fs_type != b"btrfs" || *root == mount.root);
            let part = is_below(&mount.root, root).filter(|_| same)?;
            Some((index, part.to_vec()))
        })
    }

    fn add(&mut self, mount: &Mount) -> usize {
        self.lower.push(Lower {
            point: mount.point.clone(),
            attributes: mount.attributes,
            fs_type: name(&mount.fs_type),
        });
        self.shown.push((mount.device.clone(), mount.root.clone()));
        self.lower.len() - 1
    }

    fn make_read_only(&mut self, mount: &Mount, at: CString) {
        self.steps.push(Step::ReadOnly { at });
        self.read_only.push((mount.point.clone(), name(&mount.fs_type)));
    }
}

/// Whether `inner` shows a part of what `outer` shows. Subvolumes of btrfs are file systems of their own in this.
fn contains(outer: &Mount, inner: &Mount) -> bool {
    outer.device == inner.device
        && is_below(&inner.root, &outer.root).is_some()
        && (inner.fs_type != b"btrfs" || inner.root == outer.root)
}

fn fresh(fs_type: &str, option: Option<(&str, &str)>, at: CString) -> Step {
    let c = |s: &str| CString::new(s).unwrap_or_default();
    Step::Fresh { fs_type: c(fs_type), option: option.map(|(key, value)| (c(key), c(value))), at }
}

/// The rest of `path` below `top`, without leading slash: empty when they are the same, `None` when it is elsewhere.
pub fn is_below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    match path.strip_prefix(top)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn join(a: &[u8], b: &[u8]) -> Vec<u8> {
    match (a, b) {
        (a, []) => a.to_vec(),
        ([], b) => b.to_vec(),
        (a, b) => [a, b"/", b].concat(),
    }
}

fn depth(point: &[u8]) -> usize {
    if point == b"/" {
        0
    } else {
        point.iter().filter(|b| **b == b'/').count()
    }
}

fn relative(path: &[u8], top: &[u8]) -> Result<CString, String> {
    let rest = is_below(path, top).filter(|rest| !rest.is_empty());
    c_string(rest.ok_or_else(|| format!("{} is no mount point below {}", name(path), name(top)))?)
}

fn c_string(path: &[u8]) -> Result<CString, String> {
    CString::new(path).map_err(|_| format!("{} has a NUL byte", name(path)))
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(
        id: u64,
        parent: u64,
        device: &str,
        root: &str,
        point: &str,
        fs_type: &str,
        options: &str,
    ) -> Mount {
        Mount {
            id,
            parent,
            device: device.into(),
            root: root.into(),
            point: point.into(),
            fs_type: fs_type.into(),
            source: b"none".to_vec(),
            attributes: Attributes { read_only: options.contains("ro"), ..Default::default() },
            file_system_read_only: false,
        }
    }

    fn machine() -> Vec<Mount> {
        vec![
            mount(1, 0, "8:1", "/", "/", "ext4", ""),
            mount(2, 1, "0:2", "/", "/proc", "proc", ""),
            mount(3, 1, "0:3", "/", "/sys", "sysfs", ""),
            mount(4, 3, "0:4", "/", "/sys/fs/cgroup", "cgroup2", ""),
            mount(5, 1, "0:5", "/", "/dev", "devtmpfs", ""),
            mount(6, 5, "0:6", "/", "/dev/shm", "tmpfs", ""),
            mount(7, 1, "0:7", "/", "/tmp", "tmpfs", ""),
            mount(8, 1, "8:2", "/", "/boot/efi", "vfat", ""),
            mount(9, 1, "8:1", "/srv/data", "/data", "ext4", ""),
            mount(10, 1, "8:3", "/", "/usr", "xfs", "ro"),
        ]
    }

    fn directory(_: &Mount) -> Seen {
        Seen::Directory
    }

    fn c(s: &str) -> CString {
        CString::new(s).unwrap()
    }

    fn step_at<'a>(tree: &'a Tree, at: &str) -> Vec<&'a Step> {
        tree.steps.iter().filter(|s| s.at().to_bytes() == at.as_bytes()).collect()
    }

    #[test]
    fn every_writable_mount_is_served_or_the_kernels_or_read_only() {
        let tree = plan(&machine(), &[], &directory).unwrap();
        assert_eq!(tree.base, Base::Mount(0));
        assert_eq!(
            tree.lower.iter().map(|l| l.point.clone()).collect::<Vec<_>>(),
            [b"/".to_vec(), b"/tmp".to_vec()]
        );
        assert_eq!(step_at(&tree, "tmp"), [&Step::Mount { mount: 1, at: c("tmp") }]);
        assert_eq!(step_at(&tree, "sys"), [&Step::Move { at: c("sys") }]);
        assert!(step_at(&tree, "sys/fs/cgroup").is_empty(), "moves with /sys");
        assert_eq!(step_at(&tree, "usr"), [&Step::Move { at: c("usr") }]);
        assert_eq!(
            step_at(&tree, "boot/efi"),
            [&Step::Move { at: c("boot/efi") }, &Step::ReadOnly { at: c("boot/efi") }]
        );
        assert_eq!(tree.read_only, [(b"/boot/efi".to_vec(), "vfat".to_string())]);
    }

    #[test]
    fn process_ids_and_posix_ipc_are_the_commands_own() {
        let tree = plan(&machine(), &[], &directory).unwrap();
        assert!(matches!(step_at(&tree, "proc")[..], [Step::Fresh { .. }]));
        assert!(matches!(step_at(&tree, "dev/shm")[..], [Step::Fresh { .. }]));
    }

    #[test]
    fn a_bind_mount_of_a_served_file_system_is_a_part_of_its_view() {
        let tree = plan(&machine(), &[], &directory).unwrap();
        let part =
            Step::Part { mount: 0, part: c("srv/data"), at: c("data"), attributes: Attributes::default() };
        assert_eq!(step_at(&tree, "data"), [&part]);
        assert_eq!(tree.lower.len(), 2);
    }

    #[test]
    fn a_bind_mount_before_the_mount_that_it_is_a_part_of_shares_its_view() {
        let mounts = [
            mount(1, 0, "8:9", "/", "/", "squashfs", "ro"),
            mount(2, 1, "8:1", "/a", "/x", "ext4", ""),
            mount(3, 1, "8:1", "/", "/y/z", "ext4", ""),
        ];
        let tree = plan(&mounts, &[], &directory).unwrap();
        assert_eq!((tree.base, tree.lower.len()), (Base::Same, 1));
        assert_eq!(tree.lower[0].point, b"/y/z");
        let part =
            |part, at| Step::Part { mount: 0, part: c(part), at: c(at), attributes: Attributes::default() };
        assert_eq!(tree.steps, [Step::Mount { mount: 0, at: c("x") }, part("a", "x"), part("", "y/z")]);
    }

    #[test]
    fn what_stands_on_a_served_mount_below_a_read_only_root_is_kept() {
        let mounts = [
            mount(1, 0, "8:9", "/", "/", "squashfs", "ro"),
            mount(2, 1, "8:1", "/", "/home", "ext4", ""),
            mount(3, 2, "8:2", "/", "/home/usb", "vfat", "ro"),
        ];
        let tree = plan(&mounts, &[], &directory).unwrap();
        assert_eq!(tree.copied, [b"/home/usb".to_vec()]);
        assert_eq!(step_at(&tree, "home/usb"), [&Step::Mount { mount: 1, at: c("home/usb") }]);
    }

    #[test]
    fn a_hidden_mount_is_left_out() {
        let mut mounts = machine();
        mounts.push(mount(11, 7, "0:11", "/", "/tmp", "tmpfs", ""));
        let see = |m: &Mount| if m.id == 7 { Seen::Hidden } else { Seen::Directory };
        let tree = plan(&mounts, &[], &see).unwrap();
        assert_eq!(step_at(&tree, "tmp").len(), 1);
    }

    #[test]
    fn a_mount_over_a_hidden_one_comes_along_with_the_tree_below() {
        let mut mounts = machine();
        mounts.push(mount(11, 5, "0:11", "/", "/dev/pts", "devpts", ""));
        mounts.push(mount(12, 11, "0:11", "/", "/dev/pts", "devpts", ""));
        let see = |m: &Mount| if m.id == 11 { Seen::Hidden } else { Seen::Directory };
        let tree = plan(&mounts, &[], &see).unwrap();
        assert!(step_at(&tree, "dev/pts").is_empty(), "moves with /dev");
    }

    #[test]
    fn a_single_file_of_another_file_system_becomes_read_only() {
        let mut mounts = machine();
        mounts.push(mount(11, 1, "8:7", "/hosts", "/etc/hosts", "ext4", ""));
        let see = |m: &Mount| if m.id == 11 { Seen::File } else { Seen::Directory };
        let tree = plan(&mounts, &[], &see).unwrap();
        assert_eq!(step_at(&tree, "etc/hosts").len(), 2);
        assert_eq!(tree.read_only[1].0, b"/etc/hosts");
    }

    #[test]
    fn only_covers_the_directory_and_leaves_the_rest() {
        let tree = plan(&machine(), &[b"/home/me".to_vec(), b"/home/me/sub".to_vec()], &directory).unwrap();
        assert_eq!((tree.base, tree.lower.len()), (Base::Same, 1));
        let at = || c("home/me");
        let part = Step::Part { mount: 0, part: at(), at: at(), attributes: Attributes::default() };
        assert_eq!(step_at(&tree, "home/me"), [&Step::Mount { mount: 0, at: at() }, &part]);
        assert_eq!(tree.steps.len(), 3, "and /proc");
    }

    #[test]
    fn only_serves_and_keeps_what_is_mounted_below_it() {
        let mut mounts = machine();
        mounts.push(mount(11, 1, "0:11", "/", "/home/me/t", "tmpfs", ""));
        mounts.push(mount(12, 1, "8:7", "/", "/home/me/usb", "vfat", ""));
        let tree = plan(&mounts, &[b"/home/me".to_vec()], &directory).unwrap();
        assert_eq!(tree.lower.len(), 2);
        assert_eq!(tree.copied, [b"/home/me/usb".to_vec()]);
        assert_eq!(step_at(&tree, "home/me/t"), [&Step::Mount { mount: 1, at: c("home/me/t") }]);
        let usb = || c("home/me/usb");
        assert_eq!(
            step_at(&tree, "home/me/usb"),
            [&Step::Mount { mount: 2, at: usb() }, &Step::ReadOnly { at: usb() }]
        );
    }

    #[test]
    fn only_refuses_a_directory_that_cannot_be_served() {
        assert!(plan(&machine(), &[b"/usr/lib".to_vec()], &directory).unwrap_err().contains("read-only"));
        assert!(plan(&machine(), &[b"/sys/kernel".to_vec()], &directory).is_err());
    }
}
