//! Everything that was read is a fact, whatever kind of thing it is: read again it is unchanged, and a change
//! before the commit is not overlooked.

use super::stuck::{change, ROOT};
use super::world::{machine, open, public};
use crate::domain::{Domain, Most};
use crate::outcome::{CommitError, Committed, Options, Verb, VerbError};
use crate::transaction::{Access, Node, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Open, Os, Rename, SetXattr, Timestamp};
use systx_sim::machine::{run_process, Machine, Plant, SimOs};

const XATTR: &[u8] = b"user.k";

/// A file `f` with an extended attribute and a second name.
fn world() -> Machine {
    let machine = machine(FsKind::Ext4);
    let objects = [("w/f", Plant::File(b"f")), ("w/again", Plant::Link("w/f"))];
    machine.plant(0, &objects).expect("planting");
    as_outsider(&machine, |os| os.setxattr(&os.open_path(0, "w/f", Open::Path)?, XATTR, b"1", SetXattr::Any));
    machine.settle();
    machine
}

fn as_outsider(machine: &Machine, act: impl FnOnce(&SimOs) -> Result<(), Errno>) {
    let os = machine.outsider("outsider");
    act(&os).expect("works");
}

fn set(machine: &Machine, value: &[u8]) {
    as_outsider(machine, |os| os.setxattr(&os.open_path(0, "w/f", Open::Path)?, XATTR, value, SetXattr::Any));
}

fn link(machine: &Machine, to: &[u8]) {
    as_outsider(machine, |os| {
        let w = os.open_path(0, "w", Open::Path)?;
        os.link(&os.open_path(0, "w/f", Open::Path)?, &w, to)
    });
}

fn file(t: &mut Transaction<SimOs>, w: Node) -> Verb<Node> {
    Ok(t.lookup(w, b"f")?.expect("it is there").0)
}

/// A transaction that looks at something, is disturbed, and makes a file.
fn disturbed(
    machine: &Machine,
    look: impl Fn(&mut Transaction<SimOs>, Node) -> Verb<()>,
    disturb: impl Fn(&Machine),
) -> Result<Committed, CommitError> {
    let os = machine.spawn("owner");
    let run = || {
        let domain = open(&os).expect("opens");
        change(&domain, |t, w| {
            look(t, w)?;
            disturb(machine);
            t.create(w, b"made", 0o644, ROOT).map(drop)
        })
    };
    run_process(&os, run).expect("lives")
}

#[test]
fn extended_attributes_that_were_read_are_compared() {
    let value = |t: &mut Transaction<SimOs>, w: Node| {
        let f = file(t, w)?;
        t.getxattr(f, XATTR).map(drop)
    };
    let names = |t: &mut Transaction<SimOs>, w: Node| {
        let f = file(t, w)?;
        t.listxattr(f).map(drop)
    };
    let remove = |machine: &Machine| {
        as_outsider(machine, |os| os.removexattr(&os.open_path(0, "w/f", Open::Path)?, XATTR));
    };
    for (what, ended) in [
        ("a value", disturbed(&world(), value, |machine| set(machine, b"2"))),
        ("a value that is gone", disturbed(&world(), value, remove)),
        ("their names", disturbed(&world(), names, remove)),
    ] {
        let refused = matches!(ended, Err(CommitError::Conflict(_)));
        assert!(refused, "{what} was read and changed by an outsider, and committed: {ended:?}");
    }
    disturbed(&world(), value, |machine| set(machine, b"1")).expect("as it was");
}

#[test]
fn an_extended_attribute_is_read_twice_alike() {
    let machine = world();
    let os = machine.spawn("owner");
    let run = || {
        let domain = open(&os).expect("opens");
        change(&domain, |t, w| {
            let f = file(t, w)?;
            assert_eq!(t.getxattr(f, XATTR)?, b"1");
            set(&machine, b"2");
            match t.getxattr(f, XATTR) {
                Err(VerbError::Doomed(conflict)) => Err(VerbError::Doomed(conflict)),
                second => panic!("first 1, then {second:?}"),
            }
        })
    };
    assert!(matches!(run_process(&os, run).expect("lives"), Err(CommitError::Conflict(_))));
}

/// A listing shows types, so they are facts: an object of another type under an unchanged name is another listing.
#[test]
fn types_that_a_listing_has_shown_are_compared() {
    let list = |t: &mut Transaction<SimOs>, w: Node| t.readdir(w).map(drop);
    let retype = |machine: &Machine| {
        as_outsider(machine, |os| {
            let w = os.open_path(0, "w", Open::Path)?;
            os.unlink(&w, b"f")?;
            os.mkdir(&w, b"f", 0o755)
        });
    };
    let replace = |machine: &Machine| {
        as_outsider(machine, |os| {
            let w = os.open_path(0, "w", Open::Path)?;
            os.unlink(&w, b"f")?;
            os.create(&w, b"f", 0o644).map(drop)
        });
    };
    let ended = disturbed(&world(), list, retype);
    let refused = matches!(ended, Err(CommitError::Conflict(_)));
    assert!(refused, "a type was listed and changed by an outsider, and committed: {ended:?}");
    disturbed(&world(), list, replace).expect("the listing is the same");
}

/// One lists `w`, where `f` is a file; another one exchanges `f` for the directory `d/e`, and commits. The
/// first must not see `d/e` as a file then.
#[test]
fn a_listing_is_not_shown_beside_what_a_later_commit_made_of_its_types() {
    for exchanges in [true, false] {
        let machine = world();
        machine.plant(0, &[("d", Plant::Dir), ("d/e", Plant::Dir)]).expect("planting");
        machine.settle();
        let os = machine.spawn("owners");
        let run = || {
            let domain = open(&os).expect("opens");
            let mut t =
                Transaction::begin(os.clone(), vec![domain.clone()], Options::default()).expect("begins");
            let root = t.root(0);
            let w = t.lookup(root, b"w").expect("quiet").expect("it is there").0;
            let listed = t.readdir(w).expect("quiet");
            assert!(listed.iter().any(|entry| *entry.name == *b"f" && entry.kind == FileType::File));
            change(&domain, |t, w| {
                let root = t.root(0);
                let d = t.lookup(root, b"d")?.expect("it is there").0;
                if exchanges {
                    t.rename(w, b"f", d, b"e", Rename::Exchange)
                } else {
                    t.rmdir(d, b"e")?;
                    t.unlink(w, b"f")?;
                    t.mkdir(w, b"f", 0o755, ROOT)?;
                    t.create(d, b"e", 0o644, ROOT).map(drop)
                }
            })
            .expect("nobody is in the way");
            let e = t.lookup(root, b"d").and_then(|d| t.lookup(d.expect("it is there").0, b"e"));
            let mode = match e {
                Err(VerbError::Doomed(_)) => return,
                seen => seen.expect("works").expect("it is there").1.mode & 0o170000,
            };
            assert_eq!(mode, 0o040000, "two commits are shown at one time");
        };
        run_process(&os, run).expect("lives");
    }
}

fn links(t: &mut Transaction<SimOs>, w: Node, name: &[u8]) -> Verb<u32> {
    Ok(t.lookup(w, name)?.expect("it is there").1.nlink)
}

#[test]
fn link_counts_that_were_read_are_compared() {
    let look = |t: &mut Transaction<SimOs>, w: Node| {
        assert_eq!(links(t, w, b"f")?, 2);
        Ok(())
    };
    let unlink = |machine: &Machine| {
        as_outsider(machine, |os| os.unlink(&os.open_path(0, "w", Open::Path)?, b"again"));
    };
    let machine = world();
    let opened_later = |t: &mut Transaction<SimOs>, w: Node| {
        let f = file(t, w)?;
        link(&machine, b"his");
        t.open(f, Access::Read, false)
    };
    for ended in [
        disturbed(&world(), look, |machine| link(machine, b"his")),
        disturbed(&world(), look, unlink),
        disturbed(&machine, opened_later, |_| {}),
    ] {
        let refused = matches!(ended, Err(CommitError::Conflict(_)));
        assert!(refused, "a link count was read and changed by an outsider, and committed: {ended:?}");
    }
}

/// Each makes a name only if it sees two: in whatever order, the second must see three.
#[test]
fn of_two_that_count_links_and_make_one_only_one_commits() {
    for removes in [false, true] {
        let machine = world();
        let os = machine.spawn("owners");
        let run = || {
            let domain = open(&os).expect("opens");
            let begin = |name: &[u8]| -> Verb<Transaction<SimOs>> {
                let mut t = Transaction::begin(os.clone(), vec![domain.clone()], Options::default())?;
                let root = t.root(0);
                let w = t.lookup(root, b"w")?.expect("it is there").0;
                assert_eq!(links(&mut t, w, b"f")?, 2);
                let f = file(&mut t, w)?;
                if removes && name == b"a" {
                    t.unlink(w, b"again")?;
                } else {
                    t.link(f, w, name)?;
                }
                Ok(t)
            };
            let (a, b) = (begin(b"a").expect("quiet"), begin(b"b").expect("quiet"));
            (a.commit().map(drop), b.commit().map(drop))
        };
        let (a, b) = run_process(&os, run).expect("lives");
        let one = a.is_ok() && matches!(b, Err(CommitError::Conflict(_)));
        assert!(one, "both have seen two names: {a:?}, {b:?}");
    }
}

/// An object in a staging entry of a commit has a name there, too: that one goes before others may count.
#[test]
fn what_was_removed_is_no_link_when_its_commit_is_done() {
    let remove = |domain: &Arc<Domain<SimOs>>| {
        change(domain, |t, w| {
            t.unlink(w, b"again")?;
            t.create(w, b"made", 0o644, ROOT).map(drop)
        })
    };
    let mut seen = [0; 2];
    for point in 0.. {
        let machine = world();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        machine.kill_at(&os, point);
        let ended = run_process(&os, || remove(&open(&os).expect("opens")).expect("commits"));
        machine.clear_plans();
        let reader = machine.spawn("reader");
        let count = run_process(&reader, || {
            let domain = open(&reader).expect("opens");
            domain.finish_dead().expect("recovers");
            let mut count = 0;
            change(&domain, |t, w| {
                count = links(t, w, b"f")?;
                Ok(())
            })
            .expect("nobody else is there");
            count
        })
        .expect("lives");
        let there = public(&machine).contains_key("w/again");
        assert_eq!(count, 1 + u32::from(there), "killed at {point}: the count is not that of the names");
        seen[usize::from(there)] += 1;
        if ended.is_ok() {
            break;
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

/// The outsider makes a name before any call of a listing.
#[test]
fn a_name_that_is_made_during_a_listing_is_in_it_or_a_conflict() {
    let mut shown = 0;
    for point in 0.. {
        let machine = world();
        machine.set_word_points(false);
        let os = machine.spawn("owner");
        let mut names = Vec::new();
        let mut calls = 0;
        let run = || {
            let domain = open(&os).expect("opens");
            change(&domain, |t, w| {
                let (from, mut acted) = (os.points(), false);
                let outsider = machine.outsider("outsider");
                machine.set_hook(move |_, info| {
                    if !acted && info.process_name == "owner" && info.point == from + point {
                        acted = true;
                        let w = outsider.open_path(0, "w", Open::Path).expect("is there");
                        outsider.create(&w, b"his", 0o600).expect("is free");
                    }
                });
                let listed = t.readdir(w);
                machine.clear_hook();
                calls = os.points() - from;
                names = listed?.iter().map(|entry| entry.name.to_vec()).collect();
                t.create(w, b"made", 0o644, ROOT).map(drop)
            })
        };
        let ended = run_process(&os, run).expect("lives");
        let his = names.iter().any(|name| name == b"his");
        match ended {
            Ok(_) if point < calls => {
                assert!(his, "a name that was made during a listing is not in it, and that is committed");
                shown += 1;
            }
            Ok(_) => break,
            Err(_) => {}
        }
    }
    assert!(shown > 0, "he never acted in time");
}

/// The time is the one that rename(2) leaves: over an empty directory, or to a new name.
#[test]
fn a_directory_that_takes_the_place_of_an_empty_one_has_the_time_of_its_last_change() {
    const LONG_AGO: Timestamp = Timestamp { sec: 5, nsec: 5 };
    for fs in [FsKind::Ext4, FsKind::Xfs] {
        for touched in [false, true] {
            let machine = machine(fs);
            let objects = [("w/s", Plant::Dir), ("w/s/e", Plant::File(b"e")), ("w/d", Plant::Dir)];
            machine.plant(0, &objects).expect("planting");
            as_outsider(&machine, |os| {
                os.utimens(&os.open_path(0, "w/s", Open::Path)?, None, Some(LONG_AGO))
            });
            let os = machine.spawn("owner");
            let run = || {
                let domain = open(&os).expect("opens");
                change(&domain, |t, w| {
                    let s = t.lookup(w, b"s")?.expect("it is there").0;
                    if touched {
                        t.unlink(s, b"e")?;
                    }
                    t.rename(w, b"s", w, b"d", Rename::Replace)
                })
            };
            run_process(&os, run).expect("lives").expect("commits");
            let look = machine.outsider("looks");
            let d = look.stat(&look.open_path(0, "w/d", Open::Path).expect("is there")).expect("works");
            assert_eq!(
                d.mtime == LONG_AGO,
                !touched,
                "{fs:?}: names in it changed: {touched}, {:?}",
                d.mtime
            );
        }
    }
}

/// A file that stays open is looked at with its bytes only if a commit may have changed them.
#[test]
fn two_reads_of_a_file_show_no_commit_between_them() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let open_in = |t: &mut Transaction<SimOs>, w: Node, access| {
        let f = t.lookup(w, b"untouched")?.expect("it is there").0;
        t.open(f, access, false).map(|_| f)
    };
    let run = || {
        let domain = open(&os).expect("opens");
        change(&domain, |t, w| {
            let f = open_in(t, w, Access::Read)?;
            let (mut first, mut second) = ([0], [0]);
            t.read_at(f, &mut first, 0)?;
            let other = change(&domain, |t, w| {
                let f = open_in(t, w, Access::Write)?;
                t.write_at(f, b"UNTOUCHED", 0)?;
                t.close(f);
                Ok(())
            });
            other.expect("commits");
            let read = t.read_at(f, &mut second, 1);
            assert!(read.is_err(), "bytes from before and from behind a commit: {first:?}, {second:?}");
            read.map(drop)
        })
    };
    assert!(matches!(run_process(&os, run).expect("lives"), Err(CommitError::Conflict(_))));
}

/// The kernel walks a path name by name, so a commit meanwhile may show one name from before it and the next from behind.
#[test]
fn a_look_at_a_path_during_which_something_commits_does_not_count() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("owner");
    let run = || {
        let domain = open(&os).expect("opens");
        let domains = [domain.clone()];
        assert_eq!(Domain::between_commits(&domains, || 1), Ok(Some(1)));
        let commits = || {
            change(&domain, |t, w| {
                let f = t.lookup(w, b"untouched")?.expect("it is there").0;
                t.setattr(f, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).map(drop)
            })
            .expect("commits");
        };
        let seen = Domain::between_commits(&domains, commits);
        assert_eq!(seen, Ok(None), "half of a commit may be shown");
    };
    run_process(&os, run).expect("lives");
}

/// What a process remembers of a name spares calls, and shows nothing that is not there any more.
#[test]
fn a_name_that_was_looked_at_before_has_the_object_that_it_has_now() {
    type Act = fn(&SimOs) -> Result<(), Errno>;
    let replaced: Act = |os| {
        let w = os.open_path(0, "w", Open::Path)?;
        // As long, as old, and under the same name.
        let before = os.stat_at(&w, b"f")?;
        let file = os.create(&w, b"other", 0o644)?;
        os.pwrite(&file, b"g", 0)?;
        os.utimens(&file, Some(before.atime), Some(before.mtime))?;
        os.rename((&w, b"other"), (&w, b"f"), Rename::Replace)
    };
    let made_again: Act = |os| {
        let w = os.open_path(0, "w", Open::Path)?;
        os.unlink(&w, b"f")?;
        os.unlink(&w, b"again")?;
        let file = os.create(&w, b"f", 0o644)?;
        os.pwrite(&file, b"g", 0).map(drop)
    };
    let directories_exchanged: Act = |os| {
        let root = os.root(0);
        os.mkdir(&root, b"v", 0o755)?;
        let v = os.open(&root, b"v", Open::Path)?;
        let file = os.create(&v, b"f", 0o644)?;
        os.pwrite(&file, b"g", 0)?;
        os.rename((&root, b"v"), (&root, b"w"), Rename::Exchange)
    };
    for (n, act) in [replaced, made_again, directories_exchanged].into_iter().enumerate() {
        let machine = world();
        let os = machine.spawn("owner");
        let run = || {
            let domain = open(&os).expect("opens");
            domain.remember(Most { names: 6, open: 2 });
            let seen = |domain: &Arc<Domain<SimOs>>| {
                let mut t = Transaction::begin(os.clone(), vec![domain.clone()], Options::default())?;
                let w = t.lookup(t.root(0), b"w")?.expect("it is there").0;
                let f = file(&mut t, w)?;
                t.open(f, Access::Read, false)?;
                let mut bytes = [0];
                t.read_at(f, &mut bytes, 0)?;
                t.close(f);
                t.setattr(f, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
                let ended = t.commit().map_err(|e| e.to_string());
                Ok::<_, VerbError>((bytes, ended.map(drop)))
            };
            for _ in 0..2 {
                assert_eq!(seen(&domain).expect("looks"), (*b"f", Ok(())));
            }
            as_outsider(&machine, act);
            let now = seen(&domain);
            assert!(matches!(&now, Ok(([b'g'], Ok(())))), "the object before, in case {n}: {now:?}");
        };
        run_process(&os, run).expect("lives");
        assert_eq!(as_outsider_reads(&machine, "w/f"), (b"g".to_vec(), 0o600));
    }
}

fn as_outsider_reads(machine: &Machine, path: &str) -> (Vec<u8>, u32) {
    let os = machine.outsider("reader");
    let file = os.open_path(0, path, Open::Read).expect("opens");
    let mut bytes = [0; 8];
    let n = os.pread(&file, &mut bytes, 0).expect("reads");
    (bytes[..n].to_vec(), os.stat(&file).expect("stats").perm())
}
