//! A transaction that C has begun.

use crate::border::Answer;
use crate::numbers::refusal;
use crate::options::Begin;
use crate::outcome::Outcome;
use crate::world::{held, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use systx::posix::{Errno, Retry};
use systx::{Dir, Systx, Transaction};

pub struct Running {
    /// The working directory, whatever it is at each call.
    pub here: Dir,
    /// `None`: it has ended.
    tx: Mutex<Option<Transaction>>,
    /// It can only end: an inner begin was aborted, or a call has failed for a bug.
    doomed: AtomicBool,
    /// The one it is of.
    systx: Systx,
    /// After a conflict it is begun again.
    again: bool,
    /// It has numbers.
    opened: AtomicBool,
}

/// The state that a further try takes over.
pub struct Again {
    systx: Systx,
    retry: Retry,
}

/// The way in which a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Commit,
    Abort,
}

impl Running {
    pub fn begin(world: &World, begin: &Begin, before: Option<Again>) -> Answer<Arc<Running>> {
        let before = Mutex::new(before);
        let (systx, tx) = world
            .systx(|systx| {
                if !begin.again {
                    return systx.begin(&begin.options);
                }
                // What was taken over is of use only where it comes from.
                let retry = held(&before).take_if(|again| again.systx.is(systx)).map(|again| again.retry);
                systx.begin_try(&begin.options, retry)
            })
            .map_err(refusal)?;
        let here = (*tx).clone();
        Ok(Arc::new(Running {
            here,
            tx: Mutex::new(Some(tx)),
            doomed: AtomicBool::default(),
            systx,
            again: begin.again,
            opened: AtomicBool::default(),
        }))
    }

    /// # Errors
    /// `ECANCELED`: it can only end.
    pub fn goes_on(&self) -> Answer<()> {
        if self.doomed.load(Ordering::Acquire) {
            return Err(Errno::CANCELED);
        }
        Ok(())
    }

    /// Returns true if it can't commit any more.
    pub fn is_lost(&self) -> bool {
        self.goes_on().is_err() || held(&self.tx).as_ref().is_none_or(|tx| tx.conflict().is_some())
    }

    /// Lets it do nothing but end.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    pub fn check(&self) -> Answer<()> {
        self.goes_on()?;
        held(&self.tx).as_ref().map_or(Err(Errno::CANCELED), |tx| tx.check().map_err(refusal))
    }

    /// The report on one that has not ended.
    pub fn outcome(&self) -> Outcome {
        let conflict = held(&self.tx).as_ref().and_then(|tx| tx.conflict());
        match conflict {
            Some(conflict) => Outcome::of_error(&conflict),
            None if self.goes_on().is_err() => Outcome::aborted(),
            None => Outcome::running(),
        }
    }

    /// A number is to be its.
    pub fn has_opened(&self) {
        self.opened.store(true, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        held(&self.tx).is_none()
    }

    /// Ends it, and gives back its numbers.
    pub fn end(self: &Arc<Running>, world: &World, end: End) -> (Outcome, Option<Again>) {
        let tx = held(&self.tx).take();
        let ended = match tx {
            None => (Outcome::aborted(), None),
            Some(tx) => self.end_of(tx, end),
        };
        if self.opened.load(Ordering::Acquire) {
            world.numbers.close_all_of(self);
        }
        ended
    }

    fn end_of(&self, tx: Transaction, end: End) -> (Outcome, Option<Again>) {
        // One that has met a conflict can't commit, and ends as one that has lost.
        let conflict = tx.conflict().is_some();
        if !conflict && (end == End::Abort || self.goes_on().is_err()) {
            tx.abort();
            return (Outcome::aborted(), None);
        }
        let committed = if self.again { tx.commit_try() } else { tx.commit().map_err(|error| (error, None)) };
        match committed {
            Ok(committed) => (Outcome::of_commit(&committed), None),
            Err((error, retry)) => {
                let again = retry.filter(|_| error.is_conflict());
                let again = again.map(|retry| Again { systx: self.systx.clone(), retry });
                (Outcome::of_error(&error), again)
            }
        }
    }
}
