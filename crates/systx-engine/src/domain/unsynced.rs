//! `unsynced`: what `none` commits changed, and which objects durable ones made from their records, that no
//! syncfs has covered yet.
//!
//! Owns: two signatures and an epoch. Guarantees: an object that was added stays hit until a syncfs that
//! *began after* the addition has returned, however many sync at once and whoever of them dies; never cleared
//! too early, possibly too late. Does not: sync.
//!
//! Additions go to the half *fresh*. A sync that begins while the other half, *syncing*, is empty moves
//! everything there and starts an epoch; one that begins while it is not (another sync runs, or has died)
//! joins the epoch that is on: what stands in *syncing* was put there before either began. Whoever ends first
//! in its own epoch clears *syncing*. So a transaction that is hit is free after two syncs of its own at
//! most.
//!
//! | step of `begin_sync` | dies after it |
//! |---|---|
//! | epoch + 1 (only if *syncing* is empty) | nothing moved; tokens of the old epoch clear nothing any more |
//! | a word's bits or-ed into *syncing* | they stand in both halves: cleared later, not earlier |
//! | and taken from *fresh* | the rest stays fresh; the next sync joins the epoch and clears what was moved |
//!
//! The epoch moves *first*: otherwise a sync that began before could clear bits moved after. `begin_sync` and
//! `end_sync` run under the commit lock, `add` needs no lock.

use super::layout::{load_signature, UNSYNCED_BASE};
use crate::id::{ObjectId, Objects, Signature};
use crate::lock::Locked;
use std::sync::atomic::Ordering;
use systx_os::Words;

/// `unsynced` of a table.
#[derive(Debug)]
pub struct Unsynced<'m, M: Words> {
    mem: &'m M,
    epoch: usize,
    fresh: usize,
    syncing: usize,
}

/// A sync that has begun: see [`Unsynced::begin_sync`]. Dropping it is what dying is: nothing is cleared.
#[must_use = "nothing is cleared without `end_sync`"]
#[derive(Debug)]
pub struct Token {
    pub(super) epoch: u64,
}

impl<'m, M: Words> Unsynced<'m, M> {
    /// At its place in the table.
    pub fn new(mem: &'m M) -> Unsynced<'m, M> {
        Self::at(mem, UNSYNCED_BASE)
    }

    /// At word `base`.
    pub fn at(mem: &'m M, base: usize) -> Unsynced<'m, M> {
        Unsynced { mem, epoch: base, fresh: base + 8, syncing: base + 8 + Signature::WORDS }
    }

    /// Adds what a `none` commit changed, W∪C: after its last step and before its slot is free. Needs no lock.
    pub fn add(&self, changed: &Signature) {
        for (i, bits) in changed.0.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            // AcqRel: pairs with the Acquire of `hits`; the slot that is freed afterwards publishes it to V4, too.
            self.mem.fetch_or(self.fresh + i, *bits);
        }
    }

    /// Everything that may be unsynced.
    pub fn signature(&self) -> Signature {
        // Fresh first: bits on the move are or-ed into the other half before they leave this one.
        let mut all = load_signature(self.mem, self.fresh);
        all.merge(&load_signature(self.mem, self.syncing));
        all
    }

    /// Returns true if one of the objects (R, W or C) may be unsynced. Tested against the union: the bits of
    /// one object may stand in different halves.
    pub fn hits(&self, objects: &Objects) -> bool {
        Self::are_in(objects, &self.signature())
    }

    /// Tests against a [`Unsynced::signature`] that was loaded before.
    pub fn are_in(objects: &Objects, all: &Signature) -> bool {
        let hit = |o: &ObjectId| all.may_contain(*o);
        !all.is_empty()
            && (objects.read.iter().any(hit)
                || objects.written.iter().any(hit)
                || objects.commuting.iter().any(hit))
    }

    /// To be called under the commit lock, before syncfs begins.
    pub fn begin_sync(&self, _lock: &Locked) -> Token {
        let mut epoch = self.mem.load(self.epoch, Ordering::Acquire);
        if load_signature(self.mem, self.syncing).is_empty() {
            epoch = epoch.wrapping_add(1);
            self.mem.store(self.epoch, epoch, Ordering::Release);
            (0..Signature::WORDS).for_each(|i| self.move_word(i));
        }
        Token { epoch }
    }

    /// To be called under the commit lock, after that syncfs has returned without an error. (After an error: drop
    /// the token.)
    pub fn end_sync(&self, _lock: &Locked, token: Token) {
        if self.mem.load(self.epoch, Ordering::Acquire) == token.epoch {
            (0..Signature::WORDS).for_each(|i| self.mem.store(self.syncing + i, 0, Ordering::Release));
        }
    }

    fn move_word(&self, i: usize) {
        let mut bits = self.mem.load(self.fresh + i, Ordering::Acquire);
        while bits != 0 {
            self.mem.fetch_or(self.syncing + i, bits);
            match self.mem.compare_exchange(self.fresh + i, bits, 0) {
                Ok(_) => break,
                Err(now) => bits = now,
            }
        }
    }
}
