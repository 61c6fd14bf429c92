//! Kills in mid-commit of an ordinary user's run: who finishes it, and where.

use super::machine::processes::{children, Held, Stopped};
use super::machine::user::USER;
use super::machine::{code, err, have, must, out, Case, AREA};
use super::world::{world, World};
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("recover_finishes_what_was_killed_in_mid_commit", recover_finishes_what_was_killed),
    ("the_helper_finishes_what_was_killed_in_mid_commit", the_helper_finishes_what_was_killed),
    ("the_next_run_finishes_what_was_killed_in_mid_commit", the_next_run_finishes_what_was_killed),
    ("recover_finds_an_area_that_is_not_in_the_topmost_directory", an_area_below_the_topmost_directory),
    ("a_directory_moved_before_recovery_costs_no_change", a_directory_moved_before_recovery),
];

const NAMES: usize = 8;

/// New names in a directory that is there, a file changed in place, and one that goes: steps of several kinds.
const SCRIPT: &str =
    "for i in 0 1 2 3 4 5 6 7; do echo new $i >deep/f$i; done; echo in place >>stays; rm goes";

/// A run that stands still with some names published, and some not.
fn in_the_middle(w: &World) -> Option<Stopped> {
    if !have("strace") {
        return None;
    }
    let setup = "rm -rf deep stays goes; mkdir deep; echo old >stays; echo old >goes";
    assert_eq!(code(&w.plain(setup)), 0);
    // The area is made.
    assert_eq!(code(&w.shell("true")), 0);
    for n in 1.. {
        let stopped = Stopped::after(&w.dir, &w.run(&[], SCRIPT), "renameat2", n);
        let stopped = stopped.unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
        let done = published(w);
        if 0 < done && done < NAMES {
            return Some(stopped);
        }
        assert_eq!(done, 0, "all were published at once");
        let output = stopped.go_on();
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert_eq!(code(&w.plain(setup)), 0);
    }
    None
}

fn published(w: &World) -> usize {
    (0..NAMES).filter(|n| w.tree.join(format!("deep/f{n}")).exists()).count()
}

fn is_whole(w: &World) {
    assert_eq!(published(w), NAMES);
    assert_eq!(w.read("stays"), "old\nin place\n");
    assert!(!w.tree.join("goes").exists());
}

/// Kills the owner of a run, and its helper if it is not to do its work.
pub fn kill(stopped: Stopped, helper_too: bool) {
    let family = children(stopped.owner.pid);
    if helper_too {
        family.iter().for_each(Held::kill);
    }
    stopped.owner.kill();
    stopped.go_on();
    family.iter().for_each(Held::gone);
}

fn recover_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    assert!(published(&w) < NAMES);
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    assert!(out(&recovered).contains(w.own.to_str().unwrap()), "{}", out(&recovered));
    is_whole(&w);
}

fn the_helper_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, false);
    is_whole(&w);
}

fn the_next_run_finishes_what_was_killed(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    // Also one that serves another part of what is the user's: the area is the same.
    assert_eq!(code(&w.plain("mkdir ../other")), 0);
    let other = w.own.join("other");
    let next = w.verb(&["run", "--only", other.to_str().unwrap(), "--", "true"]).output().unwrap();
    assert_eq!(code(&next), 0, "{}", err(&next));
    is_whole(&w);
}

fn an_area_below_the_topmost_directory(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let beside = w.own.join("mounted");
    std::fs::create_dir(&beside).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&beside));
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    must(Command::new("umount").arg(&beside));
    assert!(w.tree.join(format!("{AREA}-{USER}")).exists() && !w.area().exists());
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
    is_whole(&w);
}

fn a_directory_moved_before_recovery(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(stopped) = in_the_middle(&w) else { return };
    kill(stopped, true);
    let done = published(&w);
    assert_eq!(code(&w.plain("mv deep moved")), 0);
    let recovered = w.verb(&["recover"]).output().unwrap();
    assert_eq!(out(&recovered).matches("its directory is gone; kept as aside/").count(), NAMES - done);
    let aside = std::fs::read_dir(w.area().join("aside")).unwrap();
    let kept: Vec<_> = aside.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let moved = std::fs::read_dir(w.tree.join("moved")).unwrap().count();
    assert_eq!((moved, kept.len()), (done, NAMES - done), "{kept:?}");
    assert_eq!(w.read("stays"), "old\nin place\n");
    assert!(!w.tree.join("goes").exists());
}
