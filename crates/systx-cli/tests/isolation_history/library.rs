//! Threads of processes that have the library, on the lists of the other transactions.
//!
//! A process says what each of its transactions has done before the commit, and how it has ended behind it: of one that
//! is killed in between nobody knows, and the lists tell.

use super::{
    append, parse, random_calls, replace, Fate, Outcome, Reads, Recorder, Transaction, REWRITTEN, SCHEDULES,
};
use crate::alone::place::{Place, AREA};
use crate::alone::{long, role};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use systx::{Dir, Durability, Error, OpenOptions, Options, Systx};
use systx_runner::Ends;
use systx_sim::history::text;

/// The way to the lists: in a transaction, or past it.
enum Door<'a> {
    Through(&'a Dir),
    Past(&'a Path),
}

impl Door<'_> {
    fn read(&self, key: &str) -> std::io::Result<String> {
        match self {
            Door::Through(dir) => dir.read_to_string(key),
            Door::Past(dir) => std::fs::read_to_string(dir.join(key)),
        }
    }

    fn append(&self, key: &str, line: &str) -> std::io::Result<()> {
        match self {
            Door::Through(dir) => {
                dir.open_with(key, &OpenOptions::new().append(true))?.write_all(line.as_bytes())
            }
            Door::Past(dir) => {
                append(dir.join(key).to_str().unwrap(), line);
                Ok(())
            }
        }
    }

    fn replace(&self, key: &str, text: &str, unique: &str) -> std::io::Result<()> {
        match self {
            Door::Through(dir) => {
                let new = format!("{key}.{unique}");
                dir.write(&new, text)?;
                dir.rename(&new, key)
            }
            Door::Past(dir) => {
                replace(dir.join(key).to_str().unwrap(), text, unique);
                Ok(())
            }
        }
    }
}

/// One transaction as it makes its calls.
struct Played<'a> {
    door: Door<'a>,
    seen: HashMap<String, String>,
    /// What it has done, a line a call.
    done: String,
}

impl<'a> Played<'a> {
    fn by(door: Door<'a>) -> Played<'a> {
        Played { door, seen: HashMap::new(), done: String::new() }
    }

    fn call(&mut self, call: &str) -> std::io::Result<()> {
        let words: Vec<&str> = call.split(':').collect();
        let done = match words[..] {
            ["r", key] => {
                let text = self.door.read(key)?;
                let line = format!("r {key} {}", text.replace('\n', " "));
                self.seen.insert(key.into(), text);
                line
            }
            ["a", key, value] => {
                let line = format!("{value}\n");
                self.door.append(key, &line)?;
                self.seen.entry(key.into()).and_modify(|text| text.push_str(&line));
                format!("a {key} {value}")
            }
            ["w", key, value] => {
                let mut text = match self.seen.remove(key) {
                    Some(text) => text,
                    None => self.door.read(key)?,
                };
                text.push_str(&format!("{value}\n"));
                self.door.replace(key, &text, value)?;
                self.seen.insert(key.into(), text);
                format!("a {key} {value}")
            }
            _ => panic!("unknown call {call}"),
        };
        self.done.push_str(&done);
        self.done.push('\n');
        Ok(())
    }
}

fn conflicts(error: Error) {
    assert!(error.is_conflict(), "{error}");
}

/// How it has ended, and what it has done. `tell` hears of that before the commit.
fn transact(
    systx: &Systx,
    options: &Options,
    calls: &[String],
    tell: impl FnOnce(&str),
) -> (Outcome, String) {
    let tx = systx.begin(options).unwrap();
    let dir = tx.open_dir(".").unwrap();
    let mut played = Played::by(Door::Through(&dir));
    if let Err(error) = calls.iter().try_for_each(|call| played.call(call)) {
        conflicts(Error::of(&error).unwrap_or_else(|| panic!("{error}")).clone());
        return (Outcome::Aborted, played.done);
    }
    let done = played.done;
    tell(&done);
    let outcome = match tx.commit() {
        Ok(committed) => {
            assert!(committed.displaced.is_empty(), "no outsider changes anything: {committed:?}");
            Outcome::Committed
        }
        Err(error) => {
            conflicts(error);
            Outcome::Aborted
        }
    };
    (outcome, done)
}

fn now() -> u64 {
    systx_os::Os::monotonic_ns(&systx_os::Linux::new())
}

const THREADS: u64 = 3;

/// Role: a process with the library. Words: its number, transactions of each thread, a seed.
pub fn play(words: &[String]) {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().unwrap()).collect();
    let [process, times, seed] = numbers[..] else { panic!("{words:?}") };
    let systx = Systx::with_area_name(AREA).unwrap();
    let work = |thread: u64| {
        let process = process + thread;
        let mut rng = fastrand::Rng::with_seed(seed ^ process << 32);
        for id in 0..times {
            // Also single calls: what has one is linearizable if all is strictly serializable.
            let mut calls = random_calls(&mut rng, process * 1_000_000 + id * 10, false, true);
            calls.truncate(rng.usize(1..=4));
            let durability = if rng.bool() { Durability::None } else { Durability::Durable };
            let invoke = now();
            let say = |outcome: &str, complete: &str, done: &str| {
                let calls: String = done.lines().map(|line| format!(" | {line}")).collect();
                println!("t {process} {id} {invoke} {complete} {outcome}{calls}");
            };
            let options = Options::new().durability(durability);
            let (outcome, done) = transact(&systx, &options, &calls, |done| say("unknown", "-", done));
            let outcome = if outcome == Outcome::Committed { "committed" } else { "aborted" };
            say(outcome, &now().to_string(), &done);
        }
    };
    let work = &work;
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

/// Runs such a process; `killed`: behind so many lines and µs.
fn process(r: &Recorder<'_>, number: u64, times: u64, killed: Option<(usize, u64)>) -> Vec<Transaction> {
    let words = [number, times, systx_runner::seed()].map(|number| number.to_string());
    let command = role("library", &words.each_ref().map(String::as_str));
    let mut child = Command::new(&command[0]);
    let child = child.args(&command[1..]).current_dir(&r.p.served).stdin(Stdio::null());
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut all = HashMap::new();
    let mut count = 0;
    loop {
        let mut line = String::new();
        // What a killed one has not said whole it has not said.
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        let said = text::parse(&line).unwrap_or_else(|e| panic!("{e}: {line}")).transactions.remove(0);
        all.insert((said.process, said.id), said);
        count += 1;
        if let Some((_, after_us)) = killed.filter(|(lines, _)| *lines == count) {
            let last = Instant::now();
            while last.elapsed().as_micros() < u128::from(after_us) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(status.success(), killed.is_none(), "{status}");
    all.into_values().collect()
}

/// Reads lists that are replaced as a whole, plainly: each is one that there was, and none is older than the one before.
fn reader(r: &Recorder<'_>, key: &str, over: &AtomicBool) -> u64 {
    let (mut before, mut changes) = (String::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let text = r.p.read(key);
        assert!(text.starts_with(&before), "an outsider has read\n{before}, and then\n{text}");
        changes += u64::from(text != before);
        before = text;
    }
    changes
}

fn beside_runs(p: &Place, kills: bool) {
    let r = &Recorder::new(p);
    let over = AtomicBool::new(false);
    let (lives, times, runs) = if long() { (40, 200, 100) } else { (4, 20, 10) };
    let rng = |n: u64| fastrand::Rng::with_seed(systx_runner::seed() ^ (n << 40));
    let all = std::thread::scope(|scope| {
        let ends = Ends(&over);
        let readers = REWRITTEN.map(|key| scope.spawn(|| reader(r, key, &over)));
        let processes: Vec<_> = (0..2)
            .map(|n| {
                let mut rng = rng(n);
                scope.spawn(move || match kills {
                    false => process(r, 200 + 10 * n, times, None),
                    true => (0..lives)
                        .flat_map(|life| {
                            let killed = (rng.usize(2..30), rng.u64(0..3000));
                            process(r, 1000 + (2 * life + n) * 10, u64::MAX, Some(killed))
                        })
                        .collect(),
                })
            })
            .collect();
        let mut rng = rng(9);
        let run = |id| {
            let calls = random_calls(&mut rng, id * 10, false, true);
            let killed = kills && rng.u8(0..4) == 0;
            let fate = if killed { Fate::Killed(rng.u64(0..8000)) } else { Fate::Lives };
            r.transact((0, id), &calls, fate, &|| ())
        };
        let runs: Vec<_> = (0..runs).map(run).collect();
        let all: Vec<_> = processes.into_iter().flat_map(|process| process.join().unwrap()).collect();
        drop(ends);
        let seen: u64 = readers.map(|reader| reader.join().unwrap()).iter().sum();
        let count = |of: &[Transaction], outcome| of.iter().filter(|t| t.outcome == outcome).count();
        for (whose, of) in [("the library's", &all), ("runs", &runs)] {
            let [committed, aborted, unknown] =
                [Outcome::Committed, Outcome::Aborted, Outcome::Unknown].map(|outcome| count(of, outcome));
            println!("{whose}: {committed} committed, {aborted} aborted, {unknown} killed");
        }
        println!("outsiders have seen {seen} versions");
        assert!(count(&all, Outcome::Committed) > 20, "too few commits to say anything");
        all.into_iter().chain(runs).collect()
    });
    r.must_be_right(all, Reads::OfAll);
}

pub fn threads_beside_runs(p: &Place) {
    beside_runs(p, false);
}

pub fn killed_threads_beside_runs(p: &Place) {
    beside_runs(p, true);
}

/// The schedules of [`super::SCHEDULES`] with two transactions of one thread: the checker is silent; and it finds each
/// anomaly where the same calls go past the library.
pub fn planted(p: &Place) {
    for (first, second, classes) in SCHEDULES {
        for past in [false, true] {
            let r = Recorder::new(p);
            let systx = Systx::with_area_name(AREA).unwrap();
            let begin = || {
                let tx = systx.begin(&Options::new()).unwrap();
                let dir = tx.open_dir(&p.served).unwrap();
                (tx, dir)
            };
            let invoke = r.now();
            let ((one, dir), (other, other_dir)) = (begin(), begin());
            let door = |dir| if past { Door::Past(&p.served) } else { Door::Through(dir) };
            let (mut played, mut beside) = (Played::by(door(&dir)), Played::by(door(&other_dir)));
            let turn = first.iter().position(|call| *call == "turn:N").unwrap();
            first[..turn].iter().for_each(|call| played.call(call).unwrap());
            let mut second_says = (r.now(), Outcome::Committed, 0);
            if second.iter().try_for_each(|call| beside.call(call)).is_err() || other.commit().is_err() {
                second_says.1 = Outcome::Aborted;
            }
            second_says.2 = r.now();
            let went_on = first[turn + 1..].iter().try_for_each(|call| played.call(call));
            let ended = went_on.is_ok() && one.commit().is_ok();
            let outcome = if ended { Outcome::Committed } else { Outcome::Aborted };
            let (mut one, mut two) = (parse((1, 1), &played.done), parse((2, 1), &beside.done));
            (one.invoke, one.outcome, one.complete) = (invoke, outcome, Some(r.now()));
            (two.invoke, two.outcome, two.complete) = (second_says.0, second_says.1, Some(second_says.2));
            drop((dir, other_dir, systx));
            let (text, found) = r.judge(vec![one, two], Reads::OfAll);
            let hit = found.iter().any(|anomaly| classes.contains(&anomaly.class));
            assert_eq!((hit, found.is_empty()), (past, !past), "{first:?}: {found:?}\n{text}");
        }
    }
}
