//! The documents: how many words they have, how wide their lines are, whether their sentences are plain, and
//! whether the source files that they name exist.
//!
//! Words are those that have a letter and stand outside of code blocks, in `docs/*.md` and README.md; the two
//! pages that programs write do not count, and the library's guide has a bound of its own. Lines and sentences are checked in SECURITY.md and CONTRIBUTING.md,
//! too. Some turns of phrase are allowed now and then: each has a bound on its share, per 1,000 words.

use crate::{files, Kept, Report};
use std::path::Path;

/// Raised by 750 for new directories that the kernel serves, and by 350 for `systx check` and the ways to say an ID.
const WORDS_MAX: usize = 26_100;
/// The guide of the library, and the most words that it may have.
const GUIDE: &str = "docs/programming.md";
const GUIDE_WORDS_MAX: usize = 4_000;
const COLUMNS_MAX: usize = 120;
/// Sentences that begin with a headless clause ("Who has waited", "What comes out"), of 1,000 words.
const HEADLESS_MAX: f64 = 0.4;
/// "somebody", "whoever", "nobody" and their like, of 1,000 words.
const VAGUE_MAX: f64 = 0.2;
/// "he" and "his", which programs are not, and "told", which they are not; of 1,000 words.
const PERSON_MAX: f64 = 0.1;

const HEADLESS: [&str; 7] = ["Who", "Whose", "Whom", "Whether", "What", "Whatever", "Whoever"];
const VAGUE: [&str; 7] = ["somebody", "someone", "whoever", "whomever", "nobody", "anybody", "everybody"];
const PERSON: [&str; 5] = ["he", "his", "him", "himself", "told"];

/// The measures of some documents.
#[derive(Default)]
struct Measure {
    /// Words that count.
    words: usize,
    /// Words of the library's guide.
    guide: usize,
    /// Words of which the shares are taken.
    all: usize,
    headless: usize,
    vague: usize,
    person: usize,
    /// Lines that are too wide: never allowed.
    wide: Vec<String>,
    /// Sentences that count for a share.
    found: Vec<String>,
}

impl Measure {
    fn add(&mut self, name: &str, text: &str) {
        // A manual of its own.
        let is_counted =
            !["bench-results.md", "workloads.md", "SECURITY.md", "CONTRIBUTING.md", "programming.md"]
                .iter()
                .any(|other| name.ends_with(other));
        let (mut code, mut paragraph, mut begins) = (false, String::new(), 0);
        for (n, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                self.close(name, begins, &mut paragraph);
                code = !code;
                continue;
            }
            if code {
                continue;
            }
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                self.wide.push(format!("{name}:{}: {columns} columns", n + 1));
            }
            if line.starts_with("    ") && paragraph.is_empty() {
                continue;
            }
            if line.is_empty() || line.starts_with('#') || is_item(line) {
                self.close(name, begins, &mut paragraph);
            }
            let words = line.split_ascii_whitespace();
            let words = words.filter(|word| word.contains(|c: char| c.is_ascii_alphabetic())).count();
            self.all += words;
            match name {
                GUIDE => self.guide += words,
                _ if is_counted => self.words += words,
                _ => (),
            }
            if !line.starts_with('#') {
                if paragraph.is_empty() {
                    begins = n + 1;
                } else {
                    paragraph.push(' ');
                }
                paragraph += line;
            }
        }
        self.close(name, begins, &mut paragraph);
    }

    /// Judges a paragraph that has come to its end.
    fn close(&mut self, name: &str, begins: usize, paragraph: &mut String) {
        let text = std::mem::take(paragraph);
        let plain = without_code(&text).to_lowercase();
        let words = || plain.split(|c: char| !c.is_ascii_lowercase()).filter(|word| !word.is_empty());
        let mut found = |what: &str, count: usize, text: &str| {
            if count > 0 {
                let start: String = text.chars().take(60).collect();
                self.found.push(format!("{name}:{begins}: {what}: {start}"));
            }
            count
        };
        let is_one_of = |those: &[&str]| words().filter(|word| those.contains(word)).count();
        self.vague += found("somebody, whoever, nobody …", is_one_of(&VAGUE), &text);
        self.person += found("he, his, told", is_one_of(&PERSON), &text);
        for sentence in sentences(&text).into_iter().filter(|sentence| is_headless(sentence)) {
            self.headless += found("begins with a headless clause", 1, sentence);
        }
    }

    fn judge(&self, words_max: usize) -> Report {
        let mut report = Report::default();
        if self.all == 0 {
            report.faults.push("nothing was measured".into());
            return report;
        }
        report.bound(
            format!("{} words, at most {words_max}", self.words),
            Kept::at_most(self.words, words_max),
        );
        report.bound(
            format!("{GUIDE}: {} words, at most {GUIDE_WORDS_MAX}", self.guide),
            Kept::at_most(self.guide, GUIDE_WORDS_MAX),
        );
        report.faults.extend(self.wide.iter().map(|line| format!("{line}, at most {COLUMNS_MAX}")));
        let thousands = self.all as f64 / 1000.0;
        for (what, count, most) in [
            ("sentences that begin with a headless clause", self.headless, HEADLESS_MAX),
            ("somebody, whoever, nobody", self.vague, VAGUE_MAX),
            ("he, his, told", self.person, PERSON_MAX),
        ] {
            let share = count as f64 / thousands;
            if Kept::at_most(share, most) == Kept::No {
                report.faults.push(format!("{what}: {share:.1} of 1,000 words, at most {most}"));
            }
        }
        if !report.faults.is_empty() {
            report.faults.extend(self.found.iter().cloned());
        }
        report
    }
}

/// Says if a line begins an item of a list or a row of a table.
fn is_item(line: &str) -> bool {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "| "].iter().any(|mark| line.starts_with(mark))
        || (numbered.len() < line.len() && numbered.starts_with(". "))
}

/// A text with `code` as one word each.
fn without_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let is_open = |n: usize| n % 2 == 1 && n + 1 < parts.len();
    let plain = parts.iter().enumerate().map(|(n, part)| if is_open(n) { " code " } else { *part });
    plain.collect()
}

/// The sentences of a paragraph, with their items, cells and bold beginnings.
fn sentences(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let at = |n: usize| bytes.get(n).copied().unwrap_or(b'\n');
    let mut starts = vec![0];
    for n in 0..bytes.len() {
        let ends = match at(n) {
            b'.' | b'!' | b':' | b';' | b'|' => at(n + 1) == b' ',
            b'*' => at(n + 1) == b'*',
            b'-' => n == 0 && at(1) == b' ',
            _ => false,
        };
        if ends {
            starts.push(n + 2);
        }
    }
    starts.push(bytes.len());
    let trim = |text: &'_ str| text.len() - text.trim_start_matches([' ', '*', '|']).len();
    let pairs = starts.windows(2).filter(|pair| pair[0] < pair[1]);
    pairs.map(|pair| &text[pair[0]..pair[1]]).map(|part| &part[trim(part)..]).collect()
}

/// Says if a sentence begins with a clause that has no head. Questions may.
fn is_headless(sentence: &str) -> bool {
    let word = sentence.split([' ', ',']).next().unwrap_or_default();
    word.len() < sentence.len() && HEADLESS.contains(&word) && !sentence.contains('?')
}

/// The source files that a document names and that do not exist.
fn missing(name: &str, text: &str, sources: &[String]) -> Vec<String> {
    let is_path = |word: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        word.ends_with(".rs") && word.contains('/') && word.chars().all(allowed)
    };
    let named = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| is_path(word));
    let is_there =
        |file: &str| sources.iter().any(|source| source == file || source.ends_with(&format!("/{file}")));
    named
        .filter(|file| !is_there(file))
        .map(|file| format!("{name} names {file}, which does not exist"))
        .collect()
}

/// Checks the documents.
pub fn check(root: &Path) -> Result<Report, String> {
    let mut pages = files::below(&root.join("docs"), "md")?;
    pages.extend(["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let sources: Vec<_> = files::below(&root.join("crates"), "rs")?;
    let sources: Vec<_> = sources.iter().map(|path| files::shown(root, path)).collect();
    let (mut measure, mut gone) = (Measure::default(), Vec::new());
    for page in pages {
        let (name, text) = (files::shown(root, &page), files::read(&page)?);
        measure.add(&name, &text);
        gone.extend(missing(&name, &text, &sources));
    }
    let mut report = measure.judge(WORDS_MAX);
    report.faults.extend(gone);
    Ok(report)
}

/// Plants each fault alone beside a sentence that nothing is wrong with.
pub fn proof() -> Result<(), String> {
    let plain = "A sentence that nothing is wrong with.";
    let judged = |text: &str, words_max| {
        let mut measure = Measure::default();
        measure.add("planted", text);
        measure.judge(words_max).faults
    };
    if let Some(fault) = judged(plain, WORDS_MAX).first() {
        return Err(format!("a plain sentence is refused: {fault}"));
    }
    let wide = "word ".repeat(30);
    for fault in [
        wide.as_str(),
        "Who has waited for so long reads the record.",
        "A process ends. **What comes out** is compared.",
        "This is done by whoever comes first.",
        "The program says what he has done.",
    ] {
        if judged(&format!("{plain}\n{fault}\n"), WORDS_MAX).is_empty() {
            return Err(fault.into());
        }
    }
    if judged(plain, 5).is_empty() {
        return Err("too many words".into());
    }
    let mut guide = Measure::default();
    guide.add(GUIDE, &"word\n".repeat(GUIDE_WORDS_MAX));
    if !guide.judge(0).faults.is_empty() {
        return Err("the library's guide counts among the others".into());
    }
    guide.add(GUIDE, "word");
    if guide.judge(0).faults.is_empty() {
        return Err("too many words in the library's guide".into());
    }
    if missing("planted", "See `commit/no_such_file.rs`.", &["crates/a/src/commit/mod.rs".into()]).is_empty()
    {
        return Err("a source file that does not exist".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, text: &str) -> Measure {
        let mut measure = Measure::default();
        measure.add(name, text);
        measure
    }

    #[test]
    fn words_in_code_and_in_written_pages_do_not_count() {
        let text = "# A title\n\nTwo words – 3.\n\n```sh\nnone of these\n```\n\n    nor these\n\nLast.\n";
        assert_eq!(measured("docs/a.md", text).words, 5);
        assert_eq!(measured("docs/bench-results.md", text).words, 0);
        let guide = measured(GUIDE, text);
        assert_eq!((guide.words, guide.guide, guide.all), (0, 5, 5));
        assert_eq!(measured("CONTRIBUTING.md", text).all, 5);
    }

    #[test]
    fn a_headless_clause_is_found_behind_each_kind_of_beginning() {
        for text in [
            "Whether it is",
            "- What it is",
            "Yes. Who is",
            "| a | Whose it is",
            "**What it** is",
            "a; What, is",
        ] {
            assert_eq!(measured("a", text).headless, 1, "{text}");
        }
        for text in ["What is it?", "Whatsoever it is", "It says what it is", "`What it is`"] {
            assert_eq!(measured("a", text).headless, 0, "{text}");
        }
    }

    #[test]
    fn a_word_counts_in_any_case_and_not_in_code() {
        assert_eq!(measured("a", "Nobody, anybody; `somebody` or\nsomeone's").vague, 3);
        assert_eq!(measured("a", "He is told. The `he` there").person, 2);
    }

    #[test]
    fn the_width_of_a_line_is_its_characters() {
        assert!(measured("a", &"é".repeat(COLUMNS_MAX)).wide.is_empty());
        assert_eq!(measured("a", &"é".repeat(COLUMNS_MAX + 1)).wide, ["a:1: 121 columns"]);
    }

    #[test]
    fn a_named_file_is_found_by_the_end_of_its_path() {
        let sources = ["crates/a/src/b/mod.rs".to_owned()];
        assert!(
            missing("x", "`b/mod.rs` and `crates/a/src/b/mod.rs`, mod.rs, `no/file`", &sources).is_empty()
        );
        assert_eq!(missing("x", "`c/mod.rs`", &sources).len(), 1);
        assert_eq!(missing("x", "`bb/mod.rs`", &["crates/abb/mod.rs".to_owned()]).len(), 1);
    }
}
