//! A process that loses and is tried again keeps its age: how often it loses is bounded, and one that does
//! not go on holds no other up for long.
//!
//! The bound, of K processes that run one transaction at a time over the same objects: a try is lost at most
//! once to a process that was numbered before the loser had asked for priority. After that it is lost only if
//! an older one had priority meanwhile, which has ended then; of those there are K - 1 at most, since any
//! that begins later is younger. So K + 1 tries do.

use super::world::open;
use crate::contention::{stall, Age};
use crate::domain::priority::PRIORITY_AGAIN_NS;
use crate::domain::{Domain, SlotState};
use crate::id::{Objects, TxId};
use crate::outcome::{CommitError, Conflict, ConflictKind, Options, Verb, VerbError};
use crate::transaction::{Access, Transaction};
use std::sync::{Arc, Mutex};
use systx_os::{FsKind, Os};
use systx_sim::machine::{run_process, Ended, FsSpec, Machine, Plant, Schedule, SimOs};

/// No test is to go on for ever where the rule is left out.
const TRIES_MAX: u64 = 200;

fn machine(seed: u64) -> Machine {
    let machine = Machine::new(seed, &[FsSpec::new(FsKind::Ext4)]);
    machine.plant(0, &[("count", Plant::File(b"0 "))]).expect("planting");
    machine.settle();
    machine.set_word_points(false);
    let os = machine.spawn("earlier");
    run_process(&os, || drop(open(&os).expect("opens"))).expect("not killed");
    os.exit();
    machine
}

fn counted(machine: &Machine) -> u64 {
    let tree = machine.tree(0);
    String::from_utf8_lossy(&tree["count"].content).trim().parse().expect("a number")
}

/// Reads the number, lets `between` happen, writes the next one.
fn increment(t: &mut Transaction<SimOs>, between: impl FnOnce()) -> Verb<()> {
    let root = t.root(0);
    let (file, _) = t.lookup(root, b"count")?.expect("it is there");
    t.open(file, Access::ReadWrite, false)?;
    let mut text = [0; 32];
    let got = t.read_at(file, &mut text, 0)?;
    between();
    let n: u64 = String::from_utf8_lossy(&text[..got]).trim().parse().expect("a number");
    t.write_at(file, format!("{} ", n + 1).as_bytes(), 0)?;
    t.close(file);
    Ok(())
}

/// One try, of which there may be more.
fn attempt(
    domain: &Arc<Domain<SimOs>>,
    age: &mut Option<Age>,
    between: impl FnOnce(),
) -> Result<(), Box<Conflict>> {
    attempt_as(&Options::default(), domain, age, between)
}

fn attempt_as(
    options: &Options,
    domain: &Arc<Domain<SimOs>>,
    age: &mut Option<Age>,
    between: impl FnOnce(),
) -> Result<(), Box<Conflict>> {
    let options = options.clone();
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options)
        .unwrap_or_else(|e| panic!("{e:?}"));
    if let Some(age) = age {
        t.inherit(age);
    }
    *age = Some(t.will_be_tried_again());
    match increment(&mut t, between) {
        Ok(()) => match t.commit() {
            Ok(done) => assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{done:?}"),
            Err(CommitError::Conflict(conflict)) => return Err(conflict),
            Err(why) => panic!("a commit fails: {why}"),
        },
        Err(VerbError::Doomed(conflict)) => {
            t.lose(&conflict);
            return Err(conflict);
        }
        Err(VerbError::Os(error)) => panic!("a verb fails: {error:?}"),
    }
    Ok(())
}

/// How many tries one increment took.
fn tries(domain: &Arc<Domain<SimOs>>, between: impl Fn()) -> u64 {
    let mut age = None;
    (1..=TRIES_MAX).find(|_| attempt(domain, &mut age, &between).is_ok()).expect("an end")
}

type Body = Box<dyn FnOnce() + Send>;
/// Work of a process with its domain.
type Client = Box<dyn FnOnce(&Arc<Domain<SimOs>>) + Send>;

/// How a schedule chooses the next process.
enum Order {
    Ranked,
    Random,
}

/// Runs processes, each with its domain, by a schedule.
fn schedule(machine: &Machine, seed: u64, order: Order, bodies: Vec<Client>) {
    let processes: Vec<(SimOs, Body)> = bodies
        .into_iter()
        .map(|body| {
            let os = machine.spawn("client");
            let me = os.clone();
            let body: Body = Box::new(move || body(&open(&me).unwrap_or_else(|e| panic!("can't open: {e}"))));
            (os, body)
        })
        .collect();
    let report = match order {
        Order::Ranked => Schedule::run_ranked(seed, 6, 4000, processes),
        Order::Random => Schedule::run(seed, processes),
    };
    assert_eq!(report.deadlock, None, "seed {seed}");
    assert!(!report.endless, "seed {seed}: no end");
    assert!(report.ended.iter().all(|ended| *ended == Ended::Finished), "seed {seed}: {:?}", report.ended);
}

#[test]
fn of_processes_that_want_the_same_nobody_needs_more_tries_than_there_are_processes_and_one() {
    const PROCESSES: u64 = 4;
    const TIMES: u64 = 10;
    let seeds = if std::env::var_os("SYSTX_LONG").is_some() { 2000 } else { 20 };
    let mut lost = false;
    let first = systx_runner::first_seed();
    for seed in first..first + seeds {
        let machine = machine(seed);
        let most = Arc::new(Mutex::new(0));
        let bodies = (0..PROCESSES).map(|n| {
            let most = most.clone();
            let body: Client = Box::new(move |domain| {
                for _ in 0..TIMES {
                    // Some are slower than others.
                    let took = tries(domain, || domain.os.pause(n * 700_000));
                    let mut most = most.lock().expect("nobody panics in here");
                    *most = took.max(*most);
                }
            });
            body
        });
        schedule(&machine, seed, if seed % 2 == 1 { Order::Ranked } else { Order::Random }, bodies.collect());
        assert_eq!(counted(&machine), PROCESSES * TIMES, "seed {seed}: an update is lost");
        let most = *most.lock().expect("nobody panicked");
        assert!(most <= PROCESSES + 1, "seed {seed}: {most} tries of {PROCESSES} processes");
        lost |= most > 1;
    }
    assert!(lost, "somebody loses");
}

/// Others commit many times while it runs, whatever the schedule.
#[test]
fn who_is_slow_and_tried_again_is_overtaken_once() {
    const TIMES: u64 = 60;
    for seed in 0..4 {
        let machine = machine(seed);
        let slow = Arc::new(Mutex::new(0));
        let took = slow.clone();
        let patient: Client = Box::new(move |domain| {
            let tries = tries(domain, || domain.os.pause(20_000_000));
            *took.lock().expect("nobody panics in here") = tries;
        });
        let quick: Client = Box::new(|domain| {
            for _ in 0..TIMES {
                tries(domain, || ());
                domain.os.pause(2_000_000);
            }
        });
        schedule(&machine, seed, Order::Random, vec![patient, quick]);
        assert_eq!(counted(&machine), TIMES + 1, "seed {seed}: an update is lost");
        let slow = *slow.lock().expect("nobody panicked");
        assert!(slow >= 2, "seed {seed}: it loses once");
        assert!(slow <= 3, "seed {seed}: loses again although it has priority: {slow} tries");
    }
}

/// A process, and a transaction of it that has lost to another one.
fn loser(machine: &Machine, name: &str) -> (SimOs, Arc<Domain<SimOs>>, Option<Age>) {
    loser_as(machine, name, &Options::default())
}

fn loser_as(machine: &Machine, name: &str, options: &Options) -> (SimOs, Arc<Domain<SimOs>>, Option<Age>) {
    let (os, rival) = (machine.spawn(name), machine.spawn("rival"));
    let (domain, age) = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut age = None;
        let ended = attempt_as(options, &domain, &mut age, || {
            run_process(&rival, || {
                let domain = open(&rival).expect("opens");
                attempt(&domain, &mut None, || ()).expect("it was there first");
            })
            .expect("not killed");
        });
        ended.expect_err("it was overtaken");
        (domain, age)
    })
    .expect("not killed");
    rival.exit();
    (os, domain, age)
}

fn holder_of(domain: &Domain<SimOs>) -> Option<TxId> {
    let held = domain.lock().expect("locks");
    let now = domain.os.monotonic_ns();
    let holder = domain.table.priority().current(held.proof(), now, &|ix| domain.alive(ix)).expect("sound");
    holder.map(|holder| holder.age)
}

#[test]
fn a_loser_that_asks_for_its_age_at_its_end_has_priority_for_as_long_as_it_ran() {
    const RAN_NS: u64 = 10_000_000_000;
    let machine = machine(1);
    let (os, rival) = (machine.spawn("library"), machine.spawn("rival"));
    let lasts_ns = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut t = Transaction::begin(os.clone(), Vec::new(), Options::default()).expect("begins");
        t.will_be_tried_again();
        t.add_mount(domain.clone()).expect("serves");
        increment(&mut t, || os.pause(RAN_NS)).expect("nobody was there");
        let other = run_process(&rival, || attempt(&open(&rival).expect("opens"), &mut None, || ()));
        other.expect("not killed").expect("it was there first");
        t.will_be_tried_again();
        assert!(matches!(t.commit(), Err(CommitError::Conflict(_))));
        let held = domain.lock().expect("locks");
        let now_ns = os.monotonic_ns();
        let holder = domain.table.priority().current(held.proof(), now_ns, &|ix| domain.alive(ix));
        holder.expect("sound").expect("it lost").length_ns
    });
    assert!(lasts_ns.expect("not killed") >= 2 * RAN_NS);
}

/// Returns how long another process's increment takes, in virtual time.
fn takes_ns(machine: &Machine) -> u64 {
    takes_ns_as(machine, &Options::default())
}

fn takes_ns_as(machine: &Machine, options: &Options) -> u64 {
    let os = machine.spawn("another");
    let began = machine.clock_ns();
    let done = run_process(&os, || attempt_as(options, &open(&os).expect("opens"), &mut None, || ()));
    os.exit();
    done.expect("not killed").expect("nobody else is there");
    machine.clock_ns() - began
}

#[test]
fn a_holder_that_stands_still_holds_others_up_for_its_time_and_not_longer() {
    let machine = machine(1);
    let (_os, domain, _) = loser(&machine, "stopped");
    assert!(holder_of(&domain).is_some());
    let took = takes_ns(&machine);
    let [least, most] = PRIORITY_AGAIN_NS;
    assert!((least / 2..most).contains(&took), "{took} ns");
    assert_eq!(counted(&machine), 2);
}

fn nicely(nice: i8) -> Options {
    Options { nice, ..Options::default() }
}

#[test]
fn a_holder_that_is_nicer_holds_up_nicer_ones_alone() {
    for (holds, comes, waits) in
        [(5, 5, true), (5, 4, false), (5, 6, true), (0, -20, false), (-20, 19, true), (19, 0, false)]
    {
        let machine = machine(1);
        let (_os, domain, _) = loser_as(&machine, "stopped", &nicely(holds));
        assert!(holder_of(&domain).is_some());
        let took = takes_ns_as(&machine, &nicely(comes));
        assert_eq!(took >= PRIORITY_AGAIN_NS[0] / 2, waits, "{comes} waits for {holds}: {took} ns");
    }
}

/// The less nice one loses its first try at most, whatever the schedule and whatever has begun before it.
#[test]
fn of_many_nice_ones_none_makes_a_less_nice_one_lose_twice() {
    for seed in 0..4 {
        let machine = machine(seed);
        let most = Arc::new(Mutex::new(0));
        let took = most.clone();
        let tries_as = |domain: &Arc<Domain<SimOs>>, nice: i8, ns: u64| {
            let mut age = None;
            let once = |_: &u64| attempt_as(&nicely(nice), domain, &mut age, || domain.os.pause(ns)).is_ok();
            (1..=TRIES_MAX).find(once).expect("an end")
        };
        let mut clients: Vec<Client> = vec![Box::new(move |domain| {
            for _ in 0..10 {
                let tries = tries_as(domain, 0, 5_000_000);
                let mut most = took.lock().expect("nobody panics in here");
                *most = tries.max(*most);
            }
        })];
        clients.extend((0..3).map(|n| -> Client {
            Box::new(move |domain| {
                for _ in 0..10 {
                    tries_as(domain, 10, n * 700_000);
                }
            })
        }));
        schedule(&machine, seed, Order::Random, clients);
        assert_eq!(counted(&machine), 40, "seed {seed}: an update is lost");
        let most = *most.lock().expect("nobody panicked");
        assert!(most <= 2, "seed {seed}: {most} tries beside nicer ones");
    }
}

#[test]
fn who_sleeps_for_something_else_holds_nobody_up_and_keeps_its_age() {
    let machine = machine(1);
    let (os, domain, age) = loser(&machine, "sleeper");
    let holder = holder_of(&domain);
    run_process(&os, || {
        let mounts = vec![domain.clone()];
        let mut t = Transaction::begin(os.clone(), mounts, Options::default()).expect("begins");
        t.inherit(&age.expect("has lost"));
        assert_eq!(holder_of(&domain), holder);
        increment(&mut t, || ()).expect("not doomed");
        t.defer();
        let took = takes_ns(&machine);
        assert!(took < PRIORITY_AGAIN_NS[0] / 2, "a sleeper holds others up: {took} ns");
        // It has lost again, and is as old as it was.
        t.will_be_tried_again();
        assert!(matches!(t.commit(), Err(CommitError::Conflict(_))));
        assert_eq!(holder_of(&domain), holder);
    })
    .expect("not killed");
}

/// A younger loser that waits for an older one before its next try goes on when that one is numbered.
#[test]
fn who_stalls_is_woken_when_the_better_one_has_its_number() {
    let machine = machine(1);
    let (older_os, older, older_age) = loser(&machine, "older");
    let holder = holder_of(&older);
    let (younger_os, younger, younger_age) = {
        let os = machine.spawn("younger");
        let (domain, age) = run_process(&os, || {
            let domain = open(&os).expect("opens");
            let t = Transaction::begin(os.clone(), vec![domain.clone()], Options::default());
            (domain, t.expect("begins").will_be_tried_again())
        })
        .expect("not killed");
        (os, domain, age)
    };
    let objects = |domain: &Arc<Domain<SimOs>>| {
        let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], Options::default());
        let t = t.as_mut().expect("begins");
        increment(t, || ()).expect("not doomed");
        t.files()
    };
    let (wants, other) = run_process(&younger_os, || {
        let unread = Transaction::begin(younger_os.clone(), vec![younger.clone()], Options::default());
        (objects(&younger), unread.expect("begins").files())
    })
    .expect("not killed");
    // What does not meet the holder's does not wait, nor does an older one.
    let waits_ns = |os: &SimOs, domain: &Arc<Domain<SimOs>>, age: &Age, objects: &[Objects], ns| {
        let began = machine.clock_ns();
        let mounts = [domain.clone()];
        run_process(os, || stall(&mounts, age, objects, ns)).expect("not killed");
        machine.clock_ns() - began
    };
    const LONG: u64 = 1_000_000_000;
    assert!(waits_ns(&younger_os, &younger, &younger_age, &other, LONG) < LONG / 10);
    let older_age = older_age.expect("has lost");
    assert!(waits_ns(&older_os, &older, &older_age, &wants, LONG) < LONG / 10);
    let took = waits_ns(&younger_os, &younger, &younger_age, &wants, LONG);
    assert!((LONG..2 * LONG).contains(&took), "bounded: {took} ns");
    assert_eq!(holder_of(&older), holder, "it still holds");
    let ends = Arc::new(Mutex::new([0, 0]));
    let (wakes, ended) = (ends.clone(), ends.clone());
    let (clock, at) = (machine.clone(), machine.clone());
    let os = older_os.clone();
    let goes_on: Body = Box::new(move || {
        os.pause(2_000_000);
        attempt(&older, &mut Some(older_age), || ()).expect("nobody is in its way");
        ended.lock().expect("nobody panics in here")[0] = at.clock_ns();
    });
    let stalls: Body = Box::new(move || {
        stall(&[younger], &younger_age, &wants, LONG);
        wakes.lock().expect("nobody panics in here")[1] = clock.clock_ns();
    });
    let report = Schedule::run(1, vec![(older_os, goes_on), (younger_os, stalls)]);
    assert!(report.ended.iter().all(|ended| *ended == Ended::Finished), "{:?}", report.ended);
    let [ended, woken] = *ends.lock().expect("nobody panicked");
    assert!(woken < ended + 10_000_000, "woken {} ns late", woken - ended);
}

#[test]
fn who_never_waits_ends_at_once_where_a_holder_is_in_its_way() {
    let machine = machine(1);
    let (_os, domain, _) = loser(&machine, "holder");
    assert!(holder_of(&domain).is_some());
    let os = machine.spawn("another");
    let began = machine.clock_ns();
    let options = Options { waiting: crate::outcome::Waiting::Never, ..Options::default() };
    let ended = run_process(&os, || attempt_as(&options, &open(&os).expect("opens"), &mut None, || ()));
    let conflict = ended.expect("not killed").expect_err("another has priority");
    assert_eq!(conflict.what, ConflictKind::HeldNow);
    assert!(machine.clock_ns() - began < PRIORITY_AGAIN_NS[0] / 10);
    assert_eq!(counted(&machine), 1);
}

#[test]
fn a_commit_point_is_told_of_when_it_is_passed_and_once() {
    let machine = machine(1);
    let (os, rival) = (machine.spawn("counts"), machine.spawn("rival"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        let begin = || {
            let mounts = vec![domain.clone()];
            let mut t = Transaction::begin(os.clone(), mounts, Options::default()).expect("begins");
            let (heard, table) = (heard.clone(), domain.clone());
            t.at_commit_point(move || {
                let slots = table.table.slots();
                let states = slots.in_flight().map(|slot| slot.expect("sound").seen.state());
                heard.lock().expect("nobody panics in here").extend(states);
            });
            t
        };
        let mut t = begin();
        let between = || {
            let theirs = run_process(&rival, || attempt(&open(&rival).expect("opens"), &mut None, || ()));
            theirs.expect("not killed").expect("it was there first");
        };
        increment(&mut t, between).expect("not doomed yet");
        assert!(matches!(t.commit(), Err(CommitError::Conflict(_))));
        begin().abort();
        let mut t = begin();
        increment(&mut t, || ()).expect("nobody is there");
        t.commit().expect("commits");
    })
    .expect("not killed");
    let heard = heard.lock().expect("nobody panicked");
    assert_eq!(*heard, [SlotState::Publishing], "told of too early, too often, or not at all");
}

#[test]
fn a_holder_that_is_killed_holds_nobody_up() {
    let machine = machine(1);
    let (os, domain, _) = loser(&machine, "killed");
    assert!(holder_of(&domain).is_some());
    os.exit();
    let took = takes_ns(&machine);
    assert!(took < PRIORITY_AGAIN_NS[0] / 2, "{took} ns");
    assert_eq!(counted(&machine), 2);
}

#[test]
fn who_gives_up_or_is_tried_no_more_has_priority_no_more() {
    let machine = machine(1);
    let (os, domain, age) = loser(&machine, "quitter");
    assert!(holder_of(&domain).is_some());
    run_process(&os, || {
        let mounts = vec![domain.clone()];
        let mut t = Transaction::begin(os.clone(), mounts, Options::default()).expect("begins");
        t.inherit(&age.expect("has lost"));
        t.abort();
    })
    .expect("not killed");
    assert_eq!(holder_of(&domain), None);
    // One that is not tried again does not ask.
    let rival = machine.spawn("rival");
    run_process(&os, || {
        let mounts = vec![domain.clone()];
        let mut t = Transaction::begin(os.clone(), mounts, Options::default()).expect("begins");
        let between = || {
            let theirs = run_process(&rival, || attempt(&open(&rival).expect("opens"), &mut None, || ()));
            theirs.expect("not killed").expect("it was there first");
        };
        increment(&mut t, between).expect("not doomed yet");
        assert!(matches!(t.commit(), Err(CommitError::Conflict(_))));
    })
    .expect("not killed");
    assert_eq!(holder_of(&domain), None);
}

#[test]
fn an_older_loser_takes_the_place_of_a_younger_one_who_keeps_its_age_for_later() {
    let machine = machine(1);
    let (_first_os, first, first_age) = loser(&machine, "first");
    let older = holder_of(&first);
    first.table.priority().resign(older.expect("has lost"));
    let (_second_os, second, _) = loser(&machine, "second");
    let younger = holder_of(&second);
    assert!(older.is_some() && younger > older, "{older:?} {younger:?}");
    // The older one loses again: to a change that was numbered before it asked.
    let mut age = first_age;
    let mut t =
        Transaction::begin(first.os.clone(), vec![first.clone()], Options::default()).expect("begins");
    t.inherit(age.as_ref().expect("has lost"));
    age = Some(t.will_be_tried_again());
    increment(&mut t, || ()).expect("not doomed");
    let conflict = Conflict {
        path: Vec::new(),
        what: ConflictKind::ContentsChanged,
        with: crate::outcome::Party::Unknown,
    };
    t.lose(&conflict);
    assert_eq!(holder_of(&first), older);
    attempt(&first, &mut age, || ()).expect("nobody is in its way");
    assert_eq!(holder_of(&first), None);
}
