//! ATTR: mode, owner, extended attributes and times of an existing object.

use super::decide::{self, Value};
use super::power;
use super::site::{Found, Pass, Site};
use crate::acl::CAPABILITY;
use crate::mutant::{self, Mutant};
use crate::objects::{current_xattr, DIRECTORIES_MAX};
use crate::outcome::ConflictCopyKind;
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
            site.report(step, None, ConflictCopyKind::AttributesGone);
        }
        return Ok(());
    };
    // Held over all of them: a process that opens the file meanwhile waits.
    let mut power = power_over.map_or(Power::Free, Power::Unasked);
    for change in changes {
        if site.are_set && stays_set(os, change) {
            continue;
        }
        power.ask(site, step, object, &fd, change)?;
        if matches!(power, Power::Denied) && change.gives_power() {
            if may_be_given(site, &fd, change)? {
                take_back(os, &fd, change)?;
            }
            if !mutant::on(Mutant::NothingOfAMode) {
                keep_on(site, &fd, change)?;
            }
            continue;
        }
        if apply(site, object, &fd, change)? == Value::Theirs && !later(site) {
            site.report(step, None, ConflictCopyKind::AttributeLeft);
        }
        // Before the lease is given up: who waits for it gets the file without.
        if power.is_gone(change) {
            take_back(os, &fd, change)?;
            site.report(step, None, power::DROPPED);
            power = Power::Denied;
        }
    }
    Ok(())
}

/// The power that the changes of a step may give a file: set-id bits, capabilities, root's ownership.
enum Power<'b, 'a, O: Os> {
    /// They are given to whatever bytes there are.
    Free,
    /// To bytes with this hash only; none of the changes so far gave power.
    Unasked(&'b [u8; 32]),
    /// To the bytes that are held.
    Held(power::Hold<'a, O>),
    /// Nothing of it is given.
    Denied,
}

impl<'a, O: Os> Power<'_, 'a, O> {
    /// Takes hold of the bytes before the first change that gives power and is still to be made, or may just have been made.
    fn ask(
        &mut self,
        site: &mut Site<'a, O>,
        step: &Step,
        object: &Handle,
        fd: &O::Fd,
        change: &Change,
    ) -> Result<()> {
        let Power::Unasked(bytes) = *self else { return Ok(()) };
        if !change.gives_power() || !(is_left(site.os, fd, change)? || may_be_given(site, fd, change)?) {
            return Ok(());
        }
        *self = match power::hold(site, step, object, bytes)? {
            Some(hold) => Power::Held(hold),
            None => {
                site.report(step, None, power::DROPPED);
                Power::Denied
            }
        };
        Ok(())
    }

    /// Returns true if other bytes may have got it by a change.
    fn is_gone(&self, change: &Change) -> bool {
        matches!(self, Power::Held(hold) if change.gives_power() && !hold.is_sure() && !mutant::on(Mutant::WaitingUnseen))
    }
}

/// Returns true if a dead process may have made a change that gives power, and died before it looked for others that got
/// the file open. With the mark it has looked. In a redo nothing is open from then, and the bytes may be later ones.
fn may_be_given<O: Os>(site: &Site<'_, O>, fd: &O::Fd, change: &Change) -> Result<bool> {
    let changes = match change {
        Change::Mode { old, new } => old != new,
        Change::Owner { old, new } => old != new,
        Change::Xattr { old, new, .. } => old != new,
        Change::Times { .. } => false,
    };
    let by_the_dead = !site.is_own && site.pass == Pass::First && !site.are_set;
    Ok(changes
        && by_the_dead
        && !mutant::on(Mutant::GivenForGood)
        && look(site.os, fd, change)? == Value::New)
}

/// Takes away what a change has given to bytes that are not the validated ones.
fn take_back<O: Os>(os: &O, fd: &O::Fd, change: &Change) -> Result<()> {
    match change {
        Change::Mode { new, .. } => os.chmod(fd, *new & !0o6000),
        Change::Owner { old, .. } => os.chown(fd, old.0, old.1),
        Change::Xattr { name, .. } => remove_xattr(os, fd, name),
        Change::Times { .. } => Ok(()),
    }
}

/// Makes one change if the old value is still there; returns what was.
fn apply<O: Os>(site: &Site<'_, O>, object: &Handle, fd: &O::Fd, change: &Change) -> Result<Value> {
    let os = site.os;
    let found = match change {
        // In a redo an outsider may have changed the object since: then the times stay as they were found.
        Change::Times { mtime, before, .. }
            if site.pass == Pass::Redo && foreign(site, object, fd, *mtime, *before)? =>
        {
            let found = site.found.get(object).map(|found| found.mtime);
            os.utimens(fd, None, found)?;
            return Ok(Value::Old);
        }
        _ => look(os, fd, change)?,
    };
    if matches!(found, Value::Old | Value::Opened) {
        match change {
            Change::Mode { new, .. } => os.chmod(fd, *new)?,
            Change::Owner { new, .. } => os.chown(fd, new.0, new.1)?,
            Change::Xattr { name, new: Some(value), .. } => os.setxattr(fd, name, value, SetXattr::Any)?,
            Change::Xattr { name, new: None, .. } => remove_xattr(os, fd, name)?,
            Change::Times { atime, mtime, .. } => os.utimens(fd, *atime, *mtime)?,
        }
    }
    Ok(found)
}

/// Looks at the present value of what is changed. Times are set whatever they are.
fn look<O: Os>(os: &O, fd: &O::Fd, change: &Change) -> Result<Value> {
    Ok(match change {
        Change::Mode { old, new } => match decide::mode(os.stat(fd)?.perm(), *old, *new) {
            // Modes never keep root out, so root opens none.
            Value::Opened if os.uid() == 0 => Value::Theirs,
            found => found,
        },
        Change::Owner { old, new } => {
            let stat = os.stat(fd)?;
            decide::value(&(stat.uid, stat.gid), old, new)
        }
        Change::Xattr { name, old, new } => decide::value(&current_xattr(os, fd, name)?, old, new),
        Change::Times { .. } => Value::Old,
    })
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

/// Returns true if a change is still to be made. Times do not count.
pub(super) fn is_left<O: Os>(os: &O, fd: &O::Fd, change: &Change) -> Result<bool> {
    Ok(match change {
        Change::Times { .. } => false,
        // A value that does not change needs no call.
        Change::Owner { .. } | Change::Mode { .. } => look(os, fd, change)? == Value::Old,
        Change::Xattr { old, new, .. } => old != new && look(os, fd, change)? == Value::Old,
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
