//! Read committed in the engine: what becomes a fact, what is reported, what is forgotten.

use crate::domain::{Bounds, Domain, Location};
use crate::facts::read_committed::COPIED_BYTES_MAX;
use crate::outcome::{CommitError, ConflictKind, Durability, Isolation, Options, Verb, VerbError};
use crate::recovery::open_all;
use crate::transaction::{Access, Caller, Node, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{Errno, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Machine, Plant, SimOs};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// A machine with `a/b/deep`, `read` and `other`; what happens on it, in one process of ours and one of an outsider's.
fn play(body: impl FnOnce(&World)) {
    let machine = Machine::with(FsKind::Ext4);
    let files = [
        ("a", Plant::Dir),
        ("a/b", Plant::Dir),
        ("a/b/deep", Plant::File(b"contents")),
        ("read", Plant::File(b"contents")),
        ("other", Plant::File(b"contents")),
    ];
    machine.plant(0, &files).expect("planting");
    machine.settle();
    machine.set_word_points(false);
    let os = machine.spawn("ours");
    run_process(&os, || {
        let root = Arc::new(os.root(0));
        let site =
            Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".systx" };
        let domain = open_all(&os, &[site]).map_err(|(n, e)| format!("{n}: {e}")).expect("opens").remove(0);
        body(&World { os: os.clone(), domain });
    })
    .expect("not killed");
}

struct World {
    os: SimOs,
    domain: Arc<Domain<SimOs>>,
}

type Tx = Transaction<SimOs>;

impl World {
    fn begin(&self, isolation: Isolation, durability: Durability) -> Tx {
        let options = Options { durability, isolation, command: "ours".into(), ..Options::default() };
        Transaction::begin(self.os.clone(), vec![self.domain.clone()], options).expect("begins")
    }

    fn committed(&self) -> Tx {
        self.begin(Isolation::Committed, Durability::Durable)
    }

    /// Another transaction, which commits.
    fn other(&self, act: impl FnOnce(&mut Tx) -> Verb<()>) {
        let mut tx = self.begin(Isolation::Serializable, Durability::None);
        act(&mut tx).expect("acts");
        tx.commit().expect("commits");
    }

    /// An outsider.
    fn store(&self, name: &[u8], bytes: &[u8]) {
        let file = self.os.open(&self.os.root(0), name, Open::Write).expect("opens");
        assert_eq!(self.os.pwrite(&file, bytes, 0), Ok(bytes.len()));
    }
}

fn find(tx: &mut Tx, path: &str) -> Verb<Node> {
    let mut at = tx.root(0);
    for name in path.split('/') {
        at = tx.lookup(at, name.as_bytes())?.ok_or(Errno::NOENT)?.0;
    }
    Ok(at)
}

fn read(tx: &mut Tx, node: Node) -> Verb<Vec<u8>> {
    let mut bytes = vec![0; 2 * COPIED_BYTES_MAX as usize];
    let got = tx.read_at(node, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn change(tx: &mut Tx, path: &str, bytes: &[u8]) -> Verb<()> {
    let node = find(tx, path)?;
    tx.open(node, Access::Write, false)?;
    tx.write_at(node, bytes, 0)?;
    tx.close(node);
    Ok(())
}

fn is_conflict<T>(ended: Result<T, CommitError>) -> bool {
    matches!(ended, Err(CommitError::Conflict(_)))
}

#[test]
fn what_was_only_read_is_no_fact_and_no_conflict() {
    play(|world| {
        let mut tx = world.committed();
        let node = find(&mut tx, "a/b/deep").unwrap();
        tx.open(node, Access::Read, false).unwrap();
        assert_eq!(read(&mut tx, node).unwrap(), b"contents");
        let dir = find(&mut tx, "a").unwrap();
        tx.readdir(dir).unwrap();
        assert_eq!(tx.lookup(tx.root(0), b"missing"), Ok(None));
        assert_eq!(tx.workset.facts().read_set(0).count(), 0);
        tx.close(node);
        world.other(|tx| change(tx, "a/b/deep", b"theirs"));
        world.other(|tx| tx.create(tx.root(0), b"missing", 0o644, CALLER).map(drop));
        world.store(b"read", b"theirs");
        assert!(tx.commit().is_ok());
    });
}

#[test]
fn what_changes_is_a_fact_with_the_directories_on_its_way() {
    play(|world| {
        let mut tx = world.committed();
        change(&mut tx, "a/b/deep", b"ours").unwrap();
        // Each is a name and attributes, the file bytes, too; of the root there is no name.
        assert_eq!(tx.workset.facts().read_set(0).count(), 1 + 2 + 2 + 3);
        // Nothing of it has changed, nor is anything else asked.
        world.other(|tx| change(tx, "other", b"theirs"));
        assert!(tx.commit().is_ok());
    });
    for way in ["a/b/deep", "a/b", "a"] {
        play(|world| {
            let mut tx = world.committed();
            change(&mut tx, "a/b/deep", b"ours").unwrap();
            world.other(|tx| {
                let node = find(tx, way)?;
                tx.setattr(node, &SetAttr { mode: Some(0o700), ..Default::default() }).map(drop)
            });
            assert!(is_conflict(tx.commit()), "{way}");
        });
    }
}

#[test]
fn an_open_file_stays_and_a_closed_one_is_looked_at_again() {
    play(|world| {
        let mut tx = world.committed();
        let node = find(&mut tx, "read").unwrap();
        tx.told(node);
        tx.open(node, Access::Read, false).unwrap();
        world.other(|tx| change(tx, "read", b"THEIRS"));
        world.store(b"read", b"HIS");
        assert_eq!(read(&mut tx, node).unwrap(), b"contents");
        let before = tx.getattr(node).unwrap();
        tx.close(node);
        assert_ne!(tx.getattr(node).unwrap().mtime, before.mtime);
        tx.open(node, Access::Read, false).unwrap();
        assert_eq!(read(&mut tx, node).unwrap(), b"HISIRSts");
        assert!(tx.commit().is_ok());
    });
}

#[test]
fn who_has_read_a_version_and_not_closed_it_changes_no_other_one() {
    for theirs in [true, false] {
        play(|world| {
            let mut tx = world.committed();
            let node = find(&mut tx, "read").unwrap();
            tx.open(node, Access::Read, false).unwrap();
            if theirs {
                world.other(|tx| change(tx, "read", b"theirs"));
            }
            let opened = tx.open(node, Access::Write, false);
            assert_eq!(matches!(opened, Err(VerbError::Doomed(_))), theirs, "{opened:?}");
        });
    }
}

#[test]
fn a_large_open_file_that_a_commit_changes_dooms_its_reader() {
    let size = COPIED_BYTES_MAX as usize + 1;
    for (in_place, by_outsider) in [(true, false), (false, false), (true, true)] {
        play(|world| {
            world.other(|tx| {
                let node = find(tx, "read")?;
                tx.setattr(node, &SetAttr { size: Some(size as u64), ..Default::default() }).map(drop)
            });
            let mut tx = world.committed();
            let node = find(&mut tx, "read").unwrap();
            tx.open(node, Access::Read, false).unwrap();
            assert_eq!(read(&mut tx, node).unwrap().len(), size);
            match (in_place, by_outsider) {
                (true, false) => world.other(|tx| change(tx, "read", b"theirs")),
                (true, true) => world.store(b"read", b"theirs"),
                _ => world.other(|tx| tx.rename(tx.root(0), b"other", tx.root(0), b"read", Rename::Replace)),
            }
            let told = tx.conflicts(9).unwrap().listed;
            let expected = in_place && !by_outsider;
            let is_told = told.iter().any(|one| one.what == ConflictKind::ContentsChangedWhileOpen);
            assert_eq!((is_told, told.len()), (expected, usize::from(expected)), "{told:?}");
            let again = read(&mut tx, node);
            assert_eq!(matches!(again, Err(VerbError::Doomed(_))), in_place && !by_outsider, "{again:?}");
        });
    }
}

#[test]
fn what_the_kernel_forgets_is_forgotten_and_nothing_else() {
    play(|world| {
        let mut tx = world.committed();
        let few = tx.workset.nodes_now();
        for n in 0..1000 {
            let dir = find(&mut tx, "a/b").unwrap();
            let node = find(&mut tx, "a/b/deep").unwrap();
            let above = find(&mut tx, "a").unwrap();
            for node in [above, dir, node] {
                assert!(tx.told(node));
            }
            tx.open(node, Access::Read, false).unwrap();
            // A directory goes with the last that is known in it, whichever is forgotten first.
            let order = if n % 2 == 0 { [above, dir, node] } else { [node, dir, above] };
            order.into_iter().for_each(|node| tx.forget_node(node, 1));
            assert_eq!(read(&mut tx, node).unwrap(), b"contents", "it is open");
            assert_eq!(tx.workset.nodes_now(), few + 3);
            tx.close(node);
            assert_eq!(tx.workset.nodes_now(), few);
        }
        // A changed object is known to the end.
        change(&mut tx, "a/b/deep", b"ours").unwrap();
        let node = find(&mut tx, "a/b/deep").unwrap();
        tx.told(node);
        tx.forget_node(node, 1);
        assert_eq!((find(&mut tx, "a/b/deep").unwrap(), tx.workset.nodes_now()), (node, few + 3));
        assert!(tx.commit().is_ok());
        assert!(world.os.open(&world.os.root(0), b"read", Open::Read).is_ok());
    });
}

#[test]
fn who_builds_on_what_he_has_read_of_a_result_without_durability_syncs_it() {
    for durability in [Durability::Durable, Durability::None] {
        play(|world| {
            world.other(|tx| change(tx, "read", b"theirs"));
            let unsynced = || !world.domain.table.unsynced().signature().is_empty();
            assert!(unsynced());
            let mut tx = world.begin(Isolation::Committed, durability);
            let node = find(&mut tx, "read").unwrap();
            tx.open(node, Access::Read, false).unwrap();
            tx.close(node);
            change(&mut tx, "other", b"theirs").unwrap();
            assert!(tx.commit().is_ok());
            assert_eq!(unsynced(), durability == Durability::None);
        });
    }
}

#[test]
fn an_outsider_can_put_no_directory_below_itself() {
    play(|world| {
        let mut tx = world.committed();
        let (above, below) = (find(&mut tx, "a").unwrap(), find(&mut tx, "a/b").unwrap());
        let root = world.os.root(0);
        let open = |dir, name| world.os.open(dir, name, Open::Directory).unwrap();
        let move_to = |from, to| world.os.rename(from, to, Rename::NoReplace).unwrap();
        let a = open(&root, b"a");
        move_to((&a, b"b"), (&root, b"b"));
        move_to((&root, b"a"), (&open(&root, b"b"), b"a"));
        // A process that works in `b` still has it where it was.
        assert_eq!(tx.lookup(below, b"a"), Err(Errno::STALE.into()));
        assert_eq!(tx.create(below, b"new", 0o644, CALLER).map(drop), Err(Errno::STALE.into()));
        // Looked up from the top all is where it is now.
        assert_eq!((find(&mut tx, "b").unwrap(), find(&mut tx, "b/a").unwrap()), (below, above));
        tx.create(above, b"new", 0o644, CALLER).unwrap();
        assert!(tx.commit().is_ok());
        world.os.stat_at(&open(&open(&root, b"b"), b"a"), b"new").unwrap();
    });
}

#[test]
fn a_number_that_is_given_again_is_told_apart() {
    play(|world| {
        let mut tx = world.committed();
        let mut last = None;
        for name in ["read", "other", "read"] {
            let node = find(&mut tx, name).unwrap();
            let now = (node, tx.generation(node));
            assert_ne!(last.replace(now), Some(now));
            tx.told(node);
            tx.forget_node(node, 1);
        }
        let nodes = tx.workset.nodes_now();
        let again = find(&mut tx, "other").unwrap();
        assert_eq!((Some(again), tx.workset.nodes_now()), (last.map(|(node, _)| node), nodes + 1));
    });
}
