//! A transaction whose first look at a path is the kernel's alone (R4): T asks for p, which this process has seen
//! before, and either ends with that or goes on to read g. W, a cooperating transaction over two file systems, changes
//! both; an outsider writes either, or puts p back.
//!
//! Guarantees, if the exploration is clean: T is shown no half of p's change and no p that is older than its beginning,
//! nor g from another side of W than p; when it commits, p has the value that it was shown, and some order of T, W and
//! the outsider's calls explains all of it. W changes p in two steps, as a patch does (bytes, then times), and each of
//! its two active entries is free as soon as its own object is public. Does not do: crashes, more than one fact that was
//! not walked (there is never a second), what W does against outsiders (`outsiders`).

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct LooksAlone {
    /// W publishes g before p.
    pub g_first: bool,
    /// p is another object by now than this process has seen there, and half of W leads to that one again, which is
    /// unmoved itself: W changes two names on the way.
    pub half_is_known: bool,
    /// Calls of the outsider, at most 2.
    pub calls: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// Half of a change of one object.
pub const TORN: &str = "atomicity: half of a change of p is shown";
/// The answer was true before the transaction began only.
pub const STALE: &str = "real time: an answer from before the transaction began";
/// Two sides of one commit.
pub const HALF: &str = "opacity: p and g are from two sides of W";
/// The value that was read is another one when the transaction ends.
pub const CHANGED: &str = "commit: p has another value than T was shown";
/// No order explains what T was shown.
pub const NO_ORDER: &str = "serializability: cycle among T, W and the outsider's calls";

const W: u8 = 1;
const FIRST_CALL: u8 = 2;
const FREE: u8 = 9;
/// The value of a p that is another object from the beginning.
const OTHER: u8 = 8;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Begin,
    Ask,
    LookAlone,
    /// It has looked, and compares the number.
    Number,
    /// All that it has seen is p, by that look.
    Alone,
    Slots(u8),
    Look(u8),
    Ring(u8),
    /// Refresh and comparison of what it holds for facts, at the end.
    Check,
    Committed,
    Doomed,
}

/// Versions are named after their writers; values as well, but for a p that was put back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    versions: [[u8; 4]; 2],
    p_value: u8,
    /// W has taken the first of its two steps on p.
    torn: bool,
    /// p was touched since this process has seen it, by whatever.
    p_moved: bool,
    /// 0: not begun; 1: its entries are there; then one more for each step.
    w: u8,
    calls: u8,
    /// Calls that began after T had ended, a bit each.
    after: u8,
    phase: Phase,
    /// Versions of p when T began, and W's g was public with its entry free.
    began: (u8, bool),
    /// W had its number when T asked.
    asked_w: bool,
    has_w: bool,
    /// Versions and value that T was shown of p.
    saw_p: Option<(u8, u8)>,
    saw_torn: bool,
    saw_g: Option<u8>,
    /// p is a fact: it was walked to.
    walked: bool,
    value_at_end: u8,
}

impl State {
    fn count(&self, o: u8) -> u8 {
        self.versions[o as usize].iter().take_while(|&&w| w != FREE).count() as u8
    }

    fn write(&mut self, o: u8, who: u8) {
        let at = self.count(o) as usize;
        self.versions[o as usize][at] = who;
        if o == 0 {
            (self.p_value, self.p_moved) = (who, true);
        }
    }

    /// Returns true if T was shown W's version of an object.
    fn shows_w(&self, o: u8, count: u8) -> bool {
        self.versions[o as usize][..count as usize].contains(&W)
    }

    fn end(&mut self, phase: Phase) {
        (self.phase, self.value_at_end) = (phase, self.p_value);
    }
}

type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State)) + 'a;

const P: u8 = 0;
const G: u8 = 1;

impl LooksAlone {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Steps of W, in order: an object is public, its entry is free.
    fn w_steps(&self) -> [&'static str; 7] {
        if self.g_first {
            ["begins", "publishes g", "frees g", "half of p", "all of p", "frees p", "returned"]
        } else {
            ["begins", "half of p", "all of p", "frees p", "publishes g", "frees g", "returned"]
        }
    }

    /// Returns true if W has done this.
    fn w_has(&self, s: &State, step: &str) -> bool {
        self.w_steps().iter().position(|name| *name == step).is_some_and(|at| usize::from(s.w) > at)
    }

    /// Returns true if W's active entry for an object is there.
    fn active(&self, s: &State, o: u8) -> bool {
        s.w > 0 && !self.w_has(s, if o == P { "frees p" } else { "frees g" })
    }

    fn w(&self, s: &State, go: &mut Go<'_>) {
        let steps = self.w_steps();
        let Some(step) = steps.get(usize::from(s.w)).filter(|step| **step != "returned") else { return };
        go(&format!("W {step}"), &|n| {
            n.w += 1;
            match *step {
                "half of p" if self.half_is_known => {
                    (n.torn, n.p_moved, n.p_value) = (true, false, FREE);
                }
                "half of p" => (n.torn, n.p_moved) = (true, true),
                "all of p" => {
                    n.torn = false;
                    n.write(P, W);
                }
                "publishes g" => n.write(G, W),
                _ => {}
            }
        });
    }

    fn outsider(&self, s: &State, go: &mut Go<'_>) {
        // Its calls beside W's publication are another model's (`outsiders`).
        if s.calls == self.calls || self.active(s, P) || self.active(s, G) {
            return;
        }
        let call = |n: &mut State| {
            n.after |= u8::from(n.phase >= Phase::Committed) << n.calls;
            n.calls += 1;
            FIRST_CALL + n.calls - 1
        };
        for o in [P, G] {
            go(&format!("OUTSIDER writes {}", if o == P { "p" } else { "g" }), &|n| {
                let who = call(n);
                n.write(o, who);
            });
        }
        if !s.torn && s.p_value != FREE {
            go("OUTSIDER puts p back", &|n| {
                let who = call(n);
                n.write(P, who);
                n.p_value = FREE;
            });
        }
    }

    fn deliver_p(&self, n: &mut State) {
        // The first answer counts as read when the walk has found the same.
        n.saw_p = Some((n.count(P), n.p_value));
        n.saw_torn |= n.torn;
    }

    fn t(&self, s: &State, go: &mut Go<'_>) {
        let unwalked = self.is(Mutant::AloneUnwalked);
        match s.phase {
            Phase::Begin => go("T begins", &|n| {
                n.began = (n.count(P), self.w_has(n, "publishes g") && !self.active(n, G));
                (n.has_w, n.phase) = (n.w > 0, Phase::Ask);
            }),
            Phase::Ask if self.is(Mutant::AloneUnlooked) => go("T goes by what it knows", &|n| {
                (n.saw_p, n.phase) = (Some((0, FREE)), Phase::Alone);
            }),
            Phase::Ask if self.active(s, P) && !self.is(Mutant::AloneNotQuiet) => {
                go("T: not quiet", &|n| n.phase = Phase::Slots(P))
            }
            Phase::Ask => go("T: quiet", &|n| (n.asked_w, n.phase) = (n.w > 0, Phase::LookAlone)),
            // None of the promises needs this: it says that the object is one that a walk has found.
            Phase::LookAlone if s.p_moved => go("T: p has moved", &|n| n.phase = Phase::Slots(P)),
            Phase::LookAlone => go("T looks at p alone", &|n| {
                self.deliver_p(n);
                n.phase = Phase::Number;
            }),
            Phase::Number if s.asked_w != (s.w > 0) && !self.is(Mutant::AloneNumberUnasked) => {
                go("T: a number was given meanwhile", &|n| {
                    (n.saw_p, n.saw_torn, n.phase) = (None, false, Phase::Slots(P));
                })
            }
            Phase::Number => go("T: no number was given", &|n| n.phase = Phase::Alone),
            Phase::Alone => {
                let value = s.saw_p.map(|(_, value)| value);
                if self.is(Mutant::AloneUnchecked) || (Some(s.p_value) == value && !s.torn) {
                    go("T ends: p is as it was", &|n| n.end(Phase::Committed));
                } else {
                    go("T ends: p is not as it was", &|n| n.phase = Phase::Doomed);
                }
                go("T goes on", &|n| n.phase = Phase::Slots(if unwalked { G } else { P }));
            }
            Phase::Slots(o) if self.active(s, o) => {}
            Phase::Slots(o) => go("T: no entry in the way", &|n| n.phase = Phase::Look(o)),
            Phase::Look(P) => go("T walks to p", &|n| {
                let shown = n.saw_p.map(|(_, value)| value);
                n.walked = true;
                match shown {
                    Some(value) if value != n.p_value || n.torn => n.phase = Phase::Doomed,
                    _ => {
                        self.deliver_p(n);
                        n.phase = Phase::Ring(P);
                    }
                }
            }),
            Phase::Look(o) => {
                go("T looks at g", &|n| (n.saw_g, n.phase) = (Some(n.count(G)), Phase::Ring(o)))
            }
            Phase::Ring(o) if s.has_w || s.w == 0 => go("T: refresh finds nothing", &|n| {
                n.phase = if o == P { Phase::Slots(G) } else { Phase::Check };
            }),
            // W is in the ring: its entries for what T holds have to be free, then that is compared.
            Phase::Ring(o) if (s.walked && self.active(s, P)) || (o == G && self.active(s, G)) => {}
            Phase::Ring(o) => {
                let holds = |n: &State| {
                    let p = !n.walked || n.saw_p.map(|(count, _)| count) == Some(n.count(P));
                    p && (o == P || n.saw_g == Some(n.count(G)))
                };
                if holds(s) {
                    go("T: refresh finds all equal", &|n| n.has_w = true);
                } else if o == P {
                    go("T: refresh finds p changed", &|n| n.phase = Phase::Doomed);
                } else if s.saw_g != Some(s.count(G))
                    && (!s.walked || s.saw_p.map(|p| p.0) == Some(s.count(P)))
                {
                    go("T: refresh finds g changed", &|n| (n.has_w, n.phase) = (true, Phase::Slots(G)));
                } else {
                    go("T: refresh dooms it", &|n| n.phase = Phase::Doomed);
                }
            }
            // The last refresh and the comparison of all facts, in one: what is between them is in `outsiders`.
            Phase::Check if !s.has_w && s.w > 0 && (self.active(s, P) || self.active(s, G)) => {}
            Phase::Check => {
                let value = s.saw_p.map(|(_, value)| value);
                let p = if s.walked {
                    s.saw_p.map(|(count, _)| count) == Some(s.count(P)) && !s.torn
                } else {
                    Some(s.p_value) == value && !s.torn
                };
                if p && s.saw_g == Some(s.count(G)) {
                    go("T ends: all is as it was", &|n| n.end(Phase::Committed));
                } else {
                    go("T ends: something is not as it was", &|n| n.phase = Phase::Doomed);
                }
            }
            Phase::Committed | Phase::Doomed => {}
        }
    }

    fn has_order(&self, s: &State) -> bool {
        let mut edges = [[false; 4]; 4];
        let mut order = |a: u8, b: u8| edges[a as usize][b as usize] |= a != b;
        for k in 0..s.calls {
            if k + 1 < s.calls {
                order(FIRST_CALL + k, FIRST_CALL + k + 1);
            }
            if s.after >> k & 1 != 0 {
                order(0, FIRST_CALL + k);
            }
        }
        if s.began.1 {
            order(W, 0);
        }
        for (o, saw) in [(P, s.saw_p.map(|(count, _)| count)), (G, s.saw_g)] {
            let written = s.versions[o as usize];
            let written: Vec<u8> = written.into_iter().filter(|&w| w != FREE).collect();
            for (at, &a) in written.iter().enumerate() {
                written[at + 1..].iter().for_each(|&b| order(a, b));
            }
            let Some(saw) = saw else { continue };
            written[..saw as usize].iter().for_each(|&w| order(w, 0));
            written[saw as usize..].iter().for_each(|&w| order(0, w));
        }
        for k in 0..4 {
            for a in 0..4 {
                for b in 0..4 {
                    edges[a][b] |= edges[a][k] && edges[k][b];
                }
            }
        }
        (0..4).all(|a| !edges[a][a])
    }
}

impl Model for LooksAlone {
    type State = State;

    fn initial(&self) -> State {
        State {
            versions: [[FREE; 4]; 2],
            p_value: if self.half_is_known { OTHER } else { FREE },
            torn: false,
            p_moved: self.half_is_known,
            w: 0,
            calls: 0,
            after: 0,
            phase: Phase::Begin,
            began: (0, false),
            asked_w: false,
            has_w: false,
            saw_p: None,
            saw_torn: false,
            saw_g: None,
            walked: false,
            value_at_end: FREE,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, format_args!("{label}"));
        };
        self.t(s, &mut go);
        self.w(s, &mut go);
        self.outsider(s, &mut go);
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        let delivered = match s.phase {
            Phase::Doomed => return None,
            Phase::Ring(P) | Phase::Slots(P) | Phase::Number => None,
            _ => s.saw_p,
        };
        if let Some((count, value)) = delivered {
            if s.saw_torn {
                return Some(TORN);
            }
            if count < s.began.0 || (s.began.1 && !s.shows_w(P, count)) {
                return Some(STALE);
            }
            let running = matches!(s.phase, Phase::Check | Phase::Committed);
            if let (Some(g), true) = (s.saw_g, running) {
                // A version that an outsider has overwritten hides on which side p is.
                if s.shows_w(P, count) != s.shows_w(G, g) && s.calls == 0 {
                    return Some(HALF);
                }
            }
            if s.phase == Phase::Committed {
                if s.value_at_end != value {
                    return Some(CHANGED);
                }
                if !self.has_order(s) {
                    return Some(NO_ORDER);
                }
            }
        }
        None
    }

    fn is_final(&self, s: &State) -> bool {
        s.phase >= Phase::Committed
    }
}
