//! The area, or a part of it, is removed or moved while transactions run: by hand, or by what tidies /tmp.

use super::late;
use super::stuck::{change, make};
use super::world::{copy, machine, open, public, AREA};
use crate::objects::remove::remove_all;
use crate::outcome::ConflictCopyKind;
use crate::transaction::Caller;
use systx_os::{FileType, FsKind, Open, Os, Rename, Result};
use systx_sim::machine::{Machine, Plant, SimFd, SimOs};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
/// The area stays what it is, elsewhere.
const MOVED: &str = "its name";

fn remove(os: &SimOs, parent: &SimFd, name: &[u8]) -> Result<()> {
    if os.stat_at(parent, name)?.kind() != FileType::Directory {
        return os.unlink(parent, name);
    }
    remove_all(os, &os.open(parent, name, Open::Directory)?)?;
    os.rmdir(parent, name)
}

/// Names below `w` with their contents.
fn below_w(machine: &Machine) -> Vec<(String, Vec<u8>)> {
    let tree = public(machine).into_iter().filter(|(path, _)| path.starts_with("w/"));
    tree.map(|(path, look)| (path, look.content)).collect()
}

/// The whole area, its own name, each name in it, and each segment of the log, one at a time.
#[test]
fn an_area_that_is_removed_under_a_transaction_takes_no_commit() {
    for kind in [FsKind::Ext4, FsKind::Btrfs] {
        let world = machine(kind);
        let os = world.spawn("first");
        make(&open(&os).unwrap(), b"earlier").unwrap();
        os.exit();
        let os = world.outsider("names");
        let area = os.open(&os.root(0), AREA, Open::Directory).unwrap();
        let log = os.open(&area, b"log", Open::Directory).unwrap();
        let below = |dir: &SimFd, path: &str| -> Vec<String> {
            let names = os.read_dir(dir).unwrap().into_iter();
            names.map(|entry| format!("{path}{}", String::from_utf8(entry.name).unwrap())).collect()
        };
        let mut parts = vec![".systx".to_owned(), MOVED.to_owned()];
        parts.extend(["table", "owners", "log", "tx", "aside"].map(|name| format!(".systx/{name}")));
        parts.extend(below(&log, ".systx/log/"));
        assert!(parts.len() > 7, "no segment");
        for part in parts {
            let machine = copy(&world);
            machine.advance_ns(1_000_000_000);
            let (os, outsider) = (machine.spawn("commits"), machine.outsider("tidies"));
            let domain = open(&os).unwrap();
            // What was committed is on the disk.
            make(&domain, b"before").unwrap();
            let before = below_w(&machine);
            let ended = change(&domain, |t, w| {
                t.mkdir(w, b"new", 0o755, ROOT)?;
                if part == MOVED {
                    let root = outsider.root(0);
                    outsider.rename((&root, AREA), (&root, b"moved"), Rename::NoReplace).unwrap();
                    return Ok(());
                }
                let (dir, name) = part.rsplit_once('/').unwrap_or(("", &part));
                let mut parent = outsider.root(0);
                for step in dir.split('/').filter(|step| !step.is_empty()) {
                    parent = outsider.open(&parent, step.as_bytes(), Open::Directory).unwrap();
                }
                remove(&outsider, &parent, name.as_bytes()).unwrap();
                Ok(())
            });
            assert!(ended.is_err(), "{kind:?}: commits without {part}: {ended:?}");
            assert_eq!(below_w(&machine), before, "{kind:?}: {part}");
            assert!(make(&domain, b"again").is_err(), "{kind:?}: commits after all without {part}");
            // Opened anew, all goes on.
            drop(domain);
            let again = open(&os).unwrap_or_else(|e| panic!("{kind:?}: opened without {part}: {e}"));
            make(&again, b"after").unwrap_or_else(|e| panic!("{kind:?}: behind {part}: {e}"));
        }
    }
}

/// What is staged goes while a commit publishes: what was in there can't come back, and what is left of the commit is told as that.
#[test]
fn what_is_removed_before_it_is_published_is_told() {
    for kind in [FsKind::Ext4, FsKind::Btrfs] {
        let plants = ["goes", "gone", "comes", "under", "named"].map(|name| format!("w/{name}"));
        let plants: Vec<_> = plants.iter().map(|path| (&path[..], Plant::File(path.as_bytes()))).collect();
        let world = late::world(kind, &plants);
        let ours = |t: &mut late::T, w| {
            let linked = late::found(t, w, b"named")?.0;
            t.link(linked, w, b"link")?;
            t.rename(w, b"goes", w, b"there", Rename::NoReplace)?;
            t.rename(w, b"comes", w, b"under", Rename::Replace)?;
            t.unlink(w, b"gone")?;
            for name in [&b"new1"[..], b"new2"] {
                t.mkdir(w, name, 0o755, ROOT)?;
            }
            Ok(())
        };
        let plain = copy(&world);
        let done = change(&open(&plain.spawn("plain")).unwrap(), ours).unwrap();
        assert!(done.conflict_copies.is_empty(), "{done:?}");
        let whole = below_w(&plain);
        let theirs = |os: &SimOs| -> late::Act {
            let os = os.clone();
            Box::new(move |_, _| {
                let remove = || -> Result<usize> {
                    let area = os.open(&os.root(0), AREA, Open::Directory)?;
                    let mut removed = 0;
                    for entry in os.read_dir(&area)? {
                        let is_kept = [&b"log"[..], b"aside"].contains(&&entry.name[..]);
                        if entry.kind == FileType::Directory && !is_kept {
                            let staged = os.read_dir(&os.open(&area, &entry.name, Open::Directory)?)?;
                            if !staged.is_empty() {
                                remove(&os, &area, &entry.name)?;
                                removed += 1;
                            }
                        }
                    }
                    Ok(removed)
                };
                remove().is_ok_and(|removed| removed > 0)
            })
        };
        let (mut half, mut all) = (0, 0);
        for ran in late::beside(&world, ours, theirs) {
            let told = !ran.ended.conflict_copies.is_empty() || ran.ended.pending.is_some();
            let is_whole = below_w(&ran.machine) == whole;
            assert!(told || is_whole, "{kind:?}: before call {}: half of it, without a word", ran.at);
            *if is_whole { &mut all } else { &mut half } += 1;
        }
        assert!(half > 0 && all > 0, "{kind:?}: {half} {all}");
    }
}

/// Steps that are given up leave their entries empty, too.
#[test]
fn what_others_move_away_is_not_told_as_removed() {
    let plants = ["w/goes", "w/named", "w/theirs"].map(|path| (path, Plant::File(path.as_bytes())));
    let world = late::world(FsKind::Ext4, &plants);
    let ours = |t: &mut late::T, w| {
        let named = late::found(t, w, b"named")?.0;
        t.link(named, w, b"link")?;
        t.rename(w, b"goes", w, b"there", Rename::NoReplace)
    };
    let mut reports = 0;
    for (from, to) in [
        (&b"theirs"[..], &b"goes"[..]),
        (b"goes", b"elsewhere"),
        (b"theirs", b"there"),
        (b"theirs", b"named"),
    ] {
        let theirs = |os: &SimOs| -> late::Act {
            let os = os.clone();
            Box::new(move |_, _| {
                let w = os.open(&os.root(0), b"w", Open::Directory);
                w.is_ok_and(|w| os.rename((&w, from), (&w, to), Rename::Replace).is_ok())
            })
        };
        for ran in late::beside(&world, ours, theirs) {
            let copies = &ran.ended.conflict_copies;
            assert!(
                copies.iter().all(|copy| copy.what != ConflictCopyKind::StagedRemoved),
                "{}: {copies:?}",
                ran.at
            );
            reports += copies.len();
        }
    }
    assert!(reports > 0, "nothing is given up");
}
