//! Savepoints: a part of a transaction is undone alone.

use super::names::take_name;
use super::rename::{exchange, shift};
use crate::outcome::{Verb, VerbError};
use crate::transaction::Transaction;
use crate::workset::savepoint::Act;
use crate::workset::Workset;
use systx_os::{Errno, Os};

impl<O: Os> Transaction<O> {
    /// Makes a savepoint and returns its number: from here on everything can be undone that is done, or kept.
    ///
    /// # Errors
    /// `EOPNOTSUPP` with read committed, and where a directory was [shared](Transaction::share).
    pub fn savepoint(&mut self) -> Verb<u64> {
        self.ours()?;
        self.workset.see_ends()?;
        let refusal = self.refusal().cloned();
        self.workset.savepoint(refusal)
    }

    /// Undoes everything that was done since a savepoint, in savepoints inside of it, too, and ends it. What was read
    /// stays read. Handles to what was made since lead to objects without a name.
    ///
    /// # Errors
    /// `EINVAL`: there is no such savepoint any more. Others: a part could not be undone, and the transaction can't
    /// commit.
    pub fn undo_to(&mut self, savepoint: u64) -> Verb<()> {
        self.ours()?;
        if !self.workset.has_savepoint(savepoint) {
            return Err(Errno::INVAL.into());
        }
        while let Some(mut open) = self.workset.innermost(savepoint) {
            self.set_refusal(open.refusal.take());
            let acts = std::mem::take(&mut open.acts);
            let undone = self.workset.while_undoing(|workset| {
                acts.into_iter().rev().try_for_each(|act| undo(workset, act))?;
                workset.restore(open)
            });
            self.or_spoiled(undone)?;
        }
        Ok(())
    }

    /// Keeps what was done since a savepoint, and in those inside of it, and ends it.
    ///
    /// # Errors
    /// `EINVAL`: there is no such savepoint any more. Others: what it has kept could not be deleted, and the
    /// transaction can't commit.
    pub fn release(&mut self, savepoint: u64) -> Verb<()> {
        self.ours()?;
        if !self.workset.has_savepoint(savepoint) {
            return Err(Errno::INVAL.into());
        }
        self.release_from(savepoint)
    }

    /// Keeps what was done since all savepoints, and ends them.
    pub(crate) fn release_all(&mut self) -> Verb<()> {
        self.release_from(0)
    }

    fn release_from(&mut self, savepoint: u64) -> Verb<()> {
        while let Some(open) = self.workset.innermost(savepoint) {
            let merged = self.workset.merge(open);
            self.or_spoiled(merged)?;
        }
        Ok(())
    }

    fn or_spoiled(&mut self, done: Verb<()>) -> Verb<()> {
        if let Err(VerbError::Os(errno)) = &done {
            let errno = *errno;
            self.workset.spoil(format!("a part of it could be neither undone nor kept: {errno}"));
        }
        done
    }
}

fn undo<O: Os>(workset: &mut Workset<O>, act: Act) -> Verb<()> {
    let at = |workset: &Workset<O>, (dir, name): &(_, crate::facts::Name)| {
        let now = workset.entry(*dir, name).and_then(|entry| entry.now);
        now.ok_or(VerbError::Os(Errno::STALE))
    };
    match act {
        Act::Added(dir, name) => {
            let ix = at(workset, &(dir, name.clone()))?;
            take_name(workset, dir, &name, ix).map(drop)
        }
        Act::Removed(removed) => workset.bring_back(&removed),
        Act::Moved([from, to]) => {
            let ix = at(workset, &to)?;
            shift(workset, (to.0, &to.1), (from.0, &from.1), ix)
        }
        Act::Exchanged([one, other]) => {
            let (first, second) = (at(workset, &one)?, at(workset, &other)?);
            exchange(workset, (one.0, &one.1), first, (other.0, &other.1), second)
        }
    }
}
