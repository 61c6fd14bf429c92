//! LINK: an existing object gets one more name.
//!
//! The objects of all LINKs of a record are linked into their slots before its first step; from then on a
//! LINK is a PLACE. One token for all of them says that this is still to be done: while it is there no step
//! was taken, and what a slot lacks is linked into it; without it, an empty slot is a step that was taken.
//! That survives a power loss because metadata survive as a prefix. (A token a step would cost two renames
//! each.)

use super::refused;
use super::site::Site;
use super::tokens::token_name;
use super::{pending, Pending};
use crate::objects::{identify, slot_name};
use crate::outcome::ConflictCopyKind;
use crate::record::{Act, At, Body, Step};
use systx_os::{Errno, Handle, Open, Os, Result};

/// Links what a record links into its slots, unless that is done.
pub(super) fn bring<O: Os>(site: &mut Site<'_, O>, body: &Body) -> std::result::Result<(), Pending> {
    let links = || body.steps.iter().enumerate().filter(|(_, step)| matches!(step.act, Act::Link { .. }));
    let Some((_, first)) = links().next() else { return Ok(()) };
    let token = token_name(first.slot);
    if identify(site.os, site.slots, &token).map_err(|e| pending(first, e))?.is_none() {
        return Ok(());
    }
    for (n, step) in links() {
        let Act::Link { object, found } = &step.act else { continue };
        if let Err(error) = site.with_room(|site| link(site, step, object, found)) {
            refused::set_aside_or_wait(site, n, step, error)?;
        }
    }
    match site.os.unlink(site.slots, &token) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(pending(first, e)),
    }
}

fn link<O: Os>(site: &mut Site<'_, O>, step: &Step, object: &Handle, found: &At) -> Result<()> {
    let linked = match site.open(object, &found.path, &found.name, Open::Path)? {
        Some(fd) => site.os.link(&fd, site.slots, &slot_name(step.slot)),
        None => Err(Errno::NOENT),
    };
    match linked {
        // A process that was killed in here has linked some.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        // No link left: everybody else has removed it since.
        Err(Errno::NOENT) => {
            site.report(step, None, ConflictCopyKind::LinkedRemoved);
            site.give_up(step);
            Ok(())
        }
        Err(e) => Err(e),
    }
}
