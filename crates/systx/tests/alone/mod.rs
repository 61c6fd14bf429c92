//! A test program that is alone in a mount namespace of its own, and whose other processes are itself in other roles.
//!
//! Owns: the entry ([`enter`]), the turning point at which a command waits for our word ([`meet`]), and the clock. Every
//! case runs on each file system; its name is the promise. A case that fails does not keep the others from running.

#[path = "../run/place.rs"]
#[allow(dead_code)] // Each program uses its part.
pub mod place;

use place::word::{hear, say};
use place::{Place, Scratch};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A promise.
pub type Case = fn(&Place);
/// What this program does when another process of the test starts it.
pub type Role = fn(&[String]);

/// `main` of a test program: plays a role, or runs the cases on each of `kinds`.
pub fn enter(kinds: &[&str], cases: &[(&str, Case)], roles: &[(&str, Role)]) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--role") => {
            let role = roles.iter().find(|(name, _)| *name == args[1]).expect("a known role").1;
            return role(&args[2..]);
        }
        Some("--inside") => {}
        _ => return go_inside(&args),
    }
    let wanted = args.iter().skip(1).find(|arg| !arg.starts_with('-')).cloned().unwrap_or_default();
    let scratch = Scratch::new();
    let (mut count, mut failed) = (0, Vec::new());
    for kind in kinds {
        let Some(mount) = scratch.mount(kind) else { continue };
        for (name, case) in cases.iter().filter(|(name, _)| name.contains(&wanted)) {
            let place = Place::new(&mount, name);
            match std::panic::catch_unwind(|| case(&place)) {
                Ok(()) => println!("test {kind}::{name} ... ok"),
                Err(_) => {
                    println!("test {kind}::{name} ... FAILED");
                    failed.push(format!("{kind}::{name}"));
                }
            }
            count += 1;
        }
    }
    drop(scratch);
    println!("{} cases passed", count - failed.len());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
        std::process::exit(1);
    }
}

fn go_inside(args: &[String]) {
    if !is_root() {
        println!("skipped: `systx run` needs root");
        return;
    }
    let again = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .arg("--inside")
        .args(args)
        .status();
    match again {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(e) => println!("skipped: unshare can't be run: {e}"),
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// Whether the long form was asked for.
#[allow(dead_code)]
pub fn long() -> bool {
    std::env::var_os("SYSTX_LONG").is_some()
}

/// This program in a role, as words of a command.
#[allow(dead_code)]
pub fn role<'a>(name: &'a str, args: &[&'a str]) -> Vec<String> {
    let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [me.as_str(), "--role", name].iter().chain(args).map(|word| word.to_string()).collect()
}

/// A command that says when it is at its turning point and waits there for our word.
#[allow(dead_code)]
pub struct Meeting {
    pub systx: Child,
    word: PathBuf,
}

/// Shell text for turning point `n` of a place: [`Meeting`] ends its wait.
#[allow(dead_code)]
pub fn turn(n: u32) -> String {
    format!("echo here > $BESIDE/here{n}; read word < $BESIDE/word{n};")
}

/// Starts a command and returns when it is at its turning point `n`; numbers are used once in a place.
#[allow(dead_code)]
pub fn meet<S: AsRef<OsStr>>(p: &Place, n: u32, options: &[&str], command: &[S]) -> Meeting {
    let (here, word) = (p.fifo(&format!("here{n}")), p.fifo(&format!("word{n}")));
    let mut systx = p.systx(options, command);
    let mut systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(hear(&here, &mut systx), "here\n");
    Meeting { systx, word }
}

#[allow(dead_code)]
impl Meeting {
    /// Gives the word, unless the command was ended where it waits, and returns its end.
    pub fn end(mut self) -> Output {
        say(&self.word, &mut self.systx, "go");
        self.systx.wait_with_output().unwrap()
    }
}
