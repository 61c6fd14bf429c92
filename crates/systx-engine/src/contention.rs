//! Contention: the age that a piece of work keeps over its tries, so that work that loses again and again
//! gets through.
//!
//! A try that lost and is to be tried again announces what it has read: no younger transaction that would
//! change that commits before the next try does. Everything that it writes it has read, so its read set is
//! all that can make it lose. See docs/protocol.md §3, *Priority*.
//!
//! Owns: [`Age`], and the way from a transaction's end to its priority. Guarantees: only a transaction that
//! goes on holds the priority. Does not: promise anything against outsiders, or decide whether to try again.

use crate::domain::priority::PRIORITY_AGAIN_NS;
use crate::domain::waits::{self, AtEnd, Next, Try, TryEnd};
use crate::domain::{take_priority, Contender, Domain, Until};
use crate::id::{ObjectId, Objects, TxId};
use crate::mutant::{self, Mutant};
use crate::outcome::{Conflict, Party};
use std::sync::Arc;
use systx_os::Os;

/// How old a piece of work is: its ranks, one a mount, by nice value and number of its first try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age(Vec<TxId>);

/// A transaction's part in contention.
pub(crate) struct Contention {
    age: Age,
    nice: i8,
    which: Try,
    /// Set if it is to be tried again: when it began, on the monotonic clock, in nanoseconds.
    began_ns: Option<u64>,
}

/// Gives the read set of a transaction on a mount.
type Reads<'a> = &'a dyn Fn(usize) -> Vec<ObjectId>;

/// Waits before a further try of what began with `age` and has met these objects, on these mounts, until a better one
/// that holds the priority and has read one of them has got through; at most so long altogether.
pub fn stall<O: Os>(mounts: &[Arc<Domain<O>>], age: &Age, read: &[Objects], longest_ns: u64) {
    let Some(first) = mounts.first() else { return };
    let until_ns = first.os.monotonic_ns().saturating_add(longest_ns);
    for ((domain, me), read) in mounts.iter().zip(&age.0).zip(read) {
        // A table that makes no sense is reported by the try.
        let _ = domain.stall(*me, read, until_ns);
    }
}

impl Contention {
    /// Of a first try with these numbers. Mounts that share an area share one place for a holder of priority, and so
    /// one age.
    pub fn new<O: Os>(mounts: &[Arc<Domain<O>>], ids: &[TxId], nice: i8) -> Contention {
        let first = |key| mounts.iter().position(|domain| domain.key == key);
        let rank = |n: usize| waits::rank(nice, ids[n]);
        let age = mounts.iter().filter_map(|domain| first(domain.key).map(rank)).collect();
        Contention { age: Age(age), nice, which: Try::First, began_ns: None }
    }

    /// Takes in the last of `mounts`, where the transaction has this number. A further try keeps the age that
    /// it has inherited there.
    pub fn add_mount<O: Os>(&mut self, mounts: &[Arc<Domain<O>>], id: TxId) {
        let mount = mounts.len() - 1;
        let first = mounts.iter().position(|domain| domain.key == mounts[mount].key);
        if self.age.0.len() <= mount {
            let rank = waits::rank(self.nice, id);
            self.age.0.push(first.filter(|n| *n < mount).map_or(rank, |n| self.age.0[n]));
        }
    }

    /// Rank in the domain of a mount.
    pub fn age(&self, mount: usize) -> TxId {
        self.age.0.get(mount).copied().unwrap_or(TxId(0))
    }

    /// Makes this a further try of what began with `age`, unless that was over another number of mounts.
    pub fn inherit(&mut self, age: &Age, mounts: usize) {
        if age.0.len() == mounts {
            self.age = age.clone();
            self.which = Try::Further;
        }
    }

    /// Says that it is tried again if it loses; at the first call it begins, at `now_ns` on the monotonic clock. The age
    /// that the next try inherits.
    pub fn will_be_tried_again(&mut self, now_ns: u64) -> Age {
        self.began_ns.get_or_insert(now_ns);
        self.age.clone()
    }

    /// The end of a try: takes priority if it lost to another transaction and is tried again; else it has it no more.
    pub fn end<O: Os>(&self, mounts: &[Arc<Domain<O>>], reads: Reads<'_>, lost: Option<&Conflict>) {
        let lost = lost.is_some_and(|conflict| conflict.with != Party::Outsider);
        let end = if lost && !mutant::on(Mutant::AgeNotKept) { TryEnd::Lost } else { TryEnd::Otherwise };
        let next = if self.began_ns.is_some() { Next::AnotherTry } else { Next::Nothing };
        match waits::at_end(end, next, self.which) {
            AtEnd::Ask => self.ask(mounts, reads),
            AtEnd::Resign => self.resign(mounts),
            AtEnd::Nothing => {}
        }
    }

    /// Gives up the priority, if it has it, and wakes those that wait for it: before a wait of its own, whose end does
    /// not depend on them.
    pub fn resign<O: Os>(&self, mounts: &[Arc<Domain<O>>]) {
        for (mount, domain) in mounts.iter().enumerate() {
            domain.table.priority().resign(self.age(mount));
        }
    }

    fn ask<O: Os>(&self, mounts: &[Arc<Domain<O>>], reads: Reads<'_>) {
        // Of its mounts a transaction has seen the root, at least.
        let mut used: Vec<usize> = (0..mounts.len()).filter(|mount| reads(*mount).len() > 1).collect();
        used.sort_by_key(|mount| mounts[*mount].key);
        let mut asking = Vec::new();
        for together in used.chunk_by(|a, b| mounts[*a].key == mounts[*b].key) {
            let read = together.iter().flat_map(|mount| reads(*mount)).collect();
            let footprint = Objects { read, ..Objects::default() }.footprint();
            let mount = together[0];
            asking.push(Contender { domain: &mounts[mount], age: self.age(mount), footprint });
        }
        let Some(domain) = mounts.first() else { return };
        let now_ns = domain.os.monotonic_ns();
        let ran_ns = self.began_ns.map_or(0, |began_ns| now_ns.saturating_sub(began_ns));
        let [least, most] = PRIORITY_AGAIN_NS;
        // Without an answer, the work competes like any other.
        let _ = take_priority(&asking, Until::Anew(ran_ns.saturating_mul(2).clamp(least, most)));
    }
}
