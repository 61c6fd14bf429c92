//! The directory that has the area for another one.
//!
//! Owns: [`Table`], the mount table as the walk along a path asks it, and [`Table::site`]. Guarantees: root's
//! area is at the top of the widest mount of a file system, an ordinary user's in the topmost directory of
//! the user on the way, below which no mount lies. Does not: hold anything open; a table is as of its reading.

use crate::fate::{fate, Fate};
use crate::owned::way;
use crate::path::{is_below, join};
use crate::Seen;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use systx_os::sandbox::mounts::{self, Mount};
use systx_os::Result;

/// S_ISVTX and S_IWOTH: all may make names in such a directory, and take their own only.
const OPEN_TO_ALL: u32 = 0o1002;
/// S_ISGID.
const SETGID: u32 = 0o2000;

/// Returns true if the mode lets all users make names in a directory and remove only their own. New objects
/// must not get a group that is not the user's.
pub fn is_open_to_all(mode: u32) -> bool {
    mode & OPEN_TO_ALL == OPEN_TO_ALL && mode & SETGID == 0
}

/// The mounts of a process, for walks along paths.
pub struct Table {
    mounts: Vec<Mount>,
    /// Last components of all mount points: most names are none of them.
    names: HashSet<Vec<u8>>,
}

/// A directory below the one that has its area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The mount that the area is reached by.
    pub mount: u64,
    /// Path of the directory that has the area, or is to have it.
    pub top: Vec<u8>,
    /// Path of that directory from the root of the file system, without a leading slash.
    pub path: Vec<u8>,
    /// The way from there to the directory in question, without a leading slash; empty: it is the same.
    pub rest: Vec<u8>,
}

impl Table {
    /// Reads the table of this process.
    pub fn read() -> Result<Table> {
        mounts::table().map(Table::of)
    }

    /// Of these mounts.
    pub fn of(mounts: Vec<Mount>) -> Table {
        let name = |mount: &Mount| mount.point.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        let names = mounts.iter().filter_map(name).collect();
        Table { mounts, names }
    }

    /// A mount by its number.
    pub fn mount(&self, id: u64) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// Returns false if no mount point has this last component.
    pub fn may_be_a_point(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }

    /// Returns true if something is mounted at this path.
    pub fn at(&self, path: &[u8]) -> bool {
        self.mounts.iter().any(|mount| mount.point == path)
    }

    /// The mount that covers `path`, from the root of the file system, of the mount `id`.
    pub fn on(&self, id: u64, path: &[u8]) -> Option<&Mount> {
        let parent = self.mount(id)?;
        let rest = is_below(path, &parent.root)?;
        let top = parent.point.strip_suffix(b"/").unwrap_or(&parent.point);
        let point = if rest.is_empty() { parent.point.clone() } else { [top, b"/", rest].concat() };
        self.mounts.iter().rfind(|mount| mount.parent == id && mount.point == point)
    }

    /// Returns true if something is mounted below a directory.
    pub fn bears(&self, dir: &[u8]) -> bool {
        self.mounts.iter().any(|mount| mount.point != dir && is_below(&mount.point, dir).is_some())
    }

    /// The sites of root's areas, or of those that there may be.
    pub fn sites(&self) -> Vec<Site> {
        let served = self.mounts.iter().filter(|mount| fate(mount, Seen::Directory) == Fate::Served);
        let mut sites: Vec<_> = served.filter_map(|mount| self.site(0, &mount.point, mount.id)).collect();
        sites.iter_mut().for_each(|site| site.rest.clear());
        sites.sort_by(|a, b| a.top.cmp(&b.top));
        sites.dedup_by(|a, b| a.top == b.top);
        sites
    }

    /// The site of an area in this very directory, which is on the mount `id`.
    pub fn site_in(&self, top: &[u8], id: u64) -> Option<Site> {
        let mount = self.mount(id)?;
        let root = mount.root.strip_prefix(b"/").unwrap_or(&mount.root);
        let path = join(root, is_below(top, &mount.point)?);
        Some(Site { mount: id, top: top.to_vec(), path, rest: Vec::new() })
    }

    /// The site of a directory at `path`, which is on the mount `id`. `None`: the file system is not served,
    /// or it is an ordinary user's and no directory on the way is the user's.
    ///
    /// For a directory open to all, as /tmp is, an ordinary user's area is in that directory itself.
    pub fn site(&self, uid: u32, path: &[u8], id: u64) -> Option<Site> {
        let mount = self.mount(id)?;
        if fate(mount, Seen::Directory) != Fate::Served {
            return None;
        }
        let inside =
            join(mount.root.strip_prefix(b"/").unwrap_or(&mount.root), is_below(path, &mount.point)?);
        match uid {
            0 => {
                let widest = self.widest(mount);
                let root = widest.root.strip_prefix(b"/").unwrap_or(&widest.root);
                let rest = if root.is_empty() { &inside } else { is_below(&inside, root)? };
                let (path, rest) = (root.to_vec(), rest.to_vec());
                Some(Site { mount: widest.id, top: widest.point.clone(), path, rest })
            }
            uid => {
                let shared =
                    || look(path).filter(|m| m.uid() == 0 && is_open_to_all(m.mode())).map(|_| path.to_vec());
                let top = users_top(&self.mounts, uid, path, mount).or_else(shared)?;
                let rest = is_below(path, &top)?.to_vec();
                let above = inside.strip_suffix(rest.as_slice()).unwrap_or_default();
                let path = above.strip_suffix(b"/").unwrap_or(above).to_vec();
                Some(Site { mount: id, top, path, rest })
            }
        }
    }

    /// The widest window on the file system of a mount.
    fn widest<'a>(&'a self, mount: &'a Mount) -> &'a Mount {
        let contains = |outer: &&Mount| {
            outer.device == mount.device
                && is_below(&mount.root, &outer.root).is_some()
                && (mount.fs_type != b"btrfs" || mount.root == outer.root)
                && fate(outer, Seen::Directory) == Fate::Served
        };
        let is_seen = |outer: &&Mount| {
            mounts::look(&outer.point).is_ok_and(|found| found.mount_id == outer.id && found.directory)
        };
        let mut wide: Vec<_> = self.mounts.iter().filter(contains).collect();
        wide.sort_by_key(|outer| outer.root.len());
        wide.into_iter().find(is_seen).unwrap_or(mount)
    }
}

/// Metadata of a path, without following a symbolic link at its end.
fn look(path: &[u8]) -> Option<std::fs::Metadata> {
    std::fs::symlink_metadata(OsStr::from_bytes(path)).ok()
}

/// The topmost directory of a user on the way to `path`, on `mount`, below which nothing is mounted; if
/// something is mounted below each, the topmost of all. An ordinary user's area is there.
///
/// The kernel lets no user copy a directory to a namespace without what other users have mounted below it.
pub fn users_top(mounts: &[Mount], uid: u32, path: &[u8], mount: &Mount) -> Option<Vec<u8>> {
    // In another subvolume of btrfs nothing could be put in place.
    let device = look(path)?.dev();
    let is_owned = |path: &&[u8]| look(path).is_some_and(|m| m.uid() == uid && m.dev() == device);
    let bears = |path: &[u8]| mounts.iter().any(|m| m.point != path && is_below(&m.point, path).is_some());
    let owned: Vec<_> = way(path, &mount.point).filter(is_owned).collect();
    owned.iter().find(|path| !bears(path)).or(owned.first()).map(|top| top.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, parent: u64, device: &str, root: &str, point: &str) -> Mount {
        Mount {
            id,
            parent,
            device: device.into(),
            root: root.into(),
            point: point.into(),
            fs_type: b"ext4".to_vec(),
            source: b"none".to_vec(),
            attributes: Default::default(),
            file_system_read_only: false,
            idmapped: false,
            user_id: None,
        }
    }

    #[test]
    fn a_mount_point_is_known_by_the_mount_that_it_is_on() {
        let table = Table::of(vec![
            mount(1, 0, "8:1", "/", "/"),
            mount(2, 1, "8:1", "/srv", "/data"),
            mount(3, 2, "8:2", "/", "/data/in"),
        ]);
        assert!(table.may_be_a_point(b"in") && !table.may_be_a_point(b"out"));
        assert_eq!(table.on(2, b"/srv/in").map(|m| m.id), Some(3));
        assert_eq!(table.on(1, b"/data").map(|m| m.id), Some(2));
        assert!(table.on(1, b"/srv/in").is_none(), "it covers the directory where it is seen by /data only");
    }

    #[test]
    fn roots_areas_are_at_the_top_of_a_file_system() {
        // Mount points that this machine has, so that they are seen where they are said to be.
        let found = mounts::look(b"/").unwrap();
        let table =
            Table::of(vec![mount(found.mount_id, 0, "8:1", "/", "/"), mount(2, 1, "8:1", "/srv/a", "/data")]);
        let site = table.site(0, b"/data/b/c", 2).unwrap();
        assert_eq!((site.top.as_slice(), site.rest.as_slice()), (&b"/"[..], &b"srv/a/b/c"[..]));
        let site = table.site(0, b"/x", found.mount_id).unwrap();
        assert_eq!((site.top.as_slice(), site.rest.as_slice()), (&b"/"[..], &b"x"[..]));
    }

    #[test]
    fn what_is_not_served_has_no_site() {
        let mut proc = mount(1, 0, "0:5", "/", "/proc");
        proc.fs_type = b"proc".to_vec();
        assert!(Table::of(vec![proc]).site(0, b"/proc/sys", 1).is_none());
    }
}
