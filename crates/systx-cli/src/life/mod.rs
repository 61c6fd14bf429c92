//! The life of a transaction in which programs run: begin → view → namespaces → serve → end → commit.
//!
//! Owns: the order of these steps, once, for `systx run`, for transactions that stay open, and, as far as
//! they go, for `systx undo`. Guarantees: everything that forks does so before this process has a second
//! thread; pid 1 of the namespaces is gone and reaped, and everything that programs stored has arrived,
//! before the transaction leaves its view. Does not: decide how a transaction ends; its callers do, by what
//! [`Settled`] says.

mod begin;
mod commit;
mod not_started;

pub use begin::{begin, finish_others, options};
pub use commit::{commit, give_up, IfItFails, Stayed};
pub use not_started::{not_executed, not_started};

use crate::args::Policy;
use crate::command;
use crate::failure::{failed, verb_failed, Failure, Result};
use crate::native;
use crate::network::{self, Answering, Watcher};
use crate::report::{Ending, Seen};
use crate::scope::Opened;
use crate::serving::{self, Serving, Unmounting};
use crate::sub;
use crate::supervise::{supervise, Ends, Over};
use crate::tree::Tree;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use systx_engine::transaction::Transaction;
use systx_os::fuse::EventFd;
use systx_os::process::{self, Signals, Terminal};
use systx_os::sandbox::bind;
use systx_os::sandbox::calls::Reception;
use systx_os::sandbox::join::Entry;
use systx_os::sandbox::mounts;
use systx_os::sandbox::spawn::{spawn, Child, Command, News};
use systx_os::sandbox::watch::{Calls, Watch};
use systx_os::{Errno, Linux};
use systx_view::{Trouble, View, Written};

/// Part of our descriptors that may be files and directories of the command; the others are for the commit.
const HELD_PART: u64 = 2;

/// A transaction whose files are served to programs in namespaces of their own.
pub struct Life {
    /// Pid 1 of the namespaces.
    pub child: Child,
    /// Readable when the transaction can't commit any more.
    pub alarm: EventFd,
    /// Rung when no program runs on: calls that wait for an answer may get it.
    silenced: EventFd,
    /// `None` after it could not be started again.
    server: Option<Serving>,
    watcher: Option<Watcher>,
    written: Written,
    views: Arc<Vec<OwnedFd>>,
}

/// The first program in the namespaces.
pub struct Program {
    argv: Vec<CString>,
    env: Vec<CString>,
    directory: CString,
    umask: u32,
}

impl Program {
    /// Returns the user's command, as it runs in transaction `id`.
    pub fn of(words: &[OsString], id: u64) -> Result<Program> {
        Ok(Program {
            argv: command::words(words)?,
            env: command::environment(id, &[])?,
            directory: command::directory()?,
            umask: Linux::new().inherited_umask(),
        })
    }

    /// Returns none: pid 1 waits for programs that come in.
    fn none() -> Program {
        Program { argv: Vec::new(), env: Vec::new(), directory: c"/".into(), umask: 0 }
    }
}

/// The calls of a command that are watched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watching {
    /// Those to peers outside, by a policy.
    pub peers: Option<Policy>,
    /// Those about files, so that the kernel can serve new directories by itself.
    pub files: bool,
}

/// The two ends of the socket at which watched calls arrive.
struct Watched {
    what: Watching,
    ours: Option<Reception>,
    theirs: Option<Watch>,
}

impl Watched {
    fn by(what: Watching) -> Result<Watched> {
        let calls = match (what.peers, what.files) {
            (None, false) => None,
            (None, true) => Some(Calls::Files),
            (Some(_), false) => Some(Calls::Peers),
            (Some(_), true) => Some(Calls::All),
        };
        let (theirs, ours) = calls.map(|calls| network::watch(what.peers, calls)).transpose()?.unzip();
        Ok(Watched { what, ours, theirs })
    }

    /// Returns a second copy of the command's end, for programs that come in later.
    fn copy(&self) -> Result<Option<Watch>> {
        let copy = |watch: &Watch| {
            Ok(Watch {
                to: watch.to.try_clone().map_err(failed("copying a socket"))?,
                network: watch.network,
                calls: watch.calls,
            })
        };
        self.theirs.as_ref().map(copy).transpose()
    }
}

impl Life {
    /// Starts a command in a transaction. A failure aborts the transaction.
    pub fn of_command(
        tx: Transaction<Linux>,
        served: &Opened<'_>,
        program: Program,
        watching: Watching,
        signals: &Signals,
    ) -> Result<Life> {
        Life::start(tx, served, program, Watched::by(watching)?, signals)
    }

    /// Starts namespaces without a command, with the way in for those that come. A failure aborts the transaction.
    pub fn of_guests(
        tx: Transaction<Linux>,
        served: &Opened<'_>,
        network: Option<Policy>,
        signals: &Signals,
    ) -> Result<(Life, Entry)> {
        let watched = Watched::by(Watching { peers: network, files: false })?;
        let for_those_who_come = watched.copy()?;
        let life = Life::start(tx, served, Program::none(), watched, signals)?;
        match life.child.news() {
            Some(News::Ready) => {}
            Some(news) => {
                return Err(match not_started(&[], news) {
                    Ending::Failed(why) | Ending::NotStarted(why, _) => why,
                    _ => "building the tree".into(),
                });
            }
            None => return Err("pid 1 of the namespaces was killed; begin again".into()),
        }
        let entry = Entry::of(&life.child, for_those_who_come).map_err(failed("opening the namespaces"))?;
        Ok((life, entry))
    }

    fn start(
        tx: Transaction<Linux>,
        served: &Opened<'_>,
        program: Program,
        watched: Watched,
        signals: &Signals,
    ) -> Result<Life> {
        let eventfd = || EventFd::new().map_err(failed("making an eventfd"));
        let copied = failed::<Errno>("making an eventfd");
        let (mut view, views) = View::new(tx, served.lower.len()).map_err(|failed| {
            let why = verb_failed(failed.doing, failed.error);
            failed.tx.abort();
            why
        })?;
        served.share(&mut view);
        view.lies_at(served.depth);
        view.answers_on(serving::placing());
        let last = sub::last(&views, view.divided().map_err(&copied)?)?;
        let kept: Result<Vec<_>, _> = views.iter().map(OwnedFd::try_clone).collect();
        let kept = Arc::new(kept.map_err(failed("copying the descriptor of a view"))?);
        let natives = watched.what.files.then(|| natives(served, &kept, &mut view)).transpose()?;
        let Program { argv, env, directory, umask } = program;
        let command = Command {
            argv,
            env,
            directory,
            umask,
            root: command::root(&served.tree, &served.lower, views)?,
            answering: view.answers_from().map(|device| device.as_raw_fd()).collect(),
            watch: watched.theirs,
            last: Some(last),
        };
        let (alarm, silenced) = (view.alarm().map_err(&copied)?, eventfd()?);
        // Before the first thread: this forks.
        let child = spawn(command, signals).map_err(failed("starting a process in new namespaces"))?;
        // The command has its own limit by now.
        if let Ok(limit) = systx_os::linux::raise_nofile_limit() {
            view.hold_files(usize::try_from(limit / HELD_PART).unwrap_or(usize::MAX));
        }
        view.is_for_others();
        view.speak_after(silenced.try_clone().map_err(&copied)?);
        let written = view.written();
        let server = Some(Serving::start(view)?);
        let watcher = watched.ours.map(|reception| {
            let answering = Answering::new(watched.what.peers, reception, &kept, &alarm)?;
            Watcher::start(answering.with(natives), &child)
        });
        let watcher = watcher.transpose()?;
        Ok(Life { child, alarm, silenced, server, watcher, written, views: kept })
    }

    /// Waits for the end of the command, or ends it.
    pub fn supervise(
        &mut self,
        signals: &Signals,
        terminal: Option<&Terminal>,
        too_late: BorrowedFd<'_>,
    ) -> Over {
        let ends = Ends { doomed: self.alarm.as_fd(), too_late, silenced: &self.silenced };
        supervise(&mut self.child, signals, terminal, ends)
    }

    /// Ends every program inside without asking, and waits until pid 1 is gone.
    pub fn silence(&mut self) {
        self.child.silence();
        self.reap();
    }

    /// Ends every program inside, and has pid 1 finish subtransactions that were cut off by that. An error
    /// keeps the transaction from committing.
    pub fn finish(&mut self) -> Result<(), Ending> {
        self.child.finish();
        let finished = self.finished();
        self.reap();
        finished
    }

    fn finished(&self) -> Result<(), Ending> {
        loop {
            let [alarm, _] = process::wait_readable([self.alarm.as_fd(), self.child.talk().as_fd()]);
            if alarm {
                // The reason is in the view's trouble.
                self.child.silence();
                return Ok(());
            }
            match self.child.news() {
                Some(News::Finished) => return Ok(()),
                Some(News::NotFinished) => return Err(not_started(&[], News::NotFinished)),
                Some(_) => {}
                None => return Err(Ending::Failed("pid 1 of its namespaces was killed".into())),
            }
        }
    }

    fn reap(&mut self) {
        self.silenced.ring();
        self.child.reap();
    }

    /// Waits until everything that programs stored through mappings has arrived; false: the alarm came before.
    fn arrived(&self) -> std::io::Result<bool> {
        let done = EventFd::new()?;
        let ring = done.try_clone()?;
        let views = self.views.clone();
        // A failure is reported by the commit.
        let sync = std::thread::Builder::new().name("systx-sync".into()).spawn(move || {
            let _ = mounts::sync(&views);
            ring.ring();
        })?;
        let [_, alarm] = process::wait_readable([done.as_fd(), self.alarm.as_fd()]);
        if alarm {
            // Programs that wait for an answer are killed first; the sync gets one from the view's thread in any case.
            self.child.silence();
            self.silenced.ring();
        }
        let _ = sync.join();
        Ok(!alarm)
    }

    /// Returns true if there is a view.
    pub fn serves(&self) -> bool {
        self.server.is_some()
    }

    /// Asks the transaction something while no program inside is answered. `None`: it can't commit any more,
    /// or there is no view.
    pub fn ask<T>(&mut self, question: impl FnOnce(&mut Transaction<Linux>) -> T) -> Result<Option<T>> {
        if !self.arrived().map_err(failed("waiting for what was written"))? {
            return Ok(None);
        }
        self.look(question)
    }

    /// Asks it something that does not depend on what programs have stored into mappings: that need not have arrived.
    pub fn look<T>(&mut self, question: impl FnOnce(&mut Transaction<Linux>) -> T) -> Result<Option<T>> {
        let Some(server) = self.server.take() else { return Ok(None) };
        let (mut view, served) = server.stop()?;
        let sound = served.is_ok() && view.trouble().is_none();
        let answer = sound.then(|| question(view.transaction()));
        self.server = Some(Serving::start(view)?);
        Ok(answer)
    }

    /// Takes the transaction out of its view, once [no program is left](Life::supervise).
    pub fn settle(mut self, fate: Fate) -> Result<Settled> {
        let network::Watched { seen, in_use } = self.watcher.take().map(Watcher::stop).unwrap_or_default();
        let arrived =
            if fate == Fate::MayCommit && self.written.yet() { mounts::sync(&self.views) } else { Ok(()) };
        let server = self.server.take().ok_or("the view is gone")?;
        let (mut view, served) = server.stop()?;
        view.hear_last();
        let trouble = view.trouble().cloned();
        let tx = view.finish();
        Ok(Settled {
            in_use,
            tx,
            seen,
            served: served.and(arrived),
            trouble,
            unmounting: Unmounting::begin(self.views),
        })
    }
}

/// Has new directories bound, in the places where the views are seen.
fn natives(served: &Opened<'_>, views: &Arc<Vec<OwnedFd>>, view: &mut View<Linux>) -> Result<native::Lent> {
    let failed = |e: Errno| Failure::new("preparing for new directories", e).hint("run with --no-native");
    let (binder, work) = bind::pair().map_err(failed)?;
    view.binds_by(binder);
    let devices: Result<Vec<_>, _> = views.iter().map(mounts::device).collect();
    let devices = devices.map_err(failed)?.into_iter().enumerate();
    let Tree { base, steps, .. } = &served.tree;
    let seen = devices.map(|(n, device)| native::seen(n, device, *base, steps)).collect();
    Ok(native::Lent::new(work, seen, views.clone()))
}

/// The fate of a transaction whose programs have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be committed, so what was stored through mappings is waited for.
    MayCommit,
    /// It is given up.
    GivenUp,
}

/// A transaction in which no program is left.
pub struct Settled {
    /// The transaction.
    pub tx: Transaction<Linux>,
    /// The peers that its programs have reached outside.
    pub seen: Seen,
    /// Why new directories could not be left, if so.
    pub in_use: Option<Failure>,
    /// Why not all of it has arrived.
    pub served: Result<(), Errno>,
    /// Why it can't commit.
    pub trouble: Option<Trouble>,
    /// Takes the mounts apart meanwhile.
    pub unmounting: Unmounting,
}

/// Why a transaction with this trouble does not commit.
pub fn of_trouble(trouble: Trouble) -> Ending {
    match trouble {
        Trouble::Doomed(conflict) => Ending::Conflict(conflict),
        trouble => Ending::Failed(trouble.to_string().into()),
    }
}
