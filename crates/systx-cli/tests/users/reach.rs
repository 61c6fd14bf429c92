//! How far an ordinary user's transaction reaches: file systems, runs inside, several commands; and what
//! can't be served.

use super::machine::processes::Held;
use super::machine::user::USER;
use super::machine::{self, code, err, must, out, Case, AREA};
use super::world::world;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("a_commit_over_two_file_systems_is_one", a_commit_over_two_file_systems_is_one),
    ("an_inner_run_joins_the_outer_one", an_inner_run_joins_the_outer_one),
    ("a_transaction_stays_open_over_several_commands", a_transaction_stays_open),
    ("what_is_not_the_users_cannot_be_served", what_is_not_the_users_cannot_be_served),
    ("under_another_users_home_nothing_is_made", under_anothers_home_nothing_is_made),
];

fn a_commit_over_two_file_systems_is_one(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let ram = w.dir.join("ram");
    std::fs::create_dir(&ram).unwrap();
    let owner = format!("uid={USER},gid={USER},mode=700");
    must(Command::new("mount").args(["-t", "tmpfs", "-o", &owner, "none"]).arg(&ram));
    let run = |end: &str| {
        let script = format!("echo a >a; echo b >\"$0\"/b; {end}");
        let (tree, ram) = (w.tree.to_str().unwrap(), ram.to_str().unwrap());
        w.verb(&["run", "--only", tree, "--only", ram, "--", "sh", "-c", &script, ram]).output().unwrap()
    };
    let there = || [w.tree.join("a").exists(), ram.join("b").exists()];
    let failed = run("exit 5");
    assert_eq!((code(&failed), there()), (5, [false, false]), "{}", err(&failed));
    let done = run("true");
    assert_eq!((code(&done), there()), (0, [true, true]), "{}", err(&done));
}

fn an_inner_run_joins_the_outer_one(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let inner = format!("{} run --area-name {AREA} --only . -- sh -c 'echo inner >a'", w.program.display());
    let failed = w.shell(&format!("{inner} && cat a && exit 4"));
    assert_eq!((code(&failed), out(&failed)), (4, "inner\n".into()), "{}", err(&failed));
    assert!(!w.tree.join("a").exists());
}

fn a_transaction_stays_open(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let begin = || {
        let begun = w.verb(&["begin", "--json", "--only", "."]).output().unwrap();
        assert_eq!(code(&begun), 0, "{}", err(&begun));
        let value: serde_json::Value = serde_json::from_str(&out(&begun)).unwrap();
        (value["id"].to_string(), Held::new(value["pid"].as_u64().unwrap() as u32).unwrap())
    };
    let (id, daemon) = begin();
    let exec = |script: &str| w.verb(&["exec", &id, "--", "sh", "-c", script]).output().unwrap();
    let told = exec("id -u; grep CapEff /proc/self/status; echo x >x; exit 3");
    assert_eq!(
        (code(&told), out(&told)),
        (3, format!("{USER}\nCapEff:\t0000000000000000\n")),
        "{}",
        err(&told)
    );
    assert!(!w.tree.join("x").exists());
    assert_eq!(out(&exec("cat x")), "x\n");
    // It is the user's alone: root has areas of its own.
    let root = machine::verb("commit", &[&id]);
    assert!(code(&root) == 125 && err(&root).contains("is not open"), "{}", err(&root));
    let unknown = w.verb(&["commit", "4711"]).output().unwrap();
    assert!(err(&unknown).contains("Those of other users are theirs alone"), "{}", err(&unknown));
    let committed = w.verb(&["commit", &id]).output().unwrap();
    assert_eq!(code(&committed), 0, "{}", err(&committed));
    assert_eq!(std::fs::metadata(w.tree.join("x")).unwrap().uid(), USER);
    daemon.gone();
    let (id, daemon) = begin();
    let kept = w.verb(&["exec", &id, "--", "sh", "-c", "echo y >y"]).output().unwrap();
    assert_eq!(code(&kept), 0, "{}", err(&kept));
    daemon.kill();
    while w.area().join("open").exists() {
        std::thread::yield_now();
    }
    assert!(!w.tree.join("y").exists());
    let kept = w.run(&["-n"], "echo z >z").output().unwrap();
    assert!(code(&kept) == 0 && err(&kept).contains("stays open until"), "{}", err(&kept));
    let said = err(&kept);
    let id = said.split("transaction ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(code(&w.verb(&["commit", id]).output().unwrap()), 0);
    assert_eq!(w.read("z"), "z\n");
}

fn what_is_not_the_users_cannot_be_served(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let refused = |words: &[&str], why: &str| {
        let output = w.verb(words).output().unwrap();
        assert_eq!((code(&output), out(&output)), (125, String::new()), "{words:?}: {}", err(&output));
        assert!(
            err(&output).contains("nothing was changed") && err(&output).contains(why),
            "{}",
            err(&output)
        );
    };
    let top = w.own.parent().unwrap().to_str().unwrap();
    refused(
        &["run", "--only", top, "--", "echo"],
        &format!("belongs to user {USER}: only root can serve it"),
    );
    let inside = w.tree.join("inside");
    std::fs::create_dir(&inside).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inside));
    refused(&["run", "--only", w.tree.to_str().unwrap(), "--", "echo"], "something is mounted below it");
    // A mount beside it is no hindrance.
    let beside = w.own.join("beside");
    std::fs::create_dir(&beside).unwrap();
    chown(&beside, Some(USER), Some(USER)).unwrap();
    let words = [
        "run",
        "--only",
        beside.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo a >$0/a",
        beside.to_str().unwrap(),
    ];
    let done = w.verb(&words).output().unwrap();
    assert_eq!((code(&done), beside.join("a").exists()), (0, true), "{}", err(&done));
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    must(Command::new("umount").arg(&inside));
}

fn under_anothers_home_nothing_is_made(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let home = w.dir.join("open-to-all");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let done = w.run(&[], "echo a >a").env("HOME", &home).output().unwrap();
    assert_eq!((code(&done), w.read("a")), (0, "a\n".into()), "{}", err(&done));
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
}
