//! Two file systems, each with a tree, that one command takes from generation to generation as one transaction.

use super::generations::{tree, Generations};
use super::processes::Tell;
use super::volume::Volume;
use super::who::{behind, Account};
use super::{code, err};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

pub struct Pair {
    pub account: Account,
    pub volumes: [Volume; 2],
    pub trees: [PathBuf; 2],
    pub generations: Generations,
    pub tell: Tell,
    pub now: usize,
    pub stayed: usize,
    pub went_on: usize,
    /// About where the commit point is, in microseconds from the command's last words.
    pub aim_us: u64,
}

impl Pair {
    /// An ext4 and an xfs; their trees are small.
    pub fn new(dir: &Path, account: Account) -> Option<Pair> {
        let generations = Generations::learn(dir, 12, &account);
        let one = |name: &str, kind, megabytes| {
            let dir = dir.join(name);
            std::fs::create_dir(&dir).unwrap();
            Volume::new(&dir, kind, megabytes)
        };
        let volumes = [one("one", "ext4", 128)?, one("two", "xfs", 320)?];
        let trees = [0, 1].map(|n: usize| tree(&volumes[n].point, &generations, &account));
        let tell = Tell::new(dir);
        Some(Pair { account, volumes, trees, generations, tell, now: 1, stayed: 0, went_on: 0, aim_us: 0 })
    }

    /// The change, by words before which a wrapper can stand. Its last words are those of the second tree.
    pub fn start(&self, wrapper: &[String]) -> Child {
        let both = "cd \"$1\" && TELL=/dev/null sh -c \"$0\" && cd \"$2\" && sh -c \"$0\"";
        let [one, two] = [0, 1].map(|n: usize| self.trees[n].to_str().unwrap());
        let script = self.generations.script();
        let systx =
            self.account.run(&self.trees[0], &["--only", two], &["sh", "-c", both, &script, one, two]);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let mut command = behind(&wrapper, &systx);
        command.stderr(Stdio::piped());
        self.generations.environment(&mut command, self.now, &self.tell.path);
        command.spawn().unwrap()
    }

    /// After a loss of power, with everybody dead.
    pub fn boot(&self) {
        self.volumes.iter().for_each(|volume| volume.boot_of(&self.account.area(&volume.point)));
    }

    /// The generation of both; a mixture in one or of the two is a failure.
    pub fn whole(&self, what: &str) -> usize {
        let [one, two] = [0, 1].map(|n: usize| self.generations.whole(&self.trees[n], what));
        assert_eq!(one, two, "{what}: the two file systems are at different generations");
        one
    }

    /// Runs it once to its end, under a wrapper, and learns how long a commit takes.
    pub fn undisturbed(&mut self, wrapper: &[String]) {
        let child = self.start(wrapper);
        assert!(self.tell.wait(&child));
        let begun = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        self.aim_us = begun.elapsed().as_micros() as u64;
        self.now = self.whole("undisturbed");
    }

    /// An instant to strike at, in microseconds from the command's last words: anywhere, or around where the
    /// outcome turns.
    pub fn instant(&self, round: usize) -> u64 {
        match round % 4 {
            1 => fastrand::u64(..=self.aim_us),
            _ => self.aim_us / 2 + fastrand::u64(..=self.aim_us),
        }
    }

    /// Returns true if they are at different generations, or one is at none.
    pub fn apart(&self) -> bool {
        let states = [0, 1].map(|n: usize| self.generations.of(&self.trees[n]));
        states[0] != states[1] || states[0].is_none()
    }

    /// After whatever happened and its recovery. What happened at an instant that was aimed at moves the aim
    /// towards where the outcome turns; else it would drift away.
    pub fn settled(&mut self, what: &str, aimed: bool) {
        let then = self.whole(what);
        let (stays, longer, shorter) = (then == self.now, self.aim_us * 11 / 10 + 1, self.aim_us * 10 / 11);
        if stays {
            self.stayed += 1;
        } else {
            self.went_on += 1;
        }
        if aimed {
            self.aim_us = if stays { longer } else { shorter };
        }
        self.now = then;
        super::tell_how_far(self.stayed, self.went_on);
    }
}
