//! kill -9 in mid-commit, over a real directory on a journaled ext4: all or nothing, whoever is killed.
//!
//! Two ways to choose the instant: a random number of microseconds after the command's last words; and, under strace,
//! exactly before the n-th call of a kind, for every call of the commit.
//!
//! `cargo test -p systx --test crash_kill [-- PART-OF-A-NAME]`; thousands of kills with `SYSTX_LONG=1`.

mod machine;

use machine::bench::{calls, Bench};
use machine::processes::{children, let_pass, systx_below, Held};
use machine::volume::Volume;
use machine::{have, recover, rounds, verb, AREA};
use std::path::Path;

fn main() {
    machine::main(&[
        ("the_twin_alone_finishes_for_a_killed_owner", the_twin_alone_finishes_for_a_killed_owner),
        ("recover_finishes_for_a_killed_owner_and_twin", recover_finishes_for_a_killed_owner_and_twin),
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

fn bench(dir: &Path) -> Option<Bench> {
    Some(Bench::new(dir, Volume::new(dir, "ext4", 256)?))
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
    let Some(mut bench) = bench(dir) else { return };
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

fn recover_finishes_for_a_killed_owner_and_twin(dir: &Path) {
    let Some(mut bench) = bench(dir) else { return };
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
    end(bench, "owner and twin killed");
}

fn recover_finishes_when_everything_is_killed_at_once(dir: &Path) {
    let Some(mut bench) = bench(dir) else { return };
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
    let Some(mut bench) = bench(dir) else { return };
    step(&mut bench, dir, rounds(24, 1 << 20), Twin::Lives);
    end(bench, "owner killed before a call");
}

fn recover_finishes_for_an_owner_killed_before_any_call(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = bench(dir) else { return };
    step(&mut bench, dir, rounds(30, 1 << 20), Twin::Dies);
    assert!(bench.mixed > 0, "no kill was in the middle of publication");
    end(bench, "owner and twin killed before a call");
}
