//! Changes after a commit, and before the power fails: times that are set back, and further commits to the
//! same file.

use super::super::world::{machine, open};
use super::acts::OLD_TIME;
use crate::domain::Domain;
use crate::outcome::{Durability, Options, Verb, VerbError};
use crate::transaction::{Access, Caller, Node, Transaction};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Open, Os, Timestamp};
use systx_sim::machine::{run_process, Crash, Machine, SimOs};

pub(super) const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// `w`, in a transaction.
fn below(t: &mut Transaction<SimOs>) -> Verb<Node> {
    let root = t.root(0);
    Ok(t.lookup(root, b"w")?.ok_or(VerbError::Os(Errno::NOENT))?.0)
}

/// One durable transaction.
pub(super) fn commit(machine: &Machine, body: impl FnOnce(&mut Transaction<SimOs>, Node) -> Verb<()>) {
    let os = machine.spawn("owner");
    let run = || {
        let domain: Arc<Domain<SimOs>> = open(&os).expect("opens");
        let options =
            Options { durability: Durability::Durable, command: String::new(), ..Options::default() };
        let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
        let dir = below(&mut t).expect("is there");
        body(&mut t, dir).expect("works");
        let done = t.commit().expect("commits");
        assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    };
    run_process(&os, run).expect("lives");
    os.exit();
}

pub(super) fn write(t: &mut Transaction<SimOs>, node: Node, bytes: &[u8], at: u64) -> Verb<()> {
    t.open(node, Access::Write, false)?;
    assert_eq!(t.write_at(node, bytes, at)?, bytes.len());
    t.close(node);
    Ok(())
}

fn recover(machine: &Machine) {
    let os = machine.spawn("helper");
    let recovered = run_process(&os, || open(&os).expect("opens").recovered.clone()).expect("lives");
    assert!(recovered.unfinished.is_empty(), "{recovered:?}");
}

fn mtime(machine: &Machine, path: &str) -> Timestamp {
    let os = machine.outsider("looks");
    os.stat(&os.open_path(0, path, Open::Path).expect("is there")).expect("works").mtime
}

#[test]
fn a_small_file_that_the_next_commit_changes_has_both_after_a_power_failure() {
    let (mut first, mut second) = (vec![1u8; 4 * 512 + 100], vec![2u8; 600]);
    first[0] = 9;
    second[0] = 8;
    let mut expected = first.clone();
    expected[1024..1624].copy_from_slice(&second);
    for seed in 0..40 {
        let machine = machine(FsKind::Ext4);
        commit(&machine, |t, dir| {
            let (node, _) = t.create(dir, b"small", 0o644, ME)?;
            write(t, node, &first, 0)
        });
        commit(&machine, |t, dir| {
            let (node, _) = t.lookup(dir, b"small")?.expect("was committed");
            write(t, node, &second, 1024)
        });
        machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
        recover(&machine);
        let found = &machine.tree(0)["w/small"].content;
        let differs = (0..expected.len()).find(|n| found.get(*n) != expected.get(*n));
        assert!(
            *found == expected,
            "seed {seed}: {differs:?} of {}: {:?}",
            found.len(),
            differs.map(|n| found.get(n))
        );
    }
}

#[test]
fn what_the_next_commit_puts_into_a_new_directory_is_there_after_a_power_failure() {
    for seed in 0..40 {
        let machine = machine(FsKind::Ext4);
        commit(&machine, |t, dir| t.mkdir(dir, b"d", 0o755, ME).map(drop));
        commit(&machine, |t, dir| {
            let (d, _) = t.lookup(dir, b"d")?.expect("was committed");
            let (node, _) = t.create(d, b"f", 0o644, ME)?;
            write(t, node, b"contents", 0)
        });
        machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
        recover(&machine);
        let tree = machine.tree(0);
        assert_eq!(tree.get("w/d/f").map(|f| &*f.content), Some(&b"contents"[..]), "seed {seed}");
    }
}

#[test]
fn a_time_that_an_outsider_set_survives_a_redo() {
    let machine = machine(FsKind::Ext4);
    commit(&machine, |t, dir| {
        let (node, _) = t.lookup(dir, b"patched")?.expect("is there");
        write(t, node, b"ours", 100)
    });
    let ours = mtime(&machine, "w/patched");
    let os = machine.outsider("touch -d");
    let file = os.open_path(0, "w/patched", Open::Path).expect("is there");
    os.utimens(&file, None, Some(OLD_TIME)).expect("works");
    drop(file);
    machine.settle();
    machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
    recover(&machine);
    assert_ne!(ours, OLD_TIME);
    assert_eq!(mtime(&machine, "w/patched"), OLD_TIME);
}

#[test]
fn a_redo_gives_a_file_the_time_that_the_transaction_saw() {
    for crash in [Crash::NothingUnsynced, Crash::Everything] {
        let machine = machine(FsKind::Ext4);
        let mut seen = None;
        commit(&machine, |t, dir| {
            let (node, _) = t.lookup(dir, b"patched")?.expect("is there");
            write(t, node, b"ours", 100)?;
            seen = Some(t.getattr(node)?.mtime);
            Ok(())
        });
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(1));
        recover(&machine);
        assert_eq!(Some(mtime(&machine, "w/patched")), seen, "{crash:?}");
    }
}
