//! Comparing and reading the bytes of both sides of a change. No more than [`CHUNK_BYTES`] of each are in
//! memory.

use super::{Change, Side};
use crate::facts::LowerFile;
use crate::outcome::{Verb, VerbError};
use crate::transaction::Transaction;
use crate::workset::data::CHUNK_BYTES;
use crate::workset::node::{Data, Ix};
use crate::workset::Workset;
use std::ops::Range;
use std::sync::Arc;
use systx_os::{Errno, FileType, Os};

impl<O: Os> Transaction<O> {
    /// Reads bytes of one side of a listed change, from `at` on: of a regular file its contents, of a
    /// symbolic link its target, of other types none. 0: the end, or there is no such side.
    pub fn contents(&mut self, change: &Change, side: Side, buf: &mut [u8], at: u64) -> Verb<usize> {
        self.ours()?;
        let Some(version) = change.version(side) else { return Ok(0) };
        let ix = self.workset.ix(version.node);
        match (self.workset.object(ix).kind, side) {
            (FileType::File, Side::After) => self.workset.read_bytes(ix, buf, at),
            (FileType::File, Side::Before) => match committed_file(&mut self.workset, ix) {
                Err(VerbError::Os(Errno::STALE)) if self.workset.facts().are_lost() => Ok(0),
                file => self.workset.facts_mut().read(&*file?, buf, at),
            },
            (FileType::Symlink, _) => {
                let target = self.readlink(version.node)?;
                let rest = usize::try_from(at).ok().and_then(|at| target.get(at..)).unwrap_or(&[]);
                let got = rest.len().min(buf.len());
                buf[..got].copy_from_slice(&rest[..got]);
                Ok(got)
            }
            _ => Ok(0),
        }
    }
}

/// Returns true if a node has other bytes than the committed object, where it has these sizes.
pub(super) fn bytes_changed<O: Os>(
    workset: &mut Workset<O>,
    ix: Ix,
    (before, after): (u64, u64),
) -> Verb<bool> {
    let object = workset.object(ix);
    if object.kind != FileType::File || matches!(object.data, Data::Base(_)) {
        return Ok(false);
    }
    if before != after {
        return Ok(true);
    }
    match &object.data {
        Data::Memory(memory) => {
            if let Some(before) = &memory.before {
                return Ok(*before != memory.bytes);
            }
            range_differs(workset, ix, ix, 0..after)
        }
        Data::Overlay(overlay) => {
            let clip = |range: Range<u64>| range.start.min(after)..range.end.min(after);
            let ranges: Vec<_> = overlay.extents.iter().map(|(range, _)| clip(range)).collect();
            for range in ranges {
                if range_differs(workset, ix, ix, range)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => range_differs(workset, ix, ix, 0..after),
    }
}

/// Returns true if an object of the committed tree and the one that takes its place, of these sizes, have
/// different bytes.
pub(super) fn bytes_differ<O: Os>(
    workset: &mut Workset<O>,
    old: Ix,
    new: Ix,
    (was, is): (u64, u64),
) -> Verb<bool> {
    match (workset.object(old).kind, workset.object(new).kind) {
        (FileType::File, FileType::File) if was == is => range_differs(workset, old, new, 0..is),
        (FileType::Symlink, FileType::Symlink) => Ok(workset.link_target(old)? != workset.link_target(new)?),
        // Of two directories what is in them differs, not they themselves.
        (FileType::Directory, FileType::Directory) => Ok(false),
        (old, new) => Ok(old == FileType::File || old != new),
    }
}

fn range_differs<O: Os>(workset: &mut Workset<O>, old: Ix, new: Ix, range: Range<u64>) -> Verb<bool> {
    if range.is_empty() {
        return Ok(false);
    }
    let file = match committed_file(workset, old) {
        Err(VerbError::Os(Errno::STALE)) if workset.facts().are_lost() => return Ok(true),
        file => file?,
    };
    let (mut ours, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CHUNK_BYTES as u64) as usize;
        let got = workset.read_bytes(new, &mut ours[..len], at)?;
        let had = workset.facts_mut().read(&file, &mut theirs[..len], at)?;
        if ours[..got] != theirs[..had] {
            return Ok(true);
        }
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    Ok(false)
}

/// The committed file behind a node, open, whatever became of the node.
pub(crate) fn committed_file<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<Arc<LowerFile<O>>> {
    match workset.object(ix).lower {
        Some(_) => workset.lower_file(ix),
        None => Err(Errno::BADF.into()),
    }
}
