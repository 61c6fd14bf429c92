//! Other people's file system tests, through the view and natively on the same ext4: the answers must be the
//! same.
//!
//! pjdfstest and fsx are programs from crates.io that `scripts/posix.sh` installs and hands over by
//! `SYSTX_POSIX_BIN`; they take minutes to build, so `make long` runs this and `make test` does not. What is
//! known to differ stands in `posix/exclusions.txt`, with reasons; a line that is not needed any more fails
//! the test, too.
//!
//! `bash scripts/posix.sh [PART-OF-A-NAME]`; `SYSTX_SEED`.

mod alone;

use alone::place::{code, err, out, Place};
use alone::{long, Case};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn main() {
    if tools().is_none() {
        println!("skipped: SYSTX_POSIX_BIN does not say where pjdfstest and fsx are: use scripts/posix.sh");
        return;
    }
    let cases: &[(&str, Case)] = &[
        ("pjdfstest_finds_in_the_view_what_it_finds_below", pjdfstest_finds_in_the_view_what_it_finds_below),
        (
            "fsx_reads_in_the_view_what_it_wrote_and_commits_it",
            fsx_reads_in_the_view_what_it_wrote_and_commits_it,
        ),
        ("fsx_over_a_file_that_was_there", fsx_over_a_file_that_was_there),
    ];
    alone::enter(&["ext4"], cases, &[]);
}

fn tools() -> Option<PathBuf> {
    std::env::var_os("SYSTX_POSIX_BIN").map(PathBuf::from)
}

fn tool(name: &str) -> String {
    tools().unwrap().join(name).to_str().unwrap().to_owned()
}

/// Every feature that Linux has; two users that every Linux has.
fn config() -> String {
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let nobody = if groups.contains("\nnogroup:") { "nogroup" } else { "nobody" };
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = false\n\
         [dummy_auth]\nentries = [[\"nobody\", \"{nobody}\"], [\"daemon\", \"daemon\"]]\n"
    )
}

fn pjdfstest_finds_in_the_view_what_it_finds_below(p: &Place) {
    let config_file = p.beside.join("pjdfstest.toml");
    std::fs::write(&config_file, config()).unwrap();
    let other = p.beside.join("other");
    // Near the top: the path of a socket has at most 107 bytes.
    let p = &Place { mount: p.mount.clone(), served: p.mount.clone(), beside: p.beside.clone() };
    let run = |name: &str, run: &dyn Fn(&[String]) -> Output| {
        let dir = p.served.join(name);
        std::fs::create_dir(&dir).unwrap();
        let _ = std::fs::remove_dir_all(&other);
        std::fs::create_dir(&other).unwrap();
        // A failed test is an answer; the transaction is to commit what was left.
        let text = "\"$0\" -c \"$1\" -p \"$2\" -s \"$3\" || :";
        let mut words: Vec<String> = ["sh", "-c", text].map(str::to_owned).to_vec();
        words.push(tool("pjdfstest"));
        words.extend([&config_file, &dir, &other].map(|path| path.to_str().unwrap().to_owned()));
        let output = run(&words);
        assert_eq!(code(&output), 0, "{name}: {}", err(&output));
        let text = out(&output);
        let failures = text.split_inclusive("\n").skip_while(|line| !line.contains(" FAILED"));
        print!("{}", failures.take(12).map(|line| format!("{name}: {line}")).collect::<String>());
        (results(&out(&output)), names(&dir))
    };
    let (below, left_below) = run("b", &|words| Command::new("sh").args(&words[1..]).output().unwrap());
    let (view, left) = run("v", &|words| p.systx(&[], words).output().unwrap());
    println!("{} tests of pjdfstest: below {}, in the view {}", below.len(), tally(&below), tally(&view));
    assert!(below.len() > 300, "{below:?}");
    assert_eq!(left, left_below, "what is left of the tests");
    let differ: BTreeSet<&str> = below
        .keys()
        .chain(view.keys())
        .filter(|name| below.get(*name) != view.get(*name))
        .map(String::as_str)
        .collect();
    let excluded = exclusions();
    let unknown: Vec<_> = differ.iter().filter(|name| !excluded.contains_key(**name)).collect();
    assert!(
        unknown.is_empty(),
        "{:#?}",
        unknown.iter().map(|name| (*name, below.get(**name), view.get(**name))).collect::<Vec<_>>()
    );
    let stale: Vec<_> = excluded.keys().filter(|name| !differ.contains(*name)).collect();
    assert!(stale.is_empty(), "no longer different: {stale:?}");
}

/// `name ... ok|FAILED|skipped` of each test.
fn results(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, result) = line.split_once(' ')?;
        let result = result.trim();
        (name.contains("::") && !result.contains(' ')).then(|| (name.to_owned(), result.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

fn tally(results: &BTreeMap<String, String>) -> String {
    let mut counts = BTreeMap::new();
    results.values().for_each(|result| *counts.entry(result).or_insert(0) += 1);
    counts.iter().map(|(result, count)| format!("{count} {result}")).collect::<Vec<_>>().join(", ")
}

fn exclusions() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("posix/exclusions.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").expect("a name and a reason")).collect()
}

fn names(dir: &Path) -> BTreeSet<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// All kinds of operations, mappings as often as calls.
const FSX: &str = "flen = 1000000
[opsize]
max = 65536
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
";

/// Runs the same operations natively and in a view, and compares what is there after the commit.
fn fsx(p: &Place, before: Option<&[u8]>) {
    let seed = systx_runner::seed() as u32;
    let (rounds, operations) = if long() { (5, 20_000) } else { (2, 5_000) };
    let config = p.beside.join("fsx.toml");
    std::fs::write(&config, FSX).unwrap();
    for round in 0..rounds {
        let words = |name: &str| -> Vec<String> {
            let seed = (u64::from(seed) + round).to_string();
            let operations = operations.to_string();
            let (config, beside) = (config.to_str().unwrap(), p.beside.to_str().unwrap());
            let fsx = tool("fsx");
            let words = [fsx.as_str(), "-S", &seed, "-N", &operations, "-f", config, "-P", beside, name];
            words.map(str::to_owned).to_vec()
        };
        for name in ["below", "view"] {
            let _ = std::fs::remove_file(p.served.join(name));
            if let Some(bytes) = before {
                std::fs::write(p.served.join(name), bytes).unwrap();
            }
        }
        let native = words("below");
        let below = Command::new(&native[0]).args(&native[1..]).current_dir(&p.served).output().unwrap();
        assert_eq!(code(&below), 0, "fsx fails without systx: {}{}", out(&below), err(&below));
        let view = p.systx(&[], &words("view")).output().unwrap();
        assert_eq!(code(&view), 0, "{}{}", out(&view), err(&view));
        let read = |name| std::fs::read(p.served.join(name)).unwrap();
        assert!(read("below") == read("view"), "after the commit of round {round}");
    }
}

fn fsx_reads_in_the_view_what_it_wrote_and_commits_it(p: &Place) {
    fsx(p, None);
}

fn fsx_over_a_file_that_was_there(p: &Place) {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fsx(p, Some(&bytes));
}
