//! `systx check`: what an open transaction conflicts with now, before it is committed.
//!
//! Owns: its words, for this verb and for those that only warn. Guarantees: a look leaves the transaction as it is,
//! open or lost ([`Transaction::conflicts`]). Does not: promise that a commit right behind it succeeds, or fails.

use super::socket::{self, Found};
use super::wire::{Answer, Checked, Clash, Line, Request, Verdict, VERSION};
use super::{ask, complain, over, UNEXPECTED};
use crate::args::Check;
use crate::failure::Result;
use crate::report::{conflict_json, CONFLICT, OURS};
use serde_json::{json, Value};
use std::io::Write;
use systx_engine::outcome::{Conflict, Verb};
use systx_engine::shown::Shown;
use systx_engine::transaction::Transaction;
use systx_os::Linux;

/// At most so many conflicts are listed; the rest is counted.
pub const LISTED_MAX: usize = 1000;

/// The session daemon's work, for a message about an error in it.
pub const CHECKING: &str = "comparing what it has read";

/// Compares a transaction with what is there now; in the session daemon.
pub fn look(tx: &Transaction<Linux>, most: usize) -> Verb<Checked> {
    let found = tx.conflicts(most.min(LISTED_MAX))?;
    let clash = |conflict: &Conflict| Clash {
        line: format!("{}: {} by {}", Shown(&conflict.path), conflict.what, conflict.with),
        value: conflict_json(conflict),
    };
    Ok(Checked { conflicts: found.listed.iter().map(clash).collect(), more: found.more, lost: None })
}

/// A session daemon's answer to a question for its conflicts.
pub enum Asked {
    /// The conflicts.
    Checked(Checked),
    /// The transaction has ended.
    Over(Verdict),
}

/// Asks an open transaction for its conflicts: to list at most so many.
pub fn checked(found: &mut Found, most: usize) -> Result<Asked> {
    // An older one would not understand the question, and hang up.
    if found.look.version == VERSION {
        ask_for(&mut found.line, most)
    } else {
        Err(UNEXPECTED.into())
    }
}

/// Asks a session daemon of this version.
pub fn ask_for(line: &mut Line, most: usize) -> Result<Asked> {
    match ask(line, Request::Check { most }, &[])? {
        Answer::Checked(checked) => Ok(Asked::Checked(checked)),
        Answer::Ended(end) => Ok(Asked::Over(end)),
        Answer::Refused(why) => Err(why.into()),
        _ => Err(UNEXPECTED.into()),
    }
}

/// Returns what to tell a user who has not asked for conflicts, as a fragment; `None`: there are none.
pub fn warning(id: u64, checked: &Checked) -> Option<String> {
    let some = match checked.count() {
        0 => return None,
        1 => "1 conflict, which".to_string(),
        count => format!("{count} conflicts, which"),
    };
    Some(format!("can't be committed as things are: {some} `systx check {id}` lists"))
}

/// `systx check`; returns the exit code.
pub fn check(args: &Check) -> u8 {
    let asked = socket::find(&args.session).and_then(|mut found| {
        let checked = checked(&mut found, LISTED_MAX)?;
        Ok((found, checked))
    });
    let (found, checked) = match asked {
        Ok((found, Asked::Checked(checked))) => (found, checked),
        Ok((_, Asked::Over(end))) => return over(end, OURS),
        Err(why) => return complain(&why),
    };
    let text = if args.json {
        format!("{}\n", described_json(&found, &checked))
    } else {
        checked.lost.iter().for_each(|why| eprintln!("systx: {}", why.sentence));
        described(found.look.id, &checked)
    };
    // A reader that has closed standard output has the status.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match &checked.lost {
        _ if checked.count() > 0 => CONFLICT,
        Some(why) => why.code,
        None => 0,
    }
}

fn described(id: u64, checked: &Checked) -> String {
    let mut text: String = checked.conflicts.iter().map(|one| format!("{}\n", one.line)).collect();
    if checked.more > 0 {
        text += &format!("and {} more\n", checked.more);
    }
    if text.is_empty() && checked.lost.is_none() {
        text = format!("transaction {id} conflicts with nothing now\n");
    }
    text
}

fn described_json(found: &Found, checked: &Checked) -> Value {
    json!({
        "id": found.look.id,
        "pid": found.look.pid,
        "conflicts": checked.conflicts.iter().map(|one| one.value.clone()).collect::<Vec<_>>(),
        "more_conflicts": checked.more,
        "lost": checked.lost.as_ref().map(|why| why.json.clone()),
    })
}
