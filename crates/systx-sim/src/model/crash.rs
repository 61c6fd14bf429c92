//! One durable transaction against an outsider, kills and power losses: prepare, validate, sync, final look,
//! publish, done, checkpoint, recovery that is itself cut off.
//!
//! Guarantees, if the exploration is clean: all or nothing, I4, I5 (steps are cut and repeated everywhere),
//! I6 for every single call of an outsider, I8, and that a commit forced forward by a power loss overtook no
//! write that V6 could see (P5). Does not do: cooperating transactions (`cooperation`, `chain`), torn
//! sectors, sync errors, steps that depend on each other.
//!
//! Storage: what is written back without a sync. Log cells and the contents of files at any time; metadata as
//! [`Storage`] says. A power loss replaces memory by what was written back.
//!
//! `tx/<id>`: staging entries and tokens are made in `tx/<id>~`, which gets its final name as the last act of
//! Prepare and before the stage barrier. As long as metadata survive as a prefix, an existing `tx/<id>` then
//! proves that each staging entry and token was there once, so an empty staging entry means "applied"; and a
//! missing `tx/<id>` proves that no step of U has happened. [`PROOF`] and [`NOTHING`] check just that on the
//! state that a power loss would leave.

use super::checker::{Emit, Model};
use super::crash_parts::{Cell, Directory, Fact, Micro, Names, Phase, Stored, Told};
pub use super::crash_parts::{Kind, Object, State, Storage};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// The outsider meets the first step, the second one shows that both happen or none.
    pub kinds: [Kind; 2],
    /// The state that survives a power loss.
    pub storage: Storage,
    /// Kills of the owner, a helper or a recovery.
    pub kills: u8,
    /// Power losses.
    pub losses: u8,
    /// Calls of the outsider.
    pub calls: u8,
    /// The outsider may restore exactly what was there before.
    pub restores: bool,
    /// Checks [`PROOF`] and [`NOTHING`]; without it a counterexample goes on to what it leads to.
    pub check_claim: bool,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// An existing `tx/<id>` on the disk does not prove that all slots and tokens were made.
pub const PROOF: &str = "tx directory: it exists, but a slot or token never did";
/// A missing `tx/<id>` on the disk does not prove that no step was taken.
pub const NOTHING: &str = "tx directory: it is missing, but a step was taken";
/// I4.
pub const I4: &str = "I4: a step without a synced header or after an ABORT";
/// Atomicity, forward.
pub const STEP_MISSING: &str = "all or nothing: committed but a step is missing";
/// Atomicity, back.
pub const STEP_VISIBLE: &str = "all or nothing: not committed but a step is visible";
/// I6: what an outsider did after the decision has to stay.
pub const LATER_UNDONE: &str = "I6: an outsider's later call was undone";
/// I6: what an outsider left has to be in the tree or aside.
pub const LOST: &str = "I6: an outsider's object is lost without a report";
/// I6 holds, and yet.
pub const RESIDUE_H: &str = "residue (h): the outsider's newest object is aside, an older one at the name";
/// I8, aborted.
pub const ABORTED_FORWARD: &str = "I8: reported aborted, later forward";
/// I8, committed.
pub const COMMITTED_LOST: &str = "I8: reported committed, later lost";
/// P5.
pub const OVERTAKEN: &str = "P5: forward over a fact that had changed before V6";

/// Outcome: finished and reported.
pub const COMMITTED: &str = "committed";
/// Outcome: reported, nothing was changed.
pub const ABORTED: &str = "aborted";
/// Outcome: a helper finished it after a kill.
pub const FORWARD_BY_HELPER: &str = "forward by a helper";
/// Outcome: a recovery finished it after a power loss.
pub const FORWARD_BY_RECOVERY: &str = "forward by recovery";
/// Outcome: cut off before it could be reported.
pub const NOTHING_HAPPENED: &str = "nothing was changed, nobody was told";

impl Crash {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn staged(&self) -> bool {
        self.kinds.iter().any(|k| k.staged())
    }

    fn slot_at_first(&self, kind: Kind) -> Object {
        if self.is(Mutant::NoToken) && kind == Kind::Remove {
            return Object::None;
        }
        kind.in_slot()
    }

    fn before_holds(&self, s: &State, i: usize) -> bool {
        let cell = &s.names.cells[i];
        cell.name == self.kinds[i].before() && cell.dest == Object::None
    }

    /// Makes the slot of step `i`; a recovery makes tokens only, what was staged is behind the barrier.
    fn build(&self, names: &mut Names, i: usize, again: bool) {
        let first =
            if self.is(Mutant::DirectoryBuiltInPlace) { Directory::There } else { Directory::Building };
        if i == 0 {
            names.directory = first;
            for cell in &mut names.cells {
                (cell.slot, cell.built) = (Object::None, false);
            }
        }
        let kind = self.kinds[i];
        if !(again && kind.staged()) {
            names.cells[i].slot = self.slot_at_first(kind);
        }
        names.cells[i].built = true;
    }

    fn owner(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: std::fmt::Arguments<'_>, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, label);
        };
        match s.phase {
            Phase::Build(i) => go(format_args!("P: slot {i}"), &|n| {
                self.build(&mut n.names, i as usize, false);
                n.phase = match i {
                    0 => Phase::Build(1),
                    _ if self.is(Mutant::BarrierBeforeRename) && self.staged() => Phase::Barrier,
                    _ => Phase::NameDirectory,
                };
            }),
            Phase::NameDirectory => go(format_args!("P: tx/<id>~ -> tx/<id>"), &|n| {
                n.names.directory = Directory::There;
                let late = !self.is(Mutant::BarrierBeforeRename) && self.staged();
                n.phase = if late { Phase::Barrier } else { Phase::CheckAll };
            }),
            Phase::Barrier => go(format_args!("P: stage barrier"), &|n| {
                n.disk = n.names;
                let early = self.is(Mutant::BarrierBeforeRename);
                n.phase = if early { Phase::NameDirectory } else { Phase::CheckAll };
            }),
            Phase::CheckAll => {
                let fine = s.fact.now == Fact::Unchanged && (0..2).all(|i| self.before_holds(s, i));
                if !fine {
                    go(format_args!("P4: conflict"), &|n| (n.phase, n.told) = (Phase::End, Told::Aborted));
                } else {
                    let next = if self.is(Mutant::NoV6) { Phase::V7 } else { Phase::V6 };
                    go(format_args!("P4: facts fine, V5"), &|n| n.phase = next);
                }
            }
            Phase::V6 if s.fact.now == Fact::Unchanged => {
                go(format_args!("V6: facts fine"), &|n| n.phase = Phase::V7)
            }
            Phase::V6 => {
                go(format_args!("V6: conflict"), &|n| (n.phase, n.told) = (Phase::End, Told::Aborted))
            }
            Phase::V7 => go(format_args!("V7: header appended"), &|n| {
                n.header.now = true;
                n.phase = if self.is(Mutant::PublishBeforeSync) { Phase::FinalFact } else { Phase::Sync };
            }),
            Phase::Sync => go(format_args!("S: log synced"), &|n| {
                n.header.sync();
                n.phase = Phase::FinalFact;
            }),
            Phase::FinalFact if s.fact.now == Fact::Unchanged => {
                go(format_args!("F: facts fine"), &|n| n.phase = Phase::FinalBefore(0))
            }
            Phase::FinalBefore(0) if self.before_holds(s, 0) => {
                go(format_args!("F: before of step 0 fine"), &|n| n.phase = Phase::FinalBefore(1))
            }
            Phase::FinalBefore(1) if self.before_holds(s, 1) => {
                go(format_args!("F: before of step 1 fine, PUBLISHING"), &|n| {
                    (n.phase, n.looked) = (Phase::Publish, true);
                    if self.is(Mutant::DoneBeforePublish) {
                        (n.told, n.forward) = (Told::Committed, true);
                    }
                })
            }
            Phase::FinalFact | Phase::FinalBefore(_) => {
                go(format_args!("F: something changed"), &|n| n.phase = Phase::Abort)
            }
            Phase::Abort => go(format_args!("ABORT appended"), &|n| {
                n.abort.now = !self.is(Mutant::NoAbortRecord);
                n.phase = if self.is(Mutant::AbortNotSynced) { Phase::Aborted } else { Phase::SyncAbort };
            }),
            Phase::SyncAbort => go(format_args!("ABORT synced"), &|n| {
                n.header.sync();
                n.abort.sync();
                n.phase = Phase::Aborted;
            }),
            Phase::Aborted => go(format_args!("slot free, aborted"), &|n| {
                n.phase = Phase::End;
                if !n.owner_dead {
                    n.told = Told::Aborted;
                }
            }),
            Phase::Rebuild(2) => go(format_args!("[recovery] tx/<id>~ -> tx/<id>"), &|n| {
                (n.names.directory, n.phase) = (Directory::There, Phase::Publish);
            }),
            Phase::Rebuild(i) => go(format_args!("[recovery] tx/<id> is missing: token {i} again"), &|n| {
                self.build(&mut n.names, i as usize, true);
                n.phase = Phase::Rebuild(i + 1);
            }),
            Phase::Publish if s.recovering && s.step == 0 && s.micro == Micro::Look && self.missing(s) => {
                go(format_args!("[recovery] no tx/<id>"), &|n| n.phase = Phase::Rebuild(0))
            }
            Phase::Publish if s.step == 2 => go(format_args!("U: all steps"), &|n| n.phase = Phase::Done),
            Phase::Publish => self.publish(s, emit),
            Phase::Done => go(format_args!("D: trash reclaimed, slot free"), &|n| self.done(n)),
            Phase::SyncAll => go(format_args!("[recovery] syncfs, record dropped"), &checkpoint),
            Phase::End if !s.dropped && s.header.now => {
                go(format_args!("C: syncfs, record dropped"), &checkpoint)
            }
            Phase::End => {}
        }
    }

    fn missing(&self, s: &State) -> bool {
        s.names.directory != Directory::There && self.kinds.iter().any(|k| k.is_name())
    }

    fn done(&self, n: &mut State) {
        for cell in n.names.cells.iter_mut().filter(|cell| cell.slot == Object::Before) {
            cell.slot = Object::None;
        }
        n.forward = true;
        if self.is(Mutant::DirectoryRemovedAtDone) {
            n.names.directory = Directory::Missing;
        }
        if n.recovering {
            n.phase = Phase::SyncAll;
            return;
        }
        n.phase = Phase::End;
        n.dropped = self.is(Mutant::RecordDroppedWithoutSync);
        if !n.owner_dead {
            n.told = Told::Committed;
        }
    }

    /// A kill leaves the slot to a helper, who knows only what the slot and the log say.
    pub(super) fn kill(&self, n: &mut State) {
        n.kills -= 1;
        n.owner_dead = true;
        (n.step, n.micro) = (0, Micro::Look);
        n.phase = match n.phase {
            _ if n.recovering => Phase::Publish,
            Phase::Publish | Phase::Done if self.is(Mutant::DoneBeforePublish) => Phase::End,
            Phase::Publish | Phase::Done => Phase::Publish,
            p if p <= Phase::V7 => Phase::End,
            _ if self.is(Mutant::HelperPublishesValidated) => Phase::Publish,
            _ => Phase::Abort,
        };
    }

    /// Returns true if the step shows as a whole, or not at all.
    fn shows(&self, s: &State, i: usize, forward: bool) -> bool {
        let cell = &s.names.cells[i];
        let after = match (forward, self.kinds[i]) {
            (false, kind) => (kind.before(), Object::None),
            (true, Kind::Move) => (Object::None, Object::Before),
            (true, Kind::Remove) => (Object::None, Object::None),
            (true, _) => (Object::Ours, Object::None),
        };
        (cell.name, cell.dest) == after
    }

    /// I6 for what the outsider left at one of the names.
    fn conserved(cell: &Cell, at: usize) -> Option<&'static str> {
        let left = cell.theirs[at]?;
        let here = if at == 0 { cell.name } else { cell.dest };
        if here == left {
            return None;
        }
        if cell.later[at] {
            return Some(LATER_UNDONE);
        }
        match left {
            Object::Theirs(_) if cell.reported && (cell.slot == left || cell.aside == left) => {
                Some(RESIDUE_H)
            }
            Object::Theirs(_) => Some(LOST),
            _ => None,
        }
    }
}

fn checkpoint(n: &mut State) {
    n.disk = n.names;
    n.fact.sync();
    (n.dropped, n.phase) = (true, Phase::End);
}

impl Model for Crash {
    type State = State;

    fn initial(&self) -> State {
        let cell = |kind: Kind| Cell {
            name: kind.before(),
            dest: Object::None,
            slot: Object::None,
            aside: Object::None,
            built: false,
            begun: false,
            decided: false,
            put_decided: false,
            reported: false,
            theirs: [None; 2],
            later: [false; 2],
        };
        let names = Names { directory: Directory::Missing, cells: self.kinds.map(cell) };
        State {
            names,
            disk: names,
            fact: Stored::new(Fact::Unchanged),
            header: Stored::new(false),
            abort: Stored::new(false),
            phase: Phase::Build(0),
            step: 0,
            micro: Micro::Look,
            told: Told::Nothing,
            forward: false,
            looked: false,
            overtook: false,
            owner_dead: false,
            recovering: false,
            dropped: false,
            kills: self.kills,
            losses: self.losses,
            calls: self.calls,
            fresh: 0,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        self.owner(s, emit);
        self.machine(s, emit);
        self.outsider(s, emit);
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if self.check_claim && !s.dropped {
            let named: Vec<&Cell> =
                s.disk.cells.iter().zip(self.kinds).filter(|(_, k)| k.is_name()).map(|(c, _)| c).collect();
            if s.disk.directory == Directory::There && named.iter().any(|cell| !cell.built) {
                return Some(PROOF);
            }
            if s.disk.directory != Directory::There && named.iter().any(|cell| cell.begun) {
                return Some(NOTHING);
            }
        }
        if s.phase == Phase::Publish && (!s.header.disk || s.abort.now) {
            return Some(I4);
        }
        if s.phase != Phase::End {
            return None;
        }
        match (s.told, s.forward) {
            (Told::Aborted, true) => return Some(ABORTED_FORWARD),
            (Told::Committed, false) => return Some(COMMITTED_LOST),
            _ => {}
        }
        for (i, cell) in s.names.cells.iter().enumerate() {
            if cell.theirs == [None; 2] && !self.shows(s, i, s.forward) {
                return Some(if s.forward { STEP_MISSING } else { STEP_VISIBLE });
            }
            if let Some(rule) = (0..2).find_map(|at| Crash::conserved(cell, at)) {
                return Some(rule);
            }
        }
        (s.forward && s.overtook).then_some(OVERTAKEN)
    }

    fn is_final(&self, s: &State) -> bool {
        s.phase == Phase::End
    }

    fn outcome(&self, s: &State) -> &'static str {
        match (s.forward, s.told, s.recovering) {
            (true, _, true) => FORWARD_BY_RECOVERY,
            (true, Told::Committed, _) => COMMITTED,
            (true, ..) => FORWARD_BY_HELPER,
            (false, Told::Aborted, _) => ABORTED,
            (false, ..) => NOTHING_HAPPENED,
        }
    }
}
