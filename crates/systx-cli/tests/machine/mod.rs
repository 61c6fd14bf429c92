//! Shared parts of the tests of crashes and faults: a scratch directory, loop devices, processes, pictures of
//! trees.
//!
//! Owns: a directory for each case of a program that `systx_runner` runs in a mount namespace of its own.
//! Guarantees: everything is below one fresh directory; only processes that were started here are signalled,
//! by pid. Does not: know what is tested.
//!
//! Environment: `SYSTX_BIN` another systx (an optimized one), `SYSTX_LONG=1` long runs, `SYSTX_SEED` repeats
//! a run.

// Each test program uses another part of it.
#![allow(dead_code)]

pub mod bench;
pub mod generations;
pub mod pair;
pub mod picture;
pub mod processes;
mod stray;
pub mod tidy;
pub mod user;
pub mod volume;
pub mod who;
pub mod word;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use stray::Strays;
use systx_runner::{self as runner, Tried};
use tidy::tidy;
use who::Account;

/// Not the usual name: commands that look at all file systems must not touch the machine's own areas.
pub const AREA: &str = ".systx-crash";

/// A promise, checked in a directory of its own.
pub type Case = fn(&Path);

/// The `main` of a test program. Arguments: part of a name, and others of `cargo test`.
///
/// No checkpoint is made behind a command that has committed, so that a redo has something to do.
pub fn main(cases: &[(&str, Case)]) {
    std::env::set_var("SYSTX_CHECKPOINT", "never");
    main_with_checkpoints(cases);
}

/// The same, of a program whose verbs tell of all areas that there are.
pub fn main_without_strays(cases: &[(&str, Case)]) {
    Strays::at_the_start(AREA).none_or_exit();
    main(cases);
}

/// Like [`main`], with commands that behave as in normal use.
pub fn main_with_checkpoints(cases: &[(&str, Case)]) {
    // A systx that is installed on this machine is not what is tested.
    std::env::set_var("SYSTX_WATCHER", "off");
    runner::in_a_mount_namespace();
    let strays = Strays::at_the_start(AREA);
    let scratch = Arc::new(Scratch::new());
    let case = |&(name, case): &(&str, Case)| {
        let (scratch, name) = (scratch.clone(), name.to_owned());
        runner::Case::new(name.clone(), move || {
            fastrand::seed(runner::seed());
            let dir = scratch.0.join(name);
            std::fs::create_dir(&dir).unwrap();
            // Also after a case that failed: the next one finds no mount and no full disk of its.
            let _clear = Clear { scratch: &scratch, dir: &dir };
            case(&dir);
            Tried::Passed
        })
    };
    let cases = cases.iter().map(case).collect();
    runner::run(cases, move || {
        drop(scratch);
        strays.are_no_more();
    });
}

/// How often: few for everybody's tests, many in a long run.
pub fn rounds(short: usize, long: usize) -> usize {
    match std::env::var_os("SYSTX_LONG") {
        Some(value) if value != "0" => long,
        _ => short,
    }
}

/// Prints a line now and then in a long run: one that is cut short has a count, and is not mistaken for one
/// that hangs (`scripts/watch.sh`).
pub fn tell_how_far(stayed: usize, went_on: usize) {
    if (stayed + went_on) % 100 == 0 {
        println!("{} rounds so far: {stayed} × all old, {went_on} × all new", stayed + went_on);
    }
}

/// The program under test.
pub fn systx() -> PathBuf {
    std::env::var_os("SYSTX_BIN").map_or_else(|| env!("CARGO_BIN_EXE_systx").into(), PathBuf::from)
}

/// `systx run --only DIR OPTIONS -- COMMAND`, in that directory.
pub fn run<S: AsRef<OsStr>>(dir: &Path, options: &[&str], command: &[S]) -> Command {
    Account::root().run(dir, options, command)
}

/// Runs a shell script inside, to its end.
pub fn shell(dir: &Path, script: &str) -> Output {
    Account::root().shell(dir, script)
}

/// Another verb of systx.
pub fn verb(verb: &str, options: &[&str]) -> Output {
    Account::root().verb(verb, options)
}

/// `systx recover`, which must succeed.
pub fn recover() -> String {
    Account::root().recover()
}

/// Exit status; 128 + n for a signal.
pub fn code(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a tool that must succeed.
pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", err(&output));
    out(&output)
}

/// The machine's programs and libraries, read-only, below a directory that is to be a root.
pub fn programs_below(root: &Path) {
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "usr"] {
        let (from, to) = (Path::new("/").join(name), root.join(name));
        match std::fs::read_link(&from) {
            Ok(target) => std::os::unix::fs::symlink(target, to).unwrap(),
            Err(_) if from.is_dir() => {
                std::fs::create_dir(&to).unwrap();
                must(Command::new("mount").args(["-o", "bind,ro"]).arg(&from).arg(&to));
            }
            Err(_) => {}
        }
    }
}

/// Returns true if a tool is there; says so when it is not.
pub fn have(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: no {tool}");
    }
    found
}

/// Everything on disk that a run of the tests makes; removed on drop. Mounts go with the namespace.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let name = std::env::current_exe().unwrap().file_stem().unwrap().to_string_lossy().into_owned();
        let path = std::env::temp_dir().join(format!("systx-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// Unmounts and removes what a case made.
    fn clear(&self, dir: &Path) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let mut points: Vec<_> = points.filter(|point| Path::new(point).starts_with(dir)).collect();
        points.reverse();
        for point in points {
            // Lazily: a case that failed may have left a process inside.
            tidy(Command::new("umount").args(["-l", point]));
        }
        // Never through a mount that is still there.
        tidy(Command::new("rm").args(["-rf", "--one-file-system"]).arg(dir));
    }
}

/// Clears what a case made, when it ends.
struct Clear<'a> {
    scratch: &'a Scratch,
    dir: &'a Path,
}

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.scratch.clear(self.dir);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear(&self.0);
    }
}
