//! Areas of subtransactions that were not made by one: nothing is obeyed in there.

use crate::domain::{Domain, Location};
use crate::outcome::{Isolation, Options};
use crate::transaction::{Caller, SetAttr, Transaction};
use crate::upkeep::finish_sub_areas;
use std::sync::Arc;
use systx_os::{Errno, FsInfo, FsKind, Open, Os};
use systx_sim::machine::{FsSpec, Machine, SimOs};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };

fn begin(os: &SimOs, isolation: Isolation) -> Transaction<SimOs> {
    let root = Arc::new(os.root(0));
    let domain =
        Domain::open(os, Location { root: root.clone(), parent: &*root, name: b".area" }).expect("opens");
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
            assert_eq!(tx.sub_areas(root), [] as [Vec<u8>; 0], "an area because of its name");
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
    assert_eq!(tx.sub_areas(root), std::slice::from_ref(&mine));
    let given = SetAttr { uid: Some(other.uid), ..Default::default() };
    assert_eq!(tx.setattr(area, &given).err(), Some(Errno::PERM.into()), "a log for another user's rights");
    assert_eq!(tx.rmdir(root, &mine), Ok(()));
    tx.abort();
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
    let site = || Location { root: root.clone(), parent: &*root, name: b".area" };
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
    assert!(refused.is_some_and(|why| why.contains("lost its table")), "discarded without a word");
    // One that has no log yet is nobody's work.
    os.mkdir(&root, b".new", 0o700).unwrap();
    let new = || Location { root: root.clone(), parent: &*root, name: b".new" };
    assert_eq!(finish_sub_areas(&os, &[new()]), Ok(Vec::new()));
    assert!(os.stat_at(&root, b".new").is_err());
}
