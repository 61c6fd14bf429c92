//! ATTR: mode, owner, extended attributes and times of an existing object.

use super::place::opened;
use super::power;
use super::site::{Found, Pass, Site};
use crate::acl::CAPABILITY;
use crate::mutant::{self, Mutant};
use crate::objects::{current_xattr, DIRECTORIES_MAX};
use crate::outcome::DisplacedKind;
use crate::record::{Act, Body, Change, Step};
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os, Result, SetXattr, Timestamp};

/// Applies every change whose old value is still there.
///
/// No file system has compare-and-set for attributes: a change by an outsider between the look and the call is
/// overwritten (residue d in docs/guarantees.md).
pub(super) fn change<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    object: &Handle,
    changes: &[Change],
    power_over: Option<&[u8; 32]>,
) -> Result<()> {
    let os = site.os;
    let found = site.found.get(object).and_then(|found| found.fd.as_ref());
    let fd = match site.patch_targets.get(object).or(found) {
        Some(fd) => Some(fd.clone()),
        None => site.open(object, &step.at.path, &step.at.name, Open::Path)?.map(Arc::new),
    };
    // In a redo a later record of ours may be on the disk already: that is no outsider's change.
    let later = |site: &Site<'_, O>| site.changed_later.is_some_and(|later| later(object));
    let Some(fd) = fd else {
        if !site.are_set && !later(site) && !site.may_have_removed(object) {
            site.report(step, None, DisplacedKind::AttributesGone);
        }
        return Ok(());
    };
    // Held over all of them: a process that opens the file meanwhile waits.
    let (mut hold, mut dropped) = (None, false);
    for change in changes {
        if site.are_set && stays_set(os, change) {
            continue;
        }
        if let Some(bytes) = power_over.filter(|_| !dropped && hold.is_none() && change.gives_power()) {
            if is_left(os, &fd, change)? {
                hold = power::hold(site, step, object, bytes)?;
                dropped = hold.is_none();
                if dropped {
                    site.report(step, None, power::DROPPED);
                }
            }
        }
        if dropped && change.gives_power() {
            if !mutant::on(Mutant::NothingOfAMode) {
                keep_on(site, &fd, change)?;
            }
            continue;
        }
        let theirs = match change {
            // chown(2), and without privileges a patch, drops setuid and setgid: then the mode is neither old nor new.
            Change::Mode { old, new } => match os.stat(&fd)?.perm() {
                perm if perm == *new => false,
                perm if perm == *old || perm == *old & !0o6000 => os.chmod(&fd, *new).map(|()| false)?,
                // Of a recovery that was killed while it patched the file.
                perm if perm == opened(*new) && os.uid() != 0 => os.chmod(&fd, *new).map(|()| false)?,
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
                    None => remove_xattr(os, &fd, name).map(|()| false)?,
                },
                _ => true,
            },
            // In a redo an outsider may have changed the object since: then the times stay as they were
            // found.
            Change::Times { mtime, before, .. }
                if site.pass == Pass::Redo && foreign(site, object, &fd, *mtime, *before)? =>
            {
                let found = site.found.get(object).map(|found| found.mtime);
                os.utimens(&fd, None, found).map(|()| false)?
            }
            Change::Times { atime, mtime, .. } => os.utimens(&fd, *atime, *mtime).map(|()| false)?,
        };
        if theirs && !later(site) {
            site.report(step, None, DisplacedKind::AttributeLeft);
        }
    }
    Ok(())
}

/// Removes an extended attribute, as one who may only own the file.
///
/// The kernel lets only the privileged remove a capability by its name. But it removes it at each chown(2) by
/// the owner, also at one that changes nothing; that would take set-id bits, too, so a file with such bits
/// keeps its capability and the error.
fn remove_xattr<O: Os>(os: &O, fd: &O::Fd, name: &[u8]) -> Result<()> {
    match os.removexattr(fd, name) {
        Err(Errno::PERM) if name == CAPABILITY && os.stat(fd)?.perm() & 0o6000 == 0 => {
            os.chown(fd, u32::MAX, u32::MAX)
        }
        result => result,
    }
}

/// Returns true if nothing that a redo does can take a change away that was made: then a difference comes
/// from an outsider.
///
/// Bytes that are written again take a file's capabilities away, and without privileges its set-id bits.
fn stays_set<O: Os>(os: &O, change: &Change) -> bool {
    match change {
        Change::Mode { new, .. } => os.uid() == 0 || new & 0o6000 == 0,
        Change::Owner { .. } => true,
        Change::Xattr { name, .. } => name != CAPABILITY,
        Change::Times { .. } => false,
    }
}

/// In a redo, of a mode that is not given: all of it but its set-id bits.
///
/// The bytes may be those of a later record of ours, and what that and the others make of the mode begins
/// with this one. If nothing of it were there, each of them would find a mode that it doesn't know, and leave
/// it as it is.
fn keep_on<O: Os>(site: &Site<'_, O>, fd: &O::Fd, change: &Change) -> Result<()> {
    match change {
        Change::Mode { new, .. } if site.pass == Pass::Redo && is_left(site.os, fd, change)? => {
            site.os.chmod(fd, *new & !0o6000)
        }
        _ => Ok(()),
    }
}

/// Returns true if a change is still to be made.
pub(super) fn is_left<O: Os>(os: &O, fd: &O::Fd, change: &Change) -> Result<bool> {
    Ok(match change {
        Change::Mode { old, new } => {
            let perm = os.stat(fd)?.perm();
            perm != *new && [*old, *old & !0o6000].contains(&perm)
        }
        Change::Owner { old, new } => {
            let stat = os.stat(fd)?;
            old != new && (stat.uid, stat.gid) == *old
        }
        Change::Xattr { name, old, new } => old != new && current_xattr(os, fd, name)? == *old,
        Change::Times { .. } => false,
    })
}

/// Returns true if an object had, before this redo changed anything of it, a time that is neither its time
/// before nor ours: an outsider has set it since, or it is that of a publication that was cut off.
fn foreign<O: Os>(
    site: &Site<'_, O>,
    object: &Handle,
    fd: &O::Fd,
    ours: Option<Timestamp>,
    before: Timestamp,
) -> Result<bool> {
    let Some(ours) = ours else { return Ok(false) };
    let found = match site.found.get(object) {
        Some(found) => found.mtime,
        None => site.os.stat(fd)?.mtime,
    };
    // Ours was there already: the one before it was put back.
    Ok(found != ours && (found != before || site.are_set))
}

/// Notes the times of what a redo will set the times of: its own steps will move them.
pub(super) fn note_mtimes<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Result<()> {
    for step in &body.steps {
        let Act::Attr { object, changes, .. } = &step.act else { continue };
        if !changes.iter().any(|change| matches!(change, Change::Times { .. })) {
            continue;
        }
        let (path, name) = (&step.at.path, &step.at.name);
        if let Some(kept) = site.patch_targets.get(object) {
            let mtime = site.os.stat(kept)?.mtime;
            site.found.insert(*object, Found { mtime, fd: None });
            continue;
        }
        // An object that can't be opened yet, because it is to be moved first, is looked at when its turn
        // comes.
        if let Some(fd) = site.open(object, path, name, Open::Path)? {
            let mtime = site.os.stat(&fd)?.mtime;
            let fd = (site.found.len() < DIRECTORIES_MAX).then(|| Arc::new(fd));
            site.found.insert(*object, Found { mtime, fd });
        }
    }
    Ok(())
}
