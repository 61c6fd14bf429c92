//! A look at the conflicts before the commit: it tells all of them, and nothing comes of it.

use super::alone::{place::*, Case};
use super::impostor::Impostor;
use super::{all, begin, nobody_is_kept, systx, Session};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

pub const ALL: &[(&str, Case)] = &[
    ("check_lists_every_conflict_and_the_transaction_still_commits", every_conflict_is_listed),
    ("check_of_one_at_work_lets_its_commands_go_on", one_at_work),
    ("check_of_a_lost_one_tells_why_it_is_lost_and_what_differs_now", a_lost_one),
    ("check_lists_a_thousand_conflicts_and_counts_the_rest", many_conflicts),
    ("check_of_one_that_another_version_keeps_says_so", one_of_another_version),
    ("check_of_one_that_is_over_tells_how_it_ended", one_that_is_over),
];

fn chmod(p: &Place, name: &str, mode: u32) {
    std::fs::set_permissions(p.served.join(name), PermissionsExt::from_mode(mode)).unwrap();
}

/// The status of `check --json`, and its value.
fn checked(open: &Session<'_>) -> (i32, Value) {
    let (code, told, said) = all(&open.verb("check", &["--json"]));
    assert_eq!(said, "");
    (code, serde_json::from_str(&told).unwrap())
}

fn every_conflict_is_listed(p: &Place) {
    for name in ["a", "b"] {
        p.write(name, "1\n");
        chmod(p, name, 0o644);
    }
    let open = begin(p, &[]);
    open.shell("stat a b; test -e missing; echo mine > mine");
    let nothing = (0, format!("transaction {} conflicts with nothing now\n", open.id), String::new());
    assert_eq!(all(&open.verb("check", &[])), nothing);
    assert_eq!(all(&open.verb("diff", &[])).2, "");
    // Two outsiders' changes, and one of a transaction.
    chmod(p, "a", 0o600);
    p.write("missing", "");
    assert_eq!(p.shell("chmod 600 b").status.code(), Some(0));
    let at = p.served.display();
    for _ in 0..2 {
        let (code, told, said) = all(&open.verb("check", &[]));
        let lines: Vec<_> = told.lines().collect();
        assert_eq!((code, lines.len(), said.as_str()), (75, 3, ""), "{told}");
        let outsider = "by a program outside of any transaction";
        assert_eq!(lines[0], format!("{at}/a: mode or owner changed {outsider}"));
        let transaction = format!("{at}/b: mode or owner changed by transaction ");
        assert!(lines[1].starts_with(&transaction) && lines[1].ends_with(": sh -c chmod 600 b)"), "{told}");
        assert_eq!(lines[2], format!("{at}/missing: name made {outsider}"));
    }
    let (code, told) = checked(&open);
    assert_eq!((code, &told["lost"], &told["more_conflicts"]), (75, &Value::Null, &0.into()));
    assert_eq!(told["id"].to_string(), open.id);
    let listed = told["conflicts"].as_array().unwrap();
    let codes: Vec<_> = listed.iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["mode-or-owner-changed", "mode-or-owner-changed", "name-made"]);
    assert_eq!(
        (&listed[0]["with"], listed[0]["path"].as_str()),
        (&"outsider".into(), p.served.join("a").to_str())
    );
    assert_eq!(listed[1]["with"]["command"], "sh -c chmod 600 b");
    // Those that were not asked for conflicts say that there are some.
    let warning =
        format!("can't be committed as things are: 3 conflicts, which `systx check {}` lists", open.id);
    let (code, told, said) = all(&open.verb("diff", &[]));
    assert_eq!((code, told), (0, format!("A\t{at}/mine\n")));
    assert_eq!(said, format!("systx: transaction {} {warning}.\n", open.id));
    assert_eq!(all(&open.verb("diff", &["--json"])).2, "");
    let status: Value = serde_json::from_str(&out(&open.verb("status", &["--json"]))).unwrap();
    assert_eq!((status[0]["state"].as_str(), &status[0]["open"]["doomed"]), (Some("open"), &Value::Null));
    // Nothing has come of it: where all is as it was, it commits.
    chmod(p, "a", 0o644);
    std::fs::remove_file(p.served.join("missing")).unwrap();
    assert_eq!(p.shell("chmod 644 b").status.code(), Some(0));
    assert_eq!(all(&open.verb("check", &[])), nothing);
    assert_eq!(all(&open.verb("commit", &[])), (0, String::new(), String::new()));
    assert_eq!(p.read("mine"), "mine\n");
    open.daemon.gone();
    nobody_is_kept(p);
}

fn one_at_work(p: &Place) {
    p.write("a", "1\n");
    let open = begin(p, &[]);
    let mut child = open.waiting(1, "cat a; exec 3>>mine; echo 1 >&3;", "echo 2 >&3");
    assert_eq!(checked(&open).0, 0);
    p.write("a", "another\n");
    let (code, told) = checked(&open);
    assert_eq!((code, &told["conflicts"][0]["code"]), (75, &"contents-changed".into()));
    // The look has not ended it; a conflict that is met by a command, or the commit, does.
    open.say(1, &mut child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(all(&open.shell("cat mine")), (0, "1\n2\n".into(), String::new()));
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
}

fn a_lost_one(p: &Place) {
    for name in ["a", "b"] {
        p.write(name, "1\n");
        chmod(p, name, 0o644);
    }
    let open = begin(p, &[]);
    open.shell("stat a b; echo mine > mine");
    chmod(p, "a", 0o600);
    assert_eq!(open.verb("commit", &[]).status.code(), Some(75));
    chmod(p, "b", 0o600);
    let (code, told, said) = all(&open.verb("check", &[]));
    assert_eq!((code, told.lines().count()), (75, 2), "{told}{said}");
    assert!(said.contains("conflict on ") && said.contains(" is lost: "), "{said}");
    // Lost it stays, whatever is there by now.
    chmod(p, "a", 0o644);
    chmod(p, "b", 0o644);
    let (code, told, said) = all(&open.verb("check", &[]));
    assert_eq!((code, told.as_str()), (75, ""));
    assert!(said.contains(" is lost: "), "{said}");
    let (code, told) = checked(&open);
    assert_eq!((code, told["conflicts"].as_array().map(Vec::len)), (75, Some(0)));
    assert_eq!((&told["lost"]["outcome"], &told["lost"]["reason"]), (&"lost".into(), &"conflict".into()));
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}

fn many_conflicts(p: &Place) {
    let open = begin(p, &[]);
    open.shell("n=0; while [ $n -lt 1003 ]; do test -e made$n; n=$((n + 1)); done");
    for n in 0..1003 {
        p.write(&format!("made{n}"), "");
    }
    let (code, told, said) = all(&open.verb("check", &[]));
    assert_eq!((code, told.lines().count(), said.as_str()), (75, 1001, ""), "{told}");
    assert!(told.ends_with("\nand 3 more\n"), "{told}");
    let (_, told) = checked(&open);
    assert_eq!(
        (told["conflicts"].as_array().map(Vec::len), &told["more_conflicts"]),
        (Some(1000), &3.into())
    );
    let (_, _, said) = all(&open.verb("diff", &[]));
    assert!(said.contains(": 1003 conflicts, which "), "{said}");
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
}

fn one_that_is_over(p: &Place) {
    let none = all(&systx(p, "check", &["4711"]).output().unwrap());
    assert!(none.0 == 125 && none.2.contains("transaction 4711 is not open"), "{none:?}");
    let open = begin(p, &["--timeout", "0.2"]);
    assert_eq!(all(&open.verb("exec", &["--", "sleep", "1000"])).0, 124);
    for _ in 0..2 {
        let (code, told, said) = all(&open.verb("check", &[]));
        assert_eq!((code, told.as_str()), (124, ""));
        assert!(said.contains("the transaction was still open after 0.2 s"), "{said}");
    }
    // It waits for one that wants to end it, not for one that looks.
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}

/// A session daemon of before `check`: it does not know that question, nor has it to say as much about itself.
fn one_of_another_version(p: &Place) {
    let open = begin(p, &[]);
    let old = Impostor::new(
        p,
        r#"{"Look":{"id":4711,"pid":1,"uid":0,"since":1,"recorded":true,"numbers":[],"doomed":null,"lost":null,"inside":[]}}"#,
    );
    let (code, told, said) = all(&systx(p, "check", &["4711"]).output().unwrap());
    assert_eq!((code, told.as_str()), (125, ""));
    assert!(said.contains("is another version of systx: use that one"), "{said}");
    // Whenever it began, it is older than one of this version.
    assert_eq!(all(&systx(p, "check", &["@"]).output().unwrap()).0, 0);
    old.end();
    assert_eq!(open.verb("abort", &[]).status.code(), Some(0));
    open.daemon.gone();
    nobody_is_kept(p);
}
