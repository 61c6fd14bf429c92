//! Which transaction is meant: the newest, the only one, the one of a name.

use super::alone::{place::*, Case};
use super::impostor::Impostor;
use super::{all, begin, nobody_is_kept, systx, Daemon, Session};
use rustix::process::{pidfd_send_signal, Signal};
use serde_json::Value;
use std::process::Child;

pub const ALL: &[(&str, Case)] = &[
    ("the_newest_is_meant_by_an_at_sign_and_older_ones_by_how_many_are_newer", the_newest),
    ("an_id_is_left_out_of_a_look_where_exactly_one_is_open", an_id_is_left_out),
    ("the_newest_is_not_passed_over_when_it_is_lost", the_newest_is_lost),
    ("one_that_ends_while_it_is_looked_for_is_not_taken_for_another", one_that_ends_meanwhile),
    ("a_name_stands_for_its_transaction_while_that_is_open", a_name),
    ("of_several_that_begin_at_once_with_a_name_one_has_it", a_name_at_once),
    ("what_is_no_id_is_refused", what_is_no_id),
    ("a_daemon_that_does_not_answer_holds_up_only_what_may_mean_its_transaction", a_silent_daemon),
];

/// One of its verbs, with these words for the ID.
fn verb(p: &Place, verb: &str, words: &[&str]) -> (i32, String, String) {
    all(&systx(p, verb, words).output().unwrap())
}

fn ends(open: &Session<'_>) {
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
}

fn the_newest(p: &Place) {
    let open = [begin(p, &[]), begin(p, &[]), begin(p, &[])];
    let id = |words: &str| verb(p, "exec", &[words, "--", "sh", "-c", "echo $SYSTX_ID"]).1.trim().to_string();
    for (words, n) in [("@", 2), ("last", 2), ("@0", 2), ("@1", 1), ("@2", 0)] {
        assert_eq!(id(words), open[n].id, "{words}");
    }
    let (code, _, said) = verb(p, "exec", &["@3", "--", "true"]);
    let listed: Vec<_> = open.iter().map(|one| one.id.as_str()).collect();
    let fewer = format!("systx: no transaction is @3: fewer are open; open are {}.\n", listed.join(", "));
    assert_eq!((code, said), (125, fewer));
    // Each verb.
    assert_eq!(verb(p, "exec", &["@1", "--", "sh", "-c", "echo one > one"]).0, 0);
    assert_eq!(verb(p, "diff", &["@1"]).1, format!("A\t{}/one\n", p.served.display()));
    assert_eq!(
        verb(p, "check", &["@1"]).1,
        format!("transaction {} conflicts with nothing now\n", open[1].id)
    );
    let status = verb(p, "status", &["@1"]).1;
    assert!(
        status.starts_with(&format!("transaction {} on ", open[1].id)) && status.contains(": open, pid "),
        "{status}"
    );
    // It is said which one that was.
    let (code, told, said) = verb(p, "commit", &["@1"]);
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(said.contains(&format!("that was transaction {}.", open[1].id)), "{said}");
    assert_eq!(p.read("one"), "one\n");
    open[1].daemon.gone();
    assert_eq!(id("@1"), open[0].id);
    assert_eq!(verb(p, "abort", &["last"]).0, 0);
    open[2].daemon.gone();
    assert_eq!(id("@"), open[0].id);
    ends(&open[0]);
    let none = "systx: no transaction is open; `systx begin` begins one.\n";
    assert_eq!(verb(p, "commit", &["@"]), (125, String::new(), none.into()));
    assert_eq!(verb(p, "status", &["last"]), (125, String::new(), none.into()));
    nobody_is_kept(p);
}

/// By whoever only looks: an empty variable of a script names no transaction.
fn an_id_is_left_out(p: &Place) {
    let none = "systx: no transaction is open; `systx begin` begins one.\n";
    for verb in ["diff", "check"] {
        assert_eq!(self::verb(p, verb, &[]), (125, String::new(), none.into()), "{verb}");
    }
    let open = begin(p, &[]);
    open.shell("echo new > new");
    assert_eq!(verb(p, "diff", &[]).1, format!("A\t{}/new\n", p.served.display()));
    assert_eq!(verb(p, "check", &[]).0, 0);
    for (verb, words) in [("exec", &[][..]), ("commit", &[]), ("abort", &[]), ("commit", &["--only", "new"])]
    {
        let (code, _, said) = self::verb(p, verb, words);
        assert!(code == 125 && said.starts_with("error: "), "{verb}: {said}");
    }
    assert!(!p.served.join("new").exists());
    // Where two are open, neither is meant.
    let other = begin(p, &[]);
    let several = format!(
        "systx: several transactions are open: {}, {}; say which; @ is the newest.\n",
        open.id, other.id
    );
    for verb in ["diff", "check"] {
        assert_eq!(self::verb(p, verb, &[]), (125, String::new(), several.clone()), "{verb}");
    }
    // Unless its process says which.
    assert_eq!(verb(p, "diff", &["--pid", &open.daemon.pid.to_string()]).1.lines().count(), 1);
    ends(&other);
    ends(&open);
    nobody_is_kept(p);
}

/// Else the one before it would be committed in its place.
fn the_newest_is_lost(p: &Place) {
    p.write("a", "1\n");
    let older = begin(p, &[]);
    older.shell("echo older > older");
    let newest = begin(p, &[]);
    newest.shell("cat a; echo newest > newest");
    p.write("a", "others\n");
    for _ in 0..2 {
        let (code, _, said) = verb(p, "commit", &["@"]);
        assert!(code == 75 && said.contains(" is lost: "), "{code} {said}");
    }
    assert!(!p.served.join("older").exists());
    assert_eq!(verb(p, "abort", &["@"]).0, 0);
    newest.daemon.gone();
    assert_eq!(verb(p, "commit", &["@"]).0, 0);
    assert_eq!(p.read("older"), "older\n");
    older.daemon.gone();
    nobody_is_kept(p);
}

fn one_that_ends_meanwhile(p: &Place) {
    let open = begin(p, &[]);
    open.shell("echo new > new");
    let gone = Impostor::new(p, "");
    for (verb, words) in [("commit", &["@"][..]), ("check", &[]), ("commit", &["last"])] {
        let (code, _, said) = self::verb(p, verb, words);
        assert!(code == 125 && said.contains("a transaction has ended while "), "{words:?}: {said}");
    }
    assert!(!p.served.join("new").exists());
    // Its number means no other.
    assert_eq!(verb(p, "commit", &[&open.id]).0, 0);
    assert_eq!(p.read("new"), "new\n");
    gone.end();
    open.daemon.gone();
}

fn a_name(p: &Place) {
    let open = begin(p, &["--name", "deploy-2.x"]);
    let other = begin(p, &[]);
    assert_eq!(verb(p, "exec", &["deploy-2.x", "--", "sh", "-c", "echo new > new"]).0, 0);
    assert_eq!(verb(p, "diff", &["deploy-2.x"]).1, format!("A\t{}/new\n", p.served.display()));
    assert_eq!(verb(p, "check", &["deploy-2.x"]).0, 0);
    let list = verb(p, "list", &[]).1;
    let row = format!("{}  open  pid {}  named deploy-2.x  ", open.id, open.daemon.pid);
    assert!(list.contains(&row) && list.matches("named").count() == 1, "{list}");
    let status = verb(p, "status", &["deploy-2.x"]).1;
    assert!(status.starts_with(&format!("transaction {} on ", open.id)), "{status}");
    assert!(status.contains(", by user 0, named deploy-2.x\n"), "{status}");
    let status: Value = serde_json::from_str(&verb(p, "status", &["--json", "deploy-2.x"]).1).unwrap();
    assert_eq!(
        (&status[0]["open"]["name"], status.as_array().map(Vec::len)),
        (&"deploy-2.x".into(), Some(1))
    );
    // Errors name those that are open.
    let (code, _, said) = verb(p, "commit", &["deploy"]);
    let unknown = format!(
        "systx: no open transaction is called deploy; open are {} (deploy-2.x), {}.\n",
        open.id, other.id
    );
    assert_eq!((code, said), (125, unknown));
    let (code, told, said) = verb(p, "begin", &["--only", ".", "--name", "deploy-2.x"]);
    let taken = format!("systx: nothing is begun: transaction {} has the name deploy-2.x already; end that one, or take another name.\n", open.id);
    assert_eq!((code, told, said), (125, String::new(), taken));
    assert_eq!(verb(p, "list", &[]).1.matches("  open  ").count(), 2);
    // With its transaction the name goes.
    assert_eq!(verb(p, "commit", &["deploy-2.x"]), (0, String::new(), String::new()));
    assert_eq!(p.read("new"), "new\n");
    open.daemon.gone();
    let (code, _, said) = verb(p, "commit", &["deploy-2.x"]);
    assert!(code == 125 && said.contains("no open transaction is called deploy-2.x"), "{said}");
    ends(&begin(p, &["--name", "deploy-2.x"]));
    ends(&other);
    nobody_is_kept(p);
}

fn a_name_at_once(p: &Place) {
    let begun: Vec<Child> = (0..4)
        .map(|_| systx(p, "begin", &["--json", "--only", ".", "--name", "one"]).spawn().unwrap())
        .collect();
    let ended: Vec<_> = begun.into_iter().map(|child| all(&child.wait_with_output().unwrap())).collect();
    let has_it: Vec<_> = ended.iter().filter(|(code, ..)| *code == 0).collect();
    assert_eq!(has_it.len(), 1, "{ended:?}");
    let refused =
        ended.iter().filter(|(code, _, said)| *code == 125 && said.contains("has the name one already"));
    assert_eq!(refused.count(), 3, "{ended:?}");
    let told: Value = serde_json::from_str(&has_it[0].1).unwrap();
    assert_eq!(told["name"], "one");
    let daemon = Daemon::new(u32::try_from(told["pid"].as_u64().unwrap()).unwrap());
    assert_eq!(verb(p, "list", &[]).1.matches("  named one  ").count(), 1);
    assert_eq!(verb(p, "abort", &["one"]).0, 0);
    daemon.gone();
    nobody_is_kept(p);
}

fn a_silent_daemon(p: &Place) {
    let (silent, other) = (begin(p, &[]), begin(p, &["--name", "other"]));
    other.shell("echo new > new");
    let signal = |signal| pidfd_send_signal(&silent.daemon.fd, signal).unwrap();
    signal(Signal::STOP);
    // All wait at the same time.
    let pid = silent.daemon.pid.to_string();
    let verbs: [(&str, &[&str], i32, &str); 8] = [
        ("list", &[], 0, "does not answer"),
        ("diff", &["other"], 0, ""),
        ("check", &[&other.id], 0, ""),
        ("commit", &["@"], 125, "does not answer"),
        ("commit", &["987654321"], 125, ""),
        ("diff", &["--pid", &pid], 125, "does not answer"),
        ("commit", &[&silent.id], 125, "does not answer"),
        ("begin", &["--only", ".", "--name", "another"], 125, "does not answer"),
    ];
    let asked = verbs.map(|(verb, words, ..)| systx(p, verb, words).spawn().unwrap());
    for ((verb, words, status, expected), child) in verbs.iter().zip(asked) {
        let (code, told, said) = all(&child.wait_with_output().unwrap());
        assert_eq!(code, *status, "{verb} {words:?}: {said}");
        let names_it = said.contains(&format!("(pid {}) {expected}", silent.daemon.pid));
        assert_eq!(names_it, !expected.is_empty(), "{verb} {words:?}: {said}");
        assert!(*verb != "list" || told.contains(&format!("{}  open  pid {}", other.id, other.daemon.pid)));
    }
    signal(Signal::CONT);
    assert!(!p.served.join("new").exists());
    ends(&silent);
    ends(&other);
    nobody_is_kept(p);
}

fn what_is_no_id(p: &Place) {
    for words in ["", "@x", "a b", "-1", "a/b"] {
        let (code, _, said) = verb(p, "commit", &[words]);
        assert!(code == 125 && said.starts_with("error: "), "{words}: {said}");
    }
    for name in ["", "12", "last", "@", "@1", "-a", "a b", "a/b", &"n".repeat(65)] {
        let (code, told, said) = verb(p, "begin", &["--only", ".", &format!("--name={name}")]);
        assert!(
            code == 125 && told.is_empty() && said.contains("a name has 1 to 64 letters"),
            "{name}: {said}"
        );
    }
    nobody_is_kept(p);
}
