//! A tree that is taken from generation to generation while processes are killed or the power is cut.

use super::generations::{tree, Generations};
use super::processes::Tell;
use super::volume::Volume;
use super::who::{behind, Account};
use super::{code, err};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

/// Files that are changed in place, beside all the rest.
const FILES: usize = 60;

/// A tree that is taken from generation to generation while processes are killed.
pub struct Bench {
    pub account: Account,
    pub volume: Volume,
    pub served: PathBuf,
    pub generations: Generations,
    pub tell: Tell,
    pub now: usize,
    /// How often the tree stayed, and how often it went on; and how often it was a mixture before `recover`.
    pub stayed: usize,
    pub went_on: usize,
    pub mixed: usize,
    /// About where the commit point is, in microseconds from the command's last words.
    aim_us: u64,
}

impl Bench {
    pub fn new(dir: &Path, volume: Volume, account: Account) -> Bench {
        let generations = Generations::learn(dir, FILES, &account);
        let served = tree(&volume.point, &generations, &account);
        let tell = Tell::new(dir);
        let (stayed, went_on, mixed) = (0, 0, 0);
        let mut bench =
            Bench { account, volume, served, generations, tell, now: 1, stayed, went_on, mixed, aim_us: 0 };
        // The area is made, and the change works.
        assert_eq!(bench.undisturbed().0, 0);
        bench
    }

    pub fn area(&self) -> PathBuf {
        self.account.area(&self.volume.point)
    }

    /// After a loss of power, with everybody dead.
    pub fn boot(&self) {
        self.volume.boot_of(&self.area());
    }

    /// The change as one transaction, behind a wrapper's words.
    pub fn start(&self, wrapper: &[&str]) -> Child {
        let run = self.account.run(&self.served, &[], &["sh", "-c", &self.generations.script()]);
        let mut command = behind(wrapper, &run);
        command.stderr(Stdio::piped());
        self.generations.environment(&mut command, self.now, &self.tell.path);
        command.spawn().unwrap()
    }

    /// Microseconds from the command's last words to the end of systx, and its status.
    pub fn undisturbed(&mut self) -> (i32, u64) {
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

    /// Learns how long a commit takes.
    pub fn aim(&mut self) {
        let mut times = [0; 5].map(|_| self.undisturbed().1);
        times.sort_unstable();
        self.aim_us = times[2];
    }

    /// An instant to kill at, in microseconds from the command's last words: anywhere before the end, or near
    /// to where the outcome was seen to turn, which is where publication is.
    pub fn instant(&self) -> u64 {
        match fastrand::u8(..4) {
            0 => fastrand::u64(..=self.aim_us),
            _ => self.aim_us * 8 / 10 + fastrand::u64(..=self.aim_us * 4 / 10),
        }
    }

    /// Returns true to go on: `want` rounds, and a few more until both outcomes were seen.
    pub fn wants(&self, round: usize, want: usize) -> bool {
        let both = self.stayed > 0 && self.went_on > 0;
        round < want || (!both && round < 12 * want)
    }

    /// After a kill and whatever finishes the work.
    pub fn settled(&mut self, what: &str) {
        let now = self.generations.whole(&self.served, what);
        match now == self.now {
            true => {
                self.stayed += 1;
                self.aim_us = self.aim_us * 23 / 20 + 1;
            }
            false => {
                self.went_on += 1;
                self.aim_us = self.aim_us * 20 / 23;
            }
        }
        self.now = now;
        super::tell_how_far(self.stayed, self.went_on);
    }

    pub fn look_before_recovery(&mut self) {
        self.mixed += usize::from(self.generations.of(&self.served).is_none());
    }
}

/// Calls of publication and its protocol on files; the rest of a process's calls changes nothing that
/// outlives it.
pub const CALLS: &str =
    "?renameat2,?linkat,?unlinkat,?mkdirat,?mknodat,?symlinkat,?pwrite64,?pwritev2,?fdatasync,?fsync,\
    ?syncfs,?sync_file_range,?fchmod,?fchmodat,?fchmodat2,?fchown,?fchownat,?utimensat,?fsetxattr,?setxattr,\
    ?fremovexattr,?removexattr,?ftruncate,?fallocate,?copy_file_range";

/// Call and count of everything that the main thread of an undisturbed run does.
pub fn calls(bench: &mut Bench, trace: &Path) -> Vec<(String, usize)> {
    let trace = trace.to_str().unwrap();
    let filter = format!("trace={CALLS}");
    let child = bench.start(&["strace", "-qq", "-o", trace, "-e", &filter]);
    assert!(bench.tell.wait(&child));
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    bench.now = bench.generations.whole(&bench.served, "under strace");
    calls_in(Path::new(trace))
}

/// Call and count of every line of strace's output, which are many.
pub fn calls_in(trace: &Path) -> Vec<(String, usize)> {
    let calls = few_calls_in(trace);
    assert!(calls.len() > 50, "strace saw {} calls", calls.len());
    calls
}

/// Like `calls_in`, also where they are few.
pub fn few_calls_in(trace: &Path) -> Vec<(String, usize)> {
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
    calls
}
