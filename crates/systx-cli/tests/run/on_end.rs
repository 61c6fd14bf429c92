//! `systx on-end`: a process that waits for the end of a transaction learns how it ended.

use super::place::word::{hear, say};
use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::process::{Child, Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("who_waits_for_a_transaction_is_told_its_outcome", who_waits_is_told_the_outcome),
    ("who_waits_for_a_try_is_told_that_it_lost", who_waits_for_a_try_is_told_that_it_lost),
    ("who_waits_for_a_killed_one_is_told_that_it_ended", who_waits_for_a_killed_one_is_told_that_it_ended),
    ("who_gives_up_waiting_leaves_nothing_behind", who_gives_up_waiting_leaves_nothing_behind),
    (
        "who_waits_where_a_number_is_taken_twice_says_which",
        who_waits_where_a_number_is_taken_twice_says_which,
    ),
    ("a_number_that_does_not_run_is_no_transaction", a_number_that_does_not_run_is_no_transaction),
];

/// `systx on-end ID -- COMMAND`.
fn on_end(id: &str, command: &[&str]) -> Command {
    let mut on_end = Command::new(SYSTX);
    on_end.args(["on-end", "--area-name", AREA, id, "--"]).args(command).stdin(Stdio::null());
    on_end.stdout(Stdio::piped()).stderr(Stdio::piped());
    on_end
}

const TELL: [&str; 3] = ["sh", "-c", "echo $SYSTX_ID $SYSTX_OUTCOME; exit 3"];

/// The number that a run says.
fn said(p: &Place, run: &mut Child) -> String {
    hear(&p.beside.join("id"), run).trim().to_string()
}

/// A run that has said its number and waits for a word.
struct Waiting {
    run: Child,
    id: String,
}

impl Waiting {
    fn new(p: &Place, options: &[&str], script: &str) -> Waiting {
        for name in ["id", "word"] {
            let _ = std::fs::remove_file(p.beside.join(name));
            p.fifo(name);
        }
        let script = format!("{script} echo $SYSTX_ID > $BESIDE/id; read word < $BESIDE/word; exit $word");
        let mut run = p.systx(options, &["sh", "-c", &script]);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let id = said(p, &mut run);
        Waiting { run, id }
    }

    fn say(&mut self, p: &Place, word: &str) {
        say(&p.beside.join("word"), &mut self.run, word);
    }

    /// Starts a process that waits for its end, and returns when that process does.
    fn awaited(&self, p: &Place) -> Child {
        let before = waiting(p, &self.id);
        let mut waiter = on_end(&self.id, &TELL).spawn().unwrap();
        while waiting(p, &self.id) == before {
            assert!(waiter.try_wait().unwrap().is_none(), "it ended at once");
            std::thread::yield_now();
        }
        waiter
    }
}

/// How many sockets wait for a transaction.
fn waiting(p: &Place, id: &str) -> usize {
    let names = std::fs::read_dir(p.mount.join(AREA).join("ends")).into_iter().flatten();
    names
        .filter(|name| name.as_ref().unwrap().file_name().to_str().unwrap().starts_with(&format!("{id}.")))
        .count()
}

fn told_of(waiter: Child) -> (i32, String) {
    let output: Output = waiter.wait_with_output().unwrap();
    assert_eq!(err(&output), "");
    (code(&output), out(&output))
}

fn who_waits_is_told_the_outcome(p: &Place) {
    for (word, outcome) in [("0", "committed"), ("1", "aborted")] {
        let mut one = Waiting::new(p, &[], "echo x > x;");
        let (first, second) = (one.awaited(p), one.awaited(p));
        one.say(p, word);
        one.run.wait().unwrap();
        let line = format!("{} {outcome}\n", one.id);
        assert_eq!((told_of(first), told_of(second)), ((3, line.clone()), (3, line)));
        assert!(!p.mount.join(AREA).join("ends").exists(), "what they waited in stays");
    }
}

fn who_waits_for_a_try_is_told_that_it_lost(p: &Place) {
    p.write("seen", "1\n");
    let mut one = Waiting::new(p, &["--retry", "1"], "read seen < seen; echo x > y;");
    let first = one.awaited(p);
    p.write("seen", "22\n");
    one.say(p, "0");
    // The second try runs, and the first one has ended.
    let second = said(p, &mut one.run);
    assert_eq!(told_of(first), (3, format!("{} aborted\n", one.id)));
    one.id = second;
    let second = one.awaited(p);
    one.say(p, "0");
    assert_eq!(told_of(second), (3, format!("{} committed\n", one.id)));
    one.run.wait().unwrap();
}

fn who_waits_for_a_killed_one_is_told_that_it_ended(p: &Place) {
    let mut one = Waiting::new(p, &[], "echo x > x;");
    let waiter = one.awaited(p);
    one.run.kill().unwrap();
    one.run.wait().unwrap();
    assert_eq!(told_of(waiter), (3, format!("{} unknown\n", one.id)));
}

fn who_gives_up_waiting_leaves_nothing_behind(p: &Place) {
    let mut one = Waiting::new(p, &[], "echo x > x;");
    let mut waiter = one.awaited(p);
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    let patient = one.awaited(p);
    one.say(p, "0");
    one.run.wait().unwrap();
    assert_eq!(told_of(patient), (3, format!("{} committed\n", one.id)));
    assert_eq!(waiting(p, &one.id), 0);
}

fn who_waits_where_a_number_is_taken_twice_says_which(p: &Place) {
    // Each is the first transaction of its file system.
    let fresh = |name: &str| {
        let mount = p.beside.join(name);
        std::fs::create_dir(&mount).unwrap();
        must(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(&mount));
        let beside = p.beside.join(format!("{name}.beside"));
        std::fs::create_dir(&beside).unwrap();
        Place { served: mount.clone(), mount, beside }
    };
    let (a, b) = (fresh("a"), fresh("b"));
    let (mut one, mut other) = (Waiting::new(&a, &[], ""), Waiting::new(&b, &[], ""));
    assert_eq!(one.id, other.id);
    let output = on_end(&one.id, &TELL).output().unwrap();
    assert_eq!(code(&output), 125);
    let told = format!(
        "pid {} on {}, pid {} on {}",
        one.run.id(),
        a.mount.display(),
        other.run.id(),
        b.mount.display()
    );
    assert!(
        err(&output).contains(&told) && err(&output).contains("say which with --pid."),
        "{}",
        err(&output)
    );
    let mut waiter = Command::new(SYSTX);
    waiter
        .args(["on-end", "--area-name", AREA, "--pid", &other.run.id().to_string(), &one.id, "--"])
        .args(TELL);
    let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while waiting(&b, &one.id) == 0 {
        std::thread::yield_now();
    }
    one.say(&a, "0");
    one.run.wait().unwrap();
    other.say(&b, "1");
    other.run.wait().unwrap();
    assert_eq!(told_of(waiter), (3, format!("{} aborted\n", other.id)));
    must(Command::new("umount").arg("-l").arg(&a.mount).arg(&b.mount));
}

fn a_number_that_does_not_run_is_no_transaction(p: &Place) {
    let mut one = Waiting::new(p, &[], "echo x > x;");
    one.say(p, "0");
    one.run.wait().unwrap();
    for id in [one.id.as_str(), "18446744073709551615"] {
        let output = on_end(id, &TELL).output().unwrap();
        assert_eq!((code(&output), out(&output).as_str()), (125, ""));
        let told = format!(
            "systx: transaction {id} does not run: it has ended, or never was; `systx list` shows those that run.\n"
        );
        assert_eq!(err(&output), told);
    }
    let mut one = Waiting::new(p, &[], "echo y > y;");
    let missing = on_end(&one.id, &["no-such-command"]).spawn().unwrap();
    while waiting(p, &one.id) == 0 {
        std::thread::yield_now();
    }
    one.say(p, "0");
    one.run.wait().unwrap();
    let missing = missing.wait_with_output().unwrap();
    let told = format!("systx: no-such-command: command not found. Transaction {} is committed.\n", one.id);
    assert_eq!((code(&missing), err(&missing)), (127, told));
    let inside = p.shell(&format!("{SYSTX} on-end $SYSTX_ID -- true"));
    assert_eq!(code(&inside), 125);
    assert!(err(&inside).contains("run `systx on-end` outside of it"), "{}", err(&inside));
}
