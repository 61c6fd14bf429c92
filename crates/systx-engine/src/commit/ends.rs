//! Appends to files whose size and last bytes the transaction has not read (docs/protocol.md §3, V3).
//!
//! Owns: the look at such an end, and the PATCH that goes by it. Guarantees: from V5 to the last step the file ends where
//! its record says, as far as cooperating transactions go: none has changed it since the look, and none that changes it is
//! under way; a change by an outsider until F is a conflict. So two such transactions wait for one another, and neither
//! loses. Does not: write.

use super::{Change, Commit, Part};
use crate::bytes::{read_up_to, sector_crc};
use crate::domain::Domain;
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::objects::{open_object, past_leases};
use crate::outcome::{CommitError, Conflict, ConflictKind, Party, Waiting};
use crate::paths::join;
use crate::record::{Act, At, Before, Patch, PatchRange, Source, Step, SECTOR_BYTES};
use systx_os::{Errno, Handle, Open, Os};

impl<O: Os> Part<O> {
    /// Looks where the files end that are appended to, and has the record say so. Nothing is held.
    pub(super) fn look_at_ends(&mut self, waiting: Waiting) -> Result<(), CommitError> {
        let (Some(change), domain) = (&mut self.change, &self.domain) else { return Ok(()) };
        if change.plan.appends.is_empty() {
            return Ok(());
        }
        // In this order: the next number is read, then commits under way are waited for, then the file is looked at. So a
        // commit that changes the file is either waited for here, or has that number or a higher one, and V3 finds it.
        change.ends_since = domain.table.next();
        let objects: Vec<_> = change.plan.appends.keys().flat_map(ObjectId::whole).collect();
        let waited = domain.await_slots(&objects, waiting);
        if let Err(stuck) = waited.map_err(|error| super::failed("waiting for another commit", error))? {
            let path = domain.shown(b"");
            return Err(CommitError::Conflict(Box::new(Conflict {
                path,
                what: stuck.what,
                with: stuck.with,
            })));
        }
        let Change { plan, body, .. } = change;
        for Step { at, act, .. } in &mut body.steps {
            let Act::Patch(patch) = act else { continue };
            let Some(bytes) = plan.appends.get(&patch.file) else { continue };
            // Steps name the path at their turn; nothing has moved yet.
            let at = plan.places.get(&patch.file).unwrap_or(at);
            let file = open_to_read(domain, &patch.file, at)?;
            let failed = |error| failed(domain, at, error);
            let size = domain.os.stat(&file).map_err(failed)?.size;
            let last = last_sector(&domain.os, &file, size).map_err(failed)?;
            append_at(patch, size, &last, bytes).map_err(failed)?;
            domain.os.may_end_at(&file, patch.size_after).map_err(failed)?;
        }
        Ok(())
    }

    /// V3: another commit may have changed where a file ends since the look. Memory only.
    pub(super) fn ends_may_have_moved(&self) -> bool {
        let Some(change) = self.change.as_ref().filter(|change| !change.plan.appends.is_empty()) else {
            return false;
        };
        let mut hit = false;
        let overrun = self.domain.scan_ring(change.ends_since, self.domain.table.next(), |changed, _| {
            let mut objects = change.plan.appends.keys().flat_map(ObjectId::whole);
            hit |= objects.any(|object| changed.may_contain(object));
        });
        hit || overrun
    }
}

impl<O: Os> Commit<'_, O> {
    /// V6 and F: the files still end where the record says, with the same bytes.
    pub(super) fn compare_ends(&self) -> Result<(), CommitError> {
        for Part { domain, change, .. } in &self.parts {
            let Some(change) = change.as_ref().filter(|_| !mutant::on(Mutant::EndsNotLookedAt)) else {
                continue;
            };
            for Step { at, act, .. } in &change.body.steps {
                let Act::Patch(patch) = act else { continue };
                if !change.plan.appends.contains_key(&patch.file) {
                    continue;
                }
                let at = change.plan.places.get(&patch.file).unwrap_or(at);
                let as_said = match change.patch_targets.get(&patch.file) {
                    Some(file) => ends_as_said(&domain.os, file, patch),
                    None => ends_as_said(&domain.os, &open_to_read(domain, &patch.file, at)?, patch),
                };
                if !as_said.map_err(|error| failed(domain, at, error))? {
                    return Err(conflict(domain, at, ConflictKind::ContentsChanged));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of the sector in which a file of this size ends, as far as it goes.
fn last_sector<O: Os>(os: &O, file: &O::Fd, size: u64) -> systx_os::Result<Vec<u8>> {
    let from = size.saturating_sub(1) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    let mut bytes = vec![0; (size - from) as usize];
    let got = read_up_to(os, file, &mut bytes, from)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn ends_as_said<O: Os>(os: &O, file: &O::Fd, patch: &Patch) -> systx_os::Result<bool> {
    let last = last_sector(os, file, patch.size_before)?;
    let same = patch.size_before == 0 || patch.ends.first() == Some(&sector_crc(&last));
    // Nothing is asked behind this.
    Ok(same && os.stat(file)?.size == patch.size_before)
}

/// Makes a patch of whole sectors that appends `new` to a file of this size.
fn append_at(patch: &mut Patch, size: u64, last: &[u8], new: &[u8]) -> Result<(), Errno> {
    (patch.size_before, patch.size_after) = (size, size + new.len() as u64);
    if i64::try_from(patch.size_after).is_err() {
        return Err(Errno::FBIG);
    }
    let offset = size / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    // It has been cut since its size was asked for: the comparison finds that.
    let kept = last.get(last.len().saturating_sub((size - offset) as usize)..).unwrap_or_default();
    let mut bytes = kept.to_vec();
    bytes.resize((size - offset) as usize, 0);
    bytes.extend_from_slice(new);
    let behind = bytes.len().div_ceil(SECTOR_BYTES) - 1;
    let crcs =
        std::iter::once(sector_crc(kept)).chain(std::iter::repeat_n(sector_crc(&[]), behind)).collect();
    let len = bytes.len() as u64;
    patch.ranges =
        vec![PatchRange { offset, len, source: Source::Inline(bytes), before: Before::Sectors(crcs) }];
    patch.ends = if size == 0 { Vec::new() } else { vec![sector_crc(last)] };
    Ok(())
}

fn open_to_read<O: Os>(domain: &Domain<O>, file: &Handle, at: &At) -> Result<O::Fd, CommitError> {
    let (os, root) = (&domain.os.for_a_moment(), &domain.area.root);
    let open = || open_object(os, root, file, &at.path, &at.name, Open::Read);
    // In V6 and F this commit has an active entry that changes the file: it waits for no entry here.
    match past_leases(os, || Ok(()), open) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(conflict(domain, at, ConflictKind::Removed)),
        Err(error) => Err(failed(domain, at, error)),
    }
}

fn conflict<O: Os>(domain: &Domain<O>, at: &At, what: ConflictKind) -> CommitError {
    let path = domain.shown(&join(&at.path, &at.name));
    CommitError::Conflict(Box::new(Conflict { path, what, with: Party::Outsider }))
}

fn failed<O: Os>(domain: &Domain<O>, at: &At, error: Errno) -> CommitError {
    CommitError::Failed { doing: "appending to", path: domain.shown(&join(&at.path, &at.name)), error }
}
