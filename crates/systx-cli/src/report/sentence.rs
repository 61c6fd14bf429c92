//! An ending for people: what happened, on which side of the commit point, and what to do.
//!
//! Owns: the sentences. Guarantees: a transaction inside of another one is never said to be settled, since
//! the outer one decides ([`Phrases`]). Does not: print.

use super::{Discarded, Ending, Ours};
use crate::hint;
use crate::words::shown;
use systx_engine::outcome::{CommitError, Committed};
use systx_os::process::Ended;
use systx_os::Errno;

/// The phrases in which a transaction of its own and one inside of another differ.
struct Phrases {
    /// It has left no trace.
    aborted: &'static str,
    /// Where its changes are.
    in_place: &'static str,
    /// The process that finishes its publication.
    finished_by: &'static str,
    /// The way to find out whether it is committed.
    doubt_ended_by: &'static str,
    /// Where its displaced objects are found.
    conflict_copies_at: &'static str,
}

const ALONE: Phrases = Phrases {
    aborted: "aborted, nothing was changed",
    in_place: "committed: all changes are in place.",
    finished_by:
        "The next systx command here, a boot or a login with hooks finishes it; `systx recover` does it now.",
    doubt_ended_by:
        "Run `systx recover` to learn whether it is committed; don't run the command again before.",
    conflict_copies_at: "Look at them, then remove them with `systx prune`.",
};

const INSIDE: Phrases = Phrases {
    aborted: "undone, the outer transaction goes on",
    in_place: "committed: all changes are part of the outer transaction.",
    finished_by: "The next subtransaction finishes it, or the end of the outer transaction, which can't commit before.",
    doubt_ended_by: "The outer transaction finishes it, or can't commit.",
    conflict_copies_at: "At the end of the outer transaction they are in the directory that this one has served, as systx-displaced.1 and so on.",
};

/// Discarded changes that are named; the others are counted.
const DISCARDED_LINES_MAX: usize = 100;

impl Ours {
    fn phrases(&self) -> &'static Phrases {
        if self.sub {
            &INSIDE
        } else {
            &ALONE
        }
    }
}

impl Ending {
    /// Returns what happened, on which side of the commit point, and what to do; without the leading `systx: `.
    pub fn sentence(&self, ours: &Ours) -> String {
        let phrases = ours.phrases();
        if let Some(reason) = self.reason(ours) {
            return format!("{}: {reason}", phrases.aborted);
        }
        let id = ours.id.unwrap_or_default();
        match self {
            Ending::Committed(done, status) => committed(done, *status, phrases),
            Ending::Part(done, rest) => {
                let committed = if done.pending.is_some() || !done.conflict_copies.is_empty() { committed(done, 0, phrases) } else { "committed: what was chosen is in place.".into() };
                format!("{committed} {}", discarded(rest))
            }
            Ending::Mute(ending, why) => format!(
                "{} Its output could not be written: {why}. What is missing of it is lost; the changes are there, so don't run the command again for it.",
                ending.sentence(ours)
            ),
            Ending::DaemonKilled(Some(true)) => {
                format!("transaction {id} is committed from another terminal: its session daemon was killed thereafter.")
            }
            Ending::DaemonKilled(Some(false)) => {
                format!("transaction {id} is aborted, nothing was changed: its session daemon was killed, and what ran in it.")
            }
            Ending::DaemonKilled(None) => format!(
                "in doubt: the session daemon of transaction {id} was killed. Nothing was changed, unless it was just being committed."
            ),
            Ending::Lost(why) => lost(why, ours),
            Ending::Open(_) => format!(
                "nothing was changed yet: transaction {id} stays open until `systx commit {id}` or `systx abort {id}`; see `systx diff {id}`, and go on with `systx exec {id}`."
            ),
            Ending::DryRun(count, _) => dry_run(*count),
            Ending::Conflict(conflict) => {
                let again = if ours.kept { "Begin again, and repeat what it did" } else { "Run again, or use --retry" };
                format!("{conflict}. {} is {}. {again}.", ours.text(), phrases.aborted)
            }
            Ending::Overtaken(why) => why.sentence(),
            Ending::NotCommitted(doubt @ CommitError::InDoubt { .. }) => {
                format!("{doubt}. {}", phrases.doubt_ended_by)
            }
            _ => format!("{}.", phrases.aborted),
        }
    }

    /// Returns why nothing was changed, as a sentence; `None`: something did, or there is nothing to say of it.
    fn reason(&self, ours: &Ours) -> Option<String> {
        Some(match self {
            Ending::Expired(time) => {
                format!("the transaction was still open after {time}. Give it more with --timeout, or none.")
            }
            Ending::DaemonEnded(signal) => {
                format!("its session daemon (pid {}) was ended by signal {signal}.", ours.pid)
            }
            Ending::Left(pid) => format!("the systx that it was for (pid {pid}) is gone."),
            Ending::TooLate(time) => {
                format!("the command had not ended after {time}. Give it more with --timeout, or none.")
            }
            Ending::Outside(why) => {
                format!("{why}. Allow it with --network allow, or go on without it by --network deny.")
            }
            Ending::Aborted(Ended::Exited(status)) => format!("the command exited with status {status}."),
            Ending::Aborted(Ended::Signaled(signal)) => format!("the command was killed by signal {signal}."),
            Ending::NotStarted(why, _) | Ending::Failed(why) => format!("{why}."),
            Ending::NotCommitted(CommitError::InDoubt { .. }) => return None,
            Ending::NotCommitted(error) => {
                let hint = match error {
                    CommitError::Failed { error: Errno::AGAIN, path, .. } if !path.is_empty() => {
                        "; a program holds a lease on it and does not give it back: /proc/locks shows its process".into()
                    }
                    CommitError::Failed { error, .. } => hint::and_step(*error),
                    _ => String::new(),
                };
                format!("{error}{hint}.")
            }
            _ => return None,
        })
    }
}

fn committed(done: &Committed, status: u8, phrases: &Phrases) -> String {
    if let Some(why) = &done.pending {
        return format!("committed, publication pending: {why}. {}", phrases.finished_by);
    }
    if !done.conflict_copies.is_empty() {
        return conflict_copies(done, phrases);
    }
    match status {
        0 if done.steps == 0 => "committed; there was nothing to change.".into(),
        0 => phrases.in_place.into(),
        status => format!("committed, as was asked for, though the command exited with status {status}."),
    }
}

fn conflict_copies(done: &Committed, phrases: &Phrases) -> String {
    let count = done.conflict_copies.len();
    let mut text = format!("committed, {count} object{} displaced:", if count == 1 { "" } else { "s" });
    for one in &done.conflict_copies {
        text += &format!("\n  {}: {}", shown(&one.path), one.what);
        if let Some(aside) = &one.aside {
            text += &format!("; kept as aside/{aside} in the area");
        }
    }
    format!("{text}\n{}", phrases.conflict_copies_at)
}

fn discarded(rest: &[Discarded]) -> String {
    let mut text = match rest.len() {
        1 => "Discarded is 1 other change:".to_string(),
        count => format!("Discarded are {count} other changes:"),
    };
    for one in rest.iter().take(DISCARDED_LINES_MAX) {
        text += &format!("\n  {}", one.line);
    }
    match rest.len().saturating_sub(DISCARDED_LINES_MAX) {
        0 => text,
        more => text + &format!("\n  and {more} more, which --json would have named."),
    }
}

fn lost(why: &Ending, ours: &Ours) -> String {
    let id = ours.id.unwrap_or_default();
    let reason = match why {
        Ending::Conflict(conflict) => format!("{conflict}."),
        why => why.reason(ours).unwrap_or_else(|| why.sentence(ours)),
    };
    format!(
        "{reason} {} is lost: it can't be committed, nothing was changed. What was done in it stays: `systx diff {id} -p` shows it, `systx exec {id}` goes in to look, `systx abort {id}` discards it.",
        ours.text()
    )
}

fn dry_run(count: usize) -> String {
    let rest = match count {
        0 => "there is nothing to commit".into(),
        1 => "1 change is not committed".into(),
        count => format!("{count} changes are not committed"),
    };
    format!("dry run, nothing was changed: {rest}.")
}
