//! Runs the cases of a test program that must be alone in its process: with mounts, an umask or forks of its
//! own.
//!
//! Owns: the program's words (those of `cargo test`: part of a name, `--exact`, `--skip`, `--list`), its
//! mount namespace, its seed, and its result line. Guarantees: the cases run one after the other in the main
//! thread, so that a case may fork; one that fails does not keep the others from running; the exit status is
//! 0 only if none failed; every mount is gone with the program's last process. Does not: capture what a case
//! says. A case that can't run here says `skipped: ` and why, and passes.

#![forbid(unsafe_code)]

mod beside;
mod scratch;

pub use beside::{kill_after, Ends};
pub use scratch::Scratch;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::io::Write;
use std::process::Command;

/// First word of the process in the mount namespace.
const INSIDE: &str = "--inside";
/// Seed of the short tests: the same each time. `make nightly` takes others.
const SEED: u64 = 15;

/// Outcome of a case that did not panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It was, and passed: a case that fails panics.
    Passed,
    /// What it needs is missing, as a line that begins with `skipped: ` says.
    Skipped,
}

/// A named promise and the code that checks it.
pub struct Case {
    name: String,
    body: Box<dyn FnOnce() -> Tried + Send>,
}

impl Case {
    /// `name` is the promise; `body` panics where it is broken.
    pub fn new(name: impl Into<String>, body: impl FnOnce() -> Tried + Send + 'static) -> Case {
        Case { name: name.into(), body: Box::new(body) }
    }
}

/// Returns inside of a mount namespace of this program's own; ends the program where that can't be had.
///
/// Starts this program once more, by unshare(1), and ends with its status: this crate has no `unsafe`.
pub fn in_a_mount_namespace() {
    as_root();
    if only_listed() || std::env::args().nth(1).is_some_and(|word| word == INSIDE) {
        return;
    }
    let again = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        // Under nohup SIGHUP is ignored, and a shell can't trap what was ignored when it began.
        .args(["env", "--default-signal"])
        .arg(std::env::current_exe().expect("the path of this program"))
        .arg(INSIDE)
        .args(std::env::args_os().skip(1))
        .status();
    match again {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(e) => skip(&format!("unshare can't be run: {e}")),
    }
}

/// Whether only names are asked for, which takes neither root nor a namespace.
pub fn only_listed() -> bool {
    std::env::args().any(|word| word == "--list")
}

/// Ends a program that needs root and is not root's.
pub fn as_root() {
    if !only_listed() && !rustix::process::geteuid().is_root() {
        skip("needs root");
    }
}

/// Ends a program that can't be run on this machine.
pub fn skip(why: &str) -> ! {
    println!("skipped: {why}");
    std::process::exit(0)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Seed of this run's choices: `SYSTX_SEED`, else the same each time, but for a nightly run (`SYSTX_NIGHT`).
pub fn seed() -> u64 {
    number("SYSTX_SEED").or_else(|| number("SYSTX_NIGHT")).unwrap_or(SEED)
}

/// First seed of a suite that takes a range of them: 0, but for a nightly run (`SYSTX_NIGHT`).
pub fn first_seed() -> u64 {
    number("SYSTX_NIGHT").unwrap_or(0)
}

/// Runs the cases that the words of this program choose, calls `tidy`, failed or not, and ends the program.
pub fn run(cases: Vec<Case>, tidy: impl FnOnce()) -> ! {
    let words = std::env::args().filter(|word| word != INSIDE);
    let mut args = Arguments::from_iter(words);
    // Cases have mounts, an umask and forks of their own.
    args.test_threads = Some(1);
    // The name of one may be the beginning of another's.
    args.exact |= args.filter.as_ref().is_some_and(|wanted| cases.iter().any(|case| case.name == *wanted));
    if !args.list {
        // libtest-mimic writes a name before its case runs and `ok` after it: what the case says would stand between.
        args.logfile = Some("/dev/null".into());
        println!("SYSTX_SEED={}", seed());
    }
    let trials = cases.into_iter().map(|Case { name, body }| {
        let trial = name.clone();
        Trial::ignorable_test(trial, move || tell(&name, body))
    });
    let conclusion = libtest_mimic::run(&args, trials.collect());
    tidy();
    if !args.list {
        println!(
            "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out\n",
            if conclusion.has_failed() { "FAILED" } else { "ok" },
            conclusion.num_passed,
            conclusion.num_failed,
            conclusion.num_ignored,
            conclusion.num_filtered_out,
        );
    }
    conclusion.exit()
}

/// Runs one case and writes its line in one piece.
fn tell(name: &str, body: Box<dyn FnOnce() -> Tried + Send>) -> Result<Completion, Failed> {
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let (word, result) = match tried {
        Ok(Tried::Passed) => ("ok", Ok(Completion::Completed)),
        Ok(Tried::Skipped) => ("ignored", Ok(Completion::ignored())),
        Err(_) => ("FAILED", Err(Failed::without_message())),
    };
    let _ = writeln!(std::io::stdout(), "test {name} ... {word}");
    result
}
