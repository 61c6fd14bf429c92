//! Conflicts between two runs: which run reports which other one, in words and in JSON.

use super::place::word::{hear, say};
use super::place::{code, err, Place};
use super::Case;
use std::process::{Child, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_conflict_of_two_runs_names_the_path_and_both", a_conflict_of_two_runs_names_the_path_and_both),
    ("a_conflict_with_a_command_that_runs_on_names_it", a_conflict_met_while_running_names_both),
    ("a_command_that_can_not_commit_says_no_more", a_command_that_can_not_commit_says_no_more),
    ("a_conflict_with_an_outsider_blames_no_transaction", a_conflict_with_an_outsider),
];

const LOSER: &str = "read n < count; echo > $BESIDE/here; read w < $BESIDE/word; echo $((n + 1)) > count";

/// A run that has read the file and waits for our word.
fn reader(p: &Place, options: &[&str], script: &str) -> Child {
    for fifo in ["here", "word"] {
        let _ = std::fs::remove_file(p.beside.join(fifo));
    }
    let (here, _word) = (p.fifo("here"), p.fifo("word"));
    p.write("count", "1\n");
    let mut systx = p.systx(options, &["sh", "-c", script]);
    let mut child = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    hear(&here, &mut child);
    child
}

fn end(p: &Place, mut child: Child) -> Output {
    say(&p.beside.join("word"), &mut child, "go");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 75, "{}", err(&output));
    output
}

/// The outcome in JSON, after whatever the command has said.
fn last_line(output: &Output) -> serde_json::Value {
    let text = err(output);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A run that commits meanwhile; its number and process.
fn winner(p: &Place) -> (u64, u64) {
    let output = p.systx(&["--json"], &["sh", "-c", "echo 41 > count"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_str(&err(&output)).unwrap();
    assert_eq!(told["outcome"], "committed", "{told}");
    (told["id"].as_u64().unwrap(), told["pid"].as_u64().unwrap())
}

fn both_are_named(p: &Place, script: &str) {
    let path = p.served.join("count");
    let path = path.to_str().unwrap();

    let loser = reader(p, &[], script);
    let (pid, (id, winners_pid)) = (loser.id(), winner(p));
    let text = err(&end(p, loser));
    let with = format!("conflict on {path}: ");
    assert!(text.contains(&with), "{text}");
    assert!(
        text.contains(&format!("by transaction {id} (pid {winners_pid}: sh -c echo 41 > count)")),
        "{text}"
    );
    assert!(text.contains(&format!("(pid {pid}: sh -c read n < count;")), "{text}");
    assert!(text.contains("is aborted, nothing was changed"), "{text}");

    let loser = reader(p, &["--json"], script);
    let (pid, (id, winners_pid)) = (loser.id(), winner(p));
    let told = last_line(&end(p, loser));
    let conflict = &told["conflict"];
    assert_eq!(conflict["path"], path, "{told}");
    let with =
        serde_json::json!({ "transaction": id, "pid": winners_pid, "command": "sh -c echo 41 > count" });
    assert_eq!(conflict["with"], with, "{told}");
    let ours = &conflict["ours"];
    assert_eq!((&ours["transaction"], &ours["pid"]), (&told["id"], &pid.into()), "{told}");
    assert_eq!(ours["command"], format!("sh -c {script}"), "{told}");
    assert_eq!(p.read("count"), "41\n");
}

fn a_conflict_of_two_runs_names_the_path_and_both(p: &Place) {
    both_are_named(p, LOSER);
}

fn a_conflict_met_while_running_names_both(p: &Place) {
    // The next read shows it already; the command is ended where it stands.
    both_are_named(p, "read n < count; echo > $BESIDE/here; read w < $BESIDE/word; ls /nowhere other; cat count new; sleep 600");
}

fn a_command_that_can_not_commit_says_no_more(p: &Place) {
    // It is ended where it stands: what it would say of the answer that it gets there is not true.
    for _ in 0..5 {
        let loser = reader(
            p,
            &[],
            "read n < count; echo > $BESIDE/here; read w < $BESIDE/word; cat new || sleep 600",
        );
        winner(p);
        let text = err(&end(p, loser));
        assert!(text.starts_with("systx: conflict on ") && text.lines().count() == 1, "{text}");
    }
}

fn a_conflict_with_an_outsider(p: &Place) {
    let loser = reader(p, &["--json"], LOSER);
    p.write("count", "41\n");
    let told = last_line(&end(p, loser));
    assert_eq!(told["conflict"]["with"], "outsider", "{told}");
    assert_eq!(told["conflict"]["path"].as_str(), p.served.join("count").to_str());
    let text = told["message"].as_str().unwrap();
    assert!(text.contains("by a program outside of any transaction"), "{text}");
}
