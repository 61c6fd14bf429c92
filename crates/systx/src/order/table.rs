//! The counter of a process group and the numbers that are taken, in shared memory.
//!
//! Owns: the words. Guarantees: they change under the lock alone, each in an order that leaves them true wherever a
//! process dies; who waits is woken by every change. Does not: know processes; its callers say which ones live.
//!
//! Layout, in words: 0 the lock · 1 the bell, one more at each change · 2 the counter: the next number to commit · 3 how
//! many sleep, and those that were killed in their sleep · from 8 on places of two words, the number and its holder.
//!
//! | holder | means |
//! |---|---|
//! | 0 | free |
//! | 1 … 1023 | the process with this index has a transaction with the number |
//! | `GIVEN_UP` | it was given up, or its process has died |

use super::{Leaving, OrderError};
use crate::mutant::{self, Mutant};
use crate::options::Sequence;
use std::sync::atomic::Ordering;
use systx_engine::corrupt::Corrupt;
use systx_engine::id::OwnerIx;
use systx_engine::lock::{RobustLock, PROBE_NS};
use systx_os::Words;

const LOCK: RobustLock = RobustLock { word: 0 };
const BELL: usize = 1;
const COUNTER: usize = 2;
const SLEEPERS: usize = 3;
const PLACES_AT: usize = 8;
const PLACES: usize = 1020;
/// Length in words.
pub(super) const WORDS: usize = PLACES_AT + 2 * PLACES;

const FREE: u64 = 0;
const GIVEN_UP: u64 = 1 << 32;

/// Tells of the lives of processes.
type Alive<'a> = &'a dyn Fn(OwnerIx) -> bool;

/// The place of a number that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Place {
    fn number(self) -> usize {
        PLACES_AT + 2 * self.0
    }

    fn holder(self) -> usize {
        self.number() + 1
    }
}

/// The answer to a transaction that wants a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    At(Place),
    /// The counter is past it, at this number.
    Used(u64),
    Taken,
    Full,
}

/// The turn, as one transaction sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOf {
    This,
    /// A lower one's, which may commit yet.
    Earlier(u64),
    /// A lower one's, which can't.
    Gone(u64),
    /// A higher one's.
    Later(u64),
}

pub(super) struct Table<M: Words> {
    mem: M,
}

impl<M: Words> Table<M> {
    pub fn new(mem: M) -> Table<M> {
        Table { mem }
    }

    fn load(&self, word: usize) -> u64 {
        self.mem.load(word, Ordering::Acquire)
    }

    fn store(&self, word: usize, value: u64) {
        self.mem.store(word, value, Ordering::Release);
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        (0..PLACES).map(Place)
    }

    /// Works under the lock. One that a dead process held needs no repair.
    fn locked<T>(&self, me: OwnerIx, alive: Alive<'_>, work: impl FnOnce() -> T) -> Result<T, Corrupt> {
        let locked = LOCK.lock(&self.mem, me, alive)?;
        let done = work();
        LOCK.unlock(&self.mem, locked)?;
        Ok(done)
    }

    fn ring(&self) {
        if mutant::on(Mutant::BellUnrung) {
            return;
        }
        self.mem.fetch_add(BELL, 1);
        // A sleeper has said so before it looked at the bell.
        if self.mem.load(SLEEPERS, Ordering::SeqCst) != 0 {
            self.mem.wake(BELL);
        }
    }

    /// Waits until all numbers below have committed, as long as time is left.
    pub fn await_turn(
        &self,
        number: u64,
        me: OwnerIx,
        alive: Alive<'_>,
        left_ns: &dyn Fn() -> u64,
    ) -> Result<(), OrderError> {
        loop {
            // Before the look that is to be repeated.
            let mut bell = self.load(BELL);
            let next = match self.turn_of(number, me, alive)? {
                TurnOf::This => return Ok(()),
                TurnOf::Gone(number) => return Err(OrderError::Gone { number }),
                TurnOf::Later(next) => return Err(OrderError::Used { number, next }),
                TurnOf::Earlier(next) => next,
            };
            if mutant::on(Mutant::BellLate) {
                bell = self.load(BELL);
            }
            let left_ns = left_ns();
            if left_ns == 0 {
                return Err(OrderError::Late { number: next });
            }
            // One with more before it sleeps at once.
            if next.checked_add(1) == Some(number) && self.mem.changes_soon(COUNTER, next) {
                continue;
            }
            // A death rings no bell: it is looked for now and then.
            if !mutant::on(Mutant::SleeperUncounted) {
                self.mem.fetch_add(SLEEPERS, 1);
            }
            self.mem.wait(BELL, bell, left_ns.min(PROBE_NS));
            if !mutant::on(Mutant::SleeperUncounted) {
                self.mem.fetch_add(SLEEPERS, u64::MAX);
            }
        }
    }

    /// Takes over an index: what its last process had is given up. Before anything else.
    pub fn succeed(&self, me: OwnerIx, alive: Alive<'_>) -> Result<(), Corrupt> {
        if let Some(locked) = LOCK.inherit(&self.mem, me)? {
            LOCK.unlock(&self.mem, locked)?;
        }
        if !mutant::on(Mutant::PredecessorLives) {
            self.locked(me, alive, || self.give_up_those_of(|owner| owner == me))?;
        }
        self.ring();
        Ok(())
    }

    fn give_up_those_of(&self, is_gone: impl Fn(OwnerIx) -> bool) {
        for place in self.places() {
            let holder = self.load(place.holder());
            if holder != FREE && holder != GIVEN_UP && is_gone(OwnerIx(holder as u32)) {
                self.store(place.holder(), GIVEN_UP);
            }
        }
    }

    /// The place of a number, if it has one.
    fn place_of(&self, number: u64) -> Option<(Place, u64)> {
        let held = self.places().map(|place| (place, self.load(place.holder())));
        held.filter(|(_, holder)| *holder != FREE).find(|(place, _)| self.load(place.number()) == number)
    }

    /// Takes a number for a process.
    pub fn claim(&self, me: OwnerIx, alive: Alive<'_>, sequence: Sequence) -> Result<Claimed, Corrupt> {
        let claimed = self.locked(me, alive, || {
            if sequence.counts_from_here {
                self.store(COUNTER, sequence.number);
            }
            let counter = self.load(COUNTER);
            if sequence.number < counter {
                return Claimed::Used(counter);
            }
            if let Some((place, holder)) = self.place_of(sequence.number) {
                if holder != GIVEN_UP && alive(OwnerIx(holder as u32)) {
                    return Claimed::Taken;
                }
                self.store(place.holder(), me.0.into());
                return Claimed::At(place);
            }
            let free = |place: &Place| match self.load(place.holder()) {
                FREE => true,
                GIVEN_UP => self.load(place.number()) < counter,
                // It has died behind its commit point.
                holder => self.load(place.number()) < counter && !alive(OwnerIx(holder as u32)),
            };
            let Some(place) = self.places().find(free) else { return Claimed::Full };
            // The holder last: until then the place is free.
            self.store(place.holder(), FREE);
            self.store(place.number(), sequence.number);
            self.store(place.holder(), me.0.into());
            Claimed::At(place)
        })?;
        self.ring();
        Ok(claimed)
    }

    /// The turn, as the transaction with `number` sees it.
    pub fn turn_of(&self, number: u64, me: OwnerIx, alive: Alive<'_>) -> Result<TurnOf, Corrupt> {
        if self.load(COUNTER) == number {
            return Ok(TurnOf::This);
        }
        self.locked(me, alive, || {
            let counter = self.load(COUNTER);
            match self.place_of(counter) {
                _ if counter == number => TurnOf::This,
                _ if counter > number => TurnOf::Later(counter),
                Some((_, GIVEN_UP)) => TurnOf::Gone(counter),
                Some((_, holder)) if !alive(OwnerIx(holder as u32)) => TurnOf::Gone(counter),
                _ => TurnOf::Earlier(counter),
            }
        })
    }

    /// Counts a number that has committed. Without the lock, for which a commit must not wait; the counter moves by this
    /// alone where it is the number's turn.
    pub fn count(&self, number: u64) {
        if self.mem.compare_exchange(COUNTER, number, number.saturating_add(1)).is_ok() {
            self.ring();
        }
    }

    /// Gives back a number.
    pub fn leave(
        &self,
        me: OwnerIx,
        alive: Alive<'_>,
        place: Place,
        number: u64,
        leaving: Leaving,
    ) -> Result<(), Corrupt> {
        self.locked(me, alive, || {
            // The counter first: a number that is counted is over, whatever its place says.
            if leaving == Leaving::Done && self.load(COUNTER) == number {
                self.store(COUNTER, number.saturating_add(1));
            }
            let after =
                if leaving == Leaving::GivenUp && number >= self.load(COUNTER) { GIVEN_UP } else { FREE };
            self.store(place.holder(), after);
        })?;
        self.ring();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::{Linux, Open, Os};

    type Mapped = <Linux as Os>::Mem;
    const ALL: Alive<'static> = &|_| true;

    fn table() -> Table<Mapped> {
        let os = Linux::new();
        let dir = os.open_path(&std::env::temp_dir(), Open::Directory).unwrap();
        Table::new(os.map(&os.tmpfile(&dir, 0o600).unwrap(), WORDS).unwrap())
    }

    fn sequence(number: u64) -> Sequence {
        Sequence { number, counts_from_here: false }
    }

    fn take(table: &Table<Mapped>, me: u32, number: u64) -> Place {
        match table.claim(OwnerIx(me), ALL, sequence(number)).unwrap() {
            Claimed::At(place) => place,
            other => panic!("{number}: {other:?}"),
        }
    }

    fn turn(table: &Table<Mapped>, number: u64, alive: Alive<'_>) -> TurnOf {
        table.turn_of(number, OwnerIx(1), alive).unwrap()
    }

    #[test]
    fn turns_go_by_number_from_zero() {
        let table = table();
        let places = [2, 0, 1].map(|number| (number, take(&table, 1, number)));
        for next in 0..3 {
            for (number, _) in places {
                let expected = match number {
                    n if n < next => TurnOf::Later(next),
                    n if n == next => TurnOf::This,
                    _ => TurnOf::Earlier(next),
                };
                assert_eq!(turn(&table, number, ALL), expected, "{number} of {next}");
            }
            let (_, place) = places.into_iter().find(|(number, _)| *number == next).unwrap();
            table.leave(OwnerIx(1), ALL, place, next, Leaving::Done).unwrap();
        }
        assert_eq!(table.claim(OwnerIx(1), ALL, sequence(2)).unwrap(), Claimed::Used(3));
    }

    #[test]
    fn a_number_is_one_transactions_until_it_leaves_or_dies() {
        let table = table();
        let place = take(&table, 1, 0);
        assert_eq!(table.claim(OwnerIx(2), ALL, sequence(0)).unwrap(), Claimed::Taken);
        assert_eq!(turn(&table, 1, ALL), TurnOf::Earlier(0));
        let dead: Alive<'_> = &|owner| owner != OwnerIx(1);
        assert_eq!(table.turn_of(1, OwnerIx(2), dead).unwrap(), TurnOf::Gone(0));
        assert!(matches!(table.claim(OwnerIx(2), dead, sequence(0)).unwrap(), Claimed::At(_)));
        // One that has lost is waited for, one that was given up is not.
        table.leave(OwnerIx(2), ALL, place, 0, Leaving::Lost).unwrap();
        assert_eq!(turn(&table, 1, ALL), TurnOf::Earlier(0));
        let place = take(&table, 2, 0);
        table.leave(OwnerIx(2), ALL, place, 0, Leaving::GivenUp).unwrap();
        assert_eq!(turn(&table, 1, ALL), TurnOf::Gone(0));
        take(&table, 3, 0);
        assert_eq!(turn(&table, 1, ALL), TurnOf::Earlier(0));
        // The next process with a dead one's index is not taken for it.
        table.succeed(OwnerIx(3), ALL).unwrap();
        assert_eq!(turn(&table, 1, ALL), TurnOf::Gone(0));
    }

    #[test]
    fn a_number_that_is_counted_is_over_whoever_dies() {
        let table = table();
        take(&table, 1, 0);
        table.count(0);
        let dead: Alive<'_> = &|owner| owner != OwnerIx(1);
        assert_eq!(turn(&table, 1, dead), TurnOf::This);
        // Nothing is counted twice, or out of turn.
        table.count(0);
        table.count(7);
        assert_eq!(turn(&table, 1, ALL), TurnOf::This);
        // Its place is another one's then.
        let places: Vec<_> = (1..PLACES as u64).map(|number| take(&table, 2, number)).collect();
        let more = sequence(PLACES as u64);
        assert_eq!(table.claim(OwnerIx(2), ALL, more).unwrap(), Claimed::Full);
        assert!(matches!(table.claim(OwnerIx(2), dead, more).unwrap(), Claimed::At(_)));
        assert_eq!(places.len(), PLACES - 1);
    }

    #[test]
    fn places_are_found_again_and_run_out_without_harm() {
        let table = table();
        let all: Vec<_> = (0..PLACES as u64).map(|number| take(&table, 1, number)).collect();
        let more = sequence(PLACES as u64);
        assert_eq!(table.claim(OwnerIx(1), ALL, more).unwrap(), Claimed::Full);
        table.leave(OwnerIx(1), ALL, all[7], 7, Leaving::GivenUp).unwrap();
        assert_eq!(table.claim(OwnerIx(1), ALL, more).unwrap(), Claimed::Full, "7 is still to come");
        // A counter that is set makes what was given up before it nothing.
        let from = Sequence { number: PLACES as u64, counts_from_here: true };
        assert_eq!(table.claim(OwnerIx(1), ALL, from).unwrap(), Claimed::At(all[7]));
        assert_eq!(turn(&table, 3, ALL), TurnOf::Later(PLACES as u64));
    }
}
