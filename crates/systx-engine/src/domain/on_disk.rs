//! What is known to be on the disk, or will be after a redo: so that a durable commit syncs what it builds on
//! only where nobody has.
//!
//! Owns: when everything was synced last, and for some objects the change time with which they were synced or
//! with which a recorded commit has left them. Guarantees: no object is known whose present state a power
//! loss can take for good. Forgets at will: what is not known is synced once more, and that is all. Does not:
//! sync.
//!
//! | words | hold |
//! |---|---|
//! | 0 | wall clock when the last syncfs began, in nanoseconds; 0: none is known |
//! | 1 | how far it was ahead of the monotonic clock then |
//! | 2 | the last number that has a record |
//! | 8… | pairs: object xor change time, change time |
//!
//! An object is known by the *equality* of its change time; that goes wrong only where stamps are coarse, and
//! there nothing is put in. Whether something is *older* than a sync is asked of the wall clock, and that may
//! have been set back since, and forth again. Nothing but setting it (or a suspend) moves it against the monotonic
//! clock: if that has happened, nothing is older. Both words of a pair tell whether they belong together, so
//! nobody needs a lock.

use super::layout::{LINES, ON_DISK_BASE, PLACES};
use crate::id::{Lsn, ObjectId};
use crate::lock::Locked;
use crate::mutant::{self, Mutant};
use std::sync::atomic::Ordering;
use systx_os::{Os, Timestamp, Words};

/// Stamps come from a clock that is behind the one that is read by up to a tick (10 ms at 100 Hz), more where
/// a guest stands still.
const TICK_NS: i64 = 100_000_000;
/// A write(2) moves the time of its file, and then copies up to 2 GiB, as fast as the disk takes dirty pages: a sync
/// that begins meanwhile has not the rest. So long it may go on: a minute, and a second for each MiB.
const WRITE_NS: i64 = 60_000_000_000;
const WRITE_BYTES_MAX: u64 = 2 << 30;
const WRITE_NS_A_MIB: u64 = 1_000_000_000;
/// Two clocks that are read one after the other seem to move against each other by less than this.
const APART_NS: i64 = 20_000;

/// When a sync of everything has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Began {
    wall_ns: i64,
    monotonic_ns: i64,
}

impl Began {
    /// Now.
    pub fn now<O: Os>(os: &O) -> Began {
        let mut tries = 0;
        loop {
            let (monotonic_ns, wall_ns) = (os.monotonic_ns() as i64, ns(os.now()));
            tries += 1;
            // A wait for the processor between the looks would be taken for a clock that was set: one more sync.
            if tries == 4 || os.monotonic_ns() as i64 - monotonic_ns <= APART_NS / 2 {
                return Began { wall_ns, monotonic_ns };
            }
        }
    }

    fn ahead(&self) -> i64 {
        self.wall_ns.wrapping_sub(self.monotonic_ns)
    }
}

/// The kind of change whose age is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Names and attributes: changed at that time.
    Names,
    /// Bytes of a file of this size: a write began at that time.
    Bytes(u64),
}

/// At its place in a table.
pub(crate) struct OnDisk<'m, M: Words> {
    mem: &'m M,
}

impl<'m, M: Words> OnDisk<'m, M> {
    pub fn new(mem: &'m M) -> OnDisk<'m, M> {
        OnDisk { mem }
    }

    /// Says that a syncfs has returned which began then. The lock keeps two of them apart.
    pub fn synced(&self, _lock: &Locked, began: Began) {
        self.store_synced(began);
    }

    /// Notes it in a table that no other process uses yet.
    pub fn store_synced(&self, began: Began) {
        self.mem.store(ON_DISK_BASE, 0, Ordering::SeqCst);
        self.mem.store(ON_DISK_BASE + 1, began.ahead() as u64, Ordering::SeqCst);
        self.mem.store(ON_DISK_BASE, began.wall_ns as u64, Ordering::SeqCst);
    }

    /// Notes the number of a commit that has a record. The lock keeps their order.
    pub fn note_recorded(&self, _lock: &Locked, lsn: Lsn) {
        self.mem.store(ON_DISK_BASE + 2, lsn.0, Ordering::Release);
    }

    /// The last number that has a record.
    pub fn recorded(&self) -> Lsn {
        Lsn(self.mem.load(ON_DISK_BASE + 2, Ordering::Acquire))
    }

    /// Returns true if the last change at that time was there, and over, when the last syncfs began.
    pub fn is_older(&self, changed: Timestamp, now: Began, of: Of) -> bool {
        let wall = self.mem.load(ON_DISK_BASE, Ordering::SeqCst) as i64;
        let ahead = self.mem.load(ON_DISK_BASE + 1, Ordering::SeqCst) as i64;
        if wall <= 0 || self.mem.load(ON_DISK_BASE, Ordering::SeqCst) as i64 != wall {
            return false;
        }
        // A sync ahead of us is of another time namespace.
        if wall.saturating_sub(ahead) > now.monotonic_ns {
            return false;
        }
        let was_set = ahead.saturating_sub(now.ahead()).saturating_abs() > APART_NS;
        let late = match of {
            Of::Bytes(size) if !mutant::on(Mutant::WritesAtOnce) => {
                WRITE_NS + ((size.min(WRITE_BYTES_MAX) >> 20) * WRITE_NS_A_MIB) as i64
            }
            Of::Names | Of::Bytes(_) => TICK_NS,
        };
        (!was_set || mutant::on(Mutant::ClockTrusted)) && ns(changed) < wall.saturating_sub(late)
    }

    /// Says that an object is on the disk, or will be by a redo, as it was when its change time was this.
    pub fn note(&self, object: ObjectId, changed: Timestamp) {
        let changed = ns(changed) as u64;
        let free = |at: &usize| self.pair(*at) == (0, 0);
        let used_again = places(object).nth((changed ^ changed >> 16) as usize % PLACES);
        let at = places(object).find(|at| self.object_at(*at) == object).or(places(object).find(free));
        if let Some(at) = at.or(used_again) {
            self.mem.store(at, object.0 ^ changed, Ordering::Release);
            self.mem.store(at + 1, changed, Ordering::Release);
        }
    }

    /// Returns true if the object was noted, with the change time that it has now.
    pub fn knows(&self, object: ObjectId, changed: Timestamp) -> bool {
        let changed = ns(changed) as u64;
        let same = |at: usize| self.pair(at).1 == changed || mutant::on(Mutant::KnownForEver);
        places(object).any(|at| self.object_at(at) == object && same(at))
    }

    fn pair(&self, at: usize) -> (u64, u64) {
        (self.mem.load(at, Ordering::Acquire), self.mem.load(at + 1, Ordering::Acquire))
    }

    fn object_at(&self, at: usize) -> ObjectId {
        let (object, changed) = self.pair(at);
        ObjectId(object ^ changed)
    }
}

fn places(object: ObjectId) -> impl Iterator<Item = usize> {
    let line = (object.0 >> 20) as usize % LINES;
    (0..PLACES).map(move |n| ON_DISK_BASE + 8 + 2 * (line * PLACES + n))
}

fn ns(at: Timestamp) -> i64 {
    at.sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(at.nsec))
}

#[cfg(test)]
mod tests {
    use super::super::layout::WORDS;
    use super::*;
    use crate::domain::tests::model::Plain;

    const SECOND: i64 = 1_000_000_000;

    fn at(ns: i64) -> Timestamp {
        Timestamp { sec: ns / SECOND, nsec: (ns % SECOND) as u32 }
    }

    fn clocks(wall: i64, monotonic: i64) -> Began {
        Began { wall_ns: wall * SECOND, monotonic_ns: monotonic * SECOND }
    }

    #[test]
    fn what_was_changed_before_the_last_sync_is_older_whatever_the_clock_was_set_to_since() {
        let mem = Plain::new(WORDS);
        let known = OnDisk::new(&mem);
        assert!(!known.is_older(at(1), clocks(1000, 10), Of::Names), "nothing was synced");
        known.store_synced(clocks(1000, 10));
        let now = clocks(1060, 70);
        assert!(known.is_older(at(999 * SECOND), now, Of::Names));
        assert!(
            !known.is_older(at(1000 * SECOND - TICK_NS / 2), now, Of::Names),
            "its stamp may be a tick late"
        );
        assert!(!known.is_older(at(1001 * SECOND), now, Of::Names));
        let sizes = [(1, 940, false), (1, 939, true), (100 << 20, 840, false), (100 << 20, 839, true)];
        for (size, seconds, older) in sizes {
            let began = at(seconds * SECOND + SECOND / 2);
            assert_eq!(known.is_older(began, now, Of::Bytes(size)), older, "a write may go on: {seconds}");
        }
        // The clock is set back by half an hour, and then a file is changed: its stamp is from before the
        // sync. Set forth again, it is a little off.
        let set_back = clocks(1060 - 1800, 70);
        assert!(!known.is_older(at(999 * SECOND), set_back, Of::Names));
        assert!(!known.is_older(at((1000 - 1800 + 1) * SECOND), set_back, Of::Names));
        for off in [-50_000, 50_000, 1800 * SECOND] {
            let set = Began { wall_ns: now.wall_ns + off, ..now };
            assert!(!known.is_older(at((1000 - 1800 + 1) * SECOND), set, Of::Names), "{off}");
        }
        assert!(!known.is_older(at(999 * SECOND), clocks(1060, 5), Of::Names), "of another time namespace");
    }

    #[test]
    fn an_object_is_known_by_the_change_time_that_was_said() {
        let mem = Plain::new(WORDS);
        let known = OnDisk::new(&mem);
        let (one, other) = (ObjectId(0x1234_5678_9abc_def0), ObjectId(0x1234_5678_9abc_def1));
        assert!(!known.knows(one, at(0)) && !known.knows(one, at(7)));
        known.note(one, at(7));
        assert!(known.knows(one, at(7)) && !known.knows(one, at(8)));
        assert!(!known.knows(other, at(7)), "in the same line");
        known.note(other, at(9));
        assert!(known.knows(other, at(9)) && known.knows(one, at(7)));
        known.note(one, at(10));
        assert!(known.knows(one, at(10)) && !known.knows(one, at(7)));
        // More than there is room for.
        let many = || (1..10).map(|n| (ObjectId(one.0 + n as u64), at(100_000 * n)));
        many().for_each(|(object, changed)| known.note(object, changed));
        let left = many().filter(|(object, changed)| known.knows(*object, *changed)).count();
        assert!((1..=PLACES).contains(&left), "{left} are known");
    }
}
