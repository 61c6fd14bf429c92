//! The open transactions of each owner, for `systx list` and for messages about conflicts.
//!
//! Owns: one record an owner, for its only open transaction, as of a command; and further ones, which owners with several
//! take as they need them. Guarantees: nothing that anybody may decide from; a record that was being written reads as
//! none; one whose transaction has ended can be read until it is used again. One writer of a record at a time: the
//! owner's process keeps its threads apart for the first, and an exchange of the first word for the further ones.
//!
//! Words of a record: sequence (odd: being written) · transaction · pid | state << 32 · seconds · nanoseconds | bytes of
//! command << 32 · command, 11 words. State 1: it is open. A further one has, instead of the sequence, uses << 16 |
//! owner << 2 | open << 1 | being written: so a successor finds those that a dead owner has left.

use super::layout::{FURTHER, FURTHER_BASE, FURTHER_COUNT_BASE, FURTHER_HIGH_WORD, RECORDS_BASE, RECORD_LEN};
use crate::id::{OwnerIx, TxId, OWNERS};
use std::sync::atomic::Ordering;
use systx_os::{Timestamp, Words};

/// Longest command text kept, in bytes.
pub const COMMAND_BYTES_MAX: usize = (RECORD_LEN - 5) * 8;

/// State of a record whose transaction is open.
const OPEN: u32 = 1;
const WRITING_BIT: u64 = 1;
const OPEN_BIT: u64 = 2;
const OWNER_SHIFT: u32 = 2;
const USES_SHIFT: u32 = 16;

const _: () = assert!((OWNERS as u64) << OWNER_SHIFT <= 1 << USES_SHIFT);

/// A transaction of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub tx: TxId,
    /// Process, as it sees itself.
    pub pid: u32,
    /// True until it has ended, or its process is dead.
    pub open: bool,
    /// When the transaction began.
    pub since: Timestamp,
    /// The command, cut off at [`COMMAND_BYTES_MAX`].
    pub command: Vec<u8>,
}

/// The records of this process's transactions.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Whose the one is that each owner has, if it is in use.
    pub first: Option<TxId>,
    /// Where the search for a further one begins: one that has ended can be read until its turn comes.
    pub next: usize,
}

type Fields = [u64; RECORD_LEN - 1];

impl Record {
    fn encode(&self) -> Fields {
        let command = &self.command[..self.command.len().min(COMMAND_BYTES_MAX)];
        let mut words = [0; RECORD_LEN - 1];
        words[0] = self.tx.0;
        words[1] = u64::from(self.pid) | u64::from(if self.open { OPEN } else { 0 }) << 32;
        words[2] = self.since.sec as u64;
        words[3] = u64::from(self.since.nsec) | (command.len() as u64) << 32;
        for (word, bytes) in words[4..].iter_mut().zip(command.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        words
    }

    fn decode(words: &Fields) -> Option<Record> {
        if *words == [0; RECORD_LEN - 1] {
            return None;
        }
        let len = ((words[3] >> 32) as usize).min(COMMAND_BYTES_MAX);
        let mut command: Vec<u8> = words[4..].iter().flat_map(|w| w.to_le_bytes()).collect();
        command.truncate(len);
        Some(Record {
            tx: TxId(words[0]),
            pid: words[1] as u32,
            open: (words[1] >> 32) as u32 == OPEN,
            since: Timestamp { sec: words[2] as i64, nsec: words[3] as u32 },
            command,
        })
    }
}

/// The records of a table.
#[derive(Debug)]
pub struct Records<'m, M: Words> {
    mem: &'m M,
}

impl<'m, M: Words> Records<'m, M> {
    /// At their places in the table.
    pub fn new(mem: &'m M) -> Records<'m, M> {
        Records { mem }
    }

    fn word(&self, ix: OwnerIx) -> Option<usize> {
        (ix.0 > 0 && ix.0 < OWNERS).then(|| RECORDS_BASE + ix.0 as usize * RECORD_LEN)
    }

    /// Replaces the record of `ix`.
    pub fn put(&self, ix: OwnerIx, record: &Record) {
        if let Some(at) = self.word(ix) {
            self.write(at, &record.encode());
        }
    }

    /// Says that a transaction has ended, if the record of `ix` is still its own.
    pub fn end(&self, ix: OwnerIx, tx: TxId) {
        let Some(at) = self.word(ix) else { return };
        if self.mem.load(at + 1, Ordering::Acquire) == tx.0 {
            let pid = self.mem.load(at + 2, Ordering::Acquire) & u64::from(u32::MAX);
            self.mem.store(at + 2, pid, Ordering::Release);
        }
    }

    /// Empties the record of `ix`, and lets go of the further ones: when its index was claimed.
    pub fn clear(&self, ix: OwnerIx) {
        let Some(at) = self.word(ix) else { return };
        self.write(at, &[0; RECORD_LEN - 1]);
        let count = FURTHER_COUNT_BASE + ix.0 as usize;
        if self.mem.load(count, Ordering::Acquire) != 0 {
            self.end_further_of(|owner| owner == ix);
            self.mem.store(count, 0, Ordering::Release);
        }
    }

    /// Says that all transactions of further records have ended whose owners are `dead`.
    pub fn end_further_of(&self, dead: impl Fn(OwnerIx) -> bool) {
        for n in 0..self.high() {
            let tag = self.tag(n);
            if tag & (WRITING_BIT | OPEN_BIT) == 0 || !dead(owner_of(tag)) {
                continue;
            }
            if tag & WRITING_BIT != 0 {
                // Whatever stands there is half of it.
                (1..RECORD_LEN).for_each(|i| self.mem.store(further(n) + i, 0, Ordering::Release));
            }
            let ended = self.mem.compare_exchange(further(n), tag, tag & !(WRITING_BIT | OPEN_BIT));
            if ended.is_ok() {
                self.mem.fetch_add(FURTHER_COUNT_BASE + owner_of(tag).0 as usize, u64::MAX);
            }
        }
    }

    fn high(&self) -> usize {
        (self.mem.load(FURTHER_HIGH_WORD, Ordering::Acquire) as usize).min(FURTHER)
    }

    /// Takes a further record, from `first` on; `None` when all are taken.
    pub fn put_further(&self, ix: OwnerIx, record: &Record, first: usize) -> Option<usize> {
        let count = FURTHER_COUNT_BASE + self.word(ix).map(|_| ix.0 as usize)?;
        // Before one is taken: a successor that finds none does not look.
        self.mem.fetch_add(count, 1);
        for n in (0..FURTHER).map(|n| (first + n) % FURTHER) {
            let tag = self.tag(n);
            if tag & (WRITING_BIT | OPEN_BIT) != 0 {
                continue;
            }
            let uses = (tag >> USES_SHIFT).wrapping_add(1) << USES_SHIFT;
            let taken = uses | u64::from(ix.0) << OWNER_SHIFT | WRITING_BIT;
            if self.mem.compare_exchange(further(n), tag, taken).is_err() {
                continue;
            }
            self.raise_high(n as u64 + 1);
            let words = record.encode();
            words
                .iter()
                .enumerate()
                .for_each(|(i, w)| self.mem.store(further(n) + 1 + i, *w, Ordering::Release));
            self.mem.store(further(n), taken & !WRITING_BIT | OPEN_BIT, Ordering::Release);
            return Some(n);
        }
        self.mem.fetch_add(count, u64::MAX);
        None
    }

    /// Says that the transaction of a further record of `ix` has ended.
    pub fn end_further(&self, ix: OwnerIx, n: usize) {
        let tag = self.tag(n % FURTHER);
        if owner_of(tag) == ix && tag & OPEN_BIT != 0 {
            let ended = self.mem.compare_exchange(further(n % FURTHER), tag, tag & !OPEN_BIT);
            if ended.is_ok() {
                self.mem.fetch_add(FURTHER_COUNT_BASE + ix.0 as usize, u64::MAX);
            }
        }
    }

    fn raise_high(&self, to: u64) {
        let mut seen = self.mem.load(FURTHER_HIGH_WORD, Ordering::Acquire);
        while seen < to {
            match self.mem.compare_exchange(FURTHER_HIGH_WORD, seen, to) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn tag(&self, n: usize) -> u64 {
        self.mem.load(further(n), Ordering::Acquire)
    }

    fn write(&self, at: usize, words: &Fields) {
        // An odd number was left by a predecessor that died writing.
        let odd = self.mem.load(at, Ordering::Acquire).wrapping_add(1) | 1;
        self.mem.store(at, odd, Ordering::Release);
        words.iter().enumerate().for_each(|(i, w)| self.mem.store(at + 1 + i, *w, Ordering::Release));
        self.mem.store(at, odd.wrapping_add(1), Ordering::Release);
    }

    fn fields(&self, at: usize) -> Fields {
        core::array::from_fn(|i| self.mem.load(at + 1 + i, Ordering::Acquire))
    }

    /// The record of `ix`; `None` when there is none or it is being written.
    pub fn get(&self, ix: OwnerIx) -> Option<Record> {
        let at = self.word(ix)?;
        let sequence = self.mem.load(at, Ordering::Acquire);
        // Never written, like most.
        if sequence == 0 {
            return None;
        }
        let words = self.fields(at);
        // Pairs with the Release stores of `write`: a field of a later record comes with a later sequence.
        if sequence % 2 == 1 || self.mem.load(at, Ordering::Acquire) != sequence {
            return None;
        }
        Record::decode(&words)
    }

    fn get_further(&self, n: usize) -> Option<(OwnerIx, Record)> {
        let before = self.tag(n);
        if before & WRITING_BIT != 0 {
            return None;
        }
        let words = self.fields(further(n));
        let after = self.tag(n);
        if (before ^ after) & !OPEN_BIT != 0 {
            return None;
        }
        let record = Record::decode(&words)?;
        Some((owner_of(after), Record { open: after & OPEN_BIT != 0, ..record }))
    }

    /// All records, each with its owner.
    pub fn all(&self) -> impl Iterator<Item = (OwnerIx, Record)> + '_ {
        let first = (1..OWNERS).map(OwnerIx).filter_map(|ix| Some((ix, self.get(ix)?)));
        first.chain((0..self.high()).filter_map(|n| self.get_further(n)))
    }
}

fn further(n: usize) -> usize {
    FURTHER_BASE + n * RECORD_LEN
}

fn owner_of(tag: u64) -> OwnerIx {
    OwnerIx((tag >> OWNER_SHIFT) as u32 & (OWNERS - 1))
}
