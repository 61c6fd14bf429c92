//! Ordinary users can't open objects by handle: what a step or a redo is about is found by names, which its
//! own record or a later one takes away. Cut at every call, and by power losses behind several commits.

use super::stuck::change;
use super::world::{copy, open, Finds};
use crate::outcome::{CommitError, Committed, ConflictCopy, Durability, Options, Verb, VerbError};
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use systx_os::{Errno, FsKind, Open, Os, Rename, SetXattr};
use systx_sim::machine::{run_process, Call, Crash, Machine, SimFd, SimOs, Tree};

const USER: u32 = 1000;
const ME: Caller = Caller { uid: USER, gid: USER, umask: 0o022 };

type T = Transaction<SimOs>;

/// Sectors that are alike and a bit.
fn bytes(byte: u8) -> Vec<u8> {
    vec![byte; 1100]
}

/// A tree of a user's. Files `a` and `c` of `w/d` have a second name in `w/g`, which no transaction ever touches.
fn world(kind: FsKind) -> Machine {
    world_where(kind, Finds::ByPath)
}

fn world_where(kind: FsKind, finds: Finds) -> Machine {
    let machine = Machine::new(1, &[finds.spec(kind)]);
    machine.set_word_points(false);
    let os = machine.spawn_as("planter", USER);
    for dir in ["w", "w/d", "w/d/in", "w/g", "w/e", "w/e/sub", "w/e/sub/deep", "w/e/empty", "w/k"] {
        let (above, name) = place(&os, dir);
        os.mkdir(&above, name, 0o755).expect("planting");
    }
    for path in ["w/d/a", "w/d/c", "w/d/in/h", "w/e/f", "w/e/sub/h", "w/e/sub/deep/i", "w/k/f"] {
        let (above, name) = place(&os, path);
        let fd = os.create(&above, name, 0o644).expect("planting");
        os.pwrite(&fd, &bytes(b'0'), 0).expect("planting");
    }
    for (path, more) in [("w/d/a", "w/g/a"), ("w/d/c", "w/g/c"), ("w/d/in/h", "w/g/h")] {
        let (above, name) = place(&os, more);
        os.link(&os.open_path(0, path, Open::Path).expect("planting"), &above, name).expect("planting");
    }
    os.exit();
    machine.settle();
    machine.advance_ns(120_000_000_000);
    let os = machine.spawn_as("earlier", USER);
    run_process(&os, || {
        let domain = open(&os).expect("opens");
        domain.checkpoint().expect("is made");
        // The log begins a segment, and syncs that.
        change(&domain, |t, w| make(t, w, b"first", b"first")).expect("commits");
    })
    .expect("lives");
    os.exit();
    machine.settle();
    // Not so much that a commit makes a checkpoint.
    machine.advance_ns(1_000_000_000);
    machine
}

fn place<'p>(os: &SimOs, path: &'p str) -> (SimFd, &'p [u8]) {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    (os.open_path(0, above, Open::Directory).expect("is there"), name.as_bytes())
}

/// The node at a path below `w`.
fn at(t: &mut T, w: Node, path: &str) -> Verb<Node> {
    path.split('/')
        .try_fold(w, |dir, name| Ok(t.lookup(dir, name.as_bytes())?.ok_or(VerbError::Os(Errno::NOENT))?.0))
}

fn above<'p>(t: &mut T, w: Node, path: &'p str) -> Verb<(Node, &'p [u8])> {
    Ok(match path.rsplit_once('/') {
        Some((above, name)) => (at(t, w, above)?, name.as_bytes()),
        None => (w, path.as_bytes()),
    })
}

fn make(t: &mut T, dir: Node, name: &[u8], content: &[u8]) -> Verb<()> {
    let (node, _) = t.create(dir, name, 0o644, ME)?;
    t.open(node, Access::Write, false)?;
    t.write_at(node, content, 0)?;
    t.close(node);
    Ok(())
}

fn write(t: &mut T, w: Node, path: &str, content: &[u8]) -> Verb<()> {
    let node = at(t, w, path)?;
    t.open(node, Access::Write, false)?;
    t.write_at(node, content, 600)?;
    t.close(node);
    Ok(())
}

fn append(t: &mut T, w: Node, path: &str, content: &[u8]) -> Verb<()> {
    let node = at(t, w, path)?;
    t.open(node, Access::Write, false)?;
    t.append(node, content)?;
    t.close(node);
    Ok(())
}

fn chmod(t: &mut T, w: Node, path: &str, mode: u32) -> Verb<()> {
    let node = at(t, w, path)?;
    t.setattr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
}

fn mark(t: &mut T, w: Node, path: &str) -> Verb<()> {
    let node = at(t, w, path)?;
    t.setxattr(node, b"user.k", b"v", SetXattr::Any)
}

fn rm(t: &mut T, w: Node, path: &str) -> Verb<()> {
    let (dir, name) = above(t, w, path)?;
    t.unlink(dir, name)
}

fn rmdir(t: &mut T, w: Node, path: &str) -> Verb<()> {
    let (dir, name) = above(t, w, path)?;
    t.rmdir(dir, name)
}

fn mv(t: &mut T, w: Node, from: &str, to: &str) -> Verb<()> {
    let ((dir, name), (to_dir, to_name)) = (above(t, w, from)?, above(t, w, to)?);
    t.rename(dir, name, to_dir, to_name, Rename::Replace)
}

/// A transaction's changes, and its name.
type Case = (&'static str, fn(&mut T, Node) -> Verb<()>);

const CASES: &[Case] = &[
    ("written and removed", |t, w| {
        write(t, w, "d/a", b"new")?;
        append(t, w, "d/c", b"more")?;
        rm(t, w, "d/a")?;
        rm(t, w, "d/c")
    }),
    ("other attributes, and removed", |t, w| {
        chmod(t, w, "d/a", 0o600)?;
        mark(t, w, "d/c")?;
        rm(t, w, "d/a")?;
        rm(t, w, "d/c")
    }),
    ("written and replaced", |t, w| {
        write(t, w, "d/a", b"new")?;
        chmod(t, w, "d/a", 0o600)?;
        make(t, w, b"n", b"another one")?;
        mv(t, w, "n", "d/a")
    }),
    ("written and gone with its tree", |t, w| {
        write(t, w, "d/in/h", b"new")?;
        chmod(t, w, "d/a", 0o600)?;
        for path in ["d/a", "d/c", "d/in/h"] {
            rm(t, w, path)?;
        }
        rmdir(t, w, "d/in")?;
        rmdir(t, w, "d")
    }),
    ("written, moved with its directory, and removed there", |t, w| {
        write(t, w, "d/a", b"new")?;
        chmod(t, w, "d/in/h", 0o600)?;
        mv(t, w, "d", "m")?;
        rm(t, w, "m/a")?;
        mv(t, w, "m/in", "e/in")?;
        rm(t, w, "e/in/h")
    }),
    ("a directory renamed, and a file in it written", |t, w| {
        mv(t, w, "e", "x")?;
        write(t, w, "x/f", b"new")?;
        chmod(t, w, "x/sub/h", 0o600)
    }),
    ("directories moved into and out of each other", |t, w| {
        write(t, w, "e/sub/deep/i", b"new")?;
        chmod(t, w, "e/sub/h", 0o600)?;
        mv(t, w, "e/sub", "s")?;
        mv(t, w, "e", "s/e")?;
        mv(t, w, "d", "s/e/d")?;
        append(t, w, "s/e/d/in/h", b"more")?;
        mv(t, w, "s/deep", "d")?;
        rmdir(t, w, "s/e/empty")?;
        make(t, w, b"n", b"made")?;
        mv(t, w, "n", "s/e/n")
    }),
    ("two directories that change places", |t, w| {
        write(t, w, "k/f", b"new")?;
        chmod(t, w, "e/f", 0o600)?;
        mv(t, w, "k", "x")?;
        mv(t, w, "e", "k")?;
        mv(t, w, "x", "e")
    }),
    ("another name, and the first one removed", |t, w| {
        write(t, w, "k/f", b"new")?;
        let (node, dir) = (at(t, w, "k/f")?, at(t, w, "d")?);
        t.link(node, dir, b"f")?;
        rm(t, w, "k/f")?;
        mv(t, w, "d", "m")
    }),
];

/// Returns true if a cut is made: a sample, where not all of them are wanted.
fn is_taken(n: u64, of: u64) -> bool {
    let long = std::env::var_os("SYSTX_LONG").is_some_and(|value| value != "0");
    long || n % of == 0
}

/// Every kind of power loss, and some at random, numbered.
fn crashes(random: usize) -> impl Iterator<Item = (u64, Crash)> {
    Crash::WORST.into_iter().chain((0..random).map(|_| Crash::Random)).enumerate().map(|(n, c)| (n as u64, c))
}

fn commit(os: &SimOs, what: fn(&mut T, Node) -> Verb<()>) -> Result<Committed, CommitError> {
    change(&open(os).expect("opens"), what)
}

/// Commits undisturbed.
fn commits(machine: &Machine, (name, what): &Case) -> u64 {
    let os = machine.spawn_as("owner", USER);
    let done = run_process(&os, || commit(&os, *what)).expect("lives").expect("commits");
    assert!(done.conflict_copies.is_empty() && done.pending.is_none(), "{name}: {done:?}");
    let points = os.points();
    os.exit();
    points
}

fn public(machine: &Machine) -> Tree {
    machine.tree_of(0, |path| path != ".systx")
}

/// Recovers with a process of the user's. What was displaced, of which there is nothing without an outsider.
fn recovered(machine: &Machine) -> (Tree, Vec<ConflictCopy>) {
    let os = machine.spawn_as("helper", USER);
    let conflict_copies = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().expect("recovers"));
        assert_eq!(recovered.unfinished, [""; 0]);
        recovered.conflict_copies
    });
    os.exit();
    machine.check().expect("consistent file system");
    (public(machine), conflict_copies.expect("lives"))
}

/// Returns the paths that are neither as before nor as they are to be.
fn mixture(before: &Tree, after: &Tree, tree: &Tree) -> Option<Vec<String>> {
    let side =
        |of: &Tree| of.iter().filter(|(p, l)| tree.get(*p) != Some(l)).map(|(p, _)| p.clone()).collect();
    (tree != before && tree != after).then(|| side(after))
}

fn killed_at(world: &Machine, case: &Case, point: u64) -> Machine {
    let machine = copy(world);
    let os = machine.spawn_as("owner", USER);
    machine.kill_at(&os, point);
    let _ = run_process(&os, || commit(&os, case.1));
    machine.clear_plans();
    machine
}

#[test]
fn what_loses_its_name_is_changed_by_its_other_names_too() {
    for kind in [FsKind::Ext4, FsKind::Tmpfs] {
        let world = world(kind);
        for case in CASES {
            // Compared with root's commit, which finds everything.
            let machine = copy(&world);
            commits(&machine, case);
            let rooted = world_where(kind, Finds::ByHandle);
            commits(&rooted, case);
            let (tree, expected) = (public(&machine), public(&rooted));
            let other = mixture(&expected, &expected, &tree);
            assert_eq!(other, None, "{kind:?}, {}: other than as root", case.0);
        }
    }
}

#[test]
fn a_kill_at_every_call_leaves_all_or_nothing() {
    let world = world(FsKind::Ext4);
    for case in CASES {
        let whole = copy(&world);
        let points = commits(&whole, case);
        let (before, after) = (public(&world), public(&whole));
        let mut seen = [0; 2];
        for point in (0..points).filter(|point| is_taken(points - point, 3)) {
            let machine = killed_at(&world, case, point);
            // The first who helps is killed, too.
            let os = machine.spawn_as("killed helper", USER);
            machine.kill_at(&os, point % 60);
            let _ = run_process(&os, || open(&os).map(|domain| domain.finish_dead().map(drop)));
            machine.clear_plans();
            let (tree, conflict_copies) = recovered(&machine);
            let what = format!("{}, killed at call {point} of {points}", case.0);
            assert_eq!(mixture(&before, &after, &tree), None, "{what}: a mixture");
            assert_eq!(conflict_copies, [], "{what}: displaced without an outsider");
            seen[usize::from(tree == after)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 0), "{}: {seen:?}", case.0);
    }
}

#[test]
fn a_power_loss_at_every_call_leaves_all_or_nothing() {
    for (kind, random, every) in [(FsKind::Ext4, 3, 19), (FsKind::Xfs, 3, 61), (FsKind::Btrfs, 0, 61)] {
        let world = world(kind);
        for case in CASES {
            let whole = copy(&world);
            let points = commits(&whole, case);
            let (before, after) = (public(&world), public(&whole));
            let mut seen = [0; 2];
            for point in 0..points + 3 {
                // Behind the commit each of them; before, one after the other.
                let every = if point >= points { 1 } else { every };
                for (n, crash) in crashes(random).filter(|(n, _)| is_taken(point + n, every)) {
                    let machine = killed_at(&world, case, point);
                    let mut rng = fastrand::Rng::with_seed(point << 4 | n);
                    machine.power_loss(crash, &mut rng);
                    let os = machine.spawn_as("killed recovery", USER);
                    machine.kill_at(&os, rng.u64(0..200));
                    let _ = run_process(&os, || open(&os).map(drop));
                    machine.clear_plans();
                    if random > 0 && rng.bool() {
                        machine.power_loss(Crash::Random, &mut rng);
                    }
                    let (tree, conflict_copies) = recovered(&machine);
                    let what = format!("{kind:?}, {}, {crash:?} at call {point} of {points}", case.0);
                    assert_eq!(mixture(&before, &after, &tree), None, "{what}: a mixture");
                    assert_eq!(conflict_copies, [], "{what}: displaced without an outsider");
                    assert!(point < points || tree == after, "{what}: reported durable, and lost");
                    seen[usize::from(tree == after)] += 1;
                }
            }
            assert!(seen.iter().all(|n| *n > 0), "{kind:?}, {}: {seen:?}", case.0);
        }
    }
}

/// A commit, and another one that takes the names away by which the first finds its objects again.
const CHAINS: &[(Case, Case)] = &[
    (
        ("a file written", |t, w| {
            write(t, w, "e/sub/h", b"new")?;
            chmod(t, w, "e/f", 0o600)
        }),
        ("its directory renamed", |t, w| mv(t, w, "e", "x")),
    ),
    (("a file written", |t, w| write(t, w, "k/f", b"new")), ("renamed", |t, w| mv(t, w, "k/f", "d/f"))),
    (
        ("a small file made", |t, w| {
            let dir = at(t, w, "e/sub")?;
            make(t, dir, b"small", &bytes(b's'))
        }),
        ("its directories renamed", |t, w| {
            mv(t, w, "e/sub", "d/sub")?;
            mv(t, w, "d", "m")
        }),
    ),
    (
        ("files with two names changed", |t, w| {
            write(t, w, "d/a", b"new")?;
            chmod(t, w, "d/c", 0o600)?;
            append(t, w, "d/in/h", b"more")
        }),
        ("the names removed", |t, w| {
            for path in ["d/a", "d/c", "d/in/h"] {
                rm(t, w, path)?;
            }
            rmdir(t, w, "d/in")?;
            rmdir(t, w, "d")
        }),
    ),
    (
        ("a file written", |t, w| write(t, w, "d/a", b"new")),
        ("another one comes to its name", |t, w| {
            make(t, w, b"n", b"another one")?;
            mv(t, w, "n", "d/a")
        }),
    ),
    (
        ("a small file made", |t, w| make(t, w, b"small", &bytes(b's'))),
        ("renamed", |t, w| mv(t, w, "small", "d/small")),
    ),
];

#[test]
fn a_redo_finds_what_later_commits_have_renamed_or_removed() {
    for (kind, random, every) in [(FsKind::Ext4, 3, 19), (FsKind::Xfs, 3, 61), (FsKind::Btrfs, 0, 61)] {
        let world = world(kind);
        for (first, second) in CHAINS {
            let begun = copy(&world);
            commits(&begun, first);
            let whole = copy(&begun);
            let points = commits(&whole, second);
            let (before, after) = (public(&begun), public(&whole));
            for point in 0..points + 3 {
                let every = if point >= points { 1 } else { every };
                for (n, crash) in crashes(random).filter(|(n, _)| is_taken(point + n, every)) {
                    let machine = killed_at(&begun, second, point);
                    let mut rng = fastrand::Rng::with_seed(point << 4 | n);
                    machine.power_loss(crash, &mut rng);
                    let (tree, conflict_copies) = recovered(&machine);
                    let what =
                        format!("{kind:?}, {}, {}, {crash:?} at call {point} of {points}", first.0, second.0);
                    assert_eq!(mixture(&before, &after, &tree), None, "{what}: reported durable, and lost");
                    assert_eq!(conflict_copies, [], "{what}: displaced without an outsider");
                    assert!(point < points || tree == after, "{what}: reported durable, and lost");
                }
            }
        }
    }
}

/// The second one has no record, so a redo does not know where it has taken what the first one changed. (Not on btrfs,
/// where names of two directories have no order.)
#[test]
fn a_redo_loses_nothing_that_commits_without_a_record_have_renamed_since() {
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let world = world(kind);
        for (first, second) in CHAINS {
            let begun = copy(&world);
            commits(&begun, first);
            let before = public(&begun);
            let os = begun.spawn_as("owner", USER);
            run_process(&os, || {
                let options = Options { durability: Durability::None, ..Options::default() };
                let domain = open(&os).expect("opens");
                let mut t = Transaction::begin(os.clone(), vec![domain], options).expect("begins");
                let root = t.root(0);
                let w = at(&mut t, root, "w").expect("is there");
                second.1(&mut t, w).expect("works");
                t.commit().expect("commits");
            })
            .expect("lives");
            os.exit();
            let after = public(&begun);
            for (n, crash) in crashes(6) {
                let machine = copy(&begun);
                machine.power_loss(crash, &mut fastrand::Rng::with_seed(n));
                let (_, told) = recovered(&machine);
                let what = format!("{kind:?}, {}, {}, {crash:?}", first.0, second.0);
                assert_eq!(told, [], "{what}: displaced without an outsider");
                let tree = machine.tree_of(0, |_| true);
                let holds = |tree: &Tree, content: &[u8]| tree.values().any(|look| look.content == content);
                for (path, look) in before.iter().filter(|(_, look)| holds(&after, &look.content)) {
                    assert!(holds(&tree, &look.content), "{what}: reported durable, and lost: {path}");
                }
            }
        }
    }
}

/// An outsider renames the directories on the way between the final look and the steps: what is open is found.
#[test]
fn what_somebody_renames_behind_the_final_look_is_found_by_the_living() {
    let world = world(FsKind::Ext4);
    let case: Case = ("other attributes of an object, and names in a directory", |t, w| {
        chmod(t, w, "e/sub/h", 0o600)?;
        write(t, w, "e/sub/deep/i", b"new")?;
        let dir = at(t, w, "e/sub")?;
        make(t, dir, b"made", b"made")
    });
    let whole = copy(&world);
    let points = commits(&whole, &case);
    let mut met = 0;
    for point in (0..points).filter(|point| is_taken(points - point, 3)) {
        let machine = copy(&world);
        let os = machine.spawn_as("owner", USER);
        let process = os.process();
        machine.set_hook(move |machine, info| {
            if (info.process, info.point) == (process, point) {
                let other = machine.outsider("outsider");
                let w = other.open_path(0, "w", Open::Directory).expect("is there");
                other.rename((&w, b"e"), (&w, b"x"), Rename::NoReplace).expect("renames");
            }
        });
        let told = run_process(&os, || commit(&os, case.1)).expect("lives");
        machine.clear_hook();
        os.exit();
        let look = |path: &str| machine.look(0, path);
        let what = format!("renamed at call {point} of {points}: {told:?}");
        let Ok(done) = told else { continue };
        met += 1;
        assert!(done.conflict_copies.is_empty(), "{what}");
        assert_eq!(look("w/x/sub/h").map(|l| l.mode), Some(0o600), "{what}");
        assert_eq!(look("w/x/sub/made").map(|l| l.content), Some(b"made".to_vec()), "{what}");
        assert_eq!(look("w/x/sub/deep/i").map(|l| l.content[600]), Some(b'n'), "{what}");
    }
    assert!(met > 5, "{met}");
}

/// The token of a directory has mode 0, so its own user may not list it.
#[test]
fn an_aborted_commit_leaves_no_token_of_a_directory() {
    let machine = world(FsKind::Btrfs);
    let (os, outsider) = (machine.spawn_as("owner", USER), machine.outsider("outsider"));
    let (owner, mut sealed) = (os.process(), false);
    // The directory of a commit that no checkpoint covers yet stays.
    let staged = || {
        let root = machine.outsider("looks");
        let listed = root.read_dir(&root.open_path(0, ".systx/tx", Open::Directory).expect("is there"));
        listed.expect("lists").into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let before = staged();
    machine.set_hook(move |_, info| {
        // The staging directory gets its name: all is in it.
        let seals = info.process == owner && info.call == Call::Rename && info.name.ends_with(b"~");
        if seals && !std::mem::replace(&mut sealed, true) {
            let file = outsider.open_path(0, "w/k/f", Open::ReadWrite).expect("is there");
            outsider.pwrite(&file, b"theirs", 0).expect("writes");
        }
    });
    let ended = run_process(&os, || {
        change(&open(&os).expect("opens"), |t, w| {
            rmdir(t, w, "e/empty")?;
            append(t, w, "k/f", b"more")
        })
    });
    machine.clear_hook();
    assert!(matches!(ended.expect("lives"), Err(CommitError::Conflict(_))));
    assert_eq!(staged(), before, "what was staged is left");
}
