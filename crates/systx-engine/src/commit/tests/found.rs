//! Schedules that the interleavings have found, played by hand: short enough for every run, and independent of seeds.

use super::world::{machine, open};
use crate::commit::aborted;
use crate::facts::{look_at, Facts};
use crate::outcome::{CommitError, Committed, Durability, Options, Party, Verb, VerbError};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_os::{FsKind, Lease, Open, Os, Rename, Words};
use systx_sim::machine::{run_process, Call, Crash, Ended, Machine, Plant, Schedule, SimOs};

/// Virtual time of a call.
const CALL_NS: u64 = 1000;
const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// A machine with more objects; the same one again for each cut.
fn world(objects: &[(&str, Plant<'_>)]) -> Machine {
    let machine = machine(FsKind::Ext4);
    machine.plant(0, objects).expect("planting");
    machine.settle();
    machine
}

fn copy(world: &Machine) -> Machine {
    let copy = world.fork();
    copy.set_word_points(false);
    copy
}

fn begin(os: &SimOs) -> Verb<Transaction<SimOs>> {
    let options = Options { durability: Durability::Durable, command: String::new(), ..Options::default() };
    Transaction::begin(os.clone(), vec![open(os).expect("opens")], options)
}

fn node(t: &mut Transaction<SimOs>, name: &[u8]) -> Verb<Node> {
    let root = t.root(0);
    Ok(t.lookup(root, name)?.expect("is there").0)
}

/// Runs a transaction and commits it.
fn commit(os: &SimOs, body: impl FnOnce(&mut Transaction<SimOs>) -> Verb<()>) {
    let mut t = begin(os).expect("begins");
    body(&mut t).expect("not doomed");
    let done = t.commit().expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
}

/// Kills the transaction before each of its calls, and then lets it end; `each` gets the number of the call.
fn cut_at_every_call(
    world: &Machine,
    body: impl Fn(&mut Transaction<SimOs>) -> Verb<()>,
    mut each: impl FnMut(&Machine, &mut dyn FnMut(), u64),
) {
    for point in 0.. {
        let machine = copy(world);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let mut whole = false;
        let mut cut = || {
            whole = run_process(&os, || commit(&os, &body)).is_ok();
            machine.clear_plans();
        };
        each(&machine, &mut cut, point);
        if whole {
            break;
        }
    }
}

/// An outsider has the file open for writing, so its stamp proves nothing: the bytes themselves are a first
/// read, and come after everything that was committed meanwhile. A reader that has seen the other half as it
/// was before gets a conflict, not the new bytes.
#[test]
fn who_has_opened_a_file_before_a_commit_is_shown_no_half_of_it() {
    let world = world(&[("f", Plant::File(b"old")), ("d", Plant::Dir)]);
    let changes = |t: &mut Transaction<SimOs>| {
        let dir = node(t, b"d")?;
        t.create(dir, b"new", 0o644, ME)?;
        let file = node(t, b"f")?;
        t.open(file, Access::Write, false)?;
        t.write_at(file, b"new", 0)?;
        t.close(file);
        Ok(())
    };
    let mut seen = [0u32; 2];
    cut_at_every_call(&world, changes, |machine, cut, point| {
        let outsider = machine.outsider("outsider");
        let _held = outsider.open_path(0, "f", Open::ReadWrite).expect("opens");
        let os = machine.spawn("reader");
        run_process(&os, || {
            let mut facts = Facts::new(vec![open(&os).expect("opens")]);
            let (_, root) = facts.root(0).expect("is there");
            let found =
                |facts: &mut Facts<SimOs>, name| facts.entry(&root, name).expect("quiet").expect("is there");
            let dir = found(&mut facts, b"d").fact;
            let dir = facts.dir(dir).expect("opens");
            assert!(facts.listing(&dir).expect("quiet").is_empty());
            let file = found(&mut facts, b"f").fact;
            let file = facts.open(file).expect("opens");
            cut();
            let mut bytes = [0; 3];
            match facts.read(&file, &mut bytes, 0) {
                Ok(got) => {
                    let text = String::from_utf8_lossy(&bytes[..got]);
                    assert_eq!(text, "old", "cut at {point}: half of a commit is shown");
                    seen[0] += 1;
                }
                Err(VerbError::Doomed(_)) => seen[1] += 1,
                Err(VerbError::Os(error)) => panic!("cut at {point}: {error:?}"),
            }
        })
        .expect("lives");
    });
    assert!(seen.iter().all(|n| *n > 0), "some are shown it as it was, some are told: {seen:?}");
}

/// The first pass has the file to itself and sets its size at once; the second one may not, and must not take
/// the zeros for an outsider's.
#[test]
fn growth_that_a_kill_cut_off_is_finished_also_where_somebody_has_opened_the_file_meanwhile() {
    // Within a page, beyond one, and in several pieces.
    for growth in [2, 5000, 600_000] {
        let world = world(&[("f", Plant::File(b"old"))]);
        let tail = vec![7; growth];
        let after = [b"old", &tail[..]].concat();
        let grows = |t: &mut Transaction<SimOs>| {
            let file = node(t, b"f")?;
            t.open(file, Access::ReadWrite, false)?;
            t.append(file, &tail)?;
            t.close(file);
            Ok(())
        };
        let mut seen = [0u32; 3];
        cut_at_every_call(&world, grows, |machine, cut, point| {
            cut();
            let content = || machine.look(0, "f").expect("is there").content;
            let halfway = content() != b"old" && content() != after;
            let outsider = machine.outsider("outsider");
            let _held = outsider.open_path(0, "f", Open::Read).expect("opens");
            let os = machine.spawn("helper");
            run_process(&os, || drop(open(&os).expect("opens").finish_dead().expect("recovers")))
                .expect("lives");
            let found = content();
            assert!(
                found == b"old" || found == after,
                "{growth} bytes, cut at {point}: {} bytes, the last {:?}",
                found.len(),
                found.last()
            );
            seen[if halfway { 2 } else { usize::from(found == after) }] += 1;
        });
        assert!(seen.iter().all(|n| *n > 0), "{growth} bytes: neither, all, and halfway: {seen:?}");
    }
}

/// The bytes of an unsynced patch may survive without the size that it has set: then they are cut off at the
/// old end, and are neither what was there nor what is to be.
#[test]
fn what_a_power_loss_cut_off_at_the_old_end_of_a_file_is_finished() {
    let world = world(&[("f", Plant::File(b"old"))]);
    let grows = |t: &mut Transaction<SimOs>| {
        let file = node(t, b"f")?;
        t.open(file, Access::Write, false)?;
        t.write_at(file, b"longer", 0)?;
        t.close(file);
        Ok(())
    };
    let mut seen = [0u32; 2];
    cut_at_every_call(&world, grows, |machine, cut, point| {
        cut();
        for seed in 0..3 {
            let lost = machine.fork();
            lost.power_loss(Crash::Random, &mut fastrand::Rng::with_seed(point << 8 | seed));
            let os = lost.spawn("helper");
            run_process(&os, || open(&os).expect("opens").finish_dead().expect("recovers")).expect("lives");
            let tree = lost.tree_of(0, |path| path == "f");
            match &tree["f"].content[..] {
                b"old" => seen[0] += 1,
                b"longer" => seen[1] += 1,
                mixed => panic!("cut at {point}, seed {seed}: {mixed:?}"),
            }
        }
    });
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

/// A commit takes out a file that it has read, under a lease; another one that has changed the file prepares
/// meanwhile. Opening it for writing would break the lease, and the first would count that as an outsider's doing.
#[test]
fn a_commit_that_changes_a_file_breaks_no_lease_of_one_that_takes_it_out() {
    let world = world(&[("f", Plant::File(b"old"))]);
    world.set_word_points(true);
    let changes = |os: &SimOs| {
        let mut t = begin(os).expect("begins");
        let file = node(&mut t, b"f").expect("quiet");
        t.open(file, Access::Write, false).expect("quiet");
        t.write_at(file, b"new", 0).expect("quiet");
        t.close(file);
        t
    };
    let takes_out = |os: &SimOs| {
        let mut t = begin(os).expect("begins");
        let mut body = || {
            let file = node(&mut t, b"f")?;
            t.open(file, Access::Read, false)?;
            t.read_at(file, &mut [0; 3], 0)?;
            t.close(file);
            let top = t.root(0);
            t.unlink(top, b"f")
        };
        body().map_err(aborted)?;
        t.commit()
    };
    let calls = {
        let machine = world.fork();
        let os = machine.spawn("counted");
        run_process(&os, || takes_out(&os).expect("commits")).expect("lives");
        os.points()
    };
    let mut seen = [0u32; 2];
    for stop in 0..calls {
        let machine = world.fork();
        let (one, other) = (machine.spawn("changes"), machine.spawn("takes out"));
        let (mut changed, mut taken) = (None, None);
        let bodies: Vec<(SimOs, Box<dyn FnOnce() + Send>)> = vec![
            (
                one.clone(),
                Box::new(|| {
                    let t = changes(&one);
                    // The other one makes so many calls meanwhile.
                    one.pause(stop * CALL_NS);
                    changed = Some(t.commit());
                }),
            ),
            (other.clone(), Box::new(|| taken = Some(takes_out(&other)))),
        ];
        let report = Schedule::run_falling(&[], bodies);
        assert!(report.ended.iter().all(|ended| *ended == Ended::Finished), "stopped at {stop}: {report:?}");
        let whole = |done: &Committed| done.conflict_copies.is_empty() && done.pending.is_none();
        let (changed, taken) = (changed.expect("ends"), taken.expect("ends"));
        match (&changed, &taken) {
            // One after the other.
            (Ok(done), Ok(then)) if whole(done) && whole(then) => {}
            (Ok(done), Err(CommitError::Conflict(why))) if whole(done) && why.with != Party::Outsider => {
                seen[0] += 1;
            }
            (Err(CommitError::Conflict(why)), Ok(done)) if whole(done) && why.with != Party::Outsider => {
                seen[1] += 1;
            }
            _ => panic!("stopped at {stop}: counted as an outsider's: {changed:?}, {taken:?}"),
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "each of them wins: {seen:?}");
}

/// Bytes of files that are cut: more go than are compared.
const LONG: usize = (1 << 20) + 2048;

/// Files, and a machine with them.
fn files_to_cut() -> (Vec<String>, Machine) {
    let names: Vec<_> = (0..12).map(|n| format!("f{n}")).collect();
    let long = vec![b'n'; LONG];
    let plants: Vec<_> = names.iter().map(|name| (&name[..], Plant::File(&long))).collect();
    let world = world(&plants);
    world.settle();
    (names, world)
}

fn cut(t: &mut Transaction<SimOs>, names: &[String]) -> Verb<()> {
    for name in names {
        let file = node(t, name.as_bytes())?;
        t.setattr(file, &SetAttr { size: Some(1), ..SetAttr::default() })?;
    }
    Ok(())
}

/// A commit cuts more files than it keeps open. Nothing keeps an outsider from those, and what it writes to the part
/// that goes is in no record.
#[test]
fn an_outsiders_write_to_what_one_of_many_cuts_takes_off_is_kept() {
    let (names, world) = files_to_cut();
    // The outsider opens, writes and closes before this one of the commit's cuts.
    let mut kept = 0;
    for (n, name) in names.iter().flat_map(|name| (0..names.len() as u32).map(move |n| (n, name))) {
        let machine = copy(&world);
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
        let (owner, path, wrote) = (os.process(), name.clone(), Arc::new(AtomicBool::new(false)));
        let (mut cuts, writes) = (0, wrote.clone());
        let commits = Arc::new(AtomicBool::new(false));
        let begins = commits.clone();
        machine.set_hook(move |_, info| {
            // Staged objects are cut, too, which is none of the commit's cuts.
            let counts = begins.load(Ordering::Relaxed) && info.call == Call::Truncate;
            if info.process != owner || !counts {
                return;
            }
            if cuts == n {
                // A lease that the commit holds keeps the outsider out until all is done.
                if let Ok(fd) = outsider.open_path(0, &path, Open::ReadWrite) {
                    writes
                        .store(outsider.pwrite(&fd, b"theirs", LONG as u64 - 500).is_ok(), Ordering::Relaxed);
                    outsider.fsync(&fd).expect("syncs");
                }
            }
            cuts += 1;
        });
        let done = run_process(&os, || {
            let mut t = begin(&os).expect("begins");
            cut(&mut t, &names).expect("not doomed");
            commits.store(true, Ordering::Relaxed);
            t.commit()
        });
        machine.clear_hook();
        // Written before the final look.
        let Ok(done) = done.expect("lives") else { continue };
        let found = machine.look(0, name).expect("is there").content;
        if wrote.load(Ordering::Relaxed) {
            let has_theirs = |found: &[u8]| found.windows(6).any(|part| part == b"theirs");
            assert!(has_theirs(&found), "{name} at {n}: lost: {} bytes", found.len());
            let refused = !done.conflict_copies.is_empty();
            kept += u32::from(refused);
            machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
            let again = machine.spawn("later");
            run_process(&again, || drop(open(&again).expect("opens"))).expect("lives");
            let found = machine.look(0, name).expect("is there").content;
            assert!(has_theirs(&found) || !refused, "{name} at {n}: cut by a redo");
        } else {
            assert!(found == b"n" && done.conflict_copies.is_empty(), "{name} at {n}: {done:?}");
        }
    }
    assert!(kept > 0, "some are written to before they are cut");
}

/// Of each cut that a commit refuses for an outsider's write something says so, wherever the commit is killed.
#[test]
fn a_refused_cut_is_noted_wherever_the_publisher_is_killed() {
    let (names, world) = files_to_cut();
    let run = |n, kill: Option<u64>| {
        let machine = copy(&world);
        let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
        let (owner, mut cuts, paths) = (os.process(), 0, names.clone());
        let commits = Arc::new(AtomicBool::new(false));
        let begins = commits.clone();
        machine.set_hook(move |_, info| {
            let counts = begins.load(Ordering::Relaxed) && info.call == Call::Truncate;
            if info.process == owner && counts {
                // Those that the commit keeps open are under its lease.
                let open = |path: &String| outsider.open_path(0, path, Open::ReadWrite).ok();
                for fd in paths.iter().filter(|_| cuts == n).filter_map(open) {
                    outsider.pwrite(&fd, b"theirs", 4).expect("writes");
                }
                cuts += 1;
            }
        });
        kill.into_iter().for_each(|point| machine.kill_at(&os, point));
        let told = run_process(&os, || {
            let mut t = begin(&os).expect("begins");
            cut(&mut t, &names).expect("not doomed");
            commits.store(true, Ordering::Relaxed);
            t.commit()
        });
        machine.clear_hook();
        machine.clear_plans();
        os.exit();
        (machine, told.ok())
    };
    let refuses = |n: &u32| matches!(run(*n, None).1, Some(Ok(done)) if !done.conflict_copies.is_empty());
    let n = (0..12).find(refuses).expect("some are refused");
    let mut kept = 0;
    for point in 0.. {
        let (machine, told) = run(n, Some(point));
        let helper = machine.spawn("helper");
        let (reports, aside) = run_process(&helper, || {
            let domain = open(&helper).expect("opens");
            domain.finish_dead().expect("recovers");
            (domain.reports().expect("readable"), domain.kept_aside().expect("readable"))
        })
        .expect("lives");
        let noted = |name: &&Vec<u8>| {
            reports.iter().any(|r| r.aside.as_ref().map(String::as_bytes) == Some(&name[..]))
        };
        assert_eq!(
            aside.iter().find(|name| !noted(name)),
            None,
            "killed at {point}: nothing says why it is aside"
        );
        kept += aside.len();
        if told.is_some() {
            break;
        }
    }
    assert!(kept > 0, "some are set aside");
}

/// A process that looks at bytes has a lease on their file for a moment.
#[test]
fn a_commit_waits_for_a_lease_that_another_process_has_for_a_moment() {
    let machine = copy(&world(&[("f", Plant::File(b"contents"))]));
    let (os, reader) = (machine.spawn("owner"), machine.outsider("reader"));
    let held = reader.open_path(0, "f", Open::Read).expect("is there");
    reader.lease(&held, Lease::Read).expect("takes it");
    let (owner, mut held, mut pauses) = (os.process(), Some(held), 0);
    machine.set_hook(move |_, info| {
        if info.process == owner && info.call == Call::Pause {
            pauses += 1;
            held = held.take().filter(|_| pauses < 3);
        }
    });
    let done = run_process(&os, || {
        let mut t = begin(&os).expect("begins");
        let file = node(&mut t, b"f").expect("is there");
        t.open(file, Access::Write, false).expect("opens");
        t.write_at(file, b"x", 0).expect("writes");
        t.close(file);
        t.commit()
    });
    machine.clear_hook();
    let done = done.expect("lives");
    assert!(done.is_ok(), "the lease is not waited for: {done:?}");
    assert_eq!(machine.look(0, "f").expect("is there").content, b"xontents");
}

/// An outsider replaces the object between any two calls of a look.
#[test]
fn handle_and_attributes_of_a_name_are_of_one_object() {
    for call in 0..4 {
        let machine = copy(&world(&[("read", Plant::File(b"a")), ("other", Plant::File(b"b"))]));
        let (os, outsider) = (machine.spawn("ours"), machine.outsider("outsider"));
        let (us, mut calls) = (os.process(), 0);
        machine.set_hook(move |_, info| {
            if info.process == us && info.name == b"read" {
                if calls == call {
                    let top = outsider.root(0);
                    outsider.rename((&top, b"other"), (&top, b"read"), Rename::Replace).expect("replaces");
                }
                calls += 1;
            }
        });
        let found = run_process(&os, || look_at(&os, &os.root(0), b"read"));
        machine.clear_hook();
        let (handle, stat) = found.expect("lives").expect("looks").expect("is there");
        let of_handle = os.open_handle(&os.root(0), &handle, Open::Path).and_then(|fd| os.stat(&fd));
        let same = of_handle.is_ok_and(|object| object.ino == stat.ino);
        // The one before is gone when the look is over.
        assert!(same || call == 3, "{call}: of two objects");
    }
}

/// tmpfs notices no first store into a page through a mapping that was made after the file was read.
#[test]
fn a_store_that_moves_no_time_on_tmpfs_is_a_conflict() {
    let machine = machine(FsKind::Tmpfs);
    machine.plant(0, &[("f", Plant::File(b"contents"))]).expect("planting");
    machine.set_word_points(false);
    let (os, outsider) = (machine.spawn("ours"), machine.outsider("outsider"));
    let t = run_process(&os, || {
        let mut t = begin(&os).expect("begins");
        let file = node(&mut t, b"f").expect("is there");
        t.open(file, Access::Read, false).expect("opens");
        t.read_at(file, &mut [0; 64], 0).expect("reads");
        t
    });
    let file = outsider.open_path(0, "f", Open::ReadWrite).expect("opens");
    outsider.map(&file, 1).expect("maps").store(0, 7, Ordering::Release);
    let ended = run_process(&os, || t.expect("lives").commit()).expect("lives");
    assert!(matches!(ended, Err(CommitError::Conflict(_))), "not noticed: {ended:?}");
}
