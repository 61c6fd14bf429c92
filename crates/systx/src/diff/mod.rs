//! What a transaction would change, told before it is committed or given up.
//!
//! Owns: the choice of the form and the way out. Guarantees: nothing is left out or cut off; names and, on a terminal, contents can't
//! command it. What is told is what the working set holds when the command has ended: a commit that follows publishes just that, or
//! nothing. Does not: change anything.

mod json;
mod lines;
mod patch;
mod stat;

use crate::args::Run;
use crate::report::Ending;
use std::io::{BufWriter, IsTerminal, Stderr, Write};
use systx_engine::changes::Change;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::Transaction;
use systx_os::Linux;

/// Why an inner run tells nothing.
pub const PART_OF_ANOTHER: &str =
    "--dry-run, --diff, --stat and -p are for a transaction of its own, and this run is part of another one: give them to that";

/// Tells the changes as `args` asks for it, if it does. The command's status comes back if they are to be committed.
pub fn before_commit(args: &Run, tx: &mut Transaction<Linux>, status: u8) -> Result<u8, Ending> {
    if !args.changes.are_told() {
        return Ok(status);
    }
    let mut out = Out::new();
    let told = tx.changes().and_then(|changes| tell(args, tx, &changes, &mut out).map(|()| changes.len()));
    out.flush();
    match told {
        Ok(count) if args.changes.dry_run => Err(Ending::DryRun(count, status)),
        Ok(_) => Ok(status),
        Err(VerbError::Doomed(conflict)) => Err(Ending::Conflict(*conflict)),
        Err(VerbError::Os(e)) => Err(Ending::Failed(format!("telling what would change: {e}"))),
    }
}

fn tell(args: &Run, tx: &mut Transaction<Linux>, changes: &[Change], out: &mut Out) -> Verb<()> {
    let form = &args.changes;
    if args.json {
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

/// Standard error: standard output is the command's.
struct Out {
    to: BufWriter<Stderr>,
    terminal: bool,
}

impl Out {
    fn new() -> Out {
        let stderr = std::io::stderr();
        Out { terminal: stderr.is_terminal(), to: BufWriter::new(stderr) }
    }

    /// Whoever closed it does not want to know.
    fn put(&mut self, text: &str) {
        let _ = self.to.write_all(text.as_bytes());
    }

    /// Bytes of a file, up to the end of a line. A terminal does not get what would act instead of being seen.
    fn put_contents(&mut self, bytes: &[u8]) {
        let _ = match self.terminal {
            true => self.to.write_all(seen(bytes).as_bytes()),
            false => self.to.write_all(bytes),
        };
    }

    fn flush(&mut self) {
        let _ = self.to.flush();
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

/// Whether a character turns text round.
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
