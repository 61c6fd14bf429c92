//! Savepoints: what is needed to undo everything that was done since, and nothing of what was read.
//!
//! Owns: for each open savepoint, the acts on names in their order, and of each object that was changed what it was
//! before its first change. Guarantees: an object that is removed is kept in a slot until the outermost savepoint ends;
//! one that was made since needs no copy. Facts stay: what a part has read that was undone, the transaction has read.
//! Does not: undo by itself; that is `verbs/savepoint.rs`, with the same operations that did it.

use super::changed_pages::{Changed, Pages};
use super::data::CHUNK_BYTES;
use super::extents::{Extent, Extents};
use super::Workset;
use crate::acl::each_list_once;
use crate::bytes::{read_up_to, write_all};
use crate::facts::Name;
use crate::outcome::Verb;
use crate::types::Access;
use crate::workset::node::{Data, Ix, Memory, Overlay, Overrides, Private, Reach, NO_SLOT};
use std::collections::hash_map::Entry as MapEntry;
use std::collections::HashMap;
use systx_os::{Errno, FileType, Os, SetXattr, Stat, Timestamp};

/// All savepoints of a transaction.
#[derive(Default)]
pub(crate) struct Savepoints {
    open: Vec<Savepoint>,
    given: u64,
    /// What is done now undoes something, and is not to be undone.
    undoing: bool,
    /// Names that staged objects have in slots alone, until the outermost savepoint ends.
    kept: HashMap<Ix, u32>,
}

/// One savepoint.
pub(crate) struct Savepoint {
    pub id: u64,
    /// Number of nodes.
    nodes: usize,
    pub acts: Vec<Act>,
    before: HashMap<Ix, Before>,
    /// Why the transaction could not commit.
    pub refusal: Option<String>,
}

/// An act on names.
pub(crate) enum Act {
    /// A name was given, to a new object or an old one.
    Added(Ix, Name),
    Removed(Removed),
    Moved([(Ix, Name); 2]),
    Exchanged([(Ix, Name); 2]),
}

/// A name that was taken away.
pub(crate) struct Removed {
    pub dir: Ix,
    pub name: Name,
    pub ix: Ix,
    /// Slot of the name.
    pub slot: u32,
    /// Where a staged object is meanwhile.
    pub kept: Option<u32>,
}

/// An object before it was changed.
struct Before {
    over: Option<Box<Overrides>>,
    incapable: bool,
    flagged: bool,
    /// When names of a lower directory changed last.
    names_changed: Option<Timestamp>,
    /// Modification time of the private copy.
    private_time: Option<Timestamp>,
    staged: Option<StagedBefore>,
    bytes: Option<BytesBefore>,
}

/// The attributes of a staged object.
struct StagedBefore {
    stat: Stat,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Bytes of a file. Copies are in slots of their own.
enum BytesBefore {
    Base,
    Pages(Changed),
    Memory(Box<Memory>),
    Whole { private: Option<Private>, size: u64, copy: u32 },
    Overlay { slot: u32, extents: Extents, size: u64, copy: u32 },
}

impl BytesBefore {
    fn copy(&self) -> Option<u32> {
        match self {
            BytesBefore::Base | BytesBefore::Pages(_) | BytesBefore::Memory(_) => None,
            BytesBefore::Whole { copy, .. } | BytesBefore::Overlay { copy, .. } => Some(*copy),
        }
    }
}

impl<O: Os> Workset<O> {
    /// Makes a savepoint, with the reason why the transaction can't commit, if there is one.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where nodes may be forgotten.
    pub(crate) fn savepoint(&mut self, refusal: Option<String>) -> Verb<u64> {
        if self.reads_committed() || self.shares {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.savepoints.given += 1;
        let (id, nodes) = (self.savepoints.given, self.nodes.len());
        let (acts, before) = (Vec::new(), HashMap::new());
        self.savepoints.open.push(Savepoint { id, nodes, acts, before, refusal });
        Ok(id)
    }

    /// Takes the innermost savepoint, if it is this one or inside of it.
    pub(crate) fn innermost(&mut self, id: u64) -> Option<Savepoint> {
        self.savepoints.open.last().filter(|last| last.id >= id)?;
        self.savepoints.open.pop()
    }

    /// Returns true if there is such a savepoint.
    pub(crate) fn has_savepoint(&self, id: u64) -> bool {
        self.savepoints.open.iter().any(|open| open.id == id)
    }

    /// Returns true if what is done now may have to be undone.
    pub(crate) fn may_be_undone(&self) -> bool {
        !self.savepoints.open.is_empty() && !self.savepoints.undoing
    }

    /// Works without noting it: it undoes something.
    pub(crate) fn while_undoing(&mut self, work: impl FnOnce(&mut Self) -> Verb<()>) -> Verb<()> {
        self.savepoints.undoing = true;
        let done = work(self);
        self.savepoints.undoing = false;
        done
    }

    /// Notes an act on names.
    pub(crate) fn note_act(&mut self, act: impl FnOnce() -> Act) {
        if self.may_be_undone() {
            if let Some(open) = self.savepoints.open.last_mut() {
                open.acts.push(act());
            }
        }
    }

    /// How many names of a staged object are kept in slots alone.
    pub(super) fn kept_names(&self, ix: Ix) -> u32 {
        self.savepoints.kept.get(&ix).copied().unwrap_or(0)
    }

    /// The innermost savepoint, if it has to know of a change of an object that is not in it yet.
    fn to_note(&self, ix: Ix) -> Option<&Savepoint> {
        let open = self.savepoints.open.last().filter(|_| !self.savepoints.undoing)?;
        let is_new = self.object(ix).is_staged() && ix.get() as usize > open.nodes;
        (!is_new).then_some(open)
    }

    /// Before attributes of an object change, or names in it.
    pub(crate) fn before_change(&mut self, ix: Ix) -> Verb<()> {
        if self.to_note(ix).is_none_or(|open| open.before.contains_key(&ix)) {
            return Ok(());
        }
        let staged = if self.object(ix).is_staged() { Some(self.staged_before(ix)?) } else { None };
        let private_time = match self.object(ix).data {
            Data::Private(_) => {
                let fd = self.private_fd(ix)?;
                Some(self.os.stat(&fd)?.mtime)
            }
            _ => None,
        };
        let object = self.object(ix);
        let before = Before {
            over: object.over.clone(),
            incapable: object.incapable,
            flagged: object.flagged,
            names_changed: object.dir.as_ref().and_then(|dir| dir.changed),
            private_time,
            staged,
            bytes: None,
        };
        if let Some(open) = self.savepoints.open.last_mut() {
            open.before.insert(ix, before);
        }
        Ok(())
    }

    fn staged_before(&mut self, ix: Ix) -> Verb<StagedBefore> {
        let fd = self.any_fd(ix)?;
        let stat = self.os.stat(&fd)?;
        let mut xattrs = Vec::new();
        for name in self.names_of_xattrs(&fd)? {
            let value = self.os.getxattr(&fd, &name)?;
            xattrs.push((name, value));
        }
        Ok(StagedBefore { stat, xattrs })
    }

    fn names_of_xattrs(&self, fd: &O::Fd) -> Verb<Vec<Vec<u8>>> {
        match self.os.listxattr(fd) {
            Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
            names => Ok(each_list_once(names?)),
        }
    }

    /// Before bytes of a file change, or its size.
    pub(crate) fn before_bytes(&mut self, ix: Ix) -> Verb<()> {
        self.before_change(ix)?;
        let known = |open: &Savepoint| open.before.get(&ix).is_none_or(|before| before.bytes.is_some());
        if self.object(ix).kind != FileType::File || self.to_note(ix).is_none_or(known) {
            return Ok(());
        }
        let object = self.object(ix);
        let bytes = match &object.data {
            _ if object.is_staged() => self.copy_whole(ix, None)?,
            // None is appended to unseen when a savepoint begins, nor from then on.
            Data::Base(_) | Data::Appended(_) => BytesBefore::Base,
            Data::Pages(pages) => BytesBefore::Pages(pages.changed.clone()),
            Data::Memory(memory) => BytesBefore::Memory(memory.clone()),
            Data::Private(private) => {
                let private = (**private).clone();
                self.copy_whole(ix, Some(private))?
            }
            Data::Overlay(overlay) => {
                let (slot, extents, size) = (overlay.slot, overlay.extents.clone(), overlay.size);
                let from = self.private_fd(ix)?;
                let (copy, to) = self.private_file(ix)?;
                self.copy_extents(&from, &to, &extents)?;
                BytesBefore::Overlay { slot, extents, size, copy }
            }
        };
        if let Some(before) = self.savepoints.open.last_mut().and_then(|open| open.before.get_mut(&ix)) {
            before.bytes = Some(bytes);
        }
        Ok(())
    }

    fn copy_whole(&mut self, ix: Ix, private: Option<Private>) -> Verb<BytesBefore> {
        let from = self.whole_fd(ix, Access::Read)?.ok_or(Errno::BADF)?;
        let size = self.os.stat(&from)?.size;
        let (copy, to) = self.private_file(ix)?;
        self.copy_range(&from, &to, 0..size)?;
        Ok(BytesBefore::Whole { private, size, copy })
    }

    fn copy_extents(&self, from: &O::Fd, to: &O::Fd, extents: &Extents) -> Verb<()> {
        let ours = extents.iter().filter(|(_, kind)| *kind == Extent::Data);
        ours.into_iter().try_for_each(|(range, _)| self.copy_range(from, to, range))
    }

    /// Copies bytes to the same offsets of another file.
    fn copy_range(&self, from: &O::Fd, to: &O::Fd, range: std::ops::Range<u64>) -> Verb<()> {
        let mut buf = vec![0; CHUNK_BYTES.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let want = buf.len().min((range.end - at) as usize);
            match read_up_to(&self.os, from, &mut buf[..want], at)? {
                0 => break,
                got => {
                    write_all(&self.os, to, &buf[..got], at)?;
                    at += got as u64;
                }
            }
        }
        Ok(())
    }

    /// Keeps the staged object of a name that is to go, in a slot, instead of removing it.
    pub(crate) fn keep(&mut self, dir: Ix, name: &[u8], ix: Ix) -> Verb<u32> {
        let mount = usize::from(self.object(dir).mount);
        let from = self.spot_at(dir, name)?;
        let slot = self.new_slot(mount)?;
        let to = self.slot_spot(mount, slot)?;
        self.os.rename((&from.dir, &from.name), (&to.dir, &to.name), systx_os::Rename::NoReplace)?;
        *self.savepoints.kept.entry(ix).or_default() += 1;
        Ok(slot)
    }

    fn kept_no_more(&mut self, ix: Ix) {
        if let MapEntry::Occupied(mut kept) = self.savepoints.kept.entry(ix) {
            *kept.get_mut() -= 1;
            if *kept.get() == 0 {
                kept.remove();
            }
        }
    }

    /// Gives a removed name back.
    pub(crate) fn bring_back(&mut self, removed: &Removed) -> Verb<()> {
        let Removed { dir, name, ix, slot, kept } = removed;
        if let Some(kept) = kept {
            let mount = usize::from(self.object(*dir).mount);
            let from = self.slot_spot(mount, *kept)?;
            let to = match slot {
                &NO_SLOT => super::staging::Spot { dir: self.staged_dir(*dir)?, name: (**name).into() },
                slot => self.slot_spot(mount, *slot)?,
            };
            self.os.rename((&from.dir, &from.name), (&to.dir, &to.name), systx_os::Rename::NoReplace)?;
            self.kept_no_more(*ix);
        }
        self.name(*dir, name, *ix, *slot);
        // A directory may have been let go of while it had no name to be reached by.
        if let Some(dir) = &mut self.object_mut(*ix).dir {
            if matches!(dir.staged, Reach::Gone(_)) {
                dir.staged = Reach::Name;
            }
        }
        Ok(())
    }

    /// Makes everything that a savepoint has noted what it was. Its acts have been undone.
    pub(crate) fn restore(&mut self, savepoint: Savepoint) -> Verb<()> {
        let restored =
            savepoint.before.into_iter().try_for_each(|(ix, before)| self.restore_object(ix, before));
        if self.savepoints.open.is_empty() {
            self.reap_all();
        }
        restored
    }

    /// Releases private bytes of what was removed and closed meanwhile: they have waited for the last savepoint's end.
    fn reap_all(&mut self) {
        let private: Vec<_> = self.all().filter(|ix| self.object(*ix).data.slot() != NO_SLOT).collect();
        private.into_iter().for_each(|ix| self.reap(ix));
    }

    /// Gives a file that others have written since, and that becomes a fact as a whole, a later time than theirs, as its
    /// own writes become public behind them. None was set by then, also none that a part restores.
    pub(super) fn renew_written(&mut self, ix: Ix) {
        let now = self.now();
        let noted =
            self.savepoints.open.iter_mut().filter_map(|open| open.before.get_mut(&ix)?.over.as_mut());
        let present = self.nodes[ix.get() as usize - 1].over.as_mut();
        for over in noted.chain(present).filter(|over| over.mtime.is_some()) {
            (over.mtime, over.ctime) = (Some(now), Some(now));
        }
    }

    fn restore_object(&mut self, ix: Ix, before: Before) -> Verb<()> {
        if let Some(bytes) = before.bytes {
            self.restore_bytes(ix, bytes)?;
        }
        let object = self.object_mut(ix);
        (object.over, object.incapable, object.flagged) = (before.over, before.incapable, before.flagged);
        if let Some(dir) = &mut object.dir {
            (dir.changed, dir.default_acl) = (before.names_changed, None);
        }
        if let (Some(time), Data::Private(_)) = (before.private_time, &self.object(ix).data) {
            let fd = self.private_fd(ix)?;
            self.os.utimens(&fd, None, Some(time))?;
        }
        match before.staged {
            Some(staged) if self.is_reachable(ix) => self.restore_attributes(ix, &staged),
            _ => Ok(()),
        }
    }

    /// True if a staged object has a name or is open.
    fn is_reachable(&self, ix: Ix) -> bool {
        let object = self.object(ix);
        !object.names.is_empty() || object.file.is_some()
    }

    fn restore_bytes(&mut self, ix: Ix, bytes: BytesBefore) -> Verb<()> {
        let mount = usize::from(self.object(ix).mount);
        if let Some(copy) = bytes.copy() {
            if !self.object(ix).is_staged() || self.is_reachable(ix) {
                let spot = self.slot_spot(mount, copy)?;
                let from = self.os.open(&spot.dir, &spot.name, systx_os::Open::Read)?;
                let staged = self.object(ix).is_staged();
                let to = if staged { self.staged_fd(ix, Access::Write)? } else { self.private_fd(ix)? };
                match &bytes {
                    BytesBefore::Overlay { extents, .. } => self.copy_extents(&from, &to, extents)?,
                    BytesBefore::Whole { size, .. } => {
                        // What was there is left out first: where it was cut, it has to be zeros.
                        self.os.truncate(&to, 0)?;
                        self.copy_range(&from, &to, 0..*size)?;
                        self.os.truncate(&to, *size)?;
                    }
                    BytesBefore::Base | BytesBefore::Pages(_) | BytesBefore::Memory(_) => {}
                }
            }
            self.clear_slot(mount, copy)?;
        }
        let data = match bytes {
            BytesBefore::Base => Data::Base(None),
            BytesBefore::Pages(changed) => Data::Pages(Box::new(Pages { lower: None, changed })),
            BytesBefore::Memory(memory) => Data::Memory(memory),
            BytesBefore::Whole { private: Some(private), .. } => Data::Private(Box::new(private)),
            BytesBefore::Whole { private: None, .. } => return Ok(()),
            BytesBefore::Overlay { slot, extents, size, .. } => {
                Data::Overlay(Box::new(Overlay { slot, lower: None, extents, size }))
            }
        };
        let now = self.object(ix).data.slot();
        if now != data.slot() && now != NO_SLOT {
            self.clear_slot(mount, now)?;
        }
        let object = self.object_mut(ix);
        if now != data.slot() {
            object.file = None;
        }
        object.data = data;
        Ok(())
    }

    pub(super) fn clear_slot(&mut self, mount: usize, slot: u32) -> Verb<()> {
        let spot = self.slot_spot(mount, slot)?;
        Ok(self.os.unlink(&spot.dir, &spot.name)?)
    }

    fn restore_attributes(&mut self, ix: Ix, before: &StagedBefore) -> Verb<()> {
        let (fd, stat) = (self.any_fd(ix)?, before.stat);
        let now = self.os.stat(&fd)?;
        if (now.uid, now.gid) != (stat.uid, stat.gid) {
            self.os.chown(&fd, stat.uid, stat.gid)?;
        }
        for name in self.names_of_xattrs(&fd)? {
            if !before.xattrs.iter().any(|(known, _)| *known == name) {
                self.os.removexattr(&fd, &name)?;
            }
        }
        for (name, value) in &before.xattrs {
            if self.os.getxattr(&fd, name).as_ref() != Ok(value) {
                self.os.setxattr(&fd, name, value, SetXattr::Any)?;
            }
        }
        if self.object(ix).kind != FileType::Symlink && self.os.stat(&fd)?.perm() != stat.perm() {
            self.os.chmod(&fd, stat.perm())?;
        }
        Ok(self.os.utimens(&fd, Some(stat.atime), Some(stat.mtime))?)
    }

    /// What a savepoint has noted becomes part of the next outer one, or of the transaction.
    pub(crate) fn merge(&mut self, savepoint: Savepoint) -> Verb<()> {
        let Savepoint { acts, before, .. } = savepoint;
        let mut copies = Vec::new();
        let nodes = &self.nodes;
        if let Some(outer) = self.savepoints.open.last_mut() {
            outer.acts.extend(acts);
            for (ix, before) in before {
                let object = &nodes[ix.get() as usize - 1];
                let mount = usize::from(object.mount);
                let mut spare = |bytes: Option<BytesBefore>| {
                    copies.extend(bytes.and_then(|bytes| bytes.copy()).map(|copy| (mount, copy)));
                };
                if object.is_staged() && ix.get() as usize > outer.nodes {
                    spare(before.bytes);
                    continue;
                }
                match outer.before.entry(ix) {
                    MapEntry::Vacant(place) => drop(place.insert(before)),
                    MapEntry::Occupied(mut known) if known.get().bytes.is_none() => {
                        known.get_mut().bytes = before.bytes;
                    }
                    MapEntry::Occupied(_) => spare(before.bytes),
                }
            }
            return copies.into_iter().try_for_each(|(mount, copy)| self.clear_slot(mount, copy));
        }
        for (ix, before) in before {
            let mount = usize::from(self.object(ix).mount);
            if let Some(copy) = before.bytes.and_then(|bytes| bytes.copy()) {
                self.clear_slot(mount, copy)?;
            }
        }
        for act in acts {
            let Act::Removed(Removed { dir, ix, kept, .. }) = act else { continue };
            if let Some(kept) = kept {
                let spot = self.slot_spot(usize::from(self.object(dir).mount), kept)?;
                match self.object(ix).kind {
                    FileType::Directory => self.os.rmdir(&spot.dir, &spot.name)?,
                    _ => self.os.unlink(&spot.dir, &spot.name)?,
                }
                self.kept_no_more(ix);
            }
        }
        self.reap_all();
        Ok(())
    }
}
