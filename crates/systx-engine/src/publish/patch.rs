//! PATCH: bytes and size of an existing file, sector by sector.

use super::place::open_for_writing;
use super::site::{OldEnds, Pass, Site};
use crate::bytes::{read_up_to, sector_crc, write_all};
use crate::mutant::{self, Mutant};
use crate::objects::slot_name;
use crate::outcome::DisplacedKind;
use crate::record::{Before, Patch, PatchRange, Source, Step, SECTOR_BYTES};
use std::sync::Arc;
use systx_os::{Errno, Fallocate, Lease, Open, Os, Result};

/// Bytes compared and written at a time: a multiple of the sector and of every block size.
const CHUNK_BYTES: usize = 256 * 1024;

/// Growth of a file that another process has open, in bytes, up to which it is appended; beyond, the size is
/// set first.
const APPEND_BYTES_MAX: u64 = 16 << 20;

/// An append of at most a page is complete or absent, also when its process is killed: a size in between is
/// an outsider's cut.
const PAGE_BYTES: u64 = 4096;

/// Consecutive bytes of a chunk.
type Run = std::ops::Range<usize>;

/// Sets the size, then writes every sector whose pre-image is still there. In a file that another process has
/// open, bytes are exchanged instead of written, and growth is appended.
pub(super) fn patch<O: Os>(site: &mut Site<'_, O>, step: &Step, patch: &Patch) -> Result<()> {
    let os = site.os;
    let kept = site.patch_targets.get(&patch.file).cloned();
    let fresh = kept.is_none();
    let target = match kept {
        None => open_target(site, step, patch)?.map(Arc::new),
        kept => kept,
    };
    let Some(target) = target else {
        // In a redo a later record of ours may have removed it, and be on the disk.
        let later = site.changed_later.is_some_and(|later| later(&patch.file));
        if !later && !site.may_have_removed(&patch.file) {
            site.report(step, None, DisplacedKind::ContentsGone);
        }
        return Ok(());
    };
    let slot = match patch.ranges.iter().any(|r| r.source == Source::Slot) {
        true => match os.open(site.slots, &slot_name(step.slot), Open::Read) {
            Ok(fd) => Some(fd),
            // Reclaimed after an earlier pass that took the step to its end.
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e),
        },
        false => None,
    };
    let lease = WriteLease::hold(os, &target, fresh);
    let stays_open = fresh && lease.exclusive && site.keeps_targets;
    let mut theirs = false;
    let growth = patch.size_after.saturating_sub(patch.size_before);
    let size = os.stat(&target)?.size;
    // Growth that an earlier pass was cut off in. After a power loss its size may have survived without its bytes.
    let halfway = size > patch.size_before && size < patch.size_after;
    let redo = site.pass == Pass::Redo;
    if redo && growth > 0 {
        site.old_ends.entry(patch.file).or_default().insert(patch.size_before);
    }
    // Bytes can have survived a power loss without the size that covers them, whichever record let the file grow.
    let none = OldEnds::new();
    let ends = site.old_ends.get(&patch.file).unwrap_or(&none);
    // An earlier pass, which had the file to itself, has set the size and was cut off; or all is there.
    let covered = !lease.exclusive
        && growth > 0
        && size >= patch.size_after
        && !holds_foreign(os, &target, slot.as_ref(), patch, patch.size_after, ends)?;
    let appended = growth > 0
        && growth <= APPEND_BYTES_MAX
        && !covered
        && (!lease.exclusive || (halfway && !redo && growth > PAGE_BYTES));
    let rewritten = size == patch.size_before
        && compares_ends(site, patch)
        && !ends_are_there(os, &target, slot.as_ref(), patch)?;
    if !appended && !covered {
        let cut_off = halfway
            && redo
            && is_end_of_power_loss(size)
            && !holds_foreign(os, &target, slot.as_ref(), patch, size, ends)?;
        if size != patch.size_after && !rewritten && (size == patch.size_before || cut_off) {
            os.truncate(&target, patch.size_after)?;
        } else {
            theirs |= size != patch.size_after;
        }
    }
    // Up to where bytes are patched in place.
    let end = match (appended, rewritten) {
        (true, false) => patch.size_before,
        // The sector that holds the end is an outsider's, or a part of it is.
        (_, true) => patch.ends_at(),
        _ => patch.size_after,
    };
    let later = site.cut_later.filter(|_| !mutant::on(Mutant::PastLaterCut));
    let cut = later.map_or(u64::MAX, |cut| cut(&patch.file));
    let end = end.min(cut.checked_next_multiple_of(SECTOR_BYTES as u64).unwrap_or(u64::MAX));
    for range in &patch.ranges {
        theirs |= apply(os, &target, lease.exclusive, slot.as_ref(), range, (end, ends))?;
    }
    if appended && !rewritten {
        theirs |= append(os, &target, slot.as_ref(), patch)?;
    }
    drop(lease);
    if stays_open {
        site.keep_target(patch.file, target);
    }
    // A sector that a later record of the same log wrote is no outsider's: a redo can't tell the two apart
    // and stays silent.
    if theirs && !redo {
        site.report(step, None, DisplacedKind::ContentsLeft);
    }
    Ok(())
}

/// Whether a power loss can have left a growing file with that size. File systems write blocks, so an
/// outsider has made any other.
fn is_end_of_power_loss(size: u64) -> bool {
    size % SECTOR_BYTES as u64 == 0 || mutant::on(Mutant::AnyEndIsOurs)
}

/// Whether the ends of a file whose size changes must be as the record says: an outsider may have written as
/// many other bytes.
///
/// The owner has looked a moment ago. In a redo it counts only if no other record changes the file: what one
/// before has written may be lost, and is not put back where a later one cuts it off; and what one behind has
/// written may be there.
fn compares_ends<O: Os>(site: &Site<'_, O>, patch: &Patch) -> bool {
    let only = || site.only_change.is_some_and(|only| only(&patch.file));
    !site.is_own && (site.pass == Pass::First || only()) && !mutant::on(Mutant::EndsNotCompared)
}

/// Whether the ends of a file of the old size are as they were, or as a power loss leaves them that has taken
/// the new size.
fn ends_are_there<O: Os>(os: &O, target: &O::Fd, slot: Option<&O::Fd>, patch: &Patch) -> Result<bool> {
    let mut at = patch.ends_at();
    for crcs in patch.ends.chunks(CHUNK_BYTES / SECTOR_BYTES) {
        let mut present = vec![0; crcs.len() * SECTOR_BYTES];
        let got = read_up_to(os, target, &mut present, at)?;
        for (sector, crc) in present[..got].chunks(SECTOR_BYTES).zip(crcs) {
            if sector_crc(sector) != *crc && !is_without_size(os, slot, patch, at, sector)? {
                return Ok(false);
            }
            at += SECTOR_BYTES as u64;
        }
    }
    Ok(true)
}

/// Whether a sector at an end of the old file is as it is with the new size: bytes can have survived a power
/// loss without it.
fn is_without_size<O: Os>(
    os: &O,
    slot: Option<&O::Fd>,
    patch: &Patch,
    at: u64,
    sector: &[u8],
) -> Result<bool> {
    // What stands before the new end stays.
    let kept = patch.size_after.saturating_sub(at).min(sector.len() as u64) as usize;
    if sector[kept..].iter().any(|byte| *byte != 0) {
        return Ok(false);
    }
    let holds = |range: &&PatchRange| (range.offset..range.offset + range.len).contains(&at);
    let Some(range) = patch.ranges.iter().find(holds) else {
        return Ok(patch.size_after < patch.size_before);
    };
    let (skip, front) = ((at - range.offset) as usize, &sector[..kept]);
    let is_cut = kept < sector.len() && is_pre_image(&range.before, skip / SECTOR_BYTES, front);
    Ok(is_cut || after_image(os, slot, range, at, skip, kept)? == front)
}

/// The file, opened for writing; `None` when it is gone.
fn open_target<O: Os>(site: &Site<'_, O>, step: &Step, patch: &Patch) -> Result<Option<O::Fd>> {
    let (os, at) = (site.os, &step.at);
    let open = |how| site.open(&patch.file, &at.path, &at.name, how);
    match open(Open::ReadWrite) {
        Err(Errno::ACCESS) => open(Open::Path)?.map(|found| open_for_writing(os, &found)).transpose(),
        opened => opened,
    }
}

/// The part of a range before `end`, piece by piece: where each is in the file, where in the range, and how long it is.
pub(super) fn chunks(range: &PatchRange, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (from, end) = (range.offset, (range.offset + range.len).min(end));
    let at = (from..end).step_by(CHUNK_BYTES);
    at.map(move |at| (at, (at - from) as usize, (end - at).min(CHUNK_BYTES as u64) as usize))
}

/// Returns true if a file of a size between before and after holds a sector that no pass of ours, cut off by
/// a power loss, left: then the size is an outsider's, too.
fn holds_foreign<O: Os>(
    os: &O,
    target: &O::Fd,
    slot: Option<&O::Fd>,
    patch: &Patch,
    size: u64,
    ends: &OldEnds,
) -> Result<bool> {
    for range in &patch.ranges {
        for (at, skip, len) in chunks(range, size) {
            let after = after_image(os, slot, range, at, skip, len)?;
            let mut present = vec![0; len];
            read_up_to(os, target, &mut present, at)?;
            let sectors = present.chunks(SECTOR_BYTES).zip(after.chunks(SECTOR_BYTES)).enumerate();
            for (n, (present, after)) in sectors {
                let ours = present == after
                    || present.iter().all(|b| *b == 0)
                    || is_cut(ends, at + (n * SECTOR_BYTES) as u64, present, after)
                    || is_pre_image(&range.before, skip / SECTOR_BYTES + n, present);
                if !ours {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Grows a file that another process has open, by appending: its own append at the same moment stands before
/// or after ours, and both are complete. Returns true if it did.
fn append<O: Os>(os: &O, target: &O::Fd, slot: Option<&O::Fd>, patch: &Patch) -> Result<bool> {
    let mut tail = vec![0; (patch.size_after - patch.size_before) as usize];
    for range in &patch.ranges {
        let (from, to) =
            (range.offset.max(patch.size_before), (range.offset + range.len).min(patch.size_after));
        if from < to {
            let bytes =
                after_image(os, slot, range, from, (from - range.offset) as usize, (to - from) as usize)?;
            let at = (from - patch.size_before) as usize;
            tail[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    let size = os.stat(target)?.size;
    if size < patch.size_before {
        return Ok(true);
    }
    // An earlier pass may have been cut off in here.
    let mut present = vec![0; (size - patch.size_before).min(tail.len() as u64) as usize];
    let done = read_up_to(os, target, &mut present, patch.size_before)?;
    if present[..done] != tail[..done] {
        return Ok(true);
    }
    let mut theirs = false;
    let mut expected = patch.size_before + done as u64;
    let mut rest = &tail[done..];
    while !rest.is_empty() {
        let (landed, written) = os.append(target, rest)?;
        theirs |= landed != expected;
        expected = landed + written as u64;
        rest = rest.get(written..).unwrap_or_default();
        if written == 0 {
            return Err(Errno::NOSPC);
        }
    }
    Ok(theirs)
}

/// A write lease on a file while it is patched: no other process has it open, so none can store between our
/// look and our write.
struct WriteLease<'a, O: Os> {
    os: &'a O,
    target: &'a O::Fd,
    /// True if it is held; by us or, for the owner of the commit, since the final look.
    exclusive: bool,
    /// True if it is to be released: the file stays open.
    taken: bool,
}

impl<'a, O: Os> WriteLease<'a, O> {
    fn hold(os: &'a O, target: &'a O::Fd, fresh: bool) -> WriteLease<'a, O> {
        let held = !fresh && os.lease_held(target) == Ok(Lease::Write);
        let taken = !held && os.lease(target, Lease::Write).is_ok();
        // Closing releases it, too.
        WriteLease { os, target, exclusive: held || taken, taken: taken && !fresh }
    }
}

impl<O: Os> Drop for WriteLease<'_, O> {
    fn drop(&mut self) {
        if self.taken {
            let _ = self.os.lease(self.target, Lease::None);
        }
    }
}

/// Applies one range; returns whether a sector was left because it is neither before nor after.
fn apply<O: Os>(
    os: &O,
    target: &O::Fd,
    exclusive: bool,
    slot: Option<&O::Fd>,
    range: &PatchRange,
    (end, ends): (u64, &OldEnds),
) -> Result<bool> {
    let mut theirs = false;
    for (at, skip, len) in chunks(range, end) {
        let after = after_image(os, slot, range, at, skip, len)?;
        let mut present = vec![0; len];
        let got = read_up_to(os, target, &mut present, at)?;
        // The size is set already: a file that ends earlier was cut by an outsider, and past its end stays as
        // the outsider left it.
        theirs |= got < len;
        let len = got;
        let write = |run: Run| match exclusive {
            true => put(os, target, range, &after, at, run).map(|()| false),
            // Another process has the file open: its stores from now on are later than ours, and stay.
            false => {
                let (before, after) = (&present[run.clone()], &after[run.clone()]);
                os.compare_exchange(target, at + run.start as u64, before, after).map(|all| !all)
            }
        };
        let mut run: Option<Run> = None;
        for (n, sector) in (0..len).step_by(SECTOR_BYTES).map(|s| s..(s + SECTOR_BYTES).min(len)).enumerate()
        {
            let ours = if present[sector.clone()] == after[sector.clone()] {
                false
            } else if is_pre_image(&range.before, skip / SECTOR_BYTES + n, &present[sector.clone()])
                || is_cut(ends, at + sector.start as u64, &present[sector.clone()], &after[sector.clone()])
            {
                true
            } else {
                theirs = true;
                false
            };
            run = match (run, ours) {
                (Some(run), true) => Some(run.start..sector.end),
                (None, true) => Some(sector),
                (Some(run), false) => {
                    theirs |= write(run)?;
                    None
                }
                (None, false) => None,
            };
        }
        if let Some(run) = run {
            theirs |= write(run)?;
        }
    }
    Ok(theirs)
}

fn put<O: Os>(os: &O, target: &O::Fd, range: &PatchRange, after: &[u8], at: u64, run: Run) -> Result<()> {
    let (offset, len) = (at + run.start as u64, run.len() as u64);
    if range.source == Source::Hole {
        match os.fallocate(target, Fallocate::PunchHole, offset, len) {
            Err(Errno::OPNOTSUPP) => {}
            done => return done,
        }
    }
    write_all(os, target, &after[run], offset)
}

/// The new bytes of `len` bytes at `at`.
pub(super) fn after_image<O: Os>(
    os: &O,
    slot: Option<&O::Fd>,
    range: &PatchRange,
    at: u64,
    skip: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let mut after = vec![0; len];
    match (&range.source, slot) {
        (Source::Hole, _) => {}
        (Source::Inline(bytes), _) => {
            // Bytes from a log are untrusted: what the record does not hold is left as zeros past its end
            // only if it was written so; a range that promises more than it has is refused.
            let part = bytes.get(skip..skip + len).ok_or(Errno::BADMSG)?;
            after.copy_from_slice(part);
        }
        (Source::Slot, Some(slot)) => {
            read_up_to(os, slot, &mut after, at)?;
        }
        (Source::Slot, None) => return Err(Errno::BADMSG),
    }
    Ok(after)
}

/// Returns true if a sector, which begins `at`, is ours up to an old end of the file, and zeros follow, which
/// were past that end.
fn is_cut(ends: &OldEnds, at: u64, present: &[u8], after: &[u8]) -> bool {
    let len = present.len().min(after.len()).max(1);
    let mut kept = ends.range(at + 1..at + len as u64).map(|end| (end - at) as usize);
    kept.any(|kept| present[..kept] == after[..kept] && present[kept..].iter().all(|b| *b == 0))
}

/// Returns true if a sector still is what it was before.
pub(super) fn is_pre_image(before: &Before, sector: usize, bytes: &[u8]) -> bool {
    match before {
        Before::Zeros => bytes.iter().all(|b| *b == 0),
        Before::Sectors(crcs) => crcs.get(sector).is_some_and(|crc| *crc == sector_crc(bytes)),
    }
}
