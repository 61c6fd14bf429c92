//! In-flight slots: the transactions between validation and done, for everybody to see.
//!
//! Owns: the slots and their bitmap. Guarantees: a slot is never read torn; a state is changed only by who
//! knows the present one; whoever waits on a slot wakes when it is free. Does not: decide who may change a
//! state (docs/protocol.md §3, §4).
//!
//! State word = generation << 8 | state. Fields are written only while the state is FREE, and only under the
//! commit lock.
//!
//! | from | to | by |
//! |---|---|---|
//! | FREE | VALIDATED | its owner in V5, under the commit lock (`fill`) |
//! | FREE | PREPARED, PUBLISHING | recovery, under the commit lock (`fill`) |
//! | VALIDATED | PUBLISHING, ABORTING, PREPARED | its owner (F); its helper, under the commit lock (ABORTING) |
//! | PREPARED | PUBLISHING, ABORTING | whoever brings the decision |
//! | VALIDATED, PUBLISHING, ABORTING | FREE, generation + 1 | its owner (V6, D), its helper (`free`) |
//!
//! Orderings: fields (Release), then the state (AcqRel): who sees VALIDATED (Acquire) sees the fields, and
//! the bitmap bit. FREE is released after the last step and after `unsynced`: who sees FREE (Acquire) and
//! then looks at a file sees all of the commit. A reader that gets a field of the next user of a slot
//! (Acquire) also sees the generation moved.
//!
//! Bitmap: a bit is set before its slot leaves FREE and cleared, under the commit lock, after it is FREE
//! again, by the next `find_free`. `free` leaves it alone: its clearing could overtake the next user's
//! setting.

use super::layout::{
    load_footprint, store_footprint, BITMAP_WORD, FOOTPRINT_WORDS, SLOTS, SLOTS_BASE, SLOT_LEN,
};
use crate::corrupt::{owner_from, Corrupt};
use crate::id::{Footprint, Lsn, ObjectId, OwnerIx, Signature, TxId};
use crate::lock::Locked;
use std::sync::atomic::Ordering;
use systx_os::Words;

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotIx(usize);

impl core::fmt::Display for SlotIx {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// State of a slot that is in flight, or FREE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotState {
    /// No transaction's.
    Free = 0,
    /// Has its place in the order; nothing public has changed.
    Validated = 1,
    /// Past the commit point; steps are being made.
    Publishing = 2,
    /// Will not happen; ABORT is being written.
    Aborting = 3,
    /// Waits for the decision of its coordinator; outlives its process.
    Prepared = 4,
}

impl SlotState {
    fn from_word(word: u64) -> Option<SlotState> {
        Some(match word & 0xff {
            0 => SlotState::Free,
            1 => SlotState::Validated,
            2 => SlotState::Publishing,
            3 => SlotState::Aborting,
            4 => SlotState::Prepared,
            _ => return None,
        })
    }
}

/// A state word as a process saw it: a state of one use of an entry. Never equal for two uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// The state.
    pub fn state(self) -> SlotState {
        SlotState::from_word(self.0).unwrap_or(SlotState::Free)
    }
    fn generation(self) -> u64 {
        self.0 >> 8
    }
}

/// Where the body of a transaction is: two words whose meaning is the log's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub [u64; 2]);

/// The fields of an entry about its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotInfo {
    /// Place in the order.
    pub lsn: Lsn,
    /// Number of the transaction.
    pub tx: TxId,
    /// Owner of the transaction.
    pub owner: OwnerIx,
    /// Process, for messages.
    pub pid: u32,
    /// Has, or will have, a header in the log (not `none`).
    pub durable: bool,
    /// Spans several domains.
    pub multi_domain: bool,
    /// A recovery could not publish it to its end: what an earlier boot left of its contents may be lost.
    pub redo: bool,
    /// Where its body is.
    pub body: Place,
    /// R, W, C.
    pub footprint: Footprint,
}

/// A slot in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Which.
    pub ix: SlotIx,
    /// The state seen, for [`Slots::set_state`], [`Slots::free`] and [`Slots::wait_change`].
    pub seen: Seen,
    /// Fields of the entry.
    pub info: SlotInfo,
    /// Its owner could not go on with it and waits for better times: see [`Slots::leave`].
    pub left: bool,
}

/// Entries as they were at one moment: the use of each that was active, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Active([Option<Seen>; SLOTS]);

/// The entry has another state than the caller knows: another process has gone on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved;

const DURABLE: u64 = 1;
const MULTI_DOMAIN: u64 = 2;
const REDO: u64 = 4;
const FLAGS: u64 = DURABLE | MULTI_DOMAIN | REDO;
/// Word of a slot that holds its flags, the last of the fields about its transaction.
const FLAGS_AT: usize = 7;
/// Word of a slot that holds generation + 1 of the use that its owner has left.
const LEFT: usize = 8 + FOOTPRINT_WORDS;
/// How often a slot is read anew because it was reused meanwhile. Each time a whole commit has passed.
const READS_MAX: u32 = 1000;

/// The slots of a table.
#[derive(Debug)]
pub struct Slots<'m, M: Words> {
    mem: &'m M,
    bitmap: usize,
    base: usize,
    count: usize,
}

impl<'m, M: Words> Slots<'m, M> {
    /// At their place in the table.
    pub fn new(mem: &'m M) -> Slots<'m, M> {
        Self::at(mem, BITMAP_WORD, SLOTS_BASE, SLOTS)
    }

    /// `count` slots from word `base`.
    pub fn at(mem: &'m M, bitmap: usize, base: usize, count: usize) -> Slots<'m, M> {
        assert!(count <= 64, "the bitmap is one word");
        Slots { mem, bitmap, base, count }
    }

    fn word(&self, ix: SlotIx) -> usize {
        self.base + ix.0 * SLOT_LEN
    }

    /// A free slot; `None` when all are in flight: unlock, wait for one of them, again.
    ///
    /// # Errors
    /// [`Corrupt`]: a state that does not exist.
    pub fn find_free(&self, _lock: &Locked) -> Result<Option<SlotIx>, Corrupt> {
        // Only lock holders change the bitmap, and only they take a slot out of FREE: what is FREE here stays so.
        let mut used = 0;
        let mut found = None;
        for ix in (0..self.count).map(SlotIx) {
            match self.state(ix)?.state() {
                SlotState::Free if found.is_none() => found = Some(ix),
                SlotState::Free => {}
                _ => used |= 1 << ix.0,
            }
        }
        self.mem.store(self.bitmap, used, Ordering::Release);
        Ok(found)
    }

    /// Takes a free slot into flight, VALIDATED (in a recovery: PREPARED or PUBLISHING): from now on
    /// everybody respects it.
    pub fn fill(&self, _lock: &Locked, ix: SlotIx, info: &SlotInfo, state: SlotState) -> Result<Seen, Moved> {
        let starts = [SlotState::Validated, SlotState::Prepared, SlotState::Publishing];
        assert!(starts.contains(&state), "a slot starts in one of these");
        let at = self.word(ix);
        let free = Seen(self.mem.load(at, Ordering::Acquire));
        if free.0 & 0xff != SlotState::Free as u64 {
            return Err(Moved);
        }
        let flags = [(info.durable, DURABLE), (info.multi_domain, MULTI_DOMAIN), (info.redo, REDO)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let fields = [
            info.lsn.0,
            info.tx.0,
            u64::from(info.owner.0),
            info.body.0[0],
            info.body.0[1],
            u64::from(info.pid),
            flags,
        ];
        for (i, field) in fields.into_iter().enumerate() {
            self.mem.store(at + 1 + i, field, Ordering::Release);
        }
        store_footprint(self.mem, at + 8, &info.footprint);
        self.mem.fetch_or(self.bitmap, 1 << ix.0);
        self.change(ix, free, free.0 & !0xff | state as u64)
    }

    /// Moves an entry to another state. A PREPARED entry wakes its waiters: they need not wait for it.
    ///
    /// # Errors
    ///
    /// [`Moved`]: it is not in the state `from` any more.
    pub fn set_state(&self, ix: SlotIx, from: Seen, to: SlotState) -> Result<Seen, Moved> {
        assert!(from.state() != SlotState::Free && to != SlotState::Free, "`fill` and `free` do that");
        let now = self.change(ix, from, from.0 & !0xff | to as u64)?;
        if to == SlotState::Prepared {
            self.mem.wake(self.word(ix));
        }
        Ok(now)
    }

    /// Notes that the owner of an entry can't go on with it now (disk full, a sync that failed), so that no
    /// transaction waits for it.
    pub fn leave(&self, ix: SlotIx, seen: Seen) {
        // Of this use only: the next one has another generation. Release: pairs with the load in `read`.
        self.mem.store(self.word(ix) + LEFT, seen.generation() + 1, Ordering::Release);
        self.mem.wake(self.word(ix));
    }

    /// Frees an entry and wakes its waiters. The last act of a transaction: every other may look at its
    /// objects now.
    ///
    /// # Errors
    ///
    /// [`Moved`]: it is not in the state `from` any more.
    pub fn free(&self, ix: SlotIx, from: Seen) -> Result<(), Moved> {
        assert!(from.state() != SlotState::Free, "a free slot has nobody to free it");
        self.change(ix, from, from.generation().wrapping_add(1) << 8)?;
        self.mem.wake(self.word(ix));
        Ok(())
    }

    fn change(&self, ix: SlotIx, from: Seen, to: u64) -> Result<Seen, Moved> {
        self.mem.compare_exchange(self.word(ix), from.0, to).map(|_| Seen(to)).map_err(|_| Moved)
    }

    /// The present state.
    ///
    /// # Errors
    /// [`Corrupt`]: a state that does not exist.
    pub fn state(&self, ix: SlotIx) -> Result<Seen, Corrupt> {
        let word = self.word(ix);
        let value = self.mem.load(word, Ordering::Acquire);
        match SlotState::from_word(value) {
            Some(_) => Ok(Seen(value)),
            None => Err(Corrupt { what: "the state of a slot", word, value }),
        }
    }

    /// Returns the fields of an entry, all of one use of it; `None` when it is free.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: fields that cannot be.
    pub fn read(&self, ix: SlotIx) -> Result<Option<InFlight>, Corrupt> {
        let at = self.word(ix);
        for _ in 0..READS_MAX {
            let before = self.state(ix)?;
            if before.state() == SlotState::Free {
                return Ok(None);
            }
            let [lsn, tx, owner, body0, body1, pid, flags] =
                core::array::from_fn(|i| self.mem.load(at + 1 + i, Ordering::Acquire));
            let footprint = load_footprint(self.mem, at + 8);
            let left = self.mem.load(at + LEFT, Ordering::Acquire) == before.generation() + 1;
            let seen = self.state(ix)?;
            // Within one use the fields stand still, whatever its state does.
            if seen.generation() != before.generation() || seen.state() == SlotState::Free {
                continue;
            }
            if flags & !FLAGS != 0 {
                return Err(Corrupt { what: "the flags of a slot", word: at + 7, value: flags });
            }
            let info = SlotInfo {
                lsn: Lsn(lsn),
                tx: TxId(tx),
                owner: owner_from("the owner of a slot", at + 3, owner)?,
                pid: pid as u32,
                durable: flags & DURABLE != 0,
                multi_domain: flags & MULTI_DOMAIN != 0,
                redo: flags & REDO != 0,
                body: Place([body0, body1]),
                footprint,
            };
            return Ok(Some(InFlight { ix, seen, info, left }));
        }
        Err(Corrupt { what: "a slot that changes without end", word: at, value: 0 })
    }

    /// Entries that may be in flight.
    fn marked(&self) -> impl Iterator<Item = SlotIx> {
        // Pairs with the fetch_or in `fill`. Bits past the last entry are unused.
        let bits = self.mem.load(self.bitmap, Ordering::Acquire);
        (0..self.count).filter(move |i| bits >> i & 1 == 1).map(SlotIx)
    }

    /// Every slot in flight. One load when nothing is.
    ///
    /// A slot that was in flight when this began and still is when it ends is among them.
    pub fn in_flight(&self) -> impl Iterator<Item = Result<InFlight, Corrupt>> + use<'_, 'm, M> {
        self.marked().filter_map(|ix| self.read(ix).transpose())
    }

    /// Those of them that may change one of these objects. Of the others no more is read than tells so.
    pub fn changing<'s>(
        &'s self,
        objects: &'s [ObjectId],
    ) -> impl Iterator<Item = Result<InFlight, Corrupt>> + use<'s, 'm, M> {
        self.marked().filter_map(|ix| match self.may_change(ix, objects) {
            Ok(None | Some((_, false))) => None,
            Ok(Some((_, true))) => self.read(ix).transpose(),
            Err(corrupt) => Some(Err(corrupt)),
        })
    }

    /// Which use of an entry this is, and whether it may change one of the objects; `None` when it is free.
    fn may_change(&self, ix: SlotIx, objects: &[ObjectId]) -> Result<Option<(Seen, bool)>, Corrupt> {
        let written = self.word(ix) + 8 + Signature::WORDS;
        let changed = |word| {
            let [written, commuting] = [written, written + Signature::WORDS]
                .map(|filter| self.mem.load(filter + word, Ordering::Acquire));
            written | commuting
        };
        for _ in 0..READS_MAX {
            let before = self.state(ix)?;
            if before.state() == SlotState::Free {
                return Ok(None);
            }
            let may = objects.iter().any(|object| Signature::may_contain_in(*object, changed));
            let seen = self.state(ix)?;
            if seen.generation() == before.generation() && seen.state() != SlotState::Free {
                return Ok(Some((seen, may)));
            }
        }
        Err(Corrupt { what: "a slot that changes without end", word: self.word(ix), value: 0 })
    }

    /// The entries that are in flight now.
    ///
    /// # Errors
    /// [`Corrupt`]: a state that does not exist.
    pub fn active(&self) -> Result<Active, Corrupt> {
        let mut active = Active([None; SLOTS]);
        for ix in self.marked() {
            active.0[ix.0] = Some(self.state(ix)?).filter(|seen| seen.state() != SlotState::Free);
        }
        Ok(active)
    }

    /// Returns true if none of these has changed, or will change, one of the objects. One that is free by now, or
    /// another transaction's, is not known any more.
    ///
    /// # Errors
    /// [`Corrupt`]: fields that cannot be.
    pub fn are_apart(&self, active: &Active, objects: &[ObjectId]) -> Result<bool, Corrupt> {
        for (ix, then) in active.0.iter().enumerate() {
            let Some(then) = then else { continue };
            let apart = match self.may_change(SlotIx(ix), objects)? {
                Some((now, may)) => now.generation() == then.generation() && !may,
                None => false,
            };
            if !apart {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if nothing is in flight.
    ///
    /// # Errors
    /// [`Corrupt`]: a state that does not exist.
    pub fn are_free(&self) -> Result<bool, Corrupt> {
        for ix in self.marked() {
            if self.state(ix)?.state() != SlotState::Free {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the filter of changes hold everything, for all observers.
    #[cfg(test)]
    pub(crate) fn blur(&self, ix: SlotIx) {
        let at = self.word(ix) + 8 + Signature::WORDS;
        (0..Signature::WORDS).for_each(|n| self.mem.store(at + n, u64::MAX, Ordering::Release));
    }

    /// Waits until the slot's state is not `seen` any more, at most `timeout_ns`; may return early, and sleeps
    /// through a change to PUBLISHING or ABORTING. Probe the owner after each wait.
    pub fn wait_change(&self, ix: SlotIx, seen: Seen, timeout_ns: u64) {
        let at = self.word(ix);
        if self.mem.load(at, Ordering::Acquire) != seen.0 {
            return;
        }
        // Else its owner waits for the disk.
        let is_short = seen.state() == SlotState::Publishing
            || self.mem.load(at + FLAGS_AT, Ordering::Acquire) & DURABLE == 0;
        if !is_short || !self.mem.changes_soon(at, seen.0) {
            self.mem.wait(at, seen.0, timeout_ns);
        }
    }
}
