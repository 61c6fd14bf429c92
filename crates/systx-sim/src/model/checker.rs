//! A small explicit-state checker: breadth first, so that every counterexample is a shortest one.
//!
//! Owns the exploration of a [`Model`] and its [`Report`]. Guarantees: every reachable state is visited once,
//! unless `states_max` cuts it off (then `complete` is false); every distinct violation is reported once,
//! with a shortest trace; a state without successors that is not final is a deadlock. Does not do: liveness
//! under fairness (a cycle in which a process loses for ever is found only if the model counts the losses),
//! symmetry or partial-order reduction.
//!
//! A state in violation is not explored further, so one broken rule does not bury the next report under its
//! consequences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

/// Receives a successor and the label of the step that leads to it. The label is formatted only for traces.
pub type Emit<'a, S> = dyn FnMut(S, fmt::Arguments<'_>) + 'a;

/// Violation text of a state that has no successor although it is not final.
pub const DEADLOCK: &str = "deadlock";

/// A protocol as a transition system.
pub trait Model {
    /// Everything that decides what can happen next, and the ghost fields that the invariant needs.
    type State: Clone + Eq + Hash;

    /// Returns the state before any step.
    fn initial(&self) -> Self::State;

    /// Emits every state that one step of any process leads to, always in one order.
    fn successors(&self, state: &Self::State, emit: &mut Emit<'_, Self::State>);

    /// Names the promise that `state` breaks.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;

    /// Returns true if all processes may rest here.
    fn is_final(&self, state: &Self::State) -> bool;

    /// Names what a final state came to, so that a test can assert that every outcome was reached.
    fn outcome(&self, _state: &Self::State) -> &'static str {
        "ended"
    }
}

/// Result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states visited.
    pub states: usize,
    /// Steps taken between them.
    pub transitions: usize,
    /// States in which everybody may rest.
    pub finals: usize,
    /// Outcomes of the final states.
    pub outcomes: BTreeSet<&'static str>,
    /// False when `states_max` was reached first.
    pub complete: bool,
    /// Each broken promise with the labels of a shortest way to break it.
    pub violations: BTreeMap<&'static str, Vec<String>>,
}

impl Report {
    /// Returns true if everything was visited and no promise is broken.
    pub fn is_clean(&self) -> bool {
        self.complete && self.violations.is_empty()
    }

    /// Returns true if a promise whose text starts with `prefix` is broken.
    pub fn breaks(&self, prefix: &str) -> bool {
        self.violations.keys().any(|rule| rule.starts_with(prefix))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.complete { "" } else { ", INCOMPLETE" };
        writeln!(f, "{} states, {} transitions, {} final{cut}", self.states, self.transitions, self.finals)?;
        for (rule, trace) in &self.violations {
            writeln!(f, "  {rule} ({} steps)", trace.len())?;
            for label in trace {
                writeln!(f, "    {label}")?;
            }
        }
        Ok(())
    }
}

/// Visits every reachable state of `model`, at most `states_max`.
pub fn explore<M: Model>(model: &M, states_max: usize) -> Report {
    let mut seen = Seen::new();
    seen.insert(model.initial(), Origin { parent: 0, nth: 0 });
    let mut report = Report { complete: true, ..Report::default() };
    let mut at = 0;
    while at < seen.states.len() {
        if seen.states.len() > states_max {
            report.complete = false;
            break;
        }
        let state = seen.states[at].clone();
        if let Some(rule) = model.violation(&state) {
            report.violations.entry(rule).or_insert_with(|| seen.trace(model, at));
            at += 1;
            continue;
        }
        let mut nth = 0;
        model.successors(&state, &mut |next, _| {
            seen.insert(next, Origin { parent: at as u32, nth });
            nth += 1;
        });
        report.transitions += nth as usize;
        if model.is_final(&state) {
            report.finals += 1;
            report.outcomes.insert(model.outcome(&state));
        } else if nth == 0 {
            report.violations.entry(DEADLOCK).or_insert_with(|| seen.trace(model, at));
        }
        at += 1;
    }
    report.states = seen.states.len();
    report
}

/// How a state was reached first: successor number `nth` of `parent`. Labels are computed again when they are
/// asked for.
#[derive(Clone, Copy)]
struct Origin {
    parent: u32,
    nth: u32,
}

/// The visited states and an open-addressing index over them, so that each is stored once.
struct Seen<S> {
    states: Vec<S>,
    origins: Vec<Origin>,
    /// Index of a state plus one, 0 = free. A power of two, at most half full.
    table: Vec<u32>,
}

impl<S: Eq + Hash> Seen<S> {
    fn new() -> Self {
        Seen { states: Vec::new(), origins: Vec::new(), table: vec![0; 1 << 12] }
    }

    fn insert(&mut self, state: S, origin: Origin) {
        if (self.states.len() + 1) * 2 > self.table.len() {
            self.grow();
        }
        let at = self.probe(&state);
        if self.table[at] == 0 {
            self.states.push(state);
            self.origins.push(origin);
            self.table[at] = self.states.len() as u32;
        }
    }

    /// Where `state` is in the table, or the free place where it belongs.
    fn probe(&self, state: &S) -> usize {
        let mask = self.table.len() - 1;
        let mut at = hash(state) as usize & mask;
        while self.table[at] != 0 && self.states[self.table[at] as usize - 1] != *state {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let mask = self.table.len() * 2 - 1;
        let mut table = vec![0u32; mask + 1];
        for (i, state) in self.states.iter().enumerate() {
            let mut at = hash(state) as usize & mask;
            while table[at] != 0 {
                at = (at + 1) & mask;
            }
            table[at] = i as u32 + 1;
        }
        self.table = table;
    }

    fn trace<M: Model<State = S>>(&self, model: &M, last: usize) -> Vec<String> {
        let mut labels = Vec::new();
        let mut at = last;
        while at != 0 {
            let Origin { parent, nth } = self.origins[at];
            let (mut i, mut label) = (0, String::new());
            model.successors(&self.states[parent as usize], &mut |_, text| {
                if i == nth {
                    label = text.to_string();
                }
                i += 1;
            });
            labels.push(label);
            at = parent as usize;
        }
        labels.reverse();
        labels
    }
}

fn hash<S: Hash>(state: &S) -> u64 {
    let mut mix = Mix(0xcbf2_9ce4_8422_2325);
    state.hash(&mut mix);
    mix.finish()
}

/// Multiply and rotate: states are a few dozen small integers, and are not chosen to collide.
struct Mix(u64);

impl Mix {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.word(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }

    // Derived `Hash` feeds enum discriminants as isize.
    fn write_isize(&mut self, n: isize) {
        self.word(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that are raised in any order; `trap` is a state without a way out.
    struct Counters {
        bad: Option<(u8, u8)>,
        trap: Option<(u8, u8)>,
    }

    impl Model for Counters {
        type State = (u8, u8);

        fn initial(&self) -> (u8, u8) {
            (0, 0)
        }

        fn successors(&self, &(a, b): &(u8, u8), emit: &mut Emit<'_, (u8, u8)>) {
            if self.trap == Some((a, b)) {
                return;
            }
            if a < 9 {
                emit((a + 1, b), format_args!("a{a}"));
            }
            if b < 9 {
                emit((a, b + 1), format_args!("b{b}"));
            }
        }

        fn violation(&self, state: &(u8, u8)) -> Option<&'static str> {
            (self.bad == Some(*state)).then_some("bad")
        }

        fn is_final(&self, state: &(u8, u8)) -> bool {
            *state == (9, 9)
        }
    }

    #[test]
    fn every_state_is_visited_once() {
        let report = explore(&Counters { bad: None, trap: None }, 1000);
        assert!(report.is_clean());
        assert_eq!((report.states, report.transitions, report.finals), (100, 180, 1));
    }

    #[test]
    fn the_trace_is_a_shortest_one() {
        let report = explore(&Counters { bad: Some((1, 2)), trap: None }, 1000);
        assert_eq!(report.violations["bad"], ["a0", "b0", "b1"]);
    }

    #[test]
    fn a_state_nobody_can_leave_is_a_deadlock() {
        let report = explore(&Counters { bad: None, trap: Some((2, 0)) }, 1000);
        assert_eq!(report.violations[DEADLOCK], ["a0", "a1"]);
    }

    #[test]
    fn a_cut_off_exploration_is_not_clean() {
        let report = explore(&Counters { bad: None, trap: None }, 50);
        assert!(!report.complete && !report.is_clean());
    }
}
