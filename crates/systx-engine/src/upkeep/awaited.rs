//! Transactions whose other parties are away: what is kept for them, and what people decide in their place.
//!
//! Guarantees: a decision goes only when no participant can ask for it any more; a person's decision is
//! compared when the coordinator returns, and reported once if the coordinator has decided otherwise. Does
//! not: publish or take back (an opening does, see `recovery`).

use super::decide::{self, ByHand};
use crate::domain::decisions::{self, By, Decision};
use crate::domain::Domain;
use crate::domain::SlotState;
use crate::id::TxId;
use crate::log::{Cell, LogError};
use crate::record::Share;
use crate::recovery::Logs;
use systx_os::{Errno, Os};

impl<O: Os> Domain<O> {
    /// Keeps decisions beside the log.
    pub(super) fn keep_decisions(&self, decisions: &[Decision]) -> Result<(), Errno> {
        decisions::keep(&self.os, &self.area.dir, decisions)
    }

    /// Drops the decisions for which no participant can ask any more.
    pub(super) fn forget_answered(&self) -> Result<(), Errno> {
        let mut logs = Logs::new(&self.os, &self.peers);
        let boot = self.os.boot_id()?;
        self.retain_decisions(|decision| {
            let may_ask = |party: &Share| logs.may_ask(party, decision.nonce);
            decide::is_awaited(&decision.by, &boot, may_ask, |party| self.is_in_flight(party))
        })
    }

    fn retain_decisions(&self, mut stays: impl FnMut(&Decision) -> bool) -> Result<(), Errno> {
        for mut kept in decisions::all(&self.os, &self.area.dir)? {
            let before = kept.decisions.len();
            kept.decisions.retain(&mut stays);
            if kept.decisions.len() < before {
                decisions::update(&self.os, &self.area.dir, &kept)?;
            }
        }
        Ok(())
    }

    /// Compares people's decisions with those of coordinators that have returned; reports each difference
    /// once.
    pub(super) fn compare_by_hand(&self) -> Result<Vec<String>, Errno> {
        let mut logs = Logs::new(&self.os, &self.peers);
        let mut told = Vec::new();
        self.forget_answered()?;
        self.retain_decisions(|decision| {
            let By::Hand { coordinator } = &decision.by else { return true };
            let verdict = decide::by_hand(decide::verdict_of(decision), logs.decision_of(coordinator, decision.nonce));
            if verdict == ByHand::IsReported {
                let word = |committed| if committed { "committed" } else { "aborted" };
                told.push(format!(
                    "transaction {} ({}) was {} here by hand, and is {} on the file system that coordinated it: half of it is there",
                    decision.id,
                    decision.command,
                    word(decision.committed),
                    word(!decision.committed)
                ));
            }
            verdict == ByHand::Stays
        })?;
        Ok(told)
    }

    /// Returns committed transactions that absent file systems have not heard of, unless a person has
    /// silenced them.
    ///
    /// # Errors
    ///
    /// The kernel's; `BADMSG` for what can't be understood.
    pub fn awaited(&self) -> Result<Vec<Decision>, Errno> {
        let away = |share: &Share| self.peers.area(&share.area).is_none();
        let all = decisions::all(&self.os, &self.area.dir)?.into_iter().flat_map(|kept| kept.decisions);
        Ok(all.filter(|decision| decide::is_shown(&decision.by, away)).collect())
    }

    /// Stops reporting what is kept for participants that have not answered. It stays: one that returns asks
    /// for it. Returns true if there was such a transaction.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn silence_decision(&self, tx: TxId) -> Result<bool, Errno> {
        let mut found = false;
        for mut kept in decisions::all(&self.os, &self.area.dir)? {
            for decision in kept.decisions.iter_mut().filter(|d| d.id == tx) {
                if let By::Record { silenced, .. } = &mut decision.by {
                    (*silenced, found) = (true, true);
                }
            }
            if found {
                decisions::update(&self.os, &self.area.dir, &kept)?;
            }
        }
        Ok(found)
    }

    /// Returns true if a transaction is prepared, and no party here can decide it.
    ///
    /// # Errors
    ///
    /// `UCLEAN` for a table that makes no sense.
    pub fn is_in_doubt(&self, tx: TxId) -> Result<bool, Errno> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.tx == tx && slot.seen.state() == SlotState::Prepared {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a prepared transaction in its coordinator's place: the next opening without other owners takes it
    /// forward or back. The decision is kept, and compared when the coordinator returns. Returns true if
    /// there is such a transaction.
    ///
    /// # Errors
    ///
    /// `LogError`; nothing was decided.
    pub fn decide_by_hand(&self, tx: TxId, committed: bool) -> Result<bool, LogError> {
        let outline = crate::log::outline(&self.os, &self.area.dir, self.area.id)?;
        for entry in &outline.replay.records {
            if !matches!(entry.cell, Cell::Prepared { id, .. } if id == tx) {
                continue;
            }
            let Some(body) = outline.body(&self.os, entry)? else { continue };
            let Some(coordinator) = body.coordinator else { continue };
            let (nonce, command) = (body.nonce, body.command);
            let decision = Decision { id: tx, nonce, committed, command, by: By::Hand { coordinator } };
            let failed = |error| LogError::Os { doing: "writing decided/ beside", segment: 0, error };
            self.keep_decisions(&[decision]).map_err(failed)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns true if a companion has not published its share yet. An absent one may not have.
    fn is_in_flight(&self, party: &Share) -> bool {
        self.peers.get(&party.area).is_none_or(|peer| {
            peer.table.slots().in_flight().any(|slot| slot.is_ok_and(|slot| slot.info.tx == party.id))
        })
    }
}
