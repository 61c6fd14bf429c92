//! kill -9 in mid-commit, over a real directory: all or nothing, whichever process is killed. On a journaled
//! ext4, and the kill of owner and helper process on each other file system that systx serves.
//!
//! Two ways to choose the instant: a random number of microseconds after the command's last words; and, under
//! strace, exactly before the n-th call of a kind, for every call of the commit.
//!
//! `cargo test -p systx-cli --test crash_kill [-- PART-OF-A-NAME]`; a sample of the instants and calls.
//! `SYSTX_LONG=1`: thousands of kills, and one before every call.

mod machine;

use machine::bench::{calls, calls_in, Bench, CALLS};
use machine::have;
use machine::pair::Pair;
use machine::processes::{children, let_pass, systx_below, Held};
use machine::volume::Volume;
use machine::who::Account;
use machine::who::Who::{self, Root, User};
use std::path::Path;
use std::process::Child;

fn main() {
    machine::main(&[
        ("the_helper_alone_finishes_for_a_killed_owner", |dir| killed(dir, Root, "ext4", Kill::Owner)),
        ("the_helper_alone_finishes_for_a_killed_owner_of_a_users_run", |dir| {
            killed(dir, User, "ext4", Kill::Owner)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper", |dir| {
            killed(dir, Root, "ext4", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_on_xfs", |dir| {
            killed(dir, Root, "xfs", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_on_btrfs", |dir| {
            killed(dir, Root, "btrfs", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_on_ext4_without_a_journal", |dir| {
            killed(dir, Root, "ext4-nj", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_on_tmpfs", |dir| {
            killed(dir, Root, "tmpfs", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_of_a_users_run", |dir| {
            killed(dir, User, "ext4", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_of_a_users_run_on_xfs", |dir| {
            killed(dir, User, "xfs", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_of_a_users_run_on_btrfs", |dir| {
            killed(dir, User, "btrfs", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_of_a_users_run_on_ext4_without_a_journal", |dir| {
            killed(dir, User, "ext4-nj", Kill::OwnerAndHelper)
        }),
        ("recover_finishes_for_a_killed_owner_and_helper_of_a_users_run_on_tmpfs", |dir| {
            killed(dir, User, "tmpfs", Kill::OwnerAndHelper)
        }),
        ("a_commit_over_two_file_systems_is_on_both_or_on_neither_after_a_kill", |dir| {
            on_both_or_on_neither(dir, Root)
        }),
        ("a_users_commit_over_two_file_systems_is_on_both_or_on_neither_after_a_kill", |dir| {
            on_both_or_on_neither(dir, User)
        }),
        ("recover_finishes_when_everything_is_killed_at_once", |dir| {
            killed(dir, Root, "ext4", Kill::Everything)
        }),
        ("recover_finishes_when_everything_of_a_users_run_is_killed_at_once", |dir| {
            killed(dir, User, "ext4", Kill::Everything)
        }),
        ("the_helper_finishes_for_an_owner_killed_before_any_call", |dir| {
            before_any_call(dir, Root, Helper::Lives)
        }),
        ("the_helper_finishes_for_an_owner_of_a_users_run_killed_before_any_call", |dir| {
            before_any_call(dir, User, Helper::Lives)
        }),
        ("recover_finishes_for_an_owner_killed_before_any_call", |dir| {
            before_any_call(dir, Root, Helper::Dies)
        }),
        ("recover_finishes_for_an_owner_of_a_users_run_killed_before_any_call", |dir| {
            before_any_call(dir, User, Helper::Dies)
        }),
    ]);
}

fn bench(dir: &Path, who: Who, kind: &'static str) -> Option<Bench> {
    let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 256 })?;
    Some(Bench::new(dir, volume, Account::new(dir, who)))
}

/// Nothing is left locked, staged or in flight, and the next one works.
fn end(mut bench: Bench, what: &str) {
    bench.account.recover();
    let status = bench.account.verb("status", &["--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(status[0]["aside"].as_array().map(Vec::len), Some(0), "nobody else was there: {status}");
    let unsealed = std::fs::read_dir(bench.area().join("tx")).unwrap();
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

/// Processes that are killed at an instant of a commit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kill {
    Owner,
    OwnerAndHelper,
    Everything,
}

impl Kill {
    /// Words before the command line: for everything systx is pid 1 of a namespace.
    fn words(self) -> &'static [&'static str] {
        match self {
            Kill::Owner | Kill::OwnerAndHelper => &[],
            Kill::Everything => &["unshare", "--pid", "--fork"],
        }
    }

    /// Kills after `us` microseconds, and waits for the dead. Returns how long a helper was at work that died later.
    fn strike(self, mut child: Child, us: u64) -> Option<u64> {
        if self == Kill::Everything {
            let owner = systx_below(child.id());
            let_pass(us);
            // With pid 1 the kernel kills everything of it.
            if let Some(owner) = owner {
                owner.kill();
            }
            // It waits for pid 1, which ends after all others of its namespace.
            child.wait_with_output().unwrap();
            return None;
        }
        let family = children(child.id());
        let_pass(us);
        // Half of the time a helper that dies is at work already.
        let head_start = (self == Kill::OwnerAndHelper && fastrand::bool()).then(|| fastrand::u64(..3000));
        if self == Kill::OwnerAndHelper && head_start.is_none() {
            family.iter().for_each(Held::kill);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(us) = head_start {
            let_pass(us);
            family.iter().for_each(Held::kill);
        }
        family.iter().for_each(Held::gone);
        head_start
    }
}

/// At random instants. A helper that lives finishes by itself, else `systx recover` does.
fn killed(dir: &Path, who: Who, kind: &'static str, kill: Kill) {
    let Some(mut bench) = bench(dir, who, kind) else { return };
    bench.aim();
    let want = if kind == "ext4" { who.rounds(20, 1500) } else { who.rounds(8, 500) };
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let child = bench.start(kill.words());
        assert!(bench.tell.wait(&child));
        let us = bench.instant();
        let head_start = kill.strike(child, us);
        if kill != Kill::Owner {
            bench.look_before_recovery();
            bench.account.recover();
        }
        bench.settled(&format!("round {round}, {kill:?} killed after {us} µs, helper {head_start:?} later"));
    }
    end(bench, &format!("{kind}, {kill:?} killed"));
}

fn on_both_or_on_neither(dir: &Path, who: Who) {
    let Some(mut pair) = Pair::new(dir, Account::new(dir, who)) else { return };
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
    let want = who.rounds(24, 1000);
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
            pair.account.recover();
        }
        let what = format!("round {round}, {inject:?} or after {us} µs, helper lives: {alone}");
        pair.settled(&what, inject.is_none());
    }
    let Pair { stayed, went_on, account, .. } = pair;
    println!("two file systems: {stayed} × all old, {went_on} × all new, no mixture; {apart} × found apart");
    assert!(stayed > 0 && went_on > 0, "only one outcome was seen");
    assert!(apart > 0 || !sure, "no kill was in the middle of publication");
    let status: serde_json::Value =
        serde_json::from_slice(&account.verb("status", &["--json"]).stdout).unwrap();
    for one in status.as_array().unwrap() {
        assert_eq!((&one["running"], &one["in_flight"]), (&0.into(), &0.into()), "{status}");
    }
}

/// Fate of the helper process: it dies before the owner does, or it has to do the work.
#[derive(PartialEq)]
enum Helper {
    Dies,
    Lives,
}

/// Kills the owner before each of some calls, or of all.
fn before_any_call(dir: &Path, who: Who, helper: Helper) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = bench(dir, who, "ext4") else { return };
    let want = who.rounds(if helper == Helper::Dies { 30 } else { 24 }, 1 << 20);
    let mut calls = calls(&mut bench, &dir.join("trace"));
    // The last ones publish: every other round is one of these.
    let mut late = calls.split_off(calls.len() * 3 / 4);
    fastrand::shuffle(&mut calls);
    fastrand::shuffle(&mut late);
    let mut early = calls.into_iter();
    let mut calls: Vec<_> = late.into_iter().flat_map(|call| [Some(call), early.next()]).flatten().collect();
    calls.extend(early);
    for (round, (name, count)) in calls.iter().enumerate() {
        // The few of a sample may all miss the middle: then some more.
        let misses = helper == Helper::Dies && bench.mixed == 0 && round < 2 * want;
        if !bench.wants(round, want) && !misses {
            break;
        }
        let filter = format!("trace={name}");
        let kill = format!("inject={name}:signal=KILL:when={count}");
        let child = bench.start(&["strace", "-qq", "-o", "/dev/null", "-e", &filter, "-e", &kill]);
        let told = bench.tell.wait(&child);
        let family = systx_below(child.id()).map(|owner| children(owner.pid)).unwrap_or_default();
        if helper == Helper::Dies {
            family.iter().for_each(Held::kill);
        }
        child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        // Before the command's last words the family is not known here; then nothing is published, either.
        if !told || helper == Helper::Dies {
            bench.look_before_recovery();
            bench.account.recover();
        }
        bench.settled(&format!("owner killed before {name} number {count}"));
    }
    if helper == Helper::Lives {
        return end(bench, "owner killed before a call");
    }
    // The few of a sample may all miss it.
    assert!(bench.mixed > 0 || want < 30, "no kill was in the middle of publication");
    end(bench, "owner and helper killed before a call");
}
