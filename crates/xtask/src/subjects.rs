//! Subjects of commits: 72 columns at most, so that a log fits beside its numbers.
//!
//! Looked at are the commits since the last tag; before there is one, HEAD, with what it merges. Where there is no
//! git or no repository, nothing is.

use crate::{Kept, Report};
use std::path::Path;
use std::process::Command;

const COLUMNS_MAX: usize = 72;

/// Judges lines of `git log --format='%h %s'`.
fn judge(log: &str) -> Report {
    let mut report = Report::default();
    for line in log.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        let columns = subject.chars().count();
        if Kept::at_most(columns, COLUMNS_MAX) == Kept::No {
            report.faults.push(format!("{commit}: {columns} columns, at most {COLUMNS_MAX}: {subject}"));
        }
    }
    report.said.push(format!("{} commits", log.lines().count()));
    report
}

/// Checks the commits.
pub fn check(root: &Path) -> Result<Report, String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    if !root.join(".git").exists() || git(&["rev-parse", "HEAD"]).is_none() {
        let said = vec!["skipped: no git repository here".to_owned()];
        return Ok(Report { said, faults: Vec::new() });
    }
    let range = match git(&["describe", "--tags", "--abbrev=0"]) {
        Some(tag) => format!("{tag}..HEAD"),
        // Of a commit that merges nothing this is the commit alone. The first one has none before it.
        None if git(&["rev-parse", "--verify", "HEAD^"]).is_some() => "HEAD^..HEAD".to_owned(),
        None => "HEAD".to_owned(),
    };
    let log = git(&["log", "--format=%h %s", &range]).ok_or(format!("git log {range} fails"))?;
    Ok(judge(&log))
}

/// Plants a subject that is too long.
pub fn proof() -> Result<(), String> {
    let subject = |columns: usize| format!("1fac249 {}\n", "é".repeat(columns));
    if !judge(&subject(COLUMNS_MAX)).faults.is_empty() {
        return Err("a subject of 72 columns is refused".into());
    }
    match judge(&(subject(COLUMNS_MAX) + &subject(COLUMNS_MAX + 1))).faults.len() {
        1 => Ok(()),
        _ => Err("a subject of 73 columns".into()),
    }
}
