//! Shared memory as an array of 64-bit words.

use crate::types::Result;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A shared array of 64-bit atomic words, addressed by index.
///
/// One trait so that the domain table runs unchanged over a mapped file, the simulated machine and a scheduler that
/// explores interleavings. An index past the end is a broken invariant of ours and panics.
pub trait Words {
    /// Number of words.
    fn len(&self) -> usize;
    /// Returns true if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Atomic load.
    fn load(&self, index: usize, order: Ordering) -> u64;
    /// Atomic store.
    fn store(&self, index: usize, value: u64, order: Ordering);
    /// Stores zeros in order.
    fn clear(&self, words: Range<usize>) {
        words.for_each(|index| self.store(index, 0, Ordering::Release));
    }
    /// Atomic compare-exchange (strong, AcqRel/Acquire): `Ok(previous)` when it was `current`.
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> core::result::Result<u64, u64>;
    /// Atomic or (AcqRel); returns the previous value.
    fn fetch_or(&self, index: usize, bits: u64) -> u64;
    /// Atomic add (AcqRel), wrapping; returns the previous value.
    fn fetch_add(&self, index: usize, n: u64) -> u64;
    /// Waits until the word's *low 32 bits* differ from `seen`'s, a wake-up arrives, or `timeout_ns` passes;
    /// may return early.
    /// Source: futex(2), FUTEX_WAIT on the low half (x86-64 and aarch64 are little-endian).
    fn wait(&self, index: usize, seen: u64, timeout_ns: u64);
    /// Looks at a word for a moment, to see it change from `seen`: shorter than to sleep and be woken, where another CPU is
    /// about to change it. The default does not look.
    fn changes_soon(&self, index: usize, seen: u64) -> bool {
        let _ = (index, seen);
        false
    }
    /// Wakes every waiter on the word.
    fn wake(&self, index: usize);
    /// Makes sure that stores find room for some time to come, where the file system may refuse it: a store
    /// that finds none is a SIGBUS.
    ///
    /// # Errors
    /// `ENOSPC`: the file system is full, or a quota.
    fn reserve(&self) -> Result<()> {
        Ok(())
    }
}
