//! The lock word: mutual exclusion between processes, taken over from holders that died.
//!
//! Owns: one word. Guarantees: one holder at a time; a holder that dies is replaced, and its successor is told; nobody
//! sleeps for longer than [`PROBE_NS`] without looking whether the holder lives. Does not: repair what the dead
//! holder left half-done (its successor must, before it trusts anything the lock protects).
//!
//! Layout: bits 0–15 owner index (0: free), bit 31 *waiters*, bits 32–63 number of acquisitions. That number makes
//! every holding a different value: who saw a dead holder and was delayed can't take the lock from a new process that
//! has got the same index since.
//!
//! | found | by | becomes |
//! |---|---|---|
//! | free | anybody | mine, +1 |
//! | held | a waiter, before it sleeps | held + waiters |
//! | held (+ waiters) | the holder | free; wakes all if *waiters* was set |
//! | held + waiters | a waiter who found the holder dead after sleeping | mine + waiters, +1, taken over |
//! | held (+ waiters) | a process that has just claimed that very index | mine (+ waiters), +1, taken over |
//!
//! Orderings: every change is an AcqRel compare-and-exchange, so whatever a holder stored before it let go is seen by
//! the next one, also when the next one took over.

use crate::corrupt::{owner_from, Corrupt};
use crate::id::{OwnerIx, OWNERS};
use std::sync::atomic::Ordering;
use systx_os::Words;

const OWNER: u64 = 0xffff;
const WAITERS: u64 = 1 << 31;
const LOW: u64 = 0xffff_ffff;
const ONE_ACQUISITION: u64 = 1 << 32;

/// How long a waiter sleeps before it looks whether the holder lives, in nanoseconds.
pub const PROBE_NS: u64 = 50_000_000;
/// Attempts before the first sleep. The critical sections are short, but on a machine of two CPUs spinning steals from
/// the holder.
const SPINS: u32 = 8;

/// The place of a lock in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobustLock {
    /// The lock word.
    pub word: usize,
}

/// Proof that the lock is held. Give it back with [`RobustLock::unlock`].
///
/// Not a guard on purpose: if the holder panics, what the lock protects may be half-changed, so the lock stays held
/// until the process is gone and its successor repairs.
#[must_use = "the lock stays held until `unlock`"]
#[derive(Debug)]
pub struct Locked {
    /// The holder died with the lock held: finish what it left (docs/protocol.md §4) before anything else.
    pub taken_over: Option<OwnerIx>,
    /// The word without the waiters bit.
    held: u64,
}

impl RobustLock {
    /// Takes the lock, waiting for it; from a dead holder, too. `alive` says whether an owner lives.
    ///
    /// # Errors
    /// [`Corrupt`]: the word is no lock.
    pub fn lock<M: Words>(
        &self,
        mem: &M,
        me: OwnerIx,
        alive: &dyn Fn(OwnerIx) -> bool,
    ) -> Result<Locked, Corrupt> {
        for _ in 0..SPINS {
            if let Some(locked) = self.try_lock(mem, me)? {
                return Ok(locked);
            }
            core::hint::spin_loop();
        }
        loop {
            let seen = mem.load(self.word, Ordering::Acquire);
            let Some(holder) = self.holder_in(seen)? else {
                match self.take(mem, seen, me, None) {
                    Some(locked) => return Ok(locked),
                    None => continue,
                }
            };
            // The bit before the sleep: a holder that lets go in between changes the low half, and the wait returns
            // at once.
            let marked = seen | WAITERS;
            if seen != marked && mem.compare_exchange(self.word, seen, marked).is_err() {
                continue;
            }
            mem.wait(self.word, marked, PROBE_NS);
            // Probing costs a system call: only if the same holding is still there.
            if mem.load(self.word, Ordering::Acquire) == marked && !alive(holder) {
                if let Some(locked) = self.take(mem, marked, me, Some(holder)) {
                    return Ok(locked);
                }
            }
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`Corrupt`]: the word is no lock.
    pub fn try_lock<M: Words>(&self, mem: &M, me: OwnerIx) -> Result<Option<Locked>, Corrupt> {
        let seen = mem.load(self.word, Ordering::Acquire);
        Ok(match self.holder_in(seen)? {
            None => self.take(mem, seen, me, None),
            Some(_) => None,
        })
    }

    /// Takes the lock if the last owner of this index died holding it.
    ///
    /// To be called right after the index was claimed, before any thread of this process locks: from the
    /// claim on, `alive` says that the holder lives, and no other process would ever take over.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the word is no lock.
    pub fn inherit<M: Words>(&self, mem: &M, me: OwnerIx) -> Result<Option<Locked>, Corrupt> {
        loop {
            let seen = mem.load(self.word, Ordering::Acquire);
            if self.holder_in(seen)? != Some(me) {
                return Ok(None);
            }
            if let Some(locked) = self.take(mem, seen, me, Some(me)) {
                return Ok(Some(locked));
            }
        }
    }

    /// Releases the lock and wakes the waiters.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the word does not say that this is the holder; it is left as it is.
    pub fn unlock<M: Words>(&self, mem: &M, locked: Locked) -> Result<(), Corrupt> {
        loop {
            let seen = mem.load(self.word, Ordering::Relaxed);
            if seen & !WAITERS != locked.held {
                return Err(Corrupt { what: "the lock of somebody else", word: self.word, value: seen });
            }
            if mem.compare_exchange(self.word, seen, seen & !LOW).is_ok() {
                if seen & WAITERS != 0 {
                    mem.wake(self.word);
                }
                return Ok(());
            }
        }
    }

    /// Returns the holder of the lock, for messages.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the word is no lock.
    pub fn holder<M: Words>(&self, mem: &M) -> Result<Option<OwnerIx>, Corrupt> {
        self.holder_in(mem.load(self.word, Ordering::Acquire))
    }

    fn take<M: Words>(&self, mem: &M, seen: u64, me: OwnerIx, taken_over: Option<OwnerIx>) -> Option<Locked> {
        assert!(me.0 > 0 && me.0 < OWNERS, "only an owner can lock");
        // A takeover keeps the waiters bit: those who sleep were not woken. An unlock wakes all, so a free word has
        // none.
        let held = (seen & !LOW).wrapping_add(ONE_ACQUISITION) | u64::from(me.0);
        let word = held | (seen & WAITERS);
        mem.compare_exchange(self.word, seen, word).ok().map(|_| Locked { taken_over, held })
    }

    fn holder_in(&self, value: u64) -> Result<Option<OwnerIx>, Corrupt> {
        match value & LOW & !WAITERS {
            0 if value & WAITERS == 0 => Ok(None),
            owner if owner & !OWNER == 0 => {
                owner_from("a lock", self.word, owner).map(Some).map_err(|c| Corrupt { value, ..c })
            }
            _ => Err(Corrupt { what: "a lock", word: self.word, value }),
        }
    }
}
