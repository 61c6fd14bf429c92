//! The sequence under a scheduler that explores interleavings.
//!
//! Each access to a word in front of the places and to the first places is a point where another thread may go first.
//! Waits have no time-out here, so that a wake-up that is lost is a deadlock, which the scheduler reports. Orderings
//! weaker than sequential consistency are not explored: the scheduler has none.

use super::table::{Claimed, Place, Table, WORDS};
use super::{Leaving, OrderError};
use crate::options::Sequence;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::AtomicU64;
use shuttle::sync::{Condvar, Mutex};
use shuttle::{thread, Config, Runner};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_engine::id::OwnerIx;
use systx_os::Words;

const SCHEDULES: usize = 1000;
/// Words that the scheduler sees: those in front, and three places.
const SEEN: usize = 14;

/// Shared memory; the first words are seen by the scheduler.
struct Model {
    seen: Vec<AtomicU64>,
    unseen: Vec<std::sync::atomic::AtomicU64>,
    /// How often anything was woken.
    wakes: Mutex<u64>,
    woken: Condvar,
}

macro_rules! on_word {
    ($model:expr, $index:expr, $call:ident($($argument:expr),*)) => {
        match $index.checked_sub(SEEN) {
            None => $model.seen[$index].$call($($argument),*),
            Some(index) => $model.unseen[index].$call($($argument),*),
        }
    };
}

impl Words for Model {
    fn len(&self) -> usize {
        WORDS
    }
    fn load(&self, index: usize, _: Ordering) -> u64 {
        on_word!(self, index, load(Ordering::SeqCst))
    }
    fn store(&self, index: usize, value: u64, _: Ordering) {
        on_word!(self, index, store(value, Ordering::SeqCst));
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        on_word!(self, index, compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst))
    }
    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        on_word!(self, index, fetch_or(bits, Ordering::SeqCst))
    }
    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        on_word!(self, index, fetch_add(n, Ordering::SeqCst))
    }
    fn wait(&self, index: usize, seen: u64, _timeout_ns: u64) {
        let mut wakes = self.wakes.lock().unwrap();
        let before = *wakes;
        if self.load(index, Ordering::SeqCst) as u32 != seen as u32 {
            return;
        }
        while *wakes == before {
            wakes = self.woken.wait(wakes).unwrap();
        }
    }
    fn wake(&self, _: usize) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// One process: its table, and its index.
#[derive(Clone)]
struct Process {
    table: Arc<Table<Model>>,
    me: OwnerIx,
}

impl Process {
    fn all<const N: usize>() -> [Process; N] {
        let model = Model {
            seen: (0..SEEN).map(|_| AtomicU64::new(0)).collect(),
            unseen: (SEEN..WORDS).map(|_| 0.into()).collect(),
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        };
        let table = Arc::new(Table::new(model));
        std::array::from_fn(|n| Process { table: table.clone(), me: OwnerIx(n as u32 + 1) })
    }

    fn claim(&self, number: u64) -> Place {
        let sequence = Sequence { number, counts_from_here: false };
        match self.table.claim(self.me, &|_| true, sequence).unwrap() {
            Claimed::At(place) => place,
            other => panic!("{number}: {other:?}"),
        }
    }

    fn waits(&self, number: u64) -> Result<(), OrderError> {
        self.table.await_turn(number, self.me, &|_| true, &|| u64::MAX)
    }

    fn leave(&self, place: Place, number: u64, leaving: Leaving) {
        self.table.leave(self.me, &|_| true, place, number, leaving).unwrap();
    }
}

/// Schedules in which each thread is as likely at each access, and such with few preemptions at any place.
fn explore(body: fn()) {
    Runner::new(RandomScheduler::new_from_seed(15, SCHEDULES), Config::default()).run(body);
    Runner::new(PctScheduler::new_from_seed(15, 3, SCHEDULES), Config::default()).run(body);
}

#[test]
fn turns_come_in_every_schedule() {
    explore(|| {
        let done = Arc::new(Mutex::new(Vec::new()));
        let threads = Process::all::<3>().into_iter().zip([2, 0, 1]).map(|(process, number)| {
            let done = done.clone();
            thread::spawn(move || {
                let place = process.claim(number);
                process.waits(number).unwrap();
                done.lock().unwrap().push(number);
                process.leave(place, number, Leaving::Done);
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*done.lock().unwrap(), [0, 1, 2]);
    });
}

#[test]
fn one_that_loses_is_waited_for_and_one_that_gives_up_is_told() {
    explore(|| {
        for (leaving, may_fail) in [(Leaving::Lost, false), (Leaving::GivenUp, true)] {
            let [first, second] = Process::all();
            let waits = thread::spawn(move || {
                let place = second.claim(1);
                match second.waits(1) {
                    Ok(()) => second.leave(place, 1, Leaving::Done),
                    Err(error) => {
                        assert_eq!((error, may_fail), (OrderError::Gone { number: 0 }, true));
                        second.leave(place, 1, Leaving::GivenUp);
                    }
                }
            });
            let place = first.claim(0);
            first.leave(place, 0, leaving);
            let place = first.claim(0);
            first.waits(0).unwrap();
            first.leave(place, 0, Leaving::Done);
            waits.join().unwrap();
        }
    });
}
