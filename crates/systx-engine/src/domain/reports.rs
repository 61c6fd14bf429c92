//! Reports of conflict copies, kept until a person asks to remove them: the publisher may die before it can
//! report them.
//!
//! Owns: the files `report.<id>` of the area, one line an object: the event, its name below `aside/` or
//! nothing, its path; between them a tab, other bytes than printable ones as `\xNN`. A line `told`: the lines
//! above it have been reported. Guarantees: a line is written once, also when the record is published again.
//! Does not: fail a publication; an object in `aside/` is listed without its line, too.

use super::own_file;
use crate::bytes::read_file;
use crate::id::TxId;
use crate::outcome::{ConflictCopy, ConflictCopyKind};
use crate::paths::unescape;
use systx_os::{Errno, Open, Os, Result};

const PREFIX: &[u8] = b"report.";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The transaction.
    pub tx: TxId,
    /// Where the object would have gone (or was), from the root of the mount.
    pub path: Vec<u8>,
    /// Name of what was kept, below `aside/` of the area.
    pub aside: Option<String>,
    /// The event, as a sentence fragment.
    pub what: String,
    /// True if it has been reported ([`all_told`]).
    pub told: bool,
}

/// A line of its own: the lines above it have been reported. It has no tab, so that it is no report.
const TOLD: &str = "told";

fn file_of(id: TxId) -> Vec<u8> {
    [PREFIX, id.to_string().as_bytes()].concat()
}

/// Adds a line, unless it is there.
pub(crate) fn keep<O: Os>(os: &O, area: &O::Fd, id: TxId, conflict_copy: &ConflictCopy) -> Result<()> {
    let name = file_of(id);
    let fd = own_file::open_or_make(os, area, &name)?;
    let line = format!(
        "{}\t{}\t{}\n",
        conflict_copy.what,
        conflict_copy.aside.as_deref().unwrap_or_default(),
        conflict_copy.path.escape_ascii()
    );
    let known = read_file(os, &fd)?;
    if known.split_inclusive(|b| *b == b'\n').any(|known| known == line.as_bytes()) {
        return Ok(());
    }
    os.append(&fd, line.as_bytes()).map(drop)
}

/// Returns the reports of one transaction, as far as they can be read.
pub(crate) fn of<O: Os>(os: &O, area: &O::Fd, id: TxId) -> Vec<ConflictCopy> {
    let Ok(Some(fd)) = own_file::open_if_there(os, area, &file_of(id)) else { return Vec::new() };
    let bytes = read_file(os, &fd).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let copy = |report: Report| {
        let what = ConflictCopyKind::of_fragment(&report.what)?;
        Some(ConflictCopy { path: report.path, aside: report.aside, what })
    };
    text.lines().filter_map(|line| parse(id, line)).filter_map(copy).collect()
}

/// Whether something was reported of a transaction.
pub(crate) fn are_there<O: Os>(os: &O, area: &O::Fd, id: TxId) -> bool {
    os.stat_at(area, &file_of(id)).is_ok()
}

/// All lines of an area. What makes no sense is left out: a machine that went down cuts lines.
pub(crate) fn all<O: Os>(os: &O, area: &O::Fd) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for entry in os.read_dir(area)? {
        let Some(tx) = number(&entry.name) else { continue };
        let Some(fd) = own_file::open_if_there(os, area, &entry.name)? else { continue };
        let bytes = read_file(os, &fd)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut of_one: Vec<Report> = Vec::new();
        for line in text.lines() {
            if line == TOLD {
                of_one.iter_mut().for_each(|report| report.told = true)
            } else {
                of_one.extend(parse(tx, line))
            }
        }
        reports.extend(of_one);
    }
    if let Ok(aside) = os.open(area, b"aside", Open::Directory) {
        // Noted, and cut off before it was moved: the next pass may have found something else to do.
        let there = |name: &String| !matches!(os.handle_at(&aside, name.as_bytes()), Err(Errno::NOENT));
        reports.retain(|report| report.aside.as_ref().is_none_or(there));
    }
    reports.sort_by_key(|report| report.tx);
    Ok(reports)
}

/// Notes that all lines up to now have been reported.
pub(crate) fn all_told<O: Os>(os: &O, area: &O::Fd) -> Result<()> {
    for entry in os.read_dir(area)? {
        if number(&entry.name).is_none() {
            continue;
        }
        let fd = match own_file::open_or_make(os, area, &entry.name) {
            // No report has that name.
            Err(Errno::ISDIR) => continue,
            fd => fd?,
        };
        let known = read_file(os, &fd)?;
        // A line that a power loss has cut stays a line of its own.
        let mark: &[u8] = if known.ends_with(b"\n") { b"told\n" } else { b"\ntold\n" };
        if !known.ends_with(b"\ntold\n") {
            os.append(&fd, mark)?;
        }
    }
    Ok(())
}

/// Removes the reports of one transaction.
pub(crate) fn remove<O: Os>(os: &O, area: &O::Fd, tx: TxId) -> Result<()> {
    match os.unlink(area, &file_of(tx)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn number(name: &[u8]) -> Option<TxId> {
    core::str::from_utf8(name.strip_prefix(PREFIX)?).ok()?.parse().ok().map(TxId)
}

fn parse(tx: TxId, line: &str) -> Option<Report> {
    let mut fields = line.split('\t');
    let (what, aside, path) = (fields.next()?, fields.next()?, fields.next()?);
    if what.is_empty() || fields.next().is_some() {
        return None;
    }
    let aside = (!aside.is_empty()).then(|| aside.to_owned());
    Some(Report { tx, path: unescape(path)?, aside, what: what.to_owned(), told: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back_as_it_was() {
        let all: Vec<u8> = (1..=255).collect();
        for path in [&b"a/b"[..], b"", b"tab\there\\x41'\"\n", &all] {
            let line = format!("gone\t5.0\t{}", path.escape_ascii());
            let report = parse(TxId(5), &line).unwrap();
            assert_eq!((report.path.as_slice(), report.aside.as_deref()), (path, Some("5.0")));
        }
    }

    #[test]
    fn what_is_no_report_is_left_out() {
        for line in ["", "half a", "what\t", "\t\tpath", "a\tb\tc\td", "a\tb\t\\x4", "a\tb\t\\"] {
            assert_eq!(parse(TxId(1), line), None, "{line:?}");
        }
        assert_eq!(number(b"report.12"), Some(TxId(12)));
        assert_eq!((number(b"report."), number(b"report.x"), number(b"format")), (None, None, None));
    }
}
