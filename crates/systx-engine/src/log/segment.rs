//! The files of the log: making one, opening one, listing them.
//!
//! Guarantees: a segment that [`create`] returned is found by name after a power loss (its contents are not
//! yet synced); an opened segment has a header of this log. Does not: choose numbers or sizes.

use super::error::LogError;
use super::format::{self, Header, HeaderRead, CELL_BYTES, HEADER_BYTES};
use crate::bytes::write_all;
use crate::id::AreaId;
use systx_os::{Errno, Open, Os, Writing};

/// Bytes of the first segment after a recovery, the second one, and all others.
const SIZES: [u64; 3] = [1 << 20, 4 << 20, 16 << 20];
/// Bytes of a segment for each of its cells: cells take 1/16.
const BYTES_PER_CELL: u64 = 1024;
/// Segments that are larger than usual have a multiple of this size in bytes.
const SIZE_STEP: u64 = 1 << 20;
/// Zeros are written so many at a time.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// An open segment.
pub(super) struct Segment<O: Os> {
    pub fd: O::Fd,
    pub header: Header,
}

impl<O: Os> Segment<O> {
    pub fn number(&self) -> u64 {
        self.header.number
    }
    /// Index of the cell that is kept for NEXT.
    pub fn last_cell(&self) -> u32 {
        (self.header.cells - 1) as u32
    }
    /// Place of a cell in the file.
    pub fn cell_at(index: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(index) * CELL_BYTES as u64
    }
}

/// Size and number of cells of the `nth` segment after a recovery, with room for a body of `need` bytes.
pub(super) fn geometry(nth: u64, need: u64) -> (u64, u64) {
    let usual = SIZES[(nth as usize).min(SIZES.len() - 1)];
    let cells = usual / BYTES_PER_CELL;
    let least = format::bodies_at(cells) + need;
    (if least <= usual { usual } else { least.next_multiple_of(SIZE_STEP) }, cells)
}

/// Opens the directory of the log; `None` when there is none.
pub(super) fn open_dir<O: Os>(os: &O, area: &O::Fd) -> Result<Option<O::Fd>, LogError> {
    os.open_if_there(area, b"log", Open::Directory).map_err(LogError::os("opening the log", 0))
}

/// Opens, or makes, the directory of the log.
pub(super) fn make_dir<O: Os>(os: &O, area: &O::Fd) -> Result<O::Fd, LogError> {
    if let Some(dir) = open_dir(os, area)? {
        return Ok(dir);
    }
    match os.mkdir(area, b"log", 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(LogError::os("making the directory log/", 0)(e)),
    }
    os.fsync(area).map_err(LogError::os("syncing the area, in which log/ is new", 0))?;
    os.open(area, b"log", Open::Directory).map_err(LogError::os("opening the log", 0))
}

/// Returns true if a segment is missing, or has no header. Other errors come up again when it is opened.
pub(super) fn is_missing<O: Os>(os: &O, area: &O::Fd, number: u64) -> bool {
    match open_dir(os, area) {
        Ok(None) => true,
        Ok(Some(dir)) => match os.open(&dir, &format::name(number), Open::Read) {
            Ok(fd) => matches!(read_header(os, &fd, number), Ok(HeaderRead::Bad)),
            Err(error) => error == Errno::NOENT,
        },
        Err(_) => false,
    }
}

/// Returns the numbers of all segments, ascending. Foreign names are left alone.
pub(super) fn list<O: Os>(os: &O, dir: &O::Fd) -> Result<Vec<u64>, LogError> {
    let entries = os.read_dir(dir).map_err(LogError::os("listing the directory log/", 0))?;
    let mut numbers: Vec<u64> = entries.iter().filter_map(|e| format::number(&e.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a segment. Call with the making lock held.
///
/// A file of that name was left by a process that died before any other knew of it: it is replaced.
pub(super) fn create<O: Os>(os: &O, dir: &O::Fd, header: Header) -> Result<Segment<O>, LogError> {
    let number = header.number;
    let failed = |doing| LogError::os(doing, number);
    let name = format::name(number);
    let fd = match os.create(dir, &name, 0o600) {
        Err(Errno::EXIST) => {
            os.unlink(dir, &name).map_err(failed("replacing the unused"))?;
            os.create(dir, &name, 0o600)
        }
        made => made,
    };
    let segment = Segment { fd: fd.map_err(failed("making"))?, header };
    let filled = fill(os, &segment).map_err(failed("preparing"));
    // The name must survive before any cell points here, and before any cell in here counts.
    if let Err(e) = filled.and_then(|()| os.fsync(dir).map_err(failed("syncing the directory of"))) {
        // Best effort: the next call replaces it.
        let _ = os.unlink(dir, &name);
        return Err(e);
    }
    Ok(segment)
}

/// Writes zeros, not only reserves blocks: then a later fdatasync is one flush, without metadata
/// (253 against 437 µs: docs/decisions.md, "Measured").
fn fill<O: Os>(os: &O, segment: &Segment<O>) -> Result<(), Errno> {
    let Header { size, .. } = segment.header;
    let usual = SIZES.contains(&size);
    // An oversized segment is for one body, which is written at once: writing zeros there first would only double it.
    let zeros = if usual { size } else { segment.header.bodies_at() };
    let mut at = HEADER_BYTES as u64;
    while at < zeros {
        let n = (zeros - at).min(ZEROS.len() as u64);
        write_all(os, &segment.fd, &ZEROS[..n as usize], at)?;
        at += n;
    }
    if !usual {
        os.truncate(&segment.fd, size)?;
    }
    write_all(os, &segment.fd, &segment.header.encode(), 0)?;
    if usual && size > SIZES[0] {
        // The disk starts now, so that the first sync need not wait for all of it.
        os.write_out(&segment.fd, Writing::Start)?;
    }
    Ok(())
}

/// Reads the header block of a file. A file that is too short is `Bad`.
pub(super) fn read_header<O: Os>(os: &O, fd: &O::Fd, number: u64) -> Result<HeaderRead, LogError> {
    let mut block = [0; HEADER_BYTES];
    let n = read_full(os, fd, &mut block, 0).map_err(LogError::os("reading", number))?;
    Ok(if n == HEADER_BYTES { Header::decode(&block, number) } else { HeaderRead::Bad })
}

/// Reads until `buf` is full or the file ends; returns how much.
pub(super) fn read_full<O: Os>(os: &O, fd: &O::Fd, buf: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match os.pread(fd, &mut buf[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Opens a segment for appending.
pub(super) fn open<O: Os>(os: &O, dir: &O::Fd, number: u64, id: &AreaId) -> Result<Segment<O>, LogError> {
    let fd = os.open(dir, &format::name(number), Open::ReadWrite).map_err(LogError::os("opening", number))?;
    match read_header(os, &fd, number)? {
        HeaderRead::Good(header) if id.has(&header.area) => Ok(Segment { fd, header }),
        HeaderRead::Good(header) => {
            Err(LogError::Foreign { segment: number, found: header.area, expected: id.id })
        }
        HeaderRead::OtherVersion(found) => Err(LogError::Version { segment: number, found }),
        HeaderRead::Bad => Err(LogError::Confused { what: "no log segment where bodies go" }),
    }
}
