//! The checker against small stores whose isolation is known: it finds what they allow, and nothing that they forbid.

use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use systx_sim::history::{check_with, Class, History, Op, Outcome, Reads, Transaction};

#[derive(Clone, Copy, PartialEq)]
enum Isolation {
    /// Each transaction reads the state of its begin; it aborts if another one has since changed what it read
    /// or wrote.
    Serializable,
    /// It aborts only if another one has since changed what it wrote.
    Snapshot,
    /// It reads the state of its begin and never aborts: the later append goes on top.
    SnapshotWithoutConflicts,
    /// It reads whatever is committed right now.
    ReadCommitted,
    /// It reads and writes in place, and others see that at once.
    None,
}

type Lists = BTreeMap<String, Vec<u64>>;

struct Active {
    transaction: Transaction,
    snapshot: Lists,
    begun: usize,
    left: usize,
}

/// Interleaves transactions call by call; commits are instants.
fn run(isolation: Isolation, seed: u64) -> History {
    const PROCESSES: usize = 5;
    let mut rng = Rng::with_seed(seed);
    let mut lists: Lists = (0..4).map(|k| (format!("k{k}"), vec![])).collect();
    // The number of the commit that changed a list last.
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    let mut active: Vec<Option<Active>> = (0..PROCESSES).map(|_| None).collect();
    let mut history = History::default();
    let (mut commits, mut value, mut time) = (0, 0, 0);
    while history.transactions.len() < 60 {
        time += 1;
        let process = rng.usize(..PROCESSES);
        let Some(tx) = &mut active[process] else {
            let transaction = Transaction {
                process: process as u64,
                id: time,
                invoke: time,
                complete: None,
                outcome: Outcome::Unknown,
                ops: vec![],
            };
            active[process] =
                Some(Active { transaction, snapshot: lists.clone(), begun: commits, left: rng.usize(1..5) });
            continue;
        };
        if tx.left > 0 {
            tx.left -= 1;
            let key = format!("k{}", rng.usize(..4));
            if rng.bool() {
                value += 1;
                if isolation == Isolation::None {
                    lists.entry(key.clone()).or_default().push(value);
                }
                tx.transaction.ops.push(Op::Append { key, value });
                continue;
            }
            let mut list = match isolation {
                Isolation::ReadCommitted | Isolation::None => lists[&key].clone(),
                _ => tx.snapshot[&key].clone(),
            };
            for op in tx.transaction.ops.iter().filter(|_| isolation != Isolation::None) {
                match op {
                    Op::Append { key: other, value } if *other == key => list.push(*value),
                    _ => {}
                }
            }
            tx.transaction.ops.push(Op::Read { key, list });
            continue;
        }
        let Some(mut tx) = active[process].take() else { continue };
        let stale = |key: &String| changed.get(key).is_some_and(|&at| at > tx.begun);
        let conflict = tx.transaction.ops.iter().any(|op| match (op, isolation) {
            (Op::Append { key, .. }, Isolation::Serializable | Isolation::Snapshot) => stale(key),
            (Op::Read { key, .. }, Isolation::Serializable) => stale(key),
            _ => false,
        });
        tx.transaction.outcome = if conflict { Outcome::Aborted } else { Outcome::Committed };
        tx.transaction.complete = Some(time);
        if !conflict {
            commits += 1;
            for op in &tx.transaction.ops {
                if let Op::Append { key, value } = op {
                    changed.insert(key.clone(), commits);
                    if isolation != Isolation::None {
                        lists.entry(key.clone()).or_default().push(*value);
                    }
                }
            }
        }
        history.transactions.push(tx.transaction);
    }
    // Those that never committed left nothing, but in the store that writes in place.
    let open = active.into_iter().flatten().map(|tx| tx.transaction);
    history.transactions.extend(open);
    history.finals = lists;
    history
}

fn classes(isolation: Isolation, reads: Reads) -> BTreeSet<Class> {
    (0..300).flat_map(|seed| check_with(&run(isolation, seed), reads)).map(|anomaly| anomaly.class).collect()
}

#[test]
fn a_serializable_store_raises_no_alarm_not_even_for_opacity() {
    assert_eq!(classes(Isolation::Serializable, Reads::OfAll), BTreeSet::new());
}

#[test]
fn snapshot_isolation_shows_write_skew_and_nothing_worse() {
    let found = classes(Isolation::Snapshot, Reads::OfCommitted);
    assert!(found.contains(&Class::G2), "{found:?}");
    assert!(found.is_subset(&BTreeSet::from([Class::G2, Class::G2Realtime])), "{found:?}");
}

#[test]
fn a_snapshot_without_conflicts_loses_updates() {
    let found = classes(Isolation::SnapshotWithoutConflicts, Reads::OfCommitted);
    assert!(found.contains(&Class::GSingle), "{found:?}");
    assert!(found.is_disjoint(&BTreeSet::from([Class::G0, Class::G1a, Class::G1b, Class::G1c])), "{found:?}");
}

#[test]
fn read_committed_shows_skew_but_no_dirty_data() {
    let found = classes(Isolation::ReadCommitted, Reads::OfCommitted);
    assert!(found.contains(&Class::GSingle) && found.contains(&Class::Internal), "{found:?}");
    assert!(found.is_disjoint(&BTreeSet::from([Class::G0, Class::G1a, Class::G1b, Class::G1c])), "{found:?}");
}

#[test]
fn a_store_that_writes_in_place_shows_dirty_data_of_every_kind() {
    let found = classes(Isolation::None, Reads::OfCommitted);
    for class in [Class::G0, Class::G1b, Class::G1c] {
        assert!(found.contains(&class), "{class} is missing in {found:?}");
    }
}
