//! Reading the log after a crash.
//!
//! Guarantees: whatever the bytes, [`outline`] ends without panic, allocates no more than the files hold,
//! takes time linear in their size, and returns a prefix of what was appended since each recovery: up to the
//! first cell that is invalid or whose body is. What stands behind that was never synced, or is *skipped*:
//! cells that say that the place was synced once prove that it was damaged since. They add nothing to what is
//! redone; what they take from it (CKPT, ABORT) holds, since it was true when it was written. Does not:
//! change anything, or decide what to redo.
//!
//! Two passes: cells and checksums first, then the bodies that are still needed, because an ABORT stands
//! behind its COMMIT.

use super::error::LogError;
use super::format::{self, BodyAt, Cell, CellRead, Header, HeaderRead, LogPos, Written, CELL_BYTES};
use super::segment;
use super::shared::Start;
use crate::id::{AreaId, Lsn, TxId};
use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use crate::record::{Body, DecodeError};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use systx_os::{Errno, Open, Os};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of bodies that are kept from the look at all of them to the redo; the others are read again. (Tests have few.)
const KEPT_BYTES: usize = if cfg!(test) { 16 << 10 } else { 8 << 20 };

/// A cell that was found, NEXT excepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub pos: LogPos,
    /// The content.
    pub cell: Cell,
    /// When it was written, in seconds since the epoch.
    pub written: i64,
    /// It is a COMMIT or the last PREPARED of an id, and neither aborted nor done (≤ CKPT; a PREPARED only if
    /// it is decided, too).
    pub needed: bool,
    /// The body, if it is needed and was read: see [`replay`].
    #[cfg(test)]
    pub body: Option<Body>,
}

/// Why the cells of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing was written there.
    Unused,
    /// They go on in another segment.
    Next(u64),
    /// All cells are used.
    Full,
    /// A cell is torn, stale or damaged.
    BadCell,
    /// The last cell's body is; the cell does not count.
    BadBody,
    /// The segment's header was never finished, or is damaged.
    BadHeader,
    /// The log does not lead here: made in advance, or what leads here is damaged.
    Unreached,
}

/// One segment, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Number.
    pub number: u64,
    /// Size of its file in bytes.
    pub bytes: u64,
    /// The header, if it is good.
    pub header: Option<Header>,
    /// Valid cells.
    pub cells: u32,
    /// Why they end.
    pub end: End,
}

/// All that the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// In log order, which is LSN order for those that overlap.
    pub records: Vec<Entry>,
    /// The aborted transactions.
    pub aborted: BTreeSet<Lsn>,
    /// Up to where nothing is redone.
    pub checkpoint: Lsn,
    /// Highest LSN that the log knows.
    pub highest_lsn: Lsn,
    /// Highest transaction number that the log knows.
    pub highest_id: TxId,
    /// All segments, ascending.
    pub segments: Vec<SegmentInfo>,
    /// Where the log ends.
    pub end: LogPos,
    /// There are cells behind the end that were synced once: this place was damaged by the disk or by a
    /// program.
    pub damaged: Option<LogPos>,
    /// Transactions that have a record behind there, which is left out.
    pub skipped: BTreeSet<TxId>,
}

impl Replay {
    /// Records above the last checkpoint that are committed here, participants' included.
    pub fn published(&self) -> impl Iterator<Item = (Lsn, &Entry)> {
        let decided: HashSet<TxId> = self
            .records
            .iter()
            .filter_map(|e| match e.cell {
                Cell::Committed { id } => Some(id),
                _ => None,
            })
            .collect();
        self.records.iter().filter(|e| e.needed).filter_map(move |e| match e.cell {
            Cell::Commit { lsn, .. } => Some((lsn, e)),
            Cell::Prepared { lsn, id, .. } if decided.contains(&id) => Some((lsn, e)),
            _ => None,
        })
    }

    /// Of an area without log.
    fn empty() -> Replay {
        Replay {
            records: Vec::new(),
            aborted: BTreeSet::new(),
            checkpoint: Lsn(0),
            highest_lsn: Lsn(0),
            highest_id: TxId(0),
            segments: Vec::new(),
            end: LogPos::default(),
            damaged: None,
            skipped: BTreeSet::new(),
        }
    }

    /// Commits that are to be published again, in log order.
    #[cfg(test)]
    pub fn redo(&self) -> impl Iterator<Item = (Lsn, &Body)> {
        self.records.iter().filter_map(|e| match (&e.cell, &e.body) {
            (Cell::Commit { lsn, .. }, Some(body)) => Some((*lsn, body)),
            _ => None,
        })
    }

    /// Where the log goes on when everything up to `checkpoint` is published and synced.
    pub fn start(&self, checkpoint: Lsn) -> Start {
        let highest = self.segments.last().map_or(0, |s| s.number);
        Start { segment: highest + 1, checkpoint, end_before: self.end }
    }
}

/// The contents of the log, and the way to its bodies, which may be many: one is read at a time.
pub struct Outline<O: Os> {
    /// Without bodies.
    pub replay: Replay,
    files: Vec<File<O>>,
}

impl<O: Os> Outline<O> {
    /// The body of one of its records, if it is needed.
    ///
    /// # Errors
    /// `Unreadable`, `Os`.
    pub fn body(&self, os: &O, entry: &Entry) -> Result<Option<Body>, LogError> {
        match entry.cell.body().filter(|_| entry.needed) {
            Some(at) => read_body(os, &self.files, entry, at).map(Some),
            None => Ok(None),
        }
    }

    /// The body of one of its records, needed or not.
    ///
    /// # Errors
    /// `Unreadable`, `Os`.
    pub fn any_body(&self, os: &O, entry: &Entry) -> Result<Option<Body>, LogError> {
        entry.cell.body().map(|at| read_body(os, &self.files, entry, at)).transpose()
    }

    /// Reads all bodies that are needed, so that a redo does not begin what a body further on makes
    /// impossible.
    ///
    /// # Errors
    ///
    /// `Unreadable`, `Os`.
    pub fn understand(self, os: &O) -> Result<Understood<O>, LogError> {
        let mut kept: BTreeMap<usize, Body> = BTreeMap::new();
        let mut bytes = 0;
        for (n, entry) in self.replay.records.iter().enumerate() {
            if mutant::on(Mutant::RedoBeforeUnderstood) {
                break;
            }
            let Some(body) = self.body(os, entry)? else { continue };
            bytes += entry.cell.body().map_or(0, |at| at.len as usize);
            if bytes <= KEPT_BYTES {
                kept.insert(n, body);
            }
        }
        Ok(Understood { outline: self, kept })
    }
}

/// A log of which every body that is needed can be read.
pub struct Understood<O: Os> {
    outline: Outline<O>,
    /// The first of them, by the place of their records.
    kept: BTreeMap<usize, Body>,
}

impl<O: Os> Understood<O> {
    /// Without bodies.
    pub fn replay(&self) -> &Replay {
        &self.outline.replay
    }

    /// Returns the result of [`Understood::replay`] for callers that need no body any more.
    pub fn into_replay(self) -> Replay {
        self.outline.replay
    }

    /// Returns the body of the `n`th record, if it is needed.
    ///
    /// # Errors
    ///
    /// `Os`; `Unreadable` only where the file was changed since.
    pub fn body(&self, os: &O, n: usize) -> Result<Option<Cow<'_, Body>>, LogError> {
        match self.kept.get(&n) {
            Some(body) => Ok(Some(Cow::Borrowed(body))),
            None => Ok(self.outline.body(os, &self.outline.replay.records[n])?.map(Cow::Owned)),
        }
    }
}

/// Reads the log of the area behind `area_dir`, with all bodies that are needed. An area without log is an empty one.
///
/// # Errors
/// As [`outline`], and `Unreadable`.
#[cfg(test)]
pub fn replay<O: Os>(os: &O, area_dir: &O::Fd, id: AreaId) -> Result<Replay, LogError> {
    let mut outline = outline(os, area_dir, id)?;
    for n in 0..outline.replay.records.len() {
        let body = outline.body(os, &outline.replay.records[n])?;
        outline.replay.records[n].body = body;
    }
    Ok(outline.replay)
}

/// Reads the log of the area behind `area_dir` without its bodies, which are looked at for their checksums
/// only. An area without log is an empty one.
///
/// # Errors
/// `Missing`, `Foreign`, `Version`, `UnknownCell`: a log that this systx must not go on with. `Os`.
pub fn outline<O: Os>(os: &O, area_dir: &O::Fd, id: AreaId) -> Result<Outline<O>, LogError> {
    let mut replay = Replay::empty();
    let Some(dir) = segment::open_dir(os, area_dir)? else {
        return Ok(Outline { replay, files: Vec::new() });
    };
    // Last PREPARED and its decision, by transaction.
    let mut prepared: BTreeMap<TxId, usize> = BTreeMap::new();
    let mut committed: BTreeSet<TxId> = BTreeSet::new();
    let files = open_all(os, &dir, Some(&id))?;
    // Nothing there was left to be redone when the area got its present identity, and whoever knows the one
    // before may have added to it since.
    let is_before = |file: &&File<O>| file.header.is_some_and(|header| header.area != id.id);
    let counts = mutant::on(Mutant::OldIdentityCounts);
    let before: HashSet<u64> =
        files.iter().filter(is_before).filter(|_| !counts).map(|file| file.number).collect();
    let walked = walk(os, &files, Walk::AtRest, &mut |pos, cell, written| {
        let r = &mut replay;
        r.highest_lsn = r.highest_lsn.max(cell.lsn().unwrap_or_default());
        r.highest_id = r.highest_id.max(cell.id().unwrap_or(TxId(0)));
        match cell {
            _ if before.contains(&pos.segment) => {}
            Cell::Abort { lsn } => drop(r.aborted.insert(lsn)),
            Cell::Checkpoint { lsn } => r.checkpoint = r.checkpoint.max(lsn),
            Cell::Prepared { id, .. } => {
                prepared.insert(id, r.records.len());
                // Only a decision behind the last PREPARED decides it.
                committed.remove(&id);
            }
            Cell::Committed { id } => drop(committed.insert(id)),
            Cell::Commit { .. } | Cell::Next { .. } => {}
        }
        r.records.push(Entry {
            pos,
            cell,
            written,
            needed: false,
            #[cfg(test)]
            body: None,
        });
    })?;
    for cell in walked.skipped {
        replay.highest_lsn = replay.highest_lsn.max(cell.lsn().unwrap_or_default());
        replay.highest_id = replay.highest_id.max(cell.id().unwrap_or(TxId(0)));
        match cell {
            Cell::Abort { lsn } => drop(replay.aborted.insert(lsn)),
            Cell::Checkpoint { lsn } => replay.checkpoint = replay.checkpoint.max(lsn),
            Cell::Commit { id, .. } | Cell::Prepared { id, .. } => drop(replay.skipped.insert(id)),
            Cell::Committed { .. } | Cell::Next { .. } => {}
        }
    }
    let counts = |s: &&SegmentInfo| s.end != End::Unreached && !before.contains(&s.number);
    for header in walked.segments.iter().filter(counts).filter_map(|s| s.header) {
        replay.checkpoint = replay.checkpoint.max(header.checkpoint);
    }
    replay.highest_lsn = replay.highest_lsn.max(replay.checkpoint);
    (replay.segments, replay.end, replay.damaged) = (walked.segments, walked.end, walked.damaged);
    let (checkpoint, aborted) = (replay.checkpoint, &replay.aborted);
    let records = replay.records.iter_mut().enumerate();
    for (i, entry) in records.filter(|(_, entry)| !before.contains(&entry.pos.segment)) {
        entry.needed = match entry.cell {
            Cell::Commit { lsn, .. } => lsn > checkpoint && !aborted.contains(&lsn),
            Cell::Prepared { lsn, id, .. } => {
                let done = committed.contains(&id) && lsn <= checkpoint;
                prepared.get(&id) == Some(&i) && !done && !aborted.contains(&lsn)
            }
            _ => false,
        };
    }
    let is_sound = |e: &Entry| !e.needed || e.cell.lsn().is_some_and(|lsn| !replay.aborted.contains(&lsn));
    debug_assert!(replay.records.iter().all(is_sound), "I4: no record with an ABORT is needed");
    invariant!("C12", replay.highest_lsn >= replay.checkpoint, "no number is given twice");
    Ok(Outline { replay, files })
}

/// Returns the identity in the newest segment of the area behind `area_dir`.
///
/// # Errors
///
/// `Os`.
pub fn written_for<O: Os>(os: &O, area_dir: &O::Fd) -> Result<Option<[u8; 16]>, LogError> {
    let Some(dir) = segment::open_dir(os, area_dir)? else { return Ok(None) };
    for number in segment::list(os, &dir)?.into_iter().rev() {
        let name = format::name(number);
        let fd = os.open_if_there(&dir, &name, Open::Read).map_err(LogError::os("opening", number))?;
        let Some(fd) = fd else { continue };
        if let HeaderRead::Good(header) = segment::read_header(os, &fd, number)? {
            return Ok(Some(header.area));
        }
    }
    Ok(None)
}

fn read_body<O: Os>(os: &O, files: &[File<O>], entry: &Entry, at: BodyAt) -> Result<Body, LogError> {
    // The first pass has found the file, and the body within it and intact; only a change in between fails here.
    let changed = LogError::Os { doing: "reading", segment: at.segment, error: Errno::IO };
    let file = files.iter().find(|f| f.number == at.segment).ok_or_else(|| changed.clone())?;
    let bytes = read_checked(os, &file.fd, at)?.ok_or(changed)?;
    let body = Body::decode(&bytes).map_err(|why| LogError::unreadable(at, why))?;
    if Some(body.id) != entry.cell.id() {
        return Err(LogError::unreadable(at, DecodeError::Malformed));
    }
    Ok(body)
}

/// Reads the bytes of a body; `None` when they are not what was written. The place is within the file.
pub(super) fn read_checked<O: Os>(os: &O, fd: &O::Fd, at: BodyAt) -> Result<Option<Vec<u8>>, LogError> {
    let mut bytes = vec![0; at.len as usize];
    let n = segment::read_full(os, fd, &mut bytes, at.offset).map_err(LogError::os("reading", at.segment))?;
    Ok((n == bytes.len() && crc32c::crc32c(&bytes) == at.crc).then_some(bytes))
}

/// A segment's file, open for reading.
pub(super) struct File<O: Os> {
    pub number: u64,
    fd: O::Fd,
    bytes: u64,
    header: Option<Header>,
}

/// Opens all segments and checks that this systx may read them; with `id`: that they belong to that area.
pub(super) fn open_all<O: Os>(os: &O, dir: &O::Fd, id: Option<&AreaId>) -> Result<Vec<File<O>>, LogError> {
    let mut files = Vec::new();
    for number in segment::list(os, dir)? {
        let fd = match os.open(dir, &format::name(number), Open::Read) {
            // Dropped since it was listed. If it was not, `walk` misses it.
            Err(Errno::NOENT) => continue,
            opened => opened.map_err(LogError::os("opening", number))?,
        };
        let bytes = os.stat(&fd).map_err(LogError::os("looking at", number))?.size;
        let header = match segment::read_header(os, &fd, number)? {
            HeaderRead::Good(h) => match id.filter(|id| !id.has(&h.area)) {
                Some(id) => {
                    return Err(LogError::Foreign { segment: number, found: h.area, expected: id.id })
                }
                None => Some(h),
            },
            HeaderRead::OtherVersion(found) => return Err(LogError::Version { segment: number, found }),
            HeaderRead::Bad => None,
        };
        files.push(File { number, fd, bytes, header });
    }
    Ok(files)
}

/// The other users of the log during a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// No process appends: a cell whose body is damaged ends the log, and the target of NEXT must be there.
    AtRest,
    /// Others append: the last NEXT may lead to a segment that is younger than the listing. Bodies are not read.
    InUse,
}

/// Where a walk through the log came to.
pub(super) struct Walked {
    pub segments: Vec<SegmentInfo>,
    pub end: LogPos,
    pub damaged: Option<LogPos>,
    /// Cells behind the damaged place.
    pub skipped: Vec<Cell>,
}

/// Calls `visit` with every cell of the log but NEXT, in order.
///
/// # Errors
/// `Missing`, `Os`.
pub(super) fn walk<O: Os>(
    os: &O,
    files: &[File<O>],
    how: Walk,
    visit: &mut dyn FnMut(LogPos, Cell, i64),
) -> Result<Walked, LogError> {
    let mut out = Walked { segments: Vec::new(), end: LogPos::default(), damaged: None, skipped: Vec::new() };
    // The segment that the one before leads to.
    let mut expected: Option<(u64, u64)> = None;
    let mut scanner = Scanner { os, walk: how, buffer: Vec::new() };
    for (i, file) in files.iter().enumerate() {
        let mut info = SegmentInfo {
            number: file.number,
            bytes: file.bytes,
            header: file.header,
            cells: 0,
            end: End::Unreached,
        };
        if let Some((after, segment)) = expected.filter(|(_, next)| *next < file.number) {
            return Err(LogError::Missing { segment, after });
        }
        let led_here = match expected {
            Some((_, next)) => next == file.number,
            // The oldest segment that is left, or where a recovery began anew.
            None => i == 0 || file.header.is_some_and(|h| h.fresh),
        };
        if led_here {
            expected = None;
            // A recovery that began anew has dealt with everything before.
            out.skipped.clear();
        }
        match file.header {
            Some(header) if led_here => {
                (info.cells, info.end) = scanner.scan(file, &header, visit)?;
                out.end = LogPos { segment: file.number, cell: info.cells };
                if let End::Next(next) = info.end {
                    expected = Some((file.number, next));
                }
                if how == Walk::AtRest && scanner.behind(file, &header, info.cells, &mut out.skipped)? {
                    out.damaged = out.damaged.or(Some(out.end));
                }
            }
            // Nothing in it was ever synced, or its header would have been, too.
            None if led_here => {
                info.end = End::BadHeader;
                out.end = LogPos { segment: file.number, cell: 0 };
            }
            // A cell here was written only after everything before was synced: so the end before is no end.
            Some(header) if expected.is_none() => {
                let skipped = &mut out.skipped;
                let (cells, _) = scanner.scan(file, &header, &mut |_, cell, _| skipped.push(cell))?;
                out.damaged = out.damaged.or((cells > 0).then_some(out.end));
            }
            _ => {}
        }
        out.segments.push(info);
    }
    match expected {
        // The name of the next segment is synced before NEXT is written.
        Some((after, segment)) if how == Walk::AtRest => Err(LogError::Missing { segment, after }),
        _ => Ok(out),
    }
}

/// Reads one segment after the other.
struct Scanner<'a, O: Os> {
    os: &'a O,
    walk: Walk,
    buffer: Vec<u8>,
}

impl<O: Os> Scanner<'_, O> {
    /// Calls `visit` with the valid cells of one segment but NEXT; returns how many they are and why they end.
    fn scan(
        &mut self,
        file: &File<O>,
        header: &Header,
        visit: &mut dyn FnMut(LogPos, Cell, i64),
    ) -> Result<(u32, End), LogError> {
        let mut cells = vec![0; CHUNK_BYTES];
        let mut index = 0;
        while u64::from(index) < header.cells {
            let n = segment::read_full(self.os, &file.fd, &mut cells, segment::Segment::<O>::cell_at(index))
                .map_err(LogError::os("reading", file.number))?;
            // The chunk may reach into the bodies; a file that was cut ends within the cells.
            let left = (header.cells - u64::from(index)) as usize;
            let chunk = cells[..n].chunks_exact(CELL_BYTES).take(left);
            if chunk.len() == 0 {
                return Ok((index, End::BadCell));
            }
            for bytes in chunk {
                let mut cell = [0; CELL_BYTES];
                cell.copy_from_slice(bytes);
                if cell == [0; CELL_BYTES] {
                    return Ok((index, End::Unused));
                }
                let (cell, written) = match Cell::decode(&cell, file.number, header.nonce, index) {
                    CellRead::Good(Written { cell, written, .. }) => (cell, written),
                    CellRead::Unknown { kind } if !mutant::on(Mutant::UnknownIsAnEnd) => {
                        let pos = LogPos { segment: file.number, cell: index };
                        return Err(LogError::UnknownCell { pos, kind });
                    }
                    CellRead::Unknown { .. } | CellRead::Bad => return Ok((index, End::BadCell)),
                };
                if let Cell::Next { segment } = cell {
                    return Ok((index, End::Next(segment)));
                }
                if let Some(body) = cell.body() {
                    if !self.body_is_whole(file, header, body)? {
                        if mutant::on(Mutant::LogGoesOn) {
                            index += 1;
                            continue;
                        }
                        return Ok((index, End::BadBody));
                    }
                }
                visit(LogPos { segment: file.number, cell: index }, cell, written);
                index += 1;
            }
        }
        Ok((index, End::Full))
    }

    /// Returns true if the place where the cells of a segment end is damaged: a cell behind it proves that it
    /// was synced. Then all that can be read behind it is added to `skipped`.
    fn behind(
        &mut self,
        file: &File<O>,
        header: &Header,
        end: u32,
        skipped: &mut Vec<Cell>,
    ) -> Result<bool, LogError> {
        if mutant::on(Mutant::SkippedNotTold) {
            return Ok(false);
        }
        let mut cells = vec![0; CHUNK_BYTES];
        let (mut found, mut proven, mut garbled) = (Vec::new(), false, false);
        let mut index = end;
        while u64::from(index) < header.cells {
            let n = segment::read_full(self.os, &file.fd, &mut cells, segment::Segment::<O>::cell_at(index))
                .map_err(LogError::os("reading", file.number))?;
            let left = (header.cells - u64::from(index)) as usize;
            let chunk = cells[..n].chunks_exact(CELL_BYTES).take(left);
            if chunk.len() == 0 {
                break;
            }
            for bytes in chunk {
                let mut cell = [0; CELL_BYTES];
                cell.copy_from_slice(bytes);
                if cell != [0; CELL_BYTES] {
                    let read = Cell::decode(&cell, file.number, header.nonce, index);
                    if let CellRead::Good(Written { cell, synced, .. }) = read {
                        found.push(cell);
                        proven |= synced > end;
                    }
                    // Older segments have no such proof; but an unwritten place would be all zeros.
                    garbled |= index == end && read == CellRead::Bad;
                }
                index += 1;
            }
        }
        proven |= header.version == format::VERSION_LEAST && garbled && !found.is_empty();
        if proven {
            skipped.append(&mut found);
        }
        Ok(proven)
    }

    fn body_is_whole(&mut self, file: &File<O>, header: &Header, body: BodyAt) -> Result<bool, LogError> {
        let end = body.offset.saturating_add(u64::from(body.len));
        if body.offset < header.bodies_at() || end > file.bytes.min(header.size) {
            return Ok(false);
        }
        if self.walk == Walk::InUse {
            return Ok(true);
        }
        self.buffer.resize(CHUNK_BYTES, 0);
        let (mut at, mut crc) = (body.offset, 0);
        while at < end {
            let want = ((end - at) as usize).min(CHUNK_BYTES);
            let n = segment::read_full(self.os, &file.fd, &mut self.buffer[..want], at)
                .map_err(LogError::os("reading", file.number))?;
            if n < want {
                return Ok(false);
            }
            crc = crc32c::crc32c_append(crc, &self.buffer[..want]);
            at += want as u64;
        }
        Ok(crc == body.crc)
    }
}
