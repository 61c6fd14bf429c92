//! A transaction that sets two attributes of an object, an outsider that puts one of them back or changes
//! something else of it, and power losses, also in a recovery.
//!
//! Guarantees, if the exploration is clean: what the outsider has put back behind the mark stays, whatever
//! survives ([`UNDONE`]), and a commit that was reported is not lost because of what the outsider does to the
//! rest ([`LOST`]). Does not do: what the outsider puts back between the first attribute and the mark
//! (docs/guarantees.md, (c)); the log, whose record is there until a sync behind the last step.

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Calls of the outsider.
    pub acts: u8,
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// The outsider's attribute has our value again.
pub const UNDONE: &str = "mark: put back by an outsider behind the mark, and set again";
/// One of ours is not there.
pub const LOST: &str = "mark: reported, and an attribute that nobody has put back is not set";

/// Of the object and the area, in memory or on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Data {
    /// True for each attribute that has our value.
    set: [bool; 2],
    /// The first one was put back.
    put_back: bool,
    /// How often anything of the object was changed: its change time.
    changes: u8,
    mark: bool,
}

/// Next action of the record's owner, or of a recovery. (Rests are shared: both run U.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// The record is synced, and the facts have been compared.
    Look,
    First,
    Second,
    Mark,
    /// The slot is free; in a recovery, all that is left is its sync.
    Done,
    /// Nothing will be redone.
    Synced,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    at: At,
    /// Each state since the last sync, oldest first: a power loss leaves one of them.
    history: Vec<Data>,
    /// The look of this pass said: leave them.
    leaves: bool,
    redo: bool,
    reported: bool,
    /// The outsider has put the first one back behind our step; that is not a fault of the protocol.
    his: bool,
    /// The outsider did it before the mark was made: this can't be distinguished from no change.
    too_early: bool,
    acts: u8,
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

impl Mark {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// U, step by step.
    fn step(&self, state: &State, emit: &mut Emit<'_, State>) {
        let mut next = state.clone();
        let early = self.is(Mutant::MarkBeforeAttributes);
        let set = |next: &mut State, n: usize| {
            if !next.now().set[n] && !next.leaves {
                next.change(|data| {
                    data.set[n] = true;
                    data.put_back &= n != 0;
                    data.changes += 1;
                });
            }
        };
        let mark = |next: &mut State| {
            if !next.now().mark {
                next.change(|data| data.mark = true);
            }
        };
        let label = match state.at {
            At::Look => {
                let now = state.now();
                next.leaves = state.redo
                    && match () {
                        () if self.is(Mutant::AttributesByValue) => false,
                        () if self.is(Mutant::AttributesByChangeTime) => now.changes != 0,
                        () => now.mark,
                    };
                if early {
                    mark(&mut next);
                }
                next.at = At::First;
                "look"
            }
            At::First => {
                set(&mut next, 0);
                next.at = At::Second;
                "first attribute"
            }
            At::Second => {
                set(&mut next, 1);
                next.at = At::Mark;
                "second attribute"
            }
            At::Mark => {
                mark(&mut next);
                next.at = At::Done;
                next.reported |= !state.redo;
                "mark, slot free, reported"
            }
            At::Done => {
                next.history = vec![state.now()];
                next.at = At::Synced;
                "checkpoint"
            }
            At::Synced => return,
        };
        emit(next, format_args!("{}: {label}", if state.redo { "recovery" } else { "owner" }));
    }

    fn outsider(&self, state: &State, emit: &mut Emit<'_, State>) {
        if state.acts == 0 {
            return;
        }
        let acts = || State { acts: state.acts - 1, ..state.clone() };
        if state.now().set[0] {
            let mut next = acts();
            next.his = true;
            next.too_early |= !matches!(state.at, At::Done | At::Synced);
            next.change(|data| {
                data.set[0] = false;
                data.put_back = true;
                data.changes += 1;
            });
            emit(next, format_args!("outsider: puts the first one back"));
        }
        let mut next = acts();
        next.change(|data| data.changes += 1);
        emit(next, format_args!("outsider: changes something else of it"));
        let mut next = acts();
        next.history = vec![state.now()];
        emit(next, format_args!("outsider: syncs"));
    }

    fn lose(&self, state: &State, left: Data, emit: &mut Emit<'_, State>) {
        let mut next = State { losses: state.losses - 1, history: vec![left], redo: true, ..state.clone() };
        // A record that a checkpoint covers is not redone.
        next.at = if state.at == At::Synced { At::Synced } else { At::Look };
        next.leaves = false;
        // The outsider's change counts only as far as it survived.
        next.his &= left.put_back;
        emit(next, format_args!("power lost: {left:?} survives"));
    }
}

impl Model for Mark {
    type State = State;

    fn initial(&self) -> State {
        let nothing = Data { set: [false; 2], put_back: false, changes: 0, mark: false };
        let (acts, losses) = (self.acts, self.losses);
        let (leaves, redo, reported, his, too_early) = (false, false, false, false, false);
        State { at: At::Look, history: vec![nothing], leaves, redo, reported, his, too_early, acts, losses }
    }

    fn successors(&self, state: &State, emit: &mut Emit<'_, State>) {
        self.step(state, emit);
        self.outsider(state, emit);
        if state.losses == 0 {
            return;
        }
        for left in &state.history {
            if self.is(Mutant::MarkInAnyOrder) {
                for other in &state.history {
                    self.lose(state, Data { mark: other.mark, ..*left }, emit);
                }
            } else {
                self.lose(state, *left, emit);
            }
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let now = state.now();
        let over = state.redo && matches!(state.at, At::Done | At::Synced);
        if !over || !state.reported || state.too_early {
            return None;
        }
        if state.his && now.set[0] {
            return Some(UNDONE);
        }
        let missing = !now.set[1] || (!now.set[0] && !state.his);
        missing.then_some(LOST)
    }

    fn is_final(&self, state: &State) -> bool {
        state.at == At::Synced
    }
}
