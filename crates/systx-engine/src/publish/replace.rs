//! REPLACE: the object in the slot goes where another one was, which ends in the slot.

use super::site::Site;
use super::taken;
use crate::mutant::{self, Mutant};
use crate::objects::{identify, slot_name};
use crate::outcome::ConflictCopyKind;
use crate::record::{Read, Step};
use systx_os::{Errno, Handle, Os, Rename, Result};

/// Exchanges slot and name, looks at what came out, and exchanges back if it was not `before`.
pub(super) fn replace<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    ours: &Handle,
    before: &Handle,
    read: Option<&Read>,
) -> Result<()> {
    let slot = slot_name(step.slot);
    // The entry was set aside or reclaimed: either way an earlier pass has decided the step.
    let Some(held) = identify(site.os, site.slots, &slot)? else { return site.meet_empty(step) };
    // The exchange was made and brought out the right object; another one would undo it (I5).
    if held == *before && !mutant::on(Mutant::ReplaceAgain) {
        return Ok(());
    }
    let Some(dir) = site.directory(&step.at)? else {
        return site.set_aside(step, ConflictCopyKind::DirectoryGone);
    };
    let named = identify(site.os, &dir, &step.at.name)?;
    if held != *ours {
        // A crash came between the exchange that brought something foreign out and the one that puts it back.
        return match named {
            Some(named) if named == *ours => put_back(site, step, &dir, ours),
            _ => site.set_aside(step, ConflictCopyKind::Replaced),
        };
    }
    // The name was changed after the final look: theirs is later and stays, ours is kept (I6).
    if named != Some(*before) {
        return site.set_aside(step, ConflictCopyKind::NameChanged);
    }
    // Right before the exchange: the lease taken here shows writers that came after the final look (C5).
    let looked = read.map(|read| taken::look(site, &dir, &step.at.name, read)).transpose()?;
    match site.os.rename((site.slots, &slot), (&dir, &step.at.name), Rename::Exchange) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {
            return site.set_aside(step, ConflictCopyKind::NameRemoved)
        }
        // As in a PLACE.
        Err(Errno::INVAL) => return site.set_aside(step, ConflictCopyKind::DirectoryInside),
        Err(Errno::XDEV) => return site.set_aside(step, ConflictCopyKind::NameOnOtherMount),
        Err(e) => return Err(e),
    }
    // The kernel exchanges whatever has the name at that moment: only what came out shows which object it was.
    match identify(site.os, site.slots, &slot)? {
        Some(out) if out == *before || mutant::on(Mutant::NoExchangeBack) => match (read, looked) {
            (Some(read), Some(looked)) => taken::keep_if_changed(site, step, read, looked),
            _ => Ok(()),
        },
        _ => put_back(site, step, &dir, ours),
    }
}

/// The slot holds what an outsider put at the name: exchanges until what comes out is what was last put in, because on
/// the way back something newer still may come out.
fn put_back<O: Os>(site: &mut Site<'_, O>, step: &Step, dir: &O::Fd, ours: &Handle) -> Result<()> {
    let slot = slot_name(step.slot);
    let mut last_put = *ours;
    loop {
        // Identified before the exchange, which may bring out something newer.
        let Some(theirs) = identify(site.os, site.slots, &slot)? else { return site.meet_empty(step) };
        match site.os.rename((site.slots, &slot), (dir, &step.at.name), Rename::Exchange) {
            Ok(()) => {}
            // The outsider has removed the name since, so the object that was there has no place to go back to.
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::INVAL) => {
                return site.set_aside(step, ConflictCopyKind::ReplacedAndRemoved)
            }
            Err(e) => return Err(e),
        }
        if identify(site.os, site.slots, &slot)? == Some(last_put) || mutant::on(Mutant::ExchangeBackOnce) {
            return site.set_aside(step, ConflictCopyKind::NameChanged);
        }
        last_put = theirs;
    }
}
