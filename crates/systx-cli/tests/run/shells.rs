//! `systx shell` at a terminal.

use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use std::io::Write;
use std::process::{Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_shell_commits_if_its_user_says_so", a_shell_commits_if_its_user_says_so),
    ("a_shell_without_a_terminal_goes_by_its_status", a_shell_without_a_terminal_goes_by_its_status),
    ("the_prompt_says_that_it_is_a_transaction", the_prompt_says_that_it_is_a_transaction),
];

/// A shell at a terminal of its own, and what is typed there; `None`, with a reason printed, where that can't be had.
fn typed(p: &Place, shell: &str, keys: &str) -> Option<Output> {
    let inner = format!("{SYSTX} shell --area-name {AREA} --only {}", p.served.display());
    let script = Command::new("script")
        .args(["-qec", &inner, "/dev/null"])
        .env("SHELL", shell)
        // A dumb terminal would show the end of a long prompt only.
        .env("TERM", "xterm")
        // No start files of any user, and no questions of zsh to a user without them.
        .env("ZDOTDIR", &p.beside)
        .current_dir(&p.served)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut script = match script {
        Ok(script) => script,
        Err(e) => {
            println!("skipped: script(1) can't be run: {e}");
            return None;
        }
    };
    // It runs its command with SHELL, too, but only -c.
    script.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    Some(script.wait_with_output().unwrap())
}

fn a_shell_commits_if_its_user_says_so(p: &Place) {
    // The status of the last command does not matter.
    let Some(output) = typed(p, "/bin/sh", "echo one > one\nfalse\nexit\nwhat\nd\ny\n") else { return };
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert_eq!(p.read("one"), "one\n");
    assert!(
        out(&output).contains("commit 1 change? [y]es, [n]o, [d]iff, [k]eep it open:"),
        "{}",
        out(&output)
    );
    assert!(out(&output).contains("+one"), "{}", out(&output));
    let output = typed(p, "/bin/sh", "rm one; echo two > two; echo three > three\nexit 0\nn\n").unwrap();
    assert_eq!(code(&output), 1, "{}", out(&output));
    assert!(out(&output).contains("commit 3 changes? [y]es"), "{}", out(&output));
    assert!(out(&output).contains("systx: aborted, nothing was changed."), "{}", out(&output));
    assert!(p.served.join("one").exists() && !p.served.join("two").exists());
    // Nothing to commit, nothing to ask.
    let output = typed(p, "/bin/sh", "cat one\nexit 3\n").unwrap();
    assert_eq!((code(&output), out(&output).contains("commit")), (0, false), "{}", out(&output));
}

fn a_shell_without_a_terminal_goes_by_its_status(p: &Place) {
    let run = |keys: &str| {
        let mut shell = Command::new("setsid");
        shell.args(["--wait", SYSTX, "shell", "--area-name", AREA, "--only"]).arg(&p.served);
        shell.env("SHELL", "/bin/sh").current_dir(&p.served).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
        shell.wait_with_output().unwrap()
    };
    let output = run("echo one > one\n");
    assert_eq!((code(&output), p.read("one").as_str()), (0, "one\n"), "{}", err(&output));
    let output = run("echo two > two\nexit 4\n");
    assert_eq!((code(&output), p.served.join("two").exists()), (4, false), "{}", err(&output));
}

fn the_prompt_says_that_it_is_a_transaction(p: &Place) {
    std::fs::write(p.beside.join(".zshrc"), "").unwrap();
    for shell in ["sh", "bash", "zsh"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {shell}")]).output().unwrap();
        if !found.status.success() {
            println!("skipped: no {shell}");
            continue;
        }
        let path = out(&found).trim().to_string();
        // The number that it asks for is the command's own.
        let Some(output) = typed(p, &path, "echo it is \"($SYSTX_ID)\"\nexit\n") else { return };
        let shown = out(&output);
        let id = shown.split("it is (").filter_map(|rest| rest.split_once(')')).map(|(id, _)| id);
        let id = id.last().unwrap_or_default().to_string();
        assert!(id.parse::<u64>().is_ok_and(|id| id > 0), "{shell}: {shown}");
        assert!(shown.contains(&format!("(systx {id}) ")), "{shell}: {shown}");
    }
}
