//! Finishing the slots of a dead owner, in the same boot.

use super::chains::Chains;
use super::decide::{fate, Coordinator, Fate};
use super::logs::{is_of, kept_for, Decision, Logs};
use super::rebuild::{slots_of, SlotDir};
use super::stuck::{builds_on, tell_stuck, tell_waiting};
use crate::domain::{decisions, Domain, InFlight, Peers, SlotState};
use crate::id::{OwnerIx, TxId};
use crate::log::{self, Cell};
use crate::mutant::{self, Mutant};
use crate::outcome::{Durability, Recovered};
use crate::publish::site::{Pass, Site};
use crate::publish::{publish, reclaim, Pending};
use crate::record::{Act, Body, Share};
use systx_os::{Errno, Os, Result};
use tracing::debug;

/// Wait this long for a coordinator that is about to be dead, or finished by another process, in nanoseconds.
const COORDINATOR_NS: u64 = 2_000_000_000;
/// Between two looks at it.
const LOOK_AGAIN_NS: u64 = 5_000_000;

/// Finishes everything a dead owner left, unless another process is doing so or it lives.
pub(crate) fn help<O: Os>(domain: &Domain<O>, dead: OwnerIx) -> Result<Recovered> {
    domain.ours()?;
    // The process that obtains the dead owner's byte is its successor: there is one.
    let claim = match domain.owners.claim_of(dead) {
        Ok(Some(claim)) => claim,
        Ok(None) => return Ok(Recovered::default()),
        Err(_) => return Err(Errno::AGAIN),
    };
    // An owner that died under the commit lock may have filled an entry without moving `next`. That is repaired first,
    // or the next commit would get the same number, and inherit its ABORT (C12).
    domain.inherit_lock_of(claim.ix)?;
    finish_owner(domain, claim.ix)
}

/// Finishes the slots of an index that this process holds.
pub(crate) fn finish_owner<O: Os>(domain: &Domain<O>, ix: OwnerIx) -> Result<Recovered> {
    domain.ours()?;
    let mut recovered = Recovered::default();
    let mut slots = Vec::new();
    for slot in domain.table.slots().in_flight() {
        slots.push(domain.checked(slot)?);
    }
    slots.retain(|slot| slot.info.owner == ix);
    // Those that a recovery could not publish may build on one another.
    slots.sort_by_key(|slot| slot.info.lsn);
    let mut waiting = Vec::new();
    for slot in slots {
        finish(domain, &slot, &mut waiting, &mut recovered)?;
    }
    // Behind the entries, which name the staging that is still needed: the rest never got a number.
    domain.discard_unsealed_of(ix)?;
    domain.discard_sealed_of(ix)?;
    domain.clear_shared_staging_of(ix)?;
    Ok(recovered)
}

/// Finishes one entry that no other process works on. `waiting`: earlier ones that could not be finished.
pub(crate) fn finish<O: Os>(
    domain: &Domain<O>,
    slot: &InFlight,
    waiting: &mut Vec<Body>,
    recovered: &mut Recovered,
) -> Result<()> {
    let id = slot.info.tx;
    let body = match domain.body_of(slot) {
        Ok(body) => body,
        Err(e) => {
            recovered.unfinished.push(format!("transaction {id}: its record can't be read: {e}"));
            return Ok(());
        }
    };
    if let Some(body) = body.as_ref().filter(|_| !mutant::on(Mutant::ParticipantFirst)) {
        // Its coordinator first: as long as that is undecided, so is this share of it.
        finish_coordinator(&domain.peers, body, recovered)?;
    }
    let coordinator = body.as_ref().map_or(Coordinator::Myself, |b| coordinator_state(domain, b));
    let durable = slot.info.durable && body.is_some();
    let durability = if durable { Durability::Durable } else { Durability::None };
    let state = slot.seen.state();
    let fate = fate(state, durability, coordinator);
    debug!(tx = id.0, lsn = slot.info.lsn.0, ?state, ?coordinator, ?fate, "an entry whose owner is dead");
    match fate {
        Fate::Keep if body.as_ref().is_some_and(|body| is_about_to_open(domain, body)) => {}
        Fate::Keep => recovered.unfinished.push(in_doubt(id)),
        Fate::Drop => {
            domain.free_slot(slot.ix)?;
            domain.discard_staging(id);
            recovered.aborted += 1;
        }
        Fate::Abort => {
            // Synced before the entry is free, or a redo could publish what others have gone on without (I8). If it
            // fails, the entry stays and its objects conflict.
            if let Err(e) = domain.append_and_sync(Cell::Abort { lsn: slot.info.lsn }) {
                recovered.unfinished.push(format!("transaction {id}: {e}"));
                return Ok(());
            }
            domain.free_slot(slot.ix)?;
            domain.discard_staging(id);
            recovered.aborted += 1;
        }
        Fate::Publish => match body {
            // Steps that build on those of a record that waits would take its old state for an outsider's later one.
            Some(body) if waiting.iter().any(|earlier| builds_on(earlier, &body)) => {
                let first = waiting.iter().find(|earlier| builds_on(earlier, &body)).map_or(id, |b| b.id);
                tell_waiting(id, first, recovered);
                waiting.push(body);
            }
            Some(body) => {
                match along(domain, slot, &body).and_then(|()| forward(domain, slot, &body, recovered)) {
                    Ok(true) => {}
                    Ok(false) => waiting.push(body),
                    // The table makes no sense.
                    Err(Errno::UCLEAN) => return Err(Errno::UCLEAN),
                    Err(e) => {
                        recovered
                            .unfinished
                            .push(format!("transaction {id} is committed, its publication waits: {e}"));
                        waiting.push(body);
                    }
                }
            }
            // A part that only read: nothing to publish.
            None => domain.free_slot(slot.ix)?,
        },
    }
    Ok(())
}

fn in_doubt(id: TxId) -> String {
    format!("transaction {id} is in doubt: the file system that decides is not there; if it never comes back, `systx recover --commit {id}` or `--abort {id}` ends it")
}

/// A coordinator past its commit point takes those that are there past theirs before its own slot is free.
/// Participants that are not ask its log later; for companions, which have nothing else that lasts as long as
/// they, it is kept beside the log.
fn take_others_along<O: Os>(domain: &Domain<O>, body: &Body) -> Result<()> {
    for party in body.participants.iter().chain(&body.companions) {
        let Some(peer) = domain.peers.get(&party.area) else { continue };
        if let Some(slot) = slot_of(&peer, party, body)?.filter(|s| s.seen.state() == SlotState::Validated) {
            // Another process may have done it meanwhile.
            let _ = peer.table.slots().set_state(slot.ix, slot.seen, SlotState::Publishing);
        }
    }
    let away = body.companions.iter().filter(|party| domain.peers.get(&party.area).is_none());
    let away: Vec<_> = away.copied().collect();
    if away.is_empty() {
        return Ok(());
    }
    let kept = decisions::all(&domain.os, &domain.area.dir)?;
    match decisions::of(&kept, body.id, body.nonce) {
        Some(_) => Ok(()),
        None => {
            let decision = kept_for(body, &away, domain.os.boot_id()?);
            decisions::keep(&domain.os, &domain.area.dir, &[decision])
        }
    }
}

/// The slot of a transaction's share in another domain.
fn slot_of<O: Os>(domain: &Domain<O>, party: &Share, body: &Body) -> Result<Option<InFlight>> {
    for slot in domain.table.slots().in_flight() {
        let slot = domain.checked(slot)?;
        let is_it =
            |slot: &InFlight| domain.body_of(slot).is_ok_and(|b| b.is_some_and(|b| is_of(&b, body.nonce)));
        if slot.info.tx == party.id && is_it(&slot) {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// U and D on behalf of a dead owner; whether all steps are taken.
fn forward<O: Os>(
    domain: &Domain<O>,
    slot: &InFlight,
    body: &Body,
    recovered: &mut Recovered,
) -> Result<bool> {
    let name = body.id.to_string();
    if !slot.info.durable
        && body.has_slots()
        && body.shared_slots.is_none()
        && domain.os.stat_at(&domain.area.tx, name.as_bytes()) == Err(Errno::NOENT)
    {
        // Without a header the slots go before the transaction is done: its owner got as far as that.
        done(domain, slot, body, recovered)?;
        return Ok(true);
    }
    let SlotDir { dir: slots, lost } = slots_of(&domain.os, &domain.area, body)?;
    if lost {
        recovered
            .unfinished
            .push(format!("transaction {}: staged objects were deleted; it is incomplete", body.id));
    }
    let pass = if slot.info.redo { Pass::Redo } else { Pass::First };
    let durability = if slot.info.durable { Durability::Durable } else { Durability::None };
    let slots = slots.as_ref().unwrap_or(&domain.area.tx);
    let chains = if slot.info.redo { chains_of(domain, body) } else { None };
    let leaves = |act: &Act| chains.as_ref().is_some_and(|(n, chains)| chains.leave(*n, act));
    let mut site = Site::helper(domain, slots, body, durability, pass, &leaves);
    match publish(&mut site, body) {
        Ok(conflict_copies) => recovered.conflict_copies.extend(domain.shown_all(conflict_copies)),
        Err(pending) => {
            domain.ask_for_lost();
            let pending = Pending { path: domain.shown(&pending.path), ..pending };
            tell_stuck(body.id, &pending, recovered);
            return Ok(false);
        }
    }
    if body.coordinator.is_some() && slot.info.durable {
        // Unsynced, as in D: it only spares a later recovery the question.
        let _ = domain.append_cell(Cell::Committed { id: body.id });
    }
    // As in D: a durable transaction is reclaimed by its record if this process dies before it does so.
    if slot.info.durable {
        done(domain, slot, body, recovered)?;
    }
    let reclaimed = reclaim::reclaim(&mut site, body).is_ok();
    recovered.conflict_copies.extend(domain.shown_all(std::mem::take(&mut site.conflict_copies)));
    if !slot.info.durable {
        if reclaimed {
            domain.discard_staging(body.id);
            domain.end_moving(body.id);
        }
        done(domain, slot, body, recovered)?;
    }
    Ok(true)
}

/// Where a record that a recovery could not publish stands in the log, and what those behind it say.
fn chains_of<O: Os>(domain: &Domain<O>, body: &Body) -> Option<(usize, Chains)> {
    let (os, area) = (&domain.os, &domain.area);
    let outline = log::outline(os, &area.dir, area.id).ok()?.understand(os).ok()?;
    let records = &outline.replay().records;
    let n = records.iter().position(|entry| entry.needed && entry.cell.id() == Some(body.id))?;
    let told = |n: usize, id| records[n..].iter().any(|e| e.cell == Cell::Committed { id });
    let chains = Chains::of(os, area, &outline, &mut |n, _| match records[n].cell {
        Cell::Commit { .. } => true,
        Cell::Prepared { id, .. } => told(n, id),
        _ => false,
    });
    Some((n, chains.ok()?))
}

fn done<O: Os>(domain: &Domain<O>, slot: &InFlight, body: &Body, recovered: &mut Recovered) -> Result<()> {
    if !slot.info.durable && body.coordinator.is_some() {
        domain.note_past(slot.info.lsn, body);
    }
    // Before the entry is free: from then on a durable commit may build on this one, which V4 must see.
    if !slot.info.durable {
        domain.table.unsynced().add(&slot.info.footprint.changed());
    } else {
        domain.table.unsynced().add(&body.made());
    }
    if !mutant::on(Mutant::HelperKeepsSlot) {
        domain.free_slot(slot.ix)?;
    }
    recovered.finished += 1;
    Ok(())
}

/// After a reboot the others have asked its record.
fn along<O: Os>(domain: &Domain<O>, slot: &InFlight, body: &Body) -> Result<()> {
    if slot.info.redo {
        Ok(())
    } else {
        take_others_along(domain, body)
    }
}

/// Returns true if the deciding file system is opened by this process, but behind this one: the next process
/// to go on finds it.
fn is_about_to_open<O: Os>(domain: &Domain<O>, body: &Body) -> bool {
    let there = |party: &Share| domain.peers.area(&party.area).is_some();
    body.coordinator.as_ref().is_some_and(|party| there(party) && domain.peers.get(&party.area).is_none())
}

/// A coordinator that died before its commit point is taken back first: its log decides, also after a power
/// loss.
///
/// A process that dies lets go of one domain after the other, so that its share here may look dead before its
/// share there does; and another helper may be at it. Both are over soon, and what is said before would be
/// wrong.
pub(super) fn finish_coordinator<O: Os>(
    peers: &Peers<O>,
    body: &Body,
    recovered: &mut Recovered,
) -> Result<()> {
    let Some(party) = &body.coordinator else { return Ok(()) };
    let Some(coordinator) = peers.get(&party.area) else { return Ok(()) };
    let began = coordinator.os.monotonic_ns();
    loop {
        let Some(slot) = slot_of(&coordinator, party, body)? else { return Ok(()) };
        if !matches!(slot.seen.state(), SlotState::Validated | SlotState::Aborting) {
            return Ok(());
        }
        if !coordinator.alive(slot.info.owner) {
            recovered.merge(help(&coordinator, slot.info.owner)?);
            return Ok(());
        }
        let late = coordinator.os.monotonic_ns().saturating_sub(began) >= COORDINATOR_NS;
        if late || slot.info.owner == coordinator.me() || mutant::on(Mutant::DyingIsDoubt) {
            return Ok(());
        }
        coordinator.os.pause(LOOK_AGAIN_NS);
    }
}

/// The state of the coordinator's slot, if this slot is another's.
fn coordinator_state<O: Os>(domain: &Domain<O>, body: &Body) -> Coordinator {
    let Some(party) = &body.coordinator else { return Coordinator::Myself };
    let Some(coordinator) = domain.peers.get(&party.area) else { return Coordinator::Unknown };
    // The entry before the log, which may have the header of a commit that is not decided yet.
    match slot_of(&coordinator, party, body) {
        Ok(Some(slot)) => return Coordinator::In(slot.seen.state()),
        Ok(None) => {}
        Err(_) => return Coordinator::Unknown,
    }
    // Its entry is gone: free, or its file system has been mounted again since. Either way its log has the
    // last word.
    match Logs::new(&domain.os, &domain.peers).decision(body) {
        Decision::Forward => Coordinator::In(SlotState::Publishing),
        Decision::Abort => Coordinator::In(SlotState::Free),
        Decision::Unknown => Coordinator::Unknown,
    }
}
