//! renameat2(2), in all its forms.

use crate::outcome::Verb;
use crate::transaction::{Node, Transaction};
use crate::verbs::names::drop_name;
use crate::workset::names::Change;
use crate::workset::node::{Ix, NO_SLOT};
use crate::workset::savepoint::Act;
use crate::workset::Workset;
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
        self.ours()?;
        let (from, to) = ((self.workset.ix(dir), name), (self.workset.ix(new_dir), new_name));
        if self.workset.is_sub_area(name) || self.workset.is_sub_area(new_name) {
            return Err(Errno::ACCESS.into());
        }
        if self.workset.object(from.0).mount != self.workset.object(to.0).mount {
            return Err(Errno::XDEV.into());
        }
        let source = self.workset.find_some(from.0, name)?;
        let target = self.workset.find_to_change(to.0, new_name)?;
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (Rename::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        if self.workset.object(source).kind == FileType::Directory && self.workset.is_within(to.0, source) {
            return Err(Errno::INVAL.into());
        }
        if target.is_some_and(|target| self.workset.is_within(from.0, target)) {
            return Err(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        if target == Some(source) {
            return Ok(());
        }
        self.workset.may_remove_from(from.0, source)?;
        match target {
            None => self.workset.may_create_in(to.0, new_name)?,
            Some(target) => self.workset.may_remove_from(to.0, target)?,
        }
        self.workset.may_lose_names(from.0)?;
        self.workset.may_arrive(from.0, to.0)?;
        self.workset.may_be_shared(to.0, source)?;
        if let (Rename::Exchange, Some(target)) = (how, target) {
            self.workset.may_arrive(to.0, from.0)?;
            self.workset.may_be_shared(from.0, target)?;
        }
        self.workset.before_change(from.0)?;
        self.workset.before_change(to.0)?;
        match (how, target) {
            (Rename::Exchange, Some(target)) => exchange(&mut self.workset, from, source, to, target),
            (_, Some(target)) => {
                may_replace(&mut self.workset, source, target)?;
                drop_name(&mut self.workset, to.0, new_name, target)?;
                shift(&mut self.workset, from, to, source)
            }
            (_, None) => shift(&mut self.workset, from, to, source),
        }
    }
}

fn may_replace<O: Os>(workset: &mut Workset<O>, source: Ix, target: Ix) -> Verb<()> {
    let is_dir = |ix| workset.object(ix).kind == FileType::Directory;
    match (is_dir(source), is_dir(target)) {
        (true, false) => Err(Errno::NOTDIR.into()),
        (false, true) => Err(Errno::ISDIR.into()),
        (true, true) if !workset.is_empty_dir(target)? => Err(Errno::NOTEMPTY.into()),
        _ => Ok(()),
    }
}

/// Moves a name to one that is missing.
pub(super) fn shift<O: Os>(workset: &mut Workset<O>, from: Place<'_>, to: Place<'_>, ix: Ix) -> Verb<()> {
    let mut slot = NO_SLOT;
    let staged = workset.object(ix).is_staged();
    if staged {
        if workset.object(from.0).is_staged() && workset.object(to.0).is_staged() {
            let (old, new) = (workset.staged_dir(from.0)?, workset.staged_dir(to.0)?);
            workset.os().rename((&old, from.1), (&new, to.1), Rename::NoReplace)?;
        } else {
            let lifted = workset.lift(from.0, from.1)?;
            slot = workset.lower_into(lifted, to.0, to.1)?;
        }
    }
    workset.unname(from.0, from.1);
    workset.name(to.0, to.1, ix, slot);
    workset.note_act(|| Act::Moved([(from.0, from.1.into()), (to.0, to.1.into())]));
    renamed(workset, from.0, to.0, if staged { Change::Real } else { Change::Remembered })
}

pub(super) fn exchange<O: Os>(
    workset: &mut Workset<O>,
    from: Place<'_>,
    source: Ix,
    to: Place<'_>,
    target: Ix,
) -> Verb<()> {
    let mut slots = [NO_SLOT; 2];
    let staged = [workset.object(source).is_staged(), workset.object(target).is_staged()];
    for (n, place) in [from, to].into_iter().enumerate() {
        if staged[n] {
            slots[n] = workset.lift(place.0, place.1)?;
        }
    }
    workset.unname(from.0, from.1);
    workset.unname(to.0, to.1);
    if staged[0] {
        slots[0] = workset.lower_into(slots[0], to.0, to.1)?;
    }
    if staged[1] {
        slots[1] = workset.lower_into(slots[1], from.0, from.1)?;
    }
    workset.name(to.0, to.1, source, slots[0]);
    workset.name(from.0, from.1, target, slots[1]);
    workset.note_act(|| Act::Exchanged([(from.0, from.1.into()), (to.0, to.1.into())]));
    let change = if staged == [true; 2] { Change::Real } else { Change::Remembered };
    renamed(workset, from.0, to.0, change)
}

fn renamed<O: Os>(workset: &mut Workset<O>, from: Ix, to: Ix, change: Change) -> Verb<()> {
    workset.touch(from, change)?;
    if from == to {
        Ok(())
    } else {
        workset.touch(to, change)
    }
}
