//! Power loss on real file systems: what the device holds at an instant is all there is; all or nothing after recovery.
//!
//! Two ways to lose power. *Shutdown*: FS_IOC_SHUTDOWN without a flush of the file system's log, then a fresh mount
//! (ext4, xfs). *Image*: a copy of the device at an instant, mounted in its place (btrfs, ext4 without a journal). Both
//! keep what the device was given; that a device has a cache of its own is `systx-sim`'s business.
//!
//! `cargo test -p systx-cli --test crash_power [-- PART-OF-A-NAME]`; many more with `SYSTX_LONG=1`.

mod machine;

use machine::bench::{calls, Bench};
use machine::generations::Generations;
use machine::pair::Pair;
use machine::picture::{picture, Picture};
use machine::processes::{children, let_pass, systx_below, Held};
use machine::volume::{forget_boot, Switch, Volume};
use machine::who::Account;
use machine::who::Who::{self, Root, User};
use machine::{code, err, have, must};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn main() {
    machine::main(&[
        ("a_power_loss_on_ext4_leaves_all_or_nothing", |dir| shutdowns(dir, Root, "ext4")),
        ("a_power_loss_on_xfs_leaves_all_or_nothing", |dir| shutdowns(dir, Root, "xfs")),
        ("a_power_loss_on_ext4_leaves_all_or_nothing_of_a_users_run", |dir| shutdowns(dir, User, "ext4")),
        ("a_power_loss_on_xfs_leaves_all_or_nothing_of_a_users_run", |dir| shutdowns(dir, User, "xfs")),
        ("a_power_loss_before_any_call_on_ext4_leaves_all_or_nothing", |dir| steps(dir, Root, "ext4")),
        ("a_power_loss_before_any_call_on_xfs_leaves_all_or_nothing", |dir| steps(dir, Root, "xfs")),
        ("a_power_loss_before_any_call_of_a_users_run_on_ext4_leaves_all_or_nothing", |dir| {
            steps(dir, User, "ext4")
        }),
        ("a_power_loss_before_any_call_of_a_users_run_on_xfs_leaves_all_or_nothing", |dir| {
            steps(dir, User, "xfs")
        }),
        ("a_power_loss_on_two_file_systems_at_once_leaves_both_or_neither", |dir| both_or_neither(dir, Root)),
        ("a_power_loss_on_two_file_systems_at_once_leaves_both_or_neither_of_a_users_run", |dir| {
            both_or_neither(dir, User)
        }),
        ("a_crash_image_of_btrfs_is_all_or_nothing", |dir| images(dir, Root, "btrfs")),
        ("a_crash_image_of_btrfs_is_all_or_nothing_of_a_users_run", |dir| images(dir, User, "btrfs")),
        ("a_crash_image_of_ext4_without_a_journal_is_recovered_or_told", |dir| images(dir, Root, "ext4-nj")),
        ("a_crash_image_of_ext4_without_a_journal_is_recovered_or_told_to_its_user", |dir| {
            images(dir, User, "ext4-nj")
        }),
        ("a_torn_tree_that_is_not_told_is_found_out", a_torn_tree_that_is_not_told_is_found_out),
    ]);
}

fn bench(dir: &Path, who: Who, kind: &'static str) -> Option<Bench> {
    let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 256 })?;
    let bench = Bench::new(dir, volume, Account::new(dir, who));
    // Files that were made without systx have to survive by themselves.
    must(Command::new("sync").arg("-f").arg(&bench.volume.point));
    Some(bench)
}

fn tell(bench: &Bench, what: &str) {
    println!("{what}: {} × all old, {} × all new, no mixture", bench.stayed, bench.went_on);
    assert!(bench.stayed > 0 && bench.went_on > 0, "only one outcome was seen");
}

/// Checks that the outcome reported before the power went is true afterwards.
fn settled(bench: &mut Bench, output: &Output, what: &str) {
    let before = bench.now;
    settle_times(&bench.generations, &bench.served, what);
    bench.settled(&format!("{what}; systx said {} {:?}", code(output), err(output)));
    kept_word(bench.now != before, output, what);
}

fn kept_word(went_on: bool, output: &Output, what: &str) {
    let text = err(output);
    assert!(went_on || code(output) != 0, "{what}: it was reported as committed and is gone");
    assert!(!went_on || !text.contains("nothing was changed"), "{what}: it is there after {text}");
}

/// A modification time may be that of the publication: power was lost when a change was on the device and the time that
/// belongs to it was not yet. Sets such times right for the next round.
fn settle_times(generations: &Generations, served: &Path, what: &str) {
    if let (None, Some(now)) = (generations.of(served), generations.but_for_times(served)) {
        println!("{what}: times of the publication");
        generations.set_times(served, now);
        must(Command::new("sync").arg("-f").arg(served));
    }
}

fn shutdowns(dir: &Path, who: Who, kind: &'static str) {
    let Some(mut bench) = bench(dir, who, kind) else { return };
    bench.aim();
    let want = who.rounds(10, 500);
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let Some(switch) = bench.volume.switch() else { return };
        let child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        let us = bench.instant();
        let_pass(us);
        switch.off();
        let output = child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        bench.boot();
        let said = bench.account.recover();
        settled(&mut bench, &output, &format!("round {round}, power lost after {us} µs; {said}"));
    }
    tell(&bench, &format!("{kind}, power lost at random instants"));
}

fn both_or_neither(dir: &Path, who: Who) {
    let Some(mut pair) = Pair::new(dir, Account::new(dir, who)) else { return };
    for volume in &pair.volumes {
        must(Command::new("sync").arg("-f").arg(&volume.point));
    }
    for _ in 0..3 {
        pair.undisturbed(&[]);
    }
    let (want, mut apart) = (who.rounds(10, 300), 0);
    for round in 0.. {
        if round >= want && (round >= 5 * want || (pair.stayed > 0 && pair.went_on > 0)) {
            break;
        }
        let [Some(one), Some(two)] = [0, 1].map(|n: usize| pair.volumes[n].switch()) else { return };
        let child = pair.start(&[]);
        assert!(pair.tell.wait(&child));
        let family = children(child.id());
        let us = pair.instant(round);
        let_pass(us);
        // Now the one, now the other is a few microseconds ahead.
        Switch::all_off(if fastrand::bool() { [one, two] } else { [two, one] });
        let output = child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        pair.boot();
        apart += usize::from(pair.apart());
        let said = pair.account.recover();
        let (what, before) = (format!("round {round}, power lost after {us} µs; {said}"), pair.now);
        pair.trees.iter().for_each(|tree| settle_times(&pair.generations, tree, &what));
        pair.settled(&format!("{what}; systx said {} {:?}", code(&output), err(&output)), true);
        kept_word(pair.now != before, &output, &what);
    }
    let Pair { stayed, went_on, .. } = pair;
    println!("power lost on two file systems at once: {stayed} × all old, {went_on} × all new, no mixture; {apart} × found apart");
    assert!(stayed > 0 && went_on > 0, "only one outcome was seen");
}

fn steps(dir: &Path, who: Who, kind: &'static str) {
    if !have("strace") {
        return;
    }
    let Some(mut bench) = bench(dir, who, kind) else { return };
    let mut calls = calls(&mut bench, &dir.join("trace"));
    fastrand::shuffle(&mut calls);
    for (round, (name, count)) in calls.into_iter().enumerate() {
        if !bench.wants(round, who.rounds(14, 1 << 20)) {
            break;
        }
        let Some(switch) = bench.volume.switch() else { return };
        let filter = format!("trace={name}");
        let kill = format!("inject={name}:signal=KILL:when={count}");
        let child = bench.start(&["strace", "-qq", "-o", "/dev/null", "-e", &filter, "-e", &kill]);
        bench.tell.wait(&child);
        let family = systx_below(child.id()).map(|owner| children(owner.pid)).unwrap_or_default();
        family.iter().for_each(Held::kill);
        let output = child.wait_with_output().unwrap();
        switch.off();
        family.iter().for_each(Held::gone);
        bench.boot();
        let said = bench.account.recover();
        settled(&mut bench, &output, &format!("power lost before {name} number {count}; {said}"));
    }
    tell(&bench, &format!("{kind}, power lost before a call"));
}

fn images(dir: &Path, who: Who, kind: &'static str) {
    // A copy at one instant needs a file system below that shares blocks.
    let Some(host) = Volume::new(dir, "xfs", 2048) else { return };
    let Some(mut bench) = bench(&host.point, who, kind) else { return };
    bench.aim();
    let copy = host.point.join("copy.img");
    let (mut torn, mut refused) = (0, 0);
    let want = who.rounds(8, 300);
    for round in 0.. {
        if !bench.wants(round, want) {
            break;
        }
        let mut child = bench.start(&[]);
        assert!(bench.tell.wait(&child));
        let family = children(child.id());
        // Now and then after it has returned: what was reported has to be in the image.
        let ended = fastrand::u8(..4) == 0;
        let us = bench.instant();
        match ended {
            true => drop(child.wait().unwrap()),
            false => let_pass(us),
        }
        if kind == "ext4-nj" && !ended {
            write_out_some(&bench.volume);
        }
        must(Command::new("cp").args(["--reflink=always"]).arg(&bench.volume.image).arg(&copy));
        let output = child.wait_with_output().unwrap();
        family.iter().for_each(Held::gone);
        bench.volume.unmount();
        std::fs::rename(&copy, &bench.volume.image).unwrap();
        if kind == "ext4-nj" {
            // Whatever it finds it repairs; 4 and more is a file system that it can't repair.
            let fsck = Command::new("e2fsck").arg("-fy").arg(&bench.volume.image).output().unwrap();
            assert!(code(&fsck) < 4, "{}", machine::out(&fsck));
        }
        bench.volume.mount();
        forget_boot(&bench.area());
        let what = format!("round {round}, image after {us} µs");
        if kind != "ext4-nj" {
            let said = bench.account.recover();
            let before = bench.now;
            settle_times(&bench.generations, &bench.served, &what);
            bench.settled(&format!("{what}; {said}"));
            assert!(
                !ended || code(&output) != 0 || bench.now != before,
                "{what}: reported as committed and gone"
            );
            continue;
        }
        // Without a journal names may be lost at power failure, and can't be restored (docs/limits.md). What
        // systx owes is a recovery that ends, and that says so when it knows.
        let recovered = bench.account.verb("recover", &[]);
        settle_times(&bench.generations, &bench.served, &what);
        let said = format!("{}{}", machine::out(&recovered), err(&recovered));
        match bench.generations.of(&bench.served) {
            Some(_) if code(&recovered) == 0 => {
                let before = bench.now;
                bench.settled(&what);
                let gone = ended && code(&output) == 0 && bench.now == before;
                assert!(!gone, "{what}: reported as committed and gone; {said}");
            }
            found => {
                let new = &bench.generations.expected[1 - bench.now];
                let wrong = differing(&picture(&bench.served), new);
                println!("{what}: status {}: {said}; wrong are {wrong:?}", code(&recovered));
                let told = is_told(code(&recovered), &said, &bench.served, &wrong);
                assert!(told, "{what}: status {}, and only: {said}; wrong are {wrong:?}", code(&recovered));
                match found {
                    Some(_) => refused += 1,
                    None => torn += 1,
                }
                // The tree that fsck left belongs to no generation: the next round begins with a whole tree.
                let _ = std::fs::remove_dir_all(bench.area());
                std::fs::remove_dir_all(&bench.served).unwrap();
                bench.account.make(&bench.served);
                bench.generations.begin(&bench.served, &bench.account);
                bench.now = 1;
                must(Command::new("sync").arg("-f").arg(&bench.volume.point));
            }
        }
    }
    let whole = bench.stayed + bench.went_on;
    match (kind, whole) {
        ("ext4-nj", 0) => {
            println!("{kind}: none of the images came out whole; {torn} × incomplete, {refused} × refused")
        }
        ("ext4-nj", _) => {
            println!("{kind}: {whole} × whole, {torn} × incomplete and told, {refused} × recovery refused");
            tell(&bench, &format!("{kind}, whole images at random instants"));
        }
        _ => tell(&bench, &format!("{kind}, images at random instants")),
    }
}

/// Has a random part of the device written out, as a kernel that is short of memory may at any time: without a journal
/// nothing orders that.
fn write_out_some(volume: &Volume) {
    if !have("xfs_io") {
        return;
    }
    let device = must(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&volume.point));
    let (from, count) = (fastrand::u64(..128), fastrand::u64(1..128));
    let range = format!("sync_range -b -w -a {from}m {count}m");
    must(Command::new("xfs_io").args(["-c", &range, device.trim()]));
}

/// Names that one picture has otherwise than another, or that only one of them has; without the top.
fn differing(found: &Picture, expected: &Picture) -> Vec<String> {
    let names: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differs = |name: &&&String| !name.is_empty() && found.get(**name) != expected.get(**name);
    names.iter().filter(differs).map(|name| (*name).clone()).collect()
}

/// Returns true if a recovery said that a tree is not what it should be: by its status and a reason, or, if
/// it ended well, by a path that is really wrong.
fn is_told(status: i32, said: &str, served: &Path, wrong: &[String]) -> bool {
    let of = |line: &str, name: &String| {
        let path = served.join(name).display().to_string();
        ["displaced: ", "not finished: "].iter().any(|word| line.contains(word))
            && line.match_indices(&path).any(|(at, _)| {
                let rest = &line[at + path.len()..];
                rest.is_empty() || rest.starts_with([':', ' ', ',', ';'])
            })
    };
    match status {
        0 => said.lines().any(|line| wrong.iter().any(|name| of(line, name))),
        1 | 125 => said.contains("not finished: ") || said.contains("systx: "),
        _ => false,
    }
}

fn a_torn_tree_that_is_not_told_is_found_out(_: &Path) {
    let served = Path::new("/a/tree");
    let picture = |lines: &[(&str, &str)]| -> Picture {
        lines.iter().map(|(name, line)| (name.to_string(), line.to_string())).collect()
    };
    let whole = picture(&[("", "dir"), ("f1", "one"), ("f10", "one"), ("g", "one")]);
    let wrong = differing(&picture(&[("", "other"), ("f1", "one"), ("f10", "none"), ("h", "one")]), &whole);
    assert_eq!(wrong, ["f10", "g", "h"]);
    for (status, said, told) in [
        (0, "/a: displaced: /a/tree/f10: was replaced", true),
        (0, "/a: transaction 3 displaced: /a/tree/g: it was gone; kept as aside/1.0 in the area", true),
        // Right ones, others, and nothing in particular.
        (0, "/a: displaced: /a/tree/f1: was replaced", false),
        (0, "/a: displaced: /a/tree: was replaced", false),
        (0, "/a: displaced: /a/tree/h.old: was replaced", false),
        (0, "/a: 1 committed finished, 0 aborted taken back\nsystx: /a/tree/g is fine", false),
        (0, "/a: nothing to do", false),
        (1, "/a: not finished: Input/output error", true),
        (125, "systx: the log is of another version", true),
        (1, "", false),
        (137, "/a: not finished: killed", false),
    ] {
        assert_eq!(is_told(status, said, served, &wrong), told, "{status}: {said}");
    }
}
