//! Staged objects: few and small ones ride whole in the record; the others are counted for the stage barrier.

use super::{Draft, Staged};
use crate::bytes::read_up_to;
use crate::diff::Diff;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::record::{Act, Small};
use crate::workset::held::SMALL_OBJECTS_MAX;
use crate::workset::node::{Ix, NO_SLOT};
use crate::workset::Workset;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Open, Os};

/// Most bytes of theirs.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Stands for the unknown number of files below an unread directory. It is above the bound for single syncs.
const UNKNOWN_FILES: u64 = 1 << 32;

pub(super) fn plan_small<O: Os>(workset: &mut Workset<O>, diff: &Diff, draft: &mut Draft<O>) -> Verb<()> {
    if workset.has_met_token(draft.mount) {
        workset.leave_shared_staging(draft.mount)?;
    }
    let carried = carry(workset, draft, &diff.made);
    workset.let_go_of_closed();
    if carried? {
        return Ok(());
    }
    let mut count = draft.slot_patches;
    for ix in &diff.made {
        match workset.object(*ix).kind {
            FileType::Directory if is_unread(workset, *ix) => count.files += UNKNOWN_FILES,
            FileType::File => count.files += 1,
            _ => count.others += 1,
        }
    }
    if count != Staged::default() {
        workset.leave_shared_staging(draft.mount)?;
    }
    draft.plan.staged = count;
    Ok(())
}

/// Returns true for a directory in which processes have made what they wanted.
fn is_unread<O: Os>(workset: &Workset<O>, ix: Ix) -> bool {
    workset.object(ix).is_native() && !mutant::on(Mutant::UnreadNotSynced)
}

/// Puts every staged object into its step; whether all could be.
fn carry<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, staged: &[Ix]) -> Verb<bool> {
    let mut left = SMALL_BYTES_MAX;
    // There an fsync of a directory brings names to the disk, and not the entries that they came from.
    let unordered = workset.mounts()[draft.mount].info.kind == FsKind::Btrfs;
    if staged.is_empty()
        || unordered
        || staged.len() > SMALL_OBJECTS_MAX
        || draft.slot_patches != Staged::default()
    {
        return Ok(staged.is_empty() && draft.slot_patches == Staged::default());
    }
    let mut carried: HashMap<u32, Small> = HashMap::new();
    for ix in staged {
        let object = workset.object(*ix);
        let empty = object.dir.as_ref().is_none_or(|d| d.names.is_empty()) && !is_unread(workset, *ix);
        // A second name is a second step; made again they would be two files.
        let slot = match &object.names[..] {
            [(dir, name)] if empty => workset.entry(*dir, name).map(|e| e.slot),
            _ => None,
        };
        let Some(slot) = slot.filter(|slot| *slot != NO_SLOT) else { return Ok(false) };
        let Some(small) = small(workset, *ix, slot, left)? else { return Ok(false) };
        left -= small.content.len() as u64;
        carried.insert(slot, small);
    }
    let mut placed = 0;
    for step in draft.places.iter().map(|o| &o.step) {
        match &step.act {
            Act::Place { .. } if carried.contains_key(&step.slot) => placed += 1,
            // A REPLACE has no room for its object.
            Act::Replace { .. } if carried.contains_key(&step.slot) => return Ok(false),
            _ => {}
        }
    }
    if placed != staged.len() {
        return Ok(false);
    }
    for ordered in &mut draft.places {
        if let (Act::Place { small }, Some(object)) =
            (&mut ordered.step.act, carried.remove(&ordered.step.slot))
        {
            *small = Some(object);
        }
    }
    Ok(true)
}

/// The object in a slot, whole; `None` if it has more than `most` bytes.
fn small<O: Os>(workset: &mut Workset<O>, ix: Ix, slot: u32, most: u64) -> Verb<Option<Small>> {
    let object = workset.object(ix);
    // Of one that was cut, the size from before it was written on may be on the disk.
    if object.flagged || object.cut && !mutant::on(Mutant::CutUnknown) {
        return Ok(None);
    }
    let (mount, kind) = (usize::from(object.mount), object.kind);
    let how = if kind == FileType::File { Open::Read } else { Open::Path };
    let fd = match object.file.clone() {
        Some(fd) if workset.os().uid() == 0 => fd,
        _ => {
            let spot = workset.slot_spot(mount, slot)?;
            Arc::new(workset.os().open(&spot.dir, &spot.name, how)?)
        }
    };
    let stat = workset.os().stat(&fd)?;
    if stat.nlink == 0 {
        // A person has deleted it in its entry.
        return Err(Errno::NOENT.into());
    }
    if object_bytes(&stat) > most {
        return Ok(None);
    }
    // Of an earlier state on the disk a redo could not tell that it is ours. It is synced as any other staged file.
    let has_bytes = kind == FileType::File && stat.size > 0 && !mutant::on(Mutant::WrittenOutUnseen);
    if has_bytes && workset.os().was_written_out(&fd)? {
        return Ok(None);
    }
    let content = match kind {
        FileType::File => {
            let mut content = vec![0; stat.size as usize];
            let got = read_up_to(workset.os(), &fd, &mut content, 0)?;
            content.truncate(got);
            content
        }
        FileType::Symlink => workset.os().read_link(&fd)?,
        _ => Vec::new(),
    };
    let mut xattrs = Vec::new();
    match workset.os().listxattr(&fd) {
        Ok(names) => {
            for name in names {
                let value = workset.os().getxattr(&fd, &name)?;
                xattrs.push((name, value));
            }
        }
        Err(Errno::OPNOTSUPP) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(Some(Small {
        handle: workset.os().handle(&fd)?,
        ctime: stat.ctime,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        mtime: stat.mtime,
        content,
        xattrs,
    }))
}

fn object_bytes(stat: &systx_os::Stat) -> u64 {
    match stat.kind() {
        FileType::File | FileType::Symlink => stat.size,
        _ => 0,
    }
}
