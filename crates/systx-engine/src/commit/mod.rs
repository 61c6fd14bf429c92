//! Commit: prepare → validate → sync → final look ═ commit point ═ → publish → done (docs/protocol.md §3).
//!
//! Owns: the order of these phases, and what is taken back when one of them fails. Guarantees: before the
//! commit point every failure leaves the committed tree as it was; after it the transaction is never reported
//! as aborted. While holding the commit lock or an active entry, a process waits for nothing but its own
//! disk.

mod acquire;
mod barrier;
mod base;
mod decide;
mod ends;
mod final_look;
mod finish;
mod header;
mod prepare;
mod targets;
#[cfg(test)]
mod tests;
mod validate;
mod whole;

pub(crate) use prepare::Draft;
#[cfg(test)]
use prepare::{Failing, InSharedStaging};

use crate::domain::moving::takes_out;
use crate::domain::{Domain, Place, Sealed, SlotIx, SlotState};
use crate::facts::{Facts, OpenFiles};
use crate::id::{Footprint, Lsn, Objects, TxId};
use crate::invariant::invariant;
use crate::log::{BodyAt, LogPos};
use crate::mutant::{self, Mutant};
use crate::objects::Directories;
use crate::outcome::{CommitError, Committed, Durability, VerbError};
use crate::plan::Plan;
use crate::publish::tokens::TokenHandles;
use crate::record::Body;
use decide::Look;
use final_look::Leases;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Handle, Os, Phase, Timestamp};
use tracing::{debug, debug_span};
use validate::failed;

/// One domain's share of a commit.
pub(crate) struct Part<O: Os> {
    /// Index of the domain among the transaction's mounts.
    pub mount: usize,
    pub domain: Arc<Domain<O>>,
    /// Set where something changes.
    pub change: Option<Change<O>>,
    /// Number of its first try.
    pub age: TxId,
    pub objects: Objects,
    pub footprint: Footprint,
    /// Set from V5 on.
    pub numbered: Option<Number>,
    /// How often a checkpoint was made so that it may change what records say.
    pub tries_to_cover: u32,
}

/// The place of a part in the serial order of its domain.
#[derive(Clone, Copy)]
pub(crate) struct Number {
    /// The active entry.
    pub slot: SlotIx,
    pub lsn: Lsn,
}

/// The changes of a commit in one domain.
pub(crate) struct Change<O: Os> {
    pub id: TxId,
    /// `tx/<id>`.
    pub slots: Arc<O::Fd>,
    pub plan: Plan,
    pub body: Body,
    pub body_at: Option<BodyAt>,
    /// Files changed in place, open for writing since V5.
    pub patch_targets: HashMap<Handle, Arc<O::Fd>>,
    /// Of files changed in place without a lease: the modification time, from before the last comparison. Of those that
    /// do not stay open, where they are cut.
    pub shared: HashMap<Handle, Timestamp>,
    /// Directories whose names change, open since P.
    pub directories: Directories<O>,
    /// Objects of other steps, open since P: where handles can't be opened, as many as there is room for.
    pub held: HashMap<Handle, Arc<O::Fd>>,
    /// Tokens in the slots, as far as known.
    pub tokens: TokenHandles,
    /// The next free number just before `look_at_ends` looked at the files: V3 searches the ring from here on.
    pub ends_since: Lsn,
    /// The state that the steps build on.
    pub base: base::Base<O>,
    /// Says that `tx/<id>` is in use, until a slot does.
    pub sealed: Option<Sealed<O>>,
    /// Where its header stands; set from V7 on.
    pub header: Option<LogPos>,
}

impl<O: Os> Part<O> {
    /// True if its file system comes back after a power loss: where none does, nothing is promised and
    /// nothing redone.
    pub fn promises(&self) -> bool {
        self.domain.comes_back() || mutant::on(Mutant::ForgetfulPromises)
    }

    /// Returns true if its steps take objects out of the tree, and no record will say so.
    pub fn is_moving(&self, durability: Durability) -> bool {
        let noted = durability == Durability::None && !mutant::on(Mutant::MovingNotNoted);
        noted && self.change.as_ref().is_some_and(|change| takes_out(&change.body))
    }

    /// Nothing stands in its entries any more, or nothing will.
    pub fn end_moving(&self, durability: Durability) {
        if self.is_moving(durability) {
            self.domain.end_moving(self.id());
        }
    }

    /// Transaction number; 0 where nothing changes.
    pub fn id(&self) -> TxId {
        self.change.as_ref().map_or(TxId(0), |c| c.id)
    }
}

impl<O: Os> Change<O> {
    /// Where helpers find the body.
    pub fn place(&self) -> Place {
        self.body_at.map_or(Place::default(), crate::domain::place_of)
    }
}

/// A commit that is prepared, and under way from there. The first part that changes something is the coordinator.
pub(crate) struct Commit<'t, O: Os> {
    pub facts: &'t mut Facts<O>,
    pub parts: Vec<Part<O>>,
    pub durability: Durability,
}

// Each phase takes what the one before it has given, so that none can be left out or come twice.

/// The commit has validated and has its number in every domain: its slots are in flight.
pub(crate) struct Numbered(());

/// Its record is in the log, and on the disk if it is durable.
pub(crate) struct Logged(());

/// It is past its commit point. It has the leases under which the final look was taken.
pub(crate) struct Decided<O: Os>(Leases<O>);

/// Runs the protocol over what a transaction changed. `drafts` are in the order of the domains' keys.
pub(crate) fn run<O: Os>(
    facts: &mut Facts<O>,
    drafts: Vec<Draft<O>>,
    durability: Durability,
    command: &str,
) -> Result<Committed, CommitError> {
    // With degree 2 not all that was seen is in R, so V4 could not know that it must be synced (I12).
    if durability == Durability::Durable && !mutant::on(Mutant::NoV4) {
        let doing = "syncing what was read";
        facts.sync_met().map_err(|error| CommitError::Failed { doing, path: Vec::new(), error })?;
    }
    invariant!(
        "I10",
        drafts.is_sorted_by_key(|d| d.domain.key),
        "all take commit locks in the order of keys"
    );
    if drafts.iter().all(|d| d.plan.steps.is_empty()) {
        return read_only(facts, &drafts, durability);
    }
    let tx = drafts.iter().find(|draft| !draft.plan.steps.is_empty()).map_or(0, |draft| draft.id.0);
    let _commit = debug_span!("commit", tx, ?durability).entered();
    let parts = debug_span!("prepare").in_scope(|| prepare::prepare(facts, drafts, durability, command))?;
    let mut commit = Commit { facts, parts, durability };
    match commit.up_to_commit_point() {
        Ok(decided) => Ok(commit.publish_all(decided)),
        Err(error) => {
            debug!(?error, "withdrawn");
            Err(commit.withdraw(error))
        }
    }
}

/// Commits a read-only transaction, without a lock. The serialization point is the refresh that finds
/// nothing.
///
/// Durable: a power loss does not take back what it was shown, either.
fn read_only<O: Os>(
    facts: &mut Facts<O>,
    drafts: &[Draft<O>],
    durability: Durability,
) -> Result<Committed, CommitError> {
    facts.refresh_all().map_err(aborted)?;
    // The ring shows cooperating commits only: what outsiders changed is found by comparing everything.
    facts.check_all_named().map_err(aborted)?;
    for draft in drafts.iter().filter(|_| durability == Durability::Durable && !mutant::on(Mutant::NoV4)) {
        let objects = Objects { read: facts.read_set(draft.mount).collect(), ..Objects::default() };
        // Asked again after each sync: a `none` commit may have come in while it ran.
        while draft.domain.builds_on_unsynced(&objects) {
            draft.domain.sync_unsynced().map_err(|error| CommitError::Failed {
                doing: "syncing what was read",
                path: Vec::new(),
                error,
            })?;
        }
    }
    Ok(Committed::default())
}

impl<O: Os> Commit<'_, O> {
    fn up_to_commit_point(&mut self) -> Result<Decided<O>, CommitError> {
        let prepared = |part: &Part<O>| {
            part.numbered.is_none()
                && part.change.as_ref().is_none_or(|c| c.body_at.is_some() && c.header.is_none())
        };
        invariant!("P4", self.parts.iter().all(prepared), "the body is written before a number is taken");
        self.parts.iter().try_for_each(check_in_place)?;
        let numbered = debug_span!("validate").in_scope(|| self.validate())?;
        // From here on their slots say so.
        self.parts.iter_mut().filter_map(|p| p.change.as_mut()).for_each(|change| change.sealed = None);
        self.enter(Phase::Decide);
        let lsn = self.lsn();
        // Sooner, opening for writing would break the lease under which another commit takes the file out (C5).
        self.open_targets()?;
        let logged = debug_span!("log", lsn).in_scope(|| self.log(numbered))?;
        invariant!("I4", self.are_headers_there(), "the final look comes after the header is in the log");
        // Behind the sync, which takes long: an outsider's change during it is still found, and aborts the commit.
        let leases = debug_span!("final_look", lsn).in_scope(|| self.final_look())?;
        debug_span!("commit_point", lsn).in_scope(|| self.commit_point(logged, leases))
    }

    /// Tells the kernel's side how far the commit is.
    fn enter(&self, phase: Phase) {
        if let Some(part) = self.parts.get(self.coordinator()) {
            part.domain.os.phase(phase);
        }
    }

    /// The number of the deciding part; 0 before it has one.
    fn lsn(&self) -> u64 {
        self.parts.get(self.coordinator()).and_then(|part| part.numbered).map_or(0, |number| number.lsn.0)
    }

    /// V6 to S: what a durable commit has on the disk before it is decided.
    fn log(&mut self, _: Numbered) -> Result<Logged, CommitError> {
        let numbered = |part: &Part<O>| part.numbered.is_some();
        invariant!("V5", self.parts.iter().all(numbered), "every domain has given a number at one instant");
        if self.durability != Durability::Durable {
            return Ok(Logged(()));
        }
        // V6. A power loss during the sync may send the transaction forward without the final look; this
        // comparison makes sure that it then has overtaken no outsider's write that a cooperating transaction
        // has seen.
        if !mutant::on(Mutant::NoV6) {
            self.compare_all(Look::BeforeRecord, &OpenFiles::<O>::new())?;
        }
        self.prepare_participants()?;
        // The coordinator's header decides for all, so every participant's PREPARED is on the disk by then. No entry is
        // free yet: records that overlap stand in the log in LSN order (I3).
        if !mutant::on(Mutant::LateHeader) {
            self.append_header()?;
        }
        // No step may run for a header that a power loss can still take away (I4).
        if !mutant::on(Mutant::HeaderNotSynced) && !mutant::on(Mutant::PublishBeforeSync) {
            self.sync_header()?;
        }
        Ok(Logged(()))
    }

    /// The commit point: the coordinator's slot becomes PUBLISHING. From here on this process and all helpers
    /// go forward; an error says that it was not passed.
    fn commit_point(&mut self, _: Logged, leases: Leases<O>) -> Result<Decided<O>, CommitError> {
        invariant!("I4", self.are_headers_there(), "what is decided is in the log");
        let sealed = |part: &Part<O>| part.change.as_ref().is_some_and(|change| change.sealed.is_some());
        invariant!("P3", !self.parts.iter().any(sealed), "an active entry says that tx/<id> is in use");
        // The coordinator first: a successor publishes a participant that is PUBLISHING without asking further.
        for n in self.coordinator_first() {
            if let Some(Number { slot, .. }) = self.parts[n].numbered {
                if mutant::on(Mutant::CountedEarly) {
                    self.facts.at_commit_point.take().into_iter().for_each(|told| told());
                }
                let moved = self.parts[n].domain.set_slot(slot, SlotState::Validated, SlotState::Publishing);
                // Behind the coordinator's all is decided: an error at another's entry must not abort it any more.
                if n == self.coordinator() {
                    moved.map_err(|error| failed("passing the commit point", error))?;
                    // Whatever dies from here on, the transaction has committed: who counts commits counts this one.
                    self.facts.at_commit_point.take().into_iter().for_each(|told| told());
                }
            }
        }
        Ok(Decided(leases))
    }

    /// Returns true if each part that has a record of its own has its header in the log; without durability none
    /// has one.
    fn are_headers_there(&self) -> bool {
        let is_there = |(n, part): (usize, &Part<O>)| {
            part.change.as_ref().is_none_or(|change| change.header.is_some() == self.is_recorded(n))
        };
        self.parts.iter().enumerate().all(is_there)
    }

    /// The part whose record decides.
    pub(crate) fn coordinator(&self) -> usize {
        coordinator_of(&self.parts)
    }

    /// Returns true if a part has a record of its own: all of a durable transaction but those that never come
    /// back, where another one decides.
    pub(crate) fn is_recorded(&self, n: usize) -> bool {
        self.durability == Durability::Durable && (n == self.coordinator() || self.parts[n].promises())
    }
}

/// Refuses a domain whose area, or a part of it, was removed or moved.
fn check_in_place<O: Os>(part: &Part<O>) -> Result<(), CommitError> {
    let doing = "looking at the area of systx";
    if part.domain.is_in_place().map_err(|error| failed(doing, error))? {
        return Ok(());
    }
    let told = "what systx keeps on this file system was removed or moved meanwhile: run it again";
    Err(CommitError::Refused(told.into()))
}

/// The first that changes something and comes back after a power loss; where none comes back, the first that
/// changes something.
fn coordinator_of<O: Os>(parts: &[Part<O>]) -> usize {
    let first = |promises: bool| parts.iter().position(|p| p.change.is_some() && (p.promises() || !promises));
    first(true).or_else(|| first(false)).unwrap_or(0)
}

/// A verb's error as the end of a commit.
pub(crate) fn aborted(error: VerbError) -> CommitError {
    match error {
        VerbError::Doomed(conflict) => CommitError::Conflict(conflict),
        VerbError::Os(error) => {
            CommitError::Failed { doing: "looking at what was read", path: Vec::new(), error }
        }
    }
}
