//! Kills, power losses and failing calls at every call of a commit.

mod part;

use super::world::*;
use crate::outcome::{CommitError, ConflictCopy, Durability};
use systx_os::{Errno, FsKind, Os};
use systx_sim::machine::{run_process, Call, Crash, Fault, Machine, Tree};

/// Before, after, and the number of calls between.
///
/// Words of the table are points in one test only: they double the number of places to cut.
fn undisturbed(kind: Kind, fs: FsKind, durability: Durability) -> (Tree, Tree, u64) {
    undisturbed_in(&machine(fs), kind, durability)
}

fn undisturbed_in(world: &Machine, kind: Kind, durability: Durability) -> (Tree, Tree, u64) {
    let machine = copy(world);
    let before = public(&machine);
    let os = machine.spawn("owner");
    let done = run_process(&os, || transact(&os, kind, durability)).expect("not killed").expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    let points = os.points();
    os.exit();
    (before, public(&machine), points)
}

/// All points, far apart from one another at first: what is wrong in a stretch of them is met early.
fn scattered(points: u64) -> impl Iterator<Item = u64> {
    let step = (1..points).rev().map(|n| n * 618 / 1000 + 1).find(|step| coprime(*step, points)).unwrap_or(1);
    (0..points).map(move |n| n * step % points)
}

fn coprime(a: u64, b: u64) -> bool {
    match b {
        0 => a == 1,
        _ => coprime(b, a % b),
    }
}

/// Recovers with a new process and looks at the tree.
fn recovered(machine: &Machine) -> Tree {
    let os = machine.spawn("helper");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        domain.finish_dead().expect("recovers");
        let left = domain.transactions().expect("readable");
        assert!(left.iter().all(|t| t.state.is_none()), "in flight after recovery: {left:?}");
        let aside = domain.kept_aside().expect("readable");
        assert!(aside.is_empty(), "displaced without an outsider: {aside:?}");
    });
    done.expect("not killed");
    os.exit();
    machine.check().expect("consistent file system");
    public(machine)
}

#[test]
fn an_undisturbed_commit_takes_every_step() {
    let (before, after, _) = undisturbed(Kind::Everything, FsKind::Ext4, Durability::Durable);
    assert_ne!(before, after);
    let content = |path: &str| after.get(path).map(|l| l.content.clone());
    assert_eq!(content("w/new").as_deref(), Some(&b"new contents"[..]));
    assert_eq!(content("w/newdir/inside").as_deref(), Some(&b"inside of new"[..]));
    assert_eq!(content("w/replaced").as_deref(), Some(&b"replacement"[..]));
    assert_eq!(content("w/dst/moved").as_deref(), Some(&b"moved"[..]));
    assert_eq!(content("w/dirmovedto/inside").as_deref(), Some(&b"inside"[..]));
    assert_eq!(after["w/linked"].same_as.as_deref(), Some("w/link"));
    assert_eq!(content("w/patched").map(|c| (c.len(), c[600], c[640])), Some((1300, 0xee, (640 / 7) as u8)));
    assert_eq!(content("w/grown").map(|c| c.len()), Some(1005));
    assert_eq!((after["w/attr"].mode, after["w/attr"].owner), (0o4755, (5, 6)));
    for gone in ["w/removed", "w/tree", "w/moved", "w/dirmoved"] {
        assert!(!after.contains_key(gone), "{gone}");
    }
}

/// Names that stay in `tx/` after a checkpoint: directories that belong to no transaction.
fn orphans(machine: &Machine) -> Vec<String> {
    let os = machine.spawn("checkpointer");
    let names = run_process(&os, || {
        let domain = open(&os).expect("opens");
        domain.checkpoint().expect("makes a checkpoint");
        domain.os.read_dir(&domain.area.tx).expect("readable")
    });
    os.exit();
    let names = names.expect("not killed").into_iter();
    names.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
}

fn kill_at_every_call(kind: Kind, durability: Durability) {
    kill_at_every_call_in(&machine(FsKind::Ext4), kind, durability);
}

fn kill_at_every_call_in(world: &Machine, kind: Kind, durability: Durability) {
    let (before, after, points) = undisturbed_in(world, kind, durability);
    let mut outcomes = [0u32; 2];
    for point in scattered(points) {
        let machine = copy(world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let _ = run_process(&os, || transact(&os, kind, durability));
        let tree = recovered(&machine);
        match () {
            () if tree == before => outcomes[0] += 1,
            () if tree == after => outcomes[1] += 1,
            () => panic!(
                "killed at call {point} of {points}: a mixture\n{:#?}",
                difference(&before, &after, &tree)
            ),
        }
        let left = orphans(&machine);
        assert!(left.is_empty(), "killed at call {point} of {points}: {left:?} in tx/ belongs to nobody");
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

/// Every `systx run` does this first.
#[test]
fn the_next_use_removes_what_a_kill_at_any_call_left_sealed() {
    let (_, _, points) = undisturbed(Kind::Everything, FsKind::Ext4, Durability::Durable);
    let world = machine(FsKind::Ext4);
    let mut sealed = 0;
    for point in 0..points {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let _ = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable));
        let is_sealed = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
        sealed += u32::from(orphans(&machine.fork()).iter().any(is_sealed));
        let next = machine.spawn("next");
        let used = run_process(&next, || open(&next).expect("opens").finish_in_flight().expect("recovers"));
        used.expect("not killed");
        next.exit();
        let left = orphans(&machine);
        assert!(
            !left.iter().any(is_sealed),
            "killed at call {point} of {points}: {left:?} belongs to nobody"
        );
    }
    assert!(sealed > 0, "a kill between seal and number is among them");
}

/// Another process recovers before every call of a commit that goes on, and so between its seal and its
/// number, too.
fn recover_beside_every_call(kind: Kind, durability: Durability) {
    let (_, after, _) = undisturbed(kind, FsKind::Ext4, durability);
    let world = copy(&machine(FsKind::Ext4));
    let other = world.spawn("other");
    let domain = run_process(&other, || open(&other).expect("opens")).expect("not killed");
    let os = world.spawn("owner");
    let owner = os.process();
    let seen = std::sync::Arc::new(std::sync::Mutex::new([0u32; 2]));
    let counts = seen.clone();
    world.set_hook(move |_, info| {
        // The recovery would wait for the lock, which would never be released.
        if info.process != owner || domain.table.lock_holder().expect("sound").is_some() {
            return;
        }
        let names = domain.os.read_dir(&domain.area.tx).expect("readable");
        let sealed = names.iter().any(|entry| entry.name.iter().all(u8::is_ascii_digit));
        let numbered = domain.table.slots().in_flight().next().is_some();
        if let (true, Ok(mut seen)) = (sealed, seen.lock()) {
            seen[usize::from(numbered)] += 1;
        }
        let recovered = domain.finish_dead().expect("recovers");
        assert!(recovered.is_empty(), "nobody is dead: {recovered:?}");
    });
    let done = run_process(&os, || transact(&os, kind, durability)).expect("not killed");
    world.clear_hook();
    let done = done.unwrap_or_else(|e| panic!("what a live commit had staged was taken from it: {e}"));
    let whole = done.pending.is_none() && done.conflict_copies.is_empty() && public(&world) == after;
    assert!(whole, "what a live commit had staged was taken from it: {done:?}");
    let seen = *counts.lock().expect("nobody panicked");
    // Slots in a shared staging directory have no directory to be seen.
    let seals = kind != Kind::Small;
    assert!(!seals || seen.iter().all(|n| *n > 0), "sealed without and with a number: {seen:?}");
}

#[test]
fn a_recovery_beside_any_call_of_a_commit_takes_nothing_from_it() {
    recover_beside_every_call(Kind::Everything, Durability::Durable);
    recover_beside_every_call(Kind::Small, Durability::Durable);
}

#[test]
fn a_recovery_beside_any_call_of_a_commit_takes_nothing_from_it_without_durability() {
    recover_beside_every_call(Kind::Everything, Durability::None);
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing() {
    kill_at_every_call(Kind::Everything, Durability::Durable);
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing_without_barrier() {
    kill_at_every_call(Kind::Small, Durability::Durable);
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing_without_slots() {
    kill_at_every_call(Kind::Inline, Durability::Durable);
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_without_slots() {
    power_loss_at_every_call(Kind::Inline, FsKind::Ext4, &Crash::WORST, 3);
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing_without_durability() {
    kill_at_every_call(Kind::Everything, Durability::None);
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing_without_handles() {
    let world = machine_where(FsKind::Ext4, Finds::ByPath);
    for (kind, durability) in [
        (Kind::Everything, Durability::Durable),
        (Kind::Everything, Durability::None),
        (Kind::Small, Durability::Durable),
    ] {
        kill_at_every_call_in(&world, kind, durability);
    }
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_without_handles() {
    for (fs, kind, crash) in [
        (FsKind::Ext4, Kind::Everything, Crash::NothingUnsynced),
        (FsKind::Ext4, Kind::Small, Crash::NamesWithoutData),
        (FsKind::Xfs, Kind::Everything, Crash::Random),
    ] {
        power_loss_at_every_call_in(&machine_where(fs, Finds::ByPath), kind, &[crash], 0);
    }
}

#[test]
fn a_helper_that_is_killed_at_every_call_is_followed_by_another() {
    let (before, after, points) = undisturbed(Kind::Everything, FsKind::Ext4, Durability::Durable);
    let world = machine(FsKind::Ext4);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut outcomes = [0u32; 2];
    for point in points / 2..points {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let _ = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable));
        for _ in 0..2 {
            let helper = machine.spawn("helper");
            machine.kill_at(&helper, rng.u64(0..160));
            let _ = run_process(&helper, || open(&helper).map(|d| d.finish_dead()).is_ok());
            helper.exit();
            machine.clear_plans();
        }
        let tree = recovered(&machine);
        assert!(tree == before || tree == after, "at {point}: {:#?}", difference(&before, &after, &tree));
        outcomes[usize::from(tree == after)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

fn power_loss_at_every_call(kind: Kind, fs: FsKind, crashes: &[Crash], seeds: u64) {
    power_loss_at_every_call_in(&machine(fs), kind, crashes, seeds);
}

fn power_loss_at_every_call_in(world: &Machine, kind: Kind, crashes: &[Crash], seeds: u64) {
    let (before, after, points) = undisturbed_in(world, kind, Durability::Durable);
    let mut outcomes = [0u32; 2];
    for point in scattered(points + 1) {
        for (seed, crash) in crashes.iter().copied().chain((0..seeds).map(|_| Crash::Random)).enumerate() {
            let machine = copy(world);
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let told = run_process(&os, || transact(&os, kind, Durability::Durable));
            let mut rng = fastrand::Rng::with_seed(point << 8 | seed as u64);
            machine.power_loss(crash, &mut rng);
            let tree = recovered(&machine);
            let at = format!("{crash:?} at call {point} of {points}");
            assert!(
                tree == before || tree == after,
                "{at}: a mixture\n{:#?}",
                difference(&before, &after, &tree)
            );
            if let Ok(Ok(_)) = told {
                assert_eq!(tree, after, "{at}: reported committed, and lost");
            }
            outcomes[usize::from(tree == after)] += 1;
            // Recovery is idempotent, also over another reboot.
            machine.power_loss(Crash::Random, &mut rng);
            assert_eq!(recovered(&machine), tree, "{at}: a second recovery changed something");
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_on_ext4() {
    power_loss_at_every_call(Kind::Everything, FsKind::Ext4, &Crash::WORST, 2);
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_on_xfs() {
    power_loss_at_every_call(Kind::Everything, FsKind::Xfs, &[], 2);
}

/// btrfs commits all metadata of a moment at once. Beside that it may have single directories only as far as
/// they were synced; the simulated machine takes that for possible everywhere, which no renaming between
/// directories survives.
#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_on_btrfs() {
    power_loss_at_every_call(Kind::Everything, FsKind::Btrfs, &Crash::WORST, 0);
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_on_btrfs_without_slots() {
    power_loss_at_every_call(Kind::Inline, FsKind::Btrfs, &Crash::WORST, 3);
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing_without_barrier() {
    power_loss_at_every_call(Kind::Small, FsKind::Ext4, &Crash::WORST, 3);
}

#[test]
fn a_recovery_that_loses_power_is_followed_by_another() {
    let (before, after, points) = undisturbed(Kind::Everything, FsKind::Ext4, Durability::Durable);
    let world = machine(FsKind::Ext4);
    let mut rng = fastrand::Rng::with_seed(11);
    let mut outcomes = [0u32; 2];
    for round in 0..150 {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, rng.u64(points / 3..=points));
        let _ = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable));
        for _ in 0..rng.u8(1..4) {
            machine.power_loss(Crash::Random, &mut rng);
            let again = machine.spawn("recovery");
            machine.kill_at(&again, rng.u64(0..400));
            let _ = run_process(&again, || open(&again).is_ok());
            machine.clear_plans();
        }
        machine.power_loss(Crash::Random, &mut rng);
        let tree = recovered(&machine);
        assert!(tree == before || tree == after, "round {round}: {:#?}", difference(&before, &after, &tree));
        outcomes[usize::from(tree == after)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes are seen: {outcomes:?}");
}

/// Slots that are made again are on the disk, whole, before `tx/<id>` has its name: else a second power loss
/// leaves the name, and not what is in it.
#[test]
fn slots_that_a_recovery_makes_again_survive_the_next_power_loss() {
    for fs in [FsKind::Ext4] {
        let (_, after, _) = undisturbed(Kind::Small, fs, Durability::Durable);
        let world = machine(fs);
        let committed = copy(&world);
        let os = committed.spawn("owner");
        run_process(&os, || transact(&os, Kind::Small, Durability::Durable))
            .expect("lives")
            .expect("commits");
        committed.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        let whole = copy(&committed);
        whole.start_trace();
        recovered(&whole);
        let calls = whole.take_trace();
        let named = calls.iter().find(|c| c.call == Call::Rename && c.name.ends_with(b".r~"));
        let named = named.unwrap_or_else(|| panic!("{fs:?}: no slots are made again")).point;
        for at in named + 1..named + 10 {
            for seed in 0..8 {
                let machine = copy(&committed);
                let again = machine.spawn("recovery");
                machine.kill_at(&again, at);
                let _ = run_process(&again, || open(&again).is_ok());
                machine.clear_plans();
                machine.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(at << 8 | seed));
                let tree = recovered(&machine);
                let told = difference(&after, &after, &tree);
                assert_eq!(
                    tree, after,
                    "{fs:?}, cut off before call {at}: a durable commit is lost: {told:?}"
                );
            }
        }
    }
}

/// Errors that a call may return: those that pass by themselves, and those that don't.
const ERRORS: [Errno; 8] = [
    Errno::NOSPC,
    Errno::IO,
    Errno::DQUOT,
    Errno::TXTBSY,
    Errno::MLINK,
    Errno::XDEV,
    Errno::PERM,
    Errno::MFILE,
];

/// Each error meets every so many calls, each call some error; in a long run each meets each.
fn errors_at(point: u64) -> impl Iterator<Item = Errno> {
    let long = std::env::var_os("SYSTX_LONG").is_some_and(|value| value != "0");
    let (errors, every) = (ERRORS.len() as u64, if long { 1 } else { ERRORS.len() as u64 / 2 });
    // Another offset in each round of calls: a loop that makes the same calls again meets other errors.
    let shift = point + point / errors;
    (0..errors).filter(move |n| (n + shift) % every == 0).map(|n| ERRORS[n as usize])
}

fn any_failing_call(kind: Kind) {
    let (before, after, points) = undisturbed(kind, FsKind::Ext4, Durability::Durable);
    let world = machine(FsKind::Ext4);
    let mut seen = [0u32; 4];
    for (point, error) in (0..points).flat_map(|point| errors_at(point).map(move |error| (point, error))) {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        machine.fault(Fault::fail_point(&os, point, error));
        let told = run_process(&os, || transact(&os, kind, Durability::Durable)).expect("lives");
        machine.clear_plans();
        os.exit();
        let (tree, later) = settled(&machine, &told, &mut fastrand::Rng::with_seed(point));
        let at = format!("{error:?} at call {point} of {points}: {told:?}, then {later:?}");
        match told {
            Ok(done) => {
                let conflict_copies: Vec<_> = done.conflict_copies.into_iter().chain(later).collect();
                seen[if done.pending.is_some() {
                    1
                } else {
                    2 * usize::from(!conflict_copies.is_empty())
                }] += 1;
                judge(&before, &after, &tree, &conflict_copies, &machine, &at);
            }
            Err(CommitError::InDoubt { .. }) => assert!(tree == before || tree == after, "{at}"),
            Err(_) => {
                seen[3] += 1;
                assert_eq!(difference(&before, &before, &tree), Vec::<String>::new(), "{at}");
                assert!(later.is_empty(), "{at}");
            }
        }
    }
    println!(
        "{kind:?}: {} committed, {} pending, {} displaced, {} refused",
        seen[0], seen[1], seen[2], seen[3]
    );
    assert!(seen.iter().all(|n| *n > 0), "every end is seen: {seen:?}");
}

#[test]
fn a_moment_without_descriptors_leaves_nothing_to_publish() {
    let world = machine(FsKind::Ext4);
    let commit = |failing: Option<u64>| {
        let machine = copy(&world);
        let os = machine.spawn("owner");
        if let Some(point) = failing {
            machine.fault(Fault::fail_point(&os, point, Errno::MFILE));
        }
        machine.start_trace();
        let told = run_process(&os, || transact(&os, Kind::Everything, Durability::Durable)).expect("lives");
        let taken = machine.take_trace();
        machine.clear_plans();
        os.exit();
        (told, public(&machine), taken)
    };
    let before = public(&world);
    let (_, after, calls) = commit(None);
    let opens = calls.iter().filter(|c| matches!(c.call, Call::Open | Call::OpenHandle | Call::Reopen));
    let mut committed = 0;
    for open in opens {
        let (told, tree, _) = commit(Some(open.point));
        let at = format!("{open:?}: {told:?}");
        match told {
            Ok(done) => {
                assert!(done.pending.is_none(), "{at}");
                assert_eq!(tree, after, "{at}");
                committed += 1;
            }
            Err(_) => assert_eq!(tree, before, "{at}"),
        }
    }
    assert!(committed > 10, "{committed}");
}

#[test]
fn any_failing_call_is_told_on_the_right_side_of_the_commit_point() {
    any_failing_call(Kind::Everything);
}

#[test]
fn any_failing_call_is_told_on_the_right_side_of_the_commit_point_without_slots() {
    any_failing_call(Kind::Inline);
}

/// An outsider makes an object immutable at any call: refused before the commit point, a reported conflict
/// copy after it, and nothing else is touched.
#[test]
fn what_becomes_immutable_at_any_call_is_refused_or_displaced() {
    let (before, after, points) = undisturbed(Kind::Everything, FsKind::Ext4, Durability::Durable);
    let world = machine(FsKind::Ext4);
    let mut seen = [0u32; 3];
    let objects =
        ["", "/dst", "/removed", "/patched", "/attr", "/linked", "/tree", "/moved", "/dirmoved", "/replaced"];
    let long = std::env::var_os("SYSTX_LONG").is_some_and(|value| value != "0");
    let every = if long { 1 } else { objects.len() / 2 };
    for point in points / 3..points {
        for object in objects.iter().skip(point as usize % every).step_by(every) {
            let path = format!("w{object}");
            let machine = copy(&world);
            let os = machine.spawn("owner");
            let (process, flagged) = (os.process(), path.clone());
            machine.set_hook(move |machine, info| {
                if (info.process, info.point) == (process, point) {
                    // It may be on its way.
                    let _ = machine.set_flags(0, &flagged, true, false);
                }
            });
            let told =
                run_process(&os, || transact(&os, Kind::Everything, Durability::Durable)).expect("lives");
            machine.clear_hook();
            os.exit();
            let moved = [("w/moved", "w/dst/moved"), ("w/dirmoved", "w/dirmovedto"), ("w/attr", "w/attr")];
            for path in [&path[..]].into_iter().chain(moved.iter().filter(|m| m.0 == path).map(|m| m.1)) {
                let _ = machine.set_flags(0, path, false, false);
            }
            let (tree, later) = settled(&machine, &told, &mut fastrand::Rng::with_seed(point));
            let at = format!("{path} at call {point} of {points}: {told:?}, then {later:?}");
            match told {
                Ok(done) => {
                    let conflict_copies: Vec<_> = done.conflict_copies.into_iter().chain(later).collect();
                    seen[usize::from(!conflict_copies.is_empty())] += 1;
                    judge(&before, &after, &tree, &conflict_copies, &machine, &at);
                }
                Err(_) => {
                    seen[2] += 1;
                    assert_eq!(difference(&before, &before, &tree), Vec::<String>::new(), "{at}");
                }
            }
        }
    }
    println!("{} committed, {} displaced, {} refused", seen[0], seen[1], seen[2]);
    assert!(seen.iter().all(|n| *n > 0), "every end is seen: {seen:?}");
}

/// Checks that the reported conflict copies explain every difference: everything else is as after; what is
/// reported as kept is kept; and a path with a conflict copy is as before, or a part of it is as after.
fn judge(
    before: &Tree,
    after: &Tree,
    tree: &Tree,
    conflict_copies: &[ConflictCopy],
    machine: &Machine,
    at: &str,
) {
    // Two names of one object, and the two ends of a move.
    let pairs = [("w/moved", "w/dst/moved"), ("w/dirmoved", "w/dirmovedto"), ("w/link", "w/linked")];
    let below =
        |path: &str, of: &str| path == of || path.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
    let told: Vec<String> =
        conflict_copies.iter().map(|d| String::from_utf8_lossy(&d.path).into_owned()).collect();
    let explained = |path: &str| {
        told.iter().any(|told| {
            let other = pairs.iter().find_map(|(a, b)| match told {
                told if told == a => Some(*b),
                told if told == b => Some(*a),
                _ => None,
            });
            below(path, told) || other.is_some_and(|other| below(path, other))
        })
    };
    // Zeros at its end say how long a file is, and not what it holds: a size may be set, and the bytes be refused.
    let sector = |bytes: &[u8]| bytes[..bytes.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1)].to_vec();
    let sectors = |tree: &Tree, path: &str| -> Vec<Vec<u8>> {
        tree.get(path).map_or(Vec::new(), |leaf| leaf.content.chunks(512).map(sector).collect())
    };
    for path in before.keys().chain(after.keys()).chain(tree.keys()) {
        if tree.get(path) == after.get(path) {
            continue;
        }
        assert!(explained(path), "{path} is not as after, and nothing was told of it: {at}");
        let (was, is) = (sectors(before, path), sectors(after, path));
        for (n, found) in sectors(tree, path).iter().enumerate() {
            let known = [was.get(n), is.get(n)].into_iter().flatten().any(|sector| sector == found);
            let known = known || found.is_empty();
            assert!(known, "{path} holds in sector {n} what nobody wrote: {at}");
        }
        assert!(before.contains_key(path) || after.contains_key(path), "{path} came from nowhere: {at}");
    }
    let everything = machine.tree(0);
    for kept in conflict_copies.iter().filter_map(|d| d.aside.as_ref()) {
        assert!(everything.contains_key(&format!(".systx/aside/{kept}")), "aside/{kept} is not there: {at}");
    }
}

/// The tree when everything has been finished, and what that displaced; an answer in doubt is settled by a reboot.
fn settled<T>(
    machine: &Machine,
    told: &Result<T, CommitError>,
    rng: &mut fastrand::Rng,
) -> (Tree, Vec<ConflictCopy>) {
    if matches!(told, Err(CommitError::InDoubt { .. })) {
        machine.power_loss(Crash::Random, rng);
    }
    let os = machine.spawn("helper");
    let recovered = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().expect("recovers"));
        recovered
    });
    let recovered = recovered.expect("not killed");
    assert!(recovered.unfinished.is_empty(), "{:?}", recovered.unfinished);
    os.exit();
    (public(machine), recovered.conflict_copies)
}

/// Returns what is neither as before nor as after, path by path.
fn difference(before: &Tree, after: &Tree, tree: &Tree) -> Vec<String> {
    let mut paths: Vec<&String> = before.keys().chain(after.keys()).chain(tree.keys()).collect();
    paths.sort();
    paths.dedup();
    let side = |p: &String| match (tree.get(p) == before.get(p), tree.get(p) == after.get(p)) {
        (true, true) => None,
        (true, false) => Some(format!("{p}: as before")),
        (false, true) => Some(format!("{p}: as after")),
        (false, false) => Some(format!("{p}: {:?}", tree.get(p).map(|l| (l.kind, l.size, l.mode)))),
    };
    paths.into_iter().filter_map(side).collect()
}
