//! A checkpoint soon after the last commit (C2): an orderly reboot does nothing again.

use super::stuck::{make, ROOT};
use super::world::*;
use crate::domain::{watch, Domain};
use crate::outcome::{Durability, Options, Recovered};
use crate::transaction::{Access, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Call, Crash, Machine, Schedule, SimOs};

fn within<T>(machine: &Machine, name: &str, work: impl FnOnce(&Arc<Domain<SimOs>>) -> T) -> T {
    let os = machine.spawn(name);
    let done = run_process(&os, || work(&open(&os).expect("opens"))).expect("lives");
    os.exit();
    done
}

/// Ends all processes, writes everything out, and boots.
fn reboot_orderly(machine: &Machine) -> Recovered {
    machine.settle();
    machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
    within(machine, "boot", |domain| domain.recovered.clone())
}

fn cover(domain: &Domain<SimOs>) {
    if let Some(goal) = domain.owed().expect("sound") {
        domain.cover(goal).expect("makes a checkpoint");
    }
}

/// Watches like the helper process that is to make a checkpoint later.
fn watched(domain: &Domain<SimOs>) -> Option<Owned> {
    watch(&domain.os, &domain.area.dir).expect("asks for a byte")
}

type Owned = <SimOs as Os>::Owned;

fn chmod(domain: &Arc<Domain<SimOs>>, mode: u32, durability: Durability) {
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options).expect("begins");
    let w = t.lookup(t.root(0), b"w").expect("looks").expect("is there").0;
    let file = t.lookup(w, b"attr").expect("looks").expect("is there").0;
    t.setattr(file, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("sets");
    t.commit().expect("commits");
}

fn make_without_durability(domain: &Arc<Domain<SimOs>>, name: &[u8]) {
    let options = Options { durability: Durability::None, ..Options::default() };
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options).expect("begins");
    let w = t.lookup(t.root(0), b"w").expect("looks").expect("is there").0;
    let (file, _) = t.create(w, name, 0o644, ROOT).expect("creates");
    t.open(file, Access::Write, false).expect("opens");
    t.write_at(file, name, 0).expect("writes");
    t.close(file);
    t.commit().expect("commits");
}

fn mode(machine: &Machine) -> u32 {
    machine.look(0, "w/attr").expect("is there").mode
}

#[test]
fn nothing_is_done_again_after_an_orderly_reboot() {
    for (kind, fs) in [
        (Kind::Everything, FsKind::Ext4),
        (Kind::Small, FsKind::Ext4),
        (Kind::Inline, FsKind::Xfs),
        (Kind::Everything, FsKind::Btrfs),
    ] {
        let machine = machine(fs);
        within(&machine, "owner", |domain| {
            transact(&domain.os, kind, Durability::Durable).expect("commits");
            assert!(domain.owed().expect("sound").is_some(), "{kind:?}: no checkpoint covers it");
        });
        // The next process covers it, the commit's own one being gone.
        within(&machine, "another", |domain| {
            cover(domain);
            assert_eq!(domain.owed().expect("sound"), None);
        });
        let after = public(&machine);
        assert_eq!(reboot_orderly(&machine), Recovered::default(), "{kind:?} on {fs:?}");
        assert_eq!(public(&machine), after, "{kind:?} on {fs:?}");
    }
}

#[test]
fn a_commit_without_durability_is_not_undone_by_a_durable_one_that_it_has_overwritten() {
    let machine = machine(FsKind::Ext4);
    let old = mode(&machine);
    within(&machine, "owner", |domain| {
        chmod(domain, 0o700, Durability::Durable);
        cover(domain);
        chmod(domain, 0o711, Durability::Durable);
        chmod(domain, 0o700, Durability::None);
        assert!(domain.owed().expect("sound").is_some(), "no checkpoint covers it");
        cover(domain);
        chmod(domain, old & 0o7777, Durability::None);
        assert!(domain.owed().expect("sound").is_some(), "it has no record, and a number");
        cover(domain);
    });
    assert_eq!(reboot_orderly(&machine), Recovered::default());
    assert_eq!(mode(&machine), old);
}

#[test]
fn of_many_who_want_a_checkpoint_each_gets_one_that_covers_it() {
    let mut made = 0;
    for seed in 0..40 {
        let machine = machine(FsKind::Ext4);
        let names: Vec<_> = (0..3).map(|n| format!("n{n}")).collect();
        let commits: Vec<(SimOs, Box<dyn FnOnce() + Send>)> = names
            .iter()
            .map(|name| {
                let os = machine.spawn(name);
                let (own, name) = (os.clone(), name.clone());
                let commits = move || {
                    let domain = open(&own).expect("opens");
                    make(&domain, name.as_bytes()).expect("commits");
                    cover(&domain);
                };
                (os, Box::new(commits) as Box<dyn FnOnce() + Send>)
            })
            .collect();
        machine.start_trace();
        Schedule::run(seed, commits);
        made += machine.take_trace().iter().filter(|call| call.call == Call::Syncfs).count();
        let again = reboot_orderly(&machine);
        assert_eq!(again, Recovered::default(), "seed {seed}: it is done again after an orderly reboot");
    }
    assert!(made < 3 * 40, "nobody shares: {made}");
}

/// The one who makes it stands still at each of its first accesses to the table, and the commit where it has
/// begun to publish.
#[test]
fn a_checkpoint_beside_a_commit_does_not_take_its_number_for_free() {
    let start = machine(FsKind::Ext4);
    start.set_word_points(true);
    let copy = start.fork();
    copy.set_word_points(true);
    copy.start_trace();
    let owner = copy.spawn("owner");
    let first = owner.points();
    run_process(&owner, || transact(&owner, Kind::Inline, Durability::Durable))
        .expect("lives")
        .expect("commits");
    let whole = owner.points() - first;
    let after = public(&copy);
    let trace = copy.take_trace();
    let synced = trace.iter().rposition(|call| call.call == Call::Fdatasync).expect("is called") as u64;
    assert!(synced < whole);
    for stop in 0..40 {
        let machine = start.fork();
        machine.set_word_points(true);
        let (one, owner) = (machine.spawn("one"), machine.spawn("owner"));
        let domain = run_process(&one, || open(&one).expect("opens")).expect("lives");
        let own = owner.clone();
        let covers = move || drop(domain.checkpoint());
        let commits = move || {
            transact(&own, Kind::Inline, Durability::Durable).expect("commits");
        };
        let both: Vec<(SimOs, Box<dyn FnOnce() + Send>)> =
            vec![(one, Box::new(covers)), (owner, Box::new(commits))];
        Schedule::run_falling(&[stop, stop + synced + 1], both);
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        within(&machine, "boot", |_| {});
        // The trees are long.
        assert!(public(&machine) == after, "stop {stop}: reported, and lost with the power");
    }
}

#[test]
fn of_ten_commits_a_second_one_a_second_makes_a_checkpoint() {
    let machine = machine(FsKind::Ext4);
    within(&machine, "owner", |domain| {
        let _helper = watched(domain);
        let (mut made, mut taken_on) = (0, Vec::new());
        let mut keep = |taken_on: &mut Vec<u64>| {
            let now = domain.os.monotonic_ns();
            for at in taken_on.iter().filter(|at| **at <= now) {
                domain.keep_promise(*at).expect("makes a checkpoint");
                made += 1;
            }
            taken_on.retain(|at| *at > now);
        };
        for n in 0..50 {
            make(domain, format!("n{n}").as_bytes()).expect("commits");
            taken_on.extend(domain.promise().expect("sound"));
            keep(&mut taken_on);
            machine.advance_ns(100_000_000);
        }
        machine.advance_ns(1_000_000_000);
        keep(&mut taken_on);
        assert!((5..=7).contains(&made), "{made} in five seconds");
        assert_eq!(domain.owed().expect("sound"), None, "the last ones are covered");
    });
    assert_eq!(reboot_orderly(&machine), Recovered::default());
}

#[test]
fn who_commits_behind_a_checkpoint_that_was_made_sooner_gets_another_one() {
    let machine = machine(FsKind::Ext4);
    within(&machine, "owner", |domain| {
        let _helper = watched(domain);
        let commit = |name: &[u8]| {
            make(domain, name).expect("commits");
            domain.promise().expect("sound")
        };
        let at = commit(b"one").expect("is taken on");
        domain.keep_promise(at).expect("makes a checkpoint");
        let at = commit(b"two").expect("is taken on");
        assert!(at > domain.os.monotonic_ns(), "a second after the last one");
        assert_eq!(commit(b"three"), None, "it relies on that one");
        // The machine goes down.
        domain.keep_promise(at).expect("makes a checkpoint");
        assert_eq!(domain.owed().expect("sound"), None);
        assert!(commit(b"four").is_some(), "it relies on one that was made before it");
    });
    machine.advance_ns(2_000_000_000);
    within(&machine, "another", |domain| {
        assert!(domain.promise().expect("sound").is_some(), "whoever has taken it on was killed");
    });
}

#[test]
fn nobody_relies_on_a_promise_of_one_who_was_killed() {
    let machine = machine(FsKind::Ext4);
    let commit = |domain: &Arc<Domain<SimOs>>, name: &[u8]| {
        make(domain, name).expect("commits");
        domain.promise().expect("sound")
    };
    let at = within(&machine, "first", |domain| {
        let at = commit(domain, b"one").expect("is taken on");
        domain.keep_promise(at).expect("makes a checkpoint");
        commit(domain, b"two").expect("is taken on")
    });
    within(&machine, "second", |domain| {
        assert!(at > domain.os.monotonic_ns(), "its time has not come");
        assert_eq!(commit(domain, b"three"), Some(at), "it relies on one who was killed");
        let _helper = watched(domain);
        assert_eq!(commit(domain, b"four"), None, "somebody is there to make it");
    });
    // Killed while its helper process is alive: that one can't know whose promise it is.
    within(&machine, "helper", |domain| {
        domain.keep_all_promises().expect("makes a checkpoint");
        assert_eq!(domain.owed().expect("sound"), None);
        let _helper = watched(domain);
        assert!(commit(domain, b"five").is_some(), "what was promised is made already");
    });
}

/// Another boot id, as in a container, proves nothing as long as a watching process knows better.
#[test]
fn beside_one_who_watches_nothing_is_done_again_in_another_life() {
    for watches in [true, false] {
        // Where no mark says that the mode was set.
        let machine = machine(FsKind::Btrfs);
        let old = mode(&machine);
        let os = machine.spawn("helper");
        let helper = run_process(&os, || {
            let domain = open(&os).expect("opens");
            chmod(&domain, 0o700, Durability::Durable);
            watches.then(|| watched(&domain)).flatten()
        })
        .expect("lives");
        assert_eq!(helper.is_some(), watches);
        let outsider = machine.spawn("outsider");
        run_process(&outsider, || {
            let file = outsider.open_path(0, "w/attr", Open::Path).expect("opens");
            outsider.chmod(&file, old & 0o7777).expect("puts it back");
        })
        .expect("lives");
        machine.seem_mounted_anew(0);
        within(&machine, "container", |_| {});
        if watches {
            assert_eq!(mode(&machine), old, "it is done again while somebody watches")
        } else {
            assert_ne!(mode(&machine), old, "nobody is there: as after a reboot")
        }
    }
}

/// A sync of everything would write what others have written, however much, and keep an unmount from its end meanwhile.
#[test]
fn a_checkpoint_of_few_commits_syncs_what_they_have_changed_and_not_the_whole_file_system() {
    for fs in [FsKind::Ext4, FsKind::Xfs] {
        for kind in [Kind::Everything, Kind::Small, Kind::Inline] {
            for crash in Crash::WORST.into_iter().chain([Crash::Random; 4]) {
                let machine = machine(fs);
                within(&machine, "owner", |domain| {
                    transact(&domain.os, kind, Durability::Durable).expect("commits");
                });
                let after = public(&machine);
                machine.start_trace();
                within(&machine, "another", |domain| cover(domain));
                let trace = machine.take_trace();
                assert!(
                    !trace.iter().any(|call| call.call == Call::Syncfs),
                    "{kind:?} on {fs:?}: everything"
                );
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(1));
                let recovered = within(&machine, "boot", |domain| domain.recovered.clone());
                assert_eq!(recovered, Recovered::default(), "{kind:?} on {fs:?}, {crash:?}");
                assert!(public(&machine) == after, "{kind:?} on {fs:?}, {crash:?}: covered, and lost");
            }
        }
    }
}

#[test]
fn wherever_a_checkpoint_of_few_commits_is_cut_off_nothing_is_lost() {
    let start = machine(FsKind::Ext4);
    within(&start, "owner", |domain| {
        transact(&domain.os, Kind::Everything, Durability::Durable).expect("commits");
    });
    let after = public(&start);
    for crash in Crash::WORST {
        for at in (0..).step_by(5) {
            let machine = start.fork();
            let os = machine.spawn("checkpoints");
            machine.kill_at(&os, at);
            let whole = run_process(&os, || cover(&open(&os).expect("opens"))).is_ok();
            os.exit();
            machine.clear_plans();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(at));
            within(&machine, "boot", |_| {});
            assert!(public(&machine) == after, "{crash:?}, cut off before call {at}: lost");
            if whole {
                assert!(at > 10, "it was cut off somewhere: {at}");
                break;
            }
        }
    }
}

#[test]
fn a_checkpoint_over_a_commit_without_durability_syncs_that_one_too() {
    let machine = machine(FsKind::Ext4);
    within(&machine, "owner", |domain| {
        chmod(domain, 0o700, Durability::Durable);
        make_without_durability(domain, b"new");
        cover(domain);
    });
    let after = public(&machine);
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    within(&machine, "boot", |_| {});
    assert!(public(&machine) == after, "covered by a checkpoint without a record, and lost");
}
