//! Extended attributes. What is remembered for a lower object is tried out on an object of ours first, so
//! that a file system that can't hold it says so now and not after the commit point.

use crate::acl::CAPABILITY;
use crate::acl::{self, Acl};
use crate::outcome::Verb;
use crate::transaction::{Node, Transaction};
use crate::workset::node::Ix;
use crate::workset::Workset;
use systx_os::{Errno, FileType, Open, Os, SetXattr};

/// Longest name of an attribute, in bytes.
const XATTR_NAME_MAX: usize = 255;
/// Longest value, in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

impl<O: Os> Transaction<O> {
    /// Value of an extended attribute.
    pub fn getxattr(&mut self, node: Node, name: &[u8]) -> Verb<Vec<u8>> {
        self.ours()?;
        let ix = self.workset.ix(node);
        if let Some(error) = xattr_misfit(&self.workset, ix, name, Errno::NODATA) {
            return Err(error.into());
        }
        let over = self.workset.object(ix).over.as_ref();
        // The committed value under the other name is out of date.
        if over.zip(acl::listed_as(name)).is_some_and(|(over, list)| over.xattr(list).is_some()) {
            return Err(Errno::NODATA.into());
        }
        self.workset.xattr(ix, name)?.ok_or(Errno::NODATA.into())
    }

    /// Names of the extended attributes.
    pub fn listxattr(&mut self, node: Node) -> Verb<Vec<Vec<u8>>> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.xattr_names(ix)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&mut self, node: Node, name: &[u8], value: &[u8], mode: SetXattr) -> Verb<()> {
        self.ours()?;
        let ix = self.workset.ix(node);
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE.into());
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.workset.may_change(ix)?;
        if let Some(error) = xattr_misfit(&self.workset, ix, name, Errno::PERM) {
            return Err(error.into());
        }
        if self.workset.object(ix).is_staged() {
            let fd = self.workset.any_fd(ix)?;
            self.workset.os().setxattr(&fd, name, value, mode)?;
            self.workset.object_mut(ix).incapable &= name != CAPABILITY;
            if let Some(dir) = &mut self.workset.object_mut(ix).dir {
                dir.default_acl = None;
            }
            return Ok(());
        }
        let before = self.workset.xattr(ix, name)?;
        match (mode, &before) {
            (SetXattr::Create, Some(_)) => return Err(Errno::EXIST.into()),
            (SetXattr::Replace, None) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let list = match name {
            acl::ACCESS | acl::DEFAULT => Some(Acl::parse(value)?),
            _ => None,
        };
        try_out(&mut self.workset, ix, name, value)?;
        match list {
            // An empty list takes it away.
            Some(None) => self.workset.override_xattr(ix, name, before, None),
            Some(Some(list)) if name == acl::ACCESS => {
                let old = self.workset.attr(ix)?.mode;
                let now = (!list.is_minimal()).then(|| list.bytes());
                self.workset.override_xattr(ix, name, before, now);
                self.workset.object_mut(ix).over_mut().mode = Some(old & 0o7000 | list.mode());
            }
            _ => self.workset.override_xattr(ix, name, before, Some(value.to_vec())),
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn removexattr(&mut self, node: Node, name: &[u8]) -> Verb<()> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.may_change(ix)?;
        if let Some(error) = xattr_misfit(&self.workset, ix, name, Errno::PERM) {
            return Err(error.into());
        }
        if self.workset.object(ix).is_staged() {
            let fd = self.workset.any_fd(ix)?;
            self.workset.os().removexattr(&fd, name)?;
            if let Some(dir) = &mut self.workset.object_mut(ix).dir {
                dir.default_acl = None;
            }
            return Ok(());
        }
        match self.workset.xattr(ix, name)? {
            Some(before) => self.workset.override_xattr(ix, name, Some(before), None),
            // Taking a list away that is not there is no error.
            None if name == acl::ACCESS || name == acl::DEFAULT => {}
            None => return Err(Errno::NODATA.into()),
        }
        Ok(())
    }
}

/// The error for an attribute that this type of object can't have (xattr_permission and set_posix_acl in linux/fs).
fn xattr_misfit<O: Os>(workset: &Workset<O>, ix: Ix, name: &[u8], user: Errno) -> Option<Errno> {
    let kind = workset.object(ix).kind;
    let plain = matches!(kind, FileType::File | FileType::Directory);
    match name {
        n if n.starts_with(b"user.") && !plain => Some(user),
        acl::ACCESS | acl::DEFAULT if kind == FileType::Symlink => Some(Errno::OPNOTSUPP),
        acl::DEFAULT if kind != FileType::Directory && user == Errno::PERM => Some(Errno::ACCESS),
        _ => None,
    }
}

/// Sets the attribute on an object of the same type in the staging area, beside all others that the object
/// has: an inode has room for so many.
fn try_out<O: Os>(workset: &mut Workset<O>, ix: Ix, name: &[u8], value: &[u8]) -> Verb<()> {
    let mut others = Vec::new();
    for other in workset.xattr_names(ix)?.into_iter().filter(|other| other != name) {
        others.extend(workset.xattr(ix, &other)?.map(|value| (other, value)));
    }
    let (mount, kind) = (usize::from(workset.object(ix).mount), workset.object(ix).kind);
    let slot = workset.new_slot(mount)?;
    let spot = workset.slot_spot(mount, slot)?;
    let os = workset.os();
    match kind {
        FileType::Directory => os.mkdir(&spot.dir, &spot.name, 0o700)?,
        FileType::Symlink => os.symlink(&spot.dir, &spot.name, b"x")?,
        FileType::File => os.mknod(&spot.dir, &spot.name, libc::S_IFREG | 0o600, 0)?,
        _ => os.mknod(&spot.dir, &spot.name, libc::S_IFIFO | 0o600, 0)?,
    }
    let tried = os.open(&spot.dir, &spot.name, Open::Path).and_then(|fd| {
        for (other, value) in &others {
            // One that only the kernel or root may set takes its room all the same, and is not what is asked.
            let _ = os.setxattr(&fd, other, value, SetXattr::Any);
        }
        os.setxattr(&fd, name, value, SetXattr::Any)
    });
    match kind {
        FileType::Directory => os.rmdir(&spot.dir, &spot.name)?,
        _ => os.unlink(&spot.dir, &spot.name)?,
    }
    Ok(tried?)
}
