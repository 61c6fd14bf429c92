//! A file that a reader has open gets its bytes word by word: a kill comes between two of them, and a page may be written
//! out there.

use super::stuck::change;
use super::world::*;
use crate::outcome::{CommitError, Committed, Durability, Options};
use crate::transaction::{Access, Transaction};
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimOs};

const OLD: &[u8] = &[b'o'; 3000];
const NEW: &[u8] = &[b'n'; 2500];

fn commit(os: &SimOs, durability: Durability, at: usize) -> Result<Committed, CommitError> {
    let failed = crate::commit::aborted;
    let domain = open(os).expect("opens");
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(os.clone(), vec![domain], options).map_err(failed)?;
    let root = t.root(0);
    let (w, _) = t.lookup(root, b"w").map_err(failed)?.expect("it is there");
    let (f, _) = t.lookup(w, b"f").map_err(failed)?.expect("it is there");
    t.open(f, Access::Write, false).map_err(failed)?;
    t.write_at(f, NEW, at as u64).map_err(failed)?;
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
            let ended = run_process(&os, || commit(&os, durability, at).expect("commits")).is_ok();
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
                ended = run_process(&os, || commit(&os, Durability::Durable, at).expect("commits")).is_ok();
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

/// A checkpoint deletes the note of a durable commit. A commit without a record deletes its own.
#[test]
fn what_was_noted_of_words_goes() {
    for durability in [Durability::Durable, Durability::None] {
        let machine = world(FsKind::Ext4);
        let reader = machine.outsider("reader");
        let _open = reader.open_path(0, "w/f", Open::Read).expect("opens");
        let os = machine.spawn("owner");
        let left = run_process(&os, || {
            commit(&os, durability, AT[0]).expect("commits");
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
