//! Contents of the log at any moment: I3 and I7.

use super::book::Book;
use super::watch::{Moment, Records, Rule, Verdict};
use crate::domain::SlotState;
use crate::id::{Lsn, TxId};
use crate::log::{Cell, LogPos};
use std::collections::{BTreeMap, BTreeSet};

/// I3, the order: of records that overlap the one with the lower number stands first, and an ABORT behind its header.
pub(crate) fn in_order(cells: &[(LogPos, Cell)], overlap: impl Fn(TxId, TxId) -> bool) -> Result<(), String> {
    let mut aborted = BTreeSet::new();
    let mut before: Vec<(TxId, Lsn)> = Vec::new();
    for (pos, cell) in cells {
        match cell {
            Cell::Abort { lsn } => drop(aborted.insert(*lsn)),
            Cell::Commit { lsn, id, .. } | Cell::Prepared { lsn, id, .. } => {
                if aborted.contains(lsn) {
                    return Err(format!("the header of {id} at {pos} follows its ABORT"));
                }
                let later = before.iter().find(|(other, at)| other != id && at > lsn && overlap(*other, *id));
                if let Some((other, at)) = later {
                    let (at, lsn) = (at.0, lsn.0);
                    return Err(format!(
                        "{other} (number {at}) stands before {id} (number {lsn}), and they overlap"
                    ));
                }
                before.push((*id, *lsn));
            }
            Cell::Checkpoint { .. } | Cell::Committed { .. } | Cell::Next { .. } => {}
        }
    }
    Ok(())
}

/// I3: records that overlap stand in the log in the order of their numbers, since a slot is free only after its header.
#[derive(Default)]
pub(super) struct InOrder {
    /// Durable ones that were publishing at the look before, by file system.
    publishing: BTreeSet<(usize, TxId)>,
    headers: BTreeSet<(usize, TxId)>,
}

impl Rule for InOrder {
    fn name(&self) -> &'static str {
        "I3"
    }

    fn now(&mut self, now: &Moment<'_>, book: &Book) -> Verdict {
        let mut publishing = BTreeSet::new();
        for (fs, system) in now.fs.iter().enumerate() {
            // Transactions of one process, each on what the one before left, overlap.
            let chain = |id| book.label(fs, id).map(|(chain, _)| chain);
            in_order(&system.log.cells, |a, b| chain(a).is_some() && chain(a) == chain(b))?;
            self.headers.extend(system.log.headers().map(|(id, ..)| (fs, id)));
            let durable = system.slots.iter().filter(|slot| slot.info.durable && slot.info.body.0 != [0; 2]);
            let past = durable.filter(|slot| slot.seen.state() == SlotState::Publishing);
            publishing.extend(past.map(|slot| (fs, slot.info.tx)));
        }
        let freed = std::mem::replace(&mut self.publishing, publishing);
        match freed.iter().find(|at| !self.publishing.contains(at) && !self.headers.contains(at)) {
            Some((fs, id)) => Err(format!("the slot of {id} on {fs} is free, and its header isn't written")),
            None => Ok(!self.headers.is_empty()),
        }
    }
}

/// I7: what the log on the disk would not redo any more is on the disk itself; segments go in order.
#[derive(Default)]
pub(super) struct DroppedLate {
    segments: BTreeMap<usize, BTreeSet<u64>>,
    /// Records that a recovery would have taken once.
    promised: BTreeSet<(usize, TxId)>,
}

impl Rule for DroppedLate {
    fn name(&self) -> &'static str {
        "I7"
    }

    fn now(&mut self, now: &Moment<'_>, book: &Book) -> Verdict {
        let mut judged = false;
        for (fs, system) in now.fs.iter().enumerate() {
            let known = self.segments.entry(fs).or_default();
            if let Some(gone) = out_of_order(known, &system.log) {
                return Err(format!("segment {gone} of {fs} is gone, and older ones are there"));
            }
            *known = system.log.segments.clone();
            let disk = &now.disk[fs];
            let promised = disk.log.headers().filter(|(id, ..)| disk.log.redoes(*id));
            self.promised.extend(promised.map(|(id, ..)| (fs, id)));
            let dropped = self.promised.iter().filter(|(on, id)| *on == fs && !disk.log.redoes(*id));
            for (_, id) in dropped {
                let Some((chain, n)) = book.label(fs, *id) else { continue };
                let chain = &book.chains[chain];
                let aborted = disk.log.headers().any(|(found, lsn, _)| found == *id && disk.log.aborted(lsn));
                // A later boot has dropped each record that was not past its commit point.
                if aborted || !chain.is_past(n) {
                    continue;
                }
                judged = true;
                let mut alone = vec![systx_sim::machine::Tree::new(); now.fs.len()];
                alone[fs] = disk.tree.clone();
                let found = chain.part_of(&alone);
                if !(n + 1..chain.states.len()).any(|state| chain.on(state, fs) == found) {
                    return Err(format!("{id} on {fs} would not be redone, and is not on the disk"));
                }
            }
        }
        Ok(judged)
    }
}

/// A segment that is gone although an older one is there.
pub(super) fn out_of_order(before: &BTreeSet<u64>, now: &Records) -> Option<u64> {
    let oldest = now.segments.first()?;
    before.iter().find(|gone| !now.segments.contains(gone) && *gone > oldest).copied()
}
