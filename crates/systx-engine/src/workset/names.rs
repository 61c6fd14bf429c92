//! Names of directories as the program sees them, over the committed tree.
//!
//! Owns: [`Entry`] (what a name is, and what it was), the lookup that fills it from a fact, and the
//! bookkeeping that every change of a name needs: link counts, subdirectories, times of the directory.

use super::Workset;
use crate::facts::{LowerDir, Name};
use crate::outcome::Verb;
use crate::workset::node::{Entry, Ix, Native, NO_SLOT};
use std::sync::Arc;
use systx_os::{Errno, FileType, Os, Timestamp};

/// Longest name, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// True if a change of a directory's names was also one of the staged directory itself, which has moved its
/// times then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Real,
    Remembered,
}

/// Returns true for bytes that can be a name.
fn is_valid(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && !name.contains(&0)
}

impl<O: Os> Workset<O> {
    pub(crate) fn entry(&self, dir: Ix, name: &[u8]) -> Option<Entry> {
        if self.is_sub_area(name) {
            return self.sub_area(dir, name);
        }
        self.object(dir).dir.as_ref().and_then(|d| d.names.get(name)).copied()
    }

    /// The committed directory behind a lower directory's node, open.
    pub(crate) fn lower_dir(&mut self, ix: Ix) -> Verb<Arc<LowerDir<O>>> {
        let object = self.object(ix);
        let (Some(lower), Some(dir)) = (&object.lower, &object.dir) else { return Err(Errno::NOTDIR.into()) };
        let base = match (&dir.base, lower.fact) {
            (Some(base), _) if base.is_open() => return Ok(base.clone()),
            (Some(base), _) => {
                let base = base.clone();
                self.facts.keep_open(&base)?;
                base
            }
            (None, fact) => {
                let base = self.facts.dir(fact)?;
                if let Some(dir) = &mut self.object_mut(ix).dir {
                    dir.base = Some(base.clone());
                }
                base
            }
        };
        self.hold(ix);
        Ok(base)
    }

    /// Returns the object at a name. The first read of a name of the committed tree makes it a fact.
    pub(crate) fn find(&mut self, dir: Ix, name: &[u8]) -> Verb<Option<Ix>> {
        let object = self.object(dir);
        let Some(directory) = &object.dir else { return Err(Errno::NOTDIR.into()) };
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if self.is_sub_area(name) {
            return Ok(self.sub_area(dir, name).and_then(|entry| entry.now));
        }
        if directory.native != Native::No && is_valid(name) {
            self.look_again(dir, name)?;
            return Ok(self.entry(dir, name).and_then(|entry| entry.now));
        }
        if let Some(entry) = directory.names.get(name) {
            return Ok(entry.now);
        }
        let staged = object.is_staged();
        if !is_valid(name) {
            return Err(Errno::INVAL.into());
        }
        if staged || (!self.is_remembered(dir, name) && self.is_hidden(dir, name)) {
            return Ok(None);
        }
        if self.reads_committed() {
            return self.read_unvalidated(dir, name);
        }
        self.claim_name(dir, name)
    }

    /// The first touch of a name of the committed tree as a fact.
    pub(super) fn claim_name(&mut self, dir: Ix, name: &[u8]) -> Verb<Option<Ix>> {
        let mount = usize::from(self.object(dir).mount);
        let base = self.lower_dir(dir)?;
        let name = Name::from(name);
        let found = self.facts.entry_named(&base, &name)?;
        // It was not when it was remembered.
        if found.as_ref().is_some_and(|found| self.mounts[mount].is_area(&found.handle)) {
            return Ok(None);
        }
        let ix = match found {
            Some(found) if self.reads_committed() => Some(self.adopt(mount, found)?),
            Some(found) => Some(self.lower_node(mount, &found)?),
            None => None,
        };
        if let Some(ix) = ix {
            self.object_mut(ix).names.push((dir, name.clone()));
        }
        if let Some(directory) = &mut self.object_mut(dir).dir {
            directory.names.insert(name, Entry { now: ix, before: ix, slot: NO_SLOT });
        }
        Ok(ix)
    }

    /// As [`Workset::find_to_change`] for a name that must be there.
    pub(crate) fn find_some(&mut self, dir: Ix, name: &[u8]) -> Verb<Ix> {
        self.find_to_change(dir, name)?.ok_or(Errno::NOENT.into())
    }

    /// Returns true if a name was another object's than our area when this process looked last. The next look shows
    /// if it still is.
    fn is_remembered(&self, dir: Ix, name: &[u8]) -> bool {
        let (object, domain) = (self.object(dir), &self.mounts[usize::from(self.object(dir).mount)]);
        let known = object.lower.as_ref().and_then(|lower| domain.remembered.name(&lower.handle, name));
        known.is_some_and(|(handle, _)| !domain.is_area(&handle)) && !self.reads_committed()
    }

    /// Returns true for the name of our own area.
    pub(crate) fn is_hidden(&self, dir: Ix, name: &[u8]) -> bool {
        if !self.is_root(dir) {
            return false;
        }
        let domain = &self.mounts[usize::from(self.object(dir).mount)];
        domain.os.handle_at(&domain.area.root, name).is_ok_and(|handle| domain.is_area(&handle))
    }

    /// Checks that names may be made in a directory.
    pub(crate) fn may_create_in(&mut self, dir: Ix, name: &[u8]) -> Verb<()> {
        if self.object(dir).kind != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if self.is_gone(dir) {
            return Err(Errno::NOENT.into());
        }
        // A name that was looked up and is known is none of ours.
        let known = self.object(dir).dir.as_ref().is_some_and(|d| d.names.contains_key(name));
        // A subtransaction's area is another one than ours, which may have the same name.
        if !known && !self.is_sub_area(name) && self.is_hidden(dir, name) {
            return Err(Errno::ACCESS.into());
        }
        match &self.object(dir).lower {
            Some(_) if self.is_in_subvolume(dir) => Err(Errno::ROFS.into()),
            Some(lower) if lower.stat.immutable => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }

    /// Returns true if an object lies in another subvolume (of btrfs) than the area, below the same mount. No
    /// name moves between the two, so no staged object could be put in place there.
    pub(crate) fn is_in_subvolume(&self, ix: Ix) -> bool {
        let device = |ix: Ix| self.object(ix).lower.as_ref().map(|lower| lower.stat.dev);
        let root = self.root(usize::from(self.object(ix).mount));
        matches!((device(ix), device(root)), (Some(here), Some(root)) if here != root)
    }

    /// Checks that a name may be taken from a directory and its object.
    pub(crate) fn may_remove_from(&self, dir: Ix, ix: Ix) -> Verb<()> {
        let fixed = |ix: Ix| match &self.object(ix).lower {
            Some(lower) => lower.stat.immutable || lower.stat.append_only,
            None => false,
        };
        // The subvolume itself has its name outside of it.
        if self.is_in_subvolume(dir) {
            return Err(Errno::ROFS.into());
        }
        if fixed(dir) || fixed(ix) {
            Err(Errno::PERM.into())
        } else {
            Ok(())
        }
    }

    /// Takes a name away; its object, if staged, is where it was.
    pub(crate) fn unname(&mut self, dir: Ix, name: &[u8]) {
        if self.is_sub_area(name) {
            return self.unname_sub_area(dir, name);
        }
        let staged = self.object(dir).is_staged();
        let Some(directory) = &mut self.object_mut(dir).dir else { return };
        let was = match directory.names.get_mut(name) {
            Some(entry) => {
                entry.slot = NO_SLOT;
                entry.now.take()
            }
            None => None,
        };
        if staged {
            directory.names.remove(name);
        }
        let Some(ix) = was else { return };
        let object = self.object_mut(ix);
        object.names.retain(|(d, n)| *d != dir || **n != *name);
        object.links -= 1;
        if object.kind == FileType::Directory {
            if let Some(directory) = &mut self.object_mut(dir).dir {
                directory.subdirs -= 1;
            }
        }
    }

    /// Makes a name, which must be missing, one of `ix`.
    pub(crate) fn name(&mut self, dir: Ix, name: &[u8], ix: Ix, slot: u32) {
        if self.is_sub_area(name) {
            return self.name_sub_area(dir, name, ix, slot);
        }
        self.add_name(dir, name, ix, slot);
        self.note_native(dir, name, ix);
    }

    pub(super) fn add_name(&mut self, dir: Ix, name: &[u8], ix: Ix, slot: u32) {
        let is_dir = self.object(ix).kind == FileType::Directory;
        if let Some(directory) = &mut self.object_mut(dir).dir {
            directory.subdirs += i32::from(is_dir);
            match directory.names.get_mut(name) {
                Some(entry) => (entry.now, entry.slot) = (Some(ix), slot),
                None => {
                    directory.names.insert(name.into(), Entry { now: Some(ix), before: None, slot });
                }
            }
        }
        let object = self.object_mut(ix);
        object.names.push((dir, name.into()));
        object.links += 1;
    }

    /// Moves the times of a directory whose names changed. What the program set before is overtaken.
    pub(crate) fn touch(&mut self, dir: Ix, change: Change) -> Verb<()> {
        if self.object(dir).is_staged() {
            if change == Change::Remembered {
                let now = self.os.now();
                let fd = self.staged_dir(dir)?;
                self.os.utimens(&fd, None, Some(now))?;
            }
            return Ok(());
        }
        let now = self.os.now();
        let object = self.object_mut(dir);
        if let Some(over) = &mut object.over {
            over.mtime = None;
        }
        if let Some(directory) = &mut object.dir {
            directory.changed = Some(now);
        }
        Ok(())
    }

    /// Returns true if a directory has no names.
    pub(crate) fn is_empty_dir(&mut self, ix: Ix) -> Verb<bool> {
        self.read_names(ix)?;
        let named = |d: &super::node::Directory<O>| d.names.values().any(|e| e.now.is_some());
        if self.object(ix).dir.as_ref().is_some_and(|d| named(d)) {
            return Ok(false);
        }
        if self.object(ix).is_staged() {
            return Ok(true);
        }
        let listing = self.listing(ix)?;
        let Some(dir) = &self.object(ix).dir else { return Ok(true) };
        // A name that was touched is gone: no touched name is left, see above.
        Ok(listing.iter().all(|d| dir.names.contains_key(&d.name[..])))
    }

    /// Names of the committed directory behind a lower directory's node: a fact.
    pub(crate) fn listing(&mut self, ix: Ix) -> Verb<Arc<[systx_os::Dirent]>> {
        if let Some(listing) = self.object(ix).dir.as_ref().and_then(|d| d.listing.clone()) {
            return Ok(listing);
        }
        let base = self.lower_dir(ix)?;
        let listing: Arc<[_]> = self.facts.listing(&base)?.into();
        if let Some(dir) = &mut self.object_mut(ix).dir {
            dir.listing = Some(listing.clone());
        }
        Ok(listing)
    }

    /// Returns true if `dir` is `ancestor` or below it.
    pub(crate) fn is_within(&self, dir: Ix, ancestor: Ix) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            match self.object(at).names.first() {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    /// Path of a node from the root of its mount, as the program sees it.
    pub(crate) fn path(&self, ix: Ix) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ix;
        while let Some((parent, name)) = self.object(at).names.first() {
            names.push(name);
            at = *parent;
        }
        if !self.is_root(at) {
            if let Some(lower) = &self.object(at).lower {
                return self.facts.path(lower.fact);
            }
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The time of a change, as the program is to see it.
    pub(crate) fn now(&self) -> Timestamp {
        self.os.now()
    }
}
