//! Read committed: unclaimed nodes, which a transaction of isolation `committed` looks at and does not change.
//!
//! Owns: [`Claim`], the way of a node from unclaimed to claimed, and its end. A name that is looked up is
//! looked at each time, and nothing of it is kept but the node, for as long as the kernel knows it. While a
//! file or directory is open it stays what it was when it was opened. What is to be changed is claimed first
//! ([`Workset::claim`]), with the directories on its way: from then on it is a node with a fact like any of a
//! serializable transaction, and planning and commit know of no other. Guarantees: memory for what is open or
//! known to the kernel only. Does not: decide what a program is told of how long it may keep something.

use super::names::NAME_MAX;
use super::Workset;
use crate::facts::{Bytes, FactIx, Found, Known, LowerDir, LowerFile, Name, Room};
use crate::outcome::{ConflictKind, Isolation, Verb};
use crate::types::Node;
use crate::workset::node::{Claim, Data, Ix, Object};
use std::sync::Arc;
use systx_os::{Dirent, Errno, FileType, Os};

/// Room for the bytes of all open unclaimed files; beyond, they are read where they are.
const COPIED_ALL_MAX: u64 = 64 << 20;
/// This many nodes are held from the lookup of their names to the next request for them: then that object is
/// opened, even if the name goes to another object all the time.
const RECENT_MAX: usize = 32;
/// Bytes compared at a time.
const CHUNK_BYTES: usize = 128 << 10;

impl<O: Os> Workset<O> {
    /// Returns true if reads add no facts.
    pub(crate) fn reads_committed(&self) -> bool {
        self.isolation == Isolation::Committed
    }

    /// Returns true if what is known of a node is not in the read set.
    pub(crate) fn is_unclaimed(&self, ix: Ix) -> bool {
        self.object(ix).claim == Claim::Unclaimed
    }

    /// Looks at the root of a mount, which is a fact unless reads add none.
    pub(super) fn look_at_root(&mut self, mount: usize) -> Verb<(Found, Arc<LowerDir<O>>)> {
        if self.reads_committed() {
            self.facts.root_unclaimed(mount)
        } else {
            self.facts.root(mount)
        }
    }

    /// The claim of what is only looked at.
    pub(super) fn first_claim(&self) -> Claim {
        if self.reads_committed() {
            Claim::Unclaimed
        } else {
            Claim::ToTheEnd
        }
    }

    /// The committed file behind an unclaimed node, open as it is now.
    pub(super) fn lower_file_now(&mut self, ix: Ix, fact: FactIx) -> Verb<Arc<LowerFile<O>>> {
        let held = self.recently(ix);
        Ok(Arc::new(self.facts.open_unclaimed(fact, held.as_deref(), Room::None)?.1))
    }

    /// Returns true if the known properties of a node stay true as long as the transaction runs.
    pub(crate) fn stays(&self, node: Node) -> bool {
        self.object(self.ix(node)).claim == Claim::ToTheEnd
    }

    /// Returns true if the known object of a name stays true as long as the transaction runs.
    pub(crate) fn name_stays(&self, dir: Node, name: &[u8]) -> bool {
        let dir = self.ix(dir);
        !self.reads_committed() || self.object(dir).is_staged() || self.entry(dir, name).is_some()
    }

    /// Size of the committed object when it was looked at last, in bytes.
    pub(crate) fn size_seen(&self, node: Node) -> u64 {
        self.object(self.ix(node)).lower.as_ref().map_or(0, |lower| lower.stat.size)
    }

    /// Tells a node from those that had its number before.
    pub(crate) fn generation(&self, node: Node) -> u32 {
        self.object(self.ix(node)).generation
    }

    /// How often a node is open.
    pub(crate) fn opens(&self, node: Node) -> u32 {
        self.object(self.ix(node)).opens
    }

    /// Notes that the kernel got a node; returns true if it did not have it.
    pub(crate) fn told(&mut self, node: Node) -> bool {
        let ix = self.ix(node);
        let object = self.object_mut(ix);
        object.told = object.told.saturating_add(1);
        object.told == 1
    }

    /// Returns true if the kernel has a node by number, of those that may be forgotten.
    pub(crate) fn is_told(&self, node: Node) -> bool {
        let object = self.object(self.ix(node));
        object.claim == Claim::Unclaimed && object.told > 0
    }

    /// Subtracts from the lookup count of a node. At 0 its number may be given to another one.
    pub(crate) fn forget_node(&mut self, node: Node, times: u64) {
        let ix = self.ix(node);
        let object = self.object_mut(ix);
        object.told = u32::try_from(times).map_or(0, |times| object.told.saturating_sub(times));
        self.let_go_unclaimed(ix);
    }

    /// Drops a node that neither kernel nor transaction needs, and with the last one in it its directory.
    pub(crate) fn let_go_unclaimed(&mut self, ix: Ix) {
        let mut at = ix;
        loop {
            let object = self.object(at);
            let used = object.told > 0 || object.opens > 0 || object.below > 0 || self.is_root(at);
            if object.claim != Claim::Unclaimed || used {
                return;
            }
            let parent = object.names.first().map(|(parent, _)| *parent);
            let mut vacant = Object::new(FileType::Symlink, usize::from(object.mount), 0, None);
            vacant.claim = Claim::Vacant;
            vacant.generation = self.object(at).generation.wrapping_add(1);
            if let Some(lower) = std::mem::replace(self.object_mut(at), vacant).lower {
                let mount = self.object(at).mount;
                self.linked.remove(&(mount, lower.handle));
                self.facts.forget(lower.fact);
            }
            self.vacant.push(at);
            self.recent.retain(|(held, _)| *held != at);
            let Some(parent) = parent else { return };
            self.object_mut(parent).below -= 1;
            at = parent;
        }
    }

    /// Returns the object at a name now, without adding it to the read set.
    pub(super) fn read_unvalidated(&mut self, dir: Ix, name: &[u8]) -> Verb<Option<Ix>> {
        if self.is_gone(dir) {
            return Ok(None);
        }
        let Some(base) = self.dir_now(dir)? else { return Ok(None) };
        match self.facts.read_unvalidated(&base, name)? {
            Some((known, fd)) => {
                let ix = self.meet(dir, &base, name, known)?;
                if self.object(ix).claim == Claim::Unclaimed {
                    if self.recent.len() == RECENT_MAX {
                        self.recent.pop_front();
                    }
                    self.recent.push_back((ix, fd));
                }
                Ok(Some(ix))
            }
            None => Ok(None),
        }
    }

    /// Returns what was found when the name of a node was looked up a moment ago.
    pub(crate) fn recently(&self, ix: Ix) -> Option<Arc<O::Fd>> {
        let recent = self.recent.iter().rev().find(|(held, _)| *held == ix);
        recent.filter(|_| self.object(ix).claim == Claim::Unclaimed).map(|(_, fd)| fd.clone())
    }

    /// The committed directory behind a node, open; `None`: it is gone.
    fn dir_now(&mut self, ix: Ix) -> Verb<Option<Arc<LowerDir<O>>>> {
        let object = self.object(ix);
        let held = object.lower.as_ref().map(|lower| lower.fact).zip(self.recently(ix));
        match object.dir.as_ref().and_then(|dir| dir.base.clone()) {
            None if held.is_some() => {
                let Some((fact, fd)) = held else { return Ok(None) };
                let base = self.facts.dir_held(fact, fd)?;
                if let Some(dir) = &mut self.object_mut(ix).dir {
                    dir.base = Some(base.clone());
                }
                self.hold(ix);
                Ok(Some(base))
            }
            Some(base) if object.claim == Claim::Unclaimed && !base.is_open() => {
                if !self.facts.reopen(&base)? {
                    return Ok(None);
                }
                self.hold(ix);
                Ok(Some(base))
            }
            _ => self.lower_dir(ix).map(Some),
        }
    }

    /// The node of what was found under a name.
    ///
    /// # Errors
    /// `ESTALE`: it is above this directory, which has been moved and was not met at its new place yet. A
    /// node below itself would have no path.
    fn meet(&mut self, dir: Ix, base: &Arc<LowerDir<O>>, name: &[u8], known: Arc<Known>) -> Verb<Ix> {
        let mount = self.object(dir).mount;
        let Some(&ix) = self.linked.get(&(mount, known.handle)) else {
            let found = self.facts.note_at(base, &Name::from(name), known);
            return Ok(self.add_unclaimed(usize::from(mount), dir, Name::from(name), &found));
        };
        let object = self.object(ix);
        let (claim, open, fact) = (object.claim, object.opens > 0, object.lower.as_ref().map(|l| l.fact));
        let (Claim::Unclaimed, Some(fact)) = (claim, fact) else { return Ok(ix) };
        if self.is_root(ix) {
            return Ok(ix);
        }
        if !object.names.first().is_some_and(|(d, n)| *d == dir && **n == *name) {
            if self.is_within(dir, ix) {
                return Err(Errno::STALE.into());
            }
            self.leave(ix);
            let name = Name::from(name);
            self.facts.note_move(fact, base, &name);
            self.object_mut(dir).below += 1;
            let object = self.object_mut(ix);
            object.names.push((dir, name));
            if let Some(dir) = &mut object.dir {
                dir.base = None;
            }
        }
        if !open {
            self.object_mut(ix).lower = Some(self.facts.note(fact, known));
        }
        Ok(ix)
    }

    /// Makes an unclaimed node.
    fn add_unclaimed(&mut self, mount: usize, dir: Ix, name: Name, found: &Found) -> Ix {
        let mut object = Object::new(found.stat.kind(), mount, found.stat.ino, Some(found.clone()));
        object.claim = Claim::Unclaimed;
        object.names.push((dir, name));
        let ix = self.push(object);
        self.object_mut(dir).below += 1;
        self.linked.insert((mount as u16, found.handle), ix);
        ix
    }

    /// Takes the name from an unclaimed node.
    fn leave(&mut self, ix: Ix) {
        if let Some((parent, _)) = self.object_mut(ix).names.pop() {
            self.object_mut(parent).below -= 1;
            self.let_go_unclaimed(parent);
        }
    }

    /// Returns the object at a name that is to be changed: it is in the read set to the end, with the
    /// directories on its way.
    pub(crate) fn find_to_change(&mut self, dir: Ix, name: &[u8]) -> Verb<Option<Ix>> {
        self.claim(dir)?;
        let object = self.object(dir);
        let committed = self.reads_committed() && !object.is_staged() && object.dir.is_some();
        let known = object.dir.as_ref().is_some_and(|d| d.names.contains_key(name));
        if !committed || known || self.is_gone(dir) {
            return self.find(dir, name);
        }
        // The lookup reports a missing name.
        let plain = !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/') && !name.contains(&0);
        if !plain || self.is_sub_area(name) || self.is_hidden(dir, name) {
            return self.find(dir, name);
        }
        self.claim_name(dir, name)
    }

    /// Makes what a node is in the committed tree a fact, and what its directories are.
    ///
    /// # Errors
    /// `ESTALE`: it is not where it was seen; the kernel looks it up once more.
    pub(crate) fn claim(&mut self, ix: Ix) -> Verb<()> {
        if self.object(ix).claim != Claim::Unclaimed {
            return Ok(());
        }
        if self.is_root(ix) {
            let mount = usize::from(self.object(ix).mount);
            let (found, base) = self.facts.root(mount)?;
            let object = self.object_mut(ix);
            (object.lower, object.claim) = (Some(found), Claim::ToTheEnd);
            if let Some(dir) = &mut object.dir {
                dir.base = Some(base);
            }
            return Ok(());
        }
        let Some((parent, name)) = self.object(ix).names.first().cloned() else {
            return Err(Errno::STALE.into());
        };
        match self.find_to_change(parent, &name)? {
            Some(found) if found == ix => Ok(()),
            _ => Err(Errno::STALE.into()),
        }
    }

    /// The node of a name that has just become a fact; an unclaimed node is claimed from here on.
    pub(super) fn adopt(&mut self, mount: usize, found: Found) -> Verb<Ix> {
        let Some(&ix) = self.linked.get(&(mount as u16, found.handle)) else {
            let ix = self.push(Object::new(found.stat.kind(), mount, found.stat.ino, Some(found.clone())));
            self.linked.insert((mount as u16, found.handle), ix);
            return Ok(ix);
        };
        if self.object(ix).claim == Claim::ToTheEnd {
            return Ok(ix);
        }
        if self.object(ix).opens > 0 && self.object(ix).kind == FileType::File {
            self.compare_open(ix, &found)?;
        }
        self.close_unclaimed(ix);
        self.leave(ix);
        let old = self.object_mut(ix).lower.replace(found);
        old.inspect(|old| self.facts.forget(old.fact));
        let path = self.object(ix).lower.as_ref().map(|lower| self.facts.path(lower.fact));
        let object = self.object_mut(ix);
        object.claim = Claim::ToTheEnd;
        if let Data::Base(file) = &mut object.data {
            *file = None;
        }
        if let Some(dir) = &mut object.dir {
            dir.base = dir.base.take().filter(|base| Some(&base.path) == path.as_ref());
        }
        Ok(ix)
    }

    /// Adds an object that is open for reading to the read set: it can be changed only if no other process
    /// has.
    fn compare_open(&mut self, ix: Ix, found: &Found) -> Verb<()> {
        let object = self.object(ix);
        let (Data::Base(Some(read)), Some(lower)) = (&object.data, &object.lower) else { return Ok(()) };
        let (read, was) = (read.clone(), lower.stat);
        let now = self.facts.open(found.fact)?;
        let same = match &read.bytes {
            Bytes::Copied(bytes) => now.size == bytes.len() as u64 && self.has_bytes(&now, bytes)?,
            _ => (was.size, was.mtime, was.ctime) == (found.stat.size, found.stat.mtime, found.stat.ctime),
        };
        if same {
            Ok(())
        } else {
            Err(self.facts.changed(self.facts.shown(found.fact), ConflictKind::ContentsChangedWhileOpen))
        }
    }

    fn has_bytes(&mut self, file: &LowerFile<O>, bytes: &[u8]) -> Verb<bool> {
        let mut buf = vec![0; bytes.len().min(CHUNK_BYTES)];
        for (n, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let got = self.facts.read(file, &mut buf[..chunk.len()], (n * CHUNK_BYTES) as u64)?;
            if buf[..got] != *chunk {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Opens an unclaimed file: it stays as it is now for all who have it open.
    pub(crate) fn open_unclaimed(&mut self, ix: Ix) -> Verb<()> {
        let object = self.object(ix);
        let Some(lower) = object.lower.as_ref().filter(|_| matches!(object.data, Data::Base(None))) else {
            return Ok(());
        };
        let (fact, size) = (lower.fact, lower.stat.size);
        let fits = self.copied_bytes + size <= COPIED_ALL_MAX;
        let room = if fits { Room::ForBytes } else { Room::None };
        let held = self.recently(ix);
        let (found, file) = self.facts.open_unclaimed(fact, held.as_deref(), room)?;
        match &file.bytes {
            Bytes::Copied(bytes) => self.copied_bytes += bytes.len() as u64,
            _ => self.facts.watch(&found, &file),
        }
        let object = self.object_mut(ix);
        (object.lower, object.data) = (Some(found), Data::Base(Some(Arc::new(file))));
        Ok(())
    }

    /// Lets go of what was open of an unclaimed node.
    pub(crate) fn close_unclaimed(&mut self, ix: Ix) {
        let object = self.object(ix);
        if object.claim != Claim::Unclaimed {
            return;
        }
        let Data::Base(Some(file)) = &object.data else { return };
        match &file.bytes {
            Bytes::Copied(bytes) => self.copied_bytes -= bytes.len() as u64,
            _ => {
                let fact = file.fact;
                self.facts.unwatch(fact);
            }
        }
        self.object_mut(ix).data = Data::Base(None);
    }

    /// Looks at an unclaimed node once more, unless it is open.
    ///
    /// # Errors
    /// `ESTALE`: it is not where it was seen.
    pub(crate) fn renew(&mut self, ix: Ix) -> Verb<()> {
        let object = self.object(ix);
        let Some(fact) = object.lower.as_ref().map(|lower| lower.fact) else { return Ok(()) };
        if object.claim != Claim::Unclaimed || object.opens > 0 {
            return Ok(());
        }
        if let Some((parent, name)) = object.names.first().cloned() {
            let base = self.dir_now(parent)?;
            let found = match base {
                Some(base) => self.facts.read_unvalidated(&base, &name)?,
                None => None,
            };
            let found = found.map(|(known, _)| known);
            let same =
                |known: &Arc<Known>| self.object(ix).lower.as_ref().is_some_and(|l| l.handle == known.handle);
            if let Some(known) = found.filter(same) {
                self.object_mut(ix).lower = Some(self.facts.note(fact, known));
                return Ok(());
            }
        }
        // A moved or removed object is still the one that was found, and a directory may be a process's
        // working directory.
        let dir = self.object(ix).dir.as_ref().and_then(|dir| dir.base.as_ref()?.kept());
        let dir = dir.or_else(|| self.recently(ix));
        let (Some(fd), Some(lower)) = (dir, &self.object(ix).lower) else { return Err(Errno::STALE.into()) };
        let (handle, stat) = (lower.handle, self.os.stat(&fd)?);
        self.object_mut(ix).lower = Some(self.facts.note(fact, Arc::new(Known { handle, stat })));
        Ok(())
    }

    /// The committed names of a directory: as they are now, or were when they were first read since it was opened.
    pub(crate) fn names_now(&mut self, ix: Ix) -> Verb<Arc<[Dirent]>> {
        let Some(dir) = &self.object(ix).dir else { return Err(Errno::NOTDIR.into()) };
        if let Some(known) = dir.listing.as_ref().or(dir.listed.as_ref()) {
            return Ok(known.clone());
        }
        let names: Arc<[Dirent]> = match self.dir_now(ix)? {
            Some(base) => self.facts.names_now(&base)?.into(),
            None => Arc::from([]),
        };
        let object = self.object_mut(ix);
        if let Some(dir) = object.dir.as_mut().filter(|_| object.opens > 0) {
            dir.listed = Some(names.clone());
        }
        Ok(names)
    }

    /// Nodes that there are.
    #[cfg(test)]
    pub(crate) fn nodes_now(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }
}
