//! Bytes of files that may differ, and those that do.
//!
//! Owns: [`Bytes`], which a [`Diff`](super::Diff) has of each file with private bytes, and
//! [`each_difference`], which compares them sector by sector, as records hold them. Guarantees: bytes are read
//! only where they may differ, no more than [`CHUNK_BYTES`] of each side at a time; those of the committed
//! tree become facts.

use crate::bytes::copy_from;
use crate::facts::LowerFile;
use crate::id::PAGE_BYTES;
use crate::outcome::{Verb, VerbError};
use crate::record::SECTOR_BYTES;
use crate::workset::changed_pages;
use crate::workset::data::CHUNK_BYTES;
use crate::workset::extents::Extent;
use crate::workset::node::{Data, Ix};
use crate::workset::Workset;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use systx_os::{Errno, Os, Seek};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// Bytes of a file on both sides.
pub(crate) struct Bytes {
    /// Size before, in bytes.
    pub before: u64,
    /// Size after, in bytes.
    pub after: u64,
    /// Where it may have other bytes than before, up to the size after, in order.
    pub extents: Vec<(Range<u64>, Extent)>,
}

/// A sector that differs.
pub(crate) struct Sector<'a> {
    /// Offset in bytes.
    pub at: u64,
    /// The committed bytes. Zeros follow the committed file's end.
    pub old: &'a [u8],
    /// The bytes that the program sees, up to the size after.
    pub new: &'a [u8],
    /// What differs is a hole now.
    pub hole: bool,
}

impl Bytes {
    /// All bytes of a file that takes the place of another one.
    pub fn whole(before: u64, after: u64) -> Bytes {
        Bytes { before, after, extents: vec![(0..after, Extent::Data)] }
    }

    /// Those of a file with private bytes; `None`: it has none.
    pub(super) fn of<O: Os>(data: &Data<O>, before: u64, after: u64) -> Option<Box<Bytes>> {
        if let Data::Pages(pages) = data {
            let extents = changed_pages::ranges(&pages.changed).map(|range| (range, Extent::Data)).collect();
            return Some(Box::new(Bytes { before, after, extents }));
        }
        let Data::Overlay(overlay) = data else {
            return (!matches!(data, Data::Base(_))).then(|| Box::new(Bytes::whole(before, after)));
        };
        let clip = |range: Range<u64>| range.start.min(after)..range.end.min(after);
        let extents = overlay.extents.iter().map(|(range, kind)| (clip(range), kind));
        Some(Box::new(Bytes {
            before,
            after,
            extents: extents.filter(|(range, _)| !range.is_empty()).collect(),
        }))
    }

    /// Where the two sides may differ: also where only one of them has bytes. In order, apart from each other.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let tail = self.before.min(self.after)..self.before.max(self.after);
        let mut all: Vec<_> = self.extents.iter().map(|(range, _)| range.clone()).chain([tail]).collect();
        all.retain(|range| !range.is_empty());
        all.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Returns true if the bytes of a file differ.
    pub fn differ<O: Os>(&self, workset: &mut Workset<O>, (old, new): (Ix, Ix)) -> Verb<bool> {
        if self.before != self.after {
            return Ok(true);
        }
        let mut differ = false;
        let compared = each_difference(workset, (old, new), self, &mut |_| {
            differ = true;
            ControlFlow::Break(())
        });
        match compared {
            Err(VerbError::Os(Errno::STALE)) if workset.facts().are_lost() => Ok(true),
            compared => compared.map(|()| differ),
        }
    }
}

/// The committed bytes of a file, which is opened when they are needed.
pub(crate) struct Committed<O: Os> {
    ix: Ix,
    file: Option<Arc<LowerFile<O>>>,
}

impl<O: Os> Committed<O> {
    pub fn new(ix: Ix) -> Committed<O> {
        Committed { ix, file: None }
    }

    fn file(&mut self, workset: &mut Workset<O>) -> Verb<Arc<LowerFile<O>>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = workset.lower_file(self.ix)?;
        Ok(self.file.insert(file).clone())
    }

    /// Bytes at an offset; short only at the end.
    pub fn read(&mut self, workset: &mut Workset<O>, buf: &mut [u8], at: u64) -> Verb<usize> {
        if let Some(known) = workset.memory(self.ix).and_then(|memory| memory.before.as_ref()) {
            return Ok(copy_from(known, buf, at));
        }
        let page = workset.changed_pages(self.ix).and_then(|changed| changed.get(&(at / PAGE_BYTES)));
        let within = (at % PAGE_BYTES) as usize;
        if let Some(known) = page.and_then(|page| page.before.get(within..within + buf.len())) {
            buf.copy_from_slice(known);
            return Ok(buf.len());
        }
        let file = self.file(workset)?;
        workset.read_lower(self.ix, &file, buf, at)
    }

    /// Where the next bytes stand that may be other than zeros.
    fn next_data(&mut self, workset: &mut Workset<O>, at: u64) -> Verb<u64> {
        let file = self.file(workset)?;
        workset.facts().next_data(&file, at)
    }
}

/// Shows the sectors in which the bytes of `new` differ from the committed ones of `old`, in order, until it
/// is enough.
pub(crate) fn each_difference<O: Os>(
    workset: &mut Workset<O>,
    (old, new): (Ix, Ix),
    bytes: &Bytes,
    show: &mut impl FnMut(Sector<'_>) -> ControlFlow<()>,
) -> Verb<()> {
    let kept = bytes.before.min(bytes.after);
    let refined = match workset.object(new).data {
        Data::Private(_) => Some(private_extents(workset, new, bytes.after)?),
        _ => None,
    };
    let mut committed = Committed::new(old);
    let mut from = 0;
    for (mut extent, kind) in refined.as_ref().unwrap_or(&bytes.extents).iter().cloned() {
        let hole = kind == Extent::Hole;
        if hole {
            // The bytes behind the committed ones are zeros anyway, however many there are.
            extent.end = extent.end.min(kept);
        }
        let end = extent.end.next_multiple_of(SECTOR).min(bytes.after);
        let mut at = (extent.start / SECTOR * SECTOR).max(from);
        from = from.max(end.next_multiple_of(SECTOR));
        while at < end {
            if hole {
                // Zeros on zeros: of a sparse file there may be very many. Behind the hole, its last sector may hold more.
                let data = committed.next_data(workset, at)?.min(extent.end) / SECTOR * SECTOR;
                if data > at {
                    at = data;
                    continue;
                }
            }
            let len = (end - at).min(CHUNK_BYTES as u64) as usize;
            let (mut theirs, mut ours) = (vec![0; len], vec![0; len]);
            workset.read_bytes(new, &mut ours, at)?;
            let wanted = len.min(kept.saturating_sub(at) as usize);
            // One that has become shorter meanwhile has no bytes there.
            if wanted > 0 {
                let had = committed.read(workset, &mut theirs[..wanted], at)?;
                theirs.truncate(if had < wanted { had } else { len });
            }
            for (n, new) in ours.chunks(SECTOR_BYTES).enumerate() {
                let start = (n * SECTOR_BYTES).min(theirs.len());
                let old = &theirs[start..(start + new.len()).min(theirs.len())];
                let at = at + (n * SECTOR_BYTES) as u64;
                if old != new && show(Sector { at, old, new, hole }).is_break() {
                    return Ok(());
                }
            }
            at += len as u64;
        }
    }
    Ok(())
}

/// Data and holes of a private file.
fn private_extents<O: Os>(workset: &mut Workset<O>, ix: Ix, size: u64) -> Verb<Vec<(Range<u64>, Extent)>> {
    let fd = workset.private_fd(ix)?;
    let next = |at, what| match workset.os().seek(&fd, at, what) {
        Err(Errno::NXIO) => Ok(size),
        found => found.map(|to| to.clamp(at, size)),
    };
    let (mut extents, mut at) = (Vec::new(), 0);
    while at < size {
        let data = next(at, Seek::Data)?;
        let hole = if data < size { next(data, Seek::Hole)?.max(data + 1) } else { size };
        let parts = [(at..data, Extent::Hole), (data..hole, Extent::Data)];
        extents.extend(parts.into_iter().filter(|(range, _)| !range.is_empty()));
        at = hole;
    }
    Ok(extents)
}
