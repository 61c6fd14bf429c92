//! The latch of who syncs for all: one word, taken over from holders that died.
//!
//! Owns: the word's meaning. Guarantees: at most one holder; the low half of the word changes whenever it is
//! taken or let go, so that nobody who waits sleeps through an end of a sync. Does not: queue
//! (`domain::RobustLock` is for that): who waits here mostly finds his work done by the holder.
//!
//! Low half: generation, odd while held. High half: owner, 0 while free.
//!
//! | word | by | becomes |
//! |---|---|---|
//! | (0, even g) | anybody | (me, g+1) |
//! | (me, odd g) | me | (0, g+1), wake |
//! | (dead, odd g) | whoever waited [`PROBE_NS`] and found him dead | (me, g+2) |
//! | (me, odd g), from before I got the index | [`Latch::inherit`] | (0, g+1), wake |

use crate::id::OwnerIx;
use std::sync::atomic::Ordering;
use systx_os::Words;

/// How long a waiter sleeps before it looks whether the holder lives, in nanoseconds.
const PROBE_NS: u64 = 50_000_000;

pub(crate) struct Latch<'a, M: Words> {
    pub mem: &'a M,
    pub word: usize,
}

/// Held; let go on drop. What it protects is changed in steps that leave it usable, so a panic may let go, too.
pub(crate) struct Held<'a, M: Words> {
    mem: &'a M,
    word: usize,
    value: u64,
}

fn generation(word: u64) -> u32 {
    word as u32
}

fn pack(owner: u32, generation: u32) -> u64 {
    u64::from(owner) << 32 | u64::from(generation)
}

impl<'a, M: Words> Latch<'a, M> {
    /// Takes the latch if it is free; else waits until it changes hands, and takes it only from a dead holder.
    ///
    /// `None`: look again whether there is still something to do. May return early.
    pub fn take_or_wait(&self, me: OwnerIx, alive: &dyn Fn(OwnerIx) -> bool) -> Option<Held<'a, M>> {
        let seen = self.mem.load(self.word, Ordering::Acquire);
        if generation(seen) % 2 == 0 {
            return self.swap(seen, pack(me.0, generation(seen).wrapping_add(1)));
        }
        self.mem.wait(self.word, seen, PROBE_NS);
        let holder = OwnerIx((seen >> 32) as u32);
        if self.mem.load(self.word, Ordering::Acquire) == seen && !alive(holder) {
            return self.swap(seen, pack(me.0, generation(seen).wrapping_add(2)));
        }
        None
    }

    /// Takes the latch.
    pub fn take(&self, me: OwnerIx, alive: &dyn Fn(OwnerIx) -> bool) -> Held<'a, M> {
        loop {
            if let Some(held) = self.take_or_wait(me, alive) {
                return held;
            }
        }
    }

    /// Lets go of what the last owner of this index held when it died.
    pub fn inherit(&self, me: OwnerIx) {
        let seen = self.mem.load(self.word, Ordering::Acquire);
        if generation(seen) % 2 == 1 && (seen >> 32) as u32 == me.0 {
            drop(Held { mem: self.mem, word: self.word, value: seen });
        }
    }

    fn swap(&self, seen: u64, value: u64) -> Option<Held<'a, M>> {
        let (mem, word) = (self.mem, self.word);
        mem.compare_exchange(word, seen, value).ok().map(|_| Held { mem, word, value })
    }
}

impl<M: Words> Drop for Held<'_, M> {
    fn drop(&mut self) {
        // Fails if another process took over and holds it: so nothing is to be done.
        let free = pack(0, generation(self.value).wrapping_add(1));
        if self.mem.compare_exchange(self.word, self.value, free).is_ok() {
            self.mem.wake(self.word);
        }
    }
}
