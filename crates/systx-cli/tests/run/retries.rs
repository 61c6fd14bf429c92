//! `--retry`: a later try is as old as the first, so no run is overtaken for ever.

use super::place::word::{hear, say};
use super::place::{code, err, Place, AREA};
use super::Case;
use std::collections::HashSet;
use std::ffi::OsString;
use std::process::{Child, Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    (
        "processes_that_want_the_same_file_need_one_try_more_than_they_are",
        processes_that_want_the_same_file_need_one_try_more_than_they_are,
    ),
    ("a_run_that_has_lost_is_not_overtaken_again", a_run_that_has_lost_is_not_overtaken_again),
    ("a_run_that_has_lost_and_is_killed_holds_nobody_up", a_run_that_has_lost_and_is_killed_holds_nobody_up),
    (
        "each_try_has_the_limits_on_open_files_of_the_first",
        each_try_has_the_limits_on_open_files_of_the_first,
    ),
];

const INCREMENT: &str = "read n < count; echo $((n + 1)) > count";

fn processes_that_want_the_same_file_need_one_try_more_than_they_are(p: &Place) {
    // A first loss to any process, then one to each that is older, and there are three others.
    let (processes, retries, times) = (4, "4", 10);
    p.write("count", "0\n");
    std::thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                for _ in 0..times {
                    let end = p.systx(&["--retry", retries], &["sh", "-c", INCREMENT]).output().unwrap();
                    assert_eq!(code(&end), 0, "{}", err(&end));
                }
            });
        }
    });
    assert_eq!(p.read("count"), format!("{}\n", processes * times));
}

/// A run that has lost once, and now, in its second and last try, has read and waits for our word.
fn has_lost(p: &Place) -> Child {
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    p.write("count", "1\n");
    let script = "read n < count; echo try >> $BESIDE/tries; echo here > $BESIDE/here; \
        read w < $BESIDE/word; echo $((n + 1)) > count";
    let mut systx = p.systx(&["--retry", "1"], &["sh", "-c", script]);
    let mut child = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(hear(&here, &mut child), "here\n");
    let first = p.shell(INCREMENT);
    assert_eq!(code(&first), 0, "{}", err(&first));
    say(&word, &mut child, "go");
    assert_eq!(hear(&here, &mut child), "here\n");
    child
}

fn end(p: &Place, mut child: Child) -> Output {
    say(&p.beside.join("word"), &mut child, "go");
    child.wait_with_output().unwrap()
}

fn a_run_that_has_lost_is_not_overtaken_again(p: &Place) {
    let loser = has_lost(p);
    let sealed = || -> HashSet<OsString> {
        let names = std::fs::read_dir(p.mount.join(AREA).join("tx")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)).collect()
    };
    let before = sealed();
    // The run's large new file needs a staging directory, which shows when its commit has begun.
    let script = format!("head -c 3000000 /dev/zero > large; {INCREMENT}");
    let mut systx = p.systx(&["--retry", "1"], &["sh", "-c", &script]);
    let mut rival = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while sealed().is_subset(&before) && rival.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let end = end(p, loser);
    assert_eq!(code(&end), 0, "it is overtaken again: {}", err(&end));
    assert_eq!(std::fs::read_to_string(p.beside.join("tries")).unwrap(), "try\ntry\n");
    let rival = rival.wait_with_output().unwrap();
    assert_eq!(code(&rival), 0, "{}", err(&rival));
    assert_eq!(p.read("count"), "4\n");
}

fn a_run_that_has_lost_and_is_killed_holds_nobody_up(p: &Place) {
    let mut loser = has_lost(p);
    loser.kill().unwrap();
    loser.wait().unwrap();
    let next = p.shell(INCREMENT);
    assert_eq!(code(&next), 0, "{}", err(&next));
    assert_eq!(p.read("count"), "3\n");
}

/// systx raises its own, as the command of its first try has started.
fn each_try_has_the_limits_on_open_files_of_the_first(p: &Place) {
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    p.write("count", "1\n");
    let script = "read n < count; ulimit -Sn >> $BESIDE/limits; ulimit -Hn >> $BESIDE/limits; \
        if [ $n = 1 ]; then echo here > $BESIDE/here; read w < $BESIDE/word; fi; echo $((n + 1)) > count";
    let inner = p.systx(&["--retry", "1"], &["sh", "-c", script]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 200 && ulimit -Hn 300 && exec \"$@\"", "sh"]);
    limited.arg(inner.get_program()).args(inner.get_args()).current_dir(&p.served).env("BESIDE", &p.beside);
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn().unwrap();
    assert_eq!(hear(&here, &mut child), "here\n");
    p.write("count", "41\n");
    say(&word, &mut child, "go");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(p.read("count"), "42\n");
    let limits = std::fs::read_to_string(p.beside.join("limits")).unwrap();
    assert_eq!(limits, "200\n300\n200\n300\n");
}
