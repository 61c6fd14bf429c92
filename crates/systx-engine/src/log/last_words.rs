//! The words of a recovery that has no room for a new log: at the end of the old one.
//!
//! Guarantees: takes no space, and nothing becomes part of the log that was none. Does not: begin a log; nothing may be
//! appended behind it.

use super::error::LogError;
use super::format::{self, Cell, CELL_BYTES};
use super::reader::Replay;
use super::segment::{self, Segment};
use crate::bytes::write_all;
use crate::id::AreaId;
use systx_os::Os;

/// Appends cells without a body to a log that was read and is in nobody's use, and syncs them. Everything in the log is
/// on the disk.
///
/// Cells of a log that is damaged, or behind whose end something stands, are not appended: that would be read again.
///
/// # Errors
/// `Os`, and as of an opening.
pub fn say_at_end<O: Os>(
    os: &O,
    area: &O::Fd,
    id: &AreaId,
    replay: &Replay,
    cells: &[Cell],
) -> Result<(), LogError> {
    let end = replay.end;
    let failed = |doing| LogError::os(doing, end.segment);
    let Some(dir) = segment::open_dir(os, area)?.filter(|_| replay.damaged.is_none()) else { return Ok(()) };
    let segment = segment::open(os, &dir, end.segment, id)?;
    let at = Segment::<O>::cell_at(end.cell);
    let left = segment.last_cell().saturating_sub(end.cell) as usize;
    let mut behind = vec![0; (left + 1) * CELL_BYTES];
    let found = segment::read_full(os, &segment.fd, &mut behind, at).map_err(failed("reading"))?;
    if cells.len() > left || found < behind.len() || behind.iter().any(|byte| *byte != 0) {
        return Ok(());
    }
    let synced = if segment.header.version > format::VERSION_LEAST { end.cell } else { 0 };
    let written = os.now().sec;
    let encode = |(cell, index): (&Cell, u32)| cell.encode(segment.header.nonce, index, written, synced);
    let bytes: Vec<u8> = cells.iter().zip(end.cell..).flat_map(encode).collect();
    write_all(os, &segment.fd, &bytes, at).map_err(failed("writing"))?;
    os.fdatasync(&segment.fd).map_err(failed("syncing"))
}
