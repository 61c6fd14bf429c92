//! The difference between the committed tree and what a transaction makes of it.
//!
//! Owns: [`Diff`], made once from the working set and the facts under it: names, and object by object
//! attributes and bytes. `plan` renders it as steps, `changes` for people, `undo` as images. Guarantees: the same
//! transaction has the same difference; making it changes nothing, and asks the kernel for the stamps of
//! private files only. Does not: compare bytes, or pair names by their paths, before it is asked to ([`bytes`],
//! [`pairs`]).

pub(crate) mod bytes;
pub(crate) mod pairs;

use crate::diff::bytes::Bytes;
use crate::facts::Name;
use crate::outcome::{Verb, VerbError};
use crate::workset::node::{Data, Entry, Ix, XattrOverride};
use crate::workset::Workset;
use smallvec::SmallVec;
use std::collections::HashMap;
use systx_os::{Errno, Os, Timestamp};

/// Everything that a transaction changes on one mount. Made by [`Diff::of`], good until the next verb.
#[derive(Default)]
pub(crate) struct Diff {
    /// Names that have another object than before, by directory and name.
    pub names: Vec<NameDiff>,
    /// Objects of the committed tree that lost or got names.
    pub moves: HashMap<Ix, Moves>,
    /// Objects of the committed tree that stay, and of which more than names was changed, by number.
    pub objects: Vec<ObjectDiff>,
    /// Such objects that go: what was changed of them is lost.
    pub gone: Vec<Ix>,
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

/// The differences of an object of the committed tree, besides its names.
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
    /// Bytes of a file that has some of its own, which need not differ.
    pub bytes: Option<Box<Bytes>>,
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
    /// The differences of each mount. An error comes with the object that can't be looked at.
    pub fn of<O: Os>(workset: &mut Workset<O>) -> Result<Vec<Diff>, (Ix, VerbError)> {
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
            } else if object.over.is_none() && matches!(object.data, Data::Base(_)) {
                continue;
            } else if workset.is_gone(ix) {
                diff.gone.push(ix);
            } else {
                diff.objects.push(object_diff(workset, ix).map_err(|error| (ix, error))?);
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

impl ObjectDiff {
    /// Returns true if an attribute differs.
    pub fn attributes_differ(&self) -> bool {
        let times = [self.atime, self.mtime].into_iter().flatten();
        self.mode.is_some()
            || self.owner.is_some()
            || !self.xattrs.is_empty()
            || times.into_iter().any(|t| t.differs())
    }

    /// Compares the bytes.
    pub fn bytes_differ<O: Os>(&self, workset: &mut Workset<O>) -> Verb<bool> {
        self.bytes.as_ref().map_or(Ok(false), |bytes| bytes.differ(workset, (self.ix, self.ix)))
    }
}

fn object_diff<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<ObjectDiff> {
    let old = workset.object(ix).lower.as_ref().ok_or(Errno::STALE)?.stat;
    let new = workset.attr(ix)?;
    let object = workset.object(ix);
    let over = object.over.as_deref();
    let set = |old, new: Option<Timestamp>| new.map(|new| Edit { old, new });
    let xattrs = over.into_iter().flat_map(|over| &over.xattrs).filter(|x| x.before != x.now);
    Ok(ObjectDiff {
        ix,
        mode: Edit::new(old.perm(), new.mode & 0o7777),
        owner: Edit::new((old.uid, old.gid), (new.uid, new.gid)),
        atime: set(old.atime, over.and_then(|over| over.atime)),
        mtime: match object.data {
            // It has its time itself, and that of the committed file until it is written to.
            Data::Private(_) => Edit::new(old.mtime, new.mtime),
            _ => set(old.mtime, over.and_then(|over| over.mtime)),
        },
        xattrs: xattrs.cloned().collect(),
        bytes: Bytes::of(&object.data, old.size, new.size),
    })
}
