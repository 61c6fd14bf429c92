//! The commit of a whole transaction: from its working set to the drafts of the protocol, and what becomes of
//! the working set at the end.
//!
//! Owns: what the transaction has staged on each mount while its commit runs. Guarantees: nothing staged is
//! left behind by a transaction that has ended, but for one whose outcome is in doubt; one that stays after a
//! failed commit has all that it had before. Does not: know the phases (`commit/mod.rs`).

use super::prepare::{Draft, Failing, InSharedStaging};
use super::{aborted, run};
use crate::domain::{Domain, Sealed};
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::objects::Directories;
use crate::outcome::{CommitError, Committed, Conflict};
use crate::plan::{self, Plan};
use crate::record::Step;
use crate::transaction::Transaction;
use std::collections::HashSet;
use std::sync::Arc;
use systx_os::{Errno, Os};

/// Why a commit failed, and the transaction, if it stays.
pub type NotCommitted<O> = (CommitError, Option<Box<Transaction<O>>>);

/// How a commit has ended, as far as its staged objects go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is past its commit point, and its steps have used what was staged for them.
    Committed,
    /// The log may name what is staged.
    InDoubt,
    /// Nothing was changed: all of it is of no use any more.
    Gone,
    /// Nothing was changed, and the transaction stays with all of it.
    Back,
}

impl End {
    fn of(ended: &Result<Committed, CommitError>, failing: Failing) -> End {
        match (ended, failing) {
            (Ok(_), _) => End::Committed,
            (Err(CommitError::InDoubt { .. }), _) => End::InDoubt,
            (Err(_), Failing::Goes) => End::Gone,
            (Err(_), Failing::Stays) => End::Back,
        }
    }
}

/// The staged objects of a transaction on one mount while its commit runs.
struct Staged<O: Os> {
    domain: Arc<Domain<O>>,
    /// Number of the transaction there.
    id: TxId,
    /// True if it is in the shared staging directory.
    in_shared_staging: bool,
    use_of: UseOf,
    /// Staging entries that the commit may have let go of, as no step needs them: only of a transaction that
    /// may stay.
    unused: HashSet<u32>,
    /// Of a transaction that may stay: until its seal is removed no process takes the directory for an orphan.
    _noted: Option<Sealed<O>>,
}

/// The use of staged objects for a commit that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UseOf {
    /// The steps use them.
    Steps,
    /// None: there are no steps, or the record carries all that they need.
    Nothing,
    /// There is nothing.
    Absent,
}

impl<O: Os> Staged<O> {
    /// Deletes what no step, no record and no transaction needs any more.
    fn end(&self, end: End) {
        let goes = match end {
            End::Committed => self.use_of == UseOf::Nothing,
            End::Gone => true,
            End::InDoubt | End::Back => false,
        };
        if goes {
            self.domain.discard_staging(self.id);
            if self.in_shared_staging {
                self.domain.clear_shared_staging(self.id);
            }
        }
    }
}

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
        // Where it fails the transaction is one that can't commit.
        let _ = self.release_all();
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
                let left = self.failed_whole(failing, conflict_of(&error));
                return Err((error, left));
            }
        };
        // Files of the committed tree that are still open here would make our own leases fail.
        self.workset.close_committed_files();
        // Read on in what its program has closed, or opened as its own.
        if self.workset.facts().have_lost_files() && !mutant::on(Mutant::LostUnseen) {
            let (doing, path, error) = ("reading files that its program has closed", Vec::new(), Errno::BADF);
            let failed = CommitError::Failed { doing, path, error };
            return Err((failed, self.failed_whole(failing, None)));
        }
        if failing == Failing::Goes {
            self.workset.forget_nodes();
        }
        let staged: Vec<Staged<O>> =
            plans.iter().enumerate().map(|(mount, (plan, _))| self.staged(mount, plan, failing)).collect();
        let mut drafts: Vec<Draft<O>> = plans
            .into_iter()
            .enumerate()
            .map(|(mount, (plan, directories))| self.draft(mount, plan, directories, failing))
            .collect();
        // Commit locks are taken in this order.
        drafts.sort_by_key(|draft| draft.domain.key);
        let ended = run(self.workset.facts_mut(), drafts, self.options.durability, &self.options.command);
        let end = End::of(&ended, failing);
        staged.iter().for_each(|staged| staged.end(end));
        if end == End::Back {
            staged.iter().for_each(|staged| staged.domain.unseal_staging(staged.id));
            let unused: Vec<_> = staged.into_iter().map(|staged| staged.unused).collect();
            self.workset.forget_slots(&unused);
            return ended.map_err(|error| {
                self.give_up(conflict_of(&error));
                (error, Some(Box::new(self)))
            });
        }
        self.end_contention(ended.as_ref().err().and_then(conflict_of));
        ended.map_err(|error| (error, None))
    }

    fn staged(&self, mount: usize, plan: &Plan, failing: Failing) -> Staged<O> {
        let (domain, id) = (&self.workset.mounts()[mount], self.ids()[mount]);
        let needs_entries = plan.steps.iter().any(|step| step.slot != Step::NO_SLOT);
        // A transaction that goes has let go of what is not needed when it prepared.
        let used = needs_entries || failing == Failing::Goes && !plan.steps.is_empty();
        let (unused, _noted) = match failing {
            Failing::Goes => (HashSet::new(), None),
            Failing::Stays => (plan.unused.iter().copied().collect(), Some(domain.keep_sealed(id))),
        };
        Staged {
            domain: domain.clone(),
            id,
            in_shared_staging: self
                .workset
                .staging_there(mount)
                .is_some_and(|staging| staging.shared_staging.is_some()),
            use_of: match self.workset.staging_there(mount) {
                _ if used => UseOf::Steps,
                Some(_) => UseOf::Nothing,
                None => UseOf::Absent,
            },
            unused,
            _noted,
        }
    }

    fn draft(&self, mount: usize, plan: Plan, directories: Directories<O>, failing: Failing) -> Draft<O> {
        let staging = self.workset.staging_there(mount);
        let in_shared_staging = staging
            .and_then(|s| Some(InSharedStaging { shared_staging: s.shared_staging.clone()?, end: s.next }));
        Draft {
            mount,
            domain: self.workset.mounts()[mount].clone(),
            id: self.ids()[mount],
            age: self.contention.age(mount),
            plan,
            directories,
            slots: staging.map(|staging| staging.dir.clone()),
            in_shared_staging,
            failing,
        }
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

fn conflict_of(error: &CommitError) -> Option<&Conflict> {
    match error {
        CommitError::Conflict(conflict) => Some(conflict),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_commit_that_changed_nothing_gives_its_staged_objects_back_or_up() {
        let doubt = || Err(CommitError::InDoubt { error: Errno::IO });
        let failed = || Err(CommitError::Refused("a test".into()));
        for (ended, goes, stays) in [
            (Ok(Committed::default()), End::Committed, End::Committed),
            (doubt(), End::InDoubt, End::InDoubt),
            (failed(), End::Gone, End::Back),
        ] {
            assert_eq!((End::of(&ended, Failing::Goes), End::of(&ended, Failing::Stays)), (goes, stays));
        }
    }
}
