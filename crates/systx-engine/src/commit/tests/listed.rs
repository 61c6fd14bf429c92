//! What others see of a process with many open transactions.

use super::stuck::ROOT;
use super::world::*;
use crate::domain::layout::FURTHER;
use crate::outcome::{CommitError, Options, Party};
use crate::transaction::{Access, Transaction};
use systx_os::FsKind;
use systx_sim::machine::run_process;

fn options(n: usize) -> Options {
    Options { command: format!("work {n}"), ..Options::default() }
}

#[test]
fn each_of_a_thousand_open_transactions_is_listed_until_it_ends() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("server");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let begin = |n| Transaction::begin(os.clone(), vec![domain.clone()], options(n)).expect("begins");
        let mut all: Vec<_> = (0..1000).map(begin).collect();
        let listed = || {
            let listed = domain.transactions().expect("lists").into_iter();
            listed.map(|l| (l.tx, String::from_utf8(l.command).expect("text"))).collect::<Vec<_>>()
        };
        let of = |all: &[Transaction<_>]| -> Vec<_> {
            all.iter().map(|t| (t.id(), t.options().command.clone())).collect()
        };
        assert_eq!(listed(), of(&all));
        // The first has the owner's own record, the others further ones.
        let ended = [0, 500, 997].map(|n| all.remove(n));
        assert_eq!(listed().len(), 1000);
        ended.into_iter().for_each(Transaction::abort);
        assert_eq!(listed(), of(&all));
        all.push(begin(1000));
        assert_eq!(listed(), of(&all));
        // Beyond what there is room for, the latest one is seen.
        let many: Vec<_> = (0..2 * FURTHER).map(begin).collect();
        let last = many.last().map(|t| t.id()).expect("many");
        assert!(listed().iter().any(|(id, _)| *id == last));
        drop((all, many));
        assert_eq!(listed(), []);
    });
    done.expect("not killed");
}

#[test]
fn one_that_comes_to_a_mount_on_its_way_is_listed_there_until_it_ends() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("library");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut t = Transaction::begin(os.clone(), Vec::new(), options(7)).expect("begins");
        t.add_mount(domain.clone()).expect("serves");
        let listed = domain.transactions().expect("lists");
        let listed: Vec<_> = listed.into_iter().map(|l| (l.tx, l.command)).collect();
        assert_eq!(listed, [(t.id(), b"work 7".to_vec())]);
        t.abort();
        assert!(domain.transactions().expect("lists").is_empty());
    });
    done.expect("not killed");
}

#[test]
fn records_of_a_dead_process_make_room_for_the_living() {
    let machine = machine(FsKind::Ext4);
    let dead = machine.spawn("dead");
    let began = run_process(&dead, || {
        let domain = open(&dead).expect("opens");
        let begin = |n| Transaction::begin(dead.clone(), vec![domain.clone()], options(n)).expect("begins");
        let all: Vec<_> = (0..FURTHER + 10).map(begin).collect();
        machine.kill(dead.process());
        drop(all);
    });
    assert!(began.is_err(), "its destructors do nothing any more");
    let os = machine.spawn("living");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        assert_eq!(domain.transactions().expect("lists"), []);
        let begin = |n| Transaction::begin(os.clone(), vec![domain.clone()], options(n)).expect("begins");
        let all: Vec<_> = (0..20).map(begin).collect();
        assert_eq!(domain.transactions().expect("lists").len(), all.len());
    });
    done.expect("not killed");
}

#[test]
fn a_conflict_names_the_right_one_of_many() {
    let machine = machine(FsKind::Ext4);
    let (server, other) = (machine.spawn("server"), machine.spawn("other"));
    let done = run_process(&server, || {
        let domain = open(&server).expect("opens");
        let begin = |n| Transaction::begin(server.clone(), vec![domain.clone()], options(n)).expect("begins");
        let mut all: Vec<_> = (0..100).map(begin).collect();
        let reader = run_process(&other, || {
            let domain = open(&other).expect("opens");
            let mut t = Transaction::begin(other.clone(), vec![domain], Options::default()).expect("begins");
            let w = t.lookup(t.root(0), b"w").expect("works").expect("it is there").0;
            assert!(t.lookup(w, b"new").expect("works").is_none());
            t.create(w, b"made", 0o644, ROOT).expect("works");
            t
        });
        let mut t = all.remove(57);
        let id = t.id();
        let w = t.lookup(t.root(0), b"w").expect("works").expect("it is there").0;
        let (node, _) = t.create(w, b"new", 0o644, ROOT).expect("works");
        t.open(node, Access::Write, false).expect("works");
        t.write_at(node, b"x", 0).expect("works");
        t.close(node);
        t.commit().expect("commits");
        let told = run_process(&other, || reader.expect("lives").commit()).expect("lives");
        let Err(CommitError::Conflict(conflict)) = told else { panic!("{told:?}") };
        let pid = server.process().pid();
        assert_eq!(conflict.with, Party::Transaction { id, pid, command: b"work 57".to_vec() });
        drop(all);
    });
    done.expect("not killed");
}
