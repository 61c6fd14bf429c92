//! The log, as the commit protocol uses it: cells under the commit lock, bodies and syncs without.

use super::{InFlight, Place};
use crate::domain::Domain;
use crate::id::OwnerIx;
use crate::log::{BodyAt, Cell, LogError, LogPos, SyncError};
use crate::mutant::{self, Mutant};
use crate::outcome::CommitError;
use crate::record::Body;
use systx_os::{Errno, Os};

/// Bodies start at multiples of this, so that a place fits into two words.
const ALIGN: u64 = crate::log::format::BODY_ALIGN;
const SEGMENT_BITS: u32 = 34;

/// A body's place as a slot keeps it. All zeros is no body: segments count from 1.
pub(crate) fn place_of(at: BodyAt) -> Place {
    Place([(at.offset / ALIGN) << SEGMENT_BITS | at.segment, u64::from(at.len) << 32 | u64::from(at.crc)])
}

fn body_at(place: Place) -> Option<BodyAt> {
    let [a, b] = place.0;
    (a != 0).then_some(BodyAt {
        segment: a & ((1 << SEGMENT_BITS) - 1),
        offset: (a >> SEGMENT_BITS) * ALIGN,
        len: (b >> 32) as u32,
        crc: b as u32,
    })
}

/// A process that was forked from the one whose log it is.
fn forked(error: Errno) -> LogError {
    LogError::Os { doing: "using the log in a forked child", segment: 0, error }
}

impl<O: Os> Domain<O> {
    /// Refuses a forked child, and everybody behind a failed sync.
    pub(crate) fn may_use_log(&self) -> Result<(), LogError> {
        self.ours().map_err(forked)?;
        self.log.lost().map_or(Ok(()), |error| Err(LogError::Lost { error }))
    }

    /// Appends a cell under the commit lock.
    pub(crate) fn append_cell(&self, cell: Cell) -> Result<LogPos, LogError> {
        let held = self.lock().map_err(|error| LogError::Os {
            doing: "locking the file table",
            segment: 0,
            error,
        })?;
        self.log.append_cell(held.proof(), self.me(), &|ix: OwnerIx| self.alive(ix), cell)
    }

    /// Waits until a cell is on stable storage.
    pub(crate) fn sync_log(&self, pos: LogPos) -> Result<(), SyncError> {
        self.ours().map_err(|error| SyncError { error })?;
        self.log.sync(self.me(), &|ix: OwnerIx| self.alive(ix), pos)
    }

    /// Appends a cell that decides and syncs it. An error leaves everything in doubt.
    pub(crate) fn append_and_sync(&self, cell: Cell) -> Result<(), CommitError> {
        let doubt = |error| CommitError::InDoubt { error };
        let pos = self.append_cell(cell).map_err(|e| {
            doubt(match e {
                LogError::Os { error, .. } | LogError::Poisoned { error } => error,
                _ => Errno::UCLEAN,
            })
        })?;
        if mutant::on(Mutant::AbortNotSynced) {
            return Ok(());
        }
        self.sync_log(pos).map_err(|e| doubt(e.error))
    }

    /// In which segment of the log the body of an in-flight transaction stands.
    pub(crate) fn record_segment(&self, slot: &InFlight) -> Option<u64> {
        body_at(slot.info.body).map(|at| at.segment)
    }

    /// The body of an in-flight transaction; `None` where it changes nothing here.
    pub(crate) fn body_of(&self, slot: &InFlight) -> Result<Option<Body>, LogError> {
        body_at(slot.info.body).map(|at| self.log.read_body(at)).transpose()
    }
}
