//! At a terminal, as without systx.

use super::alone::{place::*, Case};
use super::{begin, systx, Daemon, Session};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("keys_reach_the_command_and_a_stopped_one_comes_back", keys_reach_the_command),
    ("keys_reach_the_command_of_a_run_and_an_interrupt_aborts_it", keys_reach_the_command_of_a_run),
    ("a_long_commit_tells_how_far_it_is_to_whoever_asked_for_it", a_long_commit_tells_how_far_it_is),
    ("a_shell_whose_terminal_goes_stays_open", a_shell_whose_terminal_goes_stays_open),
    ("an_interrupt_is_no_answer_and_a_shell_can_be_kept_open", an_interrupt_is_no_answer),
    ("a_shell_says_before_it_asks_that_its_commit_would_meet_conflicts", a_shell_that_conflicts),
    ("a_terminal_has_its_settings_back_after_a_command_that_was_killed", a_terminal_has_its_settings_back),
    ("a_shell_inside_has_job_control_and_says_where_it_is", a_shell_inside_has_job_control),
];

/// A program at a terminal of its own, where the test types.
pub struct Typed {
    script: Child,
    shown: String,
    /// Everything that was shown before that.
    pub before: String,
}

impl Typed {
    /// Starts bash, without start files of any user; `None`, with a reason printed, where it can't be had.
    pub fn bash(p: &Place) -> Option<Typed> {
        // If the tests were started in the background, an interrupt is ignored by all below.
        let script = Command::new("env")
            .args(["--default-signal=INT,QUIT,TSTP,CONT", "script", "-qec"])
            // A bash that is not asked for a prompt, as script(1) would start it, drops PS1.
            .args(["exec env PS1='prompt> ' bash --norc --noprofile -i", "/dev/null"])
            .current_dir(&p.served)
            .env("SHELL", "/bin/sh")
            // A dumb terminal would show the end of a long prompt only.
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        match script {
            Ok(script) => Some(Typed { script, shown: String::new(), before: String::new() }),
            Err(e) => {
                println!("skipped: script(1) can't be run: {e}");
                None
            }
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until something is shown that was not shown before.
    pub fn shows(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown.find(text) {
                self.before.extend(self.shown.drain(..at + text.len()));
                return;
            }
            self.more(text);
        }
    }

    /// Waits for more, a minute at most.
    fn more(&mut self, wanted: &str) {
        let stdout = self.script.stdout.as_mut().unwrap();
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ready, 1, "no {wanted:?} comes after {:?}", self.shown);
        let mut bytes = [0; 4096];
        let n = stdout.read(&mut bytes).unwrap();
        assert_ne!(n, 0, "no {wanted:?} comes after {:?}", self.shown);
        self.shown += &String::from_utf8_lossy(&bytes[..n]);
    }

    /// The rest of the line that was begun.
    pub fn line(&mut self) -> String {
        while !self.shown.contains("\r\n") {
            self.more("the end of a line");
        }
        let (line, rest) = self.shown.split_once("\r\n").unwrap();
        let (line, rest) = (line.to_string(), rest.to_string());
        self.shown = rest;
        line
    }

    pub fn ends(mut self) {
        self.types("exit\n");
        self.script.wait().unwrap();
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn keys_reach_the_command(p: &Place) {
    let open = begin(p, &[]);
    let Some(typed) = keys_reach(p, &format!("exec --area-name {AREA} {}", open.id)) else { return };
    typed.ends();
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("size"), "33 77\n");
}

fn keys_reach_the_command_of_a_run(p: &Place) {
    let Some(mut typed) = keys_reach(p, &format!("run --area-name {AREA} --only .")) else { return };
    assert!(typed.before.contains("systx: aborted, nothing was changed"), "{}", typed.before);
    assert!(!p.served.join("size").exists());
    // The terminal is the shell's again, and nothing of the run waits in the background.
    let so_far = typed.before.len();
    typed.types("jobs; echo still\"\"here\n");
    typed.shows("stillhere");
    assert!(!typed.before[so_far..].contains("[1]"), "{}", typed.before);
    typed.ends();
}

/// Stops, continues, feeds, resizes and interrupts what runs below systx with these words.
fn keys_reach(p: &Place, words: &str) -> Option<Typed> {
    let mut typed = Typed::bash(p)?;
    // The echo of the keys themselves has quotes in it. A trap that is due right before a read is run after
    // that, so it ends.
    let inside = "trap 'echo resu\"\"med' CONT; trap 'echo sized-$(stty size)' WINCH; echo wait\"\"ing; \
        while :; do read -t 1 -r x || continue; [ \"$x\" != end ] || exec sh -c 'echo ending; exec sleep 1000'; \
        test -t 0 && stty size > size && echo got-$x; done";
    std::fs::write(p.beside.join("inside"), inside).unwrap();
    typed.types("stty cols 77 rows 33; echo t\"\"ty=$(tty)\n");
    typed.shows("tty=");
    let tty = typed.line();
    typed.types(&format!("{SYSTX} {words} -- bash {}/inside\n", p.beside.display()));
    typed.shows("waiting");
    typed.types("\u{1a}");
    typed.shows("Stopped");
    typed.types("echo now\"\"here\n");
    typed.shows("nowhere");
    typed.types("fg\n");
    typed.shows("resumed");
    typed.types("hello\n");
    typed.shows("got-hello");
    let resized = Command::new("stty").args(["-F", &tty, "cols", "99"]).status();
    assert!(resized.is_ok_and(|status| status.success()), "{tty}");
    typed.shows("sized-33 99");
    // Not bash, which may go on when it is interrupted in its loop, or just before it becomes another program.
    typed.types("end\n");
    typed.shows("ending");
    typed.types("\u{3}");
    // Keys that were typed ahead would go with the interrupt.
    typed.shows("prompt> ");
    typed.types("echo status=$?\n");
    typed.shows("status=130");
    Some(typed)
}

/// The number and the session daemon of the only one that is open.
fn the_open_one(p: &Place) -> Session<'_> {
    let told = out(&systx(p, "list", &["--json"]).output().unwrap());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let one = &told["transactions"][0];
    assert_eq!(one["state"], "open", "{told}");
    let pid = u32::try_from(one["pid"].as_u64().unwrap()).unwrap();
    Session { p, id: one["id"].to_string(), daemon: Daemon::new(pid) }
}

fn shell(p: &Place) -> Option<Typed> {
    let mut typed = Typed::bash(p)?;
    typed.types(&format!("SHELL=/bin/sh {SYSTX} shell --area-name {AREA} --only .\n"));
    typed.shows("(systx ");
    Some(typed)
}

fn a_shell_whose_terminal_goes_stays_open(p: &Place) {
    // While the shell runs, and at the question.
    for asked in [false, true] {
        let Some(mut typed) = shell(p) else { return };
        typed.types("echo mine > mine; echo wri\"\"tten\n");
        typed.shows("written");
        if asked {
            typed.types("exit\n");
            typed.shows("commit 1 change?");
        }
        // The terminal goes with script(1).
        drop(typed);
        let open = the_open_one(p);
        let found = loop {
            let found = open.shell("cat mine");
            // A process that was at the terminal may still be about to go.
            if !out(&systx(p, "status", &[&open.id]).output().unwrap()).contains("  inside:") {
                break found;
            }
        };
        assert_eq!(out(&found), "mine\n", "{}", err(&found));
        assert!(!p.served.join("mine").exists());
        assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
        assert_eq!(p.read("mine"), "mine\n");
        std::fs::remove_file(p.served.join("mine")).unwrap();
    }
}

fn an_interrupt_is_no_answer(p: &Place) {
    let Some(mut typed) = shell(p) else { return };
    typed.types("echo mine > mine; exit\n");
    for key in ["\u{3}", "\u{4}", "what\n"] {
        typed.shows("[k]eep it open: ");
        typed.types(key);
    }
    typed.shows("[k]eep it open: ");
    typed.types("k\n");
    typed.shows("stays open until");
    typed.shows("prompt> ");
    typed.ends();
    let open = the_open_one(p);
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("mine"), "mine\n");
}

fn a_shell_that_conflicts(p: &Place) {
    for name in ["a", "b"] {
        p.write(name, "1\n");
    }
    let Some(mut typed) = shell(p) else { return };
    typed.types("cat a b; echo mine > mine; echo wri\"\"tten\n");
    typed.shows("written");
    for name in ["a", "b"] {
        p.write(name, "others\n");
    }
    typed.types("exit\n");
    typed.shows("can't be committed as things are: 2 conflicts, which `systx check ");
    typed.shows("commit 1 change? ");
    // Each time that it asks.
    typed.types("d\n");
    typed.shows(": 2 conflicts, which ");
    typed.shows("[k]eep it open: ");
    typed.types("k\n");
    typed.shows("stays open until");
    typed.shows("prompt> ");
    typed.ends();
    let open = the_open_one(p);
    assert_eq!(open.verb("check", &[]).status.code(), Some(75));
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
}

fn a_terminal_has_its_settings_back(p: &Place) {
    let open = begin(p, &[]);
    let Some(mut typed) = Typed::bash(p) else { return };
    typed.types(&format!(
        "a=$(stty -g); {SYSTX} exec --area-name {AREA} {} -- sh -c 'stty raw -echo; echo wait\"\"ing; exec sleep 1000'; test \"$a\" = \"$(stty -g)\" && echo sa\"\"me\n",
        open.id
    ));
    typed.shows("waiting");
    assert_eq!(open.verb("abort", &["--force"]).status.code(), Some(0));
    typed.shows("same");
    typed.ends();
}

fn a_shell_inside_has_job_control(p: &Place) {
    let open = begin(p, &[]);
    let Some(mut typed) = Typed::bash(p) else { return };
    typed.types(&format!("SHELL=/bin/bash {SYSTX} exec --area-name {AREA} {}\n", open.id));
    typed.shows(&format!("(systx {})", open.id));
    typed.types("sh -c 'echo wait\"\"ing; exec sleep 1000'\n");
    typed.shows("waiting");
    typed.types("\u{1a}");
    typed.shows("Stopped");
    typed.types("kill -9 %1; while [ -n \"$(jobs -s)\" ]; do :; done; echo x > x; exit 6\n");
    typed.shows("exit\r\n");
    typed.shows("prompt> ");
    typed.types("echo status=$?\n");
    typed.shows("status=6");
    // The terminal is the outer shell's again.
    typed.types("sh -c 'read -r x; echo got-\"$x\"'\n");
    typed.types("again\n");
    typed.shows("got-again");
    typed.ends();
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("x"), "x\n");
}

/// The session daemon commits; the terminal is that of `systx commit`.
fn a_long_commit_tells_how_far_it_is(p: &Place) {
    // The case is equal on all file systems, and seconds long.
    if !p.mount.ends_with("ext4") {
        return;
    }
    if !Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success()) {
        return println!("skipped: no strace");
    }
    let commit = |options: &str| {
        let session = begin(p, &[]);
        let six = session.shell("for n in 1 2 3 4 5 6; do rm -f $n; echo >$n; done");
        assert_eq!(code(&six), 0, "{}", err(&six));
        // Each step takes a while before it begins.
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-p"])
            .arg(session.daemon.pid.to_string());
        strace.args(["-e", "inject=renameat2:delay_enter=400000"]);
        let mut strace = strace.stderr(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", session.daemon.pid);
        while std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n") {
            assert!(strace.try_wait().unwrap().is_none(), "strace can't be attached");
            std::thread::yield_now();
        }
        let words = format!("{SYSTX} commit --area-name {AREA} {options} {}", session.id);
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &words, "/dev/null"]).current_dir(&p.served).stdin(Stdio::null());
        let ended = terminal.env("SHELL", "/bin/sh").output();
        if ended.is_err() {
            session.verb("abort", &[]);
        }
        strace.wait().unwrap();
        ended
    };
    let output = match commit("") {
        Ok(output) => output,
        Err(e) => return println!("skipped: script(1) can't be run: {e}"),
    };
    let told = out(&output);
    assert_eq!(code(&output), 0, "{told:?}");
    assert!(told.contains("\r\x1b[Ksystx: committed; step ") && told.contains(" of 6\r\x1b[K"), "{told:?}");
    assert!(told.ends_with("\r\x1b[K"), "{told:?}");
    // A reader of JSON gets nothing else.
    let told = out(&commit("--json").unwrap());
    assert!(told.contains("committed") && !told.contains("\x1b"), "{told:?}");
}
