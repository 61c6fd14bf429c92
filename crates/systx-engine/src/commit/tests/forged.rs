//! Areas and logs that nobody of systx has made: nothing is obeyed in there.

use crate::domain::{Bounds, Domain, Location};
use crate::outcome::{Isolation, Options};
use crate::transaction::{Caller, SetAttr, Transaction};
use crate::upkeep::finish_sub_areas;
use std::sync::Arc;
use systx_os::{Errno, FsInfo, FsKind, Open, Os, Rename};
use systx_sim::machine::{Crash, FsSpec, Machine, Plant, SimFd, SimOs};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };

fn begin(os: &SimOs, isolation: Isolation) -> Transaction<SimOs> {
    let root = Arc::new(os.root(0));
    let domain = Domain::open(
        os,
        Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".area" },
    )
    .expect("opens");
    Transaction::begin(os.clone(), vec![domain], Options { isolation, ..Options::default() }).unwrap()
}

/// An archive may bring such a directory along, with a log in it.
#[test]
fn a_directory_that_is_called_as_areas_are_is_a_directory_like_others() {
    for isolation in [Isolation::Serializable, Isolation::Committed] {
        let os = Machine::with(FsKind::Ext4).spawn("extracts");
        os.mkdir(&os.root(0), b".systx.sub-7", 0o755).unwrap();
        let mut tx = begin(&os, isolation);
        let root = tx.root(0);
        // One that is there already, and one that is new.
        assert!(tx.lookup(root, b".systx.sub-7").unwrap().is_some(), "an area because of its name");
        for name in [&b".systx.sub-0"[..], b".systx.sub-00000000000000000000000000000001"] {
            tx.mkdir(root, name, 0o700, ROOT).unwrap();
            assert_eq!(tx.sub_areas(root, 0), [] as [Vec<u8>; 0], "an area because of its name");
        }
        tx.commit().unwrap();
        assert!(os.stat_at(&os.root(0), b".systx.sub-0").is_ok());
    }
}

#[test]
fn the_name_of_an_area_is_its_users_own() {
    let os = Machine::with(FsKind::Ext4).spawn("makes");
    let mut tx = begin(&os, Isolation::Serializable);
    let (root, other) = (tx.root(0), Caller { uid: 7, gid: 7, umask: 0 });
    let (mine, theirs) = (tx.sub_area_name(ROOT.uid), tx.sub_area_name(other.uid));
    assert!(mine != theirs && mine == tx.sub_area_name(ROOT.uid) && mine.len() == ".systx.sub-".len() + 32);
    assert_eq!(tx.mkdir(root, &mine, 0o700, other).err(), Some(Errno::ACCESS.into()));
    let area = tx.mkdir(root, &mine, 0o700, ROOT).unwrap().0;
    assert_eq!(tx.sub_areas(root, 0), std::slice::from_ref(&mine));
    assert_eq!(tx.sub_areas(root, other.uid), [] as [Vec<u8>; 0], "another user is told the name");
    let given = SetAttr { uid: Some(other.uid), ..Default::default() };
    assert_eq!(tx.setattr(area, &given).err(), Some(Errno::PERM.into()), "a log for another user's rights");
    assert_eq!(tx.rmdir(root, &mine), Ok(()));
    tx.abort();
}

/// Its user can damage it in any way, and must not keep root's transaction from committing by that.
#[test]
fn what_a_user_leaves_in_an_area_is_an_ordinary_directory_in_the_end() {
    for staged in [false, true] {
        let os = Machine::with(FsKind::Ext4).spawn("ends");
        let top = os.root(0);
        os.mkdir(&top, b"his", 0o755).unwrap();
        os.create(&os.open(&top, b"his", Open::Path).unwrap(), b"systx-displaced.1", 0o600).unwrap();
        os.mkdir(&top, b"old", 0o755).unwrap();
        let mut tx = begin(&os, Isolation::Serializable);
        let (root, user) = (tx.root(0), Caller { uid: 7, gid: 7, umask: 0 });
        let his = if staged {
            tx.mkdir(root, b"new", 0o755, user).unwrap().0
        } else {
            tx.lookup(root, b"his").unwrap().unwrap().0
        };
        let (name, roots) = (tx.sub_area_name(user.uid), tx.sub_area_name(ROOT.uid));
        let area = tx.mkdir(his, &name, 0o700, user).unwrap().0;
        tx.mknod(area, b"pipe", 0o010600, 0, user).unwrap();
        tx.rename(root, b"old", area, b"taken", Rename::NoReplace).unwrap();
        tx.mkdir(root, &roots, 0o700, ROOT).unwrap();
        let path = if staged { "new/systx-displaced.1" } else { "his/systx-displaced.2" };
        assert_eq!(tx.set_aside_sub_areas(), Ok(vec![(7, path.into())]), "root's own is left out, too");
        assert_eq!(tx.set_aside_sub_areas(), Ok(Vec::new()));
        assert_eq!(
            tx.sub_areas(root, 0),
            std::slice::from_ref(&roots),
            "root's own is left out without a word"
        );
        tx.rmdir(root, &roots).unwrap();
        tx.commit().unwrap();
        let mut at = os.root(0);
        for name in path.split('/') {
            at = os.open(&at, name.as_bytes(), Open::Path).expect("it is there");
        }
        let mut names: Vec<_> = os.read_dir(&at).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, [&b"pipe"[..], b"taken"]);
        let stat = os.stat(&at).unwrap();
        assert_eq!((stat.uid, stat.perm()), (7, 0o700));
    }
}

/// A view is a file system of which the area's table can't be older than its log.
#[test]
fn the_log_of_a_subtransaction_is_never_replayed_without_its_table() {
    let mut spec = FsSpec::new(FsKind::Other(0x6573_5546));
    spec.info.life = FsInfo::LIVES_ONCE;
    let machine = Machine::new(1, &[spec]);
    let os = machine.spawn("writes");
    let root = Arc::new(os.root(0));
    os.mkdir(&root, b"made", 0o755).unwrap();
    let site = || Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".area" };
    let domain = Domain::open(&os, site()).expect("opens");
    let mut tx = Transaction::begin(os.clone(), vec![domain.clone()], Options::default()).unwrap();
    let made = tx.lookup(tx.root(0), b"made").unwrap().unwrap().0;
    tx.setattr(made, &SetAttr { mode: Some(0o6755), ..Default::default() }).unwrap();
    tx.commit().unwrap();
    drop(domain);
    os.chmod(&os.open(&root, b"made", Open::Path).unwrap(), 0o755).unwrap();
    let area = os.open(&root, b".area", Open::Directory).unwrap();
    os.unlink(&area, b"table").unwrap();
    let refused = finish_sub_areas(&os, &[site()]).err();
    assert_eq!(os.stat_at(&root, b"made").unwrap().perm(), 0o755, "replayed without its table");
    assert!(
        refused.as_ref().is_some_and(|why| why.to_string().contains("lost its table")),
        "discarded without a word: {refused:?}"
    );
    // An area without a log holds no unfinished work.
    os.mkdir(&root, b".new", 0o700).unwrap();
    let new = || Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".new" };
    assert_eq!(finish_sub_areas(&os, &[new()]).unwrap(), []);
    assert!(os.stat_at(&root, b".new").is_err());
}

/// Root of a container without the right to open handles can write any log into its volume. A privileged systx that
/// has the volume's area must not take it further: a handle in it leads anywhere on the file system.
#[test]
fn a_log_in_a_part_of_a_file_system_reaches_nothing_outside_of_it() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let machine = Machine::with(kind);
        machine
            .plant(0, &[("f", Plant::File(b"f")), ("part", Plant::Dir), ("part/f", Plant::File(b"f"))])
            .unwrap();
        machine.settle();
        let os = machine.spawn("forges");
        let mut tx = begin(&os, Isolation::Serializable);
        let (top, wide) = (tx.root(0), SetAttr { mode: Some(0o777), ..Default::default() });
        let part = tx.lookup(top, b"part").unwrap().unwrap().0;
        for dir in [top, part] {
            let file = tx.lookup(dir, b"f").unwrap().unwrap().0;
            tx.setattr(file, &wide).unwrap();
            tx.mkdir(dir, b"new", 0o755, ROOT).unwrap();
        }
        tx.commit().unwrap();
        os.exit();
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
        let os = machine.spawn("recovers");
        let top = os.root(0);
        let part = Arc::new(os.open(&top, b"part", Open::Directory).unwrap());
        os.rename((&top, b".area"), (&part, b".area"), Rename::NoReplace).unwrap();
        let site =
            Location { root: part.clone(), bounds: Bounds::at(b"/part"), parent: &*part, name: b".area" };
        let opened = Domain::open(&os, site).map(drop);
        let mode = |dir, name: &[u8]| os.stat_at(dir, name).map(|stat| stat.perm());
        let outside = (mode(&top, b"f"), mode(&top, b"new"));
        assert_eq!(outside, (Ok(0o644), Err(Errno::NOENT)), "{kind:?}: reached outside: {opened:?}");
    }
}

/// What belongs to the part is found there by its path.
#[test]
fn a_log_in_a_part_of_a_file_system_is_redone_in_it() {
    let machine = Machine::with(FsKind::Ext4);
    machine
        .plant(0, &[("part", Plant::Dir), ("part/d", Plant::Dir), ("part/d/f", Plant::File(b"f"))])
        .unwrap();
    machine.settle();
    let os = machine.spawn("commits");
    let part = |os: &SimOs| Arc::new(os.open(&os.root(0), b"part", Open::Directory).unwrap());
    let open = |os: &SimOs, part: &Arc<SimFd>| {
        let bounds = Bounds::at(b"part");
        Domain::open(os, Location { root: part.clone(), bounds, parent: &**part, name: b".area" }).unwrap()
    };
    let domain = open(&os, &part(&os));
    let mut tx = Transaction::begin(os.clone(), vec![domain], Options::default()).unwrap();
    let d = tx.lookup(tx.root(0), b"d").unwrap().unwrap().0;
    let file = tx.lookup(d, b"f").unwrap().unwrap().0;
    tx.setattr(file, &SetAttr { mode: Some(0o777), ..Default::default() }).unwrap();
    tx.mkdir(d, b"new", 0o755, ROOT).unwrap();
    tx.commit().unwrap();
    os.exit();
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    let os = machine.spawn("recovers");
    let part = part(&os);
    drop(open(&os, &part));
    let d = os.open(&part, b"d", Open::Path).unwrap();
    assert_eq!(os.stat_at(&d, b"f").map(|stat| stat.perm()), Ok(0o777), "lost");
    assert!(os.stat_at(&d, b"new").is_ok(), "lost");
}
