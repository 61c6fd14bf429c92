//! Names: lookup, link, unlink, rmdir.

use crate::commit::links_max;
use crate::outcome::Verb;
use crate::transaction::{Attr, Node, Transaction};
use crate::workset::names::Change;
use crate::workset::passing::Claim;
use crate::workset::{node_of, Ix};
use systx_os::{Errno, FileType, Os};

impl<O: Os> Transaction<O> {
    /// Looks a name up; `None`: it does not exist, which is a fact.
    pub fn lookup(&mut self, dir: Node, name: &[u8]) -> Verb<Option<(Node, Attr)>> {
        match self.find(self.ix(dir), name)? {
            Some(ix) => Ok(Some((node_of(ix), self.attr(ix)?))),
            None => Ok(None),
        }
    }

    /// A node that was given out, if there is anything left of it. The number of one that passes may be another one's by now.
    pub fn known(&mut self, node: Node) -> Verb<Option<(Node, Attr)>> {
        let ix = self.ix(node);
        match self.object(ix).claim != Claim::ToTheEnd || self.is_gone(ix) {
            true => Ok(None),
            false => Ok(Some((node, self.attr(ix)?))),
        }
    }

    /// The directory that holds a directory; of a root, itself.
    pub fn parent(&mut self, dir: Node) -> Node {
        let ix = self.ix(dir);
        node_of(self.object(ix).names.first().map_or(ix, |(parent, _)| *parent))
    }

    /// Target of a symbolic link.
    pub fn readlink(&mut self, node: Node) -> Verb<Vec<u8>> {
        let ix = self.ix(node);
        let object = self.object(ix);
        match &object.lower {
            _ if object.kind != FileType::Symlink => Err(Errno::INVAL.into()),
            Some(lower) => {
                let fact = lower.fact;
                if let Some(held) = self.recently(ix) {
                    return Ok(self.os.read_link(&held)?);
                }
                self.facts.read_link(fact)
            }
            None => {
                let fd = self.any_fd(ix)?;
                Ok(self.os.read_link(&fd)?)
            }
        }
    }

    /// Gives an object one more name.
    pub fn link(&mut self, node: Node, dir: Node, name: &[u8]) -> Verb<Attr> {
        let (ix, dir) = (self.ix(node), self.ix(dir));
        if self.find_to_change(dir, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if self.is_sub_area(name) {
            return Err(Errno::ACCESS.into());
        }
        if self.object(ix).mount != self.object(dir).mount {
            return Err(Errno::XDEV.into());
        }
        self.may_create_in(dir, name)?;
        self.may_change(ix)?;
        if self.object(ix).kind == FileType::Directory {
            return Err(Errno::PERM.into());
        }
        if let Some((home, _)) = self.object(ix).names.first() {
            self.may_arrive(*home, dir)?;
        }
        if self.object(ix).is_staged() {
            let fd = self.any_fd(ix)?;
            let (spot, slot) = self.new_spot(dir, name)?;
            self.os.link(&fd, &spot.dir, &spot.name)?;
            self.name(dir, name, ix, slot);
            self.touch(dir, Change::Real)?;
        } else {
            if self.is_gone(ix) {
                return Err(Errno::NOENT.into());
            }
            // Only publication links it for real.
            let kind = self.mounts[usize::from(self.object(ix).mount)].info.kind;
            if self.attr(ix)?.nlink >= links_max(kind) {
                return Err(Errno::MLINK.into());
            }
            self.name(dir, name, ix, crate::workset::staging::NO_SLOT);
            self.touch(dir, Change::Remembered)?;
        }
        self.attr(ix)
    }

    /// Removes a name that is no directory.
    pub fn unlink(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        let dir = self.ix(dir);
        let ix = self.find_some(dir, name)?;
        self.may_remove_from(dir, ix)?;
        self.may_lose_names(dir)?;
        if self.object(ix).kind == FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.drop_name(dir, name, ix)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        let dir = self.ix(dir);
        let ix = self.find_some(dir, name)?;
        self.may_remove_from(dir, ix)?;
        self.may_lose_names(dir)?;
        if self.object(ix).kind != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if !self.is_empty_dir(ix)? {
            return Err(Errno::NOTEMPTY.into());
        }
        self.drop_name(dir, name, ix)
    }

    /// Takes a name away, with the object if it is staged and this was its last name.
    pub(super) fn drop_name(&mut self, dir: Ix, name: &[u8], ix: Ix) -> Verb<()> {
        if self.object(ix).kind == FileType::Directory {
            self.drop_sub_areas(ix)?;
        }
        let mut change = Change::Remembered;
        if self.object(ix).is_staged() {
            // What is open keeps its bytes by its descriptor. Nobody tells whether a directory is: it may be.
            match self.object(ix).kind {
                FileType::File if self.object(ix).opens > 0 => {
                    drop(self.staged_fd(ix, crate::transaction::Access::Read)?)
                }
                FileType::Directory => drop(self.staged_dir(ix)?),
                _ => {}
            }
            self.discard(dir, name, ix)?;
            change = Change::Real;
        }
        self.unname(dir, name);
        self.reap(ix);
        match self.is_sub_area(name) {
            true => Ok(()),
            false => self.touch(dir, change),
        }
    }
}
