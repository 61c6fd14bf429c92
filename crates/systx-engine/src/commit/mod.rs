//! Commit: prepare → validate → sync → final look ═ commit point ═ → publish → done (docs/protocol.md §3).
//!
//! Owns: the order of these phases, and what is taken back when one of them fails. Guarantees: before the
//! commit point every failure leaves the committed tree as it was; after it the transaction is never reported
//! as aborted. While holding the commit lock or an active entry, a process waits for nothing but its own
//! disk.

mod acquire;
mod barrier;
mod base;
mod final_look;
mod finish;
mod header;
mod prepare;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use prepare::Draft;

use crate::domain::{Domain, Place, Sealed, SlotIx, SlotState};
use crate::facts::{Facts, OpenFiles};
use crate::id::{Footprint, Lsn, Objects, TxId};
use crate::log::{BodyAt, LogPos};
use crate::mutant::{self, Mutant};
use crate::objects::Directories;
use crate::outcome::{CommitError, Committed, Conflict, Durability, VerbError};
use crate::plan::{self, Plan};
use crate::publish::tokens::TokenHandles;
use crate::record::{Body, Step};
use crate::transaction::Transaction;
use final_look::Leases;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Handle, Os};
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
    pub numbered: Option<(SlotIx, Lsn)>,
}

/// The changes of a commit in one domain.
pub(crate) struct Change<O: Os> {
    pub id: TxId,
    /// `tx/<id>`.
    pub slots: Arc<O::Fd>,
    pub plan: Plan,
    pub body: Body,
    pub body_at: Option<BodyAt>,
    /// Files changed in place, open for writing since before the commit point.
    pub patch_targets: HashMap<Handle, Arc<O::Fd>>,
    /// Directories whose names change, open since P.
    pub directories: Directories<O>,
    /// Objects of other steps, open since P: where handles can't be opened, as many as there is room for.
    pub held: HashMap<Handle, Arc<O::Fd>>,
    /// Tokens in the slots, as far as known.
    pub tokens: TokenHandles,
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

impl<O: Os> Transaction<O> {
    /// Makes all of the transaction's effects public, or none.
    ///
    /// # Errors
    /// [`CommitError`]; but for `InDoubt` nothing was changed.
    pub fn commit(self) -> Result<Committed, CommitError> {
        self.commit_whole(Failing::Goes).map_err(|(error, _)| error)
    }

    /// Commits; but where that fails before the commit point the transaction stays, [given
    /// up](Transaction::give_up), with all that was done in it.
    pub fn commit_or_stay(self) -> Result<Committed, NotCommitted<O>> {
        self.commit_whole(Failing::Stays)
    }

    fn commit_whole(mut self, failing: Failing) -> Result<Committed, NotCommitted<O>> {
        // What it has staged, announced and locked is its parent's, in all that follows.
        if self.ours().is_err() {
            return Err((CommitError::Forked, None));
        }
        let stays = failing == Failing::Stays;
        if let Some(why) = self.take_refusal() {
            return Err((CommitError::Refused(why), self.failed_whole(failing, None)));
        }
        let plans = match plan::plan(&mut self.workset) {
            Ok(plans) => plans,
            Err(error) => {
                // A change that came through another transaction is reported as its doing, not as an
                // outsider's.
                let named = self.workset.facts_mut().refresh_all().map_err(aborted);
                let error = named.err().unwrap_or(error);
                let lost = match &error {
                    CommitError::Conflict(conflict) => Some(&**conflict),
                    _ => None,
                };
                let left = self.failed_whole(failing, lost);
                return Err((error, left));
            }
        };
        // Files of the committed tree that are still open here would make our own leases fail.
        match failing {
            Failing::Goes => self.workset.forget_nodes(),
            Failing::Stays => self.workset.close_committed_files(),
        }
        let mounts = self.workset.mounts().to_vec();
        let (ids, contention) = (self.ids().to_vec(), &self.contention);
        let staging = |mount: usize| self.workset.staging_there(mount);
        let shelved: Vec<_> = (0..mounts.len())
            .map(|mount| staging(mount).and_then(|s| Some((s.shelf.clone()?, s.next))))
            .collect();
        // Takes back what a commit that stays has let go of before it failed.
        let unused: Vec<HashSet<u32>> = match failing {
            Failing::Goes => Vec::new(),
            Failing::Stays => plans.iter().map(|(plan, _)| plan.unused.iter().copied().collect()).collect(),
        };
        let has_slots = |plan: &Plan| plan.steps.iter().any(|step| step.slot != Step::NO_SLOT);
        let carried: Vec<bool> =
            plans.iter().map(|(plan, _)| stays && !plan.steps.is_empty() && !has_slots(plan)).collect();
        let staging: Vec<_> = (0..mounts.len()).map(|mount| staging(mount).map(|s| s.dir.clone())).collect();
        let drafts =
            plans.into_iter().zip(staging).enumerate().map(|(mount, ((plan, directories), slots))| Draft {
                mount,
                domain: mounts[mount].clone(),
                id: ids[mount],
                age: contention.age(mount),
                plan,
                directories,
                slots,
                shelved: shelved[mount].clone(),
                stays,
            });
        let mut drafts: Vec<_> = drafts.collect();
        // Commit locks are taken in this order.
        drafts.sort_by_key(|draft| draft.domain.key);
        let changed: Vec<bool> = (0..mounts.len())
            .map(|m| drafts.iter().any(|d| d.mount == m && !d.plan.steps.is_empty()))
            .collect();
        // Until the seals are removed no process takes the directories for orphans.
        let noted = mounts.iter().zip(&ids).filter(|_| stays);
        let noted: Vec<_> = noted.map(|(domain, id)| domain.keep_sealed(*id)).collect();
        let ended = run(self.workset.facts_mut(), drafts, self.options.durability, &self.options.command);
        let in_doubt = matches!(ended, Err(CommitError::InDoubt { .. }));
        let stays = stays && ended.is_err() && !in_doubt;
        for (mount, domain) in mounts.iter().enumerate() {
            // The staged objects came to nothing, in whole or in part.
            if !in_doubt && !stays && (ended.is_err() || !changed[mount] || carried[mount]) {
                domain.discard_staging(ids[mount]);
                shelved[mount].as_ref().inspect(|_| domain.clear_shelf(ids[mount]));
            }
        }
        let lost = match &ended {
            Err(CommitError::Conflict(conflict)) => Some((**conflict).clone()),
            _ => None,
        };
        if stays {
            mounts.iter().zip(&ids).for_each(|(domain, id)| domain.unseal_staging(*id));
            drop(noted);
            self.workset.forget_slots(&unused);
            self.give_up(lost.as_ref());
            return ended.map_err(|error| (error, Some(Box::new(self))));
        }
        self.end_contention(lost.as_ref());
        ended.map_err(|error| (error, None))
    }

    /// Ends a transaction whose commit has failed before anything was done for it.
    fn failed_whole(mut self, failing: Failing, lost: Option<&Conflict>) -> Option<Box<Transaction<O>>> {
        match (failing, lost) {
            (Failing::Stays, lost) => {
                self.give_up(lost);
                return Some(Box::new(self));
            }
            (Failing::Goes, Some(conflict)) => self.lose(conflict),
            (Failing::Goes, None) => self.abort(),
        }
        None
    }
}

/// Why a commit failed, and the transaction, if it stays.
pub type NotCommitted<O> = (CommitError, Option<Box<Transaction<O>>>);

/// The fate of a transaction whose commit fails before its commit point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    Goes,
    Stays,
}

/// Runs the protocol over what a transaction changed. `drafts` are in the order of the domains' keys.
pub(crate) fn run<O: Os>(
    facts: &mut Facts<O>,
    drafts: Vec<Draft<O>>,
    durability: Durability,
    command: &str,
) -> Result<Committed, CommitError> {
    if durability == Durability::Durable && !mutant::on(Mutant::NoV4) {
        let doing = "syncing what was read";
        facts.sync_met().map_err(|error| CommitError::Failed { doing, path: Vec::new(), error })?;
    }
    if drafts.iter().all(|d| d.plan.steps.is_empty()) {
        return read_only(facts, &drafts, durability);
    }
    let parts = prepare::prepare(facts, drafts, durability, command)?;
    let mut commit = Commit { facts, parts, durability };
    match commit.up_to_commit_point() {
        Ok(decided) => Ok(commit.publish_all(decided)),
        Err(error) => Err(commit.withdraw(error)),
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
    facts.check_all_named().map_err(aborted)?;
    for draft in drafts.iter().filter(|_| durability == Durability::Durable && !mutant::on(Mutant::NoV4)) {
        let objects = Objects { read: facts.read_set(draft.mount).collect(), ..Objects::default() };
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
        let numbered = self.validate()?;
        // From here on their slots say so.
        self.parts.iter_mut().filter_map(|p| p.change.as_mut()).for_each(|change| change.sealed = None);
        let logged = self.log(numbered)?;
        let leases = self.final_look()?;
        self.commit_point(logged, leases)
    }

    /// V6 to S: what a durable commit has on the disk before it is decided.
    fn log(&mut self, _: Numbered) -> Result<Logged, CommitError> {
        if self.durability != Durability::Durable {
            return Ok(Logged(()));
        }
        // V6. A power loss during the sync may send the transaction forward without the final look; this
        // comparison makes sure that it then has overtaken no outsider's write that a cooperating transaction
        // has seen.
        if !mutant::on(Mutant::NoV6) {
            self.facts.check_all(&OpenFiles::<O>::new()).map_err(aborted)?;
        }
        self.prepare_participants()?;
        if !mutant::on(Mutant::LateHeader) {
            self.append_header()?;
        }
        if !mutant::on(Mutant::HeaderNotSynced) && !mutant::on(Mutant::PublishBeforeSync) {
            self.sync_header()?;
        }
        Ok(Logged(()))
    }

    /// The commit point: the coordinator's slot becomes PUBLISHING. From here on this process and all helpers
    /// go forward; an error says that it was not passed.
    fn commit_point(&mut self, _: Logged, leases: Leases<O>) -> Result<Decided<O>, CommitError> {
        for n in self.coordinator_first() {
            if let Some((slot, _)) = self.parts[n].numbered {
                let moved = self.parts[n].domain.set_slot(slot, SlotState::Validated, SlotState::Publishing);
                if n == self.coordinator() {
                    moved.map_err(|error| failed("passing the commit point", error))?;
                }
            }
        }
        Ok(Decided(leases))
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
