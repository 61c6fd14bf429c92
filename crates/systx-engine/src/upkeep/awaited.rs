//! Transactions whose other parties are away: what is kept for them, and what people decide in their place.
//!
//! Guarantees: a decision goes only when nobody can ask for it any more; what a person has decided is compared when the coordinator
//! returns, and told once if that one has decided otherwise. Does not: publish or take back (an opening does, see `recovery`).

use crate::domain::decisions::{self, By, Decision};
use crate::domain::Domain;
use crate::domain::SlotState;
use crate::id::TxId;
use crate::log::{Cell, LogError};
use crate::record::Share;
use crate::recovery::{Decision as Verdict, Logs};
use systx_os::{Errno, Os};

impl<O: Os> Domain<O> {
    /// Keeps decisions beside the log.
    pub(super) fn keep_decisions(&self, decisions: &[Decision]) -> Result<(), Errno> {
        decisions::keep(&self.os, &self.area.dir, decisions)
    }

    /// Drops the decisions for which nobody can ask any more.
    pub(super) fn forget_answered(&self) -> Result<(), Errno> {
        let mut logs = Logs::new(&self.os, &self.peers);
        let boot = self.os.boot_id()?;
        self.retain_decisions(|decision| match &decision.by {
            By::Record { participants, companions, boot: of, .. } => {
                let mut companions = companions.iter().filter(|_| *of == boot);
                participants.iter().any(|share| logs.may_ask(share, decision.nonce))
                    || companions.any(|share| self.is_in_flight(share))
            }
            By::Hand { .. } => true,
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

    /// Compares what people have decided with what coordinators say that are there again; what differs is told, once.
    pub(super) fn compare_by_hand(&self) -> Result<Vec<String>, Errno> {
        let mut logs = Logs::new(&self.os, &self.peers);
        let mut told = Vec::new();
        self.forget_answered()?;
        self.retain_decisions(|decision| {
            let By::Hand { coordinator } = &decision.by else { return true };
            let committed = match logs.decision_of(coordinator, decision.nonce) {
                Verdict::Forward => true,
                Verdict::Abort => false,
                Verdict::Unknown => return true,
            };
            if committed != decision.committed {
                let word = |committed| if committed { "committed" } else { "aborted" };
                told.push(format!(
                    "transaction {} ({}) was {} here by hand, and is {} on the file system that coordinated it: half of it is there",
                    decision.id,
                    decision.command,
                    word(decision.committed),
                    word(committed)
                ));
            }
            false
        })?;
        Ok(told)
    }

    /// Committed transactions that file systems have not heard of which are not there, unless somebody wants to hear no more of them.
    ///
    /// # Errors
    /// The kernel's; `BADMSG` for what can't be understood.
    pub fn awaited(&self) -> Result<Vec<Decision>, Errno> {
        let away = |share: &Share| self.peers.area(&share.area).is_none();
        let all = decisions::all(&self.os, &self.area.dir)?.into_iter().flat_map(|kept| kept.decisions);
        let told = |d: &Decision| match &d.by {
            By::Record { participants, silenced, .. } => !silenced && participants.iter().any(away),
            By::Hand { .. } => false,
        };
        Ok(all.filter(told).collect())
    }

    /// Says no more of what is kept for those that have not answered. It stays: whoever returns asks for it. Whether there was such
    /// a transaction.
    ///
    /// # Errors
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

    /// Whether a transaction is prepared, and nobody here can decide it.
    ///
    /// # Errors
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

    /// Ends a prepared transaction in its coordinator's place: the next opening with nobody else there takes it forward or back.
    /// What was decided is kept, and compared when the coordinator returns. Whether there is such a transaction.
    ///
    /// # Errors
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

    /// Whether a companion has not published its share yet. One that is not there may not have.
    fn is_in_flight(&self, party: &Share) -> bool {
        self.peers.get(&party.area).is_none_or(|peer| {
            peer.table.slots().in_flight().any(|slot| slot.is_ok_and(|slot| slot.info.tx == party.id))
        })
    }
}
