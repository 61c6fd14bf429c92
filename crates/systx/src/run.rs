//! `systx run`: one command, one transaction.
//!
//! Owns: the order of things. Guarantees: every way out says how it ended; no mount and no process is left behind, because
//! mounts live in the command's own namespace and its processes die with its pid 1; the twin alone may stay for a second
//! ([`cover`]). Does not: decide anything about the
//! transaction's fate but that status 0 commits.
//!
//! Mounts → twin → domains → (transaction → view → command → wait → commit), once or several times → report. Whatever forks
//! comes before the first thread, or when there is no other one left. The domains stay open over all tries, since the age that a
//! later try inherits is their owner's.

use crate::args::{DurabilityArg, IsolationArg, OnError, Promise, Run};
use crate::back_off;
use crate::command;
use crate::cover::{self, Promised};
use crate::diff;
use crate::domains;
use crate::network::{self, Answering, Seen, Watcher};
use crate::on_end::Notices;
use crate::ordinary;
use crate::output::{self, Output, Pipes};
use crate::progress::Progress;
use crate::remedy;
use crate::report::{shown, Ending, Ours, Told, NOT_EXECUTABLE, NOT_FOUND};
use crate::scope::{Opened, Scope, Standpoint};
use crate::serving::{Server, Unmounting};
use crate::session::kept;
use crate::sub::{self, Around};
use crate::supervise::{supervise, Ends, Over};
use crate::undo;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use systx_engine::contention::Age;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::outcome::{Durability, Isolation, Options, Party, VerbError};
use systx_engine::transaction::Transaction;
use systx_os::fuse::EventFd;
use systx_os::linux::NofileLimit;
use systx_os::no_room::{self, Stage};
use systx_os::process::{self, Deadline, Ended, Signals, Terminal};
use systx_os::sandbox::mounts;
use systx_os::sandbox::spawn::{spawn, Command, News};
use systx_os::sandbox::twin::{self, Twin};
use systx_os::{Errno, Linux, Os};
use systx_view::{Trouble, View};

/// Part of our descriptors that may be files and directories of the command; the others are for the commit.
pub const HELD_PART: u64 = 2;

/// Runs a command; returns the exit code.
pub fn run(args: &Run) -> u8 {
    let status = match args.status_fd.map(process::inherited).transpose() {
        Ok(status) => status,
        Err(e) => {
            return tell(
                args,
                None,
                None,
                &Ending::Failed(format!("--status-fd: {e}; open it for writing, as with 3>outcome.json")),
            )
        }
    };
    let table = match domains::table() {
        Ok(table) => table,
        Err(why) => return tell(args, status, None, &Ending::Failed(why)),
    };
    let around = sub::around(&table);
    if around.is_some() && !args.sub {
        if args.changes.are_told() {
            return tell(args, status, None, &Ending::Failed(diff::PART_OF_ANOTHER.into()));
        }
        if args.hold_output {
            return tell(args, status, None, &Ending::Failed(output::PART_OF_ANOTHER.into()));
        }
        if let Some(why) = sub::is_the_outermost_ones(args) {
            return tell(args, status, None, &Ending::Failed(why.into()));
        }
        // Flat nesting: the inner one joins the outer one.
        return tell(args, status, None, &not_executed(&args.command, process::exec(&args.command)));
    }
    if let Some(keep) = kept::Keep::of(args).filter(|_| around.is_none()) {
        return kept::run(args, keep, status);
    }
    let depth = around.as_ref().map_or(1, Around::depth_inside);
    let inner = around.as_ref().map(|around| around.run(args)).transpose();
    let entered = inner.and_then(|inner| {
        let args = inner.as_ref().unwrap_or(args);
        let from = Standpoint::enter(table, &args.only, around.as_ref())?;
        Ok((inner, from))
    });
    let (inner, from) = match entered {
        Ok(both) => both,
        Err(why) => {
            let ours = Ours { sub: depth > 1, ..Ours::new(None, &args.command) };
            return say(&Told::new(&Ending::Failed(why), &ours), args.json, args.verbose, status);
        }
    };
    let args = inner.as_ref().unwrap_or(args);
    systx_os::process::lift_size_limit();
    let mut notices = Notices::default();
    let mut output = Output::new(args.hold_output);
    let mut seen = Seen::new(args.network.policy());
    let ending = guarded(args, from, &mut notices, (&mut output, &mut seen)).unwrap_or_else(Ending::Failed);
    notices.ended(&ending);
    // Here signals are not held any more: who reads slowly can be given up.
    let ending = output.leave(ending);
    let ours = Ours { sub: depth > 1, ..Ours::new(notices.id().map(|id| id.0), &args.command) };
    say(&Told::new(&ending, &ours).having(&seen), args.json, args.verbose, status)
}

/// All tries, with a twin. An error is one of ours, before the commit.
fn guarded(
    args: &Run,
    from: Standpoint,
    notices: &mut Notices,
    leaving: (&mut Output, &mut Seen),
) -> Result<Ending, String> {
    let scope = Scope::take(from, &args.only, args.verbose)?;
    let lower = scope.lower();
    let keep: Vec<_> = lower.iter().flat_map(|mounted| mounted.copy.descriptors()).collect();
    let twin = twin::start(&keep, |call| domains::called(call, lower, &args.area));
    let twin = twin.map_err(failed("starting the twin"))?;
    let ended = tries(args, &scope, &twin, notices, leaving);
    if matches!(&ended, Ok((_, left)) if left.staged) {
        twin.bequeath();
        return ended.map(|(ending, _left)| ending);
    }
    let (ending, promised) = match ended {
        Ok((ending, mut left)) => {
            let promised = std::mem::take(&mut left.promised);
            if promised.is_nothing() {
                // The mounts come apart while it ends.
                twin.dismiss();
            }
            drop(left);
            (Ok(ending), promised)
        }
        Err(why) => (Err(why), Promised::default()),
    };
    cover::end(twin, &promised);
    ending
}

/// What is to be done still when the outcome is known.
struct Left {
    _unmounting: Unmounting,
    /// Deleting what was staged, when this process is gone: nobody needs to wait for that.
    staged: bool,
    /// Checkpoints that this run has taken on.
    promised: Promised,
}

fn tries(
    args: &Run,
    scope: &Scope,
    twin: &Twin,
    notices: &mut Notices,
    leaving: (&mut Output, &mut Seen),
) -> Result<(Ending, Left), String> {
    let os = Linux::new();
    let served = {
        let _held = Signals::hold().map_err(failed("holding signals"))?;
        scope.open(&os, &args.area, args.verbose, args.json)?
    };
    finish_others(args.json, &served.domains);
    let (ending, mut left) = tries_of(args, &served, notices, leaving)?;
    // Staged files are deleted by a twin that sees to the rest, too; what is inside of another transaction ends with that one.
    if !left.staged && served.depth == 1 {
        left.promised =
            cover::promise(twin, scope.lower(), served.lower.iter().copied().zip(&served.domains));
    }
    Ok((ending, left))
}

fn tries_of(
    args: &Run,
    served: &Opened<'_>,
    notices: &mut Notices,
    (output, seen): (&mut Output, &mut Seen),
) -> Result<(Ending, Left), String> {
    let os = Linux::new();
    let limit = NofileLimit::now();
    let mut age = None;
    // One for all tries.
    let deadline =
        Deadline::new(args.timeout.as_ref().map(|time| time.time)).map_err(failed("setting a timer"))?;
    let mut losses = 0;
    for left in (1..=args.retry).rev() {
        let leaving = (&deadline, &mut *output, &mut *seen);
        let (ending, rest) = attempt(args, served, (&mut age, Next::IfItLoses), leaving, notices)?;
        let Ending::Conflict(conflict) = &ending else { return Ok((ending, rest)) };
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
        // Among transactions the older one goes first. A program outside knows no age: it is given time to come to its end.
        losses = if by_an_outsider { losses + 1 } else { 0 };
        deadline.pause(back_off::after(losses, os.random()));
    }
    attempt(args, served, (&mut age, Next::Never), (&deadline, output, seen), notices)
}

/// Whether there is another try.
#[derive(PartialEq, Eq)]
enum Next {
    IfItLoses,
    Never,
}

/// One try. Between two of them signals are not held: they end what is not running.
fn attempt(
    args: &Run,
    served: &Opened<'_>,
    (age, next): (&mut Option<Age>, Next),
    (deadline, output, seen): (&Deadline, &mut Output, &mut Seen),
    notices: &mut Notices,
) -> Result<(Ending, Left), String> {
    let os = Linux::new();
    let signals = Signals::hold().map_err(failed("holding signals"))?;
    let terminal = Terminal::foreground();
    no_room::stage(Stage::Before);
    let begun = Transaction::begin(os.clone(), served.domains.clone(), options(args.promise, &args.command));
    let mut tx = begun.map_err(|e| told("beginning", &e))?;
    notices.began(&served.domains, tx.ids());
    if let Some(age) = age {
        tx.inherit(age);
    }
    if next == Next::IfItLoses {
        *age = Some(tx.will_be_tried_again());
    }
    let (mut view, views) = View::new(tx, served.lower.len()).map_err(|failed| {
        let why = told(failed.doing, &failed.error);
        failed.tx.abort();
        why
    })?;
    served.share(&mut view);
    let depth = served.depth;
    view.lies_at(depth);
    let last = sub::last(&views, view.divided().map_err(failed("making an eventfd"))?)?;
    let synced =
        views.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let (watch, reception) = args.network.policy().map(network::Policy::watch).transpose()?.unzip();
    let id = notices.id().map_or(0, |id| id.0);
    let mut command = Command {
        argv: command::words(&args.command)?,
        env: command::environment(id, &[])?,
        directory: command::directory()?,
        umask: os.inherited_umask(),
        root: command::root(&served.tree, &served.lower, views)?,
        answering: Vec::new(),
        watch,
        last: Some(last),
    };
    command.answering = view.answers_from().map(|device| device.as_raw_fd()).collect();
    let alarm = view.alarm().map_err(failed("making an eventfd"))?;
    let pipes = output.pipes()?;
    let lent = pipes.as_ref().map(Pipes::lend).transpose()?;
    let mut child = spawn(command, &signals).map_err(failed("starting a process in new namespaces"))?;
    drop(lent);
    let reader = pipes.map(Pipes::read).transpose()?;
    // The command has its own limit by now.
    if let Ok(limit) = systx_os::linux::raise_nofile_limit() {
        view.hold_files(usize::try_from(limit / HELD_PART).unwrap_or(usize::MAX));
    }
    let silenced = EventFd::new().map_err(failed("making an eventfd"))?;
    view.is_for_others();
    view.speak_after(silenced.try_clone().map_err(failed("making an eventfd"))?);
    let written = view.written();
    let server = Server::start(view)?;
    let watcher = match args.network.policy().zip(reception) {
        Some((policy, reception)) => {
            let answering = Answering::new(policy, reception, &synced, &alarm)?;
            Some(Watcher::start(answering, &child)?)
        }
        None => None,
    };
    let ends = Ends { doomed: alarm.as_fd(), too_late: deadline.as_fd(), silenced: &silenced };
    let over = supervise(&mut child, &signals, terminal.as_ref(), ends);
    let watched = watcher.map(Watcher::stop).unwrap_or_default();
    let kept = output.keep(reader);
    let arrived = if written.yet() { mounts::sync(&synced) } else { Ok(()) };
    let (view, served) = server.stop()?;
    let trouble = view.trouble().cloned();
    let mut tx = view.finish();
    let mut left =
        Left { _unmounting: Unmounting::begin(synced), staged: false, promised: Promised::default() };
    let verdict = kept
        .map_err(Ending::Failed)
        .and_then(|()| watched.fatal().map_or(Ok(()), |why| Err(Ending::Outside(why))))
        .and_then(|()| verdict(args, over, trouble, served.and(arrived)))
        .and_then(|status| diff::before_commit(&args.changes, args.json, &mut tx, status));
    seen.merge(watched);
    let ending = match verdict {
        Ok(status) => {
            let progress = Progress::begin(!args.json);
            let ending = undo::commit(tx, args.undoable, |done| Ending::Committed(done, status));
            drop(progress);
            no_room::stage(Stage::Idle);
            ending
        }
        Err(ending) => {
            match &ending {
                Ending::Conflict(conflict) => tx.lose(conflict),
                // An ordinary user's twin ends with the service that this process is, any twin with the container.
                // That of a subtransaction with the outer one.
                _ if ordinary::is_ordinary() || std::process::id() == 1 || depth > 1 => tx.abort(),
                _ => left.staged = tx.abandon(),
            }
            ending
        }
    };
    Ok((ending, left))
}

/// Finishes what others left in mid-publication, also where this command does not come by.
pub fn finish_others(json: bool, domains: &[Arc<Domain<Linux>>]) {
    for domain in domains {
        if let Some(moved) = domain.area.moved.as_ref().filter(|_| !json) {
            let moved = shown(&domain.shown(moved));
            eprintln!("systx: another user's object had the name of the area; it is {moved} now.");
        }
        let mut recovered = domain.recovered.clone();
        // What can't be finished is met again by whoever needs it, and told then.
        recovered.merge(domain.finish_in_flight().unwrap_or_default());
        if !recovered.is_empty() {
            let _ = domain.settle_images();
        }
        let count = recovered.displaced.len();
        if count > 0 && !json {
            eprintln!(
                "systx: finished an earlier transaction that was cut off; objects displaced: {count}. See `systx status`."
            );
        }
    }
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
        (Some(Trouble::Doomed(conflict)), _) => Err(Ending::Conflict(conflict)),
        (Some(trouble), _) => Err(Ending::Failed(trouble.to_string())),
        (None, Over::NotStarted(news)) => Err(not_started(&args.command, news)),
        (None, Over::Ended(Ended::Exited(status))) if commits(status) => match served {
            Ok(()) => Ok(status),
            Err(e) => Err(Ending::Failed(remedy::with_step(SERVING, e))),
        },
        (None, Over::Ended(ended)) => Err(Ending::Aborted(ended)),
        (None, Over::TooLate) => {
            Err(Ending::TooLate(args.timeout.as_ref().map_or_else(String::new, |time| time.text.clone())))
        }
        // Only SIGKILL can end pid 1 of a namespace.
        (None, Over::Lost) => Err(Ending::Aborted(Ended::Signaled(9))),
        (None, Over::Doomed) => {
            let ended = || format!("{SERVING}: it ended; run again");
            Err(Ending::Failed(served.err().map_or_else(ended, |e| remedy::with_step(SERVING, e))))
        }
    }
}

/// Why a command did not begin.
pub fn not_started(command: &[OsString], news: News) -> Ending {
    match news {
        News::NotExecuted(e) => not_executed(command, e),
        News::NotBuilt { at, error } => {
            let at = at.map_or(String::new(), |at| shown(at.to_bytes()));
            let step = match (at.as_str(), error) {
                // mount_too_revealing in the kernel: who is root in a user namespace gets no more than he sees.
                ("proc", Errno::PERM) => {
                    "; parts of /proc are hidden here, as in a container: unmask it there (podman, docker: --security-opt \
                     systempaths=unconfined), or run systx as root"
                        .into()
                }
                _ => remedy::and_step(error),
            };
            Ending::Failed(format!("could not mount /{at} for the command: {error}{step}"))
        }
        News::NoDirectory(e) => Ending::Failed(format!(
            "could not enter the working directory: {e}; start in one that is there, and open to you, by the same path inside"
        )),
        News::NotWatched(e) => {
            let why = match e {
                Errno::BUSY => "somebody watches the calls here already, a sandbox or a container's manager",
                _ => "leave --network out, or allow seccomp and network namespaces here",
            };
            Ending::Failed(format!("could not watch the network calls of the command: {e}: {why}"))
        }
        News::NotEntered(e) => Ending::Failed(format!(
            "could not enter the transaction: {e}; `systx list` shows whether it is still open"
        )),
        News::NotFinished => Ending::Failed("a subtransaction that was cut off could not be finished".into()),
        News::Stopped | News::Ended(_) | News::Ready | News::Finished => {
            Ending::Failed("pid 1 of the command ended too early; run again, somebody has killed it".into())
        }
    }
}

fn not_executed(command: &[OsString], error: Errno) -> Ending {
    let name = command.first().map_or_else(String::new, |c| shown(c.as_encoded_bytes()));
    let (why, code) = match error {
        Errno::NOENT => {
            let step = match name.contains('/') {
                true => "check its path, and for a script the program in its first line",
                false => "check its name, and PATH",
            };
            (format!("{name}: command not found; {step}"), NOT_FOUND)
        }
        e => {
            let step = match e {
                Errno::ACCESS => "make it executable (chmod +x), or name the program that is to run it",
                Errno::NOEXEC => "give it a first line like #!/bin/sh, or name the program that is to run it",
                _ => "try it without systx",
            };
            (format!("{name}: can't be executed: {e}; {step}"), NOT_EXECUTABLE)
        }
    };
    Ending::NotStarted(why, code)
}

/// What a transaction is begun with.
pub fn options(promise: Promise, command: &[OsString]) -> Options {
    let durability = match promise.durability {
        DurabilityArg::Durable => Durability::Durable,
        DurabilityArg::None => Durability::None,
    };
    let isolation = match promise.isolation {
        IsolationArg::Serializable => Isolation::Serializable,
        IsolationArg::Committed => Isolation::Committed,
    };
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    Options { durability, isolation, command: words.join(" ") }
}

/// Says how it ended, where it was asked for, and returns the exit code.
pub fn tell(args: &Run, status: Option<OwnedFd>, id: Option<TxId>, ending: &Ending) -> u8 {
    say(&Told::new(ending, &Ours::new(id.map(|id| id.0), &args.command)), args.json, args.verbose, status)
}

/// Says it, and returns the exit code.
pub fn say(told: &Told, json: bool, verbose: bool, status: Option<OwnedFd>) -> u8 {
    let line = || format!("{}\n", told.json);
    if let Some(status) = status {
        // Whoever closed it does not want to know.
        let _ = std::fs::File::from(status).write_all(line().as_bytes());
    }
    let text = match json {
        true => line(),
        false if told.plain && !verbose => String::new(),
        false => format!("systx: {}\n", told.sentence),
    };
    let warning = told.warning.as_ref().filter(|_| !json);
    let warning = warning.map_or(String::new(), |why| format!("systx: warning: {why}\n"));
    let outside = told.outside.as_ref().filter(|_| !json);
    let outside = outside.map_or(String::new(), |what| format!("systx: {what}\n"));
    let _ = std::io::stderr().write_all((text + &warning + &outside).as_bytes());
    told.code
}

/// An error of a system call, with what was being done, and the next step.
pub fn failed(doing: &'static str) -> impl Fn(Errno) -> String {
    move |e| remedy::with_step(doing, e)
}

/// An error of a verb, with what was being done, and the next step.
pub fn told(doing: &str, error: &VerbError) -> String {
    match error {
        VerbError::Os(e) => remedy::with_step(doing, *e),
        VerbError::Doomed(conflict) => format!("{doing}: {conflict}"),
    }
}
