//! The changes of a transaction, shown before they are committed or given up.
//!
//! Owns: the choice of the form and the way out. Guarantees: nothing is left out or cut off; names and, on a
//! terminal, contents can't command it. The changes are those of the working set when the command has ended:
//! a commit that follows publishes just them, or nothing. Does not: change anything.

mod json;
mod lines;
mod patch;
mod stat;

use crate::args::Changes;
use crate::failure::Failure;
use crate::report::{Discarded, Ending};
use crate::words::Voice;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use systx_engine::changes::Change;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::Transaction;
use systx_os::{Errno, Linux};

/// Why an inner run shows nothing.
pub const PART_OF_ANOTHER: &str =
    "--dry-run, --diff, --stat and -p are for a transaction of its own, and this run is part of another one: give them to that, or make this one of its own with --sub";

/// Shows the changes in the form that was asked for, if any. Returns the command's status if they are to be
/// committed.
pub fn before_commit(
    form: &Changes,
    voice: Voice,
    tx: &mut Transaction<Linux>,
    status: u8,
) -> Result<u8, Ending> {
    if !form.are_told() {
        return Ok(status);
    }
    let mut out = Out::new();
    let told =
        tx.changes().and_then(|changes| tell(form, voice, tx, &changes, &mut out).map(|()| changes.len()));
    out.flush();
    match told {
        Ok(count) if form.dry_run => Err(Ending::DryRun(count, status)),
        Ok(_) => Ok(status),
        Err(VerbError::Doomed(conflict)) => Err(Ending::Conflict(*conflict)),
        Err(VerbError::Os(e)) => Err(Ending::Failed(Failure::new("telling what would change", e))),
    }
}

/// A file that changes are written into.
pub struct Target {
    /// The file.
    pub file: File,
    /// It is for a terminal.
    pub terminal: bool,
}

/// Writes the changes of an open transaction into a file; returns how many there are.
pub fn into_file(
    form: &Changes,
    voice: Voice,
    tx: &mut Transaction<Linux>,
    changes: &[Change],
    Target { file, terminal }: Target,
) -> Verb<usize> {
    let mut out = Out { terminal, to: BufWriter::new(Box::new(file)), lost: None };
    tell(form, voice, tx, changes, &mut out)?;
    out.flush();
    match out.lost {
        // A part would be taken for the whole.
        Some(e) => Err(VerbError::Os(Errno::from_io_error(&e).unwrap_or(Errno::IO))),
        None => Ok(changes.len()),
    }
}

/// A change that is given up: a line for people, and a value for programs.
pub fn discarded(change: &Change, tx: &Transaction<Linux>) -> Discarded {
    Discarded { line: lines::line(change, tx).trim_end().to_string(), value: json::value(change, tx) }
}

fn tell(
    form: &Changes,
    voice: Voice,
    tx: &mut Transaction<Linux>,
    changes: &[Change],
    out: &mut Out,
) -> Verb<()> {
    if voice.json {
        json::tell(changes, tx, out);
        return Ok(());
    }
    if form.stat {
        stat::tell(changes, tx, out)?;
    }
    if form.patch {
        return changes.iter().try_for_each(|change| patch::tell(change, tx, out));
    }
    if !form.stat {
        changes.iter().for_each(|change| out.put(&lines::line(change, tx)));
    }
    Ok(())
}

/// Standard error, as standard output is the command's; or a file.
struct Out {
    to: BufWriter<Box<dyn Write>>,
    terminal: bool,
    /// Why not all of it was written.
    lost: Option<std::io::Error>,
}

impl Out {
    fn new() -> Out {
        let stderr = std::io::stderr();
        Out { terminal: stderr.is_terminal(), to: BufWriter::new(Box::new(stderr)), lost: None }
    }

    fn put(&mut self, text: &str) {
        let written = self.to.write_all(text.as_bytes());
        self.note(written);
    }

    /// Notes an error of writing; a closed standard error is none, since its reader does not want the rest.
    fn note(&mut self, written: std::io::Result<()>) {
        if let Err(e) = written {
            self.lost.get_or_insert(e);
        }
    }

    /// Bytes of a file, up to the end of a line. A terminal does not get what would act instead of being seen.
    fn put_contents(&mut self, bytes: &[u8]) {
        let written =
            if self.terminal { self.to.write_all(seen(bytes).as_bytes()) } else { self.to.write_all(bytes) };
        self.note(written);
    }

    fn flush(&mut self) {
        let written = self.to.flush();
        self.note(written);
    }
}

/// Text in which what would act is shown instead.
fn seen(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\t' | '\n' => text.push(c),
            '\0'..='\u{1f}' => text.extend(['^', char::from(c as u8 + b'@')]),
            c if c.is_control() || is_direction(c) => text += &format!("<U+{:04X}>", c as u32),
            c => text.push(c),
        }
    }
    text
}

/// Returns true if a character reverses the direction of text.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_command_no_terminal() {
        assert_eq!(seen(b"a\tb\n"), "a\tb\n");
        assert_eq!(seen(b"\x1b]0;x\x07\r\n"), "^[]0;x^G^M\n");
        assert_eq!(seen("\u{9b}2J\x7f\u{202e}".as_bytes()), "<U+009B>2J<U+007F><U+202E>");
        assert_eq!(seen(b"\xff"), "\u{fffd}");
    }
}
