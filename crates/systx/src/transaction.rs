//! One transaction: its begin, its two ends, and its file calls.

use crate::actions::Ending;
use crate::dir::Dir;
use crate::error::{Error, Failed};
use crate::kernel::{committing, Kernel};
use crate::mutant::{self, Mutant};
use crate::noted::Noted;
use crate::options::Options;
use crate::order::Turn;
use crate::outcome::Committed;
use crate::paused::{Pausable, Token};
use crate::shared::Shared;
use crate::state::{Again, Carried, Stage, State, Then, Tx};
use std::any::Any;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use systx_engine::transaction::Transaction as Engine;
use systx_os::Os;

/// The mounts and the age that a further try takes over.
#[doc(hidden)]
pub struct Retry(pub(crate) Box<Again>);

/// A transaction. Dropping it aborts it.
///
/// It dereferences to the [`Dir`] that stands for the working directory of the calling thread: a relative path
/// begins there, an absolute one at the thread's root, as in [`std::fs`]. Several threads may use it at once;
/// each call takes effect as a whole.
pub struct Transaction {
    pub(crate) tx: Arc<Tx>,
    /// The working directory, whatever it is at each call.
    here: Dir,
}

impl Transaction {
    /// Has `action` run when the transaction has committed: once, when everything is public, behind those given before.
    ///
    /// It runs in the thread that commits, before [`Transaction::commit`] returns, with nothing locked; it may begin
    /// another transaction. It runs also when the outcome names displaced objects or a pending publication, and not when
    /// it is in doubt. A process that dies before it has come to it takes it along: for a program that must know there is
    /// [`Transaction::on_commit_named`]. If it panics, the other actions run all the same, and the panic goes on
    /// behind them: the transaction has committed.
    ///
    /// # Errors
    /// [`Error::Ended`] and others inside, as of each call.
    pub fn on_commit(&self, action: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.tx.call(|_| {
            self.tx.actions().on_commit(action);
            Ok(())
        })
    }

    /// The same, with a name that is noted beside the log before the commit: if this process or the machine dies when the
    /// transaction has committed and not all of its actions have run,
    /// [`Systx::unfinished_actions`](crate::Systx::unfinished_actions) and `systx log` tell of it. Nothing is run again.
    ///
    /// A durable commit takes one more sync for the note.
    ///
    /// # Errors
    /// The same.
    pub fn on_commit_named(
        &self,
        name: impl Into<String>,
        action: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.tx.call(|_| {
            self.tx.actions().on_commit_named(name.into(), action);
            Ok(())
        })
    }

    /// Has `action` run when the transaction has ended without a commit, before those given before: by
    /// [`Transaction::abort`], a drop, or a commit that fails. Otherwise as [`Transaction::on_commit`].
    ///
    /// With [`Systx::atomically`](crate::Systx::atomically) each try is a transaction with actions of its own.
    ///
    /// # Errors
    /// The same.
    pub fn on_abort(&self, action: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.tx.call(|_| {
            self.tx.actions().on_abort(action);
            Ok(())
        })
    }

    /// Stops it until [`Systx::resume`](crate::Systx::resume): meanwhile calls on it and its handles fail.
    ///
    /// Only threads that have taken part in it can resume it. When the last of them has ended, or the last
    /// [`Systx`](crate::Systx) is dropped, it is aborted. It holds nothing that others wait for.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::NotPaused`] if no [`Systx`](crate::Systx) is left, and what has doomed it: it is aborted then.
    pub fn pause(self) -> Result<Token, Error> {
        self.tx.shared.is_ours()?;
        let paused = self.tx.shared.paused.upgrade().ok_or(Error::NotPaused)?;
        self.tx
            .call(|calling| {
                calling.state.is_paused = true;
                calling.state.engine.defer();
                Ok(())
            })
            .map_err(|error| Error::of(&error).cloned().unwrap_or(Error::Ended))?;
        let os = &self.tx.shared.os;
        let token = Token::new([os.random(), os.random()]);
        paused.put(&token, Box::new(self));
        Ok(token)
    }

    /// Goes on. It was taken out for that.
    pub(crate) fn resume(self) -> Result<Transaction, Error> {
        self.tx.with(|state| state.is_paused = false).ok_or(Error::Ended)?;
        Ok(self)
    }

    pub(crate) fn begin(
        shared: Arc<Shared>,
        options: &Options,
        again: Option<Box<Again>>,
        then: Then,
    ) -> io::Result<Transaction> {
        let tx = Tx::begin(shared, options, again, then)?;
        let here = Dir::working(tx.clone());
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

    /// Sleeps until something that was read has changed, and ends it, for a further try.
    ///
    /// # Errors
    /// Of watching; it has ended then.
    #[doc(hidden)]
    pub fn wait_try(self) -> io::Result<Option<Retry>> {
        self.wait_for_change().map(|again| again.map(Retry))
    }

    /// Commits; after a conflict with what a further try takes over.
    #[doc(hidden)]
    pub fn commit_try(self) -> Result<Committed, (Error, Option<Retry>)> {
        self.end(Then::Again).map_err(|(error, again)| (error, again.map(Retry)))
    }

    /// Commits. After a conflict the error comes with what a further try takes over, if there is to be one.
    pub(crate) fn end(self, then: Then) -> Result<Committed, (Error, Option<Box<Again>>)> {
        let mut state = match self.tx.take() {
            Ok(Stage::Open(state)) => state,
            Ok(Stage::Begun(..)) => return Ok(Committed::default()),
            ended => return Err((ended.err().unwrap_or(Error::Ended), None)),
        };
        if let Some(doomed) = state.doomed.take() {
            return Err(self.lost(state, doomed, then));
        }
        // In the order of their numbers. It holds nothing meanwhile.
        if let Some(Err(error)) = state.turn.as_ref().map(Turn::wait) {
            state.engine.abort();
            self.tx.run_actions(Ending::Aborted);
            return Err((Error::Order(error), None));
        }
        if let Some(alone) = state.alone.take_if(|alone| !alone.still_holds()) {
            return Err(self.lost(state, alone.conflict(), then));
        }
        let mut again = then.again(&mut state);
        let mut turn = match &mut again {
            Some(again) => again.turn.take(),
            None => state.turn.take(),
        };
        let (mounts, carried, allowed) = (state.mounts, state.carried, state.allowed);
        self.tx.shared.watcher.see_to(&mounts);
        let noted = match Noted::write(&state.engine, &mounts, self.tx.actions().names()) {
            Ok(noted) => noted.map(Arc::new),
            Err(error) => {
                state.engine.abort();
                self.tx.run_actions(Ending::Aborted);
                let failed = Failed::new("noting the actions", b"", error);
                return Err((Error::Failed(failed), None));
            }
        };
        let (counts, mark) = (turn.as_ref().map(Turn::counts), noted.clone());
        if counts.is_some() || mark.is_some() {
            state.engine.at_commit_point(move || {
                counts.into_iter().for_each(|counts| counts());
                mark.into_iter().for_each(|noted| noted.mark());
            });
        }
        if mutant::on(Mutant::NumberEarly) {
            turn.take().into_iter().for_each(Turn::pass);
        }
        if mutant::on(Mutant::ActionsEarly) {
            self.tx.run_actions(Ending::Committed);
        }
        let in_call = committing(state.engine.options().durability);
        let committed = Engine::<Kernel>::commit(state.engine);
        drop(in_call);
        match committed {
            Ok(committed) => {
                turn.into_iter().for_each(Turn::pass);
                self.tx.shared.upkeep.after_commit(mounts.into_iter().map(|open| open.domain));
                carried.into_iter().for_each(Carried::move_offset);
                drop(state.outside);
                self.tx.run_actions(Ending::Committed);
                noted.into_iter().for_each(|noted| noted.forget());
                Ok(Committed { allowed, ..committed.into() })
            }
            Err(error) => {
                let error = Error::of_commit(error);
                self.tx.shared.settle_after(&error);
                let ending =
                    if matches!(error, Error::InDoubt(_)) { Ending::InDoubt } else { Ending::Aborted };
                if ending == Ending::Aborted {
                    noted.into_iter().for_each(|noted| noted.forget());
                }
                match &mut again {
                    Some(again) => again.turn = turn,
                    None => turn.into_iter().for_each(Turn::lose),
                }
                drop(state.outside);
                self.tx.run_actions(ending);
                Err((error, again))
            }
        }
    }

    /// Ends it; what the one takes over that does its work again.
    pub(crate) fn end_to_go_on(self) -> Option<Box<Again>> {
        let mut state = self.tx.take_open()?;
        let again = Then::Again.again(&mut state);
        state.engine.abort();
        drop(state.outside);
        self.tx.run_actions(Ending::Aborted);
        again
    }

    /// The end of a transaction that a call has doomed.
    fn lost(&self, mut state: Box<State>, doomed: Error, then: Then) -> (Error, Option<Box<Again>>) {
        let again = then.again(&mut state);
        state.turn.take().into_iter().for_each(Turn::lose);
        lose(state, &doomed);
        self.tx.run_actions(Ending::Aborted);
        (doomed, again)
    }

    /// Aborts after a conflict; what a further try takes over, if there is to be one.
    pub(crate) fn lose(self, conflict: &Error, then: Then) -> Option<Box<Again>> {
        let state = self.tx.take_open()?;
        self.lost(state, conflict.clone(), then).1
    }
}

fn lose(state: Box<State>, error: &Error) {
    match error {
        Error::Conflict(conflict) => state.engine.lose(conflict.of_engine()),
        _ => state.engine.abort(),
    }
}

impl Pausable for Transaction {
    fn has_me(&self) -> bool {
        self.tx.with(|state| state.participants.has_me()).unwrap_or(false)
    }

    fn is_deserted(&self) -> bool {
        self.tx.with(|state| state.participants.are_gone()).unwrap_or(true)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Handles may outlive it. In a child process the staged files are the parent's.
        if let Some(state) = self.tx.take_open() {
            drop(state.turn);
            state.engine.abort();
            drop(state.outside);
            self.tx.run_actions(Ending::Aborted);
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
