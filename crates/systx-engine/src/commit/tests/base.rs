//! The base of a durable commit (C10): outsiders have changed something and synced nothing, and then the
//! power goes.

use super::stuck::change;
use super::world::*;
use crate::domain::Domain;
use crate::outcome::{Committed, Verb};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{FsKind, Open, Os, Rename, SetXattr, Timestamp};
use systx_sim::machine::{run_process, Call, Crash, FsSpec, Look, Machine, Plant, SimOs};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const SECTOR: usize = 512;

/// A file with more than a sector.
fn long(byte: u8) -> Vec<u8> {
    vec![byte; 3 * SECTOR + 7]
}

/// Everything in it is on the disk, and known to be: it is older than the last checkpoint.
fn world(kind: FsKind) -> Machine {
    settled(machine(kind))
}

fn settled(machine: Machine) -> Machine {
    let (old, names) = (long(b'0'), ["patched", "grown", "removed", "moved", "replaced", "linked", "attr"]);
    for name in names {
        machine.plant(0, &[(&format!("w/x{name}"), Plant::File(&old))]).expect("planting");
    }
    machine.plant(0, &[("w/xgone", Plant::File(&old)), ("mine", Plant::Dir)]).expect("planting");
    machine.advance_ns(120_000_000_000);
    within(&machine, |domain| domain.checkpoint().expect("is made"));
    // The log begins a segment, and syncs that.
    commits(&machine, |t, w| make(t, w, b"first"));
    machine.settle();
    // Not so much that a commit makes a checkpoint.
    machine.advance_ns(1_000_000_000);
    machine
}

fn within<T>(machine: &Machine, work: impl FnOnce(&Arc<Domain<SimOs>>) -> T) -> T {
    let os = machine.spawn("systx");
    let done = run_process(&os, || work(&open(&os).expect("opens"))).expect("lives");
    os.exit();
    done
}

/// An outsider, and its changes.
struct Outsider(SimOs);

impl Outsider {
    fn new(machine: &Machine) -> Outsider {
        Outsider(machine.outsider("outsider"))
    }

    fn write(&self, path: &str, at: usize, bytes: &[u8]) {
        let fd = self.0.open_path(0, path, Open::ReadWrite).expect("opens");
        self.0.pwrite(&fd, bytes, at as u64).expect("writes");
    }

    fn truncate(&self, path: &str, size: usize) {
        let fd = self.0.open_path(0, path, Open::ReadWrite).expect("opens");
        self.0.truncate(&fd, size as u64).expect("cuts");
    }

    fn chmod(&self, path: &str, mode: u32) {
        self.0.chmod(&self.0.open_path(0, path, Open::Path).expect("opens"), mode).expect("changes it");
    }

    /// Saves like an editor: a new file, renamed over the old one.
    fn save(&self, name: &str, bytes: &[u8]) {
        let (mine, w) = (self.dir("mine"), self.dir("w"));
        let fd = self.0.create(&mine, b"new", 0o644).expect("makes");
        self.0.pwrite(&fd, bytes, 0).expect("writes");
        self.0.rename((&mine, b"new"), (&w, name.as_bytes()), Rename::Replace).expect("renames");
    }

    fn dir(&self, path: &str) -> systx_sim::machine::SimFd {
        self.0.open_path(0, path, Open::Directory).expect("opens")
    }
}

type T = Transaction<SimOs>;

fn node(t: &mut T, w: Node, name: &[u8]) -> Verb<Node> {
    Ok(t.lookup(w, name)?.expect("it is there").0)
}

fn write(t: &mut T, w: Node, name: &[u8], at: usize, bytes: &[u8]) -> Verb<()> {
    let node = node(t, w, name)?;
    t.open(node, Access::Write, false)?;
    t.write_at(node, bytes, at as u64)?;
    t.close(node);
    Ok(())
}

fn append(t: &mut T, w: Node, name: &[u8], bytes: &[u8]) -> Verb<()> {
    let node = node(t, w, name)?;
    t.open(node, Access::Write, false)?;
    t.append(node, bytes)?;
    t.close(node);
    Ok(())
}

fn make(t: &mut T, dir: Node, name: &[u8]) -> Verb<()> {
    let (node, _) = t.create(dir, name, 0o644, ME)?;
    t.open(node, Access::Write, false)?;
    t.write_at(node, b"made", 0)?;
    t.close(node);
    Ok(())
}

fn chmod(t: &mut T, w: Node, name: &[u8], mode: u32) -> Verb<()> {
    let node = node(t, w, name)?;
    t.setattr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
}

fn commits(machine: &Machine, what: impl FnOnce(&mut T, Node) -> Verb<()>) -> Committed {
    let done = within(machine, |domain| change(domain, what)).expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    done
}

/// An outsider's act, with what it doesn't sync, and a commit on it.
struct Case {
    name: &'static str,
    outsider: fn(&Outsider),
    commit: fn(&mut T, Node) -> Verb<()>,
    /// The part of the tree that belongs to it.
    paths: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "written in place, then appended to",
        outsider: |o| {
            o.truncate("w/xgrown", 0);
            o.write("w/xgrown", 0, &long(b'1')[..2 * SECTOR + 9]);
        },
        commit: |t, w| append(t, w, b"xgrown", b"END"),
        paths: &["w/xgrown"],
    },
    Case {
        name: "written in place, then patched",
        outsider: |o| o.write("w/xpatched", 0, &long(b'1')),
        commit: |t, w| write(t, w, b"xpatched", SECTOR + 3, b"T"),
        paths: &["w/xpatched"],
    },
    Case {
        name: "saved, then removed",
        outsider: |o| o.save("xremoved", b"1"),
        commit: |t, w| t.unlink(w, b"xremoved"),
        paths: &["w/xremoved"],
    },
    Case {
        name: "saved, then renamed",
        outsider: |o| o.save("xmoved", &long(b'1')),
        commit: |t, w| t.rename(w, b"xmoved", w, b"xto", Rename::Replace),
        paths: &["w/xmoved", "w/xto"],
    },
    Case {
        name: "written in place, then renamed",
        outsider: |o| o.write("w/xmoved", 0, &long(b'1')),
        commit: |t, w| t.rename(w, b"xmoved", w, b"xto", Rename::Replace),
        paths: &["w/xmoved", "w/xto"],
    },
    Case {
        name: "saved, then replaced",
        outsider: |o| o.save("xreplaced", b"1"),
        commit: |t, w| {
            make(t, w, b"xnew")?;
            t.rename(w, b"xnew", w, b"xreplaced", Rename::Replace)
        },
        paths: &["w/xreplaced", "w/xnew"],
    },
    Case {
        name: "saved, then linked",
        outsider: |o| o.save("xlinked", &long(b'1')),
        commit: |t, w| {
            let node = node(t, w, b"xlinked")?;
            t.link(node, w, b"xlink").map(drop)
        },
        paths: &["w/xlinked", "w/xlink"],
    },
    Case {
        name: "other mode, then another one",
        outsider: |o| o.chmod("w/xattr", 0o640),
        commit: |t, w| chmod(t, w, b"xattr", 0o600),
        paths: &["w/xattr"],
    },
    Case {
        name: "an extended attribute, then another value",
        outsider: |o| {
            let fd = o.0.open_path(0, "w/xattr", Open::Path).expect("opens");
            o.0.setxattr(&fd, b"user.k", b"1", SetXattr::Any).expect("sets");
        },
        commit: |t, w| {
            let node = node(t, w, b"xattr")?;
            t.setxattr(node, b"user.k", b"T", SetXattr::Any)
        },
        paths: &["w/xattr"],
    },
    Case {
        name: "a new directory, then a file in it",
        outsider: |o| o.0.mkdir(&o.dir("w"), b"xdir", 0o755).expect("makes"),
        commit: |t, w| {
            let dir = node(t, w, b"xdir")?;
            make(t, dir, b"f")
        },
        paths: &["w/xdir/f"],
    },
    Case {
        name: "removed, then made anew",
        outsider: |o| o.0.unlink(&o.dir("w"), b"xgone").expect("removes"),
        commit: |t, w| make(t, w, b"xgone"),
        paths: &["w/xgone"],
    },
    Case {
        name: "a new directory, then renamed",
        outsider: |o| o.0.mkdir(&o.dir("w"), b"xdir", 0o755).expect("makes"),
        commit: |t, w| t.rename(w, b"xdir", w, b"xto", Rename::Replace),
        paths: &["w/xdir", "w/xto"],
    },
];

/// The tree without times: those of a publication are in order after a redo, those of an outsider are its
/// own.
fn seen(machine: &Machine, paths: &[&str]) -> Vec<Option<Look>> {
    paths.iter().map(|path| machine.look(0, path)).collect()
}

/// Recovers; what it says of displaced objects.
fn recovered(machine: &Machine) -> Vec<String> {
    let aside = within(machine, |domain| {
        assert_eq!(domain.recovered.unfinished, [""; 0]);
        domain.finish_dead().expect("recovers");
        domain.kept_aside().expect("readable")
    });
    machine.check().expect("consistent file system");
    aside.iter().map(|kept| format!("{kept:?}")).collect()
}

fn crashes() -> impl Iterator<Item = (u64, Crash)> {
    Crash::WORST.into_iter().chain([Crash::Random; 12]).enumerate().map(|(seed, crash)| (seed as u64, crash))
}

/// With the whole of what an outsider did unsynced. `owner`: who commits.
fn survives(start: &Machine, case: &Case, what: &str) {
    (case.outsider)(&Outsider::new(start));
    let other = copy(start);
    commits(&other, case.commit);
    let after = seen(&other, case.paths);
    assert_ne!(seen(start, case.paths), after, "it changes something");
    for (seed, crash) in crashes() {
        // A rename of Btrfs from one directory to another is two steps to the simulated one.
        if crash == Crash::Random && what.starts_with("Btrfs") {
            continue;
        }
        let lost = copy(&other);
        lost.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
        let aside = recovered(&lost);
        let at = format!("{what}, {}, {crash:?} {seed}", case.name);
        assert!(seen(&lost, case.paths) == after, "{at}: reported durable, and lost; {aside:?}");
    }
}

#[test]
fn a_durable_commit_stands_on_what_nobody_has_synced() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let start = world(kind);
        for case in CASES {
            survives(&copy(&start), case, &format!("{kind:?}"));
        }
    }
}

#[test]
fn what_was_told_of_a_commit_on_what_nobody_has_synced_is_true_if_the_power_goes_at_any_call() {
    let world = world(FsKind::Ext4);
    for (n, case) in CASES.iter().enumerate() {
        let start = copy(&world);
        (case.outsider)(&Outsider::new(&start));
        let other = copy(&start);
        commits(&other, case.commit);
        let after = seen(&other, case.paths);
        let (mut whole, mut part) = (false, false);
        // A third of the calls of each; of all cases together, each kind of call.
        for point in (n as u64 % 3..).step_by(3) {
            let cut = copy(&start);
            let os = cut.spawn("owner");
            cut.kill_at(&os, point);
            let told = run_process(&os, || change(&open(&os).expect("opens"), case.commit));
            cut.clear_plans();
            cut.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(point));
            recovered(&cut);
            let is = seen(&cut, case.paths);
            // Any part of the unsynced changes may be there.
            let committed = matches!(told, Ok(Ok(_)));
            assert!(is == after || !committed, "{}, power lost at call {point}", case.name);
            (whole, part) = (whole || is == after, part || is != after);
            if told.is_ok() {
                break;
            }
        }
        assert!(whole && part, "{}: both ends are seen", case.name);
    }
}

/// The first commit is on the disk in no part; what came after it, in any.
#[test]
fn what_comes_between_two_commits_is_not_taken_for_the_first_ones() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        for case in CASES.iter().filter(|case| case.paths.len() == 1 && !case.paths[0].contains("dir")) {
            let start = world(kind);
            // The name, the bytes, the mode: all of the file's are known now.
            let name = case.paths[0].strip_prefix("w/").expect("below it").as_bytes();
            commits(&start, |t, w| {
                write(t, w, name, 0, b"first")?;
                chmod(t, w, name, 0o666)
            });
            survives(&start, case, &format!("{kind:?}, after a commit"));
        }
    }
}

/// Outsiders put back what was there before a commit, and others commit on that.
#[test]
fn a_redo_leaves_out_what_somebody_has_put_back_before_a_later_commit() {
    let start = world(FsKind::Ext4);
    for (seed, crash) in crashes() {
        let machine = copy(&start);
        let outsider = Outsider::new(&machine);
        commits(&machine, |t, w| write(t, w, b"xpatched", 0, b"first"));
        commits(&machine, |t, w| chmod(t, w, b"xattr", 0o600));
        outsider.write("w/xpatched", 0, b"00000");
        outsider.chmod("w/xattr", 0o644);
        commits(&machine, |t, w| write(t, w, b"xpatched", 0, b"second"));
        commits(&machine, |t, w| chmod(t, w, b"xattr", 0o611));
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
        recovered(&machine);
        let what = format!("{crash:?} {seed}: reported durable, and undone by the redo of an earlier one");
        assert_eq!(&machine.look(0, "w/xpatched").expect("is there").content[..6], b"second", "{what}");
        assert_eq!(machine.look(0, "w/xattr").expect("is there").mode & 0o777, 0o611, "{what}");
    }
}

/// The last of three commits leaves the state that the first of them has found.
#[test]
fn a_redo_leaves_out_all_that_came_before_somebody_else() {
    let start = world(FsKind::Ext4);
    for (seed, crash) in crashes() {
        let machine = copy(&start);
        let outsider = Outsider::new(&machine);
        for bytes in [b"first", b"other"] {
            commits(&machine, |t, w| write(t, w, b"xpatched", 0, bytes));
        }
        for mode in [0o600, 0o611] {
            commits(&machine, |t, w| chmod(t, w, b"xattr", mode));
        }
        outsider.write("w/xpatched", 0, b"his  ");
        outsider.chmod("w/xattr", 0o622);
        commits(&machine, |t, w| write(t, w, b"xpatched", 0, b"00000"));
        commits(&machine, |t, w| chmod(t, w, b"xattr", 0o644));
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
        recovered(&machine);
        let what = format!("{crash:?} {seed}: reported durable, and undone by the redo of the first one");
        assert_eq!(&machine.look(0, "w/xpatched").expect("is there").content[..5], b"00000", "{what}");
        assert_eq!(machine.look(0, "w/xattr").expect("is there").mode & 0o777, 0o644, "{what}");
    }
}

/// Cuts, grows, and touches what is next to the new end: no outsider came between, so nothing is left out.
#[test]
fn commits_that_follow_each_other_are_all_redone() {
    let start = world(FsKind::Ext4);
    let cut = |t: &mut T, w: Node, size: usize| {
        let node = node(t, w, b"xpatched")?;
        t.setattr(node, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).map(drop)
    };
    const KINDS: [Crash; 5] = [
        Crash::NothingUnsynced,
        Crash::Everything,
        Crash::NamesWithoutData,
        Crash::DataWithoutNames,
        Crash::Random,
    ];
    for seed in 0..40 {
        let machine = copy(&start);
        let mut rng = fastrand::Rng::with_seed(seed);
        let crash = KINDS[seed as usize % KINDS.len()];
        for n in 0..12u8 {
            let size = machine.look(0, "w/xpatched").expect("is there").content.len();
            commits(&machine, |t, w| match rng.u8(0..4) {
                0 => cut(t, w, rng.usize(size / 2..size)),
                1 => append(t, w, b"xpatched", &vec![b'a' + n; rng.usize(1..2 * SECTOR)]),
                2 => chmod(t, w, b"xpatched", [0o600, 0o644, 0o4755][rng.usize(0..3)]),
                _ => write(t, w, b"xpatched", rng.usize(0..size), &[b'A' + n; 40]),
            });
        }
        let after = machine.look(0, "w/xpatched").expect("is there");
        machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
        recovered(&machine);
        let mut found = machine.look(0, "w/xpatched").expect("is there");
        // Set-id bits are not given to bytes that a later commit has written already (C6, docs/limits.md); all else is.
        if crash != Crash::NothingUnsynced && found.mode == after.mode & !0o6000 {
            found.mode = after.mode;
        }
        let (is, was) = (found.mode, after.mode);
        assert!(found == after, "{crash:?} {seed}: reported durable, and lost; mode {is:o}, was {was:o}");
    }
}

/// Bytes reach the disk before the size that covers them does: then a sector has what the last commit made of
/// it, up to the old end.
#[test]
fn an_appended_tail_is_redone_where_a_later_commit_has_patched_its_sector() {
    let start = world(FsKind::Ext4);
    let mut cut_off = 0;
    for seed in 0..60 {
        let crash = [Crash::DataWithoutNames, Crash::Random][seed as usize % 2];
        let machine = copy(&start);
        let mut rng = fastrand::Rng::with_seed(seed);
        for n in 0..rng.u8(2..6) {
            commits(&machine, |t, w| {
                if rng.bool() {
                    append(t, w, b"xpatched", &vec![b'a' + n; rng.usize(1..SECTOR)])
                } else {
                    write(t, w, b"xpatched", 3 * SECTOR + rng.usize(0..5), &[b'A' + n; 20])
                }
            });
        }
        let after = machine.look(0, "w/xpatched").expect("is there").content;
        machine.power_loss(crash, &mut rng);
        if rng.bool() {
            let os = machine.spawn("a recovery that is cut off");
            machine.kill_at(&os, rng.u64(0..200));
            cut_off += usize::from(run_process(&os, || drop(open(&os))).is_err());
            machine.power_loss(crash, &mut rng);
        }
        recovered(&machine);
        let found = machine.look(0, "w/xpatched").expect("is there").content;
        let lost = (0..after.len()).find(|at| found.get(*at) != after.get(*at));
        assert!(found == after, "{crash:?} {seed}: reported durable, and lost from byte {lost:?}");
    }
    assert!(cut_off > 5, "{cut_off} recoveries were cut off");
}

/// Syncs of the file system itself that a commit makes beside that of the log.
fn syncs(machine: &Machine, what: impl FnOnce(&mut T, Node) -> Verb<()>) -> usize {
    machine.start_trace();
    commits(machine, what);
    let calls = machine.take_trace();
    calls.iter().filter(|call| matches!(call.call, Call::Fsync | Call::Syncfs)).count()
}

#[test]
fn who_builds_on_what_is_on_the_disk_syncs_nothing_but_the_log() {
    let small = |n: u8| format!("small{n}");
    let machine = world(FsKind::Ext4);
    assert_eq!(syncs(&machine, |t, w| append(t, w, b"xgrown", b"one")), 0, "it is older than a checkpoint");
    for n in 0..3 {
        assert_eq!(syncs(&machine, |t, w| append(t, w, b"xgrown", b"more")), 0, "a commit has left it so");
        assert_eq!(syncs(&machine, |t, w| write(t, w, b"xgrown", 0, &[b'a' + n])), 0);
        assert_eq!(syncs(&machine, |t, w| chmod(t, w, b"xattr", 0o600)), 0);
        assert_eq!(syncs(&machine, |t, w| chmod(t, w, b"xattr", 0o640)), 0);
        assert_eq!(syncs(&machine, |t, w| t.rename(w, b"xmoved", w, b"xto", Rename::Replace)), 0);
        assert_eq!(syncs(&machine, |t, w| t.rename(w, b"xto", w, b"xmoved", Rename::Replace)), 0);
    }
    for n in 0..3 {
        assert_eq!(syncs(&machine, |t, w| make(t, w, small(n).as_bytes())), 0, "its directory, too");
    }
    Outsider::new(&machine).write("w/xgrown", 0, b"his");
    assert_eq!(syncs(&machine, |t, w| append(t, w, b"xgrown", b"one")), 1, "nobody has synced that");
    assert_eq!(syncs(&machine, |t, w| append(t, w, b"xgrown", b"two")), 0);
    Outsider::new(&machine).chmod("w/xattr", 0o604);
    assert_eq!(syncs(&machine, |t, w| chmod(t, w, b"xattr", 0o600)), 1);
    assert_eq!(syncs(&machine, |t, w| chmod(t, w, b"xattr", 0o640)), 0);
}

/// A write(2) has moved the times of a file, and some of its bytes are still to come.
struct Writing(SimOs, systx_sim::machine::SimFd);

impl Writing {
    fn begin(machine: &Machine, path: &str) -> Writing {
        let os = machine.outsider("writer");
        let fd = os.open_path(0, path, Open::ReadWrite).expect("opens");
        os.pwrite(&fd, &long(b'1')[..SECTOR], 0).expect("writes");
        Writing(os, fd)
    }

    fn end(self) {
        let Writing(os, fd) = self;
        os.write_on(&fd, &long(b'1')[SECTOR..], SECTOR as u64).expect("writes");
        drop(fd);
        os.exit();
    }
}

/// A commit on the bytes that came last, where the outsider has done all before.
fn survives_on(start: &Machine, name: &'static str, what: &str) {
    let (commit, paths): (fn(&mut T, Node) -> _, _) = match name {
        "xmoved" => (|t, w| write(t, w, b"xto", SECTOR + 3, b"T"), &["w/xmoved", "w/xto"][..]),
        _ => (|t, w| write(t, w, b"xpatched", SECTOR + 3, b"T"), &["w/xpatched"][..]),
    };
    survives(start, &Case { name, outsider: |_| {}, commit, paths }, what);
}

#[test]
fn a_write_that_is_under_way_at_a_sync_is_synced_again() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let start = world(kind);
        let writing = Writing::begin(&start, "w/xpatched");
        start.advance_ns(1_000_000_000);
        within(&start, |domain| domain.sync_everything().expect("syncs"));
        writing.end();
        survives_on(&start, "xpatched", &format!("{kind:?}"));
    }
}

#[test]
fn a_write_that_is_under_way_at_a_commit_is_none_of_its() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let start = world(kind);
        let writing = ["w/xpatched", "w/xmoved"].map(|path| Writing::begin(&start, path));
        commits(&start, |t, w| t.rename(w, b"xmoved", w, b"xto", Rename::Replace));
        commits(&start, |t, w| write(t, w, b"xpatched", 3, b"t"));
        writing.into_iter().for_each(Writing::end);
        for name in ["xpatched", "xmoved"] {
            survives_on(&copy(&start), name, &format!("{kind:?}"));
        }
    }
}

/// The outsider's change has a stamp from before the last checkpoint.
#[test]
fn a_clock_that_was_set_back_hides_nothing() {
    let machine = world(FsKind::Ext4);
    machine.set_wall_clock(-3600);
    for case in CASES {
        survives(&copy(&machine), case, "clock set back");
    }
}

/// And the commit is at a time after it.
#[test]
fn a_clock_that_was_set_back_and_forth_hides_nothing() {
    let machine = world(FsKind::Ext4);
    for case in CASES {
        let start = copy(&machine);
        start.set_wall_clock(-3600);
        (case.outsider)(&Outsider::new(&start));
        // By hand, so not to the nanosecond.
        start.set_wall_clock(1);
        survives(&start, &Case { outsider: |_| {}, ..*case }, "clock set back and forth");
    }
}

/// An outsider's change within a tick of a commit has the commit's stamp.
#[test]
fn coarse_stamps_hide_nothing() {
    let mut spec = FsSpec::new(FsKind::Ext4);
    (spec.info.file_stamps, spec.info.dir_stamps) = (false, false);
    let machine = Machine::new(1, &[spec]);
    machine.set_word_points(false);
    machine.plant(0, &[("w", Plant::Dir)]).expect("planting");
    let start = settled(machine);
    commits(&start, |t, w| write(t, w, b"xpatched", 0, b"first"));
    commits(&start, |t, w| append(t, w, b"xgrown", b"first"));
    commits(&start, |t, w| chmod(t, w, b"xattr", 0o666));
    let stamp = |path: &str| -> Timestamp {
        let os = start.outsider("looks");
        os.stat(&os.open_path(0, path, Open::Path).expect("opens")).expect("is there").ctime
    };
    let before = ["w/xpatched", "w/xgrown", "w/xattr"].map(stamp);
    for case in CASES {
        survives(&copy(&start), case, "coarse stamps");
    }
    Outsider::new(&start).chmod("w/xattr", 0o640);
    assert_eq!(stamp("w/xattr"), before[2], "they are coarse");
}

/// Where handles can't be opened a redo walks to what it changes.
#[test]
fn an_ordinary_users_commit_stands_on_the_way_to_it() {
    let mut spec = FsSpec::new(FsKind::Ext4);
    spec.info.open_by_handle = false;
    let machine = Machine::new(1, &[spec]);
    machine.set_word_points(false);
    let objects =
        [("w", Plant::Dir), ("w/a", Plant::Dir), ("w/a/b", Plant::Dir), ("w/a/b/f", Plant::File(b"0"))];
    machine.plant(0, &objects).expect("planting");
    let start = settled(machine);
    let outsider = Outsider::new(&start);
    let w = outsider.dir("w");
    outsider.0.rename((&w, b"a"), (&w, b"c"), Rename::NoReplace).expect("renames");
    commits(&start, |t, w| {
        let c = node(t, w, b"c")?;
        let b = node(t, c, b"b")?;
        append(t, b, b"f", b"1")
    });
    for (seed, crash) in crashes() {
        let lost = copy(&start);
        lost.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
        recovered(&lost);
        let found = lost.look(0, "w/c/b/f").map(|look| look.content);
        assert_eq!(found.as_deref(), Some(&b"01"[..]), "{crash:?} {seed}: reported durable, and lost");
    }
}
