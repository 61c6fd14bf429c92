//! Which staging directories are sealed and not numbered yet, and what of them belongs to nobody any more.
//!
//! A sealed directory `tx/<id>` has no owner in its name, and before V5 neither a slot nor the log names it. In between its
//! owner says so here, so that whoever cleans up leaves it alone, and finds what a dead owner left.
//!
//! Owns: one word an owner. Guarantees: a sealed directory of a living owner is named here, by a slot, or by the log at any
//! instant, so [`Domain::discard_orphans`] never takes one. Does not: say which it is of several that one process seals at one
//! time; then all from the lowest on count as its own until it has none.
//!
//! | bits | mean |
//! |---|---|
//! | 63 | there were several at one time |
//! | 48–62 | how many there are |
//! | 0–47 | the id; of several the lowest |
//!
//! Written by the owner's process; by its helper once it is dead. Release on every change: who sees that a word names an id no
//! more sees the slot that does (pairs with the Acquire load of [`Sealing::get`]).

use super::layout::{OWNERS, SEALED_BASE};
use super::Domain;
use crate::id::{OwnerIx, TxId};
use crate::mutant::{self, Mutant};
use crate::publish::mark;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_os::{FileType, Os, Result, Words};

const SEVERAL: u64 = 1 << 63;
const ONE: u64 = 1 << 48;
const ID_MASK: u64 = ONE - 1;

/// What one owner's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted(u64);

impl Noted {
    /// Nothing.
    pub const NOTHING: Noted = Noted(0);

    /// Whether it may be the directory of `id`.
    pub fn may_be(self, id: TxId) -> bool {
        let lowest = self.0 & ID_MASK;
        self != Noted::NOTHING && if self.0 & SEVERAL == 0 { id.0 == lowest } else { id.0 >= lowest }
    }

    fn with(self, id: TxId) -> Noted {
        if self == Noted::NOTHING {
            return Noted(ONE | id.0 & ID_MASK);
        }
        let lowest = (self.0 & ID_MASK).min(id.0 & ID_MASK);
        Noted((self.0 & !ID_MASK | lowest | SEVERAL).wrapping_add(ONE))
    }

    fn without_one(self) -> Noted {
        let left = self.0.wrapping_sub(ONE);
        if left & !SEVERAL < ONE {
            return Noted::NOTHING;
        }
        Noted(left)
    }
}

/// The words of all owners.
#[derive(Debug)]
pub struct Sealing<'m, M: Words> {
    mem: &'m M,
    base: usize,
}

impl<'m, M: Words> Sealing<'m, M> {
    /// At their place in the table.
    pub fn new(mem: &'m M) -> Sealing<'m, M> {
        Sealing { mem, base: SEALED_BASE }
    }

    /// What `ix` has sealed and not numbered.
    pub fn get(&self, ix: OwnerIx) -> Noted {
        Noted(self.mem.load(self.base + ix.0 as usize, Ordering::Acquire))
    }

    /// The owners whose word says something.
    pub fn owners(&self) -> impl Iterator<Item = (OwnerIx, Noted)> + '_ {
        let all = (1..OWNERS).map(OwnerIx).map(|ix| (ix, self.get(ix)));
        all.filter(|(_, noted)| *noted != Noted::NOTHING)
    }

    /// Before the rename that seals.
    pub fn add(&self, ix: OwnerIx, id: TxId) {
        self.change(ix, |noted| noted.with(id));
    }

    /// When it has its number, or comes to nothing.
    pub fn remove_one(&self, ix: OwnerIx) {
        self.change(ix, Noted::without_one);
    }

    /// By the helper of a dead owner, when nothing of it is left.
    pub fn clear(&self, ix: OwnerIx) {
        self.mem.store(self.base + ix.0 as usize, 0, Ordering::Release);
    }

    fn change(&self, ix: OwnerIx, change: impl Fn(Noted) -> Noted) {
        let mut now = self.get(ix).0;
        while let Err(other) = self.mem.compare_exchange(self.base + ix.0 as usize, now, change(Noted(now)).0)
        {
            now = other;
        }
    }
}

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
    /// The dead whose staging directories nobody has looked at since.
    pub(super) fn dead_sealers(&self) -> impl Iterator<Item = OwnerIx> + '_ {
        let sealers = self.table.sealing();
        let noted: Vec<_> = sealers.owners().map(|(ix, _)| ix).collect();
        noted.into_iter().filter(|ix| !self.alive(*ix))
    }

    /// What `dead`, whose index this process holds, sealed and did not number.
    pub(crate) fn discard_sealed_of(&self, dead: OwnerIx) -> Result<()> {
        if self.table.sealing().get(dead) == Noted::NOTHING {
            return Ok(());
        }
        self.discard_orphans(Some(dead))?;
        self.table.sealing().clear(dead);
        Ok(())
    }

    /// Deletes the sealed staging directories that belong to nobody: no living owner is about to number them, no slot is theirs,
    /// and no record that is needed names them. `dead`: an index that this process holds for its last owner.
    ///
    /// In this order: a commit is noted before it seals, its slot is filled before the note ends, and a record that may be
    /// needed stands in the log before its slot is free.
    pub(crate) fn discard_orphans(&self, dead: Option<OwnerIx>) -> Result<()> {
        let sealed = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|n| n.parse().ok()).map(TxId);
        let listed = self.os.read_dir(&self.area.tx)?;
        let marks = || listed.iter().filter_map(|entry| Some((mark::owner_of(&entry.name)?, &entry.name)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_one_exactly_and_several_from_the_lowest_on() {
        let one = Noted::NOTHING.with(TxId(7));
        let names = |noted: Noted| [6, 7, 8, 900].map(|id| noted.may_be(TxId(id)));
        assert_eq!(names(Noted::NOTHING), [false; 4]);
        assert_eq!(names(one), [false, true, false, false]);
        let two = one.with(TxId(900));
        assert_eq!(names(two), [false, true, true, true]);
        assert_eq!(names(two.without_one()), [false, true, true, true], "which one is left is not known");
        assert_eq!(two.without_one().without_one(), Noted::NOTHING);
        assert!(one.with(TxId(6)).may_be(TxId(6)));
        assert_eq!(one.without_one(), Noted::NOTHING);
    }
}
