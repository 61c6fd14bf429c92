//! A test program that is alone in a mount namespace of its own, and whose other processes are itself in
//! other roles.
//!
//! Owns: the entry ([`enter`]), the turning point at which a command waits for our word ([`meet`]), and the
//! clock. Every case runs on each file system; its name is the promise. A case that fails does not keep the
//! others from running.

#[path = "../run/place.rs"]
#[allow(dead_code)] // Each program uses its part.
pub mod place;

use place::word::{hear, say};
pub use place::Case;
use place::{Place, Scratch};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use systx_runner as runner;

/// Role that this program plays when another process of the test starts it.
pub type Role = fn(&[String]);

/// `main` of a test program: plays a role, or runs the cases on each of `kinds`.
pub fn enter(kinds: &[&str], cases: &[(&str, Case)], roles: &[(&str, Role)]) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "--role") {
        let role = roles.iter().find(|(name, _)| *name == args[1]).expect("a known role").1;
        return role(&args[2..]);
    }
    runner::in_a_mount_namespace();
    let scratch = Arc::new(Scratch::new());
    let mut all = Vec::new();
    for kind in kinds {
        all.extend(scratch.clone().cases(kind, cases));
    }
    runner::run(all, move || drop(scratch));
}

/// Returns true if the long form was requested.
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
