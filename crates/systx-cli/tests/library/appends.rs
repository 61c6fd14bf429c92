//! Transactions that append lines to one file, which none of them reads: threads, processes, killed ones, and beside them
//! programs that know nothing of transactions, and `systx run`.

use super::{loosely, place, process, systx, KINDS};
use crate::machine::{code, err, rounds, run};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use systx::{Dir, Error, OpenOptions, Options, Systx};

/// Environment of a further process: its name.
const NAME: &str = "SYSTX_LIBRARY_NAME";
/// Lines of each thread.
const LINES: u64 = 25;
/// Contents of the file before: nothing, a part of a sector, a page, a hole.
const BEFORE: [(&str, u64); 4] = [("", 0), ("first\n", 6), ("first\n", 4096), ("", 5000)];

fn appending() -> OpenOptions {
    OpenOptions::new().append(true)
}

fn append(tx: &Dir, tree: &Path, line: &str) -> std::io::Result<()> {
    tx.open_with(tree.join("lines"), &appending())?.write_all(line.as_bytes())
}

/// Appends a line in a transaction; how often that had to be tried again as something had changed.
fn add(systx: &Systx, options: &Options, tree: &Path, line: &str) -> u64 {
    let (mut changed, mut before) = (0, None);
    loop {
        let tx = systx.begin_try(options, before.take()).unwrap();
        if let Err(error) = append(&tx, tree, line) {
            assert!(Error::of(&error).is_some_and(Error::is_conflict), "{error}");
        }
        match tx.commit_try() {
            Ok(done) => {
                assert!(done.displaced.is_empty() && done.pending.is_none(), "{done:?}");
                return changed;
            }
            Err((error, again)) => {
                assert!(error.is_conflict(), "{error}");
                changed += u64::from(!error.to_string().contains("held"));
                before = again;
            }
        }
    }
}

/// Appends on two threads; says how often something had changed.
pub fn play(tree: &Path) {
    let (systx, name) = (systx(), std::env::var(NAME).unwrap());
    let changed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (systx, name) = (&systx, &name);
                let options = if thread == 0 { loosely() } else { Options::new() };
                let line = move |n| format!("{name} {thread} {n}\n");
                scope.spawn(move || (0..LINES).map(|n| add(systx, &options, tree, &line(n))).sum::<u64>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{changed}");
}

fn processes(tree: &Path) -> Vec<Child> {
    let one = |name: &str| process("appends", tree).env(NAME, name).stdout(Stdio::piped()).spawn().unwrap();
    ["a", "b", "c"].map(one).into()
}

/// How often each line stands behind what there was before.
fn lines(tree: &Path, before: u64) -> BTreeMap<String, u64> {
    let all = std::fs::read(tree.join("lines")).unwrap();
    let text = std::str::from_utf8(&all[before as usize..]).expect("no line is torn");
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    let mut lines = BTreeMap::new();
    text.lines().for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
    lines
}

fn expected() -> BTreeMap<String, u64> {
    let all = ["a", "b", "c"].into_iter().flat_map(|name| [0, 1].map(|thread| (name, thread)));
    all.flat_map(|(name, thread)| (0..LINES).map(move |n| (format!("{name} {thread} {n}"), 1))).collect()
}

fn begin_with(tree: &Path, (text, size): (&str, u64)) {
    std::fs::write(tree.join("lines"), text).unwrap();
    std::fs::File::options().write(true).open(tree.join("lines")).unwrap().set_len(size).unwrap();
}

pub fn nobody_loses(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        for before in BEFORE {
            begin_with(&tree, before);
            for process in processes(&tree) {
                let done = process.wait_with_output().unwrap();
                assert!(done.status.success(), "{kind}");
                assert_eq!(
                    String::from_utf8_lossy(&done.stdout).trim(),
                    "0",
                    "{kind}: conflicts over an end"
                );
            }
            assert_eq!(lines(&tree, before.1), expected(), "{kind} {before:?}");
        }
    }
}

pub fn beside_others(dir: &Path) {
    for kind in ["ext4", "btrfs", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        begin_with(&tree, BEFORE[1]);
        let theirs = rounds(300, 10_000) as u64;
        std::thread::scope(|scope| {
            let tree = &tree;
            let open = || std::fs::OpenOptions::new().append(true).open(tree.join("lines")).unwrap();
            // One has it open all the time, and one opens it to append.
            scope.spawn(move || {
                let mut file = open();
                (0..theirs).for_each(|n| {
                    file.write_all(format!("open {n}\n").as_bytes()).unwrap();
                    std::thread::yield_now();
                });
            });
            scope.spawn(move || {
                (0..theirs).for_each(|n| {
                    open().write_all(format!("opens {n}\n").as_bytes()).unwrap();
                    std::thread::yield_now();
                });
            });
            processes(tree).into_iter().for_each(|p| assert!(p.wait_with_output().unwrap().status.success()));
        });
        let mut all = expected();
        all.extend((0..theirs).flat_map(|n| [(format!("open {n}"), 1), (format!("opens {n}"), 1)]));
        assert_eq!(lines(&tree, 6), all, "{kind}: outsiders");
        // A run has seen the end, and is tried again.
        begin_with(&tree, BEFORE[1]);
        let (processes, runs) = (processes(&tree), rounds(5, 100));
        for n in 0..runs {
            let script = format!("echo run {n} >>lines");
            let done = run(&tree, &["--retry", "1000"], &["sh", "-c", &script]).output().unwrap();
            assert_eq!(code(&done), 0, "{kind}: {}", err(&done));
        }
        for process in processes {
            let done = process.wait_with_output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&done.stdout).trim(),
                "0",
                "{kind}: conflicts with a run over an end"
            );
        }
        let mut all = expected();
        all.extend((0..runs).map(|n| (format!("run {n}"), 1)));
        assert_eq!(lines(&tree, 6), all, "{kind}: runs");
    }
}

/// Until it is killed; says after each line that it is there.
pub fn play_for_ever(tree: &Path) {
    let (systx, mut told) = (systx(), std::io::stdout());
    let name = std::env::var(NAME).unwrap();
    for n in 0.. {
        add(&systx, &Options::new(), tree, &format!("{name} {n}\n"));
        if told.write_all(b".").and_then(|()| told.flush()).is_err() {
            return;
        }
    }
}

pub fn killed(dir: &Path) {
    for kind in ["ext4", "xfs", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        for round in 0..rounds(6, 200) {
            begin_with(&tree, BEFORE[round % BEFORE.len()]);
            let one = |name: &str| {
                process("appends-for-ever", &tree).env(NAME, name).stdout(Stdio::piped()).spawn().unwrap()
            };
            let mut all = ["a", "b", "c"].map(one);
            let wanted = 1 + round % 3;
            for process in &mut all {
                process.stdout.as_mut().unwrap().read_exact(&mut vec![0; wanted]).unwrap();
            }
            let told = all.map(|mut process| {
                process.kill().unwrap();
                let mut rest = Vec::new();
                process.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
                process.wait().unwrap();
                wanted + rest.len()
            });
            // This commit opens the area anew, and first finishes for the killed.
            add(&systx(), &Options::new(), &tree, "last\n");
            let lines = lines(&tree, BEFORE[round % BEFORE.len()].1);
            assert!(lines.values().all(|times| *times == 1), "{kind}, round {round}: twice: {lines:?}");
            for (name, told) in ["a", "b", "c"].into_iter().zip(told) {
                let now = (0..).take_while(|n| lines.contains_key(&format!("{name} {n}"))).count();
                let mine = lines.keys().filter(|line| line.starts_with(name)).count();
                let what = format!("{kind}, round {round}: {name} has {mine}, told of {told}");
                assert!(mine == now && (told..=told + 1).contains(&now), "{what}");
            }
        }
    }
}

/// A program that asks for its place has seen the end.
pub fn offsets(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let other = || assert_eq!(add(&systx, &Options::new(), &tree, "other\n"), 0);
    begin_with(&tree, BEFORE[1]);
    // Nothing is asked: two handles, written to by turns.
    let tx = systx.begin(&Options::new()).unwrap();
    let open = |options: OpenOptions| tx.open_with(tree.join("lines"), &options).unwrap();
    let (mut one, mut two) = (open(appending()), open(appending().read(true)));
    (&one).write_all(b"1 ").unwrap();
    two.write_all(b"2 ").unwrap();
    other();
    one.write_all(b"3\n").unwrap();
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("lines")).unwrap(), "first\nother\n1 2 3\n");
    // Where it is; what follows; all of it.
    begin_with(&tree, BEFORE[1]);
    let tx = systx.begin(&Options::new()).unwrap();
    let open = |options: OpenOptions| tx.open_with(tree.join("lines"), &options).unwrap();
    let (mut one, mut two) = (open(appending()), open(appending().read(true)));
    one.write_all(b"12").unwrap();
    two.write_all(b"34").unwrap();
    assert_eq!(one.stream_position().unwrap(), 8);
    one.write_all(b"5").unwrap();
    let mut rest = String::new();
    two.read_to_string(&mut rest).unwrap();
    assert_eq!(
        (rest.as_str(), two.stream_position().unwrap(), one.stream_position().unwrap()),
        ("5", 11, 11)
    );
    two.seek(SeekFrom::Start(4)).unwrap();
    two.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "5t\n12345");
    other();
    assert!(tx.commit().unwrap_err().is_conflict(), "the end was seen");
    // A part that is undone takes with it what it has appended.
    begin_with(&tree, BEFORE[1]);
    let tx = systx.begin(&Options::new()).unwrap();
    append(&tx, &tree, "1\n").unwrap();
    let part = tx.sub().unwrap();
    append(&part, &tree, "undone\n").unwrap();
    drop(part);
    append(&tx, &tree, "2\n").unwrap();
    assert_eq!(tx.metadata(tree.join("lines")).unwrap().len(), 10);
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("lines")).unwrap(), "first\n1\n2\n");
}

/// No file of ext4 is as long as that, whatever the size of its blocks.
const BEYOND: u64 = 1 << 45;

/// An append that would make the file too long for its file system fails before the commit point.
pub fn beyond_the_longest(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4-4k") else { return };
    let systx = systx();
    let file = std::fs::File::create(tree.join("lines")).unwrap();
    let (mut longest, mut beyond) = (0, BEYOND);
    while longest + 1 < beyond {
        let between = longest + (beyond - longest) / 2;
        match file.set_len(between) {
            Ok(()) => longest = between,
            Err(_) => beyond = between,
        }
    }
    file.set_len(longest - 100).unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(tree.join("other"), "other").unwrap();
    append(&tx, &tree, &"x".repeat(101)).unwrap();
    let told = tx.commit().unwrap_err().to_string();
    assert!(told.contains("File too large") && told.contains("nothing"), "{told}");
    assert!(!tree.join("other").exists());
    assert_eq!(file.metadata().unwrap().len(), longest - 100);
    assert_eq!(add(&systx, &Options::new(), &tree, &"y".repeat(100)), 0, "nothing holds it up");
    assert_eq!(file.metadata().unwrap().len(), longest);
}
