//! Two transactions that append to one file without having seen its end, an outsider that appends, kills, and power
//! losses.
//!
//! Guarantees, if the exploration is clean: neither transaction loses unless the outsider came ([`NEEDLESS`]); what is
//! reported is there once, whatever the end was when it was published, also behind a power loss ([`LOST`], [`TWICE`]);
//! nothing of the outsider's is written over ([`OVERWRITTEN`]); and what is decided is finished for the dead, but where
//! the outsider appends between the final look and the step ([`HALF`]). Each append is one byte that names its writer.
//! Does not do: readers of the size (in `cooperation` they read what is written), parts of an append, checkpoints.

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Appends {
    /// Appends of the outsider.
    pub acts: u8,
    /// The outsider has the file open all the time: no lease keeps it out.
    pub shared: bool,
    /// Owners that are killed.
    pub kills: u8,
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// Without a reason.
pub const NEEDLESS: &str = "appends: a conflict, and nobody else has changed the file";
/// After the report.
pub const LOST: &str = "appends: reported, and not there";
/// By a pass after another one.
pub const TWICE: &str = "appends: there twice";
/// By a step.
pub const OVERWRITTEN: &str = "appends: written over the bytes of another";
/// By a helper.
pub const HALF: &str = "appends: decided, finished for the dead, and not there";

const OUTSIDER: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Look,
    /// P4: the base is on the disk, the body is written.
    Base,
    Validate,
    V6,
    Header,
    Sync,
    Final,
    /// U.
    Publish,
    /// It came behind bytes of the outsider.
    Moved,
    Free,
    Done,
    Conflict,
    /// A helper has finished it, or aborted it.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tx {
    at: At,
    /// The end that it has found, and the next number before.
    end: u8,
    since: u8,
    dead: bool,
    /// The outsider's appends at its final look.
    acts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Record {
    who: u8,
    end: u8,
    synced: bool,
    aborted: bool,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The file since its last sync, oldest first: a power loss leaves one of them.
    files: Vec<Vec<u8>>,
    /// So much of the file is on the disk, or where a record says, which is all that a base relies on (C10).
    known: u8,
    log: Vec<Record>,
    next: u8,
    tx: [Tx; 2],
    /// Appends of the outsider that are left.
    acts: u8,
    kills: u8,
    losses: u8,
    off: bool,
    broken: Option<&'static str>,
}

impl State {
    fn file(&self) -> &Vec<u8> {
        &self.files[self.files.len() - 1]
    }

    fn end(&self) -> u8 {
        self.file().len() as u8
    }

    fn write(&mut self, at: u8, who: u8) {
        let mut file = self.file().clone();
        match file.get_mut(at as usize) {
            Some(there) => {
                *there = who;
                self.broken = Some(OVERWRITTEN);
            }
            None => file.push(who),
        }
        self.files.push(file);
    }

    fn sync(&mut self) {
        self.files = vec![self.file().clone()];
        self.known = self.end();
    }

    fn count(&self, who: u8) -> usize {
        self.file().iter().filter(|writer| **writer == who).count()
    }

    fn in_flight(&self, tx: usize) -> bool {
        matches!(
            self.tx[tx].at,
            At::V6 | At::Header | At::Sync | At::Final | At::Publish | At::Moved | At::Free
        )
    }

    fn leased(&self, shared: bool) -> bool {
        !shared && self.tx.iter().any(|tx| !tx.dead && matches!(tx.at, At::Publish | At::Moved | At::Free))
    }

    /// U by any other process than the owner, which does not know what is there.
    fn publish_for(&mut self, mutant: bool, Record { who, end, .. }: Record) {
        // Whatever else stands there is ours already, or the outsider's.
        if mutant || self.end() == end {
            self.write(self.end(), who);
        }
    }
}

impl Appends {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn owner(&self, state: &State, n: usize, emit: &mut Emit<'_, State>) {
        let (mut next, other, who) = (state.clone(), 1 - n, n as u8);
        let found = |state: &State| state.tx[n].end == state.end() || self.is(Mutant::EndNotCompared);
        let at = match state.tx[n].at {
            At::Look if state.in_flight(other) => return,
            At::Look => {
                (next.tx[n].since, next.tx[n].end) = (state.next, state.end());
                At::Base
            }
            At::Base => {
                if state.known < state.end() {
                    next.sync();
                }
                At::Validate
            }
            At::Validate if state.in_flight(other) => return,
            At::Validate if state.tx[n].since < state.next && !self.is(Mutant::EndFoundOnce) => At::Look,
            At::Validate => {
                next.next += 1;
                At::V6
            }
            At::V6 if found(state) => At::Header,
            At::V6 => At::Conflict,
            At::Header => {
                next.log.push(Record { who, end: state.tx[n].end, synced: false, aborted: false });
                At::Sync
            }
            At::Sync => {
                next.log.iter_mut().for_each(|record| record.synced = true);
                At::Final
            }
            At::Final if found(state) => {
                next.tx[n].acts = state.acts;
                At::Publish
            }
            At::Final => {
                // Synced before the entry is free.
                next.log
                    .iter_mut()
                    .filter(|record| record.who == who)
                    .for_each(|record| record.aborted = true);
                At::Conflict
            }
            At::Publish => {
                next.write(state.end(), who);
                // With the outsider kept out, what the owner leaves is what the record says.
                if state.known == state.end() && state.end() == state.tx[n].end && !self.shared {
                    next.known += 1;
                }
                if state.end() == state.tx[n].end {
                    At::Free
                } else {
                    At::Moved
                }
            }
            At::Moved => {
                if !self.is(Mutant::MovedNotSynced) {
                    next.sync();
                }
                At::Free
            }
            At::Free => At::Done,
            At::Done | At::Conflict | At::Over => return,
        };
        if at == At::Conflict && state.acts == self.acts {
            next.broken = Some(NEEDLESS);
        }
        next.tx[n].at = at;
        emit(next, format_args!("{n}: {:?} -> {at:?}", state.tx[n].at));
    }

    fn dies(&self, state: &State, n: usize, emit: &mut Emit<'_, State>) {
        let (mut next, who) = (state.clone(), n as u8);
        if !state.tx[n].dead {
            if state.kills > 0 && !matches!(state.tx[n].at, At::Done | At::Conflict | At::Over) {
                next.kills -= 1;
                next.tx[n].dead = true;
                emit(next, format_args!("{n}: killed"));
            }
            return;
        }
        let record = state.log.iter().rposition(|record| record.who == who && !record.aborted);
        match (state.tx[n].at, record) {
            (At::Over, _) => return,
            (At::Publish | At::Moved | At::Free, Some(record)) => {
                next.publish_for(self.is(Mutant::AppendedTwice), state.log[record]);
                if next.count(who) == 0 && state.tx[n].acts == state.acts {
                    next.broken = Some(HALF);
                }
            }
            (_, record) => record.into_iter().for_each(|record| next.log[record].aborted = true),
        }
        next.tx[n].at = At::Over;
        emit(next, format_args!("{n}: finished by a helper"));
    }

    fn lose(&self, state: &State, emit: &mut Emit<'_, State>) {
        for (left, file) in state.files.iter().enumerate() {
            let synced = state.log.iter().filter(|record| record.synced).count();
            for log in synced..=state.log.len() {
                let mut next = State { losses: state.losses - 1, files: vec![file.clone()], ..state.clone() };
                next.log.truncate(log);
                let records = next.log.clone();
                for (at, record) in records.iter().enumerate().filter(|(_, record)| !record.aborted) {
                    // The rule of chains.
                    let then = records[at + 1..].iter().find(|then| !then.aborted);
                    if then.is_none_or(|then| then.end == record.end + 1) {
                        next.publish_for(self.is(Mutant::AppendedTwice), *record);
                    }
                }
                for (n, tx) in state.tx.iter().enumerate() {
                    if tx.at == At::Done && next.count(n as u8) == 0 {
                        next.broken = Some(LOST);
                    }
                }
                next.off = true;
                emit(next, format_args!("power lost: {left} changes and {log} records survive, redone"));
            }
        }
    }
}

impl Model for Appends {
    type State = State;

    fn initial(&self) -> State {
        let tx = Tx { at: At::Look, end: 0, since: 0, dead: false, acts: 0 };
        State {
            files: vec![Vec::new()],
            known: 0,
            log: Vec::new(),
            next: 0,
            tx: [tx; 2],
            acts: self.acts,
            kills: self.kills,
            losses: self.losses,
            off: false,
            broken: None,
        }
    }

    fn successors(&self, state: &State, emit: &mut Emit<'_, State>) {
        if state.losses > 0 {
            self.lose(state, emit);
        }
        if state.off {
            return;
        }
        for n in 0..2 {
            self.dies(state, n, emit);
            if !state.tx[n].dead {
                self.owner(state, n, emit);
            }
        }
        if state.acts > 0 && !state.leased(self.shared) {
            let mut next = state.clone();
            next.acts -= 1;
            next.write(state.end(), OUTSIDER);
            emit(next, format_args!("outsider: appends"));
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let done = |n: usize| state.tx[n].at == At::Done;
        let lost = !state.off && (0..2).any(|n| done(n) && state.count(n as u8) == 0);
        let twice = (0..2).any(|n| state.count(n as u8) > 1);
        state.broken.or(twice.then_some(TWICE)).or(lost.then_some(LOST))
    }

    fn is_final(&self, state: &State) -> bool {
        state.off || (0..2).all(|n| matches!(state.tx[n].at, At::Done | At::Conflict | At::Over))
    }
}
