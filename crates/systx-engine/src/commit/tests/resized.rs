//! Records that make a file longer and shorter, redone after a power loss, and outsiders that do so since.

use super::redone::{recover, write};
use super::stuck::change;
use super::world::*;
use crate::transaction::{Access, SetAttr, Transaction};
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Plant, SimOs};

/// With as many bytes as a power loss could have left of it, and synced.
#[test]
fn a_file_that_grew_by_a_hole_and_is_written_anew_since_stays_so() {
    for (len, anew) in [(511, 512), (511, 1024), (100, 512)] {
        let machine = machine(FsKind::Ext4);
        machine.plant(0, &[("w/f", Plant::File(&vec![b'a'; len]))]).expect("planting");
        machine.settle();
        let os = machine.spawn("owner");
        run_process(&os, || {
            let grows = |t: &mut Transaction<SimOs>, w| {
                let (f, _) = t.lookup(w, b"f")?.expect("it is there");
                t.setattr(f, &SetAttr { size: Some(1115), ..SetAttr::default() }).map(drop)
            };
            change(&open(&os).expect("opens"), grows).expect("commits");
        })
        .expect("not killed");
        let other = machine.outsider("other");
        let w = other.open_path(0, "w", Open::Directory).expect("opens");
        let f = other.open(&w, b"f", Open::ReadWrite).expect("opens");
        other.truncate(&f, 0).expect("works");
        other.pwrite(&f, &vec![b'b'; anew], 0).expect("works");
        other.fsync(&f).expect("works");
        drop(f);
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        drop(recover(&machine, usize::MAX, |_, _| {}));
        let found = machine.look(0, "w/f").expect("is there").content;
        assert!(found == vec![b'b'; anew], "{len}, {anew}: {} bytes", found.len());
    }
}

/// After the crash the file may have its new size, and its last sector the oldest bytes.
#[test]
fn a_file_that_is_cut_within_a_sector_of_a_record_before_has_the_last_contents() {
    let anew = |os: &SimOs, bytes: &[u8]| {
        let write = |t: &mut Transaction<SimOs>, w| {
            let (f, _) = t.lookup(w, b"f")?.expect("it is there");
            t.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() })?;
            t.open(f, Access::Write, false)?;
            t.write_at(f, bytes, 0)?;
            t.close(f);
            Ok(())
        };
        change(&open(os).expect("opens"), write).expect("commits");
    };
    let cut = |os: &SimOs, size| {
        let cut = |t: &mut Transaction<SimOs>, w| {
            let (f, _) = t.lookup(w, b"f")?.expect("it is there");
            t.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() }).map(drop)
        };
        change(&open(os).expect("opens"), cut).expect("commits");
    };
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let crashes = Crash::WORST.into_iter().chain([Crash::Random; 60]);
        for (seed, only_cut, crash) in (0..).zip(crashes).flat_map(|(n, c)| [(n, true, c), (n, false, c)]) {
            let machine = machine(kind);
            machine.plant(0, &[("w/f", Plant::File(&[b'o'; 1000]))]).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || {
                anew(&os, &[b'1'; 500]);
                if only_cut {
                    cut(&os, 30);
                } else {
                    anew(&os, &[b'2'; 30]);
                }
            })
            .expect("not killed");
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed));
            drop(recover(&machine, usize::MAX, |_, _| {}));
            let found = machine.look(0, "w/f").expect("is there").content;
            let last = if only_cut { b'1' } else { b'2' };
            assert!(found == [last; 30], "{kind:?}, {crash:?}, only cut {only_cut}: lost, {found:?}");
        }
    }
}

/// Sizes at and around the ends of sectors.
fn a_size(rng: &mut fastrand::Rng) -> usize {
    let near = [0, 1, 6, 111, 511, 512, 513, 1023, 1024, 1025, 1543, 2048, 3000, 4095, 4096, 4097, 4914];
    near[rng.usize(0..near.len())]
}

/// Makes a file longer and shorter in one way or another; returns the way. `model`: its contents.
fn resize(os: &SimOs, rng: &mut fastrand::Rng, byte: u8, model: &mut Vec<u8>) -> String {
    let (size, how, at) = (a_size(rng), rng.u8(0..5), rng.usize(0..=model.len()));
    let mut say = String::new();
    let act = |t: &mut Transaction<SimOs>, w| {
        let (f, _) = t.lookup(w, b"f")?.expect("it is there");
        let mut put = |t: &mut Transaction<SimOs>, at: usize, len: usize| {
            t.open(f, Access::Write, false)?;
            t.write_at(f, &vec![byte; len], at as u64)?;
            t.close(f);
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].fill(byte);
            Ok(())
        };
        match how {
            0 => {
                say = format!("anew {size} of {byte}");
                t.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() })?;
                put(t, 0, size)?;
                model.truncate(size);
                Ok(())
            }
            1 => {
                say = format!("append {} of {byte}", size.min(700));
                let end = t.getattr(f)?.size as usize;
                put(t, end, size.min(700))
            }
            2 => {
                say = format!("patch {at} with {byte}");
                put(t, at, 100)
            }
            _ => {
                say = format!("set {size}");
                t.setattr(f, &SetAttr { size: Some(size as u64), ..SetAttr::default() })?;
                model.resize(size, 0);
                Ok(())
            }
        }
    };
    change(&open(os).expect("opens"), act).expect("commits");
    say
}

/// The second of two commits puts back what the first one found, and is on the disk in whole or in part.
#[test]
fn what_a_commit_puts_back_in_a_sector_that_it_lets_grow_stays_after_a_redo() {
    for (seed, kind) in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs].into_iter().enumerate() {
        let machine = machine(kind);
        machine.plant(0, &[("w/f", Plant::File(b"state=1\n"))]).expect("planting");
        machine.settle();
        let os = machine.spawn("owner");
        run_process(&os, || {
            write(&os, b"f", 0, b"state=2\n").expect("commits");
            write(&os, b"f", 0, b"state=1\nextra\n").expect("commits");
        })
        .expect("not killed");
        for crash in Crash::WORST.into_iter().chain([Crash::Random; 10]) {
            let machine = machine.fork();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed as u64));
            drop(recover(&machine, usize::MAX, |_, _| {}));
            let found = machine.look(0, "w/f").expect("is there").content;
            let found = String::from_utf8_lossy(&found);
            assert!(found == "state=1\nextra\n", "{kind:?}, {crash:?}: mixed, {found:?}");
        }
    }
}

/// Another process puts back what a commit has changed, appends to it, and syncs that: the sector is neither as before
/// nor as after.
#[test]
fn an_outsiders_synced_contents_are_not_mixed_with_those_of_a_commit_before() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        for (before, ours, theirs) in [
            (&b"port=80\n"[..], &b"port=81\n"[..], &b"port=80\nhost=example\n"[..]),
            (b"port=80\n", b"port=80\nname=a\n", b"port=80\n\0\0\0\0\0\0\0\0host=example\n"),
        ] {
            let machine = machine(kind);
            machine.plant(0, &[("w/f", Plant::File(before))]).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || write(&os, b"f", 0, ours).expect("commits")).expect("not killed");
            let other = machine.outsider("other");
            let f = other.open_path(0, "w/f", Open::ReadWrite).expect("opens");
            other.pwrite(&f, theirs, 0).expect("writes");
            other.fsync(&f).expect("syncs");
            drop(f);
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            let told = recover(&machine, usize::MAX, |_, _| {}).conflict_copies;
            let found = machine.look(0, "w/f").expect("is there").content;
            let found = String::from_utf8_lossy(&found);
            assert_eq!(found.as_bytes(), theirs, "{kind:?}: mixed, {found:?}");
            // Ours was over theirs on no account, but whether it ever was on the disk can't be told.
            assert!(told.iter().all(|copy| copy.aside.is_some()) && told.len() == 1, "{kind:?}: {told:?}");
        }
    }
}

/// Durable commits alone, and nobody else but for syncs. Bytes repeat, so that a commit puts back what an earlier one
/// found.
#[test]
fn a_file_that_commits_made_longer_and_shorter_has_the_last_contents_after_a_power_loss() {
    let seeds = std::env::var("SYSTX_RESIZES").ok().and_then(|s| s.parse().ok()).unwrap_or(120);
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs][seed as usize % 3];
        let machine = machine(kind);
        let mut model = vec![b'o'; a_size(&mut rng)];
        machine.plant(0, &[("w/f", Plant::File(&model))]).expect("planting");
        machine.settle();
        let os = machine.spawn("owner");
        let mut said = Vec::new();
        // Each byte another one, or few.
        let few = rng.bool();
        run_process(&os, || {
            for byte in b'1'..b'1' + rng.u8(2..7) {
                let byte = if few { b"o1\0"[rng.usize(0..3)] } else { byte };
                said.push(resize(&os, &mut rng, byte, &mut model));
                if rng.u8(0..4) == 0 {
                    said.push("fsync".into());
                    os.fsync(&os.open_path(0, "w/f", Open::Read).expect("opens")).expect("syncs");
                }
            }
        })
        .expect("not killed");
        let all = Crash::WORST.into_iter().chain([Crash::Random; 12]);
        for (n, crash) in all.enumerate() {
            let machine = machine.fork();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed ^ n as u64));
            drop(recover(&machine, usize::MAX, |_, _| {}));
            let found = machine.look(0, "w/f").expect("is there").content;
            let wrong = found.iter().zip(&model).position(|(a, b)| a != b);
            assert!(
                found == model,
                "{kind:?}, seed {seed}, {crash:?}: {said:?}: mixed, {} bytes, {} expected, wrong from {wrong:?}",
                found.len(),
                model.len()
            );
        }
    }
}

/// Of the sector that is cut the disk may have the state before the commits.
#[test]
fn of_a_file_that_an_outsider_cuts_since_nothing_is_lost_unsaid() {
    // Each number is a sector that one commit writes.
    for written in [&[0][..], &[0, 0], &[0, 1], &[1, 0], &[0, 1, 0]] {
        let kinds = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
        let crashes = || Crash::WORST.into_iter().chain([Crash::Random; 20]);
        for (seed, (kind, crash)) in
            kinds.into_iter().flat_map(|kind| crashes().map(move |crash| (kind, crash))).enumerate()
        {
            let machine = machine(kind);
            machine.plant(0, &[("w/f", Plant::File(&[b'o'; 1000]))]).expect("planting");
            machine.settle();
            let os = machine.spawn("owner");
            run_process(&os, || {
                for (sector, byte) in written.iter().zip(b'1'..) {
                    write(&os, b"f", *sector, &[byte; 400]).expect("commits");
                }
            })
            .expect("not killed");
            let last = machine.look(0, "w/f").expect("is there").content[0];
            let other = machine.outsider("other");
            let f = other.open_path(0, "w/f", Open::ReadWrite).expect("opens");
            other.truncate(&f, 30).expect("cuts");
            drop(f);
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(seed as u64));
            let recovered = recover(&machine, usize::MAX, |_, _| {});
            let found = machine.look(0, "w/f").expect("is there").content;
            let told = recovered.conflict_copies.iter().filter(|copy| copy.aside.is_some()).count();
            let what = format!("{kind:?}, {crash:?}, {written:?}");
            assert!(found.first() == Some(&last) || told == 1, "{what}: lost unsaid, {} bytes", found.len());
            assert!(told <= 1, "{what}: told more than once");
        }
    }
}
