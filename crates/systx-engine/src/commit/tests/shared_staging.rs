//! Small transactions one after the other, whose slots share a shared staging directory: cut at every call, continued
//! by recoveries that are cut themselves, and by the next owner of the same index.

use super::stuck::{change, ROOT};
use super::world::{machine, open, public};
use crate::domain::Domain;
use crate::outcome::{CommitError, Committed};
use crate::transaction::Access;
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FileType, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Call, Crash, Effect, Fault, Machine, Plant, SimOs, Traced, Tree};

/// Transactions of one play, each with a directory of its own, so that no one waits for the disk because of another.
const ALL: [usize; 3] = [0, 1, 2];

fn world(fs: FsKind) -> Machine {
    let machine = machine(fs);
    for n in ALL {
        let at = |name: &str| format!("w/s{n}{name}");
        let [dir, old, moved, empty] = ["", "/old", "/from", "/empty"].map(at);
        let objects = [
            (&dir[..], Plant::Dir),
            (&old, Plant::File(b"old")),
            (&moved, Plant::File(b"moved")),
            (&empty, Plant::Dir),
        ];
        machine.plant(0, &objects).expect("planting");
    }
    machine.settle();
    machine
}

/// A slot with contents, tokens of both types, and one that gets what is moved.
fn work(domain: &Arc<Domain<SimOs>>, n: usize) -> Result<Committed, CommitError> {
    change(domain, |t, w| {
        let (dir, _) = t.lookup(w, format!("s{n}").as_bytes())?.expect("it is there");
        let (node, _) = t.create(dir, b"new", 0o644, ROOT)?;
        t.open(node, Access::Write, false)?;
        t.write_at(node, b"new contents", 0)?;
        t.close(node);
        t.unlink(dir, b"old")?;
        t.rename(dir, b"from", dir, b"to", Rename::NoReplace)?;
        t.rmdir(dir, b"empty")
    })
}

/// All of them by one process, which says when one is reported as committed.
fn play(os: &SimOs, told: &Mutex<usize>) {
    let domain = open(os).expect("opens");
    for n in ALL {
        let done = work(&domain, n).expect("commits");
        assert!(done.pending.is_none() && done.conflict_copies.is_empty(), "{done:?}");
        *told.lock().expect("nobody panicked") = n + 1;
    }
}

/// How many of them have happened: each in whole or not at all, and none without those before it.
fn taken(tree: &Tree, at: &str) -> usize {
    let has = |n: usize, name: &str| tree.contains_key(&format!("w/s{n}/{name}"));
    let state = |n: usize| ["new", "to", "old", "from", "empty"].map(|name| has(n, name));
    let happened = ALL.map(|n| match state(n) {
        [true, true, false, false, false] => {
            assert_eq!(tree[&format!("w/s{n}/new")].content, b"new contents", "{at}");
            assert_eq!(tree[&format!("w/s{n}/to")].content, b"moved", "{at}");
            true
        }
        [false, false, true, true, true] => false,
        mixed => panic!("{at}: transaction {n} is a mixture: {mixed:?}"),
    });
    let count = happened.iter().take_while(|happened| **happened).count();
    assert!(happened[count..].iter().all(|happened| !happened), "{at}: one is lost: {happened:?}");
    count
}

fn recovered(machine: &Machine, name: &str) -> Tree {
    let os = machine.spawn(name);
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let done = domain.finish_dead().expect("recovers");
        assert!(done.unfinished.is_empty(), "{done:?}");
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

/// Returns the names in all shared staging directories, but for their token files.
fn in_shared_stagings(domain: &Domain<SimOs>) -> Vec<String> {
    let (os, mut found) = (&domain.os, Vec::new());
    for shared_staging in os.read_dir(&domain.area.dir).expect("readable") {
        if !shared_staging.name.starts_with(b"slots.") {
            continue;
        }
        let dir = os.open(&domain.area.dir, &shared_staging.name, Open::Directory).expect("opens");
        let names = os.read_dir(&dir).expect("readable").into_iter().map(|entry| entry.name);
        let names = names.filter(|name| name != b"token.0" && name != b"target");
        found.extend(
            names.map(|name| {
                String::from_utf8_lossy(&[&shared_staging.name, &b"/"[..], &name].concat()).into()
            }),
        );
    }
    found
}

fn undisturbed(fs: FsKind) -> (Machine, u64) {
    let world = world(fs);
    let machine = world.fork();
    machine.set_word_points(false);
    let os = machine.spawn("owner");
    run_process(&os, || play(&os, &Mutex::new(0))).expect("lives");
    assert_eq!(taken(&public(&machine), "undisturbed"), ALL.len());
    let shared_stagings = || {
        let domain = open(&os).expect("opens");
        let names = domain.os.read_dir(&domain.area.dir).expect("readable");
        names.iter().filter(|entry| entry.name.starts_with(b"slots.")).count()
    };
    let points = os.points();
    assert_eq!(
        run_process(&os, shared_stagings).expect("lives"),
        1,
        "all of them in one shared staging directory"
    );
    (world, points)
}

/// Power is lost at every call; recoveries are killed, fail, and lose power, too.
fn power_loss_at_every_call(fs: FsKind, crashes: &[Crash], every: u64) {
    let (world, points) = undisturbed(fs);
    let mut seen = [0u32; 4];
    for point in (0..points + 1).filter(|point| point % every == 0) {
        for (n, crash) in crashes.iter().enumerate() {
            let mut rng = fastrand::Rng::with_seed(point << 8 | n as u64);
            let machine = world.fork();
            machine.set_word_points(false);
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let told = Mutex::new(0);
            let _ = run_process(&os, || play(&os, &told));
            machine.clear_plans();
            machine.power_loss(*crash, &mut rng);
            let mut at = format!("{crash:?} at call {point} of {points}");
            for _ in 0..rng.u8(0..4) {
                let os = machine.spawn("recovery");
                let skip = rng.u64(0..120);
                match rng.u8(0..3) {
                    0 => machine.kill_at(&os, skip),
                    1 => machine.fault(Fault::fail_point(&os, skip, Errno::NOSPC)),
                    _ => {
                        let (skip, effect) = (skip % 16, Effect::Fail(Errno::NOSPC));
                        let call = Some(Call::Rename);
                        machine.fault(Fault { process: Some(os.process()), call, skip, times: 1, effect });
                    }
                }
                let _ = run_process(&os, || open(&os).is_ok());
                os.exit();
                machine.clear_plans();
                at += ", a recovery that is cut off";
                if rng.bool() {
                    machine.power_loss(Crash::Random, &mut rng);
                    at += ", power lost";
                }
            }
            let tree = recovered(&machine, "last");
            let count = taken(&tree, &at);
            assert!(count >= *told.lock().expect("nobody panicked"), "{at}: reported, and lost");
            seen[count] += 1;
            machine.power_loss(Crash::Random, &mut rng);
            assert_eq!(recovered(&machine, "again"), tree, "{at}: a second recovery changed something");
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "every end is seen: {seen:?}");
}

#[test]
fn transactions_in_one_shared_staging_survive_a_power_loss_at_every_call_on_ext4() {
    let crashes = [&Crash::WORST[..], &[Crash::Random; 3]].concat();
    power_loss_at_every_call(FsKind::Ext4, &crashes, 2);
}

#[test]
fn transactions_in_one_shared_staging_survive_a_power_loss_at_every_call_on_xfs() {
    power_loss_at_every_call(FsKind::Xfs, &[Crash::Random; 3], 3);
}

/// A process that was there before recovers; then the next owner of the index goes on with the shared staging
/// directory, and loses power.
#[test]
fn the_next_owner_of_an_index_goes_on_with_the_shared_staging_of_a_killed_one() {
    let (world, points) = undisturbed(FsKind::Ext4);
    for point in (0..points).step_by(3) {
        let mut rng = fastrand::Rng::with_seed(point);
        let machine = world.fork();
        machine.set_word_points(false);
        let at = format!("killed at call {point} of {points}");
        let other = machine.spawn("other");
        let watching = run_process(&other, || open(&other).expect("opens")).expect("lives");
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let _ = run_process(&os, || play(&os, &Mutex::new(0)));
        machine.clear_plans();
        if rng.bool() {
            run_process(&other, || watching.finish_dead().expect("recovers")).expect("lives");
        }
        let next = machine.spawn("next");
        let first = run_process(&next, || {
            let domain = open(&next).expect("opens");
            domain.finish_dead().expect("recovers");
            let first = taken(&public(&machine), &at);
            ALL[first..].iter().for_each(|n| drop(work(&domain, *n).expect("commits")));
            first
        });
        let first = first.expect("lives");
        assert_eq!(taken(&public(&machine), &at), ALL.len());
        machine.power_loss(Crash::Random, &mut rng);
        let tree = recovered(&machine, "last");
        assert_eq!(taken(&tree, &at), ALL.len(), "{at}: {first} before the kill, the others after it");
    }
}

/// An owner that was killed, and another process that had opened the area before.
struct Killed {
    machine: Machine,
    other: SimOs,
    domain: Arc<Domain<SimOs>>,
}

/// Kills an owner at one of its calls.
fn killed_at(world: &Machine, point: u64) -> Killed {
    let machine = world.fork();
    machine.set_word_points(false);
    let other = machine.spawn("other");
    let domain = run_process(&other, || open(&other).expect("opens")).expect("lives");
    let os = machine.spawn("owner");
    machine.kill_at(&os, point);
    let _ = run_process(&os, || play(&os, &Mutex::new(0)));
    machine.clear_plans();
    Killed { machine, other, domain }
}

/// A recovering process need not become the next owner of the dead one's index.
#[test]
fn a_recovery_leaves_nothing_in_the_shared_staging_of_a_killed_owner() {
    let (world, points) = undisturbed(FsKind::Ext4);
    let mut left = 0;
    for point in (0..points).step_by(3) {
        let Killed { other, domain, .. } = killed_at(&world, point);
        let done = run_process(&other, || {
            left += in_shared_stagings(&domain).len();
            domain.checkpoint().expect("makes a checkpoint");
            domain.finish_dead().expect("recovers");
            domain.checkpoint().expect("makes a checkpoint");
            let left = in_shared_stagings(&domain);
            assert!(left.is_empty(), "killed at call {point} of {points}: {left:?} belongs to nobody");
        });
        done.expect("lives");
    }
    assert!(left > 0, "there was something");
}

/// An object that can't be deleted stays in the shared staging directory; it keeps no process out, at the
/// next use or after the next boot.
#[test]
fn an_immutable_object_in_the_shared_staging_of_the_dead_keeps_nobody_out() {
    let (world, points) = undisturbed(FsKind::Ext4);
    let mut met = 0;
    for point in (0..points).step_by(5) {
        let Killed { machine, other, domain } = killed_at(&world, point);
        let left = run_process(&other, || {
            domain.finish_in_flight().expect("recovers");
            in_shared_stagings(&domain)
        });
        let left = left.expect("lives");
        for slot in &left {
            machine.set_flags(0, &format!(".systx/{slot}"), true, false).expect("it is there");
        }
        met += left.len();
        let recovered = run_process(&other, || {
            // It may say that it can't delete what a record has taken out.
            let _ = domain.checkpoint();
            domain.finish_dead().expect("recovers");
        });
        recovered.expect("lives");
        machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(point));
        let os = machine.spawn("next");
        run_process(&os, || drop(open(&os).expect("opens"))).expect("lives");
    }
    assert!(met > 0, "there was something");
}

/// A user copies everything by hard links, the area with it, and removes one of the copies by a transaction.
#[test]
fn a_hard_link_of_the_token_file_is_removed_like_any_file() {
    let machine = world(FsKind::Ext4);
    let os = machine.spawn("owner");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        work(&domain, 0).expect("commits");
        let shared_staging = domain.shared_staging().expect("there is one");
        let w = os.open(&os.root(0), b"w", Open::Directory).expect("opens");
        for name in [&b"copy"[..], b"other"] {
            os.link(&shared_staging.token, &w, name).expect("links");
        }
        change(&domain, |t, w| {
            t.unlink(w, b"copy")?;
            t.rename(w, b"other", w, b"moved-copy", Rename::NoReplace)
        })
        .expect("commits");
        let there = [&b"copy"[..], b"other", b"moved-copy"].map(|name| os.stat_at(&w, name).is_ok());
        assert_eq!(there, [false, false, true]);
        work(&domain, 1).expect("commits");
    });
    done.expect("lives");
}

fn delete_shared_stagings(os: &SimOs) {
    let area = os.open(&os.root(0), b".systx", Open::Directory).expect("opens");
    for shared_staging in
        os.read_dir(&area).expect("readable").iter().filter(|e| e.name.starts_with(b"slots."))
    {
        let dir = os.open(&area, &shared_staging.name, Open::Directory).expect("opens");
        for entry in os.read_dir(&dir).expect("readable") {
            let done = match entry.kind {
                FileType::Directory => os.rmdir(&dir, &entry.name),
                _ => os.unlink(&dir, &entry.name),
            };
            done.expect("works");
        }
        os.rmdir(&area, &shared_staging.name).expect("works");
    }
}

/// An outsider deletes the shared staging directory before the last of its entries is sealed.
#[test]
fn a_shared_staging_that_is_deleted_while_a_commit_is_prepared_aborts_it() {
    let world = world(FsKind::Ext4);
    let create = |domain: &Arc<Domain<SimOs>>| super::stuck::make(domain, b"made");
    let traced = world.fork();
    traced.set_word_points(false);
    let os = traced.spawn("owner");
    traced.start_trace();
    run_process(&os, || create(&open(&os).expect("opens")).expect("commits")).expect("lives");
    let trace = traced.take_trace();
    // Behind the sync of the header the directory gets its time; the barrier's is synced at once.
    let header = trace.iter().rposition(|p| p.call == Call::Fdatasync).expect("the header is synced");
    let is_seal = |pair: &[Traced]| pair[0].call == Call::Utimens && pair[1].call != Call::Fsync;
    let seal = trace[..header].windows(2).rposition(is_seal).expect("it is sealed") as u64;
    let mut aborted = 0;
    for point in 0..seal {
        let machine = world.fork();
        machine.set_word_points(false);
        let (os, him) = (machine.spawn("owner"), machine.outsider("somebody"));
        let process = os.process();
        machine.set_hook(move |_, info| {
            if (info.process, info.point) == (process, point) {
                delete_shared_stagings(&him);
            }
        });
        let told = run_process(&os, || create(&open(&os).expect("opens"))).expect("lives");
        machine.clear_hook();
        let there = public(&machine).contains_key("w/made");
        assert_eq!(told.is_ok(), there, "deleted at call {point} of {seal}: {told:?}");
        aborted += u32::from(told.is_err());
    }
    assert!(aborted > 0);
}
