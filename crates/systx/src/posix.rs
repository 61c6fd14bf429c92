//! The calls of POSIX with all their arguments, for the C interface.
//!
//! Owns: what [`Dir`] and [`File`] leave out to be like [`std::fs`]: two directories in one call, flags, devices,
//! times by nanoseconds, extended attributes. No part of the Rust interface: it may change with any version.

#![allow(missing_docs, reason = "hidden: each is the call of its name")]

use crate::alone::Looked;
use crate::dir::Dir;
use crate::file::{File, Target};
use crate::open_options::OpenOptions;
use crate::permission::{self, READ, WRITE};
use crate::state::{Answer, Calling};
use crate::walk::{Last, Object, Start};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use systx_engine::acl;
use systx_engine::transaction::{Attr, Node, SetAttr, SetTime};
use systx_os::caller::{Caller, Capability};
use systx_os::outside::Outside;

pub use crate::sub::OpenPart;
pub use crate::transaction::Retry;
pub use systx_os::{Errno, FileType, Rename, Seek, SetXattr, Stat, Timestamp};

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Followed,
    Kept,
}

impl Link {
    fn last(self) -> Last {
        match self {
            Link::Followed => Last::Follow,
            Link::Kept => Last::Stay,
        }
    }
}

/// The object that open(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Any,
    /// O_DIRECTORY.
    Directory,
    /// O_PATH | O_DIRECTORY: not to be read.
    Place,
}

/// An open object.
pub enum Opened {
    File(File),
    Dir(Dir),
}

/// The identity that access(2) judges by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Real,
    /// AT_EACCESS.
    Effective,
}

/// A time of utimensat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Now,
    Omit,
    At(Timestamp),
}

impl Time {
    fn set(self) -> Option<SetTime> {
        match self {
            Time::Now => Some(SetTime::Now),
            Time::Omit => None,
            Time::At(time) => Some(SetTime::At(time)),
        }
    }
}

/// A name of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub ino: u64,
    pub kind: FileType,
}

/// A path, and the directory where it begins.
pub type At<'a> = (&'a Dir, &'a [u8]);

impl OpenOptions {
    /// Takes what open(2) takes.
    pub fn as_posix(mut self) -> OpenOptions {
        self.posix = true;
        self
    }
}

impl Calling<'_> {
    fn stat_of(&self, node: Node, attr: &Attr) -> Stat {
        let (dev, mnt_id) = self.state.mounts[self.state.engine.mount_of(node)].device_and_mount();
        Stat {
            dev,
            ino: attr.ino,
            mnt_id,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks: attr.blocks,
            blksize: attr.blksize,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            immutable: false,
            append_only: false,
        }
    }

    fn object_stat(&self, object: &Object) -> Stat {
        match object {
            Object::Inside { node, attr, .. } => self.stat_of(*node, attr),
            Object::Outside(outside) => *outside.stat(),
        }
    }

    /// The directory itself.
    fn start(&mut self, start: &Start) -> Answer<Object> {
        match start {
            Start::At(place) => self.object_of(place),
            Start::WorkingDirectory => self.find(start, b".", Last::Follow),
        }
    }

    /// The object at a path; an empty one is the directory itself.
    fn at(&mut self, start: &Start, path: &[u8], link: Link) -> Answer<Object> {
        match path {
            [] => self.start(start),
            path => self.find(start, path, link.last()),
        }
    }

    fn inside_at(&mut self, start: &Start, path: &[u8], link: Link) -> Answer<(Node, Attr)> {
        match self.at(start, path, link)? {
            Object::Inside { node, attr, .. } => Ok((node, attr)),
            Object::Outside(_) => Err(Errno::ROFS.into()),
        }
    }

    /// utimensat(2): vfs_utimes in linux/fs.
    fn set_times(&mut self, node: Node, attr: &Attr, atime: Time, mtime: Time) -> Answer<()> {
        let caller = self.caller()?;
        match (atime, mtime) {
            (Time::Omit, Time::Omit) => return Ok(()),
            (Time::Now, Time::Now) if !permission::is_owner(&caller, attr) => self.may(node, attr, WRITE)?,
            _ if !permission::is_owner(&caller, attr) => return Err(Errno::PERM.into()),
            _ => {}
        }
        let set = SetAttr { atime: atime.set(), mtime: mtime.set(), ..SetAttr::default() };
        self.state.engine.setattr(node, &set)?;
        Ok(())
    }

    /// Checks that an extended attribute may be read (xattr_permission in linux/fs).
    fn may_get(&mut self, node: Node, attr: &Attr, name: &[u8]) -> Answer<()> {
        match () {
            () if name.starts_with(b"security.") || name.starts_with(b"system.") => Ok(()),
            () if name.starts_with(b"trusted.") => {
                let may = self.caller()?.has(Capability::SysAdmin);
                may.then_some(()).ok_or(Errno::NODATA.into())
            }
            () => self.may(node, attr, READ),
        }
    }

    /// Checks that an extended attribute may be set or taken away (the same, cap_inode_setxattr in linux/security, and
    /// set_posix_acl).
    fn may_set(&mut self, node: Node, attr: &Attr, name: &[u8]) -> Answer<()> {
        const STICKY: u32 = 0o1000;
        let is_dir = FileType::from_mode(attr.mode) == Some(FileType::Directory);
        let caller = &*self.caller()?;
        let may = match () {
            () if name == acl::CAPABILITY => caller.has(Capability::Setfcap),
            () if name.starts_with(b"security.") || name.starts_with(b"trusted.") => {
                caller.has(Capability::SysAdmin)
            }
            () if name == acl::ACCESS || name == acl::DEFAULT => permission::is_owner(caller, attr),
            () if name.starts_with(b"system.") => true,
            () => {
                if is_dir && attr.mode & STICKY != 0 && !permission::is_owner(caller, attr) {
                    return Err(Errno::PERM.into());
                }
                return self.may(node, attr, WRITE);
            }
        };
        may.then_some(()).ok_or(Errno::PERM.into())
    }

    fn names_of_attributes(&mut self, node: Node) -> Answer<Vec<Vec<u8>>> {
        let mut names = self.state.engine.listxattr(node)?;
        let sees_trusted = self.caller()?.has(Capability::SysAdmin);
        names.retain(|name| sees_trusted || !name.starts_with(b"trusted."));
        Ok(names)
    }
}

/// The object behind an extended attribute's call; outside there are none.
fn served(object: Object) -> Answer<(Node, Attr)> {
    match object {
        Object::Inside { node, attr, .. } => Ok((node, attr)),
        Object::Outside(_) => Err(Errno::OPNOTSUPP.into()),
    }
}

impl Dir {
    /// # Errors
    /// `EINVAL` if the two are of different transactions.
    fn with(&self, other: &Dir) -> io::Result<()> {
        Arc::ptr_eq(&self.tx, &other.tx).then_some(()).ok_or(Errno::INVAL.into())
    }

    /// Checks that calls may still be made.
    pub fn posix_goes_on(&self) -> io::Result<()> {
        self.tx.goes_on(self.birth)
    }

    pub fn posix_open(&self, path: &[u8], options: &OpenOptions, wanted: Wanted) -> io::Result<Opened> {
        let link = if options.no_follow { Link::Kept } else { Link::Followed };
        if wanted != Wanted::Any {
            return self.posix_open_directory(path, link, wanted);
        }
        match self.open_with(Path::new(OsStr::from_bytes(path)), options) {
            Ok(opened) => Ok(Opened::File(opened)),
            Err(error) => {
                let reads = options.read && !options.write && !options.append && !options.truncate;
                let makes = options.create || options.create_new;
                let is_directory = error.raw_os_error() == Some(Errno::ISDIR.raw_os_error());
                if is_directory && reads && !makes {
                    self.posix_open_directory(path, link, Wanted::Directory)
                } else {
                    Err(error)
                }
            }
        }
    }

    fn posix_open_directory(&self, path: &[u8], link: Link, wanted: Wanted) -> io::Result<Opened> {
        self.call(|calling, start| {
            let object = calling.find(start, path, link.last())?;
            let place = calling.directory(&object)?;
            if let (Object::Inside { node, attr, .. }, Wanted::Any | Wanted::Directory) = (&object, wanted) {
                calling.may(*node, attr, READ)?;
            }
            Ok(Opened::Dir(Dir::new(&self.tx, calling, place)))
        })
    }

    pub fn posix_stat(&self, path: &[u8], link: Link) -> io::Result<Stat> {
        if path.is_empty() {
            return self.call(|calling, start| {
                let object = calling.start(start)?;
                Ok(calling.object_stat(&object))
            });
        }
        self.first_call(|calling, start| match calling.look(start, path, link.last())? {
            Looked::Alone(stat) => Ok(stat),
            Looked::Walked(object) => Ok(calling.object_stat(&object)),
        })
    }

    /// `want`: bits as of access(2).
    pub fn posix_access(&self, path: &[u8], link: Link, want: u32, identity: Identity) -> io::Result<()> {
        self.call(|calling, start| {
            if identity == Identity::Real {
                calling.set_caller(Caller::really_now()?);
            }
            match calling.at(start, path, link)? {
                Object::Inside { node, attr, .. } => calling.may(node, &attr, want),
                Object::Outside(_) if want & WRITE != 0 => Err(Errno::ROFS.into()),
                Object::Outside(outside) => {
                    Ok(permission::access(&*calling.caller()?, &Attr::from(outside.stat()), None, want)?)
                }
            }
        })
    }

    pub fn posix_mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.call(|calling, start| calling.make_directory(start, path, mode))
    }

    pub fn posix_rename(&self, from: &[u8], to: At<'_>, how: Rename) -> io::Result<()> {
        self.with(to.0)?;
        self.call(|calling, start| calling.rename((start, from), (&to.0.start, to.1), how))
    }

    pub fn posix_link(&self, from: &[u8], link: Link, to: At<'_>) -> io::Result<()> {
        self.with(to.0)?;
        self.call(|calling, start| calling.make_link((start, from), link.last(), (&to.0.start, to.1)))
    }

    pub fn posix_chmod(&self, path: &[u8], link: Link, mode: u32) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside_at(start, path, link)?;
            calling.set_mode(node, &attr, mode)
        })
    }

    pub fn posix_chown(&self, path: &[u8], link: Link, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside_at(start, path, link)?;
            calling.set_owner(node, &attr, uid, gid)
        })
    }

    pub fn posix_utimens(&self, path: &[u8], link: Link, atime: Time, mtime: Time) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside_at(start, path, link)?;
            calling.set_times(node, &attr, atime, mtime)
        })
    }

    pub fn posix_truncate(&self, path: &[u8], size: u64) -> io::Result<()> {
        self.call(|calling, start| {
            let object = calling.find(start, path, Last::Follow)?;
            match (object.kind(), object) {
                (FileType::Directory, _) => Err(Errno::ISDIR.into()),
                (FileType::File, Object::Inside { node, attr, .. }) => {
                    calling.may(node, &attr, WRITE)?;
                    calling.set_size(node, size)
                }
                (FileType::File, Object::Outside(_)) => Err(Errno::ROFS.into()),
                _ => Err(Errno::INVAL.into()),
            }
        })
    }

    /// Names, and `.` and `..`.
    pub fn posix_entries(&self) -> io::Result<Vec<Entry>> {
        self.call(|calling, start| {
            let here = calling.start(start)?;
            let place = calling.directory(&here)?;
            let here = calling.object_stat(&here).ino;
            // Without the right to search nothing is to be learned about it.
            let above = match calling.find(start, b"..", Last::Follow) {
                Ok(above) => calling.object_stat(&above).ino,
                Err(_) => here,
            };
            let dots = [(b".".to_vec(), here), (b"..".to_vec(), above)];
            let dots = dots.map(|(name, ino)| Entry { name, ino, kind: FileType::Directory });
            let entries = calling.list(&place)?;
            let entries = entries.iter().map(|entry| Entry {
                name: entry.file_name().as_bytes().to_vec(),
                ino: entry.ino(),
                kind: entry.kind(),
            });
            Ok(dots.into_iter().chain(entries).collect())
        })
    }

    pub fn posix_getxattr(&self, path: &[u8], link: Link, name: &[u8]) -> io::Result<Vec<u8>> {
        self.call(|calling, start| {
            let (node, attr) = served(calling.at(start, path, link)?)?;
            calling.may_get(node, &attr, name)?;
            Ok(calling.state.engine.getxattr(node, name)?)
        })
    }

    pub fn posix_listxattr(&self, path: &[u8], link: Link) -> io::Result<Vec<Vec<u8>>> {
        self.call(|calling, start| {
            let (node, _) = served(calling.at(start, path, link)?)?;
            calling.names_of_attributes(node)
        })
    }

    pub fn posix_setxattr(
        &self,
        path: &[u8],
        link: Link,
        (name, value): (&[u8], &[u8]),
        how: SetXattr,
    ) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside_at(start, path, link)?;
            calling.may_set(node, &attr, name)?;
            Ok(calling.state.engine.setxattr(node, name, value, how)?)
        })
    }

    pub fn posix_removexattr(&self, path: &[u8], link: Link, name: &[u8]) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside_at(start, path, link)?;
            calling.may_set(node, &attr, name)?;
            Ok(calling.state.engine.removexattr(node, name)?)
        })
    }
}
impl File {
    /// A call on a node and its attributes; `outside` is the answer where nothing is served.
    fn posix_call<T>(
        &self,
        call: impl FnOnce(&mut Calling<'_>, Node, &Attr) -> Answer<T>,
        outside: Errno,
    ) -> io::Result<T> {
        let inside = |calling: &mut Calling<'_>, node| {
            let attr = calling.state.engine.rights(node)?;
            call(calling, node, &attr)
        };
        self.call(inside, |_| Err(outside.into()))
    }

    pub fn posix_stat(&self) -> io::Result<Stat> {
        let inside = |calling: &mut Calling<'_>, node| {
            let attr = calling.state.engine.getattr(node)?;
            Ok(calling.stat_of(node, &attr))
        };
        self.call(inside, |file| {
            let fd = Arc::new(file.try_clone()?.into());
            Ok(*Outside::of(&fd)?.stat())
        })
    }

    /// The offset moves along.
    pub fn posix_seek_content(&self, from: u64, content: Seek) -> io::Result<u64> {
        let mut offset = self.offset();
        *offset = self.posix_call(
            |calling, node, _| Ok(calling.state.engine.seek(node, from, content)?),
            Errno::INVAL,
        )?;
        Ok(*offset)
    }

    pub fn posix_allocate(&self, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        self.may_write()?;
        let call = |calling: &mut Calling<'_>, node, _: &Attr| {
            calling.drop_privileges(node)?;
            Ok(calling.state.engine.fallocate(node, mode, offset, len)?)
        };
        self.posix_call(call, Errno::ROFS)
    }

    pub fn posix_chown(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.posix_call(|calling, node, attr| calling.set_owner(node, attr, uid, gid), Errno::ROFS)
    }

    pub fn posix_utimens(&self, atime: Time, mtime: Time) -> io::Result<()> {
        let call = |calling: &mut Calling<'_>, node, attr: &Attr| {
            // A descriptor for writing gives the right to say now.
            if (atime, mtime) == (Time::Now, Time::Now) && self.open.writes {
                let set = SetAttr { atime: atime.set(), mtime: mtime.set(), ..SetAttr::default() };
                calling.state.engine.setattr(node, &set)?;
                return Ok(());
            }
            calling.set_times(node, attr, atime, mtime)
        };
        self.posix_call(call, Errno::ROFS)
    }

    pub fn posix_getxattr(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let call = |calling: &mut Calling<'_>, node, attr: &Attr| {
            calling.may_get(node, attr, name)?;
            Ok(calling.state.engine.getxattr(node, name)?)
        };
        self.posix_call(call, Errno::OPNOTSUPP)
    }

    pub fn posix_listxattr(&self) -> io::Result<Vec<Vec<u8>>> {
        self.posix_call(|calling, node, _| calling.names_of_attributes(node), Errno::OPNOTSUPP)
    }

    pub fn posix_setxattr(&self, (name, value): (&[u8], &[u8]), how: SetXattr) -> io::Result<()> {
        let call = |calling: &mut Calling<'_>, node, attr: &Attr| {
            calling.may_set(node, attr, name)?;
            Ok(calling.state.engine.setxattr(node, name, value, how)?)
        };
        self.posix_call(call, Errno::ROFS)
    }

    pub fn posix_removexattr(&self, name: &[u8]) -> io::Result<()> {
        let call = |calling: &mut Calling<'_>, node, attr: &Attr| {
            calling.may_set(node, attr, name)?;
            Ok(calling.state.engine.removexattr(node, name)?)
        };
        self.posix_call(call, Errno::ROFS)
    }

    /// Returns true if it is of a file system that the transaction does not serve.
    pub fn posix_is_outside(&self) -> bool {
        matches!(self.open.target, Target::Outside(_))
    }
}
