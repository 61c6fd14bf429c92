//! Names: lookup, link, unlink, rmdir.

use crate::mutant::{self, Mutant};
use crate::objects::links_max;
use crate::outcome::Verb;
use crate::transaction::{Attr, Node, Transaction};
use crate::workset::names::Change;
use crate::workset::node::{node_of, Ix, NO_SLOT};
use crate::workset::savepoint::{Act, Removed};
use crate::workset::Workset;
use systx_os::{Errno, FileType, Os};

impl<O: Os> Transaction<O> {
    /// Looks a name up; `None`: it does not exist, which is a fact.
    pub fn lookup(&mut self, dir: Node, name: &[u8]) -> Verb<Option<(Node, Attr)>> {
        self.ours()?;
        match self.workset.find(self.workset.ix(dir), name)? {
            Some(ix) => Ok(Some((node_of(ix), self.workset.attr(ix)?))),
            None => Ok(None),
        }
    }

    /// A node that was given out, if there is anything left of it. The number of an unclaimed one may be
    /// another one's by now.
    pub fn known(&mut self, node: Node) -> Verb<Option<(Node, Attr)>> {
        self.ours()?;
        let ix = self.workset.ix(node);
        if !self.workset.stays(node) || self.workset.is_gone(ix) {
            Ok(None)
        } else {
            Ok(Some((node, self.workset.attr(ix)?)))
        }
    }

    /// The directory that holds a directory; of a root, itself.
    pub fn parent(&mut self, dir: Node) -> Node {
        let ix = self.workset.ix(dir);
        node_of(self.workset.object(ix).names.first().map_or(ix, |(parent, _)| *parent))
    }

    /// Checks that the directories on the way to a node are still where they were seen, and as they were: whether a
    /// process of another user may go there hangs on them, and what it finds there may have been written since.
    ///
    /// # Errors
    /// `Doomed` if one is not.
    pub fn way_still_holds(&mut self, uid: u32, node: Node) -> Verb<()> {
        self.ours()?;
        if uid == self.workset.os().uid() || mutant::on(Mutant::WayForgotten) {
            return Ok(());
        }
        let mut ix = self.workset.ix(node);
        loop {
            let object = self.workset.object(ix);
            let above = object.names.first().map(|(parent, _)| *parent);
            let fact = object.lower.as_ref().map(|lower| lower.fact);
            if let (FileType::Directory, Some(fact)) = (object.kind, fact) {
                self.workset.facts_mut().check(fact)?;
            }
            match above {
                Some(parent) => ix = parent,
                None => return Ok(()),
            }
        }
    }

    /// Target of a symbolic link.
    pub fn readlink(&mut self, node: Node) -> Verb<Vec<u8>> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.link_target(ix)
    }

    /// Gives an object one more name.
    pub fn link(&mut self, node: Node, dir: Node, name: &[u8]) -> Verb<Attr> {
        self.ours()?;
        let (ix, dir) = (self.workset.ix(node), self.workset.ix(dir));
        if self.workset.find_to_change(dir, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if self.workset.is_sub_area(name) {
            return Err(Errno::ACCESS.into());
        }
        if self.workset.object(ix).mount != self.workset.object(dir).mount {
            return Err(Errno::XDEV.into());
        }
        self.workset.may_create_in(dir, name)?;
        self.workset.may_change(ix)?;
        if self.workset.object(ix).kind == FileType::Directory {
            return Err(Errno::PERM.into());
        }
        if let Some((home, _)) = self.workset.object(ix).names.first() {
            self.workset.may_arrive(*home, dir)?;
        }
        self.workset.may_be_shared(dir, ix)?;
        self.workset.before_change(dir)?;
        if self.workset.object(ix).is_staged() {
            let fd = self.workset.any_fd(ix)?;
            let (spot, slot) = self.workset.new_spot(dir, name)?;
            self.workset.os().link(&fd, &spot.dir, &spot.name)?;
            self.workset.name(dir, name, ix, slot);
            self.workset.note_act(|| Act::Added(dir, name.into()));
            self.workset.touch(dir, Change::Real)?;
        } else {
            if self.workset.is_gone(ix) {
                return Err(Errno::NOENT.into());
            }
            // Only publication links it for real.
            let kind = self.workset.mounts()[usize::from(self.workset.object(ix).mount)].info.kind;
            if self.workset.attr(ix)?.nlink >= links_max(kind) {
                return Err(Errno::MLINK.into());
            }
            self.workset.name(dir, name, ix, NO_SLOT);
            self.workset.note_act(|| Act::Added(dir, name.into()));
            self.workset.touch(dir, Change::Remembered)?;
        }
        self.workset.attr(ix)
    }

    /// Removes a name that is no directory.
    pub fn unlink(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        self.ours()?;
        let dir = self.workset.ix(dir);
        let ix = self.workset.find_some(dir, name)?;
        self.workset.may_remove_from(dir, ix)?;
        self.workset.may_lose_names(dir)?;
        if self.workset.object(ix).kind == FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        drop_name(&mut self.workset, dir, name, ix)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        self.ours()?;
        let dir = self.workset.ix(dir);
        let ix = self.workset.find_some(dir, name)?;
        self.workset.may_remove_from(dir, ix)?;
        self.workset.may_lose_names(dir)?;
        if self.workset.object(ix).kind != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if !self.workset.is_empty_dir(ix)? {
            return Err(Errno::NOTEMPTY.into());
        }
        drop_name(&mut self.workset, dir, name, ix)
    }
}

/// Takes a name away, with the object if it is staged and this was its last name.
pub(super) fn drop_name<O: Os>(workset: &mut Workset<O>, dir: Ix, name: &[u8], ix: Ix) -> Verb<()> {
    if workset.object(ix).kind == FileType::Directory {
        workset.drop_sub_areas(ix)?;
    }
    workset.before_change(dir)?;
    let change = take_name(workset, dir, name, ix)?;
    workset.reap(ix);
    if workset.is_sub_area(name) {
        Ok(())
    } else {
        workset.touch(dir, change)
    }
}

/// Takes a name away without a trace in its directory's times. A staged object whose name may have to come back is kept.
pub(super) fn take_name<O: Os>(workset: &mut Workset<O>, dir: Ix, name: &[u8], ix: Ix) -> Verb<Change> {
    let slot = workset.entry(dir, name).map_or(NO_SLOT, |entry| entry.slot);
    let (mut change, mut kept) = (Change::Remembered, None);
    if workset.object(ix).is_staged() {
        // An open file keeps its bytes by its descriptor. Whether a directory is open is unknown: it may be.
        match workset.object(ix).kind {
            FileType::File if workset.object(ix).opens > 0 => {
                drop(workset.staged_fd(ix, crate::transaction::Access::Read)?)
            }
            FileType::Directory => drop(workset.staged_dir(ix)?),
            _ => {}
        }
        if workset.may_be_undone() {
            kept = Some(workset.keep(dir, name, ix)?);
        } else {
            workset.discard(dir, name, ix)?;
        }
        change = Change::Real;
    }
    workset.unname(dir, name);
    workset.note_act(|| Act::Removed(Removed { dir, name: name.into(), ix, slot, kept }));
    Ok(change)
}
