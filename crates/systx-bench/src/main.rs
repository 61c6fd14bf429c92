//! `systx-bench`: what systx costs, beside the plain program in the same run.
//!
//! Owns: one module a question of docs/benchmarks.md, and the report. Guarantees: works only below the
//! directory that it is given, which scripts/bench.sh mounts for it. Does not: judge; a target that is missed
//! is a line like any other.
#![forbid(unsafe_code)]

mod cpus;
mod curves;
mod disk;
mod graph;
mod group;
mod logging;
mod measure;
mod meter;
mod peers;
mod plot;
mod postgres;
mod programs;
mod recovery;
mod report;
mod small;
mod start;
mod steps;
mod tree;
mod world;

use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a measurement may fail with: it ends the question, not the run.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How to measure.
pub struct Setup {
    /// A directory on the file system under test, ours alone.
    pub dir: PathBuf,
    /// The program `systx`.
    pub systx: PathBuf,
    /// The library's example `graph`.
    pub graph: Option<PathBuf>,
    /// Where plots go.
    pub plots: PathBuf,
    /// Repeats of each measurement.
    pub repeats: usize,
    /// Tiny sizes: to try the benchmark, not the program.
    pub quick: bool,
}

impl Setup {
    /// A size: the real one, or a tiny one.
    pub fn size(&self, real: usize, tiny: usize) -> usize {
        if self.quick {
            tiny
        } else {
            real
        }
    }
}

/// A question: its name on the command line, and what answers it.
type Question = (&'static str, fn(&Setup, &mut Report) -> Outcome<()>);

const QUESTIONS: &[Question] = &[
    ("start", start::measure),
    ("tree", tree::measure),
    ("curves", curves::measure),
    ("small", small::measure),
    ("steps", steps::measure),
    ("recovery", recovery::measure),
    ("group", group::measure),
    ("programs", programs::measure),
    ("cpus", cpus::measure),
    ("log", logging::measure),
    ("graph", graph::measure),
    ("peers", peers::measure),
];

fn main() -> ExitCode {
    systx_os::linux::this_process_is_ours();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--worker", args)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return ended(group::worker(args));
    }
    if let Some(("--peer", args)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return ended(peers::worker(args));
    }
    ended(all(&args))
}

fn ended(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("systx-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &[String]) -> Outcome<()> {
    let option = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
    let need = |name: &str| option(name).ok_or(format!("{name} is missing; use scripts/bench.sh"));
    let quick = args.iter().any(|a| a == "--quick");
    let setup = Setup {
        dir: PathBuf::from(need("--dir")?),
        systx: PathBuf::from(need("--systx")?),
        graph: option("--graph").map(PathBuf::from),
        plots: PathBuf::from(need("--plots")?),
        repeats: option("--repeats").map_or(Ok(if quick { 2 } else { 7 }), |n| n.parse())?,
        quick,
    };
    let wanted: Vec<&str> = option("--questions").map_or(Vec::new(), |list| list.split(' ').collect());
    let wanted = |name: &str| wanted.iter().all(|w| w.is_empty()) || wanted.contains(&name);
    systx_os::linux::raise_nofile_limit()?;
    let mut report = Report::new(need("--out")?.into(), option("--commit").map_or("unknown", |c| c));
    report.machine(&setup)?;
    let mut failed = 0;
    for (name, measure) in QUESTIONS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} …");
        if let Err(why) = measure(&setup, &mut report) {
            report.line(&format!("**not measured**: {why}"));
            eprintln!("systx-bench: {name}: {why}");
            failed += 1;
        }
        // What was measured stays, whatever comes.
        report.write()?;
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} question(s) could not be measured").into()),
    }
}
