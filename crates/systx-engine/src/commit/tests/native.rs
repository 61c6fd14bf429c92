//! Directories that processes share: what they make there by themselves is part of the transaction as what verbs make.

use super::stuck::{change, ROOT};
use super::world::*;
use crate::outcome::{Options, VerbError};
use crate::transaction::{Node, Transaction};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Os, Rename};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimFd, SimOs};

fn begin(os: &SimOs) -> (Transaction<SimOs>, Node) {
    let domain = open(os).expect("opens");
    let mut t = Transaction::begin(os.clone(), vec![domain], Options::default()).expect("begins");
    let root = t.root(0);
    let (w, _) = t.lookup(root, b"w").expect("works").expect("is there");
    (t, w)
}

/// Makes a directory `n`, and shares it.
fn shared(t: &mut Transaction<SimOs>, w: Node) -> Result<(Node, Arc<SimFd>), VerbError> {
    let (n, _) = t.mkdir(w, b"n", 0o755, ROOT)?;
    Ok((n, t.share(n)?.expect("a new directory")))
}

/// Makes that, and a file `inner/file` in it as a process does that asks no verb.
fn share(os: &SimOs, t: &mut Transaction<SimOs>, w: Node) -> Result<Node, VerbError> {
    let (n, dir) = shared(t, w)?;
    os.mkdir(&dir, b"inner", 0o755)?;
    let inner = os.open(&dir, b"inner", systx_os::Open::Path)?;
    os.pwrite(&os.create(&inner, b"file", 0o644)?, b"bytes", 0)?;
    Ok(n)
}

fn file(machine: &Machine) -> Option<Vec<u8>> {
    machine.look(0, "w/n/inner/file").map(|found| found.content)
}

/// Of a commit that was killed, or the machine with it, at any call.
#[test]
fn what_processes_make_by_themselves_is_there_with_the_commit_or_not_at_all() {
    for kind in [FsKind::Ext4, FsKind::Ext4NoJournal, FsKind::Xfs, FsKind::Btrfs] {
        let start = machine(kind);
        let mut seen = [0; 2];
        for (at, crash) in (0..).zip([Crash::NothingUnsynced, Crash::Random].into_iter().cycle()) {
            let machine = start.fork();
            let os = machine.spawn("owner");
            machine.kill_at(&os, at);
            let work = || change(&open(&os).expect("opens"), |t, w| share(&os, t, w).map(|n| t.leave(n)));
            let done = run_process(&os, work);
            machine.clear_plans();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(at));
            let os = machine.spawn("boot");
            run_process(&os, || drop(open(&os).expect("opens"))).expect("not killed");
            let is_there = machine.look(0, "w/n").is_some();
            let expected = is_there.then(|| b"bytes".to_vec());
            assert_eq!(file(&machine), expected, "{kind:?}, {crash:?} before call {at}: contents lost");
            seen[usize::from(is_there)] += 1;
            if let Ok(done) = done {
                done.expect("commits");
                // There names may be lost, whoever makes them (docs/limits.md).
                assert!(is_there || kind == FsKind::Ext4NoJournal, "{kind:?}: a commit is lost");
                break;
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{kind:?}: both outcomes are seen: {seen:?}");
    }
}

#[test]
fn verbs_find_what_processes_make_move_and_take_by_themselves() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    run_process(&os, || {
        let (mut t, w) = begin(&os);
        let (n, dir) = shared(&mut t, w).expect("works");
        assert!(t.is_shared(n) && t.share(n).expect("works").is_none());
        assert_eq!(t.lookup(n, b"a"), Ok(None));
        os.create(&dir, b"a", 0o644).expect("works");
        let (a, _) = t.lookup(n, b"a").expect("works").expect("not found, although it is there");
        os.rename((&dir, b"a"), (&dir, b"b"), Rename::NoReplace).expect("works");
        assert_eq!(t.lookup(n, b"a"), Ok(None));
        let (b, _) = t.lookup(n, b"b").expect("works").expect("is there");
        assert_eq!(b, a, "the same object");
        // Moved out by a verb, as by a process that asks one.
        t.rename(n, b"b", w, b"out", Rename::NoReplace).expect("works");
        assert_eq!(os.stat_at(&dir, b"b"), Err(Errno::NOENT));
        os.mkdir(&dir, b"c", 0o755).expect("works");
        assert_eq!(t.rmdir(w, b"n"), Err(Errno::NOTEMPTY.into()));
        assert_eq!(t.savepoint(), Err(Errno::OPNOTSUPP.into()));
        os.rmdir(&dir, b"c").expect("works");
        assert_eq!(t.rmdir(w, b"n"), Ok(()));
        t.commit().expect("commits");
    })
    .expect("not killed");
    assert!(machine.look(0, "w/out").is_some() && machine.look(0, "w/n").is_none());
}

#[test]
fn no_object_of_the_committed_tree_comes_into_a_shared_directory() {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, &[("w/old", Plant::File(b"old")), ("w/d", Plant::Dir)]).expect("planting");
    machine.settle();
    let os = machine.spawn("owner");
    run_process(&os, || {
        let (mut t, w) = begin(&os);
        let n = share(&os, &mut t, w).expect("works");
        let (old, _) = t.lookup(w, b"old").expect("works").expect("is there");
        let refused = Err(Errno::XDEV.into());
        assert_eq!(t.rename(w, b"old", n, b"old", Rename::Replace), refused, "one who sees it only by verbs");
        assert_eq!(t.link(old, n, b"old").map(drop), refused);
        assert_eq!(t.rename(w, b"d", n, b"inner", Rename::Exchange), refused);
        // Nor in a new directory, which would be moved there.
        let (m, _) = t.mkdir(w, b"m", 0o755, ROOT).expect("works");
        t.rename(w, b"old", m, b"old", Rename::Replace).expect("works");
        assert_eq!(t.rename(w, b"m", n, b"m", Rename::Replace), refused);
        t.leave(n);
        assert_eq!(t.rename(w, b"m", n, b"m", Rename::Replace), Ok(()));
        t.commit().expect("commits");
    })
    .expect("not killed");
    assert_eq!(machine.look(0, "w/n/m/old").expect("is there").content, b"old");
    assert_eq!(file(&machine), Some(b"bytes".to_vec()));
}

/// A transaction that stays after a conflict has all that was made.
#[test]
fn what_processes_made_by_themselves_is_listed_also_of_a_commit_that_failed() {
    let machine = machine(FsKind::Ext4);
    let (os, other) = (machine.spawn("owner"), machine.spawn("other"));
    run_process(&os, || {
        let (mut t, w) = begin(&os);
        assert_eq!(t.lookup(w, b"new"), Ok(None));
        let n = share(&os, &mut t, w).expect("works");
        t.lookup(n, b"inner").expect("works");
        let paths = |t: &mut Transaction<SimOs>| {
            let changes = t.changes().expect("works");
            let paths = changes.into_iter().filter_map(|change| change.after).map(|after| after.path);
            paths.map(|path| String::from_utf8_lossy(&path).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&mut t), ["w/n", "w/n/inner", "w/n/inner/file"]);
        t.leave(n);
        run_process(&other, || {
            let w = other.open_path(0, "w", systx_os::Open::Directory).expect("opens");
            other.create(&w, b"new", 0o644).expect("creates");
        })
        .expect("not killed");
        let (_, left) = t.commit_or_stay().expect_err("a conflict");
        assert_eq!(paths(&mut left.expect("it stays")), ["w/n", "w/n/inner", "w/n/inner/file"]);
    })
    .expect("not killed");
}

/// A directory that was above another one comes to be below it.
#[test]
fn directories_that_processes_turn_upside_down_are_found_where_they_are() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    run_process(&os, || {
        let (mut t, w) = begin(&os);
        let (n, dir) = shared(&mut t, w).expect("works");
        let open =
            |at: &<SimOs as Os>::Fd, name: &[u8]| os.open(at, name, systx_os::Open::Path).expect("opens");
        os.mkdir(&dir, b"a", 0o755).expect("works");
        let a_itself = open(&dir, b"a");
        os.mkdir(&a_itself, b"b", 0o755).expect("works");
        let (a, _) = t.lookup(n, b"a").expect("works").expect("is there");
        let (b, _) = t.lookup(a, b"b").expect("works").expect("is there");
        // It is open from here on, as a working directory is.
        assert_eq!(t.lookup(b, b"none"), Ok(None));
        os.rename((&a_itself, b"b"), (&dir, b"x"), Rename::NoReplace).expect("works");
        os.rename((&dir, b"a"), (&open(&dir, b"x"), b"a"), Rename::NoReplace).expect("works");
        assert_eq!(t.lookup(b, b"a").expect("works").map(|found| found.0), Some(a));
        t.leave(n);
        assert_eq!(t.lookup(n, b"x").expect("works").map(|found| found.0), Some(b));
        assert_eq!(t.changes().expect("works").len(), 3);
        t.commit().expect("commits");
    })
    .expect("not killed");
    assert!(machine.look(0, "w/n/x/a").is_some());
}
