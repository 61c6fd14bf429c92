//! Which staging directories are sealed and not numbered yet, and what of them belongs to nobody any more.
//!
//! A sealed directory `tx/<id>` has no owner in its name, and before V5 neither a slot nor the log names it.
//! In between its owner says so here, so that whoever cleans up leaves it alone, and finds what a dead owner
//! left.
//!
//! Owns: one word an owner. Guarantees: a sealed directory of a living owner is named here, by a slot, or by
//! the log at any instant, so [`Domain::discard_orphans`] never takes one. Does not: say which it is of
//! several that one process seals at one time; then all from the lowest on count as its own until it has
//! none.
//!
//! What the word says: [`super::sealing`].

use super::marks;
use super::sealing::Noted;
use super::Domain;
use crate::id::{OwnerIx, TxId};
use crate::mutant::{self, Mutant};
use std::collections::HashSet;
use std::sync::Arc;
use systx_os::{FileType, Os, Result};

/// A staging directory between its seal and its number; the note ends with the value.
pub(crate) struct Sealed<O: Os>(Arc<Domain<O>>);

impl<O: Os> Sealed<O> {
    pub(super) fn note(domain: &Arc<Domain<O>>, id: TxId) -> Sealed<O> {
        if !mutant::on(Mutant::SealNotNoted) {
            domain.table.sealing().add(domain.me(), id);
        }
        Sealed(domain.clone())
    }
}

impl<O: Os> Drop for Sealed<O> {
    fn drop(&mut self) {
        if !mutant::on(Mutant::SealNotNoted) {
            self.0.table.sealing().remove_one(self.0.me());
        }
    }
}

impl<O: Os> Domain<O> {
    /// Returns the dead owners whose staging directories have not been looked at since.
    pub(crate) fn dead_sealers(&self) -> impl Iterator<Item = OwnerIx> + '_ {
        let sealers = self.table.sealing();
        let noted: Vec<_> = sealers.owners().map(|(ix, _)| ix).collect();
        noted.into_iter().filter(|ix| !self.alive(*ix))
    }

    /// Returns what `dead`, whose index this process holds, sealed and did not number.
    pub(crate) fn discard_sealed_of(&self, dead: OwnerIx) -> Result<()> {
        if self.table.sealing().get(dead) == Noted::NOTHING {
            return Ok(());
        }
        self.discard_orphans(Some(dead))?;
        self.table.sealing().clear(dead);
        Ok(())
    }

    /// Deletes the sealed staging directories without a user: no living owner is about to number them, no
    /// active entry has them, and no record that is needed names them. `dead`: an index that this process
    /// holds for its last owner.
    ///
    /// In this order: a commit is noted before it seals, its entry is filled before the note ends, and a
    /// record that may be needed stands in the log before its entry is free.
    pub(crate) fn discard_orphans(&self, dead: Option<OwnerIx>) -> Result<()> {
        let sealed = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|n| n.parse().ok()).map(TxId);
        let listed = self.os.read_dir(&self.area.tx)?;
        let marks = || listed.iter().filter_map(|entry| Some((marks::owner_of(&entry.name)?, &entry.name)));
        let dirs = listed.iter().filter(|entry| entry.kind == FileType::Directory);
        let mut orphans: Vec<TxId> = dirs.filter_map(|entry| sealed(&entry.name)).collect();
        orphans.extend(marks().map(|(id, _)| id));
        orphans.sort_unstable();
        orphans.dedup();
        if orphans.is_empty() {
            return Ok(());
        }
        for (ix, noted) in self.table.sealing().owners() {
            if dead != Some(ix) && orphans.iter().any(|id| noted.may_be(*id)) && self.alive(ix) {
                orphans.retain(|id| !noted.may_be(*id));
            }
        }
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            orphans.retain(|id| *id != slot.info.tx);
        }
        if orphans.is_empty() || self.log.is_poisoned() {
            return Ok(());
        }
        // A log that can't be read to its end, now or at all, may name any of them.
        let Ok(outline) = crate::log::outline(&self.os, &self.area.dir, self.area.id) else {
            return Ok(());
        };
        if outline.replay.damaged.is_some() {
            return Ok(());
        }
        let needed = outline.replay.records.iter().filter(|entry| entry.needed);
        let needed: HashSet<TxId> = needed.filter_map(|entry| entry.cell.id()).collect();
        for id in orphans.into_iter().filter(|id| !needed.contains(id)) {
            self.discard_staging(id);
            for (_, name) in marks().filter(|(of, _)| *of == id) {
                let _ = self.os.unlink(&self.area.tx, name);
            }
        }
        Ok(())
    }
}
