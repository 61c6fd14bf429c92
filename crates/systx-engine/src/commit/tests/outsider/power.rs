//! C6: set-id bits and root's ownership are given to the bytes that were validated, whichever process gives
//! them, and whatever an outsider does before.

use super::super::stuck::change;
use super::super::world::{machine_where, open, public, Finds};
use super::later::ME;
use crate::outcome::{CommitError, Committed, Durability, Options, Verb, VerbError};
use crate::transaction::{Access, SetAttr, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine, Plant, SimFd, SimOs};

const VALIDATED: &[u8] = b"#!/bin/sh\nvalidated\n";
/// Other bytes of that length.
const EVIL: &[u8] = b"#!/bin/sh\nhis bytes\n";
const OWNER: u32 = 1000;

fn world(finds: Finds) -> Machine {
    let machine = machine_where(FsKind::Ext4, finds);
    machine.plant(0, &[("w/f", Plant::FileMode(VALIDATED, 0o755))]).expect("planting");
    let os = machine.outsider("plants");
    os.chown(&os.open_path(0, "w/f", Open::Path).expect("is there"), OWNER, OWNER).expect("works");
    machine.settle();
    machine.set_word_points(false);
    machine
}

/// `grep -q validated f && chown root f && chmod 4755 f`.
fn give(os: &SimOs, durability: Durability) -> Result<Committed, CommitError> {
    let run = |t: &mut Transaction<SimOs>| -> Verb<()> {
        let root = t.root(0);
        let w = t.lookup(root, b"w")?.expect("is there").0;
        let f = t.lookup(w, b"f")?.expect("is there").0;
        t.open(f, Access::Read, false)?;
        let mut bytes = [0; 100];
        let got = t.read_at(f, &mut bytes, 0)?;
        t.close(f);
        if &bytes[..got] != VALIDATED {
            return Err(VerbError::Os(Errno::NOENT));
        }
        t.setattr(f, &SetAttr { uid: Some(0), gid: Some(0), ..SetAttr::default() })?;
        t.setattr(f, &SetAttr { mode: Some(0o4755), ..SetAttr::default() })?;
        t.create(w, b"made", 0o644, ME).map(drop)
    };
    let domain = open(os).expect("opens");
    let options = Options { durability, command: String::new(), ..Options::default() };
    let mut t = Transaction::begin(os.clone(), vec![domain], options).map_err(crate::commit::aborted)?;
    match run(&mut t) {
        Ok(()) => t.commit(),
        Err(error) => {
            t.abort();
            Err(crate::commit::aborted(error))
        }
    }
}

/// When the outsider wrote, if it did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrote {
    /// Before the file had power.
    Powerless,
    /// Never, or with the power that the file had.
    Otherwise,
}

impl Wrote {
    fn of(powerless: bool) -> Wrote {
        if powerless {
            Wrote::Powerless
        } else {
            Wrote::Otherwise
        }
    }
}

/// Checks what has power afterwards: the validated bytes, or what the outsider wrote when they had it
/// already.
fn judge(machine: &Machine, wrote: Wrote, what: &str) {
    let f = public(machine)["w/f"].clone();
    let evil = f.content == EVIL;
    assert!(
        !(evil && wrote == Wrote::Powerless && (f.mode & 0o6000 != 0 || f.owner.0 == 0)),
        "{what}: his bytes have got power: mode {:o}, owner {:?}",
        f.mode,
        f.owner
    );
}

/// Writes if the file is the outsider's still, or through a descriptor from before.
fn write(machine: &Machine, os: &SimOs, held: Option<&SimFd>, waits: bool) -> bool {
    let open = || os.open_path(0, "w/f", Open::ReadWrite);
    let fd = match held {
        Some(fd) => os.dup(fd),
        None => match open() {
            // The publisher stands still until its lease is taken away.
            Err(Errno::AGAIN) if waits => {
                machine.advance_ns(50_000_000_000);
                open()
            }
            fd => fd,
        },
    };
    let Ok(fd) = fd else { return false };
    let stat = os.stat(&fd).expect("works");
    let powerless = stat.uid == OWNER && stat.mode & 0o6000 == 0;
    powerless && os.pwrite(&fd, EVIL, 0).is_ok() && os.utimens(&fd, None, Some(stat.mtime)).is_ok()
}

/// An open that waits has passed the look at its rights.
#[test]
fn who_waits_for_the_lease_gets_no_file_with_power() {
    let world = world(Finds::ByHandle);
    let mut waited = 0;
    for durability in [Durability::Durable, Durability::None] {
        for at in 0.. {
            let machine = world.fork();
            let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
            let waits = Arc::new(AtomicBool::new(false));
            let (shared, mut count, mut got) = (waits.clone(), 0, None);
            machine.set_hook(move |_, _| {
                let open = || outsider.open_path(0, "w/f", Open::ReadWrite);
                if count == at {
                    let found = outsider.open_path(0, "w/f", Open::Path);
                    let stat = found.and_then(|fd| outsider.stat(&fd)).expect("is there");
                    let powerless = stat.uid == OWNER && stat.mode & 0o6000 == 0;
                    shared.store(powerless && open().err() == Some(Errno::AGAIN), Ordering::Relaxed);
                } else if got.is_none() && shared.load(Ordering::Relaxed) {
                    got = open().ok();
                }
                count += 1;
            });
            let _ = run_process(&os, || give(&os, durability)).expect("lives");
            machine.clear_hook();
            if at >= os.points() {
                break;
            }
            if waits.load(Ordering::Relaxed) {
                waited += 1;
                let f = public(&machine)["w/f"].clone();
                let powerless = f.owner.0 == OWNER && f.mode & 0o6000 == 0;
                assert!(
                    powerless,
                    "before call {at}: open for writing, with power: {:o} {:?}",
                    f.mode, f.owner
                );
            }
        }
    }
    assert!(waited > 0, "none waits");
}

/// The publisher dies between the call that gives power and its look for who waits.
#[test]
fn who_waits_for_the_lease_of_a_dead_process_gets_no_file_with_power() {
    let world = world(Finds::ByHandle);
    let (mut waited, mut given) = (0, 0);
    for durability in [Durability::Durable, Durability::None] {
        let quiet = world.fork();
        let os = quiet.spawn("owner");
        run_process(&os, || give(&os, durability)).expect("lives").expect("commits");
        for (wait, kill) in
            (1..os.points()).flat_map(|kill| (1..4).map(move |n| (kill.saturating_sub(n), kill)))
        {
            let machine = world.fork();
            let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
            let waits = Arc::new(AtomicBool::new(false));
            let (shared, of_outsider, mut count) = (waits.clone(), outsider.clone(), 0);
            machine.set_hook(move |_, _| {
                if count == wait {
                    let found = of_outsider.open_path(0, "w/f", Open::Path);
                    let stat = found.and_then(|fd| of_outsider.stat(&fd)).expect("is there");
                    let powerless = stat.uid == OWNER && stat.mode & 0o6000 == 0;
                    let open = of_outsider.open_path(0, "w/f", Open::ReadWrite);
                    shared.store(powerless && open.err() == Some(Errno::AGAIN), Ordering::Relaxed);
                }
                count += 1;
            });
            machine.kill_at(&os, kill);
            let _ = run_process(&os, || give(&os, durability));
            machine.clear_hook();
            machine.clear_plans();
            os.exit();
            if !waits.load(Ordering::Relaxed) {
                continue;
            }
            let _held =
                outsider.open_path(0, "w/f", Open::ReadWrite).expect("the lease has gone with its holder");
            let f = public(&machine)["w/f"].clone();
            given += i32::from(f.mode & 0o6000 != 0 || f.owner.0 == 0);
            waited += 1;
            let helper = machine.spawn("helper");
            let told =
                run_process(&helper, || open(&helper).expect("opens").finish_dead().expect("recovers"))
                    .expect("lives");
            let f = public(&machine)["w/f"].clone();
            assert!(
                f.owner.0 == OWNER && f.mode & 0o6000 == 0,
                "killed at {kill}, he waits since {wait}: open for writing, with power: {:o} {:?}, told {told:?}",
                f.mode,
                f.owner
            );
        }
    }
    assert!(waited > 0 && given > 0, "{waited} {given}");
}

/// Each call of the commit, with and without a descriptor from before, and perhaps a kill later.
#[test]
fn power_is_given_to_the_bytes_that_were_validated() {
    power_is_given(Finds::ByHandle);
}

#[test]
fn power_is_given_to_the_bytes_that_were_validated_without_handles() {
    power_is_given(Finds::ByPath);
}

fn power_is_given(finds: Finds) {
    let world = world(finds);
    let (mut given, mut dropped, mut refused) = (0, 0, 0);
    for durability in [Durability::Durable, Durability::None] {
        let quiet = world.fork();
        let os = quiet.spawn("owner");
        run_process(&os, || give(&os, durability)).expect("lives").expect("commits");
        let f = public(&quiet)["w/f"].clone();
        assert_eq!((f.mode & 0o7777, f.owner.0), (0o4755, 0), "nobody disturbs it");
        let points = os.points();
        let calls = (0..points).filter(|at| finds.takes(*at));
        for (at, held) in calls.flat_map(|at| [(at, false), (at, true)]) {
            for kill in [None, Some(at + 1 + at % 7)] {
                let machine = world.fork();
                let (os, outsider) = (machine.spawn("owner"), machine.outsider("outsider"));
                let open_since = held.then(|| outsider.open_path(0, "w/f", Open::ReadWrite).expect("opens"));
                let wrote = Arc::new(AtomicBool::new(false));
                let (shared, mut count) = (wrote.clone(), 0);
                machine.set_hook(move |machine, _| {
                    if count == at {
                        let waits = kill.is_none();
                        let wrote = write(machine, &outsider, open_since.as_ref(), waits);
                        shared.store(wrote, Ordering::Relaxed);
                    }
                    count += 1;
                });
                kill.inspect(|kill| machine.kill_at(&os, *kill));
                let told = run_process(&os, || give(&os, durability));
                machine.clear_hook();
                machine.clear_plans();
                os.exit();
                if kill.is_some() {
                    let helper = machine.spawn("helper");
                    run_process(&helper, || open(&helper).expect("opens").finish_dead().expect("recovers"))
                        .expect("lives");
                }
                let what = format!("{durability:?}, before call {at}, held open {held}, killed {kill:?}");
                judge(&machine, Wrote::of(wrote.load(Ordering::Relaxed)), &what);
                match told {
                    Ok(Ok(done)) if done.conflict_copies.is_empty() => given += 1,
                    Ok(Ok(_)) => dropped += 1,
                    Ok(Err(CommitError::Conflict(_))) => refused += 1,
                    // The outsider was first: nothing is validated. Or the commit was killed.
                    Ok(Err(_)) | Err(_) => {}
                }
            }
        }
    }
    assert!(given > 0 && dropped > 0 && refused > 0, "{given} {dropped} {refused}");
}

#[test]
fn a_redo_gives_power_to_the_bytes_that_were_validated() {
    for finds in [Finds::ByHandle, Finds::ByPath] {
        redo_gives_power(&world(finds));
    }
}

/// The power fails, and the outsider writes before the redo.
fn redo_gives_power(world: &Machine) {
    let (mut redone, mut kept) = (0, 0);
    for crash in [Crash::NothingUnsynced, Crash::Random] {
        for evil in [false, true] {
            let machine = world.fork();
            let os = machine.spawn("owner");
            run_process(&os, || give(&os, Durability::Durable)).expect("lives").expect("commits");
            os.exit();
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(1));
            let outsider = machine.outsider("outsider");
            let wrote = evil && write(&machine, &outsider, None, false);
            outsider.exit();
            let helper = machine.spawn("helper");
            let told =
                run_process(&helper, || open(&helper).expect("opens").recovered.clone()).expect("lives");
            assert!(told.unfinished.is_empty(), "{told:?}");
            judge(&machine, Wrote::of(wrote), &format!("{crash:?}"));
            let f = public(&machine)["w/f"].clone();
            if wrote {
                kept += 1;
                assert!(!told.conflict_copies.is_empty(), "{crash:?}: dropped, and not reported");
            } else {
                redone += 1;
                assert_eq!((f.mode & 0o7777, f.owner.0, &f.content[..]), (0o4755, 0, VALIDATED), "{crash:?}");
            }
        }
    }
    assert!(redone > 0 && kept > 0, "{redone} {kept}");
}

/// The bytes of a later commit are on the disk, and the first one's power is not for them; but what follows
/// begins with its mode.
#[test]
fn what_follows_power_that_a_redo_does_not_give_is_set() {
    let machine = world(Finds::ByHandle);
    let os = machine.spawn("owner");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        let f = |t: &mut Transaction<SimOs>, w| Ok::<_, VerbError>(t.lookup(w, b"f")?.expect("is there").0);
        let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        change(&domain, |t, w| f(t, w).and_then(|f| t.setattr(f, &mode(0o4711)).map(drop))).expect("commits");
        change(&domain, |t, w| {
            let f = f(t, w)?;
            t.open(f, Access::Write, false)?;
            t.write_at(f, b"#!/bin/sh\nlater one\n", 0)?;
            t.close(f);
            Ok(())
        })
        .expect("commits");
        change(&domain, |t, w| f(t, w).and_then(|f| t.setattr(f, &mode(0o700)).map(drop))).expect("commits");
    })
    .expect("lives");
    os.exit();
    machine.power_loss(Crash::DataWithoutNames, &mut fastrand::Rng::with_seed(1));
    let helper = machine.spawn("helper");
    let told = run_process(&helper, || open(&helper).expect("opens").recovered.clone()).expect("lives");
    assert!(!told.conflict_copies.is_empty(), "the power is dropped, and that is reported");
    let f = public(&machine)["w/f"].clone();
    assert_eq!(
        (f.mode & 0o7777, f.content.ends_with(b"later one\n")),
        (0o700, true),
        "committed later, and lost"
    );
}

/// An outsider may store at any moment, and nothing shows it: no power for that.
#[test]
fn a_file_that_somebody_has_open_for_writing_gets_no_power() {
    let machine = world(Finds::ByHandle);
    let outsider = machine.outsider("outsider");
    let _held = outsider.open_path(0, "w/f", Open::ReadWrite).expect("opens");
    let os = machine.spawn("owner");
    let told = run_process(&os, || give(&os, Durability::Durable)).expect("lives");
    assert!(matches!(told, Err(CommitError::Conflict(_))), "{told:?}");
}

/// A read of each part of its hole would be tens of thousands.
#[test]
fn validating_a_sparse_file_costs_what_its_data_do() {
    let machine = world(Finds::ByHandle);
    let os = machine.outsider("makes it long");
    os.truncate(&os.open_path(0, "w/f", Open::Write).expect("opens"), 3 << 40).expect("works");
    let os = machine.spawn("owner");
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut t = Transaction::begin(os.clone(), vec![domain], Options::default()).expect("begins");
        let w = t.lookup(t.root(0), b"w").expect("looks").expect("is there").0;
        let f = t.lookup(w, b"f").expect("looks").expect("is there").0;
        t.open(f, Access::Write, false).expect("opens");
        t.write_at(f, b"X", 5_000_000_000).expect("writes");
        t.close(f);
        t.setattr(f, &SetAttr { mode: Some(0o4755), ..SetAttr::default() }).expect("sets");
        let before = os.points();
        t.commit().expect("commits");
        assert!(os.points() - before < 2000, "{} calls", os.points() - before);
    })
    .expect("lives");
    assert_eq!(machine.look(0, "w/f").expect("is there").mode & 0o7777, 0o4755);
}
