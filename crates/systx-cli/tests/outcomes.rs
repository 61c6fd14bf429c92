//! Past the commit point, but not plainly: an outsider's object stands in the way, or publication can't go
//! on. Which report appears, with which exit code, from which process; and how a person gets rid of it.
//!
//! A publisher is stopped right after its first step, so that an outsider can act between two steps.
//!
//! `cargo test -p systx-cli --test outcomes [-- PART-OF-A-NAME]`

mod machine;

use machine::processes::{children, traced, Held, Stopped};
use machine::volume::Volume;
use machine::{code, err, have, must, out, recover, run, shell, systx, verb, AREA};
use serde_json::{json, Value};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    machine::main_without_strays(&[
        ("a_displaced_object_is_told_and_kept_until_it_is_pruned", a_displaced_object_is_told_and_kept),
        ("prune_asks_and_takes_only_yes", prune_asks_and_takes_only_yes),
        ("what_a_helper_displaced_is_told_by_status", what_a_helper_displaced_is_told_by_status),
        ("what_recover_displaced_is_told_again_until_pruned", what_recover_displaced_is_told_again),
        ("what_was_displaced_is_told_once_by_a_quiet_recovery", quietly_it_is_told_once),
        ("what_a_redo_displaced_is_told_once_by_its_whole_path", a_redo_tells_it_once),
        ("what_the_next_user_displaced_is_told_by_status", what_the_next_user_displaced_is_told_by_status),
        ("a_pending_publication_says_so_and_recover_finishes_it", a_pending_publication_says_so),
        ("a_pending_publication_is_finished_by_the_next_user", the_next_user_finishes_what_is_pending),
        ("recover_tells_programs_what_it_did", recover_tells_programs_what_it_did),
        ("recover_tells_programs_what_was_displaced", recover_tells_programs_what_was_displaced),
        ("a_disk_that_fails_behind_a_commit_is_no_reason_to_commit_again", a_disk_fails_behind_a_commit),
        ("a_quota_met_while_publishing_loses_nothing", a_quota_met_while_publishing_loses_nothing),
    ]);
}

/// New names in a directory that is there: one step each.
const NAMES: usize = 10;
const SCRIPT: &str = "for i in 0 1 2 3 4 5 6 7 8 9; do echo ours $i > f$i; done";
/// The call that takes a step of this kind.
const STEP: &str = "renameat2";

struct World {
    dir: PathBuf,
    volume: Volume,
    served: PathBuf,
    /// How many calls [`STEP`] the main thread makes up to the first of a publication.
    first: usize,
}

fn published(served: &Path) -> Vec<PathBuf> {
    (0..NAMES).map(|n| served.join(format!("f{n}"))).filter(|path| path.exists()).collect()
}

fn world(dir: &Path) -> Option<World> {
    if !have("strace") {
        return None;
    }
    world_on(dir, Volume::new(dir, "ext4", 64)?)
}

fn world_on(dir: &Path, volume: Volume) -> Option<World> {
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    // The area is made.
    assert_eq!(code(&shell(&served, "true")), 0);
    let mut world = World { dir: dir.to_path_buf(), volume, served, first: 1 };
    loop {
        let stopped = world.stopped().unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
        let done = published(&world.served).len();
        let output = stopped.go_on();
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert_eq!(code(&shell(&world.served, "rm f*")), 0);
        match done {
            0 => world.first += 1,
            NAMES => panic!("all steps were taken at once"),
            _ => return Some(world),
        }
    }
}

impl World {
    /// A run that stands still between its first step and the others.
    fn stopped(&self) -> Result<Stopped, Output> {
        Stopped::after(&self.dir, &run(&self.served, &[], &["sh", "-c", SCRIPT]), STEP, self.first)
    }

    /// An outsider takes a name whose step is still to come.
    fn take_one(&self) -> PathBuf {
        let free = (0..NAMES).map(|n| self.served.join(format!("f{n}"))).find(|path| !path.exists());
        let free = free.expect("not all are published");
        std::fs::write(&free, "theirs\n").unwrap();
        free
    }

    /// Checks that all is there, but for one name that is an outsider's; ours is aside.
    fn conflict_copies(&self, taken: &Path) {
        for path in published(&self.served) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.starts_with("theirs"), path == *taken, "{}: {text}", path.display());
        }
        assert_eq!(published(&self.served).len(), NAMES);
        let kept = self.aside();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(std::fs::read_to_string(&kept[0]).unwrap().starts_with("ours"));
    }

    fn aside(&self) -> Vec<PathBuf> {
        let aside = std::fs::read_dir(self.volume.area().join("aside")).unwrap();
        aside.map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns the conflict copies that `status` reports.
    fn reports(&self) -> Vec<Value> {
        let status: Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
        // The machine may have other areas of this name.
        let is_ours = |row: &&Value| row["mount"].as_str() == self.volume.point.to_str();
        let ours = status.as_array().unwrap().iter().find(is_ours).unwrap();
        assert_eq!((&ours["running"], &ours["in_flight"]), (&0.into(), &0.into()), "{status}");
        ours["displaced"].as_array().unwrap().clone()
    }

    /// `status` names the object, what happened to it, and where ours is.
    fn told_by_status(&self, taken: &Path) {
        let reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(reports[0]["path"].as_str(), taken.to_str());
        let aside = self.volume.area().join("aside").join(reports[0]["aside"].as_str().unwrap());
        assert_eq!(self.aside(), [aside]);
        names(&out(&verb("status", &[])), taken);
    }

    /// After that nothing is left of it, and the next one works.
    fn prune(&self) {
        let pruned = verb("prune", &["--yes"]);
        assert_eq!((code(&pruned), err(&pruned).as_str()), (0, ""));
        assert!(out(&pruned).contains("removed aside/"), "{}", out(&pruned));
        assert!(self.aside().is_empty() && self.reports().is_empty());
        assert!(out(&verb("prune", &["--yes"])).ends_with(": nothing to remove\n"));
        assert!(recover().contains("nothing to do"));
        let output = shell(&self.served, "rm f* && echo again > again");
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    }
}

/// A text for people says that an object was displaced, which, and where it is kept.
fn names(text: &str, taken: &Path) {
    let words = ["displaced", taken.to_str().unwrap(), "taken by another program", "aside/"];
    assert!(words.iter().all(|word| text.contains(word)), "not all of {words:?} in: {text}");
}

fn a_displaced_object_is_told_and_kept(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let stopped = w.stopped().expect("stands");
    let taken = w.take_one();
    let output = stopped.go_on();
    assert_eq!(code(&output), 76, "{}", err(&output));
    names(&err(&output), &taken);
    assert!(err(&output).contains("committed"), "{}", err(&output));
    w.conflict_copies(&taken);
    w.told_by_status(&taken);
    w.prune();
}

fn prune_asks_and_takes_only_yes(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let stopped = w.stopped().expect("stands");
    let taken = w.take_one();
    assert_eq!(code(&stopped.go_on()), 76);
    let prune = |answer: &str| {
        let mut prune = Command::new(systx());
        prune.args(["prune", "--area-name", AREA]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = prune.stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    for no in ["n\n", "\n", "", "yes please\n"] {
        let output = prune(no);
        assert_eq!((code(&output), out(&output).as_str()), (0, ""));
        names(&err(&output), &taken);
        w.conflict_copies(&taken);
        w.told_by_status(&taken);
    }
    assert!(out(&prune("y\n")).contains("removed aside/"));
    assert!(w.aside().is_empty() && w.reports().is_empty());
}

/// A run in mid-publication, of which an outsider has taken a name, is killed; with its helper or without.
fn killed(w: &World, helper: bool) -> PathBuf {
    let stopped = w.stopped().expect("stands");
    let taken = w.take_one();
    let family = children(stopped.owner.pid);
    if helper {
        family.iter().for_each(Held::kill);
    }
    stopped.owner.kill();
    stopped.go_on();
    family.iter().for_each(Held::gone);
    taken
}

fn what_a_helper_displaced_is_told_by_status(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let taken = killed(&w, false);
    w.conflict_copies(&taken);
    w.told_by_status(&taken);
    names(&recover(), &taken);
    w.prune();
}

fn what_recover_displaced_is_told_again(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let taken = killed(&w, true);
    assert!(published(&w.served).len() < NAMES);
    names(&recover(), &taken);
    w.conflict_copies(&taken);
    names(&recover(), &taken);
    // The log of boots had it already.
    assert_eq!(out(&verb("recover", &["--quiet"])), "");
    w.told_by_status(&taken);
    w.prune();
}

fn quietly_it_is_told_once(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let taken = killed(&w, true);
    // Finished by an unrelated command, whose messages are not read.
    assert_eq!(code(&shell(&w.served, "true")), 0);
    let boot = || out(&verb("recover", &["--quiet"]));
    names(&boot(), &taken);
    assert_eq!(boot(), "", "at each boot");
    w.told_by_status(&taken);
    names(&recover(), &taken);
    w.prune();
}

/// The redo comes before any process has said where the file system is mounted.
fn a_redo_tells_it_once(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let Some(switch) = w.volume.switch() else { return };
    // Nothing is written out by itself meanwhile.
    must(Command::new("mount").args(["-o", "remount,commit=3600"]).arg(&w.volume.point));
    must(Command::new("sync").arg("-f").arg(&w.volume.point));
    assert_eq!(code(&shell(&w.served, SCRIPT)), 0);
    switch.off();
    w.volume.boot();
    let taken = w.take_one();
    let told = out(&verb("recover", &["--quiet"]));
    let conflict_copies: Vec<_> = told.lines().filter(|line| line.contains(" displaced: ")).collect();
    assert_eq!(conflict_copies.len(), 1, "{told}");
    names(conflict_copies[0], &taken);
    assert_eq!(out(&verb("recover", &["--quiet"])), "");
    w.conflict_copies(&taken);
    w.told_by_status(&taken);
    w.prune();
}

fn what_the_next_user_displaced_is_told_by_status(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let taken = killed(&w, true);
    // A command that comes nowhere near.
    let output = shell(&w.served, "true");
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("displaced: 1. See `systx status`"), "{}", err(&output));
    w.conflict_copies(&taken);
    w.told_by_status(&taken);
    w.prune();
}

/// A run whose second step fails.
fn pending(w: &World) {
    let inject = format!("inject={STEP}:error=ENOSPC:when={}", w.first + 1);
    let command = run(&w.served, &["--json"], &["sh", "-c", SCRIPT]);
    let output = traced(&command, &["-o", "/dev/null", "-e", &inject], STEP).output().unwrap();
    let told: Value = serde_json::from_str(&err(&output)).unwrap();
    assert_eq!((code(&output), told["outcome"].as_str()), (125, Some("pending")), "{told}");
    let text = told["message"].as_str().unwrap();
    let words = ["committed, publication pending", "No space", "systx recover"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(published(&w.served).len() < NAMES);
}

fn whole(w: &World) {
    for path in published(&w.served) {
        assert!(std::fs::read_to_string(path).unwrap().starts_with("ours"));
    }
    assert_eq!(published(&w.served).len(), NAMES);
    assert!(w.aside().is_empty() && w.reports().is_empty());
}

fn a_pending_publication_says_so(dir: &Path) {
    let Some(w) = world(dir) else { return };
    pending(&w);
    assert!(recover().contains("1 committed finished"));
    whole(&w);
    assert!(recover().contains("nothing to do"));
}

/// Returns what `recover --json` says of the volume. It has the fields that docs/output.md promises, and no
/// others.
fn recovered(w: &World) -> Value {
    let output = verb("recover", &["--json"]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&told), ["failed", "mounts"]);
    assert_eq!(told["failed"], json!([]));
    let point = w.volume.point.to_str().unwrap();
    let here = told["mounts"].as_array().unwrap().iter().find(|mount| mount["mount"] == point);
    let here = here.unwrap_or_else(|| panic!("no {point} in {told}")).clone();
    let page = include_str!("../../../docs/output.md").split_once("`systx recover --json` prints").unwrap().1;
    let rows =
        page.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    // The names before the second bar.
    let mut promised: Vec<_> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    promised.sort_unstable();
    assert_eq!(keys(&here), promised);
    here
}

/// The names of an object's fields, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Returns the report on a mount on which so much was finished, and nothing else happened.
fn finished(w: &World, finished: u64) -> Value {
    json!({
        "mount": w.volume.point, "finished": finished, "aborted": 0, "displaced": [], "unfinished": [], "error": null,
        "reported_earlier": [],
        "awaited": []
    })
}

fn recover_tells_programs_what_it_did(dir: &Path) {
    let Some(w) = world(dir) else { return };
    assert_eq!(recovered(&w), finished(&w, 0));
    pending(&w);
    assert_eq!(recovered(&w), finished(&w, 1));
    whole(&w);
    assert_eq!(recovered(&w), finished(&w, 0));
}

fn recover_tells_programs_what_was_displaced(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let taken = killed(&w, true);
    let first = recovered(&w);
    assert_eq!((&first["finished"], &first["reported_earlier"]), (&json!(1), &json!([])));
    let conflict_copy = &first["displaced"][0];
    assert_eq!(keys(conflict_copy), ["aside", "code", "path", "what"]);
    assert_eq!(
        (conflict_copy["path"].as_str(), first["displaced"].as_array().unwrap().len()),
        (taken.to_str(), 1)
    );
    assert!(w.volume.area().join("aside").join(conflict_copy["aside"].as_str().unwrap()).exists());
    // Until it is pruned it is reported as an earlier one.
    let again = recovered(&w);
    assert_eq!((&again["finished"], &again["displaced"]), (&json!(0), &json!([])));
    let earlier = again["reported_earlier"].as_array().unwrap();
    assert_eq!((earlier.len(), keys(&earlier[0])), (1, vec!["aside", "code", "id", "path", "what"]));
    assert!(["aside", "code", "path", "what"].iter().all(|field| earlier[0][field] == conflict_copy[field]));
    assert!(earlier[0]["id"].as_u64().is_some_and(|id| id > 0));
    w.prune();
}

fn the_next_user_finishes_what_is_pending(dir: &Path) {
    let Some(w) = world(dir) else { return };
    pending(&w);
    let output = shell(&w.served, "cat f0 f1 f2 f3 f4 f5 f6 f7 f8 f9");
    assert_eq!((code(&output), out(&output).lines().count()), (0, NAMES), "{}", err(&output));
    whole(&w);
}

/// Its table is a shared mapping, and a store that finds no disk ends the process. What it says then is the answer.
fn a_disk_fails_behind_a_commit(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some(volume) = Volume::new(dir, "xfs", 320) else { return };
    let Some(switch) = volume.switch() else { return };
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    let mut calls = 1;
    let stopped = loop {
        assert_eq!(code(&shell(&served, "echo > f")), 0);
        let mut removes = run(&served, &[], &["rm", "f"]);
        // It takes on a checkpoint behind its commit.
        removes.env("SYSTX_CHECKPOINT", "");
        let stopped =
            Stopped::after(dir, &removes, "unlinkat", calls).unwrap_or_else(|o| panic!("{}", err(&o)));
        if !served.join("f").exists() {
            break stopped;
        }
        assert_eq!(code(&stopped.go_on()), 0);
        calls += 1;
    };
    // What is written out has to be asked for again before the next store.
    must(Command::new("sync").arg("-f").arg(&served));
    switch.off();
    let output = stopped.go_on();
    let text = err(&output);
    assert_eq!(code(&output), 125, "{text}");
    assert!(text.contains("systx: committed;") && text.contains("Don't run the command again"), "{text}");
    volume.boot();
    recover();
    assert!(!served.join("f").exists());
}

fn a_quota_met_while_publishing_loses_nothing(dir: &Path) {
    if !have("strace") {
        return;
    }
    let Some((volume, quota)) = Volume::with_quota(dir) else { return };
    let Some(w) = world_on(dir, volume) else { return };
    let stopped = w.stopped().expect("stands");
    let helper = children(stopped.owner.pid);
    quota.limit("16K");
    let output = stopped.go_on();
    helper.iter().for_each(Held::gone);
    let text = err(&output);
    assert_eq!(code(&output), 125, "{text}");
    // Not every file system leaves it its table: then its last words say what it knows.
    let pending = text.contains("committed, publication pending") && text.contains("quota");
    let last = text.contains("systx: committed; but then")
        && text.contains("quota")
        && text.contains("systx recover");
    assert!(pending || last, "{text}");
    assert!(published(&w.served).len() < NAMES);
    // Not before there is room again, and every command says why.
    for output in [verb("recover", &[]), shell(&w.served, "echo > other")] {
        assert_ne!(code(&output), 0);
        assert!(err(&output).contains("quota") || err(&output).contains("No space"), "{}", err(&output));
    }
    quota.limit("none");
    assert!(recover().contains("1 committed finished"));
    whole(&w);
    let output = shell(&w.served, "rm f* && echo again > again");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}
