//! Parties of a transaction over several file systems that are away for a while, for good, or come back as they were.

use super::review::*;
use crate::domain::{decisions, Bounds, Domain, Location, OpenError};
use crate::id::TxId;
use crate::log::{outline, Cell};
use crate::outcome::Recovered;
use crate::recovery::{open_all, open_all_doubting};
use std::sync::Arc;
use systx_os::{FsKind, Os};
use systx_sim::machine::{run_process, Call, Crash, FsSpec, Machine, Plant, SimOs};

const HALF: &str = "half of it is there";

/// Which file system coordinates a transaction over both, and which takes part.
fn roles(machine: &Machine) -> (usize, usize) {
    let keys: Vec<_> = within(machine, &[0, 1], |mounts| mounts.iter().map(|d| d.key).collect());
    if keys[0] < keys[1] {
        (0, 1)
    } else {
        (1, 0)
    }
}

fn within<T>(machine: &Machine, systems: &[usize], work: impl FnOnce(&Mounts) -> T) -> T {
    let os = machine.spawn("somebody");
    let done = run_process(&os, || work(&open(&os, systems))).expect("not killed");
    os.exit();
    done
}

/// Recovers these file systems; returns what could not be finished.
fn recover(machine: &Machine, systems: &[usize]) -> Vec<String> {
    within(machine, systems, |mounts| {
        let mut all = Recovered::default();
        for domain in mounts {
            all.merge(domain.recovered.clone());
            all.merge(domain.finish_dead().expect("recovers"));
        }
        all.unfinished
    })
}

fn commit(machine: &Machine) {
    within(machine, &[0, 1], |mounts| make_everywhere(mounts, &[b"a", b"b"]).map(drop).expect("commits"));
}

fn power_fails(machine: &Machine) {
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
}

fn file_of(fs: usize) -> &'static str {
    ["a", "b"][fs]
}

fn has(machine: &Machine, fs: usize) -> bool {
    machine.look(fs, file_of(fs)).is_some()
}

fn is_whole(machine: &Machine, what: &str) {
    assert_eq!(both(machine), (true, true), "{what}: {HALF}");
}

/// The transactions that a domain's log names, and whether one is needed.
fn records(domain: &Arc<Domain<SimOs>>) -> (Vec<TxId>, bool) {
    let replay = outline(&domain.os, &domain.area.dir, domain.area.id).expect("readable").replay;
    let ids = replay.records.iter().filter(|e| matches!(e.cell, Cell::Commit { .. }));
    (ids.filter_map(|e| e.cell.id()).collect(), replay.records.iter().any(|e| e.needed))
}

/// The promise is on the disk of the participant, and nothing that says what became of it.
fn promised_and_lost() -> (Machine, usize, usize) {
    let machine = two_systems();
    let (coordinator, participant) = roles(&machine);
    commit(&machine);
    power_fails(&machine);
    (machine, coordinator, participant)
}

#[test]
fn a_disk_that_was_rolled_back_decides_on_nothing_that_it_does_not_know() {
    for again in [false, true] {
        for order in [[0, 1], [1, 0]] {
            let machine = two_systems();
            let (coordinator, participant) = roles(&machine);
            let older = machine.fork();
            let number = within(&machine, &[0, 1], |mounts| {
                make_everywhere(mounts, &[b"a", b"b"]).expect("commits");
                records(&mounts[coordinator]).0
            });
            power_fails(&machine);
            machine.roll_back(coordinator, &older);
            recover(&machine, &[coordinator]);
            if again {
                let number_again = within(&machine, &[coordinator], |mounts| {
                    make_everywhere(mounts, &[b"another"]).expect("commits");
                    records(&mounts[0]).0
                });
                assert_eq!(number, number_again, "the number is given again");
            }
            recover(&machine, &order);
            let found = [has(&machine, coordinator), has(&machine, participant)];
            assert_eq!(found, [false; 2], "{again}, {order:?}: {HALF}");
            assert_eq!(machine.look(coordinator, "another").is_some(), again);
        }
    }
}

/// A recovery reads the coordinator's log for an earlier record, and then aborts what the dead owner left there: the log
/// that was read lacks that ABORT.
#[test]
fn a_coordinator_is_asked_again_when_it_has_been_taken_back() {
    for (seed, crash) in Crash::WORST.into_iter().enumerate() {
        let world = two_systems();
        let (coordinator, participant) = roles(&world);
        commit(&world);
        for point in 0.. {
            let machine = world.fork();
            machine.set_word_points(false);
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let whole = run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"c", b"d"])).is_ok();
            machine.clear_plans();
            os.exit();
            machine.lose_cache(participant, crash, &mut fastrand::Rng::with_seed(seed as u64));
            assert_eq!(recover(&machine, &[coordinator, participant]), [""; 0], "killed at call {point}");
            let [one, other] = [(0, "c"), (1, "d")].map(|(fs, name)| machine.look(fs, name).is_some());
            assert_eq!(one, other, "{crash:?}, killed at call {point}: {HALF}");
            if whole {
                break;
            }
        }
    }
}

/// A process that dies lets go of one domain after the other. Here it is dead to the one that takes part, and
/// not yet to the one that decides.
#[test]
fn a_coordinator_that_is_not_dead_yet_is_no_doubt() {
    let world = two_systems();
    let (coordinator, participant) = roles(&world);
    let mut met = 0;
    for point in 0.. {
        let machine = world.fork();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let whole = run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"])).is_ok();
        machine.clear_plans();
        let late = machine.spawn("late");
        let held = run_process(&late, || {
            let mounts = open(&late, &[0, 1]);
            let slot = |domain: &Arc<Domain<SimOs>>| {
                let slot = domain.table.slots().in_flight().next()?.expect("sound");
                Some((slot.info.owner, slot.seen.state()))
            };
            let (owner, state) = slot(&mounts[coordinator])?;
            slot(&mounts[participant])?;
            let undecided = state == crate::domain::SlotState::Validated;
            let claim = mounts[coordinator].owners.claim_of(owner).expect("can be asked");
            claim.filter(|_| undecided).map(|claim| (mounts, claim))
        });
        if let Some(held) = held.expect("lives") {
            met += 1;
            let mut held = Some(held);
            machine.set_hook(move |_, info| {
                if info.call == Call::Pause {
                    held.take();
                }
            });
            assert_eq!(recover(&machine, &[0, 1]), [""; 0], "killed at call {point}: it is no doubt");
            machine.clear_hook();
            let (one, other) = both(&machine);
            assert_eq!(one, other, "killed at call {point}: {HALF}");
        }
        late.exit();
        if whole {
            break;
        }
    }
    assert!(met > 0, "some kills are before the commit point");
}

/// A machine with a tmpfs; with both orders of the areas.
fn with_tmpfs() -> [Machine; 2] {
    let made = |seed| {
        let machine = Machine::new(seed, &[FsSpec::new(FsKind::Ext4), FsSpec::new(FsKind::Tmpfs)]);
        machine.set_word_points(false);
        within(&machine, &[0, 1], |_| {});
        machine.settle();
        machine
    };
    let mut all: Vec<_> = (0..16).map(made).collect();
    let first = |machine: &Machine| roles(machine).0;
    let at = |fs: usize| all.iter().position(|machine| first(machine) == fs).expect("of sixteen one is");
    let (one, other) = (at(0), at(1));
    [one, other].map(|n| std::mem::replace(&mut all[n], made(99)))
}

#[test]
fn what_never_comes_back_neither_decides_nor_is_waited_for() {
    for start in with_tmpfs() {
        let machine = start.fork();
        commit(&machine);
        assert_eq!(both(&machine), (true, true));
        power_fails(&machine);
        let unfinished = recover(&machine, &[0, 1]);
        assert!(has(&machine, 0) && unfinished.is_empty(), "in doubt, or lost: {unfinished:?}");
        // A removal since then is final, however often it is recovered without that tmpfs.
        machine.remove(0, "a").expect("is there");
        machine.settle();
        for _ in 0..2 {
            power_fails(&machine);
            assert_eq!(recover(&machine, &[0]), [""; 0], "in doubt, or lost");
            assert!(!has(&machine, 0), "done again");
            assert!(!within(&machine, &[0], |mounts| records(&mounts[0]).1), "the log is kept for it");
        }
        // And the tmpfs has no record of it.
        let machine = start.fork();
        commit(&machine);
        within(&machine, &[1], |mounts| {
            let none = (Vec::new(), false);
            assert_eq!(records(&mounts[0]), none, "it has promised what will be in doubt, or lost");
            assert_eq!(mounts[0].history().expect("reads").len(), 1, "its history has it");
        });
    }
}

#[test]
fn a_commit_with_one_that_never_comes_back_is_all_or_nothing_wherever_it_is_killed() {
    for start in with_tmpfs() {
        let points = {
            let machine = start.fork();
            machine.set_word_points(false);
            let os = machine.spawn("owner");
            run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]).map(drop))
                .expect("lives")
                .expect("commits");
            os.points()
        };
        let mut outcomes = [0; 2];
        // Before that, nothing has a number.
        for point in points / 3..points {
            for power in [false, true] {
                let machine = start.fork();
                machine.set_word_points(false);
                let os = machine.spawn("owner");
                machine.kill_at(&os, point);
                let told = run_process(&os, || make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]).map(drop));
                let at = format!("point {point} of {points}, power lost: {power}");
                if power {
                    power_fails(&machine);
                    recover(&machine, &[0, 1]);
                    assert!(has(&machine, 0) || !matches!(told, Ok(Ok(()))), "{at}: lost");
                    continue;
                }
                // One after the other: a recovery may see only one of them.
                let first = [[0].as_slice(), &[1], &[0, 1]][point as usize % 3];
                recover(&machine, first);
                assert_eq!(recover(&machine, &[0, 1]), [""; 0], "{at}");
                let (a, b) = both(&machine);
                assert_eq!(a, b, "{at}: {HALF}");
                outcomes[usize::from(a)] += 1;
            }
        }
        assert!(outcomes.iter().all(|n| *n > 0), "both outcomes are seen: {outcomes:?}");
    }
}

#[test]
fn a_participant_that_is_away_keeps_no_log_and_is_told_when_it_returns() {
    let (machine, coordinator, participant) = promised_and_lost();
    recover(&machine, &[coordinator]);
    assert!(has(&machine, coordinator));
    within(&machine, &[coordinator], |mounts| {
        assert!(!records(&mounts[0]).1, "the log is kept for it");
        assert_eq!(mounts[0].awaited().expect("reads").len(), 1);
        mounts[0]
            .silence_decision(records(&mounts[0]).0.first().copied().unwrap_or(TxId(1)))
            .expect("writes");
    });
    machine.remove(coordinator, file_of(coordinator)).expect("is there");
    machine.settle();
    power_fails(&machine);
    recover(&machine, &[coordinator]);
    assert!(!has(&machine, coordinator), "done again over what somebody did since");
    recover(&machine, &[coordinator, participant]);
    assert!(has(&machine, participant), "{HALF}");
    let left = within(&machine, &[coordinator, participant], |mounts| {
        mounts.iter().for_each(|domain| drop(domain.finish_dead().expect("recovers")));
        decisions::all(&mounts[0].os, &mounts[0].area.dir).expect("reads").len()
    });
    assert_eq!(left, 0, "it has answered");
}

#[test]
fn a_checkpoint_cut_anywhere_leaves_the_decision_for_who_returns() {
    let start = two_systems();
    let (coordinator, participant) = roles(&start);
    commit(&start);
    let mut point = 0;
    loop {
        let machine = start.fork();
        machine.set_word_points(false);
        let os = machine.spawn("cut");
        machine.kill_at(&os, point);
        let done = run_process(&os, || open(&os, &[coordinator])[0].checkpoint().expect("checkpoints"));
        power_fails(&machine);
        // It begins a new log, and lets go of the old one.
        recover(&machine, &[coordinator]);
        recover(&machine, &[participant, coordinator]);
        is_whole(&machine, &format!("point {point}"));
        point += 1;
        if done.is_ok() {
            break;
        }
    }
    assert!(point > 20, "{point}");
}

#[test]
fn a_decision_goes_when_the_answer_is_on_the_disk() {
    let machine = two_systems();
    let (coordinator, participant) = roles(&machine);
    commit(&machine);
    within(&machine, &[coordinator], |mounts| mounts[0].checkpoint().expect("checkpoints"));
    // The participant's log says that it knows, and that is not synced. The other disk is quicker: everything
    // that went there is gone.
    recover(&machine, &[coordinator, participant]);
    within(&machine, &[coordinator], |mounts| mounts[0].os.syncfs(&mounts[0].area.dir).expect("syncs"));
    power_fails(&machine);
    recover(&machine, &[coordinator]);
    recover(&machine, &[coordinator, participant]);
    is_whole(&machine, "after all");
}

#[test]
fn a_doubt_ends_in_the_same_boot_when_the_coordinator_is_there_again() {
    let (machine, coordinator, participant) = promised_and_lost();
    let doubt = recover(&machine, &[participant]);
    assert!(doubt.iter().any(|why| why.contains("the file system that decides is not mounted")), "{doubt:?}");
    assert!(!has(&machine, participant));
    assert_eq!(recover(&machine, &[participant, coordinator]), [""; 0]);
    is_whole(&machine, "it is there again");
}

#[test]
fn a_doubt_can_be_ended_by_hand_and_that_is_compared_later() {
    for committed in [true, false] {
        let (machine, coordinator, participant) = promised_and_lost();
        recover(&machine, &[participant]);
        let listed = within(&machine, &[participant], |mounts| {
            let listed = mounts[0].transactions().expect("lists");
            assert!(mounts[0].is_in_doubt(listed[0].tx).expect("looks"));
            assert!(mounts[0].decide_by_hand(listed[0].tx, committed).expect("decides"));
            assert!(!mounts[0].decide_by_hand(TxId(77), committed).expect("decides"), "there is none");
            listed.len()
        });
        assert_eq!(listed, 1);
        assert_eq!(recover(&machine, &[participant]), [""; 0], "no doubt is left");
        assert_eq!(has(&machine, participant), committed);
        // Also over another power loss.
        power_fails(&machine);
        assert_eq!(recover(&machine, &[participant]), [""; 0]);
        assert_eq!(has(&machine, participant), committed);
        let told = recover(&machine, &[participant, coordinator]);
        assert_eq!(told.iter().any(|why| why.contains("by hand")), !committed, "{told:?}");
        assert_eq!(recover(&machine, &[participant, coordinator]), [""; 0], "told once");
        assert_eq!([has(&machine, coordinator), has(&machine, participant)], [true, committed]);
    }
}

/// The coordinator's table is another one when the participant's slot is finished.
#[test]
fn one_of_both_that_is_mounted_again_in_mid_commit_leaves_no_half() {
    let start = two_systems();
    let points = {
        let machine = start.fork();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        run_process(&os, || drop(make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]))).expect("lives");
        os.points()
    };
    let mut outcomes = [0; 2];
    for point in (points / 2..points).step_by(2) {
        for lost in [0, 1] {
            let machine = start.fork();
            machine.set_word_points(false);
            let os = machine.spawn("owner");
            machine.kill_at(&os, point);
            let _ = run_process(&os, || drop(make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"])));
            machine.lose_cache(lost, Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(point));
            let order = if point % 2 == 0 { [0, 1] } else { [1, 0] };
            recover(&machine, &order);
            assert_eq!(recover(&machine, &order), [""; 0], "point {point}, lost {lost}: in doubt for ever");
            let (a, b) = both(&machine);
            assert_eq!(a, b, "point {point}, lost {lost}: {HALF}");
            outcomes[usize::from(a)] += 1;
        }
    }
    assert!(outcomes.iter().all(|n| *n > 0), "both outcomes are seen: {outcomes:?}");
}

/// An outsider takes the name at the one that decides, so that the final look fails; the owner is killed on
/// its way back, and that file system is lost and mounted again, without its ABORT. The other one lives on,
/// and may be asked alone first.
#[test]
fn an_abort_that_the_one_that_decides_has_lost_is_none_for_the_others() {
    // One that has no promise in a log, too.
    with_tmpfs().iter().for_each(|start| follows_a_lost_abort(start, 0, 1));
    let disks = two_systems();
    let (coordinator, participant) = roles(&disks);
    follows_a_lost_abort(&disks, coordinator, participant);
}

fn follows_a_lost_abort(start: &Machine, coordinator: usize, participant: usize) {
    let points = {
        let machine = start.fork();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        run_process(&os, || drop(make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"]))).expect("lives");
        os.points()
    };
    let mut outcomes = [0; 2];
    for (act, later) in
        (points / 2..points).flat_map(|act| (1 + act % 2..16).step_by(2).map(move |later| (act, later)))
    {
        let machine = start.fork();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        let owner = os.process();
        machine.kill_at(&os, act + later);
        machine.set_hook(move |machine, point| {
            if point.process == owner && point.point == act {
                let _ = machine.plant(coordinator, &[(file_of(coordinator), Plant::File(b"theirs"))]);
            }
        });
        let ended = run_process(&os, || drop(make_everywhere(&open(&os, &[0, 1]), &[b"a", b"b"])));
        machine.clear_hook();
        machine.clear_plans();
        if ended.is_ok() {
            continue;
        }
        machine.lose_cache(coordinator, Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(act));
        if later % 2 == 0 {
            recover(&machine, &[participant]);
        }
        recover(&machine, &[0, 1]);
        let what = format!("acted at {act}, killed {later} later");
        assert_eq!(recover(&machine, &[0, 1]), [""; 0], "{what}: in doubt for ever");
        let is = |fs, bytes: &[u8]| machine.look(fs, file_of(fs)).is_some_and(|it| it.content == bytes);
        // The outsider's file has its name, with or without its six bytes, which were not synced: ours would be aside.
        if machine.look(coordinator, file_of(coordinator)).is_some_and(|it| it.size == 6) {
            continue;
        }
        let (ours, other) = (is(coordinator, b"contents"), is(participant, b"contents"));
        assert_eq!(ours, other, "{what}: {HALF}");
        outcomes[usize::from(ours)] += 1;
    }
    assert!(outcomes.iter().all(|n| *n > 0), "both outcomes are seen: {outcomes:?}");
}

/// The second file system is a copy of the first, as that was at some time.
#[test]
fn of_two_areas_of_one_identity_the_second_is_refused_and_neither_decides() {
    let machine = Machine::new(3, &[FsSpec::new(FsKind::Ext4), FsSpec::new(FsKind::Ext4)]);
    machine.set_word_points(false);
    within(&machine, &[0], |_| {});
    machine.settle();
    machine.copy_over(0, 1);
    let os = machine.spawn("both");
    run_process(&os, || {
        let roots = [Arc::new(os.root(0)), Arc::new(os.root(1))];
        let site = |fs: usize| Location {
            root: roots[fs].clone(),
            bounds: Bounds::FileSystem,
            parent: &*roots[fs],
            name: super::world::AREA,
        };
        for (one, other) in [(0, 1), (1, 0)] {
            let Err((1, OpenError::Copy { first: 0, id })) = open_all(&os, &[site(one), site(other)]) else {
                panic!("both are used")
            };
            let domains = open_all_doubting(&os, &[site(one)], &[id]).map_err(|(_, e)| e).expect("opens");
            assert!(domains[0].peers.area(&id).is_none() && domains[0].key == id);
        }
        // Two mounts of one file system are no copies.
        assert!(open_all(&os, &[site(0), site(0)]).is_ok());
    })
    .expect("not killed");
}
