//! Acts of an outsider on one name, or on the object behind it.

use super::super::world::open;
use systx_os::{Errno, Open, Os, Rename, SetXattr, Timestamp};
use systx_sim::machine::{run_process, Machine, Plant, SimFd, SimOs};

/// Bytes that no other process writes.
pub(super) const HIS: &[u8] = b"these bytes are the outsider's";

/// A time long ago, as `cp -p` and `touch -d` set it.
pub(super) const OLD_TIME: Timestamp = Timestamp { sec: 5, nsec: 5 };

/// One act of an outsider: a system call, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    CreateExclusive,
    CreateOrTruncate,
    Unlink,
    Rmdir,
    Mkdir,
    Symlink,
    /// A new name for a file of the outsider's.
    LinkMine,
    /// A name of the outsider's for the object.
    LinkElsewhere,
    RenameMineOver,
    RenameDirOver,
    ExchangeMine,
    RenameAway,
    RenameAwayAndBack,
    /// Away, and a directory of the outsider's at the name.
    ReplaceByDir,
    /// The object that was there before the transaction, again.
    RestoreOld,
    WriteStart,
    WriteMiddle,
    /// Through a descriptor that has been open since before the transaction.
    WriteOpenSinceBefore,
    Append,
    Truncate,
    Chmod,
    Chown,
    SetXattr,
    Utimens,
    /// Writes over the start, and sets an old time.
    WriteAndTimeBack,
    /// Empties it, and sets an old time.
    EmptyAndTimeBack,
    CreateInside,
    RenameParent,
}

pub(super) const ACTS: [Act; 28] = [
    Act::CreateExclusive,
    Act::CreateOrTruncate,
    Act::Unlink,
    Act::Rmdir,
    Act::Mkdir,
    Act::Symlink,
    Act::LinkMine,
    Act::LinkElsewhere,
    Act::RenameMineOver,
    Act::RenameDirOver,
    Act::ExchangeMine,
    Act::RenameAway,
    Act::RenameAwayAndBack,
    Act::ReplaceByDir,
    Act::RestoreOld,
    Act::WriteStart,
    Act::WriteMiddle,
    Act::WriteOpenSinceBefore,
    Act::Append,
    Act::Truncate,
    Act::Chmod,
    Act::Chown,
    Act::SetXattr,
    Act::Utimens,
    Act::WriteAndTimeBack,
    Act::EmptyAndTimeBack,
    Act::CreateInside,
    Act::RenameParent,
];

impl Act {
    /// Changes the object, not the name.
    pub(super) fn in_place(self) -> bool {
        use Act::*;
        matches!(
            self,
            CreateOrTruncate
                | WriteStart
                | WriteMiddle
                | WriteOpenSinceBefore
                | Append
                | Truncate
                | Chmod
                | Chown
                | SetXattr
                | Utimens
                | WriteAndTimeBack
                | EmptyAndTimeBack
        )
    }
}

/// Every name that the transaction touches, below `w`.
pub(super) const TARGETS: [&str; 18] = [
    "new",
    "newdir",
    "replaced",
    "removed",
    "moved",
    "dst/moved",
    "dst",
    "dirmoved",
    "dirmovedto",
    "linked",
    "link",
    "patched",
    "grown",
    "attr",
    "tree",
    "tree/x",
    "tree/sub",
    "untouched",
];

/// Objects that the outsider has before it begins.
pub(super) fn plant(machine: &Machine) {
    let objects = [
        ("o", Plant::Dir),
        ("o/mine", Plant::File(HIS)),
        ("o/dir", Plant::Dir),
        ("o/dir/in", Plant::File(HIS)),
        ("o/old", Plant::Dir),
        ("o/old/replaced", Plant::Link("w/replaced")),
        ("o/old/removed", Plant::Link("w/removed")),
        ("o/old/moved", Plant::Link("w/moved")),
        ("o/old/linked", Plant::Link("w/linked")),
        ("o/old/patched", Plant::Link("w/patched")),
    ];
    machine.plant(0, &objects).expect("planting");
    machine.settle();
    // Older than the last checkpoint, as the rest.
    machine.advance_ns(100_000_000_000);
    let os = machine.spawn("checkpoint");
    run_process(&os, || open(&os).expect("opens").checkpoint().expect("is made")).expect("lives");
    os.exit();
}

/// An outsider who is about to act.
pub(super) struct Outsider {
    os: SimOs,
    act: Act,
    target: &'static str,
    open: Option<SimFd>,
}

impl Outsider {
    pub(super) fn new(machine: &Machine, act: Act, target: &'static str) -> Outsider {
        let os = machine.outsider("outsider");
        let open = (act == Act::WriteOpenSinceBefore)
            .then(|| os.open_path(0, &format!("w/{target}"), Open::ReadWrite).ok())
            .flatten();
        Outsider { os, act, target, open }
    }

    /// Acts. `Err`: the (first) call failed, nothing of the outsider's is there.
    pub(super) fn act(&self) -> Result<(), Errno> {
        let os = &self.os;
        let (above, name) = self.target.rsplit_once('/').unwrap_or(("", self.target));
        let name = name.as_bytes();
        let dir = os.open_path(0, &format!("w/{above}"), Open::Path)?;
        let o = os.open_path(0, "o", Open::Path)?;
        let file = |how| os.open(&dir, name, how);
        match self.act {
            Act::CreateExclusive => {
                let made = os.create(&dir, name, 0o600)?;
                os.pwrite(&made, HIS, 0).map(drop)
            }
            Act::CreateOrTruncate => {
                let made = match os.create(&dir, name, 0o600) {
                    Err(Errno::EXIST) => file(Open::Write)?,
                    made => made?,
                };
                os.truncate(&made, 0)?;
                os.pwrite(&made, HIS, 0).map(drop)
            }
            Act::Unlink => os.unlink(&dir, name),
            Act::Rmdir => os.rmdir(&dir, name),
            Act::Mkdir => os.mkdir(&dir, name, 0o711),
            Act::Symlink => os.symlink(&dir, name, HIS),
            Act::LinkMine => os.link(&os.open(&o, b"mine", Open::Path)?, &dir, name),
            Act::LinkElsewhere => os.link(&file(Open::Path)?, &o, b"kept"),
            Act::RenameMineOver => os.rename((&o, b"mine"), (&dir, name), Rename::Replace),
            Act::RenameDirOver => os.rename((&o, b"dir"), (&dir, name), Rename::Replace),
            Act::ExchangeMine => os.rename((&o, b"mine"), (&dir, name), Rename::Exchange),
            Act::RenameAway => os.rename((&dir, name), (&o, b"away"), Rename::NoReplace),
            Act::RenameAwayAndBack => {
                os.rename((&dir, name), (&o, b"away"), Rename::NoReplace)?;
                os.rename((&o, b"away"), (&dir, name), Rename::NoReplace)
            }
            Act::ReplaceByDir => {
                os.rename((&dir, name), (&o, b"away"), Rename::NoReplace)?;
                os.rename((&o, b"dir"), (&dir, name), Rename::NoReplace)
            }
            Act::RestoreOld => {
                let old = os.open_path(0, "o/old", Open::Path)?;
                os.rename((&old, name), (&dir, name), Rename::Replace)
            }
            Act::WriteStart => os.pwrite(&file(Open::Write)?, HIS, 0).map(drop),
            Act::WriteMiddle => os.pwrite(&file(Open::Write)?, HIS, 620).map(drop),
            Act::WriteOpenSinceBefore => {
                let open = self.open.as_ref().ok_or(Errno::NOENT)?;
                os.pwrite(open, HIS, 620).map(drop)
            }
            Act::Append => {
                let size = os.stat_at(&dir, name)?.size;
                os.pwrite(&file(Open::Write)?, HIS, size).map(drop)
            }
            Act::Truncate => os.truncate(&file(Open::Write)?, 3),
            Act::Chmod => os.chmod(&file(Open::Path)?, 0o604),
            Act::Chown => os.chown(&file(Open::Path)?, 77, 78),
            Act::SetXattr => os.setxattr(&file(Open::Path)?, b"user.k", HIS, SetXattr::Any),
            Act::Utimens => os.utimens(&file(Open::Path)?, None, Some(OLD_TIME)),
            Act::WriteAndTimeBack => {
                let open = file(Open::Write)?;
                os.pwrite(&open, HIS, 0)?;
                os.utimens(&open, None, Some(OLD_TIME))
            }
            Act::EmptyAndTimeBack => {
                let open = file(Open::Write)?;
                os.truncate(&open, 0)?;
                os.utimens(&open, None, Some(OLD_TIME))
            }
            Act::CreateInside => {
                let made = os.create(&file(Open::Directory)?, b"his", 0o600)?;
                os.pwrite(&made, HIS, 0).map(drop)
            }
            Act::RenameParent => {
                let root = os.root(0);
                os.rename((&root, b"w"), (&root, b"v"), Rename::NoReplace)
            }
        }
    }
}
