//! `systx`: system transactions on the command line.
//!
//! Owns: the wiring of the crates, arguments, output and exit codes. Guarantees: messages go to standard
//! error while a command runs, whose standard output is its own. Does not: contain any part of the protocol.
//!
//! Where to read on: [`run`] is a run from top to bottom, [`life`] the steps that it shares with open
//! transactions; [`tree`] decides what is served, and [`scope`] takes hold of it; [`supervise`] waits for a
//! command; [`report`] has the outcomes with their exit codes, [`diff`] the changes before a commit;
//! [`session`] is a transaction over several commands, [`undo`] takes one back. [`logging`] is for bug reports.
#![forbid(unsafe_code)]

mod args;
mod back_off;
mod command;
mod cover;
mod diff;
mod doctor;
mod domains;
mod failure;
mod hint;
mod hooks;
mod labels;
mod life;
mod log;
mod logging;
mod manuals;
mod native;
mod network;
mod on_end;
mod ordinary;
mod output;
mod progress;
mod report;
mod run;
mod scope;
mod serving;
mod session;
mod shell;
mod status;
mod sub;
mod supervise;
mod tree;
mod undo;
mod units;
mod words;
mod wrap;

use crate::failure::{Cause, Failure};
use args::{Cli, InstallHooks, Json, OnEnd, Verb, WatchAreas};
use status::Said;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    systx_os::linux::this_process_is_ours();
    systx_os::no_room::end_with_words();
    if let Err(e) = systx_os::sandbox::own::lay_down() {
        eprintln!("systx: laying down the capabilities of its program file: {e}.");
        return ExitCode::from(report::OURS);
    }
    if let Err(why) = logging::begin() {
        eprintln!("systx: {why}.");
        return ExitCode::from(report::OURS);
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(e) => {
            // Without standard error there is no way to report it.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { report::OURS } else { 0 });
        }
    };
    if matches!(cli.verb, Verb::List(_) | Verb::Status(_) | Verb::Log(_) | Verb::Recover(_) | Verb::Prune(_))
    {
        systx_os::process::lift_size_limit();
    }
    match cli.verb {
        Verb::Run(args) => ExitCode::from(run::run(&args)),
        Verb::Shell(args) => ExitCode::from(run::run(&shell::as_run(args))),
        Verb::Begin(args) => ExitCode::from(session::begin(&args)),
        Verb::Exec(args) => ExitCode::from(session::exec(args)),
        Verb::Diff(args) => ExitCode::from(session::diff(&args)),
        Verb::Check(args) => ExitCode::from(session::check(&args)),
        Verb::Commit(args) => ExitCode::from(session::commit(&args)),
        Verb::Abort(args) => ExitCode::from(session::abort(&args)),
        Verb::List(args) => answer(status::list(&args)),
        Verb::Status(args) => answer(status::status(&args)),
        Verb::Log(args) => answer(log::log(&args)),
        Verb::Undo(args) => ExitCode::from(undo::undo(&args)),
        Verb::OnEnd(args) => on_end(&args),
        Verb::Recover(args) => answer(status::recover(&args)),
        Verb::Prune(args) => answer(status::prune(&args)),
        Verb::Doctor(args) if args.json => answer(Ok(doctor::json(&args.area))),
        Verb::Doctor(args) => answer(Ok(doctor::text(&args.area))),
        Verb::Wrap(args) => answer(wrap::wrap(&args)),
        Verb::InstallHooks(args) => answer(install_hooks(&args)),
        Verb::Completions(args) => answer(manuals::completions(&args)),
        Verb::Manuals(args) => answer(manuals::manuals(&args)),
        Verb::WatchAreas(args) => watch_areas(&args),
        Verb::Version(args) => answer(Ok(Said { text: version(&args), well: true })),
    }
}

/// Prints an answer. Status 1: something is not well; 125: we could not find out.
fn answer(answer: status::Answer) -> ExitCode {
    match answer {
        // A reader that has closed our standard output does not want the rest.
        Ok(Said { text, well }) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::from(if well { 0 } else { 1 })
        }
        Err(why) => {
            eprintln!("systx: {why}.");
            ExitCode::from(report::OURS)
        }
    }
}

fn on_end(args: &OnEnd) -> ExitCode {
    match session::socket::number(&args.id, args.pid, &args.area) {
        Ok(wanted) => ExitCode::from(on_end::on_end(args, wanted)),
        Err(why) => {
            eprintln!("systx: {why}.");
            ExitCode::from(report::OURS)
        }
    }
}

/// The watcher that processes of the library start; they hear nothing of it.
fn watch_areas(args: &WatchAreas) -> ExitCode {
    logging::enter(logging::Role::Watcher);
    systx_os::process::lift_size_limit();
    systx_os::sandbox::helper::enter_cgroup();
    let tops: Vec<_> = args.tops.iter().map(|top| top.as_bytes().to_vec()).collect();
    let watched = systx::watch(&args.area.area_name, &tops);
    tracing::debug!(?watched, "the watch has ended");
    ExitCode::from(if watched.is_ok() { 0 } else { report::OURS })
}

fn install_hooks(args: &InstallHooks) -> status::Answer {
    let done = if args.uninstall {
        hooks::uninstall(&args.root)
    } else {
        hooks::this_program().and_then(|systx| hooks::install(&args.root, &systx))
    };
    let mut lines = done.map_err(Cause::from).map_err(|why| Failure::new("", why))?;
    if !args.uninstall {
        lines.push(
            "both run `systx recover --quiet`; remove them with `systx install-hooks --uninstall`".into(),
        );
    }
    Ok(Said { text: lines.iter().map(|line| format!("{line}\n")).collect(), well: true })
}

fn version(args: &Json) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if args.json {
        format!("{}\n", serde_json::json!({ "systx": version }))
    } else {
        format!("systx {version}\n")
    }
}
