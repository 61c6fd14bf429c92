//! `systx shell`: an interactive shell as one transaction, and the question at its end.
//!
//! Owns: the choice of the shell, its prompt, and the question. A shell's status is that of its last command
//! and says nothing about the user's wishes, so the user is asked. Does not: ask without a terminal; there
//! the status decides, as for a command.

use crate::args::{Changes, OnConflict, Run, Shell};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use systx_os::process::{self, Signals};

/// The user's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Make it happen.
    Commit,
    /// Leave no trace.
    Abort,
    /// See what it would change, and be asked again.
    Look,
    /// Leave it open.
    Keep,
}

/// The run that a shell is.
pub fn as_run(args: Shell) -> Run {
    let Shell { only, promise, undoable, network, verbose, area } = args;
    let (command, on_error, changes, asks) = (vec![program()], None, Changes::default(), true);
    let (retry, timeout, hold_output, status_fd, json) = (0, None, false, None, false);
    let (no_commit, sub, on_conflict) = (false, false, OnConflict::Abort);
    Run {
        only,
        sub,
        promise,
        retry,
        on_error,
        on_conflict,
        no_commit,
        timeout,
        changes,
        undoable,
        hold_output,
        network,
        no_native: true,
        status_fd,
        json,
        verbose,
        area,
        command,
        asks,
    }
}

/// The user's shell.
pub fn program() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

/// Returns the environment for the prompt of a shell in transaction `id`. bash sets PS1 anew in its start
/// files and runs PROMPT_COMMAND before each prompt; other shells of that family take PS1 as it is. It has
/// the number, not the variable, which zsh would not expand.
pub fn prompt(id: u64) -> [(&'static str, OsString); 2] {
    let before = std::env::var_os("PROMPT_COMMAND").unwrap_or_default();
    let mut command = OsString::from("PS1=\"(systx $SYSTX_ID) ${PS1#\"(systx $SYSTX_ID) \"}\"");
    if !before.is_empty() {
        command.push("; ");
        command.push(before);
    }
    [("PROMPT_COMMAND", command), ("PS1", format!("(systx {id}) $ ").into())]
}

/// Ask this often again after an end of input: a terminal that is gone gives nothing else.
const ENDS_MAX: u32 = 3;

/// Asks at the terminal whether to commit so many changes, behind a warning of what would keep the commit from
/// succeeding. An interrupt and an end of input are no answer;
/// where no answer can come any more the transaction stays open, since nothing has allowed to discard its
/// changes.
pub fn ask(changes: usize, warning: Option<&str>, signals: &Signals) -> Choice {
    asked(changes, warning, signals).unwrap_or(Choice::Keep)
}

fn asked(changes: usize, warning: Option<&str>, signals: &Signals) -> std::io::Result<Choice> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    if let Some(why) = warning {
        writeln!(terminal, "systx: {why}.")?;
    }
    let mut ends = 0;
    loop {
        let some = if changes == 1 { "1 change".to_string() } else { format!("{changes} changes") };
        write!(terminal, "systx: commit {some}? [y]es, [n]o, [d]iff, [k]eep it open: ")?;
        let [typed, signal] = process::wait_readable([terminal.as_fd(), signals.fd().as_fd()]);
        if signal {
            while let Some(arrived) = signals.next() {
                let interrupt = arrived.signal == process::INTERRUPT;
                if process::asks_for_an_end(arrived.signal) && !interrupt {
                    return Ok(Choice::Keep);
                }
            }
            writeln!(terminal)?;
            continue;
        }
        if !typed {
            continue;
        }
        let mut line = [0; 256];
        match terminal.read(&mut line)? {
            0 if ends == ENDS_MAX => return Ok(Choice::Keep),
            0 => {
                ends += 1;
                writeln!(terminal)?;
            }
            len => match line[..len].trim_ascii() {
                b"y" | b"Y" | b"yes" => return Ok(Choice::Commit),
                b"n" | b"N" | b"no" => return Ok(Choice::Abort),
                b"d" | b"D" | b"diff" => return Ok(Choice::Look),
                b"k" | b"K" | b"keep" => return Ok(Choice::Keep),
                _ => {}
            },
        }
    }
}
