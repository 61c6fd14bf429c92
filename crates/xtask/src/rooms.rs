//! The walks in docs/architecture.md: which functions data passes, in which files.
//!
//! Each is a code block with the info string `rooms`: a first line with its name, then `file: function`, a line for
//! each call that takes the data along, two columns further in than its caller. A line that is not further in begins
//! another part of the walk, which a later time or another process enters. A room is a file. Coming back into one that
//! was left is a return: no function of it is running any more, and another room was called in between.
//!
//! Checked are that each function stands in its file, that its caller names it, and that rooms and returns are within
//! their bounds.

use crate::rust::{Function, Source};
use crate::{files, Kept, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PAGE: &str = "docs/architecture.md";

/// Columns by which a call stands further in than its caller.
const INDENT: usize = 2;

/// The walks that there must be, with the most rooms and returns of each.
const WALKS: [(&str, usize, usize); 3] = [("write", 20, 2), ("lookup", 12, 2), ("redo", 12, 2)];

/// One call of a walk.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    file: String,
    function: String,
    /// Place of its caller in the walk, if it has one there.
    caller: Option<usize>,
}

/// A walk as the page describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Walk {
    name: String,
    calls: Vec<Call>,
}

impl Walk {
    /// Adds a line; `depth` is its distance from the left.
    fn add(&mut self, file: &str, function: &str, depth: usize) -> Result<(), String> {
        let mut caller = self.calls.len().checked_sub(1);
        while let Some(at) = caller.filter(|at| self.depth(*at) >= depth) {
            caller = self.calls[at].caller;
        }
        let expected = caller.map_or(0, |at| self.depth(at) + 1);
        if depth != expected {
            return Err(format!("{}: {function} is too far in", self.name));
        }
        self.calls.push(Call { file: file.to_owned(), function: function.to_owned(), caller });
        Ok(())
    }

    fn depth(&self, at: usize) -> usize {
        self.callers(at).count()
    }

    /// The callers of a call that are in the walk, the nearest first.
    fn callers(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.calls[at].caller, |at| self.calls[*at].caller)
    }

    /// How many files it passes.
    fn rooms(&self) -> usize {
        self.calls.iter().map(|call| &call.file).collect::<BTreeSet<_>>().len()
    }

    /// The calls that come back into a file that the walk has left.
    fn returns(&self) -> Vec<&Call> {
        let comes_back = |at: &usize| {
            let call = &self.calls[*at];
            let is_running = self.callers(*at).any(|caller| self.calls[caller].file == call.file);
            // Two calls in a row into one file are one visit.
            let before = self.calls[..*at].iter().rev().find(|other| other.caller == call.caller);
            let is_next = before.is_some_and(|before| before.file == call.file);
            !is_running && !is_next && self.calls[..*at].iter().any(|other| other.file == call.file)
        };
        (0..self.calls.len()).filter(comes_back).map(|at| &self.calls[at]).collect()
    }
}

/// Reads the walks of a page.
fn walks(page: &str) -> Result<Vec<Walk>, String> {
    let mut walks: Vec<Walk> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```rooms";
        } else if inside {
            let plain = line.trim_start();
            let indent = line.len() - plain.len();
            match (plain.split_once(": "), walks.last_mut()) {
                (None, _) => {
                    let name = plain.trim_end_matches(':').to_owned();
                    walks.push(Walk { name, calls: Vec::new() });
                }
                (Some((file, function)), Some(walk)) => walk.add(file, function, indent / INDENT)?,
                (Some(_), None) => return Err(format!("{line}: a call before the name of a walk")),
            }
        }
    }
    Ok(walks)
}

/// Judges walks; `read` gives the text of a file below `crates/`.
fn judge(walks: &[Walk], read: &dyn Fn(&str) -> Option<String>) -> Result<Report, String> {
    let mut report = Report::default();
    let mut sources: BTreeMap<&str, Source> = BTreeMap::new();
    for call in walks.iter().flat_map(|walk| &walk.calls) {
        match read(&call.file) {
            Some(text) => drop(sources.insert(&call.file, Source::parse(&call.file, &text)?)),
            None => report.faults.push(format!("{} does not exist", call.file)),
        }
    }
    let functions = |call: &Call| -> Vec<&Function> {
        let here = sources.get(call.file.as_str()).into_iter().flat_map(|source| &source.functions);
        here.filter(|function| function.name == call.function).collect()
    };
    for (name, rooms_max, returns_max) in WALKS {
        let Some(walk) = walks.iter().find(|walk| walk.name == name) else {
            report.faults.push(format!("there is no walk `{name}`"));
            continue;
        };
        for call in &walk.calls {
            let Call { file, function, caller } = call;
            if functions(call).is_empty() {
                report.faults.push(format!("{name}: {file} has no function `{function}`"));
            }
            let Some(caller) = caller.map(|at| &walk.calls[at]) else { continue };
            if !functions(caller).iter().any(|f| f.words.contains(function)) {
                let by = &caller.function;
                report.faults.push(format!("{name}: `{by}` does not name `{function}` ({file})"));
            }
        }
        let (rooms, returns) = (walk.rooms(), walk.returns());
        let kept = Kept::at_most(rooms, rooms_max).and(Kept::at_most(returns.len(), returns_max));
        let text = format!(
            "{name}: {rooms} rooms (at most {rooms_max}), {} returns (at most {returns_max})",
            returns.len()
        );
        report.bound(text, kept);
        if kept == Kept::No {
            let back = |call: &&Call| format!("{name}: back in {}: {}", call.file, call.function);
            report.faults.extend(returns.iter().map(back));
        }
    }
    Ok(report)
}

/// Checks the walks of the page.
pub fn check(root: &Path) -> Result<Report, String> {
    let page = files::read(&root.join(PAGE))?;
    judge(&walks(&page)?, &|file| files::read(&root.join("crates").join(file)).ok())
}

/// Plants one fault of each kind.
pub fn proof() -> Result<(), String> {
    let read = |file: &str| match file {
        "a.rs" => Some("fn one() { two(); four(); } fn five() {}".to_owned()),
        "b.rs" => Some("fn two() { three(); five(); }".to_owned()),
        "c.rs" => Some("impl C { fn three(&self) {} fn four() {} }".to_owned()),
        _ => None,
    };
    let faults = |text: &str| -> Result<Vec<String>, String> {
        let others = "```rooms\nlookup:\na.rs: one\n```\n```rooms\nredo:\na.rs: one\n```\n";
        let page = format!("```rooms\nwrite:\n{text}```\n{others}");
        Ok(judge(&walks(&page)?, &read)?.faults)
    };
    let plain = "a.rs: one\n  b.rs: two\n    c.rs: three\n    a.rs: five\n";
    if let Some(fault) = faults(plain)?.first() {
        return Err(format!("a plain walk is refused: {fault}"));
    }
    let back = "a.rs: one\nb.rs: two\n".repeat(3);
    let rooms: String = (0..21).map(|n| format!("{n}.rs: f\n")).collect();
    for (fault, says) in [
        ("a.rs: gone\n", "has no function"),
        ("d.rs: one\n", "does not exist"),
        ("a.rs: one\n  c.rs: three\n", "does not name"),
        (back.as_str(), "4 returns"),
        (rooms.as_str(), "21 rooms"),
    ] {
        if !faults(fault)?.iter().any(|found| found.contains(says)) {
            return Err(says.into());
        }
    }
    if judge(&[], &read)?.faults.len() != WALKS.len() {
        return Err("a walk that is not there".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_counted_once_and_returns_where_nothing_runs_any_more() {
        let page = "text\n```rooms\nwrite:\na: f\n  a: g\n    b: h\n    a: f\n  c: i\n  c: j\n  b: h\nd: k\n  c: i\n```\n\
                    ```sh\nx: y\n```\n";
        let walks = walks(page).unwrap();
        assert_eq!((walks.len(), walks[0].rooms()), (1, 4));
        let returns: Vec<_> = walks[0].returns().iter().map(|call| call.function.as_str()).collect();
        assert_eq!(returns, ["h", "i"]);
    }

    #[test]
    fn a_call_that_is_too_far_in_is_an_error() {
        assert!(walks("```rooms\nwrite:\na: f\n    b: g\n```\n").is_err());
        assert!(walks("```rooms\n  a: f\n```\n").is_err());
    }
}
