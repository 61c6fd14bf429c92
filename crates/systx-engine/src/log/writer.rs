//! Appending to the log.
//!
//! Owns: where the next body and the next cell go. Guarantees: bodies of different callers don't overlap; a
//! cell follows the one before without gap; no cell stands in a segment before everything in the segments
//! below it is synced. Does not: sync (`group`).
//!
//! Bodies may be one segment or more ahead of the cells: a caller that needs room makes the next segment and
//! writes there, while cells still go to the old one. The first cell whose body is ahead takes the cells
//! along: NEXT, sync, go on. A body that is behind the cells is [`LogError::Moved`]: its segment is not
//! synced any more.

use super::error::LogError;
use super::format::{self, BodyAt, Cell, Header, LogPos, BODY_ALIGN};
use super::latch::Latch;
use super::reader;
use super::segment::{self, Segment};
use super::shared::{self, Bodies, Shared, Start, State};
use crate::bytes::write_all;
use crate::id::{AreaId, Lsn, OwnerIx};
use crate::invariant::invariant;
use crate::lock::{Locked, RobustLock};
use crate::mutant::{self, Mutant};
use crate::record::Body;
use std::sync::{Arc, Mutex, PoisonError};
use systx_os::{Errno, Os};

/// How often a segment is opened anew for one sync, where descriptors are lost again and again.
const LOST_MAX: u32 = 3;

/// Says whether an owner lives.
pub type Alive<'a> = &'a dyn Fn(OwnerIx) -> bool;

/// The log of one domain, as one process uses it.
///
/// A process that has claimed an owner index calls [`Log::inherit`] before anything else.
pub struct Log<O: Os> {
    pub(super) os: O,
    pub(super) id: AreaId,
    pub(super) shared: Shared<O::Mem>,
    pub(super) area: O::Fd,
    dir: Mutex<Option<Arc<O::Fd>>>,
    /// Segments that this process has open, few.
    pub(super) open: Mutex<Vec<Arc<Segment<O>>>>,
}

impl<O: Os> core::fmt::Debug for Log<O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Log {{ next cell: {} }}", self.shared.cells())
    }
}

impl<O: Os> Log<O> {
    /// Opens the log of the area behind `area_dir`, which is `id`; its words are `mem[base..base + WORDS]`.
    ///
    /// Touches no file. Segments are made when the first body needs one.
    ///
    /// # Errors
    /// `Os` when no descriptor is left.
    pub fn open(
        os: O,
        area_dir: &O::Fd,
        mem: Arc<O::Mem>,
        base: usize,
        id: AreaId,
    ) -> Result<Log<O>, LogError> {
        let area = os.dup(area_dir).map_err(LogError::os("opening the area", 0))?;
        let (dir, open) = (Mutex::new(None), Mutex::new(Vec::new()));
        Ok(Log { os, id, shared: Shared::new(mem, base), area, dir, open })
    }

    /// Lets go of what the last owner of this index held when it died. To be called when the index is claimed.
    ///
    /// # Errors
    /// `Confused`.
    pub fn inherit(&self, me: OwnerIx) -> Result<(), LogError> {
        self.syncing().inherit(me);
        self.covering().inherit(me);
        let (lock, mem) = (self.making(), &*self.shared.mem);
        let what = "the lock of the log";
        if let Some(locked) = lock.inherit(mem, me).map_err(|_| LogError::Confused { what })? {
            lock.unlock(mem, locked).map_err(|_| LogError::Confused { what })?;
        }
        Ok(())
    }

    /// Begins a new log after a recovery (also of an empty area): only from here on anything can be appended.
    ///
    /// Everything up to `start.checkpoint` must be published and synced, except what is prepared; those who hold bodies
    /// or positions of the log before get [`LogError::Moved`] or a sync error. Call with the commit lock held.
    ///
    /// # Errors
    /// `Confused`.
    pub fn start(&self, me: OwnerIx, alive: Alive<'_>, start: Start) -> Result<(), LogError> {
        self.with_making(me, alive, || {
            let _syncing = self.syncing().take(me, alive);
            start.set(&self.shared);
            Ok(())
        })
    }

    /// Returns true if a sync has failed since the last recovery: nothing can be appended before the next
    /// one.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.shared.state(), State::Poisoned(_) | State::Lost(_))
    }

    /// Closes the log for all, as long as the file system is mounted: a sync of what records change has failed.
    pub(crate) fn lose(&self, error: Errno) {
        if !mutant::on(Mutant::SyncsRepeated) {
            self.shared.set_state(State::Lost(error));
        }
    }

    /// [`Log::lose`], in a table that a recovery builds.
    pub(crate) fn lose_in(mem: &Arc<O::Mem>, base: usize, error: Errno) {
        if !mutant::on(Mutant::RecoverySyncsAgain) {
            Shared::new(mem.clone(), base).set_state(State::Lost(error));
        }
    }

    /// [`Log::lost`] in a table that nobody uses.
    pub(crate) fn lost_in(mem: &Arc<O::Mem>, base: usize) -> Option<Errno> {
        Shared::new(mem.clone(), base).lost()
    }

    /// Why nothing can be appended as long as the file system is mounted.
    pub fn lost(&self) -> Option<Errno> {
        self.shared.lost()
    }

    /// Returns true if a segment that is written to was deleted, as by a program that tidies a directory like /tmp, or lost its
    /// header: nothing can be appended.
    pub fn is_gone(&self) -> bool {
        loop {
            let (cells, bodies) = (self.shared.cells().segment, self.shared.bodies());
            let is_missing = |number| segment::is_missing(&self.os, &self.area, number);
            let is_gone = bodies.unit != 0 && (is_missing(cells) || is_missing(bodies.segment));
            // Else another process has gone on meanwhile, and a checkpoint has removed them.
            if !is_gone
                || (cells, bodies.segment) == (self.shared.cells().segment, self.shared.bodies().segment)
            {
                return is_gone;
            }
        }
    }

    /// Place of the next cell.
    pub fn end(&self) -> LogPos {
        self.shared.cells()
    }

    /// Writes a body where a cell can refer to it. Takes no lock unless a segment has to be made. Not synced: the sync
    /// of the cell is the body's, too.
    ///
    /// # Errors
    /// `NotStarted`, `Poisoned`, `TooLarge`, `Confused`, `Os` (a full disk): nothing was appended.
    pub fn append_body(&self, me: OwnerIx, alive: Alive<'_>, body: &Body) -> Result<BodyAt, LogError> {
        let bytes = body.encode();
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Err(LogError::TooLarge { bytes: bytes.len() as u64 });
        };
        let (segment, offset) = self.reserve(me, alive, u64::from(len).next_multiple_of(BODY_ALIGN))?;
        let (from, to) = (segment.header.bodies_at(), segment.header.size);
        let inside = from <= offset && offset + u64::from(len) <= to;
        invariant!("I8", inside, "a body overwrites neither cells nor what is behind its segment");
        write_all(&self.os, &segment.fd, &bytes, offset)
            .map_err(LogError::os("writing", segment.number()))?;
        self.shared.add(shared::BYTES, u64::from(len));
        Ok(BodyAt { segment: segment.number(), offset, len, crc: crc32c::crc32c(&bytes) })
    }

    /// Reads a body again that stands in the log of this boot.
    ///
    /// # Errors
    /// `Confused` when there is no body at that place; `Unreadable`, `Os`.
    pub fn read_body(&self, at: BodyAt) -> Result<Body, LogError> {
        let segment = self.segment(at.segment)?;
        let end = at.offset.saturating_add(u64::from(at.len));
        if at.offset < segment.header.bodies_at() || end > segment.header.size {
            return Err(LogError::Confused { what: "the place of a body" });
        }
        let bytes = reader::read_checked(&self.os, &segment.fd, at)?;
        let bytes = bytes.ok_or(LogError::Confused { what: "the place of a body" })?;
        Body::decode(&bytes).map_err(|why| LogError::unreadable(at, why))
    }

    /// Appends a cell. `_lock` is the commit lock. Syncs only when the segment is full.
    ///
    /// A holder that died in here leaves nothing to repair: the next cell goes to the same place.
    ///
    /// # Errors
    /// `Moved`: the body stands where no cells go any more: unlock, append the body again, try again. Otherwise as
    /// [`Log::append_body`]; the cell is not appended.
    pub fn append_cell(
        &self,
        _lock: &Locked,
        me: OwnerIx,
        alive: Alive<'_>,
        cell: Cell,
    ) -> Result<LogPos, LogError> {
        assert!(!matches!(cell, Cell::Next { .. }), "only the log itself goes on to another segment");
        self.check_ready()?;
        let mut at = self.shared.cells();
        let mut bodies = self.shared.bodies();
        if bodies.unit == 0 {
            bodies = self.make(me, alive, bodies, 0)?;
        }
        if let Some(body) = cell.body() {
            if body.segment < at.segment {
                return Err(LogError::Moved);
            }
            if body.segment > bodies.segment {
                return Err(LogError::Confused { what: "the segment of bodies" });
            }
        }
        let mut segment = self.segment(at.segment)?;
        // Bodies of commits without a record have no cells that would lead to their segments: a checkpoint does, or all of
        // them would stay.
        let of_bodies = matches!(cell, Cell::Checkpoint { .. }).then_some(bodies.segment);
        let ahead = cell.body().map(|b| b.segment).or(of_bodies).filter(|s| *s > at.segment);
        if at.cell >= segment.last_cell() || ahead.is_some() {
            self.check_named(&segment)?;
            let to = match ahead {
                Some(segment) => segment,
                None if bodies.segment > at.segment => bodies.segment,
                None => self.make(me, alive, bodies, 0)?.segment,
            };
            at = self.go_on(me, alive, &segment, at, to)?;
            segment = self.segment(to)?;
            if cell.body().is_some_and(|b| b.segment < to) {
                return Err(LogError::Moved);
            }
        }
        if !matches!(cell, Cell::Abort { .. }) {
            self.check_named(&segment)?;
        }
        let with_body = cell.body().is_none_or(|body| body.segment == at.segment);
        invariant!("I7", with_body, "a cell stands in the segment of its body, so that one sync is for both");
        self.write_cell(&segment, at, cell)?;
        // Release, after the cell is whole: pairs with the leader's load before its sync.
        self.shared.store(shared::CELLS, at.next().pack());
        self.shared.add(shared::BYTES, super::format::CELL_BYTES as u64);
        if let Cell::Checkpoint { lsn } = cell {
            self.note_checkpoint(lsn, at);
        }
        Ok(at)
    }

    /// Refuses a segment that was removed or cut: no recovery would find what it says.
    fn check_named(&self, segment: &Segment<O>) -> Result<(), LogError> {
        let number = segment.number();
        let stat = self.os.stat(&segment.fd).map_err(LogError::os("looking at", number))?;
        let is_whole = stat.nlink > 0 && stat.size >= segment.header.size;
        if !is_whole && !mutant::on(Mutant::RemovedUnseen) {
            return Err(LogError::Os { doing: "finding", segment: number, error: Errno::NOENT });
        }
        Ok(())
    }

    fn write_cell(&self, segment: &Segment<O>, at: LogPos, cell: Cell) -> Result<(), LogError> {
        let synced = LogPos::unpack(self.shared.load(shared::SYNCED));
        let says_it = segment.header.version > format::VERSION_LEAST && synced.segment == at.segment;
        let synced = if says_it { synced.cell.min(at.cell) } else { 0 };
        let bytes = cell.encode(segment.header.nonce, at.cell, self.os.now().sec, synced);
        write_all(&self.os, &segment.fd, &bytes, Segment::<O>::cell_at(at.cell))
            .map_err(LogError::os("writing", at.segment))
    }

    /// Ends the segment of cells and goes on in another one, whose name is on the disk already.
    fn go_on(
        &self,
        me: OwnerIx,
        alive: Alive<'_>,
        from: &Segment<O>,
        at: LogPos,
        to: u64,
    ) -> Result<LogPos, LogError> {
        let _syncing = self.syncing().take(me, alive);
        self.check_ready()?;
        if at.cell > from.last_cell() {
            return Err(LogError::Confused { what: "the place of the next cell" });
        }
        self.write_cell(from, at, Cell::Next { segment: to })?;
        self.sync_segment(from.number())?;
        let next = LogPos { segment: to, cell: 0 };
        self.shared.store(shared::CELLS, next.pack());
        self.shared.raise(shared::SYNCED, next.pack());
        Ok(next)
    }

    /// Takes room for a body of `need` bytes, a multiple of the alignment.
    fn reserve(&self, me: OwnerIx, alive: Alive<'_>, need: u64) -> Result<(Arc<Segment<O>>, u64), LogError> {
        loop {
            self.check_ready()?;
            let seen = self.shared.bodies();
            if seen.unit == 0 {
                self.make(me, alive, seen, need)?;
                continue;
            }
            let segment = self.segment(seen.segment)?;
            let offset = seen.unit * BODY_ALIGN;
            if offset < segment.header.bodies_at() {
                return Err(LogError::Confused { what: "the place of the next body" });
            }
            let cells = self.shared.cells();
            // The last eighth of the cells is kept for those that have no body, so that an ABORT needs no disk space.
            let few_cells =
                cells.segment == seen.segment && u64::from(cells.cell) >= segment.header.cells / 8 * 7;
            if few_cells || offset + need > segment.header.size {
                self.make(me, alive, seen, need)?;
                continue;
            }
            let taken = Bodies { unit: seen.unit + need / BODY_ALIGN, ..seen };
            if self.shared.exchange(shared::BODIES, seen.pack(), taken.pack()) {
                return Ok((segment, offset));
            }
        }
    }

    /// Makes the segment after `seen` (or `seen` itself when it is not made yet), unless another process has.
    fn make(&self, me: OwnerIx, alive: Alive<'_>, seen: Bodies, need: u64) -> Result<Bodies, LogError> {
        self.with_making(me, alive, || {
            self.check_ready()?;
            let now = self.shared.bodies();
            if now.segment != seen.segment || (seen.unit == 0 && now.unit != 0) {
                return Ok(now);
            }
            let number = if now.unit == 0 { now.segment } else { now.segment + 1 };
            let first = self.shared.load(shared::FIRST);
            let nth = number.checked_sub(first).ok_or(LogError::Confused { what: "the first segment" })?;
            let (size, cells) = segment::geometry(nth, need);
            if size >= Bodies::BYTES_MAX || number >= LogPos::SEGMENTS_MAX {
                return Err(LogError::TooLarge { bytes: need });
            }
            let fresh = nth == 0;
            let header = Header {
                version: format::VERSION,
                fresh,
                nonce: self.os.random().max(1),
                number,
                area: self.id.id,
                cells,
                size,
                checkpoint: Lsn(if fresh { self.shared.load(shared::CHECKPOINT) } else { 0 }),
                end_before: LogPos::unpack(if fresh { self.shared.load(shared::END_BEFORE) } else { 0 }),
                written: self.os.now().sec,
            };
            let made = segment::create(&self.os, &*self.dir()?, header)?;
            self.hold(Arc::new(made));
            let bodies = Bodies { segment: number, unit: header.bodies_at() / BODY_ALIGN };
            self.shared.store(shared::BODIES, bodies.pack());
            Ok(bodies)
        })
    }

    /// Returns an error unless the log takes records.
    pub(crate) fn check_ready(&self) -> Result<(), LogError> {
        match self.shared.state() {
            State::Ready => Ok(()),
            State::NotStarted => Err(LogError::NotStarted),
            State::Poisoned(error) => Err(LogError::Poisoned { error }),
            State::Lost(error) => Err(LogError::Lost { error }),
        }
    }

    /// Syncs a segment. A sync that fails is never repeated: it closes the log for all. But what went to a descriptor
    /// that this process had lost was no sync of the segment, and says nothing about it.
    pub(super) fn sync_segment(&self, number: u64) -> Result<(), LogError> {
        for _ in 0..LOST_MAX {
            let segment = self.segment(number)?;
            match self.os.fdatasync(&segment.fd) {
                Ok(()) => return Ok(()),
                Err(Errno::BADF) if self.os.is_lost(&segment.fd) && !mutant::on(Mutant::LostUnseen) => {}
                Err(error) => {
                    self.shared.poison(error);
                    return Err(LogError::Poisoned { error });
                }
            }
        }
        Err(LogError::Os { doing: "syncing", segment: number, error: Errno::BADF })
    }

    /// The directory `log/`, made if it is missing.
    pub(super) fn dir(&self) -> Result<Arc<O::Fd>, LogError> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = dir.as_ref().filter(|dir| !self.os.is_lost(dir)) {
            return Ok(dir.clone());
        }
        let made = Arc::new(segment::make_dir(&self.os, &self.area)?);
        *dir = Some(made.clone());
        Ok(made)
    }

    /// An open segment; one that this process has lost is opened anew.
    pub(super) fn segment(&self, number: u64) -> Result<Arc<Segment<O>>, LogError> {
        let found = self.cached().iter().find(|s| s.number() == number).cloned();
        match found {
            Some(found) if mutant::on(Mutant::LostUnseen) || !self.os.is_lost(&found.fd) => return Ok(found),
            Some(lost) => self.cached().retain(|s| !Arc::ptr_eq(s, &lost)),
            None => {}
        }
        let opened = Arc::new(segment::open(&self.os, &*self.dir()?, number, &self.id)?);
        self.hold(opened.clone());
        Ok(opened)
    }

    /// Keeps a segment open. Those that are not appended to any more are closed, or the space of removed ones would stay
    /// taken.
    fn hold(&self, segment: Arc<Segment<O>>) {
        self.let_go();
        self.cached().push(segment);
    }

    pub(super) fn let_go(&self) {
        let keep = self.shared.cells().segment;
        self.cached().retain(|s| s.number() >= keep);
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Segment<O>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn syncing(&self) -> Latch<'_, O::Mem> {
        Latch { mem: &self.shared.mem, word: self.shared.base + shared::SYNCING }
    }

    /// Returns the latch of the process that makes a checkpoint for all. Its holder waits for nothing but the
    /// disk.
    pub(crate) fn covering(&self) -> Latch<'_, O::Mem> {
        Latch { mem: &self.shared.mem, word: self.shared.base + shared::COVERING }
    }

    fn making(&self) -> RobustLock {
        RobustLock { word: self.shared.base + shared::MAKING }
    }

    /// Runs `work` with the making lock held. A holder that died left at most a file that no cell names.
    fn with_making<T>(
        &self,
        me: OwnerIx,
        alive: Alive<'_>,
        work: impl FnOnce() -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let (lock, mem) = (self.making(), &*self.shared.mem);
        let confused = |_| LogError::Confused { what: "the lock of the log" };
        let locked = lock.lock(mem, me, alive).map_err(confused)?;
        let result = work();
        lock.unlock(mem, locked).map_err(confused)?;
        result
    }
}
