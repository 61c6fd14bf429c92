//! Records that a recovery can't publish to their end: they keep back their own objects, and no others.

use super::apart::{false_hit, name};
use super::world::*;
use crate::domain::Domain;
use crate::outcome::{CommitError, Committed, Durability, Options, Party, Recovered};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Limit, Open, Os, Rename, SetXattr};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, Machine, Plant, SimOs};

/// Caller with all rights.
pub(super) const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };

/// A change below `w` by the verbs.
pub(super) fn change(
    domain: &Arc<Domain<SimOs>>,
    what: impl FnOnce(&mut Transaction<SimOs>, Node) -> Result<(), crate::outcome::VerbError>,
) -> Result<Committed, CommitError> {
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], Options::default())
        .map_err(crate::commit::aborted)?;
    let root = t.root(0);
    let done = t.lookup(root, b"w").and_then(|w| what(&mut t, w.expect("it is there").0));
    match done {
        Ok(()) => t.commit(),
        Err(e) => {
            t.abort();
            Err(crate::commit::aborted(e))
        }
    }
}

pub(super) fn make(domain: &Arc<Domain<SimOs>>, name: &[u8]) -> Result<Committed, CommitError> {
    change(domain, |t, w| {
        let (node, _) = t.create(w, name, 0o644, ROOT)?;
        t.open(node, Access::Write, false)?;
        t.write_at(node, name, 0)?;
        t.close(node);
        Ok(())
    })
}

fn chmod(domain: &Arc<Domain<SimOs>>, name: &[u8], mode: u32) -> Result<Committed, CommitError> {
    change(domain, |t, w| {
        let (node, _) = t.lookup(w, name)?.expect("it is there");
        t.setattr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
    })
}

/// Every chown fails from now on.
fn no_chown(machine: &Machine) {
    let effect = Effect::Fail(Errno::IO);
    machine.fault(Fault { process: None, call: Some(Call::Chown), skip: 0, times: u64::MAX, effect });
}

/// A command of systx: it opens the domain and tries to finish what is in flight.
fn inside<T>(machine: &Machine, name: &str, work: impl FnOnce(&Arc<Domain<SimOs>>, Recovered) -> T) -> T {
    let os = machine.spawn(name);
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_in_flight().expect("recovers"));
        work(&domain, recovered)
    });
    os.exit();
    done.expect("not killed")
}

/// The transaction is committed, and then the power fails.
fn committed_and_lost(crash: Crash, seed: u64) -> Machine {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let told = run_process(&os, || transact(&os, Kind::Inline, Durability::Durable)).expect("not killed");
    assert!(told.expect("commits").pending.is_none());
    machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
    machine
}

/// A recovery at boot, before the login that brings the key.
#[test]
fn names_in_a_directory_without_its_key_wait_for_it() {
    let machine = machine(FsKind::Ext4);
    machine
        .plant(0, &[("w/moves", Plant::File(b"moves")), ("w/goes", Plant::File(b"goes"))])
        .expect("planting");
    machine.settle();
    inside(&machine, "owner", |domain, _| {
        change(domain, |t, w| {
            t.unlink(w, b"goes")?;
            t.rename(w, b"moves", w, b"key-moved", Rename::Replace)
        })
        .expect("commits")
    });
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    machine.lock_names(0, "w", true);
    inside(&machine, "boot", |_, recovered| {
        assert_eq!(recovered.unfinished.len(), 1, "not finished without the key: {recovered:?}");
    });
    machine.lock_names(0, "w", false);
    let there = |names: [&str; 3]| names.map(|name| machine.look(0, &format!("w/{name}")).is_some());
    assert_eq!(there(["goes", "moves", "key-moved"]), [true, true, false]);
    inside(&machine, "login", |domain, recovered| {
        assert!(recovered.unfinished.is_empty() && recovered.conflict_copies.is_empty(), "{recovered:?}");
        assert!(domain.kept_aside().expect("readable").is_empty());
    });
    assert_eq!(there(["goes", "moves", "key-moved"]), [false, false, true]);
}

#[test]
fn a_record_that_cant_be_redone_keeps_back_only_what_it_changes() {
    let after = {
        let machine = machine(FsKind::Ext4);
        let os = machine.spawn("owner");
        run_process(&os, || transact(&os, Kind::Inline, Durability::Durable))
            .expect("not killed")
            .expect("commits");
        public(&machine)
    };
    let mut stuck = 0;
    for seed in 0..40 {
        let crash = if seed == 0 { Crash::NothingUnsynced } else { Crash::Random };
        let machine = committed_and_lost(crash, seed);
        no_chown(&machine);
        let kept = inside(&machine, "first", |domain, recovered| {
            let told = &recovered.unfinished;
            let kept = !told.is_empty();
            assert!(told.iter().all(|why| why.contains("attr")), "{told:?}");
            make(domain, b"unrelated").expect("what it doesn't change is free");
            chmod(domain, b"untouched", 0o600).expect("so is this");
            if kept {
                let slot = domain.table.slots().in_flight().next().expect("has one").expect("sound");
                let asked = name(&domain.os, &slot.info.footprint, false_hit);
                let looked = change(domain, |t, _| t.lookup(t.root(0), asked.as_bytes()).map(drop));
                looked.expect("what its filter holds falsely is free, too");
                match chmod(domain, b"attr", 0o600) {
                    Err(CommitError::Conflict(c)) => {
                        assert!(matches!(c.with, Party::Transaction { .. }), "{c}")
                    }
                    other => panic!("what it changes is not: {other:?}"),
                }
            }
            kept
        });
        stuck += u32::from(kept);
        // Another process, another reboot: no better.
        inside(&machine, "second", |_, recovered| assert_eq!(!recovered.unfinished.is_empty(), kept));
        machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
        inside(&machine, "third", |domain, _| {
            make(domain, b"more").expect("what it doesn't change is free");
        });
        machine.clear_plans();
        inside(&machine, "fourth", |domain, recovered| {
            assert!(recovered.unfinished.is_empty(), "{recovered:?}");
            let left = domain.transactions().expect("readable");
            assert!(left.iter().all(|t| t.state.is_none()), "{left:?}");
            assert!(domain.kept_aside().expect("readable").is_empty());
            chmod(domain, b"attr", 0o4755).expect("it is free again");
        });
        let tree = public(&machine);
        for (path, leaf) in &after {
            let same = tree.get(path).is_some_and(|l| (&l.content, l.size) == (&leaf.content, leaf.size));
            assert!(same, "seed {seed}: {path}");
        }
        assert_eq!((tree["w/attr"].mode, tree["w/attr"].owner), (0o4755, (5, 6)), "seed {seed}");
        assert_eq!((tree["w/untouched"].mode, &tree["w/more"].content[..]), (0o600, &b"more"[..]));
    }
    assert!(stuck > 0, "never kept back");
}

#[test]
fn what_builds_on_a_record_that_cant_be_redone_waits_for_it() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        change(&domain, |t, w| {
            let (node, _) = t.lookup(w, b"attr")?.expect("it is there");
            t.setattr(node, &SetAttr { uid: Some(7), gid: Some(7), ..SetAttr::default() }).map(drop)
        })
        .expect("commits");
        chmod(&domain, b"attr", 0o600).expect("commits");
        chmod(&domain, b"untouched", 0o640).expect("commits");
    })
    .expect("not killed");
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    no_chown(&machine);
    inside(&machine, "first", |_, recovered| {
        assert_eq!((recovered.unfinished.len(), recovered.finished), (2, 1), "{recovered:?}");
    });
    let tree = public(&machine);
    assert_eq!((tree["w/attr"].mode, tree["w/attr"].owner), (0o644, (0, 0)));
    assert_eq!(tree["w/untouched"].mode, 0o640);
    machine.clear_plans();
    inside(&machine, "second", |_, recovered| {
        assert_eq!((recovered.unfinished.len(), recovered.finished), (0, 2), "{recovered:?}");
    });
    let tree = public(&machine);
    assert_eq!((tree["w/attr"].mode, tree["w/attr"].owner), (0o600, (7, 7)));
}

/// Attributes have no mark of whose they are: after a power loss an earlier record finds what a later one has set.
#[test]
fn what_a_later_record_has_set_is_not_told_as_somebody_elses() {
    for crash in Crash::WORST {
        let machine = machine(FsKind::Ext4);
        inside(&machine, "owner", |domain, _| {
            make(domain, b"kept").expect("commits");
            make(domain, b"gone").expect("commits");
            for mode in [0o600, 0o640, 0o400] {
                chmod(domain, b"kept", mode).expect("commits");
                chmod(domain, b"gone", mode).expect("commits");
            }
            change(domain, |t, w| t.unlink(w, b"gone").map(drop)).expect("commits");
        });
        let before = public(&machine);
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(1));
        inside(&machine, "next", |_, recovered| {
            assert!(recovered.conflict_copies.is_empty(), "{crash:?} {recovered:?}")
        });
        assert_eq!(public(&machine), before, "{crash:?}");
    }
}

/// What stands between its two names when the file system goes, and no record says where it belongs. It is no matter how
/// old it is: some came when the transaction had begun to stage.
#[test]
fn what_a_commit_without_durability_was_moving_is_not_deleted() {
    // In the shared staging directory, and in one of its own.
    for count in [4, 20] {
        let start = machine(FsKind::Ext4);
        let names: Vec<String> = (0..count).map(|n| format!("file{n}")).collect();
        let (early, late) = names.split_at(count / 2);
        start.plant(0, &[("w/to", Plant::Dir), ("w/old", Plant::File(b"old"))]).expect("planting");
        for name in early {
            start.plant(0, &[(&format!("w/{name}"), Plant::File(b"mine"))]).expect("planting");
        }
        start.settle();
        start.advance_ns(1_000_000_000);
        let mut kept = 0;
        for point in 0.. {
            let cut = copy(&start);
            let (os, outsider) = (cut.spawn("owner"), cut.spawn("outsider"));
            let came = AtomicBool::new(false);
            cut.kill_at(&os, point);
            let ended = run_process(&os, || {
                let domain = open(&os).expect("opens");
                let options = Options { durability: Durability::None, ..Options::default() };
                let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
                let w = t.lookup(t.root(0), b"w").expect("looks").expect("is there").0;
                let to = t.lookup(w, b"to").expect("looks").expect("is there").0;
                let me = Caller { uid: 0, gid: 0, umask: 0o022 };
                let (new, _) = t.create(w, b"new", 0o644, me).expect("makes");
                t.write_at(new, b"new", 0).expect("writes");
                t.rename(w, b"new", w, b"old", Rename::Replace).expect("replaces");
                let theirs = outsider.open(&outsider.root(0), b"w", Open::Directory).expect("opens");
                for name in late {
                    let file = outsider.create(&theirs, name.as_bytes(), 0o644).expect("makes");
                    outsider.pwrite(&file, b"mine", 0).expect("writes");
                }
                came.store(true, Ordering::Relaxed);
                for name in names.iter().map(|name| name.as_bytes()) {
                    t.rename(w, name, to, name, Rename::NoReplace).expect("moves");
                }
                t.commit().expect("commits");
            });
            cut.clear_plans();
            cut.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(point));
            let aside = inside(&cut, "boot", |domain, _| domain.kept_aside().expect("readable").len());
            let there = |name: &&String| {
                ["w/", "w/to/"].iter().any(|dir| cut.look(0, &format!("{dir}{name}")).is_some())
            };
            let found = names.iter().filter(there).count() + aside;
            let wanted = if came.load(Ordering::Relaxed) { count } else { early.len() };
            assert!(found >= wanted, "cut off before call {point}: one of {count} is nowhere: {found}");
            assert!(found <= count, "cut off before call {point}: what was to go is kept");
            kept += aside;
            if ended.is_ok() {
                break;
            }
        }
        assert!(kept > 0, "something is kept of {count}");
    }
}

/// Only the table knows such a commit, and a table is given up when a sync of the log has failed.
#[test]
fn what_publishes_without_a_record_is_finished_beside_a_closed_log() {
    let start = machine(FsKind::Ext4);
    let names: [&[u8]; 3] = [b"one", b"two", b"three"];
    let mut half = 0;
    for point in 0.. {
        let cut = copy(&start);
        // Its index is free afterwards, and that of the killed one is not what the next process gets.
        let first = cut.spawn("first");
        let held = run_process(&first, || open(&first).expect("opens")).expect("lives");
        let os = cut.spawn("owner");
        cut.kill_at(&os, point);
        let ended = run_process(&os, || {
            let domain = open(&os).expect("opens");
            drop(held);
            first.exit();
            let options = Options { durability: Durability::None, ..Options::default() };
            let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
            let w = t.lookup(t.root(0), b"w").expect("looks").expect("is there").0;
            let dst = t.lookup(w, b"dst").expect("looks").expect("is there").0;
            for name in names {
                t.create(dst, name, 0o644, ROOT).expect("makes");
            }
            t.commit().expect("commits");
        });
        cut.clear_plans();
        cut.fault(Fault::fail(Call::Fdatasync, Errno::IO));
        let another = cut.spawn("another");
        let closed =
            run_process(&another, || chmod(&open(&another).expect("opens"), b"attr", 0o600).is_err());
        another.exit();
        cut.clear_plans();
        assert_eq!(closed, Ok(true), "the log is closed");
        let there = || {
            let name = |name: &[u8]| format!("w/dst/{}", String::from_utf8_lossy(name));
            names.iter().filter(|n| cut.look(0, &name(n)).is_some()).count()
        };
        half += usize::from((1..names.len()).contains(&there()));
        for _ in 0..2 {
            inside(&cut, "recovery", |_, _| ());
        }
        let found = there();
        assert!(found == 0 || found == names.len(), "killed at call {point}: half of it: {found}");
        inside(&cut, "later", |domain, _| {
            drop(chmod(domain, b"attr", 0o640).expect("the log is open again"))
        });
        if ended.is_ok() {
            break;
        }
    }
    assert!(half > 0, "killed while it publishes");
}

/// A recovery by root without CAP_CHOWN, or under a limit on the size of files. Any other refusal is about the object: it
/// is reported, and does not keep the record.
#[test]
fn what_a_recovery_with_fewer_rights_is_refused_waits_for_one_with_all() {
    let start = machine(FsKind::Ext4);
    start.plant(0, &[("w/f", Plant::File(b"f"))]).expect("planting");
    start.settle();
    // A record each: an owner, and an attribute that root alone may set.
    let (owner, trusted) = (start.fork(), start.fork());
    for (machine, is_owner) in [(&owner, true), (&trusted, false)] {
        inside(machine, "owner", |domain, _| {
            let done = change(domain, |t, w| {
                let (f, _) = t.lookup(w, b"f")?.expect("it is there");
                match is_owner {
                    true => {
                        let set = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
                        t.setattr(f, &set).map(drop)
                    }
                    false => t.setxattr(f, b"trusted.k", b"v", SetXattr::Any),
                }
            });
            done.expect("commits");
        });
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    }
    use Limit::{Rights, Size, Trusted};
    for (start, call, errno, by, waits) in [
        (&owner, Call::Chown, Errno::PERM, Rights, true),
        (&owner, Call::Chown, Errno::ACCESS, Rights, true),
        (&owner, Call::Chown, Errno::FBIG, Size, true),
        (&owner, Call::Chown, Errno::PERM, Size, false),
        (&owner, Call::Chown, Errno::FBIG, Rights, false),
        (&owner, Call::Chown, Errno::PERM, Trusted, false),
        (&trusted, Call::SetXattr, Errno::PERM, Trusted, true),
        (&trusted, Call::SetXattr, Errno::PERM, Rights, true),
        (&trusted, Call::SetXattr, Errno::PERM, Size, false),
    ] {
        let machine = start.fork();
        let effect = Effect::Fail(errno);
        machine.fault(Fault { process: None, call: Some(call), skip: 0, times: u64::MAX, effect });
        let os = machine.spawn_limited("limited", &[by]);
        let told = run_process(&os, || open(&os).expect("opens").recovered.clone()).expect("not killed");
        os.exit();
        machine.clear_plans();
        inside(&machine, "root", |_, recovered| {
            assert!(recovered.unfinished.is_empty(), "{recovered:?}");
        });
        let f = machine.look(0, "w/f").expect("is there");
        let is_set = f.owner == (5, 6) || !f.xattrs.is_empty();
        let what = format!("{call:?}, {errno}, without {by:?}");
        assert_eq!(is_set, waits, "{what}: lost, or kept for ever, {told:?}");
        assert_eq!(told.conflict_copies.is_empty(), waits, "{what}: {told:?}");
    }
}
