//! The ranges of a patch piece by piece, and the new bytes of each.

use crate::bytes::read_up_to;
use crate::record::{PatchRange, Source};
use systx_os::{Errno, Os, Result};

/// Bytes compared and written at a time: a multiple of the sector and of every block size.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;

/// The part of a range before `end`, piece by piece.
pub(super) fn chunks(range: &PatchRange, end: u64) -> impl Iterator<Item = Chunk> {
    let (from, end) = (range.offset, (range.offset + range.len).min(end));
    let at = (from..end).step_by(CHUNK_BYTES);
    at.map(move |at| Chunk {
        at,
        skip: (at - from) as usize,
        len: (end - at).min(CHUNK_BYTES as u64) as usize,
    })
}

/// A piece of a range.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Where it begins in the file.
    pub at: u64,
    /// Where it begins in the range.
    pub skip: usize,
    /// The length in bytes.
    pub len: usize,
}

/// The new bytes of a piece of a range.
pub(super) fn after_image<O: Os>(
    os: &O,
    slot: Option<&O::Fd>,
    range: &PatchRange,
    Chunk { at, skip, len }: Chunk,
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
