//! The invariants I1–I12 of docs/protocol.md, looked at before every call, not only at the end of a run.
//!
//! I2 and I9 are about several transactions and what their programs see: `interleaving` judges them, at every
//! call and at every delivery. All others are here: [`table`] (I1, I4, I10), [`records`] (I3, I7),
//! [`crashes`] (I5, I8, I11, I12), [`outsider`] (I6). `planted` shows that each check can fail; so do the
//! mutants (`mutants.rs`).

mod book;
mod crashes;
mod outsider;
mod planted;
pub(super) mod records;
pub(super) mod table;
mod watch;

use super::world::{self, machine_where, transact, Finds, Kind};
use crate::outcome::{CommitError, Durability, Options, Verb};
use crate::transaction::{Access, Caller, Transaction};
use book::{part_of, Book, Chain, Told};
use crashes::{open_each, Again, Cleared, How, Kept, Prefix};
use outsider::{Conserved, ACTS};
use records::{DroppedLate, InOrder};
use systx_os::{FsKind, Open, Os};
use systx_sim::machine::{run_process, Crash, Machine, Plant, Report, Schedule, SimOs, Tree};
use table::{HeaderFirst, Untouched, WaitsForNobody};
use watch::{is_public, Rule, Watch};

/// Next work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// The transaction of `world`, below `w`.
    World(Kind, Durability),
    /// On each file system: appends to a file and makes another one, below the chain's directory.
    Grow(Durability),
    /// Makes checkpoints.
    Checkpoint,
}

impl Work {
    fn durability(self) -> Option<Durability> {
        match self {
            Work::World(_, durability) | Work::Grow(durability) => Some(durability),
            Work::Checkpoint => None,
        }
    }
}

const DURABLE: Work = Work::Grow(Durability::Durable);

/// A machine whose file systems have directories for chains.
fn two_chains(systems: usize) -> Machine {
    chains(systems, 3, Finds::ByHandle)
}

fn chains(systems: usize, seed: u64, finds: Finds) -> Machine {
    let specs = [finds.spec(FsKind::Ext4), finds.spec(FsKind::Xfs)];
    let machine = Machine::new(seed, &specs[..systems]);
    machine.set_word_points(false);
    let file = || Plant::File(b"0 ");
    for fs in 0..systems {
        let objects = [
            ("p0", Plant::Dir),
            ("p0/list", file()),
            ("p1", Plant::Dir),
            ("p1/list", file()),
            ("fact", file()),
        ];
        machine.plant(fs, &objects).expect("planting");
    }
    let os = machine.spawn("earlier");
    let done = run_process(&os, || {
        let domains = open_each(&os, systems).expect("opens");
        domains.iter().for_each(|domain| domain.checkpoint().expect("makes a checkpoint"));
    });
    done.expect("lives");
    os.exit();
    machine.settle();
    machine
}

/// One more line in a file, and one more file, on every file system.
fn grow(os: &SimOs, systems: usize, top: &str, n: usize, durability: Durability) -> Result<(), CommitError> {
    let mounts = open_each(os, systems).map_err(CommitError::Refused)?;
    let me = Caller { uid: 0, gid: 0, umask: 0 };
    let body = || -> Verb<Transaction<SimOs>> {
        let mut t = Transaction::begin(
            os.clone(),
            mounts,
            Options { durability, command: String::new(), ..Options::default() },
        )?;
        for fs in 0..systems {
            let root = t.root(fs);
            // A fact that others may change.
            let (fact, _) = t.lookup(root, b"fact")?.expect("is there");
            t.open(fact, Access::Read, false)?;
            t.read_at(fact, &mut [0; 64], 0)?;
            t.close(fact);
            let (dir, _) = t.lookup(root, top.as_bytes())?.expect("is there");
            let (list, _) = t.lookup(dir, b"list")?.expect("is there");
            t.open(list, Access::ReadWrite, false)?;
            t.append(list, format!("{n} ").as_bytes())?;
            t.close(list);
            let (new, _) = t.create(dir, format!("n{n}").as_bytes(), 0o644, me)?;
            t.open(new, Access::Write, false)?;
            t.write_at(new, format!("{n} of {top} on {fs}").as_bytes(), 0)?;
            t.close(new);
        }
        Ok(t)
    };
    let done = body().map_err(crate::commit::aborted)?.commit()?;
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}");
    Ok(())
}

/// Does the next piece of work; returns the reported outcome, of a transaction.
fn take(os: &SimOs, systems: usize, (top, n): (&str, usize), work: Work) -> Option<Told> {
    let ended = match work {
        Work::World(kind, durability) => transact(os, kind, durability).map(drop),
        Work::Grow(durability) => grow(os, systems, top, n, durability),
        Work::Checkpoint => {
            for domain in open_each(os, systems).expect("opens") {
                domain.checkpoint().expect("makes a checkpoint");
            }
            return None;
        }
    };
    match ended {
        Ok(()) => Some(Told::Committed),
        Err(CommitError::Conflict(_)) => Some(Told::Aborted),
        Err(why) => panic!("a commit fails: {why}"),
    }
}

/// A process at its work, in the book.
fn play(os: &SimOs, systems: usize, watch: &Watch, chain: usize, top: &str, works: &[Work]) {
    let mut n = 0;
    for work in works {
        if work.durability().is_some() {
            watch.inner().book.begin(chain, os.pid());
        }
        if let Some(told) = take(os, systems, (top, n), *work) {
            watch.inner().book.end(chain, told);
            n += 1;
        }
    }
}

fn trees(machine: &Machine, systems: usize) -> Vec<Tree> {
    (0..systems).map(|fs| machine.tree_of(fs, is_public)).collect()
}

/// Returns the work of the chains, with the state of everything after each of their transactions.
fn book(world: &Machine, systems: usize, chains: &[(&'static str, &[Work])]) -> Book {
    let mut book = Book::default();
    for (top, works) in chains {
        let machine = copy(world);
        let mut states = vec![part_of(&trees(&machine, systems), top)];
        let os = machine.spawn("owner");
        let transactions = works.iter().filter(|work| work.durability().is_some());
        for (n, work) in transactions.enumerate() {
            let told = run_process(&os, || take(&os, systems, (top, n), *work)).expect("lives");
            assert_eq!(told, Some(Told::Committed));
            states.push(part_of(&trees(&machine, systems), top));
        }
        let durable = works.iter().filter_map(|w| w.durability()).map(|d| d == Durability::Durable);
        book.chains.push(Chain::new(top, states, durable.collect()));
    }
    book.others = book.others_in(&trees(world, systems));
    book
}

fn all_rules() -> Vec<Box<dyn Rule>> {
    vec![
        Box::new(Untouched),
        Box::new(InOrder::default()),
        Box::<HeaderFirst>::default(),
        Box::new(Again),
        Box::new(DroppedLate::default()),
        Box::new(Kept),
        Box::new(Cleared),
        Box::new(Prefix),
    ]
}

/// Ends that are tried in turn.
const ENDS: [How; 6] = [
    How::Kill,
    How::Power(Crash::NothingUnsynced),
    How::KillAndRedo,
    How::Power(Crash::Random),
    How::Kill,
    How::Power(Crash::Everything),
];

fn copy(world: &Machine) -> Machine {
    let machine = world.fork();
    machine.set_word_points(false);
    machine
}

/// A watch over one process with every rule.
fn usual(world: &Machine, systems: usize, top: &'static str, works: &[Work]) -> Watch {
    Watch::new(systems, book(world, systems, &[(top, works)]), all_rules(), ENDS.to_vec())
}

/// One process, watched at every call.
fn alone(world: &Machine, systems: usize, top: &'static str, works: &[Work]) -> Watch {
    let watch = usual(world, systems, top, works);
    run_watched(world, systems, &watch, top, works);
    watch
}

fn run_watched(world: &Machine, systems: usize, watch: &Watch, top: &str, works: &[Work]) {
    let machine = copy(world);
    watch.begin(&machine);
    let os = machine.spawn("owner");
    run_process(&os, || play(&os, systems, watch, 0, top, works)).expect("lives");
    machine.clear_hook();
}

/// All of these had something to judge.
fn judged(watch: &Watch, what: &str, rules: &[&str]) {
    watch.judge(what);
    let judged = watch.judged();
    for rule in rules {
        assert!(judged[rule] > 0, "{what}: {rule} had nothing to judge: {judged:?}");
    }
}

fn durable(kind: Kind, finds: Finds) {
    let works = [Work::World(kind, Durability::Durable), Work::Checkpoint];
    let watch = alone(&machine_where(FsKind::Ext4, finds), 1, "w", &works);
    judged(&watch, &format!("{kind:?}, {finds:?}"), &["I1", "I3", "I4", "I5", "I7", "I8", "I11", "I12"]);
}

#[test]
fn they_hold_before_every_call_of_a_commit_of_every_kind_of_step() {
    durable(Kind::Everything, Finds::ByHandle);
}

#[test]
fn they_hold_before_every_call_of_a_commit_of_every_kind_of_step_without_handles() {
    durable(Kind::Everything, Finds::ByPath);
}

#[test]
fn they_hold_before_every_call_of_a_commit_without_barrier() {
    durable(Kind::Small, Finds::ByHandle);
}

#[test]
fn they_hold_before_every_call_of_a_commit_without_barrier_or_handles() {
    durable(Kind::Small, Finds::ByPath);
}

#[test]
fn they_hold_before_every_call_of_a_commit_without_slots() {
    durable(Kind::Inline, Finds::ByHandle);
}

#[test]
fn they_hold_before_every_call_of_a_commit_without_slots_or_handles() {
    durable(Kind::Inline, Finds::ByPath);
}

#[test]
fn they_hold_before_every_call_of_a_commit_without_durability() {
    for finds in [Finds::ByHandle, Finds::ByPath] {
        let works = [Work::World(Kind::Everything, Durability::None)];
        let watch = alone(&machine_where(FsKind::Ext4, finds), 1, "w", &works);
        judged(&watch, "none", &["I1", "I5", "I11"]);
    }
}

#[test]
fn they_hold_before_every_call_of_a_commit_over_two_file_systems() {
    let watch = alone(&two_chains(2), 2, "p0", &[DURABLE, Work::Checkpoint]);
    judged(&watch, "two file systems", &["I1", "I3", "I4", "I5", "I7", "I8", "I11", "I12"]);
}

/// An outsider changes a fact between the header and the final look: the ABORT is reported, and stays true.
#[test]
fn they_hold_before_every_call_of_a_commit_that_is_taken_back() {
    for systems in [1, 2] {
        let (world, works) = (two_chains(systems), [DURABLE, Work::Checkpoint]);
        let watch = usual(&world, systems, "p0", &works).with(|now, book| {
            let ours = |fs: usize| {
                let mut headers = now.fs[fs].log.headers();
                headers.any(|(id, _, commit)| commit && book.label(fs, id).is_some())
            };
            let due = (0..now.fs.len()).any(ours);
            if due {
                let os = now.machine.outsider("outsider");
                let fact = os.open_path(0, "fact", Open::ReadWrite).expect("is there");
                os.pwrite(&fact, b"his", 0).and_then(|_| os.fsync(&fact)).expect("writes");
            }
            due
        });
        run_watched(&world, systems, &watch, "p0", &works);
        judged(&watch, "taken back", &["I1", "I3", "I4", "I8", "I11"]);
        assert_eq!(watch.inner().book.chains[0].told, [Told::Aborted]);
    }
}

/// Kills the owner, or lets the power fail, at calls all over its commit; the next process is watched as
/// closely.
fn whoever_comes_next(
    world: &Machine,
    systems: usize,
    (top, works): (&'static str, &[Work]),
    power: Option<Crash>,
    cuts: u64,
) {
    let points = {
        let machine = copy(world);
        let os = machine.spawn("owner");
        let all = || {
            for work in works {
                take(&os, systems, (top, 0), *work);
            }
        };
        run_process(&os, all).expect("lives");
        os.points()
    };
    let mut outcomes = [0; 2];
    for cut in 0..cuts {
        let machine = copy(world);
        let watch = usual(world, systems, top, works);
        watch.begin(&machine);
        let os = machine.spawn("owner");
        // Most of what can go wrong is in the second half.
        let at = points * (cuts + cut) / (2 * cuts);
        machine.kill_at(&os, at);
        let _ = run_process(&os, || play(&os, systems, &watch, 0, top, works));
        if let Some(crash) = power {
            machine.power_loss(crash, &mut fastrand::Rng::with_seed(cut));
            watch.rebooted(&machine);
        }
        let next = machine.spawn("next");
        let finishes = || {
            let domains = open_each(&next, systems)?;
            domains.iter().for_each(|domain| drop(domain.finish_dead().expect("recovers")));
            Ok::<_, String>(())
        };
        run_process(&next, finishes).expect("lives").expect("opens");
        machine.clear_hook();
        judged(&watch, &format!("{power:?} at {at} of {points}"), &["I11"]);
        let chain = &watch.inner().book.chains[0];
        assert_eq!(chain.state_of(&trees(&machine, systems)), Some(chain.here()), "{power:?} at {at}");
        outcomes[chain.here().min(1)] += 1;
    }
    assert!(outcomes.iter().all(|n| *n > 0), "both outcomes are seen: {outcomes:?}");
}

#[test]
fn they_hold_before_every_call_of_whoever_finishes_for_the_dead() {
    let works = [Work::World(Kind::Everything, Durability::Durable)];
    for finds in [Finds::ByHandle, Finds::ByPath] {
        whoever_comes_next(&machine_where(FsKind::Ext4, finds), 1, ("w", &works), None, 3);
    }
}

#[test]
fn they_hold_before_every_call_of_whoever_finishes_for_the_dead_on_two_file_systems() {
    // Which of the two is coordinator follows from the areas' numbers, which the seed gives.
    for (seed, finds) in [(3, Finds::ByHandle), (4, Finds::ByHandle), (3, Finds::ByPath)] {
        whoever_comes_next(&chains(2, seed, finds), 2, ("p0", &[DURABLE]), None, 12);
    }
}

#[test]
fn they_hold_before_every_call_of_a_recovery_after_a_reboot() {
    let works = [Work::World(Kind::Small, Durability::Durable)];
    for finds in [Finds::ByHandle, Finds::ByPath] {
        let world = machine_where(FsKind::Ext4, finds);
        whoever_comes_next(&world, 1, ("w", &works), Some(Crash::NothingUnsynced), 2);
        whoever_comes_next(&chains(2, 3, finds), 2, ("p0", &[DURABLE]), Some(Crash::Random), 5);
    }
}

/// A process for each chain, by turns.
fn run_together(world: &Machine, watch: &Watch, seed: u64, works: &[(&'static str, &[Work])]) -> Report {
    let machine = copy(world);
    watch.begin(&machine);
    let mut processes: Vec<(SimOs, Box<dyn FnOnce() + Send + '_>)> = Vec::new();
    for (chain, (top, works)) in works.iter().enumerate() {
        let (os, watch) = (machine.spawn(top), watch.clone());
        let body = os.clone();
        processes.push((os, Box::new(move || play(&body, 1, &watch, chain, top, works))));
    }
    let report = Schedule::run(seed, processes);
    machine.clear_hook();
    report
}

/// Two processes whose records share a log and its syncs, and one who makes checkpoints.
#[test]
fn they_hold_before_every_call_of_commits_and_checkpoints_that_interleave() {
    let world = two_chains(1);
    let works: [(&'static str, &[Work]); 2] =
        [("p0", &[DURABLE, DURABLE]), ("p1", &[DURABLE, Work::Checkpoint, DURABLE])];
    let ends = vec![How::Power(Crash::Random), How::Kill];
    for seed in 0..2 {
        let watch = Watch::new(1, book(&world, 1, &works), all_rules(), ends.clone());
        let report = run_together(&world, &watch, seed, &works);
        judged(&watch, &format!("seed {seed}"), &["I1", "I3", "I4", "I5", "I7", "I8", "I11", "I12"]);
        assert_eq!((report.deadlock, report.endless), (None, false));
    }
}

/// Two records of which it is not known yet how much is on the disk.
#[test]
fn what_survives_of_records_that_were_not_synced_is_a_prefix_of_them() {
    let world = two_chains(1);
    let works: [(&'static str, &[Work]); 2] = [("p0", &[DURABLE, DURABLE]), ("p1", &[DURABLE, DURABLE])];
    let mut judgements = 0;
    for seed in 0..300 {
        let ends = vec![How::Power(Crash::Random); 16];
        let watch = Watch::new(1, book(&world, 1, &works), vec![Box::new(Prefix)], ends);
        let watch =
            watch.ending(|now| now.fs[0].log.headers().count() > now.disk[0].log.headers().count() + 1);
        let report = run_together(&world, &watch, seed, &works);
        watch.judge(&format!("seed {seed}"));
        judgements += watch.judged()["I12"];
        assert_eq!((report.deadlock, report.endless), (None, false));
    }
    assert!(judgements > 0, "two of them are in the log, and not synced");
}

/// A durable commit builds on one that is not.
#[test]
fn they_hold_before_every_call_of_a_durable_commit_on_one_without_durability() {
    let works = [Work::Grow(Durability::None), DURABLE, Work::Checkpoint];
    let watch = alone(&two_chains(1), 1, "p0", &works);
    judged(&watch, "on what is not durable", &["I1", "I3", "I4", "I8", "I11", "I12"]);
}

#[test]
fn what_an_outsider_did_is_kept_before_every_call_after_it() {
    what_he_did_is_kept(Finds::ByHandle);
}

#[test]
fn what_an_outsider_did_is_kept_before_every_call_after_it_without_handles() {
    what_he_did_is_kept(Finds::ByPath);
}

fn what_he_did_is_kept(finds: Finds) {
    for (_, act) in ACTS.into_iter().enumerate().filter(|(n, _)| finds.takes(*n as u64)) {
        let world = machine_where(FsKind::Ext4, finds);
        let works = [Work::World(Kind::Everything, Durability::Durable), Work::Checkpoint];
        let book = book(&world, 1, &[("w", &works)]);
        let rules: Vec<Box<dyn Rule>> = vec![Box::new(Conserved::default()), Box::new(Cleared)];
        let watch = Watch::new(1, book, rules, vec![How::Kill, How::PowerAfterSync]).with(move |now, _| {
            let due = act.is_due(now.info);
            if due {
                act.done(now.machine);
            }
            due
        });
        run_watched(&world, 1, &watch, "w", &works);
        judged(&watch, &format!("{act:?}"), &["I6", "I11"]);
    }
}

/// At every access to a word, too: a lock is held for a few of them.
#[test]
fn who_holds_the_lock_or_a_slot_waits_for_nobody_at_any_access_to_the_table() {
    for durability in [Durability::Durable, Durability::None] {
        let world = world::machine(FsKind::Ext4);
        let works = [Work::World(Kind::Small, durability)];
        let rules: Vec<Box<dyn Rule>> = vec![Box::<WaitsForNobody>::default(), Box::new(Untouched)];
        let watch = Watch::new(1, book(&world, 1, &[("w", &works)]), rules, Vec::new()).words_too();
        let machine = copy(&world);
        machine.set_word_points(true);
        watch.begin(&machine);
        let os = machine.spawn("owner");
        run_process(&os, || play(&os, 1, &watch, 0, "w", &works)).expect("lives");
        machine.clear_hook();
        judged(&watch, "words", &["I1", "I10"]);
    }
}
