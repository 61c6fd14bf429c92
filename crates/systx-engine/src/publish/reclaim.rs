//! Reclaiming: deletes what a published transaction left in its staging entries, as far as the record names
//! it.
//!
//! Any other object found in there is an outsider's and goes to `aside/`. The staging directory itself stays
//! until the log segment is gone: a redo that finds it empty knows that every step was taken.

use super::site::{Pass, Site};
use super::taken;
use super::written::Written;
use crate::mutant::{self, Mutant};
use crate::objects;
use crate::objects::{identify, slot_name};
use crate::outcome::ConflictCopyKind;
use crate::record::{Act, Body, Gone, Read, Step, Was};
use std::collections::HashMap;
use systx_os::{Errno, Handle, Lease, Open, Os, Result};

/// Empties the slots of a record that is published. Errors leave the rest for a later call.
pub(crate) fn reclaim<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Result<()> {
    for step in &body.steps {
        match &step.act {
            Act::Replace { before, rewrites: Some(was), .. } => empty_rewritten(site, step, before, was)?,
            Act::Remove { before, tree, read, .. } | Act::Replace { before, tree, read, .. } => {
                empty_slot(site, step, before, tree, read)?;
            }
            // A patch's slot stays with the record: until a sync its bytes are what a redo writes.
            _ => {}
        }
    }
    for k in (0u32..).take_while(|_| body.has_tokens() && body.shared_slots.is_none()) {
        match site.os.unlink(site.slots, format!("token.{k}").as_bytes()) {
            Ok(()) => {}
            Err(Errno::NOENT) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Deletes what has other names, as long as the commit is in flight: afterwards others take its link count for a fact.
pub(super) fn reclaim_links<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Result<()> {
    for step in &body.steps {
        match &step.act {
            // It has one name, and is under a lease of ours.
            Act::Replace { rewrites: Some(_), .. } => {}
            Act::Remove { before, tree, read, .. } | Act::Replace { before, tree, read, .. } => {
                empty_slot(site, step, before, tree, read)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Deletes a file that was replaced because it was written anew, unless a process has it open for writing or
/// has changed it: without the replacement, these writes would have gone into the file at its name.
///
/// Most programs find the name under a lease from the final look on, and the new file behind it. This is for
/// those that resolved the name before the exchange, or came when the publisher was killed.
fn empty_rewritten<O: Os>(site: &mut Site<'_, O>, step: &Step, before: &Handle, was: &Was) -> Result<()> {
    let slot = slot_name(step.slot);
    if identify(site.os, site.slots, &slot)? != Some(*before) {
        return Ok(());
    }
    let untouched = match site.os.open(site.slots, &slot, Open::Read) {
        Ok(fd) => {
            let stat = site.os.stat(&fd)?;
            // A read lease is refused while a process has it open or mapped for writing; a user to whom it is
            // refused for another reason could not have replaced the file.
            stat.nlink == 1 && Was::of(&stat) == *was && site.os.lease(&fd, Lease::Read).is_ok()
        }
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) => false,
        Err(e) => return Err(e),
    };
    if untouched {
        gone(site.os.unlink(site.slots, &slot))
    } else {
        site.set_aside(step, ConflictCopyKind::WrittenAnewKept)
    }
}

fn empty_slot<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    before: &Handle,
    tree: &[Gone],
    read: &[Read],
) -> Result<()> {
    let slot = slot_name(step.slot);
    if identify(site.os, site.slots, &slot)? != Some(*before) {
        return Ok(());
    }
    // The process that took it out may have been killed before it compared it.
    if let Some(read) = taken::of_step(read) {
        if !taken::may_go(site.os, site.slots, &slot, read, None, &site.written)? {
            return site.set_aside(step, taken::CHANGED);
        }
    }
    // Two processes may reclaim the same record: what is gone is gone.
    match gone(site.os.unlink(site.slots, &slot)) {
        Err(Errno::ISDIR) => {}
        Err(Errno::PERM | Errno::ACCESS) => return stays(site, step),
        done => return done,
    }
    let mut known: Known<'_> = tree.iter().map(|gone| (key(gone.handle, gone.place), None)).collect();
    for read in read.iter().filter(|_| !mutant::on(Mutant::TakenNotCompared)) {
        if let Some(gone) = read.of.and_then(|of| tree.get(of as usize)) {
            known.insert(key(gone.handle, gone.place), Some(read));
        }
    }
    let dir = match site.os.open(site.slots, &slot, Open::Path) {
        Err(Errno::NOENT) => return Ok(()),
        dir => dir?,
    };
    if clear(site.os, &dir, &known, site.pass, &site.written)? {
        match site.os.rmdir(site.slots, &slot) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => return gone(done),
        }
    }
    match site.set_aside(step, TREE_CHANGED) {
        Err(Errno::PERM | Errno::ACCESS | Errno::BUSY) => stays(site, step),
        done => done,
    }
}

/// The text about a removed directory that is not as it was.
const TREE_CHANGED: ConflictCopyKind = ConflictCopyKind::TreeChanged;

/// The names that may be deleted with a directory, and how their objects were read, if they were.
type Known<'r> = HashMap<(Handle, u32), Option<&'r Read>>;

/// A further name of an object, made or changed meanwhile by a process that is in the tree, is that process's.
fn key(handle: Handle, place: u32) -> (Handle, u32) {
    (handle, if mutant::on(Mutant::PlacesOfTheDead) { 0 } else { place })
}

/// An object that can't be deleted or moved, as an outsider protects it, must not keep the log from being
/// cut.
fn stays<O: Os>(site: &mut Site<'_, O>, step: &Step) -> Result<()> {
    site.report(step, None, ConflictCopyKind::NotDeletable);
    Ok(())
}

fn gone(done: Result<()>) -> Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Deletes what is known in `dir`; whether it is empty now.
fn clear<O: Os>(os: &O, dir: &O::Fd, known: &Known<'_>, pass: Pass, written: &Written) -> Result<bool> {
    objects::clear(os, dir, &|dir, name, place| {
        let Some(handle) = identify(os, dir, name)? else { return Ok(None) };
        match known.get(&key(handle, place.short())) {
            Some(Some(read)) => taken::may_go(os, dir, name, read, Some(pass), written).map(Some),
            known => Ok(Some(known.is_some())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TreePlace;
    use systx_os::FsKind;
    use systx_sim::machine::{run_process, Machine};

    #[test]
    fn trees_deeper_than_descriptors_last_are_deleted_but_for_what_is_not_known() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("owner");
        run_process(&os, || {
            let root = os.root(0);
            let mut known = Known::new();
            let (mut dir, mut place) = (os.root(0), TreePlace::default());
            for _ in 0..300 {
                os.create(&dir, b"file", 0o600).expect("made");
                os.mkdir(&dir, b"dir", 0o700).expect("made");
                for name in [&b"file"[..], b"dir"] {
                    let handle = os.handle_at(&dir, name).expect("there");
                    known.insert(key(handle, place.of(name).short()), None);
                }
                place = place.of(b"dir");
                dir = os.open(&dir, b"dir", Open::Path).expect("opens");
            }
            os.create(&dir, b"strange", 0o600).expect("made");
            drop(dir);
            assert!(!clear(&os, &root, &known, Pass::First, &Written::default()).expect("clears"));
            assert_eq!(os.read_dir(&root).expect("lists").len(), 1, "what leads to the stranger stays");
            objects::remove_all(&os, &root).expect("removes");
            assert!(os.read_dir(&root).expect("lists").is_empty());
        })
        .expect("not killed");
    }
}
