//! The ways in which a transaction ends, and the exit code of each.

use super::{Discarded, Overtaken, CONFLICT, DECLINED, DISPLACED, OURS, TOO_LATE};
use crate::failure::{Cause, Failure};
use systx_engine::outcome::{CommitError, Committed, Conflict};
use systx_os::process::Ended;

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The command is past the commit point. It ended with this status: 0, or whatever was to be committed, too.
    Committed(Committed, u8),
    /// The part of an open transaction that was asked for is past the commit point; the rest is given up.
    Part(Committed, Vec<Discarded>),
    /// The command's changes, so many, were shown and not committed, as was asked for. The command's status.
    DryRun(usize, u8),
    /// The command failed: nothing was changed.
    Aborted(Ended),
    /// It ended so, but its output could not be written.
    Mute(Box<Ending>, Cause),
    /// The user said so: nothing was changed.
    Declined,
    /// An open transaction was to be aborted: nothing was changed.
    Discarded,
    /// An open transaction had so much time, in the user's words: nothing was changed.
    Expired(String),
    /// The process that kept an open transaction was ended by this signal: nothing was changed.
    DaemonEnded(i32),
    /// The session daemon was killed; true if another process has committed the transaction, where that is
    /// known.
    DaemonKilled(Option<bool>),
    /// An open transaction could not commit, for the reason of this ending, but what was done in it stays to
    /// be looked at.
    Lost(Box<Ending>),
    /// The process that an open transaction was for, by its number, has gone without saying that it stays.
    Left(u32),
    /// The command ended so, and the transaction stays open: nothing was changed yet.
    Open(Ended),
    /// It had so much time, in the user's words, and was killed: nothing was changed.
    TooLate(String),
    /// The command would have reached a peer outside, as this text says, and was killed.
    Outside(String),
    /// The command was not started, by this error and with this exit code: nothing was changed.
    NotStarted(Failure, u8),
    /// A conflict ended it while it ran, or at its commit: nothing was changed.
    Conflict(Conflict),
    /// The commit failed, or its fate is unknown.
    NotCommitted(CommitError),
    /// The changes that were to be undone have changed since.
    Overtaken(Box<Overtaken>),
    /// We failed before the commit: nothing was changed.
    Failed(Failure),
}

impl From<CommitError> for Ending {
    fn from(error: CommitError) -> Ending {
        match error {
            CommitError::Conflict(conflict) => Ending::Conflict(*conflict),
            other => Ending::NotCommitted(other),
        }
    }
}

impl Ending {
    /// Exit code of `systx run`.
    pub fn code(&self) -> u8 {
        match self {
            Ending::Committed(c, _) if c.pending.is_some() => OURS,
            Ending::Committed(c, _) if !c.conflict_copies.is_empty() => DISPLACED,
            Ending::Committed(_, status) | Ending::DryRun(_, status) => *status,
            Ending::Part(c, _) => Ending::Committed(c.clone(), 0).code(),
            Ending::Aborted(ended) | Ending::Open(ended) => ended.code(),
            Ending::Discarded => 0,
            Ending::Declined => DECLINED,
            Ending::TooLate(_) | Ending::Expired(_) => TOO_LATE,
            Ending::NotStarted(_, code) => *code,
            Ending::Conflict(_) | Ending::Overtaken(_) => CONFLICT,
            Ending::NotCommitted(_) | Ending::Failed(_) | Ending::Mute(..) | Ending::Outside(_) => OURS,
            Ending::DaemonEnded(_) | Ending::DaemonKilled(_) | Ending::Left(_) => OURS,
            Ending::Lost(why) => why.code(),
        }
    }

    /// Returns true if there is nothing to report unless asked.
    pub fn is_plain_success(&self) -> bool {
        matches!(self, Ending::Committed(..) | Ending::Discarded) && self.code() == 0
    }

    /// Adds a warning to the ending of a committed transaction.
    pub fn warning_of(mut self, more: Option<String>) -> Ending {
        if let (Ending::Committed(c, _) | Ending::Part(c, _), Some(more)) = (&mut self, more) {
            c.warning = Some(c.warning.take().map_or(more.clone(), |first| format!("{more}; {first}")));
        }
        self
    }

    /// Returns something else that the user should look at.
    pub fn warning(&self) -> Option<&str> {
        match self {
            Ending::Committed(c, _) | Ending::Part(c, _) => c.warning.as_deref(),
            Ending::Mute(ending, _) => ending.warning(),
            _ => None,
        }
    }
}
