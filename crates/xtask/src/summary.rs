//! Sums up what the test programs have said.
//!
//! The log has a part for each program: a line `     Running SOURCE (PROGRAM), PACKAGE, N s`, or `   Doc-tests …`, what
//! the program said, and `error: test failed` if it failed. The last line printed is in the words of `cargo test`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Columns of a line that is shown once more.
const SHOWN_MAX: usize = 300;
/// Lines shown of a failure, and failures shown of a program.
const LINES_MAX: usize = 6;
const FAILURES_MAX: usize = 3;
const SLOWEST: usize = 5;

/// The output of one program.
#[derive(Default)]
struct Part<'a> {
    /// The line that begins it, without what cargo puts before it.
    title: &'a str,
    lines: Vec<&'a str>,
}

impl Part<'_> {
    fn has_failed(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("error: test failed"))
    }

    /// Passed, failed and ignored tests. A program that was killed prints no result: then its lines are counted, and
    /// one that ended in its first failure has none that says so.
    fn counts(&self) -> [u64; 3] {
        let results: Vec<_> = self.lines.iter().filter(|line| line.starts_with("test result:")).collect();
        if results.is_empty() {
            let ends = |with: &str| self.tests().filter(|line| line.ends_with(with)).count() as u64;
            let (passed, failed) = (ends(" ... ok"), ends(" ... FAILED"));
            return [passed, failed.max(u64::from(self.has_failed())), 0];
        }
        ["passed", "failed", "ignored"].map(|what| results.iter().map(|line| number_before(line, what)).sum())
    }

    fn tests(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().copied().filter(|line| line.starts_with("test ") && line.contains(" ... "))
    }

    /// The complaints of one that failed, and the last test that it names.
    fn complaints(&self) -> String {
        let (mut text, mut left, mut failures) = (format!("FAILED: {}\n", self.title), 0, 0);
        for line in &self.lines {
            if line.contains("panicked at") {
                failures += 1;
                left = if failures > FAILURES_MAX { 0 } else { LINES_MAX };
            }
            if line.starts_with("stack backtrace:") {
                left = 0;
            }
            if left > 0 {
                text += &format!("    {}\n", cut(line));
                left -= 1;
            }
            if line.starts_with("test: nothing was said") {
                text += "    hung, and was killed\n";
            }
        }
        text + &format!("    last: {}\n", cut(self.tests().last().unwrap_or_default()))
    }

    /// Its seconds and where it is, for the list of the slowest.
    fn seconds(&self) -> Option<(u64, String)> {
        let (rest, seconds) = self.title.strip_suffix(" s")?.rsplit_once(", ")?;
        let (rest, package) = rest.rsplit_once(", ")?;
        let program = rest.rsplit_once(" (")?.1.strip_suffix(')')?;
        let is_number = |end: &str| end.len() == 16 && end.chars().all(|c| c.is_ascii_hexdigit());
        let program =
            program.rsplit_once('-').filter(|(_, end)| is_number(end)).map_or(program, |(name, _)| name);
        Some((seconds.parse().ok()?, format!("{package} {program}")))
    }
}

fn cut(line: &str) -> String {
    line.chars().take(SHOWN_MAX).collect()
}

/// The number before a word, as in `2 passed;`.
fn number_before(line: &str, what: &str) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| pair[1].starts_with(what));
    pairs.filter_map(|pair| pair[0].parse::<u64>().ok()).sum()
}

fn parts(log: &str) -> Vec<Part<'_>> {
    let mut parts = vec![Part::default()];
    for line in log.lines() {
        let title = line.trim_start();
        let begins = title.starts_with("Running ") || title.starts_with("Doc-tests ");
        if begins && title.len() < line.len() {
            parts.push(Part { title, lines: Vec::new() });
        } else if let Some(part) = parts.last_mut() {
            part.lines.push(line);
        }
    }
    parts
}

/// What to print, and whether all is well.
fn sum_up(log: &str, status_was: Status, lints_were: Status) -> (String, Status) {
    let parts = parts(log);
    let mut text = String::new();
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines().filter(|line| line.starts_with("skipped")) {
        *skipped.entry(line).or_default() += 1;
    }
    if !skipped.is_empty() {
        text += "Skipped on this machine:\n";
        skipped.iter().for_each(|(line, count)| text += &format!("{count:7} {line}\n"));
    }
    let mut slowest: Vec<_> = parts.iter().filter_map(Part::seconds).collect();
    slowest.sort_by(|a, b| b.cmp(a));
    if !slowest.is_empty() {
        text += "The slowest programs:\n";
        slowest.iter().take(SLOWEST).for_each(|(seconds, name)| text += &format!("    {seconds} s {name}\n"));
    }
    if status_was == Status::Failed {
        parts.iter().filter(|part| part.has_failed()).for_each(|part| text += &part.complaints());
    }
    if lints_were == Status::Failed {
        text += "FAILED: format or lints, above. make lint\n";
    }
    let mut sums = [0; 3];
    for counts in parts.iter().map(Part::counts) {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let status =
        if (status_was, lints_were) == (Status::Ok, Status::Ok) { Status::Ok } else { Status::Failed };
    let verdict = if status == Status::Ok { "ok" } else { "FAILED" };
    let [passed, failed, ignored] = sums;
    text +=
        &format!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; all crates\n");
    (text, status)
}

/// How something has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Failed,
}

impl Status {
    /// From the exit status of a program.
    fn of(word: &str) -> Status {
        if word == "0" {
            Status::Ok
        } else {
            Status::Failed
        }
    }
}

/// Sums up a log; `status` and `lints` are the exit statuses of the tests and the lints.
pub fn print(log: &str, status: &str, lints: &str) -> ExitCode {
    // Tests may print anything.
    let text = std::fs::read(Path::new(log)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let Ok(text) = text else {
        println!("test result: FAILED. 0 passed; 1 failed; 0 ignored; {log} can't be read");
        return ExitCode::FAILURE;
    };
    let (text, status) = sum_up(&text, Status::of(status), Status::of(lints));
    print!("{text}");
    if status == Status::Ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "     Running tests/a.rs (a-0123456789abcdef), systx, 3 s\ntest one ... ok\n\
                          test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured\n";
    const KILLED: &str = "     Running tests/b.rs (b), systx, 12 s\ntest two ... ok\ntest three ... FAILED\n\
                          thread panicked at b.rs:1:\nwhy\nstack backtrace:\nnot shown\nerror: test failed, status 137\n";

    #[test]
    fn results_are_added_and_lines_counted_where_there_is_none() {
        let (text, status) = sum_up(&format!("{PASSED}{KILLED}"), Status::Failed, Status::Ok);
        assert_eq!(status, Status::Failed);
        assert!(text.ends_with("test result: FAILED. 2 passed; 1 failed; 2 ignored; all crates\n"), "{text}");
        assert!(text.contains(
            "FAILED: Running tests/b.rs (b), systx, 12 s\n    thread panicked at b.rs:1:\n    why\n"
        ));
        assert!(text.contains("    last: test three ... FAILED\n"), "{text}");
        assert!(!text.contains("not shown"), "{text}");
        assert!(text.contains("The slowest programs:\n    12 s systx b\n    3 s systx a\n"), "{text}");
    }

    #[test]
    fn a_program_that_ends_in_its_first_failure_has_failed_once() {
        let log = "     Running tests/b.rs (b), systx, 0 s\nerror: test failed, status 3\n";
        let (text, _) = sum_up(log, Status::Failed, Status::Ok);
        assert!(text.ends_with("test result: FAILED. 0 passed; 1 failed; 0 ignored; all crates\n"), "{text}");
    }

    #[test]
    fn lints_that_fail_fail_the_whole() {
        let (text, status) = sum_up(PASSED, Status::Ok, Status::Failed);
        assert_eq!(status, Status::Failed);
        assert!(text.contains("FAILED: format or lints"), "{text}");
        assert!(text.ends_with("test result: FAILED. 1 passed; 0 failed; 2 ignored; all crates\n"), "{text}");
        assert_eq!(sum_up(PASSED, Status::Ok, Status::Ok).1, Status::Ok);
    }
}
