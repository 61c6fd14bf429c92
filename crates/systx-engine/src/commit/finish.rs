//! U and D for the owner, and the way back for a commit that did not get to its commit point.

use super::{Commit, Decided, Number, Part};
use crate::domain::reports;
use crate::domain::SlotState;
use crate::invariant::invariant;
use crate::log::Cell;
use crate::mutant::{self, Mutant};
use crate::outcome::{CommitError, Committed, ConflictCopy, Durability};
use crate::publish::site::{Opened, Pass, Site};
use crate::publish::{publish, reclaim, Pending};
use crate::record::{Act, Step};
use crate::shown::Shown;
use systx_os::{Os, Phase};
use tracing::debug_span;

/// Parts that have a record of their own, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorded {
    Yes,
    No,
}

impl<O: Os> Commit<'_, O> {
    /// Publishes every part, frees the slots, reclaims.
    pub(crate) fn publish_all(mut self, Decided(leases): Decided<O>) -> Committed {
        let mut done = Committed::default();
        invariant!("I4", self.are_headers_there(), "no step runs without a header in the log");
        let numbered = self.parts.iter().all(|part| part.numbered.is_some());
        invariant!("I2", numbered, "an active entry keeps others out while steps run");
        let publishing = debug_span!("publish", lsn = self.lsn()).entered();
        if mutant::on(Mutant::EarlyRelease) {
            (0..self.parts.len()).for_each(|n| self.done(n));
        }
        for part in &mut self.parts {
            let Some(change) = &mut part.change else { continue };
            done.steps += change.body.steps.len() as u64;
            let domain = &part.domain;
            domain.os.phase(Phase::Publish);
            change.base.before_steps(domain);
            let opened = Opened {
                patch_targets: std::mem::take(&mut change.patch_targets),
                shared: std::mem::take(&mut change.shared),
                directories: std::mem::take(&mut change.directories),
                tokens: std::mem::take(&mut change.tokens),
                held: std::mem::take(&mut change.held),
                appends: change.plan.appends.keys().copied().collect(),
            };
            let mut site = Site::living(domain, &change.slots, &change.body, self.durability, opened);
            match publish(&mut site, &change.body) {
                Ok(conflict_copies) => {
                    leases.remember_patched(domain, &site.patch_targets, &change.body);
                    if conflict_copies.is_empty() && self.durability == Durability::Durable {
                        change.base.after_steps(domain, &change.body);
                    }
                    done.conflict_copies.extend(domain.shown_all(conflict_copies));
                }
                Err(Pending { path, error }) => {
                    domain.ask_for_lost();
                    let path = domain.shown(&path);
                    done.pending = Some(format!("{}: {error}", Shown(&path)));
                }
            }
        }
        // Leases end before the slots do.
        drop(leases);
        drop(publishing);
        let _ending = debug_span!("done", lsn = self.lsn(), pending = done.pending.is_some()).entered();
        if done.pending.is_some() {
            // The staging entries stay: the next process on this file system goes on, this one or one after
            // its end.
            self.leave();
            return done;
        }
        if mutant::on(Mutant::PublishBeforeSync) {
            let _ = self.sync_header();
        }
        // Without a record no process would know what is in the entries: they go before the transaction is
        // done.
        self.reclaim(Recorded::No, &mut done);
        // The coordinator's slot last: helpers of a participant look at it.
        for n in self.coordinator_first().into_iter().rev().filter(|_| !mutant::on(Mutant::EarlyRelease)) {
            self.done(n);
        }
        if mutant::on(Mutant::LateHeader) && self.durability == Durability::Durable {
            let _ = self.append_header().and_then(|()| self.sync_header());
        }
        self.reclaim(Recorded::Yes, &mut done);
        for part in &self.parts {
            let warning = part.domain.checkpoint_if_due();
            done.warning = done.warning.or(warning);
        }
        done
    }

    /// Empties the slots of the parts that have a record, or of those that have none.
    fn reclaim(&self, which: Recorded, done: &mut Committed) {
        let recorded = which == Recorded::Yes;
        let parts = self.parts.iter().enumerate().filter(|(n, _)| self.is_recorded(*n) == recorded);
        for part in parts.map(|(_, part)| part) {
            let Reclaimed { conflict_copies, is_empty } = reclaim_part(part);
            done.conflict_copies.extend(part.domain.shown_all(conflict_copies));
            if recorded {
                // A checkpoint may have been here first.
                for copy in part.domain.shown_all(noted_of(part)) {
                    if !done.conflict_copies.contains(&copy) {
                        done.conflict_copies.push(copy);
                    }
                }
            }
            let has_slots = part.change.as_ref().is_some_and(|change| change.body.has_slots());
            if is_empty && !recorded && has_slots {
                // Without a header nothing is ever redone.
                part.domain.discard_staging(part.id());
                part.end_moving(self.durability);
            }
        }
    }

    /// Releases waiters from active entries that this process can't go on with.
    fn leave(&self) {
        for part in &self.parts {
            if let Some(Number { slot, .. }) = part.numbered {
                part.domain.leave_slot(slot);
            }
        }
    }

    /// D of one part.
    fn done(&self, n: usize) {
        let part = &self.parts[n];
        let Some(Number { slot, .. }) = part.numbered else { return };
        if let (Some(change), true) = (&part.change, n != self.coordinator() && self.is_recorded(n)) {
            // Unsynced: it only spares a later recovery the question. An error leaves the question.
            let _ = part.domain.append_cell(Cell::Committed { id: change.id });
        }
        // Before the entry is free: from then on a durable commit may build on this one, which V4 must see.
        if !self.is_recorded(n) {
            part.domain.table.unsynced().add(&part.footprint.changed());
        } else if let Some(change) = &part.change {
            part.domain.table.unsynced().add(&change.body.made());
        }
        if let (Some(Number { lsn, .. }), Some(change)) = (part.numbered, &part.change) {
            // The history has it from the log, but for those that have no record there.
            if self.durability == Durability::Durable && !self.is_recorded(n) {
                part.domain.note_past(lsn, &change.body);
            }
        }
        // A slot that can't be freed is found by others when this process has ended.
        let _ = part.domain.free_slot(slot);
    }

    /// Takes back a commit before its commit point and gives the error to report.
    pub(super) fn withdraw(self, error: CommitError) -> CommitError {
        if matches!(error, CommitError::InDoubt { .. }) {
            // The state on the disk is unknown. The entry stays, and every transaction that meets it gets a
            // report.
            self.leave();
            return error;
        }
        let in_log = |part: &Part<O>| part.change.as_ref().is_some_and(|change| change.header.is_some());
        let unnumbered = self.parts.iter().any(|part| in_log(part) && part.numbered.is_none());
        invariant!("I3", !unnumbered, "a header that is taken back has the number that its ABORT names");
        for part in &self.parts {
            if let Some(Number { slot, .. }) = part.numbered {
                let _ = part.domain.set_slot(slot, SlotState::Validated, SlotState::Aborting);
            }
            part.end_moving(self.durability);
        }
        for (n, part) in self.parts.iter().enumerate() {
            let (Some(Number { lsn, .. }), Some(change)) = (part.numbered, &part.change) else { continue };
            if change.header.is_none() {
                continue;
            }
            if n != self.coordinator() {
                // Unsynced: without a header of the coordinator the participant is aborted anyway.
                let _ = part.domain.append_cell(Cell::Abort { lsn });
            } else if let Err(why) = part.domain.append_and_sync(Cell::Abort { lsn }) {
                // The entry is free only behind a synced ABORT: without it a redo may still go forward (I8).
                self.leave();
                return why;
            }
        }
        for n in self.coordinator_first().into_iter().rev() {
            let part = &self.parts[n];
            if let Some(Number { slot, .. }) = part.numbered {
                let _ = part.domain.free_slot(slot);
            }
            part.domain.table.priority().resign(part.age);
        }
        self.enter(Phase::Withdrawn);
        error
    }
}

/// The staging entries of a part after their reclaiming.
#[derive(Default)]
struct Reclaimed {
    conflict_copies: Vec<ConflictCopy>,
    /// Nothing is left in them.
    is_empty: bool,
}

/// Returns the notes that others have made of a part, if it takes anything out.
fn noted_of<O: Os>(part: &Part<O>) -> Vec<ConflictCopy> {
    let (Some(change), domain) = (&part.change, &part.domain) else { return Vec::new() };
    let takes = |step: &Step| matches!(step.act, Act::Remove { .. } | Act::Replace { .. });
    if mutant::on(Mutant::CheckpointsSilent) || !change.body.steps.iter().any(takes) {
        return Vec::new();
    }
    reports::of(&domain.os, &domain.area.dir, change.id)
}

/// Deletes what the published steps left in the slots; what can't be deleted now is left to the next checkpoint.
fn reclaim_part<O: Os>(part: &Part<O>) -> Reclaimed {
    let (Some(change), domain) = (&part.change, &part.domain) else { return Reclaimed::default() };
    let (root, aside) = (&domain.area.root, &domain.area.aside);
    domain.os.phase(Phase::Reclaim);
    let mut site = Site::new(&domain.os, root, &change.slots, aside, change.id, Pass::First);
    site.area = Some(&domain.area.dir);
    let is_empty = reclaim::reclaim(&mut site, &change.body).is_ok();
    Reclaimed { conflict_copies: site.conflict_copies, is_empty }
}
