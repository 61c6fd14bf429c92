//! Counts of the shipped crates: long functions, `match` on true and false, bool parameters, lines of code, and
//! how dense reasons stand beside it, above all where an order matters.

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
        // The library's watcher, its rules of contention, its pages and its appends are below it; so is an area's block
        // that no archiver makes, its files that are others', names that wait for their key,
        // what was being moved, a file's size apart from its times, rights that a redo gives back, earlier states on the disk,
        // small files that others moved or changed since, a log that gets shorter without records, sectors that several
        // records change or that are exchanged word by word, what a failed sync has lost, names in a
        // removed tree, leases that have gone, areas and staged objects that were removed, new directories that the
        // kernel serves by itself with their mounts and the calls that these are in the way of, what undos have made again,
        // a look at all conflicts before a commit, names and other words for an open transaction, and daemons that do not answer.
        lines_max: 45_750,
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

/// Directories whose code keeps an order, so that a reader must learn why a step comes before the next one.
const ORDERED: [&str; 3] =
    ["crates/systx-engine/src/commit", "crates/systx-engine/src/publish", "crates/systx-engine/src/recovery"];

/// Lines of comments per 100 lines of code, in each of [`ORDERED`]: at least.
const ORDERED_DENSITY_MIN: f64 = 5.0;

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
    fn of<'s>(sources: impl IntoIterator<Item = &'s Source>) -> Counts {
        let mut counts = Counts::default();
        sources.into_iter().for_each(|source| counts.add(source));
        counts
    }

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

/// Judges a directory among [`ORDERED`] by those of the sources that are in it. One without any is a fault: it has
/// moved, and nothing would be judged any more.
fn judge_ordered(dir: &str, sources: &[Source]) -> Report {
    let is_in = |source: &&Source| Path::new(&source.name).starts_with(dir);
    let (mut report, counts) = (Report::default(), Counts::of(sources.iter().filter(is_in)));
    let (density, least) = (counts.density(), ORDERED_DENSITY_MIN);
    let text = format!("lines of // comments per 100 in {dir}: {density:.1} (at least {least})");
    report.bound(text, Kept::at_most(least, density));
    report
}

/// The production code of a crate; `None`: it is not there yet.
fn sources_of(root: &Path, name: &str) -> Result<Option<Vec<Source>>, String> {
    let dir = root.join("crates").join(name);
    if !dir.exists() {
        return Ok(None);
    }
    rust::load(root, &dir).map(Some)
}

/// Checks the shipped crates.
pub fn check(root: &Path) -> Result<Report, String> {
    let (mut all, mut said, mut groups) = (Counts::default(), Vec::new(), Vec::new());
    let mut ordered = Vec::new();
    for group in &GROUPS {
        let mut lines = 0;
        for name in group.crates {
            let Some(sources) = sources_of(root, name)? else { continue };
            let home = format!("crates/{name}/");
            let dirs = ORDERED.iter().filter(|dir| dir.starts_with(&home));
            ordered.extend(dirs.map(|dir| judge_ordered(dir, &sources)));
            let counts = Counts::of(&sources);
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
    for group in groups.into_iter().chain(ordered) {
        report.said.extend(group.said);
        report.faults.extend(group.faults);
    }
    Ok(report)
}

/// Prints everything that counts, with its place.
pub fn list(root: &Path) -> Result<(), String> {
    for name in GROUPS.iter().flat_map(|group| group.crates) {
        let Some(sources) = sources_of(root, name)? else { continue };
        let counts = Counts::of(&sources);
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
    let steps = |n: usize| format!("{reason}fn steps() {{\n{}}}\n", lines(n - 2));
    // 5.0 per 100 in the directory that counts, and beside it one whose name begins the same, without any.
    let (enough, fewer) = (steps(20), steps(21));
    for (home, text, is_refused) in
        [("of/dir", &enough, false), ("of/dir", &fewer, true), ("of/dir2", &enough, true)]
    {
        let sources =
            [Source::parse(&format!("{home}/a.rs"), text)?, Source::parse("of/dir3/a.rs", "fn f() {}\n")?];
        if judge_ordered("of/dir", &sources).faults.is_empty() == is_refused {
            return Err(format!("lines of // comments in {home}, of {} lines", text.lines().count()));
        }
    }
    Ok(())
}
