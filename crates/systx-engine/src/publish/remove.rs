//! REMOVE and TAKE: the object at the name goes into the slot, over the token.

use super::site::{Pass, Site};
use super::taken;
use crate::mutant::{self, Mutant};
use crate::objects::{identify, slot_name};
use crate::outcome::ConflictCopyKind;
use crate::record::{Act, Body, Read, Step};
use systx_os::{Errno, FileType, Handle, Open, Os, Rename, Result};

/// The fate of the object.
#[derive(Clone, Copy)]
pub(super) enum Why<'b> {
    /// It is reclaimed, if it is still as it was read.
    Remove(Option<&'b Read>),
    /// A later step of this record puts it elsewhere.
    Move(&'b Body),
}

/// Renames name → slot and looks at what came out; something foreign goes back.
pub(super) fn take_out<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    before: &Handle,
    why: Why<'_>,
) -> Result<()> {
    let slot = slot_name(step.slot);
    if mutant::on(Mutant::UnconditionalRedo) {
        let Some(dir) = site.directory(&step.at)? else { return Ok(()) };
        let _ = site.os.rename((&dir, &step.at.name), (site.slots, &slot), Rename::Replace);
        return Ok(());
    }
    let Some(held) = identify(site.os, site.slots, &slot)? else { return site.meet_empty(step) };
    if held == *before {
        return Ok(());
    }
    let token = site.tokens.is_token(site.os, site.slots, &slot, &held)?;
    if let (Why::Move(body), false) = (why, token) {
        // An object that a REPLACE from this entry has taken out stands in it, too.
        if put_has_happened(site, step, before, &held, body)? {
            return Ok(());
        }
    }
    let dir = site.directory(&step.at)?;
    if token {
        let named = match &dir {
            Some(dir) => identify(site.os, dir, &step.at.name)?,
            None => None,
        };
        let (Some(dir), true) = (&dir, named == Some(*before)) else {
            // Where handles can't be opened, one that somebody has moved looks like one that is gone: then
            // the name stays.
            if dir.is_none() && matches!(why, Why::Remove(_)) && site.walks() {
                site.report(step, None, ConflictCopyKind::NotRemoved);
            }
            return theirs_is_later(site, step, before, why);
        };
        let looked = match why {
            Why::Remove(Some(read)) => Some((read, taken::look(site, dir, &step.at.name, read)?)),
            _ => None,
        };
        match site.os.rename((dir, &step.at.name), (site.slots, &slot), Rename::Replace) {
            Ok(()) => {}
            // Gone, or something of another type came to the name since the look.
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY) => {
                return theirs_is_later(site, step, before, why)
            }
            Err(e) => return Err(e),
        }
        if identify(site.os, site.slots, &slot)? == Some(*before) {
            return match looked {
                Some((read, looked)) => taken::keep_if_changed(site, step, read, looked),
                None => Ok(()),
            };
        }
    }
    // The slot holds something foreign: it goes back where it was.
    let Some(dir) = dir else { return site.set_aside(step, ConflictCopyKind::SourceDirectoryGone) };
    match site.os.rename((site.slots, &slot), (&dir, &step.at.name), Rename::NoReplace) {
        Ok(()) => {
            site.give_up(step);
            if matches!(why, Why::Move(_)) {
                site.report(step, None, ConflictCopyKind::NotMovedReplaced);
            }
        }
        Err(Errno::EXIST | Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::INVAL) => {
            return site.set_aside(step, ConflictCopyKind::ReplacedTwice)
        }
        Err(e) => return Err(e),
    }
    Ok(())
}

/// Returns true if the entry of a TAKE holds what the REPLACE from that entry brought out: then both were
/// taken, and the REPLACE goes on.
fn put_has_happened<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    moved: &Handle,
    held: &Handle,
    body: &Body,
) -> Result<bool> {
    let put = body.steps.iter().find_map(|put| match &put.act {
        Act::Replace { before, .. } if put.slot == step.slot => Some((put, before)),
        _ => None,
    });
    let Some((put, replaced)) = put else { return Ok(false) };
    if let Some(dir) = site.directory(&put.at)? {
        if identify(site.os, &dir, &put.at.name)? == Some(*moved) {
            return Ok(true);
        }
    }
    if held != replaced {
        return Ok(false);
    }
    // An outsider has removed the object that was put there; or has put the one over the other before it was
    // taken, and it is the outsider's.
    match site.open(moved, &put.at.path, &put.at.name, Open::Path)? {
        Some(_) => {}
        None => site.set_aside(put, ConflictCopyKind::ReplacementRemoved)?,
    }
    Ok(true)
}

/// The name is missing or holds something else: the outsider's change is ordered after ours. The token goes,
/// which is the decision.
fn theirs_is_later<O: Os>(site: &mut Site<'_, O>, step: &Step, before: &Handle, why: Why<'_>) -> Result<()> {
    // Asked before the token goes: a kill in between leaves the question to the next pass.
    let goes_on = matches!(why, Why::Remove(_)) && has_moved(site, step, before);
    drop_token(site.os, site.slots, &slot_name(step.slot))?;
    site.give_up(step);
    if matches!(why, Why::Move(_)) {
        site.report(step, None, ConflictCopyKind::NotMovedGone);
    } else if goes_on {
        site.report(step, None, ConflictCopyKind::NotRemovedMoved);
    }
    Ok(())
}

/// Returns true if what was to be removed has its only name elsewhere by now. In a redo a later record may have moved it.
fn has_moved<O: Os>(site: &Site<'_, O>, step: &Step, before: &Handle) -> bool {
    if site.pass == Pass::Redo {
        return false;
    }
    let found = site.open(before, &step.at.path, &step.at.name, Open::Path).ok().flatten();
    let stat = found.and_then(|fd| site.os.stat(&fd).ok());
    stat.is_some_and(|s| s.nlink == 1 || s.nlink > 1 && s.kind() == FileType::Directory)
}

/// Removes a token of either type.
pub(super) fn drop_token<O: Os>(os: &O, slots: &O::Fd, name: &[u8]) -> Result<()> {
    let kind = os.stat(&os.open(slots, name, Open::Path)?)?.kind();
    match if kind == FileType::Directory { os.rmdir(slots, name) } else { os.unlink(slots, name) } {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}
