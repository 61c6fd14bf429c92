//! The report: Markdown, rewritten after every question.

use crate::measure::Samples;
use crate::{Outcome, Setup};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// The report so far.
pub struct Report {
    out: PathBuf,
    commit: String,
    text: String,
}

impl Report {
    /// An empty one.
    pub fn new(out: PathBuf, commit: &str) -> Report {
        let text = "# Results of `make bench`\n\nWritten by the program; what the lines mean is in [benchmarks.md](benchmarks.md).\n";
        Report { out, commit: commit.to_owned(), text: text.to_owned() }
    }

    /// Where and when.
    pub fn machine(&mut self, setup: &Setup) -> Outcome<()> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_once(':')).map_or(String::new(), |(_, v)| v.trim().to_owned())
        };
        let cpu = read("/proc/cpuinfo");
        let cpus = cpu.lines().filter(|l| l.starts_with("processor")).count();
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let virtualized = if field(&cpu, "flags").contains("hypervisor") { ", virtual" } else { "" };
        let date = Command::new("date").args(["-u", "+%F %R UTC"]).output()?;
        let load = read("/proc/loadavg");
        self.table(
            "",
            &["", ""],
            &[
                vec!["commit".into(), self.commit.clone()],
                vec!["date".into(), String::from_utf8_lossy(&date.stdout).trim().to_owned()],
                vec![
                    "machine".into(),
                    format!("{}, {cpus} CPUs{virtualized}, {memory}", field(&cpu, "model name")),
                ],
                vec!["kernel".into(), read("/proc/sys/kernel/osrelease").trim().to_owned()],
                vec!["file system".into(), mount_of(&setup.dir)?],
                vec!["load at start".into(), load.split(' ').take(3).collect::<Vec<_>>().join(" ")],
                vec!["repeats".into(), setup.repeats.to_string()],
            ],
        );
        if setup.quick {
            self.line("**Tiny sizes** (`--quick`): these numbers say nothing.");
        }
        Ok(())
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        let _ = write!(self.text, "\n## {text}\n");
    }

    /// A paragraph, in lines of at most 118 characters.
    pub fn line(&mut self, text: &str) {
        let mut column = 0;
        for word in text.split(' ') {
            let length = word.chars().count();
            let before = if column == 0 || column + 1 + length > 118 { '\n' } else { ' ' };
            column = if before == '\n' { length } else { column + 1 + length };
            let _ = write!(self.text, "{before}{word}");
        }
        self.text.push('\n');
    }

    /// Prints which calls `what` makes. Not in the report: too much for a page, and read by developers only.
    pub fn calls(&self, what: &str, calls: &[(&str, u64)]) {
        let calls: Vec<_> = calls.iter().map(|(name, n)| format!("{name} {n}")).collect();
        eprintln!("{what}: {}", calls.join(", "));
    }

    /// A table.
    pub fn table(&mut self, title: &str, head: &[&str], rows: &[Vec<String>]) {
        if !title.is_empty() {
            self.line(title);
        }
        let _ = write!(self.text, "\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
        for row in rows {
            let _ = writeln!(self.text, "| {} |", row.join(" | "));
        }
    }

    /// A table of measurements; each ratio is to the first row.
    pub fn compared(&mut self, title: &str, unit: &str, rows: &[(&str, &Samples)]) {
        let base = rows.first().map_or(0.0, |(_, s)| s.min());
        let head = ["", &format!("min {unit}"), "median", "max", "ratio of min"];
        let ratio = |a: f64, b: f64| if b > 0.0 { format!("{:.2}", a / b) } else { "–".into() };
        let line = |(name, s): &(&str, &Samples)| {
            let numbers = [s.min(), s.median(), s.max()].map(digits);
            let mut row = vec![(*name).to_owned()];
            row.extend(numbers);
            row.push(ratio(s.min(), base));
            row
        };
        let rows: Vec<_> = rows.iter().map(line).collect();
        self.table(title, &head, &rows);
    }

    /// Writes what there is.
    pub fn write(&self) -> Outcome<()> {
        Ok(std::fs::write(&self.out, &self.text)?)
    }
}

/// Three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn mount_of(dir: &std::path::Path) -> Outcome<String> {
    let found = Command::new("findmnt").args(["-no", "FSTYPE,OPTIONS,SOURCE", "-T"]).arg(dir).output()?;
    let text = String::from_utf8_lossy(&found.stdout);
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}
