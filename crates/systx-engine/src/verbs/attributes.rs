//! chmod, chown, utimensat, truncate. On staged objects they are done at once; on lower ones they are remembered.

use crate::acl::CAPABILITY;
use crate::acl::{self, Acl};
use crate::outcome::{Verb, VerbError};
use crate::transaction::{Attr, Node, SetAttr, SetTime, Transaction};
use crate::workset::node::{Data, Ix};
use crate::workset::Workset;
use systx_os::{Errno, FileType, Os, Timestamp};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

impl<O: Os> Transaction<O> {
    /// Attributes.
    pub fn getattr(&mut self, node: Node) -> Verb<Attr> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.renew(ix)?;
        self.workset.whole(ix)?;
        self.workset.attr(ix)
    }

    /// Attributes for a caller that looks at type, mode and owner only: size and times of a file are no facts by that.
    pub fn rights(&mut self, node: Node) -> Verb<Attr> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.renew(ix)?;
        self.workset.attr(ix)
    }

    /// Changes attributes and returns what they are then.
    pub fn setattr(&mut self, node: Node, set: &SetAttr) -> Verb<Attr> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.may_change(ix)?;
        if set.size.is_some() || set.atime.is_some() || set.mtime.is_some() {
            self.workset.whole(ix)?;
        }
        let kind = self.workset.object(ix).kind;
        // Objects in there are finished with their owner's rights.
        if (set.uid.is_some() || set.gid.is_some()) && self.workset.is_a_sub_area(ix) {
            return Err(Errno::PERM.into());
        }
        if let Some(size) = set.size {
            match kind {
                FileType::File => self.workset.set_size(ix, size)?,
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
        }
        if kind == FileType::Symlink && set.mode.is_some() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mode = new_mode(&mut self.workset, ix, set)?;
        let now = self.workset.now();
        let time = |t: Option<SetTime>| {
            t.map(|t| match t {
                SetTime::Now => now,
                SetTime::At(at) => at,
            })
        };
        let times = (time(set.atime), time(set.mtime));
        if self.workset.object(ix).is_staged() {
            set_staged(&mut self.workset, ix, set, mode, times)?
        } else {
            set_lower(&mut self.workset, ix, set, mode, times)?
        }
        self.workset.attr(ix)
    }
}

/// Permission bits after the change, if they are to change; drops the capability if privileges go.
fn new_mode<O: Os>(workset: &mut Workset<O>, ix: Ix, set: &SetAttr) -> Verb<Option<u32>> {
    if !set.kill_priv || matches!(workset.object(ix).kind, FileType::Directory | FileType::Symlink) {
        return Ok(set.mode.map(|m| m & 0o7777));
    }
    let had = set.mode.map_or(workset.attr(ix)?.mode & 0o7777, |m| m & 0o7777);
    let mut mode = had & !SETUID;
    if mode & GROUP_EXECUTE != 0 {
        mode &= !SETGID;
    }
    // The real chown of a staged object may drop what is to stay.
    let chowned = workset.object(ix).is_staged() && (set.uid.is_some() || set.gid.is_some());
    let stays = chowned && mode & (SETUID | SETGID) != 0;
    let to_set = (set.mode.is_some() || mode != had || stays).then_some(mode);
    if workset.object(ix).kind != FileType::File {
        return Ok(to_set);
    }
    match workset.xattr(ix, CAPABILITY) {
        Ok(None) | Err(VerbError::Os(Errno::OPNOTSUPP)) => {}
        Ok(Some(value)) if workset.object(ix).is_staged() => {
            drop(value);
            let fd = workset.any_fd(ix)?;
            workset.os().removexattr(&fd, CAPABILITY)?;
        }
        Ok(before) => workset.override_xattr(ix, CAPABILITY, before, None),
        Err(e) => return Err(e),
    }
    Ok(to_set)
}

fn set_staged<O: Os>(
    workset: &mut Workset<O>,
    ix: Ix,
    set: &SetAttr,
    mode: Option<u32>,
    times: (Option<Timestamp>, Option<Timestamp>),
) -> Verb<()> {
    let owner = set.uid.is_some() || set.gid.is_some();
    if !owner && mode.is_none() && times == (None, None) {
        return Ok(());
    }
    let fd = workset.any_fd(ix)?;
    let mut mode = mode;
    if owner {
        // The kernel drops setuid and setgid by itself. Whether that is wanted was said by the caller: then
        // `mode` has what is left.
        let keep = !set.kill_priv && mode.is_none();
        let before = if keep { workset.os().stat(&fd)?.perm() } else { 0 };
        workset.os().chown(&fd, set.uid.unwrap_or(u32::MAX), set.gid.unwrap_or(u32::MAX))?;
        if before & (SETUID | SETGID) != 0 {
            mode = Some(before);
        }
    }
    if let Some(mode) = mode {
        workset.os().chmod(&fd, mode)?;
    }
    if times != (None, None) {
        workset.os().utimens(&fd, times.0, times.1)?;
    }
    Ok(())
}

fn set_lower<O: Os>(
    workset: &mut Workset<O>,
    ix: Ix,
    set: &SetAttr,
    mode: Option<u32>,
    times: (Option<Timestamp>, Option<Timestamp>),
) -> Verb<()> {
    let now = workset.now();
    if set.uid.is_some() || set.gid.is_some() {
        let attr = workset.attr(ix)?;
        let over = workset.object_mut(ix).over_mut();
        over.owner = Some((set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid)));
        over.ctime = Some(now);
    }
    if let Some(mode) = mode {
        override_mode(workset, ix, mode)?;
    }
    let (atime, mut mtime) = times;
    if let (Some(time), Data::Private(_)) = (mtime, &workset.object(ix).data) {
        let fd = workset.private_fd(ix)?;
        workset.os().utimens(&fd, None, Some(time))?;
        mtime = None;
        workset.object_mut(ix).over_mut().ctime = Some(now);
    }
    if atime.is_some() || mtime.is_some() {
        let over = workset.object_mut(ix).over_mut();
        over.atime = atime.or(over.atime);
        over.mtime = mtime.or(over.mtime);
        over.ctime = Some(now);
    }
    Ok(())
}

/// Remembers permission bits of a lower object; its ACL goes along.
pub(super) fn override_mode<O: Os>(workset: &mut Workset<O>, ix: Ix, mode: u32) -> Verb<()> {
    let now = workset.now();
    let list = match workset.xattr(ix, acl::ACCESS) {
        Err(VerbError::Os(Errno::OPNOTSUPP)) => None,
        list => list?,
    };
    if let Some(value) = list {
        // With strangers in it the list is left to the chmod(2) that publishes the mode.
        if let Some(list) = Acl::parse(&value)?.filter(|list| !list.names_strangers()) {
            let changed = list.with_mode(mode).bytes();
            if changed != value {
                workset.override_xattr(ix, acl::ACCESS, Some(value), Some(changed));
            }
        }
    }
    let over = workset.object_mut(ix).over_mut();
    (over.mode, over.ctime) = (Some(mode), Some(now));
    Ok(())
}
