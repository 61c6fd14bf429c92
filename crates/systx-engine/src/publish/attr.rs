//! ATTR: mode, owner, extended attributes and times of an existing object.

use super::site::{open_object, Pass, Site};
use crate::record::{Change, Step};
use systx_os::{Errno, Handle, Open, Os, Result, SetXattr};

/// Applies every change whose old value is still there.
///
/// No file system has compare-and-set for attributes: a change by an outsider between the look and the call is
/// overwritten (residue d in docs/guarantees.md).
pub(super) fn change<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    object: &Handle,
    changes: &[Change],
) -> Result<()> {
    let os = site.os;
    let Some(fd) = open_object(os, site.root, object, &step.at.path, &step.at.name, Open::Path)? else {
        site.report(step, None, "attributes not set: removed by somebody else");
        return Ok(());
    };
    for change in changes {
        let theirs = match change {
            // chown(2), and without privileges a patch, drops setuid and setgid: then the mode is neither old nor new.
            Change::Mode { old, new } => match os.stat(&fd)?.perm() {
                perm if perm == *new => false,
                perm if perm == *old || perm == *old & !0o6000 => os.chmod(&fd, *new).map(|()| false)?,
                _ => true,
            },
            Change::Owner { old, new } => {
                let stat = os.stat(&fd)?;
                match (stat.uid, stat.gid) {
                    owner if owner == *new => false,
                    owner if owner == *old => os.chown(&fd, new.0, new.1).map(|()| false)?,
                    _ => true,
                }
            }
            Change::Xattr { name, old, new } => match current_xattr(os, &fd, name)? {
                value if value == *new => false,
                value if value == *old => match new {
                    Some(value) => os.setxattr(&fd, name, value, SetXattr::Any).map(|()| false)?,
                    None => os.removexattr(&fd, name).map(|()| false)?,
                },
                _ => true,
            },
            // In a redo somebody may have changed the object since: then the times are his.
            Change::Times { mtime, .. } if site.pass == Pass::Redo && later(os, &fd, *mtime)? => false,
            Change::Times { atime, mtime } => os.utimens(&fd, *atime, *mtime).map(|()| false)?,
        };
        if theirs {
            site.report(step, None, "an attribute was changed by somebody else and left so");
        }
    }
    Ok(())
}

fn later<O: Os>(os: &O, fd: &O::Fd, mtime: Option<systx_os::Timestamp>) -> Result<bool> {
    Ok(mtime.is_some_and(|ours| os.stat(fd).is_ok_and(|stat| stat.mtime > ours)))
}

fn current_xattr<O: Os>(os: &O, fd: &O::Fd, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match os.getxattr(fd, name) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(e),
    }
}
