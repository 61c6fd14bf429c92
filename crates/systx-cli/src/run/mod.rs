//! `systx run`: one command, one transaction.
//!
//! Owns: the order of things. Guarantees: every way out says how it ended; no mount and no process is left
//! behind, because mounts live in the command's own namespace and its processes die with its pid 1; the helper
//! alone may stay for a second ([`cover`]). Does not: decide anything about the transaction's fate but that
//! status 0 commits.
//!
//! Mounts → helper → domains → (transaction → view → command → wait → commit), once or several times → report.
//! Whatever forks comes before the first thread, or when there is no other one left. The domains stay open
//! over all tries, since the age that a later try inherits is their owner's.

mod inner;

use crate::args::{IsolationArg, OnError, Run};
use crate::back_off;
use crate::cover::{self, Promised};
use crate::diff;
use crate::domains;
use crate::failure::{failed, Failure, Result};
use crate::life::{self, Fate, IfItFails, Life, Program, Settled, Watching};
use crate::on_end::Notices;
use crate::ordinary;
use crate::output::{self, Output, Pipes};
use crate::progress::Progress;
use crate::report::{say, tell, Ending, Ours, Seen, Told};
use crate::scope::{Opened, Scope, Standpoint};
use crate::serving::Unmounting;
use crate::session::kept;
use crate::sub::{self, Around};
use crate::supervise::Over;
use std::os::fd::AsFd;
use systx_engine::contention::Age;
use systx_engine::outcome::Party;
use systx_os::linux::NofileLimit;
use systx_os::process::{self, Deadline, Ended, Signals, Terminal};
use systx_os::sandbox::bind::have_all_left;
use systx_os::sandbox::helper::{self, Helper};
use systx_os::sandbox::watch::may_ask_a_tracer;
use systx_os::{Errno, Linux, Os};
use systx_view::Trouble;

/// Runs a command; returns the exit code.
pub fn run(args: &Run) -> u8 {
    let status = match args.status_fd.map(process::inherited).transpose() {
        Ok(status) => status,
        Err(e) => {
            return tell(
                args,
                None,
                &Ending::Failed(
                    Failure::new("--status-fd", e).hint("open it for writing, as with 3>outcome.json"),
                ),
            )
        }
    };
    let table = match domains::table() {
        Ok(table) => table,
        Err(why) => return tell(args, status, &Ending::Failed(why)),
    };
    if args.sub {
        // The outer one's mounts would be copied with the tree.
        have_all_left();
    }
    let around = sub::around(&table);
    if around.is_some() && !args.sub {
        if args.changes.are_told() {
            return tell(args, status, &Ending::Failed(diff::PART_OF_ANOTHER.into()));
        }
        if args.hold_output {
            return tell(args, status, &Ending::Failed(output::PART_OF_ANOTHER.into()));
        }
        if let Some(why) = inner::is_the_outermost_ones(args) {
            return tell(args, status, &Ending::Failed(why.into()));
        }
        // Flat nesting: the inner one joins the outer one.
        return tell(args, status, &life::not_executed(&args.command, process::exec(&args.command)));
    }
    if let Some(keep) = kept::Keep::of(args).filter(|_| around.is_none()) {
        return kept::run(args, keep, status);
    }
    let depth = around.as_ref().map_or(1, Around::depth_inside);
    let inner = around.as_ref().map(|around| inner::options(around, args)).transpose();
    let entered = inner.and_then(|inner| {
        let args = inner.as_ref().unwrap_or(args);
        let from = Standpoint::enter(table, &args.only, around.as_ref())?;
        Ok((inner, from))
    });
    let (inner, from) = match entered {
        Ok(both) => both,
        Err(why) => {
            let ours = Ours { sub: depth > 1, ..Ours::new(None, &args.command) };
            return say(&Told::new(&Ending::Failed(why), &ours), args.voice(), status);
        }
    };
    let args = inner.as_ref().unwrap_or(args);
    systx_os::process::lift_size_limit();
    let mut notices = Notices::default();
    let mut leaving =
        Leaving { output: Output::new(args.hold_output), seen: Seen::new(args.network.policy()) };
    let ending = guarded(args, from, &mut notices, &mut leaving).unwrap_or_else(Ending::Failed);
    notices.ended(&ending);
    // Here signals are not held any more: who reads slowly can be given up.
    let Leaving { output, seen } = leaving;
    let ending = output.leave(ending);
    let ours = Ours { sub: depth > 1, ..Ours::new(notices.id().map(|id| id.0), &args.command) };
    say(&Told::new(&ending, &ours).having(&seen), args.voice(), status)
}

/// All tries, with a helper. An error is one of ours, before the commit.
fn guarded(args: &Run, from: Standpoint, notices: &mut Notices, leaving: &mut Leaving) -> Result<Ending> {
    let scope = Scope::take(from, &args.only, args.voice())?;
    let lower = scope.lower();
    let keep: Vec<_> = lower.iter().flat_map(|mounted| mounted.copy.descriptors()).collect();
    let helper = helper::start(&keep, |call| cover::called(call, lower, &args.area));
    let helper = helper.map_err(failed("starting the helper"))?;
    let ended = tries(args, &scope, &helper, notices, leaving);
    if matches!(&ended, Ok(done) if done.left.staged) {
        helper.bequeath();
        return ended.map(|done| done.ending);
    }
    let (ending, promised) = match ended {
        Ok(Done { ending, mut left }) => {
            let promised = std::mem::take(&mut left.promised);
            if promised.is_nothing() {
                // The mounts come apart while it ends.
                helper.dismiss();
            }
            drop(left);
            (Ok(ending), promised)
        }
        Err(why) => (Err(why), Promised::default()),
    };
    cover::end(helper, &promised);
    ending
}

/// The output and the calls of a command, which leave systx at the end.
struct Leaving {
    output: Output,
    seen: Seen,
}

/// An ending, with the work that is left.
struct Done {
    ending: Ending,
    left: Left,
}

/// The work that is left when the outcome is known.
struct Left {
    _unmounting: Unmounting,
    /// Staged files are deleted when this process is gone: no user waits for that.
    staged: bool,
    /// Checkpoints that this run has taken on.
    promised: Promised,
}

fn tries(
    args: &Run,
    scope: &Scope,
    helper: &Helper,
    notices: &mut Notices,
    leaving: &mut Leaving,
) -> Result<Done> {
    let os = Linux::new();
    let served = {
        let _held = Signals::hold().map_err(failed("holding signals"))?;
        scope.open(&os, &args.area, args.voice())?
    };
    life::finish_others(args.voice(), &served.domains);
    let Done { ending, mut left } = tries_of(args, &served, notices, leaving)?;
    // Staged files are deleted by a helper that sees to the rest, too; what is inside of another transaction
    // ends with that one.
    if !left.staged && served.depth == 1 {
        left.promised =
            cover::promise(helper, scope.lower(), served.lower.iter().copied().zip(&served.domains));
    }
    Ok(Done { ending, left })
}

fn tries_of(args: &Run, served: &Opened<'_>, notices: &mut Notices, leaving: &mut Leaving) -> Result<Done> {
    let os = Linux::new();
    let limit = NofileLimit::now();
    let mut age = None;
    // One for all tries.
    let deadline =
        Deadline::new(args.timeout.as_ref().map(|time| time.time)).map_err(failed("setting a timer"))?;
    let mut losses = 0;
    for left in (1..=args.retry).rev() {
        let this = Try { age: &mut age, next: Next::IfItLoses, deadline: &deadline };
        let Done { ending, left: rest } = attempt(args, served, this, leaving, notices)?;
        let Ending::Conflict(conflict) = &ending else { return Ok(Done { ending, left: rest }) };
        let by_an_outsider = conflict.with == Party::Outsider;
        drop(rest);
        notices.lost();
        // The next command inherits it, as this one did.
        limit.restore().map_err(failed("lowering the limit on open files"))?;
        if args.verbose {
            let ours =
                Ours { sub: served.depth > 1, ..Ours::new(notices.id().map(|id| id.0), &args.command) };
            eprintln!("systx: {} Running it again; tries left: {left}.", ending.sentence(&ours));
        }
        // Among transactions the older one goes first. A program outside knows no age: it is given time to
        // come to its end.
        losses = if by_an_outsider { losses + 1 } else { 0 };
        deadline.pause(back_off::after(losses, os.random()));
    }
    let last = Try { age: &mut age, next: Next::Never, deadline: &deadline };
    attempt(args, served, last, leaving, notices)
}

/// Returns true if the kernel serves new directories by itself.
fn has_natives(args: &Run, served: &Opened<'_>) -> bool {
    let may_be = args.promise.isolation == IsolationArg::Serializable && served.depth == 1;
    may_be && !args.no_native && !ordinary::is_ordinary() && !may_ask_a_tracer()
}

/// What one try goes by.
struct Try<'a> {
    age: &'a mut Option<Age>,
    next: Next,
    deadline: &'a Deadline,
}

/// Says if another try may follow.
#[derive(PartialEq, Eq)]
enum Next {
    IfItLoses,
    Never,
}

/// One try. Between two of them signals are not held: they end what is not running.
fn attempt(
    args: &Run,
    served: &Opened<'_>,
    Try { age, next, deadline }: Try<'_>,
    leaving: &mut Leaving,
    notices: &mut Notices,
) -> Result<Done> {
    let signals = Signals::hold().map_err(failed("holding signals"))?;
    let terminal = Terminal::foreground();
    let mut tx = life::begin(&served.domains, life::options(args.promise, &args.command), notices)?;
    if let Some(age) = age {
        tx.inherit(age);
    }
    if next == Next::IfItLoses {
        *age = Some(tx.will_be_tried_again());
    }
    let program = Program::of(&args.command, tx.id().0)?;
    let pipes = leaving.output.pipes()?;
    let lent = pipes.as_ref().map(Pipes::lend).transpose()?;
    let watching = Watching { peers: args.network.policy(), files: has_natives(args, served) };
    let mut life = Life::of_command(tx, served, program, watching, &signals)?;
    drop(lent);
    let reader = pipes.map(Pipes::read).transpose()?;
    let over = life.supervise(&signals, terminal.as_ref(), deadline.as_fd());
    tracing::debug!(?over, "the command is over");
    let kept = leaving.output.keep(reader);
    let Settled { mut tx, seen: reached, in_use, served: arrived, trouble, unmounting } =
        life.settle(Fate::MayCommit)?;
    let verdict = kept
        .map_err(Ending::Failed)
        .and_then(|()| reached.fatal().map_or(Ok(()), |why| Err(Ending::Outside(why))))
        .and_then(|()| verdict(args, over, trouble, arrived))
        .and_then(|status| in_use.map_or(Ok(status), |why| Err(Ending::Failed(why))))
        .and_then(|status| Ok((status, sub::set_aside(&mut tx)?)))
        .and_then(|(status, left)| {
            Ok((diff::before_commit(&args.changes, args.voice(), &mut tx, status)?, left))
        });
    leaving.seen.merge(reached);
    let mut left = Left { _unmounting: unmounting, staged: false, promised: Promised::default() };
    let ending = match verdict {
        Ok((status, left_behind)) => {
            let progress = Progress::begin(args.voice());
            let done = |done| Ending::Committed(done, status);
            let (ending, _) = life::commit(IfItFails::Goes, tx, args.undoable, done);
            drop(progress);
            ending.warning_of(left_behind)
        }
        Err(ending) => {
            match &ending {
                Ending::Conflict(conflict) => tx.lose(conflict),
                // An ordinary user's helper ends with the service that this process is, any helper with the container.
                // That of a subtransaction with the outer one.
                _ if ordinary::is_ordinary() || std::process::id() == 1 || served.depth > 1 => tx.abort(),
                _ => left.staged = tx.abandon(),
            }
            ending
        }
    };
    Ok(Done { ending, left })
}

const SERVING: &str = "serving the command's files";

/// The command's status, if the transaction is to be committed; else why it isn't.
fn verdict(
    args: &Run,
    over: Over,
    trouble: Option<Trouble>,
    served: Result<(), Errno>,
) -> Result<u8, Ending> {
    let commits = |status: u8| status == 0 || args.on_error == Some(OnError::Commit);
    match (trouble, over) {
        (Some(trouble), _) => Err(life::of_trouble(trouble)),
        (None, Over::NotStarted(news)) => Err(life::not_started(&args.command, news)),
        (None, Over::Ended(Ended::Exited(status))) if commits(status) => match served {
            Ok(()) => Ok(status),
            Err(e) => Err(Ending::Failed(Failure::new(SERVING, e).with_step())),
        },
        (None, Over::Ended(ended)) => Err(Ending::Aborted(ended)),
        (None, Over::TooLate) => {
            Err(Ending::TooLate(args.timeout.as_ref().map_or_else(String::new, |time| time.text.clone())))
        }
        // Only SIGKILL can end pid 1 of a namespace.
        (None, Over::Lost) => Err(Ending::Aborted(Ended::Signaled(9))),
        (None, Over::Doomed) => {
            let ended = || Failure::new(SERVING, "it ended").hint("run again");
            Err(Ending::Failed(served.err().map_or_else(ended, |e| Failure::new(SERVING, e).with_step())))
        }
    }
}
