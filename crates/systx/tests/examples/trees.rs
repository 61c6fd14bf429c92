//! A loop in parallel, a directory of LDIF files, and the check-in of sets of files: raced and killed. The examples in Rust
//! and in C take the same arguments, and these tests.

use super::{an_instant, fed, kill_after, said, Ends};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// The command of an example.
pub type Example<'a> = &'a (dyn Fn(&str) -> Command + Sync);

/// A command that must succeed.
fn run(command: &mut Command) -> String {
    said(command.output().unwrap())
}

/// The output is that of the serial loop; one that is killed has made the beginning of it, and goes on.
pub fn parallel(dir: &Path, example: Example<'_>) {
    let files: Vec<_> = (0..60).map(|n| dir.join(format!("file-{n}"))).collect();
    let (mut expected, mut sum) = (String::new(), 0);
    for file in &files {
        let words: Vec<_> = (0..fastrand::usize(0..400)).map(|_| fastrand::u8(0..40).to_string()).collect();
        fs::write(file, words.join(" ")).unwrap();
        sum += words.len();
        expected += &format!("{}: {} words, sum {sum}\n", file.display(), words.len());
    }
    let program = |threads: &str, report: &Path| {
        let mut command = example("parallel");
        command.arg(threads).arg(report).args(&files).process_group(0);
        command
    };
    let mut takes = None;
    for threads in ["1", "2", "4", "9"] {
        let (report, began) = (dir.join(threads), Instant::now());
        run(&mut program(threads, &report));
        takes = Some(began.elapsed());
        assert_eq!(fs::read_to_string(&report).unwrap(), expected, "{threads} threads");
    }
    let report = dir.join("killed");
    for _ in 0..15 {
        kill_after(&mut program("4", &report).spawn().unwrap(), an_instant(takes.unwrap() / 4));
        // What the dead have left is finished by the next use of the file system.
        run(example("parallel").args(["1"]).arg(dir.join("none")).process_group(0));
        let now = fs::read_to_string(&report).unwrap_or_default();
        assert!(expected.starts_with(&now) && (now.is_empty() || now.ends_with('\n')), "{now}");
    }
    run(&mut program("4", &report));
    assert_eq!(fs::read_to_string(&report).unwrap(), expected);
}

/// A subtree that is moved to and fro by programs that are killed, beside readers.
pub fn ldif(dir: &Path, example: Example<'_>) {
    let ldif = |verb: &str, arguments: &[&str]| {
        let mut command = example("ldif");
        command.arg(verb).arg(dir).args(arguments);
        command
    };
    let add = |dn: &str| {
        let text = "objectClass: organizationalUnit\n";
        said(fed(&mut ldif("add", &[dn]), text).wait_with_output().unwrap());
    };
    ["dc=org", "ou=a,dc=org", "ou=home,dc=org", "ou=team,ou=a,dc=org"].into_iter().for_each(add);
    (0..6).for_each(|n| add(&format!("cn=p{n},ou=team,ou=a,dc=org")));
    add("cn=key,cn=p1,ou=team,ou=a,dc=org");
    let all = |rdn: &str| {
        let names = run(&mut ldif("search", &["dc=org"]));
        let all: BTreeSet<_> = names.lines().map(String::from).collect();
        assert_eq!((all.len(), names.lines().count()), (11, 11), "{names}");
        let moved = all.iter().filter(|dn| dn.contains(&format!("{rdn},"))).count();
        // Its own name and those of eight entries below it, or none.
        assert!([0, 9].contains(&moved), "{rdn}: half of it: {names}");
        moved == 9
    };
    let rdns = ["ou=a", "ou=b"];
    let began = Instant::now();
    run(&mut ldif("move", &["ou=a,dc=org", "ou=b,dc=org"]));
    let takes = began.elapsed();
    assert!(all("ou=b"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |rdn| {
            let (all, over) = (&all, &over);
            scope.spawn(move || {
                let mut seen = [0; 2];
                while !over.load(Ordering::Relaxed) {
                    seen[usize::from(all(rdn))] += 1;
                }
                seen
            })
        };
        let readers = rdns.map(reader);
        let ends = Ends(&over);
        let mut moved = 0;
        for round in 0..40 {
            let now = usize::from(all("ou=b"));
            let (from, to) = (rdns[now], rdns[1 - now]);
            let (from, to) = (format!("{from},dc=org"), format!("{to},dc=org"));
            let mut mover = ldif("move", &[&from, &to]).spawn().unwrap();
            if round % 2 == 0 {
                kill_after(&mut mover, an_instant(takes));
            } else {
                assert!(mover.wait().unwrap().success());
                moved += 1;
            }
        }
        drop(ends);
        for reader in readers {
            let seen = reader.join().unwrap();
            assert!(moved == 20 && seen[0] + seen[1] > 0, "{seen:?}");
        }
    });
    // To another parent; nothing is moved below itself, or over another entry.
    let now = if all("ou=b") { "ou=b" } else { "ou=a" };
    let team = format!("ou=team,{now},dc=org");
    run(&mut ldif("move", &[&team, "ou=crew,ou=home,dc=org"]));
    let names = run(&mut ldif("search", &["ou=home,dc=org"]));
    assert_eq!(names.lines().count(), 9, "{names}");
    let there = format!("{now},dc=org");
    for [from, to] in [
        ["ou=home,dc=org", &there],
        ["ou=none,dc=org", "ou=c,dc=org"],
        ["ou=home,dc=org", "../x=y,dc=org"],
        ["ou=home,dc=org", "ou=x,ou=crew,ou=home,dc=org"],
        ["ou=home,dc=org", "ou=x,ou=none,dc=org"],
    ] {
        let status = ldif("move", &[from, to]).stderr(Stdio::null()).status().unwrap();
        assert!(!status.success(), "{from} to {to}");
    }
    assert_eq!(run(&mut ldif("search", &["dc=org"])).lines().count(), 11);
}

/// Two who check the same files out and in, some of them killed; and a check-in with a problem.
pub fn check(dir: &Path, example: Example<'_>) {
    let (archive, works) = (dir.join("archive"), ["anne", "bert"].map(|name| dir.join(name)));
    let files = ["a", "b", "c"];
    fs::create_dir(&archive).unwrap();
    works.iter().for_each(|work| fs::create_dir(work).unwrap());
    let check = |verb: &str, work: &Path, files: &[&str]| {
        let mut command = example("check");
        command.arg(verb).arg(&archive).arg(work).args(files).stderr(Stdio::piped());
        command
    };
    let versions = |file: &str| {
        let names = fs::read_dir(archive.join(file)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != "out").count()
    };
    files.iter().for_each(|file| fs::write(works[0].join(file), "1").unwrap());
    run(&mut check("new", &works[0], &files));
    let began = Instant::now();
    run(&mut check("out", &works[0], &files));
    let takes = began.elapsed();
    // A problem with the last one, and nothing has happened to the first.
    for [verb, work, problem] in [["in", "anne", "d"], ["in", "bert", "c"], ["out", "bert", "a"]] {
        let output = check(verb, &dir.join(work), &["a", "b", problem]).output().unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty());
        assert!(files.iter().all(|file| versions(file) == 1 && archive.join(file).join("out").exists()));
        let mode = fs::metadata(works[0].join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
    run(&mut check("in", &works[0], &files));
    assert!(files.iter().all(|file| versions(file) == 2));
    // Each turn is told whether it has all files; so the versions of one number are of one turn.
    let so_far = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let turns = |seed: u64, work: &'static str| {
            let (check, files, work, so_far) = (&check, &files, dir.join(work), &so_far);
            scope.spawn(move || {
                fastrand::seed(seed);
                let mut checked_in = 0;
                for turn in 0..500 {
                    // On a busy machine one may meet the other's files in most of its turns.
                    if turn >= 25 && so_far.load(Ordering::SeqCst) > 10 {
                        break;
                    }
                    let mut out = check("out", &work, files).spawn().unwrap();
                    if turn % 5 == 1 {
                        kill_after(&mut out, an_instant(takes));
                    } else {
                        out.wait_with_output().unwrap();
                    }
                    // The next use finishes what a killed one has left.
                    check("new", &work, &["a"]).output().unwrap();
                    let is_mine = |file: &&str| {
                        let place = fs::read_to_string(dir.join("archive").join(file).join("out"));
                        place.is_ok_and(|place| place == work.to_string_lossy())
                    };
                    let mine = files.iter().filter(|file| is_mine(file)).count();
                    assert!(mine == 0 || mine == files.len(), "{mine} of {}", files.len());
                    if mine == 0 {
                        continue;
                    }
                    for file in files {
                        fs::write(work.join(file), format!("{seed} {turn}")).unwrap();
                    }
                    let mut done = check("in", &work, files).spawn().unwrap();
                    if turn % 5 == 2 {
                        kill_after(&mut done, an_instant(takes));
                        // Once more, if it had not come so far.
                        check("in", &work, files).output().unwrap();
                    } else {
                        assert!(done.wait().unwrap().success());
                    }
                    checked_in += 1;
                    so_far.fetch_add(1, Ordering::SeqCst);
                }
                checked_in
            })
        };
        let all: Vec<_> = [(1, "anne"), (2, "bert")].map(|(seed, work)| turns(seed, work)).into();
        let checked_in: usize = all.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(checked_in > 10, "{checked_in}");
        assert!(files.iter().all(|file| versions(file) == 2 + checked_in));
        for version in 3..3 + checked_in {
            let text = |file: &&str| fs::read(archive.join(file).join(version.to_string())).unwrap();
            let texts: BTreeSet<_> = files.iter().map(text).collect();
            assert_eq!(texts.len(), 1, "version {version}");
        }
    });
}
