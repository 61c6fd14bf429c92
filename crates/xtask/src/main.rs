//! Checks of this repository: `cargo xtask CHECK`.
//!
//! Owns: everything about the sources, the documents, the dependencies and the tests' output that is parsed and
//! judged. Guarantees: every check has found its planted faults before it says that there are none. Does not:
//! build, run tests, or change a file; the scripts in `scripts/` do what a shell does better.
#![forbid(unsafe_code)]

mod comments;
mod counts;
mod deny;
mod docs;
mod files;
mod programs;
mod rooms;
mod rust;
mod spdx;
mod subjects;
mod summary;

use std::path::Path;
use std::process::ExitCode;

/// The result of a check: lines to print, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Measures and notes.
    pub said: Vec<String>,
    /// Faults, each with its place. The check has passed if there is none.
    pub faults: Vec<String>,
}

impl Report {
    /// Adds a measure, and a fault if it is above its bound.
    pub fn bound(&mut self, text: String, is_kept: Kept) {
        match is_kept {
            Kept::Yes => self.said.push(text),
            Kept::No => self.faults.push(text),
        }
    }
}

/// Says if a bound is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The measure is within it.
    Yes,
    /// It is above.
    No,
}

impl Kept {
    /// Compares a measure with the most that it may be.
    pub fn at_most<T: PartialOrd>(measure: T, most: T) -> Kept {
        if measure <= most {
            Kept::Yes
        } else {
            Kept::No
        }
    }

    /// Says if both are kept.
    pub fn and(self, other: Kept) -> Kept {
        if self == Kept::Yes {
            other
        } else {
            Kept::No
        }
    }
}

/// A check of the repository below a directory.
struct Check {
    name: &'static str,
    about: &'static str,
    run: fn(&Path) -> Result<Report, String>,
    /// Plants the faults that the check must find; an error names one that it has not found.
    proof: fn() -> Result<(), String>,
}

const CHECKS: &[Check] = &[
    Check {
        name: "docs",
        about: "words, widths and sentences of the documents; source files that they name",
        run: docs::check,
        proof: docs::proof,
    },
    Check {
        name: "comments",
        about: "turns of phrase in comments that a stranger reads twice; `comments list` names them",
        run: comments::check,
        proof: comments::proof,
    },
    Check {
        name: "counts",
        about: "long functions, `match` on true and false, bool parameters, lines; `counts list` names them",
        run: counts::check,
        proof: counts::proof,
    },
    Check {
        name: "rooms",
        about: "the walks in docs/architecture.md: each function exists, and the modules are few",
        run: rooms::check,
        proof: rooms::proof,
    },
    Check {
        name: "deny",
        about: "licences, sources and double versions of the dependencies, by deny.toml",
        run: deny::check,
        proof: deny::proof,
    },
    Check {
        name: "subjects",
        about: "subjects of the commits since the last tag, or of HEAD: 72 columns at most",
        run: subjects::check,
        proof: subjects::proof,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = files::root();
    let done = match words[..] {
        ["lint"] => all(&root),
        ["programs"] => programs::print(),
        ["summary", log, status, lints] => return summary::print(log, status, lints),
        ["comments", "list"] => comments::list(&root),
        ["counts", "list"] => counts::list(&root),
        [name] => match CHECKS.iter().find(|check| check.name == name) {
            Some(check) => one(check, &root),
            None => usage(),
        },
        _ => usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> Result<(), String> {
    let mut text = String::from("usage: cargo xtask CHECK\n\n  lint         all of these:\n");
    for check in CHECKS {
        text += &format!("  {:<12} {}\n", check.name, check.about);
    }
    text += "\nfor the scripts:\n";
    text += "  programs     the test programs in cargo's messages (standard input), the long ones first\n";
    text += "  summary LOG STATUS LINTS   sums up the output of the tests\n";
    Err(text)
}

/// Runs every check, also behind one that fails.
fn all(root: &Path) -> Result<(), String> {
    let failed: Vec<_> = CHECKS.iter().filter_map(|check| one(check, root).err()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

/// Runs one check, after its proof.
fn one(check: &Check, root: &Path) -> Result<(), String> {
    let name = check.name;
    (check.proof)().map_err(|why| format!("{name}: A FAULT IS NOT NOTICED: {why}"))?;
    let report = (check.run)(root).map_err(|why| format!("{name}: {why}"))?;
    for line in &report.said {
        println!("{name}: {line}");
    }
    match report.faults.is_empty() {
        true => Ok(()),
        false => {
            Err(report.faults.iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>().join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_finds_its_planted_faults() {
        for check in CHECKS {
            assert_eq!((check.proof)(), Ok(()), "{}", check.name);
        }
    }

    #[test]
    fn a_bound_is_kept_up_to_itself() {
        assert!(Kept::at_most(2, 2) == Kept::Yes);
        assert!(Kept::at_most(3, 2) == Kept::No);
    }
}
