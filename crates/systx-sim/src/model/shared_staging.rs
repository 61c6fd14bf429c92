//! Two small transactions of one process, or of one before and one after a power loss, whose slots are on a
//! shared staging directory.
//!
//! Guarantees, if the exploration is clean: at whatever moment the power is lost, the seal on the disk proves
//! of each record whether its slots were there ([`PROOF`], [`NOTHING`]), as `tx/<id>` does for a directory of
//! its own (`crash`). A record may be kept back over a reboot, so it is asked again whenever the power is
//! lost. Does not do: what follows from that proof (`crash`), storage that keeps metadata in another order.

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct SharedStaging {
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// The seal is there, the slots are not.
pub const PROOF: &str = "shared staging: its seal is there, but a slot never was";
/// The seal is not there, and yet.
pub const NOTHING: &str = "shared staging: its seal is not there, but a step was taken";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Idle,
    /// Mutant: it has its number before its slots.
    Numbered,
    Made,
    Sealed,
    /// The record is synced.
    Recorded,
    Taken,
    /// The process is gone. With a record the transaction is kept back.
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tx {
    phase: Phase,
    /// Number of the seal, and the boot of the shared staging directory.
    seal: (u8, u8),
    recorded: bool,
}

/// Contents of the shared staging directories, in memory or on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Data {
    made: [bool; 2],
    taken: [bool; 2],
    /// Of each boot's shared staging directory.
    seals: [u8; 2],
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    tx: [Tx; 2],
    /// Each state since the boot, oldest first: a power loss leaves one of them.
    history: Vec<Data>,
    /// The last number given in this boot.
    given: u8,
    boot: u8,
    losses: u8,
}

impl State {
    fn now(&self) -> Data {
        self.history[self.history.len() - 1]
    }

    fn change(&mut self, change: impl FnOnce(&mut Data)) {
        let mut now = self.now();
        change(&mut now);
        self.history.push(now);
    }
}

impl SharedStaging {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The shared staging directory that is used in this boot.
    fn shared_staging(&self, state: &State) -> u8 {
        if self.is(Mutant::ShelfOfAllBoots) {
            0
        } else {
            state.boot
        }
    }

    fn give(&self, state: &mut State, n: usize) {
        state.given += 1;
        state.tx[n].seal = (state.given, self.shared_staging(state));
    }

    fn put_seal(&self, state: &mut State, n: usize) {
        let (number, shared_staging) = state.tx[n].seal;
        state.change(|data| data.seals[usize::from(shared_staging)] = number);
    }

    fn step(&self, state: &State, n: usize, emit: &mut Emit<'_, State>) {
        let mut next = state.clone();
        let tx = &mut next.tx[n];
        let early = self.is(Mutant::SealNumberedEarly) || self.is(Mutant::SealBeforeSlots);
        let label = match tx.phase {
            Phase::Idle if early => {
                tx.phase = Phase::Numbered;
                self.give(&mut next, n);
                if self.is(Mutant::SealBeforeSlots) {
                    self.put_seal(&mut next, n);
                }
                "number"
            }
            Phase::Idle | Phase::Numbered => {
                tx.phase = Phase::Made;
                next.change(|data| data.made[n] = true);
                "slots"
            }
            Phase::Made => {
                tx.phase = Phase::Sealed;
                if !early {
                    self.give(&mut next, n);
                }
                if !self.is(Mutant::SealBeforeSlots) {
                    self.put_seal(&mut next, n);
                }
                "seal"
            }
            Phase::Sealed => {
                tx.phase = Phase::Recorded;
                tx.recorded = true;
                "record, synced"
            }
            Phase::Recorded => {
                tx.phase = Phase::Taken;
                next.change(|data| data.taken[n] = true);
                "step"
            }
            Phase::Taken | Phase::Dead => return,
        };
        emit(next, format_args!("T{}: {label}", n + 1));
    }
}

impl Model for SharedStaging {
    type State = State;

    fn initial(&self) -> State {
        let tx = Tx { phase: Phase::Idle, seal: (0, 0), recorded: false };
        let nothing = Data { made: [false; 2], taken: [false; 2], seals: [0; 2] };
        State { tx: [tx; 2], history: vec![nothing], given: 0, boot: 0, losses: self.losses }
    }

    fn successors(&self, state: &State, emit: &mut Emit<'_, State>) {
        (0..2).for_each(|n| self.step(state, n, emit));
        if state.losses == 0 {
            return;
        }
        for (at, data) in state.history.iter().enumerate() {
            let mut next = state.clone();
            (next.losses, next.boot, next.history) = (state.losses - 1, state.boot + 1, vec![*data]);
            for tx in next.tx.iter_mut().filter(|tx| tx.phase != Phase::Idle) {
                tx.phase = Phase::Dead;
            }
            next.given = data.seals[usize::from(self.shared_staging(&next))];
            emit(next, format_args!("power lost, {at} changes survive"));
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        for data in &state.history {
            for (n, tx) in state.tx.iter().enumerate().filter(|(_, tx)| tx.recorded) {
                let sealed = data.seals[usize::from(tx.seal.1)] >= tx.seal.0;
                match (sealed, data.made[n], data.taken[n]) {
                    (true, false, _) => return Some(PROOF),
                    (false, _, true) => return Some(NOTHING),
                    _ => {}
                }
            }
        }
        None
    }

    fn is_final(&self, state: &State) -> bool {
        state.tx.iter().all(|tx| matches!(tx.phase, Phase::Taken | Phase::Dead))
    }
}
