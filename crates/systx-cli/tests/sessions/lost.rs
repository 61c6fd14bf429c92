//! Transactions that can't be committed, and stay: to be looked at, written as a patch, discarded.

use super::alone::{place::*, Case};
use super::{all, begin, nobody_is_kept, systx, Daemon, Session};
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("work_that_meets_a_conflict_stays_to_be_looked_at", a_conflict_while_it_is_open),
    ("lost_work_shows_what_others_have_made_longer_or_shorter", what_others_have_made_longer_or_shorter),
    ("work_whose_commit_meets_a_conflict_stays_to_be_looked_at", a_conflict_at_the_commit),
    ("work_that_finds_no_room_at_its_commit_stays_to_be_looked_at", no_room_at_the_commit),
    ("a_part_that_meets_a_conflict_gives_nothing_up", a_part_that_meets_a_conflict),
    ("a_run_keeps_what_is_lost_if_it_is_asked_to", a_run_is_asked_to_keep),
    ("lost_work_is_bounded_and_the_oldest_goes_with_a_word", lost_work_is_bounded),
];

/// Checks what is true of each of them; it ends by being discarded.
fn is_lost(open: &Session<'_>, reason: &str, mine: &[(&str, &str)]) {
    let p = open.p;
    let list = out(&systx(p, "list", &[]).output().unwrap());
    assert!(list.contains(&format!("{}  lost  pid {}", open.id, open.daemon.pid)), "{list}");
    let status = out(&systx(p, "status", &[&open.id]).output().unwrap());
    assert!(status.contains(reason) && status.contains("  its changes take "), "{status}");
    // Never a commit, from whichever process, and however often.
    let before = p.picture();
    for _ in 0..2 {
        let (code, _, said) = all(&open.verb("commit", &[]));
        assert!(code != 0 && said.contains(reason) && said.contains("is lost"), "{code} {said}");
        assert!(!said.contains("was ended by"), "nobody has ended it: {said}");
    }
    assert_eq!(p.picture(), before);
    for (name, text) in mine {
        let (code, found, said) = all(&open.verb("exec", &["--", "cat", name]));
        assert_eq!((code, found.as_str()), (0, *text), "{name}: {said}");
        assert!(said.contains("is lost: nothing that is done in it can be committed"), "{said}");
    }
    // A patch of it makes the same of a copy of what is there.
    let names: Vec<_> = mine.iter().map(|(name, _)| *name).collect();
    let (code, patch, said) = all(&open.verb("diff", &[&["-p"], &names[..]].concat()));
    assert_eq!(code, 0, "{said}");
    let copy = p.beside.join(format!("copy{}", open.id));
    must(Command::new("cp").arg("-a").arg(&p.served).arg(&copy));
    std::fs::write(
        p.beside.join("patch"),
        patch.replace(p.served.to_str().unwrap().trim_start_matches('/'), "."),
    )
    .unwrap();
    let applied = Command::new("patch")
        .args(["-s", "-p1", "-i"])
        .arg(p.beside.join("patch"))
        .current_dir(&copy)
        .output();
    match applied {
        Ok(applied) => {
            assert!(applied.status.success(), "{}{}{patch}", out(&applied), err(&applied));
            for (name, text) in mine {
                assert_eq!(std::fs::read_to_string(copy.join(name)).unwrap(), *text, "{patch}");
            }
        }
        Err(e) => println!("skipped: patch(1) can't be run: {e}"),
    }
    // Others go on, with what it would have changed, too.
    for (name, _) in mine {
        let script = format!("[ ! -e {name} ] || echo others >> {name}");
        assert_eq!(p.shell(&script).status.code(), Some(0));
    }
    let pruned = |words: &[&str]| all(&systx(p, "prune", &[&["--yes"], words].concat()).output().unwrap()).1;
    let told = pruned(&[]);
    assert!(told.contains(&format!("transaction {} is lost, and takes ", open.id)), "{told}");
    match mine.len() {
        1 => assert_eq!(all(&open.verb("abort", &[])), (0, String::new(), String::new())),
        _ => {
            let told = pruned(&["--lost"]);
            assert!(told.contains(&format!("discarded transaction {}, which was lost", open.id)), "{told}");
        }
    }
    open.daemon.gone();
    nobody_is_kept(p);
    let staged = std::fs::read_dir(p.mount.join(AREA).join("tx")).unwrap();
    let mut staged: Vec<_> = staged.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // A committed transaction may have a directory there until its record leaves the log.
    staged.retain(|name| name.split(['.', '~']).next() == Some(&open.id));
    assert!(staged.is_empty(), "what was staged is gone: {staged:?}");
}

fn a_conflict_while_it_is_open(p: &Place) {
    p.write("a", "1\n");
    p.write("b", "2\n");
    p.write("mine", "old\n");
    let open = begin(p, &[]);
    open.shell("cat a; echo new > mine; mkdir d; echo deep > d/made");
    assert_eq!(p.shell("echo 9 > a; echo 9 > b").status.code(), Some(0));
    let (code, _, said) = all(&open.shell("cat b"));
    assert!(code == 75 && said.contains("is lost") && said.contains("`systx abort "), "{code} {said}");
    is_lost(&open, "conflict on ", &[("mine", "new\n"), ("d/made", "deep\n")]);
}

/// What it has not changed is as it is now, and its patch is against that, however long.
fn what_others_have_made_longer_or_shorter(p: &Place) {
    for (name, by) in [("longer", "echo and more >>"), ("shorter", "echo 1 >"), ("anew", "mv -f other")] {
        p.write(name, "some\n");
        p.write("mine", "old\nlines\n");
        p.write("other", "quite another one\n");
        let open = begin(p, &[]);
        open.shell(&format!("cat {name} mine; stat {name}; sed -i s/old/new/ mine"));
        must(Command::new("sh").arg("-c").arg(format!("{by} {name}")).current_dir(&p.served));
        let now = std::fs::read_to_string(p.served.join(name)).unwrap();
        assert_eq!(all(&open.verb("commit", &[])).0, 75);
        let (code, shown, said) = all(&open.verb("exec", &["--", "cat", name]));
        assert_eq!((code, shown), (0, now), "{name}: {said}");
        is_lost(&open, "conflict on ", &[("mine", "new\nlines\n")]);
    }
    p.write("mine", "old\n");
    let open = begin(p, &[]);
    open.shell("cat mine; echo new >mine");
    must(Command::new("sh").args(["-c", "echo much longer >>mine"]).current_dir(&p.served));
    assert_eq!(all(&open.verb("commit", &[])).0, 75);
    is_lost(&open, "conflict on ", &[("mine", "new\n")]);
}

fn a_conflict_at_the_commit(p: &Place) {
    // Few small objects ride in the record; many, and large ones, do not.
    for many in [1, 40] {
        p.write("a", "1\n");
        p.write("mine", "old\n");
        let large = "x\n".repeat(100_000);
        p.write("large", &large);
        let open = begin(p, &[]);
        let size = if many > 1 { "echo more >> large;" } else { "" };
        open.shell(&format!(
            "cat a; echo new > mine; {size} mkdir d; for n in $(seq {many}); do echo $n > d/$n; done"
        ));
        // By an outsider, who also has what it would change.
        std::fs::write(p.served.join("other"), "theirs\n").unwrap();
        std::fs::rename(p.served.join("other"), p.served.join("a")).unwrap();
        let (code, _, said) = all(&open.verb("commit", &["--json"]));
        let told: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((code, told["outcome"].as_str()), (75, Some("lost")), "{said}");
        assert_eq!(
            (told["reason"].as_str(), told["conflict"]["with"].as_str()),
            (Some("conflict"), Some("outsider"))
        );
        is_lost(&open, "conflict on ", &[("mine", "new\n"), (&format!("d/{many}"), &format!("{many}\n"))]);
        must(Command::new("rm").arg("-rf").arg(p.served.join("d")));
    }
}

fn no_room_at_the_commit(p: &Place) {
    p.write("mine", "old\n");
    must(Command::new("truncate").args(["-s", "40M"]).arg(p.served.join("sparse")));
    let open = begin(p, &[]);
    // Staged bytes take room; room for them in the file itself is secured before the commit point, too.
    let inside = open.shell(
        "echo new > mine; head -c 20000000 /dev/zero | tr '\\0' x | dd of=sparse conv=notrunc status=none",
    );
    assert_eq!(code(&inside), 0, "{}", err(&inside));
    let filler = p.mount.join("filler");
    let free = "$(($(stat -f -c '%a * %S' .) - 3000000))";
    let filled = format!("fallocate -l {free} {}", filler.display());
    must(Command::new("sh").args(["-c", &filled]).current_dir(&p.served));
    let (code, _, said) = all(&open.verb("commit", &[]));
    std::fs::remove_file(filler).unwrap();
    assert!(code == 125 && said.contains("No space left") && said.contains("is lost"), "{code} {said}");
    is_lost(&open, "No space left", &[("mine", "new\n")]);
}

fn a_part_that_meets_a_conflict(p: &Place) {
    p.write("a", "1\n");
    p.write("one", "old\n");
    p.write("two", "old\n");
    let open = begin(p, &[]);
    open.shell("cat a; echo new > one; echo new > two");
    p.write("a", "2\n");
    let (code, _, said) = all(&open.verb("commit", &["--only", "one"]));
    assert!(code == 75 && said.contains("is lost"), "{code} {said}");
    is_lost(&open, "conflict on ", &[("one", "new\n"), ("two", "new\n")]);
}

fn a_run_is_asked_to_keep(p: &Place) {
    p.write("a", "1\n");
    for (n, keep) in [(1, true), (2, false)] {
        p.write("mine", "old\n");
        let script = format!("cat a > mine; echo $SYSTX_ID > $BESIDE/id; {}", super::alone::turn(n));
        let options: &[&str] = if keep { &["--on-conflict", "keep"] } else { &[] };
        let meeting = super::alone::meet(p, n, options, &["sh", "-c", &script]);
        p.write("a", "2, by an outsider\n");
        let ended = all(&meeting.end());
        let id = std::fs::read_to_string(p.beside.join("id")).unwrap().trim().to_string();
        assert!(ended.0 == 75 && ended.2.contains("is lost") == keep, "{ended:?}");
        if keep {
            let told: serde_json::Value =
                serde_json::from_str(&out(&systx(p, "list", &["--json"]).output().unwrap())).unwrap();
            let pid = u32::try_from(told["transactions"][0]["pid"].as_u64().unwrap()).unwrap();
            assert_eq!(told["transactions"][0]["state"], "lost");
            is_lost(&Session { p, id, daemon: Daemon::new(pid) }, "conflict on ", &[("mine", "1\n")]);
        }
        p.write("a", "1\n");
        assert_eq!(out(&systx(p, "list", &[]).output().unwrap()), "");
    }
    // A run that succeeds is one like any other.
    let ran = p.systx(&["--on-conflict", "keep"], &["sh", "-c", "echo y > y; exit 0"]).output().unwrap();
    assert_eq!((all(&ran), p.read("y").as_str()), ((0, String::new(), String::new()), "y\n"));
    let ran = p.systx(&["--on-conflict", "keep"], &["sh", "-c", "echo z > z; exit 4"]).output().unwrap();
    assert_eq!((all(&ran).0, p.served.join("z").exists()), (4, false));
    nobody_is_kept(p);
}

/// One more than may stay: the next one that is begun discards the oldest, and says so.
fn lost_work_is_bounded(p: &Place) {
    p.write("a", "1\n");
    let mut lost = Vec::new();
    for n in 0..3 {
        let open = begin(p, &[]);
        open.shell(&format!("cat a; head -c 300000 /dev/zero > made{n}"));
        p.write("a", &format!("{n} more\n"));
        let (code, _, said) = all(&open.verb("commit", &[]));
        assert!(code == 75 && said.contains("is lost"), "{code} {said}");
        lost.push(open);
    }
    let list = out(&systx(p, "list", &[]).output().unwrap());
    assert_eq!(list.matches("  lost  ").count(), 3, "{list}");
    assert!(list.contains("  takes "), "{list}");
    let told = out(&systx(p, "prune", &["--yes"]).output().unwrap());
    assert!(told.contains("lost transactions: 3, which take "), "{told}");
    let begun = |most: &str| {
        let begun = systx(p, "begin", &["--only", p.served.to_str().unwrap()])
            .env("SYSTX_LOST_MAX", most)
            .output()
            .unwrap();
        let (code, id, said) = all(&begun);
        assert_eq!(code, 0, "{said}");
        let ended = systx(p, "abort", &[id.trim()]).output().unwrap();
        assert_eq!(self::code(&ended), 0, "{}", err(&ended));
        said
    };
    assert_eq!(begun("3,100"), "");
    let said = begun("2,100");
    assert!(said.contains(&format!("discarded transaction {} on ", lost[0].id)), "{said}");
    lost[0].daemon.gone();
    // More than no room at all: each goes but the ones in which a command works.
    let said = begun("9,0");
    assert_eq!(said.matches("discarded transaction ").count(), 2, "{said}");
    lost.iter().for_each(|open| open.daemon.gone());
    nobody_is_kept(p);
}
