//! Waiting until something that a transaction has read changes.
//!
//! Owns: [`Transaction::retry`] and the wait behind it. Guarantees: a change that a commit would find wakes it, if the
//! kernel tells of it: there is no polling. Does not: notice what the kernel tells nobody of, which is a store into a
//! mapped file, and changes by other machines on a network file system.

use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::state::Again;
use crate::transaction::Transaction;
use std::io;
use systx_os::notice::Notices;

impl Transaction {
    /// Says that the transaction can do nothing before something changes that it has read: the error to return from the
    /// work of [`Systx::atomically`](crate::Systx::atomically), which then forgets what was done, sleeps until there
    /// is such a change, by a transaction or by any other program, and begins again. That is no try that was lost.
    ///
    /// A store into a mapped file is no change that the kernel tells of.
    ///
    /// # Errors
    /// Always: [`Error::Retry`] inside, or why no call can be made.
    pub fn retry<T>(&self) -> io::Result<T> {
        self.tx.call(|calling| {
            calling.state.waits_for_change = true;
            Ok(())
        })?;
        Err(Error::Retry.into())
    }

    pub(crate) fn waits_for_change(&self) -> bool {
        self.tx.with(|state| state.waits_for_change).unwrap_or(false)
    }

    /// Sleeps until something that was read has changed, and ends it.
    ///
    /// # Errors
    /// `ENOSPC` and `EMFILE` if the user has as many watches as are allowed; of looking at what was read.
    pub(crate) fn wait_for_change(self) -> io::Result<Option<Box<Again>>> {
        let notices = Notices::new()?;
        // It may sleep for long, so that none of those that might wake it waits for it.
        self.tx.with(|state| state.engine.defer());
        // Looked at after the watches stand, so that no change falls between the two.
        self.tx.call(|calling| Ok(calling.state.engine.each_read(&mut |fd| notices.watch(&**fd))?))?;
        if mutant::on(Mutant::WatchesUnchecked) {
            notices.wait()?;
        }
        loop {
            let looked = self.tx.call(|calling| Ok(calling.state.engine.still_true()?));
            match looked {
                Ok(()) => notices.wait()?,
                Err(error) if Error::of(&error).is_some_and(Error::is_conflict) => {
                    return Ok(self.end_to_go_on());
                }
                Err(error) => return Err(error),
            }
        }
    }
}
