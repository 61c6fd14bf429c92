//! `systx log`: what has committed.

use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use serde_json::Value;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("the_log_tells_who_has_committed_what_the_youngest_first", the_log_tells_who_has_committed_what),
    ("what_did_not_commit_is_not_in_the_log", what_did_not_commit_is_not_in_the_log),
];

fn systx(verb: &str, args: &[&str]) -> Output {
    Command::new(SYSTX).args([verb, "--area-name", AREA]).args(args).output().unwrap()
}

/// The commits of one file system, the youngest first. Others are mounted, too.
fn commits(p: &Place, args: &[&str]) -> Vec<Value> {
    let output = systx("log", &[&["--json"], args].concat());
    let told: Value = serde_json::from_str(&out(&output)).unwrap();
    let here = |commit: &&Value| p.served.starts_with(commit["mount"].as_str().unwrap());
    told.as_array().unwrap().iter().filter(here).cloned().collect()
}

fn committed(p: &Place, script: &str) {
    let output = p.shell(&format!("set -e; {script}"));
    assert_eq!(code(&output), 0, "{}", err(&output));
}

/// The clock that times of commits are of, in its unit: seconds.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

fn the_log_tells_who_has_committed_what(p: &Place) {
    let begun = now();
    committed(p, "mkdir d; echo 1 > d/kept; echo 2 > 'odd\tname'; echo 3 > gone");
    // The record leaves the log of commits, and is reported in full all the same.
    assert_eq!(code(&systx("recover", &[])), 0);
    committed(p, "echo more >> d/kept; rm gone; mv 'odd\tname' even");
    let commits = commits(p, &["-n", "1000"]);
    let commands: Vec<_> = commits.iter().take(2).map(|c| c["command"].as_str().unwrap()).collect();
    assert!(commands[0].contains("more") && commands[1].contains("mkdir"), "{commands:?}");
    assert_eq!(commits[0]["uid"], 0);
    let times = [begun, commits[1]["at"].as_i64().unwrap(), commits[0]["at"].as_i64().unwrap(), now()];
    assert!(times.is_sorted(), "{times:?}");
    let mut changes: Vec<_> = commits[0]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            let path = change["path"].as_str().unwrap().strip_prefix(p.served.to_str().unwrap()).unwrap();
            format!("{} {path}", change["kind"].as_str().unwrap())
        })
        .collect();
    changes.sort();
    changes.retain(|change| change.len() > 3);
    assert_eq!(changes, ["D /gone", "M /d/kept", "R /even", "R /odd\tname"]);
    let id = commits[0]["id"].to_string();
    let told = out(&systx("log", &[&id]));
    let told = told.split_once("more").unwrap().1;
    assert!(told.contains(&format!("D\t{}/gone\n", p.served.display())), "{told}");
    assert!(told.contains(&format!("R\t\"{}/odd\\tname\"\n", p.served.display())), "{told}");
}

fn what_did_not_commit_is_not_in_the_log(p: &Place) {
    let before = commits(p, &[]);
    let output = p.shell("echo x > x; exit 3");
    assert_eq!(code(&output), 3);
    assert_eq!(commits(p, &[]), before);
    let none = systx("log", &["999999999"]);
    assert_eq!(code(&none), 125);
    assert!(err(&none).contains("no durable commit of transaction 999999999"), "{}", err(&none));
}
