//! One transaction over two file systems of which one never comes back (tmpfs), stays away for a while, or is
//! rolled back; with orderly shutdowns, power losses, checkpoints of the coordinator, and an outsider on the
//! coordinator's side.
//!
//! Guarantees, if the exploration is clean: what was reported is there on every file system that comes back,
//! the transaction is on both of them or on none, no file system stays in doubt for ever because of one that
//! never comes back, and a redo undoes nothing that an outsider did before an orderly shutdown (I8, A4, all
//! or nothing). Does not do: kills, steps, more than one participant.
//!
//! A has `a` and coordinates by its place in the order of areas; B has `b`. Both go from false to true.

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// A never comes back.
    pub a_forgets: bool,
    /// B never comes back.
    pub b_forgets: bool,
    /// Power losses.
    pub losses: u8,
    /// Orderly shutdowns.
    pub orderly: u8,
    /// B may stay away for a while.
    pub away: bool,
    /// A person may give B up.
    pub person: bool,
    /// A may be rolled back to before the transaction, and give its number again.
    pub rolled_back: bool,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// Atomicity.
pub const HALF: &str = "all or nothing: the transaction is half there";
/// I8.
pub const LOST: &str = "I8: reported durable, lost";
/// The transaction can never be decided.
pub const IN_DOUBT: &str = "in doubt for ever: the one that decides never comes back";
/// An outsider's change is undone without a power loss.
pub const UNDONE: &str = "an orderly shutdown: the redo undoes what an outsider put back";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Prepare,
    SyncPrepared,
    Header,
    Sync,
    PublishA,
    PublishB,
    Done,
    Finished,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Checkpoint {
    None,
    Synced,
    /// The checkpoint's cell is there, the decision is not (the rule left out).
    Early,
    Made,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stay {
    Possible,
    Away,
    Over,
}

/// Something in memory and on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Kept {
    now: bool,
    disk: bool,
}

impl Kept {
    fn both(value: bool) -> Kept {
        Kept { now: value, disk: value }
    }
    fn sync(&mut self) {
        self.disk = self.now;
    }
    fn lose(&mut self) {
        self.now = self.disk;
    }
}

/// State of both file systems and of the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    a: Kept,
    b: Kept,
    /// A's log: header and CKPT; beside it the decision.
    header: Kept,
    checkpoint: Kept,
    decision: Kept,
    /// Header of another transaction with the same number, after A was rolled back.
    another: bool,
    /// B's log.
    prepared: Kept,
    committed: Kept,
    phase: Phase,
    told: bool,
    mounted: [bool; 2],
    recovered: [bool; 2],
    /// True if the last change of `a` is the transaction's.
    ours: bool,
    outsider: bool,
    step: Checkpoint,
    /// A checkpoint was due, and could not pass the record.
    held: bool,
    lossy: bool,
    undone: bool,
    stay: Stay,
    person: bool,
    rolled: bool,
    losses: u8,
    orderly: u8,
}

type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State)) + 'a;

impl Away {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// C3: one that never comes back is a companion of the other, which commits alone.
    fn alone(&self) -> bool {
        (self.a_forgets || self.b_forgets) && !self.is(Mutant::ForgetfulPromises)
    }

    /// Returns true if B's log says, on its disk, that B knows the outcome.
    fn answered(&self, s: &State) -> bool {
        let there = s.mounted[1] && s.recovered[1];
        let says = if self.is(Mutant::DecisionDroppedUnsynced) { s.committed.now } else { s.committed.disk };
        self.alone() || (!s.prepared.now && !self.b_forgets) || (there && says)
    }

    fn sync_a(n: &mut State) {
        [&mut n.a, &mut n.header, &mut n.checkpoint, &mut n.decision].into_iter().for_each(Kept::sync);
    }

    fn sync_b(n: &mut State) {
        [&mut n.b, &mut n.prepared, &mut n.committed].into_iter().for_each(Kept::sync);
    }

    fn boot(&self, n: &mut State, lossy: bool) {
        if lossy {
            [&mut n.a, &mut n.header, &mut n.checkpoint, &mut n.decision].into_iter().for_each(Kept::lose);
            [&mut n.b, &mut n.prepared, &mut n.committed].into_iter().for_each(Kept::lose);
        } else {
            Away::sync_a(n);
            Away::sync_b(n);
        }
        let gone = Kept::default();
        if self.a_forgets {
            (n.a, n.header, n.checkpoint, n.decision) = (gone, gone, gone, gone);
        }
        if self.b_forgets {
            (n.b, n.prepared, n.committed) = (gone, gone, gone);
        }
        (n.mounted, n.recovered, n.step, n.lossy) = ([false; 2], [false; 2], Checkpoint::None, lossy);
        if n.phase != Phase::Finished {
            n.phase = Phase::Dead;
        }
    }

    fn run(&self, s: &State, go: &mut Go<'_>) {
        let alone = self.alone();
        match s.phase {
            Phase::Prepare => go("PREPARED in B, unless one never comes back", &|n| {
                n.prepared.now = !alone;
                n.phase = Phase::SyncPrepared;
            }),
            Phase::SyncPrepared => go("B's log synced", &|n| {
                n.prepared.sync();
                n.phase = Phase::Header;
            }),
            Phase::Header => go("V7: header in A, or in B where A never comes back", &|n| {
                if alone && self.a_forgets {
                    n.committed.now = true
                } else {
                    n.header.now = true
                }
                n.phase = Phase::Sync;
            }),
            Phase::Sync => go("S, F", &|n| {
                n.header.sync();
                n.committed.sync();
                n.phase = Phase::PublishA;
            }),
            Phase::PublishA => {
                go("U: a", &|n| (n.a.now, n.ours, n.phase) = (true, true, Phase::PublishB));
            }
            Phase::PublishB => go("U: b", &|n| (n.b.now, n.phase) = (true, Phase::Done)),
            Phase::Done => go("D: COMMITTED in B, unsynced; reported", &|n| {
                n.committed.now |= !alone;
                (n.told, n.phase) = (true, Phase::Finished);
            }),
            Phase::Finished | Phase::Dead => self.afterwards(s, go),
        }
    }

    fn afterwards(&self, s: &State, go: &mut Go<'_>) {
        let holds = self.is(Mutant::ParticipantHoldsLog);
        if s.outsider && s.mounted[0] && s.a.now {
            go("an outsider puts a back", &|n| (n.a.now, n.ours, n.outsider) = (false, false, false));
        }
        let live = s.mounted[0] && s.recovered[0] && !self.a_forgets;
        let b_there = s.mounted[1] && s.recovered[1];
        if live && s.header.now && !s.checkpoint.now && s.step == Checkpoint::None {
            go("C: syncfs of A, and of B if it is there", &|n| {
                Away::sync_a(n);
                if b_there && !self.is(Mutant::DecisionDroppedUnsynced) {
                    Away::sync_b(n);
                }
                n.step = Checkpoint::Synced;
            });
        }
        if live && s.step == Checkpoint::Synced {
            if self.answered(s) {
                go("C: CKPT, B has answered", &|n| {
                    (n.checkpoint, n.step) = (Kept::both(true), Checkpoint::Made);
                });
            } else if holds {
                if !s.held && !s.ours {
                    go("C: B holds the log", &|n| n.held = true);
                }
            } else if self.is(Mutant::DecisionAfterCheckpoint) {
                go("C: CKPT, then the decision", &|n| {
                    (n.checkpoint, n.step) = (Kept::both(true), Checkpoint::Early);
                });
            } else {
                go("C: the decision, then CKPT", &|n| {
                    (n.decision, n.checkpoint, n.step) =
                        (Kept::both(true), Kept::both(true), Checkpoint::Made);
                });
            }
        }
        if live && s.step == Checkpoint::Early {
            go("C: the decision, late", &|n| (n.decision, n.step) = (Kept::both(true), Checkpoint::Made));
        }
        if live && s.decision.now && b_there && self.answered(s) {
            go("the decision goes: B has answered", &|n| n.decision = Kept::default());
        }
        if live && s.decision.now && !s.mounted[1] && s.person {
            go("a person gives B up", &|n| {
                n.person = false;
                if self.is(Mutant::DecisionGivenUp) {
                    n.decision = Kept::default();
                }
            });
        }
        if b_there && s.committed.now && !s.committed.disk {
            go("syncfs of B", &|n| Away::sync_b(n));
        }
        // Before B knows: afterwards a rollback of A takes back what was done, which can't be repaired.
        if s.rolled && !s.mounted[0] && !s.committed.now && !s.b.now && s.prepared.now {
            go("A is rolled back, and gives the number again", &|n| {
                (n.a, n.header, n.checkpoint) = (Kept::default(), Kept::default(), Kept::default());
                (n.decision, n.another, n.rolled, n.told) = (Kept::default(), true, false, false);
            });
        }
    }

    fn recover(&self, s: &State, go: &mut Go<'_>) {
        if !s.mounted[0] {
            go("A is mounted", &|n| n.mounted[0] = true);
        }
        if !s.mounted[1] && s.stay != Stay::Away {
            go("B is mounted", &|n| n.mounted[1] = true);
        }
        if !s.mounted[1] && s.stay == Stay::Possible {
            go("B stays away", &|n| n.stay = Stay::Away);
        }
        if s.stay == Stay::Away {
            go("B is there again", &|n| n.stay = Stay::Over);
        }
        if s.mounted[0] && !s.recovered[0] {
            go("[recovery] A", &|n| {
                if !self.a_forgets && n.header.now && !n.checkpoint.now && !n.a.now {
                    n.undone |= !n.lossy && n.told && !n.ours && n.held;
                    (n.a.now, n.ours) = (true, true);
                }
                n.a.sync();
                n.recovered[0] = true;
            });
        }
        let asks = s.prepared.now && !s.committed.now;
        if s.mounted[1] && !s.recovered[1] && (!asks || (s.mounted[0] && s.recovered[0])) {
            let known = |n: &State| {
                let another = n.another && self.is(Mutant::NumberIsIdentity);
                n.committed.now || (n.header.now && !n.checkpoint.now) || n.decision.now || another
            };
            go("[recovery] B", &|n| {
                let forward = known(n);
                if n.prepared.now || (self.alone() && self.a_forgets) {
                    if forward {
                        (n.b.now, n.committed.now) = (true, true);
                    } else {
                        n.prepared.now = false;
                    }
                }
                n.recovered[1] = true;
                Away::sync_b(n);
            });
        }
    }
}

impl Model for Away {
    type State = State;

    fn initial(&self) -> State {
        let kept = Kept::default();
        State {
            a: kept,
            b: kept,
            header: kept,
            checkpoint: kept,
            decision: kept,
            another: false,
            prepared: kept,
            committed: kept,
            phase: Phase::Prepare,
            told: false,
            mounted: [true; 2],
            recovered: [true; 2],
            ours: true,
            outsider: true,
            step: Checkpoint::None,
            held: false,
            lossy: false,
            undone: false,
            stay: if self.away { Stay::Possible } else { Stay::Over },
            person: self.person,
            rolled: self.rolled_back,
            losses: self.losses,
            orderly: self.orderly,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, format_args!("{label}"));
        };
        self.run(s, &mut go);
        self.recover(s, &mut go);
        if s.orderly > 0 && s.mounted[0] {
            // C2: a shutdown waits for the checkpoint of what is published.
            let owed = s.phase == Phase::Finished && s.header.now && !s.checkpoint.now && !self.a_forgets;
            if !owed || s.held {
                go("ORDERLY SHUTDOWN", &|n| {
                    n.orderly -= 1;
                    self.boot(n, false);
                });
            }
        }
        if s.losses > 0 {
            let parts: [fn(&mut State) -> &mut Kept; 5] =
                [|n| &mut n.a, |n| &mut n.b, |n| &mut n.header, |n| &mut n.prepared, |n| &mut n.committed];
            for part in parts {
                let kept = *part(&mut s.clone());
                if kept.now != kept.disk {
                    go("write-back", &|n| part(n).sync());
                }
            }
            go("POWER LOSS", &|n| {
                n.losses -= 1;
                self.boot(n, true);
            });
        }
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if s.undone {
            return Some(UNDONE);
        }
        let ended = matches!(s.phase, Phase::Finished | Phase::Dead);
        let asks = s.prepared.now && !s.committed.now;
        if ended
            && self.a_forgets
            && s.recovered[0]
            && s.mounted[1]
            && !s.recovered[1]
            && asks
            && !s.header.now
        {
            return Some(IN_DOUBT);
        }
        if !ended || s.recovered != [true; 2] {
            return None;
        }
        let (a_stays, b_stays) = (!self.a_forgets, !self.b_forgets);
        if s.told && ((b_stays && !s.b.now) || (a_stays && !s.a.now && s.ours)) {
            return Some(LOST);
        }
        if a_stays && b_stays && s.ours && s.a.now != s.b.now {
            return Some(HALF);
        }
        None
    }

    fn is_final(&self, s: &State) -> bool {
        matches!(s.phase, Phase::Finished | Phase::Dead) && s.recovered == [true; 2]
    }
}
