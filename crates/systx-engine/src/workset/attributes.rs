//! Attributes: those of a staged object are its own, those of a lower one are its fact's under what the
//! program changed.

use super::Workset;
use crate::acl;
use crate::acl::CAPABILITY;
use crate::outcome::{Verb, VerbError};
use crate::types::Attr;
use crate::workset::node::{Data, Ix, Native, Reach, XattrOverride};
use systx_os::{Errno, FileType, Os, Stat};

/// Links of a directory: some file systems (btrfs) always say 1.
fn dir_links(base: u32, subdirs: i32) -> u32 {
    match base {
        0 | 1 => base,
        _ => (i64::from(base) + i64::from(subdirs)).max(2) as u32,
    }
}

/// Names of attributes, on a file system that may have none.
pub(crate) fn none_if_unsupported(names: Verb<Vec<Vec<u8>>>) -> Verb<Vec<Vec<u8>>> {
    match names {
        Err(VerbError::Os(Errno::OPNOTSUPP)) => Ok(Vec::new()),
        names => names,
    }
}

fn set_size(attr: &mut Attr, size: u64) {
    if attr.size != size {
        let block = u64::from(attr.blksize).max(512);
        (attr.size, attr.blocks) = (size, size.div_ceil(block) * block / 512);
    }
}

impl<O: Os> Workset<O> {
    /// Returns the answer of stat(2) for a node.
    pub(crate) fn attr(&mut self, ix: Ix) -> Verb<Attr> {
        let gone = self.is_gone(ix);
        let mut attr = if self.object(ix).is_staged() { self.staged_attr(ix)? } else { self.lower_attr(ix)? };
        if gone {
            attr.nlink = 0;
        }
        Ok(attr)
    }

    fn staged_attr(&mut self, ix: Ix) -> Verb<Attr> {
        let stat = self.staged_stat(ix)?;
        let mut attr = Attr::from(&stat);
        if self.object(ix).is_native() {
            // It has no subdirectories but its own.
        } else if let Some(dir) = &self.object(ix).dir {
            attr.nlink = dir_links(stat.nlink.min(2), dir.subdirs);
        } else {
            attr.nlink -= self.kept_names(ix).min(attr.nlink);
        }
        Ok(attr)
    }

    /// Attributes of the staged object itself.
    pub(crate) fn staged_stat(&mut self, ix: Ix) -> Verb<Stat> {
        let object = self.object(ix);
        match (&object.file, object.dir.as_ref().map(|dir| &dir.staged)) {
            (Some(fd), _) | (_, Some(Reach::Open(fd))) => return Ok(self.os.stat(fd)?),
            (_, Some(Reach::Gone(stat))) => return Ok(**stat),
            _ => {}
        }
        let spot = self.spot(ix)?;
        Ok(self.os.stat_at(&spot.dir, &spot.name)?)
    }

    /// Attributes of the file in a lower file's slot, without opening it.
    fn private_stat(&mut self, ix: Ix) -> Verb<Stat> {
        let object = self.object(ix);
        if let Some(fd) = &object.file {
            return Ok(self.os.stat(fd)?);
        }
        let (mount, slot) = (usize::from(object.mount), object.data.slot());
        let spot = self.slot_spot(mount, slot)?;
        Ok(self.os.stat_at(&spot.dir, &spot.name)?)
    }

    fn lower_attr(&mut self, ix: Ix) -> Verb<Attr> {
        let private = match self.object(ix).data {
            Data::Private(_) => Some(self.private_stat(ix)?),
            _ => None,
        };
        let object = self.object(ix);
        let Some(lower) = &object.lower else { return Err(Errno::STALE.into()) };
        let mut attr = Attr::from(&lower.stat);
        match &object.dir {
            Some(dir) => {
                attr.nlink = dir_links(attr.nlink, dir.subdirs);
                if let Some(changed) = dir.changed {
                    (attr.mtime, attr.ctime) = (changed, changed);
                }
            }
            None => attr.nlink = (i64::from(attr.nlink) + i64::from(object.links)).max(0) as u32,
        }
        match &object.data {
            Data::Overlay(overlay) => attr.size = overlay.size,
            Data::Memory(memory) => set_size(&mut attr, memory.bytes.len() as u64),
            Data::Pages(_) => set_size(&mut attr, self.size_with_pages(ix)),
            Data::Base(_) | Data::Appended(_) | Data::Private(_) => {}
        }
        if let Some(private) = private {
            (attr.size, attr.blocks) = (private.size, private.blocks);
            // Made by opening it for writing alone: nothing has changed that the program could see.
            if private.mtime != attr.mtime {
                (attr.mtime, attr.ctime) = (private.mtime, private.ctime);
            }
        }
        if let Some(over) = &object.over {
            attr.mode = over.mode.map_or(attr.mode, |m| attr.mode & libc::S_IFMT | m);
            (attr.uid, attr.gid) = over.owner.unwrap_or((attr.uid, attr.gid));
            attr.atime = over.atime.unwrap_or(attr.atime);
            attr.mtime = over.mtime.unwrap_or(attr.mtime);
            attr.ctime = over.ctime.map_or(attr.ctime, |c| c.max(attr.ctime));
        }
        Ok(attr)
    }

    /// Takes the attributes of committed objects as they are now: for a transaction that can't commit, and shows the bytes
    /// that are there now.
    pub(crate) fn see_the_present(&mut self) {
        for ix in self.all().collect::<Vec<_>>() {
            let object = self.object(ix);
            let goes_on_at_its_end =
                !matches!(object.data, Data::Base(_) | Data::Private(_) | Data::Memory(_));
            let lower = object.lower.as_ref().filter(|_| !goes_on_at_its_end);
            if let Some(now) = lower.and_then(|lower| self.facts.present(lower)) {
                self.object_mut(ix).lower = Some(now);
            }
        }
    }

    /// Before an object changes. `EPERM` for a lower object that the file system keeps from changing, `EROFS`
    /// in a subvolume of its own.
    pub(crate) fn may_change(&mut self, ix: Ix) -> Verb<()> {
        self.claim(ix)?;
        match &self.object(ix).lower {
            Some(_) if self.is_in_subvolume(ix) => Err(Errno::ROFS.into()),
            Some(lower) if lower.stat.immutable || lower.stat.append_only => Err(Errno::PERM.into()),
            _ => self.before_change(ix),
        }
    }

    /// The default ACL of a directory; file systems without ACLs have none.
    pub(crate) fn default_acl(&mut self, dir: Ix) -> Verb<Option<acl::Acl>> {
        let not_shared = self.native(dir) != Native::Shared;
        let known = self.object(dir).dir.as_ref().and_then(|d| d.default_acl.as_ref());
        if let Some(known) = known.filter(|_| not_shared) {
            return Ok(known.as_deref().cloned());
        }
        let value = match self.xattr(dir, acl::DEFAULT) {
            Err(VerbError::Os(Errno::OPNOTSUPP)) => None,
            value => value?,
        };
        let found = match value {
            Some(value) => acl::Acl::parse(&value)?,
            None => None,
        };
        if let Some(directory) = &mut self.object_mut(dir).dir {
            directory.default_acl = Some(found.clone().map(Box::new));
        }
        Ok(found)
    }

    /// Value of an extended attribute; `None` when there is none.
    pub(crate) fn xattr(&mut self, ix: Ix, name: &[u8]) -> Verb<Option<Vec<u8>>> {
        let object = self.object(ix);
        match (&object.lower, &object.over) {
            (Some(_), Some(over)) if over.xattr(name).is_some() => {
                Ok(over.xattr(name).and_then(|x| x.now.clone()))
            }
            (Some(lower), _) => {
                let fact = lower.fact;
                self.facts.xattr(fact, name)
            }
            (None, _) if object.incapable && name == CAPABILITY => Ok(None),
            (None, _) => {
                let fd = self.any_fd(ix)?;
                match self.os.getxattr(&fd, name) {
                    Err(Errno::NODATA) => Ok(None),
                    value => Ok(Some(value?)),
                }
            }
        }
    }

    /// Remembers a changed extended attribute of a lower object.
    pub(crate) fn override_xattr(
        &mut self,
        ix: Ix,
        name: &[u8],
        before: Option<Vec<u8>>,
        now: Option<Vec<u8>>,
    ) {
        let time = self.now();
        let over = self.object_mut(ix).over_mut();
        over.ctime = Some(time);
        match over.xattrs.iter_mut().find(|x| *x.name == *name) {
            Some(known) => known.now = now,
            None => over.xattrs.push(XattrOverride { name: name.into(), before, now }),
        }
        if let Some(dir) = &mut self.object_mut(ix).dir {
            dir.default_acl = None;
        }
    }

    /// A descriptor of a staged object that takes attribute calls.
    pub(crate) fn any_fd(&mut self, ix: Ix) -> Verb<std::sync::Arc<O::Fd>> {
        let object = self.object(ix);
        if object.kind == FileType::Directory {
            return self.staged_dir(ix);
        }
        if let Some(fd) = &object.file {
            return Ok(fd.clone());
        }
        let spot = self.spot(ix)?;
        Ok(std::sync::Arc::new(self.os.open(&spot.dir, &spot.name, systx_os::Open::Path)?))
    }

    /// Names of the extended attributes.
    pub(crate) fn xattr_names(&mut self, ix: Ix) -> Verb<Vec<Vec<u8>>> {
        let Some(lower) = &self.object(ix).lower else {
            let fd = self.any_fd(ix)?;
            return Ok(acl::each_list_once(self.os.listxattr(&fd)?));
        };
        let fact = lower.fact;
        let mut names = self.facts.xattr_names(fact)?;
        if let Some(over) = &self.object(ix).over {
            names.retain(|n| over.xattr(n).is_none());
            names.extend(over.xattrs.iter().filter(|x| x.now.is_some()).map(|x| x.name.to_vec()));
        }
        Ok(names)
    }

    /// Target of a symbolic link.
    pub(crate) fn link_target(&mut self, ix: Ix) -> Verb<Vec<u8>> {
        let object = self.object(ix);
        match &object.lower {
            _ if object.kind != FileType::Symlink => Err(Errno::INVAL.into()),
            Some(lower) => {
                let fact = lower.fact;
                if let Some(held) = self.recently(ix) {
                    return Ok(self.os.read_link(&held)?);
                }
                self.facts.read_link(fact)
            }
            None => {
                let fd = self.any_fd(ix)?;
                Ok(self.os.read_link(&fd)?)
            }
        }
    }

    /// About how much room what is private takes, in bytes.
    pub(crate) fn private_bytes(&mut self) -> u64 {
        let _ = self.read_native_trees();
        let changed: Vec<_> = self.all().filter(|ix| self.is_private(*ix)).collect();
        changed.into_iter().filter_map(|ix| self.attr(ix).ok()).map(|attr| attr.blocks * 512).sum()
    }
}
