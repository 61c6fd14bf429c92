//! The matrix of rights: what a user can do to each kind of file, by each kind of call, plainly and in a
//! transaction. Nothing gives more inside: neither a run of the user's own, nor a run of root's in which a
//! command has become that user.
//!
//! Each pair of a kind and a call has a directory of its own, so one process makes all calls, and one commit
//! shows what they have changed. What may give less is said where it is allowed.
//!
//! `cargo test -p systx-cli --test rights [-- PART-OF-A-NAME]`; `SYSTX_LONG=1`: every pair in both kinds of
//! directories, on every file system; else a part of them, drawn anew from `SYSTX_SEED`.

#[path = "../machine/mod.rs"]
mod machine;

mod calls;
mod kinds;
mod leave;

use calls::CALLS;
use kinds::{DIRECTORIES, FILES};
use machine::user::{open_fuse_to_all, ORDINARY, USER};
use machine::volume::Volume;
use machine::{code, err, must, rounds, systx, Case, AREA};
use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    if let [_, verb, dir] = &std::env::args().collect::<Vec<_>>()[..] {
        if verb == "--make-the-calls" {
            return calls::make_all(Path::new(dir));
        }
    }
    let cases: &[(&str, Case)] = &[
        ("in_a_run_of_roots_a_user_gets_no_right", in_a_run_of_roots),
        ("in_a_run_of_ones_own_a_user_gets_no_right", in_a_run_of_ones_own),
        ("tries_to_leave_a_transaction_change_nothing_outside", leave::nobody_leaves),
        ("a_descriptor_that_outlives_its_transaction_gives_no_right", leave::descriptors_give_nothing),
        ("a_directory_that_root_closes_outside_is_closed_inside", leave::closed_is_closed),
        ("names_that_a_user_swaps_lead_a_run_of_roots_nowhere_else", leave::swaps_lead_nowhere),
    ];
    machine::main(cases);
}

/// A file system with a tree for the plain calls and one for those inside.
struct World {
    _volume: Volume,
    /// The user's own, over which there is a run of the user's.
    own: PathBuf,
    program: PathBuf,
    systx: PathBuf,
}

/// One pair: a kind of file and a call, in a directory that is the user's own, or root's and open to all as /tmp.
struct Pair {
    name: String,
    kind: &'static kinds::Kind,
    sticky: bool,
}

/// How likely a pair is in a short run: one in so many.
const PART: usize = 3;

fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (place, sticky) in [("own", false), ("sticky", true)] {
        for kind in FILES.iter().chain(DIRECTORIES) {
            let fits = |call: &&calls::Call| call.of_directories == kind.is_directory();
            for call in CALLS.iter().filter(fits) {
                pairs.push(Pair { name: format!("{place}.{}.{}", kind.name, call.name), kind, sticky });
            }
        }
    }
    if rounds(0, 1) == 0 {
        fastrand::shuffle(&mut pairs);
        pairs.truncate(pairs.len() / PART);
    }
    pairs
}

impl World {
    fn new(dir: &Path, kind: &'static str) -> Option<World> {
        let volume = Volume::new(dir, kind, rounds(320, 1024) as u64)?;
        let own = volume.point.join("user");
        std::fs::create_dir(&own).unwrap();
        chown(&own, Some(USER), Some(USER)).unwrap();
        let bin = volume.point.join("bin");
        std::fs::create_dir(&bin).unwrap();
        let (program, copy) = (bin.join("calls"), bin.join("systx"));
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::copy(systx(), &copy).unwrap();
        open_fuse_to_all(dir);
        Some(World { _volume: volume, own, program, systx: copy })
    }

    /// Makes the objects of each pair; returns their tree, and their states before the calls, to compare with
    /// those after.
    fn tree(&self, name: &str, pairs: &[Pair]) -> (PathBuf, BTreeMap<String, kinds::State>) {
        let tree = self.own.join(name);
        std::fs::create_dir(&tree).unwrap();
        chown(&tree, Some(USER), Some(USER)).unwrap();
        for pair in pairs {
            kinds::make(&tree.join(&pair.name), pair.kind, pair.sticky);
        }
        let states = states(&tree, pairs);
        (tree, states)
    }

    fn calls(&self, before: &[&str], tree: &Path) -> BTreeMap<String, String> {
        let mut words: Vec<String> = before.iter().map(|word| word.to_string()).collect();
        words.push(self.program.to_str().unwrap().into());
        words.extend(["--make-the-calls".into(), tree.to_str().unwrap().into()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").stdin(Stdio::null()).env("HOME", &self.own);
        let output = command.output().unwrap();
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let said = text.lines().map(|line| line.split_once(' ').unwrap_or_else(|| panic!("{line}")));
        said.map(|(name, answer)| (name.to_owned(), answer.to_owned())).collect()
    }
}

fn states(tree: &Path, pairs: &[Pair]) -> BTreeMap<String, kinds::State> {
    pairs.iter().map(|pair| (pair.name.clone(), kinds::state(&tree.join(&pair.name)))).collect()
}

/// Returns true for a difference that the run may have.
type May = fn(pair: &str, plain: &str, inside: &str) -> bool;

fn compare(w: &World, before: impl Fn(&Path) -> Vec<String>, may: May) {
    let pairs = pairs();
    let (plain, base) = w.tree("plain", &pairs);
    let (inside, base_inside) = w.tree("inside", &pairs);
    assert_eq!(base, base_inside, "the two trees are the same before");
    let plain_said = w.calls(ORDINARY, &plain);
    let before = before(&inside);
    let inside_said = w.calls(&before.iter().map(String::as_str).collect::<Vec<_>>(), &inside);
    let (plain_after, inside_after) = (states(&plain, &pairs), states(&inside, &pairs));
    let mut wrong = Vec::new();
    let (mut allowed, mut refused) = (0, 0);
    for name in base.keys() {
        let (plain, inside) = (&plain_said[name], &inside_said[name]);
        let changed_plainly = base[name] != plain_after[name];
        allowed += usize::from(plain.starts_with("ok"));
        refused += usize::from(!plain.starts_with("ok"));
        // More was read, or more was changed.
        let more = (inside.starts_with("ok ") && inside != plain)
            || (base[name] != inside_after[name] && inside_after[name] != plain_after[name]);
        let other = plain != inside || plain_after[name] != inside_after[name];
        if more || (other && !may(name, plain, inside)) {
            let what = if more { "MORE" } else { "other" };
            let difference = kinds::difference(&plain_after[name], &inside_after[name]);
            wrong.push(format!(
                "{what}: {name}: plainly {plain}, inside {inside}{}\n{difference}",
                if changed_plainly { "" } else { " (plainly nothing changes)" }
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), base.len(), wrong.join("\n"));
    assert!(allowed > 50 && refused > 50, "{allowed} calls are allowed, {refused} refused");
}

/// Less, as docs/limits.md says.
fn is_told_in_limits(pair: &str, plain: &str, inside: &str) -> bool {
    let call = pair.rsplit('.').next().unwrap();
    let unchangeable =
        pair.contains("mine-append") || (pair.contains("mine-immutable") && call.starts_with("chown"));
    (call == "whiteout" && inside == "EINVAL")
        || (unchangeable && inside == "EPERM")
        // tmpfs alone takes the setgid bit away.
        || (call == "list-gone" && pair.contains("setgid-of-others"))
        // XFS alone has the other one of the two that rename(2) names.
        || (plain, inside) == ("EEXIST", "ENOTEMPTY")
}

fn in_a_run_of_roots(dir: &Path) {
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"].into_iter().take(rounds(1, 4)) {
        let dir = dir.join(format!("on-{kind}"));
        std::fs::create_dir(&dir).unwrap();
        let Some(w) = World::new(&dir, kind) else { continue };
        let run = |tree: &Path| {
            let tree = tree.to_str().unwrap();
            let systx = w.systx.to_str().unwrap();
            let run = [systx, "run", "--area-name", AREA, "--only", tree, "--"];
            run.iter().chain(ORDINARY).map(|word| word.to_string()).collect()
        };
        compare(&w, run, is_told_in_limits);
    }
}

fn in_a_run_of_ones_own(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    let run = |tree: &Path| {
        let tree = tree.to_str().unwrap();
        let systx = w.systx.to_str().unwrap();
        let run = [systx, "run", "--area-name", AREA, "--only", tree, "--"];
        ORDINARY.iter().chain(&run).map(|word| word.to_string()).collect()
    };
    // Others have no number in the user's namespace (docs/limits.md, ordinary users): then less is given, or
    // another errno.
    compare(&w, run, |_, _, inside| !inside.starts_with("ok"));
    must(Command::new("true").arg(&w.own));
}
