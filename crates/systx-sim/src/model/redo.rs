//! Two transactions that depend on each other, over power losses: holes in the log, durability `none`,
//! checkpoint, segments dropped in order, an ordered pair.
//!
//! Guarantees, if the exploration is clean: what recovery finds is the serial result of the transactions that
//! survive (I3), a durable one that was reported survives and an aborted one does not (I8), records go only
//! after a sync and in order (I7), what survives is a prefix of the log and builds on nothing lost (I12).
//! Does not do: how steps are applied (`crash`, `chain`); here a redo compares one value with the one before.
//!
//! T1 sets x from 0 to 1. T2 follows and does what [`Second`] says. Segment 1 holds the record of T1, segment
//! 2 that of T2.

use super::checker::{Emit, Model};
use super::Mutant;

/// Effect of T2 on T1's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Second {
    /// Reads x and writes 10 + x to y.
    Reads,
    /// Overwrites x with 2.
    Overwrites,
    /// Sets x back to 0: a redo of T1 alone could not see that.
    Restores,
    /// Writes y, overlaps nothing, but has the next number.
    NextInOrder,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Redo {
    /// T2.
    pub second: Second,
    /// T1 and T2 are `durable`, else `none`.
    pub durable: [bool; 2],
    /// An older prepared transaction keeps segment 1 from being dropped.
    pub prepared_before: bool,
    /// Kills.
    pub kills: u8,
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// I8, aborted.
pub const ABORTED_REDONE: &str = "I8: reported aborted, redone";
/// I8, committed.
pub const DURABLE_LOST: &str = "I8: reported durable, lost";
/// A record without what it needs.
pub const GARBAGE: &str = "I7: redone without its staged data";
/// I12, dependence.
pub const BUILT_ON_LOST: &str = "I12: it survived, but not the result it builds on";
/// I12, order.
pub const OUT_OF_ORDER: &str = "I12: number 2 survived, number 1 did not";
/// I3.
pub const NOT_SERIAL: &str = "I3: not the serial result of the surviving transactions";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Idle,
    Prepared,
    /// Mutant: header without a slot.
    HeaderOnly,
    Sync,
    FinalLook,
    Publish,
    Abort,
    SyncAbort,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cell {
    Free,
    Header(u8),
    Abort(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Told {
    Nothing,
    Aborted,
    Committed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tx {
    phase: Phase,
    slot: bool,
    told: Told,
    /// Value of x it read.
    saw: u8,
    builds_on_other: bool,
    dead: bool,
    before: u8,
    after: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Data {
    x: u8,
    y: u8,
    staged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mode {
    Running,
    /// Recovery at this cell.
    Redo(u8),
    Steps,
    Recovered,
}

/// State of data, log and both transactions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    now: Data,
    disk: Data,
    log: [(Cell, bool); 5],
    tx: [Tx; 2],
    mode: Mode,
    /// Records that are not redone any more.
    dropped: [bool; 2],
    forward: [bool; 2],
    kills: u8,
    losses: u8,
}

const GARBAGE_VALUE: u8 = 99;

impl State {
    fn len(&self) -> usize {
        self.log.iter().take_while(|(cell, _)| *cell != Cell::Free).count()
    }

    fn has(&self, cell: Cell) -> bool {
        self.log.iter().any(|&(c, _)| c == cell)
    }

    fn append(&mut self, cell: Cell) {
        let len = self.len();
        self.log[len] = (cell, false);
    }

    fn sync_log(&mut self) {
        let len = self.len();
        for (_, synced) in &mut self.log[..len] {
            *synced = true;
        }
    }
}

impl Redo {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn ordered(&self) -> bool {
        self.second == Second::NextInOrder
    }

    fn writes_y(&self) -> bool {
        matches!(self.second, Second::Reads | Second::NextInOrder)
    }

    fn recorded(&self, i: usize) -> bool {
        self.durable[i] || self.is(Mutant::NoneInLog)
    }

    fn run(&self, s: &State, i: usize, emit: &mut Emit<'_, State>) {
        let (tx, other, name) = (s.tx[i], s.tx[1 - i], i + 1);
        let mut go = |label: &str, change: &dyn Fn(&mut State, &mut Tx)| {
            let (mut next, mut mine) = (*s, tx);
            change(&mut next, &mut mine);
            next.tx[i] = mine;
            emit(next, format_args!("T{name} {label}"));
        };
        let header = Cell::Header(i as u8);
        match tx.phase {
            Phase::Idle if i == 1 && !self.ordered() && other.phase != Phase::End => {}
            Phase::Idle => go("runs, stage barrier", &|s, tx| {
                tx.saw = if i == 0 || self.ordered() { 0 } else { s.now.x };
                tx.builds_on_other = i == 1 && !self.ordered() && s.now.x == 1;
                tx.before = s.now.x;
                tx.after = match (i, self.second) {
                    (0, _) => 1,
                    (_, Second::Overwrites) => 2,
                    (_, Second::Restores) => 0,
                    _ => 10 + tx.saw,
                };
                if i == 0 {
                    s.now.staged = true;
                    s.disk.staged |= self.durable[0];
                }
                tx.phase = Phase::Prepared;
            }),
            Phase::Prepared => self.validate(s, i, &mut go),
            Phase::HeaderOnly => {
                go("V5 after V7: slot visible", &|_, tx| (tx.slot, tx.phase) = (true, Phase::Sync))
            }
            Phase::Sync => go("S: log synced", &|s, tx| {
                tx.phase = Phase::FinalLook;
                if self.is(Mutant::SegmentNotSynced) && i == 1 {
                    // Only the cells of the segment that T2 wrote to.
                    for (cell, synced) in &mut s.log {
                        *synced |= matches!(cell, Cell::Header(1) | Cell::Abort(1));
                    }
                } else if !self.is(Mutant::NoLogSync) {
                    s.sync_log();
                }
            }),
            Phase::FinalLook => {
                go("F: fine, PUBLISHING", &|_, tx| tx.phase = Phase::Publish);
                go("F: an outsider was there", &|_, tx| tx.phase = Phase::Abort);
            }
            Phase::Publish => go("U, D: slot free", &|s, tx| {
                match (i, self.writes_y()) {
                    (1, true) => s.now.y = tx.after,
                    _ => s.now.x = tx.after,
                }
                (tx.slot, tx.phase) = (false, Phase::End);
                if !tx.dead {
                    tx.told = Told::Committed;
                }
            }),
            Phase::Abort => go("ABORT appended", &|s, tx| {
                if s.has(header) {
                    s.append(Cell::Abort(i as u8));
                }
                if self.durable[i] {
                    tx.phase = Phase::SyncAbort;
                } else {
                    end_aborted(tx);
                }
            }),
            Phase::SyncAbort => go("ABORT synced, slot free", &|s, tx| {
                s.sync_log();
                end_aborted(tx);
            }),
            Phase::End => {}
        }
        self.kill(s, &tx, &mut go);
    }

    fn kill(&self, s: &State, tx: &Tx, go: &mut Go<'_>) {
        if s.kills > 0 && !tx.dead && matches!(tx.phase, Phase::Sync | Phase::FinalLook) {
            go("is killed, helper aborts", &|s, tx| {
                (s.kills, tx.dead, tx.phase) = (s.kills - 1, true, Phase::Abort)
            });
        }
        if s.kills > 0 && !tx.dead && tx.phase == Phase::HeaderOnly {
            go("is killed, nobody knows of it", &|s, tx| {
                (s.kills, tx.dead, tx.phase) = (s.kills - 1, true, Phase::End);
            });
        }
    }

    fn validate(&self, s: &State, i: usize, go: &mut Go<'_>) {
        let (tx, other) = (s.tx[i], s.tx[1 - i]);
        if !self.ordered() && other.slot && other.phase != Phase::End {
            return; // V2
        }
        if self.ordered() && i == 1 && other.phase < Phase::Sync {
            return; // V1
        }
        if !self.ordered() && i == 1 && s.now.x != tx.saw {
            go("V3: conflict", &|_, tx| end_aborted(tx));
            return;
        }
        let unsynced = tx.builds_on_other && !self.durable[0] && s.disk != s.now;
        if i == 1 && self.durable[1] && unsynced && !self.is(Mutant::NoV4) {
            go("V4: syncfs, it builds on a `none` result", &|s, _| s.disk = s.now);
            return;
        }
        if self.is(Mutant::HeaderBeforeSlot) {
            go("V7 before V5: header appended", &|s, tx| {
                s.append(Cell::Header(i as u8));
                tx.phase = Phase::HeaderOnly;
            });
            return;
        }
        go("V5, V7: slot, header appended", &|s, tx| {
            tx.slot = true;
            if self.recorded(i) {
                s.append(Cell::Header(i as u8));
            }
            tx.phase = if self.durable[i] { Phase::Sync } else { Phase::FinalLook };
        });
    }

    fn drop_segments(&self, s: &State, emit: &mut Emit<'_, State>) {
        if self.is(Mutant::HeaderBeforeSlot) {
            return;
        }
        let ended = |i: usize| s.tx[i].phase == Phase::End && s.has(Cell::Header(i as u8));
        let free = |i: usize| ended(i) && !s.dropped[i];
        let mut go = |label: &str, i: usize| {
            let mut next = *s;
            // Of few records their objects, unless a number below has none; what these build on was on the
            // disk before (V4, C10).
            let few = [false, true].into_iter().filter(|few| !few || self.durable[..=i] == [true; 2][..=i]);
            for few in few {
                next.disk = s.disk;
                match (few, i, self.writes_y()) {
                    _ if self.is(Mutant::CoveredNotWritten) && few => {}
                    (false, _, _) => next.disk = s.now,
                    (_, 1, true) => next.disk.y = s.now.y,
                    _ => next.disk.x = s.now.x,
                }
                next.dropped[i] = true;
                emit(next, format_args!("{label}, few: {few}"));
            }
        };
        if free(0) && !self.prepared_before {
            go("C: sync, segment 1 dropped", 0);
        }
        let first = s.dropped[0] || self.is(Mutant::SegmentDroppedEarly);
        if free(1) && s.tx[0].phase == Phase::End && first {
            go("C: sync, segment 2 dropped", 1);
        }
    }

    fn recover(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut n = *s;
        match s.mode {
            Mode::Redo(at) if at as usize == s.len() => {
                n.mode = Mode::Steps;
                emit(n, format_args!("[recovery] end of the log"));
            }
            Mode::Redo(at) => {
                n.mode = Mode::Redo(at + 1);
                let Cell::Header(i) = s.log[at as usize].0 else {
                    return emit(n, format_args!("[recovery] skips a mark"));
                };
                let i = i as usize;
                if s.has(Cell::Abort(i as u8)) || s.dropped[i] || !self.recorded(i) {
                    return emit(n, format_args!("[recovery] skips T{}", i + 1));
                }
                n.forward[i] = true;
                match (i, self.writes_y()) {
                    (0, _) if n.now.x == 0 => n.now.x = if n.now.staged { 1 } else { GARBAGE_VALUE },
                    (0, _) => {}
                    (_, true) if n.now.y == 0 => n.now.y = n.tx[1].after,
                    (_, false) if n.now.x == n.tx[1].before => n.now.x = n.tx[1].after,
                    _ => {}
                }
                emit(n, format_args!("[recovery] redoes T{}", i + 1));
            }
            Mode::Steps => {
                (n.disk, n.mode, n.dropped) = (n.now, Mode::Recovered, [true; 2]);
                emit(n, format_args!("[recovery] syncfs, log empty"));
            }
            Mode::Running | Mode::Recovered => {}
        }
    }

    fn machine(&self, s: &State, emit: &mut Emit<'_, State>) {
        if s.losses == 0 {
            return;
        }
        let mut go = |label: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            if next != *s {
                emit(next, format_args!("{label}"));
            }
        };
        go("write-back of x", &|n| n.disk.x = n.now.x);
        go("write-back of y", &|n| n.disk.y = n.now.y);
        go("write-back of staged data", &|n| n.disk.staged = n.now.staged);
        for at in 0..s.len() {
            go(&format!("write-back of log cell {at}"), &|n| n.log[at].1 = true);
        }
        if s.mode != Mode::Recovered {
            go("POWER LOSS", &|n| self.lose_power(n));
        }
    }

    fn lose_power(&self, n: &mut State) {
        n.losses -= 1;
        n.now = n.disk;
        for i in 0..2 {
            let (tx, mark) = (n.tx[i], i as u8);
            let published = tx.phase == Phase::End && n.has(Cell::Header(mark)) && !n.has(Cell::Abort(mark));
            n.forward[i] |= n.mode == Mode::Running && n.dropped[i] && published;
        }
        let mut log = [(Cell::Free, false); 5];
        let mut len = 0;
        for &(cell, synced) in n.log.iter().take(n.len()) {
            if synced {
                log[len] = (cell, true);
                len += 1;
            } else if !self.is(Mutant::HoleSkipped) {
                break;
            }
        }
        (n.log, n.mode) = (log, Mode::Redo(0));
    }
}

fn end_aborted(tx: &mut Tx) {
    (tx.phase, tx.slot) = (Phase::End, false);
    if !tx.dead {
        tx.told = Told::Aborted;
    }
}

/// Emits the successor that a change to the state and to the transaction under way makes.
type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State, &mut Tx)) + 'a;

impl Model for Redo {
    type State = State;

    fn initial(&self) -> State {
        let tx = Tx {
            phase: Phase::Idle,
            slot: false,
            told: Told::Nothing,
            saw: 0,
            builds_on_other: false,
            dead: false,
            before: 0,
            after: 0,
        };
        let data = Data { x: 0, y: 0, staged: false };
        State {
            now: data,
            disk: data,
            log: [(Cell::Free, false); 5],
            tx: [tx; 2],
            mode: Mode::Running,
            dropped: [false; 2],
            forward: [false; 2],
            kills: self.kills,
            losses: self.losses,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        if s.mode == Mode::Running {
            self.run(s, 0, emit);
            self.run(s, 1, emit);
            self.drop_segments(s, emit);
        } else {
            self.recover(s, emit);
        }
        self.machine(s, emit);
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if s.mode != Mode::Recovered {
            return None;
        }
        for i in 0..2 {
            match s.tx[i].told {
                Told::Aborted if s.forward[i] => return Some(ABORTED_REDONE),
                Told::Committed if self.durable[i] && !s.forward[i] => return Some(DURABLE_LOST),
                _ => {}
            }
        }
        let [first, second] = s.forward;
        if s.now.x == GARBAGE_VALUE {
            return Some(GARBAGE);
        }
        if second && s.tx[1].builds_on_other {
            let lost = if self.writes_y() { s.now.x != 1 } else { self.durable[0] && !first };
            if lost {
                return Some(BUILT_ON_LOST);
            }
        }
        let aborted = s.tx[0].told == Told::Aborted
            || s.tx[0].dead
            || matches!(s.tx[0].phase, Phase::Abort | Phase::SyncAbort);
        if self.ordered() && second && !first && !aborted {
            return Some(OUT_OF_ORDER);
        }
        let after = s.tx[1].after;
        if self.durable == [true; 2] {
            let x = if second && !self.writes_y() { after } else { u8::from(first) };
            let y = if second && self.writes_y() { after } else { 0 };
            return ((x, y) != (s.now.x, s.now.y)).then_some(NOT_SERIAL);
        }
        let there = if self.writes_y() { s.now.y == after } else { s.now.x == after };
        (second && !there).then_some(NOT_SERIAL)
    }

    fn is_final(&self, s: &State) -> bool {
        s.mode == Mode::Recovered || (s.mode == Mode::Running && s.tx[0].phase == Phase::End)
    }
}
