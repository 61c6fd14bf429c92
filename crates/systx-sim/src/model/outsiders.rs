//! Serial order with an outsider: T reads r and replaces w1 and w2, a cooperating reader reads r and w1 and
//! commits without a lock, an outsider writes anything, one call at a time.
//!
//! Guarantees, if the exploration is clean: some order of T, the reader and the outsider's calls explains
//! everything and respects real time and the outsider's own order (no crash, level *validated*). An outsider
//! that also *reads* during publication is beyond that promise; [`Outsiders::reads`] shows it. Does not do:
//! crashes (`crash`).

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Outsiders {
    /// Calls of the outsider, at most 3.
    pub calls: u8,
    /// T is durable: it compares its facts before the header (V6) and again in F. `none` has F alone.
    pub durable: bool,
    /// The outsider also reads.
    pub reads: bool,
    /// The guard holds the outsider from the final look to D.
    pub guarded: bool,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// No order explains what everybody saw.
pub const NO_ORDER: &str = "serializability: cycle among T, the reader and the outsider's calls";

const T: u8 = 0;
const READER: u8 = 1;
const FIRST_CALL: u8 = 2;
const FREE: u8 = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Read,
    Check,
    V5,
    V6(u8),
    Sync,
    FinalLook(u8),
    Publish(u8),
    Done,
    Returned,
    Aborted,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reader {
    Idle,
    ReadR,
    Slots,
    Look,
    /// Refresh for the delivery, then for the commit.
    Refresh(bool),
    CheckR,
    CheckW,
    Committed,
    Doomed,
}

/// State of the three objects and the parties. Versions are named after who wrote them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    versions: [[u8; 4]; 3],
    phase: Phase,
    displaced: [bool; 3],
    calls: u8,
    /// Calls that began after T had returned, a bit each.
    after: u8,
    /// Object and version count of each call that read.
    read: [(u8, u8); 3],
    reader: Reader,
    reader_after: bool,
    /// T's LSN lies before the reader's snapshot.
    snapshot_has_t: bool,
    saw_r: u8,
    saw_w: u8,
}

impl State {
    fn count(&self, o: usize) -> u8 {
        self.versions[o].iter().take_while(|&&w| w != FREE).count() as u8
    }

    fn write(&mut self, o: usize, who: u8) {
        let at = self.count(o) as usize;
        self.versions[o][at] = who;
    }

    fn in_flight(&self) -> bool {
        self.past_v5() && self.phase <= Phase::Done
    }

    fn past_v5(&self) -> bool {
        self.phase > Phase::V5 && self.phase != Phase::Aborted
    }
}

impl Outsiders {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn after_sync(&self) -> Phase {
        if self.is(Mutant::NoFinalLook) {
            return Phase::Publish(1);
        }
        Phase::FinalLook(0)
    }

    fn run(&self, s: &State, go: &mut Go<'_>) {
        let untouched = |o: u8| s.count(o.into()) == 0;
        match s.phase {
            Phase::Read => go("T reads r, takes before of w1 and w2", &|n| n.phase = Phase::Check),
            Phase::Check if (0..3).all(untouched) => go("T P4: fine", &|n| n.phase = Phase::V5),
            Phase::Check => go("T P4: conflict", &|n| n.phase = Phase::Aborted),
            Phase::V5 => go("T V5", &|n| {
                n.phase = if self.durable { Phase::V6(0) } else { self.after_sync() };
            }),
            Phase::V6(o) | Phase::FinalLook(o) if !untouched(o) => {
                go("T finds something changed", &|n| n.phase = Phase::Aborted)
            }
            // V6 compares the fact; the befores are looked at in F.
            Phase::V6(_) => go("T V6: fine", &|n| n.phase = Phase::Sync),
            Phase::Sync => go("T S", &|n| n.phase = self.after_sync()),
            Phase::FinalLook(o) => go("T F: one more is fine", &|n| {
                n.phase = if o == 2 { Phase::Publish(1) } else { Phase::FinalLook(o + 1) };
            }),
            Phase::Publish(3) => go("T U is through", &|n| n.phase = Phase::Done),
            Phase::Publish(o) => go("T publishes, or is displaced", &|n| {
                if untouched(o) {
                    n.write(o.into(), T);
                } else {
                    n.displaced[o as usize] = true;
                }
                n.phase = Phase::Publish(o + 1);
            }),
            Phase::Done => go("T D, returns", &|n| n.phase = Phase::Returned),
            Phase::Returned | Phase::Aborted => {}
        }
    }

    fn reader(&self, s: &State, go: &mut Go<'_>) {
        let doomed = |n: &mut State| n.reader = Reader::Doomed;
        match s.reader {
            Reader::Idle => go("reader begins", &|n| {
                (n.reader_after, n.snapshot_has_t) = (n.phase == Phase::Returned, n.past_v5());
                n.reader = Reader::ReadR;
            }),
            Reader::ReadR => go("reader reads r", &|n| (n.saw_r, n.reader) = (n.count(0), Reader::Slots)),
            Reader::Slots if s.in_flight() => {}
            Reader::Slots => go("reader: no slot in the way of w1", &|n| n.reader = Reader::Look),
            Reader::Look => go("reader looks at w1", &|n| {
                (n.saw_w, n.reader) = (n.count(1), Reader::Refresh(false));
            }),
            Reader::Refresh(commit) if s.snapshot_has_t || !s.past_v5() => {
                go("reader: refresh finds nothing", &|n| {
                    n.reader = if commit { Reader::CheckR } else { Reader::Refresh(true) };
                })
            }
            Reader::Refresh(_) if s.in_flight() => {}
            Reader::Refresh(_) if s.count(1) == s.saw_w => {
                go("reader: refresh finds w1 equal", &|n| n.snapshot_has_t = true)
            }
            Reader::Refresh(_) => go("reader is doomed", &doomed),
            Reader::CheckR if s.count(0) != s.saw_r => go("reader: r moved", &doomed),
            Reader::CheckR => go("reader: r holds", &|n| n.reader = Reader::CheckW),
            Reader::CheckW if s.count(1) != s.saw_w => go("reader: w1 moved", &doomed),
            Reader::CheckW => go("reader: w1 holds, commits", &|n| n.reader = Reader::Committed),
            Reader::Committed | Reader::Doomed => {}
        }
    }

    fn outsider(&self, s: &State, go: &mut Go<'_>) {
        let held = self.guarded && matches!(s.phase, Phase::FinalLook(_) | Phase::Publish(_) | Phase::Done);
        if s.calls == self.calls || s.phase == Phase::Read || held {
            return;
        }
        let k = s.calls;
        for (o, name) in ["r", "w1", "w2"].into_iter().enumerate() {
            go(&format!("OUTSIDER writes {name}"), &|n| {
                call(n, k);
                n.write(o, FIRST_CALL + k);
            });
            if self.reads {
                go(&format!("OUTSIDER reads {name}"), &|n| {
                    call(n, k);
                    n.read[k as usize] = (o as u8, n.count(o));
                });
            }
        }
    }
}

fn call(n: &mut State, k: u8) {
    n.calls += 1;
    n.after |= u8::from(n.phase == Phase::Returned) << k;
}

type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State)) + 'a;

impl Model for Outsiders {
    type State = State;

    fn initial(&self) -> State {
        State {
            versions: [[FREE; 4]; 3],
            phase: Phase::Read,
            displaced: [false; 3],
            calls: 0,
            after: 0,
            read: [(FREE, 0); 3],
            reader: Reader::Idle,
            reader_after: false,
            snapshot_has_t: false,
            saw_r: 0,
            saw_w: 0,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, format_args!("{label}"));
        };
        self.run(s, &mut go);
        self.reader(s, &mut go);
        self.outsider(s, &mut go);
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if s.phase != Phase::Returned {
            return None;
        }
        let mut edges = [[false; 5]; 5];
        let mut order = |a: u8, b: u8| edges[a as usize][b as usize] |= a != b;
        for k in 0..s.calls {
            if k + 1 < s.calls {
                order(FIRST_CALL + k, FIRST_CALL + k + 1);
            }
            if s.after >> k & 1 != 0 {
                order(T, FIRST_CALL + k);
            }
        }
        let reader = s.reader == Reader::Committed;
        if reader && s.reader_after {
            order(T, READER);
        }
        for o in 0..3 {
            // A version of T that became a conflict copy counts as written right before the one that took its
            // place: no process can have seen it.
            let mut versions = if s.displaced[o] { vec![T] } else { vec![] };
            versions.extend(s.versions[o].iter().filter(|&&w| w != FREE));
            for (at, &a) in versions.iter().enumerate() {
                versions[at + 1..].iter().for_each(|&b| order(a, b));
            }
            let mut saw = |who: u8, count: u8| {
                let count = count as usize + usize::from(s.displaced[o] && count > 0);
                versions[..count].iter().for_each(|&w| order(w, who));
                versions[count..].iter().for_each(|&w| order(who, w));
            };
            if o == 0 {
                saw(T, 0);
            }
            match o {
                0 if reader => saw(READER, s.saw_r),
                1 if reader => saw(READER, s.saw_w),
                _ => {}
            }
            for k in (0..s.calls).filter(|&k| s.read[k as usize].0 == o as u8) {
                saw(FIRST_CALL + k, s.read[k as usize].1);
            }
        }
        for k in 0..5 {
            for a in 0..5 {
                for b in 0..5 {
                    edges[a][b] |= edges[a][k] && edges[k][b];
                }
            }
        }
        (0..5).any(|a| edges[a][a]).then_some(NO_ORDER)
    }

    fn is_final(&self, s: &State) -> bool {
        s.phase >= Phase::Returned
    }
}
