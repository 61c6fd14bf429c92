//! F: leases, and the last comparison of every fact with the present.

use super::acquire::Compared;
use super::decide::{Ask, Look, Shown, Subject};
use super::{Commit, Part};
use crate::acl::CAPABILITY;
use crate::domain::Domain;
use crate::facts::{Name, OpenFiles};
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::objects::{identify, open_object, past_leases, slot_name};
use crate::outcome::{CommitError, Conflict, ConflictKind, Party};
use crate::record::{Act, Body, Step};
use std::collections::HashSet;
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
            // Closing releases, too, but not where a child that was forked meanwhile has the file open, as well.
            let _ = self.os.lease(fd, Lease::None);
        }
    }
}

impl<O: Os> Leases<O> {
    /// Has the process know the files that this commit has changed in place, as its steps have left them.
    pub(super) fn remember_patched(&self, domain: &Domain<O>, open: &OpenFiles<O>, body: &Body) {
        if !domain.info.file_stamps || !domain.remembered.takes_names() {
            return;
        }
        for Step { at, act, .. } in &body.steps {
            let Act::Patch(patch) = act else { continue };
            let Some(fd) =
                open.get(&patch.file).filter(|fd| self.held.iter().any(|held| Arc::ptr_eq(held, fd)))
            else {
                continue;
            };
            // The stamp before the question: a later one is none of its.
            let Ok(stat) = self.os.stat(fd) else { continue };
            domain.remembered.set_name(&at.dir, &Name::from(&at.name[..]), (patch.file, stat));
            if self.os.getxattr(fd, CAPABILITY) == Err(Errno::NODATA) {
                domain.remembered.set_incapable(&patch.file, stat.ctime);
            }
        }
    }
}

impl<O: Os> Commit<'_, O> {
    /// Takes leases, then compares every fact and every *before* with the present: an outsider's change until
    /// now aborts us, one from now on is ordered after us.
    pub(super) fn final_look(&mut self) -> Result<Leases<O>, CommitError> {
        let os = self.parts[0].domain.os.clone();
        let mut leases = Leases { os, held: Vec::new() };
        // Leases are taken before the comparison: a store between the two would otherwise go unseen.
        for change in self.parts.iter_mut().filter_map(|p| p.change.as_mut()) {
            for (file, target) in &change.patch_targets {
                if leases.os.lease(target, Lease::Write).is_ok() {
                    leases.held.push(target.clone());
                    change.shared.remove(file);
                } else if let Ok(stat) = leases.os.stat(target) {
                    change.shared.insert(*file, stat.mtime);
                }
            }
        }
        for part in &mut self.parts {
            lease_rewritten(part, &mut leases)?;
            may_get_power(part)?;
        }
        let mut staged = 0;
        // A single object appears by one call, at one instant for all processes.
        let steps: usize =
            self.parts.iter().filter_map(|p| p.change.as_ref()).map(|c| c.body.steps.len()).sum();
        for part in self.parts.iter().filter(|_| steps > 1) {
            let Some(change) = &part.change else { continue };
            let os = &part.domain.os;
            for step in &change.body.steps {
                if staged >= STAGED_LEASES_MAX {
                    break;
                }
                if !matches!(step.act, Act::Place { .. } | Act::Replace { .. }) {
                    continue;
                }
                let found = os.stat_at(&change.slots, &slot_name(step.slot));
                if !found.is_ok_and(|s| s.kind() == systx_os::FileType::File) {
                    continue;
                }
                let Ok(fd) = os.open(&change.slots, &slot_name(step.slot), Open::Read) else { continue };
                if os.lease(&fd, Lease::Write).is_ok() {
                    staged += 1;
                    leases.held.push(Arc::new(fd));
                }
            }
        }
        let targets = self.parts.iter().filter_map(|p| p.change.as_ref()).flat_map(|c| &c.patch_targets);
        let open = targets.map(|(handle, fd)| (*handle, fd.clone())).collect();
        if !mutant::on(Mutant::NoFinalLook) {
            let mut compared = self.compare_all(Look::Final, &open);
            // Looking needs descriptors; those leases, and what is held for who can't open by handle, are
            // only of use where there are enough.
            if matches!(compared, Err(CommitError::Failed { error: Errno::MFILE | Errno::NFILE, .. })) {
                leases.held.truncate(leases.held.len() - staged);
                self.parts.iter_mut().filter_map(|p| p.change.as_mut()).for_each(|c| c.held.clear());
                compared = self.compare_all(Look::Final, &open);
            }
            compared?;
        }
        Ok(leases)
    }

    /// Compares with the present what was read, and as far as the look asks for it, what steps expect and
    /// whether each is possible. Files that are `open` are not opened again.
    pub(super) fn compare_all(&mut self, look: Look, open: &OpenFiles<O>) -> Result<(), CommitError> {
        let fixed = self.facts.check_all(open).map_err(super::aborted)?;
        if look.asks(Subject::Before, Shown::Not) == Ask::Nothing {
            return self.compare_ends();
        }
        let of = |part: &Part<O>| Compared {
            objects: part.objects.read.iter().copied().collect(),
            fixed: fixed.clone(),
        };
        let compared: Vec<_> = self.parts.iter().map(of).collect();
        self.check_befores(&compared)?;
        self.still_possible(&compared)?;
        // Last, as no redo can tell where an outsider has appended between this and the step.
        self.compare_ends()
    }

    /// To abort rather than to displace. Names that are facts have been compared.
    fn check_befores(&mut self, compared: &[Compared]) -> Result<(), CommitError> {
        for (part, compared) in self.parts.iter_mut().zip(compared) {
            let (Some(change), domain) = (&mut part.change, &part.domain) else { continue };
            let os = &domain.os;
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
                let at = &step.at;
                let is_fact = compared.objects.contains(&ObjectId::entry(&at.dir, &at.name));
                let shown = if is_fact { Shown::ByFacts } else { Shown::Not };
                if change.plan.made.contains(&at.dir)
                    || Look::Final.asks(Subject::Before, shown) == Ask::Nothing
                {
                    continue;
                }
                // Steps name the path at their turn; nothing has moved yet.
                let path = change.plan.places.get(&at.dir).map_or(&at.path, |at| &at.path);
                let dir = change.directories.find(os, &domain.area.root, &at.dir, path);
                let found = match dir.map_err(|error| failed(domain, step, error))? {
                    Some(dir) => identify(os, &dir, &at.name).map_err(|error| failed(domain, step, error))?,
                    None => return Err(changed(domain, step, ConflictKind::DirectoryRemoved)),
                };
                if found != expected {
                    return Err(changed(domain, step, ConflictKind::NameChanged));
                }
            }
        }
        Ok(())
    }
}

/// Makes sure that no other process has a file open, nor another name for it, that was written anew and is
/// about to be replaced.
///
/// Unlike the other leases it is required: without it, an outsider's writes to the old file would go with it.
fn lease_rewritten<O: Os>(part: &mut Part<O>, leases: &mut Leases<O>) -> Result<(), CommitError> {
    let Some(change) = &mut part.change else { return Ok(()) };
    let (domain, plan) = (&part.domain, &change.plan);
    let (os, root) = (&domain.os, &domain.area.root);
    for step in &change.body.steps {
        let Act::Replace { before, rewrites: Some(_), .. } = &step.act else { continue };
        let at = plan.places.get(before).unwrap_or(&step.at);
        let open = || open_object(os, root, before, &at.path, &at.name, Open::Read);
        let fd = match leased(os, Lease::Write, open).map_err(|error| failed(domain, step, error))? {
            Held::Leased(fd) => Arc::new(fd),
            Held::Gone => return Err(changed(domain, step, ConflictKind::Removed)),
            Held::Open => return Err(changed(domain, step, ConflictKind::Opened)),
        };
        leases.held.push(fd.clone());
        if os.stat(&fd).map_err(|error| failed(domain, step, error))?.nlink != 1 {
            return Err(changed(domain, step, ConflictKind::NameAdded));
        }
        // The comparison of its facts must not open it once more: that would break the lease.
        change.patch_targets.insert(*before, fd);
    }
    Ok(())
}

/// Makes sure that no process may be writing to a file that gets set-id bits, capabilities or root's
/// ownership. Its bytes are compared with the other facts, and once more when it gets them.
fn may_get_power<O: Os>(part: &Part<O>) -> Result<(), CommitError> {
    let Some(change) = &part.change else { return Ok(()) };
    let (domain, plan) = (&part.domain, &change.plan);
    let (os, root) = (&domain.os, &domain.area.root);
    // In a view of an outer transaction there are no leases: its own commit has them, and compares what was
    // read here by hash.
    if !domain.area.info.leases {
        return Ok(());
    }
    for step in &change.body.steps {
        let Act::Attr { object, power_over: Some(_), .. } = &step.act else { continue };
        let held = match change.patch_targets.get(object) {
            // Asked for above.
            Some(fd) if os.lease_held(fd) == Ok(Lease::Write) => continue,
            Some(_) => Held::Open,
            None => {
                let at = plan.places.get(object).unwrap_or(&step.at);
                let open = || open_object(os, root, object, &at.path, &at.name, Open::Read);
                leased(os, Lease::Read, open).map_err(|error| failed(domain, step, error))?
            }
        };
        match held {
            Held::Leased(fd) => drop(os.lease(&fd, Lease::None)),
            Held::Gone => return Err(changed(domain, step, ConflictKind::Removed)),
            Held::Open => return Err(changed(domain, step, ConflictKind::OpenForWriting)),
        }
    }
    Ok(())
}

/// The result of asking for a lease.
enum Held<Fd> {
    Leased(Fd),
    Open,
    Gone,
}

/// Opens a file and takes a lease on it.
fn leased<O: Os>(
    os: &O,
    kind: Lease,
    open: impl Fn() -> systx_os::Result<Option<O::Fd>>,
) -> systx_os::Result<Held<O::Fd>> {
    let attempt = || {
        let Some(fd) = open()? else { return Ok(Held::Gone) };
        match os.lease(&fd, kind) {
            Ok(()) => Ok(Held::Leased(fd)),
            // Not for us, or not here: then only the bytes decide.
            Err(error) if kind == Lease::Read && error != Errno::AGAIN => Ok(Held::Leased(fd)),
            Err(_) => Err(Errno::AGAIN),
        }
    };
    match past_leases(os, || Ok(()), attempt) {
        Err(Errno::AGAIN) => Ok(Held::Open),
        held => held,
    }
}

/// Returns what a step expects at its name before any step was taken; `None` when another step of ours
/// changes that first.
fn expected(step: &Step, taken: &HashSet<(&Handle, &[u8])>) -> Option<Option<Handle>> {
    match &step.act {
        Act::Place { .. } | Act::Link { .. } => {
            let vacated = taken.contains(&(&step.at.dir, step.at.name.as_slice()));
            (!vacated).then_some(None)
        }
        Act::Replace { before, .. } | Act::Remove { before, .. } | Act::Take { before, .. } => {
            Some(Some(*before))
        }
        Act::Patch(_) | Act::Attr { .. } => None,
    }
}

fn changed<O: Os>(domain: &Domain<O>, step: &Step, what: ConflictKind) -> CommitError {
    let path = domain.shown(&crate::paths::join(&step.at.path, &step.at.name));
    CommitError::Conflict(Box::new(Conflict { path, what, with: Party::Outsider }))
}

fn failed<O: Os>(domain: &Domain<O>, step: &Step, error: Errno) -> CommitError {
    CommitError::Failed {
        doing: "looking at",
        path: domain.shown(&crate::paths::join(&step.at.path, &step.at.name)),
        error,
    }
}
