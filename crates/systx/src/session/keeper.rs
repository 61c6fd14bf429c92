//! The process that keeps a transaction open.
//!
//! Owns: its beginning, as `systx run` begins one, and its end, as `run` ends one; what happens in between is [`super::loops`].
//! Guarantees: it has no terminal, and nothing of who began it; a failure to begin is told to him. The end is told to everybody who
//! has a command inside, and to those who wait for it with `systx on-end`. Does not: decide when the end comes.

use super::bound;
use super::door::{self, Door};
use super::loops::{End, Room};
use super::part;
use super::wire::{Answer, Line, Look, ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::args::{Area, DurabilityArg, Promise, Timeout, Undoable};
use crate::command;
use crate::cover::{self, Promised};
use crate::domains::{self, Mounted};
use crate::network::{Answering, Policy, Seen, Watcher};
use crate::on_end::Notices;
use crate::progress::Progress;
use crate::remedy;
use crate::report::{Ending, Ours, Told};
use crate::run::{self, failed};
use crate::scope::{Opened, Scope, Standpoint};
use crate::serving::{Server, Unmounting};
use crate::sub;
use crate::undo::{self, IfItFails, Stayed};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_engine::transaction::Transaction;
use systx_os::fuse::EventFd;
use systx_os::no_room::{self, Stage};
use systx_os::process::{self, Deadline, Signals};
use systx_os::sandbox::join::Entry;
use systx_os::sandbox::spawn::{spawn, Child, Command, News};
use systx_os::sandbox::watch::Watch;
use systx_os::sandbox::{apart, mounts, twin};
use systx_os::{Linux, Open, Os};
use systx_view::{Trouble, View};

/// What is begun, and how.
pub struct Terms<'a> {
    /// As of `systx run`.
    pub only: &'a [PathBuf],
    /// As of `systx run`.
    pub promise: Promise,
    /// As of `systx run`.
    pub undoable: Undoable,
    /// Until then it must have ended.
    pub timeout: Option<&'a Timeout>,
    /// As of `systx run`.
    pub verbose: bool,
    /// No words on standard error that are not asked for.
    pub quiet: bool,
    /// As of `systx run`.
    pub area: &'a Area,
    /// As of `systx run`.
    pub network: Option<Policy>,
    /// By what it is known to others.
    pub command: &'a [OsString],
    /// It is aborted when who began it goes, unless he has said that it is to stay.
    pub owned: bool,
    /// What can't commit stays, to be looked at.
    pub keeps: bool,
}

/// Begins one; a line to its keeper, and how it stands.
pub fn begin(terms: Terms<'_>) -> Result<(Line, Look), String> {
    bound::keep(terms.area, terms.quiet);
    let started = apart::start(|line| keep(&terms, line)).map_err(failed("starting a process"))?;
    let mut line = Line::new(started, ANSWER_BYTES_MAX);
    match line.hear::<Answer>() {
        Ok(Some((Answer::Look(look), _))) => Ok((line, look)),
        Ok(Some((Answer::Refused(why), _))) => Err(why),
        _ => Err("the process that was to keep the transaction has died; begin again".into()),
    }
}

/// The life of the keeper.
fn keep(terms: &Terms<'_>, line: UnixStream) -> u8 {
    let line = Line::new(line, REQUEST_BYTES_MAX);
    let recorded = terms.promise.durability == DurabilityArg::Durable;
    let mut room = Room::new(line, terms.owned, recorded, terms.keeps);
    match kept(terms, &mut room) {
        Ok(()) => 0,
        Err(why) => {
            room.refuse(&why);
            crate::report::OURS
        }
    }
}

/// An error is one of ours, before anything was begun.
fn kept(terms: &Terms<'_>, room: &mut Room) -> Result<(), String> {
    // Standard error stays until there is nothing to say there any more.
    process::let_go_of_streams(false).map_err(failed("opening /dev/null"))?;
    let from = Standpoint::enter(domains::table()?, terms.only, None)?;
    process::lift_size_limit();
    let scope = Scope::take(from, terms.only, terms.verbose)?;
    let lower = scope.lower();
    std::env::set_current_dir("/").map_err(|e| format!("/: {e}"))?;
    let keep: Vec<_> = lower.iter().flat_map(|mounted| mounted.copy.descriptors()).collect();
    let twin = twin::start(&keep, |call| {
        domains::called(call, lower, terms.area);
        sweep(lower, terms.area);
    });
    let twin = twin.map_err(failed("starting the twin"))?;
    let mut notices = Notices::default();
    let signals = Signals::hold().map_err(failed("holding signals"))?;
    let mut promised = Promised::default();
    let ended = held_open(terms, &scope, &twin, &signals, (room, &mut notices, &mut promised));
    match &ended {
        Ok((ending, ..)) => notices.ended(ending),
        Err(why) => notices.ended(&Ending::Failed(why.clone())),
    }
    // Not while it waits for a word that it had a conflict: then nothing is left to be finished.
    cover::end(twin, &promised);
    drop(scope);
    let (ending, end, seen) = ended?;
    let ours = ours(terms, notices.id().map_or(0, |id| id.0));
    room.tell_end(Told::new(&ending, &ours).having(&seen), end, &signals);
    Ok(())
}

fn ours(terms: &Terms<'_>, id: u64) -> Ours {
    Ours { kept: true, ..Ours::new(Some(id), terms.command) }
}

/// From the opening of the domains to their closing.
fn held_open(
    terms: &Terms<'_>,
    scope: &Scope,
    twin: &twin::Twin,
    signals: &Signals,
    (room, notices, promised): (&mut Room, &mut Notices, &mut Promised),
) -> Result<(Ending, End, Seen), String> {
    let os = Linux::new();
    let served = scope.open(&os, terms.area, terms.verbose, terms.quiet)?;
    let domains = &served.domains;
    run::finish_others(terms.quiet, domains);
    let deadline = Deadline::new(terms.timeout.map(|time| time.time)).map_err(failed("setting a timer"))?;
    no_room::stage(Stage::Before);
    let options = run::options(terms.promise, terms.command);
    let begun = Transaction::begin(os.clone(), domains.to_vec(), options);
    let tx = begun.map_err(|e| run::told("beginning", &e))?;
    notices.began(domains, tx.ids());
    let id = tx.id().0;
    let points = served.lower.iter().map(|mounted| mounted.lower.point.clone());
    let numbers = points.zip(tx.ids()).map(|(point, id)| (point, id.0)).collect();
    let mut kept = inhabited(tx, &served, terms, signals)?;
    // Only who can come in finds it.
    room.open(Door::new(&os, &first_area(domains)?, id)?, numbers);
    loop {
        let end = room.stay(&mut kept, signals, &deadline);
        if matches!(end, End::Wanted { .. }) && room.is_anybody_inside() {
            kept.child.hang_up();
            room.let_them_end();
        }
        let fails = if room.keeps && !room.is_lost() { IfItFails::Stays } else { IfItFails::Goes };
        if fails == IfItFails::Goes {
            room.close(&end);
        }
        let (ending, seen, left) = kept.end(&end, terms, fails)?;
        no_room::stage(Stage::Idle);
        let Some(mut tx) = left else {
            room.close(&end);
            *promised = cover::promise(twin, scope.lower(), served.lower.iter().copied().zip(domains));
            return Ok((ending, end, seen));
        };
        // There is nothing to wait for any more.
        notices.lost();
        let told = Told::new(&Ending::Lost(Box::new(ending)), &ours(terms, id)).having(&seen);
        let bytes = tx.staged_bytes();
        match inhabited(*tx, &served, terms, signals) {
            Ok(again) => kept = again,
            // What can't be looked at is gone.
            Err(why) => {
                room.close(&end);
                return Ok((Ending::Failed(why), end, seen));
            }
        }
        room.lose(told, end, bytes);
    }
}

/// A transaction with its view, and pid 1 in it.
fn inhabited(
    tx: Transaction<Linux>,
    served: &Opened<'_>,
    terms: &Terms<'_>,
    signals: &Signals,
) -> Result<Kept, String> {
    let (mut view, views) = View::new(tx, served.lower.len()).map_err(|failed| {
        let why = run::told(failed.doing, &failed.error);
        failed.tx.abort();
        why
    })?;
    served.share(&mut view);
    Kept::new(served, terms.network, signals, view, views)
}

/// Whether what has happened inside decides: whoever gives the transaction up, gives it up.
fn commit_or_alarm(end: &End) -> bool {
    matches!(end, End::Alarm | End::Wanted { commit: true, .. })
}

fn first_area(domains: &[Arc<Domain<Linux>>]) -> Result<OwnedFd, String> {
    let first = domains.first().ok_or("there is no file system to serve; `systx doctor` says why")?;
    first.area.dir.try_clone().map_err(|e| e.to_string())
}

/// What a twin does for a dead keeper besides: takes its socket away.
fn sweep(lower: &[Mounted], area: &Area) {
    let (os, name) = (Linux::new(), domains::area_name(area));
    for mounted in lower {
        if let Ok(area) = os.open(&mounted.copy.root, &name, Open::Directory) {
            door::sweep(&os, &area);
        }
    }
}

const SERVING: &str = "serving the files inside";

/// An open transaction: served, with pid 1 of its namespaces.
pub struct Kept {
    /// The way in.
    pub entry: Entry,
    /// Pid 1.
    pub child: Child,
    /// Readable when the transaction can't commit any more.
    pub alarm: EventFd,
    silenced: EventFd,
    server: Option<Server>,
    watcher: Option<Watcher>,
    synced: Arc<Vec<OwnedFd>>,
}

impl Kept {
    fn new(
        served: &Opened<'_>,
        network: Option<Policy>,
        signals: &Signals,
        mut view: View<Linux>,
        views: Vec<OwnedFd>,
    ) -> Result<Kept, String> {
        let synced: Result<Vec<_>, _> = views.iter().map(OwnedFd::try_clone).collect();
        let synced = Arc::new(synced.map_err(|e| e.to_string())?);
        let (watch, reception) = network.map(Policy::watch).transpose()?.unzip();
        let own_network = watch.as_ref().is_some_and(|watch: &Watch| watch.own_network);
        let to = watch.as_ref().map(|watch| watch.to.try_clone()).transpose().map_err(|e| e.to_string())?;
        let last = sub::last(&views, view.divided().map_err(failed("making an eventfd"))?)?;
        let command = Command {
            argv: Vec::new(),
            env: Vec::new(),
            directory: c"/".into(),
            umask: 0,
            root: command::root(&served.tree, &served.lower, views)?,
            answering: view.answers_from().map(|device| device.as_raw_fd()).collect(),
            watch,
            last: Some(last),
        };
        let eventfd = || EventFd::new().map_err(failed("making an eventfd"));
        let (alarm, silenced) = (view.alarm().map_err(failed("making an eventfd"))?, eventfd()?);
        view.is_for_others();
        view.speak_after(silenced.try_clone().map_err(failed("making an eventfd"))?);
        // Pid 1 has what this process has.
        process::let_go_of_streams(true).map_err(failed("opening /dev/null"))?;
        let child = spawn(command, signals).map_err(failed("starting a process in new namespaces"))?;
        if let Ok(limit) = systx_os::linux::raise_nofile_limit() {
            view.hold_files(usize::try_from(limit / run::HELD_PART).unwrap_or(usize::MAX));
        }
        let server = Some(Server::start(view)?);
        match child.news() {
            Some(News::Ready) => {}
            Some(news) => {
                return Err(match run::not_started(&[], news) {
                    Ending::Failed(why) | Ending::NotStarted(why, _) => why,
                    _ => "building the tree".into(),
                })
            }
            None => return Err("pid 1 of the namespaces was killed; begin again".into()),
        }
        let watch = to.map(|to| Watch { to, own_network });
        let entry = Entry::of(&child, watch).map_err(failed("opening the namespaces"))?;
        let answering = network.zip(reception).map(|(policy, reception)| {
            Watcher::start(Answering::new(policy, reception, &synced, &alarm)?, &child)
        });
        let watcher = answering.transpose()?;
        Ok(Kept { entry, child, alarm, silenced, server, watcher, synced })
    }

    /// Waits until what programs stored through mappings has arrived; false: the alarm came before.
    fn arrived(&self) -> std::io::Result<bool> {
        let done = EventFd::new()?;
        let ring = done.try_clone()?;
        let synced = self.synced.clone();
        // What can't be synced is told by the commit.
        let sync = std::thread::Builder::new().name("systx-sync".into()).spawn(move || {
            let _ = mounts::sync(&synced);
            ring.ring();
        })?;
        let [_, alarm] = process::wait_readable([done.as_fd(), self.alarm.as_fd()]);
        if alarm {
            // Who waits for an answer is killed first; the sync gets one from the view's thread in any case.
            self.child.silence();
            self.silenced.ring();
        }
        let _ = sync.join();
        Ok(!alarm)
    }

    /// Ends everybody inside, and finishes what subtransactions were cut off by that. An error keeps it from committing.
    fn finish(&self) -> Result<(), Ending> {
        self.child.finish();
        loop {
            let [alarm, _] = process::wait_readable([self.alarm.as_fd(), self.child.talk().as_fd()]);
            if alarm {
                // It is told why elsewhere.
                self.child.silence();
                return Ok(());
            }
            match self.child.news() {
                Some(News::Finished) => return Ok(()),
                Some(News::NotFinished) => return Err(run::not_started(&[], News::NotFinished)),
                Some(_) => {}
                None => return Err(Ending::Failed("pid 1 of its namespaces was killed".into())),
            }
        }
    }

    /// Whether there is a view.
    pub fn serves(&self) -> bool {
        self.server.is_some()
    }

    /// Asks the transaction something while nobody inside is answered. `None`: it can't commit any more, or there is no view.
    pub fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Transaction<Linux>) -> T,
    ) -> Result<Option<T>, String> {
        if !self.arrived().map_err(|e| e.to_string())? {
            return Ok(None);
        }
        let Some(server) = self.server.take() else { return Ok(None) };
        let (mut view, served) = server.stop()?;
        let sound = served.is_ok() && view.trouble().is_none();
        let answer = sound.then(|| question(view.transaction()));
        self.server = Some(Server::start(view)?);
        Ok(answer)
    }

    /// Ends it as it is to end.
    fn end(
        mut self,
        end: &End,
        terms: &Terms<'_>,
        fails: IfItFails,
    ) -> Result<(Ending, Seen, Stayed), String> {
        let commit = matches!(end, End::Wanted { commit: true, .. });
        let finished = match commit {
            true => self.finish(),
            false => {
                self.child.silence();
                Ok(())
            }
        };
        self.silenced.ring();
        self.child.reap();
        let seen = self.watcher.take().map(Watcher::stop).unwrap_or_default();
        let fatal = seen.fatal().filter(|_| commit_or_alarm(end));
        let arrived = if commit { mounts::sync(&self.synced) } else { Ok(()) };
        let server = self.server.take().ok_or("the view is gone")?;
        let (view, served) = server.stop()?;
        let trouble = view.trouble().cloned();
        let tx = view.finish();
        let _unmounting = Unmounting::begin((self.synced, self.entry));
        let why_not = match (end, trouble) {
            _ if fatal.is_some() => fatal.map(Ending::Outside),
            (_, Some(Trouble::Doomed(conflict))) => Some(Ending::Conflict(conflict)),
            (End::Conflict(conflict), None) => Some(Ending::Conflict(conflict.clone())),
            (_, Some(trouble)) => Some(Ending::Failed(trouble.to_string())),
            (End::Wanted { commit: true, .. }, None) => {
                let served = served.and(arrived).map_err(|e| Ending::Failed(remedy::with_step(SERVING, e)));
                served.and(finished).err()
            }
            (End::Wanted { commit: false, .. }, None) => Some(Ending::Discarded),
            (End::Left(pid), None) => Some(Ending::Left(*pid)),
            (End::Signal(signal), None) => Some(Ending::KeeperEnded(*signal)),
            (End::Expired, None) => {
                Some(Ending::Expired(terms.timeout.map_or_else(String::new, |t| t.text.clone())))
            }
            (End::Lost, None) => {
                Some(Ending::Failed("pid 1 of its namespaces was killed; begin again".into()))
            }
            (End::Alarm, None) => {
                let ended = || format!("{SERVING}: it ended; begin again");
                Some(Ending::Failed(served.err().map_or_else(ended, |e| remedy::with_step(SERVING, e))))
            }
        };
        let (ending, left) = match why_not {
            None => {
                let asked = matches!(end, End::Wanted { undoable: true, .. });
                let undoable = Undoable { undoable: terms.undoable.undoable || asked };
                let terminal = match end {
                    End::Wanted { terminal, .. } => terminal.as_ref().and_then(|fd| fd.try_clone().ok()),
                    _ => None,
                };
                let _progress = Progress::at(terminal);
                match end {
                    End::Wanted { part: Some(named), .. } => part::commit(fails, tx, named.clone(), undoable),
                    _ => undo::commit_or(fails, tx, undoable, |done| Ending::Committed(done, 0)),
                }
            }
            Some(Ending::Conflict(conflict)) => {
                let left = part::end(tx, fails, Some(&conflict));
                (Ending::Conflict(conflict), left)
            }
            Some(ending) => {
                // Who wanted a commit does not want to lose it for an error.
                let wanted = commit && !matches!(ending, Ending::Outside(_));
                (ending, part::end(tx, if wanted { fails } else { IfItFails::Goes }, None))
            }
        };
        Ok((ending, seen, left))
    }
}
