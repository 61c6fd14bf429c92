//! What outsiders do in the moment of a commit, before each of its calls: nothing of theirs is lost, and nothing of ours
//! without a word.

use super::pages::before_call;
use super::stuck::change;
use super::world::{copy, machine, open};
use crate::domain::Domain;
use crate::outcome::{Committed, Verb, VerbError};
use crate::transaction::{Access, Attr, Node, Transaction};
use std::sync::atomic::Ordering;
use systx_os::{Errno, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Machine, Plant, SimFd, SimOs};

pub(super) type T = Transaction<SimOs>;

/// Longer than it takes the kernel to take a lease away.
const STANDSTILL_NS: u64 = 50_000_000_000;

/// An act of an outsider; true if it succeeds.
pub(super) type Act = Box<dyn Fn(&Machine, &Domain<SimOs>) -> bool + Send + Sync>;

/// How a commit has ended, beside which an outsider has acted.
pub(super) struct Ran {
    pub machine: Machine,
    pub ended: Committed,
    /// The call before which that was.
    pub at: usize,
}

impl Ran {
    /// Contents of everything, of what is kept aside, too.
    fn has(&self, content: &[u8]) -> usize {
        self.machine.tree(0).values().filter(|look| look.content == content).count()
    }

    fn is_told(&self) -> bool {
        !self.ended.conflict_copies.is_empty()
    }
}

/// Runs a transaction once for each of its calls, before which the outsider acts, and returns those that have committed
/// although that succeeded.
pub(super) fn beside(
    world: &Machine,
    ours: impl Fn(&mut T, Node) -> Verb<()>,
    theirs: impl Fn(&SimOs) -> Act,
) -> Vec<Ran> {
    let mut all = Vec::new();
    for at in 0.. {
        let machine = copy(world);
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
        let seen = before_call(&machine, &os, at, theirs(&outsider));
        let ended = run_process(&os, || change(&open(&os).expect("opens"), &ours)).expect("lives");
        machine.clear_hook();
        let [reached, came] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
        if !reached {
            break;
        }
        match ended {
            Ok(ended) if came => all.push(Ran { machine, ended, at }),
            // It has met what the outsider did, and nothing happened.
            Ok(_) | Err(_) => {}
        }
    }
    assert!(!all.is_empty(), "both never come through");
    all
}

pub(super) fn world(kind: FsKind, plants: &[(&str, Plant<'_>)]) -> Machine {
    let machine = machine(kind);
    machine.plant(0, plants).expect("planting");
    machine.settle();
    machine.advance_ns(120_000_000_000);
    machine.set_word_points(false);
    machine
}

pub(super) fn found(t: &mut T, dir: Node, name: &[u8]) -> Verb<(Node, Attr)> {
    t.lookup(dir, name)?.ok_or(VerbError::Os(Errno::NOENT))
}

/// Opens a file for reading and writing, and waits while a lease keeps it from that.
fn opened(machine: &Machine, os: &SimOs, path: &str) -> Option<SimFd> {
    match os.open_path(0, path, Open::ReadWrite) {
        Err(Errno::AGAIN) => {
            machine.advance_ns(STANDSTILL_NS);
            os.open_path(0, path, Open::ReadWrite).ok()
        }
        fd => fd.ok(),
    }
}

#[test]
fn an_append_of_the_same_bytes_in_the_same_moment_does_not_stand_for_ours() {
    const LINE: &[u8] = b"tick\n";
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let world = world(kind, &[("w/f", Plant::File(LINE))]);
        let ours = |t: &mut T, w: Node| {
            let (f, attr) = found(t, w, b"f")?;
            t.open(f, Access::ReadWrite, false)?;
            t.write_at(f, LINE, attr.size)?;
            t.close(f);
            Ok(())
        };
        let theirs = |os: &SimOs| -> Act {
            let (os, fd) = (os.clone(), os.open_path(0, "w/f", Open::ReadWrite).expect("opens"));
            Box::new(move |_, _| os.append(&fd, LINE).is_ok())
        };
        for ran in beside(&world, ours, theirs) {
            let lines = ran.machine.look(0, "w/f").expect("is there").content.len() / LINE.len();
            assert!(
                lines == 3 || ran.is_told(),
                "{kind:?}, before call {}: ours is lost without a word: {lines} lines",
                ran.at
            );
        }
    }
}

/// Three pieces of [`super::super::super::publish::patch`].
#[test]
fn who_gets_a_file_open_while_the_publisher_stands_still_loses_nothing_without_a_word() {
    const SECTORS: usize = 1400;
    let old = vec![b'o'; SECTORS * 512];
    let world = world(FsKind::Ext4, &[("w/f", Plant::File(&old))]);
    let ours = |t: &mut T, w: Node| {
        let (f, _) = found(t, w, b"f")?;
        t.open(f, Access::ReadWrite, false)?;
        t.write_at(f, &vec![b'n'; SECTORS * 512], 0)?;
        t.close(f);
        Ok(())
    };
    let theirs = |os: &SimOs| -> Act {
        let os = os.clone();
        Box::new(move |machine, _| {
            let Some(fd) = opened(machine, &os, "w/f") else { return false };
            let mut now = vec![0; SECTORS * 512];
            os.pread(&fd, &mut now, 0).expect("reads");
            let begun = now.contains(&b'n');
            let last = now.iter().rposition(|byte| *byte == b'o').unwrap_or_default() / 512;
            // The last of those that ours still has to write.
            begun && os.pwrite(&fd, &[b't'; 512], last as u64 * 512).is_ok()
        })
    };
    for ran in beside(&world, ours, theirs) {
        let there = ran.machine.look(0, "w/f").expect("is there").content.contains(&b't');
        assert!(there || ran.is_told(), "before call {}: theirs is lost without a word", ran.at);
    }
}

#[test]
fn a_directory_that_is_moved_into_what_moves_into_it_does_not_wait_for_ever() {
    for kind in [FsKind::Ext4, FsKind::Btrfs] {
        let dirs = [("w/a", Plant::Dir), ("w/a/f", Plant::File(b"in a")), ("w/b", Plant::Dir)];
        let world = world(kind, &[&dirs[..], &[("w/b/f", Plant::File(b"in b"))]].concat());
        let ours = |t: &mut T, w: Node| {
            let (b, _) = found(t, w, b"b")?;
            t.rename(w, b"a", b, b"a", Rename::NoReplace)
        };
        let theirs = |os: &SimOs| -> Act {
            let open = |path| os.open_path(0, path, Open::Directory).expect("opens");
            let (os, w, a) = (os.clone(), open("w"), open("w/a"));
            Box::new(move |_, _| os.rename((&w, b"b"), (&a, b"b"), Rename::NoReplace).is_ok())
        };
        for ran in beside(&world, ours, theirs) {
            let what = format!("{kind:?}, before call {}", ran.at);
            assert_eq!(ran.ended.pending, None, "{what}: it waits for ever");
            assert_eq!([ran.has(b"in a"), ran.has(b"in b")], [1, 1], "{what}: lost");
            assert!(ran.is_told(), "{what}: ours can't be there");
        }
    }
}

/// A process that is in the tree makes a further name of what is in there, or another one.
#[test]
fn a_name_that_comes_into_a_removed_tree_is_kept() {
    type Make = fn(&SimOs, &SimFd, &SimFd) -> systx_os::Result<()>;
    let makes: [Make; 4] = [
        |os, d, _| os.link(&os.open(d, b"f", Open::Path)?, d, b"his"),
        |os, d, _| os.rename((d, b"f"), (d, b"his"), Rename::NoReplace),
        |os, d, s| os.rename((s, b"f"), (d, b"his"), Rename::NoReplace),
        |os, d, s| os.link(&os.open(s, b"f", Open::Path)?, d, b"his"),
    ];
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        for (n, make) in makes.into_iter().enumerate() {
            let dirs = [("w/d", Plant::Dir), ("w/d/f", Plant::File(b"both")), ("w/d/s", Plant::Dir)];
            let world = world(kind, &[&dirs[..], &[("w/d/s/f", Plant::File(b"both"))]].concat());
            let theirs = move |os: &SimOs| -> Act {
                let open = |path| os.open_path(0, path, Open::Directory).expect("opens");
                let (os, d, s) = (os.clone(), open("w/d"), open("w/d/s"));
                Box::new(move |_, _| make(&os, &d, &s).is_ok())
            };
            for ran in beside(&world, remove, theirs) {
                let what = format!("{kind:?}, {n}, before call {}", ran.at);
                assert!(ran.has(b"both") > 0, "{what}: his name is lost");
                assert!(ran.is_told(), "{what}: it is kept without a word");
            }
        }
    }
}

/// `rm -r d`, with one directory in it.
fn remove(t: &mut T, w: Node) -> Verb<()> {
    let (d, _) = found(t, w, b"d")?;
    let (s, _) = found(t, d, b"s")?;
    t.unlink(s, b"f")?;
    t.rmdir(d, b"s")?;
    t.unlink(d, b"f")?;
    t.rmdir(w, b"d")
}

#[test]
fn what_was_to_be_removed_and_is_elsewhere_by_then_is_told() {
    let dirs = [("w/d", Plant::Dir), ("w/d/f", Plant::File(b"f")), ("w/d/s", Plant::Dir)];
    let world = world(FsKind::Ext4, &[&dirs[..], &[("w/d/s/f", Plant::File(b"in s"))]].concat());
    let theirs = |os: &SimOs| -> Act {
        let (os, w) = (os.clone(), os.open_path(0, "w", Open::Directory).expect("opens"));
        Box::new(move |_, _| os.rename((&w, b"d"), (&w, b"his"), Rename::NoReplace).is_ok())
    };
    for ran in beside(&world, remove, theirs) {
        assert_eq!(ran.has(b"in s"), 1, "before call {}: lost", ran.at);
        assert!(ran.is_told(), "before call {}: it goes on without a word", ran.at);
    }
}

#[test]
fn a_store_of_the_same_bytes_in_the_same_moment_does_not_stand_for_ours() {
    let world = world(FsKind::Ext4, &[("w/f", Plant::File(&[1; 512]))]);
    let ours = |t: &mut T, w: Node| {
        let (f, _) = found(t, w, b"f")?;
        t.open(f, Access::ReadWrite, false)?;
        let mut now = [0; 512];
        t.read_at(f, &mut now, 0)?;
        t.write_at(f, &[now[0] + 1; 512], 0)?;
        t.close(f);
        Ok(())
    };
    let theirs = |os: &SimOs| -> Act {
        let (os, fd) = (os.clone(), os.open_path(0, "w/f", Open::ReadWrite).expect("opens"));
        Box::new(move |_, _| {
            let mut now = [0; 512];
            os.pread(&fd, &mut now, 0).is_ok_and(|_| os.pwrite(&fd, &[now[0] + 1; 512], 0).is_ok())
        })
    };
    for ran in beside(&world, ours, theirs) {
        let count = ran.machine.look(0, "w/f").expect("is there").content[0];
        assert!(count == 3 || ran.is_told(), "before call {}: ours is lost without a word: {count}", ran.at);
    }
}

#[test]
fn what_a_checkpoint_finds_in_a_removed_tree_is_told_by_the_commit() {
    let dirs = [("w/d", Plant::Dir), ("w/d/f", Plant::File(b"f")), ("w/d/s", Plant::Dir)];
    let world = world(FsKind::Ext4, &[&dirs[..], &[("w/d/s/f", Plant::File(b"f"))]].concat());
    let theirs = |os: &SimOs| -> Act {
        let (os, d) = (os.clone(), os.open_path(0, "w/d", Open::Directory).expect("opens"));
        Box::new(move |_, domain| {
            let made = os.create(&d, b"his", 0o600).and_then(|fd| os.pwrite(&fd, b"his", 0)).is_ok();
            let in_flight = domain.table.slots().in_flight().next().is_some();
            made && (in_flight || domain.checkpoint().is_ok())
        })
    };
    for ran in beside(&world, remove, theirs) {
        assert_eq!(ran.has(b"his"), 1, "before call {}: lost", ran.at);
        assert!(ran.is_told(), "before call {}: kept without a word", ran.at);
    }
}
