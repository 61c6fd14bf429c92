//! The changes of a transaction, name by name: for people, and for programs that decide whether to commit.
//!
//! Owns: [`Change`], and [`Transaction::changes`], which makes the list from the working set. Guarantees: the
//! list is complete (a removed tree is every object of it), sorted, and contains differences, not attempts:
//! an object that was made and removed again, or changed back, is not in it. An object is known by its
//! identity, not by its look: a rename is never guessed. A renamed directory is one change; an object in it
//! has one of its own only if that changed, too. Making the list changes nothing. Does not: list directories
//! whose time has moved only because names in them changed, nor files for a link count alone; report what
//! outsiders do meanwhile (reading the committed tree adds facts, as any read does).

mod bytes;
pub mod part;
mod restore;

use crate::changes::bytes::bytes_differ;
use crate::diff::pairs::Pair;
use crate::diff::Diff;
use crate::outcome::Verb;
use crate::transaction::Transaction;
use crate::types::{Attr, Node};
use crate::workset::attributes::none_if_unsupported;
use crate::workset::node::{node_of, Ix, XattrOverride};
use crate::workset::Workset;
use systx_os::{Errno, FileType, Os, Timestamp};

/// How a name changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is new.
    Added,
    /// Its object changes, or is replaced by another one of the same type.
    Modified,
    /// It goes.
    Deleted,
    /// Its object gets another name instead.
    Renamed,
    /// Its object is replaced by one of another type.
    Retyped,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: Kind,
    /// Index of the mount in the transaction.
    pub mount: usize,
    /// The object as it is committed; `None`: the name is new.
    pub before: Option<Version>,
    /// The object as the transaction has it; `None`: the name goes.
    pub after: Option<Version>,
    /// The differences between the two; for a name that goes while its object stays, of the object.
    pub what: What,
    /// The new name is one more of an object that has this one, from the root of the mount.
    pub link_to: Option<Vec<u8>>,
}

/// An object on one side of the commit, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// From the root of the mount, without a leading `/`. Where a directory above is renamed, the two sides differ.
    pub path: Vec<u8>,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Modification time.
    pub mtime: Timestamp,
    pub(crate) node: Node,
}

/// The differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct What {
    /// Bytes of a file, target of a symbolic link, number of a device.
    pub contents: bool,
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// Modification time.
    pub mtime: bool,
    /// Access time, where it was set.
    pub atime: bool,
    /// Number of names of what is no directory.
    pub links: bool,
    /// Extended attributes, by name.
    pub xattrs: Vec<Xattr>,
}

/// A changed extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The name.
    pub name: Vec<u8>,
    /// It is there before.
    pub before: bool,
    /// It is there after.
    pub after: bool,
}

/// One of the two versions of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The committed side.
    Before,
    /// The transaction's side.
    After,
}

impl Version {
    fn new(ix: Ix, path: Vec<u8>, attr: &Attr) -> Version {
        let Attr { mode, uid, gid, nlink, size, rdev, mtime, .. } = *attr;
        Version { path, mode, uid, gid, nlink, size, rdev, mtime, node: node_of(ix) }
    }

    /// Type of the object.
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }
}

impl What {
    /// Returns true if nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == What::default()
    }
}

impl Change {
    /// The name that counts: the new one, or that which goes; from the root of the mount.
    pub fn path(&self) -> &[u8] {
        self.after.as_ref().or(self.before.as_ref()).map_or(&[], |version| &version.path)
    }

    /// One side of it.
    pub fn version(&self, side: Side) -> Option<&Version> {
        match side {
            Side::Before => self.before.as_ref(),
            Side::After => self.after.as_ref(),
        }
    }
}

impl<O: Os> Transaction<O> {
    /// All that a commit would change, sorted by path within each mount.
    ///
    /// # Errors
    /// `Doomed` when the committed tree is seen to have changed.
    pub fn changes(&mut self) -> Verb<Vec<Change>> {
        self.ours()?;
        self.workset.see_ends()?;
        let mut changes = Vec::new();
        self.workset.read_native_trees()?;
        for diff in Diff::of(&mut self.workset).map_err(|(_, error)| error)? {
            for pair in diff.pairs(&self.workset) {
                changes.extend(change(&mut self.workset, &diff, pair)?);
            }
        }
        let key = |c: &Change| (c.mount, c.path().to_vec(), c.kind != Kind::Deleted);
        changes.sort_by_cached_key(key);
        Ok(changes)
    }

    /// A path from the root of a mount as people know it.
    pub fn shown_path(&self, mount: usize, path: &[u8]) -> Vec<u8> {
        self.workset.shown_path(mount, path)
    }
}

fn change<O: Os>(workset: &mut Workset<O>, diff: &Diff, pair: Pair) -> Verb<Option<Change>> {
    let Pair { before, after, moved, link_to } = pair;
    let what = match (&before, &after) {
        (Some((old, _)), Some((new, _))) if old == new => changed_object(workset, diff, *old)?,
        (Some((old, _)), Some((new, _))) => changed_for_another(workset, *old, *new)?,
        (Some((old, _)), None) if !workset.is_gone(*old) => changed_object(workset, diff, *old)?,
        _ => What::default(),
    };
    let Some(ix) = before.as_ref().or(after.as_ref()).map(|(ix, _)| *ix) else { return Ok(None) };
    let mount = usize::from(workset.object(ix).mount);
    let old = |(ix, path)| committed_attr(workset, ix).map(|attr| Version::new(ix, path, &attr));
    let before = before.map(old).transpose()?;
    let new = |(ix, path)| workset.attr(ix).map(|attr| Version::new(ix, path, &attr));
    let after = after.map(new).transpose()?;
    let kind = match (&before, &after) {
        (None, _) => Kind::Added,
        (_, None) => Kind::Deleted,
        (Some(old), Some(new)) if old.kind() != new.kind() => Kind::Retyped,
        _ if moved => Kind::Renamed,
        _ if what.is_empty() => return Ok(None),
        _ => Kind::Modified,
    };
    Ok(Some(Change { kind, mount, before, after, what, link_to }))
}

fn committed_attr<O: Os>(workset: &Workset<O>, ix: Ix) -> Verb<Attr> {
    let lower = workset.object(ix).lower.as_ref().ok_or(Errno::STALE)?;
    Ok(Attr::from(&lower.stat))
}

/// Returns what the transaction has changed of an object of the committed tree that stays.
fn changed_object<O: Os>(workset: &mut Workset<O>, diff: &Diff, ix: Ix) -> Verb<What> {
    let object = workset.object(ix);
    let links = object.dir.is_none() && object.links != 0;
    let Some(diff) = diff.object(ix) else {
        return Ok(What { links, ..What::default() });
    };
    let xattr = |x: &XattrOverride| Xattr {
        name: x.name.to_vec(),
        before: x.before.is_some(),
        after: x.now.is_some(),
    };
    let mut xattrs: Vec<_> = diff.xattrs.iter().map(xattr).collect();
    xattrs.sort_unstable();
    Ok(What {
        contents: diff.bytes_differ(workset)?,
        mode: diff.mode.is_some(),
        owner: diff.owner.is_some(),
        mtime: diff.mtime.is_some_and(|mtime| mtime.differs()),
        atime: diff.atime.is_some_and(|atime| atime.differs()),
        links,
        xattrs,
    })
}

/// Returns the differences between an object of the committed tree and the one that gets its name.
fn changed_for_another<O: Os>(workset: &mut Workset<O>, old: Ix, new: Ix) -> Verb<What> {
    let (was, is) = (committed_attr(workset, old)?, workset.attr(new)?);
    let is_dir = workset.object(old).dir.is_some() || workset.object(new).dir.is_some();
    let mut what = What {
        contents: bytes_differ(workset, old, new, (was.size, is.size))? || was.rdev != is.rdev,
        mode: was.mode & 0o7777 != is.mode & 0o7777,
        owner: (was.uid, was.gid) != (is.uid, is.gid),
        mtime: !is_dir && was.mtime != is.mtime,
        atime: false,
        links: !is_dir && was.nlink != is.nlink,
        xattrs: Vec::new(),
    };
    let Some(fact) = workset.object(old).lower.as_ref().map(|lower| lower.fact) else { return Ok(what) };
    let before = none_if_unsupported(workset.facts_mut().xattr_names(fact))?;
    let after = none_if_unsupported(workset.xattr_names(new))?;
    for name in &before {
        let kept = after.contains(name);
        if !kept || workset.facts_mut().xattr(fact, name)? != workset.xattr(new, name)? {
            what.xattrs.push(Xattr { name: name.clone(), before: true, after: kept });
        }
    }
    let added = after.into_iter().filter(|name| !before.contains(name));
    what.xattrs.extend(added.map(|name| Xattr { name, before: false, after: true }));
    what.xattrs.sort_unstable();
    Ok(what)
}
