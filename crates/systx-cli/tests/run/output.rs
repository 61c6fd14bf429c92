//! `--hold-output`: what is printed leaves after the commit, or not at all.

use super::place::word::{hear, say};
use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_long_commit_tells_at_a_terminal_how_far_it_is", a_long_commit_tells_how_far_it_is),
    ("held_output_leaves_after_the_commit", held_output_leaves_after_the_commit),
    ("held_output_of_a_failed_command_is_its_reason_only", of_a_failed_command_is_its_reason_only),
    ("held_output_of_a_try_that_lost_never_leaves", of_a_try_that_lost_never_leaves),
    ("held_output_keeps_its_order_where_both_streams_are_one", keeps_its_order_where_both_streams_are_one),
    ("held_output_is_held_at_a_terminal_too", is_held_at_a_terminal_too),
    ("held_output_may_be_large_and_opened_anew", may_be_large_and_opened_anew),
    ("held_output_comes_before_the_outcome", comes_before_the_outcome),
    ("held_output_that_can_not_be_written_is_told", that_can_not_be_written_is_told),
    ("output_that_can_not_be_held_aborts", that_can_not_be_held_aborts),
    ("killed_between_commit_and_output_it_is_committed", killed_between_commit_and_output_it_is_committed),
    ("an_inner_run_holds_no_output", an_inner_run_holds_no_output),
];

const HOLD: &[&str] = &["--hold-output"];

fn held_output_leaves_after_the_commit(p: &Place) {
    let fifo = p.fifo("go");
    let script =
        "echo printed; echo warned >&2; echo new > new; echo there > $BESIDE/go; read go < $BESIDE/go";
    let mut run = p.systx(HOLD, &["sh", "-c", script]);
    let to = p.beside.join("out");
    run.stdout(std::fs::File::create(&to).unwrap()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    assert_eq!(hear(&fifo, &mut run), "there\n");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "", "it has left before the end");
    say(&fifo, &mut run, "go");
    let output = run.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, "warned\n"));
    assert_eq!(
        (std::fs::read_to_string(&to).unwrap().as_str(), p.read("new").as_str()),
        ("printed\n", "new\n")
    );
    // A command whose changes are kept although it failed has committed.
    let options = ["--hold-output", "--on-error", "commit"];
    let output = p.systx(&options, &["sh", "-c", "echo printed; echo x > x; exit 3"]).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (3, "printed\n"));
}

fn of_a_failed_command_is_its_reason_only(p: &Place) {
    let output = p.systx(HOLD, &["sh", "-c", "echo done; echo no room >&2; exit 3"]).output().unwrap();
    let told = "no room\nsystx: aborted, nothing was changed: the command exited with status 3.\n";
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (3, "", told));
    p.fifo("never");
    let script = "echo done; echo waiting >&2; read x < $BESIDE/never";
    let output = p.systx(&["--hold-output", "--timeout", "0.2"], &["sh", "-c", script]).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (124, ""));
    assert!(err(&output).starts_with("waiting\nsystx: aborted"), "{}", err(&output));
    let output = p.systx(HOLD, &["no-such-command"]).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (127, ""), "{}", err(&output));
    let output =
        p.systx(&["--hold-output", "--dry-run"], &["sh", "-c", "echo x > x; echo done"]).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, ""), "a dry run commits nothing");
}

fn of_a_try_that_lost_never_leaves(p: &Place) {
    p.write("count", "1\n");
    let (here, go) = (p.fifo("here"), p.fifo("go"));
    let script = "read n < count; echo \"$n apples\"; echo trying >&2; echo here > $BESIDE/here; read go < $BESIDE/go; \
        echo $((n + 1)) > count";
    let start = |options: &[&str]| {
        let mut run = p.systx(options, &["sh", "-c", script]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(hear(&here, &mut run), "here\n");
        p.write("count", "5\n");
        say(&go, &mut run, "go");
        run
    };
    let lost = start(HOLD).wait_with_output().unwrap();
    assert_eq!((code(&lost), out(&lost).as_str()), (75, ""), "{}", err(&lost));
    assert!(err(&lost).starts_with("trying\nsystx: conflict on "), "{}", err(&lost));
    p.write("count", "1\n");
    let mut again = start(&["--hold-output", "--retry", "1"]);
    assert_eq!(hear(&here, &mut again), "here\n");
    say(&go, &mut again, "go");
    let again = again.wait_with_output().unwrap();
    assert_eq!((code(&again), out(&again).as_str(), err(&again).as_str()), (0, "5 apples\n", "trying\n"));
}

/// `systx run --hold-output` of a script, with both streams in one file.
fn into_one_file(p: &Place, script: &str) -> (i32, String) {
    let to = p.beside.join("both");
    let file = std::fs::File::create(&to).unwrap();
    let mut run = p.systx(HOLD, &["sh", "-c", script]);
    let status = run.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
    (status.code().unwrap(), std::fs::read_to_string(to).unwrap())
}

fn keeps_its_order_where_both_streams_are_one(p: &Place) {
    let script = "for n in 1 2 3 4 5 6 7 8; do echo err $n >&2; echo out $n; done";
    let lines: String = (1..9).map(|n| format!("err {n}\nout {n}\n")).collect();
    assert_eq!(into_one_file(p, script), (0, lines));
    // There it is standard error, too, which says why it failed.
    let told = "1\n2\nsystx: aborted, nothing was changed: the command exited with status 3.\n";
    assert_eq!(into_one_file(p, "echo 1; echo 2 >&2; exit 3"), (3, told.to_string()));
}

fn is_held_at_a_terminal_too(p: &Place) {
    let typed = |script: &str| {
        let run =
            format!("{SYSTX} run --hold-output --area-name {AREA} --only {} -- {script}", p.served.display());
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &run, "/dev/null"]).current_dir(&p.served).stdin(Stdio::null());
        terminal.env("SHELL", "/bin/sh").output()
    };
    let output = match typed("sh -c 'test -t 1 && echo a terminal; echo installed; echo no room >&2; exit 3'")
    {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: script(1) can't be run: {e}");
            return;
        }
    };
    let told = "no room\r\nsystx: aborted, nothing was changed: the command exited with status 3.\r\n";
    assert_eq!((code(&output), out(&output).as_str()), (3, told));
    let output = typed("sh -c 'test -t 0 && echo keys; echo installed'").unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "keys\r\ninstalled\r\n"));
}

fn a_long_commit_tells_how_far_it_is(p: &Place) {
    // The case is equal on all file systems, and seconds long.
    if !p.mount.ends_with("ext4") {
        return;
    }
    let typed = |before: &str, options: &str| {
        let served = p.served.display();
        let run = format!(
            "{before} {SYSTX} run {options} --area-name {AREA} --only {served} -- sh -c 'for n in 1 2 3 4 5 6; do rm -f $n; echo >$n; done'"
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &run, "/dev/null"]).current_dir(&p.served).stdin(Stdio::null());
        terminal.env("SHELL", "/bin/sh").output()
    };
    match typed("", "") {
        Ok(output) => assert_eq!((code(&output), out(&output).as_str()), (0, "")),
        Err(e) => {
            println!("skipped: script(1) can't be run: {e}");
            return;
        }
    }
    // Each step takes a while before it begins.
    let slow = "strace -f -qq -o /dev/null -e trace=renameat2 -e inject=renameat2:delay_enter=400000";
    if !Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no strace");
        return;
    }
    let output = typed(slow, "").unwrap();
    let told = out(&output);
    assert_eq!(code(&output), 0, "{told:?}");
    assert!(told.contains("\r\x1b[Ksystx: committed; step ") && told.contains(" of 6\r\x1b[K"), "{told:?}");
    assert!(told.ends_with("\r\x1b[K"), "{told:?}");
    // A reader of JSON gets nothing else.
    let output = typed(slow, "--json").unwrap();
    let told = out(&output);
    assert!(code(&output) == 0 && told.starts_with('{') && told.lines().count() == 1, "{told:?}");
}

fn may_be_large_and_opened_anew(p: &Place) {
    let script = "echo first; echo second > /dev/stdout; head -c 3000000 /dev/zero; setsid sh -c 'echo last'";
    let output = p.systx(HOLD, &["sh", "-c", script]).output().unwrap();
    let told = output.stdout;
    assert!(told.starts_with(b"first\nsecond\n\0\0") && told.ends_with(b"\0last\n"), "{}", told.len());
    assert_eq!(told.len(), 13 + 3_000_000 + 5);
}

fn comes_before_the_outcome(p: &Place) {
    let script = "echo printed; echo warned >&2; echo x > x";
    let options = ["--hold-output", "--json"];
    let output = p.systx(&options, &["sh", "-c", script]).output().unwrap();
    let told = err(&output);
    let (first, second) = told.split_once('\n').unwrap();
    assert_eq!((first, out(&output).as_str()), ("warned", "printed\n"));
    assert!(second.contains("\"outcome\":\"committed\""), "{second}");
    let output =
        p.systx(&["--hold-output", "--verbose"], &["sh", "-c", "echo warned >&2; echo y > y"]).output();
    assert!(err(&output.unwrap()).contains("warned\nsystx: committed"));
    let to = p.beside.join("status");
    let run = format!(
        "exec {SYSTX} run --hold-output --status-fd 3 --area-name {AREA} --only {} -- true 3>\"$1\"",
        p.served.display()
    );
    must(Command::new("sh").args(["-c", &run, "sh"]).arg(&to));
    assert!(std::fs::read_to_string(to).unwrap().contains("\"outcome\":\"committed\""));
}

fn that_can_not_be_written_is_told(p: &Place) {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let command = ["sh", "-c", "echo printed; echo x > x; echo warned >&2"];
    let output = p.systx(HOLD, &command).stdout(full()).output().unwrap();
    assert_eq!((code(&output), p.read("x").as_str()), (125, "x\n"));
    let told = err(&output);
    assert!(
        told.starts_with("warned\nsystx: committed") && told.contains("No space left on device."),
        "{told}"
    );
    let output = p.systx(&["--hold-output", "--json"], &command).stdout(full()).output().unwrap();
    assert!(err(&output).contains("\"output_lost\":\"No space left on device\""), "{}", err(&output));
    // A reader that closes the stream needs no error.
    let mut run = p.systx(HOLD, &command);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    let output = run.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, "warned\n"));
}

fn that_can_not_be_held_aborts(p: &Place) {
    let small = p.beside.join("small");
    std::fs::create_dir(&small).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&small));
    let command = ["sh", "-c", "echo x > lost; head -c 1000000 /dev/zero"];
    let output = p.systx(HOLD, &command).env("TMPDIR", &small).output().unwrap();
    let told = err(&output);
    assert_eq!(
        (code(&output), p.served.join("lost").exists(), output.stdout.len()),
        (125, false, 0),
        "{told}"
    );
    assert!(told.contains("aborted, nothing was changed: holding its output back in "), "{told}");
    assert!(told.contains("No space left on device; make room there, or set TMPDIR."), "{told}");
    must(Command::new("umount").arg("-l").arg(&small));
    let output = p.systx(HOLD, &command).env("TMPDIR", "/no/such/directory").output().unwrap();
    assert_eq!(code(&output), 125);
    assert!(
        err(&output).contains("/no/such/directory: No such file or directory; set TMPDIR"),
        "{}",
        err(&output)
    );
}

/// By a signal that can be held as well as by one that can't: who reads slowly can be given up.
fn killed_between_commit_and_output_it_is_committed(p: &Place) {
    for signal in ["TERM", "KILL"] {
        let script = format!("echo x > {signal}; head -c 3000000 /dev/zero");
        let mut run = p.systx(HOLD, &["sh", "-c", &script]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // A first byte of the output: the rest waits until the test reads.
        std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert_eq!(p.read(signal), "x\n", "output before the commit");
        must(Command::new("kill").args(["-s", signal, &run.id().to_string()]));
        let end = run.wait().unwrap();
        assert!(std::os::unix::process::ExitStatusExt::signal(&end).is_some(), "{end}");
        assert_eq!(p.read(signal), "x\n");
    }
}

fn an_inner_run_holds_no_output(p: &Place) {
    let output = p.shell(&format!("{SYSTX} run --hold-output -- echo printed"));
    assert_eq!((code(&output), out(&output).as_str()), (125, ""));
    assert!(err(&output).contains("--hold-output is for a transaction of its own"), "{}", err(&output));
}
