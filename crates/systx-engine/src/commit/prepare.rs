//! P: everything that can fail is done while nothing is held (docs/protocol.md §3, P1–P4).

use super::acquire::Moment;
use super::base::{builds_on_unsynced, Base};
use super::{acquire, barrier, targets, Change, Part};
use crate::domain::shared_staging::{first_slot, SharedStaging};
use crate::domain::{Domain, Sealed};
use crate::facts::Facts;
use crate::id::{Lsn, ObjectId, Objects, TxId};
use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use crate::objects::{slot_name, Directories};
use crate::outcome::{CommitError, ConflictKind, Durability, Waiting};
use crate::plan::{Plan, Staged};
use crate::publish::tokens::{self, TokenHandles};
use crate::record::{Act, Body, Share, SharedSlots, Step, BODY_VERSION};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, Handle, Os};

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
    /// Set if that is the shared one.
    pub in_shared_staging: Option<InSharedStaging<O>>,
    /// The fate of what is staged where the commit fails.
    pub failing: Failing,
}

/// The fate of a transaction whose commit fails before its commit point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    Goes,
    Stays,
}

/// A transaction's entries in the shared staging directory of its process.
pub(crate) struct InSharedStaging<O: Os> {
    pub shared_staging: Arc<SharedStaging<O>>,
    /// Entries below this number are used up.
    pub end: u32,
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
        let mut footprint = objects.footprint();
        let patches = draft.plan.steps.iter().filter_map(|step| step.act.patch());
        let cut = patches.filter(|patch| patch.resizes() == Ordering::Less);
        cut.for_each(|patch| footprint.written.insert(ObjectId::cut(&patch.file)));
        let (mount, domain, age) = (draft.mount, draft.domain.clone(), draft.age);
        let change = if draft.plan.steps.is_empty() {
            None
        } else {
            Some(match stage(draft, command) {
                Ok(change) => change,
                Err(why) => {
                    // An object that vanished through another transaction is reported as its doing, not as an
                    // outsider's.
                    facts.refresh_all().map_err(super::aborted)?;
                    return Err(why);
                }
            })
        };
        parts.push(Part {
            mount,
            domain,
            change,
            age,
            objects,
            footprint,
            numbered: None,
            tries_to_cover: 0,
        });
    }
    record(facts, &mut parts, durability)?;
    debug_assert!(coordinates_once(&parts), "I8: one coordinator, which all other records name");
    Ok(parts)
}

/// P2, P3: tokens, directories, space.
fn stage<O: Os>(mut draft: Draft<O>, command: &str) -> Result<Change<O>, CommitError> {
    let patch_targets = if mutant::on(Mutant::TargetsEarly) {
        targets::open(&draft.domain, &draft.plan, &draft.plan.steps, ConflictKind::HeldNow)?.open
    } else {
        HashMap::new()
    };
    // Asked now, as after the commit point a full disk would leave the publication pending.
    acquire::space(&draft.domain, &draft.plan, &draft.plan.steps)?;
    let mut body = body_of(&mut draft, command);
    let token_of = |on: &InSharedStaging<O>| TokenHandles::of(on.shared_staging.token_handle);
    let tokens = draft.in_shared_staging.as_ref().map(token_of).unwrap_or_default();
    let Entries { slots, sealed, held } =
        if body.has_slots() { make_entries(&mut draft, &mut body)? } else { no_entries(&mut draft, &body)? };
    let ways = usize::from(sealed.is_some()) + usize::from(body.shared_slots.is_some());
    invariant!("P3", ways == usize::from(body.has_slots()), "staging entries are sealed in exactly one way");
    let Draft { id, plan, directories, .. } = draft;
    Ok(Change {
        id,
        slots,
        plan,
        body,
        body_at: None,
        patch_targets,
        shared: HashMap::new(),
        directories,
        held,
        tokens,
        ends_since: Lsn(0),
        base: Base::default(),
        sealed,
        header: None,
    })
}

/// The record of a draft, which gets its steps.
fn body_of<O: Os>(draft: &mut Draft<O>, command: &str) -> Body {
    let (domain, plan) = (&draft.domain, &mut draft.plan);
    Body {
        version: BODY_VERSION,
        id: draft.id,
        nonce: 0,
        uid: domain.os.uid(),
        table: domain.table.id(),
        coordinator: None,
        participants: Vec::new(),
        companions: Vec::new(),
        command: command.to_owned(),
        shared_slots: None,
        linked: plan.linked,
        steps: std::mem::take(&mut plan.steps),
        times: std::mem::take(&mut plan.times),
    }
}

/// The staging entries of a commit.
struct Entries<O: Os> {
    /// The directory that has them.
    slots: Arc<O::Fd>,
    /// Set if it has its final name.
    sealed: Option<Sealed<O>>,
    /// See [`Change::held`].
    held: HashMap<Handle, Arc<O::Fd>>,
}

/// Makes tokens, checks what the steps need, and seals.
fn make_entries<O: Os>(draft: &mut Draft<O>, body: &mut Body) -> Result<Entries<O>, CommitError> {
    let Draft { domain, id, plan, directories, slots, in_shared_staging, .. } = draft;
    let (os, id) = (&domain.os, *id);
    let slots = match slots.take() {
        Some(slots) => slots,
        None => Arc::new(domain.begin_staging_of(id).map_err(fail("making the staging directory"))?),
    };
    for slot in &plan.unused {
        // An object that can't go now goes with the others.
        let _ = os.unlink(&slots, &slot_name(*slot));
    }
    let token = in_shared_staging.as_ref().map(|on| &on.shared_staging.token);
    tokens::make(os, &slots, &plan.tokens, token).map_err(fail("making tokens"))?;
    let held = acquire::check(domain, plan, &body.steps, Some(&slots), directories, Moment::Prepare)?;
    if plan.staged != Staged::default() {
        all_there(os, &slots, &body.steps).map_err(fail("looking for what is staged"))?;
    }
    // Metadata survives a power loss as a prefix: where `tx/<id>`, or the seal, is found, all of its slots and
    // tokens have been.
    let sealed = match in_shared_staging {
        Some(on) => {
            body.shared_slots = Some(seal_in_shared_staging(domain, id, plan, &body.steps, on)?);
            None
        }
        None => Some(domain.seal_staging(id).map_err(fail("sealing the staging directory"))?),
    };
    Ok(Entries { slots, sealed, held })
}

/// Seals entries in the shared staging directory.
fn seal_in_shared_staging<O: Os>(
    domain: &Domain<O>,
    id: TxId,
    plan: &Plan,
    steps: &[Step],
    on: &InSharedStaging<O>,
) -> Result<SharedSlots, CommitError> {
    let os = &domain.os;
    // Unlike `tx/<id>` it does not go with the record: nothing stays there that no step empties.
    let kept: HashSet<u32> = steps.iter().map(|step| step.slot).collect();
    for slot in (first_slot(id)..on.end).filter(|slot| !kept.contains(slot) && !plan.unused.contains(slot)) {
        // An entry that can't go now costs space only: no record names it.
        let _ = os.unlink(&on.shared_staging.dir, &slot_name(slot));
    }
    // A person may have deleted it by hand, with its contents.
    let same = domain.shared_staging().filter(|now| Arc::ptr_eq(now, &on.shared_staging)).ok_or(Errno::NOENT);
    let seal = same
        .and_then(|shared_staging| shared_staging.seal(os))
        .map_err(fail("sealing the staged objects"))?;
    Ok(SharedSlots { owner: domain.me().0, seal })
}

/// The record carries everything: what was staged to get there is not needed any more.
fn no_entries<O: Os>(draft: &mut Draft<O>, body: &Body) -> Result<Entries<O>, CommitError> {
    let Draft { domain, id, plan, directories, slots, failing, .. } = draft;
    if slots.is_some() && *failing == Failing::Goes {
        domain.discard_staging(*id);
        domain.clear_shared_staging(*id);
    }
    let held = acquire::check(domain, plan, &body.steps, None, directories, Moment::Prepare)?;
    Ok(Entries { slots: domain.no_slots(), sealed: None, held })
}

fn fail(doing: &'static str) -> impl Fn(Errno) -> CommitError {
    move |error| CommitError::Failed { doing, path: Vec::new(), error }
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
    if needed.all(|step| there.contains(&slot_name(step.slot)[..])) {
        Ok(())
    } else {
        Err(Errno::NOENT)
    }
}

/// P4: cheap failure first, then the stage barrier, then the bodies.
fn record<O: Os>(
    facts: &mut Facts<O>,
    parts: &mut [Part<O>],
    durability: Durability,
) -> Result<(), CommitError> {
    // A transaction that has lost by now ends here, before it has cost others a flush of the disk.
    facts.refresh_all().map_err(super::aborted)?;
    // A disk that is rolled back gives numbers again; only the nonce tells the records of two transactions apart (C11).
    // Without durability nothing outlives this boot.
    let named = parts.first().filter(|_| durability == Durability::Durable);
    if let Some(nonce) = named.map(|part| part.domain.os.random()) {
        parts.iter_mut().filter_map(|p| p.change.as_mut()).for_each(|change| change.body.nonce = nonce);
    }
    // Before any body is written: a participant that names no coordinator would decide for itself.
    if parts.iter().filter(|part| part.change.is_some()).count() > 1 {
        name_each_other(parts);
    }
    parts.iter_mut().try_for_each(|part| record_part(part, durability, facts.waiting))
}

/// P4 of one part, with all that a record of its own needs: again where the end of a file has moved.
pub(super) fn record_part<O: Os>(
    part: &mut Part<O>,
    durability: Durability,
    waiting: Waiting,
) -> Result<(), CommitError> {
    // Before the look at the base, which covers then what the end was found behind.
    part.look_at_ends(waiting)?;
    let domain = part.domain.clone();
    let unsynced = durability == Durability::Durable && builds_on_unsynced(part);
    if let Some(change) = &mut part.change {
        if durability == Durability::Durable {
            // Looked at before the flush, which then covers what was seen; V6 or F find later changes (C10).
            let mut base = Base::look(&domain, change).map_err(fail("looking at what is changed"))?;
            let doing = "writing out what is staged and changed";
            if unsynced && base.is_unsynced() {
                // V4 would ask for it anyway.
                domain.sync_unsynced().map_err(fail(doing))?;
                base.synced(&domain);
            }
            barrier::stage_barrier(&domain, change, &mut base).map_err(fail(doing))?;
            change.base = base;
        }
    }
    if part.is_moving(durability) {
        let noted = part.change.as_ref().map(|change| domain.begin_moving(&change.slots, &change.body));
        noted.transpose().map_err(fail("noting what is moved"))?;
    }
    // Behind the barrier: the record must not survive a power loss without the objects that it names.
    let written = part.change.as_mut().map(|change| change.write_body(&domain)).transpose();
    written.inspect_err(|_| part.end_moving(durability)).map(drop)
}

/// Returns true if every record but the coordinator's names the coordinator, and that one none.
fn coordinates_once<O: Os>(parts: &[Part<O>]) -> bool {
    let coordinator = super::coordinator_of(parts);
    let names = |(n, part): (usize, &Part<O>)| {
        part.change.as_ref().is_none_or(|change| (n != coordinator) == change.body.coordinator.is_some())
    };
    parts.iter().enumerate().all(names)
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
