//! LINK: an existing object gets one more name.
//!
//! It is linked into the slot over the token first and then placed, so that the slot tells how far the step is.

use super::site::{identify, open_object, slot_name, Site};
use crate::record::{At, Step};
use systx_os::{Errno, Handle, Open, Os, Rename, Result};

/// Links `object` into the slot if the token is still there, then places it.
pub(super) fn link<O: Os>(site: &mut Site<'_, O>, step: &Step, object: &Handle, found: &At) -> Result<()> {
    let slot = slot_name(step.slot);
    let Some(held) = identify(site.os, site.slots, &slot)? else { return Ok(()) };
    if site.tokens.is_token(site.os, site.slots, &slot, &held)? {
        let linked = [slot.as_slice(), b"l"].concat();
        let gone = match open_object(site.os, site.root, object, &found.path, &found.name, Open::Path)? {
            None => true,
            Some(fd) => match site.os.link(&fd, site.slots, &linked) {
                Ok(()) | Err(Errno::EXIST) => false,
                // No link left: everybody else has removed it since.
                Err(Errno::NOENT) => true,
                Err(e) => return Err(e),
            },
        };
        if gone {
            site.os.unlink(site.slots, &slot)?;
            site.report(step, None, "the object to link was removed by somebody else");
            return Ok(());
        }
        site.os.rename((site.slots, &linked), (site.slots, &slot), Rename::Replace)?;
    }
    super::place::put(site, step)
}
