//! Clean histories, serial and concurrent ones, raise no alarm; one change to a clean one does; size costs little.

use fastrand::Rng;
use std::collections::BTreeMap;
use systx_sim::history::text::{parse, parse_all};
use systx_sim::history::{check, check_with, Class, History, Op, Outcome, Reads, Transaction};

struct Shape {
    transactions: usize,
    processes: usize,
    keys: usize,
    ops_max: usize,
    /// Lists longer than this are left alone, so that the size of a history stays linear.
    list_max: usize,
}

const SMALL: Shape = Shape { transactions: 60, processes: 4, keys: 5, ops_max: 5, list_max: 40 };

/// Runs transactions one at a time, each at an instant of its own, on real lists.
///
/// What a process knows is an interval around that instant, so the intervals of different processes overlap
/// while the order of the instants explains everything. Some abort (their appends do nothing), and some are
/// killed on either side of their instant. A process begins nothing before its last transaction has ended.
fn clean(rng: &mut Rng, shape: &Shape) -> History {
    let mut lists: BTreeMap<String, Vec<u64>> = (0..shape.keys).map(|k| (format!("k{k}"), vec![])).collect();
    let mut free_at = vec![0; shape.processes];
    let mut history = History::default();
    let mut value = 0;
    for n in 0..shape.transactions {
        let instant = (n as u64 + 1) * 10;
        let free: Vec<usize> = (0..free_at.len()).filter(|&p| free_at[p] < instant).collect();
        let process = free[rng.usize(..free.len())];
        let invoke = rng.u64(free_at[process].max(instant.saturating_sub(60))..instant);
        // One process at least is free at the next instant.
        let complete = instant + 1 + rng.u64(..if free.len() == 1 { 8 } else { 60 });
        free_at[process] = complete + 1;
        let (outcome, takes_effect) = match rng.u8(..10) {
            0 => (Outcome::Aborted, false),
            1 => (Outcome::Unknown, rng.bool()),
            _ => (Outcome::Committed, true),
        };
        let mut ops = Vec::new();
        for _ in 0..rng.usize(1..=shape.ops_max) {
            let key = format!("k{}", rng.usize(..shape.keys));
            let list = lists.get_mut(&key).expect("every key has a list");
            if rng.bool() && list.len() < shape.list_max {
                value += 1;
                list.push(value);
                ops.push(Op::Append { key, value });
            } else {
                ops.push(Op::Read { key, list: list.clone() });
            }
        }
        for op in ops.iter().rev().filter(|_| !takes_effect) {
            if let Op::Append { key, .. } = op {
                lists.get_mut(key).expect("every key has a list").pop();
            }
        }
        let complete = (outcome != Outcome::Unknown).then_some(complete);
        history.transactions.push(Transaction {
            process: process as u64,
            id: n as u64,
            invoke,
            complete,
            outcome,
            ops,
        });
    }
    history.finals = lists;
    history
}

#[test]
fn clean_serial_histories_raise_no_alarm() {
    for seed in 0..200 {
        let history = clean(&mut Rng::with_seed(seed), &Shape { processes: 1, ..SMALL });
        assert_eq!(check_with(&history, Reads::OfAll), [], "seed {seed}\n{history}");
    }
}

#[test]
fn clean_concurrent_histories_raise_no_alarm() {
    for seed in 0..500 {
        let mut rng = Rng::with_seed(seed);
        let shape = Shape { processes: rng.usize(2..9), keys: rng.usize(1..8), ..SMALL };
        let mut history = clean(&mut rng, &shape);
        rng.shuffle(&mut history.transactions);
        assert_eq!(check_with(&history, Reads::OfAll), [], "seed {seed}\n{history}");
    }
}

#[test]
fn a_committed_read_that_loses_its_newest_element_is_noticed() {
    let mut noticed = 0;
    let mut changed = 0;
    for seed in 0..200 {
        let mut history = clean(&mut Rng::with_seed(seed), &Shape { processes: 1, ..SMALL });
        let committed = history.transactions.iter_mut().filter(|t| t.outcome == Outcome::Committed);
        // The first call, so that the list shows only what others appended.
        let list = committed.filter_map(|t| t.ops.first_mut()).find_map(|op| match op {
            Op::Read { list, .. } if !list.is_empty() => Some(list),
            _ => None,
        });
        let Some(list) = list else { continue };
        list.pop();
        changed += 1;
        noticed += usize::from(!check(&history).is_empty());
    }
    // The newest element may be of a killed transaction, which may well have taken effect only after that read.
    assert!(changed > 150 && noticed * 10 > changed * 8, "{noticed} of {changed}");
}

#[test]
fn a_committed_append_that_disappears_is_always_noticed() {
    for seed in 0..200 {
        let mut history = clean(&mut Rng::with_seed(seed), &SMALL);
        let committed = history.transactions.iter().filter(|t| t.outcome == Outcome::Committed);
        let append = committed.flat_map(|t| &t.ops).find_map(|op| match op {
            Op::Append { key, value } => Some((key.clone(), *value)),
            Op::Read { .. } => None,
        });
        let (key, value) = append.expect("somebody appends");
        history.finals.get_mut(&key).expect("every key has a final state").retain(|&v| v != value);
        assert!(check(&history).iter().any(|a| a.class == Class::LostAppend), "seed {seed}");
    }
}

#[test]
fn files_of_several_processes_merge_to_the_same_verdict() {
    let history = clean(&mut Rng::with_seed(7), &SMALL);
    let mut files: BTreeMap<u64, String> = BTreeMap::new();
    for transaction in &history.transactions {
        let text = files.entry(transaction.process).or_default();
        // A real process writes it twice: before the commit with an unknown outcome, then again.
        let before = Transaction { outcome: Outcome::Unknown, complete: None, ..transaction.clone() };
        *text += &format!("{before}\n{transaction}\n");
    }
    let finals = History { finals: history.finals.clone(), ..History::default() }.to_string();
    let merged = parse_all(files.values().map(String::as_str).chain([finals.as_str()])).expect("well-formed");
    assert_eq!(merged.transactions.len(), history.transactions.len());
    assert_eq!(merged.finals, history.finals);
    assert_eq!(check(&merged), []);
    assert_eq!(parse(&history.to_string()).expect("well-formed"), history);
}

#[test]
fn a_hundred_thousand_operations_are_checked() {
    let shape = Shape { transactions: 40_000, processes: 16, keys: 4_000, ops_max: 5, list_max: 20 };
    let mut rng = Rng::with_seed(1);
    let mut history = clean(&mut rng, &shape);
    let ops: usize = history.transactions.iter().map(|t| t.ops.len()).sum();
    assert!(ops > 100_000, "{ops}");
    assert_eq!(check_with(&history, Reads::OfAll), []);
    // One knot through everything: the first transaction misses what the last one appended, and the other way round.
    let (first, last) = (0, history.transactions.len() - 1);
    for (at, reads, appends, value) in [(first, "p", "q", u64::MAX), (last, "q", "p", u64::MAX - 1)] {
        let transaction = &mut history.transactions[at];
        transaction.outcome = Outcome::Committed;
        transaction.complete = Some(transaction.complete.unwrap_or(u64::MAX));
        transaction.ops =
            vec![Op::Read { key: reads.into(), list: vec![] }, Op::Append { key: appends.into(), value }];
        history.finals.insert(appends.into(), vec![value]);
    }
    let classes: Vec<Class> = check(&history).iter().map(|a| a.class).filter(|c| *c == Class::G2).collect();
    assert_eq!(classes, [Class::G2]);
}
