//! A command in an open transaction, seen from the `systx` that runs it.
//!
//! Owns: asking for the way in, going in, the wait. Guarantees: it returns only when its command is gone; why
//! it went is what the session daemon says, if the command did not end by itself. Does not: print.

use super::wire::{Answer, Line, Message, Request, Verdict, VERSION};
use super::{ask, UNEXPECTED};
use crate::command;
use crate::failure::{failed, Failure, Result};
use crate::supervise::{supervise, Ends, Over};
use std::ffi::OsString;
use std::os::fd::AsFd;
use systx_engine::domain::records::COMMAND_BYTES_MAX;
use systx_os::fuse::EventFd;
use systx_os::process::{Deadline, Ended, Signals, Terminal};
use systx_os::sandbox::join::{join, Entry, Guest};
use systx_os::sandbox::spawn::News;
use systx_os::{Errno, Linux};

/// SIGHUP and SIGTERM, by which a session daemon asks who is inside to end.
const HANG_UP: u8 = 1;
const TERMINATE: u8 = 15;

/// How it went.
pub enum Went {
    /// The command ended.
    Ended(Ended),
    /// It never began.
    NotStarted(News),
    /// It had its time and was killed.
    TooLate,
    /// The transaction has ended, with everything inside.
    Over(Verdict),
    /// A program inside has killed the command's guest; the transaction is open.
    Alone,
    /// The session daemon is dead.
    NoDaemon,
}

/// What a transaction is to the process that runs a command in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// Its own: aborted if it goes without having said that the transaction is to stay.
    Own,
    /// Another's.
    Another,
}

/// Runs a command inside.
pub fn enter(
    line: &mut Line,
    id: u64,
    words: &[OsString],
    prompt: &[(&str, OsString)],
    tie: Tie,
    too_late: Option<&Deadline>,
) -> Result<Went> {
    let mut command = words.join(std::ffi::OsStr::new(" ")).into_encoded_bytes();
    command.truncate(COMMAND_BYTES_MAX);
    let owner = tie == Tie::Own;
    let entered = line
        .say(&Message { version: VERSION, request: Request::Enter { command, owner } }, &[])
        .and_then(|()| line.hear::<Answer>());
    let (group, fds) = match entered {
        Ok(Some((Answer::Entered { group }, fds))) => (group, fds),
        Ok(Some((Answer::Ended(end), _))) => return Ok(Went::Over(end)),
        Ok(Some((Answer::Refused(why), _))) => return Err(why.into()),
        Ok(Some(_)) => return Err(UNEXPECTED.into()),
        Ok(None) | Err(_) => return Ok(Went::NoDaemon),
    };
    let entry = Entry::from_descriptors(fds).ok_or(UNEXPECTED)?;
    let ours = systx_os::process::group();
    if let Some(group) = group.filter(|group| *group != ours) {
        return Err(format!(
            "the transaction was begun with group {group}, and this is group {ours}: use `sg` or `newgrp`"
        )
        .into());
    }
    let guest = Guest {
        argv: command::words(words)?,
        env: command::environment(id, prompt)?,
        directory: command::directory()?,
        umask: Linux::new().inherited_umask(),
    };
    let signals = Signals::hold().map_err(failed("holding signals"))?;
    let terminal = Terminal::foreground();
    let never = EventFd::new().map_err(failed("making an eventfd"))?;
    let silenced = EventFd::new().map_err(failed("making an eventfd"))?;
    let over = match join(&guest, &entry, &signals) {
        Ok(mut child) => {
            // A descriptor of its tree would keep the tree from going.
            drop(entry);
            let too_late = too_late.map_or(never.as_fd(), AsFd::as_fd);
            let ends = Ends { doomed: never.as_fd(), too_late, silenced: &silenced };
            supervise(&mut child, &signals, terminal.as_ref(), ends)
        }
        // Pid 1 of the namespaces is gone.
        Err(Errno::NOMEM) => Over::Lost,
        Err(Errno::INVAL | Errno::PERM) => {
            return Err("the transaction was begun in another container or user namespace: go there".into())
        }
        Err(e) => return Err(Failure::new("going into the transaction", e).with_step()),
    };
    match over {
        // Perhaps since the transaction ends.
        Over::Ended(ended @ Ended::Signaled(HANG_UP | TERMINATE)) => Ok(match ask(line, Request::Why, &[]) {
            Ok(Answer::Ended(end)) => Went::Over(end),
            Ok(_) => Went::Ended(ended),
            Err(_) => Went::NoDaemon,
        }),
        Over::Ended(ended) => Ok(Went::Ended(ended)),
        Over::NotStarted(news) => Ok(Went::NotStarted(news)),
        Over::TooLate => Ok(Went::TooLate),
        Over::Lost | Over::Doomed => Ok(match ask(line, Request::Why, &[]) {
            Ok(Answer::Ended(end)) => Went::Over(end),
            Ok(Answer::Open) => Went::Alone,
            _ => Went::NoDaemon,
        }),
    }
}
