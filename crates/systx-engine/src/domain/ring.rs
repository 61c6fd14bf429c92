//! The ring: what the last commits changed.
//!
//! Owns: one entry for each of the last `len` LSNs. Guarantees: a scan hands out exactly the signatures of the LSNs
//! asked for, or says that it could not. Does not: say anything about LSNs at or above `next`.
//!
//! The entry of LSN n stands at place n mod len. State of its LSN word:
//!
//! | LSN word | means |
//! |---|---|
//! | 0 | nothing, or being written |
//! | n | fields are those of commit n |
//!
//! Written under the commit lock, before `next` moves over it: invalid, fields, LSN. A reader checks the LSN before
//! and after the fields. Fields are stored with Release and loaded with Acquire, so a reader that gets a field of a
//! later commit also finds the LSN word changed when it looks again.

use super::layout::{load_signature, store_signature, RING, RING_BASE, RING_ENTRY_LEN};
use crate::id::{Lsn, Signature, TxId};
use crate::lock::Locked;
use std::sync::atomic::Ordering;
use systx_os::Words;

/// The transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The transaction.
    pub tx: TxId,
    /// Process, for messages.
    pub pid: u32,
    /// It has a record.
    pub recorded: bool,
}

/// Set beside the process of a commit that has a record.
const RECORDED: u64 = 1 << 32;

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an overrun means that commits were missed"]
pub enum Scan {
    /// Every commit asked for was handed out.
    Done,
    /// Some were already overwritten: anything may have changed.
    Overrun,
}

/// The ring of a table.
#[derive(Debug)]
pub struct Ring<'m, M: Words> {
    mem: &'m M,
    base: usize,
    len: usize,
}

impl<'m, M: Words> Ring<'m, M> {
    /// At its place in the table.
    pub fn new(mem: &'m M) -> Ring<'m, M> {
        Self::at(mem, RING_BASE, RING)
    }

    /// `len` entries from word `base`.
    pub fn at(mem: &'m M, base: usize, len: usize) -> Ring<'m, M> {
        assert!(len > 0, "a ring has entries");
        Ring { mem, base, len }
    }

    fn entry(&self, lsn: Lsn) -> usize {
        self.base + (lsn.0 % self.len as u64) as usize * RING_ENTRY_LEN
    }

    /// Records commit `lsn` (= `next`), before `next` moves. If this process dies in between, the next holder
    /// of the lock puts another commit with the same LSN there; no reader has seen this one, because readers
    /// stop below `next`.
    pub fn put(&self, _lock: &Locked, lsn: Lsn, who: Who, changed: &Signature) {
        let at = self.entry(lsn);
        self.mem.store(at, 0, Ordering::Release);
        self.mem.store(at + 1, who.tx.0, Ordering::Release);
        let recorded = if who.recorded { RECORDED } else { 0 };
        self.mem.store(at + 2, u64::from(who.pid) | recorded, Ordering::Release);
        store_signature(self.mem, at + 8, changed);
        self.mem.store(at, lsn.0, Ordering::Release);
    }

    /// Hands out the commits of [from, to), oldest first. `to` comes from `next`.
    pub fn scan(&self, from: Lsn, to: Lsn, mut f: impl FnMut(Lsn, Who, &Signature)) -> Scan {
        match to.0.checked_sub(from.0) {
            Some(n) if n <= self.len as u64 => {}
            // A snapshot above `next` is no interval: the table is not the one that it was taken from.
            _ => return Scan::Overrun,
        }
        for lsn in (from.0..to.0).map(Lsn) {
            match self.get(lsn) {
                Some((who, changed)) => f(lsn, who, &changed),
                None => return Scan::Overrun,
            }
        }
        Scan::Done
    }

    /// Commit `lsn`, if the ring still has it.
    pub fn get(&self, lsn: Lsn) -> Option<(Who, Signature)> {
        let at = self.entry(lsn);
        if lsn.0 == 0 || self.mem.load(at, Ordering::Acquire) != lsn.0 {
            return None;
        }
        let tx = TxId(self.mem.load(at + 1, Ordering::Acquire));
        let word = self.mem.load(at + 2, Ordering::Acquire);
        let (pid, recorded) = (word as u32, word & RECORDED != 0);
        let changed = load_signature(self.mem, at + 8);
        (self.mem.load(at, Ordering::Acquire) == lsn.0).then_some((Who { tx, pid, recorded }, changed))
    }
}
