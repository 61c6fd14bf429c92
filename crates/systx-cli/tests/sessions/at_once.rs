//! Verbs that are given at once, from several terminals: whatever their order comes to be, each one's answer
//! is true. The tree is the judge.

use super::alone::{meet, place::*, turn, Case};
use super::{all, begin, nobody_is_kept, systx, Daemon};
use std::process::{Child, Command};

pub const ALL: &[(&str, Case)] = &[
    ("of_two_ends_at_once_one_happens_and_the_other_is_told_whose_it_was", two_ends_at_once),
    ("a_run_that_keeps_its_transaction_open_tells_who_ended_it_meanwhile", a_run_and_an_end_at_once),
    ("a_daemon_that_was_killed_in_mid_commit_does_not_pass_for_an_abort", a_daemon_killed_in_mid_commit),
];

/// A way to end a transaction that makes `d` and `e`, and which of them is there then.
type End = (&'static str, &'static [&'static str], [bool; 2]);

const ENDS: [End; 4] = [
    ("commit", &[], [true, true]),
    ("commit", &["--only", "d"], [true, false]),
    ("commit", &["--only", "e"], [false, true]),
    ("abort", &[], [false, false]),
];

fn there(p: &Place) -> [bool; 2] {
    ["d/f", "e/f"].map(|name| p.served.join(name).exists())
}

fn fresh(p: &Place) {
    for name in ["d", "e"] {
        let _ = std::fs::remove_dir_all(p.served.join(name));
    }
}

fn signal(which: &str, pid: u32) {
    assert!(Command::new("kill").args([which, &pid.to_string()]).status().unwrap().success());
}

/// Checks the message about an end that another command caused.
fn is_told_whose(said: &str, tree: [bool; 2]) {
    let known = said.contains("the transaction was ended by `systx ");
    // The command came too late to be heard at all, or the transaction's session daemon was ended.
    let late = said.contains("not open") || said.contains("was ended by signal 15");
    assert!(known || late, "{said}");
    assert!(!said.contains("nothing was changed") || tree == [false, false], "{said}");
}

fn two_ends_at_once(p: &Place) {
    let pairs: Vec<_> = (0..ENDS.len()).flat_map(|a| (a..ENDS.len()).map(move |b| (a, b))).collect();
    let mut firsts = [0; 2];
    for (a, b) in pairs.iter().chain(&pairs).copied() {
        fresh(p);
        let open = begin(p, &[]);
        open.shell("mkdir d e; echo 1 > d/f; echo 1 > e/f");
        // Both find it, and neither is heard before the other is there.
        signal("-STOP", open.daemon.pid);
        let given: Vec<(End, Child)> = [ENDS[a], ENDS[b]]
            .into_iter()
            .map(|end| (end, open.command(end.0, end.1).spawn().unwrap()))
            .collect();
        signal("-CONT", open.daemon.pid);
        let ended: Vec<_> =
            given.into_iter().map(|(end, child)| (end, all(&child.wait_with_output().unwrap()))).collect();
        open.daemon.gone();
        let tree = there(p);
        let done: Vec<_> = (0..2).filter(|n| ended[*n].1 .0 == 0).collect();
        assert_eq!(done.len(), 1, "{tree:?}: {ended:?}");
        assert_eq!(tree, ended[done[0]].0 .2, "{ended:?}");
        let (code, _, said) = &ended[1 - done[0]].1;
        assert_eq!(*code, 125, "{ended:?}");
        is_told_whose(said, tree);
        firsts[done[0]] += 1;
    }
    println!("{} × the first, {} × the second", firsts[0], firsts[1]);
    // A signal to the session daemon belongs to neither command.
    for verb in ["commit", "abort"] {
        fresh(p);
        let open = begin(p, &[]);
        open.shell("mkdir d e; echo 1 > d/f; echo 1 > e/f");
        signal("-STOP", open.daemon.pid);
        let given = open.command(verb, &[]).spawn().unwrap();
        signal("-TERM", open.daemon.pid);
        signal("-CONT", open.daemon.pid);
        let (code, _, said) = all(&given.wait_with_output().unwrap());
        open.daemon.gone();
        let tree = there(p);
        match code {
            0 => assert_eq!(tree, [verb == "commit"; 2], "{verb}: {said}"),
            _ => assert!(code == 125 && tree == [false, false] && !said.is_empty(), "{verb}: {code} {said}"),
        }
    }
    nobody_is_kept(p);
}

fn a_run_and_an_end_at_once(p: &Place) {
    let keeps: [(&[&str], i32); 4] =
        [(&["--on-error", "keep"], 0), (&["-n"], 0), (&["-n", "--on-error", "abort"], 3), (&["-n"], 3)];
    let mut n = 0;
    for (options, status) in keeps {
        for verb in ["commit", "abort", "kill", "commit first", "abort first"] {
            n += 1;
            fresh(p);
            let script = format!(
                "mkdir d e; echo 1 > d/f; echo 1 > e/f; echo $SYSTX_ID > $BESIDE/id; {} exit {status}",
                turn(n)
            );
            let run = meet(p, n, options, &["sh", "-c", &script]);
            let id = std::fs::read_to_string(p.beside.join("id")).unwrap().trim().to_string();
            let told = out(&systx(p, "list", &["--json"]).output().unwrap());
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            let daemon =
                Daemon::new(u32::try_from(told["transactions"][0]["pid"].as_u64().unwrap()).unwrap());
            let (word, first) = verb.split_once(' ').unwrap_or((verb, ""));
            let other = match word {
                "kill" => Command::new("kill").arg(daemon.pid.to_string()).spawn().unwrap(),
                word => systx(p, word, &[&id, "--force"]).spawn().unwrap(),
            };
            let (other, run) = match first.is_empty() {
                true => (None, (Some(other), run.end())),
                false => (Some(other.wait_with_output().unwrap()), (None, run.end())),
            };
            let (waiting, run) = run;
            let other = other.or_else(|| waiting.map(|child| child.wait_with_output().unwrap())).unwrap();
            let (code, _, said) = all(&run);
            let what = format!("{options:?} {status} {verb}: {code} {said:?}; {:?}", all(&other));
            let stays = said.contains("nothing was changed yet");
            if stays && word != "kill" && other.status.code() != Some(0) {
                // It came too early to be heard.
                systx(p, "abort", &[&id]).output().unwrap();
            }
            daemon.gone();
            let tree = there(p);
            assert!(tree[0] == tree[1], "{what}");
            // Report of the run.
            let success = code == 0 && said.is_empty();
            assert!(!success || (tree[0] && status == 0), "{what}");
            assert!(stays || !said.contains("nothing was changed") || !tree[0], "{what}");
            assert!(success || stays || code == 125 || (code == status && !tree[0]), "{what}");
            if said.contains("ended by") {
                assert_eq!(code, 125, "{what}");
            }
            // Report of the other one.
            if word != "kill" && other.status.code() == Some(0) {
                assert_eq!(tree[0], word == "commit", "{what}");
            }
            if first == "first" {
                let whose = format!("the transaction was ended by `systx {word}` (pid ");
                assert!(code == 125 && said.contains(&whose), "{what}");
            }
        }
    }
    nobody_is_kept(p);
}

/// Kills the daemon before the commit point of a commit from another terminal, and behind it.
fn a_daemon_killed_in_mid_commit(p: &Place) {
    if !Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success()) {
        return println!("skipped: no strace");
    }
    let mut outcomes = [0; 2];
    for n in 1..=6 {
        fresh(p);
        let open = begin(p, &[]);
        let inside = open.waiting(n, "mkdir d e; echo 1 > d/f; echo 1 > e/f;", "true");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-p"]);
        strace.arg(open.daemon.pid.to_string());
        strace.args(["-e", &format!("inject=renameat2:signal=SIGKILL:when={n}")]);
        let mut strace = strace.spawn().unwrap();
        let status = format!("/proc/{}/status", open.daemon.pid);
        while std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n") {
            assert!(strace.try_wait().unwrap().is_none(), "strace can't be attached");
            std::thread::yield_now();
        }
        let (code, _, said) = all(&open.verb("commit", &["--force"]));
        let (inside, _, told) = all(&inside.wait_with_output().unwrap());
        strace.wait().unwrap();
        open.daemon.gone();
        assert_eq!(systx(p, "recover", &[]).output().unwrap().status.code(), Some(0));
        // Another process may be about to finish it.
        while !out(&systx(p, "list", &[]).output().unwrap()).is_empty() {
            std::thread::yield_now();
        }
        let tree = there(p);
        assert_eq!(tree[0], tree[1]);
        let killed = code != 0;
        assert!(!killed || (code == 125 && said.contains("in doubt")), "{code} {said}");
        let words = match (killed, tree[0]) {
            (true, true) => "is committed from another terminal",
            (true, false) => "nothing was changed",
            (false, _) => "ended by `systx commit`",
        };
        assert!(inside == 137 && told.contains(words), "{n} {tree:?}: {told}");
        outcomes[usize::from(tree[0])] += usize::from(killed);
    }
    println!("{} × aborted, {} × committed", outcomes[0], outcomes[1]);
    assert!(outcomes[1] > 0);
}
