//! Random transactions, disturbed by one random act of an outsider between any two calls of the commit, and
//! by kills, power losses and failing calls: all or nothing of what the outsider did not touch, nothing lost
//! of what it did, nothing left over.
//!
//! `SYSTX_SEED=<n>` runs one seed; `SYSTX_LONG=1` runs many.

mod acts;
mod footprint;
mod judge;
mod verbs;

use super::world::{copy, open, Finds};
use crate::domain::reports;
use crate::domain::Domain;
use crate::outcome::{CommitError, Committed, Durability, Options, Verb};
use crate::transaction::Transaction;
use acts::{Done, Kind, Outsider, HIS};
use judge::{differences, Seen, Shot};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use systx_os::{Errno, FsKind};
use systx_sim::machine::{run_process, Call, Crash, Fault, Machine, PointInfo, SimOs};
use verbs::Step;

/// Event besides the outsider's act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Besides {
    Nothing,
    /// The publisher is killed so many calls after the outsider's act.
    Kill(u64),
    /// The publisher is killed so many calls after the act; then all is on the disk, and the power fails.
    PowerLossAfterSync(u64),
    /// The publisher is killed so many calls after the act; the power fails, and what is not synced may be
    /// lost.
    PowerLoss(u64),
    /// A call of the commit fails.
    Fault(u64, Errno),
}

/// One transaction, and what it does undisturbed.
struct Play {
    finds: Finds,
    durability: Durability,
    steps: Vec<Step>,
    machine: Machine,
    before: Shot,
    after: Shot,
    /// Number of calls before the commit.
    first: u64,
    /// The calls of the commit.
    calls: Vec<PointInfo>,
}

/// The tree of `verbs`, and an area. Built once, and copied.
fn world(fs: FsKind, finds: Finds) -> Machine {
    static WORLDS: Mutex<Vec<(FsKind, Finds, Machine)>> = Mutex::new(Vec::new());
    let mut worlds = WORLDS.lock().expect("nobody panics in here");
    if let Some((.., known)) = worlds.iter().find(|(kind, how, _)| (*kind, *how) == (fs, finds)) {
        return known.clone();
    }
    let machine = Machine::new(1, &[finds.spec(fs)]);
    machine.set_word_points(false);
    verbs::plant(&machine, HIS);
    let os = machine.spawn("earlier");
    run_process(&os, || open(&os).expect("opens").checkpoint().expect("writes")).expect("lives");
    os.exit();
    machine.settle();
    worlds.push((fs, finds, machine.clone()));
    machine
}

/// Runs the transaction; notes how many calls were made before its commit.
fn transact(os: &SimOs, play: (&[Step], Durability), first: &AtomicU64) -> Result<Committed, CommitError> {
    let domain = open(os).map_err(|e| CommitError::Refused(e.to_string()))?;
    let options = Options { durability: play.1, command: String::new(), ..Options::default() };
    let body = || -> Verb<Transaction<SimOs>> {
        let mut t = Transaction::begin(os.clone(), vec![domain.clone()], options)?;
        verbs::take(&mut t, play.0)?;
        Ok(t)
    };
    let t = body().map_err(crate::commit::aborted)?;
    first.store(os.machine().points(), Ordering::Relaxed);
    t.commit()
}

impl Play {
    /// `None`: it changes nothing.
    fn random(rng: &mut fastrand::Rng, finds: Finds) -> Option<Play> {
        let durability = [Durability::Durable, Durability::None][usize::from(rng.u8(0..4) == 0)];
        let steps = (0..rng.u8(1..9)).map(|_| verbs::step(rng)).collect();
        let fs = [FsKind::Ext4, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs][rng.usize(0..4)];
        Play::new(fs, finds, durability, steps)
    }

    fn new(fs: FsKind, finds: Finds, durability: Durability, steps: Vec<Step>) -> Option<Play> {
        let machine = copy(&world(fs, finds));
        let before = Shot::of(&machine);
        let quiet = copy(&machine);
        quiet.start_trace();
        let (os, first, base) = (quiet.spawn("owner"), AtomicU64::new(0), quiet.points());
        let told = run_process(&os, || transact(&os, (&steps, durability), &first)).expect("lives");
        let mut calls = quiet.take_trace();
        let told = told.unwrap_or_else(|e| panic!("undisturbed: {e}, {steps:?}"));
        assert!(
            told.conflict_copies.is_empty() && told.pending.is_none(),
            "undisturbed: {told:?}, {steps:?}"
        );
        if told.steps == 0 {
            return None;
        }
        let first = first.load(Ordering::Relaxed) - base;
        calls.drain(..first as usize);
        let after = Shot::of(&quiet);
        Some(Play { finds, durability, steps, machine, before, after, first, calls })
    }
}

/// Returns true if a sync has failed.
fn is_closed(machine: &Machine) -> bool {
    let os = machine.spawn("looks");
    let closed = run_process(&os, || open(&os).is_ok_and(|domain| domain.log_closed().is_some()));
    os.exit();
    closed.expect("lives")
}

/// The state that a later process finds.
struct Found {
    end: Shot,
    /// Slots and staged objects that are there after recovery and checkpoint.
    left: Vec<String>,
    reported: BTreeSet<String>,
    /// Names that are listed as kept.
    kept: Vec<String>,
    unfinished: Vec<String>,
}

/// Finishes what the dead left, makes a checkpoint, and looks for leftovers.
fn recover(machine: &Machine) -> Result<Found, String> {
    let os = machine.spawn("helper");
    let recovered = run_process(&os, || -> Result<_, String> {
        let domain: Arc<Domain<SimOs>> = open(&os).map_err(|e| e.to_string())?;
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().map_err(|e| format!("{e:?}"))?);
        domain.checkpoint().map_err(|e| e.to_string())?;
        if domain.table.slots().in_flight().next().is_some() {
            return Err(format!("in flight after recovery: {recovered:?}"));
        }
        let told = reports::all(&os, &domain.area.dir).map_err(|e| format!("{e:?}"))?;
        let kept = domain.kept_aside().map_err(|e| format!("{e:?}"))?;
        let kept = kept.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        Ok((recovered, told, kept))
    });
    os.exit();
    let (recovered, told, kept) = recovered.map_err(|_| "killed".to_owned())??;
    machine.check()?;
    let end = Shot::of(machine);
    let left = end.all.keys().filter(|path| path.starts_with(".systx/tx/")).cloned().collect();
    let reported = recovered.conflict_copies.into_iter().filter_map(|d| d.aside);
    let reported = reported.chain(told.into_iter().filter_map(|r| r.aside)).collect();
    Ok(Found { end, left, reported, kept, unfinished: recovered.unfinished })
}

/// The outsider's act, as the hook saw it.
type Acted = Arc<Mutex<Option<(Shot, Shot, Done)>>>;

struct Ran {
    committed: bool,
    acted: bool,
}

/// One run of a play; `Err` says what is wrong.
fn disturbed(
    play: &Play,
    act: (Kind, &str),
    at: u64,
    besides: Besides,
    rng: &mut fastrand::Rng,
) -> Result<Ran, String> {
    let machine = copy(&play.machine);
    let os = machine.spawn("owner");
    let outsider = Outsider::new(&machine, act.0, act.1);
    let told_act = format!("{:?} of {} before call {at}", outsider.kind, outsider.path);
    let (acted, base): (Acted, _) = (Acted::default(), machine.points() + play.first);
    let shared = acted.clone();
    machine.set_hook(move |machine, info| {
        if info.global_point == base + at {
            let was = Shot::of(machine);
            if let Ok(done) = outsider.act() {
                *shared.lock().expect("one thread") = Some((was, Shot::of(machine), done));
            }
        }
    });
    match besides {
        Besides::Nothing => {}
        Besides::Kill(n) | Besides::PowerLossAfterSync(n) | Besides::PowerLoss(n) => {
            machine.kill_at(&os, play.first + at + n)
        }
        Besides::Fault(n, error) => machine.fault(Fault::fail_point(&os, play.first + n, error)),
    }
    let first = AtomicU64::new(0);
    let told = run_process(&os, || transact(&os, (&play.steps, play.durability), &first)).ok();
    os.exit();
    machine.clear_plans();
    machine.clear_hook();
    let mut forgotten = false;
    match besides {
        Besides::PowerLossAfterSync(_) => {
            machine.settle();
            machine.power_loss(Crash::Everything, rng);
        }
        Besides::PowerLoss(_) => {
            machine.power_loss(Crash::Random, rng);
            forgotten = true;
        }
        _ if matches!(told, Some(Err(CommitError::InDoubt { .. }))) => {
            machine.settle();
            machine.power_loss(Crash::Everything, rng);
        }
        // Nothing is committed any more as long as it is mounted.
        Besides::Fault(..) if is_closed(&machine) => {
            machine.settle();
            machine.power_loss(Crash::Everything, rng);
        }
        _ => {}
    }
    let context = |why: String| format!("{told_act}, {besides:?}, told {told:?}: {why}");
    let found = recover(&machine).map_err(context)?;
    if !found.unfinished.is_empty() {
        return Err(context(format!("unfinished: {:?}", found.unfinished)));
    }
    // A second recovery changes nothing, also after another power loss.
    let reboots = rng.bool();
    if reboots {
        machine.settle();
        machine.power_loss(Crash::Everything, rng);
    }
    let again = recover(&machine).map_err(context)?;
    let mut changed = differences(&found.end.public(), &again.end.public());
    changed.extend(differences(&found.end.aside(), &again.end.aside()));
    if !changed.is_empty() {
        return Err(context(format!("a second recovery changed {changed:#?}")));
    }
    let acted = acted.lock().map_err(|_| "the hook panicked")?.take();
    let call = play.calls.get(at as usize).map(|info| info.call);
    let in_the_gap = matches!(
        call,
        Some(
            Call::Chmod
                | Call::Chown
                | Call::SetXattr
                | Call::RemoveXattr
                | Call::Pwrite
                | Call::Truncate
                | Call::Fallocate
                | Call::CopyRange
                | Call::Utimens
        )
    );
    let seen = Seen {
        before: &play.before,
        after: &play.after,
        around: acted.as_ref().map(|(was, then, done)| (was, then, done)),
        end: &found.end,
        in_the_gap,
        out_of_reach: play.finds == Finds::ByPath
            && act.0 == Kind::RenameParent
            && !matches!(besides, Besides::Nothing),
    };
    // A process that is killed between sealing its staging entries and its number leaves them to the next
    // boot: no record and no active entry names them.
    let unnumbered = told.is_none() && (forgotten || seen.if_aborted().is_empty());
    // So does who can't delete them, where no record names them.
    let nameless = play.durability == Durability::None || matches!(told, Some(Err(_)));
    let failed = matches!(besides, Besides::Fault(..)) && nameless;
    if !found.left.is_empty() && !unnumbered && !failed {
        return Err(context(format!("left over after recovery and checkpoint: {:?}", found.left)));
    }
    if reboots && !again.left.is_empty() {
        return Err(context(format!("left over after a reboot: {:?}", again.left)));
    }
    if forgotten {
        // Changes that the outsider had not synced may be lost with the power, which is no fault of the
        // protocol.
        return Ok(Ran { committed: false, acted: acted.is_some() });
    }
    let mut reported = found.reported.clone();
    match &told {
        Some(Ok(done)) => reported.extend(done.conflict_copies.iter().filter_map(|d| d.aside.clone())),
        // A process that is killed right after it set something aside has not reported it: it is listed all
        // the same.
        None => reported.extend(found.kept.iter().cloned()),
        Some(Err(_)) => {}
    }
    let aside = found.end.aside();
    let silent: Vec<_> = aside.keys().filter(|n| !n.contains('/') && !reported.contains(**n)).collect();
    if !silent.is_empty() {
        return Err(context(format!("aside, and not reported: {silent:?}")));
    }
    let committed = match &told {
        Some(Ok(_)) => seen.if_committed(),
        Some(Err(CommitError::InDoubt { .. })) | None => match seen.if_aborted() {
            wrong if wrong.is_empty() => wrong,
            wrong => match seen.if_committed() {
                as_committed if as_committed.is_empty() => as_committed,
                as_committed => {
                    return Err(context(format!("as aborted {wrong:#?}\n as committed {as_committed:#?}")))
                }
            },
        },
        Some(Err(_)) => seen.if_aborted(),
    };
    if committed.is_empty() {
        Ok(Ran { committed: matches!(told, Some(Ok(_))), acted: acted.is_some() })
    } else {
        Err(context(format!("{committed:#?}")))
    }
}

fn besides(rng: &mut fastrand::Rng, play: &Play, at: u64) -> Besides {
    let left = play.calls.len() as u64 - at;
    let later = |rng: &mut fastrand::Rng| rng.u64(0..left.min(40) + 1);
    match rng.u8(0..8) {
        0..=2 => Besides::Nothing,
        3 | 4 => Besides::Kill(later(rng)),
        5 if play.durability == Durability::Durable => Besides::PowerLossAfterSync(later(rng)),
        6 if play.durability == Durability::Durable => Besides::PowerLoss(later(rng)),
        7 => {
            // A change that is refused for good is set aside object by object: crash.rs judges that.
            let errors = [Errno::IO, Errno::DQUOT, Errno::MFILE, Errno::NOMEM];
            Besides::Fault(rng.u64(0..play.calls.len() as u64), errors[rng.usize(0..errors.len())])
        }
        _ => Besides::Kill(later(rng)),
    }
}

/// The runs of one seed.
fn seed(seed: u64, finds: Finds, ends: &mut [u64; 3]) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let Some(play) = Play::random(&mut rng, finds) else { return Ok(()) };
    let calls = play.calls.len() as u64;
    for _ in 0..8 {
        // Most of what can go wrong is after the record.
        let at = if rng.u8(0..4) == 0 { rng.u64(0..calls) } else { rng.u64(calls / 2..calls) };
        let besides = besides(&mut rng, &play, at);
        let ran = disturbed(&play, acts::any(&mut rng), at, besides, &mut rng)
            .map_err(|why| format!("seed {seed}, {:?}, {:?}: {why}", play.durability, play.steps))?;
        ends[0] += u64::from(ran.committed && ran.acted);
        ends[1] += u64::from(!ran.committed && ran.acted);
        ends[2] += 1;
    }
    Ok(())
}

#[test]
fn random_transactions_are_whole_or_not_at_all_and_lose_nothing_of_an_outsider() {
    random_transactions(Finds::ByHandle);
}

#[test]
fn random_transactions_without_handles_are_whole_or_not_at_all_and_lose_nothing_of_an_outsider() {
    random_transactions(Finds::ByPath);
}

fn random_transactions(finds: Finds) {
    let first = systx_runner::first_seed();
    let seeds = match std::env::var("SYSTX_SEED").ok().and_then(|n| n.parse().ok()) {
        Some(one) => one..one + 1,
        None if std::env::var_os("SYSTX_LONG").is_some() => first..first + 50_000,
        None => first..first + 100,
    };
    let one = seeds.end - seeds.start == 1;
    let mut ends = [0; 3];
    let mut wrong = Vec::new();
    for n in seeds.filter(|n| one || finds.takes(*n)) {
        if let Err(why) = seed(n, finds, &mut ends) {
            wrong.push(why);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} seeds went wrong, the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(4)].join("\n")
    );
    assert!(one || (ends[0] > 20 && ends[1] > 20), "he acts in commits and aborts: {ends:?}");
}

fn at_every_call(steps: &[Step], act: (Kind, &str), besides: impl Fn(u64) -> Besides) -> [u64; 2] {
    let mut ends = [0; 2];
    for durability in [Durability::Durable, Durability::None] {
        for finds in [Finds::ByHandle, Finds::ByPath] {
            let play = Play::new(FsKind::Ext4, finds, durability, steps.to_vec()).expect("changes something");
            for at in (0..play.calls.len() as u64).filter(|at| finds.takes(*at)) {
                let mut rng = fastrand::Rng::with_seed(at);
                let ran = disturbed(&play, act, at, besides(at), &mut rng);
                let ran = ran.unwrap_or_else(|why| panic!("{durability:?}, {finds:?}, {steps:?}: {why}"));
                ends[usize::from(ran.committed)] += 1;
            }
        }
    }
    ends
}

/// The staging entry of the one is where the other comes out: a process that goes on must not take it for an
/// outsider's.
#[test]
fn a_file_renamed_over_another_is_whole_when_its_commit_is_cut_at_every_call() {
    let steps = [Step::Rename("a/f".into(), "c/m".into(), systx_os::Rename::Replace)];
    at_every_call(&steps, (Kind::Chmod, "d"), |_| Besides::Kill(0));
    at_every_call(&steps, (Kind::RenameAway, "c/m"), |_| Besides::Kill(0));
}

#[test]
fn what_an_outsider_puts_into_a_removed_directory_is_kept_aside_whenever_its_commit_is_killed() {
    let steps = [Step::RemoveTree("a".into()), Step::Create("n".into(), 20)];
    for later in [0, 3] {
        at_every_call(&steps, (Kind::CreateInside, "a"), |_| Besides::Kill(later));
    }
    let ends = at_every_call(&steps, (Kind::CreateInside, "a"), |_| Besides::Nothing);
    assert!(ends[0] > 0 && ends[1] > 0, "aborts and commits are seen: {ends:?}");
}
