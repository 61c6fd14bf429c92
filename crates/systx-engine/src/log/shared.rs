//! The words of the domain table that belong to the log.
//!
//! Owns: their layout and packing. Guarantees: none about their values, which any process of this user can
//! store; who uses a place that he read here checks it against the segment's own header.
//!
//! | word | holds | changed by |
//! |---|---|---|
//! | `STATE` | 0 not started, 1 ready, 2 poisoned, 3 lost (errno in the high half) | `start`; whoever sees a sync fail |
//! | `FIRST` | first segment since the last recovery | `start` |
//! | `CELLS` | place of the next cell | holder of the commit lock, after the cell is written |
//! | `BODIES` | segment of bodies, next free unit in it (0: the segment is not made yet) | CAS, by whoever needs room; a new segment: holder of `MAKING` |
//! | `SYNCED` | first place that may not be on the disk | holder of `SYNCING`; only grows |
//! | `MAKING` | lock: makes segments | |
//! | `SYNCING` | latch: syncs | |
//! | `COVERING` | latch: makes a checkpoint for all who want one | |
//! | `SYNC_NS` | average time of a sync | holder of `SYNCING` |
//! | `BATCHES` | sizes of the last two batches | holder of `SYNCING` |
//! | `CHECKPOINT` | bound that `start` was told | `start` |
//! | `END_BEFORE` | end of the log that the last recovery read | `start` |
//! | `CKPT_LSN`, `CKPT_AT` | last CKPT cell; place 0: none yet | holder of the commit lock |
//! | `BYTES`, `CKPT_BYTES` | bytes appended in all, and at the last checkpoint | everybody; holder of the commit lock |

use super::format::{LogPos, BODY_ALIGN};
use crate::id::Lsn;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_os::{Errno, Words};

/// 64-bit words of the domain table that the log uses.
pub const WORDS: usize = 64;

pub(super) const STATE: usize = 0;
pub(super) const FIRST: usize = 1;
pub(super) const CHECKPOINT: usize = 2;
pub(super) const END_BEFORE: usize = 3;
pub(super) const CKPT_LSN: usize = 4;
pub(super) const CKPT_AT: usize = 5;
pub(super) const CKPT_BYTES: usize = 6;
// Words that different processes hammer on stand on lines of their own (the table's base is a multiple of 8
// words).
pub(super) const CELLS: usize = 8;
pub(super) const BODIES: usize = 16;
pub(super) const BYTES: usize = 17;
pub(super) const SYNCED: usize = 24;
pub(super) const SYNC_NS: usize = 25;
pub(super) const BATCHES: usize = 26;
pub(super) const SYNCING: usize = 32;
pub(super) const MAKING: usize = 40;
pub(super) const COVERING: usize = 48;

/// State of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    NotStarted,
    Ready,
    /// A sync of it has failed.
    Poisoned(Errno),
    /// A sync of what records change has failed.
    Lost(Errno),
}

impl State {
    fn pack(self) -> u64 {
        match self {
            State::NotStarted => 0,
            State::Ready => 1,
            State::Poisoned(error) => (error.raw_os_error() as u64) << 32 | 2,
            State::Lost(error) => (error.raw_os_error() as u64) << 32 | 3,
        }
    }
}

/// Where the next body goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bodies {
    pub segment: u64,
    /// In units of [`BODY_ALIGN`] bytes from the start of the segment; 0: the segment is not made yet.
    pub unit: u64,
}

impl Bodies {
    const UNIT_BITS: u32 = 30;
    /// One past the largest size of a segment in bytes.
    pub(super) const BYTES_MAX: u64 = BODY_ALIGN << Self::UNIT_BITS;

    pub(super) fn pack(self) -> u64 {
        self.segment << Self::UNIT_BITS | self.unit
    }
    pub(super) fn unpack(word: u64) -> Bodies {
        Bodies { segment: word >> Self::UNIT_BITS, unit: word & ((1 << Self::UNIT_BITS) - 1) }
    }
}

/// The words, by name.
#[derive(Debug)]
pub(super) struct Shared<M> {
    pub mem: Arc<M>,
    pub base: usize,
}

impl<M: Words> Shared<M> {
    pub fn new(mem: Arc<M>, base: usize) -> Shared<M> {
        assert!(
            base + WORDS <= mem.len(),
            "the table has {} words, the log's end at {}",
            mem.len(),
            base + WORDS
        );
        Shared { mem, base }
    }
    pub fn load(&self, word: usize) -> u64 {
        self.mem.load(self.base + word, Ordering::Acquire)
    }
    pub fn store(&self, word: usize, value: u64) {
        self.mem.store(self.base + word, value, Ordering::Release);
    }
    pub fn exchange(&self, word: usize, current: u64, new: u64) -> bool {
        self.mem.compare_exchange(self.base + word, current, new).is_ok()
    }
    pub fn add(&self, word: usize, n: u64) {
        self.mem.fetch_add(self.base + word, n);
    }
    /// Stores the larger of the value and what is there.
    pub fn raise(&self, word: usize, value: u64) {
        loop {
            let seen = self.load(word);
            if seen >= value || self.exchange(word, seen, value) {
                return;
            }
        }
    }

    pub fn state(&self) -> State {
        let word = self.load(STATE);
        // In a damaged table it may be anything.
        let error = match word >> 32 {
            n @ 1..4096 => Errno::from_raw_os_error(n as i32),
            _ => Errno::IO,
        };
        match word & 0xffff_ffff {
            1 => State::Ready,
            2 => State::Poisoned(error),
            3 => State::Lost(error),
            _ => State::NotStarted,
        }
    }
    pub fn set_state(&self, state: State) {
        self.store(STATE, state.pack());
    }
    /// After a failed sync of the log, unless it is closed for more than that.
    pub fn poison(&self, error: Errno) {
        let _ = self.exchange(STATE, State::Ready.pack(), State::Poisoned(error).pack());
    }
    pub fn lost(&self) -> Option<Errno> {
        match self.state() {
            State::Lost(error) => Some(error),
            _ => None,
        }
    }
    pub fn cells(&self) -> LogPos {
        LogPos::unpack(self.load(CELLS))
    }
    pub fn bodies(&self) -> Bodies {
        Bodies::unpack(self.load(BODIES))
    }
}

/// Where a log goes on after a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Number of the next segment, above all that there are.
    pub segment: u64,
    /// Everything up to here is published and synced.
    pub checkpoint: Lsn,
    /// End of the log as the recovery found it.
    pub end_before: LogPos,
}

impl Start {
    /// Starts the log for a table that no other process uses yet: its words are `mem[base..base + WORDS]`.
    pub fn prepare<M: Words>(self, mem: &Arc<M>, base: usize) {
        self.set(&Shared::new(mem.clone(), base));
    }

    pub(super) fn set<M: Words>(self, s: &Shared<M>) {
        let (segment, at) = (self.segment.max(1), LogPos { segment: self.segment.max(1), cell: 0 }.pack());
        s.set_state(State::NotStarted);
        // FIRST before SYNCED: a process that finds its old position synced then finds it outdated (see
        // `group`).
        s.store(FIRST, segment);
        s.store(CHECKPOINT, self.checkpoint.0);
        s.store(END_BEFORE, self.end_before.pack());
        s.store(CKPT_LSN, self.checkpoint.0);
        s.store(CKPT_AT, 0);
        s.store(CELLS, at);
        s.store(SYNCED, at);
        s.store(BODIES, Bodies { segment, unit: 0 }.pack());
        s.store(CKPT_BYTES, s.load(BYTES));
        s.set_state(State::Ready);
    }
}
