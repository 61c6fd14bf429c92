//! What the logs of other domains say: a coordinator's decision, and who may still ask for one.
//!
//! Guarantees: each log is read once, before what is kept beside it, and anew if what is asked for was undecided then.
//! Does not: decide what becomes of a record.

use crate::domain::decisions::{self, By, Kept};
use crate::domain::Peers;
use crate::id::TxId;
use crate::log::{Cell, Entry, Outline};
use crate::mutant::{self, Mutant};
use crate::record::{Body, Share};
use std::collections::HashMap;
use systx_os::Os;

/// A coordinator's decision, as a participant can learn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Forward,
    Abort,
    Unknown,
}

/// The part of a committed record that is kept for participants that have not answered.
pub(crate) fn kept_for(body: &Body, companions: &[Share], boot: [u8; 16]) -> decisions::Decision {
    let (participants, companions) = (body.participants.clone(), companions.to_vec());
    decisions::Decision {
        id: body.id,
        nonce: body.nonce,
        committed: true,
        command: body.command.clone(),
        by: By::Record { participants, companions, boot, silenced: false },
    }
}

/// Returns a person's decision in the coordinator's place.
pub(super) fn by_hand(kept: &[Kept], body: &Body) -> Option<Decision> {
    let decided = decisions::of(kept, body.id, body.nonce)?;
    let decision = if decided.committed { Decision::Forward } else { Decision::Abort };
    matches!(decided.by, By::Hand { .. }).then_some(decision)
}

/// A log, what is kept beside it, and what was active before its commit point when it was read.
struct LogOf<O: Os> {
    outline: Outline<O>,
    kept: Vec<Kept>,
    /// `None`: that could not be seen.
    undecided: Option<Vec<TxId>>,
}

/// The logs of other domains, with what is kept beside them.
pub(crate) struct Logs<'a, O: Os> {
    os: &'a O,
    peers: &'a Peers<O>,
    read: HashMap<[u8; 16], Option<LogOf<O>>>,
}

impl<'a, O: Os> Logs<'a, O> {
    /// None is read yet.
    pub fn new(os: &'a O, peers: &'a Peers<O>) -> Logs<'a, O> {
        Logs { os, peers, read: HashMap::new() }
    }

    fn of(&mut self, area: &[u8; 16]) -> Option<&LogOf<O>> {
        let (os, peers) = (self.os, self.peers);
        let read = || {
            let area = peers.area(area)?;
            let undecided = area.undecided(os);
            // The log before what is kept: what it lets go of is kept by then.
            let outline = area.outline(os).ok()?;
            Some(LogOf { outline, kept: area.decisions(os).ok()?, undecided })
        };
        self.read.entry(*area).or_insert_with(read).as_ref()
    }

    /// Returns the decision of a prepared record's coordinator.
    pub fn decision(&mut self, body: &Body) -> Decision {
        body.coordinator.as_ref().map_or(Decision::Unknown, |share| self.decision_of(share, body.nonce))
    }

    /// Returns a coordinator's decision on the transaction with that nonce.
    pub fn decision_of(&mut self, coordinator: &Share, nonce: u64) -> Decision {
        let (os, id) = (self.os, &coordinator.id);
        // Before its log: what is past its commit point stays so.
        let undecided = self.peers.area(&coordinator.area).map(|area| area.undecided(os));
        if undecided.is_some_and(|ids| ids.is_none_or(|ids| ids.contains(id))) {
            return Decision::Unknown;
        }
        // A log that was read before, for another record, can lack the ABORT that has come since.
        let was_undecided = |log: &LogOf<O>| log.undecided.as_ref().is_none_or(|ids| ids.contains(id));
        let read = self.read.get(&coordinator.area).and_then(Option::as_ref);
        if read.is_some_and(was_undecided) && !mutant::on(Mutant::LogReadEarly) {
            self.read.remove(&coordinator.area);
        }
        let Some(LogOf { outline, kept, .. }) = self.of(&coordinator.area) else { return Decision::Unknown };
        if decisions::of(kept, *id, nonce).is_some_and(|d| d.committed) {
            return Decision::Forward;
        }
        for entry in &outline.replay.records {
            let Cell::Commit { lsn, id: found, .. } = &entry.cell else { continue };
            if found != id || outline.replay.aborted.contains(lsn) {
                continue;
            }
            match outline.any_body(os, entry) {
                // Another transaction of that number has another nonce.
                Ok(Some(decided)) if is_of(&decided, nonce) => return Decision::Forward,
                Ok(_) => {}
                Err(_) => return Decision::Unknown,
            }
        }
        Decision::Abort
    }

    /// Returns true if a participant in a transaction can still ask for its decision. An absent one may.
    pub fn may_ask(&mut self, party: &Share, nonce: u64) -> bool {
        let os = self.os;
        let Some(LogOf { outline, kept, .. }) = self.of(&party.area) else { return true };
        // A person's decision there is yet to be compared.
        if decisions::of(kept, party.id, nonce).is_some_and(|d| matches!(d.by, By::Hand { .. })) {
            return true;
        }
        // An undecided PREPARED is needed; a decided or dropped one is not.
        let records = &outline.replay.records;
        let says_so = |e: &Entry| e.cell == Cell::Committed { id: party.id };
        if mutant::on(Mutant::DecisionEarly) && records.iter().any(says_so) {
            return false;
        }
        records.iter().filter(|e| e.needed).any(|entry| {
            let is_it = matches!(&entry.cell, Cell::Prepared { id, .. } if *id == party.id);
            is_it && outline.any_body(os, entry).map_or(true, |b| b.is_none_or(|b| is_of(&b, nonce)))
        })
    }

    /// Returns true if no participant of a coordinator's record can still ask for it.
    pub fn settled(&mut self, body: &Body) -> bool {
        body.participants.iter().all(|party| !self.may_ask(party, body.nonce))
    }
}

/// Returns true if a record of the right number is of the transaction with that nonce.
pub(super) fn is_of(body: &Body, nonce: u64) -> bool {
    body.nonce == nonce || mutant::on(Mutant::NumberIsIdentity)
}
