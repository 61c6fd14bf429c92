//! Cooperating transactions: R1 and R2 of running, V2, V3, V5 of validation, F as an abort by chance, U, D,
//! kill and helper.
//!
//! Guarantees, if the exploration is clean: the decided transactions are strictly serializable, every running
//! one was shown only states that one instant explains (opacity), no transaction waits for ever. Commit is
//! taken apart as far as others can see it: V5 is two steps (active entry visible, then `next`), a refresh
//! reads `next` and the ring, waits for active entries and then compares one fact a step. Signatures are
//! exact or, with `collide`, one single bit: every hit that a Bloom filter could invent. Does not do:
//! outsiders (see `crash`, `outsiders`), power loss (`redo`), which transaction wins (`liveness`), the scan
//! of the active entries one by one.
//!
//! A listing is written commutingly: its value is the set of transactions whose entry is in it, and the call
//! that makes the entry changes the listing.

use super::checker::{Emit, Model};
pub use super::workloads::{Announced, Program, Workload, PAGES, WORKLOADS};
use super::workloads::{WHOLE_READ, WHOLE_WRITTEN};
use super::Mutant;

/// One configuration.
#[derive(Debug)]
pub struct Cooperation {
    /// Programs of the transactions.
    pub workload: &'static Workload,
    /// Every signature meets every other one.
    pub collide: bool,
    /// Entries the ring holds before a reader finds itself overrun.
    pub ring_len: u8,
    /// The owner of an active entry may be killed; a helper finishes it.
    pub kills: bool,
    /// F may find that an outsider changed something.
    pub outsider_aborts: bool,
    /// F compares the facts. Without it V3 and the wait for slots stand alone, which is how their mutants show.
    pub final_look: bool,
    /// Checks I2 (no two in-flight transactions overlap) as well.
    pub check_overlap: bool,
    /// Checks that nobody waits at V2 for one that touches other pages.
    pub check_precision: bool,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// No order of the decided transactions explains what they read.
pub const NOT_SERIALIZABLE: &str = "strict serializability: cycle among the decided transactions";
/// A transaction that still runs holds facts that were never true together.
pub const NOT_OPAQUE: &str = "opacity: a running transaction was shown an inconsistent state";
/// Two that have nothing to do with each other wait for each other.
pub const NEEDLESS: &str = "precision: a transaction waits for one that touches other pages";
/// I2 of docs/protocol.md.
pub const OVERLAP: &str = "I2: two overlapping transactions are in flight";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Begin,
    /// R1 (1): wait for the slots that hit the object.
    Slots,
    /// R1 (2).
    Look,
    /// R2: read `next` and the ring.
    Ring,
    /// R2: wait for the slots that hit R.
    Settle,
    /// R2: compare this fact next.
    Compare(u8),
    /// V, under the commit lock.
    Validate,
    /// V5 between its two steps; holds the commit lock.
    HalfV5,
    Validated,
    /// U: this step next.
    Publishing(u8),
    Done,
    Aborted,
}

/// Purpose of a refresh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Goal {
    Deliver,
    Validate,
    ReadOnlyCommit,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tx {
    phase: Phase,
    goal: Goal,
    snapshot: u8,
    /// `next` as read by the refresh under way.
    upto: u8,
    lsn: u8,
    facts: [u8; 3],
    /// Facts that the program has been shown.
    delivered: u8,
    /// Transactions that had returned when this one began, a bit each.
    after: u8,
    dead: bool,
}

/// State of the table, of the objects and of each transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    next: u8,
    /// Which transaction (plus one) has this LSN.
    ring: [u8; 4],
    /// For each object: the transactions (plus one) that wrote its versions, in order.
    versions: [[u8; 3]; 3],
    /// For each object: the transactions whose entries its listing shows.
    listed: [u8; 3],
    tx: [Tx; 3],
}

impl Tx {
    fn ended(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Aborted)
    }

    /// Past the final look and not aborted: it is to survive.
    fn decided(&self) -> bool {
        matches!(self.phase, Phase::Publishing(_) | Phase::Done)
    }
}

impl Cooperation {
    fn program(&self, i: usize) -> &'static Program {
        &self.workload.programs[i]
    }

    fn count(&self) -> usize {
        self.workload.programs.len()
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns true if two object sets meet, by their signatures.
    fn meet(&self, a: &[u8], b: &[u8]) -> bool {
        if self.collide {
            return !a.is_empty() && !b.is_empty();
        }
        a.iter().any(|o| b.contains(o))
    }

    fn announced(&self, i: usize) -> Announced {
        match self.program(i).announced {
            Announced::AsPages if self.is(Mutant::PagesTooCoarse) => Announced::AsWhole,
            announced => announced,
        }
    }

    /// By what a transaction announces that it reads these of its objects.
    fn reading(&self, i: usize, objects: &[u8]) -> Vec<u8> {
        match self.announced(i) {
            _ if objects.is_empty() => Vec::new(),
            Announced::Exactly => objects.to_vec(),
            Announced::AsPages if self.is(Mutant::PagesTooFine) => objects.to_vec(),
            Announced::AsPages => [objects, &[WHOLE_WRITTEN]].concat(),
            Announced::AsWhole => vec![WHOLE_READ],
        }
    }

    /// R: a page that is written has to be there, which one who cuts the file has a say in.
    fn r(&self, i: usize) -> Vec<u8> {
        let p = self.program(i);
        let reads = self.reading(i, p.reads);
        match self.announced(i) {
            Announced::AsPages if !p.writes.is_empty() && !self.is(Mutant::PagesTooFine) => {
                [&reads[..], &[WHOLE_WRITTEN]].concat()
            }
            _ => reads,
        }
    }

    fn w(&self, i: usize) -> Vec<u8> {
        match self.announced(i) {
            Announced::AsWhole if !self.program(i).writes.is_empty() => vec![WHOLE_READ, WHOLE_WRITTEN],
            _ => self.program(i).writes.to_vec(),
        }
    }

    fn c(&self, i: usize) -> Vec<u8> {
        match self.announced(i) {
            Announced::AsPages if !self.program(i).writes.is_empty() => vec![WHOLE_READ],
            _ => self.program(i).listings.to_vec(),
        }
    }

    /// Returns true if the writes of `i` meet `announced`.
    fn hits(&self, i: usize, announced: &[u8]) -> bool {
        self.meet(&self.w(i), announced) || self.meet(&self.c(i), announced)
    }

    /// *Overlap* of docs/protocol.md §1.
    fn overlap(&self, i: usize, j: usize) -> bool {
        self.hits(j, &self.w(i))
            || self.meet(&self.w(i), &self.r(j))
            || self.meet(&self.c(i), &self.r(j))
            || self.meet(&self.c(i), &self.w(j))
            || self.hits(j, &self.r(i))
    }

    /// Returns true if two transactions touch an object of which at least one writes it.
    fn have_to_do(&self, i: usize, j: usize) -> bool {
        let (a, b) = (self.program(i), self.program(j));
        let meet = |a: &[u8], b: &[u8]| a.iter().any(|o| b.contains(o));
        meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes)
    }

    fn in_flight(&self, tx: &Tx) -> bool {
        match tx.phase {
            Phase::Validated => true,
            Phase::HalfV5 => !self.is(Mutant::NextBeforeSlot),
            Phase::Publishing(_) => !self.is(Mutant::EarlyRelease),
            _ => false,
        }
    }

    fn others<'a>(&'a self, s: &'a State, me: usize) -> impl Iterator<Item = usize> + 'a {
        (0..self.count()).filter(move |&q| q != me && self.in_flight(&s.tx[q]))
    }

    fn slot_hits(&self, s: &State, me: usize, objects: &[u8]) -> bool {
        let reading = self.reading(me, objects);
        self.others(s, me).any(|q| self.hits(q, &reading))
    }

    /// Returns true if an LSN in [from, to) hits `objects`, or the ring no longer has all of them.
    fn ring_hits(&self, s: &State, me: usize, (from, to): (u8, u8), objects: &[u8]) -> bool {
        if objects.is_empty() {
            return false;
        }
        if to - from > self.ring_len {
            return !self.is(Mutant::OverrunIgnored);
        }
        let reading = self.reading(me, objects);
        (from..to).map(|lsn| s.ring[lsn as usize] as usize - 1).any(|q| q != me && self.hits(q, &reading))
    }

    fn is_listing(&self, o: u8) -> bool {
        self.workload.programs.iter().any(|p| p.listings.contains(&o))
    }

    fn value(&self, s: &State, o: u8) -> u8 {
        if self.is_listing(o) {
            return s.listed[o as usize];
        }
        s.versions[o as usize].iter().copied().take_while(|&w| w != 0).last().unwrap_or(0)
    }

    /// The objects a refresh is about: all delivered ones and the one being touched.
    fn scope(&self, i: usize, tx: &Tx) -> &'static [u8] {
        let n = tx.delivered as usize + usize::from(tx.goal == Goal::Deliver);
        &self.program(i).reads[..n]
    }

    /// The phase after everything read so far has been delivered.
    fn go_on(&self, i: usize, tx: &mut Tx) {
        let p = self.program(i);
        tx.upto = 0;
        if (tx.delivered as usize) < p.reads.len() {
            (tx.goal, tx.phase) = (Goal::Deliver, Phase::Slots);
        } else if p.writes.is_empty() && p.listings.is_empty() {
            (tx.goal, tx.phase) = (Goal::ReadOnlyCommit, Phase::Ring);
        } else {
            (tx.goal, tx.phase) = (Goal::Validate, Phase::Validate);
        }
    }

    fn refreshed(&self, i: usize, tx: &mut Tx) {
        match tx.goal {
            Goal::Deliver => {
                tx.delivered += 1;
                self.go_on(i, tx);
            }
            Goal::Validate => tx.phase = Phase::Validate,
            // The serialization point of a reader. Facts are compared once more, but only for the sake of outsiders.
            Goal::ReadOnlyCommit => tx.phase = Phase::Done,
        }
    }

    fn facts_hold(&self, s: &State, i: usize) -> bool {
        let facts = s.tx[i].facts;
        self.program(i).reads.iter().zip(facts).all(|(&o, fact)| self.value(s, o) == fact)
    }

    fn run(&self, s: &State, i: usize, emit: &mut Emit<'_, State>) {
        let (tx, p, name) = (&s.tx[i], self.program(i), i + 1);
        let mut go = |label: std::fmt::Arguments<'_>, change: &dyn Fn(&mut State, &mut Tx)| {
            let (mut next, mut mine) = (*s, *tx);
            change(&mut next, &mut mine);
            next.tx[i] = mine;
            emit(next, format_args!("T{name} {label}"));
        };
        let touched = p.reads.get(tx.delivered as usize).copied().unwrap_or(0);
        match tx.phase {
            Phase::Begin => go(format_args!("begins"), &|s, tx| {
                tx.snapshot = s.next;
                tx.after = (0..3).filter(|&q| s.tx[q].phase == Phase::Done).fold(0, |bits, q| bits | 1 << q);
                self.go_on(i, tx);
            }),
            Phase::Slots if !self.is(Mutant::NoSlotWait) && self.slot_hits(s, i, &[touched]) => {}
            Phase::Slots if self.is(Mutant::RingBeforeLook) => {
                go(format_args!("finds no slot in the way of o{touched}, refreshes"), &|_, tx| {
                    tx.phase = Phase::Ring
                })
            }
            Phase::Slots => {
                go(format_args!("finds no slot in the way of o{touched}"), &|_, tx| tx.phase = Phase::Look)
            }
            Phase::Look => go(format_args!("looks at o{touched}"), &|s, tx| {
                tx.facts[tx.delivered as usize] = self.value(s, touched);
                if self.is(Mutant::NoRing) || self.is(Mutant::RingBeforeLook) {
                    self.refreshed(i, tx);
                } else {
                    tx.phase = Phase::Ring;
                }
            }),
            Phase::Ring => {
                // In the mutant that refreshes first there is no fact yet of the object being touched.
                let early = self.is(Mutant::RingBeforeLook) && tx.goal == Goal::Deliver;
                let scope = if early { &p.reads[..tx.delivered as usize] } else { self.scope(i, tx) };
                if self.ring_hits(s, i, (tx.snapshot, s.next), scope) {
                    go(format_args!("refresh: ring hit"), &|s, tx| {
                        (tx.upto, tx.phase) = (s.next, Phase::Settle)
                    });
                } else {
                    go(format_args!("refresh: nothing moved"), &|s, tx| {
                        tx.snapshot = s.next;
                        if early {
                            tx.phase = Phase::Look;
                        } else {
                            self.refreshed(i, tx);
                        }
                    });
                }
            }
            Phase::Settle if self.slot_hits(s, i, self.scope(i, tx)) => {}
            Phase::Settle => {
                go(format_args!("refresh: no slot hits what it read"), &|_, tx| tx.phase = Phase::Compare(0))
            }
            Phase::Compare(k) => self.compare(s, i, k, &mut go),
            Phase::Validate => self.validate(s, i, &mut go),
            Phase::HalfV5 if self.is(Mutant::NextBeforeSlot) => {
                go(format_args!("V5: slot visible"), &|_, tx| tx.phase = Phase::Validated)
            }
            Phase::HalfV5 if tx.dead => {
                if !self.is(Mutant::NoHelper) {
                    go(format_args!("lost the commit lock: its slot is freed"), &|_, tx| {
                        tx.phase = Phase::Aborted
                    })
                }
            }
            Phase::HalfV5 => go(format_args!("V5: next moves on"), &|s, tx| self.take_lsn(s, tx, i)),
            Phase::Validated | Phase::Publishing(_) if tx.dead && self.is(Mutant::NoHelper) => {}
            Phase::Validated => {
                if tx.dead {
                    go(format_args!("helper: ABORT"), &|_, tx| tx.phase = Phase::Aborted);
                } else if self.final_look && !self.facts_hold(s, i) {
                    go(format_args!("F: a fact differs"), &|_, tx| tx.phase = Phase::Aborted);
                } else {
                    go(format_args!("F: fine, PUBLISHING"), &|_, tx| tx.phase = Phase::Publishing(0));
                    if self.outsider_aborts {
                        go(format_args!("F: an outsider was there"), &|_, tx| tx.phase = Phase::Aborted);
                    }
                }
            }
            Phase::Publishing(k) if (k as usize) < p.writes.len() => {
                let o = p.writes[k as usize];
                go(format_args!("publishes o{o}"), &|s, tx| {
                    let versions = &mut s.versions[o as usize];
                    let at = versions.iter().take_while(|&&w| w != 0).count();
                    versions[at] = name as u8;
                    for &l in p.listings {
                        s.listed[l as usize] |= 1 << i;
                    }
                    tx.phase = Phase::Publishing(k + 1);
                })
            }
            Phase::Publishing(_) => {
                go(format_args!("D: slot free, returns"), &|_, tx| tx.phase = Phase::Done)
            }
            Phase::Done | Phase::Aborted => {}
        }
        if self.kills && self.in_flight(tx) && !tx.dead {
            go(format_args!("is killed"), &|_, tx| tx.dead = true);
        }
    }

    fn take_lsn(&self, s: &mut State, tx: &mut Tx, i: usize) {
        tx.lsn = s.next;
        s.ring[s.next as usize] = i as u8 + 1;
        s.next += 1;
        tx.phase = if self.is(Mutant::NextBeforeSlot) { Phase::HalfV5 } else { Phase::Validated };
    }

    fn compare(&self, s: &State, i: usize, k: u8, go: &mut Go<'_>) {
        let tx = &s.tx[i];
        let scope = self.scope(i, tx);
        let Some(&o) = scope.get(k as usize) else {
            go(format_args!("refresh: all facts equal, again"), &|_, tx| {
                (tx.snapshot, tx.upto, tx.phase) = (tx.upto, 0, Phase::Ring);
            });
            return;
        };
        let was_hit = self.ring_hits(s, i, (tx.snapshot, tx.upto), &[o]);
        if !was_hit || self.value(s, o) == tx.facts[k as usize] {
            go(format_args!("refresh: o{o} is as it was"), &|_, tx| tx.phase = Phase::Compare(k + 1));
        } else if tx.goal == Goal::Deliver && k == tx.delivered {
            go(format_args!("refresh: only o{o} moved, looks again"), &|_, tx| {
                (tx.upto, tx.phase) = (0, Phase::Slots)
            });
        } else {
            go(format_args!("refresh: o{o} moved, doomed"), &|_, tx| tx.phase = Phase::Aborted);
        }
    }

    fn validate(&self, s: &State, i: usize, go: &mut Go<'_>) {
        if (0..self.count()).any(|q| s.tx[q].phase == Phase::HalfV5) {
            return;
        }
        if !self.is(Mutant::NoV2) && self.others(s, i).any(|q| self.overlap(i, q)) {
            return;
        }
        let reads = self.program(i).reads;
        if !self.is(Mutant::NoV3) && self.ring_hits(s, i, (s.tx[i].snapshot, s.next), reads) {
            go(format_args!("V3: ring hit"), &|_, tx| tx.phase = Phase::Ring);
        } else if self.is(Mutant::NextBeforeSlot) {
            go(format_args!("V5: next moves on"), &|s, tx| self.take_lsn(s, tx, i));
        } else {
            go(format_args!("V5: slot visible"), &|_, tx| tx.phase = Phase::HalfV5);
        }
    }

    /// Adds to `edges[a]` a bit for each transaction that must come after `a`, as far as the first `n` reads
    /// of `i` show.
    fn order_by_reads(&self, s: &State, i: usize, n: u8, edges: &mut [u8; 3]) {
        for (&o, &fact) in self.program(i).reads.iter().zip(&s.tx[i].facts).take(n as usize) {
            for q in (0..self.count()).filter(|&q| q != i && s.tx[q].decided()) {
                let seen = if self.is_listing(o) {
                    if !self.program(q).listings.contains(&o) {
                        continue;
                    }
                    fact >> q & 1 != 0
                } else {
                    if !self.program(q).writes.contains(&o) {
                        continue;
                    }
                    // A version that is not published yet is a later one.
                    let place = |w: u8| s.versions[o as usize].iter().position(|&v| v == w);
                    match (place(q as u8 + 1), place(fact)) {
                        (Some(theirs), Some(read)) => fact != 0 && theirs <= read,
                        _ => false,
                    }
                };
                if seen {
                    edges[q] |= 1 << i;
                } else {
                    edges[i] |= 1 << q;
                }
            }
        }
        for (q, edge) in edges.iter_mut().enumerate() {
            if s.tx[i].after >> q & 1 != 0 && s.tx[q].phase == Phase::Done {
                *edge |= 1 << i;
            }
        }
    }
}

type Go<'a> = dyn FnMut(std::fmt::Arguments<'_>, &dyn Fn(&mut State, &mut Tx)) + 'a;

/// Returns true if a relation over at most three nodes has a cycle.
fn cyclic(edges: &[u8; 3]) -> bool {
    let mut reach = *edges;
    for k in 0..3 {
        for a in 0..3 {
            if reach[a] >> k & 1 != 0 {
                reach[a] |= reach[k];
            }
        }
    }
    (0..3).any(|a| reach[a] >> a & 1 != 0)
}

impl Model for Cooperation {
    type State = State;

    fn initial(&self) -> State {
        let tx = Tx {
            phase: Phase::Begin,
            goal: Goal::Deliver,
            snapshot: 0,
            upto: 0,
            lsn: 0,
            facts: [0; 3],
            delivered: 0,
            after: 0,
            dead: false,
        };
        State { next: 0, ring: [0; 4], versions: [[0; 3]; 3], listed: [0; 3], tx: [tx; 3] }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        for i in 0..self.count() {
            self.run(s, i, emit);
        }
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        let n = self.count();
        if self.check_overlap {
            for i in 0..n {
                if self.in_flight(&s.tx[i]) && self.others(s, i).any(|q| self.overlap(i, q)) {
                    return Some(OVERLAP);
                }
            }
        }
        if self.check_precision {
            let waits = |i: usize| s.tx[i].phase == Phase::Validate;
            let for_another =
                |i: usize| self.others(s, i).any(|q| self.overlap(i, q) && !self.have_to_do(i, q));
            if (0..n).any(|i| waits(i) && for_another(i)) {
                return Some(NEEDLESS);
            }
        }
        let mut edges = [0; 3];
        for i in (0..n).filter(|&i| s.tx[i].decided()) {
            self.order_by_reads(s, i, self.program(i).reads.len() as u8, &mut edges);
        }
        for versions in &s.versions {
            for (at, &earlier) in versions.iter().enumerate().filter(|(_, &w)| w != 0) {
                for &later in versions[at + 1..].iter().filter(|&&w| w != 0) {
                    edges[earlier as usize - 1] |= 1 << (later - 1);
                }
            }
        }
        if cyclic(&edges) {
            return Some(NOT_SERIALIZABLE);
        }
        for (i, tx) in s.tx.iter().enumerate().take(n) {
            if tx.delivered > 0 && !tx.decided() && tx.phase != Phase::Aborted {
                let mut edges = edges;
                self.order_by_reads(s, i, tx.delivered, &mut edges);
                if cyclic(&edges) {
                    return Some(NOT_OPAQUE);
                }
            }
        }
        None
    }

    fn is_final(&self, s: &State) -> bool {
        s.tx.iter().take(self.count()).all(|tx| tx.ended() || (tx.dead && self.is(Mutant::NoHelper)))
    }
}
