//! The session daemon: the process that keeps a transaction open.
//!
//! Owns: the transaction's beginning and its end, by the steps of [`crate::life`]; what happens in between is
//! [`super::server`]. Guarantees: it has no terminal, and nothing of the process that began it; a failure to
//! begin is sent to that process. The end is sent to every client with a command inside, and to those that
//! wait for it with `systx on-end`. Does not: decide when the end comes.

use super::bound;
use super::part;
use super::server::{End, Kept, Kind, Server, Wanted};
use super::socket::{self, Socket};
use super::wire::{Answer, Line, Look, ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::args::{Area, DurabilityArg, Policy, Promise, Timeout, Undoable};
use crate::cover::{self, Promised};
use crate::domains::{self, Mounted};
use crate::failure::{at, failed, Failure, Result};
use crate::life::{self, Fate, IfItFails, Life, Settled, Stayed};
use crate::logging::{self, Role};
use crate::on_end::Notices;
use crate::progress::Progress;
use crate::report::{Ending, Ours, Seen, Told};
use crate::scope::{Opened, Scope, Standpoint};
use crate::sub;
use crate::words::Voice;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_engine::transaction::Transaction;
use systx_os::process::{self, Deadline, Signals, Streams};
use systx_os::sandbox::{apart, helper};
use systx_os::{Linux, Open, Os};

/// The options of a transaction that begins.
pub struct Terms<'a> {
    /// See `systx run`.
    pub only: &'a [PathBuf],
    /// See `systx run`.
    pub promise: Promise,
    /// See `systx run`.
    pub undoable: Undoable,
    /// Until then it must have ended.
    pub timeout: Option<&'a Timeout>,
    /// How much the daemon says on the standard error that it was begun with.
    pub voice: Voice,
    /// See `systx run`.
    pub area: &'a Area,
    /// See `systx run`.
    pub network: Option<Policy>,
    /// By what it is known to others.
    pub command: &'a [OsString],
    /// The transaction is aborted when the process that began it goes, unless that has said that it is to
    /// stay.
    pub owned: bool,
    /// A transaction that can't commit stays, to be looked at.
    pub keeps: bool,
    /// Given by its user.
    pub name: Option<&'a str>,
}

/// Begins one; a line to its session daemon, and how it stands.
pub fn begin(terms: Terms<'_>) -> Result<(Line, Look)> {
    bound::keep(terms.area, terms.voice);
    let started = apart::start(|line| keep(&terms, line)).map_err(failed("starting a process"))?;
    let mut line = Line::new(started, ANSWER_BYTES_MAX);
    match line.hear::<Answer>() {
        Ok(Some((Answer::Look(look), _))) => Ok((line, look)),
        Ok(Some((Answer::Refused(why), _))) => Err(why.into()),
        _ => Err("the process that was to keep the transaction has died; begin again".into()),
    }
}

/// The life of the session daemon.
fn keep(terms: &Terms<'_>, line: UnixStream) -> u8 {
    logging::enter(Role::Daemon);
    let line = Line::new(line, REQUEST_BYTES_MAX);
    let recorded = terms.promise.durability == DurabilityArg::Durable;
    let kind =
        Kind { owned: terms.owned, recorded, keeps: terms.keeps, name: terms.name.map(str::to_string) };
    let mut server = Server::new(line, kind);
    match kept(terms, &mut server) {
        Ok(()) => 0,
        Err(why) => {
            server.refuse(&why.to_string());
            crate::report::OURS
        }
    }
}

/// An error is one of ours, before anything was begun.
fn kept(terms: &Terms<'_>, server: &mut Server) -> Result<()> {
    // Standard error stays until there is nothing to say there any more.
    process::let_go_of_streams(Streams::InAndOut).map_err(failed("opening /dev/null"))?;
    let from = Standpoint::enter(domains::table()?, terms.only, None)?;
    process::lift_size_limit();
    let scope = Scope::take(from, terms.only, terms.voice)?;
    let lower = scope.lower();
    std::env::set_current_dir("/").map_err(at(b"/"))?;
    let keep: Vec<_> = lower.iter().flat_map(|mounted| mounted.copy.descriptors()).collect();
    let helper = helper::start(&keep, |call| {
        cover::called(call, lower, terms.area);
        sweep(lower, terms.area);
    });
    let helper = helper.map_err(failed("starting the helper"))?;
    let mut notices = Notices::default();
    let signals = Signals::hold().map_err(failed("holding signals"))?;
    let mut promised = Promised::default();
    let ended = held_open(
        terms,
        &scope,
        &helper,
        &signals,
        Held { server, notices: &mut notices, promised: &mut promised },
    );
    match &ended {
        Ok((ending, ..)) => notices.ended(ending),
        Err(why) => notices.ended(&Ending::Failed(why.clone())),
    }
    // Not while it waits for a word that it had a conflict: then nothing is left to be finished.
    cover::end(helper, &promised);
    drop(scope);
    let (ending, end, seen) = ended?;
    let ours = ours(terms, notices.id().map_or(0, |id| id.0));
    server.tell_end(Told::new(&ending, &ours).having(&seen), end, &signals);
    Ok(())
}

fn ours(terms: &Terms<'_>, id: u64) -> Ours {
    Ours { kept: true, ..Ours::new(Some(id), terms.command) }
}

/// What an open transaction is held with.
struct Held<'a> {
    server: &'a mut Server,
    notices: &'a mut Notices,
    promised: &'a mut Promised,
}

/// From the opening of the domains to their closing.
fn held_open(
    terms: &Terms<'_>,
    scope: &Scope,
    helper: &helper::Helper,
    signals: &Signals,
    Held { server, notices, promised }: Held<'_>,
) -> Result<(Ending, End, Seen)> {
    let os = Linux::new();
    let served = scope.open(&os, terms.area, terms.voice)?;
    let domains = &served.domains;
    life::finish_others(terms.voice, domains);
    let deadline = Deadline::new(terms.timeout.map(|time| time.time)).map_err(failed("setting a timer"))?;
    let tx = life::begin(domains, life::options(terms.promise, terms.command), notices)?;
    let id = tx.id().0;
    let points = served.lower.iter().map(|mounted| mounted.lower.point.clone());
    let numbers = points.zip(tx.ids()).map(|(point, id)| (point, id.0)).collect();
    let mut kept = inhabited(tx, &served, terms, signals)?;
    // Only who can come in finds it.
    server.open(Socket::new(&os, &first_area(domains)?, id)?, numbers, &served.tree.named);
    loop {
        let end = server.stay(&mut kept, signals, &deadline);
        if matches!(end, End::Wanted(_)) && server.is_anybody_inside() {
            kept.life.child.hang_up();
            server.let_them_end();
        }
        let fails = if server.keeps && !server.is_lost() { IfItFails::Stays } else { IfItFails::Goes };
        if fails == IfItFails::Goes {
            server.close(&end);
        }
        let (ending, seen, left) = kept.end(&end, terms, fails)?;
        let Some(mut tx) = left else {
            server.close(&end);
            *promised = cover::promise(helper, scope.lower(), served.lower.iter().copied().zip(domains));
            return Ok((ending, end, seen));
        };
        // There is nothing to wait for any more.
        notices.lost();
        let told = Told::new(&Ending::Lost(Box::new(ending)), &ours(terms, id)).having(&seen);
        let bytes = tx.staged_bytes();
        match inhabited(*tx, &served, terms, signals) {
            Ok(again) => kept = again,
            // A transaction that can't be looked at is gone.
            Err(why) => {
                server.close(&end);
                return Ok((Ending::Failed(why), end, seen));
            }
        }
        server.lose(told, end, bytes);
    }
}

/// A transaction with its view, and pid 1 in it.
fn inhabited(
    tx: Transaction<Linux>,
    served: &Opened<'_>,
    terms: &Terms<'_>,
    signals: &Signals,
) -> Result<Kept> {
    // Pid 1 gets what this process has.
    process::let_go_of_streams(Streams::All).map_err(failed("opening /dev/null"))?;
    let (life, entry) = Life::of_guests(tx, served, terms.network, signals)?;
    Ok(Kept { life, entry })
}

/// Returns true if calls to the outside decide about the end: a transaction that is given up anyway is given
/// up.
fn commit_or_alarm(end: &End) -> bool {
    matches!(end, End::Alarm | End::Wanted(Wanted { commit: true, .. }))
}

fn first_area(domains: &[Arc<Domain<Linux>>]) -> Result<OwnedFd> {
    let none = || Failure::from("there is no file system to serve").hint("`systx doctor` says why");
    let first = domains.first().ok_or_else(none)?;
    first.area.dir.try_clone().map_err(failed("copying the descriptor of an area"))
}

/// Removes the socket of a dead session daemon; the helper process calls it.
fn sweep(lower: &[Mounted], area: &Area) {
    let (os, name) = (Linux::new(), domains::area_name(area));
    for mounted in lower {
        if let Ok(area) = os.open(&mounted.copy.root, &name, Open::Directory) {
            socket::sweep(&os, &area);
        }
    }
}

const SERVING: &str = "serving the files inside";

impl Kept {
    /// Ends it as it is to end.
    fn end(self, end: &End, terms: &Terms<'_>, fails: IfItFails) -> Result<(Ending, Seen, Stayed)> {
        let Kept { mut life, entry } = self;
        let commit = matches!(end, End::Wanted(Wanted { commit: true, .. }));
        let finished = if commit {
            life.finish()
        } else {
            life.silence();
            Ok(())
        };
        let Settled { mut tx, seen, served, trouble, unmounting: _unmounting, .. } =
            life.settle(if commit { Fate::MayCommit } else { Fate::GivenUp })?;
        drop(entry);
        let fatal = seen.fatal().filter(|_| commit_or_alarm(end));
        let mut left_behind = None;
        let why_not = match (end, trouble) {
            _ if fatal.is_some() => fatal.map(Ending::Outside),
            (End::Conflict(conflict), None) => Some(Ending::Conflict(conflict.clone())),
            // Whatever else has happened: nothing of it is to stay.
            (End::Wanted(Wanted { commit: false, .. }), _) => Some(Ending::Discarded),
            (_, Some(trouble)) => Some(life::of_trouble(trouble)),
            (End::Wanted(Wanted { commit: true, .. }), None) => {
                let served = served.map_err(|e| Ending::Failed(Failure::new(SERVING, e).with_step()));
                match served.and(finished).and_then(|()| sub::set_aside(&mut tx)) {
                    Ok(left) => {
                        left_behind = left;
                        None
                    }
                    Err(why) => Some(why),
                }
            }
            (End::Left(pid), None) => Some(Ending::Left(*pid)),
            (End::Signal(signal), None) => Some(Ending::DaemonEnded(*signal)),
            (End::Expired, None) => {
                Some(Ending::Expired(terms.timeout.map_or_else(String::new, |t| t.text.clone())))
            }
            (End::Lost, None) => {
                Some(Ending::Failed("pid 1 of its namespaces was killed; begin again".into()))
            }
            (End::Alarm, None) => {
                let ended = || Failure::new(SERVING, "it ended").hint("begin again");
                Some(Ending::Failed(
                    served.err().map_or_else(ended, |e| Failure::new(SERVING, e).with_step()),
                ))
            }
        };
        let (ending, left) = match why_not {
            None => {
                let (ending, left) = commit_wanted(tx, end, terms, fails);
                (ending.warning_of(left_behind), left)
            }
            Some(Ending::Conflict(conflict)) => {
                let left = life::give_up(tx, fails, Some(&conflict));
                (Ending::Conflict(conflict), left)
            }
            Some(ending) => {
                // Work that was to be committed is not lost for an error.
                let stays = commit && !matches!(ending, Ending::Outside(_));
                (ending, life::give_up(tx, if stays { fails } else { IfItFails::Goes }, None))
            }
        };
        Ok((ending, seen, left))
    }
}

/// Commits a transaction, or the part of it that is wanted.
fn commit_wanted(tx: Transaction<Linux>, end: &End, terms: &Terms<'_>, fails: IfItFails) -> (Ending, Stayed) {
    let End::Wanted(Wanted { part, undoable, terminal, .. }) = end else {
        return life::commit(fails, tx, terms.undoable, |done| Ending::Committed(done, 0));
    };
    let undoable = Undoable { undoable: terms.undoable.undoable || *undoable };
    let _progress = Progress::at(terminal.as_ref().and_then(|fd| fd.try_clone().ok()));
    match part {
        Some(named) => part::commit(fails, tx, named.clone(), undoable),
        None => life::commit(fails, tx, undoable, |done| Ending::Committed(done, 0)),
    }
}
