//! Network policies of transactions that stay open.

use super::alone::place::{code, err, out, Place};
use super::alone::Case;
use super::world::{World, WHO};
use super::{all, ECONNREFUSED, EPERM};
use std::process::Output;

pub const ALL: &[(&str, Case)] = &[
    ("an_open_transactions_commands_are_denied", an_open_transactions_commands_are_denied),
    ("an_attempt_ends_an_open_transaction", an_attempt_ends_an_open_transaction),
    ("what_a_command_leaves_behind_is_watched_on", what_a_command_leaves_behind_is_watched_on),
    ("a_run_that_stays_open_keeps_its_policy", a_run_that_stays_open_keeps_its_policy),
];

/// An open transaction; aborted when a case fails.
struct Session<'a> {
    world: &'a World<'a>,
    id: String,
}

impl<'a> Session<'a> {
    fn begin(world: &'a World<'a>, policy: &str) -> Session<'a> {
        let output = world.verb(&["begin", "--only", ".", "--network", policy]).output().unwrap();
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        Session { world, id: out(&output).trim().to_owned() }
    }

    fn verb(&self, verb: &str, words: &[&str]) -> Output {
        self.world.verb(&[&[verb, self.id.as_str()], words].concat()).output().unwrap()
    }

    fn call(&self, kind: &str, target: &str) -> Output {
        self.verb("exec", &["--", &self.world.caller(), "--role", "call", kind, target])
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Over it is in most cases.
        let _ = self.verb("abort", &[]);
    }
}

fn an_open_transactions_commands_are_denied(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        let session = Session::begin(&world, "deny");
        for (kind, target, _) in world.outside() {
            assert_eq!(all(&session.call(kind, &target)), (0, EPERM.into(), String::new()), "{who:?} {kind}");
            assert!(!world.reached(kind), "{who:?} {kind}");
        }
        assert_eq!(all(&session.call("tcp", &world.loopback())), (0, ECONNREFUSED.into(), String::new()));
        assert_eq!(all(&session.call("own", "")), (0, "ok\n".into(), String::new()), "{who:?}");
        let (code, _, err) = all(&session.verb("commit", &[]));
        assert_eq!(code, 0, "{err}");
        let (_, target, _) = world.outside().remove(0);
        assert!(err.starts_with("systx: denied: caller (pid ") && err.contains(&target), "{err}");
        assert!(world.has_left_its_mark());
    }
}

fn an_attempt_ends_an_open_transaction(p: &Place) {
    for who in WHO {
        let world = World::new(p, who);
        let session = Session::begin(&world, "abort");
        assert_eq!(all(&session.call("own", "")), (0, "ok\n".into(), String::new()), "{who:?}");
        let (kind, target, shown) = world.outside().remove(2);
        let (code, _, err) = all(&session.call(kind, &target));
        assert_eq!(code, 137, "{err}");
        assert!(err.contains(&format!(" wanted to reach {shown}, which")), "{err}");
        let (code, _, err) = all(&session.verb("commit", &[]));
        assert_eq!(code, 125, "{err}");
        assert!(err.contains("aborted, nothing was changed: caller (pid ") && err.contains(&shown), "{err}");
        assert!(!world.reached(kind) && !world.has_left_its_mark(), "{who:?}");
    }
}

fn what_a_command_leaves_behind_is_watched_on(p: &Place) {
    let world = World::new(p, "root");
    let session = Session::begin(&world, "deny");
    let (word, told) = (p.fifo("word"), p.fifo("told"));
    let (kind, target, _) = world.outside().remove(0);
    let call = format!("{} --role call {kind} {target}", world.caller());
    let script = format!("(read word < {}; {call} > {}) > /dev/null 2>&1 &", word.display(), told.display());
    assert_eq!(all(&session.verb("exec", &["--", "sh", "-c", &script])), (0, String::new(), String::new()));
    // By now no process is left of the `systx exec` that has started it.
    std::fs::write(&word, "go\n").unwrap();
    assert_eq!(std::fs::read_to_string(&told).unwrap(), EPERM);
    assert!(!world.reached(kind));
}

fn a_run_that_stays_open_keeps_its_policy(p: &Place) {
    let world = World::new(p, "root");
    let (_, target, shown) = world.outside().remove(0);
    let (code, out, err) = all(&world.call(&["-x", "--no-commit", "--verbose"], "tcp", &target));
    assert_eq!((code, out.as_str()), (0, EPERM), "{err}");
    let id = err.split("systx commit ").nth(1).and_then(|rest| rest.split('`').next()).unwrap().to_owned();
    let session = Session { world: &world, id };
    assert_eq!(all(&session.call("tcp", &target)), (0, EPERM.into(), String::new()));
    let (code, _, err) = all(&session.verb("commit", &[]));
    assert!(code == 0 && err.contains(&shown), "{err}");
}
