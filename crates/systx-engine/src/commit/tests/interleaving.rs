//! Several simulated processes run transactions over append-only lists, by a schedule that a seed decides;
//! the history of what they saw is judged by the checker: strict serializability, and opacity of what was
//! doomed or cut off, too.
//!
//! A list is a file of numbers, changed in place or replaced by a rename, or a directory with a file an
//! element; or a page of a file, or what is behind its pages.
//!
//! `SYSTX_LONG=1` runs a hundred times the seeds; `SYSTX_SEED=<n>` one, `SYSTX_SEED=<from>..<to>` those.

mod watched;

use super::world::open;
use crate::domain::{Domain, Most, Place, SlotInfo, SlotState, Who};
use crate::id::{Footprint, TxId, PAGE_BYTES};
use crate::mutant;
use crate::outcome::{CommitError, Durability, Options, Party, Verb, VerbError};
use crate::recovery::MOMENT_NS;
use crate::transaction::{Access, Caller, Grain, Node, Transaction};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use systx_os::{FsKind, Os, Rename};
use systx_sim::history::{check_with, History, Op, Outcome, Reads, Transaction as Recorded};
use systx_sim::machine::{run_process, Crash, Ended, Machine, Plant, Schedule, SimOs};
use watched::Watched;

const FILES: [&str; 2] = ["f0", "f1"];
const DIRECTORIES: [&str; 2] = ["d0", "d1"];
/// The first two are a list of each kind.
const KEYS: [&str; 4] = ["f0", "d0", "f1", "d1"];
/// Pages of one file, and the rest of it.
const PAGES: [&str; 4] = ["p0", "p1", "tail", "p2"];
/// Number of those pages.
const PAGES_LEN: u64 = 3;
const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// Ingredients of a run.
#[derive(Clone, Copy, Default)]
struct Setting {
    clients: u64,
    /// Transactions of each client.
    transactions: u64,
    /// Percent of transactions without durability.
    none: u8,
    kills: bool,
    /// Number of active entries that others take for a while.
    crowd: usize,
    /// Others overrun the ring in between.
    overrun: bool,
    /// Calls on shared words are points, too.
    words: bool,
    /// The power fails at this call.
    power: Option<u64>,
    /// Number of the lists that are used.
    keys: usize,
    /// Turns by rank, with so many falls: one stands still while others do all of their work.
    falls: usize,
    /// The wall clock jumps by days between calls, and each process has a monotonic clock of its own.
    clocks: bool,
    /// Some stand still for longer than others wait without asking why; and every filter of a slot holds everything.
    stops: bool,
    /// The lists are [`PAGES`].
    pages: bool,
    /// Some append behind those pages without having read there.
    unseen: bool,
}

impl Setting {
    fn all(&self) -> [&'static str; 4] {
        if self.pages {
            PAGES
        } else {
            KEYS
        }
    }
}

/// One clock, and everything that any transaction saw.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<(u64, Told)>>);

/// The record of each transaction, with its number in the domain.
type Told = Vec<(Recorded, Durability, TxId)>;

impl Log {
    fn with<T>(&self, change: impl FnOnce(&mut u64, &mut Told) -> T) -> T {
        let mut log = self.0.lock().expect("nobody panics in here");
        let (clock, all) = &mut *log;
        *clock += 1;
        change(clock, all)
    }
    fn begin(&self, process: u64, durability: Durability) -> usize {
        self.with(|clock, all| {
            let (id, outcome) = (all.len() as u64, Outcome::Unknown);
            all.push((
                Recorded { process, id, invoke: *clock, complete: None, outcome, ops: Vec::new() },
                durability,
                TxId(0),
            ));
            all.len() - 1
        })
    }
    fn number(&self, at: usize, id: TxId) {
        self.with(|_, all| all[at].2 = id);
    }
    /// Looking is no event.
    fn look<T>(&self, look: impl FnOnce(&Told) -> T) -> T {
        look(&self.0.lock().expect("nobody panics in here").1)
    }
    /// Returns true if two transactions share a list to which one of them appends.
    fn overlap(&self, one: TxId, two: TxId) -> bool {
        self.look(|all| {
            let ops = |id: TxId| all.iter().find(|t| t.2 == id).map_or(&[][..], |t| &t.0.ops);
            let (one, two) = (ops(one), ops(two));
            let key = |op: &Op| match op {
                Op::Append { key, .. } | Op::Read { key, .. } => key.clone(),
            };
            let appends = |op: &Op| matches!(op, Op::Append { .. });
            one.iter().any(|a| two.iter().any(|b| key(a) == key(b) && (appends(a) || appends(b))))
        })
    }
    fn op(&self, at: usize, op: Op) {
        self.with(|_, all| all[at].0.ops.push(op));
    }
    fn end(&self, at: usize, outcome: Outcome) {
        self.with(|clock, all| (all[at].0.complete, all[at].0.outcome) = (Some(*clock), outcome));
    }
}

/// Makes the lists, and the domain as a process sees it that only watches.
fn machine(seed: u64) -> (Machine, Arc<Domain<SimOs>>) {
    let machine = Machine::new(seed, &[systx_sim::machine::FsSpec::new(FsKind::Ext4)]);
    let files = FILES.iter().map(|f| (*f, Plant::File(b"")));
    let blank = vec![b' '; (PAGES_LEN * PAGE_BYTES) as usize];
    let pages = [("pages", Plant::File(&blank))];
    let objects: Vec<_> = files.chain(DIRECTORIES.iter().map(|d| (*d, Plant::Dir))).chain(pages).collect();
    machine.plant(0, &objects).expect("planting");
    machine.settle();
    machine.set_word_points(false);
    let os = machine.spawn("watcher");
    let watched = run_process(&os, || open(&os).expect("opens")).expect("not killed");
    machine.settle();
    (machine, watched)
}

fn numbers(text: &[u8]) -> Vec<u64> {
    String::from_utf8_lossy(text).split_whitespace().map(|n| n.parse().unwrap_or(u64::MAX)).collect()
}

/// The list that is kept as the names `<place>-<value>` of a directory.
fn in_order<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut found: Vec<(u64, u64)> = names
        .filter_map(|name| {
            let (at, value) = std::str::from_utf8(name).ok()?.split_once('-')?;
            Some((at.parse().ok()?, value.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, value)| value).collect()
}

fn node(t: &mut Transaction<SimOs>, key: &str) -> Verb<Node> {
    let root = t.root(0);
    Ok(t.lookup(root, key.as_bytes())?.unwrap_or_else(|| panic!("{key} is missing")).0)
}

/// The file of a list, and where that is in it.
fn place(key: &str) -> (&str, u64) {
    match key.strip_prefix('p') {
        Some(page) => ("pages", page.parse::<u64>().expect("a number") * PAGE_BYTES),
        None if key == "tail" => ("pages", PAGES_LEN * PAGE_BYTES),
        None => (key, 0),
    }
}

fn read(t: &mut Transaction<SimOs>, key: &str) -> Verb<Vec<u64>> {
    let (file, at) = place(key);
    let node = node(t, file)?;
    if key.starts_with('d') {
        return Ok(in_order(t.readdir(node)?.iter().map(|entry| &*entry.name)));
    }
    t.open(node, Access::Read, false)?;
    let mut text = vec![0; 4096];
    let got = t.read_at(node, &mut text, at)?;
    t.close(node);
    Ok(numbers(&text[..got]))
}

fn append(t: &mut Transaction<SimOs>, key: &str, list: &[u64], value: u64, replace: bool) -> Verb<()> {
    let root = t.root(0);
    if key.starts_with('d') {
        let dir = node(t, key)?;
        t.create(dir, format!("{:04}-{value}", list.len()).as_bytes(), 0o644, ME)?;
        return Ok(());
    }
    let text: String = list.iter().chain([&value]).map(|n| format!("{n} ")).collect();
    if let ("pages", at) = place(key) {
        let file = node(t, "pages")?;
        if replace {
            // Size and times are shown.
            t.getattr(file)?;
        }
        t.open(file, Access::Write, false)?;
        match key {
            "tail" => drop(t.append(file, format!("{value} ").as_bytes())?),
            _ => drop(t.write_at(file, text.as_bytes(), at)?),
        }
        t.close(file);
        return Ok(());
    }
    if !replace {
        let file = node(t, key)?;
        t.open(file, Access::ReadWrite, false)?;
        t.append(file, format!("{value} ").as_bytes())?;
        t.close(file);
        return Ok(());
    }
    let temporary = format!("tmp{value}");
    let (file, _) = t.create(root, temporary.as_bytes(), 0o644, ME)?;
    t.open(file, Access::Write, false)?;
    t.write_at(file, text.as_bytes(), 0)?;
    t.close(file);
    t.rename(root, temporary.as_bytes(), root, key.as_bytes(), Rename::Replace)
}

/// One transaction: reads, and appends to what it has read.
fn transaction(
    os: &SimOs,
    domain: &Arc<Domain<SimOs>>,
    (log, watched): (&Log, &Watched),
    me: u64,
    set: &Setting,
    rng: &mut fastrand::Rng,
) {
    let durability = if rng.u8(0..100) < set.none { Durability::None } else { Durability::Durable };
    let at = log.begin(me, durability);
    let options = Options { durability, command: String::new(), ..Options::default() };
    let mut writes = false;
    let mut body = || -> Verb<Transaction<SimOs>> {
        let mut t = Transaction::begin(os.clone(), vec![domain.clone()], options.clone())?;
        log.number(at, t.id());
        if set.pages {
            t.look_by(Grain::Pages);
        }
        for _ in 0..rng.u8(1..4) {
            let key = set.all()[rng.usize(0..set.keys)];
            if set.unseen && key == "tail" && rng.bool() {
                writes = true;
                let value = log.with(|clock, _| *clock);
                append(&mut t, key, &[], value, false)?;
                log.op(at, Op::Append { key: key.into(), value });
                continue;
            }
            let list = read(&mut t, key)?;
            log.op(at, Op::Read { key: key.into(), list: list.clone() });
            if set.power.is_none() {
                watched.shown(log, at);
            }
            if rng.u8(0..3) > 0 {
                writes = true;
                let value = log.with(|clock, _| *clock);
                append(&mut t, key, &list, value, rng.bool())?;
                log.op(at, Op::Append { key: key.into(), value });
            }
        }
        Ok(t)
    };
    let ended = match body() {
        Err(VerbError::Doomed(_)) => Outcome::Aborted,
        Err(VerbError::Os(error)) => panic!("a verb fails: {error:?}"),
        Ok(t) => match t.commit() {
            Ok(done) => {
                // Under a mutant only the history is to show the fault.
                assert!(mutant::any() || done.conflict_copies.is_empty(), "{done:?}");
                assert!(done.pending.is_none(), "{done:?}");
                Outcome::Committed
            }
            Err(CommitError::Conflict(conflict)) => {
                // A reader has no active entry: the transaction that changes just then what it read can't be
                // named.
                let blamed = writes && !set.overrun && !mutant::any() && conflict.with == Party::Outsider;
                assert!(!blamed, "there is no outsider: {conflict}");
                Outcome::Aborted
            }
            Err(why) => panic!("a commit fails: {why}"),
        },
    };
    log.end(at, ended);
}

/// Takes slots, and overruns the ring, as so many small commits would; then gives the slots back one by one.
fn crowd(os: &SimOs, set: &Setting) {
    let domain = open(os).expect("opens");
    let mut slots = Vec::new();
    let mut number = |keep: bool| {
        let held = domain.lock().expect("locks");
        let table = &domain.table;
        let (lsn, tx, pid) = (table.next(), domain.new_tx(), os.pid());
        let free = table.slots().find_free(held.proof()).expect("sound").filter(|_| keep);
        if let Some(slot) = free {
            let (body, footprint, owner) = (Place::default(), Footprint::EMPTY, domain.me());
            let (durable, multi_domain, redo) = (false, false, false);
            let info = SlotInfo { lsn, tx, owner, pid, durable, multi_domain, redo, body, footprint };
            table.slots().fill(held.proof(), slot, &info, SlotState::Validated).expect("is free");
            slots.push(slot);
        }
        table.ring().put(held.proof(), lsn, Who { tx, pid, recorded: false }, &Footprint::EMPTY.changed());
        table.advance_next(held.proof());
    };
    (0..set.crowd).for_each(|_| number(true));
    if set.overrun {
        (0..3).for_each(|_| {
            (0..1100).for_each(|_| number(false));
            os.pause(2_000_000);
        });
    }
    for slot in slots {
        os.pause(100_000);
        domain.free_slot(slot).expect("mine");
    }
}

struct Run {
    history: History,
    durable: Vec<Recorded>,
    /// Not durable, and not aborted: what a power loss may tear.
    none: Vec<Recorded>,
    /// Faults that were found at some call.
    watched: Watched,
    points: u64,
    /// Virtual time.
    took_ns: u64,
}

fn run(seed: u64, set: Setting) -> Run {
    let (machine, domain) = machine(seed);
    machine.set_word_points(set.words);
    let (log, watched) = (Log::default(), Watched::default());
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut processes: Vec<(SimOs, Box<dyn FnOnce() + Send>)> = Vec::new();
    for me in 0..set.clients {
        let os = machine.spawn("client");
        // The last one lives.
        if set.kills && me + 1 < set.clients {
            machine.kill_at(&os, rng.u64(0..if set.words { 6000 } else { 1200 }));
        }
        let (log, mut rng, body, watched) = (log.clone(), rng.fork(), os.clone(), watched.clone());
        let client = move || {
            let domain = open(&body).unwrap_or_else(|e| panic!("can't open: {e}"));
            // Every other process goes by what it knows from transactions before.
            if me % 2 == 1 {
                domain.remember(Most { names: 16, open: 4 });
            }
            (0..set.transactions)
                .for_each(|_| transaction(&body, &domain, (&log, &watched), me, &set, &mut rng));
        };
        processes.push((os, Box::new(client)));
    }
    if set.crowd > 0 || set.overrun {
        let (os, crowded) = (machine.spawn("crowd"), set);
        let body = os.clone();
        processes.push((os, Box::new(move || crowd(&body, &crowded))));
    }
    let (first, began_ns) = (machine.points(), machine.clock_ns());
    if set.power.is_none() {
        watch(&machine, domain, (&log, &watched), seed, &set);
    }
    if let Some(point) = set.power {
        let mut rng = rng.fork();
        machine.set_hook(move |machine, info| {
            if info.global_point == first + point {
                machine.power_loss(Crash::Random, &mut rng);
            }
        });
    }
    let report = match set.falls {
        0 => Schedule::run(seed, processes),
        falls => {
            // About as many as a transaction makes.
            let calls = if set.words { 900 } else { 60 };
            Schedule::run_ranked(seed, falls, set.clients * set.transactions * calls, processes)
        }
    };
    machine.clear_hook();
    machine.clear_plans();
    assert_eq!(report.deadlock, None, "seed {seed}");
    assert!(!report.endless, "seed {seed}: no end");
    for ended in &report.ended {
        let fine =
            *ended == Ended::Finished || (*ended == Ended::Killed && (set.kills || set.power.is_some()));
        assert!(fine, "seed {seed}: {ended:?}");
    }
    let (points, took_ns) = (machine.points() - first, machine.clock_ns() - began_ns);
    recover(&machine, seed, &set);
    let finals = finals(&machine);
    let all = log.with(|_, all| std::mem::take(all));
    let those = |wanted: &dyn Fn(Outcome, Durability) -> bool| -> Vec<Recorded> {
        all.iter().filter(|(t, d, _)| wanted(t.outcome, *d)).map(|(t, ..)| t.clone()).collect()
    };
    let durable = those(&|o, d| o == Outcome::Committed && d == Durability::Durable);
    let none = those(&|o, d| o != Outcome::Aborted && d == Durability::None);
    let transactions = all.into_iter().map(|(t, ..)| t).collect();
    Run { history: History { transactions, finals }, durable, none, watched, points, took_ns }
}

/// Watches every call, and makes clocks jump and processes stop if that is asked for.
fn watch(
    machine: &Machine,
    domain: Arc<Domain<SimOs>>,
    (log, watched): (&Log, &Watched),
    seed: u64,
    set: &Setting,
) {
    let (watched, log) = (watched.clone(), log.clone());
    let mut jumps = set.clocks.then(|| fastrand::Rng::with_seed(seed));
    if set.clocks {
        machine.use_time_namespaces();
    }
    let mut stops = set.stops.then(|| fastrand::Rng::with_seed(seed));
    machine.set_hook(move |machine, info| {
        if let Some(rng) = &mut stops {
            let slots = domain.table.slots();
            slots.in_flight().for_each(|slot| slots.blur(slot.expect("sound").ix));
            if rng.u8(0..if info.call.is_word() { 60 } else { 6 }) == 0 {
                machine.advance_ns(MOMENT_NS);
            }
        }
        if let Some(rng) = &mut jumps {
            if rng.u8(0..4) == 0 {
                machine.set_wall_clock(rng.i64(-10..10) * 86_400);
            }
        }
        if info.call.is_word() {
            watched.at_word(&domain, info)
        } else {
            // An active entry stays for longer than a few accesses to the table.
            watched.at_call(&domain, &log)
        }
    });
}

/// Finishes what the dead have left.
fn recover(machine: &Machine, seed: u64, set: &Setting) {
    let os = machine.spawn("helper");
    machine.set_word_points(false);
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        domain.finish_dead().expect("recovers");
        assert!(domain.table.slots().in_flight().next().is_none(), "seed {seed}: in flight after recovery");
        // A power loss may take what says whose the objects were that a commit without a record had taken out.
        let may_be_cut_off = set.power.is_some() && set.none > 0;
        let told = domain.reports().expect("readable");
        let cut_off = may_be_cut_off && told.iter().all(|report| report.what.contains("was cut off"));
        assert!(
            mutant::any() || cut_off || domain.kept_aside().expect("readable").is_empty(),
            "seed {seed}: displaced without an outsider"
        );
    })
    .expect("lives");
}

/// The lists as they are in the end.
fn finals(machine: &Machine) -> BTreeMap<String, Vec<u64>> {
    let tree = machine.tree(0);
    let mut finals = BTreeMap::new();
    for key in FILES {
        finals.insert(key.to_owned(), numbers(&tree[key].content));
    }
    for key in DIRECTORIES {
        let below = format!("{key}/");
        let names = tree.keys().filter_map(|path| path.strip_prefix(&below)).map(str::as_bytes);
        finals.insert(key.to_owned(), in_order(names));
    }
    for key in PAGES {
        let text = &tree["pages"].content[place(key).1 as usize..];
        let end = if key == "tail" { text.len() } else { PAGE_BYTES as usize };
        finals.insert(key.to_owned(), numbers(&text[..end]));
    }
    finals
}

/// Returns the seeds that the environment asks for.
fn asked() -> Option<std::ops::Range<u64>> {
    let asked = std::env::var("SYSTX_SEED").ok()?;
    let seed = |text: &str| text.parse().unwrap_or_else(|_| panic!("SYSTX_SEED={asked}: no number"));
    Some(match asked.split_once("..") {
        Some((from, to)) => seed(from)..seed(to),
        None => seed(&asked)..seed(&asked) + 1,
    })
}

/// How many seeds; a hundred times as many with `SYSTX_LONG=1`. Under a mutant, which the first that finds it
/// ends, ten times: which of them find it changes with every call that a commit makes more or less.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let long = std::env::var_os("SYSTX_LONG").is_some();
    let times = if long { 100 } else { 1 };
    let first = systx_runner::first_seed();
    asked().unwrap_or(first..first + few * if mutant::any() { 10 } else { times })
}

fn judged(few: u64, set: Setting) {
    let (mut ends, mut points) = ([0u64; 2], 0);
    for seed in seeds(few) {
        let run = run(seed, set);
        points += run.points;
        let anomalies = check_with(&run.history, Reads::OfAll);
        let told: Vec<_> = anomalies.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}: no strictly serial order: {told:#?}\n{:#?}", run.history);
        for rule in ["I2", "I3", "I9", "I10"] {
            assert_eq!(run.watched.wrong(rule), None, "seed {seed}");
        }
        for t in &run.history.transactions {
            match t.outcome {
                Outcome::Committed => ends[0] += 1,
                Outcome::Aborted => ends[1] += 1,
                Outcome::Unknown => {}
            }
        }
    }
    println!("seeds {:?}: {points} calls, {} committed, {} aborted", seeds(few), ends[0], ends[1]);
    assert!(asked().is_some() || (ends[0] > 0 && ends[1] > 0), "commits and conflicts are seen: {ends:?}");
}

const USUAL: Setting = Setting {
    clients: 4,
    transactions: 4,
    none: 0,
    kills: false,
    crowd: 0,
    overrun: false,
    words: false,
    power: None,
    keys: KEYS.len(),
    falls: 0,
    clocks: false,
    stops: false,
    pages: false,
    unseen: false,
};

#[test]
fn interleaved_transactions_are_strictly_serializable_and_opaque() {
    judged(30, USUAL);
}

#[test]
fn interleaved_transactions_are_so_with_and_without_durability() {
    judged(30, Setting { none: 50, ..USUAL });
}

#[test]
fn what_a_program_is_shown_was_true_at_one_number_whenever_it_is_shown() {
    for seed in seeds(15) {
        for none in [0, 50] {
            let run = run(seed, Setting { none, ..USUAL });
            assert_eq!(run.watched.wrong("I9"), None, "seed {seed}");
        }
    }
}

#[test]
fn interleaved_transactions_are_so_at_every_access_to_the_table() {
    judged(15, Setting { none: 50, words: true, transactions: 2, clients: 3, ..USUAL });
}

#[test]
fn interleaved_transactions_are_so_when_slots_are_few() {
    judged(10, Setting { none: 30, crowd: 63, ..USUAL });
}

#[test]
fn interleaved_transactions_are_so_when_the_ring_is_overrun() {
    judged(10, Setting { none: 50, overrun: true, ..USUAL });
}

#[test]
fn interleaved_transactions_are_so_when_processes_are_killed_and_others_finish() {
    judged(40, Setting { none: 30, kills: true, ..USUAL });
}

#[test]
fn transactions_on_pages_of_a_file_are_strictly_serializable_and_opaque() {
    judged(30, PAGED);
    judged(30, Setting { none: 50, ..PAGED });
    judged(100, Setting { pages: true, ..RANKED });
    judged(15, Setting { words: true, transactions: 2, clients: 3, none: 50, ..PAGED });
    judged(30, Setting { stops: true, none: 50, ..PAGED });
}

#[test]
fn transactions_on_pages_of_a_file_are_so_when_processes_are_killed_and_others_finish() {
    judged(60, Setting { none: 30, kills: true, ..PAGED });
}

#[test]
fn transactions_that_append_unseen_are_strictly_serializable_and_opaque() {
    judged(60, UNSEEN);
    judged(60, Setting { none: 50, ..UNSEEN });
    judged(15, Setting { words: true, transactions: 2, clients: 3, none: 50, ..UNSEEN });
    judged(30, Setting { stops: true, none: 50, ..UNSEEN });
    judged(30, Setting { crowd: 8, overrun: true, ..UNSEEN });
}

#[test]
fn transactions_that_append_unseen_are_so_when_processes_are_killed_and_others_finish() {
    judged(60, Setting { none: 30, kills: true, ..UNSEEN });
}

/// Mostly on what is behind the pages.
const UNSEEN: Setting = Setting { unseen: true, keys: 3, ..PAGED };

const PAGED: Setting = Setting { pages: true, ..USUAL };

/// No run of these takes longer, with clocks that agree.
const LONGEST_NS: u64 = 60_000_000_000;

#[test]
fn interleaved_transactions_are_so_when_clocks_jump_by_days_and_differ_between_processes() {
    for set in [USUAL, RANKED, Setting { kills: true, ..USUAL }] {
        judged(15, Setting { clocks: true, none: 40, ..set });
    }
    // No transaction waits for what only a clock would end: virtual time passes when all wait.
    for seed in seeds(15) {
        let run = run(seed, Setting { clocks: true, none: 40, crowd: 63, ..USUAL });
        assert!(run.took_ns < LONGEST_NS, "seed {seed}: {} s", run.took_ns / 1_000_000_000);
    }
}

const RANKED: Setting = Setting { clients: 3, transactions: 2, none: 50, keys: 2, falls: 3, ..USUAL };

#[test]
fn interleaved_transactions_are_so_when_one_stands_still_while_others_commit() {
    judged(150, RANKED);
}

#[test]
fn interleaved_transactions_are_so_when_one_stands_still_at_an_access_to_the_table() {
    judged(150, Setting { words: true, ..RANKED });
}

#[test]
fn interleaved_transactions_are_so_when_who_waits_goes_by_records_instead_of_filters() {
    let set = Setting { stops: true, none: 50, ..USUAL };
    judged(30, set);
    judged(100, Setting { stops: true, ..RANKED });
    judged(15, Setting { words: true, clients: 3, transactions: 2, ..set });
}

#[test]
fn no_commit_that_was_reported_is_lost_with_the_power() {
    for set in [USUAL, PAGED, UNSEEN].map(|set| Setting { clients: 3, ..set }) {
        none_is_lost(set);
    }
}

fn none_is_lost(set: Setting) {
    for seed in seeds(40) {
        let whole = run(seed, set).points;
        let power = Some(fastrand::Rng::with_seed(seed).u64(0..whole));
        let run = run(seed, Setting { power, ..set });
        // Those who were cut off may be there or not; what is there is a serial history that ends before the power did.
        let told: Vec<_> = check_with(&run.history, Reads::OfAll).iter().map(ToString::to_string).collect();
        assert!(
            told.is_empty(),
            "seed {seed}, power lost at {power:?} of {whole}: no strictly serial order: {told:#?}\n{:#?}",
            run.history
        );
    }
}

#[test]
fn no_durable_commit_survives_what_it_builds_on() {
    for set in [USUAL, PAGED, UNSEEN].map(|set| Setting { clients: 3, none: 60, ..set }) {
        none_survives_its_base(set);
    }
}

fn none_survives_its_base(set: Setting) {
    for seed in seeds(40) {
        let whole = run(seed, set).points;
        let power = Some(fastrand::Rng::with_seed(seed).u64(whole / 4..whole));
        let run = run(seed, Setting { power, ..set });
        let torn = torn_at_will(&run);
        for t in &run.durable {
            for op in &t.ops {
                let (key, there): (&String, Vec<u64>) = match op {
                    Op::Append { key, value } => (key, vec![*value]),
                    Op::Read { key, list } => (key, list.clone()),
                };
                let left = &run.history.finals[key];
                let lost: Vec<_> = there.iter().filter(|value| !left.contains(value)).collect();
                assert!(
                    lost.is_empty() || torn.contains(key),
                    "seed {seed}, {power:?} of {whole}: {key} lost {lost:?} under {t:#?}\n{left:?}"
                );
            }
        }
    }
}

/// Returns the lists that a transaction without durability changed last, as far as any durable one has seen:
/// a power loss may tear them.
fn torn_at_will(run: &Run) -> HashSet<&String> {
    let seen = |of: &str, value: &u64| {
        let reads = run.durable.iter().flat_map(|t| &t.ops);
        reads.into_iter().any(|op| matches!(op, Op::Read { key, list } if key == of && list.contains(value)))
    };
    let changes = run.none.iter().flat_map(|t| &t.ops);
    let torn = changes.filter_map(|op| match op {
        Op::Append { key, value } if !seen(key, value) => Some(key),
        _ => None,
    });
    torn.collect()
}
