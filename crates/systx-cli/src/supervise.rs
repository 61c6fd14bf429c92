//! From the start of a command to its end: signals, stops, and the end of a doomed transaction.
//!
//! Owns: the loop that `systx run` waits in. Guarantees: it returns only when no process of the command is left; a
//! command that is stopped stops `systx`, too, so that a shell's job control works. Does not: judge the end.

use std::os::fd::{AsFd, BorrowedFd};
use systx_os::fuse::EventFd;
use systx_os::process::{self, Ended, Signals, Terminal};
use systx_os::sandbox::spawn::{Child, News};

/// Why the wait is over.
#[derive(Debug, PartialEq, Eq)]
pub enum Over {
    /// The command ended.
    Ended(Ended),
    /// It never began.
    NotStarted(News),
    /// The transaction can't commit any more; everything of the command was killed.
    Doomed,
    /// It had its time; everything of it was killed.
    TooLate,
    /// Pid 1 of its namespaces was killed from outside.
    Lost,
}

/// Descriptors that become readable when a command must end.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// The transaction can't commit any more.
    pub doomed: BorrowedFd<'a>,
    /// Time-out of the command.
    pub too_late: BorrowedFd<'a>,
    /// Rung when no program runs on: who waits for an answer may get it.
    pub silenced: &'a EventFd,
}

/// Waits for the end of a command, or ends it.
pub fn supervise(child: &mut Child, signals: &Signals, terminal: Option<&Terminal>, ends: Ends<'_>) -> Over {
    let over = wait(child, signals, terminal, ends);
    if matches!(over, Over::Doomed | Over::TooLate) {
        child.silence();
    }
    ends.silenced.ring();
    child.reap();
    if let Some(terminal) = terminal {
        terminal.take_back();
        // A command that ends by itself leaves the terminal as it means to, as without systx.
        if !matches!(over, Over::Ended(Ended::Exited(_))) {
            terminal.restore();
        }
    }
    over
}

fn wait(child: &Child, signals: &Signals, terminal: Option<&Terminal>, ends: Ends<'_>) -> Over {
    loop {
        let [talk, arrived, doomed, too_late] =
            process::wait_readable([child.talk().as_fd(), signals.fd().as_fd(), ends.doomed, ends.too_late]);
        if doomed {
            return Over::Doomed;
        }
        if arrived {
            forward(child, signals);
        }
        if talk {
            match child.news() {
                Some(News::Stopped) => stop(child, terminal),
                Some(News::Continued) => {}
                Some(News::Ended(ended)) => return Over::Ended(ended),
                Some(news) => return Over::NotStarted(news),
                None => return Over::Lost,
            }
        }
        // Last: a command that has ended in time has ended.
        if too_late {
            return Over::TooLate;
        }
    }
}

/// Passes on what was sent to us alone. What the terminal sends the command gets itself: it is in the same group.
fn forward(child: &Child, signals: &Signals) {
    while let Some(arrived) = signals.next() {
        if !arrived.by_kernel {
            child.signal(arrived.signal);
        }
    }
}

/// Stops as the command did, so that our shell notices; when continued, continues it. Whoever continues the command alone
/// continues us.
fn stop(child: &Child, terminal: Option<&Terminal>) {
    let holder = terminal.and_then(Terminal::holder);
    let goes_on = child.stop_with_it();
    // A shell that puts us into the foreground means the command.
    if let (Some(terminal), Some(holder)) = (terminal.filter(|terminal| terminal.is_ours()), holder) {
        terminal.give(holder);
    }
    if goes_on {
        child.resume();
    }
}
