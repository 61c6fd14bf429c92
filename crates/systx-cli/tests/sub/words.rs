//! Options and messages of subtransactions.

use super::machine::{code, err, must, out, run, Case, AREA};
use super::world::World;
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("each_ending_says_that_it_is_the_inner_ones", each_ending_says_whose_it_is),
    ("options_that_make_sense_work", options_that_make_sense_work),
    ("options_that_make_none_are_refused", options_that_make_none_are_refused),
    ("isolation_is_each_ones_own_and_degree_2_has_none_in_it", isolation_is_each_ones_own),
    ("programs_are_told_that_it_is_a_subtransaction", programs_are_told),
    ("without_the_option_an_inner_run_is_a_part", without_the_option_it_is_a_part),
    ("its_name_is_nobodys_own", its_name_is_nobodys_own),
    ("a_log_that_an_archive_brings_along_is_bytes_like_others", a_log_of_an_archives_is_bytes),
];

const SETUP: &str = "echo a > a; mkdir dir";

/// Returns what the inner one says on standard error, with its status, in an outer one that commits.
fn said(w: &World, script: &str) -> (String, String) {
    let output = w.run(&[], &format!("{script}; echo $?"));
    assert_eq!(code(&output), 0, "{}", err(&output));
    (out(&output), err(&output))
}

fn each_ending_says_whose_it_is(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let undone = |why: &str| format!("systx: undone, the outer transaction goes on: {why}.\n");
    for (script, status, words) in [
        ("sub -- sh -c 'echo x > x; exit 3'", "3", undone("the command exited with status 3")),
        ("sub -- sh -c 'echo x > x; kill -9 $$'", "137", undone("the command was killed by signal 9")),
        ("sub -- no-such-command", "127", undone("no-such-command: command not found; check its name, and PATH")),
        ("sub --timeout 0.2 -- sh -c 'echo x > x; sleep 1000'", "124",
            "systx: undone, the outer transaction goes on: the command had not ended after 0.2 s. Give it more with --timeout, or none.\n".into()),
        ("sub -v -- sh -c 'echo y > y'", "0", "systx: committed: all changes are part of the outer transaction.\n".into()),
        ("sub -v -- true", "0", "systx: committed; there was nothing to change.\n".into()),
    ] {
        assert_eq!(said(&w, script), (format!("{status}\n"), words), "{script}");
    }
    assert_eq!(w.names(), ["a", "dir", "y"]);
    w.nothing_is_left();
}

fn options_that_make_sense_work(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    let tree = w.tree.to_str().unwrap();
    // Reported, and not committed.
    let (output, words) = said(&w, "sub --dry-run -- sh -c 'rm a; echo n > n'");
    assert_eq!(output, "0\n");
    assert_eq!(
        words,
        format!(
            "D\t{tree}/a\nA\t{tree}/n\nsystx: dry run, nothing was changed: 2 changes are not committed.\n"
        )
    );
    // Against what the outer one has, not against what everybody has.
    let (output, words) = said(&w, "echo o > o; rm a; sub --diff -- sh -c 'echo more >> o; echo n > n'");
    assert_eq!((output.as_str(), words), ("0\n", format!("A\t{tree}/n\nM\t{tree}/o\n")));
    assert_eq!((w.read("o"), w.names().join(" ")), ("o\nmore\n".into(), "dir n o".into()));
    let (output, words) = said(&w, "sub -p -- sh -c 'echo p > p'");
    assert!(output == "0\n" && words.contains("+p\n"), "{words}");
    // Held-back output of an inner one leaves into the outer one's output.
    let script =
        "sub --hold-output -- sh -c 'echo lost; exit 1' 2>/dev/null; sub --hold-output -- sh -c 'echo kept'";
    assert_eq!(said(&w, script).0, "kept\n0\n");
    // Changes of a failed one are committed, too.
    let (output, words) = said(&w, "sub -v --on-error commit -- sh -c 'echo f > f; exit 5'");
    assert_eq!((output.as_str(), w.read("f").as_str()), ("5\n", "f\n"), "{words}");
    // Only one directory; elsewhere it is at once a part of the outer one.
    assert_eq!(
        said(&w, "sub --only dir -- sh -c 'echo i > dir/i; echo u > u; false' 2>/dev/null; ls dir u").0,
        "dir:\n0\n".replace("dir:\n", "u\n\ndir:\n")
    );
    // Durability is up to the outer one.
    assert_eq!(said(&w, "sub --durability none -- sh -c 'echo d > d'").0, "0\n");
    assert_eq!(w.read("d"), "d\n");
    w.nothing_is_left();
}

fn options_that_make_none_are_refused(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    for option in ["-n", "--on-error keep", "--undoable", "-x", "--network allow"] {
        let (output, words) = said(&w, &format!("sub {option} -- sh -c 'echo x > x'"));
        assert_eq!(output, "125\n", "{option}: {words}");
        assert!(
            words.starts_with("systx: undone, the outer transaction goes on: ")
                && words.contains("part of another one"),
            "{option}: {words}"
        );
    }
    assert_eq!(w.names(), ["a", "dir"]);
}

fn isolation_is_each_ones_own(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    // A neighbour changes what it has read and closed, and what it has not seen.
    w.fifos(&["read", "changed"]);
    let script = |isolation: &str| {
        format!(
            "sub --isolation {isolation} -- sh -c 'cat a; echo > $BESIDE/read; read x < $BESIDE/changed; cat a dir/n; echo s > s' &
            read x < $BESIDE/read; echo b > a; echo n > dir/n; echo > $BESIDE/changed; wait $!; echo $?; cat s; rm -f s dir/n; echo a > a"
        )
    };
    let output = w.run(&[], &script("committed"));
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "a\nb\nn\n0\ns\n", ""));
    let output = w.run(&[], &script("serializable"));
    assert!(out(&output).contains("\n75\n"), "{}{}", out(&output), err(&output));
    // Reads under read committed can't be found again by an inner one.
    let output = w.run(
        &["--isolation", "committed"],
        "sub -- sh -c 'echo x > x'; echo $?; \"$S\" run -- sh -c 'echo y > y'; echo $?",
    );
    assert_eq!((code(&output), out(&output).as_str()), (0, "125\n0\n"));
    assert!(err(&output).contains("isolation `committed` has no subtransactions"), "{}", err(&output));
    assert_eq!(w.names(), ["a", "dir", "y"]);
    w.nothing_is_left();
}

fn programs_are_told(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    for (script, outcome) in [("echo x > x", "committed"), ("rm a; exit 4", "aborted")] {
        let (_, words) = said(&w, &format!("sub --json -v -- sh -c '{script}'"));
        let value: serde_json::Value = serde_json::from_str(&words).unwrap();
        assert_eq!((&value["sub"], &value["outcome"]), (&true.into(), &outcome.into()), "{words}");
    }
    let (output, _) = said(&w, "sub --status-fd 3 -- sh -c 'echo $SYSTX_ID > id' 3>&1; echo $SYSTX_ID");
    assert!(output.contains("\"sub\":true") && output.contains("\"outcome\":\"committed\""), "{output}");
}

fn without_the_option_it_is_a_part(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    // Also in a subtransaction: a part of that one.
    let script =
        "sub -- sh -c '\"$S\" run -- sh -c \"echo i > i; exit 3\"; echo $?; exit 4' 2>/dev/null; echo $?; ls";
    assert_eq!(said(&w, script).0, "3\n4\na\ndir\n0\n");
}

/// An archive may bring one along like this: a log of root's in a directory of root's with mode 0700. It may
/// have been made for that.
fn a_log_of_an_archives_is_bytes(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", "mkdir made") else { return };
    // A real one: of a run that has made a setuid file, and is redone as after a loss of power.
    let elsewhere = w.mount.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let forged =
        run(&elsewhere, &[], &["sh", "-c", "echo '#!/bin/sh' > forged; chmod 4755 forged"]).output().unwrap();
    assert_eq!(code(&forged), 0, "{}", err(&forged));
    let area = w.beside.join("area");
    must(Command::new("cp").arg("-a").arg(w.mount.join(AREA)).arg(&area));
    must(Command::new("rm").arg(elsewhere.join("forged")));
    for file in ["table", "owners"] {
        std::fs::remove_file(area.join(file)).unwrap();
    }
    let places = ["made/.systx.sub-0", ".systx.sub-0", "made/.systx.sub-1000", "made/.systx.sub-"];
    let copies: Vec<_> = places.iter().map(|place| format!("cp -a $BESIDE/area {place}")).collect();
    let output = w.run(&[], &format!("set -e; {}; sub -- sh -c 'echo s > s'; ls -A made", copies.join("; ")));
    let listed = ".systx.sub-\n.systx.sub-0\n.systx.sub-1000\n";
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, listed, ""));
    for place in places {
        must(Command::new("diff").arg("-r").arg(&area).arg(w.tree.join(place)));
    }
    let found = must(Command::new("find").arg(&w.mount).args(["-name", "forged"]));
    assert_eq!((found.as_str(), w.read("s").as_str()), ("", "s\n"));
}

fn its_name_is_nobodys_own(dir: &Path) {
    let Some(w) = World::new(dir, "ext4", SETUP) else { return };
    // A process of its user may ask for it; others can neither make one of that name, nor one of a name of
    // their own.
    let name = "python3 -c 'import os; print(os.getxattr(\".\", \"systx.sub-area\").decode())'";
    let script = format!(
        "n=$({name}); sub -- true; ls -A; rmdir dir; mv a b; for c in \"mv -T b $n\" \"mv $n c\" \"ln -T b $n\" \"rmdir $n\" \
         \"chown 5 $n\"; do $c 2>/dev/null && echo $c; done; sub -- sh -c 'ls -A; echo s > s'; echo $n > $BESIDE/name"
    );
    assert_eq!(said(&w, &script).0, "a\ndir\nb\n0\n");
    assert_eq!(w.names(), ["b", "s"]);
    let told = std::fs::read_to_string(w.beside.join("name")).unwrap();
    assert!(told.starts_with(".systx.sub-") && told.trim().len() == 43, "{told}");
    w.nothing_is_left();
}
