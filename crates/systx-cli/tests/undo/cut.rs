//! Cut off anywhere: undone or not, undoable or not, and nothing in between.

use super::machine::processes::Stopped;
use super::machine::{have, recover, systx, Case, AREA};
use super::*;

pub const ALL: &[(&str, Case)] = &[
    ("killed_anywhere_a_transaction_can_be_undone_if_and_only_if_it_has_committed", killed_while_it_is_kept),
    ("the_helper_of_a_killed_run_gives_its_image_to_its_commit_or_removes_it", the_helper_settles_the_image),
    ("killed_anywhere_an_undo_has_happened_or_not", killed_while_it_is_undone),
    ("after_a_power_failure_what_had_committed_can_be_undone", after_a_power_failure),
];

const CALLS: [&str; 6] = ["renameat2", "fsync", "fdatasync", "unlinkat", "mkdirat", "pwrite64"];
const SETUP: &str = "mkdir d; echo 1 > d/1; echo f > f; seq 100000 > large";
const CHANGES: &str = "rm -r d; echo more >> f; mkdir n; echo n > n/n; printf X | dd of=large bs=1 seek=300000 conv=notrunc status=none";
/// Directories that stay, and whose names change.
const MOVED: [&str; 1] = [""];

/// The helper may be at work still, and others leave it what it works on.
fn settled(volume: &Volume) {
    let quiet = format!("{}: 0 running, 0 in flight", volume.point.display());
    let tries = (0..1000).map(|_| out(&verb("status", &[])));
    assert!(tries.into_iter().any(|status| status.contains(&quiet)), "somebody works still");
    recover();
}

/// Kills `command` after each of these calls, in turn, and says what it is to be looked at for.
fn killed_at_each(dir: &Path, volume: &Volume, command: impl Fn() -> Command, mut then: impl FnMut(&str)) {
    for call in CALLS {
        for n in 1.. {
            match Stopped::after(dir, &command(), call, n) {
                Err(output) => {
                    assert_eq!(code(&output), 0, "{}", err(&output));
                    then(&format!("not killed, {call} {n}"));
                    break;
                }
                Ok(stopped) => {
                    stopped.owner.kill();
                    stopped.owner.gone();
                    drop(stopped.go_on());
                    settled(volume);
                    then(&format!("{call} {n}"));
                }
            }
        }
    }
}

fn killed_while_it_is_kept(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    if !have("strace") {
        return;
    }
    plain(&tree, SETUP);
    // So that there is an area.
    undone(undoable(&tree, "echo a > a"));
    let before = picture(&tree);
    let mut seen = [0, 0];
    killed_at_each(
        dir,
        &volume,
        || run(&tree, &["--undoable"], &["sh", "-e", "-c", CHANGES]),
        |at| {
            let is_undone = tree.join("d").exists();
            seen[usize::from(is_undone)] += 1;
            let names = in_area(&volume, "undo");
            assert!(names.iter().all(|name| !name.ends_with('~')), "{at}: {names:?}");
            let newest = names.iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap();
            let log: Value = serde_json::from_str(&out(&verb("log", &["--json", "-n", "1"]))).unwrap();
            if is_undone {
                same(&picture(&tree), &before, &MOVED);
                // The number is that of the last one that has committed, and was undone.
                assert_ne!(log[0]["id"], newest, "{at}");
            } else {
                assert_eq!((&log[0]["id"], &log[0]["undoable"]), (&newest.into(), &true.into()), "{at}");
                undone(newest);
                same(&picture(&tree), &before, &MOVED);
            }
        },
    );
    assert!(seen[0] > CALLS.len() && seen[1] > 10, "{seen:?}");
}

/// No other process finishes it.
fn the_helper_settles_the_image(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    if !have("strace") {
        return;
    }
    plain(&tree, SETUP);
    undone(undoable(&tree, "echo a > a"));
    let mut kept = [0, 0];
    for (call, n) in CALLS.into_iter().flat_map(|call| (1..16).map(move |n| (call, n))) {
        let command = run(&tree, &["--undoable"], &["sh", "-e", "-c", "echo more >> f; echo > new; rm new"]);
        let Ok(stopped) = Stopped::after(dir, &command, call, n) else { continue };
        let images = || in_area(&volume, "undo");
        let is_pending = |images: &[String]| images.iter().any(|name| name.ends_with('~'));
        let (before, count) = (is_pending(&images()), images().len());
        stopped.owner.kill();
        stopped.owner.gone();
        drop(stopped.go_on());
        // `status` finishes nothing: it is only what takes time.
        let tries = (0..1000).map(|_| drop(verb("status", &[])));
        assert!(tries.into_iter().any(|()| !is_pending(&images())), "{call} {n}: {:?}", images());
        if before {
            kept[usize::from(images().len() == count)] += 1;
        }
    }
    assert!(kept[0] > 0 && kept[1] > 0, "removed, kept: {kept:?}");
}

fn killed_while_it_is_undone(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    if !have("strace") {
        return;
    }
    plain(&tree, SETUP);
    let before = picture(&tree);
    let id = std::cell::Cell::new(undoable(&tree, CHANGES));
    let after = std::cell::RefCell::new(picture(&tree));
    let mut seen = [0, 0];
    let undo = || {
        let mut undo = Command::new(systx());
        undo.args(["undo", "--area-name", AREA, &id.get().to_string()]);
        undo
    };
    killed_at_each(dir, &volume, undo, |at| {
        let is_undone = tree.join("d").exists();
        seen[usize::from(is_undone)] += 1;
        if is_undone {
            same(&picture(&tree), &before, &MOVED);
            id.set(undoable(&tree, CHANGES));
            *after.borrow_mut() = picture(&tree);
        } else {
            assert_eq!(picture(&tree), *after.borrow(), "{at}");
        }
        assert_eq!(in_area(&volume, "aside"), [""; 0], "{at}");
    });
    assert!(seen[0] > 10 && seen[1] > CALLS.len(), "{seen:?}");
}

fn after_a_power_failure(dir: &Path) {
    let Some((volume, tree)) = served(dir, "ext4") else { return };
    let Some(switch) = volume.switch() else { return };
    plain(&tree, SETUP);
    undone(undoable(&tree, "echo a > a"));
    must(Command::new("sync").arg("-f").arg(&tree));
    let before = picture(&tree);
    let id = undoable(&tree, CHANGES);
    switch.off();
    volume.boot();
    recover();
    assert!(!tree.join("d").exists(), "it had committed");
    undone(id);
    same(&picture(&tree), &before, &MOVED);
    // The number is given to no other one as long as it is kept, although the log has forgotten it.
    for _ in 0..2 {
        volume.boot();
        recover();
    }
    assert!(committed(&tree, &[], "echo z > z") > id);
}
