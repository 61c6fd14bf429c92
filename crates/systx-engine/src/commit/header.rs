//! The record in the log: its body (P4), the 64 bytes that decide (V7), and their sync (S).

use super::{Change, Commit, Number};
use crate::domain::Domain;
use crate::id::{OwnerIx, TxId};
use crate::invariant::invariant;
use crate::log::{BodyAt, Cell, LogError};
use crate::mutant::{self, Mutant};
use crate::outcome::CommitError;
use systx_os::{Os, Words};

impl<O: Os> Commit<'_, O> {
    /// The promises of the participants, synced: from here on the coordinator's log decides. They come after
    /// V5, so that they stand in their logs in LSN order, and before the coordinator's header.
    pub(super) fn prepare_participants(&mut self) -> Result<(), CommitError> {
        let coordinator = self.coordinator();
        for part in self.parts.iter_mut().enumerate().filter(|(n, _)| *n != coordinator).map(|(_, part)| part)
        {
            // Its file system forgets everything with the power, so a promise in its log would help no recovery (C3).
            if !part.promises() {
                continue;
            }
            let (Some(change), Some(Number { lsn, .. })) = (&mut part.change, part.numbered) else {
                continue;
            };
            append(&part.domain, change, |id, body| Cell::Prepared { lsn, id, body })?;
            if let Some(pos) = change.header.filter(|_| !mutant::on(Mutant::PreparedNotSynced)) {
                // Nothing is decided yet: without the coordinator's header this is an abort.
                part.domain.sync_log(pos).map_err(|e| CommitError::Failed {
                    doing: "syncing the log",
                    path: Vec::new(),
                    error: e.error,
                })?;
            }
        }
        Ok(())
    }

    /// V7: appends the header to the coordinator's log, in LSN order among all that overlap (the slot keeps them out).
    pub(super) fn append_header(&mut self) -> Result<(), CommitError> {
        let n = self.coordinator();
        let part = &mut self.parts[n];
        let (Some(change), Some(Number { lsn, .. })) = (&mut part.change, part.numbered) else {
            return Ok(());
        };
        append(&part.domain, change, |id, body| Cell::Commit { lsn, id, body })
    }

    /// S: one sync for everybody who waits.
    pub(super) fn sync_header(&mut self) -> Result<(), CommitError> {
        let part = &self.parts[self.coordinator()];
        match part.change.as_ref().and_then(|c| c.header) {
            // Not tried again: the kernel reports a write error once, so that the next sync would prove nothing.
            Some(pos) => part.domain.sync_log(pos).map_err(|e| CommitError::InDoubt { error: e.error }),
            None => Ok(()),
        }
    }
}

impl<O: Os> Change<O> {
    /// Writes the body, without a lock.
    pub(super) fn write_body(&mut self, domain: &Domain<O>) -> Result<BodyAt, CommitError> {
        // A forked child is no owner: it would append under its parent's index, beside it.
        let log_failed = |error| log_failed(domain, error);
        domain.may_use_log().map_err(log_failed)?;
        // The last chance to find out that the table has no room, too.
        let path = || domain.path_in_area(b"table");
        let full = |error| CommitError::Failed { doing: "reserving room for the file", path: path(), error };
        domain.table.mem().reserve().map_err(full)?;
        let alive = |ix: OwnerIx| domain.alive(ix);
        let at = domain.log.append_body(domain.me(), &alive, &self.body).map_err(log_failed)?;
        Ok(*self.body_at.insert(at))
    }
}

/// Appends the cell of a body; the body again where the log went on to another segment since.
fn append<O: Os>(
    domain: &Domain<O>,
    change: &mut Change<O>,
    cell: impl Fn(TxId, BodyAt) -> Cell,
) -> Result<(), CommitError> {
    invariant!("V7", change.header.is_none(), "a record has one header");
    loop {
        let at = match change.body_at {
            Some(at) => at,
            None => change.write_body(domain)?,
        };
        match domain.append_cell(cell(change.id, at)) {
            Ok(pos) => {
                change.header = Some(pos);
                return Ok(());
            }
            // A sync of the log does not reach the segment of such a body any more, and the header must not outlive it.
            Err(LogError::Moved) => change.body_at = None,
            Err(e) => return Err(log_failed(domain, e)),
        }
    }
}

/// A failure of the log before anything was promised: nothing was changed.
fn log_failed<O: Os>(domain: &Domain<O>, error: LogError) -> CommitError {
    let log = || domain.path_in_area(b"log");
    match error {
        LogError::Os { doing, segment: 0, error } => CommitError::Failed { doing, path: log(), error },
        LogError::Os { doing, segment, error } => {
            let path = [log(), format!("/{segment:016x}").into_bytes()].concat();
            CommitError::Failed { doing, path, error }
        }
        LogError::Poisoned { error } => CommitError::Failed { doing: "writing the log", path: log(), error },
        _ => CommitError::Refused(error.to_string()),
    }
}
