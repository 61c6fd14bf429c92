//! V: validation and numbering under the commit lock (docs/protocol.md §3, V1–V5).

use super::base::builds_on_unsynced;
use super::prepare::record_part;
use super::{Change, Commit, Number, Numbered, Part};
use crate::domain::priority::PRIORITY_NS;
use crate::domain::{take_priority, Contender, Domain, Held, Place, SlotInfo, SlotIx, SlotState};
use crate::domain::{Until, Who};
use crate::id::{Footprint, ObjectId, Signature};
use crate::invariant::invariant;
use crate::mutant::{self, Mutant};
use crate::outcome::{CommitError, Conflict, ConflictKind, Durability, Party, Waiting};
use crate::record::{Act, Gone, Patch, Step};
use std::cmp::Ordering;
use std::sync::Arc;
use systx_os::{Errno, Handle, Os};
use tracing::debug_span;

/// After so many lost rounds a transaction asks for priority, and again after as many.
const ROUNDS_BEFORE_PRIORITY: u32 = 3;

/// How often a checkpoint is tried that covers what is in the way, as another commit in flight may keep it from that.
const COVER_TRIES: u32 = 8;

/// If a part meets an uncovered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    None,
    One,
    /// There were so many commits since that it is not known.
    Perhaps,
}

/// The obstacle to a number.
#[derive(Debug)]
enum Obstacle {
    /// A holder of priority that overlaps ours, until it is numbered or its time is up.
    Holder { part: usize },
    /// An in-flight transaction that overlaps ours.
    InFlight { part: usize, slot: SlotIx },
    /// No free slot.
    Full { part: usize },
    /// Commits since our snapshot may have changed what we read.
    Stale,
    /// Commits since the look at the end of a file may have moved it.
    Moved { part: usize },
    /// We build on a result that is not durable yet.
    Unsynced { part: usize },
    /// A record that no checkpoint covers could not be redone any more once ours is public.
    Uncovered { part: usize },
    /// The log went on to another segment since our record was written: a checkpoint may drop it where no
    /// slot names it yet.
    Left { part: usize },
}

impl<O: Os> Commit<'_, O> {
    /// Validates and takes a number in every domain, at one instant.
    pub(super) fn validate(&mut self) -> Result<Numbered, CommitError> {
        let mut round = 0;
        loop {
            let domains: Vec<Arc<Domain<O>>> = self.parts.iter().map(|p| p.domain.clone()).collect();
            // In the order of keys, everybody: no cycle of waiters. Mounts that share an area share its lock.
            let mut held: Vec<Held<'_, O>> = Vec::with_capacity(domains.len());
            let mut lock_of = Vec::with_capacity(domains.len());
            for (n, domain) in domains.iter().enumerate() {
                if n == 0 || domains[n - 1].key != domain.key {
                    held.push(domain.lock().map_err(|error| failed("taking the commit lock", error))?);
                }
                lock_of.push(held.len() - 1);
            }
            let held_by: Vec<&Held<'_, O>> = lock_of.into_iter().map(|n| &held[n]).collect();
            // All locks are held by now, so the number is taken at one instant in all domains, and nothing comes
            // between the look for obstacles and it.
            let obstacle = match self.obstacle(&held_by)? {
                None => return self.number(&held_by).map(|()| Numbered(())),
                Some(obstacle) => obstacle,
            };
            // No process waits while holding the lock.
            drop(held);
            self.overcome(obstacle)?;
            round += 1;
            // Short commits could otherwise make a long one refresh for ever (V3).
            if round % ROUNDS_BEFORE_PRIORITY == 0 {
                self.take_priority().map_err(|error| failed("taking priority", error))?;
            }
        }
    }

    /// Asks wherever more than the root of a mount was touched.
    fn take_priority(&self) -> systx_os::Result<()> {
        let used: Vec<_> =
            self.parts.iter().filter(|part| part.change.is_some() || part.objects.read.len() > 1).collect();
        let mut asking = Vec::with_capacity(used.len());
        for together in used.chunk_by(|a, b| a.domain.key == b.domain.key) {
            let mut footprint = Footprint::EMPTY;
            together.iter().for_each(|part| footprint.merge(&part.footprint));
            asking.push(Contender { domain: &*together[0].domain, age: together[0].age, footprint });
        }
        take_priority(&asking, Until::Once(PRIORITY_NS)).map(drop)
    }

    /// V1–V4, under the locks.
    fn obstacle(&self, held: &[&Held<'_, O>]) -> Result<Option<Obstacle>, CommitError> {
        let broken = |error| failed("reading the domain table", error);
        for (n, (part, held)) in self.parts.iter().zip(held).enumerate() {
            let domain = &part.domain;
            // V1: the holder has lost often enough; one more commit that overlaps it could make it lose again.
            if let Some(holder) = domain.holder_other_than(held, part.age).map_err(broken)? {
                if part.objects.may_overlap(&holder) {
                    return Ok(Some(Obstacle::Holder { part: n }));
                }
            }
            // V2: its steps are still to come, so only waiting puts them before ours (I2).
            for slot in domain.table.slots().in_flight() {
                let slot = domain.checked(slot).map_err(broken)?;
                let overlaps =
                    part.objects.may_overlap(&slot.info.footprint) && !domain.is_apart(&slot, &part.objects);
                if overlaps && !mutant::on(Mutant::NoV2) {
                    return Ok(Some(Obstacle::InFlight { part: n, slot: slot.ix }));
                }
            }
            // Looked for before V5: a full domain would stop that after others have given their numbers.
            if domain.checked(domain.table.slots().find_free(held.proof())).map_err(broken)?.is_none() {
                return Ok(Some(Obstacle::Full { part: n }));
            }
            if self.stale(part) && !mutant::on(Mutant::NoV3) {
                return Ok(Some(Obstacle::Stale));
            }
            if part.ends_may_have_moved() && !mutant::on(Mutant::EndsFoundOnce) {
                return Ok(Some(Obstacle::Moved { part: n }));
            }
            // V4: a power loss would take back what ours was computed from, and keep ours (I12).
            let unsynced = self.durability == Durability::Durable && builds_on_unsynced(part);
            if unsynced && !mutant::on(Mutant::NoV4) {
                return Ok(Some(Obstacle::Unsynced { part: n }));
            }
            match self.meets_a_record(n) {
                Meets::One | Meets::Perhaps if part.tries_to_cover < self.cover_tries(n) => {
                    return Ok(Some(Obstacle::Uncovered { part: n }));
                }
                // Public beside that record it could be lost: it is tried again when the log is free.
                Meets::One if self.is_recorded(n) => return Err(held_now(domain.shown(b""))),
                Meets::One | Meets::Perhaps | Meets::None => {}
            }
            let body_at = part.change.as_ref().and_then(|change| change.body_at);
            let left = body_at.is_some_and(|at| at.segment < domain.log.end().segment);
            if left && !mutant::on(Mutant::BodyLeft) {
                return Ok(Some(Obstacle::Left { part: n }));
            }
        }
        Ok(None)
    }

    /// If the redo of an uncovered record would meet what a part does, and could not tell.
    fn meets_a_record(&self, n: usize) -> Meets {
        let Part { domain, change, .. } = &self.parts[n];
        let (recorded, covered) = (domain.table.on_disk().recorded(), domain.log.checkpointed());
        let Some(change) = change.as_ref().filter(|_| recorded > covered) else { return Meets::None };
        let without = !self.is_recorded(n);
        let asked = if without { self.without_record(n) } else { unlike_before(change) };
        if asked.is_empty() {
            return Meets::None;
        }
        let moved = without && moves_a_directory(domain, change);
        let meets = |changed: &Signature| {
            let known = asked.iter().any(|object| changed.may_contain(*object));
            known || moved || without && change.body.names_one_of(changed)
        };
        let (mut hit, mut overrun) = (false, false);
        domain.each_since(covered, recorded, |changed| match changed {
            Some(changed) => hit |= meets(changed),
            None => overrun = true,
        });
        match (hit, overrun) {
            (true, _) => Meets::One,
            (false, true) => Meets::Perhaps,
            (false, false) => Meets::None,
        }
    }

    /// One without a record, which promises nothing, is not kept waiting by a busy log.
    fn cover_tries(&self, n: usize) -> u32 {
        if self.is_recorded(n) {
            COVER_TRIES
        } else {
            1
        }
    }

    /// A part without a record may put back what a record expects to find, or take it away: all that it changes, but for
    /// the listings of directories, as their names tell by themselves.
    fn without_record(&self, n: usize) -> Vec<ObjectId> {
        let Part { objects, change, .. } = &self.parts[n];
        if mutant::on(Mutant::RecordsOverwritten) {
            return Vec::new();
        }
        let mut asked = objects.written.clone();
        for step in change.iter().flat_map(|change| &change.body.steps) {
            match &step.act {
                Act::Patch(patch) => asked.push(ObjectId::data(&patch.file)),
                Act::Take { before, .. } => asked.extend(contents(before)),
                Act::Remove { before, tree, .. } | Act::Replace { before, tree, .. } => {
                    asked.extend(Gone::handles(tree).chain([before]).flat_map(contents));
                }
                Act::Place { .. } | Act::Link { .. } | Act::Attr { .. } => {}
            }
        }
        asked
    }

    /// V3. Everything that is written was looked at, so R covers W, but for files that are appended to unseen.
    fn stale(&self, part: &Part<O>) -> bool {
        let (from, to) = (self.facts.snapshot(part.mount), part.domain.table.next());
        let mut hit = false;
        let overrun = part.domain.scan_ring(from, to, |changed, _| {
            hit |= part.objects.read.iter().any(|o| changed.may_contain(*o));
        });
        hit || overrun
    }

    /// Waits, refreshes or syncs outside of the lock.
    fn overcome(&mut self, obstacle: Obstacle) -> Result<(), CommitError> {
        let waits = self.parts.iter().all(|part| part.numbered.is_none());
        invariant!("I10", waits, "a transaction waits for others only while it has no number");
        let _waiting = debug_span!("wait", why = ?obstacle).entered();
        match obstacle {
            Obstacle::Holder { part } if self.facts.waiting == Waiting::Never => {
                let path = self.parts[part].domain.shown(b"");
                return Err(held_now(path));
            }
            Obstacle::Holder { part } => {
                let waited = self.parts[part].domain.await_holder();
                waited.map_err(|error| failed("waiting for a holder of priority", error))?;
            }
            Obstacle::InFlight { part, slot } => {
                let Part { domain, objects, .. } = &self.parts[part];
                let waited = domain.await_slot(slot, Some(objects), self.facts.waiting);
                if let Err(stuck) = waited.map_err(|error| failed("waiting for another commit", error))? {
                    let Part { mount, domain, objects, .. } = &self.parts[part];
                    let known = objects.overlap(&stuck.footprint).and_then(|o| self.facts.path_of(*mount, o));
                    return Err(CommitError::Conflict(Box::new(Conflict {
                        path: known.unwrap_or_else(|| domain.shown(b"")),
                        what: stuck.what,
                        with: stuck.with,
                    })));
                }
            }
            Obstacle::Full { part } if self.facts.waiting == Waiting::Never => {
                let path = self.parts[part].domain.shown(b"");
                return Err(held_now(path));
            }
            Obstacle::Full { part } => {
                let waited = self.parts[part].domain.await_any_slot();
                waited.map_err(|error| failed("waiting for a free slot", error))?;
            }
            // A refresh compares facts, which reads files: without the lock, under which others would wait for it.
            Obstacle::Stale => self.facts.refresh_all().map_err(super::aborted)?,
            // Not a conflict: it has shown the end to nobody.
            Obstacle::Moved { part } => {
                record_part(&mut self.parts[part], self.durability, self.facts.waiting)?;
            }
            // A syncfs may take seconds, for which the lock would stop every commit of the domain.
            Obstacle::Unsynced { part } => {
                let synced = self.parts[part].domain.sync_unsynced();
                synced.map_err(|error| failed("syncing what this transaction builds on", error))?;
            }
            Obstacle::Uncovered { part } => {
                let part = &mut self.parts[part];
                part.tries_to_cover += 1;
                let covers = part.domain.await_uncovered(self.facts.waiting);
                if covers.map_err(|error| failed("waiting for an earlier commit", error))? {
                    // Where it fails, durable commits say so.
                    let covered = part.domain.cover(part.domain.table.on_disk().recorded());
                    // It may have waited for long for another process's.
                    part.tries_to_cover +=
                        if covered.is_ok_and(|covered| covered) { 0 } else { COVER_TRIES / 2 };
                }
            }
            // The body is written again in the present segment: once the entry names it, the log is kept from there on.
            Obstacle::Left { part } => {
                let Part { domain, change, .. } = &mut self.parts[part];
                if let Some(change) = change {
                    change.write_body(domain)?;
                }
            }
        }
        Ok(())
    }

    /// V5: slot before `next` before header. Readers and helpers rely on that order.
    fn number(&mut self, held: &[&Held<'_, O>]) -> Result<(), CommitError> {
        let multi_domain = self.parts.iter().filter(|p| p.change.is_some()).count() > 1;
        for n in self.coordinator_first() {
            let durable = self.is_recorded(n);
            let (part, held) = (&mut self.parts[n], held[n]);
            invariant!("V5", part.numbered.is_none(), "a transaction gets one number in a domain");
            let table = &part.domain.table;
            let broken = |error| failed("writing the domain table", error);
            let free = part.domain.checked(table.slots().find_free(held.proof())).map_err(broken)?;
            let slot = free.ok_or(failed("finding a free slot", Errno::AGAIN))?;
            let (tx, pid) = (part.id(), part.domain.os.pid());
            let lsn = table.next();
            let info = SlotInfo {
                lsn,
                tx,
                owner: part.domain.me(),
                pid,
                durable,
                multi_domain,
                redo: false,
                body: part.change.as_ref().map_or(Place::default(), |c| c.place()),
                footprint: part.footprint,
            };
            if mutant::on(Mutant::NextBeforeSlot) {
                table.advance_next(held.proof());
            }
            // Filled before `next` moves: a reader whose snapshot is the new `next` would otherwise never hear of this
            // commit, and could read half of it (R1).
            let filled = table.slots().fill(held.proof(), slot, &info, SlotState::Validated);
            filled.map_err(|_| failed("filling a slot", Errno::UCLEAN))?;
            part.numbered = Some(Number { slot, lsn });
            if durable {
                table.on_disk().note_recorded(held.proof(), lsn);
            }
            // Before `next`, too: a refresh scans the ring up to there once, and would miss this filter.
            let mut changed = part.footprint.changed();
            part.change.iter().for_each(|change| changed.merge(&change.body.made()));
            table.ring().put(held.proof(), lsn, Who { tx, pid, recorded: durable }, &changed);
            if !mutant::on(Mutant::NextBeforeSlot) {
                table.advance_next(held.proof());
            }
            // From here on the entry keeps others out, so that the priority can go to the next one that has lost.
            table.priority().resign(part.age);
        }
        Ok(())
    }

    /// A participant's slot in flight means that its coordinator's is, too: first in, last out.
    pub(super) fn coordinator_first(&self) -> Vec<usize> {
        let coordinator = self.coordinator();
        std::iter::once(coordinator).chain((0..self.parts.len()).filter(|n| *n != coordinator)).collect()
    }
}

/// Bytes and attributes of an object, which records change.
fn contents(object: &Handle) -> [ObjectId; 2] {
    [ObjectId::data(object), ObjectId::attr(object)]
}

/// The end of a transaction that does not wait.
fn held_now(path: Vec<u8>) -> CommitError {
    CommitError::Conflict(Box::new(Conflict { path, what: ConflictKind::HeldNow, with: Party::Unknown }))
}

pub(super) fn failed(doing: &'static str, error: Errno) -> CommitError {
    CommitError::Failed { doing, path: Vec::new(), error }
}

/// A directory that is moved, where a redo goes by paths: it would find nothing below.
fn moves_a_directory<O: Os>(domain: &Domain<O>, change: &Change<O>) -> bool {
    let is_moved = |step: &Step| matches!(step.act, Act::Take { directory: true, .. });
    let by_path = !domain.info.open_by_handle && !mutant::on(Mutant::MovedOverRecord);
    by_path && change.body.steps.iter().any(is_moved)
}

/// A file that is cut: a redo can't bring back what a record before has written into the sector of the new end, as the disk
/// may have a part of the sector in its oldest state. And one that grows after it was cut: a redo of the cut finds a size
/// that is neither, and behind the cut what it has cut off.
///
/// And one that gets power over its bytes: others may have put them back, with which only a redo of the record before ends.
fn unlike_before<O: Os>(change: &Change<O>) -> Vec<ObjectId> {
    let resized = |patch: &Patch| match patch.resizes() {
        Ordering::Less if !mutant::on(Mutant::CutOverRecord) => Some(ObjectId::data(&patch.file)),
        Ordering::Greater if !mutant::on(Mutant::GrowthOverCut) => Some(ObjectId::cut(&patch.file)),
        _ => None,
    };
    let asked = |step: &Step| match &step.act {
        Act::Patch(patch) => resized(patch),
        Act::Attr { object, power_over: Some(_), .. } if !mutant::on(Mutant::PowerOverRecord) => {
            Some(ObjectId::data(object))
        }
        _ => None,
    };
    change.body.steps.iter().filter_map(asked).collect()
}
