//! Ordered transactions: threads of one process, and processes of one group.

use super::{loosely, place, process, systx};
use crate::machine::{must, rounds};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use systx::{Error, OpenOptions, Options, OrderError, Systx, Transaction};

/// Processes of the test share a directory in /run, which is to be a private one.
fn private_run() {
    must(Command::new("mount").args(["-t", "tmpfs", "run", "/run"]));
}

fn append(tx: &Transaction, log: &Path, line: u64) -> std::io::Result<()> {
    // Reading what others write makes every pair conflict.
    let so_far = if tx.try_exists(log)? { tx.read_to_string(log)? } else { String::new() };
    tx.write(log, format!("{so_far}{line}\n"))
}

fn logged(log: &Path) -> Vec<u64> {
    std::fs::read_to_string(log).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn order_of(error: Error) -> OrderError {
    match error {
        Error::Order(order) => order,
        other => panic!("{other}"),
    }
}

fn refused(systx: &Systx, options: &Options) -> OrderError {
    let error = systx.begin(options).map(drop).unwrap_err();
    order_of(Error::of(&error).unwrap_or_else(|| panic!("{error}")).clone())
}

/// Runs in a process of a group of its own: numbers begin at 0.
pub fn threads(dir: &Path) {
    private_run();
    for kind in ["ext4", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let mut alone = process("order-threads", &tree);
        assert!(alone.process_group(0).status().unwrap().success(), "{kind}");
    }
}

pub fn play_threads(tree: &Path) {
    let (systx, log, count) = (systx(), tree.join("log"), rounds(40, 1_000) as u64);
    let next = std::sync::Mutex::new((0..count).rev().collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| loop {
                let Some(n) = next.lock().unwrap().pop() else { return };
                let options = loosely().sequence(n).retries(u32::MAX);
                systx.atomically(&options, |tx| append(tx, &log, n)).unwrap();
            });
        }
    });
    assert_eq!(logged(&log), (0..count).collect::<Vec<_>>(), "in the order of the numbers");

    // What is over is over, and a number is one transaction's at a time.
    assert_eq!(refused(&systx, &loosely().sequence(3)), OrderError::Used { number: 3, next: count });
    let held = systx.begin(&loosely().sequence(count)).unwrap();
    assert_eq!(refused(&systx, &loosely().sequence(count)), OrderError::Taken { number: count });
    // A higher one waits for it, and for no longer than it was told.
    let short = |n| loosely().sequence(n).stall(Duration::from_millis(1));
    let late = systx.begin(&short(count + 1)).unwrap();
    late.write(tree.join("late"), "").unwrap();
    assert_eq!(order_of(late.commit().unwrap_err()), OrderError::Late { number: count });
    assert!(!tree.join("late").exists());
    // One that was given up is no reason to wait.
    drop(held);
    let gone = systx.begin(&loosely().sequence(count + 1)).unwrap();
    assert_eq!(order_of(gone.commit().unwrap_err()), OrderError::Gone { number: count });
    // It can come again. What has lost a conflict is waited for.
    let tx = systx.begin(&loosely().sequence(count)).unwrap();
    append(&tx, &log, count).unwrap();
    std::fs::write(&log, "").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    std::thread::scope(|scope| {
        let after = scope.spawn(|| systx.begin(&loosely().sequence(count + 1)).unwrap().commit());
        systx.begin(&loosely().sequence(count)).unwrap().commit().unwrap();
        after.join().unwrap().unwrap();
    });
    // A number that nobody has and that never comes is an error after the bound.
    let tx = systx.begin(&short(count + 5)).unwrap();
    assert_eq!(order_of(tx.commit().unwrap_err()), OrderError::Late { number: count + 2 });
    // A reset: those before it can't commit any more.
    let before = systx.begin(&loosely().sequence(count + 2)).unwrap();
    systx.begin(&loosely().sequence_from(1_000_000)).unwrap().commit().unwrap();
    let order = order_of(before.commit().unwrap_err());
    assert_eq!(order, OrderError::Used { number: count + 2, next: 1_000_001 });
    systx.begin(&loosely().sequence_from(0)).unwrap().commit().unwrap();
    systx.begin(&loosely().sequence(1)).unwrap().commit().unwrap();
    // An unordered one waits for nobody.
    systx.atomically(&loosely(), |tx| tx.write(tree.join("unordered"), "")).unwrap();
}

/// In a group of its own, whose counter stands at 0.
pub fn counted(dir: &Path) {
    private_run();
    let Some((_volume, tree)) = place(dir, "tmpfs") else { return };
    assert!(process("order-counted", &tree).process_group(0).status().unwrap().success());
}

pub fn play_counted(tree: &Path) {
    let (systx, file) = (systx(), tree.join("f"));
    std::fs::write(&file, "").unwrap();
    let tx = systx.begin(&loosely().sequence(0)).unwrap();
    append(&tx, &file, 0).unwrap();
    std::fs::write(&file, "an outsider's").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    let again = systx.begin(&loosely().sequence(0));
    again.expect("the number of one that has lost is counted as committed").commit().unwrap();
    // An action of a commit finds the next number's turn come.
    let tx = systx.begin(&loosely().sequence(1)).unwrap();
    let next = systx.clone();
    tx.on_commit(move || {
        next.begin(&loosely().sequence(2)).unwrap().commit().unwrap();
    })
    .unwrap();
    tx.commit().unwrap();
    assert_eq!(refused(&systx, &loosely().sequence(2)), OrderError::Used { number: 2, next: 3 });
    // What is kept for a further try is the place of its number, and of no other.
    let tx = systx.begin_try(&loosely().sequence(3), None).unwrap();
    append(&tx, &file, 3).unwrap();
    std::fs::write(&file, "an outsider's again").unwrap();
    let (_, kept) = tx.commit_try().unwrap_err();
    assert!(kept.is_some());
    let next = systx.begin_try(&loosely().sequence(4), kept).unwrap();
    let gone = next.commit().expect_err("4 has committed in the place of 3");
    assert_eq!(order_of(gone), OrderError::Gone { number: 3 });
    systx.begin(&loosely().sequence(3)).unwrap().commit().unwrap();
}

/// The calls that a random program makes.
trait Calls {
    fn read(&self, name: &str) -> std::io::Result<String>;
    fn write(&self, name: &str, text: &str) -> std::io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()>;
    fn remove(&self, name: &str) -> std::io::Result<()>;
}

impl Calls for &Path {
    fn read(&self, name: &str) -> std::io::Result<String> {
        std::fs::read_to_string(self.join(name))
    }
    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(self.join(name), text)
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        std::fs::rename(self.join(from), self.join(to))
    }
    fn remove(&self, name: &str) -> std::io::Result<()> {
        std::fs::remove_file(self.join(name))
    }
}

impl Calls for systx::Dir {
    fn read(&self, name: &str) -> std::io::Result<String> {
        self.read_to_string(name)
    }
    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        systx::Dir::write(self, name, text)
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        systx::Dir::rename(self, from, to)
    }
    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.remove_file(name)
    }
}

/// The program with this number: what it writes depends on what those before it have written.
fn program(n: u64, calls: &impl Calls) -> std::io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(n);
    for _ in 0..3 {
        let [one, other] = [(); 2].map(|()| format!("file{}", rng.u32(0..4)));
        let done = match rng.u32(0..6) {
            0 => calls.rename(&one, &other),
            1 => calls.remove(&one),
            _ => {
                let text = calls.read(&one).unwrap_or_default();
                let tail: String = text.chars().skip(text.len().saturating_sub(40)).collect();
                calls.write(&other, &format!("{tail},{n}"))
            }
        };
        // A missing file is an answer like others; a transaction that has met a conflict has to end.
        match done {
            Err(error) if Error::of(&error).is_some() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Random programs in parallel, with numbers, leave what they leave one after the other.
pub fn serial(dir: &Path) {
    private_run();
    for kind in ["ext4", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let mut alone = process("order-serial", &tree);
        assert!(alone.process_group(0).status().unwrap().success(), "{kind}");
    }
}

pub fn play_serial(tree: &Path) {
    let (systx, count) = (systx(), rounds(200, 10_000) as u64);
    let (one, other) = (tree.join("parallel"), tree.join("serially"));
    [&one, &other].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| loop {
                let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if n >= count {
                    return;
                }
                let options = loosely().sequence(n).retries(u32::MAX);
                systx.atomically(&options, |tx| program(n, &tx.open_dir(&one)?)).unwrap();
            });
        }
    });
    (0..count).for_each(|n| program(n, &other.as_path()).unwrap());
    let tree = |dir: &Path| {
        let texts = (0..4).map(|n| dir.join(format!("file{n}")));
        texts.map(|file| std::fs::read_to_string(file).ok()).collect::<Vec<_>>()
    };
    assert_eq!(tree(&one), tree(&other));
}

/// Commits every third number from that in the file `first.<pid>` on, and says so each time.
pub fn play_third(tree: &Path) {
    let (systx, log) = (systx(), tree.join("log"));
    let first: u64 = std::env::var("SYSTX_FIRST").unwrap().parse().unwrap();
    let count: u64 = std::env::var("SYSTX_COUNT").unwrap().parse().unwrap();
    for n in (first..count).step_by(3) {
        let options = loosely().sequence(n).retries(u32::MAX);
        match systx.atomically(&options, |tx| append(tx, &log, n)) {
            Ok(()) => print!("{n};"),
            Err(error) => {
                print!("{:?};", order_of(Error::of(&error).unwrap().clone()));
                return;
            }
        }
        std::io::stdout().flush().unwrap();
    }
}

/// Begins a number, says so, and goes no further.
pub fn play_hold(tree: &Path) {
    let first: u64 = std::env::var("SYSTX_FIRST").unwrap().parse().unwrap();
    let systx = systx();
    let tx = systx.begin(&loosely().sequence(first)).unwrap();
    tx.open_with(tree.join("log"), &OpenOptions::new().append(true).create(true)).unwrap();
    print!(".");
    std::io::stdout().flush().unwrap();
    // Until it is killed.
    let _ = std::io::stdin().read(&mut [0; 1]);
}

struct Group<'a> {
    tree: &'a Path,
    /// Holds the group together.
    leader: Child,
}

impl Group<'_> {
    fn of(tree: &Path) -> Group<'_> {
        let leader = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        Group { tree, leader }
    }

    fn start(&self, role: &str, first: u64, count: u64) -> Child {
        let mut command = process(role, self.tree);
        command.env("SYSTX_FIRST", first.to_string()).env("SYSTX_COUNT", count.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(self.leader.id() as i32);
        command.spawn().unwrap()
    }

    fn end(mut self) {
        drop(self.leader.stdin.take());
        assert!(self.leader.wait().unwrap().success());
    }
}

fn said(process: Child) -> String {
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

pub fn processes(dir: &Path) {
    private_run();
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let log: PathBuf = tree.join("log");
    let count = rounds(30, 600) as u64;
    let group = Group::of(&tree);
    let thirds: Vec<_> = (0..3).map(|first| group.start("order-third", first, count)).collect();
    thirds.into_iter().for_each(|third| drop(said(third)));
    assert_eq!(logged(&log), (0..count).collect::<Vec<_>>());
    // The next process of the group goes on where it stands.
    let more = group.start("order-third", count, count + 1);
    assert_eq!(said(more), format!("{count};"));
    group.end();

    // Another group counts from 0, and one that dies at its turn is an error for those behind it, not a hang.
    std::fs::remove_file(&log).unwrap();
    let group = Group::of(&tree);
    let mut dies = group.start("order-hold", 0, 1);
    dies.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    let waits = group.start("order-third", 1, 2);
    dies.kill().unwrap();
    dies.wait().unwrap();
    assert_eq!(said(waits), format!("{:?};", OrderError::Gone { number: 0 }));
    // Its number can be had again, and all goes on.
    let behind = group.start("order-third", 1, 2);
    let again = group.start("order-third", 0, 1);
    assert_eq!(said(again), "0;");
    let said = said(behind);
    assert!(said == "1;" || said == format!("{:?};", OrderError::Gone { number: 0 }), "{said}");
    group.end();
}
