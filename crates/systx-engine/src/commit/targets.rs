//! Files that a commit changes in place, opened for writing once it has its number (docs/protocol.md §3, V5).
//!
//! Guarantees: publication does not fail on opening them, and no commit loses a lease to it but one that changes other
//! pages, which exchanges bytes then as beside an outsider. A commit that takes out a file has a read lease on it
//! meanwhile, and announces that it has read it; so no such commit is under way when one that changes the file has its
//! number. Does not: wait for other commits.

use super::Commit;
use crate::domain::Domain;
use crate::mutant::{self, Mutant};
use crate::objects::{open_object, past_leases};
use crate::outcome::{CommitError, Conflict, ConflictKind, Party};
use crate::plan::Plan;
use crate::record::{Act, Step};
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os, Timestamp};

/// Files that stay open, and so under a lease, from here to their step; more are opened again by then. (In tests few, so
/// that there are more.)
const OPEN_MAX: usize = if cfg!(test) { 8 } else { 1024 };

/// The files that a commit changes in place.
pub(super) struct Targets<O: Os> {
    /// As many as stay open.
    pub open: HashMap<Handle, Arc<O::Fd>>,
    /// Of those that it cuts: the modification time.
    pub cut: HashMap<Handle, Timestamp>,
}

impl<O: Os> Commit<'_, O> {
    /// Opens every file that is changed in place. Nothing is in the log yet.
    pub(super) fn open_targets(&mut self) -> Result<(), CommitError> {
        for part in &mut self.parts {
            if let (Some(change), false) = (&mut part.change, mutant::on(Mutant::TargetsEarly)) {
                let kept_out = self.facts.kept_out();
                let Targets { open, cut } = open(&part.domain, &change.plan, &change.body.steps, kept_out)?;
                (change.patch_targets, change.shared) = (open, cut);
                change.base.look_through(&change.patch_targets);
            }
        }
        Ok(())
    }
}

/// Opens the files that `steps` change in place.
///
/// # Errors
///
/// `Conflict` if one is gone, or of the kind `kept_out` if another commit keeps a lease on it; `Failed` with the kernel's
/// answer, `EAGAIN` if an outsider keeps one.
pub(super) fn open<O: Os>(
    domain: &Domain<O>,
    plan: &Plan,
    steps: &[Step],
    kept_out: ConflictKind,
) -> Result<Targets<O>, CommitError> {
    let (mut targets, mut cut) = (HashMap::new(), HashMap::new());
    let mut open_max = OPEN_MAX;
    for step in steps {
        let Act::Patch(patch) = &step.act else { continue };
        // Steps name the path at their turn; nothing has moved yet.
        let at = plan.places.get(&patch.file).unwrap_or(&step.at);
        let path = || domain.shown(&crate::paths::join(&at.path, &at.name));
        let open = || {
            let (os, root) = (&domain.os.for_a_moment(), &domain.area.root);
            // Found anew: reopening what the base has found takes as many calls, and finds a file without a name, too.
            let open = || open_object(os, root, &patch.file, &at.path, &at.name, Open::ReadWrite);
            past_leases(os, || Ok(()), open)
        };
        let mut opened = open();
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) && open_max > 0 {
            // None is kept, so that there is room for what comes.
            open_max = 0;
            targets.clear();
            opened = open();
        }
        let fd = match opened {
            Ok(Some(fd)) => fd,
            Ok(None) => {
                let (what, with) = (ConflictKind::Removed, Party::Outsider);
                return Err(CommitError::Conflict(Box::new(Conflict { path: path(), what, with })));
            }
            // Another commit, of other pages, is publishing them under its lease, and has been stopped; or a reader has.
            Err(Errno::AGAIN) if patch.by_pages.is_some() || plan.appends.contains_key(&patch.file) => {
                let (what, with) = (kept_out, Party::Unknown);
                return Err(CommitError::Conflict(Box::new(Conflict { path: path(), what, with })));
            }
            Err(error) => {
                return Err(CommitError::Failed { doing: "opening for writing", path: path(), error })
            }
        };
        // No record has the bytes that are cut off: only this time, from before V6, shows an outsider's write to them.
        if patch.size_after < patch.size_before {
            let doing = "looking at";
            let stat =
                domain.os.stat(&fd).map_err(|error| CommitError::Failed { doing, path: path(), error })?;
            cut.insert(patch.file, stat.mtime);
        }
        // It can be opened: beyond the bound that has to do until its step.
        if targets.len() < open_max {
            targets.insert(patch.file, Arc::new(fd));
        }
    }
    Ok(Targets { open: targets, cut })
}
