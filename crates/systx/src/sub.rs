//! Subtransactions: a part of a transaction that is undone alone.
//!
//! Owns: [`Sub`]. Guarantees: after it is undone, files, offsets of
//! handles and actions are as they were at its begin; handles that it has opened say that they have ended. What it has
//! read stays read. Does not: isolate threads: what another one does in the transaction meanwhile is part of it.

use crate::actions::{Ending, Mark};
use crate::handles::Birth;
use crate::mutant::{self, Mutant};
use crate::transaction::Transaction;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// An offset, and what it was.
type Offset = (Arc<Mutex<u64>>, u64);

fn offset(of: &Mutex<u64>) -> std::sync::MutexGuard<'_, u64> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a transaction. Dropping it undoes what was done since its begin, and only that.
///
/// It dereferences to its transaction, so that calls are made on either; a part of a part is
/// [`Transaction::sub`] once more. It is in memory: all of it becomes public with the transaction or not at all.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// # let systx = systx::Systx::new()?;
/// let tx = systx.begin(&systx::Options::new())?;
/// tx.write("/srv/app/version", "2")?;
/// let part = tx.sub()?;
/// part.remove_dir_all("/srv/app/cache")?;
/// if part.try_exists("/srv/app/keep-cache")? {
///     drop(part);
/// } else {
///     part.commit()?;
/// }
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a part that is dropped is undone"]
pub struct Sub<'t> {
    tx: &'t Transaction,
    /// `None`: it has ended.
    part: Option<Part>,
}

struct Part {
    savepoint: u64,
    begin: Birth,
    actions: Mark,
    offsets: Vec<Offset>,
}

impl Transaction {
    /// Begins a part that can be undone alone.
    ///
    /// While a part is open, removed objects and the former bytes of changed files are kept, and take room.
    ///
    /// # Errors
    /// As of each call.
    pub fn sub(&self) -> io::Result<Sub<'_>> {
        let (savepoint, begin, watched) = self.tx.call(|calling| {
            let savepoint = calling.state.engine.savepoint()?;
            let handles = &mut calling.state.handles;
            Ok((savepoint, handles.step(), handles.offsets()))
        })?;
        // Without the transaction's lock, for which a thread may wait with one of these.
        let offsets = watched.into_iter().map(|shared| (shared.clone(), *offset(&shared))).collect();
        let actions = self.tx.actions().mark();
        Ok(Sub { tx: self, part: Some(Part { savepoint, begin, actions, offsets }) })
    }
}

impl Sub<'_> {
    /// Makes what was done since its begin a part of the transaction like everything else.
    ///
    /// # Errors
    /// [`Error::Ended`](crate::Error::Ended) inside if the part around it has ended before; others as of each call.
    pub fn commit(mut self) -> io::Result<()> {
        let Some(part) = self.part.take() else { return Ok(()) };
        self.tx.tx.call(|calling| {
            calling.state.ends_savepoint(part.savepoint, |engine, savepoint| engine.release(savepoint))
        })
    }

    /// Undoes what was done since its begin. Actions of an abort that were given since run; those of a commit are
    /// forgotten.
    ///
    /// # Errors
    /// As of each call; where a part could not be undone the transaction can't commit.
    pub fn abort(mut self) -> io::Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> io::Result<()> {
        let Some(part) = self.part.take() else { return Ok(()) };
        let tx = &self.tx.tx;
        tx.call(|calling| {
            calling.state.handles.undo_since(part.begin);
            calling.state.close_undone();
            calling.state.ends_savepoint(part.savepoint, |engine, savepoint| engine.undo_to(savepoint))
        })?;
        for (shared, before) in &part.offsets {
            *offset(shared) = *before;
        }
        if mutant::on(Mutant::ActionsOfUndoneStay) {
            return Ok(());
        }
        let actions = tx.actions().since(part.actions);
        actions.run(Ending::Aborted);
        Ok(())
    }
}

/// A part that is open, apart from its transaction: for the C interface.
#[doc(hidden)]
pub struct OpenPart(Part);

impl<'t> Sub<'t> {
    /// Leaves it open.
    #[doc(hidden)]
    pub fn leave(mut self) -> Option<OpenPart> {
        self.part.take().map(OpenPart)
    }

    /// Goes on with one that was left open in this transaction.
    #[doc(hidden)]
    pub fn of(tx: &'t Transaction, part: OpenPart) -> Sub<'t> {
        Sub { tx, part: Some(part.0) }
    }
}

impl Drop for Sub<'_> {
    fn drop(&mut self) {
        // A transaction that can't go on is undone as a whole; so is one of which a part could not be.
        let _ = self.undo();
    }
}

impl Deref for Sub<'_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.tx
    }
}

impl std::fmt::Debug for Sub<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sub").finish_non_exhaustive()
    }
}
