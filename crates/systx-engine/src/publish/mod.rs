//! Publication: takes the steps of one record, conditionally and idempotently (docs/protocol.md §3, U).
//!
//! Owns: one function a step kind, which looks, acts, and looks at the result. The same code publishes for
//! the owner, finishes for a dead one and redoes after a power loss: a step's staging entry shows whether it
//! was taken, so that a publication may be cut anywhere and continued by any process. Guarantees: everything
//! that an outsider left behind is in the tree or in `aside/` and reported. Does not: decide whether a record
//! may be published (commit, recovery), nor free the entry's leftovers ([`reclaim`]).

mod attr;
mod decide;
mod hidden;
pub(crate) mod link;
pub(crate) mod mark;
mod moved;
pub(crate) mod patch;
mod pieces;
pub(crate) mod place;
pub(crate) mod power;
pub(crate) mod reclaim;
mod refused;
mod remove;
mod replace;
pub(crate) mod site;
mod sure;
mod taken;
pub(crate) mod targets;
pub(crate) mod times;
pub(crate) mod tokens;
pub(crate) mod ways;
mod words;
pub(crate) mod written;

use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use crate::outcome::ConflictCopy;
use crate::record::{Act, Body, Step};
use crate::shown::Shown;
use site::Site;
use systx_os::{Errno, Os};
use tracing::trace;

/// Steps that could not be taken now, for a reason that may pass (disk full, descriptors exhausted, …). The
/// record stays valid; publishing again goes on where it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Path of the step.
    pub path: Vec<u8>,
    /// The kernel's answer.
    pub error: Errno,
}

/// Takes every step of `body` in order and returns what outsiders displaced.
///
/// # Errors
/// [`Pending`] at the first step that fails for a reason that may pass.
pub(crate) fn publish<O: Os>(site: &mut Site<'_, O>, body: &Body) -> Result<Vec<ConflictCopy>, Pending> {
    invariant!("I6", site.conflict_copies.is_empty(), "a report is about this publication alone");
    invariant!("I5", site.id == body.id, "a step acts on the entries of its own transaction");
    // Noted before a step moves them: a time is set only over the one before the record, or ours.
    if site.pass == site::Pass::Redo {
        attr::note_mtimes(site, body).map_err(|error| Pending { path: Vec::new(), error })?;
    }
    hidden::none(site, body)?;
    // Asked before the first step: with a mark each difference in an attribute is an outsider's, and stays.
    site.are_set = mark::is_there(site, body)?;
    if mutant::on(Mutant::MarkEarly) {
        mark::make(site, body);
    }
    // Before the first step, which may take away the name under which a LINK's object is found.
    link::bring(site, body)?;
    // Before the first step, too, since each one moves the time of its directory.
    let mut times = times::watch(site, body);
    for (n, step) in body.steps.iter().enumerate() {
        if site.is_own {
            site.os.steps_taken(n, body.steps.len());
        }
        // The rule of chains: an outsider came between this record and a later one (C10).
        if site.leaves.is_some_and(|leaves| leaves(&step.act)) {
            continue;
        }
        // An earlier pass has decided it: bytes that were kept in `aside/` don't go into the file as well (I5).
        let decided = |n| Ok(refused::was_set_aside(site, n, step)? || moved::is_noted(site, body, n, step)?);
        if decided(n).map_err(|error| pending(step, error))? {
            continue;
        }
        times.before(site, step);
        trace!(n, act = name(&step.act), path = %Shown(&crate::paths::join(&step.at.path, &step.at.name)), "step");
        let done = site.with_room(|site| take(site, body, n, step));
        // Also of a step that failed: a part of it may have moved the time.
        times.after(site, step);
        if let Err(error) = done {
            refused::set_aside_or_wait(site, n, step, error)?;
        }
    }
    // Before the slot is free: what others do from now on is later.
    mark::make(site, body);
    times.give(site, body);
    if body.linked && !mutant::on(Mutant::LinksLate) {
        sync_links(site, body).map_err(|error| Pending { path: Vec::new(), error })?;
        // An object that can't go now goes with the rest.
        let _ = reclaim::reclaim_links(site, body);
    }
    Ok(std::mem::take(&mut site.conflict_copies))
}

/// Syncs before the last known name of a file goes, where objects are found by names alone: the file won't be
/// found again, so its changes, by this record or one before, can't be redone.
fn sync_links<O: Os>(site: &Site<'_, O>, body: &Body) -> Result<(), Errno> {
    let removes = |step: &Step| matches!(step.act, Act::Remove { .. } | Act::Replace { .. });
    if body.steps.iter().any(removes) && site.walks() && !mutant::on(Mutant::LinksNotSynced) {
        site.os.syncfs(site.slots)?;
    }
    Ok(())
}

/// The kind of a step, as docs/protocol.md names it.
fn name(act: &Act) -> &'static str {
    match act {
        Act::Place { .. } => "PLACE",
        Act::Link { .. } => "LINK",
        Act::Replace { .. } => "REPLACE",
        Act::Remove { .. } => "REMOVE",
        Act::Take { .. } => "TAKE",
        Act::Patch(_) => "PATCH",
        Act::Attr { .. } => "ATTR",
    }
}

/// Takes one step, or what is left of it.
fn take<O: Os>(site: &mut Site<'_, O>, body: &Body, n: usize, step: &Step) -> Result<(), Errno> {
    match &step.act {
        Act::Place { small } => place::place(site, n, step, small.as_ref()),
        Act::Link { .. } => place::place(site, n, step, None),
        Act::Replace { ours, before, read, .. } => {
            replace::replace(site, step, ours, before, taken::of_step(read))
        }
        Act::Remove { before, read, .. } => {
            remove::take_out(site, step, before, remove::Why::Remove(taken::of_step(read)))
        }
        Act::Take { before, .. } => remove::take_out(site, step, before, remove::Why::Move(body)),
        Act::Patch(patch) => patch::patch(site, n, step, patch),
        Act::Attr { object, changes, power_over } => {
            attr::change(site, step, object, changes, power_over.as_ref())
        }
    }
}

fn pending(step: &Step, error: Errno) -> Pending {
    Pending { path: crate::paths::join(&step.at.path, &step.at.name), error }
}
