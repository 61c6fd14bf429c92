//! PATCH: bytes and size of an existing file, sector by sector.

use super::decide::{
    is_pre_image, is_zeros, Answer, Ends, Known, Question, Resize, Sector, Sharing, Size, Stamp, Target,
    Verdict,
};
use super::pieces::{after_image, chunks, Chunk, CHUNK_BYTES};
use super::place::open_for_writing;
use super::site::{OldEnds, Pass, Site};
use super::sure::Sure;
use super::words::Words;
use super::{moved, refused};
use crate::bytes::{read_up_to, sector_crc, write_all};
use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use crate::objects::{past_leases, slot_name};
use crate::outcome::{ConflictCopyKind, Durability};
use crate::record::{Patch, PatchRange, Source, Step, SECTOR_BYTES};
use std::cell::Cell;
use std::sync::Arc;
use systx_os::{Errno, Fallocate, Lease, Open, Os, Result, Timestamp};

/// Consecutive bytes of a chunk.
type Run = std::ops::Range<usize>;

/// Sets the size, then writes every sector whose pre-image is still there. In a file that another process has
/// open, bytes are exchanged instead of written, and growth is appended.
pub(super) fn patch<O: Os>(site: &mut Site<'_, O>, n: usize, step: &Step, patch: &Patch) -> Result<()> {
    let os = site.os;
    let Some((target, since)) = target_of(site, step, patch)? else { return report_gone(site, step, patch) };
    let slot = match new_bytes(site, step, patch)? {
        NewBytes::InRecord => None,
        NewBytes::InSlot(slot) => Some(slot),
        NewBytes::Reclaimed => return site.meet_empty(step),
    };
    // Before size and bytes are read: under the lease none can change between that and the writes.
    let mut lease = WriteLease::hold(os, &target, since);
    let sharing = lease.sharing;
    let stays_open = since == Since::Now && sharing == Sharing::Exclusive && site.keeps_targets;
    let (stat, redo) = (os.stat(&target)?, site.pass == Pass::Redo);
    let size = stat.size;
    if redo && patch.size_after > patch.size_before {
        site.old_ends.entry(patch.file).or_default().insert(patch.size_before);
    }
    // Bytes can have survived a power loss without the size that covers them, whichever record let the file grow.
    let none = OldEnds::new();
    let (ends, counts) = (site.old_ends.get(&patch.file).unwrap_or(&none), compares_ends(site, patch));
    let later = |at| site.written_later.is_some_and(|later| later(&patch.file, at));
    let (pass, words) = (site.pass, Words::of(site, n, sharing)?);
    let mut file = Patching {
        os,
        patch,
        target: &target,
        slot: slot.as_ref(),
        ends,
        counts,
        sharing,
        pass,
        is_own: site.is_own,
        is_first: site.is_own && !mutant::on(Mutant::SameIsOurs),
        later: &later,
        words,
        lease: &lease,
        unsure: Cell::new(false),
    };
    if site.appends.contains(&patch.file) && (sharing == Sharing::Shared || size != patch.size_before) {
        let landed = file.append_anywhere(site.durability)?;
        came_to(site, n, step, landed);
        return Ok(());
    }
    let found = Size::of(patch, size);
    let verdict = file.verdict(size, stamp_of(site, patch, stat.mtime))?;
    if verdict == Verdict::SetAside {
        drop(lease);
        return refused::set_aside_for_good(site, n, step);
    }
    let mut theirs = verdict.is_reported() || file.is_longer(size);
    // Set before the bytes are written: from then on a file that ends sooner was cut by an outsider.
    if verdict == Verdict::Set {
        os.truncate(&target, patch.size_after)?;
    }
    theirs |= file.write_up_to(end_in_place(patch, verdict), || Words::of(site, n, Sharing::Shared))?;
    if verdict == Verdict::Append {
        theirs |= file.append()?;
    }
    let may_lack =
        redo && (found == Size::Other && file.is_cut_within(size)? || file.is_put_back_within()?);
    if redo {
        give_time(os, patch, &target, stat.mtime);
        site.written.note(stat.mtime, &os.stat(&target)?);
    }
    lease.taken &= !stays_open;
    drop(lease);
    if stays_open {
        site.keep_target(patch.file, target);
    }
    // A sector that a later record of the same log wrote is no outsider's: a redo can't tell the two apart
    // and stays silent.
    if theirs && !redo {
        site.report(step, None, ConflictCopyKind::ContentsLeft);
    } else if may_lack && !mutant::on(Mutant::CutByOthersUnsaid) {
        refused::keep_patch(site, n, step, patch, ConflictCopyKind::ContentsLeft)?;
    }
    Ok(())
}

fn stamp_of<O: Os>(site: &Site<'_, O>, patch: &Patch, now: Timestamp) -> Stamp {
    match site.shared.get(&patch.file) {
        Some(noted) if *noted != now && !mutant::on(Mutant::CutsUnseen) => Stamp::Moved,
        _ => Stamp::AsNoted,
    }
}

/// Gives a file of which pages were written the time of that, which it had not.
///
/// In this life writing the bytes has moved it; a power loss may have taken that and left them.
fn give_time<O: Os>(os: &O, patch: &Patch, target: &O::Fd, found: Timestamp) {
    let older = |written: &Timestamp| found < *written && os.stat(target).is_ok_and(|now| now.mtime == found);
    if patch.by_pages.is_some_and(|written| older(&written)) {
        // Of another user's file it can't be set.
        let _ = os.utimens(target, None, patch.by_pages);
    }
}

/// Reports that the file is gone.
fn report_gone<O: Os>(site: &mut Site<'_, O>, step: &Step, patch: &Patch) -> Result<()> {
    // In a redo a later record of ours may have removed it, and be on the disk.
    let later = site.changed_later.is_some_and(|later| later(&patch.file));
    if !later && !site.may_have_removed(&patch.file) {
        site.report(step, None, ConflictCopyKind::ContentsGone);
    }
    Ok(())
}

/// The way in which bytes have come behind whatever end there was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Landed {
    /// Where the record says.
    AsSaid,
    /// Whole, but behind bytes of another process.
    Behind,
    /// Bytes of another process came between them.
    InPieces,
}

fn came_to<O: Os>(site: &mut Site<'_, O>, n: usize, step: &Step, landed: Landed) {
    if landed != Landed::AsSaid && site.durability == Durability::Durable {
        // Where there is no room for it, a redo goes by the bytes.
        let _ = moved::note(site, n);
    }
    if landed == Landed::InPieces {
        site.report(step, None, ConflictCopyKind::ContentsLeft);
    }
}

/// Where the new bytes of a patch are.
enum NewBytes<Fd> {
    InRecord,
    /// Some of them in this file.
    InSlot(Fd),
    /// An earlier pass took the step to its end, and the file went.
    Reclaimed,
}

fn new_bytes<O: Os>(site: &Site<'_, O>, step: &Step, patch: &Patch) -> Result<NewBytes<O::Fd>> {
    if patch.ranges.iter().all(|range| range.source != Source::Slot) {
        return Ok(NewBytes::InRecord);
    }
    match site.os.open(site.slots, &slot_name(step.slot), Open::Read) {
        Ok(fd) => Ok(NewBytes::InSlot(fd)),
        Err(Errno::NOENT) => Ok(NewBytes::Reclaimed),
        Err(e) => Err(e),
    }
}

/// Decides whether the ends of a file whose size changes must be as the record says: an outsider may have written as
/// many other bytes.
///
/// The owner has looked a moment ago. In a redo it counts only if no other record changes the file: what one
/// before has written may be lost, and is not put back where a later one cuts it off; and what one behind has
/// written may be there.
fn compares_ends<O: Os>(site: &Site<'_, O>, patch: &Patch) -> Ends {
    let only = || site.only_change.is_some_and(|only| only(&patch.file));
    if !site.is_own && (site.pass == Pass::First || only()) && !mutant::on(Mutant::EndsNotCompared) {
        Ends::Compared
    } else {
        Ends::Unknown
    }
}

/// Up to where bytes are patched in place.
fn end_in_place(patch: &Patch, verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Append => patch.size_before,
        // The sector that holds the end is an outsider's, or a part of it is.
        Verdict::Rewritten => patch.ends_at(),
        Verdict::Keep | Verdict::Set | Verdict::Theirs | Verdict::SetAside => patch.size_after,
    }
}

/// The file, opened for writing, and since when it is open; `None` when it is gone.
fn target_of<O: Os>(site: &Site<'_, O>, step: &Step, patch: &Patch) -> Result<Option<(Arc<O::Fd>, Since)>> {
    if let Some(kept) = site.patch_targets.get(&patch.file) {
        return Ok(Some((kept.clone(), Since::Before)));
    }
    Ok(open_target(site, step, patch)?.map(|opened| (Arc::new(opened), Since::Now)))
}

fn open_target<O: Os>(site: &Site<'_, O>, step: &Step, patch: &Patch) -> Result<Option<O::Fd>> {
    let (os, at) = (site.os, &step.at);
    // A commit of other pages may be publishing them, under a lease.
    let open = |how| past_leases(os, || Ok(()), || site.open(&patch.file, &at.path, &at.name, how));
    match open(Open::ReadWrite) {
        Err(Errno::ACCESS) => open(Open::Path)?.map(|found| open_for_writing(os, &found)).transpose(),
        opened => opened,
    }
}

/// A file that is being patched.
struct Patching<'a, O: Os> {
    os: &'a O,
    patch: &'a Patch,
    target: &'a O::Fd,
    /// New bytes that the record does not carry.
    slot: Option<&'a O::Fd>,
    /// Sizes that it had before records of the same redo let it grow.
    ends: &'a OldEnds,
    /// If those of its old size count.
    counts: Ends,
    sharing: Sharing,
    pass: Pass,
    /// See [`Site::is_own`].
    is_own: bool,
    /// No pass has written any of its bytes yet: what is new already is another process's.
    is_first: bool,
    /// True of a byte that a later record of the same redo writes.
    later: &'a dyn Fn(u64) -> bool,
    words: Words<O>,
    lease: &'a WriteLease<'a, O>,
    /// The lease may be gone: nothing more is written under it.
    unsure: Cell<bool>,
}

impl<O: Os> Patching<'_, O> {
    /// Decides what is done about the size; `size` is the present one.
    fn verdict(&self, size: u64, stamp: Stamp) -> Result<Verdict> {
        let (patch, sharing) = (self.patch, self.sharing);
        let (resize, found) = (Resize::of(patch), Size::of(patch, size));
        let state = Target { stamp, resize, size: found, sharing, pass: self.pass, ends: self.counts };
        Ok(match patch.by_pages {
            // The size is none of its business.
            Some(_) if mutant::on(Mutant::PagesSetSize) => Verdict::Set,
            Some(_) => Verdict::Keep,
            None => state.verdict(self.answer(state.question(), size)?),
        })
    }

    /// Looks at the bytes that decide, and at no others. `size` is the present one.
    fn answer(&self, question: Question, size: u64) -> Result<Answer> {
        let ours = match question {
            Question::Nothing => return Ok(Answer::NotAsked),
            Question::Ends => self.ends_are_there()?,
            Question::UpToNewSize => !self.holds_foreign(self.patch.size_after)?,
            // Growth by a hole has no sectors: then the old end alone shows that the file is another one by now.
            Question::UpToPresentSize => {
                !self.holds_foreign(size)? && (self.counts == Ends::Unknown || self.ends_are_there()?)
            }
        };
        Ok(if ours { Answer::Ours } else { Answer::Foreign })
    }

    /// Returns true if the ends of a file of the old size are as they were, or as a power loss leaves them that
    /// has taken the new size.
    fn ends_are_there(&self) -> Result<bool> {
        let mut at = self.patch.ends_at();
        for crcs in self.patch.ends.chunks(CHUNK_BYTES / SECTOR_BYTES) {
            let mut present = vec![0; crcs.len() * SECTOR_BYTES];
            let got = read_up_to(self.os, self.target, &mut present, at)?;
            for (sector, crc) in present[..got].chunks(SECTOR_BYTES).zip(crcs) {
                let is_there = sector_crc(sector) == *crc
                    || self.is_without_size(at, sector)?
                    || self.is_torn(at, sector)?;
                if !is_there {
                    return Ok(false);
                }
                at += SECTOR_BYTES as u64;
            }
        }
        Ok(true)
    }

    /// Returns true if a sector at an end of the old file was exchanged in part.
    fn is_torn(&self, at: u64, sector: &[u8]) -> Result<bool> {
        let end = at + sector.len() as u64;
        let Some(range) = self.range_of(at).filter(|range| end <= range.offset + range.len) else {
            return Ok(false);
        };
        let chunk = Chunk { at, skip: (at - range.offset) as usize, len: sector.len() };
        let before = (&range.before, chunk.skip / SECTOR_BYTES);
        Ok(self.words.torn(self.os, at, sector, &self.after(range, chunk)?, before)?.is_some())
    }

    /// Returns true if a sector at an end of the old file is as it is with the new size: bytes can have survived
    /// a power loss without it.
    fn is_without_size(&self, at: u64, sector: &[u8]) -> Result<bool> {
        let patch = self.patch;
        // What stands before the new end stays.
        let kept = patch.size_after.saturating_sub(at).min(sector.len() as u64) as usize;
        if sector[kept..].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        let Some(range) = self.range_of(at) else {
            return Ok(patch.size_after < patch.size_before);
        };
        let (skip, front) = ((at - range.offset) as usize, &sector[..kept]);
        let is_cut = kept < sector.len() && is_pre_image(&range.before, skip / SECTOR_BYTES, front);
        Ok(is_cut || self.after(range, Chunk { at, skip, len: kept })? == front)
    }

    /// Returns true if another process has cut the file within a sector that has not the new bytes up to there: a power
    /// loss may have left it as it was before, of which the record knows only the whole sector. Of
    /// several records that wrote the sector only the last one is asked.
    fn is_cut_within(&self, size: u64) -> Result<bool> {
        let at = size / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let Some(range) = self.range_of(at).filter(|_| at < size && !(self.later)(at)) else {
            return Ok(false);
        };
        let len = (size - at).min(range.offset + range.len - at) as usize;
        let mut present = vec![0; len];
        read_up_to(self.os, self.target, &mut present, at)?;
        Ok(self.after(range, Chunk { at, skip: (at - range.offset) as usize, len })? != present)
    }

    /// The new bytes of a piece.
    fn after(&self, range: &PatchRange, chunk: Chunk) -> Result<Vec<u8>> {
        after_image(self.os, self.slot, range, chunk)
    }

    /// Returns what is known of the sector of a chunk that begins `from` there, and has these new bytes.
    fn known<'k>(&'k self, range: &'k PatchRange, chunk: Chunk, from: usize, after: &'k [u8]) -> Known<'k> {
        let before = (&range.before, (chunk.skip + from) / SECTOR_BYTES);
        Known { before, after, at: chunk.at + from as u64, ends: self.ends }
    }

    /// Returns true if a file, up to a size between before and after, holds a sector that no pass of ours, cut
    /// off by a power loss, left: then the size is an outsider's, too.
    fn holds_foreign(&self, size: u64) -> Result<bool> {
        for range in &self.patch.ranges {
            for chunk in chunks(range, size) {
                let after = self.after(range, chunk)?;
                let mut present = vec![0; chunk.len];
                read_up_to(self.os, self.target, &mut present, chunk.at)?;
                let sectors = present.chunks(SECTOR_BYTES).zip(after.chunks(SECTOR_BYTES)).enumerate();
                for (n, (present, after)) in sectors {
                    let known = self.known(range, chunk, n * SECTOR_BYTES, after);
                    if self.words.judge(self.os, &known, present)?.0 == Sector::Foreign {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Grows a file that another process has open, by appending: its own append at the same moment stands before
    /// or after ours, and both are complete. Returns true if it did.
    fn append(&self) -> Result<bool> {
        let patch = self.patch;
        invariant!("I6", patch.size_after > patch.size_before, "only growth is appended");
        let tail = self.tail()?;
        let size = self.os.stat(self.target)?.size;
        // An outsider has cut it: the end is not where the program saw it, so an append would be misplaced.
        if size < patch.size_before {
            return Ok(true);
        }
        if self.is_longer(size) {
            return Ok(true);
        }
        // An earlier pass may have been cut off in here.
        let mut present = vec![0; (size - patch.size_before).min(tail.len() as u64) as usize];
        let done = read_up_to(self.os, self.target, &mut present, patch.size_before)?;
        let done = if mutant::on(Mutant::AppendedTwice) { 0 } else { done };
        // Another process has appended since: how much of ours is behind that can't be told.
        if present[..done] != tail[..done] {
            return Ok(true);
        }
        let begun = patch.size_before + done as u64;
        Ok(!self.append_all(&tail[done..])?.iter().all(|at| *at == begun))
    }

    /// Returns true if another process has let a file grow that is to grow: before the owner's pass there was none that
    /// could have done so. It may have written the very same bytes.
    fn is_longer(&self, size: u64) -> bool {
        let Patch { size_before, size_after, by_pages, .. } = *self.patch;
        let grows = size_after > size_before && by_pages.is_none();
        self.is_own && grows && size > size_before && !mutant::on(Mutant::SameIsOurs)
    }

    /// Appends bytes of which no pass has appended any yet, wherever the file ends by now.
    fn append_anywhere(&self, durability: Durability) -> Result<Landed> {
        let all = self.append_all(&self.tail()?)?;
        // A redo would not find them where the record says, and leave them out: they are on the disk before the entry is
        // free.
        let as_said = all == [self.patch.size_before] || mutant::on(Mutant::MovedNotSynced);
        if !as_said && durability == Durability::Durable {
            self.os.fdatasync(self.target)?;
        }
        Ok(match all[..] {
            [at] if at == self.patch.size_before => Landed::AsSaid,
            [_] => Landed::Behind,
            _ => Landed::InPieces,
        })
    }

    /// Where the first bytes have come, and further ones that do not stand right behind those before: the kernel appends
    /// at the end of that moment, so another process's append came between.
    fn append_all(&self, mut rest: &[u8]) -> Result<Vec<u64>> {
        let (mut begun, mut end) = (Vec::new(), None);
        while !rest.is_empty() {
            let (landed, written) = self.os.append(self.target, rest)?;
            if end != Some(landed) {
                begun.push(landed);
            }
            end = Some(landed + written as u64);
            rest = rest.get(written..).unwrap_or_default();
            // A full disk: the publication stays pending instead of asking for ever.
            if written == 0 {
                return Err(Errno::NOSPC);
            }
        }
        Ok(begun)
    }

    /// The bytes by which the file grows.
    fn tail(&self) -> Result<Vec<u8>> {
        let patch = self.patch;
        let mut tail = vec![0; (patch.size_after - patch.size_before) as usize];
        for range in &patch.ranges {
            let (from, to) =
                (range.offset.max(patch.size_before), (range.offset + range.len).min(patch.size_after));
            if from < to {
                let skip = (from - range.offset) as usize;
                let bytes = self.after(range, Chunk { at: from, skip, len: (to - from) as usize })?;
                let at = (from - patch.size_before) as usize;
                tail[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(tail)
    }

    /// Writes what is before `end`; returns true if a sector was left because it is neither before nor after. If others
    /// may have got the file open in the middle of it, it begins again by exchanges (`words`: for these), and finds written
    /// what is written.
    fn write_up_to(&mut self, end: u64, words: impl Fn() -> Result<Words<O>>) -> Result<bool> {
        let mut theirs = false;
        loop {
            if self.sharing == Sharing::Shared {
                self.note_words(end)?;
            }
            for range in &self.patch.ranges {
                for chunk in chunks(range, end) {
                    theirs |= self.write_chunk(range, chunk)?;
                }
            }
            if !self.unsure.take() {
                self.words.end(self.os);
                return Ok(theirs);
            }
            (self.sharing, self.words, self.is_first) = (Sharing::Shared, words()?, false);
        }
    }

    /// Notes the old bytes of sectors before `end` that are to be exchanged.
    fn note_words(&self, end: u64) -> Result<()> {
        for range in &self.patch.ranges {
            for chunk in chunks(range, end) {
                let (after, mut present) = (self.after(range, chunk)?, vec![0; chunk.len]);
                let len = read_up_to(self.os, self.target, &mut present, chunk.at)?;
                for sector in (0..len).step_by(SECTOR_BYTES).map(|s| s..(s + SECTOR_BYTES).min(len)) {
                    let (now, new) = (&present[sector.clone()], &after[sector.clone()]);
                    let known = self.known(range, chunk, sector.start, new);
                    if known.judge(now) == Sector::Before && self.words.is_needed(now, new) {
                        self.words.note(self.os, now, chunk.at + sector.start as u64)?;
                    }
                }
            }
        }
        self.words.sync(self.os)
    }

    fn write_chunk(&self, range: &PatchRange, chunk: Chunk) -> Result<bool> {
        let (os, at) = (self.os, chunk.at);
        let mut after = self.after(range, chunk)?;
        debug_assert_eq!(after.len(), chunk.len, "I6: a sector is judged by all of its new bytes");
        let mut present = vec![0; chunk.len];
        let len = read_up_to(os, self.target, &mut present, at)?;
        // The size is set already: a file that ends earlier was cut by an outsider, and past its end stays as
        // the outsider left it.
        let mut theirs = len < chunk.len;
        let write = |after: &[u8], run: Run| match self.sharing {
            Sharing::Exclusive if self.unsure.get() || !self.lease.is_sure() => {
                self.unsure.set(true);
                Ok(false)
            }
            // If it went in that very call, another process may have written in between.
            Sharing::Exclusive => self.put(range, after, at, run).map(|()| !self.lease.is_sure()),
            // Another process has the file open: its stores from now on are later than ours, and stay.
            Sharing::Shared => {
                let (before, after) = (&present[run.clone()], &after[run.clone()]);
                os.compare_exchange(self.target, at + run.start as u64, before, after).map(|all| !all)
            }
        };
        let mut run: Option<Run> = None;
        for sector in (0..len).step_by(SECTOR_BYTES).map(|s| s..(s + SECTOR_BYTES).min(len)) {
            let (new, now) = (&after[sector.clone()], &present[sector.clone()]);
            let (state, torn) = self.words.judge(os, &self.known(range, chunk, sector.start, new), now)?;
            if let Some(bytes) = torn {
                after[sector.clone()].copy_from_slice(&bytes);
            }
            let writes = match state {
                // Written by a pass before this one, or by another process.
                Sector::After => {
                    theirs |= self.is_of_others(range, chunk, &sector, now);
                    false
                }
                Sector::Before | Sector::Cut if self.goes_on(at + sector.start as u64, sector.len())? => {
                    false
                }
                Sector::Before | Sector::Cut => true,
                Sector::Lost | Sector::Foreign => {
                    theirs = true;
                    false
                }
            };
            run = match run {
                Some(run) if writes => Some(run.start..sector.end),
                None if writes => Some(sector),
                Some(run) => {
                    theirs |= write(&after, run)?;
                    None
                }
                None => None,
            };
        }
        if let Some(run) = run {
            theirs |= write(&after, run)?;
        }
        Ok(theirs)
    }

    /// Returns true if another process has written the very bytes of ours, which no pass of ours has yet.
    fn is_of_others(&self, range: &PatchRange, chunk: Chunk, sector: &Run, now: &[u8]) -> bool {
        let Patch { size_before, size_after, .. } = *self.patch;
        // The sector at an end that moves has been cut by now, or filled with zeros.
        let end = chunk.at + sector.end as u64;
        let stays = size_before == size_after || end < size_before.min(size_after);
        let n = (chunk.skip + sector.start) / SECTOR_BYTES;
        self.is_first && stays && !is_pre_image(&range.before, n, now)
    }

    /// In a redo: returns true if the last sector of the file as this record leaves it, of so many bytes, has others
    /// behind these. Who wrote them, a later record or another process, may have put back what this record found, and
    /// the two would be mixed.
    fn goes_on(&self, at: u64, len: usize) -> Result<bool> {
        if self.pass != Pass::Redo || len == SECTOR_BYTES || mutant::on(Mutant::SectorsJudgedInPart) {
            return Ok(false);
        }
        let mut behind = [0; SECTOR_BYTES];
        let got = read_up_to(self.os, self.target, &mut behind[len..], at + len as u64)?;
        Ok(!is_zeros(&behind[len..][..got]))
    }

    /// Returns true if [`Patching::goes_on`] kept bytes of this record from such a sector, and no later record has it.
    fn is_put_back_within(&self) -> Result<bool> {
        let end = self.patch.size_after;
        let at = end / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let Some(range) = self.range_of(at).filter(|_| at < end && !(self.later)(at)) else {
            return Ok(false);
        };
        let chunk = Chunk { at, skip: (at - range.offset) as usize, len: (end - at) as usize };
        let (after, mut present) = (self.after(range, chunk)?, vec![0; chunk.len]);
        let got = read_up_to(self.os, self.target, &mut present, at)?;
        let found = self.known(range, chunk, 0, &after).judge(&present[..got]);
        Ok(matches!(found, Sector::Before | Sector::Cut) && self.goes_on(at, chunk.len)?)
    }

    /// The range that has a byte of the file.
    fn range_of(&self, at: u64) -> Option<&PatchRange> {
        let holds = |range: &&PatchRange| (range.offset..range.offset + range.len).contains(&at);
        self.patch.ranges.iter().find(holds)
    }

    fn put(&self, range: &PatchRange, after: &[u8], at: u64, run: Run) -> Result<()> {
        let (offset, len) = (at + run.start as u64, run.len() as u64);
        if range.source == Source::Hole && is_zeros(&after[run.clone()]) {
            match self.os.fallocate(self.target, Fallocate::PunchHole, offset, len) {
                Err(Errno::OPNOTSUPP) => {}
                done => return done,
            }
        }
        write_all(self.os, self.target, &after[run], offset)
    }
}

/// Since when a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// Before the commit point, or an earlier record: it stays open.
    Before,
    /// This step.
    Now,
}

/// A write lease on a file while it is patched: no other process has it open, so none can store between our
/// look and our write.
struct WriteLease<'a, O: Os> {
    os: &'a O,
    target: &'a O::Fd,
    /// Exclusive if it is held; by us or, for the owner of the commit, since the final look.
    sharing: Sharing,
    sure: Sure,
    /// True if it is to be released: the file stays open, here or in a child that was forked meanwhile.
    taken: bool,
}

impl<'a, O: Os> WriteLease<'a, O> {
    fn hold(os: &'a O, target: &'a O::Fd, since: Since) -> WriteLease<'a, O> {
        let sure = Sure::now(os);
        let held = since == Since::Before && os.lease_held(target) == Ok(Lease::Write);
        let taken = !held && os.lease(target, Lease::Write).is_ok();
        let sharing = if held || taken { Sharing::Exclusive } else { Sharing::Shared };
        WriteLease { os, target, sharing, sure, taken }
    }

    fn is_sure(&self) -> bool {
        self.sure.is_held(self.os, self.target, Lease::Write)
    }
}

impl<O: Os> Drop for WriteLease<'_, O> {
    fn drop(&mut self) {
        if self.taken {
            // An error has no consequence: closing the file mostly releases the lease, too.
            let _ = self.os.lease(self.target, Lease::None);
        }
    }
}
