//! Transactions that meet: who wins, who waits, who ends at once; calls that are allowed; reads that claim nothing; what
//! is known of actions behind a death.

use super::{loosely, place, process, systx, ROLE};
use crate::machine::processes::traced;
use crate::machine::{have, must, out, rounds, verb};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use systx::{Error, Isolation, OpenOptions, Options, OrderError, Policy, Systx, Transaction, Unsupported};

const THREADS: u64 = 64;

fn add(tx: &Transaction, file: &Path) -> std::io::Result<()> {
    let now: u64 = tx.read_to_string(file)?.trim().parse().expect("a number");
    tx.write(file, format!("{}\n", now + 1))
}

fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// The most tries that any work of so many threads took, each of which does `work` some times.
fn most_tries(
    systx: &Systx,
    options: &Options,
    work: impl Fn(u64, &Transaction) -> std::io::Result<()> + Sync,
) -> u64 {
    let (most, start) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let (most, start, work) = (&most, &start, &work);
            scope.spawn(move || {
                start.wait();
                for _ in 0..rounds(2, 20) {
                    let mut tries = 0;
                    let done = systx.atomically(options, |tx| {
                        tries += 1;
                        work(n, tx)
                    });
                    done.unwrap();
                    most.fetch_max(tries, Ordering::Relaxed);
                }
            });
        }
    });
    most.into_inner()
}

pub fn bounded_losses(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let [one, other] = ["one", "other"].map(|name| tree.join(name));
    let systx = systx();
    let times = THREADS * rounds(2, 20) as u64;
    for stall in [None, Some(std::time::Duration::from_secs(2))] {
        [&one, &other].iter().for_each(|file| std::fs::write(file, "0\n").unwrap());
        let options = stall.map_or(loosely(), |longest| loosely().stall(longest)).retries(100_000);
        // Of K threads over the same objects each needs K + 1 tries at most (docs/protocol.md).
        let most = most_tries(&systx, &options, |_, tx| add(tx, &one));
        assert!(most <= THREADS + 1, "one hot file, {stall:?}: {most} tries");
        assert_eq!(number(&one), times);
        let crossing = |n: u64, tx: &Transaction| {
            let [first, second] = if n % 2 == 0 { [&one, &other] } else { [&other, &one] };
            add(tx, first)?;
            add(tx, second)
        };
        let most = most_tries(&systx, &options, crossing);
        assert!(most <= THREADS + 1, "crossing pairs, {stall:?}: {most} tries");
        assert_eq!((number(&one), number(&other)), (2 * times, times));
    }
}

/// A further try of what has lost once: it has priority.
fn loser(systx: &Systx, options: &Options, file: &Path) -> Transaction {
    let tx = systx.begin_try(options, None).unwrap();
    add(&tx, file).unwrap();
    systx.atomically(&loosely(), |tx| add(tx, file)).unwrap();
    let (error, retry) = tx.commit_try().unwrap_err();
    assert!(error.is_conflict());
    systx.begin_try(options, Some(retry.expect("it goes on"))).unwrap()
}

fn would_wait(systx: &Systx, options: &Options, file: &Path) -> bool {
    let done = systx.atomically(&options.clone().non_blocking(), |tx| add(tx, file));
    match done {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            assert!(matches!(Error::of(&error), Some(Error::WouldWait(_))), "{error}");
            true
        }
    }
}

fn as_nice<T: Send>(nice: i32, work: impl FnOnce() -> T + Send) -> T {
    let niced = || {
        rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(niced).join().unwrap())
}

pub fn who_waits(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let file = tree.join("number");
    std::fs::write(&file, "0\n").unwrap();
    let systx = systx();
    assert!(!would_wait(&systx, &loosely(), &file));
    let has_priority = loser(&systx, &loosely(), &file);
    assert!(would_wait(&systx, &loosely(), &file));
    // Not of what the other one does not want.
    std::fs::write(tree.join("other"), "0\n").unwrap();
    assert!(!would_wait(&systx, &loosely(), &tree.join("other")));
    // One that is paused waits for something else, and holds nobody up.
    let token = has_priority.pause().unwrap();
    assert!(!would_wait(&systx, &loosely(), &file));
    drop(systx.resume(&token).unwrap());

    // By nice value: a lower one waits for no higher one, and keeps those out.
    let priority = loosely().policy(Policy::Priority);
    for (holds, comes, waits) in [(5, 5, true), (5, 4, false), (5, 6, true), (-5, 0, true), (3, -5, false)] {
        let holder = as_nice(holds, || loser(&systx, &priority, &file));
        let waited = as_nice(comes, || would_wait(&systx, &priority, &file));
        assert_eq!(waited, waits, "{comes} comes, {holds} has priority");
        drop(holder);
    }
    // The default counts as 0.
    let holder = as_nice(5, || loser(&systx, &priority, &file));
    assert!(!as_nice(10, || would_wait(&systx, &loosely(), &file)));
    drop(holder);
}

pub fn read_committed(dir: &Path) {
    for kind in ["ext4", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let systx = systx();
        let (read, written) = (tree.join("read"), tree.join("written"));
        let committed = loosely().isolation(Isolation::Committed);
        for (options, conflicts) in [(&committed, false), (&loosely(), true)] {
            std::fs::write(&read, "1").unwrap();
            let tx = systx.begin(options).unwrap();
            assert_eq!(tx.read(&read).unwrap(), b"1");
            tx.write(&written, "by it").unwrap();
            systx.atomically(&loosely(), |tx| tx.write(&read, "2")).unwrap();
            let now = tx.read_to_string(&read);
            assert_eq!(now.is_err(), conflicts, "{kind}: {now:?}");
            now.into_iter().for_each(|now| assert_eq!(now, "2", "what has committed"));
            assert_eq!(tx.commit().is_err(), conflicts, "{kind}");
        }
        // What is open stays what it was; what is changed must stay to the commit.
        let tx = systx.begin(&committed).unwrap();
        let mut open = tx.open(&read).unwrap();
        let update = tx.read_to_string(&read).unwrap() + "!";
        std::fs::write(tree.join("new"), "9").unwrap();
        std::fs::rename(tree.join("new"), &read).unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), tx.read_to_string(&read).unwrap().as_str()), ("2", "9"), "{kind}");
        drop(open);
        tx.write(&read, &update).unwrap();
        std::fs::write(&read, "an outsider's").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict(), "{kind}");
        // Many directories, by handles that are kept and by handles that go.
        for n in 0..200 {
            let dir = tree.join(format!("d{}/e{n}", n % 7));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("f"), format!("{n}")).unwrap();
        }
        let tx = systx.begin(&committed).unwrap();
        let top = tx.open_dir(&tree).unwrap();
        let mut kept = Vec::new();
        for round in 0..3 {
            for n in 0..200 {
                let dir = top.open_dir(format!("d{}/e{n}", n % 7)).unwrap();
                assert_eq!(dir.read_to_string("f").unwrap(), n.to_string(), "{kind}, round {round}");
                assert_eq!(dir.read_dir(".").unwrap().count(), 1);
                if n % 10 == 0 {
                    kept.push((n, dir));
                }
            }
        }
        for (n, dir) in &kept {
            assert_eq!(dir.read_to_string("f").unwrap(), n.to_string());
        }
        kept[0].1.write("made", "in a directory that was only looked at").unwrap();
        tx.commit().unwrap();
        assert!(tree.join("d0/e0/made").exists());
    }
}

pub fn allowed(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let (systx, fifo) = (systx(), tree.join("fifo"));
    must(Command::new("mkfifo").arg(&fifo));
    let mut there = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let both = OpenOptions::new().read(true).write(true);
    let options = |unsupported| loosely().unsupported(unsupported);
    let errno = |unsupported| {
        let tx = systx.begin(&options(unsupported)).unwrap();
        tx.open_with(&fifo, &both).map(drop).unwrap_err().raw_os_error().unwrap()
    };
    assert_eq!((errno(Unsupported::Abort), errno(Unsupported::Deny)), (95, 1));
    for commits in [true, false] {
        let tx = systx.begin(&options(Unsupported::Allow)).unwrap();
        tx.write(tree.join("f"), "x").unwrap();
        tx.open_with(&fifo, &both).unwrap().write_all(b"told").unwrap();
        let mut told = [0; 4];
        there.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"told", "before the end");
        if commits {
            let committed = tx.commit().unwrap();
            assert_eq!(committed.allowed.len(), 1);
            assert!(committed.allowed[0].ends_with("/tree/fifo"), "{committed:?}");
        }
    }
    // Where the transaction sees something else than what is there, nothing is done.
    let tx = systx.begin(&options(Unsupported::Allow)).unwrap();
    tx.rename(&fifo, tree.join("moved")).unwrap();
    let error = tx.open_with(tree.join("moved"), &both).map(drop).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(95));
    tx.commit().unwrap();
    assert!(tree.join("moved").exists());
}

const ACTION: &str = "mail to bob";

fn label() -> Options {
    Options::new().label("the mail")
}

/// Commits, and dies in the first of its actions.
pub fn play_act(tree: &Path) {
    let tx = systx().begin(&label()).unwrap();
    tx.write(tree.join("f"), "by one that dies").unwrap();
    tx.on_commit(|| {
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    })
    .unwrap();
    tx.on_commit_named(ACTION, || ()).unwrap();
    tx.on_commit_named("a second", || ()).unwrap();
    tx.commit().unwrap();
}

fn left(systx: &Systx, tree: &Path) -> Vec<(String, Vec<String>)> {
    let told = systx.unfinished_actions(tree).unwrap();
    told.into_iter().map(|one| (one.label, one.actions)).collect()
}

pub fn actions_reported(dir: &Path) {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((volume, tree)) = place(dir, kind) else { continue };
        let systx = systx();
        // What has run, or was not to, is not told.
        for commits in [true, false] {
            let tx = systx.begin(&label()).unwrap();
            tx.write(tree.join("f"), "x").unwrap();
            let (inside, at) = (systx.clone(), tree.clone());
            tx.on_commit_named(ACTION, move || assert_eq!(left(&inside, &at), [], "the process lives"))
                .unwrap();
            if commits {
                tx.commit().unwrap();
            }
            assert_eq!(left(&systx, &tree), []);
        }
        let tx = systx.begin(&label()).unwrap();
        tx.read(tree.join("f")).unwrap();
        tx.write(tree.join("f"), "loses").unwrap();
        tx.on_commit_named(ACTION, || unreachable!("it has lost")).unwrap();
        // A part that is undone takes its actions along.
        let part = tx.sub().unwrap();
        part.on_commit_named("undone", || ()).unwrap();
        drop(part);
        std::fs::write(tree.join("f"), "an outsider's").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
        assert_eq!(left(&systx, &tree), []);
        assert_eq!(std::fs::read_dir(volume.area().join("actions")).unwrap().count(), 0);

        assert!(!process("act", &tree).stderr(Stdio::null()).status().unwrap().success());
        let expected = [("the mail".to_owned(), vec![ACTION.to_owned(), "a second".to_owned()])];
        assert_eq!(left(&systx, &tree), expected, "{kind}");
        let said = out(&verb("log", &[]));
        assert!(said.contains("not run: mail to bob, a second"), "{said}");
        // As long as the program has not dealt with it, also behind an unmount.
        drop(systx);
        volume.unmount();
        volume.mount();
        let systx = super::systx();
        assert_eq!(left(&systx, &tree), expected, "{kind}, in its next life");
        let one = systx.unfinished_actions(&tree).unwrap().remove(0);
        systx.forget_actions(&tree, &one).unwrap();
        assert_eq!(left(&systx, &tree), []);
        assert!(!out(&verb("log", &[])).contains("not run"));
    }
}

/// Number 0 of its group: several changes, and an action.
pub fn play_first(tree: &Path) {
    let systx = systx();
    let tx = systx.begin(&Options::new().sequence(0)).unwrap();
    for n in 0..4 {
        tx.write(tree.join(format!("new{n}")), "new").unwrap();
        tx.remove_file(tree.join(format!("gone{n}"))).unwrap();
    }
    tx.on_commit_named(ACTION, || ()).unwrap();
    tx.commit().unwrap();
}

/// Whoever dies in its commit, the others of its group know on which side of its commit point that was.
pub fn killed_in_turn(dir: &Path) {
    if !have("strace") {
        return;
    }
    must(Command::new("mount").args(["-t", "tmpfs", "run", "/run"]));
    let Some((_volume, top)) = place(dir, "ext4") else { return };
    let (mut before, mut behind) = (0, 0);
    for n in 1.. {
        let tree: PathBuf = top.join(format!("round{n}"));
        std::fs::create_dir(&tree).unwrap();
        (0..4).for_each(|n| std::fs::write(tree.join(format!("gone{n}")), "").unwrap());
        let mut leader = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let group = leader.id() as i32;
        let inject = format!("inject=renameat2:signal=KILL:when={n}");
        let mut first = traced(&process("first", &tree), &["-o", "/dev/null", "-e", &inject], "renameat2");
        first.env(ROLE, "first").stderr(Stdio::null());
        let killed = !first.process_group(group).status().unwrap().success();
        let mut second = process("order-third", &tree);
        second.env("SYSTX_FIRST", "1").env("SYSTX_COUNT", "2").process_group(group);
        let said = out(&second.output().unwrap());
        drop(leader.stdin.take());
        leader.wait().unwrap();
        // What is there now, finished by that next process or by this one.
        let systx = systx();
        let told = left(&systx, &tree).len();
        let there = tree.join("new3").exists() && !tree.join("gone0").exists();
        let none = !tree.join("new0").exists() && tree.join("gone3").exists();
        match said.as_str() {
            "1;" => {
                assert!(there, "killed before rename {n}: it was counted");
                assert_eq!(told, usize::from(killed), "killed before rename {n}");
                behind += usize::from(killed);
            }
            said => {
                assert_eq!(said, format!("{:?};", OrderError::Gone { number: 0 }));
                assert!(none && told == 0, "killed before rename {n}: it has committed, and is gone");
                before += 1;
            }
        }
        for one in systx.unfinished_actions(&tree).unwrap() {
            systx.forget_actions(&tree, &one).unwrap();
        }
        if !killed {
            break;
        }
    }
    assert!(before >= 1 && behind >= 3, "killed before the commit point {before} times, behind it {behind}");
}
