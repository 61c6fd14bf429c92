//! A step that the file system refuses, where waiting doesn't help: somebody made its directory immutable, mounted something
//! on it, used up its links after the last look.
//!
//! Guarantees: what the step would have put there is kept in `aside/` and reported, what it would have taken away stays, and
//! the rest of the record goes on. As in any other displacing, the slot says that the step was decided. Does not: judge
//! reasons that may pass (disk full, no descriptors, …); those leave the record pending.

use super::patch::after_image;
use super::place::write_all;
use super::remove::drop_token;
use super::site::{identify, slot_name, Pass, Site};
use crate::record::{Act, Change, Patch, Source, Step};
use systx_os::{Errno, Handle, Open, Os, Result};

/// Free space with which a refusal for lack of space is about the object and not about the disk, in bytes.
const ROOM_BYTES: u64 = 4 << 20;
/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 256 << 10;

/// What the kernel's answer means, as a sentence fragment; `None`: it may pass.
pub(super) fn reason<O: Os>(site: &Site<'_, O>, step: &Step, error: Errno) -> Option<&'static str> {
    Some(match error {
        Errno::PERM => {
            "not permitted any more: it or its directory is immutable, append-only or another user's now"
        }
        Errno::ACCESS => "no permission any more",
        Errno::MLINK => "as many links as the file system permits are there already",
        Errno::BUSY => "something is mounted there now",
        Errno::FBIG => "larger than the file system permits",
        Errno::TXTBSY => "a program runs from it now",
        Errno::XDEV => "it is on another mount or in another project now",
        Errno::OPNOTSUPP | Errno::TOOBIG | Errno::RANGE => "the file system refuses it now",
        // An inode has room for so many extended attributes, whatever is free.
        Errno::NOSPC if sets_xattr(step) && has_room(site) => "no room for its attributes any more",
        _ => return None,
    })
}

fn sets_xattr(step: &Step) -> bool {
    let Act::Attr { changes, .. } = &step.act else { return false };
    changes.iter().any(|change| matches!(change, Change::Xattr { new: Some(_), .. }))
}

fn has_room<O: Os>(site: &Site<'_, O>) -> bool {
    site.os.statfs(site.root).is_ok_and(|s| s.bavail.saturating_mul(u64::from(s.frsize)) > ROOM_BYTES)
}

/// Keeps what the step would have published, and reports it.
///
/// # Errors
/// It can't be kept either, now: the step stays to be done.
pub(super) fn set_aside<O: Os>(
    site: &mut Site<'_, O>,
    n: usize,
    step: &Step,
    why: &'static str,
) -> Result<()> {
    let slot = slot_name(step.slot);
    let held = |site: &Site<'_, O>| identify(site.os, site.slots, &slot);
    let is_token = |site: &Site<'_, O>, held: &Handle| site.tokens.is_token(site.os, site.slots, &slot, held);
    match &step.act {
        Act::Place { .. } => match held(site)? {
            Some(_) => return site.displace(step, why),
            None => site.report(step, None, why),
        },
        Act::Replace { before, .. } => match held(site)? {
            Some(held) if held != *before => return site.displace(step, why),
            // Taken: whatever failed came after it.
            _ => {}
        },
        Act::Link { .. } => match held(site)? {
            Some(held) if !is_token(site, &held)? => return site.displace(step, why),
            Some(_) => {
                site.os.unlink(site.slots, &slot)?;
                site.report(step, None, why);
            }
            None => {}
        },
        Act::Remove { before, .. } | Act::Take { before } => match held(site)? {
            Some(held) if held == *before => {}
            Some(held) if !is_token(site, &held)? => return site.displace(step, why),
            Some(_) => {
                drop_token(site.os, site.slots, &slot)?;
                site.report(step, None, why);
            }
            None => {}
        },
        Act::Patch(patch) if in_slot(patch) => match held(site)? {
            Some(_) => return site.displace(step, why),
            None => {}
        },
        Act::Patch(patch) => {
            let name = keep_patch(site, n, patch)?;
            site.report(step, Some(name), why);
        }
        Act::Attr { .. } => site.report(step, None, why),
    }
    Ok(())
}

/// Whether a redo meets a patch without slot that was set aside: the file with its bytes is the mark.
pub(super) fn was_set_aside<O: Os>(site: &Site<'_, O>, n: usize, step: &Step) -> Result<bool> {
    match &step.act {
        Act::Patch(patch) if site.pass == Pass::Redo && !in_slot(patch) => {
            Ok(identify(site.os, site.aside, patch_name(site, n).as_bytes())?.is_some())
        }
        _ => Ok(false),
    }
}

fn in_slot(patch: &Patch) -> bool {
    patch.ranges.iter().any(|range| range.source == Source::Slot)
}

fn patch_name<O: Os>(site: &Site<'_, O>, n: usize) -> String {
    format!("{}.patch{n}", site.id)
}

/// Keeps the bytes of a patch at their places in a file in `aside/`.
fn keep_patch<O: Os>(site: &Site<'_, O>, n: usize, patch: &Patch) -> Result<String> {
    let (os, name) = (site.os, patch_name(site, n));
    let fd = match os.create(site.aside, name.as_bytes(), 0o600) {
        Err(Errno::EXIST) => os.open(site.aside, name.as_bytes(), Open::ReadWrite)?,
        made => made?,
    };
    os.truncate(&fd, patch.size_after)?;
    for range in &patch.ranges {
        let end = (range.offset + range.len).min(patch.size_after);
        let mut at = range.offset;
        while at < end && range.source != Source::Hole {
            let (len, skip) = ((end - at).min(CHUNK_BYTES) as usize, (at - range.offset) as usize);
            write_all(os, &fd, &after_image(os, None, range, at, skip, len)?, at)?;
            at += len as u64;
        }
    }
    Ok(name)
}
