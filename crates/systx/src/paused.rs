//! Paused transactions.
//!
//! Owns: the paused transactions of one [`crate::Systx`], by token. Guarantees: a token resumes its transaction once,
//! in a thread that has taken part in it; what nobody can resume any more is aborted. A paused transaction holds what
//! an open one does: nothing that others wait for. Does not: pause threads.

use crate::error::Error;
use crate::mutant::{self, Mutant};
#[cfg(test)]
use shuttle::sync::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::PoisonError;
#[cfg(not(test))]
use std::sync::{Mutex, MutexGuard};

/// Names a paused transaction, to [`Systx::resume`](crate::Systx::resume) it once.
#[derive(Debug, PartialEq, Eq)]
pub struct Token(u128);

impl Token {
    /// One that nobody can guess.
    pub(crate) fn new(random: [u64; 2]) -> Token {
        Token(u128::from(random[0]) << 64 | u128::from(random[1]))
    }

    /// Returns the number behind it, for interfaces that hand out numbers.
    pub fn to_bits(&self) -> u128 {
        self.0
    }

    /// The token with this number. One that was not handed out resumes nothing.
    pub fn from_bits(bits: u128) -> Token {
        Token(bits)
    }
}

/// A transaction, as far as its pause goes.
pub(crate) trait Pausable: Any + Send {
    /// Returns true if the calling thread has taken part in it.
    fn has_me(&self) -> bool;
    /// Returns true if no thread is left that has taken part in it.
    fn is_deserted(&self) -> bool;
    /// The transaction itself.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

type Transaction = Box<dyn Pausable>;

/// The paused transactions.
#[derive(Default)]
pub(crate) struct Paused(Mutex<HashMap<u128, Transaction>>);

impl Paused {
    fn held(&self) -> MutexGuard<'_, HashMap<u128, Transaction>> {
        // It is changed by whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, token: &Token, transaction: Transaction) {
        let mut held = self.held();
        // Under the lock, under which a thread that ends looks: one of the two sees that nobody is left.
        if transaction.is_deserted() && !mutant::on(Mutant::PutUnlooked) {
            drop(held);
            return drop(transaction);
        }
        held.insert(token.0, transaction);
    }

    /// Takes out what a token names.
    ///
    /// # Errors
    /// [`Error::NotPaused`], [`Error::NoParticipant`].
    pub fn take(&self, token: &Token) -> Result<Transaction, Error> {
        match self.held().entry(token.0) {
            Entry::Vacant(_) => Err(Error::NotPaused),
            Entry::Occupied(entry) if !entry.get().has_me() && !mutant::on(Mutant::StrangersResume) => {
                Err(Error::NoParticipant)
            }
            Entry::Occupied(entry) => Ok(entry.remove()),
        }
    }

    /// Aborts what has no participant left.
    pub fn a_thread_has_ended(&self) {
        if mutant::on(Mutant::DesertedStay) {
            return;
        }
        let mut deserted = Vec::new();
        let mut held = self.held();
        let tokens: Vec<_> =
            held.iter().filter(|(_, tx)| tx.is_deserted()).map(|(token, _)| *token).collect();
        deserted.extend(tokens.iter().filter_map(|token| held.remove(token)));
        drop(held);
        // Actions run here: without the lock.
        drop(deserted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::RandomScheduler;
    use shuttle::sync::atomic::{AtomicUsize, Ordering};
    use shuttle::{thread, Config, Runner};
    use std::sync::Arc;

    /// A transaction with threads that have taken part in it, all of which may resume it.
    struct Fake {
        threads: Arc<AtomicUsize>,
        dropped: Arc<AtomicUsize>,
    }

    impl Pausable for Fake {
        fn has_me(&self) -> bool {
            true
        }
        fn is_deserted(&self) -> bool {
            self.threads.load(Ordering::SeqCst) == 0
        }
        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Under schedules in which another thread may go first at each lock and each look.
    fn explore(body: fn()) {
        Runner::new(RandomScheduler::new_from_seed(15, 5000), Config::default()).run(body);
    }

    fn fake(threads: usize) -> (Arc<Paused>, Box<Fake>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (threads, dropped) = (Arc::new(AtomicUsize::new(threads)), Arc::new(AtomicUsize::new(0)));
        let fake = Box::new(Fake { threads: threads.clone(), dropped: dropped.clone() });
        (Arc::default(), fake, threads, dropped)
    }

    #[test]
    fn what_has_lost_its_last_thread_is_dropped_in_every_schedule() {
        explore(|| {
            let (paused, fake, threads, dropped) = fake(2);
            let ends = |paused: Arc<Paused>, threads: Arc<AtomicUsize>| {
                move || {
                    threads.fetch_sub(1, Ordering::SeqCst);
                    paused.a_thread_has_ended();
                }
            };
            let others = [(); 2].map(|()| thread::spawn(ends(paused.clone(), threads.clone())));
            // A thread that has not taken part pauses it.
            paused.put(&Token(1), fake);
            others.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(dropped.load(Ordering::SeqCst), 1, "it stays behind its last thread");
            assert!(matches!(paused.take(&Token(1)), Err(Error::NotPaused)));
        });
    }

    #[test]
    fn a_token_is_taken_once_in_every_schedule() {
        explore(|| {
            let (paused, fake, threads, dropped) = fake(3);
            paused.put(&Token(1), fake);
            let takes = |paused: Arc<Paused>| move || paused.take(&Token(1)).ok().map(drop).is_some();
            let takers = [(); 2].map(|()| thread::spawn(takes(paused.clone())));
            threads.fetch_sub(1, Ordering::SeqCst);
            paused.a_thread_has_ended();
            let taken = takers.map(|thread| thread.join().unwrap());
            assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 1);
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        });
    }
}
