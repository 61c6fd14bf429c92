//! The words that say which staging directories owners have sealed: one word an owner.
//!
//! | bits | mean |
//! |---|---|
//! | 63 | there were several at one time |
//! | 48–62 | how many there are |
//! | 0–47 | the id; of several the lowest |
//!
//! Written by the owner's process; by its helper once it is dead. Release on every change: who sees that a
//! word names an id no more sees the slot that does (pairs with the Acquire load of [`Sealing::get`]). Does
//! not: say whose a directory is ([`super::sealed`]).

use super::layout::SEALED_BASE;
use crate::id::{OwnerIx, TxId, OWNERS};
use std::sync::atomic::Ordering;
use systx_os::Words;

const SEVERAL: u64 = 1 << 63;

const ONE: u64 = 1 << 48;

const ID_MASK: u64 = ONE - 1;

/// The meaning of one owner's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted(u64);

impl Noted {
    /// Nothing.
    pub const NOTHING: Noted = Noted(0);

    /// Returns true if the directory of `id` may be among them.
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

    /// Returns what `ix` has sealed and not numbered.
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
