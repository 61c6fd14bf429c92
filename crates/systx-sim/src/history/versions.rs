//! Conclusions from the values alone: which transaction appended what, the order of each list, and every
//! anomaly that needs no cycle.

use super::{Anomaly, Class, History, Op, Outcome, Value};
use std::collections::{HashMap, HashSet};

/// Transactions whose reads have to fit into the serial order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Strict serializability.
    OfCommitted,
    /// Opacity: also what aborted transactions and those that were cut off have been shown.
    OfAll,
}

/// An append.
#[derive(Clone, Copy)]
pub(super) struct Append {
    pub tx: u32,
    /// It is the transaction's last one to this key.
    last: bool,
}

/// The part of a read that others wrote: a prefix of the version order of its key.
pub(super) struct Read<'h> {
    pub tx: u32,
    pub key: u32,
    pub list: &'h [Value],
}

/// Everything that the graph is built from.
pub(super) struct Versions<'h> {
    pub names: Vec<&'h str>,
    pub appends: HashMap<(u32, Value), Append>,
    /// The longest known state of each list.
    pub orders: Vec<&'h [Value]>,
    /// External reads that agree with the order.
    pub reads: Vec<Read<'h>>,
    /// For each transaction: true if it took effect, or at least its reads count.
    pub counts: Vec<bool>,
    pub anomalies: Vec<Anomaly>,
}

impl<'h> Versions<'h> {
    pub fn new(history: &'h History, reads: Reads) -> Self {
        let mut keys = Keys::default();
        let mut v = Versions {
            names: Vec::new(),
            appends: HashMap::new(),
            orders: Vec::new(),
            reads: Vec::new(),
            counts: Vec::new(),
            anomalies: Vec::new(),
        };
        v.collect_appends(history, &mut keys);
        let finals: Vec<(u32, &[Value])> =
            history.finals.iter().map(|(key, list)| (keys.number(key), list.as_slice())).collect();
        let external = v.collect_reads(history, &mut keys);
        v.names = keys.names;
        v.decide_effects(history, &external, &finals, reads);
        v.order(history, external, &finals);
        v.check_lists(history);
        v.check_finals(history, &finals);
        v
    }

    fn report(&mut self, class: Class, explanation: String) {
        self.anomalies.push(Anomaly { class, explanation });
    }

    fn collect_appends(&mut self, history: &'h History, keys: &mut Keys<'h>) {
        for (tx, transaction) in history.transactions.iter().enumerate() {
            let mut lasts: HashMap<u32, Value> = HashMap::new();
            for op in &transaction.ops {
                let Op::Append { key, value } = op else { continue };
                let (number, value) = (keys.number(key), *value);
                if let Some(before) = lasts.insert(number, value) {
                    if let Some(append) = self.appends.get_mut(&(number, before)) {
                        append.last &= append.tx != tx as u32;
                    }
                }
                let append = Append { tx: tx as u32, last: true };
                if let Some(other) = self.appends.insert((number, value), append) {
                    let (a, b) = (history.transactions[other.tx as usize].name(), transaction.name());
                    self.report(Class::DuplicateAppend, format!("{a} and {b} both append {value} to {key}"));
                }
            }
        }
    }

    /// Checks each transaction against itself and returns what it read of others.
    fn collect_reads(&mut self, history: &'h History, keys: &mut Keys<'h>) -> Vec<Read<'h>> {
        let mut external = Vec::new();
        for (tx, transaction) in history.transactions.iter().enumerate() {
            let mut own: HashMap<u32, Vec<Value>> = HashMap::new();
            let mut seen: HashMap<u32, &'h [Value]> = HashMap::new();
            for op in &transaction.ops {
                let (key, list) = match op {
                    Op::Append { key, value } => {
                        own.entry(keys.number(key)).or_default().push(*value);
                        continue;
                    }
                    Op::Read { key, list } => (key, list.as_slice()),
                };
                let number = keys.number(key);
                let mine = own.get(&number).map_or(&[][..], Vec::as_slice);
                let Some(theirs) = list.strip_suffix(mine) else {
                    let name = transaction.name();
                    let text = format!(
                        "{name} appended {mine:?} to {key}, then read {list:?}, which does not end so"
                    );
                    self.report(Class::Internal, text);
                    continue;
                };
                match seen.insert(number, theirs) {
                    None => external.push(Read { tx: tx as u32, key: number, list: theirs }),
                    Some(before) if before == theirs => {}
                    Some(before) => {
                        let name = transaction.name();
                        let text = format!(
                            "{name} read {key} as {before:?} and then as {theirs:?} (without its own)"
                        );
                        self.report(Class::Internal, text);
                    }
                }
            }
        }
        external
    }

    /// Counts an unknown outcome as a commit as soon as a transaction that counts saw one of its appends.
    fn decide_effects(
        &mut self,
        history: &History,
        external: &[Read<'h>],
        finals: &[(u32, &'h [Value])],
        reads: Reads,
    ) {
        let committed = |tx: u32| history.transactions[tx as usize].outcome == Outcome::Committed;
        let counts = |tx: usize| match reads {
            Reads::OfCommitted => committed(tx as u32),
            Reads::OfAll => true,
        };
        self.counts = (0..history.transactions.len()).map(counts).collect();
        // The longest read of a key shows all that shorter ones of the same order show.
        let mut longest: HashMap<u32, &[Value]> = HashMap::new();
        let shown = external.iter().filter(|r| committed(r.tx)).map(|r| (r.key, r.list));
        for (key, list) in shown.chain(finals.iter().copied()) {
            let best = longest.entry(key).or_insert(list);
            if list.len() > best.len() {
                *best = list;
            }
        }
        for (key, list) in longest {
            for &value in list {
                if let Some(append) = self.appends.get(&(key, value)) {
                    let unknown = history.transactions[append.tx as usize].outcome == Outcome::Unknown;
                    self.counts[append.tx as usize] |= unknown;
                }
            }
        }
    }

    fn order(&mut self, history: &'h History, external: Vec<Read<'h>>, finals: &[(u32, &'h [Value])]) {
        let external: Vec<Read> = external.into_iter().filter(|r| self.counts[r.tx as usize]).collect();
        let mut orders: Vec<(&[Value], String)> = vec![(&[], "nobody".into()); self.names.len()];
        // The final state last: among equally long ones the first stays, and it is a transaction's name that helps.
        for read in &external {
            let order = &mut orders[read.key as usize];
            if read.list.len() > order.0.len() {
                *order = (read.list, history.transactions[read.tx as usize].name());
            }
        }
        for &(key, list) in finals {
            if list.len() > orders[key as usize].0.len() {
                orders[key as usize] = (list, "the final state".into());
            }
        }
        let mut reported = HashSet::new();
        let mut differs = |v: &mut Self, key: u32, list: &[Value], who: String| {
            let (order, by) = &orders[key as usize];
            if order.starts_with(list) {
                return false;
            }
            if reported.insert(key) {
                let name = v.names[key as usize];
                let text = format!(
                    "{who} saw {name} as {list:?}, {by} as {order:?}: neither is a prefix of the other"
                );
                v.report(Class::IncompatibleOrder, text);
            }
            true
        };
        for read in external {
            if !differs(self, read.key, read.list, history.transactions[read.tx as usize].name()) {
                self.reads.push(read);
            }
        }
        for &(key, list) in finals {
            differs(self, key, list, "the final state".into());
        }
        self.orders = orders.into_iter().map(|(order, _)| order).collect();
    }

    /// Finds values that should not be in any list, and reads that end in the middle of a transaction's
    /// appends.
    fn check_lists(&mut self, history: &History) {
        let name = |tx: u32| history.transactions[tx as usize].name();
        for key in 0..self.names.len() {
            let mut seen = HashSet::new();
            for &value in self.orders[key] {
                let text = self.names[key];
                let append = self.appends.get(&(key as u32, value)).copied();
                if !seen.insert(value) {
                    self.report(Class::DuplicateAppend, format!("{value} stands twice in {text}"));
                }
                match append {
                    None => {
                        self.report(Class::Unborn, format!("{value} is in {text}, but nobody appended it"))
                    }
                    Some(Append { tx, .. })
                        if history.transactions[tx as usize].outcome == Outcome::Aborted =>
                    {
                        let by = self.first_reader(key as u32, value).map_or("the final state".into(), name);
                        let text =
                            format!("{by} saw {value} in {text}, which {} appended and aborted", name(tx));
                        self.report(Class::G1a, text);
                    }
                    Some(_) => {}
                }
            }
        }
        let mut found = Vec::new();
        for read in &self.reads {
            let Some(&value) = read.list.last() else { continue };
            if let Some(append) = self.appends.get(&(read.key, value)).filter(|a| !a.last && a.tx != read.tx)
            {
                let (reader, writer, key) = (name(read.tx), name(append.tx), self.names[read.key as usize]);
                found.push(format!("{reader} saw {key} end with {value}, to which {writer} appended more"));
            }
        }
        found.into_iter().for_each(|text| self.report(Class::G1b, text));
    }

    fn first_reader(&self, key: u32, value: Value) -> Option<u32> {
        self.reads.iter().find(|r| r.key == key && r.list.contains(&value)).map(|r| r.tx)
    }

    fn check_finals(&mut self, history: &History, finals: &[(u32, &[Value])]) {
        let mut there: HashMap<u32, HashSet<Value>> = HashMap::new();
        for &(key, list) in finals {
            there.insert(key, list.iter().copied().collect());
        }
        let mut appends: Vec<_> =
            self.appends.iter().map(|(&(key, value), append)| (append.tx, key, value)).collect();
        appends.sort_unstable();
        let mut found = Vec::new();
        for of_one in appends.chunk_by(|a, b| a.0 == b.0) {
            let transaction = &history.transactions[of_one[0].0 as usize];
            let known = of_one
                .iter()
                .filter_map(|&(_, key, value)| Some((there.get(&key)?.contains(&value), key, value)));
            let (kept, lost): (Vec<_>, Vec<_>) = known.partition(|&(is_there, ..)| is_there);
            let Some(&(_, key, value)) = lost.first() else { continue };
            let (name, key) = (transaction.name(), self.names[key as usize]);
            match (transaction.outcome, kept.first()) {
                (Outcome::Committed, _) => {
                    found.push((
                        Class::LostAppend,
                        format!("{name} committed, but {value} is not in the final {key}"),
                    ));
                }
                (Outcome::Unknown, Some(&(_, other, kept))) => {
                    let other = self.names[other as usize];
                    let text = format!(
                        "of {name} (outcome unknown) {kept} is in {other}, but {value} is not in {key}"
                    );
                    found.push((Class::Torn, text));
                }
                _ => {}
            }
        }
        found.into_iter().for_each(|(class, text)| self.report(class, text));
    }
}

/// Keys as small numbers.
#[derive(Default)]
struct Keys<'h> {
    names: Vec<&'h str>,
    numbers: HashMap<&'h str, u32>,
}

impl<'h> Keys<'h> {
    fn number(&mut self, key: &'h str) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.names.push(key);
            self.names.len() as u32 - 1
        })
    }
}
