//! renameat2(2), in all its forms.

use crate::outcome::Verb;
use crate::transaction::{Node, Transaction};
use crate::workset::names::Change;
use crate::workset::staging::NO_SLOT;
use crate::workset::Ix;
use systx_os::{Errno, FileType, Os, Rename};

/// A name of a directory.
type Place<'a> = (Ix, &'a [u8]);

impl<O: Os> Transaction<O> {
    /// renameat2(2). The order of its checks is the kernel's (do_renameat2, vfs_rename), so that the first of several
    /// errors is the same.
    pub fn rename(
        &mut self,
        dir: Node,
        name: &[u8],
        new_dir: Node,
        new_name: &[u8],
        how: Rename,
    ) -> Verb<()> {
        let (from, to) = ((self.ix(dir), name), (self.ix(new_dir), new_name));
        if self.is_sub_area(name) || self.is_sub_area(new_name) {
            return Err(Errno::ACCESS.into());
        }
        if self.object(from.0).mount != self.object(to.0).mount {
            return Err(Errno::XDEV.into());
        }
        let source = self.find_some(from.0, name)?;
        let target = self.find_to_change(to.0, new_name)?;
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (Rename::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        if self.object(source).kind == FileType::Directory && self.is_within(to.0, source) {
            return Err(Errno::INVAL.into());
        }
        if target.is_some_and(|target| self.is_within(from.0, target)) {
            return Err(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        if target == Some(source) {
            return Ok(());
        }
        self.may_remove_from(from.0, source)?;
        match target {
            None => self.may_create_in(to.0, new_name)?,
            Some(target) => self.may_remove_from(to.0, target)?,
        }
        self.may_lose_names(from.0)?;
        self.may_arrive(from.0, to.0)?;
        if how == Rename::Exchange {
            self.may_arrive(to.0, from.0)?;
        }
        match (how, target) {
            (Rename::Exchange, Some(target)) => self.exchange(from, source, to, target),
            (_, Some(target)) => {
                self.may_replace(source, target)?;
                self.drop_name(to.0, new_name, target)?;
                self.shift(from, to, source)
            }
            (_, None) => self.shift(from, to, source),
        }
    }

    fn may_replace(&mut self, source: Ix, target: Ix) -> Verb<()> {
        let is_dir = |t: &Self, ix| t.object(ix).kind == FileType::Directory;
        match (is_dir(self, source), is_dir(self, target)) {
            (true, false) => Err(Errno::NOTDIR.into()),
            (false, true) => Err(Errno::ISDIR.into()),
            (true, true) if !self.is_empty_dir(target)? => Err(Errno::NOTEMPTY.into()),
            _ => Ok(()),
        }
    }

    /// Moves a name to one that is missing.
    fn shift(&mut self, from: Place<'_>, to: Place<'_>, ix: Ix) -> Verb<()> {
        let mut slot = NO_SLOT;
        let staged = self.object(ix).is_staged();
        if staged {
            if self.object(from.0).is_staged() && self.object(to.0).is_staged() {
                let (old, new) = (self.staged_dir(from.0)?, self.staged_dir(to.0)?);
                self.os.rename((&old, from.1), (&new, to.1), Rename::NoReplace)?;
            } else {
                let lifted = self.lift(from.0, from.1)?;
                slot = self.lower_into(lifted, to.0, to.1)?;
            }
        }
        self.unname(from.0, from.1);
        self.name(to.0, to.1, ix, slot);
        self.renamed(from.0, to.0, staged)
    }

    fn exchange(&mut self, from: Place<'_>, source: Ix, to: Place<'_>, target: Ix) -> Verb<()> {
        let mut slots = [NO_SLOT; 2];
        let staged = [self.object(source).is_staged(), self.object(target).is_staged()];
        for (n, place) in [from, to].into_iter().enumerate() {
            if staged[n] {
                slots[n] = self.lift(place.0, place.1)?;
            }
        }
        self.unname(from.0, from.1);
        self.unname(to.0, to.1);
        if staged[0] {
            slots[0] = self.lower_into(slots[0], to.0, to.1)?;
        }
        if staged[1] {
            slots[1] = self.lower_into(slots[1], from.0, from.1)?;
        }
        self.name(to.0, to.1, source, slots[0]);
        self.name(from.0, from.1, target, slots[1]);
        self.renamed(from.0, to.0, staged[0] && staged[1])
    }

    fn renamed(&mut self, from: Ix, to: Ix, real: bool) -> Verb<()> {
        let change = if real { Change::Real } else { Change::Remembered };
        self.touch(from, change)?;
        match from == to {
            true => Ok(()),
            false => self.touch(to, change),
        }
    }
}
