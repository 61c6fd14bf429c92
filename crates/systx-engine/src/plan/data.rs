//! Bytes that changed → PATCH, or REPLACE of a large file that was written anew.
//!
//! A patch holds the sectors that differ from the committed file, whole, each with the CRC of what stands there now.

use super::{Draft, Ordered};
use crate::bytes::sector_crc;
use crate::diff::bytes::{each_difference, Bytes, Committed, Sector};
use crate::diff::{Diff, ObjectDiff};
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::outcome::{Verb, VerbError};
use crate::plan::at_object;
use crate::plan::attributes::renew_time;
use crate::plan::handle_of;
use crate::record::{Act, Before, Patch, PatchRange, Source, Step, Was, SECTOR_BYTES};
use crate::workset::data::CHUNK_BYTES;
use crate::workset::extents::Extent;
use crate::workset::node::{Data, Ix, NO_SLOT};
use crate::workset::Workset;
use std::ops::{ControlFlow, Range};
use systx_os::{inode_flag, Errno, Lease, Open, Os, SetXattr};

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
    /// They are a hole now.
    hole: bool,
    /// The new bytes, as long as they may ride in the record.
    inline: Option<Vec<u8>>,
}

/// All runs of a file.
struct Runs {
    runs: Vec<Run>,
    /// Bytes that may still be inlined.
    inline_left: usize,
}

impl Runs {
    fn add(&mut self, Sector { at, old, new, hole }: Sector<'_>) {
        let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let are_zero = zero(new);
        let goes_on = self.runs.last().is_some_and(|run| {
            run.offset + run.len == at && run.hole == hole && (!hole || run.are_zero == are_zero)
        });
        if !goes_on {
            let (crcs, inline) = (Vec::new(), Some(Vec::new()));
            self.runs.push(Run { offset: at, len: 0, crcs, were_zero: true, are_zero, hole, inline });
        }
        let Some(run) = self.runs.last_mut() else { return };
        run.len += new.len() as u64;
        run.crcs.push(sector_crc(old));
        run.were_zero &= zero(old);
        run.are_zero &= are_zero;
        match (&mut run.inline, self.inline_left.checked_sub(new.len())) {
            (Some(bytes), Some(left)) => {
                bytes.extend_from_slice(new);
                self.inline_left = left;
            }
            (inline, _) => *inline = None,
        }
    }
}

pub(super) fn plan_data<O: Os>(workset: &mut Workset<O>, diff: &Diff, draft: &mut Draft<O>) -> Verb<()> {
    for object in &diff.objects {
        let Some(bytes) = &object.bytes else { continue };
        let ix = object.ix;
        draft.now = Some(ix);
        // Open once for everything that is asked of it here, and closed again: there may be very many.
        let in_memory = workset.memory(ix).is_some()
            || workset.changed_pages(ix).is_some()
            || workset.appended(ix).is_some();
        let held = workset.object(ix).file.is_none() && !in_memory;
        if held {
            workset.object_mut(ix).file = Some(workset.private_fd(ix)?);
        }
        let planned = plan_file(workset, draft, object, bytes);
        if held {
            workset.object_mut(ix).file = None;
        }
        planned?;
    }
    draft.now = None;
    Ok(())
}

fn plan_file<O: Os>(
    workset: &mut Workset<O>,
    draft: &mut Draft<O>,
    diff: &ObjectDiff,
    bytes: &Bytes,
) -> Verb<()> {
    let ix = diff.ix;
    let Some((handle, nlink)) = workset.object(ix).lower.as_ref().map(|l| (l.handle, l.stat.nlink)) else {
        return Ok(());
    };
    if let Data::Private(private) = &workset.object(ix).data {
        let (replaced, slot) = (private.replaced, private.slot);
        if is_replacement(replaced, bytes.after, nlink) && has_its_only_name(workset, ix) {
            if let Some(was) = has_for_itself(workset, ix)? {
                return plan_replacement(workset, draft, ix, slot, was);
            }
        }
    }
    if let Some(appended) = workset.appended(ix).cloned() {
        return plan_append(workset, draft, ix, appended);
    }
    let ranges = patch_ranges(workset, draft, ix, bytes)?;
    if ranges.is_empty() && bytes.before == bytes.after {
        // The time is set alone, whatever it is.
        workset.whole(ix)?;
        return drop_copy(workset, draft, diff);
    }
    // Others move the time, too, meanwhile.
    let moves_time = workset.goes_by_pages(ix);
    let by_pages = moves_time && bytes.before == bytes.after && !workset.writes_end(ix);
    let mut slot = Step::NO_SLOT;
    if ranges.iter().any(|range| range.source == Source::Slot) {
        draft.slot_patches.files += 1;
        slot = workset.object(ix).data.slot();
    } else {
        no_slot_of(workset, draft, ix);
    }
    let at = at_object(workset, draft, ix)?;
    let (mut size_before, mut size_after) = (bytes.before, bytes.after);
    let mut written = None;
    if by_pages {
        let end = ranges.last().map_or(0, |range| range.offset + range.len);
        (size_before, size_after) =
            if mutant::on(Mutant::PagesSetSize) { (size_before, size_after) } else { (end, end) };
        written = workset.object(ix).over.as_ref().and_then(|over| over.mtime).or(Some(workset.now()));
    }
    draft.by_pages.extend(moves_time.then_some(ix));
    let mut patch =
        Patch { file: handle, size_before, size_after, ranges, ends: Vec::new(), by_pages: written };
    patch.ends = old_ends(workset, ix, &patch)?;
    let (written, commuting) = patch.objects();
    draft.patches.push(Step { slot, at, act: Act::Patch(patch) });
    draft.patched.insert(ix);
    draft.plan.written.extend(written);
    draft.plan.commuting.extend(commuting);
    Ok(())
}

/// Plans an append to a file whose end was not seen. The ranges are made when that is known (`commit::ends`); it is
/// announced as any other growth.
fn plan_append<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ix: Ix, appended: Vec<u8>) -> Verb<()> {
    let (at, file) = (at_object(workset, draft, ix)?, handle_of(workset, ix)?);
    let (ranges, ends) = (Vec::new(), Vec::new());
    let patch = Patch { file, size_before: 0, size_after: 0, ranges, ends, by_pages: None };
    draft.inline_left = draft.inline_left.saturating_sub(appended.len() + SECTOR_BYTES);
    draft.plan.appends.insert(file, appended);
    draft
        .plan
        .written
        .extend(patch.objects().0.into_iter().filter(|_| !mutant::on(Mutant::AppendsUnclaimed)));
    draft.patches.push(Step { slot: Step::NO_SLOT, at, act: Act::Patch(patch) });
    draft.patched.insert(ix);
    // The time moves when the bytes come.
    draft.by_pages.insert(ix);
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
    let _ = workset.os().lease(&fd, Lease::None);
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
    let slot = match &object.data {
        Data::Private(private) if object.opens == 0 => private.slot,
        _ => {
            no_slot_of(workset, draft, diff.ix);
            return Ok(());
        }
    };
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
    draft.plan.written.extend([ObjectId::entry(&at.dir, &at.name), ObjectId::attr(&before)]);
    draft.plan.written.extend(ObjectId::whole(&before));
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
    bytes: &Bytes,
) -> Verb<Vec<PatchRange>> {
    let mut found = Runs { runs: Vec::new(), inline_left: draft.inline_left };
    each_difference(workset, (ix, ix), bytes, &mut |sector| {
        found.add(sector);
        ControlFlow::Continue(())
    })?;
    let Runs { runs, inline_left } = found;
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
    let mut bytes = vec![0; len];
    match Committed::new(ix).read(workset, &mut bytes, from) {
        // A user who may only write to a file can cut it, too.
        Err(VerbError::Os(Errno::ACCESS)) => return Ok(Vec::new()),
        read => drop(read?),
    }
    Ok(bytes.chunks(SECTOR_BYTES).map(sector_crc).collect())
}

/// Makes the slot's file have whole sectors where a patch takes them from.
fn fill_slot<O: Os>(workset: &mut Workset<O>, ix: Ix, range: Range<u64>) -> Verb<()> {
    let Data::Overlay(overlay) = &workset.object(ix).data else { return Ok(()) };
    let pieces = overlay.extents.pieces(range.clone());
    for (part, _) in pieces.into_iter().filter(|(_, kind)| *kind != Some(Extent::Data)) {
        let mut at = part.start;
        while at < part.end {
            let mut buf = vec![0; (part.end - at).min(CHUNK_BYTES as u64) as usize];
            workset.read_bytes(ix, &mut buf, at)?;
            let fd = workset.private_fd(ix)?;
            crate::bytes::write_all(workset.os(), &fd, &buf, at)?;
            at += buf.len() as u64;
        }
    }
    if let Data::Overlay(overlay) = &mut workset.object_mut(ix).data {
        overlay.extents.insert(range, Extent::Data);
    }
    Ok(())
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
