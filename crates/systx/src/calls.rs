//! The file calls of a transaction: the engine's verbs behind paths and permissions.
//!
//! Guarantees: results and error numbers are those of the plain system call made by the calling thread;
//! nothing outside of the transaction is changed. Does not: know handles (`dir`, `file`) or the lock
//! (`state`).

use crate::dir_entry::DirEntry;
use crate::open_options::OpenOptions;
use crate::options::Unsupported;
use crate::permission::{self, READ, SEARCH, WRITE};
use crate::place::Place;
use crate::state::{Answer, Calling, Fault};
use crate::walk::{End, Last, Object, Start, PATH_BYTES_MAX};
use std::os::fd::OwnedFd;
use systx_engine::acl::CAPABILITY;
use systx_engine::outcome::VerbError;
use systx_engine::transaction::{Access, AppendedAt, Attr, Caller, Node, SetAttr};
use systx_os::caller::Capability;
use systx_os::outside::Outside;
use systx_os::{Errno, FileType, Rename};

/// A path, and where it begins.
pub(crate) type Path<'a> = (&'a Start, &'a [u8]);

/// An open file.
pub(crate) enum Opened {
    Inside(Node),
    Outside(OwnedFd),
}

/// The bytes of a file, or the file of another file system.
pub(crate) enum Whole {
    Bytes(Vec<u8>),
    Outside(OwnedFd),
}

/// A directory of the transaction.
#[derive(Clone, Copy)]
struct Inside {
    node: Node,
    attr: Attr,
}

impl Calling<'_> {
    /// A directory in which a name is to change.
    ///
    /// # Errors
    /// `EROFS` if the transaction does not serve it; `EACCES`.
    fn changeable(&mut self, dir: &Place) -> Answer<Inside> {
        let Place::Inside { node, .. } = dir else { return Err(Errno::ROFS.into()) };
        let attr = self.state.engine.rights(*node)?;
        self.may(*node, &attr, WRITE | SEARCH)?;
        Ok(Inside { node: *node, attr })
    }

    fn maker(&mut self) -> Answer<Caller> {
        let caller = self.caller()?;
        Ok(Caller { uid: caller.uid, gid: caller.gid, umask: self.umask()? })
    }

    /// The name of a new object, where it is missing.
    fn missing(end: &End, is_dir: bool) -> Result<&[u8], Errno> {
        match (&end.name, &end.object) {
            (Some(_), None) if end.slash && !is_dir => Err(Errno::NOENT),
            (Some(name), None) => Ok(name),
            _ => Err(Errno::EXIST),
        }
    }

    /// open(2).
    pub fn open(&mut self, start: &Start, path: &[u8], options: &OpenOptions) -> Answer<Opened> {
        let access = options.access()?;
        let creates = options.create || options.create_new;
        let last = match () {
            () if creates && path.ends_with(b"/") => Last::Name,
            () if options.create_new || options.no_follow => Last::Stay,
            () => Last::Follow,
        };
        let end = if options.truncate {
            self.by_files(|calling| calling.walk(start, path, last))?
        } else {
            self.walk(start, path, last)?
        };
        let object = match (&end.name, &end.object) {
            (Some(_), _) if creates && end.slash => return Err(Errno::ISDIR.into()),
            (Some(name), None) if creates => return self.create(&end.dir, name, options.mode, access),
            (Some(_), None) => return Err(Errno::NOENT.into()),
            (_, Some(object)) => object.clone(),
            (None, None) => self.object_of(&end.dir)?,
        };
        match object.kind() {
            _ if options.create_new => Err(Errno::EXIST.into()),
            FileType::Directory => {
                // It could be opened, but not as a file.
                if let (Object::Inside { node, attr, .. }, Access::Read, false) = (&object, access, creates) {
                    self.may(*node, attr, READ)?;
                }
                Err(Errno::ISDIR.into())
            }
            FileType::Symlink => Err(Errno::LOOP.into()),
            FileType::File => self.open_file(&end.dir, &object, options, access),
            FileType::CharDevice => match &object {
                Object::Outside(outside) => Ok(Opened::Outside(outside.open(access != Access::Read)?)),
                Object::Inside { node, .. } => self.open_at_once("opening a device", *node, access),
            },
            _ => match &object {
                Object::Outside(outside) => {
                    self.open_outside("opening a FIFO, socket or device", outside, access)
                }
                Object::Inside { node, .. } => {
                    self.open_at_once("opening a FIFO, socket or device", *node, access)
                }
            },
        }
    }

    /// Opens what can't be held back where that is allowed: without waiting, as it is this transaction's other calls
    /// that would wait.
    fn open_at_once(&mut self, what: &str, node: Node, access: Access) -> Answer<Opened> {
        match self.allowed(what, node) {
            Some(outside) => Ok(Opened::Outside(outside.open(access != Access::Read)?)),
            None => Err(self.unsupported(what)),
        }
    }

    fn open_outside(&mut self, what: &str, outside: &Outside, access: Access) -> Answer<Opened> {
        if self.state.unsupported != Unsupported::Allow {
            return Err(self.unsupported(what));
        }
        let opened = outside.open(access != Access::Read)?;
        self.state.allowed.push(what.into());
        Ok(Opened::Outside(opened))
    }

    /// open(2), read(2) to the end, close(2).
    pub fn read_whole(&mut self, start: &Start, path: &[u8]) -> Answer<Whole> {
        let opened = self.by_files(|calling| calling.open(start, path, &OpenOptions::new().read(true)));
        let node = match opened? {
            Opened::Inside(node) => node,
            Opened::Outside(fd) => return Ok(Whole::Outside(fd)),
        };
        let read = self.read_to_end(node);
        self.state.engine.close(node);
        read.map(Whole::Bytes)
    }

    fn read_to_end(&mut self, node: Node) -> Answer<Vec<u8>> {
        // A file of the transaction is as long as it says.
        let size = usize::try_from(self.state.engine.getattr(node)?.size).map_err(|_| Errno::FBIG)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Errno::NOMEM)?;
        bytes.resize(size, 0);
        let mut end = 0;
        while end < size {
            match self.state.engine.read_at(node, &mut bytes[end..], end as u64)? {
                0 => break,
                n => end += n,
            }
        }
        bytes.truncate(end);
        Ok(bytes)
    }

    fn open_file(
        &mut self,
        dir: &Place,
        object: &Object,
        options: &OpenOptions,
        access: Access,
    ) -> Answer<Opened> {
        let (node, attr) = match object {
            Object::Outside(_) if access != Access::Read || options.truncate => {
                return Err(Errno::ROFS.into())
            }
            Object::Outside(outside) => return Ok(Opened::Outside(outside.open(false)?)),
            Object::Inside { node, attr, .. } => (*node, *attr),
        };
        let want = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::ReadWrite => READ | WRITE,
        };
        if options.create {
            if let Place::Inside { node, .. } = dir {
                let dir = self.state.engine.getattr(*node)?;
                let caller = self.caller()?;
                permission::open_to_create(&caller, self.shared.protected, &dir, &attr)?;
            }
        }
        self.may(node, &attr, want | if options.truncate { WRITE } else { 0 })?;
        if options.truncate {
            self.drop_privileges(node)?;
        }
        self.state.engine.open(node, access, options.truncate)?;
        Ok(Opened::Inside(node))
    }

    fn create(&mut self, dir: &Place, name: &[u8], mode: u32, access: Access) -> Answer<Opened> {
        let dir = self.changeable(dir)?.node;
        let maker = self.maker()?;
        let (node, _) = self.state.engine.create(dir, name, mode & 0o7777, maker)?;
        self.state.engine.open(node, access, false)?;
        Ok(Opened::Inside(node))
    }

    /// Takes from a file what a change of its bytes takes (file_remove_privs in linux/fs).
    pub fn drop_privileges(&mut self, node: Node) -> Answer<()> {
        match self.state.engine.getxattr(node, CAPABILITY) {
            Ok(_) => self.state.engine.removexattr(node, CAPABILITY)?,
            Err(VerbError::Os(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let attr = self.state.engine.rights(node)?;
        // Most files have none, whoever asks.
        if attr.mode & permission::SET_IDS == 0 {
            return Ok(());
        }
        let caller = self.caller()?;
        let lost = permission::privileges_lost(&caller, &attr);
        if lost != 0 && !caller.has(Capability::Fsetid) {
            let mode = Some(attr.mode & 0o7777 & !lost);
            self.state.engine.setattr(node, &SetAttr { mode, kill_priv: true, ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// mkdir(2).
    pub fn make_directory(&mut self, start: &Start, path: &[u8], mode: u32) -> Answer<()> {
        let end = self.walk(start, path, Last::Name)?;
        let name = Self::missing(&end, true)?;
        let dir = self.changeable(&end.dir)?;
        let maker = self.maker()?;
        self.state.engine.mkdir(dir.node, name, mode & 0o1777, maker)?;
        Ok(())
    }

    /// symlink(2).
    pub fn make_symlink(&mut self, start: &Start, target: &[u8], path: &[u8]) -> Answer<()> {
        match target {
            [] => return Err(Errno::NOENT.into()),
            target if target.contains(&0) => return Err(Errno::INVAL.into()),
            target if target.len() > PATH_BYTES_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ => {}
        }
        let end = self.walk(start, path, Last::Name)?;
        let name = Self::missing(&end, false)?;
        let dir = self.changeable(&end.dir)?;
        let maker = self.maker()?;
        self.state.engine.symlink(dir.node, name, target, maker)?;
        Ok(())
    }

    /// linkat(2). The order of checks is that of do_linkat in linux/fs.
    pub fn make_link(&mut self, from: Path<'_>, last: Last, to: Path<'_>) -> Answer<()> {
        let object = self.find(from.0, from.1, last)?;
        let end = self.walk(to.0, to.1, Last::Name)?;
        let name = Self::missing(&end, false)?;
        let (Object::Inside { node, attr, mount }, Place::Inside { node: dir, mount: there }) =
            (&object, &end.dir)
        else {
            let is_inside = matches!(end.dir, Place::Inside { .. });
            return Err(if is_inside { Errno::XDEV } else { Errno::ROFS }.into());
        };
        // Also two windows on one file system are two to link(2).
        if mount != there || self.state.engine.mount_of(*node) != self.state.engine.mount_of(*dir) {
            return Err(Errno::XDEV.into());
        }
        let list = self.list_of(*node, attr)?;
        let caller = self.caller()?;
        permission::link(&caller, self.shared.protected, attr, list.as_ref())?;
        let dir = self.changeable(&end.dir)?;
        if object.kind() == FileType::Directory {
            return Err(Errno::PERM.into());
        }
        self.state.engine.link(*node, dir.node, name)?;
        Ok(())
    }

    /// Checks that a name may be taken from its object, in a directory that may change.
    fn take(&mut self, dir: &Place, object: &Object) -> Answer<Node> {
        let dir = self.changeable(dir)?;
        // Something is mounted there.
        let Object::Inside { attr, .. } = object else { return Err(Errno::BUSY.into()) };
        let caller = self.caller()?;
        permission::take(&caller, &dir.attr, attr)?;
        Ok(dir.node)
    }

    /// unlink(2).
    pub fn unlink(&mut self, start: &Start, path: &[u8]) -> Answer<()> {
        let end = self.walk(start, path, Last::Name)?;
        let Some(name) = &end.name else { return Err(Errno::ISDIR.into()) };
        match &end.object {
            None => Err(Errno::NOENT.into()),
            Some(object) if end.slash => {
                let is_dir = object.kind() == FileType::Directory;
                Err(if is_dir { Errno::ISDIR } else { Errno::NOTDIR }.into())
            }
            // A mount point that is a directory is one before it is busy.
            Some(object @ Object::Outside(_))
                if object.kind() == FileType::Directory && matches!(end.dir, Place::Inside { .. }) =>
            {
                self.changeable(&end.dir)?;
                Err(Errno::ISDIR.into())
            }
            Some(object) => {
                let dir = self.take(&end.dir, object)?;
                Ok(self.state.engine.unlink(dir, name)?)
            }
        }
    }

    /// rmdir(2).
    pub fn rmdir(&mut self, start: &Start, path: &[u8]) -> Answer<()> {
        let end = self.walk(start, path, Last::Name)?;
        let Some(name) = &end.name else {
            let last = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
            return Err(match last {
                Some(b".") => Errno::INVAL.into(),
                Some(b"..") => Errno::NOTEMPTY.into(),
                _ => Errno::BUSY.into(),
            });
        };
        let Some(object) = &end.object else { return Err(Errno::NOENT.into()) };
        let dir = self.take(&end.dir, object)?;
        Ok(self.state.engine.rmdir(dir, name)?)
    }

    /// renameat2(2). The order of checks is that of do_renameat2 in linux/fs.
    pub fn rename(&mut self, from: Path<'_>, to: Path<'_>, how: Rename) -> Answer<()> {
        let old = self.walk(from.0, from.1, Last::Name)?;
        let new = self.walk(to.0, to.1, Last::Name)?;
        let (
            Place::Inside { node: old_dir, mount: old_mount },
            Place::Inside { node: new_dir, mount: new_mount },
        ) = (&old.dir, &new.dir)
        else {
            let is_inside = matches!(new.dir, Place::Inside { .. });
            return Err(if is_inside { Errno::XDEV } else { Errno::ROFS }.into());
        };
        let across = old_mount != new_mount;
        let (old_dir, new_dir) = (*old_dir, *new_dir);
        // Also two windows on one file system are two to rename(2).
        if across || self.state.engine.mount_of(old_dir) != self.state.engine.mount_of(new_dir) {
            return Err(Errno::XDEV.into());
        }
        let (Some(name), Some(new_name)) = (&old.name, &new.name) else {
            let is_there = how == Rename::NoReplace && old.name.is_some();
            return Err(if is_there { Errno::EXIST } else { Errno::BUSY }.into());
        };
        let Some(object) = &old.object else { return Err(Errno::NOENT.into()) };
        match (how, &new.object) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (Rename::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        let is_dir = object.kind() == FileType::Directory;
        let is_exchange = how == Rename::Exchange;
        let other_is_dir =
            new.object.as_ref().is_some_and(|other| other.kind() == FileType::Directory) && is_exchange;
        if (!is_dir && (old.slash || (new.slash && !is_exchange)))
            || (is_exchange && !other_is_dir && new.slash)
        {
            return Err(Errno::NOTDIR.into());
        }
        let node = |object: &Object| match object {
            Object::Inside { node, .. } => Some(*node),
            Object::Outside(_) => None,
        };
        let (moved, target) = (node(object), new.object.as_ref().map(node));
        if moved.is_some_and(|moved| self.is_within(new_dir, moved)) {
            return Err(Errno::INVAL.into());
        }
        if target.flatten().is_some_and(|target| self.is_within(old_dir, target)) {
            return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        if moved.is_some() && target == Some(moved) {
            return Ok(());
        }
        self.take(&old.dir, object)?;
        match &new.object {
            Some(object) => self.take(&new.dir, object)?,
            None => self.changeable(&new.dir)?.node,
        };
        // The `..` of a directory changes.
        for (object, is_dir) in [(Some(object), is_dir), (new.object.as_ref(), other_is_dir)] {
            if let (Some(Object::Inside { node, attr, .. }), true) = (object, is_dir && old_dir != new_dir) {
                self.may(*node, attr, WRITE)?;
            }
        }
        Ok(self.state.engine.rename(old_dir, name, new_dir, new_name, how)?)
    }

    /// Returns true if `dir` is `top` or below it.
    fn is_within(&mut self, dir: Node, top: Node) -> bool {
        let mut at = dir;
        loop {
            if at == top {
                return true;
            }
            let above = self.state.engine.parent(at);
            if above == at {
                return false;
            }
            at = above;
        }
    }

    /// readlink(2).
    pub fn read_link(&mut self, start: &Start, path: &[u8]) -> Answer<Vec<u8>> {
        match self.find(start, path, Last::Stay)? {
            object if object.kind() != FileType::Symlink => Err(Errno::INVAL.into()),
            Object::Inside { node, .. } => Ok(self.state.engine.readlink(node)?),
            Object::Outside(outside) => Ok(outside.target()?),
        }
    }

    /// An object whose attributes are to change.
    ///
    /// # Errors
    /// `EROFS` if the transaction does not serve it.
    pub fn inside(&mut self, start: &Start, path: &[u8], last: Last) -> Answer<(Node, Attr)> {
        match self.find(start, path, last)? {
            Object::Inside { node, attr, .. } => Ok((node, attr)),
            Object::Outside(_) => Err(Errno::ROFS.into()),
        }
    }

    /// chmod(2) of an object with these attributes.
    pub fn set_mode(&mut self, node: Node, attr: &Attr, mode: u32) -> Answer<()> {
        let caller = self.caller()?;
        let mode = permission::chmod(&caller, attr, mode)?;
        self.state.engine.setattr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        Ok(())
    }

    /// chown(2) of an object with these attributes.
    pub fn set_owner(&mut self, node: Node, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> Answer<()> {
        let caller = self.caller()?;
        permission::chown(&caller, attr, uid, gid)?;
        let kill_priv = FileType::from_mode(attr.mode) != Some(FileType::Directory);
        if kill_priv || uid.is_some() || gid.is_some() {
            let lost = if kill_priv { permission::privileges_lost(&caller, attr) } else { 0 };
            let mode = (lost != 0).then_some(attr.mode & 0o7777 & !lost);
            self.state.engine.setattr(node, &SetAttr { mode, uid, gid, kill_priv, ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// ftruncate(2).
    pub fn set_size(&mut self, node: Node, size: u64) -> Answer<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::INVAL.into());
        }
        self.drop_privileges(node)?;
        self.state.engine.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        Ok(())
    }

    /// pwrite(2).
    pub fn write_at(&mut self, node: Node, bytes: &[u8], offset: u64) -> Answer<usize> {
        let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| i64::try_from(end).is_ok());
        if !fits {
            return Err(Errno::FBIG.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        self.drop_privileges(node)?;
        Ok(self.state.engine.write_at(node, bytes, offset)?)
    }

    /// Writes at the end; where that is, if it had to be known.
    pub fn append(&mut self, node: Node, bytes: &[u8]) -> Answer<(AppendedAt, usize)> {
        self.drop_privileges(node)?;
        Ok(self.state.engine.append(node, bytes)?)
    }

    /// Entries of a directory.
    pub fn list(&mut self, place: &Place) -> Answer<Vec<DirEntry>> {
        match self.object_of(place)? {
            Object::Inside { node, attr, .. } => {
                self.may(node, &attr, READ)?;
                let entries = self.state.engine.readdir(node)?;
                Ok(entries.iter().map(|entry| DirEntry::new(&entry.name, entry.kind, entry.ino)).collect())
            }
            Object::Outside(outside) => {
                let entries = outside.read_dir().map_err(Fault::Os)?;
                Ok(entries.iter().map(|entry| DirEntry::new(&entry.name, entry.kind, entry.ino)).collect())
            }
        }
    }
}
