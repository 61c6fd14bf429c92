//! An outsider acts once, before any call of a commit: nothing of the outsider's is lost (I6), and the commit
//! is whole or did not happen. Also when the publisher is killed, and when the power fails afterwards.
//!
//! Exceptions, each by its name in docs/protocol.md §7: what the outsider writes between the comparison and
//! the change of one step (d), and exact pre-images that it restores before a power loss (c). An extended
//! attribute that it sets on a file while it is taken out goes with it.

mod acts;
mod clocks;
mod judge;
mod kept;
mod later;
mod power;
mod rewritten;

use super::world::*;
use crate::objects::slot_number;
use crate::outcome::{CommitError, Committed, Durability};
use acts::{plant, Act, Outsider, ACTS, HIS, TARGETS};
use judge::{at_old_names, differences, path_of_slot, Seen};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use systx_os::FsKind;
use systx_sim::machine::{run_process, Call, Crash, Machine, PointInfo, Tree};

/// The world, and what the undisturbed transaction does in it.
struct Stage {
    kind: Kind,
    durability: Durability,
    finds: Finds,
    machine: Machine,
    before: Tree,
    after: Tree,
    /// The calls of the commit; index = point.
    calls: Vec<PointInfo>,
    /// First call after the last first look.
    read: u64,
    /// First call after the body is written: V6 looks.
    v6: u64,
    /// First call of the final look.
    look: u64,
    /// First call after the commit point.
    publishing: u64,
}

impl Stage {
    fn new(kind: Kind, durability: Durability, finds: Finds) -> Stage {
        let machine = machine_where(FsKind::Ext4, finds);
        plant(&machine);
        let before = public(&machine);
        let copy = copy(&machine);
        copy.start_trace();
        let os = copy.spawn("owner");
        run_process(&os, || transact(&os, kind, durability)).expect("lives").expect("commits");
        let calls = copy.take_trace();
        let last = |call: Call, until: usize| calls[..until].iter().rposition(|p| p.call == call);
        // Each file that is opened to be read has one while its stamp is taken.
        let opens = |calls: &[PointInfo]| {
            calls.iter().map(|p| p.call).eq([Call::Open, Call::Lease, Call::Stat, Call::Lease])
        };
        let opened = calls.windows(4).rposition(opens).expect("some are read");
        let leases =
            |from: usize| from + calls[from..].iter().position(|p| p.call == Call::Lease).expect("a lease");
        let look = leases(opened + 4);
        // Each step begins with what its slot holds, and all of them with the token of the LINKs.
        let is_slot = |name: &[u8]| slot_number(name.strip_suffix(b"l").unwrap_or(name)).is_some();
        let is_step = |p: &PointInfo| p.call == Call::HandleAt && is_slot(&p.name);
        let first_step = look + calls[look..].iter().position(is_step).expect("steps are taken");
        let publishing = behind_commit_point(&machine, kind, durability, first_step);
        let body = match durability {
            Durability::None => last(Call::Pwrite, look),
            Durability::Durable => {
                let sync = last(Call::Fdatasync, look).expect("the header is synced");
                last(Call::Pwrite, sync).and_then(|header| last(Call::Pwrite, header))
            }
        };
        let v6 = body.expect("a body is written") + 1;
        // The last name that is looked at: below `tree`, or in `w`.
        let last_name: &[u8] = if kind == Kind::Everything { b"y" } else { b"dirmovedto" };
        let read = calls[..v6].iter().rposition(|p| p.name == last_name).expect("is looked at") + 1;
        // `tree` and the directory in it are listed after that: what is found there is no part of the plan.
        let listings = if kind == Kind::Everything { 2 } else { 0 };
        let listed = calls[read..v6].iter().enumerate().filter(|(_, p)| p.call == Call::ReadDir);
        let read = listed.take(listings).last().map_or(read, |(n, _)| read + n + 1);
        let (read, v6, look, publishing) = (read as u64, v6 as u64, look as u64, publishing as u64);
        let after = public(&copy);
        Stage { kind, durability, finds, read, before, after, machine, calls, v6, look, publishing }
    }
}

/// The first call behind the commit point, which is the last call on a shared word before the first step. It
/// need not be that step: what a durable commit builds on is looked at once more between them.
fn behind_commit_point(machine: &Machine, kind: Kind, durability: Durability, first_step: usize) -> usize {
    let machine = machine.fork();
    machine.set_word_points(true);
    machine.start_trace();
    let os = machine.spawn("owner");
    run_process(&os, || transact(&os, kind, durability)).expect("lives").expect("commits");
    let (mut calls, mut behind) = (0, 0);
    for call in machine.take_trace() {
        match call.word {
            Some(_) => behind = calls,
            None if calls == first_step => break,
            None => calls += 1,
        }
    }
    behind
}

/// Takes the other name away that an object has which goes; whether it had one.
fn alone(machine: &Machine, target: &str) -> bool {
    let had = ["removed", "replaced"].contains(&target);
    if had {
        machine.remove(0, &format!("o/old/{target}")).expect("is there");
        machine.settle();
    }
    had
}

/// Event after the outsider's act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The publisher goes on.
    Nothing,
    /// It is killed so many calls later, and a helper finishes it.
    Kill(u64),
    /// It is killed so many calls later; everything is on the disk; the power fails, and the log is redone.
    PowerLoss(u64),
}

/// The outsider's act, as the hook saw it.
#[derive(Default)]
struct Acted {
    around: Option<(Tree, Tree)>,
    result: Option<bool>,
}

/// One run; `Err` says what is wrong.
fn run_one(stage: &Stage, act: Act, target: &'static str, at: u64, then: Then) -> Result<(), String> {
    let machine = copy(&stage.machine);
    let mut after = stage.after.clone();
    // Bytes written into an object with another name are not gone with this one.
    if act.in_place() && alone(&machine, target) {
        after.remove(&format!("o/old/{target}"));
    }
    let os = machine.spawn("owner");
    let outsider = Outsider::new(&machine, act, target);
    let acted = Arc::new(Mutex::new(Acted::default()));
    let (shared, mut count) = (acted.clone(), 0);
    machine.set_hook(move |machine, _| {
        if count == at {
            let before = public(machine);
            let result = outsider.act();
            *shared.lock().expect("one thread") =
                Acted { around: Some((before, public(machine))), result: Some(result.is_ok()) };
        }
        count += 1;
    });
    if let Then::Kill(later) | Then::PowerLoss(later) = then {
        machine.kill_at(&os, at + later);
    }
    let told = run_process(&os, || transact(&os, stage.kind, stage.durability)).ok();
    let killed = told.is_none();
    os.exit();
    machine.clear_plans();
    if matches!(then, Then::PowerLoss(_)) {
        // A commit that the outsider's open file stops may end before the outsider acts, which ends with the machine.
        machine.clear_hook();
        machine.settle();
        machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(at));
    }
    let mut reports: Vec<_> = match &told {
        Some(Ok(Committed { conflict_copies, pending, .. })) => {
            if let Some(why) = pending {
                return Err(format!("publication waits: {why}"));
            }
            conflict_copies.clone()
        }
        _ => Vec::new(),
    };
    let helper = machine.spawn("helper");
    let opened = run_process(&helper, || {
        let domain = open(&helper).map_err(|e| e.to_string())?;
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().map_err(|e| e.to_string())?);
        if killed {
            // A process that is killed after D leaves what is in its staging entries to the checkpoint.
            domain.checkpoint().map_err(|e| e.to_string())?;
        }
        let reports = domain.reports().map_err(|e| e.to_string())?;
        if domain.table.slots().in_flight().next().is_none() && recovered.unfinished.is_empty() {
            Ok((recovered.conflict_copies, reports))
        } else {
            Err(format!("left over: {recovered:?}"))
        }
    });
    let (recovered, noted) = opened.map_err(|_| "killed".to_owned())??;
    let displaced_by_recovery = recovered.iter().any(|d| d.aside.is_some());
    reports.extend(recovered);
    machine.clear_hook();
    machine.check()?;
    let acted = acted.lock().map_err(|_| "the hook panicked")?;
    let whole = machine.tree(0);
    let strip = |prefix: &str| -> Tree {
        let below = whole.iter().filter_map(|(p, l)| Some((p.strip_prefix(prefix)?.to_owned(), l.clone())));
        below.collect()
    };
    let aside = strip(".systx/aside/");
    let end = at_old_names(&public(&machine));
    let quiet = (stage.before.clone(), stage.before.clone());
    let (s0, s1) = acted.around.clone().unwrap_or(quiet);
    let acted_at = acted.around.is_some().then_some(at);
    let (s0, s1) = (at_old_names(&s0), at_old_names(&s1));
    let mut names: BTreeSet<String> = reports.iter().filter_map(|d| d.aside.clone()).collect();
    if killed {
        // A killed process has reported nothing; `systx list` shows what is kept.
        names.extend(aside.keys().filter(|n| !n.contains('/')).cloned());
    }
    // Who was killed has noted what there was to tell.
    let told_paths = reports.iter().map(|d| &d.path).chain(noted.iter().map(|report| &report.path));
    let told_paths = told_paths.map(|path| String::from_utf8_lossy(path).into_owned());
    let paths = told_paths.chain(names.iter().filter_map(|n| path_of_slot(n)).map(str::to_owned)).collect();
    let call = stage.calls.get(at as usize).map(|p| p.call);
    let in_the_gap = matches!(
        call,
        Some(Call::Chmod | Call::Chown | Call::SetXattr | Call::Pwrite | Call::Truncate | Call::Utimens)
    ) && at > stage.publishing;
    let seen = Seen {
        act,
        target,
        done: acted.result == Some(true),
        kind: stage.kind,
        after: &after,
        around: (&s0, &s1),
        end: &end,
        aside: &aside,
        reported: (paths, names),
        in_the_gap,
        out_of_reach: stage.finds == Finds::ByPath && act == Act::RenameParent && then != Then::Nothing,
    };
    let as_aborted = || {
        let expected = if acted_at.is_some() { &s1 } else { &stage.before };
        let mut wrong = differences(expected, &end);
        wrong.retain(|path, _| stage.after.contains_key(path) == after.contains_key(path));
        aside.keys().for_each(|name| drop(wrong.insert(format!("aside/{name}"), "is there".into())));
        wrong
    };
    // An object that the plan made by hand does not look at is no fact.
    let (no_fact, no_name) = ((act, target) == (Act::SetXattr, "attr"), target == "dst/moved");
    let early = acted_at.is_some_and(|at| at < stage.look) && !no_fact;
    // A file that the outsider may write to at any moment gets no set-id bits (C6), whenever it does.
    let refused = (act, target) == (Act::WriteOpenSinceBefore, "attr");
    match &told {
        Some(Ok(done)) => {
            if early && !done.conflict_copies.is_empty() {
                return Err(format!(
                    "changed before the final look, and displaced: {:?}",
                    done.conflict_copies
                ));
            }
            committed(&seen)
        }
        Some(Err(CommitError::InDoubt { error })) => Err(format!("in doubt: {error:?}")),
        Some(Err(why)) => match as_aborted() {
            wrong if wrong.is_empty() && (at < stage.publishing || refused) => Ok(()),
            wrong if wrong.is_empty() => Err(format!("aborted after its commit point: {why}")),
            wrong => Err(format!("aborted ({why}), and {wrong:#?}")),
        },
        None => {
            let wrong = as_aborted();
            if wrong.is_empty() {
                return Ok(());
            }
            if acted_at.is_some_and(|at| at <= stage.v6) && !no_name && displaced_by_recovery {
                return Err("changed before V6, and displaced by a recovery".into());
            }
            committed(&seen).map_err(|e| format!("{e}\n  as aborted: {wrong:#?}"))
        }
    }
}

/// Checks a committed run: whole, with the outsider's change after it.
fn committed(seen: &Seen<'_>) -> Result<(), String> {
    match seen.wrong_if_committed() {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(format!("committed, and {wrong:#?}; reports {:?}", seen.reported)),
    }
}

fn long() -> bool {
    std::env::var_os("SYSTX_LONG").is_some()
}

/// Runs each act on each name, `samples` times at a random call (all calls: `SYSTX_LONG=1`).
fn product(stage: &Stage, samples: u64, then: impl Fn(&mut fastrand::Rng, u64) -> Then) {
    let points = stage.calls.len() as u64;
    let mut rng = fastrand::Rng::with_seed(points);
    let mut wrong = Vec::new();
    // A mutant is found by some of them, and not always by the same.
    let samples = if crate::mutant::any() { 8 * samples } else { samples };
    let mut tried = 0..;
    for act in ACTS {
        for target in TARGETS {
            if !tried.next().is_some_and(|n| stage.finds.takes(n)) {
                continue;
            }
            // The plan is made by hand for what it finds at first: the outsider acts after that.
            let every = (stage.read..points).collect();
            let leaf = target.rsplit('/').next().unwrap_or_default().as_bytes();
            let looked: Vec<u64> =
                (stage.look..points).filter(|at| stage.calls[*at as usize].name == leaf).collect();
            let some = |rng: &mut fastrand::Rng| match rng.u8(0..6) {
                0 => rng.u64(stage.read..points),
                1 => rng.u64(stage.v6..points),
                // The acts that V6 is to see: not left to luck.
                2 => rng.u64(stage.read..=stage.v6),
                // Around the calls that look at the name, or change it.
                _ if looked.is_empty() => rng.u64(stage.look..points),
                _ => (looked[rng.usize(0..looked.len())] + rng.u64(0..3)).min(points - 1),
            };
            if residue_c(stage.kind, act, target) && matches!(then(&mut rng, 1), Then::PowerLoss(_)) {
                continue;
            }
            let at: Vec<u64> = if long() { every } else { (0..samples).map(|_| some(&mut rng)).collect() };
            for at in at {
                if crate::mutant::any() && !wrong.is_empty() {
                    break;
                }
                let then = then(&mut rng, points - at);
                if let Err(why) = run_one(stage, act, target, at, then) {
                    let call = &stage.calls[at as usize];
                    let name = String::from_utf8_lossy(&call.name);
                    wrong.push(format!(
                        "{act:?} of {target} before call {at} ({:?} {name}), {then:?}: {why}",
                        call.call
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} runs went wrong, the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(6)].join("\n")
    );
}

/// With every kind of step.
fn everything(finds: Finds) -> Stage {
    Stage::new(Kind::Everything, Durability::Durable, finds)
}

fn small(finds: Finds) -> Stage {
    Stage::new(Kind::Small, Durability::Durable, finds)
}

fn killed(rng: &mut fastrand::Rng, left: u64) -> Then {
    Then::Kill(rng.u64(0..left.min(60)))
}

fn power_lost(rng: &mut fastrand::Rng, left: u64) -> Then {
    Then::PowerLoss(rng.u64(0..left.min(60)))
}

#[test]
fn nothing_of_an_outsider_is_lost() {
    product(&everything(Finds::ByHandle), 2, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_without_handles() {
    product(&everything(Finds::ByPath), 2, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_without_barrier() {
    product(&small(Finds::ByHandle), 1, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_without_barrier_or_handles() {
    product(&small(Finds::ByPath), 1, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_without_durability() {
    product(&Stage::new(Kind::Everything, Durability::None, Finds::ByHandle), 1, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_without_durability_or_handles() {
    product(&Stage::new(Kind::Everything, Durability::None, Finds::ByPath), 1, |_, _| Then::Nothing);
}

#[test]
fn nothing_of_an_outsider_is_lost_when_the_publisher_is_killed() {
    product(&everything(Finds::ByHandle), 1, killed);
}

#[test]
fn nothing_of_an_outsider_is_lost_when_a_publisher_without_handles_is_killed() {
    product(&everything(Finds::ByPath), 1, killed);
}

#[test]
fn what_an_outsider_did_during_a_commit_survives_a_redo() {
    product(&everything(Finds::ByHandle), 1, power_lost);
}

#[test]
fn what_an_outsider_did_during_a_commit_survives_a_redo_without_handles() {
    product(&everything(Finds::ByPath), 1, power_lost);
}

#[test]
fn what_an_outsider_did_during_a_small_commit_survives_a_redo() {
    product(&small(Finds::ByHandle), 1, power_lost);
}

#[test]
fn what_an_outsider_did_during_a_small_commit_survives_a_redo_without_handles() {
    product(&small(Finds::ByPath), 1, power_lost);
}

#[test]
fn what_comes_between_a_look_and_its_rename_is_given_back() {
    given_back(&everything(Finds::ByHandle));
}

#[test]
fn what_comes_between_a_look_and_its_rename_is_given_back_without_handles() {
    given_back(&everything(Finds::ByPath));
}

fn given_back(stage: &Stage) {
    let renames = |at: &u64| stage.calls[*at as usize].call == Call::Rename;
    let mut tried = 0..;
    for at in (stage.publishing..stage.calls.len() as u64).filter(renames) {
        for act in [Act::RenameMineOver, Act::ExchangeMine, Act::ReplaceByDir, Act::Unlink] {
            for target in ["replaced", "removed", "moved", "dirmoved", "tree", "new", "link"] {
                if !tried.next().is_some_and(|n| stage.finds.takes(n)) {
                    continue;
                }
                if let Err(why) = run_one(stage, act, target, at, Then::Nothing) {
                    panic!("{act:?} of {target} before the rename at {at}: {why}");
                }
            }
        }
    }
}

#[test]
fn an_abort_that_was_told_is_not_redone() {
    let stage = everything(Finds::ByHandle);
    let mut told = 0;
    for at in stage.v6..stage.publishing {
        for crash in [Crash::NothingUnsynced, Crash::NamesWithoutData, Crash::Everything, Crash::Random] {
            let machine = copy(&stage.machine);
            let os = machine.spawn("owner");
            let (outsider, mut count) = (Outsider::new(&machine, Act::CreateExclusive, "new"), 0);
            machine.set_hook(move |_, _| {
                if count == at {
                    outsider.act().expect("the name is free");
                }
                count += 1;
            });
            let ended = run_process(&os, || transact(&os, stage.kind, stage.durability)).expect("lives");
            machine.clear_hook();
            if ended.is_ok() {
                continue;
            }
            told += 1;
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(at));
            let helper = machine.spawn("helper");
            run_process(&helper, || drop(open(&helper).expect("opens"))).expect("lives");
            let mut wrong = differences(&stage.before, &public(&machine));
            wrong.remove("w/new");
            assert!(wrong.is_empty(), "aborted, before call {at}, {crash:?}: {wrong:#?}");
        }
    }
    assert!(told > 0, "the final look has found something");
}

#[test]
fn a_kill_before_the_commit_point_is_an_abort() {
    killed_before_the_commit_point(Finds::ByHandle);
}

#[test]
fn a_kill_before_the_commit_point_is_an_abort_without_handles() {
    killed_before_the_commit_point(Finds::ByPath);
}

fn killed_before_the_commit_point(finds: Finds) {
    for durability in [Durability::Durable, Durability::None] {
        let stage = Stage::new(Kind::Everything, durability, finds);
        for at in (stage.read..=stage.publishing).filter(|at| finds.takes(stage.publishing - at)) {
            let machine = copy(&stage.machine);
            let os = machine.spawn("owner");
            machine.kill_at(&os, at);
            let _ = run_process(&os, || transact(&os, stage.kind, stage.durability));
            let helper = machine.spawn("helper");
            run_process(&helper, || open(&helper).expect("opens").finish_dead().expect("recovers"))
                .expect("lives");
            // Right behind it, it is a commit: there is no call between that isn't tried.
            let expected = if at < stage.publishing { &stage.before } else { &stage.after };
            let wrong = differences(expected, &public(&machine));
            assert!(wrong.is_empty(), "killed before call {at} of {}: {wrong:#?}", stage.publishing);
        }
    }
}

/// The machine just after a commit.
fn after_commit(kind: Kind, finds: Finds) -> Machine {
    let machine = machine_where(FsKind::Ext4, finds);
    plant(&machine);
    let os = machine.spawn("owner");
    run_process(&os, || transact(&os, kind, Durability::Durable)).expect("lives").expect("commits");
    os.exit();
    machine
}

/// Lets the outsider act when the commit has returned, all is written out, the power fails, and the log is
/// redone.
fn redone_over(committed: &Machine, act: impl Fn(&Machine) -> bool) -> Option<(Tree, Tree)> {
    let machine = copy(committed);
    if !act(&machine) {
        return None;
    }
    machine.settle();
    let left = public(&machine);
    machine.power_loss(Crash::Everything, &mut fastrand::Rng::with_seed(1));
    let os = machine.spawn("helper");
    run_process(&os, || drop(open(&os).expect("opens"))).expect("lives");
    Some((left, public(&machine)))
}

#[test]
fn what_an_outsider_did_after_a_commit_survives_a_redo() {
    acts_afterwards(Finds::ByHandle);
}

#[test]
fn what_an_outsider_did_after_a_commit_survives_a_redo_without_handles() {
    acts_afterwards(Finds::ByPath);
}

fn acts_afterwards(finds: Finds) {
    for kind in [Kind::Everything, Kind::Small] {
        let machine = after_commit(kind, finds);
        let mut tried = 0..;
        for act in ACTS {
            for target in TARGETS {
                let taken = tried.next().is_some_and(|n| finds.takes(n));
                if !taken || residue_c(kind, act, target) {
                    continue;
                }
                let did = |machine: &Machine| Outsider::new(machine, act, target).act().is_ok();
                let Some((left, found)) = redone_over(&machine, did) else { continue };
                let wrong = differences(&left, &found);
                assert!(wrong.is_empty(), "{kind:?}, {act:?} of {target}: {wrong:#?}");
            }
        }
    }
}

/// Returns true for a small new file that the outsider empties, and whose time it sets back: that looks as a
/// power loss leaves it.
fn residue_c(kind: Kind, act: Act, target: &str) -> bool {
    kind == Kind::Small && (act, target) == (Act::EmptyAndTimeBack, "new")
}

#[test]
fn a_new_file_that_is_emptied_and_set_back_in_time_is_filled_again() {
    let machine = after_commit(Kind::Small, Finds::ByHandle);
    let did = |machine: &Machine| Outsider::new(machine, Act::EmptyAndTimeBack, "new").act().is_ok();
    let (left, found) = redone_over(&machine, did).expect("acts");
    assert_eq!(differences(&left, &found).into_keys().collect::<Vec<_>>(), ["w/new"]);
    assert_eq!(found["w/new"].content, b"new contents");
}

/// Residue (c): what can't be distinguished from a step that was not taken.
#[test]
fn only_exact_pre_images_are_redone_over_an_outsider() {
    use systx_os::{Open, Os};
    let machine = after_commit(Kind::Everything, Finds::ByHandle);
    let chmod_back = |machine: &Machine| {
        let os = machine.outsider("outsider");
        let attr = os.open_path(0, "w/attr", Open::Path).expect("is there");
        os.chmod(&attr, 0o644).is_ok()
    };
    let (left, found) = redone_over(&machine, chmod_back).expect("acts");
    assert_eq!(
        differences(&left, &found).into_keys().collect::<Vec<_>>(),
        [""; 0],
        "a mark tells of attributes"
    );
    let bytes_back =
        |machine: &Machine| machine.overwrite(0, "w/patched", 512, &old_bytes()[512..1024]).is_ok();
    let (left, found) = redone_over(&machine, bytes_back).expect("acts");
    assert_eq!(differences(&left, &found).into_keys().collect::<Vec<_>>(), ["o/old/patched", "w/patched"]);
    assert_eq!(found["w/patched"].content[600], 0xee);
    assert!(!found["w/patched"].content.ends_with(HIS));
}
