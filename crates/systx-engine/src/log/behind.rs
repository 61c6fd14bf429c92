//! Checks whether the log goes on behind the end that the table knows.
//!
//! A table may be older than the log beside it, as one that was restored from a backup. Guarantees: a table
//! that is not older is never taken for one, while others append or were killed while they did. Does not:
//! notice every older one: end of the log and `next` are of different pages.

use super::format::{self, Cell, CellRead, HeaderRead, CELL_BYTES};
use super::segment::{self, Segment};
use super::writer::Log;
use crate::id::Lsn;
use crate::mutant::{self, Mutant};
use systx_os::{Open, Os};

/// Cells that are looked at.
const CELLS: usize = 16;

impl<O: Os> Log<O> {
    /// Returns true if a commit stands behind the end whose number is not given yet, by `next`. An unreadable
    /// log is reported elsewhere.
    pub fn is_ahead_of(&self, next: impl Fn() -> Lsn) -> bool {
        let at = self.shared.cells();
        let Ok(Some(fd)) = self.open_segment(at.segment) else { return false };
        let Ok(HeaderRead::Good(header)) = segment::read_header(&self.os, &fd, at.segment) else {
            return false;
        };
        let mut bytes = [0; CELLS * CELL_BYTES];
        let Ok(n) = segment::read_full(&self.os, &fd, &mut bytes, Segment::<O>::cell_at(at.cell)) else {
            return false;
        };
        let left = header.cells.saturating_sub(u64::from(at.cell)) as usize;
        let cells =
            bytes[..n].chunks_exact(CELL_BYTES).take(left).zip(at.cell..).map_while(|(bytes, index)| {
                let cell = bytes.try_into().ok()?;
                match Cell::decode(cell, at.segment, header.nonce, index) {
                    CellRead::Good(found) => Some(found.cell),
                    CellRead::Unknown { .. } | CellRead::Bad => None,
                }
            });
        let given = cells.filter(|cell| matches!(cell, Cell::Commit { .. } | Cell::Prepared { .. }));
        let highest = given.filter_map(|cell| cell.lsn()).max();
        // After the cells: who appends one has moved `next` before.
        highest.is_some_and(|lsn| lsn >= next()) && !mutant::on(Mutant::LogOverwritten)
    }

    fn open_segment(&self, number: u64) -> systx_os::Result<Option<O::Fd>> {
        let Some(dir) = self.os.open_if_there(&self.area, b"log", Open::Directory)? else { return Ok(None) };
        self.os.open_if_there(&dir, &format::name(number), Open::Read)
    }
}
