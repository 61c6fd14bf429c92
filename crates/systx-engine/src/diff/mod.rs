//! The difference between the committed tree and what a transaction makes of it.
//!
//! Owns: [`Diff`], made once from the working set and the facts under it: names, and object by object
//! attributes. `plan` renders it as steps, `changes` for people, `undo` as images. Guarantees: the same
//! transaction has the same difference; making it changes nothing, and asks the kernel for the stamps of
//! private files only. Does not: pair names by their paths before it is asked to ([`pairs`]).

pub(crate) mod pairs;

use crate::facts::Name;
use crate::outcome::{Verb, VerbError};
use crate::workset::node::{Data, Entry, Ix, XattrOverride};
use crate::workset::Workset;
use smallvec::SmallVec;
use std::collections::HashMap;
use systx_os::{Os, Timestamp};

/// Everything that a transaction changes on one mount. Made by [`Diff::of`], good until the next verb.
#[derive(Default)]
pub(crate) struct Diff {
    /// Names that have another object than before, by directory and name.
    pub names: Vec<NameDiff>,
    /// Objects of the committed tree that lost or got names.
    pub moves: HashMap<Ix, Moves>,
    /// Objects of the committed tree of which more than names was changed, by number.
    pub objects: Vec<ObjectDiff>,
    /// Objects that were made and have a name, by number.
    pub made: Vec<Ix>,
}

/// A name that has another object than before.
pub(crate) struct NameDiff {
    pub dir: Ix,
    pub name: Name,
    pub entry: Entry,
}

/// The names that an object of the committed tree lost and got, as indices into [`Diff::names`].
#[derive(Default)]
pub(crate) struct Moves {
    pub lost: SmallVec<[usize; 1]>,
    pub gained: SmallVec<[usize; 1]>,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edit<T> {
    pub old: T,
    pub new: T,
}

/// The differences of an object of the committed tree, besides its names. Of one that is gone there are none.
pub(crate) struct ObjectDiff {
    pub ix: Ix,
    /// Permission bits.
    pub mode: Option<Edit<u32>>,
    /// Owner and group.
    pub owner: Option<Edit<(u32, u32)>>,
    /// Access time, where it was set, be it to what it was.
    pub atime: Option<Edit<Timestamp>>,
    /// Modification time, likewise. That of a directory is not set by a change of its names.
    pub mtime: Option<Edit<Timestamp>>,
    /// Extended attributes.
    pub xattrs: Vec<XattrOverride>,
}

/// Why there is no difference: what can't be read.
pub(crate) struct Unread {
    pub ix: Ix,
    pub error: VerbError,
}

impl From<Unread> for VerbError {
    fn from(unread: Unread) -> VerbError {
        unread.error
    }
}

impl<T: PartialEq> Edit<T> {
    /// `None`: both are the same.
    fn new(old: T, new: T) -> Option<Edit<T>> {
        (old != new).then_some(Edit { old, new })
    }

    /// Returns true if the two are not the same.
    pub fn differs(&self) -> bool {
        self.old != self.new
    }
}

impl Diff {
    /// The differences of each mount.
    pub fn of<O: Os>(workset: &mut Workset<O>) -> Result<Vec<Diff>, Unread> {
        let mut diffs: Vec<Diff> = workset.mounts().iter().map(|_| Diff::default()).collect();
        for ix in workset.all() {
            let object = workset.object(ix);
            let diff = &mut diffs[usize::from(object.mount)];
            if let Some(directory) = &object.dir {
                let first = diff.names.len();
                let changed = directory.names.iter().filter(|(_, entry)| entry.now != entry.before);
                let name =
                    |(name, entry): (&Name, &Entry)| NameDiff { dir: ix, name: name.clone(), entry: *entry };
                diff.names.extend(changed.map(name));
                diff.names[first..].sort_unstable_by(|a, b| a.name.cmp(&b.name));
            }
            if object.is_staged() {
                diff.made.extend((!object.names.is_empty()).then_some(ix));
            } else if object.over.is_some() || !matches!(object.data, Data::Base(_)) {
                diff.objects.push(object_diff(workset, ix).map_err(|error| Unread { ix, error })?);
            }
        }
        for diff in &mut diffs {
            for (n, NameDiff { entry, .. }) in diff.names.iter().enumerate() {
                if let Some(before) = entry.before {
                    diff.moves.entry(before).or_default().lost.push(n);
                }
                if let Some(now) = entry.now.filter(|now| !workset.object(*now).is_staged()) {
                    diff.moves.entry(now).or_default().gained.push(n);
                }
            }
        }
        Ok(diffs)
    }

    /// The differences of an object of the committed tree, if more than names was changed.
    pub fn object(&self, ix: Ix) -> Option<&ObjectDiff> {
        self.objects.binary_search_by_key(&ix, |object| object.ix).ok().map(|n| &self.objects[n])
    }
}

fn object_diff<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<ObjectDiff> {
    let none = ObjectDiff { ix, mode: None, owner: None, atime: None, mtime: None, xattrs: Vec::new() };
    let old = match &workset.object(ix).lower {
        Some(lower) if !workset.is_gone(ix) => lower.stat,
        _ => return Ok(none),
    };
    let new = workset.attr(ix)?;
    let object = workset.object(ix);
    let over = object.over.as_deref();
    // A private file has its time itself, and what opening it for writing made has the committed one's.
    let mtime = match object.data {
        Data::Private(_) => Edit::new(old.mtime, new.mtime),
        _ => over.and_then(|over| over.mtime).map(|new| Edit { old: old.mtime, new }),
    };
    let xattrs = over.into_iter().flat_map(|over| &over.xattrs).filter(|x| x.before != x.now);
    Ok(ObjectDiff {
        mode: Edit::new(old.perm(), new.mode & 0o7777),
        owner: Edit::new((old.uid, old.gid), (new.uid, new.gid)),
        atime: over.and_then(|over| over.atime).map(|new| Edit { old: old.atime, new }),
        mtime,
        xattrs: xattrs.cloned().collect(),
        ..none
    })
}
