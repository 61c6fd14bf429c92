//! The log as lines of text, for debugging.
//!
//! Guarantees: shows every segment, also those that [`super::outline`] refuses or does not reach. Does not:
//! interpret.

use super::error::{Hex, LogError};
use super::format::{self, Cell, CellRead, Header, HeaderRead, LogPos, Written, CELL_BYTES};
use super::segment::{self, Segment};
use systx_os::{Open, Os};

/// One line of a raw listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw {
    /// A segment begins.
    Segment(Header),
    /// A file whose header says nothing, or that is of another version.
    NoSegment {
        /// Number in its name.
        number: u64,
        /// Version of its format, if that is readable.
        version: Option<u32>,
    },
    /// A valid cell.
    Cell {
        /// Where.
        pos: LogPos,
        /// Contents.
        cell: Cell,
        /// When, in seconds since the epoch.
        written: i64,
    },
    /// Bytes that are no cell: the segment's cells end before them.
    NoCell(LogPos),
    /// A cell of a kind that this version does not know.
    UnknownCell {
        /// Where.
        pos: LogPos,
        /// Number of its kind.
        kind: u8,
    },
}

impl core::fmt::Display for Cell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = format::KINDS.iter().find(|(kind, _)| *kind == self.kind()).map_or("?", |(_, name)| name);
        f.write_str(name)?;
        if let Some(lsn) = self.lsn() {
            write!(f, " lsn {}", lsn.0)?;
        }
        if let Some(id) = self.id() {
            write!(f, " id {id}")?;
        }
        if let Some(b) = self.body() {
            write!(f, " body {} bytes at {:#x} crc {:08x}", b.len, b.offset, b.crc)?;
        }
        if let Cell::Next { segment } = self {
            write!(f, " {segment:x}")?;
        }
        Ok(())
    }
}

impl core::fmt::Display for Raw {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Raw::Segment(h) => {
                write!(f, "segment {:x}: {} bytes, {} cells, ", h.number, h.size, h.cells)?;
                write!(f, "area {}, nonce {:016x}, made {}", Hex(&h.area), h.nonce, h.written)?;
                if h.fresh {
                    write!(f, ", fresh: after {}, CKPT lsn {}", h.end_before, h.checkpoint.0)?;
                }
                Ok(())
            }
            Raw::NoSegment { number, version: None } => write!(f, "segment {number:x}: no header"),
            Raw::NoSegment { number, version: Some(v) } => write!(f, "segment {number:x}: format {v}"),
            Raw::Cell { pos, cell, written } => write!(f, "{pos} {cell}, written {written}"),
            Raw::NoCell(pos) => write!(f, "{pos} no cell"),
            Raw::UnknownCell { pos, kind } => write!(f, "{pos} cell of the unknown kind {kind}"),
        }
    }
}

/// Lists the log of the area behind `area_dir` as it is. Bodies are not looked at.
///
/// # Errors
/// `Os`.
pub fn raw<O: Os>(os: &O, area_dir: &O::Fd) -> Result<Vec<Raw>, LogError> {
    let mut out = Vec::new();
    let Some(dir) = segment::open_dir(os, area_dir)? else { return Ok(out) };
    for number in segment::list(os, &dir)? {
        let fd = os.open(&dir, &format::name(number), Open::Read).map_err(LogError::os("opening", number))?;
        let header = match segment::read_header(os, &fd, number)? {
            HeaderRead::Good(header) => header,
            HeaderRead::OtherVersion(v) => {
                out.push(Raw::NoSegment { number, version: Some(v) });
                continue;
            }
            HeaderRead::Bad => {
                out.push(Raw::NoSegment { number, version: None });
                continue;
            }
        };
        out.push(Raw::Segment(header));
        for index in 0..header.cells as u32 {
            let pos = LogPos { segment: number, cell: index };
            let mut bytes = [0; CELL_BYTES];
            let n = segment::read_full(os, &fd, &mut bytes, Segment::<O>::cell_at(index))
                .map_err(LogError::os("reading", number))?;
            if n == CELL_BYTES && bytes == [0; CELL_BYTES] {
                break;
            }
            let read = match n {
                CELL_BYTES => Cell::decode(&bytes, number, header.nonce, index),
                _ => CellRead::Bad,
            };
            match read {
                CellRead::Good(Written { cell, written, .. }) => out.push(Raw::Cell { pos, cell, written }),
                CellRead::Unknown { kind } => out.push(Raw::UnknownCell { pos, kind }),
                CellRead::Bad => {
                    out.push(Raw::NoCell(pos));
                    break;
                }
            }
        }
    }
    Ok(out)
}
