//! State after a power loss.

use std::collections::BTreeSet;

use systx_os::{Errno, FsKind, Open, Os, Rename, Words, Writing};
use systx_sim::machine::{Call, Crash, Fault, FsSpec, Machine, Plant, SimOs, Tree};

fn names(machine: &Machine) -> String {
    machine.tree(0).into_keys().collect::<Vec<_>>().join(" ")
}

/// All trees that 200 random power losses at this moment lead to.
fn outcomes(machine: &Machine) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    let mut rng = fastrand::Rng::with_seed(3);
    (0..200)
        .map(|_| {
            let fork = machine.fork();
            fork.power_loss(Crash::Random, &mut rng);
            fork.check().unwrap();
            fork.tree(0).into_iter().map(|(path, look)| (path, look.content)).collect()
        })
        .collect()
}

fn after(machine: &Machine, crash: Crash) -> Machine {
    let fork = machine.fork();
    fork.power_loss(crash, &mut fastrand::Rng::with_seed(1));
    fork.check().unwrap();
    fork
}

#[test]
fn ext4_and_xfs_keep_a_prefix_of_the_names() {
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let machine = Machine::with(kind);
        let os = machine.spawn("p");
        let root = os.root(0);
        for name in [b"a", b"b", b"c", b"d"] {
            os.mkdir(&root, name, 0o755).unwrap();
        }
        os.rename((&root, b"a"), (&root, b"e"), Rename::Replace).unwrap();
        let seen: BTreeSet<String> = outcomes(&machine)
            .into_iter()
            .map(|tree| tree.into_iter().map(|(path, _)| path).collect::<Vec<_>>().join(" "))
            .collect();
        let expected = ["", "a", "a b", "a b c", "a b c d", "b c d e"];
        assert_eq!(seen, expected.iter().map(|s| s.to_string()).collect());
    }
}

#[test]
fn fsync_commits_what_came_before_the_last_touch_of_that_file_and_no_more() {
    let machine = Machine::with(FsKind::Ext4);
    let os = machine.spawn("p");
    let root = os.root(0);
    let barrier = os.create(&root, b"barrier", 0o600).unwrap();
    os.fsync(&barrier).unwrap();
    os.mkdir(&root, b"early", 0o755).unwrap();
    os.fsync(&barrier).unwrap();
    assert_eq!(names(&after(&machine, Crash::NothingUnsynced)), "barrier");
    os.utimens(&barrier, None, Some(os.now())).unwrap();
    os.mkdir(&root, b"late", 0o755).unwrap();
    os.fdatasync(&barrier).unwrap();
    assert_eq!(names(&after(&machine, Crash::NothingUnsynced)), "barrier", "fdatasync ignores times");
    os.fsync(&barrier).unwrap();
    assert_eq!(names(&after(&machine, Crash::NothingUnsynced)), "barrier early");
    os.syncfs(&barrier).unwrap();
    assert_eq!(names(&after(&machine, Crash::NothingUnsynced)), "barrier early late");
}

#[test]
fn unsynced_bytes_survive_in_any_subset_of_sectors() {
    let machine = Machine::with(FsKind::Xfs);
    machine.plant(0, &[("f", Plant::File(&[1; 1024]))]).unwrap();
    machine.settle();
    let os = machine.spawn("p");
    let file = os.open_path(0, "f", Open::ReadWrite).unwrap();
    os.pwrite(&file, &[2; 1024], 0).unwrap();
    let seen: BTreeSet<(u8, u8)> =
        outcomes(&machine).into_iter().map(|tree| (tree[0].1[0], tree[0].1[512])).collect();
    assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
    os.fdatasync(&file).unwrap();
    assert_eq!(outcomes(&machine).len(), 1);
}

#[test]
fn names_without_data_are_files_of_zeros_and_data_without_names_is_nothing() {
    let machine = Machine::with(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(b"new"))]).unwrap();
    let content = |crash| after(&machine, crash).look(0, "f").map(|look| look.content);
    assert_eq!(content(Crash::NamesWithoutData), Some(vec![0; 3]));
    assert_eq!(content(Crash::DataWithoutNames), None);
    assert_eq!(content(Crash::NothingUnsynced), None);
    assert_eq!(content(Crash::Everything), Some(b"new".to_vec()));
}

#[test]
fn written_out_files_need_a_flush_and_a_commit_that_came_after() {
    // The recipe of the stage barrier: write out, wait, then touch and fsync one barrier file.
    for (kind, whole) in [(FsKind::Ext4, true), (FsKind::Xfs, true), (FsKind::Btrfs, false)] {
        let machine = Machine::with(kind);
        let os = machine.spawn("p");
        let root = os.root(0);
        let barrier = os.create(&root, b"barrier", 0o600).unwrap();
        os.syncfs(&root).unwrap();
        let staged = os.create(&root, b"staged", 0o600).unwrap();
        os.pwrite(&staged, b"bytes", 0).unwrap();
        os.write_out(&staged, Writing::Wait).unwrap();
        let look = |machine: &Machine| after(machine, Crash::NothingUnsynced).look(0, "staged");
        assert_eq!(look(&machine), None);
        let without = machine.fork();
        let other = without.spawn("other");
        other.fsync(&other.open_path(0, "barrier", Open::Read).unwrap()).unwrap();
        assert_eq!(look(&without), None, "an untouched barrier commits nothing");
        os.chmod(&barrier, 0o600).unwrap();
        os.fsync(&barrier).unwrap();
        assert_eq!(look(&machine).map(|l| l.content), whole.then(|| b"bytes".to_vec()), "{kind:?}");
    }
}

#[test]
fn btrfs_and_ext4_without_a_journal_may_show_a_renamed_file_under_both_names() {
    for kind in [FsKind::Btrfs, FsKind::Ext4NoJournal] {
        let machine = Machine::with(kind);
        machine.plant(0, &[("from", Plant::Dir), ("to", Plant::Dir), ("from/f", Plant::File(b"x"))]).unwrap();
        machine.settle();
        let os = machine.spawn("p");
        let (from, to) = (
            os.open_path(0, "from", Open::Directory).unwrap(),
            os.open_path(0, "to", Open::Directory).unwrap(),
        );
        os.rename((&from, b"f"), (&to, b"f"), Rename::Replace).unwrap();
        os.fsync(&to).unwrap();
        let seen: BTreeSet<Vec<String>> =
            outcomes(&machine).into_iter().map(|t| t.into_iter().map(|(p, _)| p).collect()).collect();
        assert!(seen.iter().all(|paths| paths.contains(&"to/f".to_string())), "{kind:?}: {seen:?}");
        assert!(seen.iter().any(|paths| paths.contains(&"from/f".to_string())), "{kind:?}: {seen:?}");
        assert!(seen.iter().any(|paths| !paths.contains(&"from/f".to_string())), "{kind:?}: {seen:?}");
    }
}

#[test]
fn fsync_of_a_new_file_makes_its_name_and_its_directory_durable_everywhere() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Ext4NoJournal] {
        let machine = Machine::with(kind);
        let os = machine.spawn("p");
        os.mkdir(&os.root(0), b"d", 0o755).unwrap();
        let dir = os.open_path(0, "d", Open::Directory).unwrap();
        let file = os.create(&dir, b"f", 0o600).unwrap();
        os.pwrite(&file, b"bytes", 0).unwrap();
        os.fsync(&file).unwrap();
        for tree in outcomes(&machine) {
            assert_eq!(tree.last(), Some(&("d/f".to_string(), b"bytes".to_vec())), "{kind:?}");
        }
    }
}

#[test]
fn a_tmpfs_is_empty_and_another_one_after_a_power_loss() {
    let machine = Machine::new(5, &[FsSpec::new(FsKind::Ext4), FsSpec::new(FsKind::Tmpfs)]);
    let os = machine.spawn("p");
    os.mkdir(&os.root(1), b"d", 0o755).unwrap();
    os.syncfs(&os.root(1)).unwrap();
    let (boot, info) = (os.boot_id().unwrap(), os.fs_info(&os.root(1)).unwrap());
    machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
    let os = machine.spawn("q");
    assert_eq!(machine.tree(1), Tree::new());
    assert_ne!(os.boot_id().unwrap(), boot);
    assert_ne!(os.fs_info(&os.root(1)).unwrap().uuid, info.uuid);
    machine.check().unwrap();
}

#[test]
fn a_failed_fsync_is_told_once_and_its_bytes_are_never_promised_again() {
    let machine = Machine::with(FsKind::Ext4);
    let os = machine.spawn("p");
    let file = os.create(&os.root(0), b"f", 0o600).unwrap();
    os.fsync(&file).unwrap();
    os.pwrite(&file, b"bytes", 0).unwrap();
    machine.fault(Fault::fail(Call::Fsync, Errno::IO));
    assert_eq!(os.fsync(&file), Err(Errno::IO));
    assert_eq!(os.fsync(&file), Ok(()), "the kernel has forgotten it");
    assert_eq!(after(&machine, Crash::NothingUnsynced).look(0, "f").unwrap().content, vec![0; 5]);
    assert_eq!(machine.look(0, "f").unwrap().content, b"bytes", "but shows them while the machine is up");
}

#[test]
fn a_lost_truncation_brings_back_the_old_contents_never_a_mixture_with_later_bytes() {
    let machine = Machine::with(FsKind::Ext4);
    machine.plant(0, &[("f", Plant::File(b"old contents"))]).unwrap();
    machine.settle();
    let os = machine.spawn("p");
    let file = os.open_path(0, "f", Open::ReadWrite).unwrap();
    os.truncate(&file, 0).unwrap();
    os.pwrite(&file, b"new", 0).unwrap();
    os.write_out(&file, Writing::Wait).unwrap();
    let seen: BTreeSet<Vec<u8>> = outcomes(&machine).into_iter().map(|t| t[0].1.clone()).collect();
    assert!(seen.contains(b"old contents".as_slice()) && seen.contains(b"new".as_slice()), "{seen:?}");
    assert!(seen.contains(b"".as_slice()) && seen.contains([0; 3].as_slice()), "{seen:?}");
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn mapped_words_outlive_a_process_but_not_a_power_loss() {
    let machine = Machine::with(FsKind::Ext4);
    machine.plant(0, &[("table", Plant::File(&[0; 8192]))]).unwrap();
    machine.settle();
    let map = |os: &SimOs| os.map(&os.open_path(0, "table", Open::ReadWrite).unwrap(), 1024).unwrap();
    let (first, second) = (machine.spawn("a"), machine.spawn("b"));
    let (a, b) = (map(&first), map(&second));
    a.store(7, 42, std::sync::atomic::Ordering::Release);
    assert_eq!(a.compare_exchange(7, 42, 43), Ok(42));
    machine.kill(first.process());
    assert_eq!(b.load(7, std::sync::atomic::Ordering::Acquire), 43);
    let mut bytes = [0; 8];
    second.pread(&second.open_path(0, "table", Open::Read).unwrap(), &mut bytes, 56).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 43, "the mapping is the file");
    let mut rng = fastrand::Rng::with_seed(1);
    let seen: BTreeSet<u64> = (0..100)
        .map(|_| {
            let fork = machine.fork();
            fork.power_loss(Crash::Random, &mut rng);
            map(&fork.spawn("c")).load(7, std::sync::atomic::Ordering::Acquire)
        })
        .collect();
    assert!(seen.contains(&0) && seen.contains(&43) && seen.len() > 2, "old, new and noise: {seen:?}");
}

#[test]
fn without_a_journal_random_work_still_checks_out_after_every_crash() {
    for kind in [FsKind::Ext4NoJournal, FsKind::Btrfs, FsKind::Ext4, FsKind::Xfs] {
        for seed in 0..40 {
            let machine = Machine::with(kind);
            let os = machine.spawn("p");
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut dirs = vec![os.root(0)];
            for _ in 0..150 {
                let (d, e) = (rng.usize(0..dirs.len()), rng.usize(0..dirs.len()));
                let (name, other) = ([b'a' + rng.u8(0..5)], [b'a' + rng.u8(0..5)]);
                let (d, e) = (&dirs[d], &dirs[e]);
                // Refusals are as good as successes here.
                match rng.u8(0..8) {
                    0 => drop(os.mkdir(d, &name, 0o755)),
                    1 => drop(os.rename((d, &name), (e, &other), Rename::Replace)),
                    2 => drop(os.rename((d, &name), (e, &other), Rename::Exchange)),
                    3 => drop(os.unlink(d, &name).or_else(|_| os.rmdir(d, &name))),
                    4 => drop(os.create(d, &name, 0o644).map(|f| os.pwrite(&f, &[1; 700], 0))),
                    5 => drop(os.open(d, &name, Open::Path).map(|f| os.link(&f, e, &other))),
                    6 if rng.u8(0..4) == 0 => drop(os.fsync(d)),
                    _ => {
                        let opened = os.open(d, &name, Open::Directory);
                        dirs.extend(opened);
                    }
                }
                machine.check().unwrap();
            }
            for _ in 0..10 {
                let fork = machine.fork();
                fork.power_loss(Crash::Random, &mut rng);
                fork.check().unwrap_or_else(|e| panic!("{kind:?} {seed}: {e}"));
            }
            Crash::WORST.iter().for_each(|crash| drop(after(&machine, *crash)));
            machine.plant(0, &[]).unwrap();
        }
    }
}
