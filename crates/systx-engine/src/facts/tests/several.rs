//! All conflicts at once, for a user who asks before the commit.

use super::conflicts::{begin, machine, open, open_all_of, pending, read, two_systems, CALLER};
use crate::domain::Domain;
use crate::outcome::{CommitError, Conflict, ConflictKind, Conflicts, Durability, Options, Party};
use crate::transaction::{SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{Open, Os};
use systx_sim::machine::{run_process, Machine, SimOs};

/// More than there are.
const MANY: usize = 100;

fn chmod(os: &SimOs, name: &[u8], mode: u32) {
    let file = os.open(&os.root(0), name, Open::Write).expect("opens");
    os.chmod(&file, mode).expect("changes");
}

/// Another transaction that does the same.
fn commits(machine: &Machine, name: &[u8], mode: u32) {
    let os = machine.spawn("theirs");
    let body = || {
        let domain = open(&os);
        let mut tx = begin(&os, &domain, Durability::Durable, "theirs");
        let (node, _) = tx.lookup(tx.root(0), name).expect("looks").expect("is there");
        tx.setattr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("sets");
        tx.commit().expect("commits");
    };
    run_process(&os, body).expect("not killed");
}

/// One that has seen three names and the list of their directory, and makes a name.
fn begun(machine: &Machine) -> (SimOs, Arc<Domain<SimOs>>, Transaction<SimOs>) {
    let os = machine.spawn("ours");
    let body = || {
        let domain = open(&os);
        let mut tx = begin(&os, &domain, Durability::Durable, "ours");
        let root = tx.root(0);
        // Twice: it is one conflict all the same.
        for _ in 0..2 {
            tx.readdir(root).expect("lists");
        }
        assert!(tx.lookup(root, b"missing").expect("looks").is_none());
        for name in [&b"other"[..], b"third"] {
            assert!(tx.lookup(root, name).expect("looks").is_some());
        }
        tx.create(root, b"new", 0o644, CALLER).expect("creates");
        (domain, tx)
    };
    let (domain, tx) = run_process(&os, body).expect("not killed");
    (os, domain, tx)
}

/// The other party of each, by its command.
fn described(conflicts: &Conflicts) -> Vec<(String, ConflictKind, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let party = |conflict: &Conflict| match &conflict.with {
        Party::Transaction { command, .. } => text(command),
        other => format!("{other:?}"),
    };
    conflicts.listed.iter().map(|one| (text(&one.path), one.what, party(one))).collect()
}

fn expected(all: &[(&str, ConflictKind, &str)]) -> Vec<(String, ConflictKind, String)> {
    all.iter().map(|(path, what, party)| (path.to_string(), *what, party.to_string())).collect()
}

#[test]
fn every_conflict_is_listed_with_its_party_and_a_look_at_them_changes_nothing() {
    let machine = machine();
    let outsider = machine.spawn("outsider");
    let (os, domain, mut tx) = begun(&machine);
    let look = |tx: &Transaction<SimOs>, most| run_process(&os, || tx.conflicts(most)).expect("not killed");
    assert_eq!(look(&tx, MANY), Ok(Conflicts::default()));
    run_process(&outsider, || {
        drop(outsider.create(&outsider.root(0), b"missing", 0o600));
        chmod(&outsider, b"other", 0o600);
    })
    .expect("not killed");
    commits(&machine, b"third", 0o600);
    let of_the_transaction = |tx: &Transaction<SimOs>| {
        let facts = tx.workset.facts();
        (facts.snapshot(0), facts.read_set(0).collect::<Vec<_>>(), tx.refusal().cloned())
    };
    let before = of_the_transaction(&tx);
    for _ in 0..2 {
        let all = look(&tx, MANY).expect("looks");
        let expected = expected(&[
            ("", ConflictKind::ListingChanged, "Outsider"),
            ("missing", ConflictKind::NameMade, "Outsider"),
            ("other", ConflictKind::ModeOrOwnerChanged, "Outsider"),
            ("third", ConflictKind::ModeOrOwnerChanged, "theirs"),
        ]);
        assert_eq!((described(&all), all.more), (expected, 0));
    }
    let some = look(&tx, 1).expect("looks");
    assert_eq!((some.listed.len(), some.more, some.count()), (1, 3, 4));
    assert_eq!(of_the_transaction(&tx), before);
    // All of it is put back, and what was only looked at was no end.
    run_process(&outsider, || {
        outsider.unlink(&outsider.root(0), b"missing").expect("removes");
        chmod(&outsider, b"other", 0o644);
    })
    .expect("not killed");
    commits(&machine, b"third", 0o644);
    assert_eq!(look(&tx, MANY), Ok(Conflicts::default()));
    let ended = run_process(&os, || {
        tx.lookup(tx.root(0), b"unseen").expect("goes on");
        tx.commit()
    });
    ended.expect("not killed").expect("commits");
    assert!(machine.look(0, "new").is_some());
    drop(domain);
}

#[test]
fn conflicts_on_every_file_system_are_listed_each_with_its_party() {
    let machine = two_systems();
    let (os, theirs, outsider) = (machine.spawn("ours"), machine.spawn("theirs"), machine.spawn("outsider"));
    let (domains, tx) = run_process(&os, || {
        let domains = open_all_of(&os, &[0, 1]);
        let mut tx = Transaction::begin(os.clone(), domains.clone(), Options::default()).expect("begins");
        for mount in [0, 1] {
            assert!(tx.lookup(tx.root(mount), b"missing").expect("looks").is_none());
        }
        (domains, tx)
    })
    .expect("not killed");
    // The same name on both, so that nothing but the file system tells them apart.
    let body = || {
        let mut tx = begin(&theirs, &open_all_of(&theirs, &[1])[0], Durability::Durable, "theirs");
        tx.create(tx.root(0), b"missing", 0o644, CALLER).expect("creates");
        tx.commit().expect("commits");
    };
    run_process(&theirs, body).expect("not killed");
    run_process(&outsider, || drop(outsider.create(&outsider.root(0), b"missing", 0o600)))
        .expect("not killed");
    let all = run_process(&os, || tx.conflicts(MANY)).expect("not killed").expect("looks");
    let made = ConflictKind::NameMade;
    assert_eq!(described(&all), expected(&[("missing", made, "Outsider"), ("missing", made, "theirs")]));
    run_process(&os, || tx.abort()).expect("not killed");
    drop(domains);
}

#[test]
fn a_lost_one_tells_what_differs_from_its_life_and_not_from_later_looks() {
    let machine = machine();
    let outsider = machine.spawn("outsider");
    let (os, domain, tx) = begun(&machine);
    run_process(&outsider, || chmod(&outsider, b"other", 0o600)).expect("not killed");
    let mut tx = run_process(&os, || match tx.commit_or_stay() {
        Err((CommitError::Conflict(_), Some(tx))) => tx,
        other => panic!("{:?}", other.map_err(|(error, _)| error)),
    })
    .expect("not killed");
    let look = |tx: &Transaction<SimOs>| run_process(&os, || tx.conflicts(MANY)).expect("not killed");
    run_process(&os, || read(&mut tx, b"read").expect("reads")).expect("not killed");
    run_process(&outsider, || chmod(&outsider, b"read", 0o600)).expect("not killed");
    let all = look(&tx).expect("looks");
    assert_eq!(described(&all), expected(&[("other", ConflictKind::ModeOrOwnerChanged, "Outsider")]));
    run_process(&outsider, || chmod(&outsider, b"other", 0o644)).expect("not killed");
    assert_eq!(look(&tx).expect("looks").count(), 0);
    run_process(&os, || tx.abort()).expect("not killed");
    drop(domain);
}

#[test]
fn what_a_pending_publication_holds_is_a_conflict_before_it_is_public() {
    let tried = (0..10).find_map(|skip| {
        let machine = machine();
        let (os, domain, tx) = begun(&machine);
        let stuck = pending(&machine, b"missing", skip)?;
        let conflicts = run_process(&os, || tx.conflicts(MANY)).expect("not killed");
        drop((domain, stuck));
        Some(conflicts.expect("looks"))
    });
    let conflicts = tried.expect("one is pending");
    let held = conflicts.listed.iter().find(|one| one.what == ConflictKind::HeldPending).expect("is held");
    assert!(matches!(&held.with, Party::Transaction { command, .. } if command == b"make it"), "{held:?}");
}
