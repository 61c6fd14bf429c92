//! Shared memory under a scheduler that explores interleavings, for the tests beside it.
//!
//! [`Model`] is a table whose every access may be preceded by any other thread's; [`Mortal`] is a process of it that
//! dies after a given number of accesses. Orderings weaker than sequential consistency are not explored: the
//! scheduler has none.

use crate::id::{Footprint, Lsn, ObjectId, OwnerIx, Signature, TxId};
use shuttle::rand::Rng;
use shuttle::sync::atomic::AtomicU64;
use shuttle::sync::{Condvar, Mutex};
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use systx_os::Words;

use crate::domain::slots::{Place, SlotInfo};

/// How a [`Model`] differs from a machine, on purpose.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// `wake` does nothing.
    pub no_wake: bool,
    /// Stores that do not happen.
    pub swallow: Option<fn(usize, u64) -> bool>,
    /// Words whose accesses are no points to switch at, so that more schedules differ where it matters.
    pub quiet: Option<fn(usize) -> bool>,
}

/// One word: seen by the scheduler, or not.
enum Word {
    Loud(AtomicU64),
    Quiet(std::sync::atomic::AtomicU64),
}

macro_rules! on_word {
    ($word:expr, $call:ident($($argument:expr),*)) => {
        match $word {
            Word::Loud(word) => word.$call($($argument),*),
            Word::Quiet(word) => word.$call($($argument),*),
        }
    };
}

/// Whether waits time out. Where they do not, a lost wake-up is a deadlock, which the scheduler reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    TimesOut,
    Endless,
}

/// Shared memory in which each access is a point where another thread may go first.
pub struct Model {
    words: Vec<Word>,
    patience: Patience,
    /// How often each word was woken.
    wakes: Mutex<Vec<u64>>,
    woken: Condvar,
    faults: Faults,
    alive: Vec<AtomicBool>,
    /// Process in the critical section, as the test sees it.
    pub inside: AtomicU32,
}

impl Model {
    pub fn new(words: usize, patience: Patience, faults: Faults) -> Arc<Model> {
        let word = |i| match faults.quiet {
            Some(quiet) if quiet(i) => Word::Quiet(0.into()),
            _ => Word::Loud(AtomicU64::new(0)),
        };
        Arc::new(Model {
            words: (0..words).map(word).collect(),
            patience,
            wakes: Mutex::new(vec![0; words]),
            woken: Condvar::new(),
            faults,
            alive: (0..8).map(|_| AtomicBool::new(true)).collect(),
            inside: AtomicU32::new(0),
        })
    }
    pub fn alive(&self, owner: OwnerIx) -> bool {
        self.alive[owner.0 as usize].load(Ordering::SeqCst)
    }
    pub fn revive(&self, owner: OwnerIx) {
        self.alive[owner.0 as usize].store(true, Ordering::SeqCst);
    }
    /// Runs `life` as process `owner`, which dies before a random access among the next `accesses`, or not at all.
    /// `None`: died.
    pub fn mortal<R>(&self, owner: OwnerIx, accesses: u32, life: impl FnOnce(&Mortal<'_>) -> R) -> Option<R> {
        let mortal =
            Mortal { mem: self, left: Cell::new(shuttle::rand::thread_rng().gen_range(0..accesses)) };
        let lived = catch_unwind(AssertUnwindSafe(|| life(&mortal)));
        match lived {
            Ok(result) => Some(result),
            Err(cause) if cause.is::<Died>() => {
                self.alive[owner.0 as usize].store(false, Ordering::SeqCst);
                None
            }
            Err(cause) => resume_unwind(cause),
        }
    }
}

impl Words for Model {
    fn len(&self) -> usize {
        self.words.len()
    }
    fn load(&self, index: usize, _: Ordering) -> u64 {
        on_word!(&self.words[index], load(Ordering::SeqCst))
    }
    fn store(&self, index: usize, value: u64, _: Ordering) {
        if !self.faults.swallow.is_some_and(|swallows| swallows(index, value)) {
            on_word!(&self.words[index], store(value, Ordering::SeqCst));
        }
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        on_word!(&self.words[index], compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst))
    }
    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        on_word!(&self.words[index], fetch_or(bits, Ordering::SeqCst))
    }
    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        on_word!(&self.words[index], fetch_add(n, Ordering::SeqCst))
    }
    fn wait(&self, index: usize, seen: u64, _timeout_ns: u64) {
        if self.patience == Patience::TimesOut {
            return shuttle::thread::yield_now();
        }
        let mut wakes = self.wakes.lock().unwrap();
        let before = wakes[index];
        if on_word!(&self.words[index], load(Ordering::SeqCst)) as u32 != seen as u32 {
            return;
        }
        while wakes[index] == before {
            wakes = self.woken.wait(wakes).unwrap();
        }
    }
    fn wake(&self, index: usize) {
        if !self.faults.no_wake {
            self.wakes.lock().unwrap()[index] += 1;
            self.woken.notify_all();
        }
    }
}

struct Died;

/// A process that dies at an access: see [`Model::mortal`].
pub struct Mortal<'m> {
    mem: &'m Model,
    left: Cell<u32>,
}

impl Mortal<'_> {
    fn step(&self) -> &Model {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => resume_unwind(Box::new(Died)),
        }
        self.mem
    }
}

impl Words for Mortal<'_> {
    fn len(&self) -> usize {
        self.mem.len()
    }
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.step().load(index, order)
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.step().store(index, value, order);
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        self.step().compare_exchange(index, current, new)
    }
    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        self.step().fetch_or(index, bits)
    }
    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        self.step().fetch_add(index, n)
    }
    fn wait(&self, index: usize, seen: u64, timeout_ns: u64) {
        self.step().wait(index, seen, timeout_ns);
    }
    fn wake(&self, index: usize) {
        self.step().wake(index);
    }
}

/// Plain memory for tests of one thread.
pub struct Plain(Vec<std::sync::atomic::AtomicU64>);

impl Plain {
    pub fn new(words: usize) -> Plain {
        Plain((0..words).map(|_| 0.into()).collect())
    }
}

impl Words for Plain {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        self.0[index].compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        self.0[index].fetch_or(bits, Ordering::AcqRel)
    }
    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        self.0[index].fetch_add(n, Ordering::AcqRel)
    }
    fn wait(&self, _: usize, _: u64, _: u64) {}
    fn wake(&self, _: usize) {}
}

/// Returns a signature that shows in every word which `n` it was made from.
pub fn signature_of(n: u64) -> Signature {
    Signature(core::array::from_fn(|i| n << 8 | i as u64))
}

/// A set of one object.
pub fn only(object: ObjectId) -> Signature {
    [object].into_iter().collect()
}

/// A slot whose every field is made from `n`.
pub fn info_of(n: u64) -> SlotInfo {
    SlotInfo {
        lsn: Lsn(n),
        tx: TxId(n + 1000),
        owner: OwnerIx(n as u32 % 7 + 1),
        pid: n as u32 + 5,
        durable: n % 2 == 0,
        multi_domain: n % 3 == 0,
        redo: n % 5 == 0,
        body: Place([n * 3, n * 5]),
        footprint: Footprint {
            read: signature_of(n),
            written: signature_of(n + 100),
            commuting: signature_of(n + 200),
        },
    }
}
