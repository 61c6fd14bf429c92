//! Paused transactions.
//!
//! Owns: the paused transactions of one [`crate::Systx`], by token. Guarantees: a token resumes its transaction once,
//! in a thread that has taken part in it; what nobody can resume any more is aborted. A paused transaction holds what
//! an open one does: nothing that others wait for. Does not: pause threads.

use crate::error::Error;
use crate::mutant::{self, Mutant};
use std::any::Any;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
        if transaction.is_deserted() {
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
