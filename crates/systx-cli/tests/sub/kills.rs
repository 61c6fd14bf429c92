//! kill -9 of a subtransaction, before each of its calls and at any instant: when the outer transaction
//! commits, all of it is there or nothing, and nothing else of it.

use super::machine::bench::{calls_in, few_calls_in, Bench, CALLS};
use super::machine::pair::Pair;
use super::machine::processes::{children, let_pass, Held};
use super::machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use super::machine::volume::Volume;
use super::machine::who::Account;
use super::machine::{code, err, have, must, out, recover, rounds, run, systx, Case, AREA};
use super::world::World;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("killed_before_any_call_it_is_there_as_a_whole_or_not_at_all", killed_before_any_call),
    ("its_helper_finishes_it_while_the_outer_one_goes_on", its_helper_finishes_it),
    ("killed_with_its_helper_it_is_finished_at_the_end_of_the_outer_one", killed_with_its_helper),
    ("of_two_file_systems_it_is_on_both_or_on_neither", on_both_or_on_neither),
    ("an_ordinary_users_is_there_as_a_whole_or_not_at_all", an_ordinary_users),
    ("the_outer_one_killed_at_any_instant_leaves_nothing_of_either", the_outer_one_killed),
];

/// The change of the tree as a subtransaction in a transaction, by words before the inner `systx`, and what
/// the outer one does next.
fn start(bench: &Bench, wrapper: &str, next: &str) -> Child {
    let script = format!("{wrapper} \"$S\" run --sub -- sh -c \"$0\"; {next}");
    let outer = run(&bench.served, &[], &["sh", "-c", &script, &bench.generations.script()]);
    spawn(
        &outer,
        |command| bench.generations.environment(command, bench.now, &bench.tell.path),
        &bench.served,
    )
}

fn spawn(outer: &Command, environment: impl FnOnce(&mut Command), dir: &Path) -> Child {
    let words: Vec<OsString> =
        std::iter::once(outer.get_program()).chain(outer.get_args()).map(OsString::from).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).env("S", systx());
    environment(&mut command);
    command.spawn().unwrap()
}

fn strace(what: &str, inject: &str) -> String {
    format!("strace -qq -o {what} -e trace={CALLS} {inject}")
}

/// Calls of an undisturbed subtransaction.
fn calls(bench: &mut Bench, trace: &Path) -> Vec<(String, usize)> {
    let child = start(bench, &strace(trace.to_str().unwrap(), ""), "true");
    assert!(bench.tell.wait(&child));
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    bench.now = bench.generations.whole(&bench.served, "under strace");
    calls_in(trace)
}

fn bench(dir: &Path) -> Option<(Bench, Vec<(String, usize)>)> {
    if !have("strace") {
        return None;
    }
    let mut bench = Bench::new(dir, Volume::new(dir, "ext4", 256)?, Account::root());
    let calls = calls(&mut bench, &dir.join("trace"));
    Some((bench, calls))
}

/// Returns a few of the calls, in their order; each of them in a long run.
fn sample(mut calls: Vec<(String, usize)>, few: usize) -> Vec<(String, usize)> {
    let most = rounds(few, calls.len());
    while calls.len() > most {
        calls.remove(fastrand::usize(..calls.len()));
    }
    calls
}

fn end(bench: &Bench, what: &str) {
    println!("{what}: {} × all old, {} × all new, no mixture", bench.stayed, bench.went_on);
    assert!(bench.stayed > 0 && bench.went_on > 0, "only one outcome was seen");
    let left = std::fs::read_dir(bench.served.parent().unwrap()).unwrap();
    let mut left: Vec<_> =
        left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    left.retain(|name| {
        ![AREA, "lost+found", bench.served.file_name().unwrap().to_str().unwrap()].contains(&&**name)
    });
    assert!(left.is_empty(), "{left:?}");
}

/// Kills it before each of the calls; `next` is what the outer one does then.
fn kill_before(bench: &mut Bench, calls: &[(String, usize)], next: &str) {
    for (call, count) in calls {
        let inject = format!("-e inject={call}:signal=KILL:when={count}");
        let child = start(bench, &strace("/dev/null", &inject), next);
        bench.tell.wait(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 0, "killed before {call} {count}: {}", err(&output));
        let before = bench.now;
        bench.settled(&format!("killed before {call} {count}"));
        // The state that the outer one saw last is the one that it has committed.
        if let Some(saw) = out(&output).lines().last() {
            assert_eq!(
                saw == "new",
                before != bench.now,
                "killed before {call} {count}: the outer one saw {saw}"
            );
        }
    }
}

fn killed_before_any_call(dir: &Path) {
    let Some((mut bench, calls)) = bench(dir) else { return };
    // The outer one ends at once: the helper is killed with it, wherever it is.
    kill_before(&mut bench, &sample(calls, 60), "true");
    end(&bench, "killed before calls");
}

/// Until no helper is left, and then which generation it is, by a file that only one of the two has.
const WHEN_THE_HELPER_IS_GONE: &str =
    "while grep -qs systx-helper /proc/[0-9]*/comm; do :; done; if [ -e link.$G ]; then echo new; else echo old; fi";

fn its_helper_finishes_it(dir: &Path) {
    let Some((mut bench, calls)) = bench(dir) else { return };
    kill_before(&mut bench, &sample(calls, 30), WHEN_THE_HELPER_IS_GONE);
    end(&bench, "killed before calls, the helper at work");
}

/// The inner `systx` of a running transaction. Its helper and its pid 1 have the same words, and are its children.
fn inner_systx(pid: u32) -> Option<Held> {
    let begins = [systx().as_os_str().as_encoded_bytes(), b"\0run\0--sub\0"].concat();
    let is_it =
        |pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(&begins));
    children(pid).into_iter().find_map(|child| match is_it(child.pid) {
        true => Some(child),
        false => inner_systx(child.pid),
    })
}

fn killed_with_its_helper(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let mut bench = Bench::new(dir, volume, Account::root());
    bench.aim();
    let want = rounds(25, 1000);
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let child = start(&bench, "", "true");
        assert!(bench.tell.wait(&child));
        let inner = inner_systx(child.id());
        let family = inner.as_ref().map(|inner| children(inner.pid)).unwrap_or_default();
        let us = bench.instant();
        let_pass(us);
        // Half of the time the helper is at work already when it is killed.
        let head_start = fastrand::bool().then(|| fastrand::u64(..3000));
        if head_start.is_none() {
            family.iter().for_each(Held::kill);
        }
        inner.iter().for_each(Held::kill);
        if let Some(us) = head_start {
            let_pass(us);
            family.iter().for_each(Held::kill);
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        bench.settled(&format!("round {round}, killed after {us} µs, helper {head_start:?} later"));
    }
    end(&bench, "killed with its helper");
}

fn on_both_or_on_neither(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut pair) = Pair::new(dir, Account::root()) else { return };
    let both = "cd \"$1\" && TELL=/dev/null sh -c \"$0\" && cd \"$2\" && sh -c \"$0\"";
    let [one, two] = [0, 1].map(|n: usize| pair.trees[n].to_str().unwrap().to_string());
    let start = |pair: &Pair, wrapper: &str| {
        let script = format!("{wrapper} \"$S\" run --sub -- sh -c \"$BOTH\" \"$0\" \"$@\"; true");
        let change = pair.generations.script();
        let outer = run(&pair.trees[0], &["--only", &two], &["sh", "-c", &script, &change, &one, &two]);
        let environment = |command: &mut Command| {
            pair.generations.environment(command, pair.now, &pair.tell.path);
            command.env("BOTH", both);
        };
        spawn(&outer, environment, &pair.trees[0])
    };
    let trace = dir.join("trace");
    let child = start(&pair, &strace(trace.to_str().unwrap(), ""));
    assert!(pair.tell.wait(&child));
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    pair.now = pair.whole("under strace");
    for (call, count) in sample(calls_in(&trace), 40) {
        let inject = format!("-e inject={call}:signal=KILL:when={count}");
        let child = start(&pair, &strace("/dev/null", &inject));
        pair.tell.wait(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 0, "killed before {call} {count}: {}", err(&output));
        pair.settled(&format!("killed before {call} {count}"), false);
    }
    println!("{} × all old, {} × all new, no mixture", pair.stayed, pair.went_on);
    assert!(pair.stayed > 0 && pair.went_on > 0, "only one outcome was seen");
}

fn an_ordinary_users(dir: &Path) {
    if !have("strace") {
        return;
    }
    let owner = format!("{USER}:{USER}");
    let setup = &format!("rm -rf dir; mkdir dir; echo b > dir/b; chmod 555 dir; chown -R {owner} dir");
    let Some(w) = World::new(dir, "ext4", setup) else { return };
    must(Command::new("chown").arg("-R").arg(&owner).arg(&w.tree).arg(&w.beside));
    let program = w.beside.join("systx");
    std::fs::copy(systx(), &program).unwrap();
    open_fuse_to_all(dir);
    // The run's helper process is killed with all others, and pid 1 of the outer one needs a user namespace's
    // privileges: it is read-only again.
    let change = "chmod 755 dir; mv dir/b dir/c; echo n > dir/n; chmod 555 dir";
    let user = |script: &str| {
        let mut command = Command::new(UNPRIVILEGED[0]);
        command.args(&UNPRIVILEGED[1..]).arg(&program).args(["run", "--area-name", AREA, "--only", "."]);
        command.args(["--", "sh", "-c", script]).current_dir(&w.tree).stdin(Stdio::null());
        command.env("S", &program).env("HOME", &w.beside).env("CHANGE", change);
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{script}: {}", err(&output));
        let names = std::fs::read_dir(w.tree.join("dir")).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mode = std::fs::metadata(w.tree.join("dir")).unwrap().mode() & 0o777;
        w.nothing_is_left();
        match (names.join(" ").as_str(), mode) {
            ("b", 0o555) => 0,
            ("c n", 0o555) => 1,
            mixture => panic!("{script}: {mixture:?}"),
        }
    };
    let run = "\"$S\" run --sub -- sh -c \"$CHANGE\"; true";
    let trace = w.beside.join("trace");
    assert_eq!(user(&format!("{} {run}", strace(trace.to_str().unwrap(), ""))), 1);
    let mut seen = [0; 2];
    for (call, count) in sample(few_calls_in(&trace), 25) {
        must(Command::new("sh").args(["-c", setup]).current_dir(&w.tree));
        let inject = format!("-e inject={call}:signal=KILL:when={count}");
        seen[user(&format!("{} {run}", strace("/dev/null", &inject)))] += 1;
    }
    must(Command::new("umount").arg("/dev/fuse"));
    println!("{} × all old, {} × all new, no mixture", seen[0], seen[1]);
    assert!(seen[0] > 0 && seen[1] > 0, "only one outcome was seen");
}

fn the_outer_one_killed(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 256) else { return };
    let mut bench = Bench::new(dir, volume, Account::root());
    bench.aim();
    must(Command::new("mkfifo").arg(bench.tell.path.with_extension("never")));
    for round in 0..rounds(16, 500) {
        // It never gets to its own commit.
        let mut child = start(&bench, "", "[ -e link.$G ] && echo there > $TELL; read never < $TELL.never");
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = bench.instant();
        // Half of the time when the subtransaction has committed.
        match round % 2 {
            0 => let_pass(us),
            _ => assert!(bench.tell.wait(&child)),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        family.iter().for_each(Held::gone);
        let now = bench.generations.whole(&bench.served, &format!("round {round}, killed after {us} µs"));
        assert_eq!(now, bench.now, "round {round}");
    }
    recover();
    let mount = bench.served.parent().unwrap();
    assert_eq!(must(Command::new("find").arg(mount).args(["-name", "*.sub-*"])), "");
    assert_eq!(
        must(Command::new("find").arg(mount.join(AREA)).args(["-mindepth", "2", "-name", "table"])),
        ""
    );
    bench.undisturbed();
}
