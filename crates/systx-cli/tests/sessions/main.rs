//! Transactions that stay open over several commands: `begin`, `exec`, `diff`, `check`, `commit`, `abort`, and
//! `run` that keeps its own open.
//!
//! `cargo test -p systx-cli --test sessions [-- PART-OF-A-NAME]`

#[path = "../alone/mod.rs"]
mod alone;
mod at_once;
mod check;
mod dialogue;
mod ends;
mod ids;
mod impostor;
mod keeping;
mod lost;
mod open;
mod part;
mod terminal;

use alone::place::word::{hear, say};
use alone::place::{code, err, out, Place, AREA, SYSTX};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};

fn main() {
    let cases: Vec<_> = [
        open::ALL,
        check::ALL,
        ids::ALL,
        part::ALL,
        ends::ALL,
        at_once::ALL,
        lost::ALL,
        keeping::ALL,
        terminal::ALL,
        dialogue::ALL,
    ]
    .concat();
    alone::enter(&["tmpfs", "ext4"], &cases, &[]);
}

/// An open transaction; its session daemon is killed when a case fails.
struct Session<'a> {
    p: &'a Place,
    id: String,
    daemon: Daemon,
}

/// Held so that its number can't come to mean another one.
struct Daemon {
    pid: u32,
    fd: OwnedFd,
}

impl Daemon {
    fn new(pid: u32) -> Daemon {
        let number = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        Daemon { pid, fd: rustix::process::pidfd_open(number, PidfdFlags::empty()).unwrap() }
    }

    fn kill(&self) {
        // Gone is as good.
        let _ = rustix::process::pidfd_send_signal(&self.fd, Signal::KILL);
    }

    /// Until it has ended.
    fn gone(&self) {
        use rustix::event::{poll, PollFd, PollFlags};
        while poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None).is_err() {}
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `systx VERB --area-name AREA WORDS`, in the served directory.
fn systx(p: &Place, verb: &str, words: &[&str]) -> Command {
    let mut systx = Command::new(SYSTX);
    systx.args([verb, "--area-name", AREA]).args(words).current_dir(&p.served).env("BESIDE", &p.beside);
    systx.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    systx
}

fn begin<'a>(p: &'a Place, options: &[&str]) -> Session<'a> {
    let output = systx(p, "begin", &[&["--json", "--only", "."], options].concat()).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let value: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let pid = u32::try_from(value["pid"].as_u64().unwrap()).unwrap();
    Session { p, id: value["id"].to_string(), daemon: Daemon::new(pid) }
}

impl Session<'_> {
    fn command(&self, verb: &str, words: &[&str]) -> Command {
        systx(self.p, verb, &[&[self.id.as_str()], words].concat())
    }

    /// One of its verbs, to its end.
    fn verb(&self, verb: &str, words: &[&str]) -> Output {
        self.command(verb, words).output().unwrap()
    }

    /// A shell script inside, to its end.
    fn shell(&self, script: &str) -> Output {
        self.verb("exec", &["--", "sh", "-c", script])
    }

    /// A shell script inside, when it has said on a FIFO that it is there. It waits in the FIFO `word<n>` then.
    fn waiting(&self, n: u32, before: &str, after: &str) -> Child {
        let here = self.p.fifo(&format!("here{n}"));
        self.p.fifo(&format!("word{n}"));
        let script = format!("{before} echo here > $BESIDE/here{n}; read word < $BESIDE/word{n}; {after}");
        let mut child = self.command("exec", &["--", "sh", "-c", &script]).spawn().unwrap();
        assert_eq!(hear(&here, &mut child), "here\n");
        child
    }

    /// Lets it go on.
    fn say(&self, n: u32, child: &mut Child) {
        say(&self.p.beside.join(format!("word{n}")), child, "go");
    }
}

/// Exit code, what it said on standard output and on standard error.
fn all(output: &Output) -> (i32, String, String) {
    (code(output), out(output), err(output))
}

/// Nothing in the area says that there is, or was, an open transaction.
fn nobody_is_kept(p: &Place) {
    let open = p.mount.join(AREA).join("open");
    assert!(!open.exists(), "{:?}", std::fs::read_dir(open).map(|names| names.flatten().collect::<Vec<_>>()));
}
