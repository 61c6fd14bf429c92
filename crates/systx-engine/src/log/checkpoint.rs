//! Dropping what is no longer needed.
//!
//! Guarantees: segments go in order only, never one that the log still writes to or that holds the last CKPT,
//! and only when that CKPT is on the disk; a prepared transaction without decision keeps its segment until it
//! is appended again. Does not: publish or sync what the records say; CKPT claims that, and its author
//! answers for it.

use super::error::LogError;
use super::format::{self, Cell, LogPos};
use super::shared;
use super::writer::{Alive, Log};
use super::{reader, segment};
use crate::id::{Lsn, OwnerIx, TxId};
use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use std::collections::{BTreeMap, BTreeSet};
use systx_os::{Errno, Os};

/// The part of a segment that decides when it may go.
#[derive(Default)]
struct Needs {
    highest: Lsn,
    prepared: Vec<(LogPos, Lsn, TxId)>,
    ids: Vec<TxId>,
}

impl<O: Os> Log<O> {
    /// Bytes appended since the last CKPT, or since the last recovery.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.shared.load(shared::BYTES).saturating_sub(self.shared.load(shared::CKPT_BYTES))
    }

    /// Everything up to here is covered by the last CKPT, or by the last recovery.
    pub(crate) fn checkpointed(&self) -> Lsn {
        Lsn(self.shared.load(shared::CKPT_LSN))
    }

    /// Where the last CKPT stands, if there is one since the last recovery.
    pub(crate) fn checkpoint_at(&self) -> Option<LogPos> {
        Some(self.shared.load(shared::CKPT_AT)).filter(|word| *word != 0).map(LogPos::unpack)
    }

    pub(super) fn note_checkpoint(&self, lsn: Lsn, at: LogPos) {
        // The place first: who then sees the bound syncs up to a place that covers it (`drop_segments`).
        self.shared.raise(shared::CKPT_AT, at.pack());
        self.shared.raise(shared::CKPT_LSN, lsn.0);
        self.shared.store(shared::CKPT_BYTES, self.shared.load(shared::BYTES));
    }

    /// Removes the oldest segments below `below` as long as all their records are at most `up_to`, which an
    /// appended CKPT covers (otherwise: that one's LSN holds). A body without a cell is no record here:
    /// `below` is what keeps it. Syncs that CKPT first. Without one since the last recovery nothing goes.
    ///
    /// Returns the transactions of which nothing is left in the log, ascending: their `tx/<id>/` can go. The
    /// segments are gone from the disk by then.
    ///
    /// # Errors
    ///
    /// As [`super::outline`]; a failed sync is `Poisoned`. Segments that were not removed are found by the
    /// next call, but the ids of those that were are lost: a caller that lists `tx/` finds them.
    pub fn drop_segments(
        &self,
        me: OwnerIx,
        alive: Alive<'_>,
        up_to: Lsn,
        below: u64,
    ) -> Result<Vec<TxId>, LogError> {
        let covered = Lsn(self.shared.load(shared::CKPT_LSN));
        let word = self.shared.load(shared::CKPT_AT);
        if word == 0 {
            return Ok(Vec::new());
        }
        let checkpoint = LogPos::unpack(word);
        self.sync(me, alive, checkpoint).map_err(|e| LogError::Poisoned { error: e.error })?;
        self.let_go();
        let dir = self.dir()?;
        if segment::list(&self.os, &dir)?.first().is_none_or(|oldest| *oldest >= checkpoint.segment) {
            return Ok(Vec::new());
        }
        let (needs, decisions) = self.needs(&dir)?;
        let up_to = up_to.min(covered);
        let mut gone = BTreeSet::new();
        let mut kept = BTreeSet::new();
        let mut dropping = true;
        for (number, need) in &needs {
            let open = need.prepared.iter().any(|(pos, lsn, id)| !decisions.settle(*pos, *lsn, *id));
            dropping &= *number < checkpoint.segment.min(below) && need.highest <= up_to && !open;
            if !dropping {
                kept.extend(need.ids.iter().copied());
                continue;
            }
            invariant!("I7", *number < checkpoint.segment, "the segment with the last CKPT stays");
            match self.os.unlink(&dir, &format::name(*number)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(LogError::os("removing", *number)(e)),
            }
            // One by one: a lost removal below a removal that survived is a hole in the log.
            if !mutant::on(Mutant::RemovalNotSynced) {
                self.os
                    .fsync(&dir)
                    .map_err(LogError::os("syncing the directory after the removal of", *number))?;
            }
            gone.extend(need.ids.iter().copied());
        }
        Ok(gone.difference(&kept).copied().collect())
    }

    fn needs(&self, dir: &O::Fd) -> Result<(BTreeMap<u64, Needs>, Decisions), LogError> {
        // Others append meanwhile. What stands in segments that cells reach only after this is not needed
        // here, and the one that the last NEXT leads to may be younger than the listing.
        let end = self.end().segment;
        let mut files = reader::open_all(&self.os, dir, Some(&self.id))?;
        files.retain(|f| f.number <= end);
        let mut needs: BTreeMap<u64, Needs> = BTreeMap::new();
        let mut decisions = Decisions::default();
        let walked = reader::walk(&self.os, &files, reader::Walk::InUse, &mut |pos, cell, _| {
            let need = needs.entry(pos.segment).or_default();
            match cell {
                Cell::Commit { lsn, id, .. } => {
                    need.highest = need.highest.max(lsn);
                    need.ids.push(id);
                }
                Cell::Prepared { lsn, id, .. } => {
                    need.highest = need.highest.max(lsn);
                    need.ids.push(id);
                    need.prepared.push((pos, lsn, id));
                    decisions.last.insert(id, pos);
                }
                Cell::Committed { id } => drop(decisions.committed.insert(id, pos)),
                Cell::Abort { lsn } => drop(decisions.aborted.insert(lsn)),
                Cell::Checkpoint { .. } | Cell::Next { .. } => {}
            }
        })?;
        for s in walked.segments {
            needs.entry(s.number).or_default();
        }
        Ok((needs, decisions))
    }
}

/// The fate of prepared transactions.
#[derive(Default)]
struct Decisions {
    /// Last PREPARED.
    last: BTreeMap<TxId, LogPos>,
    /// Last COMMITTED.
    committed: BTreeMap<TxId, LogPos>,
    aborted: BTreeSet<Lsn>,
}

impl Decisions {
    /// Returns true if the PREPARED at `pos` is decided, or was appended again.
    fn settle(&self, pos: LogPos, lsn: Lsn, id: TxId) -> bool {
        self.aborted.contains(&lsn)
            || self.committed.get(&id).is_some_and(|at| *at > pos)
            || self.last.get(&id).is_some_and(|at| at.segment > pos.segment)
    }
}
