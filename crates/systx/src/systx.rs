//! The way into transactions: what a process keeps between them.
//!
//! Owns: [`Systx`], the file systems that it has opened, and the retries of [`Systx::atomically`].
//! Guarantees: an area is opened (and what a dead process has left in it finished) when a transaction first
//! touches its file system, and stays open as long as this value.

use crate::error::Error;
use crate::noted::{self, unfinished, Unfinished};
use crate::options::Options;
use crate::outcome::Committed;
use crate::participants;
use crate::paused::{Paused, Token};
use crate::served::Open;
use crate::shared::Shared;
use crate::state::Then;
use crate::transaction::{Retry, Transaction};
use crate::watcher::Watcher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use systx_os::outside;

/// Transactions of this process.
///
/// Cheap to clone; clones share everything. Make one when the program starts. Dropping the last one makes the
/// checkpoints that are still waited with.
#[derive(Clone)]
pub struct Systx {
    pub(crate) shared: Arc<Shared>,
    paused: Arc<Paused>,
}

impl Systx {
    /// Transactions of the user that the calling thread acts for. Nothing is opened yet.
    ///
    /// # Errors
    /// Of reading the mount table in /proc.
    pub fn new() -> io::Result<Systx> {
        Systx::builder().build()
    }

    /// For one that is not as [`Systx::new`] makes it.
    pub fn builder() -> Builder {
        Builder { area: systx_places::AREA.to_vec(), watcher: Watcher::Found }
    }

    /// Makes one with areas of another name than the usual, for tests.
    ///
    /// # Errors
    /// As of [`Systx::new`].
    #[doc(hidden)]
    pub fn with_area_name(name: impl AsRef<[u8]>) -> io::Result<Systx> {
        Systx::builder().area_name(name).build()
    }

    /// Begins a transaction. In a thread that acts for another user each call in it, and the commit of one that has
    /// touched something, is [`Error::OtherUser`].
    ///
    /// # Errors
    /// [`Error::Forked`] in a child of the process that made this value; [`Error::Order`].
    pub fn begin(&self, options: &Options) -> io::Result<Transaction> {
        Transaction::begin(self.shared.clone(), options, None, Then::Over)
    }

    /// Goes on with a transaction that was paused. The token is used up.
    ///
    /// # Errors
    /// [`Error::NotPaused`], [`Error::NoParticipant`] (the transaction stays paused), [`Error::Forked`],
    /// [`Error::OtherUser`].
    pub fn resume(&self, token: &Token) -> Result<Transaction, Error> {
        self.shared.is_ours()?;
        // Nothing else is put there.
        let paused = self.paused.take(token)?.into_any().downcast::<Transaction>();
        paused.map_err(|_| Error::NotPaused)?.resume()
    }

    /// Begins a transaction that is begun again after a conflict, or that try.
    ///
    /// # Errors
    /// As of [`Systx::begin`].
    #[doc(hidden)]
    pub fn begin_try(&self, options: &Options, before: Option<Retry>) -> io::Result<Transaction> {
        self.shared.is_ours()?;
        Transaction::begin(self.shared.clone(), options, before.map(|before| before.0), Then::Again)
    }

    /// The transactions on the file system of a directory that have committed, whose named actions
    /// ([`Transaction::on_commit_named`]) are not known to have run, as their process, or the machine, has died.
    ///
    /// # Errors
    /// Of looking there.
    pub fn unfinished_actions(&self, dir: impl AsRef<Path>) -> io::Result<Vec<Unfinished>> {
        self.open_at(dir.as_ref())?.map_or_else(|| Ok(Vec::new()), |open| Ok(unfinished(&open.domain)?))
    }

    /// Says that the program has done what was left of one of those: it is told no more.
    ///
    /// # Errors
    /// The same.
    pub fn forget_actions(&self, dir: impl AsRef<Path>, one: &Unfinished) -> io::Result<()> {
        self.open_at(dir.as_ref())?.map_or(Ok(()), |open| Ok(noted::forget(&open.domain, one)?))
    }

    /// The file system of a directory, if it is served.
    fn open_at(&self, dir: &Path) -> io::Result<Option<Open>> {
        self.shared.is_ours()?;
        let dir = std::fs::File::open(dir)?.into();
        let (_, _, mount) = outside::key_of(&dir)?;
        let site = self.shared.served.table()?.site(self.shared.uid, &outside::path_of(&dir)?, mount);
        Ok(site.map(|site| self.shared.served.open(&site)).transpose()?.flatten())
    }

    /// Makes the checkpoints that are waited with.
    #[doc(hidden)]
    pub fn finish(&self) {
        if !self.shared.is_forked() {
            self.shared.upkeep.finish();
        }
    }

    /// Checks that the calling thread acts for the user whose transactions these are.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::OtherUser`].
    #[doc(hidden)]
    pub fn is_for_caller(&self) -> Result<(), Error> {
        self.shared.is_ours()
    }

    /// Returns true if both share everything.
    #[doc(hidden)]
    pub fn is(&self, other: &Systx) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns true in a child of the process that made this value.
    #[doc(hidden)]
    pub fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }

    /// Runs `work` as a transaction and commits it; after a conflict again, as often as the options say, the
    /// later tries with priority over younger transactions.
    ///
    /// If `work` fails otherwise, the transaction is aborted and the error returned. `work` should do nothing
    /// outside of the transaction that must not happen twice.
    ///
    /// # Errors
    /// Those of `work`; those of [`Transaction::commit`], as [`io::Error`]s.
    pub fn atomically<T, E: From<io::Error>>(
        &self,
        options: &Options,
        work: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.atomically_with_outcome(options, work).map(|(value, _)| value)
    }

    /// Does as [`Systx::atomically`], and returns the report of the commit, too.
    ///
    /// # Errors
    /// The same.
    pub fn atomically_with_outcome<T, E: From<io::Error>>(
        &self,
        options: &Options,
        mut work: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let mut tries_left = options.retries;
        let mut before = None;
        loop {
            let then = if tries_left > 0 { Then::Again } else { Then::Over };
            let tx = Transaction::begin(self.shared.clone(), options, before.take(), then)?;
            let done = work(&tx);
            // A conflict that the work has met ends the try, also if the work has swallowed it.
            let ended = match (done, tx.conflict()) {
                (Err(_), None) if tx.waits_for_change() => {
                    before = tx.wait_for_change()?;
                    continue;
                }
                (Err(error), None) => return Err(error),
                (Ok(value), None) => tx.end(then).map(|committed| (value, committed)),
                (_, Some(conflict)) => {
                    let again = tx.lose(&conflict, then);
                    Err((conflict, again))
                }
            };
            match ended {
                Ok(done) => return Ok(done),
                Err((error, again)) if error.is_conflict() && again.is_some() => {
                    tries_left -= 1;
                    before = again;
                }
                Err((error, _)) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

/// How a [`Systx`] is to be made.
#[derive(Clone, Debug)]
#[must_use = "it makes nothing before `build`"]
pub struct Builder {
    area: Vec<u8>,
    watcher: Watcher,
}

impl Builder {
    /// Sets the program that finishes for this process if it is killed.
    pub fn watcher(mut self, watcher: Watcher) -> Builder {
        self.watcher = watcher;
        self
    }

    /// Sets another name of areas than the usual, for tests.
    #[doc(hidden)]
    pub fn area_name(mut self, name: impl AsRef<[u8]>) -> Builder {
        self.area = name.as_ref().to_vec();
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// As of [`Systx::new`].
    pub fn build(self) -> io::Result<Systx> {
        let paused = Arc::default();
        let shared = Shared::new(&self.area, self.watcher, &paused)?;
        participants::watch(&paused);
        Ok(Systx { shared: Arc::new(shared), paused })
    }
}

impl std::fmt::Debug for Systx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Systx").finish_non_exhaustive()
    }
}
