//! Transactions that stay open over several commands and terminals: `begin`, `exec`, `diff`, `check`, `commit`,
//! `abort`.
//!
//! Owns: these verbs, and `systx run` where it may leave its transaction open ([`kept`]). A *session daemon*
//! ([`session daemon`]) holds the transaction, its view and pid 1 of its namespaces, which has no command of
//! its own; it is found by a socket in the area ([`socket`]). `systx exec` asks it for the way in and goes in
//! itself ([`client`]): so the command is a descendant of its user's shell, and terminal, streams and job
//! control are as without systx, while pid 1 ends it as it ends everything inside. Guarantees: one session
//! daemon a transaction; when it dies, however, so does everything inside, and nothing has happened; there is
//! nothing to clean up that its helper would not. Does not: survive the machine: an open transaction is in
//! memory.
//!
//! ```text
//! systx begin ──► session daemon (own session) ──► pid 1 of the namespaces
//!                   │  └──► helper                ┆ kills, when it ends
//!                   └─socket─ systx exec ──► guest ──► the command
//! ```

pub mod bound;
mod check;
mod client;
pub mod daemon;
pub mod kept;
pub mod part;
mod server;
pub mod socket;
pub mod wire;

use crate::args::{Area, Begin, Commit, Diff, End, Exec, Id, Session, Undoable};
use crate::domains;
use crate::failure::{bytes, failed, in_words, Cause, Failure, Result};
use crate::life;
use crate::progress;
use crate::report::{say, Ending, Ours, CONFLICT, OURS, TOO_LATE};
use crate::shell;
use crate::words::{shown, Voice};
pub use check::check;
use check::Asked;
use client::{Tie, Went};
use part::Named;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use systx_os::process::Signals;
use systx_os::{streams, Linux};
use wire::{Answer, Form, Line, Look, Message, Request, Verdict, VERSION};

/// How often, and how many times, it is looked whether a helper has finished its work.
const HELPER_LOOK: std::time::Duration = std::time::Duration::from_millis(10);
const HELPER_LOOKS_MAX: u32 = 1000;

/// Killed by SIGKILL, as shells count it.
const KILLED: u8 = 137;

fn complain(why: &Failure) -> u8 {
    eprintln!("systx: {why}.");
    OURS
}

/// `systx begin`; returns the exit code.
pub fn begin(args: &Begin) -> u8 {
    let ours = std::env::args_os().skip(1);
    let command: Vec<_> = std::iter::once("systx".into()).chain(ours).collect();
    let begun = domains::table().and_then(|table| if domains::inside_a_transaction(&table) { Err("this is inside of a transaction already, and what it does is part of that; begin one outside of it".into()) } else { daemon::begin(daemon::Terms {
            only: &args.only,
            promise: args.promise,
            undoable: args.undoable,
            timeout: args.timeout.as_ref(),
            voice: Voice { json: args.json, verbose: args.verbose },
            area: &args.area,
            network: args.network.policy(),
            command: &command,
            // Until its number is printed.
            owned: true,
            keeps: true,
            name: args.name.as_deref(),
        }) });
    let (mut line, look) = match begun {
        Ok(begun) => begun,
        Err(why) => return complain(&why),
    };
    if let Err(why) = socket::name_is_free(&args.area, &look) {
        // Whatever comes of it: it goes with this process.
        let _ = finish(&mut line, look.id, Wanted::Abort, None);
        return complain(&why);
    }
    let text = if args.json {
        format!("{}\n", serde_json::json!({ "id": look.id, "pid": look.pid, "name": look.name }))
    } else {
        format!("{}\n", look.id)
    };
    let mut out = std::io::stdout();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A caller that can't learn its number has begun nothing.
        return complain(&Failure::new("nothing is begun: its number could not be printed", in_words(&e)));
    }
    match ask(&mut line, Request::Keep, &[]) {
        Ok(Answer::Ended(end)) => over(end, OURS),
        Ok(_) => 0,
        Err(why) => complain(&why),
    }
}

/// `systx exec`; returns the exit code.
pub fn exec(mut args: Exec) -> u8 {
    let asked_for_a_shell = args.command.is_empty();
    if asked_for_a_shell {
        args.command.push(shell::program());
    }
    let mut found = match socket::find(&Session::from(&args.session)) {
        Ok(found) => found,
        Err(why) => return complain(&why),
    };
    let id = found.look.id;
    if found.look.lost.is_some() {
        eprintln!("systx: transaction {id} is lost: nothing that is done in it can be committed.");
    }
    let prompt = if asked_for_a_shell { shell::prompt(id).into() } else { Vec::new() };
    match client::enter(&mut found.line, id, &args.command, &prompt, Tie::Another, None) {
        Ok(Went::Ended(ended)) => ended.code(),
        Ok(Went::NotStarted(news)) => not_started(&args.command, news),
        Ok(Went::TooLate) => TOO_LATE,
        Ok(Went::Over(end)) => over(end, KILLED),
        Ok(Went::Alone) => {
            eprintln!(
                "systx: the command was killed with everything in the transaction; that is open still."
            );
            KILLED
        }
        Ok(Went::NoDaemon) => {
            let ours = Ours::new(Some(id), &args.command);
            eprintln!("systx: {}", left_behind(&found.look, &args.session.area).sentence(&ours));
            KILLED
        }
        Err(why) => complain(&why),
    }
}

fn not_started(command: &[OsString], news: systx_os::sandbox::spawn::News) -> u8 {
    match life::not_started(command, news) {
        Ending::NotStarted(why, code) => {
            complain(&why);
            code
        }
        Ending::Failed(why) => complain(&why),
        _ => OURS,
    }
}

/// The transaction has ended while something was done with it, or before; `code` unless that was a conflict
/// or its time.
fn over(end: Verdict, code: u8) -> u8 {
    let reason = end.told.code;
    let told = end.of_another();
    eprintln!("systx: {}", told.sentence);
    if let Some(what) = &told.outside {
        eprintln!("systx: {what}");
    }
    match reason {
        CONFLICT | TOO_LATE => reason,
        _ => code,
    }
}

/// `systx diff`; returns the exit code.
pub fn diff(args: &Diff) -> u8 {
    let terminal = std::io::stdout().is_terminal();
    let form = Form { stat: args.stat, patch: args.patch, json: args.json, terminal };
    let told = Named::of(&args.only, &args.exclude).and_then(|part| {
        let mut found = socket::find(&args.session)?;
        let told = changes(&mut found.line, form, part)?;
        Ok((found, told))
    });
    let (mut found, mut file) = match told {
        Ok((found, Changes::Told(file, _))) => (found, file),
        Ok((_, Changes::Over(end))) => return over(end, OURS),
        Err(why) => return complain(&why),
    };
    match std::io::copy(&mut file, &mut std::io::stdout()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            return complain(&Failure::new("", in_words(&e)))
        }
        _ => {}
    }
    let id = found.look.id;
    // A lost one says by itself what keeps it from committing. The changes are told whatever comes of this question.
    if !args.json && found.look.lost.is_none() {
        if let Ok(Asked::Checked(checked)) = check::checked(&mut found, 0) {
            check::warning(id, &checked).iter().for_each(|why| eprintln!("systx: transaction {id} {why}."));
        }
    }
    0
}

/// A session daemon's answer to a question for its changes.
enum Changes {
    /// They, and how many.
    Told(std::fs::File, usize),
    /// The transaction has ended.
    Over(Verdict),
}

/// Asks for the changes.
fn changes(line: &mut Line, form: Form, part: Option<Named>) -> Result<Changes> {
    use std::io::Seek;
    let dir = std::env::temp_dir();
    let failed = |e| Failure::new("a file for the changes in", e).on(bytes(&dir));
    let mut file = std::fs::File::from(streams::unnamed_file(&dir).map_err(|e| failed(Cause::from(e)))?);
    match ask(line, Request::diff(form, part), &[file.as_fd()])? {
        Answer::Told { changes } => {
            file.rewind().map_err(|e| failed(Cause::from(e)))?;
            Ok(Changes::Told(file, changes))
        }
        Answer::Ended(end) => Ok(Changes::Over(end)),
        Answer::Refused(why) => Err(why.into()),
        _ => Err(UNEXPECTED.into()),
    }
}

/// From a session daemon of another version.
const UNEXPECTED: &str = "the session daemon of the transaction is another version of systx: use that one";
const NO_DAEMON: &str =
    "the session daemon of the transaction was killed: it is aborted, nothing was changed; begin again";

/// One question, one answer.
fn ask(line: &mut Line, request: Request, fds: &[BorrowedFd<'_>]) -> Result<Answer> {
    ask_if_there(line, request, fds)?.ok_or_else(|| NO_DAEMON.into())
}

/// One question, one answer. `None`: the session daemon is gone.
fn ask_if_there(line: &mut Line, request: Request, fds: &[BorrowedFd<'_>]) -> Result<Option<Answer>> {
    let said = match line.say(&Message { version: VERSION, request }, fds) {
        // It may have said before it went how it ended.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    };
    match said.and_then(|()| line.hear::<Answer>()) {
        Ok(answer) => Ok(answer.map(|(answer, _)| answer)),
        Err(e) => Err(Failure::new("asking the session daemon of the transaction", in_words(&e))
            .hint("`systx list` shows whether it still runs")),
    }
}

/// `systx commit`; returns the exit code.
pub fn commit(args: &Commit) -> u8 {
    let ended =
        Named::of_args(&args.paths).and_then(|part| end(&args.end, Wanted::Commit(part, args.undoable)));
    ended.unwrap_or_else(|why| complain(&why))
}

/// `systx abort`; returns the exit code.
pub fn abort(args: &End) -> u8 {
    end(args, Wanted::Abort).unwrap_or_else(|why| complain(&why))
}

fn end(args: &End, wanted: Wanted) -> Result<u8> {
    let mut found = socket::find(&Session::from(&args.session))?;
    if !args.force && !found.look.inside.is_empty() && !agreed(&found.look)? {
        return Err(format!("transaction {} goes on: nothing was changed yet", found.look.id).into());
    }
    let terminal = if args.json { None } else { progress::terminal() };
    let aborts = matches!(wanted, Wanted::Abort);
    let end = finish(&mut found.line, found.look.id, wanted, terminal)?;
    let of_another = end.is_of_another();
    let code = say(&end.of_another(), Voice { json: args.json, verbose: args.verbose }, None);
    // Given once more, `@` is another one.
    if matches!(args.session.id, Id::Back(_)) && !args.json {
        eprintln!("systx: that was transaction {}.", found.look.id);
    }
    // The transaction is gone, as was wanted: no client has committed it, and no other was asked to end it.
    Ok(if aborts && !of_another { 0 } else { code })
}

/// Discards one that is lost.
pub fn discard(found: &mut socket::Found) -> Result<()> {
    finish(&mut found.line, found.look.id, Wanted::Abort, None).map(drop)
}

/// Names who works in it, and asks at the terminal; anything but yes is no.
fn agreed(look: &Look) -> Result<bool> {
    let people = inside(look);
    let (mut err, input) = (std::io::stderr(), std::io::stdin());
    if !(err.is_terminal() && input.is_terminal()) {
        let people = people.trim_end();
        let why =
            format!("commands run in transaction {}: end their commands, or use --force\n{people}", look.id);
        return Err(why.into());
    }
    let mut answer = String::new();
    write!(err, "Commands run in transaction {}:\n{people}End their commands? [y/N] ", look.id)
        .and_then(|()| err.flush())
        .and_then(|()| input.read_line(&mut answer))
        .map_err(|e| Failure::new("asking at the terminal", in_words(&e)))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// How an open transaction is to end.
enum Wanted {
    /// With what is named; `None`: with everything.
    Commit(Option<Named>, Undoable),
    Abort,
}

/// Ends an open transaction.
fn finish(line: &mut Line, id: u64, wanted: Wanted, terminal: Option<OwnedFd>) -> Result<Verdict> {
    // As for a run: killed in mid-commit, this process would not learn the outcome.
    let _held = Signals::hold().map_err(failed("holding signals"))?;
    let (verb, commit, part, undoable) = match wanted {
        Wanted::Commit(part, Undoable { undoable }) => ("commit", true, part, undoable),
        Wanted::Abort => ("abort", false, None, false),
    };
    let by = format!("`systx {verb}` (pid {})", std::process::id()).into_bytes();
    let shown: Vec<_> = terminal.iter().filter(|_| commit).map(|fd| fd.as_fd()).collect();
    match ask_if_there(line, Request::End { commit, by, part, undoable }, &shown)? {
        Some(Answer::Ended(end)) => Ok(end),
        Some(Answer::Refused(why)) => Err(why.into()),
        Some(_) => Err(UNEXPECTED.into()),
        None if commit => Err(format!(
            "in doubt: the session daemon of transaction {id} was killed. Run `systx recover` to learn whether it is committed"
        )
        .into()),
        None => Err(NO_DAEMON.into()),
    }
}

/// Finds out the fate of a transaction whose session daemon was killed, as `systx recover` does.
fn left_behind(look: &Look, area: &Area) -> Ending {
    let Ok(found) = domains::existing(&Linux::new(), area) else { return Ending::DaemonKilled(None) };
    let committed = found.open.iter().any(|(mounted, domain)| {
        let number = look.numbers.iter().find(|(point, _)| *point == mounted.lower.point);
        let Some((_, id)) = number else { return false };
        // A cut-off commit is finished here, or just now by the helper process; until then it may be an abort
        // still.
        let in_flight = || {
            let _ = domain.finish_dead();
            let listed = domain.transactions().unwrap_or_default();
            listed.iter().any(|one| one.tx.0 == *id && one.state.is_some())
        };
        let mut patience = HELPER_LOOKS_MAX;
        while in_flight() && patience > 0 {
            patience -= 1;
            std::thread::sleep(HELPER_LOOK);
        }
        let past = domain.history().unwrap_or_default();
        past.iter().any(|past| past.tx.0 == *id && past.at >= look.since)
    });
    Ending::DaemonKilled((committed || look.recorded).then_some(committed))
}

/// Describes a transaction that is not open.
fn elsewhere(id: u64, area: &Area) -> Option<String> {
    let found = domains::existing(&Linux::new(), area).ok()?;
    let mut all = found.open.iter().filter_map(|(_, domain)| domain.transactions().ok()).flatten();
    let listed = all.find(|listed| listed.tx.0 == id)?;
    let (pid, command) = (listed.pid, shown(&listed.command));
    Some(match listed.state {
        // Also one that has just been begun, or is just being ended.
        None => format!("transaction {id} runs (pid {pid}: {command}), but is not open, or not any more"),
        Some(_) => format!("transaction {id} is {} (pid {pid})", domains::state(&listed)),
    })
}

/// How long ago that was, in words.
fn ago(since: i64) -> String {
    let now = now();
    match now.saturating_sub(since).max(0) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86400),
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// Describes an open transaction, for people.
pub fn described(look: &Look) -> String {
    let name = look.name.as_ref().map_or_else(String::new, |name| format!(", named {name}"));
    let mut out = format!("  open for {}, by user {}{name}\n", ago(look.since), look.uid);
    if let Some(why) = &look.doomed {
        out += &format!("  can't be committed: {why}\n");
    }
    if let Some(bytes) = look.lost {
        out += &format!("  its changes take {}\n", room(bytes));
    }
    out + &inside(look)
}

/// An amount of room, in words.
pub fn room(bytes: u64) -> String {
    match bytes {
        0..=1_048_575 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// The commands inside, for people.
pub fn inside(look: &Look) -> String {
    let line = |inside: &wire::Inside| {
        format!("  inside: pid {}, for {}: {}\n", inside.pid, ago(inside.since), shown(&inside.command))
    };
    look.inside.iter().map(line).collect()
}

/// Describes an open transaction, for programs.
pub fn described_json(look: &Look) -> serde_json::Value {
    let inside = |inside: &wire::Inside| {
        let mut value = serde_json::json!({ "pid": inside.pid, "since": inside.since });
        crate::words::put(&mut value, "command", &inside.command);
        value
    };
    serde_json::json!({
        "name": look.name,
        "uid": look.uid,
        "since": look.since,
        "doomed": look.doomed,
        "lost_bytes": look.lost,
        "inside": look.inside.iter().map(inside).collect::<Vec<_>>(),
    })
}
