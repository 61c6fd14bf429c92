//! Exact write sets of active transactions, decoded from their log records. The active entry has only a Bloom
//! filter, which has false positives.
//!
//! Owns: the way from the steps of a record to objects, and the decoded records of active transactions.
//! Guarantees: every object that a transaction announces as changed is among the objects of its record, but
//! for the names inside of a tree that goes as a whole: the record doesn't have them, and is never used to
//! say that something is not changed. A decoded record counts for that record alone: for another use of the
//! entry it says nothing. Does not: wait, or know what was read.

use super::slots::{InFlight, Place, SlotIx, Slots};
use crate::id::{Lsn, ObjectId, Objects, TxId};
use crate::mutant::{self, Mutant};
use crate::record::{Act, Body, Change, Gone, Step};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use systx_os::{Handle, Words};

/// Returns the objects that the steps of a record change: W and C, perhaps a little more than was announced.
pub(crate) fn changed_by(steps: &[Step]) -> Objects {
    let mut changed = Objects::default();
    for Step { at, act, .. } in steps {
        let written = &mut changed.written;
        if !matches!(act, Act::Patch(_) | Act::Attr { .. }) {
            written.push(ObjectId::entry(&at.dir, &at.name));
        }
        match act {
            Act::Place { .. } => {}
            Act::Link { object, .. } => written.push(ObjectId::attr(object)),
            Act::Take { before, .. } => written.push(ObjectId::listing(before)),
            Act::Remove { before, tree, .. } => goes(written, before, tree),
            Act::Replace { before, tree, rewrites, .. } => {
                goes(written, before, tree);
                if rewrites.is_some() {
                    written.extend(ObjectId::whole(before));
                }
            }
            Act::Patch(patch) => {
                let (pages, commuting) = patch.objects();
                written.extend(pages);
                changed.commuting.extend(commuting);
            }
            Act::Attr { object, changes, .. } => written.extend(changes.iter().flat_map(|c| match c {
                Change::Times { mtime: Some(_), .. } => ObjectId::whole(object).to_vec(),
                Change::Times { mtime: None, .. } => Vec::new(),
                Change::Mode { .. } | Change::Owner { .. } | Change::Xattr { .. } => {
                    vec![ObjectId::attr(object)]
                }
            })),
        }
        // A REPLACE changes a listing if it changes the type, which its step does not show.
        if !matches!(act, Act::Patch(_) | Act::Attr { .. }) {
            changed.commuting.push(ObjectId::listing(&at.dir));
        }
    }
    changed
}

/// The objects that go, and the link counts of objects with other names.
fn goes(written: &mut Vec<ObjectId>, before: &Handle, tree: &[Gone]) {
    let all = || [before].into_iter().chain(Gone::handles(tree));
    written.extend(all().map(ObjectId::attr));
    written.extend(all().map(ObjectId::listing));
}

/// True if a record has every name that goes.
fn names_all(body: &Body) -> bool {
    !body.steps.iter().any(|step| match &step.act {
        Act::Remove { tree, .. } | Act::Replace { tree, .. } => !tree.is_empty(),
        _ => false,
    })
}

/// The decoded record of an active entry.
struct Known {
    /// The record: it has this place, with a checksum of its own.
    of: (Lsn, TxId, Place),
    /// W and C; `None`: unknown.
    changed: Option<[HashSet<ObjectId>; 2]>,
}

fn use_of(slot: &InFlight) -> (Lsn, TxId, Place) {
    (slot.info.lsn, slot.info.tx, slot.info.body)
}

/// Returns what is known of the record that an entry names, not of one that it named before.
fn known_of<'k>(all: &'k HashMap<SlotIx, Known>, slot: &InFlight) -> Option<&'k Known> {
    all.get(&slot.ix).filter(|known| known.of == use_of(slot) || mutant::on(Mutant::RecordOfAnother))
}

/// Decoded records of active entries that a transaction has waited for.
#[derive(Default)]
pub(super) struct KnownRecords(Mutex<HashMap<SlotIx, Known>>);

impl KnownRecords {
    /// Reads the record of a slot, once. It stands in the log before the slot is filled.
    pub fn get_to_know<M: Words>(
        &self,
        slots: &Slots<'_, M>,
        slot: &InFlight,
        body: impl Fn() -> Option<Body>,
    ) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known_of(&all, slot).is_some() {
            return;
        }
        drop(all);
        // Any doubt is a reason to wait: a record that can't be read, or is another one's; one of several file systems.
        let body = if slot.info.multi_domain { None } else { body() };
        let body = body.filter(|body| body.id == slot.info.tx && names_all(body));
        let changed = body.map(|body| {
            let Objects { written, commuting, .. } = changed_by(&body.steps);
            [written, commuting].map(|ids| ids.into_iter().collect())
        });
        let in_flight = |ix: SlotIx, known: &Known| {
            slots.read(ix).is_ok_and(|now| now.is_some_and(|now| known.of == use_of(&now)))
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|ix, known| in_flight(*ix, known));
        all.insert(slot.ix, Known { of: use_of(slot), changed });
    }

    /// Returns true if an entry is known not to be in the way of `ours`, whatever its filters say: its record
    /// changes nothing of them, and it has read nothing of what we change. Memory only: it may be asked under
    /// the commit lock.
    pub fn is_apart(&self, slot: &InFlight, ours: &Objects) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some([written, commuting]) = known_of(&all, slot).and_then(|known| known.changed.as_ref()) else {
            return false;
        };
        if mutant::on(Mutant::RealHitPassed) {
            return true;
        }
        let writes = |o: &ObjectId| written.contains(o);
        let lists = |o: &ObjectId| commuting.contains(o);
        // Its read set is in no record.
        let reads = |o: &ObjectId| slot.info.footprint.read.may_contain(*o);
        !ours.read.iter().any(|o| writes(o) || lists(o))
            && !ours.written.iter().any(|o| writes(o) || lists(o) || reads(o))
            && !ours.commuting.iter().any(|o| writes(o) || reads(o))
    }
}
