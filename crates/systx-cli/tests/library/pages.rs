//! Writers of different pages of one file: threads, processes, killed ones, and beside them a program that knows
//! nothing of transactions, and `systx run`.

use super::{loosely, place, process, systx, KINDS};
use crate::machine::{code, err, rounds, run};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use systx::{Error, OpenOptions, Options, Systx, Transaction};

const PAGE: u64 = 4096;
/// Bytes of a number with its newline.
const LINE: u64 = 9;
/// Pages of the file, each with a number.
const PAGES: u64 = 8;
/// The outsider's.
const THEIRS: u64 = 6;
/// The page that runs write to.
const RUNS: u64 = 7;
/// Environment of a further process: its first page.
const FIRST: &str = "SYSTX_LIBRARY_PAGE";
/// Times that each thread adds.
const ADDS: u64 = 25;

fn begin_with(tree: &Path) {
    let file = std::fs::File::create(tree.join("pages")).unwrap();
    (0..PAGES).for_each(|page| file.write_all_at(&text(0), page * PAGE).unwrap());
    file.set_len(PAGES * PAGE).unwrap();
}

/// A number of a page: in a shell's form, and of one length.
fn text(number: u64) -> Vec<u8> {
    format!("{number:08}\n").into_bytes()
}

fn number(file: &dyn Fn(&mut [u8]) -> std::io::Result<()>) -> std::io::Result<u64> {
    let mut text = [0; 8];
    file(&mut text)?;
    Ok(std::str::from_utf8(&text).unwrap().parse().expect("a number"))
}

fn on(tree: &Path, page: u64) -> u64 {
    let file = std::fs::File::open(tree.join("pages")).unwrap();
    number(&|text| file.read_exact_at(text, page * PAGE)).unwrap()
}

/// The lines behind the pages.
fn behind(tree: &Path) -> Vec<u64> {
    let all = std::fs::read(tree.join("pages")).unwrap();
    let lines = std::str::from_utf8(&all[(PAGES * PAGE) as usize..]).unwrap().lines();
    lines.map(|line| line.parse().expect("a number")).collect()
}

/// Adds 1 on a page; how often that had to be tried again as something had changed. (A commit that is stopped while it
/// holds a lease is a reason, too, and no change.)
fn add_one(systx: &Systx, options: &Options, tree: &Path, page: u64) -> u64 {
    tried(systx, options, |tx| {
        let file = tx.open_with(tree.join("pages"), &OpenOptions::new().read(true).write(true))?;
        let now = number(&|text| file.read_exact_at(text, page * PAGE))?;
        file.write_all_at(&text(now + 1), page * PAGE)
    })
}

/// Adds a line to those behind the pages: one more than the last one says. The end is seen.
fn add_behind(systx: &Systx, options: &Options, tree: &Path) -> u64 {
    tried(systx, options, |tx| {
        let mut file = tx.open_with(tree.join("pages"), &OpenOptions::new().read(true).write(true))?;
        let end = file.seek(SeekFrom::End(0))?;
        let mut last = String::from("0");
        if end > PAGES * PAGE {
            last.clear();
            file.seek(SeekFrom::Start(end - LINE))?;
            file.read_to_string(&mut last)?;
        }
        file.write_all(&text(last.trim().parse::<u64>().expect("a number") + 1))
    })
}

fn tried(systx: &Systx, options: &Options, work: impl Fn(&Transaction) -> std::io::Result<()>) -> u64 {
    let mut changed = 0;
    let mut before = None;
    loop {
        let tx = systx.begin_try(options, before.take()).unwrap();
        // One that has met a conflict ends with it.
        if let Err(error) = work(&tx) {
            assert!(Error::of(&error).is_some_and(Error::is_conflict), "{error}");
        }
        match tx.commit_try() {
            Ok(_) => return changed,
            Err((error, again)) => {
                assert!(error.is_conflict(), "{error}");
                changed += u64::from(!error.to_string().contains("held"));
                before = again;
            }
        }
    }
}

/// Adds on its two pages, on a thread each, and the first one on another thread behind the end; says how often something
/// had changed.
pub fn play(tree: &Path) {
    let systx = systx();
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let changed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (first..first + 2)
            .map(|page| {
                let (systx, tree) = (&systx, tree);
                let options = if page % 2 == 0 { loosely() } else { Options::new() };
                scope.spawn(move || (0..ADDS).map(|_| add_one(systx, &options, tree, page)).sum::<u64>())
            })
            .chain((first == 0).then(|| {
                let (systx, tree) = (&systx, tree);
                scope.spawn(move || (0..ADDS).map(|_| add_behind(systx, &Options::new(), tree)).sum())
            }))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{changed}");
}

fn processes(tree: &Path) -> Vec<std::process::Child> {
    let one = |first: u64| {
        process("pages", tree).env(FIRST, first.to_string()).stdout(Stdio::piped()).spawn().unwrap()
    };
    [0, 2, 4].map(one).into()
}

pub fn nobody_loses(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        begin_with(&tree);
        for process in processes(&tree) {
            let done = process.wait_with_output().unwrap();
            assert!(done.status.success(), "{kind}");
            assert_eq!(
                String::from_utf8_lossy(&done.stdout).trim(),
                "0",
                "{kind}: conflicts over other pages"
            );
        }
        let all: Vec<u64> = (0..PAGES).map(|page| on(&tree, page)).collect();
        assert_eq!(all, [ADDS, ADDS, ADDS, ADDS, ADDS, ADDS, 0, 0], "{kind}");
        assert_eq!(behind(&tree), (1..=ADDS).collect::<Vec<_>>(), "{kind}");
    }
}

/// Adds 1 on the page of runs.
fn script() -> String {
    format!(
        "n=$(dd if=pages bs={PAGE} skip={RUNS} count=1 status=none | head -c 8 | sed 's/^0*//')
         printf '%08d' $((${{n:-0}} + 1)) | dd of=pages bs={PAGE} seek={RUNS} conv=notrunc status=none"
    )
}

pub fn beside_others(dir: &Path) {
    for kind in ["ext4", "btrfs", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        begin_with(&tree);
        let (done, runs) = (AtomicBool::new(false), rounds(5, 100) as u64);
        let theirs = std::thread::scope(|scope| {
            let outsider = scope.spawn(|| {
                let file =
                    std::fs::OpenOptions::new().read(true).write(true).open(tree.join("pages")).unwrap();
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    let now = number(&|text| file.read_exact_at(text, THEIRS * PAGE)).unwrap();
                    assert_eq!(now, n, "{kind}: a write of an outsider's is lost");
                    n += 1;
                    file.write_all_at(&text(n), THEIRS * PAGE).unwrap();
                    std::thread::yield_now();
                }
                n
            });
            let processes = processes(&tree);
            for _ in 0..runs {
                let done = run(&tree, &["--retry", "2"], &["sh", "-c", &script()]).output().unwrap();
                // An outsider that writes all the time leaves it no moment: its changes are of the whole file for it.
                assert!([0, 75].contains(&code(&done)), "{kind}: {}", err(&done));
            }
            processes.into_iter().for_each(|p| assert!(p.wait_with_output().unwrap().status.success()));
            done.store(true, Ordering::Relaxed);
            outsider.join().unwrap()
        });
        assert_eq!(on(&tree, THEIRS), theirs, "{kind}");
        (0..THEIRS).for_each(|page| assert_eq!(on(&tree, page), ADDS, "{kind}: page {page}"));
        // Without the outsider, beside writers of other pages.
        let (processes, before) = (processes(&tree), on(&tree, RUNS));
        for _ in 0..runs {
            let done = run(&tree, &["--retry", "1000"], &["sh", "-c", &script()]).output().unwrap();
            assert_eq!(code(&done), 0, "{kind}: {}", err(&done));
        }
        processes.into_iter().for_each(|p| assert!(p.wait_with_output().unwrap().status.success()));
        assert_eq!(on(&tree, RUNS), before + runs, "{kind}: a run's is lost");
        (0..THEIRS).for_each(|page| assert_eq!(on(&tree, page), 2 * ADDS, "{kind}: page {page}"));
        assert_eq!(behind(&tree), (1..=2 * ADDS).collect::<Vec<_>>(), "{kind}");
    }
}

/// Until it is killed; says after each addition that it is done.
pub fn play_for_ever(tree: &Path) {
    let (systx, mut told) = (systx(), std::io::stdout());
    let page: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    loop {
        add_one(&systx, &Options::new(), tree, page);
        if told.write_all(b".").and_then(|()| told.flush()).is_err() {
            return;
        }
    }
}

pub fn killed(dir: &Path) {
    for kind in ["ext4", "xfs", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        begin_with(&tree);
        for round in 0..rounds(6, 200) {
            let before: Vec<u64> = (0..3).map(|page| on(&tree, page)).collect();
            let one = |page: u64| {
                let mut role = process("pages-for-ever", &tree);
                role.env(FIRST, page.to_string()).stdout(Stdio::piped()).spawn().unwrap()
            };
            let mut all: Vec<_> = (0..3).map(one).collect();
            let wanted = 1 + round % 3;
            for process in &mut all {
                process.stdout.as_mut().unwrap().read_exact(&mut vec![0; wanted]).unwrap();
            }
            let told: Vec<u64> = all
                .into_iter()
                .map(|mut process| {
                    process.kill().unwrap();
                    let mut rest = Vec::new();
                    process.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
                    process.wait().unwrap();
                    (wanted + rest.len()) as u64
                })
                .collect();
            // The next use finishes what they have left.
            add_one(&systx(), &Options::new(), &tree, 3);
            for page in 0..3 {
                let (now, least) = (on(&tree, page), before[page as usize] + told[page as usize]);
                let all = format!("{kind}, round {round}, page {page}: {now}, told of {least}");
                assert!(now == least || now == least + 1, "{all}");
            }
        }
    }
}
