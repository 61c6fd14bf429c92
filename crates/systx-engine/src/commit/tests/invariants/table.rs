//! Contents of table, log and tree at any moment: I1, I4 and I10.

use super::book::Book;
use super::watch::{Moment, Rule, Verdict};
use crate::domain::layout::{LOCK_WORD, LOG_BASE, LOG_LEN};
use crate::domain::{InFlight, SlotState};
use crate::id::{OwnerIx, TxId};
use std::collections::{BTreeSet, HashMap};
use systx_sim::machine::{Call, PointInfo};

/// I1: no public object of W has changed while its slot is VALIDATED. Nor before, nor when it is taken back.
pub(super) struct Untouched;

impl Rule for Untouched {
    fn name(&self) -> &'static str {
        "I1"
    }

    fn now(&mut self, now: &Moment<'_>, book: &Book) -> Verdict {
        let trees = now.trees();
        let mut judged = false;
        for chain in &book.chains {
            let before = chain.base();
            if chain.here() == before && chain.part_of(&trees) != chain.states[before] {
                let what = chain.difference(before, &trees);
                return Err(format!("changed, and not past the commit point: {what:?}"));
            }
            let Some(current) = chain.current() else { continue };
            for (fs, system) in now.fs.iter().enumerate() {
                let own = system.slots.iter().filter(|s| chain.ids.get(&(fs, s.info.tx)) == Some(&current));
                for _ in own.filter(|s| s.seen.state() == SlotState::Validated) {
                    judged = true;
                    let mut alone = vec![systx_sim::machine::Tree::new(); now.fs.len()];
                    alone[fs] = system.tree.clone();
                    if chain.part_of(&alone) != chain.on(before, fs) {
                        return Err(format!("changed on file system {fs}, and its slot there is VALIDATED"));
                    }
                }
            }
        }
        Ok(judged)
    }
}

/// I4: no step is taken before its header is synced (unless `none`), nor after an ABORT. Of several file
/// systems the others' promises are synced before the coordinator's header is written.
#[derive(Default)]
pub(super) struct HeaderFirst {
    /// Headers that were on the disk, by file system.
    synced: BTreeSet<(usize, TxId)>,
}

impl Rule for HeaderFirst {
    fn name(&self) -> &'static str {
        "I4"
    }

    fn now(&mut self, now: &Moment<'_>, book: &Book) -> Verdict {
        let mut judged = false;
        for (fs, disk) in now.disk.iter().enumerate() {
            self.synced.extend(disk.log.headers().map(|(id, ..)| (fs, id)));
        }
        for chain in &book.chains {
            let Some(current) = chain.current().filter(|n| chain.durable[*n]) else { continue };
            let numbers: Vec<_> =
                chain.ids.iter().filter(|(_, n)| **n == current).map(|(at, _)| *at).collect();
            let written = |commit: bool| {
                numbers.iter().filter(move |(fs, id)| {
                    now.fs[*fs]
                        .log
                        .headers()
                        .any(|(found, _, coordinates)| found == *id && coordinates == commit)
                })
            };
            for (fs, id) in written(true) {
                for (other, promised) in numbers.iter().filter(|(other, _)| other != fs) {
                    judged = true;
                    if !self.synced.contains(&(*other, *promised)) {
                        return Err(format!("{id} is decided on {fs}, and its part on {other} isn't synced"));
                    }
                }
            }
            let aborted = now.fs.iter().enumerate().any(|(fs, system)| {
                let mut own =
                    system.log.headers().filter(|(id, ..)| chain.ids.get(&(fs, *id)) == Some(&current));
                own.any(|(_, lsn, _)| system.log.aborted(lsn))
            });
            if aborted {
                judged = true;
                let trees = now.trees();
                if chain.is_past(current) || chain.part_of(&trees) != chain.states[chain.base()] {
                    return Err("steps are taken after an ABORT".to_owned());
                }
            }
            for (fs, system) in now.fs.iter().enumerate() {
                let own = system.slots.iter().filter(|s| chain.ids.get(&(fs, s.info.tx)) == Some(&current));
                for slot in own.filter(|s| s.seen.state() == SlotState::Publishing && !s.info.redo) {
                    judged = true;
                    let synced = numbers.iter().any(|(fs, id)| {
                        let disk = &now.disk[*fs].log;
                        disk.headers()
                            .any(|(found, lsn, commit)| found == *id && commit && !disk.aborted(lsn))
                    });
                    if !synced {
                        return Err(format!("{} is publishing, and its header isn't synced", slot.info.tx));
                    }
                }
            }
        }
        Ok(judged)
    }
}

/// I10: a process that holds the commit lock or an unprepared active entry waits for its own disk only.
///
/// A holder of the lock makes no call that can wait at all, syncs included. A holder of an active entry may
/// wait for the lock, whose holders don't wait, and at the log's latches, whose holders wait for the disk.
#[derive(Default)]
pub(crate) struct WaitsForNobody {
    /// Processes by their index among the owners, as their taking of the lock has shown.
    owners: HashMap<OwnerIx, u32>,
    /// Process that tried to take the lock when it was free.
    taking: Option<u32>,
}

impl WaitsForNobody {
    /// Before a call of process `pid`; whether it holds anything.
    pub(crate) fn look(
        &mut self,
        (slots, holder): (&[InFlight], Option<OwnerIx>),
        info: &PointInfo,
        pid: u32,
    ) -> Verdict {
        if let (Some(taker), Some(ix)) = (self.taking.take(), holder) {
            self.owners.insert(ix, taker);
        }
        for slot in slots {
            if slot.seen.state() == SlotState::Validated && !slot.info.redo {
                self.owners.insert(slot.info.owner, slot.info.pid);
            }
        }
        if holder.is_none() && info.call == Call::CompareExchange && info.word == Some(LOCK_WORD) {
            self.taking = Some(pid);
        }
        let locks = holder.is_some_and(|ix| self.owners.get(&ix) == Some(&pid));
        let waits = [Call::Wait, Call::Pause, Call::Lease, Call::OwnByte];
        let slow = [Call::Fsync, Call::Fdatasync, Call::Syncfs, Call::WriteOut, Call::Open, Call::OpenHandle];
        if locks && (waits.contains(&info.call) || slow.contains(&info.call)) {
            return Err("it holds the commit lock".to_owned());
        }
        let unprepared = |slot: &&InFlight| slot.info.pid == pid && slot.seen.state() != SlotState::Prepared;
        let slot = slots.iter().find(unprepared);
        let for_the_disk = |word| word == LOCK_WORD || (LOG_BASE..LOG_BASE + LOG_LEN).contains(&word);
        let waiting = match info.call {
            Call::Pause => true,
            Call::Wait => !info.word.is_some_and(for_the_disk),
            _ => false,
        };
        match slot {
            Some(slot) if waiting => {
                Err(format!("it holds the slot of {}, and waits at {:?}", slot.info.tx, info.word))
            }
            _ => Ok(locks || slot.is_some()),
        }
    }
}

impl Rule for WaitsForNobody {
    fn name(&self) -> &'static str {
        "I10"
    }

    fn now(&mut self, now: &Moment<'_>, _: &Book) -> Verdict {
        let pid = now.pid();
        let mut judged = false;
        for fs in now.fs {
            judged |= self.look((&fs.slots, fs.holder), now.info, pid)?;
        }
        Ok(judged)
    }
}
