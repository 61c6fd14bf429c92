//! Bytes that changed → PATCH, or REPLACE of a large file that was written anew.
//!
//! A patch holds the sectors that differ from the committed file, whole, each with the CRC of what stands there now.

use super::{Draft, Ordered};
use crate::bytes::sector_crc;
use crate::diff::{Diff, ObjectDiff};
use crate::id::ObjectId;
use crate::outcome::{Verb, VerbError};
use crate::plan::at_object;
use crate::plan::attributes::renew_time;
use crate::plan::handle_of;
use crate::record::{Act, Before, Patch, PatchRange, Source, Step, Was, SECTOR_BYTES};
use crate::types::Access;
use crate::workset::data::CHUNK_BYTES;
use crate::workset::extents::Extent;
use crate::workset::node::{Data, Ix, NO_SLOT};
use crate::workset::staging::slot_name;
use crate::workset::Workset;
use std::ops::Range;
use systx_os::{inode_flag, Errno, Lease, Open, Os, SetXattr};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Up to this size a file that was written anew is patched all the same: its inode stays.
const PATCH_BYTES_MAX: u64 = 1 << 20;

/// Bytes that are cut off of which the record tells how they were. As many as of a file that is patched
/// although it was written anew.
const CUT_BYTES_MAX: u64 = PATCH_BYTES_MAX;

/// Whether a private file shall take the committed one's place instead of being copied into it, if nobody
/// else has that one open or another name for it: see [`has_for_itself`].
fn is_replacement(replaced: bool, size: u64, nlink: u32) -> bool {
    replaced && size > PATCH_BYTES_MAX && nlink == 1
}

/// Consecutive sectors that differ.
struct Run {
    offset: u64,
    len: u64,
    crcs: Vec<u32>,
    were_zero: bool,
    are_zero: bool,
    /// The new bytes, as long as they may ride in the record.
    inline: Option<Vec<u8>>,
}

pub(super) fn plan_data<O: Os>(workset: &mut Workset<O>, diff: &Diff, draft: &mut Draft<O>) -> Verb<()> {
    for object in &diff.objects {
        let ix = object.ix;
        if !matches!(workset.object(ix).data, Data::Base(_)) && !workset.is_gone(ix) {
            draft.now = Some(ix);
            // Open once for everything that is asked of it here, and closed again: there may be very many.
            let held = workset.object(ix).file.is_none() && workset.memory(ix).is_none();
            if held {
                workset.object_mut(ix).file = Some(workset.private_fd(ix)?);
            }
            let planned = plan_file(workset, draft, object);
            if held {
                workset.object_mut(ix).file = None;
            }
            planned?;
        }
    }
    draft.now = None;
    Ok(())
}

fn plan_file<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, diff: &ObjectDiff) -> Verb<()> {
    let ix = diff.ix;
    let Some((handle, stat)) = workset.object(ix).lower.as_ref().map(|l| (l.handle, l.stat)) else {
        return Ok(());
    };
    let size = workset.attr(ix)?.size;
    if let Data::Private(private) = &workset.object(ix).data {
        let (replaced, slot) = (private.replaced, private.slot);
        if is_replacement(replaced, size, stat.nlink) && has_its_only_name(workset, ix) {
            if let Some(was) = has_for_itself(workset, ix)? {
                return plan_replacement(workset, draft, ix, slot, was);
            }
        }
    }
    let ranges = patch_ranges(workset, draft, ix, stat.size, size)?;
    if ranges.is_empty() && stat.size == size {
        return drop_copy(workset, draft, diff);
    }
    let from_slot: u64 = ranges.iter().filter(|r| r.source == Source::Slot).map(|r| r.len).sum();
    let slot = workset.object(ix).data.slot();
    let step_slot = match from_slot {
        0 => {
            no_slot_of(workset, draft, ix);
            Step::NO_SLOT
        }
        _ => {
            draft.slot_patches.files += 1;
            slot
        }
    };
    let at = at_object(workset, draft, ix)?;
    let mut patch =
        Patch { file: handle, size_before: stat.size, size_after: size, ranges, ends: Vec::new() };
    patch.ends = old_ends(workset, ix, &patch)?;
    draft.patches.push(Step { slot: step_slot, at, act: Act::Patch(patch) });
    draft.patched.insert(ix);
    draft.plan.written.push(ObjectId::data(&handle));
    Ok(())
}

/// Nothing of the file is published from its slot, if it has one.
fn no_slot_of<O: Os>(workset: &Workset<O>, draft: &mut Draft<O>, ix: Ix) {
    let slot = workset.object(ix).data.slot();
    if slot != NO_SLOT {
        draft.plan.unused.push(slot);
    }
}

/// Returns true if the file is where it was, under one name.
fn has_its_only_name<O: Os>(workset: &Workset<O>, ix: Ix) -> bool {
    let names = &workset.object(ix).names;
    names.len() == 1 && workset.entry(names[0].0, &names[0].1).is_some_and(|e| e.before == Some(ix))
}

/// Returns the committed file as it is now, if no process has it open, mapped or running and it has no other
/// name: only then writing and replacing look the same from outside. The final look asks again, and keeps the
/// answer true while it is replaced.
fn has_for_itself<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<Option<Was>> {
    let Some(fact) = workset.object(ix).lower.as_ref().map(|l| l.fact) else { return Ok(None) };
    let path = workset.facts().path_fd(fact)?;
    let Ok(fd) = workset.os().reopen(&path, Open::Read) else { return Ok(None) };
    // Not kept: a lease across the syncs to come would hold everybody up who opens the file.
    if workset.os().lease(&fd, Lease::Write).is_err() {
        return Ok(None);
    }
    // A copy is made elsewhere: it is not encrypted, and some flags count for empty files only.
    if workset.os().inode_flags(&fd)? & inode_flag::GIVEN != 0 {
        return Ok(None);
    }
    let stat = workset.os().stat(&fd)?;
    Ok((stat.nlink == 1).then(|| Was::of(&stat)))
}

/// The private bytes are the committed ones: nothing to publish but, at most, the time.
fn drop_copy<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, diff: &ObjectDiff) -> Verb<()> {
    let object = workset.object(diff.ix);
    let Data::Private(private) = &object.data else {
        no_slot_of(workset, draft, diff.ix);
        return Ok(());
    };
    let slot = private.slot;
    if object.opens > 0 {
        no_slot_of(workset, draft, diff.ix);
        return Ok(());
    }
    let spot = workset.slot_spot(draft.mount, slot)?;
    workset.os().unlink(&spot.dir, &spot.name)?;
    let object = workset.object_mut(diff.ix);
    object.data = Data::Base(None);
    if let Some(mtime) = diff.mtime {
        object.over_mut().mtime = Some(mtime.new);
    }
    Ok(())
}

/// The private file becomes the file: it gets what the inode had.
fn plan_replacement<O: Os>(
    workset: &mut Workset<O>,
    draft: &mut Draft<O>,
    ix: Ix,
    slot: u32,
    was: Was,
) -> Verb<()> {
    let fd = workset.private_fd(ix)?;
    let attr = workset.attr(ix)?;
    workset.os().chown(&fd, attr.uid, attr.gid)?;
    for name in workset.xattr_names(ix)? {
        if let Some(value) = workset.xattr(ix, &name)? {
            workset.os().setxattr(&fd, &name, &value, SetXattr::Any)?;
        }
    }
    workset.os().chmod(&fd, attr.mode & 0o7777)?;
    workset.os().utimens(&fd, Some(attr.atime), Some(attr.mtime))?;
    let (at, before, ours) =
        (at_object(workset, draft, ix)?, handle_of(workset, ix)?, workset.os().handle(&fd)?);
    for id in [ObjectId::entry(&at.dir, &at.name), ObjectId::data(&before), ObjectId::attr(&before)] {
        draft.plan.written.push(id);
    }
    draft.slot_patches.files += 1;
    draft.replaced.insert(ix);
    // Written to, the file would leave the directory as it is.
    renew_time(workset, draft, workset.object(ix).names[0].0);
    draft.places.push(Ordered::new(Step {
        slot,
        at,
        act: Act::Replace { ours, before, tree: Vec::new(), read: Vec::new(), rewrites: Some(was) },
    }));
    Ok(())
}

/// Returns the differences, sector by sector.
fn patch_ranges<O: Os>(
    workset: &mut Workset<O>,
    draft: &mut Draft<O>,
    ix: Ix,
    before: u64,
    after: u64,
) -> Verb<Vec<PatchRange>> {
    let mut runs = Vec::new();
    let mut inline_left = draft.inline_left;
    let mut from = 0;
    let kept = before.min(after);
    for (mut extent, kind) in changed_extents(workset, ix, after)? {
        if kind == Extent::Hole {
            // The bytes behind the committed ones are zeros anyway, however many there are.
            extent.end = extent.end.min(kept);
        }
        let end = extent.end.next_multiple_of(SECTOR).min(after);
        let start = (extent.start / SECTOR * SECTOR).max(from);
        if start < end {
            compare(workset, ix, start..end, kept, kind == Extent::Hole, &mut inline_left, &mut runs)?;
            from = end.next_multiple_of(SECTOR);
        }
    }
    // One range from the slot already asks for a barrier: then the rest needs no room in the record.
    let inline = runs.iter().all(|r| r.inline.is_some() || r.are_zero);
    if inline {
        draft.inline_left = inline_left;
    }
    let mut ranges = Vec::with_capacity(runs.len());
    for run in runs {
        let source = match run.inline {
            _ if run.are_zero => Source::Hole,
            Some(bytes) if inline => Source::Inline(bytes),
            _ => {
                workset.spill(ix)?;
                fill_slot(workset, ix, run.offset..run.offset + run.len)?;
                Source::Slot
            }
        };
        let before = if run.were_zero { Before::Zeros } else { Before::Sectors(run.crcs) };
        ranges.push(PatchRange { offset: run.offset, len: run.len, source, before });
    }
    Ok(ranges)
}

/// Returns checksums of the committed sectors at the ends of a file that gets shorter or longer.
fn old_ends<O: Os>(workset: &mut Workset<O>, ix: Ix, patch: &Patch) -> Verb<Vec<u32>> {
    let from = patch.ends_at();
    let len = patch.size_before.saturating_sub(from).min(CUT_BYTES_MAX) as usize;
    if patch.size_after == patch.size_before || len == 0 {
        return Ok(Vec::new());
    }
    let known = workset.memory(ix).and_then(|m| m.before.as_ref()).and_then(|b| b.get(from as usize..));
    let bytes = match known {
        Some(known) => known[..len.min(known.len())].to_vec(),
        None => {
            let lower = match workset.lower_file(ix) {
                // A user who may only write to a file can cut it, too.
                Err(VerbError::Os(Errno::ACCESS)) => return Ok(Vec::new()),
                lower => lower?,
            };
            let mut bytes = vec![0; len];
            workset.facts_mut().read(&lower, &mut bytes, from)?;
            bytes
        }
    };
    Ok(bytes.chunks(SECTOR_BYTES).map(sector_crc).collect())
}

fn changed_extents<O: Os>(workset: &mut Workset<O>, ix: Ix, size: u64) -> Verb<Vec<(Range<u64>, Extent)>> {
    match &workset.object(ix).data {
        Data::Base(_) => Ok(Vec::new()),
        Data::Memory(_) => Ok(vec![(0..size, Extent::Data)]),
        Data::Private(_) => private_extents(workset, ix, size),
        Data::Overlay(overlay) => Ok(overlay
            .extents
            .iter()
            .map(|(r, k)| (r.start.min(size)..r.end.min(size), k))
            .filter(|(r, _)| !r.is_empty())
            .collect()),
    }
}

/// Data and holes of a private file.
fn private_extents<O: Os>(workset: &mut Workset<O>, ix: Ix, size: u64) -> Verb<Vec<(Range<u64>, Extent)>> {
    let fd = workset.private_fd(ix)?;
    let next = |at, hole| match workset.os().seek(&fd, at, hole) {
        Err(Errno::NXIO) => Ok(size),
        found => found.map(|to| to.clamp(at, size)),
    };
    let (mut extents, mut at) = (Vec::new(), 0);
    while at < size {
        let data = next(at, false)?;
        let hole = if data < size { next(data, true)?.max(data + 1) } else { size };
        let parts = [(at..data, Extent::Hole), (data..hole, Extent::Data)];
        extents.extend(parts.into_iter().filter(|(range, _)| !range.is_empty()));
        at = hole;
    }
    Ok(extents)
}

/// Compares `range` (from a sector's start) with the committed file, of which `kept` bytes stay.
fn compare<O: Os>(
    workset: &mut Workset<O>,
    ix: Ix,
    range: Range<u64>,
    kept: u64,
    hole: bool,
    inline_left: &mut usize,
    runs: &mut Vec<Run>,
) -> Verb<()> {
    let known = workset.memory(ix).is_some_and(|m| m.before.is_some());
    let lower = match range.start < kept && !known {
        true => Some(workset.lower_file(ix)?),
        false => None,
    };
    let mut at = range.start;
    let mut open: Option<Run> = None;
    while at < range.end {
        if let (true, Some(lower)) = (hole, &lower) {
            // Zeros on zeros: of a sparse file there may be very many.
            let data = workset.facts_mut().next_data(lower, at)?.min(range.end.next_multiple_of(SECTOR));
            if data / SECTOR * SECTOR > at {
                at = data / SECTOR * SECTOR;
                runs.extend(open.take());
                continue;
            }
        }
        let len = (range.end - at).min(CHUNK_BYTES as u64) as usize;
        let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
        workset.read_bytes(ix, &mut ours, at)?;
        if at < kept {
            let len = len.min((kept - at) as usize);
            match (&lower, workset.memory(ix).and_then(|m| m.before.as_ref())) {
                (Some(lower), _) => drop(workset.facts_mut().read(lower, &mut theirs[..len], at)?),
                (None, Some(before)) => {
                    theirs[..len].copy_from_slice(&before[at as usize..at as usize + len])
                }
                (None, None) => {}
            }
        }
        for start in (0..len).step_by(SECTOR_BYTES) {
            let sector = start..(start + SECTOR_BYTES).min(len);
            let (new, old) = (&ours[sector.clone()], &theirs[sector]);
            let zero = new.iter().all(|b| *b == 0);
            let other_kind = hole && open.as_ref().is_some_and(|run| run.are_zero != zero);
            if new == old || other_kind {
                runs.extend(open.take());
            }
            if new == old {
                continue;
            }
            let run = open.get_or_insert_with(|| Run {
                offset: at + start as u64,
                len: 0,
                crcs: Vec::new(),
                were_zero: true,
                are_zero: true,
                inline: Some(Vec::new()),
            });
            run.len += new.len() as u64;
            run.crcs.push(sector_crc(old));
            run.were_zero &= old.iter().all(|b| *b == 0);
            run.are_zero &= zero;
            match (&mut run.inline, inline_left.checked_sub(new.len())) {
                (Some(bytes), Some(left)) => {
                    bytes.extend_from_slice(new);
                    *inline_left = left;
                }
                (inline, _) => *inline = None,
            }
        }
        at += len as u64;
    }
    runs.extend(open);
    Ok(())
}

/// Makes the slot's file have whole sectors where a patch takes them from.
fn fill_slot<O: Os>(workset: &mut Workset<O>, ix: Ix, range: Range<u64>) -> Verb<()> {
    let Data::Overlay(overlay) = &workset.object(ix).data else { return Ok(()) };
    let missing: Vec<_> = overlay.extents.pieces(range.clone());
    for (part, kind) in missing {
        if kind == Some(Extent::Data) {
            continue;
        }
        let mut at = part.start;
        while at < part.end {
            let mut buf = vec![0; (part.end - at).min(CHUNK_BYTES as u64) as usize];
            workset.read_bytes(ix, &mut buf, at)?;
            let fd = whole_or_private(workset, ix)?;
            crate::bytes::write_all(workset.os(), &fd, &buf, at)?;
            at += buf.len() as u64;
        }
    }
    if let Data::Overlay(overlay) = &mut workset.object_mut(ix).data {
        overlay.extents.insert(range, Extent::Data);
    }
    Ok(())
}

fn whole_or_private<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<std::sync::Arc<O::Fd>> {
    match workset.whole_fd(ix, Access::Write)? {
        Some(fd) => Ok(fd),
        None => workset.private_fd(ix),
    }
}

/// Opens a slot of ours.
pub(super) fn open_slot<O: Os>(
    workset: &mut Workset<O>,
    mount: usize,
    slot: u32,
    how: Open,
) -> Result<O::Fd, Errno> {
    let dir = workset.staging(mount)?.dir.clone();
    workset.os().open(&dir, &slot_name(slot), how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_files_of_one_name_written_anew_are_replaced() {
        assert!(is_replacement(true, PATCH_BYTES_MAX + 1, 1));
        assert!(!is_replacement(false, PATCH_BYTES_MAX + 1, 1));
        assert!(!is_replacement(true, PATCH_BYTES_MAX, 1));
        assert!(!is_replacement(true, PATCH_BYTES_MAX + 1, 2));
    }
}
