//! `systx run` that leaves its transaction open.

use super::alone::{place::*, Case};
use super::{all, nobody_is_kept, systx, Daemon};
use serde_json::Value;
use std::process::{Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("no_commit_leaves_it_open", no_commit_leaves_it_open),
    ("on_error_keep_leaves_open_what_failed", on_error_keep_leaves_open_what_failed),
    ("a_killed_run_keeps_nothing_open", a_killed_run_keeps_nothing_open),
    ("a_run_that_may_keep_is_a_run_otherwise", a_run_that_may_keep_is_a_run_otherwise),
    ("what_contradicts_keeping_is_refused", what_contradicts_keeping_is_refused),
];

fn run(p: &Place, options: &[&str], script: &str) -> Output {
    let mut run = p.systx(&[options, &["--json"]].concat(), &["sh", "-c", script]);
    run.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

/// Returns the reported outcome, and the session daemon if the transaction is open.
fn kept(output: &Output) -> (Value, Option<Daemon>) {
    let told = err(output);
    let value: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let daemon = (value["outcome"] == "open").then(|| Daemon::new(value["pid"].as_u64().unwrap() as u32));
    (value, daemon)
}

fn no_commit_leaves_it_open(p: &Place) {
    let ran = run(p, &["-n"], "echo x > x");
    let (value, daemon) = kept(&ran);
    let (daemon, id) = (daemon.unwrap(), value["id"].to_string());
    assert_eq!((all(&ran).0, value["status"].as_i64(), value["exit"].as_i64()), (0, Some(0), Some(0)));
    assert!(!p.served.join("x").exists());
    assert_eq!(out(&systx(p, "exec", &[&id, "--", "cat", "x"]).output().unwrap()), "x\n");
    assert_eq!(all(&systx(p, "commit", &[&id]).output().unwrap()).0, 0);
    assert_eq!(p.read("x"), "x\n");
    daemon.gone();
    nobody_is_kept(p);
    // Also what has failed, unless that is to be aborted.
    let (value, daemon) = kept(&run(p, &["-n"], "rm x; exit 5"));
    assert_eq!((value["status"].as_i64(), daemon.is_some()), (Some(5), true));
    assert_eq!(all(&systx(p, "abort", &[&value["id"].to_string()]).output().unwrap()).0, 0);
    let (value, daemon) = kept(&run(p, &["-n", "--on-error", "abort"], "rm x; exit 5"));
    assert_eq!((value["outcome"].as_str(), daemon.is_some()), (Some("aborted"), false));
    assert_eq!(p.read("x"), "x\n");
    // In words, with what is next.
    let ran = p.systx(&["--no-commit", "--diff"], &["sh", "-c", "echo y > y"]).output().unwrap();
    let said = err(&ran);
    let (lines, words) = said.split_once('\n').unwrap();
    assert_eq!(lines, format!("A\t{}/y", p.served.display()));
    let id = words.split("transaction ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(
        words.contains(&format!("stays open until `systx commit {id}` or `systx abort {id}`")),
        "{words}"
    );
    assert_eq!(all(&systx(p, "abort", &[id]).output().unwrap()).0, 0);
}

fn on_error_keep_leaves_open_what_failed(p: &Place) {
    let (value, daemon) = kept(&run(p, &["--on-error", "keep"], "echo x > x; exit 5"));
    let (_daemon, id) = (daemon.unwrap(), value["id"].to_string());
    assert_eq!((value["status"].as_i64(), value["exit"].as_i64()), (Some(5), Some(5)));
    let told = out(&systx(p, "diff", &[&id]).output().unwrap());
    assert_eq!(told, format!("A\t{}/x\n", p.served.display()));
    assert_eq!(all(&systx(p, "commit", &[&id]).output().unwrap()).0, 0);
    assert_eq!(p.read("x"), "x\n");
    let (value, daemon) = kept(&run(p, &["--on-error", "keep"], "kill -9 $$"));
    assert_eq!(
        (value["status"].as_i64(), value["signal"].as_i64(), daemon.is_some()),
        (Some(137), Some(9), true)
    );
    assert_eq!(all(&systx(p, "abort", &[&value["id"].to_string()]).output().unwrap()).0, 0);
}

fn a_killed_run_keeps_nothing_open(p: &Place) {
    let meeting =
        super::alone::meet(p, 1, &["-n"], &["sh", "-c", &format!("echo x > x; {}", super::alone::turn(1))]);
    let list = || out(&systx(p, "list", &[]).output().unwrap());
    let told = list();
    assert!(told.contains("  open  pid "), "{told}");
    let pid = told.split("  open  pid ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let daemon = Daemon::new(pid.parse().unwrap());
    let mut run = meeting.systx;
    run.kill().unwrap();
    run.wait().unwrap();
    daemon.gone();
    assert_eq!(list(), "");
    nobody_is_kept(p);
    assert!(!p.served.join("x").exists());
}

fn a_run_that_may_keep_is_a_run_otherwise(p: &Place) {
    let options = ["--on-error", "keep"];
    let ran = p.systx(&options, &["sh", "-c", "echo x > x; echo out"]).output().unwrap();
    assert_eq!(all(&ran), (0, "out\n".into(), String::new()));
    assert_eq!(p.read("x"), "x\n");
    let (value, _) = kept(&run(p, &options, "echo x >> x"));
    assert_eq!(value["outcome"], "committed");
    let missing = p.systx(&options, &["no-such-command"]).output().unwrap();
    let told =
        "systx: aborted, nothing was changed: no-such-command: command not found; check its name, and PATH.\n";
    assert_eq!(all(&missing), (127, String::new(), told.into()));
    let late = p.systx(&[&options[..], &["--timeout", "0.2"]].concat(), &["sleep", "1000"]).output().unwrap();
    assert_eq!(all(&late).0, 124);
    assert!(err(&late).contains("the command had not ended after 0.2 s"), "{}", err(&late));
    p.write("a", "1\n");
    let script = format!("cat a; {} echo mine > mine", super::alone::turn(2));
    let meeting = super::alone::meet(p, 2, &options, &["sh", "-c", &script]);
    p.write("a", "2\n");
    let ended = meeting.end();
    assert!(all(&ended).0 == 75 && err(&ended).starts_with("systx: conflict on "), "{}", err(&ended));
    assert_eq!(out(&systx(p, "list", &[]).output().unwrap()), "", "nobody would come back for it");
    nobody_is_kept(p);
}

fn what_contradicts_keeping_is_refused(p: &Place) {
    for options in [
        &["-n", "--retry", "3"][..],
        &["-n", "--hold-output"],
        &["-n", "--dry-run"],
        &["-n", "--on-error", "commit"],
        &["--on-error", "keep", "--retry", "3"],
        &["--on-error", "keep", "--dry-run"],
        &["--on-error", "keep", "--hold-output"],
    ] {
        let ran = p.systx(options, &["sh", "-c", "echo x > $BESIDE/x"]).output().unwrap();
        assert_eq!((all(&ran).0, p.beside.join("x").exists()), (125, false), "{options:?}: {}", err(&ran));
    }
}
