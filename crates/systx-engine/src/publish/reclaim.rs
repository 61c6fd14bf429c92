//! Reclaiming: what a published transaction left in its slots is deleted, as far as the record names it.
//!
//! Anything else found in there is somebody's and goes to `aside/`. The slot directory itself stays until the log segment
//! is gone: a redo that finds it empty knows that every step was taken.

use super::site::{identify, slot_name, Site};
use crate::record::{Act, Body, Step};
use std::collections::HashSet;
use systx_os::{Errno, FileType, Handle, Open, Os, Result};

/// Empties the slots of a record that is published. Errors leave the rest for a later call.
pub(crate) fn reclaim<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Result<()> {
    for step in &body.steps {
        match &step.act {
            Act::Remove { before, tree } | Act::Replace { before, tree, .. } => {
                empty_slot(site, step, before, tree)?;
            }
            // A patch's slot stays with the record: until a sync its bytes are what a redo writes.
            _ => {}
        }
    }
    for k in 0u32.. {
        match site.os.unlink(site.slots, format!("token.{k}").as_bytes()) {
            Ok(()) => {}
            Err(Errno::NOENT) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn empty_slot<O: Os>(site: &mut Site<'_, O>, step: &Step, before: &Handle, tree: &[Handle]) -> Result<()> {
    let slot = slot_name(step.slot);
    if identify(site.os, site.slots, &slot)? != Some(*before) {
        return Ok(());
    }
    // Two processes may reclaim the same record: what is gone is gone.
    let stat = match site.os.stat_at(site.slots, &slot) {
        Err(Errno::NOENT) => return Ok(()),
        stat => stat?,
    };
    if stat.kind() != FileType::Directory {
        return gone(site.os.unlink(site.slots, &slot));
    }
    let known: HashSet<Handle> = tree.iter().copied().collect();
    let dir = match site.os.open(site.slots, &slot, Open::Path) {
        Err(Errno::NOENT) => return Ok(()),
        dir => dir?,
    };
    if clear(site.os, &dir, &known)? {
        match site.os.rmdir(site.slots, &slot) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => return gone(done),
        }
    }
    site.displace(step, "somebody else put something into the removed directory")
}

fn gone(done: Result<()>) -> Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Deletes what is known in `dir`; whether it is empty now.
pub(crate) fn clear<O: Os>(os: &O, dir: &O::Fd, known: &HashSet<Handle>) -> Result<bool> {
    let mut clean = true;
    for entry in os.read_dir(dir)? {
        let Some(handle) = identify(os, dir, &entry.name)? else { continue };
        if !known.contains(&handle) {
            clean = false;
            continue;
        }
        let done = if entry.kind == FileType::Directory {
            let child = os.open(dir, &entry.name, Open::Path)?;
            match clear(os, &child, known)? {
                true => os.rmdir(dir, &entry.name),
                false => Err(Errno::NOTEMPTY),
            }
        } else {
            os.unlink(dir, &entry.name)
        };
        match done {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => clean = false,
            Err(e) => return Err(e),
        }
    }
    Ok(clean)
}

/// Deletes everything below a directory that is ours alone (staging of a transaction that was never committed).
pub(crate) fn remove_all<O: Os>(os: &O, dir: &O::Fd) -> Result<()> {
    for entry in os.read_dir(dir)? {
        let done = if entry.kind == FileType::Directory {
            let child = os.open(dir, &entry.name, Open::Path)?;
            remove_all(os, &child)?;
            os.rmdir(dir, &entry.name)
        } else {
            os.unlink(dir, &entry.name)
        };
        match done {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
