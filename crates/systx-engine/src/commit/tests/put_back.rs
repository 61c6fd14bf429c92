//! An outsider puts back exactly the attributes that a commit has changed, and then the power goes, or its
//! owner is killed.

use super::stuck::change;
use super::world::*;
use crate::outcome::Verb;
use crate::transaction::{Access, Node, SetAttr, SetTime, Transaction};
use systx_os::{FsKind, Open, Os, SetXattr, Timestamp};
use systx_sim::machine::{run_process, Crash, Look, Machine, Plant, SimOs};

const BYTES: &[u8] = b"bytes that are read";

fn world(kind: FsKind) -> Machine {
    let machine = machine(kind);
    machine
        .plant(0, &[("w/f", Plant::FileMode(BYTES, 0o644)), ("w/e", Plant::File(b"e"))])
        .expect("planting");
    machine.settle();
    machine.advance_ns(120_000_000_000);
    machine
}

/// Mode, owner, an extended attribute and times of one file; the mode of another.
fn set(t: &mut Transaction<SimOs>, w: Node) -> Verb<()> {
    let f = t.lookup(w, b"f")?.expect("it is there").0;
    t.setxattr(f, b"user.k", b"ours", SetXattr::Any)?;
    let mtime = Some(SetTime::At(Timestamp { sec: 7, nsec: 7 }));
    t.setattr(f, &SetAttr { uid: Some(5), gid: Some(6), mode: Some(0o600), mtime, ..SetAttr::default() })?;
    let e = t.lookup(w, b"e")?.expect("it is there").0;
    t.setattr(e, &SetAttr { mode: Some(0o400), ..SetAttr::default() }).map(drop)
}

fn commit(os: &SimOs) {
    let done = change(&open(os).expect("opens"), set).expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
}

fn look(machine: &Machine) -> [Look; 2] {
    ["w/f", "w/e"].map(|path| machine.look(0, path).expect("is there"))
}

fn mtime(machine: &Machine) -> Timestamp {
    let os = machine.outsider("looks");
    os.stat(&os.open_path(0, "w/f", Open::Path).expect("opens")).expect("is there").mtime
}

/// All as it was, to the last time.
fn put_back(machine: &Machine, was: &[Look; 2], mtime: Timestamp) {
    let os = machine.outsider("outsider");
    let f = os.open_path(0, "w/f", Open::Path).expect("opens");
    os.removexattr(&f, b"user.k").expect("removes");
    os.chown(&f, was[0].owner.0, was[0].owner.1).expect("changes");
    os.chmod(&f, was[0].mode & 0o7777).expect("changes");
    os.utimens(&f, None, Some(mtime)).expect("changes");
    os.chmod(&os.open_path(0, "w/e", Open::Path).expect("opens"), was[1].mode & 0o7777).expect("changes");
}

fn sync(machine: &Machine) {
    let os = machine.outsider("syncs");
    os.syncfs(&os.root(0)).expect("syncs");
    os.exit();
}

fn recover(machine: &Machine, what: &str) {
    let os = machine.spawn("recovery");
    let left = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let told = domain.recovered.clone();
        assert!(told.unfinished.is_empty() && told.conflict_copies.is_empty(), "{what}: {told:?}");
        domain.finish_dead().expect("recovers");
        domain.checkpoint().expect("is made");
        domain.os.read_dir(&domain.area.tx).expect("readable")
    });
    os.exit();
    assert!(left.expect("lives").is_empty(), "{what}: nothing is left in tx/");
}

fn crashes() -> impl Iterator<Item = (u64, Crash)> {
    Crash::WORST.into_iter().chain([Crash::Random; 12]).enumerate().map(|(seed, crash)| (seed as u64, crash))
}

#[test]
fn what_an_outsider_has_put_back_and_synced_is_never_set_again() {
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let machine = world(kind);
        let (was, time) = (look(&machine), mtime(&machine));
        let os = machine.spawn("owner");
        run_process(&os, || commit(&os)).expect("lives");
        os.exit();
        put_back(&machine, &was, time);
        sync(&machine);
        for (seed, crash) in crashes() {
            let lost = copy(&machine);
            lost.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            let what = format!("{kind:?}, {crash:?} {seed}");
            for _ in 0..2 {
                recover(&lost, &what);
                assert_eq!(look(&lost), was, "{what}: put back, synced, and undone by a redo");
                assert_eq!(mtime(&lost), time, "{what}: put back, synced, and undone by a redo");
            }
        }
    }
}

/// Any part of it may be on the disk; no other process is there.
#[test]
fn what_nobody_has_put_back_is_set_again_after_a_power_loss_at_any_call() {
    for (n, kind) in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs].into_iter().enumerate() {
        let world = world(kind);
        let was = look(&world);
        let after = {
            let machine = copy(&world);
            let os = machine.spawn("owner");
            run_process(&os, || commit(&os)).expect("lives");
            look(&machine)
        };
        // A third of the calls of each: of all together, each.
        for point in (n as u64..).step_by(3) {
            let mut told = false;
            for seed in 0..3 {
                let machine = copy(&world);
                let os = machine.spawn("owner");
                machine.kill_at(&os, point);
                told = run_process(&os, || commit(&os)).is_ok();
                machine.clear_plans();
                machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(seed));
                let what = format!("{kind:?}, power lost at call {point}, {seed}");
                recover(&machine, &what);
                let is = look(&machine);
                assert!(is == after || (is == was && !told), "{what}: lost, or half of it is there: {is:#?}");
            }
            if told {
                break;
            }
        }
    }
}

/// The owner is killed behind its last step; an outsider puts all back before another process goes on.
#[test]
fn what_was_put_back_before_a_helper_came_stays() {
    let world = world(FsKind::Ext4);
    let (was, time) = (look(&world), mtime(&world));
    let mut behind = 0;
    for point in 0.. {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let whole = run_process(&os, || commit(&os)).is_ok();
        machine.clear_plans();
        let marks = machine.tree_of(0, |_| true);
        let marked = marks.keys().any(|path| path.starts_with(".systx/tx/") && path.contains('-'));
        if marked {
            behind += u32::from(!whole);
            put_back(&machine, &was, time);
            recover(&machine, &format!("killed at call {point}"));
            assert_eq!(look(&machine), was, "killed at call {point}: put back, and undone by the helper");
        }
        if whole {
            break;
        }
    }
    assert!(behind > 0, "some kills are between the mark and the end");
}

/// The bytes are lost and written again, which takes the capability away: that is not an outsider's doing.
#[test]
fn a_capability_is_given_again_to_bytes_that_are_written_again() {
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let machine = world(kind);
        let os = machine.spawn("owner");
        let work = |t: &mut Transaction<SimOs>, w: Node| {
            let f = t.lookup(w, b"f")?.expect("it is there").0;
            t.open(f, Access::Write, false)?;
            t.write_at(f, b"BYTES", 0)?;
            t.close(f);
            t.setxattr(f, b"security.capability", b"power", SetXattr::Any)
        };
        run_process(&os, || change(&open(&os).expect("opens"), work)).expect("lives").expect("commits");
        os.exit();
        for (seed, crash) in crashes() {
            let lost = copy(&machine);
            lost.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            recover(&lost, &format!("{kind:?}, {crash:?} {seed}"));
            let f = lost.look(0, "w/f").expect("is there");
            assert_eq!(&f.content[..5], b"BYTES", "{kind:?}, {crash:?} {seed}");
            let name = b"security.capability".to_vec();
            assert_eq!(
                f.xattrs.get(&name).map(|v| &v[..]),
                Some(&b"power"[..]),
                "{kind:?}, {crash:?} {seed}: {f:?}"
            );
        }
    }
}

/// Another process puts back the bytes that a commit has changed; then a commit gives the file a set-id bit.
#[test]
fn power_over_bytes_that_an_outsider_has_put_back_is_not_taken_by_the_redo_of_a_record_before() {
    const OURS: &[u8] = b"other bytes!";
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        // Not so late that a commit makes a checkpoint.
        let machine = machine(kind);
        machine.plant(0, &[("w/f", Plant::FileMode(BYTES, 0o644))]).expect("planting");
        machine.settle();
        let os = machine.spawn("owner");
        run_process(&os, || {
            super::redone::write(&os, b"f", 0, OURS).expect("commits");
            let other = machine.outsider("other");
            let f = other.open_path(0, "w/f", Open::ReadWrite).expect("opens");
            other.pwrite(&f, &BYTES[..OURS.len()], 0).expect("writes");
            other.fsync(&f).expect("syncs");
            drop(f);
            let power = |t: &mut Transaction<SimOs>, w| {
                let f = t.lookup(w, b"f")?.expect("it is there").0;
                t.setattr(f, &SetAttr { mode: Some(0o4755), ..SetAttr::default() }).map(drop)
            };
            change(&open(&os).expect("opens"), power).expect("commits");
        })
        .expect("lives");
        os.exit();
        for (seed, crash) in crashes() {
            let lost = copy(&machine);
            lost.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            recover(&lost, &format!("{kind:?}, {crash:?}"));
            let f = lost.look(0, "w/f").expect("is there");
            let is = (f.content.as_slice(), f.mode & 0o7777);
            assert_eq!(is, (BYTES, 0o4755), "{kind:?}, {crash:?}: undone by an earlier record");
        }
    }
}
