//! The text form of a history: one line a transaction, so that processes can write it while they run and be
//! killed.
//!
//! ```text
//! # process id invoke complete outcome | calls
//! t 3 17 1000 1250 committed | a x 5 | r y 1 2 3 | r z
//! t 3 18 1300 - unknown | a x 6
//! final x 5 6
//! ```
//!
//! `complete` is `-` when it is not known; a committed transaction always has one. Keys have neither blanks
//! nor `|`. A later line with the same process and id replaces an earlier one: a process writes its
//! transaction as `unknown` *before* it commits and again with the outcome. A last line without an end of
//! line was cut off by a kill and is ignored. Texts of several processes are merged by concatenation or by
//! [`parse_all`].

use super::{History, Op, Outcome, Transaction, Value};
use std::collections::HashMap;
use std::fmt;

/// A line that is not of this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1, over all texts.
    pub line: usize,
    /// Reason why the text can't be parsed.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Transaction {
    /// The line of this transaction, without an end of line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t {} {} {} ", self.process, self.id, self.invoke)?;
        match self.complete {
            Some(at) => write!(f, "{at}")?,
            None => f.write_str("-")?,
        }
        f.write_str(match self.outcome {
            Outcome::Committed => " committed",
            Outcome::Aborted => " aborted",
            Outcome::Unknown => " unknown",
        })?;
        for op in &self.ops {
            match op {
                Op::Append { key, value } => write!(f, " | a {key} {value}")?,
                Op::Read { key, list } => {
                    write!(f, " | r {key}")?;
                    list.iter().try_for_each(|value| write!(f, " {value}"))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for transaction in &self.transactions {
            writeln!(f, "{transaction}")?;
        }
        for (key, list) in &self.finals {
            write!(f, "final {key}")?;
            list.iter().try_for_each(|value| write!(f, " {value}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Reads one text.
///
/// # Errors
/// The first line that is not of the form above.
pub fn parse(text: &str) -> Result<History, ParseError> {
    parse_all([text])
}

/// Reads and merges the texts of several processes.
///
/// # Errors
/// The first line that is not of the form above.
pub fn parse_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<History, ParseError> {
    let mut history = History::default();
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    let mut number = 0;
    for text in texts {
        for raw in text.split_inclusive('\n') {
            number += 1;
            let Some(line) = raw.strip_suffix('\n') else { continue };
            parse_line(line, &mut history, &mut places)
                .map_err(|reason| ParseError { line: number, reason })?;
        }
    }
    Ok(history)
}

fn parse_line(
    line: &str,
    history: &mut History,
    places: &mut HashMap<(u64, u64), usize>,
) -> Result<(), String> {
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        None => Ok(()),
        Some(first) if first.starts_with('#') => Ok(()),
        Some("final") => {
            let key = word(words.next(), "a key")?;
            let list = words.map(|w| parse_number(Some(w), "a value")).collect::<Result<_, _>>()?;
            match history.finals.insert(key.to_owned(), list) {
                None => Ok(()),
                Some(_) => Err(format!("second final state of {key}")),
            }
        }
        Some("t") => {
            let transaction = parse_transaction(line)?;
            match places.get(&(transaction.process, transaction.id)) {
                Some(&at) => history.transactions[at] = transaction,
                None => {
                    places.insert((transaction.process, transaction.id), history.transactions.len());
                    history.transactions.push(transaction);
                }
            }
            Ok(())
        }
        Some(other) => Err(format!("unknown kind of line: {other}")),
    }
}

fn parse_transaction(line: &str) -> Result<Transaction, String> {
    let mut parts = line.split('|');
    let mut words = parts.next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let process = parse_number(words.next(), "a process")?;
    let id = parse_number(words.next(), "an id")?;
    let invoke = parse_number(words.next(), "the time of invocation")?;
    let complete = match words.next() {
        Some("-") => None,
        at => Some(parse_number(at, "the time of completion")?),
    };
    let outcome = match words.next() {
        Some("committed") => Outcome::Committed,
        Some("aborted") => Outcome::Aborted,
        Some("unknown") => Outcome::Unknown,
        other => return Err(format!("unknown outcome: {}", other.unwrap_or("none"))),
    };
    if let Some(rest) = words.next() {
        return Err(format!("unexpected after the outcome: {rest}"));
    }
    if outcome == Outcome::Committed && complete.is_none() {
        return Err("committed without a time of completion".into());
    }
    if complete.is_some_and(|at| at < invoke) {
        return Err("completed before it began".into());
    }
    let ops = parts.map(parse_op).collect::<Result<_, _>>()?;
    Ok(Transaction { process, id, invoke, complete, outcome, ops })
}

fn parse_op(text: &str) -> Result<Op, String> {
    let mut words = text.split_ascii_whitespace();
    let verb = word(words.next(), "a call")?;
    let key = word(words.next(), "a key")?.to_owned();
    let list: Vec<Value> = words.map(|w| parse_number(Some(w), "a value")).collect::<Result<_, _>>()?;
    match (verb, list.as_slice()) {
        ("a", &[value]) => Ok(Op::Append { key, value }),
        ("a", _) => Err("an append takes one value".into()),
        ("r", _) => Ok(Op::Read { key, list }),
        _ => Err(format!("unknown call: {verb}")),
    }
}

fn word<'a>(word: Option<&'a str>, what: &str) -> Result<&'a str, String> {
    word.ok_or_else(|| format!("{what} is missing"))
}

fn parse_number(text: Option<&str>, what: &str) -> Result<u64, String> {
    let text = word(text, what)?;
    text.parse().map_err(|_| format!("not {what}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "t 3 17 1000 1250 committed | a x 5 | r y 1 2 3 | r z\nt 3 18 1300 - unknown | a x 6\nfinal x 5 6\n";

    #[test]
    fn what_is_written_is_read_back() {
        let history = parse(TEXT).unwrap();
        assert_eq!(history.transactions.len(), 2);
        assert_eq!(history.transactions[0].ops[2], Op::Read { key: "z".into(), list: vec![] });
        assert_eq!(history.finals["x"], [5, 6]);
        assert_eq!(history.to_string(), TEXT);
    }

    #[test]
    fn a_later_line_replaces_and_a_cut_off_line_is_ignored() {
        let merged = parse_all([
            "# process 1\nt 1 1 0 - unknown | a x 1\nt 1 1 0 9 committed | a x 1\nt 1 2 10 - unkn",
            "t 2 1 3 4 aborted\n",
        ])
        .unwrap();
        let outcomes: Vec<_> = merged.transactions.iter().map(|t| t.outcome).collect();
        assert_eq!(outcomes, [Outcome::Committed, Outcome::Aborted]);
    }

    #[test]
    fn malformed_lines_are_rejected_with_their_number() {
        for bad in [
            "x",
            "t",
            "t 1 1 5 4 committed",
            "t 1 1 5 - committed",
            "t 1 1 5 6 perhaps",
            "t 1 1 5 6 committed extra",
            "t 1 1 5 6 committed | a x",
            "t 1 1 5 6 committed | a x 1 2",
            "t 1 1 5 6 committed | w x 1",
            "t 1 1 5 6 committed |",
            "t 1 1 5 6 committed | r x -1",
            "final",
            "final x y",
        ] {
            let error = parse(&format!("# fine\n{bad}\n")).unwrap_err();
            assert_eq!(error.line, 2, "{bad}");
        }
        assert_eq!(parse("final x 1\nfinal x 1\n").unwrap_err().line, 2);
    }
}
