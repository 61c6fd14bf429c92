//! A file system is mounted more than once in a boot: after its cache was lost the table is of another life
//! than the log.

use super::stuck::make;
use super::world::*;
use crate::domain::{Domain, Make, Opened, Owners, SlotState, Table};
use crate::outcome::Durability;
use std::sync::{Arc, Mutex};
use systx_os::{FsInfo, FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, FsSpec, Look, Machine, Plant, SimOs};

fn within<T>(machine: &Machine, name: &str, work: impl FnOnce(&Arc<Domain<SimOs>>) -> T) -> T {
    let os = machine.spawn(name);
    let done = run_process(&os, || work(&open(&os).expect("opens"))).expect("lives");
    os.exit();
    done
}

/// The files made by [`make`] that are there, whole.
fn made(machine: &Machine, names: &[&str]) -> Vec<bool> {
    let whole = |name: &&str| {
        let look: Option<Look> = machine.look(0, &format!("w/{name}"));
        look.is_some_and(|look| look.content == name.as_bytes())
    };
    names.iter().map(whole).collect()
}

#[test]
fn what_was_committed_survives_each_loss_of_the_cache_within_one_boot() {
    let crashes = Crash::WORST.into_iter().chain([Crash::Random; 12]).enumerate();
    for (seed, crash) in crashes {
        for (kind, fs) in [
            (Kind::Everything, FsKind::Ext4),
            (Kind::Small, FsKind::Ext4),
            (Kind::Inline, FsKind::Xfs),
            (Kind::Everything, FsKind::Btrfs),
        ] {
            // A rename of Btrfs from one directory to another is two steps to the simulated one.
            if fs == FsKind::Btrfs && crash == Crash::Random {
                continue;
            }
            let what = format!("{kind:?} on {fs:?}, {crash:?}, {seed}");
            let (start, mut rng) = (machine(fs), fastrand::Rng::with_seed(seed as u64));
            let other = start.fork();
            within(&other, "undisturbed", |domain| drop(transact(&domain.os, kind, Durability::Durable)));
            let after = public(&other);
            within(&start, "owner", |domain| {
                transact(&domain.os, kind, Durability::Durable).expect("commits");
            });
            start.lose_cache(0, crash, &mut rng);
            within(&start, "helper", |_| {});
            assert_eq!(public(&start), after, "{what}: committed, and lost with the cache");
            // Numbers and names of the life before are not given again.
            for name in ["one", "two"] {
                within(&start, name, |domain| {
                    make(domain, name.as_bytes()).unwrap_or_else(|e| panic!("{what}: {e:?}"));
                });
                start.lose_cache(0, crash, &mut rng);
            }
            within(&start, "helper", |_| {});
            assert_eq!(made(&start, &["one", "two"]), [true; 2], "{what}: lost with the cache, later");
        }
    }
}

#[test]
fn an_older_table_beside_the_log_is_not_gone_on_with() {
    let machine = machine(FsKind::Ext4);
    let names = ["one", "two", "three", "four"];
    within(&machine, "first", |domain| drop(make(domain, b"one").expect("commits")));
    // The table is read here and put back later, as by a backup of the area.
    let os = machine.outsider("backup");
    let table = os.open_path(0, ".systx/table", Open::ReadWrite).expect("is there");
    let mut older = vec![0; os.stat(&table).expect("is there").size as usize];
    os.pread(&table, &mut older, 0).expect("reads");
    for name in ["two", "three"] {
        within(&machine, name, |domain| drop(make(domain, name.as_bytes()).expect("commits")));
    }
    os.pwrite(&table, &older, 0).expect("writes");
    within(&machine, "fourth", |domain| drop(make(domain, b"four").expect("commits")));
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    within(&machine, "helper", |_| {});
    assert_eq!(made(&machine, &names), [true; 4], "overwritten in the log");
}

/// A second one looks when the first one has its index and has not built the table yet.
#[test]
fn of_two_that_find_an_older_table_none_goes_on_with_it() {
    let machine = machine(FsKind::Ext4);
    within(&machine, "earlier", |domain| drop(make(domain, b"one").expect("commits")));
    machine.lose_cache(0, Crash::Everything, &mut fastrand::Rng::with_seed(1));
    let (first, second) = (machine.spawn("first"), machine.spawn("second"));
    let parts = |os: &SimOs| {
        let area = area(os, Make::Never);
        let area = area.expect("opens").expect("is there");
        let owners = Owners::open(os, &area.dir).expect("opens");
        let life = os.fs_info(&area.dir).expect("says what it is").life;
        (area, owners, life)
    };
    let (area, owners, life) = parts(&first);
    let Ok(Opened::Stale(_builds)) = Table::open(&first, &area, &owners, life) else { panic!("it is older") };
    let _claim = owners.claim().expect("there is one");
    let (area, owners, life) = parts(&second);
    let ready = Table::is_ready(&second, &area, &owners, life).expect("looks");
    assert!(!ready, "one goes on with an older table");
}

#[test]
fn where_no_life_is_known_a_table_counts_while_somebody_lives() {
    let spec = FsSpec::new(FsKind::Ext4);
    let machine = Machine::new(1, &[FsSpec { info: FsInfo { life: 0, ..spec.info }, ..spec }]);
    machine.plant(0, &[("w", Plant::Dir)]).expect("plants");
    let id = |domain: &Arc<Domain<SimOs>>| domain.table.id();
    let first = within(&machine, "first", |domain| {
        let other = within(&machine, "beside it", |beside| {
            make(beside, b"one").expect("commits");
            id(beside)
        });
        make(domain, b"two").expect("commits");
        assert_eq!(other, id(domain));
        other
    });
    machine.lose_cache(0, Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    assert_ne!(within(&machine, "after them", id), first);
    assert_eq!(made(&machine, &["one", "two"]), [true; 2]);
}

/// Killed between its slot and `next`, at each access to the table there.
#[test]
fn the_number_of_a_dead_owners_slot_is_given_to_nobody_else() {
    let start = machine(FsKind::Ext4);
    let mut cut = 0;
    loop {
        let machine = start.fork();
        machine.set_word_points(true);
        let (os, watcher) = (machine.spawn("owner"), machine.spawn("watcher"));
        let domain = run_process(&watcher, || open(&watcher).expect("opens")).expect("lives");
        let owner = os.process();
        let (mut met, killed) = (0, Arc::new(Mutex::new(false)));
        let kills = killed.clone();
        machine.set_hook(move |machine, info| {
            if info.process != owner {
                return;
            }
            let next = domain.table.next();
            let ours =
                domain.table.slots().in_flight().any(|slot| {
                    slot.is_ok_and(|s| s.info.lsn == next && s.seen.state() == SlotState::Validated)
                });
            if ours && met == cut {
                *kills.lock().expect("sound") = true;
                machine.kill(owner);
            }
            met += u64::from(ours);
        });
        let _ = run_process(&os, || make(&open(&os).expect("opens"), b"dead"));
        machine.clear_hook();
        machine.set_word_points(false);
        watcher.exit();
        if !*killed.lock().expect("sound") {
            break;
        }
        within(&machine, "helper", |domain| drop(domain.finish_dead().expect("recovers")));
        within(&machine, "next", |domain| drop(make(domain, b"next").expect("commits")));
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(cut));
        within(&machine, "after it", |_| {});
        let found = made(&machine, &["next", "dead"]);
        assert_eq!(found, [true, false], "cut {cut}: a commit has inherited an ABORT");
        cut += 1;
    }
    assert!(cut > 0, "it was cut off somewhere");
}
