//! Work of the processes of a run, the outcomes reported to them, and how far they got as the table shows it.
//!
//! A *chain* is what one process does below a directory of its own: transactions one after another, each on
//! what the one before left. How that directory looks after each is learnt beforehand, undisturbed.

use super::watch::{Fs, Moment};
use crate::domain::SlotState;
use crate::id::TxId;
use std::collections::{BTreeMap, BTreeSet};
use systx_sim::machine::Tree;

/// The end of a transaction, as reported to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Committed,
    Aborted,
}

/// The transactions of one process.
pub(super) struct Chain {
    /// Everything that they change is below this directory, on every file system.
    pub top: &'static str,
    /// How it looks after so many of them.
    pub states: Vec<Tree>,
    /// Which of them are durable.
    pub durable: Vec<bool>,
    pub pid: Option<u32>,
    pub told: Vec<Told>,
    /// The next one has begun.
    under_way: bool,
    /// Those that have passed their commit point.
    past: BTreeSet<usize>,
    /// Their numbers on each file system.
    pub ids: BTreeMap<(usize, TxId), usize>,
}

impl Chain {
    pub(super) fn new(top: &'static str, states: Vec<Tree>, durable: Vec<bool>) -> Chain {
        let (told, past, ids) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        Chain { top, states, durable, pid: None, told, under_way: false, past, ids }
    }

    /// Number of transactions that have happened by the reported outcomes.
    pub(super) fn base(&self) -> usize {
        self.told.iter().filter(|told| **told == Told::Committed).count()
    }

    /// The one that has begun and has no answer yet.
    pub(super) fn current(&self) -> Option<usize> {
        self.under_way.then_some(self.told.len())
    }

    pub(super) fn is_past(&self, n: usize) -> bool {
        self.past.contains(&n)
    }

    /// Number of transactions that have happened for the living: one more than reported, if that one is past
    /// its commit point.
    pub(super) fn here(&self) -> usize {
        self.base() + usize::from(self.current().is_some_and(|n| self.is_past(n)))
    }

    /// How many may have happened after a power loss.
    pub(super) fn possible(&self) -> std::ops::RangeInclusive<usize> {
        self.base()..=self.base() + usize::from(self.under_way)
    }

    pub(super) fn all_durable(&self) -> bool {
        self.durable.iter().all(|durable| *durable)
    }

    /// The share of this chain in what the file systems hold.
    pub(super) fn part_of(&self, trees: &[Tree]) -> Tree {
        part_of(trees, self.top)
    }

    /// Which state it is, if it is one.
    pub(super) fn state_of(&self, trees: &[Tree]) -> Option<usize> {
        let part = self.part_of(trees);
        self.states.iter().position(|state| *state == part)
    }

    /// Returns what a state holds on one file system.
    pub(super) fn on(&self, state: usize, fs: usize) -> Tree {
        let own = format!("{fs}:");
        self.states[state].iter().filter(|(path, _)| path.starts_with(&own)).map(clone).collect()
    }

    /// How a tree differs from a state, for messages.
    pub(super) fn difference(&self, state: usize, trees: &[Tree]) -> Vec<String> {
        let (expected, found) = (&self.states[state], self.part_of(trees));
        let paths: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
        paths.into_iter().filter(|p| expected.get(*p) != found.get(*p)).cloned().collect()
    }
}

fn clone<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

/// Returns what is below a directory on all file systems; the number of the file system stands before each
/// path.
pub(super) fn part_of(trees: &[Tree], top: &str) -> Tree {
    let below =
        |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let all = trees.iter().enumerate().flat_map(|(fs, tree)| {
        let own = tree.iter().filter(|(path, _)| below(path));
        own.map(move |(path, look)| (format!("{fs}:{path}"), look.clone()))
    });
    all.collect()
}

/// All chains of a run.
#[derive(Default)]
pub(super) struct Book {
    pub chains: Vec<Chain>,
    /// Paths in no chain, and in which state they are to stay.
    pub others: Tree,
}

impl Book {
    pub(super) fn begin(&mut self, chain: usize, pid: u32) {
        let chain = &mut self.chains[chain];
        (chain.pid, chain.under_way) = (Some(pid), true);
    }

    pub(super) fn end(&mut self, chain: usize, told: Told) {
        let chain = &mut self.chains[chain];
        chain.told.push(told);
        chain.under_way = false;
    }

    /// Learns from the log of a machine that was down about each transaction under way: it is past its commit
    /// point, or never happened.
    pub(super) fn rebooted(&mut self, logs: &[BTreeSet<TxId>]) {
        for chain in &mut self.chains {
            let Some(current) = chain.current() else { continue };
            let numbers = chain.ids.iter().filter(|(_, n)| **n == current);
            let found = numbers.into_iter().any(|((fs, id), _)| logs[*fs].contains(id));
            if found {
                chain.past.insert(current);
            } else {
                chain.past.remove(&current);
            }
        }
    }

    /// Learns from the slots who is how far.
    pub(super) fn learn(&mut self, now: &Moment<'_>) {
        for (fs, Fs { slots, .. }) in now.fs.iter().enumerate() {
            for slot in slots {
                let known = |c: &&mut Chain| c.pid == Some(slot.info.pid) && c.current().is_some();
                let Some(chain) = self.chains.iter_mut().find(known) else { continue };
                let Some(current) = chain.current() else { continue };
                chain.ids.insert((fs, slot.info.tx), current);
                if slot.seen.state() == SlotState::Publishing {
                    chain.past.insert(current);
                }
            }
        }
    }

    /// Returns the owner of a number: chain, and which of its transactions.
    pub(super) fn label(&self, fs: usize, id: TxId) -> Option<(usize, usize)> {
        let chains = self.chains.iter().enumerate();
        chains.into_iter().find_map(|(n, chain)| chain.ids.get(&(fs, id)).map(|at| (n, *at)))
    }

    /// Returns what stands in no chain, as it is now.
    pub(super) fn others_in(&self, trees: &[Tree]) -> Tree {
        let mut all: Tree = part_of_all(trees);
        for chain in &self.chains {
            let own = chain.part_of(trees);
            all.retain(|path, _| !own.contains_key(path));
        }
        all
    }
}

fn part_of_all(trees: &[Tree]) -> Tree {
    let all = trees.iter().enumerate();
    let named = |(fs, tree): (usize, &Tree)| -> Vec<_> {
        tree.iter().map(|(path, look)| (format!("{fs}:{path}"), look.clone())).collect()
    };
    all.flat_map(named).collect()
}
