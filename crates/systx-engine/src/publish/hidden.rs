//! Objects and names that a process can't see which finishes another one's record: those of owners without a number in
//! its user namespace, and those in encrypted directories whose key is not there.
//!
//! Root of a user namespace that has the machine's own root's number may use its area, too. And a recovery at boot comes
//! before the login that adds a key. To either, all of that would look like an outsider's later change.
//!
//! Guarantees: such a record waits for a process that sees all owners, or for the key. Does not: look for owners where
//! none is hidden, nor in an ordinary user's namespace, whose records are about the user's own objects.

use super::site::Site;
use super::{pending, Pending};
use crate::mutant::{self, Mutant};
use crate::record::{Act, Body, Step};
use std::collections::HashSet;
use systx_os::{Errno, Handle, Open, Os, Result, NOBODY};

/// Refuses another owner's record about an object with a hidden owner, or a name that is locked.
pub(super) fn none<O: Os>(site: &mut Site<'_, O>, body: &Body) -> std::result::Result<(), Pending> {
    if site.is_own {
        return Ok(());
    }
    let mut open = HashSet::new();
    for step in &body.steps {
        // No step that would look there has a name in it.
        let has_name = !matches!(step.act, Act::Patch(_) | Act::Attr { .. });
        if has_name && !mutant::on(Mutant::LockedIsGone) && open.insert(step.at.dir) {
            let locked = match site.with_room(|site| site.directory(&step.at)) {
                Ok(Some(dir)) => site.os.are_names_locked(&dir) == Ok(true),
                // The step meets any other error as well.
                dir => matches!(dir, Err(Errno::NOKEY)),
            };
            if locked {
                return Err(pending(step, Errno::NOKEY));
            }
        }
    }
    if site.os.uid() != 0 || site.os.sees_all_owners() {
        return Ok(());
    }
    for step in &body.steps {
        if is_hidden(site, step).map_err(|error| pending(step, error))? {
            return Err(pending(step, Errno::OVERFLOW));
        }
    }
    Ok(())
}

fn is_hidden<O: Os>(site: &mut Site<'_, O>, step: &Step) -> Result<bool> {
    let os = site.os;
    let hides = |fd: &O::Fd| os.stat(fd).map(|stat| [stat.uid, stat.gid].contains(&NOBODY));
    let object: Option<&Handle> = match &step.act {
        Act::Attr { object, .. } | Act::Link { object, .. } => Some(object),
        Act::Patch(patch) => Some(&patch.file),
        Act::Replace { before, .. } | Act::Remove { before, .. } | Act::Take { before, .. } => Some(before),
        Act::Place { .. } => None,
    };
    if let Some(object) = object {
        match site.open(object, &step.at.path, &step.at.name, Open::Path) {
            Ok(Some(fd)) if hides(&fd)? => return Ok(true),
            // Not even a look at it is permitted.
            Err(Errno::ACCESS) => return Ok(true),
            found => drop(found?),
        }
    }
    match site.directory(&step.at) {
        Ok(Some(dir)) => hides(&dir),
        Ok(None) => Ok(false),
        Err(Errno::ACCESS) => Ok(true),
        Err(e) => Err(e),
    }
}
