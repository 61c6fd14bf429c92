//! One sequence of random system calls in a plain directory and in a view, on each file system: every answer
//! and every errno is the same; what was seen inside at the end is there after the commit, times included;
//! and it is what the plain directory has, and a hole where that has one.
//!
//! Owns: the comparison. The calls are in [`play`], the look at a tree in [`tree`]. A failure names its seed,
//! the last calls and the first difference.
//!
//! Not compared, on purpose: inode numbers of new objects (the view's are true ones, but the two directories
//! are not the same directory), change times, sizes and link counts of directories (values as of the first
//! read), times that the clock set (natively and inside they are those of two different moments); of
//! subtransactions the times of directories, which are those of their publication into the outer one. Not
//! played: FALLOC_FL_COLLAPSE_RANGE and INSERT_RANGE, which a view refuses; they have a case of their own.
//! Zeros that were written may be a hole after the commit.
//!
//! `cargo test -p systx-cli --test agreement [-- PART-OF-A-NAME]`; `SYSTX_LONG=1` for more seeds. `SYSTX_SEED`
//! for one.

#[path = "../alone/mod.rs"]
mod alone;
mod flags;
mod maps;
mod play;
mod tree;

use alone::place::{code, err, out, Place, KINDS, SYSTX};
use alone::{long, role, Case};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn main() {
    let cases: &[(&str, Case)] = &[
        ("random_calls_answer_in_a_view_as_outside_and_a_commit_makes_them_real", |p| agree(p, 0, &[])),
        ("random_calls_of_an_ordinary_user_do_so_too", |p| agree(p, 1000, &[])),
        ("random_calls_in_a_subtransaction_do_so_too", |p| agree(p, 0, &["--", SYSTX, "run", "--sub"])),
        ("random_calls_at_degree_2_do_so_too", |p| agree(p, 0, &["--isolation", "committed"])),
        ("flags_that_change_while_a_file_is_open_count_as_outside", flags::agree),
        ("what_is_stored_through_mappings_is_there_as_outside", maps::agree),
        ("collapsing_and_inserting_ranges_are_refused_and_change_nothing", ranges_are_refused),
    ];
    alone::enter(
        &KINDS,
        cases,
        &[
            ("play", play::role),
            ("begin", play::role_begin),
            ("ranges", play::ranges),
            ("flags", flags::play),
        ],
    );
}

/// Seeds of this run: always the same ones in the short form, so that everybody sees what the others see.
fn seeds() -> Vec<u64> {
    if let Some(seed) = std::env::var("SYSTX_SEED").ok().and_then(|s| s.parse().ok()) {
        return vec![seed];
    }
    match long() {
        true => (0..60).chain([fastrand::u64(1000..), fastrand::u64(1000..)]).collect(),
        false => (systx_runner::first_seed()..).take(4).collect(),
    }
}

/// Blocks that xfs reserves behind the end of a file that grows (64 KiB at least), by its own judgement.
/// Where a write goes beyond them they are filled with zeros, which then are data.
const XFS_RESERVES: u64 = 16;

fn agree(p: &Place, uid: u32, through: &[&str]) {
    let plain_all = p.mount.join(format!("plain.{uid}.{}", through.len()));
    std::fs::create_dir(&plain_all).unwrap();
    let (mut calls, zeroes) = (0, u8::from(play::zeroes(&plain_all)));
    for seed in seeds() {
        let steps = if long() { 1500 } else { 300 + seed * 60 };
        let name = seed.to_string();
        // Deep enough that no link upwards leads to what both share.
        let (plain, viewed) = (plain_all.join(&name), p.served.join(&name));
        let tops = [plain.clone(), viewed.clone()];
        let (plain, viewed) = (plain.join("above/in"), viewed.join("above/in"));
        for dir in [&plain, &viewed] {
            std::fs::create_dir_all(dir).unwrap();
            play::begin(dir, uid);
        }
        let before = tree::inodes(&tops[1], &tree::look(&tops[1])).0;
        let words = [seed.to_string(), steps.to_string(), uid.to_string(), zeroes.to_string()];
        let words = role("play", &words.each_ref().map(String::as_str));
        let natively = Command::new(&words[0]).args(&words[1..]).current_dir(&plain).output().unwrap();
        let inside = p.systx(through, &words).current_dir(&viewed).output().unwrap();
        assert_eq!(code(&natively), 0, "seed {seed}: {}", err(&natively));
        calls += same_answers(seed, &natively, &inside);
        assert_eq!((code(&inside), err(&inside).as_str()), (0, ""), "seed {seed}");
        let beside = if p.mount.ends_with("xfs") { XFS_RESERVES } else { 0 };
        let nested = through.contains(&"--sub");
        same_trees(seed, (&inside, nested), (&before, beside), &tops[0], &tops[1]);
    }
    assert!(calls > 0);
    println!("{calls} calls gave the same answers");
}

/// The answers, line by line; how many there were.
fn same_answers(seed: u64, natively: &Output, inside: &Output) -> usize {
    let (plain, viewed) = (out(natively), out(inside));
    let plain: Vec<_> = plain.lines().take_while(|line| !line.starts_with(tree::BEGIN)).collect();
    let viewed: Vec<_> = viewed.lines().take_while(|line| !line.starts_with(tree::BEGIN)).collect();
    for (n, line) in plain.iter().enumerate() {
        let theirs = viewed.get(n).copied().unwrap_or("nothing more");
        if theirs != *line {
            let before = plain[n.saturating_sub(25)..n].join("\n  ");
            panic!(
                "seed {seed}, call {n}:\n  {before}\nnatively  {line}\ninside    {theirs}\n{}",
                err(inside)
            );
        }
    }
    assert_eq!(plain.len(), viewed.len(), "seed {seed}");
    plain.len()
}

/// Inside at the end, and after the commit: the same to the nanosecond. After the commit, and natively: the
/// same as far as it can be.
fn same_trees(
    seed: u64,
    (inside, nested): (&Output, bool),
    (before, beside): (&BTreeMap<u64, tree::Blocks>, u64),
    plain: &Path,
    viewed: &Path,
) {
    let inside = tree::parse(&out(inside));
    // Written and only promised blocks differ until then.
    assert!(Command::new("sync").arg("-f").arg(plain).status().unwrap().success());
    let (plain, committed) = (tree::look(plain), tree::look(viewed));
    let numbers = tree::inodes(viewed, &committed).1;
    let had =
        |path: &str| numbers.get(path).and_then(|number| before.get(number)).cloned().unwrap_or_default();
    let mut wrong = tree::differences(&inside, &committed, tree::Also::AllTimes, "inside", "committed");
    if !nested {
        wrong += &tree::other_times(&inside, &committed);
    }
    wrong += &tree::differences(&plain, &committed, tree::Also::Holes(&had, beside), "natively", "committed");
    assert!(wrong.is_empty(), "seed {seed}:\n{wrong}");
}

/// B of the contract for fallocate: "collapse refused or done". Refused, the same on each file system.
fn ranges_are_refused(p: &Place) {
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n / 4096) as u8).collect();
    for name in ["old", "patched"] {
        std::fs::write(p.served.join(name), &bytes).unwrap();
    }
    let end = p.systx(&[], &role("ranges", &[])).output().unwrap();
    assert_eq!((code(&end), err(&end).as_str()), (0, ""), "{}", out(&end));
    let said = out(&end);
    let refused = format!("Err({:?})", rustix::io::Errno::OPNOTSUPP);
    assert_eq!(said.lines().filter(|line| line.ends_with(&refused)).count(), 6, "{said}");
    assert_eq!(std::fs::read(p.served.join("old")).unwrap(), bytes);
    let mut patched = bytes.clone();
    patched[5000..5005].copy_from_slice(b"there");
    assert_eq!(std::fs::read(p.served.join("patched")).unwrap(), patched);
    assert_eq!(std::fs::read(p.served.join("new")).unwrap(), bytes[..20_000]);
}
