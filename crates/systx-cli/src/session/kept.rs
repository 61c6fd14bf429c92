//! `systx run` that may leave its transaction open: `--no-commit` and `--on-error keep`.
//!
//! Owns: what becomes of the transaction when the command has ended. The transaction has a session daemon
//! from the beginning, as only so it can outlive this process; until it is known that it is to stay, it is
//! this process's: when that is killed, it is aborted, as any run. Does not: try again, or hold output back:
//! both are of a run that ends itself.

use super::check::{self, Asked};
use super::client::{enter, Tie, Went};
use super::daemon::{self, Terms};
use super::wire::{Answer, Form, Line, Look, Request};
use super::{ask, changes, finish, left_behind, Changes, Wanted};
use crate::args::{self, OnConflict, OnError, Run};
use crate::failure::{failed, Result};
use crate::life;
use crate::progress;
use crate::report::{say, tell, Ending, Ours, Told};
use crate::shell::{self, Choice};
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use systx_os::process::{Deadline, Ended, Signals, Terminal};

/// Why an inner run keeps nothing open.
pub const PART_OF_ANOTHER: &str =
    "--no-commit, --on-error keep and --on-conflict keep are for a transaction of its own, and this run is part of another one: give them to that";

/// The cases in which a run leaves its transaction open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Of a command that succeeds.
    success: bool,
    /// Of one that does not.
    failure: bool,
    /// The user decides at the end of the shell.
    asks: bool,
}

impl Keep {
    /// Returns the cases that the options name; `None`: the run ends its transaction.
    pub fn of(args: &Run) -> Option<Keep> {
        let failure = match args.on_error {
            None => args.no_commit,
            Some(what) => what == OnError::Keep,
        };
        let may_stay = args.no_commit || failure || args.asks || args.on_conflict == OnConflict::Keep;
        may_stay.then_some(Keep { success: args.no_commit, failure, asks: args.asks })
    }
}

/// Runs the command; returns the exit code.
pub fn run(args: &Run, keep: Keep, status: Option<OwnedFd>) -> u8 {
    let refused = if args.no_commit && args.on_error == Some(OnError::Commit) {
        Some("--no-commit and --on-error commit contradict each other: leave one out")
    } else if args.retry > 0 || args.hold_output || args.changes.dry_run {
        Some("--retry, --hold-output and --dry-run don't go with a transaction that may stay: leave one out")
    } else {
        None
    };
    if let Some(why) = refused {
        return tell(args, status, &Ending::Failed(why.into()));
    }
    let terms = Terms {
        only: &args.only,
        promise: args.promise,
        undoable: args.undoable,
        timeout: None,
        voice: args.voice(),
        area: &args.area,
        network: args.network.policy(),
        command: &args.command,
        // A shell is a person's: it stays open when the terminal goes.
        owned: !keep.asks,
        keeps: keep.asks || args.on_conflict == OnConflict::Keep,
        name: None,
    };
    let (mut line, look) = match daemon::begin(terms) {
        Ok(begun) => begun,
        Err(why) => return tell(args, status, &Ending::Failed(why)),
    };
    let ours = Ours { pid: look.pid, ..Ours::new(Some(look.id), &args.command) };
    let told = inside(args, keep, &mut line, &look, &ours)
        .unwrap_or_else(|why| Told::new(&Ending::Failed(why), &ours));
    say(&told, args.voice(), status)
}

/// Runs the command and ends the transaction, or leaves it open. An error is one of ours; the transaction is
/// aborted when the connection is closed.
fn inside(args: &Run, keep: Keep, line: &mut Line, look: &Look, ours: &Ours) -> Result<Told> {
    let id = ours.id.unwrap_or_default();
    let deadline =
        Deadline::new(args.timeout.as_ref().map(|time| time.time)).map_err(failed("setting a timer"))?;
    let prompt = if keep.asks { shell::prompt(id).into() } else { Vec::new() };
    let asks = keep.asks && Terminal::foreground().is_some();
    let tie = if keep.asks { Tie::Another } else { Tie::Own };
    let ending = match enter(line, id, &args.command, &prompt, tie, Some(&deadline))? {
        Went::Ended(ended) if asks => return asked(args, ended, line, ours),
        Went::Ended(ended) => {
            let success = ended == Ended::Exited(0);
            let kept = if success { keep.success } else { keep.failure };
            if success || kept {
                if let Some(told) = shown(args, line)? {
                    return Ok(told);
                }
            }
            if kept {
                return match ask(line, Request::Keep, &[])? {
                    Answer::Ended(end) => Ok(end.of_another()),
                    _ => Ok(Told::new(&Ending::Open(ended), ours)),
                };
            }
            if success {
                let terminal = if args.json { None } else { progress::terminal() };
                return Ok(finish(line, id, Wanted::Commit(None, args.undoable), terminal)?.of_another());
            }
            Ending::Aborted(ended)
        }
        Went::NotStarted(news) => life::not_started(&args.command, news),
        Went::TooLate => {
            Ending::TooLate(args.timeout.as_ref().map_or_else(String::new, |time| time.text.clone()))
        }
        Went::Over(end) => return Ok(end.of_another()),
        // The user has not allowed to discard the changes.
        Went::Alone if keep.asks => return Ok(Told::new(&Ending::Open(Ended::Signaled(9)), ours)),
        Went::Alone | Went::NoDaemon => Ending::Aborted(Ended::Signaled(9)),
    };
    match finish(line, id, Wanted::Abort, None) {
        // Another terminal was first, and may have committed it.
        Ok(end) if end.is_of_another() => Ok(end.of_another()),
        Ok(_) => Ok(Told::new(&ending, ours)),
        // There is no session daemon any more.
        Err(_) => Ok(match left_behind(look, &args.area) {
            Ending::DaemonKilled(Some(false)) => Told::new(&ending, ours),
            fate => Told::new(&fate, ours),
        }),
    }
}

/// Asks the user for the fate of the shell's changes. The shell's own status is its last command's.
fn asked(args: &Run, ended: Ended, line: &mut Line, ours: &Ours) -> Result<Told> {
    let id = ours.id.unwrap_or_default();
    let count = match changes(line, Form::default(), None)? {
        Changes::Told(_, count) => count,
        Changes::Over(end) => return Ok(end.of_another()),
    };
    loop {
        let request = match count {
            // Nothing to ask for.
            0 => Choice::Commit,
            _ => {
                // An interrupt during the look is one at the question.
                let signals = Signals::hold().map_err(failed("holding signals"))?;
                let conflicts = match check::ask_for(line, 0) {
                    Ok(Asked::Checked(checked)) => check::warning(id, &checked),
                    Ok(Asked::Over(end)) => return Ok(end.of_another()),
                    // The user is asked whatever comes of the look.
                    Err(_) => None,
                };
                let warning = conflicts.map(|why| format!("transaction {id} {why}"));
                shell::ask(count, warning.as_deref(), &signals)
            }
        };
        let ended = match request {
            Choice::Commit => {
                finish(line, id, Wanted::Commit(None, args.undoable), progress::terminal())?.of_another()
            }
            Choice::Abort => match finish(line, id, Wanted::Abort, None)? {
                end if end.is_of_another() => end.of_another(),
                _ => Told::new(&Ending::Declined, ours),
            },
            Choice::Keep => Told::new(&Ending::Open(ended), ours),
            Choice::Look => {
                let terminal = std::io::stderr().is_terminal();
                match changes(line, Form { patch: true, terminal, ..Form::default() }, None)? {
                    Changes::Told(mut file, _) => drop(std::io::copy(&mut file, &mut std::io::stderr())),
                    Changes::Over(end) => return Ok(end.of_another()),
                }
                continue;
            }
        };
        return Ok(ended);
    }
}

/// Shows the changes, if that was asked for. `Some`: the transaction has ended.
fn shown(args: &Run, line: &mut Line) -> Result<Option<Told>> {
    if !args.changes.are_told() {
        return Ok(None);
    }
    let args::Changes { stat, patch, .. } = args.changes;
    let form = Form { stat, patch, json: args.json, terminal: std::io::stderr().is_terminal() };
    match changes(line, form, None)? {
        Changes::Told(mut file, _) => {
            // A reader that has closed it does not want the rest.
            let _ = std::io::copy(&mut file, &mut std::io::stderr());
            Ok(None)
        }
        Changes::Over(end) => Ok(Some(end.of_another())),
    }
}
