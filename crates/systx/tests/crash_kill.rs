//! kill -9 in mid-commit, over a real directory: all or nothing, whoever is killed. On a journaled ext4, and the kill of
//! owner and twin on each other file system that systx serves.
//!
//! Two ways to choose the instant: a random number of microseconds after the command's last words; and, under strace,
//! exactly before the n-th call of a kind, for every call of the commit.
//!
//! `cargo test -p systx --test crash_kill [-- PART-OF-A-NAME]`; a sample of the instants and calls.
//! `SYSTX_LONG=1`: thousands of kills, and one before every call.

mod machine;

use machine::bench::{calls, calls_in, Bench, CALLS};
use machine::pair::Pair;
use machine::processes::{children, let_pass, systx_below, Held};
use machine::volume::Volume;
use machine::{have, recover, rounds, verb, AREA};
use std::path::Path;

fn main() {
    machine::main(&[
        ("the_twin_alone_finishes_for_a_killed_owner", the_twin_alone_finishes_for_a_killed_owner),
        ("recover_finishes_for_a_killed_owner_and_twin", |dir| owner_and_twin(dir, "ext4", rounds(20, 1500))),
        ("recover_finishes_for_a_killed_owner_and_twin_on_xfs", |dir| {
            owner_and_twin(dir, "xfs", rounds(8, 500))
        }),
        ("recover_finishes_for_a_killed_owner_and_twin_on_btrfs", |dir| {
            owner_and_twin(dir, "btrfs", rounds(8, 500))
        }),
        ("recover_finishes_for_a_killed_owner_and_twin_on_ext4_without_a_journal", |dir| {
            owner_and_twin(dir, "ext4-nj", rounds(8, 500))
        }),
        ("recover_finishes_for_a_killed_owner_and_twin_on_tmpfs", |dir| {
            owner_and_twin(dir, "tmpfs", rounds(8, 500))
        }),
        (
            "a_commit_over_two_file_systems_is_on_both_or_on_neither_after_a_kill",
            a_commit_over_two_file_systems_is_on_both_or_on_neither,
        ),
        (
            "recover_finishes_when_everything_is_killed_at_once",
            recover_finishes_when_everything_is_killed_at_once,
        ),
        (
            "the_twin_finishes_for_an_owner_killed_before_any_call",
            the_twin_finishes_for_an_owner_killed_before_any_call,
        ),
        (
            "recover_finishes_for_an_owner_killed_before_any_call",
            recover_finishes_for_an_owner_killed_before_any_call,
        ),
    ]);
}

fn bench(dir: &Path, kind: &'static str) -> Option<Bench> {
    Some(Bench::new(dir, Volume::new(dir, kind, if kind == "xfs" { 320 } else { 256 })?))
}

/// Nothing is left locked, staged or in flight, and the next one works.
fn end(mut bench: Bench, what: &str) {
    recover();
    let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
    assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(status[0]["aside"].as_array().map(Vec::len), Some(0), "nobody else was there: {status}");
    let unsealed = std::fs::read_dir(bench.served.parent().unwrap().join(AREA).join("tx")).unwrap();
    let unsealed: Vec<_> = unsealed
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with('~'))
        .collect();
    assert!(unsealed.is_empty(), "staging of the dead: {unsealed:?}");
    bench.undisturbed();
    println!(
        "{what}: {} × all old, {} × all new, no mixture; {} × found in the middle",
        bench.stayed, bench.went_on, bench.mixed
    );
    assert!(bench.stayed > 0 && bench.went_on > 0, "only one outcome was seen");
}

fn the_twin_alone_finishes_for_a_killed_owner(dir: &Path) {
    let Some(mut bench) = bench(dir, "ext4") else { return };
    bench.aim();
    let want = rounds(20, 1500);
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let mut child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = bench.instant();
        let_pass(us);
        child.kill().unwrap();
        child.wait().unwrap();
        family.iter().for_each(Held::gone);
        bench.settled(&format!("round {round}, owner killed after {us} µs, twin gone"));
    }
    end(bench, "owner killed");
}

fn owner_and_twin(dir: &Path, kind: &'static str, want: usize) {
    let Some(mut bench) = bench(dir, kind) else { return };
    bench.aim();
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let mut child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = bench.instant();
        let_pass(us);
        // Half of the time the twin is at work already when it is killed.
        let head_start = fastrand::bool().then(|| fastrand::u64(..3000));
        if head_start.is_none() {
            family.iter().for_each(Held::kill);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(us) = head_start {
            let_pass(us);
            family.iter().for_each(Held::kill);
        }
        family.iter().for_each(Held::gone);
        bench.look_before_recovery();
        recover();
        bench.settled(&format!("round {round}, owner killed after {us} µs, twin {head_start:?} later"));
    }
    end(bench, &format!("{kind}, owner and twin killed"));
}

fn recover_finishes_when_everything_is_killed_at_once(dir: &Path) {
    let Some(mut bench) = bench(dir, "ext4") else { return };
    bench.aim();
    let want = rounds(20, 1500);
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        // systx is pid 1 of a namespace: with it the kernel kills everything of it.
        let child = bench.start(&["unshare", "--pid", "--fork"]);
        assert!(bench.tell.wait(&child));
        let owner = systx_below(child.id());
        let us = bench.instant();
        let_pass(us);
        if let Some(owner) = owner {
            owner.kill();
        }
        // It waits for pid 1, which ends after all others of its namespace.
        child.wait_with_output().unwrap();
        bench.look_before_recovery();
        recover();
        bench.settled(&format!("round {round}, everything killed after {us} µs"));
    }
    end(bench, "everything killed");
}

fn a_commit_over_two_file_systems_is_on_both_or_on_neither(dir: &Path) {
    let Some(mut pair) = Pair::new(dir) else { return };
    // Half of the time at a random instant, half of the time before a call that changes something.
    let strace = have("strace");
    let mut calls = Vec::new();
    if strace {
        let trace = dir.join("trace");
        let words = ["strace", "-qq", "-o", trace.to_str().unwrap(), "-e", &format!("trace={CALLS}")];
        pair.undisturbed(&words.map(String::from));
        calls = calls_in(&trace);
        // Steps come last.
        calls.drain(..calls.len() / 2);
    }
    for _ in 0..3 {
        pair.undisturbed(&[]);
    }
    let renames: Vec<_> = calls.iter().filter(|(name, _)| name.starts_with("rename")).cloned().collect();
    let mut apart = 0;
    let want = rounds(24, 1000);
    // A kill between the two publications is a matter of luck: many rounds have it for sure.
    let sure = strace && want > 24;
    for round in 0.. {
        let both = pair.stayed > 0 && pair.went_on > 0;
        if round >= want && (round >= 5 * want || (both && (apart > 0 || !sure))) {
            break;
        }
        // Every other kill before a call is before a rename: those publish.
        let among = if round % 4 == 0 && !renames.is_empty() { &renames } else { &calls };
        let call = among.get(fastrand::usize(..among.len().max(1))).filter(|_| round % 2 == 0);
        let inject = call.map(|(call, count)| {
            let when = format!("inject={call}:signal=KILL:when={count}");
            ["strace", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &when]
                .map(String::from)
        });
        let mut child = pair.start(inject.as_ref().map_or(&[], |words| words));
        let told = pair.tell.wait(&child);
        let owner = systx_below(child.id());
        let family = owner.as_ref().map(|owner| children(owner.pid)).unwrap_or_default();
        // Without a family the owner was gone before it could be asked for it.
        let alone = told && !family.is_empty() && fastrand::u8(..3) == 0;
        let us = pair.instant(round);
        if inject.is_none() {
            let_pass(us);
        }
        // Not earlier: the command is in it, and may not have ended yet.
        if !alone {
            family.iter().for_each(Held::kill);
        }
        if inject.is_none() {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        family.iter().for_each(Held::gone);
        if !alone {
            apart += usize::from(pair.apart());
            recover();
        }
        let what = format!("round {round}, {inject:?} or after {us} µs, twin lives: {alone}");
        pair.settled(&what, inject.is_none());
    }
    let Pair { stayed, went_on, .. } = pair;
    println!("two file systems: {stayed} × all old, {went_on} × all new, no mixture; {apart} × found apart");
    assert!(stayed > 0 && went_on > 0, "only one outcome was seen");
    assert!(apart > 0 || !sure, "no kill was in the middle of publication");
    let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
    for one in status.as_array().unwrap() {
        assert_eq!((&one["running"], &one["in_flight"]), (&0.into(), &0.into()), "{status}");
    }
}

/// What becomes of the twin: it dies before the owner does, or it has to do the work.
#[derive(PartialEq)]
enum Twin {
    Dies,
    Lives,
}

/// Kills the owner before each of `want` calls, or of all.
fn step(bench: &mut Bench, dir: &Path, want: usize, twin: Twin) {
    let mut calls = calls(bench, &dir.join("trace"));
    fastrand::shuffle(&mut calls);
    for (round, (name, count)) in calls.iter().enumerate() {
        if !bench.wants(round, want) {
            break;
        }
        let filter = format!("trace={name}");
        let kill = format!("inject={name}:signal=KILL:when={count}");
        let child = bench.start(&["strace", "-qq", "-o", "/dev/null", "-e", &filter, "-e", &kill]);
        let told = bench.tell.wait(&child);
        let family = systx_below(child.id()).map(|owner| children(owner.pid)).unwrap_or_default();
        if twin == Twin::Dies {
            family.iter().for_each(Held::kill);
        }
        child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        // Before the command's last words the family is not known here; then nothing is published, either.
        if !told || twin == Twin::Dies {
            bench.look_before_recovery();
            recover();
        }
        bench.settled(&format!("owner killed before {name} number {count}"));
    }
}

fn the_twin_finishes_for_an_owner_killed_before_any_call(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = bench(dir, "ext4") else { return };
    step(&mut bench, dir, rounds(24, 1 << 20), Twin::Lives);
    end(bench, "owner killed before a call");
}

fn recover_finishes_for_an_owner_killed_before_any_call(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = bench(dir, "ext4") else { return };
    step(&mut bench, dir, rounds(30, 1 << 20), Twin::Dies);
    assert!(bench.mixed > 0, "no kill was in the middle of publication");
    end(bench, "owner and twin killed before a call");
}
