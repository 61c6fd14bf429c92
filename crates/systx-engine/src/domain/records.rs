//! What each owner is doing, for `systx ps` and for messages about conflicts.
//!
//! Owns: one record an owner. Guarantees: nothing that anybody may decide from; a record that was being written reads
//! as none. One writer at a time: the owner's process (it keeps two of its threads apart).
//!
//! Words: sequence (odd: being written) · transaction · pid | flags << 32 · seconds · nanoseconds | bytes of command
//! << 32 · command, 11 words.

use super::layout::{RECORDS_BASE, RECORD_LEN};
use crate::id::{OwnerIx, TxId, OWNERS};
use std::sync::atomic::Ordering;
use systx_os::{Timestamp, Words};

/// Longest command text kept, in bytes.
pub const COMMAND_BYTES_MAX: usize = (RECORD_LEN - 5) * 8;

/// The present work of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its (latest) transaction.
    pub tx: TxId,
    /// Process, as it sees itself.
    pub pid: u32,
    /// Free for the front doors.
    pub flags: u32,
    /// When the transaction began.
    pub since: Timestamp,
    /// The command, cut off at [`COMMAND_BYTES_MAX`].
    pub command: Vec<u8>,
}

/// The records of a table.
#[derive(Debug)]
pub struct Records<'m, M: Words> {
    mem: &'m M,
    base: usize,
}

impl<'m, M: Words> Records<'m, M> {
    /// At their place in the table.
    pub fn new(mem: &'m M) -> Records<'m, M> {
        Self::at(mem, RECORDS_BASE)
    }

    /// From word `base`.
    pub fn at(mem: &'m M, base: usize) -> Records<'m, M> {
        Records { mem, base }
    }

    fn word(&self, ix: OwnerIx) -> Option<usize> {
        (ix.0 > 0 && ix.0 < OWNERS).then(|| self.base + ix.0 as usize * RECORD_LEN)
    }

    /// Replaces the record of `ix`.
    pub fn put(&self, ix: OwnerIx, record: &Record) {
        let Some(at) = self.word(ix) else { return };
        let command = &record.command[..record.command.len().min(COMMAND_BYTES_MAX)];
        let mut words = [0; RECORD_LEN - 1];
        words[0] = record.tx.0;
        words[1] = u64::from(record.pid) | u64::from(record.flags) << 32;
        words[2] = record.since.sec as u64;
        words[3] = u64::from(record.since.nsec) | (command.len() as u64) << 32;
        for (word, bytes) in words[4..].iter_mut().zip(command.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        self.write(at, &words);
    }

    /// Empties the record of `ix`: when its index was claimed, and when it has nothing to do.
    pub fn clear(&self, ix: OwnerIx) {
        if let Some(at) = self.word(ix) {
            self.write(at, &[0; RECORD_LEN - 1]);
        }
    }

    fn write(&self, at: usize, words: &[u64; RECORD_LEN - 1]) {
        // An odd number was left by a predecessor that died writing.
        let odd = self.mem.load(at, Ordering::Acquire).wrapping_add(1) | 1;
        self.mem.store(at, odd, Ordering::Release);
        words.iter().enumerate().for_each(|(i, w)| self.mem.store(at + 1 + i, *w, Ordering::Release));
        self.mem.store(at, odd.wrapping_add(1), Ordering::Release);
    }

    /// The record of `ix`; `None` when there is none or it is being written.
    pub fn get(&self, ix: OwnerIx) -> Option<Record> {
        let at = self.word(ix)?;
        let sequence = self.mem.load(at, Ordering::Acquire);
        let words: [u64; RECORD_LEN - 1] =
            core::array::from_fn(|i| self.mem.load(at + 1 + i, Ordering::Acquire));
        // Pairs with the Release stores of `write`: a field of a later record comes with a later sequence.
        if sequence % 2 == 1
            || self.mem.load(at, Ordering::Acquire) != sequence
            || words == [0; RECORD_LEN - 1]
        {
            return None;
        }
        let len = ((words[3] >> 32) as usize).min(COMMAND_BYTES_MAX);
        let mut command: Vec<u8> = words[4..].iter().flat_map(|w| w.to_le_bytes()).collect();
        command.truncate(len);
        Some(Record {
            tx: TxId(words[0]),
            pid: words[1] as u32,
            flags: (words[1] >> 32) as u32,
            since: Timestamp { sec: words[2] as i64, nsec: words[3] as u32 },
            command,
        })
    }
}
