//! Conflicts of an ordinary user's runs: with programs outside, with root, with each other.

use super::machine::user::USER;
use super::machine::{self, code, err, Case};
use super::world::{world, Waiting};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

pub const ALL: &[(&str, Case)] = &[
    ("a_change_by_a_program_outside_is_a_conflict", a_change_by_a_program_outside_is_a_conflict),
    ("a_change_by_a_transaction_of_root_is_a_conflict", a_change_by_roots_transaction_is_a_conflict),
    ("of_two_runs_of_a_user_one_loses_and_can_try_again", of_two_runs_of_a_user_one_loses),
];

fn a_change_by_a_program_outside_is_a_conflict(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let run = Waiting::begin(&w, &[], "read n <stock", "echo $((n+1)) >next");
    assert_eq!(code(&w.plain("echo 7 >stock")), 0);
    let lost = run.end();
    assert_eq!(code(&lost), 75, "{}", err(&lost));
    assert!(err(&lost).contains("stock: contents changed by a program outside"), "{}", err(&lost));
    assert!(!w.tree.join("next").exists());
}

fn a_change_by_roots_transaction_is_a_conflict(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let run = Waiting::begin(&w, &[], "read n <stock", "echo $((n+1)) >next");
    let root = machine::shell(&w.tree, "echo 7 >stock");
    assert_eq!(code(&root), 0, "{}", err(&root));
    let lost = run.end();
    assert_eq!(code(&lost), 75, "{}", err(&lost));
    assert!(!w.tree.join("next").exists());
    assert_eq!(
        (w.read("stock"), std::fs::metadata(w.tree.join("stock")).unwrap().uid()),
        ("7\n".into(), USER)
    );
}

fn of_two_runs_of_a_user_one_loses(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(code(&w.plain("echo 1 >stock")), 0);
    let add = "n=$(cat stock); echo $((n+1)) >stock";
    let run = Waiting::begin(&w, &[], "n=$(cat stock)", "echo $((n+1)) >stock");
    let other = w.shell(add);
    assert_eq!(code(&other), 0, "{}", err(&other));
    let lost = run.end();
    assert_eq!((code(&lost), w.read("stock")), (75, "2\n".into()), "{}", err(&lost));
    assert!(err(&lost).contains("ransaction") && err(&lost).contains(add), "{}", err(&lost));
    // All that lose begin again.
    let runs: Vec<_> =
        (0..4).map(|_| w.run(&["--retry", "50"], add).stderr(Stdio::piped()).spawn().unwrap()).collect();
    for run in runs {
        let done = run.wait_with_output().unwrap();
        assert_eq!(code(&done), 0, "{}", err(&done));
    }
    assert_eq!(w.read("stock"), "6\n");
}
