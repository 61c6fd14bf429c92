//! P: everything that can fail is done while nothing is held (docs/protocol.md §3, P1–P4).

use super::base::Base;
use super::validate::builds_on_unsynced;
use super::{acquire, barrier, header, Change, Part};
use crate::domain::shelf::{first_slot, Shelf};
use crate::domain::Domain;
use crate::facts::Facts;
use crate::id::{ObjectId, Objects, TxId};
use crate::objects::{open_object, slot_name, Directories};
use crate::outcome::{CommitError, Conflict, ConflictKind, Durability, Party};
use crate::plan::{Plan, Staged};
use crate::publish::tokens::{self, TokenHandles};
use crate::record::{Act, Body, Share, Shelved, Step, BODY_VERSION};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os};

/// Files changed in place that stay open, and so under a lease, from Prepare to their step; more are opened
/// again by then.
const TARGETS_OPEN_MAX: usize = 1024;

/// One domain's share of a transaction as the working set left it.
pub(crate) struct Draft<O: Os> {
    pub mount: usize,
    pub domain: Arc<Domain<O>>,
    /// Number of the transaction in this domain.
    pub id: TxId,
    /// Number of its first try.
    pub age: TxId,
    pub plan: Plan,
    /// Directories that its steps name, as far as they are open.
    pub directories: Directories<O>,
    /// Staging directory, if the transaction staged anything.
    pub slots: Option<Arc<O::Fd>>,
    /// Set if that is the shelf: slots below this number are used up.
    pub shelved: Option<(Arc<Shelf<O>>, u32)>,
    /// Where the commit fails, what is staged stays.
    pub stays: bool,
}

/// Makes tokens, acquires what publication needs, writes bodies behind the stage barrier.
pub(super) fn prepare<O: Os>(
    facts: &mut Facts<O>,
    drafts: Vec<Draft<O>>,
    durability: Durability,
    command: &str,
) -> Result<Vec<Part<O>>, CommitError> {
    let mut parts: Vec<Part<O>> = Vec::new();
    let several = drafts.iter().filter(|d| !d.plan.steps.is_empty()).count() > 1;
    if several && durability == Durability::None {
        return Err(CommitError::Refused(
            "durability `none` is for changes on one file system only: leave it out, or name one with --only"
                .into(),
        ));
    }
    for mut draft in drafts {
        let read: Vec<_> = facts.read_set(draft.mount).collect();
        let objects = Objects {
            read,
            written: std::mem::take(&mut draft.plan.written),
            commuting: std::mem::take(&mut draft.plan.commuting),
        };
        if draft.plan.steps.is_empty() && objects.read.is_empty() {
            continue;
        }
        let footprint = objects.footprint();
        let (mount, domain, age) = (draft.mount, draft.domain.clone(), draft.age);
        let change = match draft.plan.steps.is_empty() {
            true => None,
            false => Some(match stage(draft, command) {
                Ok(change) => change,
                Err(why) => {
                    // An object that vanished through another transaction is reported as its doing, not as an
                    // outsider's.
                    facts.refresh_all().map_err(super::aborted)?;
                    return Err(why);
                }
            }),
        };
        parts.push(Part { mount, domain, change, age, objects, footprint, numbered: None });
    }
    record(facts, &mut parts, durability, several)?;
    Ok(parts)
}

/// P2, P3: tokens, targets, directories, space.
fn stage<O: Os>(draft: Draft<O>, command: &str) -> Result<Change<O>, CommitError> {
    let Draft { domain, mut plan, mut directories, slots, id, shelved, stays, .. } = draft;
    let os = &domain.os;
    let fail = |doing| move |error| CommitError::Failed { doing, path: Vec::new(), error };
    let patch_targets = open_targets(&domain, &plan)?;
    acquire::space(&domain, &plan.steps)?;
    let mut body = Body {
        version: BODY_VERSION,
        id,
        nonce: 0,
        uid: os.uid(),
        table: domain.table.id(),
        coordinator: None,
        participants: Vec::new(),
        companions: Vec::new(),
        command: command.to_owned(),
        shelved: None,
        linked: plan.linked,
        steps: std::mem::take(&mut plan.steps),
        times: std::mem::take(&mut plan.times),
    };
    let tokens = shelved.as_ref().map(|(shelf, _)| TokenHandles::of(shelf.token_handle)).unwrap_or_default();
    let (slots, sealed, held) = match body.has_slots() {
        true => {
            let slots = match slots {
                Some(slots) => slots,
                None => Arc::new(domain.begin_staging_of(id).map_err(fail("making the staging directory"))?),
            };
            for slot in &plan.unused {
                // An object that can't go now goes with the others.
                let _ = os.unlink(&slots, &slot_name(*slot));
            }
            let token = shelved.as_ref().map(|(shelf, _)| &shelf.token);
            tokens::make(os, &slots, &plan.tokens, token).map_err(fail("making tokens"))?;
            let held = acquire::check(&domain, &plan, &body.steps, Some(&slots), &mut directories, None)?;
            if plan.staged != Staged::default() {
                all_there(os, &slots, &body.steps).map_err(fail("looking for what is staged"))?;
            }
            // Metadata survives a power loss as a prefix: where `tx/<id>`, or the seal, is found, all of its
            // slots and tokens have been.
            let sealed = match shelved {
                Some((shelf, end)) => {
                    // Unlike `tx/<id>` it does not go with the record: nothing stays there that no step empties.
                    let kept: HashSet<u32> = body.steps.iter().map(|step| step.slot).collect();
                    for slot in (first_slot(id)..end)
                        .filter(|slot| !kept.contains(slot) && !plan.unused.contains(slot))
                    {
                        let _ = os.unlink(&slots, &slot_name(slot));
                    }
                    // A person may have deleted it by hand, with its contents.
                    let same = domain.shelf().filter(|now| Arc::ptr_eq(now, &shelf)).ok_or(Errno::NOENT);
                    let seal =
                        same.and_then(|shelf| shelf.seal(os)).map_err(fail("sealing the staged objects"))?;
                    body.shelved = Some(Shelved { owner: domain.me().0, seal });
                    None
                }
                None => Some(domain.seal_staging(id).map_err(fail("sealing the staging directory"))?),
            };
            (slots, sealed, held)
        }
        false => {
            // The record carries everything. What was staged to get there is not needed any more.
            if slots.is_some() && !stays {
                domain.discard_staging(id);
                domain.clear_shelf(id);
            }
            let held = acquire::check(&domain, &plan, &body.steps, None, &mut directories, None)?;
            (Arc::new(domain.no_slots().map_err(fail("opening the area"))?), None, held)
        }
    };
    Ok(Change {
        id,
        slots,
        plan,
        body,
        body_at: None,
        patch_targets,
        directories,
        held,
        tokens,
        base: Base::default(),
        sealed,
        header: None,
    })
}

/// Checks that each staging entry has what its step needs: to publication an empty one would mean that it is
/// in place already. What the record carries has been checked.
fn all_there<O: Os>(os: &O, slots: &O::Fd, steps: &[Step]) -> Result<(), Errno> {
    let there: HashSet<_> = os.read_dir(slots)?.into_iter().map(|entry| entry.name).collect();
    let mut needed = steps.iter().filter(|step| match step.act {
        Act::Place { .. } | Act::Replace { .. } | Act::Patch(_) => step.slot != Step::NO_SLOT,
        // Their slots begin as tokens, just made.
        Act::Link { .. } | Act::Remove { .. } | Act::Take { .. } | Act::Attr { .. } => false,
    });
    match needed.all(|step| there.contains(&slot_name(step.slot)[..])) {
        true => Ok(()),
        false => Err(Errno::NOENT),
    }
}

/// Opens every file that is changed in place, so that publication can't fail on it.
fn open_targets<O: Os>(domain: &Domain<O>, plan: &Plan) -> Result<HashMap<Handle, Arc<O::Fd>>, CommitError> {
    let os = &domain.os;
    let mut targets = HashMap::new();
    let mut open_max = TARGETS_OPEN_MAX;
    for step in &plan.steps {
        let Act::Patch(patch) = &step.act else { continue };
        // Steps name the path at their turn; nothing has moved yet.
        let at = plan.places.get(&patch.file).unwrap_or(&step.at);
        let path = || domain.shown(&crate::paths::join(&at.path, &at.name));
        let open = || {
            domain.open_past_leases(ObjectId::data(&patch.file), || {
                open_object(os, &domain.area.root, &patch.file, &at.path, &at.name, Open::ReadWrite)
            })
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
            Ok(None) => return Err(vanished(path(), ConflictKind::Removed)),
            Err(error) => {
                return Err(CommitError::Failed { doing: "opening for writing", path: path(), error })
            }
        };
        // It can be opened: beyond the bound that has to do until its step.
        if targets.len() < open_max {
            targets.insert(patch.file, Arc::new(fd));
        }
    }
    Ok(targets)
}

fn vanished(path: Vec<u8>, what: ConflictKind) -> CommitError {
    CommitError::Conflict(Box::new(Conflict { path, what, with: Party::Outsider }))
}

/// P4: cheap failure first, then the stage barrier, then the bodies.
fn record<O: Os>(
    facts: &mut Facts<O>,
    parts: &mut [Part<O>],
    durability: Durability,
    several: bool,
) -> Result<(), CommitError> {
    facts.refresh_all().map_err(super::aborted)?;
    if let Some(nonce) = parts.first().map(|part| part.domain.os.random()) {
        parts.iter_mut().filter_map(|p| p.change.as_mut()).for_each(|change| change.body.nonce = nonce);
    }
    if several {
        name_each_other(parts);
    }
    for part in parts.iter_mut() {
        let domain = part.domain.clone();
        let unsynced = durability == Durability::Durable && builds_on_unsynced(part);
        let Some(change) = &mut part.change else { continue };
        if durability == Durability::Durable {
            let failed = |doing| move |error| CommitError::Failed { doing, path: Vec::new(), error };
            let mut base = Base::look(&domain, change).map_err(failed("looking at what is changed"))?;
            let doing = "writing out what is staged and changed";
            if unsynced && base.is_unsynced() {
                // V4 would ask for it anyway.
                domain.sync_unsynced().map_err(failed(doing))?;
                base.synced(&domain);
            }
            barrier::stage_barrier(&domain, change, &mut base).map_err(failed(doing))?;
            change.base = base;
        }
        change.body_at = Some(domain.append_body(&change.body).map_err(header::log_failed)?);
    }
    Ok(())
}

/// Several file systems: one coordinates, and each record names the other side.
fn name_each_other<O: Os>(parts: &mut [Part<O>]) {
    let coordinator = super::coordinator_of(parts);
    let party = |p: &Part<O>| p.change.as_ref().map(|c| Share { area: p.domain.key, id: c.id });
    let named = parts.iter().enumerate().filter(|(n, _)| *n != coordinator);
    let named: Vec<_> = named.filter_map(|(_, p)| Some((party(p)?, p.promises()))).collect();
    let decides = party(&parts[coordinator]);
    for (n, part) in parts.iter_mut().enumerate() {
        let Some(change) = &mut part.change else { continue };
        if n == coordinator {
            let those = |promises| named.iter().filter(move |(_, p)| *p == promises).map(|(party, _)| *party);
            (change.body.participants, change.body.companions) =
                (those(true).collect(), those(false).collect());
        } else {
            change.body.coordinator = decides;
        }
    }
}
