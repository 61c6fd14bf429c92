//! Several LINKs in one record: cut at every call, and newer changes of an outsider's to the names that they make.

use super::stuck::change;
use super::world::{machine, open, public};
use crate::outcome::{CommitError, Committed};
use std::collections::BTreeSet;
use systx_os::{FsKind, Os, Rename};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimOs, Tree};

/// Numbers of links: the first fits into the shared staging directory, the second needs a staging directory
/// of its own.
const COUNTS: [usize; 2] = [3, 20];

fn world(fs: FsKind, count: usize) -> Machine {
    let machine = machine(fs);
    let names: Vec<String> = (0..count).map(|n| format!("w/f{n:02}")).collect();
    let objects: Vec<(&str, Plant)> = names.iter().map(|name| (&name[..], Plant::File(b"linked"))).collect();
    machine.plant(0, &objects).expect("planting");
    machine.settle();
    machine
}

/// One more name for each, while the first of them is moved: a LINK finds its object where it was before any step.
fn work(os: &SimOs, count: usize) -> Result<Committed, CommitError> {
    let domain = open(os).expect("opens");
    change(&domain, |t, w| {
        for n in 0..count {
            let (node, _) = t.lookup(w, format!("f{n:02}").as_bytes())?.expect("it is there");
            t.link(node, w, format!("l{n:02}").as_bytes())?;
        }
        t.rename(w, b"f00", w, b"moved00", Rename::NoReplace)?;
        t.unlink(w, b"removed")
    })
}

fn recover(machine: &Machine) {
    let os = machine.spawn("helper");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let done = domain.finish_dead().expect("recovers");
        assert!(done.unfinished.is_empty(), "{done:?}");
        assert!(domain.kept_aside().expect("readable").is_empty(), "displaced");
    });
    done.expect("not killed");
    os.exit();
    machine.check().expect("consistent file system");
}

/// The world, the tree before and after, and the calls between.
fn undisturbed(fs: FsKind, count: usize) -> (Machine, Tree, Tree, u64) {
    let world = world(fs, count);
    let machine = world.fork();
    machine.set_word_points(false);
    let os = machine.spawn("owner");
    let done = run_process(&os, || work(&os, count)).expect("lives").expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    let (before, after, points) = (public(&world), public(&machine), os.points());
    for n in 1..count {
        assert_eq!(after[&format!("w/l{n:02}")].same_as, Some(format!("w/f{n:02}")));
    }
    assert_eq!(after["w/moved00"].same_as.as_deref(), Some("w/l00"));
    (world, before, after, points)
}

fn killed_at(world: &Machine, point: u64, count: usize) -> Machine {
    let machine = world.fork();
    machine.set_word_points(false);
    let os = machine.spawn("owner");
    machine.kill_at(&os, point);
    let _ = run_process(&os, || work(&os, count));
    machine.clear_plans();
    machine
}

#[test]
fn several_links_are_made_all_or_none_wherever_their_publisher_is_killed() {
    for count in COUNTS {
        let (world, before, after, points) = undisturbed(FsKind::Ext4, count);
        let mut seen = [0; 2];
        for point in 0..points {
            let machine = killed_at(&world, point, count);
            // The first who helps is killed, too.
            let os = machine.spawn("killed helper");
            machine.kill_at(&os, point % 40);
            let _ = run_process(&os, || open(&os).map(|domain| domain.finish_dead().map(drop)));
            recover(&machine);
            let tree = public(&machine);
            assert!(tree == before || tree == after, "{count} links, killed at call {point}: a mixture");
            seen[usize::from(tree == after)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
    }
}

#[test]
fn several_links_are_made_all_or_none_whenever_the_power_fails() {
    // The simulated machine takes more for possible on btrfs besides the worst than btrfs does (see
    // `crash.rs`).
    for (fs, count, random) in [(FsKind::Ext4, 20, 2), (FsKind::Xfs, 3, 2), (FsKind::Btrfs, 20, 0)] {
        let (world, before, after, points) = undisturbed(fs, count);
        let mut seen = [0; 2];
        for point in (0..points + 1).filter(|point| point % 2 == points % 2) {
            let crashes = Crash::WORST.into_iter().chain((0..random).map(|_| Crash::Random));
            for (n, crash) in crashes.enumerate() {
                let machine = killed_at(&world, point, count);
                let mut rng = fastrand::Rng::with_seed(point << 4 | n as u64);
                machine.power_loss(crash, &mut rng);
                let os = machine.spawn("killed recovery");
                machine.kill_at(&os, rng.u64(0..80));
                let _ = run_process(&os, || open(&os).map(drop));
                machine.clear_plans();
                if random > 0 && rng.bool() {
                    machine.power_loss(Crash::Random, &mut rng);
                }
                recover(&machine);
                let tree = public(&machine);
                let whole = tree == before || tree == after;
                assert!(whole, "{fs:?}, {crash:?} at call {point}: a mixture");
                seen[usize::from(tree == after)] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
    }
}

/// The new names of a tree.
fn links(tree: &Tree) -> BTreeSet<&String> {
    tree.keys().filter(|path| path.starts_with("w/l") && !path.starts_with("w/linked")).collect()
}

#[test]
fn a_new_name_that_somebody_removes_stays_removed() {
    let count = COUNTS[0];
    let (world, before, after, points) = undisturbed(FsKind::Ext4, count);
    let mut removed = 0;
    for point in 0..points + 1 {
        for lost in [false, true] {
            let machine = killed_at(&world, point, count);
            let tree = public(&machine);
            let Some(name) = links(&tree).last().map(|path| path.trim_start_matches("w/").to_owned()) else {
                continue;
            };
            removed += 1;
            let outsider = machine.spawn("outsider");
            let w = outsider.open(&outsider.root(0), b"w", systx_os::Open::Directory).expect("opens");
            outsider.unlink(&w, name.as_bytes()).expect("works");
            if lost {
                machine.settle();
                machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(point));
            }
            recover(&machine);
            let tree = public(&machine);
            let mut expected: BTreeSet<&String> = links(&after);
            expected.retain(|path| **path != format!("w/{name}"));
            assert_eq!(links(&tree), expected, "killed at call {point}, then {name} was removed");
            assert!(!tree.contains_key("w/removed") && before.contains_key("w/removed"));
        }
    }
    assert!(removed > 0, "some are killed when the first name is there");
}
