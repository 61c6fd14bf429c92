//! Waits between transactions: V1 (priority, ordered), V2 with prepared active entries. Three transactions
//! read, modify and write one object.
//!
//! Guarantees, if the exploration is clean: no deadlock, and T3, whose rivals T1 and T2 run for ever, loses
//! at most once more after it has lost. Losses are counted, so starvation is a bad state and needs no
//! fairness. Does not do: what is read (`cooperation`), deadlines (taken as infinite, the harder case).

use super::checker::{Emit, Model};
use super::Mutant;

/// Behaviour of T1 and T2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rivals {
    /// They begin again after each commit.
    Loop,
    /// T1 has number 0, T2 number 1.
    Ordered,
    /// T1 has number 0 and its owner dies, T2 has number 1.
    OrderedDead,
    /// T1 is prepared, and its coordinator decides only after T2 has ended.
    Prepared,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    /// T1 and T2.
    pub rivals: Rivals,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// P6.
pub const STARVED: &str = "starvation: T3 loses again although it has priority";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Start,
    Running,
    Validate,
    InFlight,
    Committed,
    /// Conflict with a prepared one, or no owner for the number before mine.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tx {
    phase: Phase,
    stale: bool,
    losses: u8,
}

/// State of the table and the three transactions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    tx: [Tx; 3],
    holder: Option<u8>,
    number: u8,
    owner_died: bool,
    prepared: bool,
}

impl Liveness {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn number(&self, i: usize) -> Option<u8> {
        let ordered = matches!(self.rivals, Rivals::Ordered | Rivals::OrderedDead);
        (ordered && i < 2).then_some(i as u8)
    }

    fn prepared(&self, i: usize) -> bool {
        self.rivals == Rivals::Prepared && i == 0
    }

    fn others_in_flight(s: &State, me: usize) -> bool {
        (0..3).any(|q| q != me && s.tx[q].phase == Phase::InFlight)
    }

    fn lose(&self, s: &mut State, tx: &mut Tx, i: usize) {
        tx.losses = (tx.losses + 1).min(3);
        tx.phase = Phase::Start;
        if s.holder.is_none() && !self.is(Mutant::NoSenior) {
            s.holder = Some(i as u8);
        }
    }

    fn run(&self, s: &State, i: usize, emit: &mut Emit<'_, State>) {
        let (tx, name) = (s.tx[i], i + 1);
        let mut go = |label: &str, change: &dyn Fn(&mut State, &mut Tx)| {
            let (mut next, mut mine) = (*s, tx);
            change(&mut next, &mut mine);
            next.tx[i] = mine;
            emit(next, format_args!("T{name} {label}"));
        };
        let blocked = Liveness::others_in_flight(s, i);
        let conflict_at_once = s.prepared && !self.is(Mutant::WaitForPrepared);
        match tx.phase {
            Phase::Start if blocked && conflict_at_once => {
                go("conflicts with a prepared one", &|_, tx| tx.phase = Phase::Failed)
            }
            Phase::Start if blocked => {}
            Phase::Start if self.rivals == Rivals::OrderedDead && i == 0 => {
                go("dies with number 0", &|s, tx| (s.owner_died, tx.phase) = (true, Phase::Failed))
            }
            Phase::Start => go("reads", &|_, tx| (tx.phase, tx.stale) = (Phase::Running, false)),
            Phase::Running => go("wants to commit", &|_, tx| tx.phase = Phase::Validate),
            Phase::Validate => self.validate(s, i, blocked, &mut go),
            Phase::InFlight
                if self.prepared(i) && !matches!(s.tx[1].phase, Phase::Committed | Phase::Failed) => {}
            Phase::InFlight => go("U, D", &|s, tx| {
                for q in (0..3).filter(|&q| q != i) {
                    s.tx[q].stale |= matches!(s.tx[q].phase, Phase::Running | Phase::Validate);
                }
                if s.holder == Some(i as u8) {
                    s.holder = None;
                }
                s.number += u8::from(self.number(i).is_some());
                s.prepared &= !self.prepared(i);
                let again = self.rivals == Rivals::Loop && i < 2;
                tx.phase = if again { Phase::Start } else { Phase::Committed };
                if again {
                    tx.losses = 0;
                }
            }),
            Phase::Committed | Phase::Failed => {}
        }
    }

    fn validate(&self, s: &State, i: usize, blocked: bool, go: &mut Go<'_>) {
        let tx = s.tx[i];
        if self.number(i).is_some_and(|number| number != s.number) {
            if s.owner_died && !self.is(Mutant::NoErrorForDeadNumber) {
                go("V1: the owner of the number is dead", &|_, tx| tx.phase = Phase::Failed);
            }
            if tx.stale && s.holder.is_none() && self.is(Mutant::SeniorBeforeNumber) {
                go("lost while it waited for its number: priority", &|s, tx| self.lose(s, tx, i));
            }
            return;
        }
        if s.holder.is_some_and(|holder| holder != i as u8) {
            return; // V1 comes before V2: who waits for a holder of priority does not get to see a prepared slot.
        }
        if blocked {
            if s.prepared && !self.is(Mutant::WaitForPrepared) {
                go("V2: conflicts with a prepared one", &|_, tx| tx.phase = Phase::Failed);
            }
            return;
        }
        if tx.stale {
            go("V3: conflict, restarts", &|s, tx| self.lose(s, tx, i));
            return;
        }
        go("V5", &|s, tx| {
            tx.phase = Phase::InFlight;
            if s.holder == Some(i as u8) && !self.is(Mutant::SeniorUntilDone) {
                s.holder = None;
            }
            s.prepared |= self.prepared(i);
        });
    }
}

/// Emits the successor that a change to the state and to the transaction under way makes.
type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State, &mut Tx)) + 'a;

impl Model for Liveness {
    type State = State;

    fn initial(&self) -> State {
        let tx = Tx { phase: Phase::Start, stale: false, losses: 0 };
        State { tx: [tx; 3], holder: None, number: 0, owner_died: false, prepared: false }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        for i in 0..3 {
            self.run(s, i, emit);
        }
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        (s.tx[2].losses >= 2).then_some(STARVED)
    }

    fn is_final(&self, s: &State) -> bool {
        s.tx.iter().all(|tx| matches!(tx.phase, Phase::Committed | Phase::Failed))
    }
}
