//! A file that a reader has open gets its bytes word by word: a kill comes between two of them, and a page may be written
//! out there.

use super::stuck::change;
use super::world::*;
use crate::outcome::{CommitError, Committed, Durability, Options};
use crate::transaction::{Access, Transaction};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimOs};

const OLD: &[u8] = &[b'o'; 3000];
const NEW: &[u8] = &[b'n'; 2500];

fn commit(os: &SimOs, bytes: &[u8], durability: Durability, at: usize) -> Result<Committed, CommitError> {
    let failed = crate::commit::aborted;
    let domain = open(os).expect("opens");
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(os.clone(), vec![domain], options).map_err(failed)?;
    let root = t.root(0);
    let (w, _) = t.lookup(root, b"w").map_err(failed)?.expect("it is there");
    let (f, _) = t.lookup(w, b"f").map_err(failed)?.expect("it is there");
    t.open(f, Access::Write, false).map_err(failed)?;
    t.write_at(f, bytes, at as u64).map_err(failed)?;
    t.close(f);
    t.commit()
}

/// In the file, and over its end.
const AT: [usize; 2] = [100, 2000];

/// Contents of the file afterwards.
fn after(at: usize) -> Vec<u8> {
    let mut after = OLD.to_vec();
    after.resize(OLD.len().max(at + NEW.len()), 0);
    after[at..at + NEW.len()].copy_from_slice(NEW);
    after
}

fn world(kind: FsKind) -> Machine {
    let machine = machine(kind);
    machine.plant(0, &[("w/f", Plant::File(OLD)), ("w/g", Plant::File(b"g"))]).expect("planting");
    machine.settle();
    machine
}

/// Recovers; whether anything was said.
fn recover(machine: &Machine) -> bool {
    let os = machine.spawn("recovery");
    let told = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut told = domain.recovered.clone();
        told.merge(domain.finish_dead().expect("recovers"));
        told
    });
    os.exit();
    let told = told.expect("lives");
    !told.conflict_copies.is_empty() || !told.unfinished.is_empty()
}

fn content(machine: &Machine) -> Vec<u8> {
    machine.look(0, "w/f").expect("it is there").content
}

#[test]
fn a_kill_between_two_words_leaves_all_or_nothing() {
    let cases = AT.into_iter().flat_map(|at| [(Durability::Durable, at), (Durability::None, at)]);
    for (durability, at) in cases {
        let world = world(FsKind::Ext4);
        for point in 0.. {
            let machine = copy(&world);
            let reader = machine.outsider("reader");
            let _open = reader.open_path(0, "w/f", Open::Read).expect("opens");
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let ended = run_process(&os, || commit(&os, NEW, durability, at).expect("commits")).is_ok();
            machine.clear_plans();
            let told = recover(&machine);
            let is = content(&machine);
            let what = format!("{durability:?} from {at} on, killed at call {point}");
            assert!(is == after(at) || (is == OLD && !ended), "{what}: torn");
            assert!(!told, "{what}: no other process has changed anything");
            if ended {
                break;
            }
        }
    }
}

#[test]
fn a_power_loss_between_two_words_or_behind_them_leaves_all_or_nothing() {
    let kinds = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    for (kind, at) in kinds.into_iter().flat_map(|kind| AT.map(|at| (kind, at))) {
        let world = world(kind);
        for point in 0.. {
            let mut ended = false;
            for (seed, crash) in (0..).zip(Crash::WORST.into_iter().chain([Crash::Random; 8])) {
                let machine = copy(&world);
                let reader = machine.outsider("reader");
                let open = reader.open_path(0, "w/f", Open::Read).expect("opens");
                let os = machine.spawn("owner");
                machine.kill_at(&os, point);
                ended =
                    run_process(&os, || commit(&os, NEW, Durability::Durable, at).expect("commits")).is_ok();
                machine.clear_plans();
                drop(open);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(point << 8 | seed));
                let told = recover(&machine);
                let is = content(&machine);
                let what = format!("{kind:?}, {crash:?}, from {at} on, power lost at call {point}");
                assert!(is == after(at) || (is == OLD && !ended), "{what}: torn");
                assert!(!told, "{what}: no other process has changed anything");
            }
            if ended {
                break;
            }
        }
    }
}

/// Another process stores a word of the first sector that the commit leaves, before any call, and a page may be written
/// out behind that.
#[test]
fn what_others_store_beside_an_exchange_and_what_it_exchanges_both_stay() {
    let (mut committed, mut reported, mut aborted) = (0, 0, 0);
    // Many words of a sector, and one.
    for (bytes, at) in [(NEW, 100), (&NEW[..8], 104)] {
        let world = world(FsKind::Ext4);
        for call in 0.. {
            let mut reached = false;
            for (seed, crash) in (0..).zip(Crash::WORST.into_iter().chain([Crash::Random; 8])) {
                let machine = copy(&world);
                let other = machine.outsider("other");
                let open = other.open_path(0, "w/f", Open::ReadWrite).expect("opens");
                let os = machine.spawn("owner");
                let (owner, count) = (os.process(), AtomicUsize::new(0));
                let is_reached = Arc::new(AtomicBool::new(false));
                let (told, theirs) = (is_reached.clone(), other.clone());
                machine.set_hook(move |_, info| {
                    if info.process == owner && count.fetch_add(1, Ordering::Relaxed) == call {
                        theirs.write_on(&open, b"-theirs-", 0).expect("writes");
                        told.store(true, Ordering::Relaxed);
                    }
                });
                let done = run_process(&os, || commit(&os, bytes, Durability::Durable, at)).expect("lives");
                machine.clear_hook();
                reached = is_reached.load(Ordering::Relaxed);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
                recover(&machine);
                let is = content(&machine);
                let what = format!("{crash:?}, {} bytes, stored at call {call}", bytes.len());
                match done {
                    Ok(done) if done.conflict_copies.is_empty() => {
                        committed += 1;
                        let is_ours = is[at..at + bytes.len()] == *bytes;
                        assert!(is_ours, "{what}: lost, and reported durable");
                    }
                    // Between the final look and the first look at the sector.
                    Ok(_) => reported += 1,
                    Err(_) => aborted += 1,
                }
                assert!([&OLD[..8], b"-theirs-"].contains(&&is[..8]), "{what}: a word of nobody");
            }
            if !reached {
                break;
            }
        }
    }
    let seen = [committed, reported, aborted];
    assert!(!seen.contains(&0), "all outcomes are seen: {seen:?}");
}

/// A file that can't be written to any more keeps torn words, and what is missing is kept and reported.
#[test]
fn torn_words_of_a_file_that_has_become_immutable_are_reported() {
    let world = world(FsKind::Ext4);
    let mut torn = 0;
    for point in 0.. {
        let machine = copy(&world);
        let reader = machine.outsider("reader");
        let open = reader.open_path(0, "w/f", Open::Read).expect("opens");
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let commits = || commit(&os, NEW, Durability::Durable, AT[0]).expect("commits");
        let ended = run_process(&os, commits).is_ok();
        machine.clear_plans();
        drop(open);
        machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(point));
        let is = content(&machine);
        machine.set_flags(0, "w/f", true, false).expect("is set");
        let told = recover(&machine);
        if is != OLD && is != after(AT[0]) {
            torn += 1;
            assert!(told, "killed at call {point}: torn unsaid");
        }
        if ended {
            break;
        }
    }
    assert!(torn > 0);
}

/// A checkpoint deletes the note of a durable commit. A commit without a record deletes its own.
#[test]
fn what_was_noted_of_words_goes() {
    for durability in [Durability::Durable, Durability::None] {
        let machine = world(FsKind::Ext4);
        let reader = machine.outsider("reader");
        let _open = reader.open_path(0, "w/f", Open::Read).expect("opens");
        let os = machine.spawn("owner");
        let left = run_process(&os, || {
            commit(&os, NEW, durability, AT[0]).expect("commits");
            let domain = open(&os).expect("opens");
            let noted = domain.os.read_dir(&domain.area.tx).expect("readable").len();
            assert_eq!(noted, usize::from(durability == Durability::Durable));
            // Not its own note: another commit's.
            change(&domain, |t, w| t.unlink(w, b"g")).expect("commits");
            domain.checkpoint().expect("is made");
            domain.os.read_dir(&domain.area.tx).expect("readable").len()
        });
        assert_eq!(left.expect("lives"), 0, "{durability:?}");
    }
}
