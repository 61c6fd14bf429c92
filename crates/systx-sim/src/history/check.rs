//! From versions to dependencies, from dependencies to cycles, from cycles to sentences.

use super::graph::{Edge, Graph, Hop};
use super::versions::{Reads, Versions};
use super::{Anomaly, Class, History, Outcome};

/// Edges tried in one knot before it is left to the next class; a bound on the work, not on what is found at all.
const TRIES: usize = 512;
/// Cycles found in one knot before the shortest is shown.
const CANDIDATES: usize = 8;

/// Finds what no strictly serial order of the committed transactions explains. Empty = nothing found.
pub fn check(history: &History) -> Vec<Anomaly> {
    check_with(history, Reads::OfCommitted)
}

/// Like [`check`], for a choice of the reads that count.
pub fn check_with(history: &History, reads: Reads) -> Vec<Anomaly> {
    let mut versions = Versions::new(history, reads);
    let mut anomalies = std::mem::take(&mut versions.anomalies);
    let graph = dependencies(history, &versions);
    let mut shown = vec![false; history.transactions.len()];
    for level in LEVELS {
        for component in graph.components(level.knot) {
            let known = component.iter().any(|&node| shown.get(node as usize).is_some_and(|&shown| shown));
            let Some(cycle) = (!known).then(|| cycle(&graph, &component, &level)).flatten() else { continue };
            for &(node, _) in &cycle {
                if let Some(shown) = shown.get_mut(node as usize) {
                    *shown = true;
                }
            }
            anomalies.push(Anomaly { class: level.class, explanation: explain(history, &versions, &cycle) });
        }
    }
    anomalies
}

/// A class as what its cycles are made of: one edge of `through`, the others of `rest`.
struct Level {
    class: Class,
    /// Colours in whose components to look.
    knot: u8,
    through: u8,
    rest: u8,
}

const fn level(class: Class, through: u8, rest: u8) -> Level {
    Level { class, knot: through | rest, through, rest }
}

const WRITES: u8 = Edge::OVERWRITES;
const INFORMATION: u8 = Edge::OVERWRITES | Edge::READ_BY;
const ALL: u8 = INFORMATION | Edge::MISSED_BY;
const TIME: u8 = Edge::TIME;

const LEVELS: [Level; 8] = [
    level(Class::G0, WRITES, WRITES),
    level(Class::G1c, Edge::READ_BY, INFORMATION),
    level(Class::GSingle, Edge::MISSED_BY, INFORMATION),
    level(Class::G2, Edge::MISSED_BY, ALL),
    level(Class::G0Realtime, WRITES, WRITES | TIME),
    level(Class::G1cRealtime, Edge::READ_BY, INFORMATION | TIME),
    level(Class::GSingleRealtime, Edge::MISSED_BY, INFORMATION | TIME),
    level(Class::G2Realtime, Edge::MISSED_BY, ALL | TIME),
];

fn dependencies(history: &History, versions: &Versions<'_>) -> Graph {
    let transactions = &history.transactions;
    let mut graph = Graph::new(transactions.len());
    let took_effect =
        |tx: u32| versions.counts[tx as usize] && transactions[tx as usize].outcome != Outcome::Aborted;
    let mut owners = Vec::with_capacity(versions.orders.len());
    for (key, order) in versions.orders.iter().enumerate() {
        let key = key as u32;
        let of =
            |value: &u64| versions.appends.get(&(key, *value)).map(|a| a.tx).filter(|&tx| took_effect(tx));
        let owner: Vec<Option<u32>> = order.iter().map(of).collect();
        let mut last = None;
        for (&after, tx) in order.iter().zip(&owner).filter_map(|(value, tx)| Some((value, (*tx)?))) {
            if let Some((from, before)) = last {
                graph.add(from, tx, Edge::Overwrites { key, before, after });
            }
            last = Some((tx, after));
        }
        owners.push(owner);
    }
    for read in &versions.reads {
        let (key, owner) = (read.key, &owners[read.key as usize]);
        let order = versions.orders[key as usize];
        let (seen, missed) = owner.split_at(read.list.len());
        if let Some(at) = seen.iter().rposition(Option::is_some) {
            if let Some(writer) = seen[at] {
                graph.add(writer, read.tx, Edge::ReadBy { key, value: order[at] });
            }
        }
        if let Some(at) = missed.iter().position(Option::is_some) {
            if let Some(writer) = missed[at] {
                graph.add(read.tx, writer, Edge::MissedBy { key, value: order[seen.len() + at] });
            }
        }
    }
    add_time(history, versions, &mut graph);
    graph
}

/// Orders a transaction that returned before another one began before that one. An unknown outcome may take
/// effect at any later time.
fn add_time(history: &History, versions: &Versions<'_>, graph: &mut Graph) {
    let counted = || history.transactions.iter().enumerate().filter(|(tx, _)| versions.counts[*tx]);
    let mut returns: Vec<(u64, u32)> = counted()
        .filter(|(_, t)| t.outcome != Outcome::Unknown)
        .filter_map(|(tx, t)| Some((t.complete?, tx as u32)))
        .collect();
    returns.sort_unstable();
    let mut line: Vec<u32> = Vec::with_capacity(returns.len());
    for &(_, tx) in &returns {
        let node = graph.add_node();
        if let Some(&before) = line.last() {
            graph.add(before, node, Edge::Time);
        }
        graph.add(tx, node, Edge::Time);
        line.push(node);
    }
    for (tx, transaction) in counted() {
        let before = returns.partition_point(|&(at, _)| at < transaction.invoke);
        if before > 0 {
            graph.add(line[before - 1], tx as u32, Edge::Time);
        }
    }
}

/// A short cycle through one edge of `through` within the component.
fn cycle(graph: &Graph, component: &[u32], level: &Level) -> Option<Vec<Hop>> {
    let members: std::collections::HashSet<u32> = component.iter().copied().collect();
    let inside = |node: u32| members.contains(&node);
    let edges = component
        .iter()
        .flat_map(|&from| graph.from(from, level.through).map(move |(to, edge)| (from, to, edge)));
    let cycles = edges.filter(|&(_, to, _)| inside(to)).take(TRIES).filter_map(|(from, to, edge)| {
        let mut hops = vec![(from, edge)];
        hops.extend(graph.path(to, from, level.rest, &inside)?);
        Some(hops)
    });
    cycles.take(CANDIDATES).min_by_key(Vec::len)
}

fn explain(history: &History, versions: &Versions<'_>, cycle: &[Hop]) -> String {
    let transaction = |node: u32| history.transactions.get(node as usize);
    // The time line's own nodes are skipped: from the one who returned straight to the one who began.
    let hops: Vec<&Hop> = cycle.iter().filter(|(node, _)| transaction(*node).is_some()).collect();
    let mut sentences = Vec::new();
    for (i, &&(from, edge)) in hops.iter().enumerate() {
        let to = hops[(i + 1) % hops.len()].0;
        let (Some(a), Some(b)) = (transaction(from), transaction(to)) else { continue };
        let (from, to) = (a.name(), b.name());
        let name = |key: u32| versions.names[key as usize];
        sentences.push(match edge {
            Edge::Overwrites { key, before, after } => {
                format!("{from} < {to}: in {} {to}'s {after} follows {from}'s {before}", name(key))
            }
            Edge::ReadBy { key, value } => {
                format!("{from} < {to}: {to} saw {from}'s {value} in {}", name(key))
            }
            Edge::MissedBy { key, value } => {
                format!("{from} < {to}: {from} read {} without {to}'s {value}", name(key))
            }
            Edge::Time => {
                let at = a.complete.unwrap_or_default();
                format!("{from} < {to}: {from} returned at {at}, {to} began at {}", b.invoke)
            }
        });
    }
    sentences.join("; ")
}
