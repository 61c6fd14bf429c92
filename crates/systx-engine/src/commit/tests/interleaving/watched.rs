//! Invariants that are judged while the transactions run, at every call and at every delivery: I2, I3, I9 and
//! I10 of docs/protocol.md.

use super::super::invariants::records::in_order;
use super::super::invariants::table::WaitsForNobody;
use super::{Log, Recorded};
use crate::domain::{Domain, InFlight, SlotState};
use crate::id::{Lsn, TxId};
use crate::log::{LogPos, Raw};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use systx_sim::history::Op;
use systx_sim::machine::{PointInfo, SimOs};

/// Faults, by invariant; and the committed transactions, as the active entries have shown.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    wrong: BTreeMap<&'static str, String>,
    committed: BTreeMap<Lsn, TxId>,
    log_end: LogPos,
    waits: WaitsForNobody,
}

impl Inner {
    /// The first of each kind.
    fn note(&mut self, rule: &'static str, judged: Result<(), String>) {
        if let Err(why) = judged {
            self.wrong.entry(rule).or_insert_with(|| format!("{rule}: {why}"));
        }
    }
}

impl Watched {
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.0.lock().expect("nobody panics in here"))
    }

    /// Returns what was wrong with an invariant.
    pub(super) fn wrong(&self, rule: &str) -> Option<String> {
        self.with(|inner| inner.wrong.get(rule).cloned())
    }

    /// Before an access to a word.
    pub(super) fn at_word(&self, domain: &Domain<SimOs>, info: &PointInfo) {
        let slots: Vec<_> = domain.table.slots().in_flight().map(|slot| slot.expect("sound")).collect();
        let holder = domain.table.lock_holder().expect("sound");
        self.with(|inner| {
            let judged = inner.waits.look((&slots, holder), info, info.process.pid());
            inner.note("I10", judged.map(drop));
        });
    }

    /// Before any other call.
    pub(super) fn at_call(&self, domain: &Domain<SimOs>, log: &Log) {
        let slots: Vec<_> = domain.table.slots().in_flight().map(|slot| slot.expect("sound")).collect();
        let end = domain.log.end();
        self.with(|inner| {
            inner.note("I2", overlap_in_flight(&slots, log));
            let publishing = slots.iter().filter(|slot| slot.seen.state() == SlotState::Publishing);
            inner.committed.extend(publishing.map(|slot| (slot.info.lsn, slot.info.tx)));
            if std::mem::replace(&mut inner.log_end, end) != end {
                let lines = crate::log::raw(&domain.os, &domain.area.dir).unwrap_or_default();
                let cells = lines.into_iter().filter_map(|line| match line {
                    Raw::Cell { pos, cell, .. } => Some((pos, cell)),
                    _ => None,
                });
                inner.note("I3", in_order(&cells.collect::<Vec<_>>(), |a, b| log.overlap(a, b)));
            }
        });
    }

    /// When something was delivered to a program: all that it was shown was true at one number.
    pub(super) fn shown(&self, log: &Log, at: usize) {
        self.with(|inner| {
            let committed = &inner.committed;
            let judged = log.look(|all| {
                let those: Vec<&Recorded> = committed
                    .values()
                    .filter_map(|id| all.iter().find(|t| t.2 == *id).map(|t| &t.0))
                    .collect();
                at_one_number(&those, &all[at].0.ops)
            });
            inner.note("I9", judged);
        });
    }
}

/// I2: two transactions in flight that overlap.
fn overlap_in_flight(slots: &[InFlight], log: &Log) -> Result<(), String> {
    let tx = |n: usize| slots[n].info.tx;
    let pair = |n: usize| (0..n).find(|one| log.overlap(tx(*one), tx(n))).map(|one| (n, one));
    match (0..slots.len()).find_map(pair) {
        Some((n, one)) => Err(format!("{} and {} overlap, and are in flight at one time", tx(one), tx(n))),
        None => Ok(()),
    }
}

/// I9: whether the lists that a transaction has read are those after some number of the commits, which are in order.
pub(super) fn at_one_number(committed: &[&Recorded], ops: &[Op]) -> Result<(), String> {
    let mut own: BTreeSet<u64> = BTreeSet::new();
    let mut reads: Vec<(&str, Vec<u64>)> = Vec::new();
    for op in ops {
        match op {
            Op::Append { value, .. } => drop(own.insert(*value)),
            Op::Read { key, list } => {
                // The transaction's own append comes last, and no other one can see it yet.
                reads.push((key, list.iter().copied().filter(|value| !own.contains(value)).collect()));
            }
        }
    }
    let mut lists: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let nothing = Vec::new();
    for next in 0..=committed.len() {
        if reads.iter().all(|(key, list)| lists.get(key).unwrap_or(&nothing) == list) {
            return Ok(());
        }
        for op in committed.get(next).iter().flat_map(|t| &t.ops) {
            if let Op::Append { key, value } = op {
                lists.entry(key).or_default().push(*value);
            }
        }
    }
    Err(format!("shown at one time, and true at no one number: {reads:?}; in the end {lists:?}"))
}
