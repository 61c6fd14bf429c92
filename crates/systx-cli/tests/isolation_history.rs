//! Histories of real processes, transactions and outsiders mixed, judged by the checker of systx-sim.
//!
//! Files are lists, a line a value. Transactions read them and append to them, in place or by renaming a
//! rewritten copy; outsiders append in place to the same files, and replace files of their own that
//! transactions read. Each process prints what it did in the text form of `systx_sim::history::text`. Reads
//! of outsiders are not recorded: they may see the objects of one commit change one after another
//! (guarantees.md, *validated*).
//!
//! `cargo test -p systx-cli --test isolation_history [-- PART-OF-A-NAME]`; `SYSTX_LONG=1` for more of it. The
//! seed is printed; `SYSTX_SEED` sets it (schedules stay the kernel's).

mod alone;
#[path = "isolation_history/library.rs"]
mod library;

use alone::place::{code, err, out, Place, AREA, SYSTX};
use alone::{long, meet, role, Case};
use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Instant;
use systx_os::{Linux, Os};
use systx_sim::history::{check_with, text, Anomaly, Class, History, Op, Outcome, Reads, Transaction};

fn main() {
    let cases: &[(&str, Case)] = &[
        ("transactions_alone_are_opaque", transactions_alone_are_opaque),
        ("transactions_among_outsiders_are_serializable", transactions_among_outsiders_are_serializable),
        ("killed_transactions_are_there_or_not", killed_transactions_are_there_or_not),
        ("anomalies_are_found_where_systx_is_bypassed", anomalies_are_found_where_systx_is_bypassed),
        ("threads_of_the_library_beside_runs_are_serializable", library::threads_beside_runs),
        ("killed_processes_of_the_library_leave_all_or_nothing", library::killed_threads_beside_runs),
        ("anomalies_are_found_where_the_library_is_bypassed", library::planted),
        ("degree_2_permits_what_it_says_and_no_more", degree_2_permits_what_it_says_and_no_more),
        ("degree_2_is_what_it_says_when_asked_for", degree_2_is_what_it_says_when_asked_for),
    ];
    let kinds: &[&str] = if long() { &["tmpfs", "ext4", "btrfs"] } else { &["tmpfs", "ext4"] };
    alone::enter(kinds, cases, &[("tx", play), ("library", library::play)]);
}

/// Lists that transactions and outsiders append to in place.
const SHARED: [&str; 4] = ["s0", "s1", "s2", "s3"];
/// Lists of transactions alone, appended to by renaming a copy.
const REWRITTEN: [&str; 2] = ["w0", "w1"];
/// Lists that one outsider each replaces.
const THEIRS: [&str; 2] = ["o0", "o1"];

fn keys() -> impl Iterator<Item = &'static str> {
    SHARED.into_iter().chain(REWRITTEN).chain(THEIRS)
}

/// Role: one transaction's calls, in words: `r:KEY`, `a:KEY:VALUE` in place, `w:KEY:VALUE` by rename of a
/// copy of what was read last, `turn:N`. Says what it has done, a line a call.
fn play(calls: &[String]) {
    let mut seen: HashMap<String, String> = HashMap::new();
    for call in calls {
        let words: Vec<&str> = call.split(':').collect();
        let say = match words[..] {
            ["r", key] => {
                let text = std::fs::read_to_string(key).unwrap();
                let line = format!("r {key} {}", text.replace('\n', " "));
                seen.insert(key.into(), text);
                line
            }
            ["a", key, value] => {
                let line = format!("{value}\n");
                append(key, &line);
                seen.entry(key.into()).and_modify(|text| text.push_str(&line));
                format!("a {key} {value}")
            }
            ["w", key, value] => {
                let mut text = seen.remove(key).unwrap_or_else(|| std::fs::read_to_string(key).unwrap());
                text.push_str(&format!("{value}\n"));
                replace(key, &text, value);
                seen.insert(key.into(), text);
                format!("a {key} {value}")
            }
            ["turn", n] => {
                let beside = std::env::var("BESIDE").unwrap();
                std::fs::write(format!("{beside}/here{n}"), "here\n").unwrap();
                std::fs::read(format!("{beside}/word{n}")).unwrap();
                continue;
            }
            _ => panic!("unknown call {call}"),
        };
        println!("{say}");
    }
    println!("end");
}

/// One write(2) at the end of the file.
fn append(path: &str, line: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
}

fn replace(path: &str, text: &str, unique: &str) {
    let new = format!("{path}.{unique}");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// One place with its lists, and what was recorded about them.
struct Recorder<'a> {
    p: &'a Place,
    isolation: &'static str,
    /// True if the random transactions also rewrite files, beside appends in place and reads.
    rewrites: bool,
}

/// Fate of a transaction's owner.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lives,
    /// Killed so many µs after its command's last call.
    Killed(u64),
}

impl<'a> Recorder<'a> {
    fn new(p: &'a Place) -> Recorder<'a> {
        keys().for_each(|key| p.write(key, ""));
        Recorder { p, isolation: "serializable", rewrites: true }
    }

    /// Records transactions at degree 2. They append in place only: one that rewrites a file that it has read
    /// and closed may lose an update.
    fn at_degree_2(p: &'a Place) -> Recorder<'a> {
        Recorder { isolation: "committed", rewrites: false, ..Recorder::new(p) }
    }

    fn now(&self) -> u64 {
        Linux::new().monotonic_ns()
    }

    /// Runs one transaction; `tick` is called at each of its calls. Returns its line.
    fn transact(&self, at: (u64, u64), calls: &[String], fate: Fate, tick: &dyn Fn()) -> Transaction {
        let invoke = self.now();
        let words: Vec<&str> = calls.iter().map(String::as_str).collect();
        let mut systx = self.p.systx(&["--json", "--isolation", self.isolation], &role("tx", &words));
        let mut child = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        while lines.read_line(&mut said).unwrap() > 0 && !said.ends_with("end\n") {
            tick();
        }
        let mut killed = false;
        if let Fate::Killed(after_us) = fate {
            let last = Instant::now();
            while last.elapsed().as_micros() < u128::from(after_us) {
                std::hint::spin_loop();
            }
            killed = child.try_wait().unwrap().is_none();
            let _ = child.kill();
        }
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        let status = child.wait().unwrap().code();
        let complete = self.now();
        let ops = said.strip_suffix("end\n").unwrap_or(&said);
        let (outcome, conflict_copies) = match (killed, status) {
            (false, Some(0)) => (Outcome::Committed, String::new()),
            (false, Some(76)) => (Outcome::Committed, told.clone()),
            (false, Some(75)) => (Outcome::Aborted, String::new()),
            (true, _) => (Outcome::Unknown, String::new()),
            _ => panic!("{status:?}: {told}{said}"),
        };
        let mut transaction = parse(at, ops);
        (transaction.invoke, transaction.outcome) = (invoke, outcome);
        transaction.complete = (!killed).then_some(complete);
        // Appends that became conflict copies are not in the list: an outsider took their place, and that was
        // reported.
        if !conflict_copies.is_empty() {
            println!("displaced: {}", conflict_copies.trim());
            let value: serde_json::Value = serde_json::from_str(&conflict_copies).unwrap();
            let paths: Vec<String> =
                value["displaced"].as_array().unwrap().iter().map(|d| d["path"].to_string()).collect();
            let named = |key: &str| {
                paths.iter().any(|path| path.contains(&format!("/{key}\"")) || path == &format!("\"{key}\""))
            };
            transaction.ops.retain(|op| !matches!(op, Op::Append { key, .. } if named(key)));
        }
        transaction
    }

    /// Returns the lists after all processes have ended, and the verdict.
    fn judge(&self, transactions: Vec<Transaction>, reads: Reads) -> (String, Vec<Anomaly>) {
        let recover = Command::new(SYSTX).args(["recover", "--area-name", AREA]).output().unwrap();
        assert_eq!(code(&recover), 0, "{}{}", out(&recover), err(&recover));
        // A transaction that reads waits for everything that is still being published.
        let end = self.p.shell("cat s? w? o? > /dev/null");
        assert_eq!(code(&end), 0, "{}", err(&end));
        let list = |key| self.p.read(key).lines().map(|line| line.parse().unwrap()).collect();
        let history =
            History { transactions, finals: keys().map(|key| (key.to_string(), list(key))).collect() };
        // Through the text, as a person would look at it.
        let text = history.to_string();
        let anomalies = check_with(&text::parse(&text).unwrap(), reads);
        (text, anomalies)
    }

    fn must_be_right(&self, transactions: Vec<Transaction>, reads: Reads) {
        let (text, anomalies) = self.judge(transactions, reads);
        let list: Vec<String> = anomalies.iter().map(Anomaly::to_string).collect();
        assert!(list.is_empty(), "{}\n{text}", list.join("\n"));
    }
}

/// A transaction's calls from what its process said.
fn parse((process, id): (u64, u64), said: &str) -> Transaction {
    let calls: String = said.lines().map(|line| format!(" | {line}")).collect();
    let line = format!("t {process} {id} 0 - unknown{calls}\n");
    text::parse(&line).unwrap_or_else(|e| panic!("{e}: {line}")).transactions.remove(0)
}

/// A random transaction; values are unique by `base`.
fn random_calls(rng: &mut fastrand::Rng, base: u64, theirs: bool, rewrites: bool) -> Vec<String> {
    let calls = rng.u64(2..=4);
    let call = |i: u64, rng: &mut fastrand::Rng| {
        let value = base + i;
        match rng.u8(0..8) {
            0..=2 => format!("a:{}:{value}", rng.choice(SHARED).unwrap()),
            3 if rewrites => format!("w:{}:{value}", rng.choice(REWRITTEN).unwrap()),
            4 if theirs => format!("r:{}", rng.choice(THEIRS).unwrap()),
            4 => format!("r:{}", rng.choice(REWRITTEN).unwrap()),
            _ => format!("r:{}", rng.choice(SHARED).unwrap()),
        }
    };
    (0..calls).map(|i| call(i, rng)).collect()
}

/// An outsider: acts at one in six of the transactions' calls. One append is one transaction of one call.
fn outsider(r: &Recorder<'_>, n: u64, ticks: Receiver<()>, mut rng: fastrand::Rng) -> Vec<Transaction> {
    let own = THEIRS[n as usize];
    let path = |key: &str| r.p.served.join(key).to_str().unwrap().to_owned();
    let mut list = String::new();
    let mut done = Vec::new();
    for id in (0..).zip(ticks.iter().filter(|()| rng.u8(0..6) == 0)).map(|(id, ())| id) {
        let value = (100 + n) * 1_000_000 + id;
        let in_place = id % 2 == 0;
        let key = if in_place { SHARED[(id / 2 % 4) as usize] } else { own };
        let invoke = r.now();
        if in_place {
            append(&path(key), &format!("{value}\n"));
        } else {
            list.push_str(&format!("{value}\n"));
            replace(&path(key), &list, "outsider");
        }
        let mut transaction = parse((100 + n, id), &format!("a {key} {value}\n"));
        (transaction.invoke, transaction.complete) = (invoke, Some(r.now()));
        transaction.outcome = Outcome::Committed;
        done.push(transaction);
    }
    done
}

/// `workers` processes of transactions, and outsiders if there are to be any.
fn history(r: &Recorder<'_>, outsiders: bool, kills: bool) -> Vec<Transaction> {
    let (workers, times) = if long() { (6, 150) } else { (4, 20) };
    let seed = systx_runner::seed();
    let rng = |n: u64| fastrand::Rng::with_seed(seed ^ (n << 32));
    std::thread::scope(|scope| {
        let (senders, others): (Vec<Sender<()>>, Vec<_>) = (0..if outsiders { 2 } else { 0 })
            .map(|n| {
                let (sender, ticks) = channel();
                (sender, scope.spawn(move || outsider(r, n, ticks, rng(100 + n))))
            })
            .unzip();
        let all: Vec<_> = (0..workers)
            .map(|w| {
                let senders = senders.clone();
                scope.spawn(move || {
                    let mut rng = rng(w);
                    let tick = || senders.iter().for_each(|sender| sender.send(()).unwrap());
                    let one = |id| {
                        let calls = random_calls(&mut rng, w * 1_000_000 + id * 10, outsiders, r.rewrites);
                        let killed = kills && rng.u8(0..4) == 0;
                        let fate = if killed { Fate::Killed(rng.u64(0..8000)) } else { Fate::Lives };
                        r.transact((w, id), &calls, fate, &tick)
                    };
                    (0..times).map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        drop(senders);
        let all = all.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>();
        let count = |outcome| all.iter().filter(|t| t.outcome == outcome).count();
        println!(
            "{} committed, {} aborted, {} killed",
            count(Outcome::Committed),
            count(Outcome::Aborted),
            count(Outcome::Unknown)
        );
        assert!(count(Outcome::Committed) > 10, "too few commits to say anything");
        assert_eq!(kills, count(Outcome::Unknown) > 0);
        let others: Vec<_> = others.into_iter().flat_map(|other| other.join().unwrap()).collect();
        assert_eq!(outsiders, others.len() > 10, "outsiders acted {} times", others.len());
        all.into_iter().chain(others).collect()
    })
}

fn transactions_alone_are_opaque(p: &Place) {
    let r = Recorder::new(p);
    let transactions = history(&r, false, false);
    r.must_be_right(transactions, Reads::OfAll);
}

fn transactions_among_outsiders_are_serializable(p: &Place) {
    let r = Recorder::new(p);
    let transactions = history(&r, true, false);
    r.must_be_right(transactions, Reads::OfCommitted);
}

fn killed_transactions_are_there_or_not(p: &Place) {
    let r = Recorder::new(p);
    let transactions = history(&r, true, true);
    r.must_be_right(transactions, Reads::OfCommitted);
}

/// Calls of one transaction before and after another has run as a whole, the calls of that one, and the
/// classes that show it if the first is not isolated.
const SCHEDULES: &[(&[&str], &[&str], &[Class])] = &[
    (&["r:w0", "turn:N", "w:w0:1"], &["w:w0:2"], &[Class::LostAppend, Class::IncompatibleOrder]),
    (&["r:s0", "r:s1", "turn:N", "a:s0:1"], &["r:s0", "r:s1", "a:s1:2"], &[Class::G2]),
    (&["r:s0", "turn:N", "r:s1"], &["a:s0:2", "a:s1:3"], &[Class::GSingle]),
    (&["r:s0", "turn:N", "r:s0"], &["a:s0:2"], &[Class::Internal, Class::GSingle, Class::G1c]),
    (&["a:s0:1", "turn:N", "a:s1:4"], &["r:s0", "r:s1", "a:s1:2"], &[Class::G1c, Class::GSingle, Class::G0]),
];

/// Anomalies that degree 2 permits: reads that don't repeat, and cycles with an anti-dependency. No dirty
/// write, no dirty or intermediate read, nothing lost or torn, and nothing read that was over before it
/// began.
const PERMITTED: [Class; 5] =
    [Class::Internal, Class::GSingle, Class::G2, Class::GSingleRealtime, Class::G2Realtime];

fn degree_2_is_what_it_says_when_asked_for(p: &Place) {
    let r = Recorder::at_degree_2(p);
    let transactions = history(&r, true, false);
    let (text, anomalies) = r.judge(transactions, Reads::OfAll);
    println!("{} anomalies that are permitted", anomalies.len());
    let others: Vec<_> = anomalies.iter().filter(|anomaly| !PERMITTED.contains(&anomaly.class)).collect();
    assert!(others.is_empty(), "{others:?}\n{text}");
}

/// The schedules that are conflicts at degree 3: all but the last one commit at degree 2, and show it. In the
/// last one the first has changed something and not committed: no other one has seen it, and nothing is
/// wrong.
fn degree_2_permits_what_it_says_and_no_more(p: &Place) {
    let lost = [Class::LostAppend, Class::IncompatibleOrder];
    for (n, (first, second, classes)) in (1..).zip(SCHEDULES) {
        let r = Recorder::at_degree_2(p);
        let calls: Vec<String> = first.iter().map(|call| call.replace('N', &n.to_string())).collect();
        let words: Vec<&str> = calls.iter().map(String::as_str).collect();
        let invoke = r.now();
        let meeting = meet(p, n, &["--isolation", "committed"], &role("tx", &words));
        let calls: Vec<String> = second.iter().map(|call| call.to_string()).collect();
        let two = r.transact((2, 1), &calls, Fate::Lives, &|| ());
        let end = meeting.end();
        assert_eq!((code(&end), two.outcome), (0, Outcome::Committed), "{first:?}: {}", err(&end));
        let said = out(&end);
        let mut one = parse((1, 1), said.strip_suffix("end\n").unwrap_or(&said));
        (one.invoke, one.complete, one.outcome) = (invoke, Some(r.now()), Outcome::Committed);
        let (text, found) = r.judge(vec![one, two], Reads::OfCommitted);
        let hit = found.iter().any(|anomaly| classes.contains(&anomaly.class));
        let of_degree_2 = |class: &Class| PERMITTED.contains(class) || lost.contains(class);
        assert!(found.iter().all(|anomaly| of_degree_2(&anomaly.class)), "{first:?}: {found:?}\n{text}");
        assert_eq!(hit, n < SCHEDULES.len() as u32, "{first:?}: {found:?}\n{text}");
    }
}

fn anomalies_are_found_where_systx_is_bypassed(p: &Place) {
    // A transaction that serves another directory reaches the lists natively.
    let other = p.served.join("other");
    std::fs::create_dir(&other).unwrap();
    let bypass = Place { mount: p.mount.clone(), served: other, beside: p.beside.clone() };
    let mut n = 0;
    for (first, second, classes) in SCHEDULES {
        for bypassed in [false, true] {
            n += 1;
            let r = Recorder::new(p);
            let through = if bypassed { &bypass } else { p };
            let calls: Vec<String> = first.iter().map(|call| call.replace('N', &n.to_string())).collect();
            let words: Vec<&str> = calls.iter().map(String::as_str).collect();
            let invoke = r.now();
            // In the directory of the lists, whatever is served.
            let list = p.served.to_str().unwrap();
            let words = [vec!["env".into(), "-C".into(), list.into()], role("tx", &words)].concat();
            let meeting = meet(through, n, &[], &words);
            let calls: Vec<String> = second.iter().map(|call| call.to_string()).collect();
            let two = r.transact((2, 1), &calls, Fate::Lives, &|| ());
            let end = meeting.end();
            let said = out(&end);
            let mut one = parse((1, 1), said.strip_suffix("end\n").unwrap_or(&said));
            (one.invoke, one.complete) = (invoke, Some(r.now()));
            one.outcome = if code(&end) == 0 { Outcome::Committed } else { Outcome::Aborted };
            assert!(
                bypassed
                    || one.outcome == Outcome::Aborted
                    || two.outcome == Outcome::Aborted
                    || first[0].starts_with('a')
            );
            let (text, found) = r.judge(vec![one, two], Reads::OfCommitted);
            let hit = found.iter().any(|anomaly| classes.contains(&anomaly.class));
            assert_eq!((hit, found.is_empty()), (bypassed, !bypassed), "{first:?}: {found:?}\n{text}");
        }
    }
}
