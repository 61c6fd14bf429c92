//! kill -9 in mid-commit, over a real directory on a journaled ext4: all or nothing, whoever is killed.
//!
//! Two ways to choose the instant: a random number of microseconds after the command's last words; and, under strace,
//! exactly before the n-th call of a kind, for every call of the commit.
//!
//! `cargo test -p systx --test crash_kill [-- PART-OF-A-NAME]`; thousands of kills with `SYSTX_LONG=1`.

mod machine;

use machine::generations::{tree, Generations};
use machine::processes::{children, let_pass, systx_below, Held, Tell};
use machine::volume::Volume;
use machine::{code, err, have, recover, rounds, run, verb, AREA};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn main() {
    machine::main(&[
        ("the_twin_alone_finishes_for_a_killed_owner", the_twin_alone_finishes_for_a_killed_owner),
        ("recover_finishes_for_a_killed_owner_and_twin", recover_finishes_for_a_killed_owner_and_twin),
        (
            "recover_finishes_when_everything_is_killed_at_once",
            recover_finishes_when_everything_is_killed_at_once,
        ),
        (
            "the_twin_finishes_for_an_owner_killed_before_any_call",
            the_twin_finishes_for_an_owner_killed_before_any_call,
        ),
        (
            "recover_finishes_for_an_owner_killed_before_any_call",
            recover_finishes_for_an_owner_killed_before_any_call,
        ),
    ]);
}

/// Files that are changed in place, beside all the rest.
const FILES: usize = 60;

/// A tree that is taken from generation to generation while somebody kills.
struct Bench {
    _volume: Volume,
    served: PathBuf,
    generations: Generations,
    tell: Tell,
    now: usize,
    /// How often the tree stayed, and how often it went on; and how often it was a mixture before `recover`.
    stayed: usize,
    went_on: usize,
    mixed: usize,
}

impl Bench {
    fn new(dir: &Path) -> Option<Bench> {
        let volume = Volume::new(dir, "ext4", 256)?;
        let generations = Generations::learn(dir, FILES);
        let served = tree(&volume.point, &generations);
        let tell = Tell::new(dir);
        let mut bench =
            Bench { _volume: volume, served, generations, tell, now: 1, stayed: 0, went_on: 0, mixed: 0 };
        // The area is made, and the change works.
        assert_eq!(bench.undisturbed().0, 0);
        Some(bench)
    }

    /// The change as one transaction, in words before which a wrapper can stand.
    fn words(&self) -> Vec<String> {
        let command = run(&self.served, &[], &["sh", "-c", &self.generations.script()]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn start(&self, wrapper: &[&str]) -> Child {
        let words: Vec<_> = wrapper.iter().map(|word| word.to_string()).chain(self.words()).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.served).stdin(Stdio::null()).stderr(Stdio::piped());
        self.generations.environment(&mut command, self.now, &self.tell.path);
        command.spawn().unwrap()
    }

    /// Microseconds from the command's last words to the end of systx, and its status.
    fn undisturbed(&mut self) -> (i32, u64) {
        let child = self.start(&[]);
        let told = self.tell.wait(&child);
        let start = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(told && code(&output) == 0, "undisturbed: {} {}", code(&output), err(&output));
        let us = start.elapsed().as_micros() as u64;
        let now = self.generations.whole(&self.served, "undisturbed");
        assert_eq!(now, 1 - self.now);
        self.now = now;
        (code(&output), us)
    }

    fn typical_us(&mut self) -> u64 {
        let mut times = [0; 5].map(|_| self.undisturbed().1);
        times.sort_unstable();
        times[2]
    }

    /// After a kill and whatever finishes the work.
    fn settled(&mut self, what: &str) {
        let now = self.generations.whole(&self.served, what);
        match now == self.now {
            true => self.stayed += 1,
            false => self.went_on += 1,
        }
        self.now = now;
    }

    fn look_before_recovery(&mut self) {
        self.mixed += usize::from(self.generations.of(&self.served).is_none());
    }

    /// Nothing is left locked, staged or in flight, and the next one works.
    fn end(mut self, what: &str) {
        recover();
        let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
        assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
        assert_eq!(status[0]["aside"].as_array().map(Vec::len), Some(0), "nobody else was there: {status}");
        let unsealed = std::fs::read_dir(self.served.parent().unwrap().join(AREA).join("tx")).unwrap();
        let unsealed: Vec<_> = unsealed
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with('~'))
            .collect();
        assert!(unsealed.is_empty(), "staging of the dead: {unsealed:?}");
        self.undisturbed();
        println!(
            "{what}: {} × all old, {} × all new, no mixture; {} × found in the middle",
            self.stayed, self.went_on, self.mixed
        );
        assert!(self.stayed > 0 && self.went_on > 0, "only one outcome was seen");
    }
}

/// An instant within a commit that takes `typical` microseconds; more often towards its end, where publication is.
fn instant(typical: u64) -> u64 {
    match fastrand::u8(..3) {
        0 => fastrand::u64(..=typical),
        _ => typical / 2 + fastrand::u64(..=typical * 6 / 10),
    }
}

fn the_twin_alone_finishes_for_a_killed_owner(dir: &Path) {
    let Some(mut bench) = Bench::new(dir) else { return };
    let typical = bench.typical_us();
    for round in 0..rounds(20, 1500) {
        let mut child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = instant(typical);
        let_pass(us);
        child.kill().unwrap();
        child.wait().unwrap();
        family.iter().for_each(Held::gone);
        bench.settled(&format!("round {round}, owner killed after {us} µs, twin gone"));
    }
    bench.end("owner killed");
}

fn recover_finishes_for_a_killed_owner_and_twin(dir: &Path) {
    let Some(mut bench) = Bench::new(dir) else { return };
    let typical = bench.typical_us();
    for round in 0..rounds(20, 1500) {
        let mut child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = instant(typical);
        let_pass(us);
        // Half of the time the twin is at work already when it is killed.
        let head_start = fastrand::bool().then(|| fastrand::u64(..typical));
        if head_start.is_none() {
            family.iter().for_each(Held::kill);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(us) = head_start {
            let_pass(us);
            family.iter().for_each(Held::kill);
        }
        family.iter().for_each(Held::gone);
        bench.look_before_recovery();
        recover();
        bench.settled(&format!("round {round}, owner killed after {us} µs, twin {head_start:?} later"));
    }
    bench.end("owner and twin killed");
}

fn recover_finishes_when_everything_is_killed_at_once(dir: &Path) {
    let Some(mut bench) = Bench::new(dir) else { return };
    let typical = bench.typical_us();
    for round in 0..rounds(20, 1500) {
        // systx is pid 1 of a namespace: with it the kernel kills everything of it.
        let child = bench.start(&["unshare", "--pid", "--fork"]);
        assert!(bench.tell.wait(&child));
        let owner = systx_below(child.id());
        let us = instant(typical);
        let_pass(us);
        if let Some(owner) = owner {
            owner.kill();
        }
        // It waits for pid 1, which ends after all others of its namespace.
        child.wait_with_output().unwrap();
        bench.look_before_recovery();
        recover();
        bench.settled(&format!("round {round}, everything killed after {us} µs"));
    }
    bench.end("everything killed");
}

/// What publication and its protocol do to files; the rest of a process's calls changes nothing that outlives it.
const CALLS: &str =
    "?renameat2,?linkat,?unlinkat,?mkdirat,?mknodat,?symlinkat,?pwrite64,?pwritev2,?fdatasync,?fsync,\
    ?syncfs,?sync_file_range,?fchmod,?fchmodat,?fchmodat2,?fchown,?fchownat,?utimensat,?fsetxattr,?setxattr,\
    ?fremovexattr,?removexattr,?ftruncate,?fallocate,?copy_file_range";

/// Call and count of everything that the main thread of an undisturbed run does.
fn calls(bench: &mut Bench, trace: &Path) -> Vec<(String, usize)> {
    let trace = trace.to_str().unwrap();
    let filter = format!("trace={CALLS}");
    let child = bench.start(&["strace", "-qq", "-o", trace, "-e", &filter]);
    assert!(bench.tell.wait(&child));
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    bench.now = bench.generations.whole(&bench.served, "under strace");
    let text = std::fs::read_to_string(trace).unwrap();
    let mut counts = std::collections::HashMap::new();
    let mut calls = Vec::new();
    let names = text.lines().filter_map(|line| line.split_once('(')).map(|(name, _)| name);
    // One that this strace has no name for can't be named to it either.
    for name in names.filter(|name| !name.starts_with("syscall_") && !name.contains(' ')) {
        let count = counts.entry(name.to_string()).or_insert(0usize);
        *count += 1;
        calls.push((name.to_string(), *count));
    }
    assert!(calls.len() > 50, "strace saw {} calls", calls.len());
    calls
}

/// What becomes of the twin: it dies before the owner does, or it has to do the work.
#[derive(PartialEq)]
enum Twin {
    Dies,
    Lives,
}

/// Kills the owner before each of `want` calls, or of all.
fn step(bench: &mut Bench, dir: &Path, want: usize, twin: Twin) {
    let calls = calls(bench, &dir.join("trace"));
    let mut chosen: Vec<_> = (0..calls.len()).collect();
    if want < chosen.len() {
        fastrand::shuffle(&mut chosen);
        chosen.truncate(want);
    }
    for at in chosen {
        let (name, count) = &calls[at];
        let filter = format!("trace={name}");
        let kill = format!("inject={name}:signal=KILL:when={count}");
        let child = bench.start(&["strace", "-qq", "-o", "/dev/null", "-e", &filter, "-e", &kill]);
        let told = bench.tell.wait(&child);
        let family = systx_below(child.id()).map(|owner| children(owner.pid)).unwrap_or_default();
        if twin == Twin::Dies {
            family.iter().for_each(Held::kill);
        }
        child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        // Before the command's last words the family is not known here; then nothing is published, either.
        if !told || twin == Twin::Dies {
            bench.look_before_recovery();
            recover();
        }
        bench.settled(&format!("owner killed before {name} number {count}"));
    }
}

fn the_twin_finishes_for_an_owner_killed_before_any_call(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = Bench::new(dir) else { return };
    step(&mut bench, dir, rounds(24, usize::MAX), Twin::Lives);
    bench.end("owner killed before a call");
}

fn recover_finishes_for_an_owner_killed_before_any_call(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = Bench::new(dir) else { return };
    step(&mut bench, dir, rounds(30, usize::MAX), Twin::Dies);
    assert!(bench.mixed > 0, "no kill was in the middle of publication");
    bench.end("owner and twin killed before a call");
}
