//! A transaction that C has begun.

use crate::border::{Action, Answer};
use crate::errors::{held, refusal};
use crate::options::Begin;
use crate::outcome::Outcome;
use crate::users::Users;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use systx::posix::{Errno, OpenPart, Retry};
use systx::{Dir, Error, Sub, Systx, Token, Transaction};

/// The process that a transaction is in.
pub trait Home: Sync {
    /// Gives back the numbers of a transaction that has ended.
    fn close_all_of(&self, running: &Arc<Running>);
    /// Returns false in a forked child.
    fn is_here(&self) -> bool;
}

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

/// The age and mounts for a further try.
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
    pub fn begin(users: &Users, begin: &Begin, before: Option<Again>) -> Answer<Arc<Running>> {
        // Else it goes before a number is asked for, which may be its.
        let before = Mutex::new(before.filter(|_| begin.again));
        let (systx, tx) = users
            .systx(|systx| {
                if !begin.again {
                    // Users are told apart by this.
                    systx.is_for_caller()?;
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

    /// A call on the transaction, with nothing locked: actions of the program may run in it. It is this thread's alone.
    fn with<T>(&self, call: impl FnOnce(&Transaction) -> io::Result<T>) -> Answer<T> {
        let tx = held(&self.tx).take().ok_or(Errno::CANCELED)?;
        let answer = call(&tx);
        *held(&self.tx) = Some(tx);
        answer.map_err(refusal)
    }

    /// Begins a part that can be undone alone.
    pub fn begin_part(&self) -> Answer<Option<OpenPart>> {
        self.with(|tx| tx.sub().map(Sub::leave))
    }

    pub fn end_part(&self, part: OpenPart, end: End) -> Answer<()> {
        self.with(|tx| {
            let part = Sub::of(tx, part);
            match end {
                End::Commit => part.commit(),
                End::Abort => part.abort(),
            }
        })
    }

    /// Has an action run at the end.
    pub(crate) fn act(&self, end: End, action: Action) -> Answer<()> {
        self.goes_on()?;
        self.with(|tx| match end {
            End::Commit => tx.on_commit(move || action.run()),
            End::Abort => tx.on_abort(move || action.run()),
        })
    }

    /// Has an action run behind the commit that is noted until then.
    pub(crate) fn act_named(&self, name: String, action: Action) -> Answer<()> {
        self.goes_on()?;
        self.with(|tx| tx.on_commit_named(name, move || action.run()))
    }

    /// Stops it; `Err`: it has ended.
    pub fn pause(&self) -> Result<u128, Outcome> {
        let tx = held(&self.tx).take();
        let paused = tx.ok_or(Error::Ended).and_then(Transaction::pause);
        paused.map(|token| token.to_bits()).map_err(|error| Outcome::of_error(&error))
    }

    /// Goes on, in a thread that has taken part.
    pub fn resume(&self, token: u128) -> Result<(), Error> {
        *held(&self.tx) = Some(self.systx.resume(&Token::from_bits(token))?);
        Ok(())
    }

    /// Sleeps until something that it has read changes, and ends it.
    pub fn wait(self: &Arc<Running>, home: &dyn Home) -> Answer<Option<Again>> {
        let tx = held(&self.tx).take().ok_or(Errno::CANCELED)?;
        let waited = tx.wait_try();
        self.close(home);
        let retry = waited.map_err(refusal)?;
        Ok(retry.map(|retry| Again { systx: self.systx.clone(), retry }))
    }

    /// Gives back its numbers.
    pub fn close(self: &Arc<Running>, home: &dyn Home) {
        if self.opened.load(Ordering::Acquire) {
            home.close_all_of(self);
        }
    }

    /// Ends it, and gives back its numbers.
    pub fn end(self: &Arc<Running>, home: &dyn Home, end: End) -> (Outcome, Option<Again>) {
        let tx = held(&self.tx).take();
        let ended = match tx {
            None => (Outcome::aborted(), None),
            Some(tx) => self.end_of(tx, end),
        };
        self.close(home);
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
