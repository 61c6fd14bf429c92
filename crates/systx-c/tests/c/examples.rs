//! The examples, killed and raced.

use super::built::{must, Built, Compiler};
use super::volume::Volume;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use systx_runner::{kill_after, Ends, Tried};

fn example(built: &Built, name: &str) -> std::path::PathBuf {
    built.program(Compiler::C, &format!("../../examples/{name}"), &[])
}

/// Each example is taken by each compiler that is here.
pub fn compilers(built: &Built, _: &Path) -> Tried {
    let mut names = Vec::new();
    for file in fs::read_dir(super::built::package().join("examples")).unwrap() {
        names.push(file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned());
    }
    for compiler in Compiler::ALL.into_iter().filter(|compiler| super::built::have(compiler.program())) {
        for name in &names {
            built.program(compiler, &format!("../../examples/{name}"), &[]);
        }
    }
    Tried::Passed
}

/// The same cases as those of the examples in Rust.
#[path = "../../../systx/tests/examples/trees.rs"]
mod trees;

fn said(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A command that gets a text on standard input.
fn fed(command: &mut Command, text: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // One that was refused or killed does not read.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child
}

/// Runs a case of both languages with the example in C.
fn case(built: &Built, dir: &Path, name: &str, case: fn(&Path, trees::Example<'_>)) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let program = example(built, name);
    case(&volume.tree(), &|_| built.command(&program));
    Tried::Passed
}

pub fn parallel(built: &Built, dir: &Path) -> Tried {
    case(built, dir, "parallel", trees::parallel)
}

pub fn ldif(built: &Built, dir: &Path) -> Tried {
    case(built, dir, "ldif", trees::ldif)
}

pub fn check(built: &Built, dir: &Path) -> Tried {
    case(built, dir, "check", trees::check)
}

/// Random requests, and some that can't be understood.
fn requests(vertices: u32, count: usize) -> String {
    let any = || fastrand::u32(0..vertices);
    let request = |n: usize| match n % 100 {
        50 => "what is this\n".into(),
        90 => format!("add 1 {vertices}\n"),
        _ => {
            let verb = fastrand::choice(["add", "add", "add", "remove", "edge", "path"]).unwrap();
            format!("{verb} {} {}\n", any(), any())
        }
    };
    (0..count).map(request).collect()
}

/// Answers and file are those of a serial loop: by several threads, with threads that end in a transaction, and after a
/// run that was killed.
pub fn graph(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "graph"));
    let threads_end = built.program(Compiler::C, "threads_end", &[]);
    let command = |program: &Path, arguments: &[&str]| {
        let mut command = built.command(program);
        // Numbers are those of a process group.
        command.args(arguments).current_dir(&tree).stderr(Stdio::piped()).process_group(0);
        command
    };
    for (kind, vertices) in [("dense", 60), ("sparse", 200)] {
        let all = requests(vertices, 600);
        let run = |name: &str, how: &mut dyn FnMut(&str) -> String| -> (String, Vec<u8>) {
            must(&mut command(&program, &["make", name, kind, &vertices.to_string()]));
            (how(name), fs::read(tree.join(name)).unwrap())
        };
        let answers = |program: &Path, arguments: &[&str]| {
            said(fed(&mut command(program, arguments), &all).wait_with_output().unwrap())
        };
        let serial = run("serial", &mut |name| answers(&program, &["run", name, "0"]));
        assert_eq!(serial.0.lines().count(), 600);
        let any = |what: fn(&str) -> bool| serial.0.lines().any(|line| what(line.split_once(' ').unwrap().1));
        assert!(any(|word| word == "yes") && any(|word| word == "no") && any(|word| word == "refused"));
        assert!(any(|word| word.parse::<u32>().is_ok()), "a path was found");
        let mut takes = Duration::ZERO;
        for threads in ["1", "2", "4"] {
            let began = Instant::now();
            let parallel = run("parallel", &mut |name| answers(&program, &["run", name, threads]));
            takes = began.elapsed();
            assert!(parallel == serial, "{kind}, {threads} threads");
        }
        for seed in ["1", "2"] {
            let ending = run("ending", &mut |name| answers(&threads_end, &[name, seed]));
            assert!(ending == serial, "{kind}, threads end, seed {seed}");
        }
        // A request says whether there is to be an edge, so that it may be done once more.
        let (_, killed) = run("killed", &mut |name| {
            for _ in 0..10 {
                let child = fed(&mut command(&program, &["run", name, "4"]), &all);
                kill_after(&mut { child }, an_instant(takes));
            }
            answers(&program, &["run", name, "4"])
        });
        assert!(kind == "sparse" || killed == serial.1, "{kind}, killed");
        // Places in a chain of slots depend on what was done twice; the edges do not.
        let paths: String = (1..vertices).map(|to| format!("path 0 {to}\n")).collect();
        let distances = |name: &str| {
            said(fed(&mut command(&program, &["run", name, "0"]), &paths).wait_with_output().unwrap())
        };
        assert!(distances("killed") == distances("serial"), "{kind}, killed");
    }
    Tried::Passed
}

/// An instant in a run that takes so long, or after it.
fn an_instant(takes: Duration) -> Duration {
    takes.mul_f64(2.0 * fastrand::f64())
}

/// Eight at once, each with a text of its own; half of them are killed on their way.
pub fn tempfile(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "tempfile"));
    let text = |n: usize| format!("{n:07}\n").repeat(3000);
    let began = Instant::now();
    must(built.command(&program).arg(&tree).arg("first").stdin(Stdio::null()));
    let takes = began.elapsed();
    let mut expected = BTreeSet::new();
    for round in 0..6 {
        let outputs: Vec<_> = std::thread::scope(|scope| {
            let store = |n: usize| {
                let killed_after = (n % 2 == 0).then(|| an_instant(takes));
                let mut command = built.command(&program);
                command.arg(&tree).arg("t");
                scope.spawn(move || {
                    let mut child = fed(&mut command, &text(8 * round + n));
                    killed_after.into_iter().for_each(|instant| kill_after(&mut child, instant));
                    child.wait_with_output().unwrap()
                })
            };
            let all: Vec<_> = (0..8).map(store).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (n, output) in outputs.into_iter().enumerate().filter(|(n, _)| n % 2 == 1) {
            assert!(output.status.success());
            let path = String::from_utf8(output.stdout).unwrap();
            assert_eq!(fs::read_to_string(path.trim_end()).unwrap(), text(8 * round + n));
            assert!(expected.insert(path), "each has a name of its own");
        }
    }
    // The next use of systx finishes what the dead have left.
    must(built.command(&program).arg(&tree).arg("last").stdin(Stdio::null()));
    let (mut texts, mut count) = (BTreeSet::new(), 0);
    for file in fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().path()) {
        if file.file_name().unwrap().to_string_lossy().starts_with("t.") {
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
            texts.insert(fs::read_to_string(&file).unwrap());
            count += 1;
        }
    }
    let known: BTreeSet<_> = (0..48).map(text).collect();
    assert!(texts.is_subset(&known) && texts.len() == count, "each file is whole, and there once");
    assert!(count >= expected.len());
    Tried::Passed
}

/// Killed somewhere on its way, or when it is through.
pub fn editor(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "editor"));
    let (file, link) = (tree.join("text"), tree.join("link"));
    let text = |word: &str| format!("{word}\n").repeat(100_000);
    fs::write(&file, text("old")).unwrap();
    fs::hard_link(&file, &link).unwrap();
    let before = fs::metadata(&file).unwrap();
    let edit = |words: [&str; 2]| {
        let mut command = built.command(&program);
        command.arg(&file).args(words);
        command
    };
    let began = Instant::now();
    assert_eq!(must(&mut edit(["neither", "nor"])), "0 replaced\n");
    let takes = began.elapsed();
    let mut seen = [0; 2];
    for round in 0..300 {
        if round >= 20 && !seen.contains(&0) {
            break;
        }
        let words = if round % 2 == 0 { ["old", "newer"] } else { ["newer", "old"] };
        kill_after(&mut edit(words).spawn().unwrap(), an_instant(takes));
        // The next use of systx finishes what it has left.
        must(&mut edit(["neither", "nor"]));
        let now = fs::read_to_string(&link).unwrap();
        let whole = words.map(|word| now == text(word));
        assert!(whole.contains(&true), "neither old nor new: round {round}");
        seen[usize::from(whole[1])] += 1;
        must(&mut edit(words));
        assert_eq!(fs::read_to_string(&link).unwrap(), text(words[1]));
    }
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.ino(), after.nlink()), (before.ino(), before.nlink()), "it is the same file");
    assert!(!seen.contains(&0), "the old text {} times, the new one {} times", seen[0], seen[1]);
    Tried::Passed
}

fn volume(dir: &Path) -> Option<Volume> {
    Volume::new(dir, "ext4", 64).or_else(|| Volume::new(dir, "tmpfs", 64))
}

const ACCOUNTS: usize = 5;
const FUNDS: i64 = 1000;

fn sum(tree: &Path) -> i64 {
    let number = |n| fs::read_to_string(tree.join(n)).unwrap().trim().parse::<i64>().unwrap();
    (0..ACCOUNTS).map(|n| number(n.to_string())).sum()
}

/// Four processes; one after the other is killed as soon as it has changed something, and another one takes its place.
pub fn transfer(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "transfer"));
    for n in 0..ACCOUNTS {
        fs::write(tree.join(n.to_string()), format!("{}\n", FUNDS / ACCOUNTS as i64)).unwrap();
    }
    let start = |seed: usize| -> Child {
        let mut command = built.command(&program);
        command.arg(&tree).args([ACCOUNTS.to_string(), "1000000".into(), seed.to_string()]).spawn().unwrap()
    };
    let mut running: Vec<_> = (0..4).map(start).collect();
    for seed in 4..40 {
        let before: Vec<_> = (0..ACCOUNTS).map(|n| fs::read(tree.join(n.to_string())).ok()).collect();
        let now = || (0..ACCOUNTS).map(|n| fs::read(tree.join(n.to_string())).ok());
        while now().eq(before.iter().cloned()) {
            assert!(running.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "one has ended");
        }
        let mut killed = running.remove(seed % running.len());
        killed.kill().unwrap();
        killed.wait().unwrap();
        running.push(start(seed));
    }
    for child in &mut running {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // The next use of systx finishes what the dead have left.
    let last = built.run(&program, &[tree.as_os_str(), "5".as_ref(), "1".as_ref(), "1".as_ref()]);
    assert_eq!((last.as_str(), sum(&tree)), ("", FUNDS));
    Tried::Passed
}

const USER: u32 = 1000;

/// An attacker puts a link to root's file, and a hard link to it, in the place of the user's own.
pub fn toctou(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "toctou"));
    let (secret, home) = (tree.join("secret"), tree.join("home"));
    fs::write(&secret, "secret").unwrap();
    fs::create_dir(&home).unwrap();
    let (own, link, place) = (home.join("own"), home.join("link"), home.join("place"));
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                // The user's.
                fs::write(&own, "").unwrap();
                chown(&own, Some(USER), Some(USER)).unwrap();
                fs::rename(&own, &place).unwrap();
                // Links to what is not.
                symlink(&secret, &link).unwrap();
                fs::rename(&link, &place).unwrap();
                fs::hard_link(&secret, &link).unwrap();
                fs::rename(&link, &place).unwrap();
            }
        });
        while !place.exists() {}
        let args = [USER.to_string(), "written".into(), "2000".into()];
        let output = built.command(&program).arg(&place).args(&args).output();
        done.store(true, Ordering::Release);
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    });
    println!("written {written} times, never into what is root's");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    // It does write where nobody interferes.
    fs::remove_file(&place).unwrap();
    fs::write(&place, "").unwrap();
    chown(&place, Some(USER), Some(USER)).unwrap();
    let said = built.run(&program, &[place.as_os_str(), "1000".as_ref(), "x".as_ref(), "3".as_ref()]);
    assert_eq!((said.trim(), fs::read_to_string(&place).unwrap().as_str()), ("3", "xxx"));
    Tried::Passed
}

const DELIVERIES: usize = 8;

/// Deliveries at once beside a reader that marks; some are killed.
pub fn maildir(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = volume(dir) else { return Tried::Skipped };
    let (tree, program) = (volume.tree(), example(built, "maildir"));
    let command = |verb: &str| {
        let mut command = built.command(&program);
        command.arg(verb).arg(&tree);
        command
    };
    must(&mut command("make"));
    let names = |sub: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(tree.join(sub)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut delivered = 0;
    let mut seen = 0;
    for round in 0..4 {
        let deliver = |n: usize| {
            let mut child = command("deliver").stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(format!("message {round} {n}\n").as_bytes()).unwrap();
            child
        };
        let mut children: Vec<_> = (0..DELIVERIES).map(deliver).collect();
        // Before, in or after its transaction.
        let _ = children[round].kill();
        let said = must(&mut command("see"));
        seen += said.trim().parse::<usize>().unwrap();
        for mut child in children {
            delivered += usize::from(child.wait().unwrap().success());
        }
        let all: BTreeSet<String> = names("new")
            .into_iter()
            .chain(names("cur").iter().map(|name| name.strip_suffix(":2,S").unwrap().to_owned()))
            .collect();
        let index: Vec<String> =
            fs::read_to_string(tree.join("index")).unwrap_or_default().lines().map(String::from).collect();
        assert_eq!(index.len(), all.len(), "{index:?}");
        assert_eq!(index.into_iter().collect::<BTreeSet<_>>(), all);
    }
    let last = must(&mut command("see"));
    seen += last.trim().parse::<usize>().unwrap();
    assert!(names("new").is_empty() && names("cur").len() == seen);
    // One that was killed may have committed before it could say so.
    assert!((delivered..=delivered + 4).contains(&seen), "{seen} seen, {delivered} delivered");
    Tried::Passed
}
