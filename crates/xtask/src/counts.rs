//! Counts of the shipped crates: long functions, `match` on true and false, bool parameters, lines of code, and
//! how dense reasons stand beside it.

use crate::rust::{self, Source};
use crate::{Kept, Report};
use std::path::Path;

/// Crates that are shipped, with the most lines of code that they may have together.
struct Group {
    name: &'static str,
    crates: &'static [&'static str],
    lines_max: usize,
}

/// The library is a second door, with a bound of its own: what it adds is no room for the first to grow into.
const GROUPS: [Group; 2] = [
    Group {
        name: "the command line's crates",
        crates: &["systx-os", "systx-engine", "systx-view", "systx-cli"],
        lines_max: 39_200,
    },
    Group { name: "the library's crates", crates: &["systx-places", "systx", "systx-c"], lines_max: 12_000 },
];

/// A function fits on a screen or two.
const FUNCTION_LINES_MAX: usize = 80;

/// The most that each count may be. They only ever go down.
struct Bounds {
    long_functions: usize,
    matches_on_bool: usize,
    bool_parameters: usize,
    /// Lines of comments per 100 lines of code, in the whole of the shipped crates: at least.
    density_min: f64,
}

const BOUNDS: Bounds =
    Bounds { long_functions: 0, matches_on_bool: 0, bool_parameters: 20, density_min: 2.5 };

/// The counts of one or more crates.
#[derive(Default)]
struct Counts {
    functions: usize,
    long_functions: Vec<String>,
    matches_on_bool: Vec<String>,
    bool_parameters: Vec<String>,
    lines: usize,
    comments: usize,
}

impl Counts {
    fn add(&mut self, source: &Source) {
        let name = &source.name;
        self.functions += source.functions.len();
        for function in &source.functions {
            let (first, last) = function.lines;
            let lines = last + 1 - first;
            if lines > FUNCTION_LINES_MAX {
                self.long_functions.push(format!("{name}:{first}: {}: {lines} lines", function.name));
            }
            let named = |param: &String| format!("{name}:{first}: {}: {param}: bool", function.name);
            self.bool_parameters.extend(function.bools.iter().map(named));
        }
        let matches =
            source.matches_on_bool.iter().map(|line| format!("{name}:{line}: match on true or false"));
        self.matches_on_bool.extend(matches);
        self.lines += source.code.len();
        self.comments += source.comments();
    }

    fn merge(&mut self, other: Counts) {
        self.functions += other.functions;
        self.long_functions.extend(other.long_functions);
        self.matches_on_bool.extend(other.matches_on_bool);
        self.bool_parameters.extend(other.bool_parameters);
        self.lines += other.lines;
        self.comments += other.comments;
    }

    /// Lines of comments per 100 lines of code.
    fn density(&self) -> f64 {
        100.0 * self.comments as f64 / self.lines.max(1) as f64
    }

    fn judge(&self, bounds: &Bounds) -> Report {
        let mut report = Report::default();
        for (what, found, most) in [
            ("functions above 80 lines", &self.long_functions, bounds.long_functions),
            ("`match` on true or false", &self.matches_on_bool, bounds.matches_on_bool),
            ("bool parameters", &self.bool_parameters, bounds.bool_parameters),
        ] {
            let kept = Kept::at_most(found.len(), most);
            report.bound(format!("{what}: {} (at most {most})", found.len()), kept);
            if kept == Kept::No {
                report.faults.extend(found.iter().map(|line| format!("    {line}")));
            }
        }
        let (density, least) = (self.density(), bounds.density_min);
        let text = format!("lines of // comments per 100 lines of code: {density:.1} (at least {least})");
        report.bound(text, Kept::at_most(least, density));
        report
    }
}

impl Group {
    fn judge(&self, lines: usize) -> Report {
        let (mut report, most) = (Report::default(), self.lines_max);
        let text = format!("lines of code in {}: {lines} (at most {most})", self.name);
        report.bound(text, Kept::at_most(lines, most));
        report
    }
}

/// The counts of a crate; `None`: it is not there yet.
fn of_crate(root: &Path, name: &str) -> Result<Option<Counts>, String> {
    let dir = root.join("crates").join(name);
    if !dir.exists() {
        return Ok(None);
    }
    let mut counts = Counts::default();
    rust::load(root, &dir)?.iter().for_each(|source| counts.add(source));
    Ok(Some(counts))
}

/// Checks the shipped crates.
pub fn check(root: &Path) -> Result<Report, String> {
    let (mut all, mut said, mut groups) = (Counts::default(), Vec::new(), Vec::new());
    for group in &GROUPS {
        let mut lines = 0;
        for name in group.crates {
            let Some(counts) = of_crate(root, name)? else { continue };
            let (functions, density) = (counts.functions, counts.density());
            let text = format!(
                "{functions} functions, {} lines of code, {density:.1} of comments per 100",
                counts.lines
            );
            said.push(format!("{name}: {text}"));
            lines += counts.lines;
            all.merge(counts);
        }
        groups.push(group.judge(lines));
    }
    let mut report = all.judge(&BOUNDS);
    report.said.splice(0..0, said);
    for group in groups {
        report.said.extend(group.said);
        report.faults.extend(group.faults);
    }
    Ok(report)
}

/// Prints everything that counts, with its place.
pub fn list(root: &Path) -> Result<(), String> {
    for name in GROUPS.iter().flat_map(|group| group.crates) {
        let Some(counts) = of_crate(root, name)? else { continue };
        let all = [counts.long_functions, counts.matches_on_bool, counts.bool_parameters];
        all.iter().flatten().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Plants one of each.
pub fn proof() -> Result<(), String> {
    let bounds = Bounds { long_functions: 0, matches_on_bool: 0, bool_parameters: 0, density_min: 1.0 };
    let group = Group { name: "planted", crates: &[], lines_max: 100 };
    let faults = |text: &str| {
        let mut counts = Counts::default();
        counts.add(&Source::parse("planted", text)?);
        let lines = group.judge(counts.lines).faults;
        Ok::<_, String>([lines, counts.judge(&bounds).faults].concat())
    };
    let reason = "// A reason.\n";
    let lines = |n: usize| "    f();\n".repeat(n);
    let plain = format!("{reason}fn plain() {{\n{}}}\n", lines(FUNCTION_LINES_MAX - 2));
    if let Some(fault) = faults(&plain)?.first() {
        return Err(format!("plain code is refused: {fault}"));
    }
    for (what, text) in [
        ("functions above", format!("{reason}fn long() {{\n{}}}\n", lines(FUNCTION_LINES_MAX - 1))),
        ("`match` on", format!("{reason}fn f() {{ match x {{ false => 1, true => 2 }} }}\n")),
        ("bool parameters", format!("{reason}fn f(is: bool) {{}}\n")),
        ("lines of code", format!("{reason}fn a() {{\n{0}}}\nfn b() {{\n{0}}}\n", lines(60))),
        ("lines of // comments", "fn f() {}\n".into()),
    ] {
        if !faults(&text)?.first().is_some_and(|fault| fault.starts_with(what)) {
            return Err(what.into());
        }
    }
    Ok(())
}
