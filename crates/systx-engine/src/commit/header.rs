//! V7 and S: the 64 bytes that decide, and their sync.

use super::{Change, Commit};
use crate::domain::Domain;
use crate::id::{Lsn, TxId};
use crate::log::{BodyAt, Cell, LogError};
use crate::outcome::CommitError;
use systx_os::Os;

impl<O: Os> Commit<'_, O> {
    /// V7: appends the header to the coordinator's log, in LSN order among all that overlap (the slot keeps them out).
    pub(super) fn append_header(&mut self) -> Result<(), CommitError> {
        let n = self.coordinator();
        let part = &mut self.parts[n];
        let (Some(change), Some((_, lsn))) = (&mut part.change, part.numbered) else { return Ok(()) };
        append(&part.domain, change, |id, body| Cell::Commit { lsn, id, body })
    }

    /// S: one sync for everybody who waits.
    pub(super) fn sync_header(&mut self) -> Result<(), CommitError> {
        let part = &self.parts[self.coordinator()];
        match part.change.as_ref().and_then(|c| c.header) {
            Some(pos) => part.domain.sync_log(pos).map_err(|e| CommitError::InDoubt { error: e.error }),
            None => Ok(()),
        }
    }
}

/// A participant's promise, synced: from here on the coordinator's log decides.
pub(super) fn append_prepared<O: Os>(domain: &Domain<O>, change: &mut Change<O>) -> Result<(), CommitError> {
    append(domain, change, |id, body| Cell::Prepared { lsn: Lsn(0), id, body })?;
    match change.header {
        Some(pos) => domain.sync_log(pos).map_err(|e| CommitError::InDoubt { error: e.error }),
        None => Ok(()),
    }
}

/// Appends the cell of a body; the body again where the log went on to another segment since.
fn append<O: Os>(
    domain: &Domain<O>,
    change: &mut Change<O>,
    cell: impl Fn(TxId, BodyAt) -> Cell,
) -> Result<(), CommitError> {
    loop {
        let at = match change.body_at {
            Some(at) => at,
            None => *change.body_at.insert(domain.append_body(&change.body).map_err(log_failed)?),
        };
        match domain.append_cell(cell(change.id, at)) {
            Ok(pos) => {
                change.header = Some(pos);
                return Ok(());
            }
            Err(LogError::Moved) => change.body_at = None,
            Err(e) => return Err(log_failed(e)),
        }
    }
}

/// A failure of the log before anything was promised: nothing happened.
pub(super) fn log_failed(error: LogError) -> CommitError {
    let errno = match &error {
        LogError::Os { error, .. } | LogError::Poisoned { error } => *error,
        _ => return CommitError::Refused(error.to_string()),
    };
    CommitError::Failed { doing: "writing the log", path: Vec::new(), error: errno }
}
