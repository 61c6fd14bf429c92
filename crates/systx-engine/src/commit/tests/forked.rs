//! Forked children: what their parent opened and began is not theirs, whether it lives or not.

use super::stuck::{make, ROOT};
use super::world::*;
use crate::domain::Domain;
use crate::outcome::{CommitError, Durability, Options, Verb, VerbError};
use crate::transaction::{Access, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{Errno, FsKind, SetXattr};
use systx_sim::machine::{run_process, Machine, SimOs, Tree};

const CHILD: VerbError = VerbError::Os(Errno::CHILD);

/// A transaction with changes of several kinds: a small file and a larger one, a removed name, a changed file.
fn begun(domain: &Arc<Domain<SimOs>>, durability: Durability) -> Verb<Transaction<SimOs>> {
    let options = Options { durability, ..Options::default() };
    let mut t = Transaction::begin(domain.os.clone(), vec![domain.clone()], options)?;
    let w = t.lookup(t.root(0), b"w")?.expect("it is there").0;
    for (name, len) in [(&b"small"[..], 10), (b"large", 200_000)] {
        let (node, _) = t.create(w, name, 0o644, ROOT)?;
        t.open(node, Access::Write, false)?;
        t.write_at(node, &vec![b'x'; len], 0)?;
        t.close(node);
    }
    t.unlink(w, b"removed")?;
    let (grown, _) = t.lookup(w, b"grown")?.expect("it is there");
    t.open(grown, Access::Write, false)?;
    t.append(grown, b" no more")?;
    t.close(grown);
    Ok(t)
}

/// Everything but the table's words.
fn whole(machine: &Machine) -> Tree {
    machine.tree_of(0, |path| path != ".systx/table")
}

/// What a child does with the transaction of its parent.
#[derive(Clone, Copy, Debug)]
enum Does {
    Commit,
    CommitOrStay,
    Abort,
    Abandon,
    Lose,
    Drop,
}

const EVERY: [Does; 6] =
    [Does::Commit, Does::CommitOrStay, Does::Abort, Does::Abandon, Does::Lose, Does::Drop];

/// A process opens the domain and begins; its child does something; the machine as that leaves it.
fn ended_by_a_child(
    does: Does,
    durability: Durability,
    parent_lives: bool,
) -> (Machine, Tree, Option<CommitError>) {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("parent");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let t = begun(&domain, durability).expect("works");
        let before = whole(&machine);
        let parent = machine.fork_process(&os);
        if !parent_lives {
            parent.kill();
        }
        let told = match does {
            Does::Commit => t.commit().err(),
            Does::CommitOrStay => t.commit_or_stay().err().map(|(error, left)| {
                assert!(left.is_none());
                error
            }),
            Does::Abort => {
                t.abort();
                None
            }
            Does::Abandon => {
                t.abandon();
                None
            }
            Does::Lose => {
                let with = crate::outcome::Party::Unknown;
                t.lose(&crate::outcome::Conflict {
                    path: Vec::new(),
                    what: crate::outcome::ConflictKind::ContentsChanged,
                    with,
                });
                None
            }
            Does::Drop => {
                drop(t);
                None
            }
        };
        (before, told)
    });
    let (before, told) = done.expect("not killed");
    (machine, before, told)
}

#[test]
fn a_child_commits_nothing_that_its_parent_began() {
    for (does, durability) in [
        (Does::Commit, Durability::Durable),
        (Does::CommitOrStay, Durability::Durable),
        (Does::Commit, Durability::None),
    ] {
        for parent_lives in [true, false] {
            let case = format!("{does:?}, {durability:?}, the parent lives: {parent_lives}");
            let (_, _, told) = ended_by_a_child(does, durability, parent_lives);
            assert_eq!(
                told,
                Some(CommitError::Forked),
                "a child has committed what its parent began: {case}"
            );
        }
    }
}

#[test]
fn whatever_a_child_does_with_it_what_its_parent_staged_stays() {
    for does in EVERY {
        for parent_lives in [true, false] {
            let (machine, before, _) = ended_by_a_child(does, Durability::Durable, parent_lives);
            assert_eq!(whole(&machine), before, "{does:?}, the parent lives: {parent_lives}");
        }
    }
}

#[test]
fn every_verb_of_a_child_is_refused_and_its_parent_commits() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("parent");
    let done = run_process(&os, || {
        let domain = open(&os).expect("opens");
        let mut t = begun(&domain, Durability::Durable).expect("works");
        let before = whole(&machine);
        let parent = machine.fork_process(&os);
        let root = t.root(0);
        let refused = [
            t.lookup(root, b"w").err(),
            t.getattr(root).err(),
            t.setattr(root, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).err(),
            t.create(root, b"new", 0o644, ROOT).err(),
            t.mkdir(root, b"new", 0o755, ROOT).err(),
            t.mknod(root, b"new", libc::S_IFIFO | 0o600, 0, ROOT).err(),
            t.symlink(root, b"new", b"w", ROOT).err(),
            t.tmpfile(root, 0o600, ROOT).err(),
            t.open(root, Access::Read, false).err(),
            t.read_at(root, &mut [0; 8], 0).err(),
            t.write_at(root, b"x", 0).err(),
            t.append(root, b"x").err(),
            t.readdir(root).err(),
            t.unlink(root, b"w").err(),
            t.rmdir(root, b"w").err(),
            t.setxattr(root, b"user.k", b"v", SetXattr::Any).err(),
            t.removexattr(root, b"user.k").err(),
            t.still_true().err(),
            t.conflicts(9).err(),
            t.changes().err(),
        ];
        assert_eq!(refused.iter().position(|error| *error != Some(CHILD)), None, "{refused:?}");
        // Nor is there anything else that it may do with what its parent has open.
        let begins = Transaction::begin(os.clone(), vec![domain.clone()], Options::default()).err();
        assert_eq!(begins, Some(CHILD));
        assert!(domain.checkpoint().is_err() && domain.keep_all_promises().is_err());
        assert_eq!(domain.promise(), Err(Errno::CHILD));
        t.close(root);
        assert_eq!(whole(&machine), before);
        parent.go_on();
        t.commit()
    });
    done.expect("not killed").expect("the parent's commit");
    let tree = public(&machine);
    assert!(tree.contains_key("w/large") && !tree.contains_key("w/removed"));
}

#[test]
fn a_child_that_opens_for_itself_is_an_owner_of_its_own() {
    for parent_lives in [true, false] {
        let machine = machine(FsKind::Ext4);
        let os = machine.spawn("parent");
        let done = run_process(&os, || {
            let domain = open(&os).expect("opens");
            let t = begun(&domain, Durability::Durable).expect("works");
            let parent = machine.fork_process(&os);
            let own = {
                // A parent that is dead when its child comes may lend the child its number, but nothing else.
                let own = open(&os).expect("opens for itself");
                assert!(own.me() != domain.me() && own.is_ours() && !domain.is_ours());
                make(&own, b"childs").expect("commits");
                own
            };
            match parent_lives {
                true => {
                    drop(own);
                    parent.go_on();
                    t.commit().map(drop)
                }
                false => {
                    parent.kill();
                    let left = own.finish_dead().expect("finishes");
                    assert!(left.unfinished.is_empty());
                    make(&own, b"once_more").map(drop)
                }
            }
        });
        done.expect("not killed").expect("commits");
        let tree = public(&machine);
        assert!(tree.contains_key("w/childs"));
        assert_eq!(tree.contains_key("w/large"), parent_lives);
        assert_eq!(tree.contains_key("w/once_more"), !parent_lives);
    }
}

/// A grandchild is no more its grandparent than a child is its parent, and the second child is not the first one.
#[test]
fn generations_are_told_apart() {
    let machine = machine(FsKind::Ext4);
    let os = machine.spawn("parent");
    let done = run_process(&os, || {
        let parents = open(&os).expect("opens");
        let parent = machine.fork_process(&os);
        let childs = open(&os).expect("opens");
        let child = machine.fork_process(&os);
        assert!(!parents.is_ours() && !childs.is_ours());
        child.go_on();
        assert!(!parents.is_ours() && childs.is_ours());
        parent.go_on();
        assert!(parents.is_ours() && !childs.is_ours());
        let second = machine.fork_process(&os);
        assert!(!parents.is_ours() && !childs.is_ours());
        second.go_on();
        make(&parents, b"parents").expect("commits");
    });
    done.expect("not killed");
    assert!(public(&machine).contains_key("w/parents"));
}
