//! How it ends, wanted or not.

use super::alone::{place::*, Case};
use super::{all, begin, nobody_is_kept, systx};
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("a_killed_daemon_is_an_abort_without_a_trace", a_killed_daemon_is_an_abort_without_a_trace),
    ("a_daemon_that_is_asked_to_end_aborts", a_daemon_that_is_asked_to_end_aborts),
    ("an_end_kills_what_still_runs_inside_and_says_so", an_end_kills_what_still_runs_inside),
    ("a_command_inside_is_asked_to_end_before_it_is_killed", a_command_inside_is_asked_to_end),
    ("who_is_stopped_holds_up_no_end", who_is_stopped_holds_up_no_end),
    ("a_killed_exec_takes_its_command_along", a_killed_exec_takes_its_command_along),
    ("a_conflict_dooms_it_and_is_told_to_all_who_ask", a_conflict_dooms_it),
    ("a_doomed_command_is_killed_before_it_could_complain", a_doomed_command_is_killed_before),
    ("a_conflict_at_the_commit_is_named", a_conflict_at_the_commit_is_named),
    ("a_transaction_ends_with_its_time", a_transaction_ends_with_its_time),
    ("who_waits_for_its_end_is_told", who_waits_for_its_end_is_told),
    ("a_killed_pid_1_is_an_abort", a_killed_pid_1_is_an_abort),
];

/// Processes of this machine with this word in their command line.
fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes())).count()
}

fn a_killed_daemon_is_an_abort_without_a_trace(p: &Place) {
    p.write("a", "1\n");
    let open = begin(p, &[]);
    let before = p.picture();
    let mark = format!("{}.7919", std::process::id());
    let daemon = format!("setsid sleep {mark} > /dev/null 2>&1 & ");
    let child = open.waiting(1, &format!("echo x > a; echo y > b; {daemon}"), "true");
    while processes(&format!("sleep\0{mark}")) == 0 {
        std::thread::yield_now();
    }
    open.daemon.kill();
    let (code, _, said) = all(&child.wait_with_output().unwrap());
    let told = format!(
        "systx: transaction {} is aborted, nothing was changed: its session daemon was killed, and what ran in it.\n",
        open.id
    );
    assert_eq!((code, said), (137, told));
    open.daemon.gone();
    while processes(&mark) > 0 || p.mount.join(AREA).join("open").exists() {
        // The helper's work.
        std::thread::yield_now();
    }
    assert_eq!(p.picture(), before);
    assert_eq!(all(&open.verb("commit", &[])).0, 125);
    assert_eq!(out(&systx(p, "list", &[]).output().unwrap()), "");
    // A socket of one whose helper was killed, too, goes with the next who looks.
    let stale = p.mount.join(AREA).join("open");
    std::fs::create_dir(&stale).unwrap();
    drop(std::os::unix::net::UnixListener::bind(stale.join(format!("4711.{}", std::process::id()))).unwrap());
    assert_eq!(systx(p, "recover", &[]).output().unwrap().status.code(), Some(0));
    nobody_is_kept(p);
    let aside = std::fs::read_dir(p.mount.join(AREA).join("aside")).unwrap().count();
    assert_eq!(aside, 0);
}

fn a_daemon_that_is_asked_to_end_aborts(p: &Place) {
    let open = begin(p, &[]);
    let child = open.waiting(1, "echo x > x;", "true");
    assert!(Command::new("kill").arg(open.daemon.pid.to_string()).status().unwrap().success());
    let (code, _, said) = all(&child.wait_with_output().unwrap());
    let told = format!(
        "aborted, nothing was changed: its session daemon (pid {}) was ended by signal 15.",
        open.daemon.pid
    );
    assert!(code == 137 && said.contains(&told), "{code} {said}");
    open.daemon.gone();
    assert!(!p.served.join("x").exists());
    nobody_is_kept(p);
}

fn an_end_kills_what_still_runs_inside(p: &Place) {
    for (verb, is_there) in [("commit", true), ("abort", false)] {
        let open = begin(p, &[]);
        let n = u32::from(is_there);
        let child = open.waiting(n, "echo x > x;", "echo late > late");
        // Without a terminal there is no user to ask.
        let (code, _, said) = all(&open.verb(verb, &[]));
        let named =
            format!("systx: commands run in transaction {}: end their commands, or use --force\n", open.id);
        assert!(code == 125 && said.starts_with(&named), "{said}");
        assert!(said.contains(&format!("  inside: pid {}, for ", child.id())), "{said}");
        let ended = open.command(verb, &["--verbose", "--force"]).spawn().unwrap();
        let by = ended.id();
        assert_eq!(ended.wait_with_output().unwrap().status.code(), Some(0));
        let (code, _, said) = all(&child.wait_with_output().unwrap());
        let told = format!("systx: the transaction was ended by `systx {verb}` (pid {by}): ");
        assert!(code == 137 && said.starts_with(&told), "{said}");
        assert_eq!((p.served.join("x").exists(), p.served.join("late").exists()), (is_there, false));
        if is_there {
            std::fs::remove_file(p.served.join("x")).unwrap();
        }
    }
}

fn a_command_inside_is_asked_to_end(p: &Place) {
    for (n, word) in [(1, "HUP"), (2, "TERM")] {
        let open = begin(p, &[]);
        let other = if word == "HUP" { "TERM" } else { "HUP" };
        let script = format!("trap '' {other}; trap 'echo saved > saved; exit 0' {word};");
        let child = open.waiting(n, &script, "echo late > late");
        assert_eq!(open.verb("commit", &["--force"]).status.code(), Some(0));
        assert_eq!((p.read("saved").as_str(), p.served.join("late").exists()), ("saved\n", false));
        std::fs::remove_file(p.served.join("saved")).unwrap();
        child.wait_with_output().unwrap();
    }
}

fn who_is_stopped_holds_up_no_end(p: &Place) {
    let open = begin(p, &[]);
    let child = open.waiting(1, "echo x > x;", "true");
    let stop = |signal: &str| {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    };
    stop("-STOP");
    assert_eq!(open.verb("commit", &["--force"]).status.code(), Some(0));
    assert_eq!(p.read("x"), "x\n");
    stop("-CONT");
    let (code, _, said) = all(&child.wait_with_output().unwrap());
    assert!(code == 137 && said.contains("ended by `systx commit`") && said.contains("committed"), "{said}");
}

fn a_killed_exec_takes_its_command_along(p: &Place) {
    let open = begin(p, &[]);
    let mark = format!("{}.7907", std::process::id());
    let mut child = open.waiting(1, &format!("echo x > x; : {mark};"), "echo late > late");
    assert_eq!(processes(&mark), 3, "systx, the guest, and the command");
    child.kill().unwrap();
    child.wait().unwrap();
    while processes(&mark) > 0 {
        std::thread::yield_now();
    }
    // It is open still, and ends although the guest's maker is gone.
    assert_eq!(out(&open.shell("cat x; ls late 2>/dev/null")), "x\n");
    assert_eq!(open.verb("commit", &[]).status.code(), Some(0));
    assert_eq!(p.read("x"), "x\n");
}

fn a_conflict_dooms_it(p: &Place) {
    p.write("a", "1\n");
    p.write("b", "2\n");
    let open = begin(p, &[]);
    assert_eq!(out(&open.shell("cat a; echo mine > mine")), "1\n");
    assert_eq!(p.shell("echo 9 > a; echo 9 > b").status.code(), Some(0));
    let told = format!("systx: conflict on {}/a: contents changed by transaction ", p.served.display());
    let ends = format!("Transaction {} (pid {}: systx begin ", open.id, open.daemon.pid);
    let is_told = |(code, _, said): (i32, String, String), wanted: i32| {
        let whole = said.starts_with(&told)
            && said.contains(&ends)
            && said.contains("is lost: it can't be committed");
        assert!(whole && code == wanted, "{code} {said}");
    };
    // An object that it has not read yet would not fit to what it has read.
    is_told(all(&open.shell("cat b")), 75);
    assert_eq!(open.shell("true").status.code(), Some(0), "to look at it");
    let list = out(&systx(p, "list", &[]).output().unwrap());
    assert!(list.contains(&format!("{}  lost  pid ", open.id)), "{list}");
    let status = out(&systx(p, "status", &[&open.id]).output().unwrap());
    assert!(status.contains("  can't be committed: conflict on "), "{status}");
    is_told(all(&open.verb("commit", &[])), 75);
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
    assert!(!p.served.join("mine").exists());
    // A user who only wants to discard it succeeds.
    let open = begin(p, &[]);
    open.shell("cat a");
    assert_eq!(p.shell("echo 10 > a; echo 10 > b").status.code(), Some(0));
    assert_eq!(open.shell("cat b").status.code(), Some(75));
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}

fn a_doomed_command_is_killed_before(p: &Place) {
    p.write("a", "1\n");
    p.write("b", "2\n");
    let open = begin(p, &[]);
    let mut child =
        open.waiting(1, "cat a;", "cat b || echo complaint > $BESIDE/complaint; echo on > $BESIDE/on");
    let other = open.waiting(2, "", "echo on > $BESIDE/on");
    assert_eq!(p.shell("echo 9 > a; echo 9 > b").status.code(), Some(0));
    open.say(1, &mut child);
    let (code, said, why) = all(&child.wait_with_output().unwrap());
    assert_eq!((code, said.as_str()), (75, "1\n"), "{why}");
    assert!(why.starts_with("systx: conflict on ") && why.lines().count() == 1, "{why}");
    // The other command that was inside ends, too.
    assert_eq!(all(&other.wait_with_output().unwrap()).0, 75);
    assert!(!p.beside.join("complaint").exists() && !p.beside.join("on").exists());
}

fn a_conflict_at_the_commit_is_named(p: &Place) {
    p.write("a", "1\n");
    let open = begin(p, &[]);
    open.shell("cat a; echo mine > mine");
    p.write("a", "2\n");
    let ended = open.verb("commit", &["--json"]);
    let value: serde_json::Value = serde_json::from_str(&err(&ended)).unwrap();
    assert_eq!((all(&ended).0, value["outcome"].as_str()), (75, Some("lost")));
    assert_eq!(value["conflict"]["with"], "outsider");
    assert_eq!(value["conflict"]["path"], p.served.join("a").to_str().unwrap());
    assert!(!p.served.join("mine").exists());
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}

fn a_transaction_ends_with_its_time(p: &Place) {
    let open = begin(p, &["--timeout", "0.2"]);
    let child = open.command("exec", &["--", "sleep", "1000"]).output().unwrap();
    let told =
        "systx: aborted, nothing was changed: the transaction was still open after 0.2 s. Give it more with \
        --timeout, or none.\n";
    assert_eq!(all(&child), (124, String::new(), told.into()));
    assert_eq!(all(&open.verb("commit", &[])), (124, String::new(), told.into()));
    open.daemon.gone();
    nobody_is_kept(p);
}

fn who_waits_for_its_end_is_told(p: &Place) {
    for (verb, outcome) in [("commit", "committed\n"), ("abort", "aborted\n")] {
        let open = begin(p, &[]);
        open.shell("echo x > x");
        let waiter = open.command("on-end", &["--", "sh", "-c", "echo $SYSTX_OUTCOME"]).spawn().unwrap();
        while !p.mount.join(AREA).join("ends").exists() {
            std::thread::yield_now();
        }
        // It has its socket when that has a name.
        while std::fs::read_dir(p.mount.join(AREA).join("ends")).map_or(0, Iterator::count) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(open.verb(verb, &[]).status.code(), Some(0));
        assert_eq!(out(&waiter.wait_with_output().unwrap()), outcome);
    }
}

fn a_killed_pid_1_is_an_abort(p: &Place) {
    let open = begin(p, &[]);
    let child = open.waiting(1, "echo x > x;", "true");
    let (pid, words) = (open.daemon.pid, format!("/proc/{0}/task/{0}/children", open.daemon.pid));
    let children = std::fs::read_to_string(words).unwrap();
    // The helper has a name of its own.
    let is_init =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == "systx";
    let init = children.split_whitespace().find(is_init).unwrap();
    assert!(Command::new("kill").args(["-9", init]).status().unwrap().success());
    let (code, _, said) = all(&child.wait_with_output().unwrap());
    assert!(
        code == 137 && said.contains("nothing was changed: pid 1 of its namespaces was killed"),
        "{pid}: {said}"
    );
    assert_eq!(open.verb("commit", &[]).status.code(), Some(125));
    assert!(!p.served.join("x").exists());
}
