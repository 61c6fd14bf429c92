//! Turns of phrase in the comments of the Rust sources that a stranger has to read twice.
//!
//! The bounds are the shares of well-kept crates (redb, jj, rustix): 0 to 2 % of doc comments.

use crate::{files, Kept, Report};
use std::path::Path;

const COLUMNS_MAX: usize = 120;
const OPENINGS: [&str; 8] = ["What", "Who", "Whose", "Whether", "Its", "As", "So many", "The same"];
const VAGUE: [&str; 4] = ["somebody", "whoever", "nobody", "anybody"];

/// The turns that are counted, with the most that each may be of its comments, in percent.
const TURNS: [(&str, f64); 5] = [
    ("openings What, Who, Whose, Whether, Its, As, So many, The same", 2.0),
    ("somebody, whoever, nobody, anybody", 1.0),
    ("he, his, him", 0.2),
    ("is told", 0.5),
    ("lines over 120 columns, which messages and tables have", 1.0),
];

/// Counts of one turn of phrase: how many, of how many.
#[derive(Clone, Copy, Default)]
struct Share {
    count: usize,
    of: usize,
}

#[derive(Default)]
struct Measure {
    shares: [Share; TURNS.len()],
    /// Each that counts, with its place.
    found: Vec<String>,
}

impl Measure {
    fn add(&mut self, name: &str, text: &str) {
        let (mut kind, mut comment, mut begins) = ("", String::new(), 0);
        for (n, line) in text.lines().enumerate() {
            self.count(4, line.chars().count() > COLUMNS_MAX, || {
                format!("{name}:{}: over 120 columns", n + 1)
            });
            let (mark, words) = comment_of(line);
            if mark != kind {
                self.judge(kind, &comment, &format!("{name}:{begins}"));
                (kind, begins) = (mark, n + 1);
                comment.clear();
            }
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment += words;
        }
        self.judge(kind, &comment, &format!("{name}:{begins}"));
    }

    fn judge(&mut self, kind: &str, text: &str, at: &str) {
        if kind.is_empty() {
            return;
        }
        let start: String = text.chars().take(100).collect();
        let named = |what: &str| format!("{at}: {what}: {start}");
        if kind != "//" {
            self.count(0, has_opening(text), || named("opening"));
        }
        let words = || text.split(|c: char| !c.is_ascii_alphabetic());
        let vague = words().any(|word| VAGUE.contains(&word.to_ascii_lowercase().as_str()));
        self.count(1, vague, || named("nobody"));
        self.count(2, words().any(|word| ["He", "he", "His", "his", "Him", "him"].contains(&word)), || {
            named("he")
        });
        self.count(3, is_told(text), || named("told"));
    }

    fn count(&mut self, turn: usize, is_one: bool, named: impl Fn() -> String) {
        self.shares[turn].of += 1;
        if is_one {
            self.shares[turn].count += 1;
            self.found.push(named());
        }
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        for ((name, most), share) in TURNS.iter().zip(&self.shares) {
            let percent = if share.of == 0 { 0.0 } else { 100.0 * share.count as f64 / share.of as f64 };
            let text = format!("{name}: {} of {}, {percent:.1} % (at most {most} %)", share.count, share.of);
            report.bound(text, Kept::at_most(percent, *most));
        }
        report
    }
}

/// The mark of a line that is a comment, and its words. Both are empty for code.
fn comment_of(line: &str) -> (&str, &str) {
    let line = line.trim_start_matches(' ');
    let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark)).unwrap_or_default();
    let words = if mark.is_empty() { "" } else { &line[mark.len()..] };
    (mark, words.strip_prefix(' ').unwrap_or(words))
}

fn has_opening(text: &str) -> bool {
    let mut rests = OPENINGS.iter().filter_map(|opening| text.strip_prefix(opening));
    rests.any(|rest| rest.starts_with([' ', ',', '.', ';', ':']))
}

fn is_told(text: &str) -> bool {
    ["is told", "are told", "was told", "were told"].iter().any(|turn| {
        let mut rests = text.split(turn).skip(1);
        rests.any(|rest| rest.starts_with([' ', '.', ',', ';', ':']))
    })
}

fn measure(root: &Path) -> Result<Measure, String> {
    let mut measure = Measure::default();
    for file in files::sources(root)? {
        let name = files::shown(root, &file);
        let is_test = name.contains("/tests");
        if !is_test {
            measure.add(&name, &files::read(&file)?);
        }
    }
    Ok(measure)
}

/// Checks the comments of all crates.
pub fn check(root: &Path) -> Result<Report, String> {
    measure(root).map(|measure| measure.report())
}

/// Prints every comment that counts.
pub fn list(root: &Path) -> Result<(), String> {
    measure(root)?.found.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Plants each turn of phrase alone beside a comment that nothing is wrong with.
pub fn proof() -> Result<(), String> {
    let faults = |text: &str| {
        let mut measure = Measure::default();
        measure.add("planted", text);
        measure.report().faults
    };
    let plain = "/// Returns the number of retries.\nfn f() {}\n// Later ones are refused.\n";
    if let Some(fault) = faults(plain).first() {
        return Err(format!("a plain comment is refused: {fault}"));
    }
    let wide = format!("fn wide() {{}} {}", "x".repeat(COLUMNS_MAX));
    let planted = [
        "/// Whether it is so.",
        "// There is nobody.",
        "// It does what he wants.",
        "// It is told.",
        wide.as_str(),
    ];
    for (fault, (turn, _)) in planted.into_iter().zip(TURNS) {
        let found = faults(&format!("{plain}fn g() {{}}\n{fault}\n"));
        if found.len() != 1 || !found[0].starts_with(turn) {
            return Err(format!("{fault} ({found:?})"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> [usize; TURNS.len()] {
        let mut measure = Measure::default();
        measure.add("a.rs", text);
        measure.shares.map(|share| share.count)
    }

    #[test]
    fn lines_of_one_mark_are_one_comment() {
        let mut measure = Measure::default();
        measure.add(
            "a.rs",
            "/// One\n/// What follows.\n//! Two\n// Three\nlet x = 1; // not seen\n  // Four\n",
        );
        assert_eq!((measure.shares[0].of, measure.shares[1].of), (2, 4));
        assert_eq!(measure.shares[0].count, 0);
    }

    #[test]
    fn a_turn_is_a_word_of_its_own() {
        assert_eq!(counts("/// Whatever is here, then the hem.\n// was tolded\n"), [0; TURNS.len()]);
        assert_eq!(counts("/// As before, nobody and nobody.\n/// He was told: no.\n"), [1, 1, 1, 1, 0]);
        assert_eq!(counts("// What a plain comment begins with is free.\n"), [0; TURNS.len()]);
    }
}
