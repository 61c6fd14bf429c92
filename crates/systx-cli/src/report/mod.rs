//! How a run ended: one sentence, one exit code, one line of JSON.
//!
//! Owns: the words and the numbers, as docs/guarantees.md and docs/output.md have them. Guarantees: every
//! ending says on which side of the commit point it is and what to do; a name in a text can't command a
//! terminal. Does not: print.

mod ending;
mod json;
mod outside;
mod overtaken;
mod say;
mod sentence;
#[cfg(test)]
mod tests;

pub use ending::Ending;
pub use json::{conflict_copy_json, conflict_json};
pub use outside::{Attempt, Seen};
pub use overtaken::{Later, Obstacle, Overtaken};
pub use say::{say, tell};

use crate::words::{put, shown};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use systx_engine::domain::records::COMMAND_BYTES_MAX;

/// Conflict: EX_TEMPFAIL of sysexits.h.
pub const CONFLICT: u8 = 75;
/// Committed with displaced objects.
pub const DISPLACED: u8 = 76;
/// The user does not want it.
pub const DECLINED: u8 = 1;
/// Out of time, as timeout(1) has it.
pub const TOO_LATE: u8 = 124;
/// Our own failure, pending or in doubt.
pub const OURS: u8 = 125;
/// The command can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// Identity of the transaction that a report is about.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Number, once it has one.
    pub id: Option<u64>,
    /// Process.
    pub pid: u32,
    /// Command line.
    pub command: Vec<u8>,
    /// True if it stays open over several commands.
    pub kept: bool,
    /// True if it is inside of another one.
    pub sub: bool,
}

impl Ours {
    /// The transaction of this process.
    pub fn new(id: Option<u64>, command: &[std::ffi::OsString]) -> Ours {
        let words: Vec<_> = command.iter().map(|word| word.as_encoded_bytes()).collect();
        Ours { id, pid: std::process::id(), command: words.join(&b' '), kept: false, sub: false }
    }

    /// Returns the subject of a sentence; the other party's command is cut off at the same length.
    fn text(&self) -> String {
        let command = shown(&self.command[..self.command.len().min(COMMAND_BYTES_MAX)]);
        match self.id {
            Some(id) => format!("Transaction {id} (pid {}: {command})", self.pid),
            None => format!("This transaction (pid {}: {command})", self.pid),
        }
    }
}

/// An ending in words, in the form in which one process passes it to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Exit code.
    pub code: u8,
    /// True if there is nothing to report unless asked.
    pub plain: bool,
    /// The sentence: what happened, and what to do.
    pub sentence: String,
    /// Something else that the user should look at.
    pub warning: Option<String>,
    /// Whom the command has reached outside, or would have.
    pub outside: Option<String>,
    /// The outcome for programs.
    pub json: Value,
}

impl Told {
    /// The words of an ending.
    pub fn new(ending: &Ending, ours: &Ours) -> Told {
        Told {
            code: ending.code(),
            plain: ending.is_plain_success(),
            sentence: ending.sentence(ours),
            warning: ending.warning().map(str::to_string),
            outside: None,
            json: ending.json(ours),
        }
    }

    /// Returns the end that another party gave the transaction, for a command that wanted to end it itself.
    pub fn by_another(self, by: &[u8]) -> Told {
        let sentence = format!("the transaction was ended by {}: {}", shown(by), self.sentence);
        let mut json = json!({ "outcome": "ended", "status": OURS, "message": sentence, "end": self.json });
        put(&mut json, "by", by);
        Told { code: OURS, plain: false, sentence, warning: None, outside: self.outside, json }
    }

    /// With what the command has reached.
    pub fn having(mut self, seen: &Seen) -> Told {
        self.outside = seen.sentence();
        let json = seen.json();
        if !json.is_null() {
            self.json["outside"] = json;
        }
        self
    }
}

/// A change that was given up.
#[derive(Clone, Debug)]
pub struct Discarded {
    /// For people, without its end.
    pub line: String,
    /// For programs.
    pub value: Value,
}
