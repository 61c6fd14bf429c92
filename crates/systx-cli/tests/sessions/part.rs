//! A part of an open transaction is committed, and the rest is discarded and reported.

use super::alone::{place::*, Case};
use super::{all, begin, nobody_is_kept, systx, Session};
use std::time::Instant;

pub const ALL: &[(&str, Case)] = &[
    ("a_part_is_committed_and_the_rest_is_discarded_by_name", a_part_is_committed),
    ("diff_of_paths_is_what_a_commit_of_them_would_be", diff_of_paths),
    ("an_excluded_directory_excludes_everything_below", an_excluded_directory),
    ("a_path_means_what_it_means_to_its_user", a_path_means_what_it_means),
    ("a_part_that_is_none_changes_nothing", a_part_that_is_none),
    ("a_conflict_with_what_only_the_rest_has_read_is_named", a_conflict_is_named),
    ("a_part_whose_daemon_is_killed_is_there_in_whole_or_not_at_all", a_killed_part),
];

/// A change, a removal, a rename, and new files in new directories.
fn work(p: &Place) -> Session<'_> {
    for name in ["changed", "gone", "moved", "other"] {
        p.write(name, &format!("{name}\n"));
    }
    let open = begin(p, &[]);
    let script = "mkdir -p new/deep; echo f > new/deep/f; echo g > new/deep/g; echo 2 > changed; rm gone; mv moved there; echo 2 > other";
    assert_eq!(all(&open.shell(script)), (0, String::new(), String::new()));
    open
}

fn a_part_is_committed(p: &Place) {
    let open = work(p);
    let (status, said, told) =
        all(&open.verb("commit", &["--only", "new/deep/f", "changed", "gone", "moved"]));
    let at = p.served.display();
    let words = format!(
        "systx: committed: what was chosen is in place. Discarded are 2 other changes:\n  A\t{at}/new/deep/g\n  M\t{at}/other\n"
    );
    assert_eq!((status, said.as_str(), told), (0, "", words));
    assert_eq!(
        (p.read("new/deep/f"), p.read("changed"), p.read("there")),
        ("f\n".into(), "2\n".into(), "moved\n".into())
    );
    assert_eq!(p.read("other"), "other\n");
    assert!(["gone", "moved", "new/deep/g"].iter().all(|name| !p.served.join(name).exists()));
    open.daemon.gone();
    nobody_is_kept(p);
    // Reported as JSON, too.
    let open = begin(p, &[]);
    open.shell("echo 3 > changed; echo 3 > other");
    let output = open.verb("commit", &["--json", "--exclude", "other"]);
    let value: serde_json::Value = serde_json::from_str(&err(&output)).unwrap();
    assert_eq!((code(&output), value["outcome"].as_str()), (0, Some("committed")));
    assert_eq!(value["discarded"][0]["path"], format!("{at}/other"));
    assert_eq!(value["discarded"].as_array().map(Vec::len), Some(1));
    // Nothing is left: there is nothing to report.
    let open = begin(p, &[]);
    open.shell("echo 4 > changed");
    assert_eq!(all(&open.verb("commit", &["--only", "."])), (0, String::new(), String::new()));
    assert_eq!(p.read("changed"), "4\n");
}

fn diff_of_paths(p: &Place) {
    let open = work(p);
    let at = p.served.display();
    let told = |words: &[&str]| all(&open.verb("diff", words));
    let parents = format!("A\t{at}/new/\nA\t{at}/new/deep/\nA\t{at}/new/deep/f\n");
    assert_eq!(told(&["new/deep/f"]), (0, parents, String::new()));
    assert_eq!(told(&["moved"]), (0, format!("R100\t{at}/moved\t{at}/there\n"), String::new()));
    assert_eq!(told(&["."]).1.lines().count(), 8);
    let rest = format!("D\t{at}/gone\nM\t{at}/other\n");
    assert_eq!(told(&["--exclude", "new", "there", "changed"]), (0, rest, String::new()));
    let value: serde_json::Value = serde_json::from_str(&told(&["changed", "--json"]).1).unwrap();
    assert_eq!(value["changes"].as_array().map(Vec::len), Some(1));
    let none = format!("systx: transaction {0} changes nothing at or below {at}/none; `systx diff {0}` shows what it would change.\n", open.id);
    assert_eq!(told(&["none"]), (125, String::new(), none));
    // It is open, and all of it is there.
    assert_eq!(out(&open.shell("cat new/deep/g there")), "g\nmoved\n");
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("new/deep/g"), "g\n");
}

fn an_excluded_directory(p: &Place) {
    for dir in ["src", "build", "build/sub"] {
        std::fs::create_dir(p.served.join(dir)).unwrap();
    }
    p.write("build/old", "old\n");
    p.write("build/sub/out", "out\n");
    let open = begin(p, &[]);
    open.shell("echo 1 > src/a; echo 2 > build/old; mkdir build/new; echo 3 > build/new/f; mv build/sub/out src/in; chmod 700 build");
    let before = std::fs::metadata(p.served.join("build")).unwrap();
    let (code, _, told) = all(&open.verb("commit", &["--exclude", "build/"]));
    assert!(
        code == 0 && told.contains(&format!("R100\t{0}/build/sub/out\t{0}/src/in", p.served.display())),
        "{told}"
    );
    assert_eq!(
        (p.read("src/a"), p.read("build/old"), p.read("build/sub/out")),
        ("1\n".into(), "old\n".into(), "out\n".into())
    );
    assert!(!p.served.join("build/new").exists() && !p.served.join("src/in").exists());
    use std::os::unix::fs::MetadataExt;
    let after = std::fs::metadata(p.served.join("build")).unwrap();
    assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
}

fn a_path_means_what_it_means(p: &Place) {
    std::fs::create_dir_all(p.served.join("a/b")).unwrap();
    std::os::unix::fs::symlink("a", p.served.join("link")).unwrap();
    let absolute = p.served.join("a/b/f");
    let ways = [
        ("a/b", "f"),
        ("a/b", "./../b//f"),
        (".", absolute.to_str().unwrap()),
        (".", "link/b/f"),
        ("link/b", "f"),
    ];
    for (n, (from, path)) in ways.into_iter().enumerate() {
        let open = begin(p, &[]);
        open.shell(&format!("echo {n} > a/b/f; echo {n} > a/g; rm link; ln -s a link"));
        let mut commit = open.command("commit", &["--only", path]);
        let output = commit.current_dir(p.served.join(from)).output().unwrap();
        assert_eq!(code(&output), 0, "{path} from {from}: {}", err(&output));
        assert_eq!(p.read("a/b/f"), format!("{n}\n"), "{path} from {from}");
        assert!(!p.served.join("a/g").exists());
    }
}

fn a_part_that_is_none(p: &Place) {
    std::fs::create_dir(p.served.join("d")).unwrap();
    p.write("d/a", "a\n");
    p.write("d/b", "b\n");
    let open = work(p);
    open.shell("rm -r d; mkdir d; echo new > d/a");
    let before = p.picture();
    let mut child = open.waiting(1, "echo x > x;", "echo late > late");
    let at = p.served.display();
    let id = &open.id;
    let refused = |words: &[&str]| {
        // A command is at work inside.
        let (code, _, said) = all(&open.verb("commit", &[&["--force"], words].concat()));
        assert_eq!(code, 125, "{words:?}: {said}");
        said
    };
    for words in [["--only", "none"], ["--exclude", "none"]] {
        let none = format!("systx: transaction {id} changes nothing at or below {at}/none; `systx diff {id}` shows what it would change.\n");
        assert_eq!(refused(&words), none);
    }
    assert!(refused(&["--only", "changed", "changes"]).contains(&format!("{at}/changes;")));
    let whole = format!("systx: {at}/d goes or is replaced only with all that was in it, and {at}/d/b was not named: name {at}/d, or neither.\n");
    assert_eq!(refused(&["--only", "d/a"]), whole);
    let empty = format!("systx: nothing would be left to commit; `systx abort {id}` gives up everything.\n");
    assert_eq!(refused(&["--exclude", "."]), empty);
    assert!(refused(&["--only"]).contains("--only"), "a path is missing");
    assert_eq!(p.picture(), before);
    // No command was killed, and the transaction is unchanged.
    open.say(1, &mut child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(open.verb("commit", &["--only", "late", "d"]).status.code(), Some(0));
    assert_eq!((p.read("late"), p.read("d/a")), ("late\n".into(), "new\n".into()));
    assert!(!p.served.join("x").exists() && !p.served.join("d/b").exists());
    // Of one that has ended nothing can be chosen.
    assert_eq!(systx(p, "commit", &[id, "--only", "d"]).output().unwrap().status.code(), Some(125));
}

fn a_conflict_is_named(p: &Place) {
    let open = work(p);
    p.write("seen", "1\n");
    open.shell("cat seen > copy");
    p.write("seen", "2, by an outsider\n");
    let before = p.picture();
    let (code, _, said) = all(&open.verb("commit", &["--only", "changed"]));
    assert!(
        code == 75 && said.contains(&format!("conflict on {}/seen", p.served.display())),
        "{code} {said}"
    );
    assert!(said.contains("is lost: it can't be committed, nothing was changed"), "{said}");
    assert_eq!(p.picture(), before);
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}

/// A kill of the session daemon anywhere from the wish to the end.
fn a_killed_part(p: &Place) {
    const FILES: usize = 40;
    let change = |n: usize| {
        let dirs = "mkdir -p part rest";
        format!("{dirs}; for i in $(seq {FILES}); do echo {n} > part/$i; echo {n} > rest/$i; done; mv part/from.* part/from.{n}; echo {n} > rest.{n}")
    };
    std::fs::create_dir(p.served.join("part")).unwrap();
    p.write("part/from.0", "");
    // State of the part; the rest is never there.
    let state = || {
        assert!(!p.served.join("rest").exists(), "something of the rest");
        let names = (1..=FILES)
            .map(|i| std::fs::read_to_string(p.served.join(format!("part/{i}"))).unwrap_or_default());
        let mut seen: Vec<_> = names.collect();
        let from = std::fs::read_dir(p.served.join("part")).unwrap().flatten().map(|e| e.file_name());
        let from: Vec<_> =
            from.filter_map(|n| Some(n.to_str()?.strip_prefix("from.")?.to_string())).collect();
        assert_eq!(from.len(), 1, "{from:?}");
        seen.dedup();
        assert_eq!(seen.len(), 1, "a mixture: {seen:?}");
        let seen = seen[0].trim().to_string();
        assert_eq!(if seen.is_empty() { "0" } else { &seen }, from[0]);
        from[0].parse::<usize>().unwrap()
    };
    let open = begin(p, &[]);
    open.shell(&change(1));
    let start = Instant::now();
    assert_eq!(open.verb("commit", &["--only", "part"]).status.code(), Some(0));
    // About where the commit point is.
    let mut aim = start.elapsed();
    let mut now = state();
    assert_eq!(now, 1);
    let mut outcomes = [0; 2];
    for n in 2.. {
        if n >= 150 || (n >= 32 && !outcomes.contains(&0)) {
            break;
        }
        let open = begin(p, &[]);
        open.shell(&change(n));
        let mut child = open.command("commit", &["--only", "part"]).spawn().unwrap();
        let end = Instant::now() + aim.mul_f64(0.7 + fastrand::f64() * 0.6);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        open.daemon.kill();
        open.daemon.gone();
        let code = child.wait().unwrap().code();
        assert_eq!(systx(p, "recover", &[]).output().unwrap().status.code(), Some(0));
        let then = state();
        assert!(then == n || (then == now && code != Some(0)), "{then} after {now}, {n} told as {code:?}");
        outcomes[usize::from(then == n)] += 1;
        aim = aim.mul_f64(if then == n { 0.87 } else { 1.15 });
        now = then;
    }
    println!("{} × all old, {} × all new, no mixture", outcomes[0], outcomes[1]);
    assert!(!outcomes.contains(&0), "only one outcome was seen");
}
