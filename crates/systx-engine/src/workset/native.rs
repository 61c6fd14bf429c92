//! Native directories: staged ones in which processes make names by themselves, as the kernel serves them without a
//! request. They have been bound over the view's.
//!
//! Owns: what verbs know of the names in them, and when they look again. Guarantees: a verb finds in such a directory
//! what is on the disk when it looks, and an object that it has met is the same node under whatever name it has now;
//! once the directory is left (nothing binds it any more) it is one as others, read at the first need. Does not: bind
//! anything, nor know whether what it was bound over still stands.
//!
//! An object of the committed tree comes into no directory that is shared: it would be remembered there, and only those
//! who ask verbs would see it.

use super::node::{Native, Object};
use super::Workset;
use crate::facts::Name;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::workset::node::{Ix, Reach, NO_SLOT};
use crate::workset::staging::Spot;
use std::sync::Arc;
use systx_os::{Errno, FileType, Handle, Open, Os, Stat};

impl<O: Os> Workset<O> {
    /// How much of a directory's names is known.
    pub(crate) fn native(&self, dir: Ix) -> Native {
        self.object(dir).dir.as_ref().map_or(Native::No, |d| d.native)
    }

    pub(crate) fn is_shared(&self, dir: Ix) -> bool {
        self.native(dir) == Native::Shared
    }

    /// Returns true for a directory that is shared, and for what has a name in one.
    pub(crate) fn is_within_shared(&self, ix: Ix) -> bool {
        self.shares
            && (self.is_shared(ix) || self.object(ix).names.iter().any(|(dir, _)| self.is_shared(*dir)))
    }

    fn set_native(&mut self, dir: Ix, native: Native) {
        if let Some(directory) = &mut self.object_mut(dir).dir {
            directory.native = native;
            // Processes may give it another one.
            directory.default_acl = None;
        }
    }

    /// Shares a new directory with processes, and returns it. `None`: it is none, or is no longer empty, or what is done
    /// in it may have to be undone.
    pub(crate) fn share(&mut self, ix: Ix) -> Verb<Option<Arc<O::Fd>>> {
        let object = self.object(ix);
        let is_new = object.dir.as_ref().is_some_and(|d| d.names.is_empty() && d.native == Native::No);
        if !object.is_staged() || !is_new || self.is_gone(ix) || self.may_be_undone() {
            return Ok(None);
        }
        let fd = self.staged_dir(ix)?;
        self.shares = true;
        self.set_native(ix, Native::Shared);
        Ok(Some(fd))
    }

    /// No process makes names by itself any more, in a directory that was shared and in what is below it.
    pub(crate) fn leave_native(&mut self, top: Ix) {
        let below = self.all().filter(|ix| self.is_shared(*ix) && self.is_within(*ix, top));
        below.collect::<Vec<_>>().into_iter().for_each(|ix| self.set_native(ix, Native::Left));
    }

    /// Before a name of a directory is used: brings what is known of it up to what is there.
    pub(super) fn look_again(&mut self, dir: Ix, name: &[u8]) -> Verb<()> {
        match self.native(dir) {
            Native::No => Ok(()),
            Native::Shared if mutant::on(Mutant::SharedNotLookedAt) => Ok(()),
            Native::Shared => self.look_at_shared(dir, name),
            Native::Left => self.read_names(dir),
        }
    }

    /// Brings all names of a directory up to what is there. Of one that was left they are all known from here on.
    pub(crate) fn read_names(&mut self, dir: Ix) -> Verb<()> {
        let native = self.native(dir);
        if native == Native::No || self.is_gone(dir) {
            return Ok(());
        }
        // One that is read holds what verbs remember, and so hangs below directories that are read.
        let parent = self.object(dir).names.first().map(|(parent, _)| *parent);
        if let Some(parent) = parent.filter(|parent| self.native(*parent) == Native::Left) {
            self.read_names(parent)?;
        }
        let fd = self.staged_dir(dir)?;
        let listed = self.os.read_dir(&fd)?;
        let known = self.known_names(dir);
        for name in known.iter().map(|name| &name[..]).chain(listed.iter().map(|entry| &entry.name[..])) {
            self.look_at_shared(dir, name)?;
        }
        if native == Native::Left {
            self.set_native(dir, Native::No);
        }
        Ok(())
    }

    fn known_names(&self, dir: Ix) -> Vec<Name> {
        self.object(dir).dir.iter().flat_map(|d| d.names.keys().cloned()).collect()
    }

    /// Reads all that processes have made by themselves, for whoever wants to know of every object.
    pub(crate) fn read_native_trees(&mut self) -> Verb<()> {
        if !self.shares {
            return Ok(());
        }
        let mut next = 1;
        // Nodes that are met on the way come behind.
        while let Some(ix) = Ix::new(next).filter(|ix| ix.get() as usize <= self.nodes.len()) {
            self.read_names(ix)?;
            next += 1;
        }
        Ok(())
    }

    /// Forgets the names in directories that have not been read to their end, when no process is left that could use
    /// them. They are on the disk, and go wherever their directory goes.
    pub(crate) fn forget_unread_names(&mut self) {
        if !self.shares {
            return;
        }
        let unread: Vec<_> = self.all().filter(|ix| self.native(*ix) != Native::No).collect();
        for dir in unread {
            self.set_native(dir, Native::Left);
            self.known_names(dir).iter().for_each(|name| self.unname(dir, name));
        }
    }

    /// Where an object is that has names in shared directories: by one that it still has.
    pub(super) fn spot_beside_processes(&mut self, ix: Ix) -> Verb<Spot<O>> {
        for (dir, name) in self.object(ix).names.clone() {
            if self.native(dir) != Native::No {
                self.look_at_shared(dir, &name)?;
            }
            if self.entry(dir, &name).is_some_and(|entry| entry.now == Some(ix)) {
                return self.spot_at(dir, &name);
            }
        }
        Err(Errno::STALE.into())
    }

    /// Looks at a name of a directory that processes share.
    fn look_at_shared(&mut self, dir: Ix, name: &[u8]) -> Verb<()> {
        if self.is_gone(dir) || matches!(name, b"." | b"..") || self.is_sub_area(name) {
            return Ok(());
        }
        let base = self.staged_dir(dir)?;
        let known = self.entry(dir, name).and_then(|entry| entry.now);
        let found = match self.os.open_if_there(&base, name, Open::Path)? {
            Some(fd) => {
                let (stat, handle) = (self.os.stat(&fd)?, self.os.handle(&fd)?);
                Some(self.native_node(dir, known, &stat, handle)?)
            }
            None => None,
        };
        if known == found {
            return Ok(());
        }
        if known.is_some() {
            self.unname(dir, name);
        }
        let Some(ix) = found else { return Ok(()) };
        if self.object(ix).kind == FileType::Directory {
            if self.is_within(dir, ix) {
                // It was above before: those in between have moved, too, and are met again where they are.
                self.forget_way(dir, ix);
            }
            // It was moved here.
            for (parent, old) in self.object(ix).names.clone() {
                self.unname(parent, &old);
            }
        }
        self.add_name(dir, name, ix, NO_SLOT);
        // By this one it can be reached. Its others may be gone by now.
        let names = &mut self.object_mut(ix).names;
        let last = names.len() - 1;
        names.swap(0, last);
        Ok(())
    }

    /// Forgets the names by which a directory stands below another one.
    fn forget_way(&mut self, dir: Ix, above: Ix) {
        let mut at = dir;
        while at != above {
            let Some((parent, _)) = self.object(at).names.first().cloned() else { return };
            for (parent, name) in self.object(at).names.clone() {
                self.unname(parent, &name);
            }
            at = parent;
        }
    }

    /// The node of an object in a shared directory: the one that stood for it before, if it was met already.
    fn native_node(&mut self, dir: Ix, known: Option<Ix>, stat: &Stat, handle: Handle) -> Verb<Ix> {
        let mount = self.object(dir).mount;
        let ix = match self.linked.get(&(mount, handle)) {
            Some(ix) => *ix,
            None => {
                let same = known.filter(|ix| self.is_open_as(*ix, &handle));
                let ix = same.map_or_else(|| self.staged_node(usize::from(mount), stat), Ok)?;
                self.linked.insert((mount, handle), ix);
                ix
            }
        };
        self.object_mut(ix).incapable = false;
        let native = self.native(dir);
        // In one that was read to its end, and to which this one leads, verbs alone make names.
        if native == Native::Shared || self.object(ix).names.is_empty() {
            self.share_below(ix, native);
        }
        Ok(ix)
    }

    /// Returns true if a node has its object open, and that is the one with a handle.
    fn is_open_as(&self, ix: Ix, handle: &Handle) -> bool {
        let object = self.object(ix);
        match (&object.file, object.dir.as_ref().map(|dir| &dir.staged)) {
            (Some(fd), _) | (_, Some(Reach::Open(fd))) => self.os.handle(fd).as_ref() == Ok(handle),
            (_, Some(Reach::Handle(held))) => **held == *handle,
            _ => false,
        }
    }

    /// A directory that has got a name in a shared one is shared as well, with all that is known below it.
    pub(super) fn share_below(&mut self, ix: Ix, native: Native) {
        let mut below = vec![ix];
        while let Some(ix) = below.pop() {
            let Some(directory) = &self.object(ix).dir else { continue };
            if native != Native::No && directory.native != native {
                below.extend(directory.names.values().filter_map(|entry| entry.now));
                self.set_native(ix, native);
            }
        }
    }

    /// Notes which object has got a name in a shared directory by a verb: it may be met under another one.
    pub(super) fn note_native(&mut self, dir: Ix, name: &[u8], ix: Ix) {
        let native = self.native(dir);
        if native == Native::No {
            return;
        }
        self.share_below(ix, native);
        self.object_mut(ix).incapable = false;
        let handle = self.staged_dir(dir).map(|base| self.os.handle_at(&base, name));
        if let Ok(Ok(handle)) = handle {
            self.linked.insert((self.object(dir).mount, handle), ix);
        }
    }

    /// Checks that an object may get a name in a directory.
    ///
    /// # Errors
    /// `EXDEV`, as between two mounts: the directory is shared, and the object, or one in it, is of the committed tree.
    pub(crate) fn may_be_shared(&self, dir: Ix, ix: Ix) -> Verb<()> {
        if self.native(dir) != Native::Shared || mutant::on(Mutant::CommittedShared) {
            return Ok(());
        }
        let mut below = vec![ix];
        while let Some(ix) = below.pop() {
            let object = self.object(ix);
            if !object.is_staged() {
                return Err(Errno::XDEV.into());
            }
            below.extend(object.dir.iter().flat_map(|dir| dir.names.values()).filter_map(|entry| entry.now));
        }
        Ok(())
    }
}

impl<O: Os> Object<O> {
    /// Returns true for a directory of which not all names are known.
    pub(crate) fn is_native(&self) -> bool {
        self.dir.as_ref().is_some_and(|dir| dir.native != Native::No)
    }
}
