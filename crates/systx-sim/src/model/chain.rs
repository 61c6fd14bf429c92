//! Two transactions one after the other on the same names, redone in LSN order after a power loss, with an
//! outsider.
//!
//! Guarantees, if the exploration is clean: the names show the serial result of those that survive, a
//! conflict copy is reported only if an outsider was there, the outsider's changes after both had been
//! decided stay. Assumes that metadata survive as a prefix and that `tx/<id>` appears with all its tokens at
//! once (see `crash`). Does not do: kills (`crash`), log holes (`redo`).

use super::checker::{Emit, Model};
use super::Mutant;

/// One step of a transaction on the names a (0) and b (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Puts the transaction's object at a missing name.
    Place(u8),
    /// Exchanges it for the object with this number.
    Replace(u8, u8),
    /// Takes out the object with this number.
    Remove(u8, u8),
    /// Moves the object with the last number from one name to the other.
    Move(u8, u8, u8),
}

impl Op {
    fn staged(self) -> bool {
        matches!(self, Op::Place(_) | Op::Replace(..))
    }

    fn name(self) -> usize {
        match self {
            Op::Place(n) | Op::Replace(n, _) | Op::Remove(n, _) | Op::Move(n, ..) => n.into(),
        }
    }

    /// The object expected at the name, 0 = missing.
    fn before(self) -> u8 {
        match self {
            Op::Place(_) => 0,
            Op::Replace(_, o) | Op::Remove(_, o) | Op::Move(_, _, o) => o,
        }
    }
}

/// Chains that have each been the shortest way to some mistake.
pub const CHAINS: [(&str, [Op; 2]); 7] = [
    ("place a, remove a", [Op::Place(0), Op::Remove(0, 2)]),
    ("remove a, place a", [Op::Remove(0, 1), Op::Place(0)]),
    ("replace a, replace a", [Op::Replace(0, 1), Op::Replace(0, 2)]),
    ("move a b, move b a", [Op::Move(0, 1, 1), Op::Move(1, 0, 1)]),
    ("move a b, place a", [Op::Move(0, 1, 1), Op::Place(0)]),
    ("replace a, move a b", [Op::Replace(0, 1), Op::Move(0, 1, 2)]),
    ("move a b, remove b", [Op::Move(0, 1, 1), Op::Remove(1, 1)]),
];

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// First and second transaction.
    pub ops: [Op; 2],
    /// Calls of the outsider, on name a.
    pub calls: u8,
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// I8.
pub const LOST: &str = "I8: a reported commit is lost";
/// I8.
pub const BACK: &str = "I8: a reported abort went forward";
/// I3.
pub const NOT_SERIAL: &str = "I3: not the serial result";
/// A displaced object without an outsider.
pub const FALSE_REPORT: &str = "false report of a displacement";
/// I6.
pub const UNDONE: &str = "I6: an outsider's later call was undone";
/// I6.
pub const OUTSIDER_LOST: &str = "I6: an outsider's object is lost";

const TOKEN: u8 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Idle,
    Validate,
    Sync,
    Publish,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Told {
    Nothing,
    Aborted,
    Committed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Names {
    at: [u8; 2],
    slot: [u8; 2],
    directory: [bool; 2],
    aside: [u8; 2],
    decided: [bool; 2],
    /// State that the outsider left at a; true if both were decided then.
    theirs: Option<(u8, bool)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mode {
    Running,
    Redo(u8),
    Recovered,
}

/// State of the names, the log and both transactions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    now: Names,
    disk: Names,
    phase: [Phase; 2],
    header: [bool; 2],
    header_disk: [bool; 2],
    told: [Told; 2],
    mode: Mode,
    dropped: bool,
    forward: [bool; 2],
    displaced: bool,
    outsider_called: bool,
    calls: u8,
    losses: u8,
    fresh: u8,
}

impl Chain {
    fn token(&self) -> u8 {
        if self.mutant == Some(Mutant::NoToken) {
            return 0;
        }
        TOKEN
    }

    fn object(i: usize) -> u8 {
        i as u8 + 2
    }

    /// One system call of U; whether the transaction is through, and what happened.
    fn step(&self, s: &mut State, i: usize) -> (bool, &'static str) {
        let (op, ours) = (self.ops[i], Chain::object(i));
        let names = &mut s.now;
        if !names.directory[i] && !op.staged() {
            (names.directory[i], names.slot[i]) = (true, self.token());
            return (false, "no tx directory: token again");
        }
        let (at, slot) = (op.name(), names.slot[i]);
        let displace = |names: &mut Names| {
            if names.slot[i] != TOKEN {
                names.aside[i] = names.slot[i];
            }
            names.slot[i] = 0;
        };
        let expected = names.at[at] == op.before();
        let mut text = "applied";
        match op {
            Op::Place(_) | Op::Replace(..) if slot != ours => {}
            Op::Place(_) | Op::Replace(..) if expected => {
                (names.slot[i], names.at[at]) = (names.at[at], ours);
                text = "placed or exchanged";
            }
            Op::Place(_) | Op::Replace(..) => {
                displace(names);
                (s.displaced, text) = (true, "displaced");
            }
            Op::Remove(..) | Op::Move(..) if slot == self.token() && expected => {
                (names.slot[i], names.at[at]) = (op.before(), 0);
                text = "taken out";
                if matches!(op, Op::Move(..)) {
                    return (false, text);
                }
            }
            Op::Remove(..) | Op::Move(..) if slot == self.token() => {
                // Without a token an applied step looks the same, so the mutant does not report it.
                s.displaced |= matches!(op, Op::Move(..)) && self.mutant.is_none();
                (names.slot[i], text) = (0, "theirs is later");
            }
            Op::Move(_, to, o) if slot == o && names.at[to as usize] == 0 => {
                (names.at[to as usize], names.slot[i]) = (o, 0);
                text = "put";
            }
            Op::Move(_, _, o) if slot == o => {
                displace(names);
                (s.displaced, text) = (true, "displaced");
            }
            Op::Remove(..) | Op::Move(..) => {}
        }
        s.now.decided[i] = true;
        (true, text)
    }

    fn run(&self, s: &State, i: usize, emit: &mut Emit<'_, State>) {
        let (op, name) = (self.ops[i], i + 1);
        let mut n = *s;
        match s.phase[i] {
            Phase::Idle => {
                let taken = matches!(op, Op::Move(_, to, _) if s.now.at[to as usize] != 0);
                if s.now.at[op.name()] != op.before() || taken {
                    (n.phase[i], n.told[i]) = (Phase::End, Told::Aborted);
                    return emit(n, format_args!("T{name} conflict"));
                }
                n.now.directory[i] = true;
                n.now.slot[i] = if op.staged() { Chain::object(i) } else { self.token() };
                n.phase[i] = Phase::Validate;
                if op.staged() {
                    n.disk = n.now;
                }
                emit(n, format_args!("T{name} prepared{}", if op.staged() { ", barrier" } else { "" }));
            }
            Phase::Validate => {
                (n.header[i], n.phase[i]) = (true, Phase::Sync);
                emit(n, format_args!("T{name} header appended"));
            }
            Phase::Sync => {
                (n.header_disk, n.phase[i]) = (n.header, Phase::Publish);
                emit(n, format_args!("T{name} synced"));
            }
            Phase::Publish => {
                let (through, text) = self.step(&mut n, i);
                if through {
                    (n.phase[i], n.told[i]) = (Phase::End, Told::Committed);
                    n.now.slot[i] = 0;
                }
                emit(n, format_args!("T{name} U: {text}"));
            }
            Phase::End => {}
        }
    }

    fn recover(&self, s: &State, at: u8, emit: &mut Emit<'_, State>) {
        let (mut n, i) = (*s, at as usize);
        if i == 2 {
            (n.disk, n.mode, n.dropped) = (n.now, Mode::Recovered, true);
            emit(n, format_args!("[recovery] syncfs, records dropped"));
        } else if !s.header[i] {
            n.mode = Mode::Redo(at + 1);
            emit(n, format_args!("[recovery] no record of T{}", i + 1));
        } else {
            n.forward[i] = true;
            let (through, text) = self.step(&mut n, i);
            if through {
                n.mode = Mode::Redo(at + 1);
                n.now.slot[i] = 0;
            }
            emit(n, format_args!("[recovery] T{}: {text}", i + 1));
        }
    }

    fn machine(&self, s: &State, emit: &mut Emit<'_, State>) {
        if s.losses == 0 || s.dropped {
            return;
        }
        let mut n = *s;
        n.disk = n.now;
        if n != *s {
            emit(n, format_args!("write-back of metadata"));
        }
        for i in 0..2 {
            if s.header[i] && !s.header_disk[i] && s.header_disk[..i].iter().all(|&h| h) {
                let mut n = *s;
                n.header_disk[i] = true;
                emit(n, format_args!("write-back of the header of T{}", i + 1));
            }
        }
        let mut n = *s;
        n.losses -= 1;
        (n.now, n.header, n.mode, n.displaced) = (n.disk, n.header_disk, Mode::Redo(0), false);
        emit(n, format_args!("POWER LOSS"));
    }

    fn outsider(&self, s: &State, emit: &mut Emit<'_, State>) {
        if s.calls == 0 || (s.mode == Mode::Running && s.phase[0] == Phase::Idle) {
            return;
        }
        let mut call = |object: u8, label: &str| {
            let mut n = *s;
            n.calls -= 1;
            n.fresh += u8::from(object != 0);
            n.now.at[0] = object;
            let decided = (n.now.decided[0] || !n.header[0]) && n.now.decided[1];
            n.now.theirs = Some((object, decided));
            n.outsider_called = true;
            emit(n, format_args!("OUTSIDER {label}"));
        };
        if s.now.at[0] == 0 {
            call(s.fresh, "creates a");
        } else {
            call(0, "unlinks a");
            call(s.fresh, "renames over a");
        }
    }
}

impl Model for Chain {
    type State = State;

    fn initial(&self) -> State {
        let names = Names {
            at: [if matches!(self.ops[0], Op::Place(_)) { 0 } else { 1 }, 0],
            slot: [0; 2],
            directory: [false; 2],
            aside: [0; 2],
            decided: [false; 2],
            theirs: None,
        };
        State {
            now: names,
            disk: names,
            phase: [Phase::Idle; 2],
            header: [false; 2],
            header_disk: [false; 2],
            told: [Told::Nothing; 2],
            mode: Mode::Running,
            dropped: false,
            forward: [false; 2],
            displaced: false,
            outsider_called: false,
            calls: self.calls,
            losses: self.losses,
            fresh: 10,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        match s.mode {
            Mode::Running => {
                self.run(s, 0, emit);
                if s.phase[0] == Phase::End {
                    self.run(s, 1, emit);
                }
                if s.phase == [Phase::End; 2] && !s.dropped {
                    let mut n = *s;
                    (n.disk, n.dropped) = (n.now, true);
                    emit(n, format_args!("C: syncfs, records dropped"));
                }
            }
            Mode::Redo(at) => self.recover(s, at, emit),
            Mode::Recovered => {}
        }
        self.machine(s, emit);
        self.outsider(s, emit);
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if !self.is_final(s) {
            return None;
        }
        let committed = s.told.map(|told| told == Told::Committed);
        let forward = if s.mode == Mode::Recovered { s.forward } else { committed };
        for (told, forward) in s.told.into_iter().zip(forward) {
            match told {
                Told::Committed if !forward => return Some(LOST),
                Told::Aborted if forward => return Some(BACK),
                _ => {}
            }
        }
        if let Some((object, later)) = s.now.theirs {
            if s.now.at[0] != object && later {
                return Some(UNDONE);
            }
            return (object != 0 && s.now.at[0] != object).then_some(OUTSIDER_LOST);
        }
        if s.outsider_called {
            return None; // His call did not survive, but what it did to the step under way may have.
        }
        let mut at = self.initial().now.at;
        for i in (0..2).filter(|&i| forward[i]) {
            match self.ops[i] {
                Op::Place(n) | Op::Replace(n, _) => at[n as usize] = Chain::object(i),
                Op::Remove(n, _) => at[n as usize] = 0,
                Op::Move(from, to, _) => (at[to as usize], at[from as usize]) = (at[from as usize], 0),
            }
        }
        if at != s.now.at {
            return Some(NOT_SERIAL);
        }
        s.displaced.then_some(FALSE_REPORT)
    }

    fn is_final(&self, s: &State) -> bool {
        s.mode == Mode::Recovered || (s.mode == Mode::Running && s.phase == [Phase::End; 2])
    }
}
