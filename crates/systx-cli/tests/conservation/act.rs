//! Acts of an outsider on a name, and what of them can be looked for afterwards.

use super::world::{HIS, TARGETS};
use rustix::fs::{RenameFlags, XattrFlags, CWD};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

macro_rules! acts {
    ($($name:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Act {
            $($name,)*
        }
        pub const ACTS: [Act; 20] = [$(Act::$name,)*];
    };
}

acts! {
    CreateExclusive,
    CreateOrTruncate,
    Unlink,
    Rmdir,
    Mkdir,
    Symlink,
    LinkMine,
    LinkElsewhere,
    RenameMineOver,
    RenameDirOver,
    ExchangeMine,
    RenameAway,
    WriteStart,
    WriteOpenSinceBefore,
    Append,
    Chmod,
    Chown,
    SetXattr,
    Utimens,
    CreateInside,
}

/// Trace of the outsider's that the act left at its place.
pub enum Leaves {
    /// `HIS`, which no other process writes.
    Words,
    /// The file that holds `MINE`, which the outsider had before.
    Mine,
    /// The directory with `DIR` in it, which the outsider had before.
    Dir,
    Neither,
}

impl Act {
    pub fn does(self, tree: &Path, target: &str, open: Option<&File>) -> Result<()> {
        let (name, mine, dir) = (tree.join(target), tree.join("his/mine"), tree.join("his/dir"));
        let rename = |how| rustix::fs::renameat_with(CWD, &mine, CWD, &name, how).map_err(Into::into);
        match self {
            Act::CreateExclusive => File::create_new(name)?.write_all(HIS.as_bytes()),
            Act::CreateOrTruncate => File::create(name)?.write_all(HIS.as_bytes()),
            Act::Unlink => std::fs::remove_file(name),
            Act::Rmdir => std::fs::remove_dir(name),
            Act::Mkdir => std::fs::create_dir(name),
            Act::Symlink => std::os::unix::fs::symlink(HIS, name),
            Act::LinkMine => std::fs::hard_link(mine, name),
            Act::LinkElsewhere => std::fs::hard_link(name, tree.join("his/kept")),
            Act::RenameMineOver => rename(RenameFlags::empty()),
            Act::RenameDirOver => std::fs::rename(dir, name),
            Act::ExchangeMine => rename(RenameFlags::EXCHANGE),
            Act::RenameAway => std::fs::rename(name, tree.join("his/away")),
            Act::WriteStart => OpenOptions::new().write(true).open(name)?.write_all_at(HIS.as_bytes(), 0),
            Act::WriteOpenSinceBefore => {
                let file = open.ok_or(std::io::ErrorKind::NotFound)?;
                file.write_all_at(HIS.as_bytes(), 0)
            }
            Act::Append => OpenOptions::new().append(true).open(name)?.write_all(HIS.as_bytes()),
            Act::Chmod => std::fs::set_permissions(name, PermissionsExt::from_mode(0o604)),
            Act::Chown => std::os::unix::fs::lchown(name, Some(77), Some(78)),
            Act::SetXattr => rustix::fs::lsetxattr(name, "user.his", HIS.as_bytes(), XattrFlags::empty())
                .map_err(Into::into),
            Act::Utimens => File::open(name)?.set_modified(std::time::UNIX_EPOCH),
            Act::CreateInside => std::fs::write(name.join("his"), HIS),
        }
    }

    /// The names to which it can be done.
    pub fn targets(self) -> &'static [&'static str] {
        use Act::*;
        match self {
            CreateExclusive | Mkdir | Symlink | LinkMine => &["new", "newdir", "dst/moved"],
            RenameDirOver => &["newdir", "new", "dst/moved"],
            Rmdir | CreateInside => &["newdir", "gone", "dst"],
            _ => &TARGETS,
        }
    }

    pub fn leaves(self) -> Leaves {
        use Act::*;
        match self {
            CreateExclusive | CreateOrTruncate | Symlink | WriteStart | WriteOpenSinceBefore | Append
            | SetXattr | CreateInside => Leaves::Words,
            LinkMine | RenameMineOver | ExchangeMine => Leaves::Mine,
            RenameDirOver => Leaves::Dir,
            Unlink | Rmdir | Mkdir | LinkElsewhere | RenameAway | Chmod | Chown | Utimens => Leaves::Neither,
        }
    }

    /// Returns the name that the outsider has then for what was at the target.
    pub fn takes_to(self) -> Option<&'static str> {
        match self {
            Act::LinkElsewhere => Some("his/kept"),
            Act::RenameAway => Some("his/away"),
            Act::ExchangeMine => Some("his/mine"),
            _ => None,
        }
    }

    /// Changes the object and not the name.
    pub fn in_place(self) -> bool {
        use Act::*;
        matches!(
            self,
            CreateOrTruncate
                | WriteStart
                | WriteOpenSinceBefore
                | Append
                | Chmod
                | Chown
                | SetXattr
                | Utimens
        )
    }
}
