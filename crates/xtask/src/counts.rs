//! Counts of the shipped crates: long functions, `match` on true and false, bool parameters, lines of code, and
//! how dense reasons stand beside it.

use crate::rust::{self, Source};
use crate::{Kept, Report};
use std::path::Path;

/// The crates that are shipped.
const CRATES: [&str; 7] =
    ["systx-os", "systx-engine", "systx-view", "systx-places", "systx", "systx-c", "systx-cli"];

/// A function fits on a screen or two.
const FUNCTION_LINES_MAX: usize = 80;

/// The most that each count may be. They only ever go down.
struct Bounds {
    long_functions: usize,
    matches_on_bool: usize,
    bool_parameters: usize,
    lines: usize,
    /// Lines of comments per 100 lines of code, in the whole of the shipped crates: at least.
    density_min: f64,
}

const BOUNDS: Bounds =
    Bounds { long_functions: 0, matches_on_bool: 0, bool_parameters: 41, lines: 41_000, density_min: 2.5 };

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
        let most = bounds.lines;
        report.bound(
            format!("lines of code: {} (at most {most})", self.lines),
            Kept::at_most(self.lines, most),
        );
        let (density, least) = (self.density(), bounds.density_min);
        let text = format!("lines of // comments per 100 lines of code: {density:.1} (at least {least})");
        report.bound(text, Kept::at_most(least, density));
        report
    }
}

fn of_crates(root: &Path) -> Result<Vec<(&'static str, Counts)>, String> {
    let mut all = Vec::new();
    for name in CRATES {
        let mut counts = Counts::default();
        rust::load(root, &root.join("crates").join(name))?.iter().for_each(|source| counts.add(source));
        all.push((name, counts));
    }
    Ok(all)
}

/// Checks the shipped crates.
pub fn check(root: &Path) -> Result<Report, String> {
    let (mut all, mut said) = (Counts::default(), Vec::new());
    for (name, counts) in of_crates(root)? {
        said.push(format!(
            "{name}: {} functions, {} lines of code, {:.1} of comments per 100",
            counts.functions,
            counts.lines,
            counts.density()
        ));
        all.merge(counts);
    }
    let mut report = all.judge(&BOUNDS);
    report.said.splice(0..0, said);
    Ok(report)
}

/// Prints everything that counts, with its place.
pub fn list(root: &Path) -> Result<(), String> {
    for (_, counts) in of_crates(root)? {
        let all = [counts.long_functions, counts.matches_on_bool, counts.bool_parameters];
        all.iter().flatten().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Plants one of each.
pub fn proof() -> Result<(), String> {
    let bounds =
        Bounds { long_functions: 0, matches_on_bool: 0, bool_parameters: 0, lines: 100, density_min: 1.0 };
    let faults = |text: &str| {
        let mut counts = Counts::default();
        counts.add(&Source::parse("planted", text)?);
        Ok::<_, String>(counts.judge(&bounds).faults)
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
