//! F: leases, and the last comparison of every fact with the present.

use super::Commit;
use crate::domain::Domain;
use crate::mutant::{self, Mutant};
use crate::outcome::{CommitError, Conflict, Party};
use crate::publish::site::{identify, open_object, slot_name};
use crate::record::{Act, Step};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, Handle, Lease, Open, Os};

/// Staged files under a lease while they appear; more appear without one.
const STAGED_LEASES_MAX: usize = 64;

/// Leases held from F to the end of publication. Released on drop.
pub(crate) struct Leases<O: Os> {
    os: O,
    held: Vec<Arc<O::Fd>>,
}

impl<O: Os> Drop for Leases<O> {
    fn drop(&mut self) {
        for fd in &self.held {
            // Closing releases, too: an error here has no consequence.
            let _ = self.os.lease(fd, Lease::None);
        }
    }
}

impl<O: Os> Commit<'_, O> {
    /// Takes leases, then compares every fact and every *before* with the present: what an outsider changed until now
    /// aborts us, what he changes from now on is ordered after us.
    pub(super) fn final_look(&mut self) -> Result<Leases<O>, CommitError> {
        let os = self.parts[0].domain.os.clone();
        let mut leases = Leases { os, held: Vec::new() };
        for part in &self.parts {
            let Some(change) = &part.change else { continue };
            let os = &part.domain.os;
            for target in change.patch_targets.values() {
                if os.lease(target, Lease::Write).is_ok() {
                    leases.held.push(target.clone());
                }
            }
            for step in &change.body.steps {
                if leases.held.len() >= STAGED_LEASES_MAX {
                    break;
                }
                if !matches!(step.act, Act::Place { .. } | Act::Replace { .. }) {
                    continue;
                }
                let staged = os.stat_at(&change.slots, &slot_name(step.slot));
                if !staged.is_ok_and(|s| s.kind() == systx_os::FileType::File) {
                    continue;
                }
                let Ok(fd) = os.open(&change.slots, &slot_name(step.slot), Open::Read) else { continue };
                if os.lease(&fd, Lease::Write).is_ok() {
                    leases.held.push(Arc::new(fd));
                }
            }
        }
        let targets = self.parts.iter().filter_map(|p| p.change.as_ref()).flat_map(|c| &c.patch_targets);
        let open = targets.map(|(handle, fd)| (*handle, fd.clone())).collect();
        if !mutant::on(Mutant::NoFinalLook) {
            self.facts.check_all(&open).map_err(super::aborted)?;
            self.check_befores()?;
            self.still_possible()?;
        }
        Ok(leases)
    }

    /// To abort rather than to displace.
    fn check_befores(&self) -> Result<(), CommitError> {
        for part in &self.parts {
            let Some(change) = &part.change else { continue };
            let os = &part.domain.os;
            let mut directories: HashMap<Handle, Option<O::Fd>> = HashMap::new();
            let taken: HashSet<(&Handle, &[u8])> = change
                .body
                .steps
                .iter()
                .filter(|s| matches!(s.act, Act::Take { .. } | Act::Remove { .. }))
                .map(|s| (&s.at.dir, s.at.name.as_slice()))
                .collect();
            for step in &change.body.steps {
                let Some(expected) = expected(step, &taken) else { continue };
                // In a directory that this commit makes there is nothing.
                if change.plan.made.contains(&step.at.dir) {
                    continue;
                }
                let dir = match directories.entry(step.at.dir) {
                    std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
                    std::collections::hash_map::Entry::Vacant(e) => {
                        // Steps name the path at their turn; nothing has moved yet.
                        let path = change.plan.places.get(&step.at.dir).map_or(&step.at.path, |at| &at.path);
                        let root = &part.domain.area.root;
                        let opened = open_object(os, root, &step.at.dir, path, b"", Open::Path);
                        e.insert(opened.map_err(|error| failed(&part.domain, step, error))?)
                    }
                };
                let found = match dir {
                    Some(dir) => {
                        identify(os, dir, &step.at.name).map_err(|error| failed(&part.domain, step, error))?
                    }
                    None => return Err(changed(&part.domain, step, "directory removed")),
                };
                if found != expected {
                    return Err(changed(&part.domain, step, "name changed"));
                }
            }
        }
        Ok(())
    }
}

/// What a step expects at its name before any step was taken; `None` when another step of ours changes that first.
fn expected(step: &Step, taken: &HashSet<(&Handle, &[u8])>) -> Option<Option<Handle>> {
    match &step.act {
        Act::Place { .. } | Act::Link { .. } => {
            let vacated = taken.contains(&(&step.at.dir, step.at.name.as_slice()));
            (!vacated).then_some(None)
        }
        Act::Replace { before, .. } | Act::Remove { before, .. } | Act::Take { before } => {
            Some(Some(*before))
        }
        Act::Patch(_) | Act::Attr { .. } => None,
    }
}

fn changed<O: Os>(domain: &Domain<O>, step: &Step, what: &'static str) -> CommitError {
    let path = domain.shown(&crate::facts::join(&step.at.path, &step.at.name));
    CommitError::Conflict(Box::new(Conflict { path, what, with: Party::Outsider }))
}

fn failed<O: Os>(domain: &Domain<O>, step: &Step, error: Errno) -> CommitError {
    CommitError::Failed {
        doing: "looking at",
        path: domain.shown(&crate::facts::join(&step.at.path, &step.at.name)),
        error,
    }
}
