//! One transaction: its begin, its two ends, and its file calls.

use crate::dir::Dir;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::options::Options;
use crate::outcome::Committed;
use crate::shared::Shared;
use crate::state::{Again, State, Then, Tx};
use crate::walk::Start;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use systx_engine::transaction::Transaction as Engine;

/// A transaction. Dropping it aborts it.
///
/// It dereferences to the [`Dir`] that stands for the working directory of the calling thread: a relative path
/// begins there, an absolute one at the thread's root, as in [`std::fs`]. Several threads may use it at once;
/// each call takes effect as a whole.
pub struct Transaction {
    tx: Arc<Tx>,
    /// The working directory, whatever it is at each call.
    here: Dir,
}

impl Transaction {
    pub(crate) fn begin(
        shared: Arc<Shared>,
        options: &Options,
        again: Option<Again>,
        then: Then,
    ) -> io::Result<Transaction> {
        let tx = Tx::begin(shared, options, again, then)?;
        let here = Dir::new(tx.clone(), Start::WorkingDirectory);
        Ok(Transaction { tx, here })
    }

    /// Makes everything that was done public at once.
    ///
    /// # Errors
    /// [`Error`]; but for [`Error::InDoubt`] nothing was changed.
    pub fn commit(self) -> Result<Committed, Error> {
        self.end(Then::Over).map_err(|(error, _)| error)
    }

    /// Forgets everything that was done.
    pub fn abort(self) {
        drop(self);
    }

    /// The conflict that the transaction has met, if it has: it can only end.
    pub fn conflict(&self) -> Option<Error> {
        self.tx.conflict()
    }

    /// Checks now that everything read is still as it was, as far as a commit at this moment would find.
    ///
    /// # Errors
    /// [`Error::Conflict`] inside; the transaction can only end then.
    pub fn check(&self) -> io::Result<()> {
        self.tx.call(|calling| Ok(calling.state.engine.still_true()?))
    }

    /// Commits. After a conflict the error comes with what a further try takes over, if there is to be one.
    pub(crate) fn end(self, then: Then) -> Result<Committed, (Error, Option<Again>)> {
        let mut state = match self.tx.take() {
            Ok(Some(state)) => state,
            Ok(None) => return Err((Error::Ended, None)),
            Err(error) => return Err((error, None)),
        };
        let again = then.again(&mut state);
        if let Some(doomed) = state.doomed.take() {
            lose(state, &doomed);
            return Err((doomed, again));
        }
        // Without a sync it waits for nothing, as any other call.
        let loose = state.engine.options().durability == systx_engine::outcome::Durability::None;
        let in_call = loose.then(Kernel::in_call);
        let committed = Engine::<Kernel>::commit(state.engine);
        drop(in_call);
        let committed = committed.map_err(|error| {
            let error = Error::of_commit(error);
            self.tx.shared.settle_after(&error);
            (error, again)
        })?;
        self.tx.shared.upkeep.after_commit(state.mounts.into_iter().map(|open| open.domain));
        Ok(committed.into())
    }

    /// Aborts after a conflict; what a further try takes over, if there is to be one.
    pub(crate) fn lose(self, conflict: &Error, then: Then) -> Option<Again> {
        let mut state = self.tx.take().ok().flatten()?;
        let again = then.again(&mut state);
        lose(state, conflict);
        again
    }
}

fn lose(state: State, error: &Error) {
    match error {
        Error::Conflict(conflict) => state.engine.lose(conflict.of_engine()),
        _ => state.engine.abort(),
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Handles may outlive it. In a child process the staged files are the parent's.
        if let Ok(Some(state)) = self.tx.take() {
            state.engine.abort();
        }
    }
}

impl Deref for Transaction {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.here
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
