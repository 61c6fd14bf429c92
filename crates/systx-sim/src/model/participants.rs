//! One transaction over two file systems: A coordinates, B takes part, either is mounted first after a power
//! loss.
//!
//! Guarantees, if the exploration is clean: the transaction is there on both or on none once both have been
//! recovered, a later durable commit on B (T2) is never lost, not even while A is away, and what was reported
//! stays true (I8). A further commit on B (T4) may come while the transaction is in doubt there. Does not do:
//! steps (`crash`), more than one participant.
//!
//! a goes from 0 to 1. The values of b add up: 1 from the transaction, 10 from T2, 20 from T4.

use super::checker::{Emit, Model};
use super::Mutant;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Participants {
    /// Kills.
    pub kills: u8,
    /// Power losses.
    pub losses: u8,
    /// The rule that is left out.
    pub mutant: Option<Mutant>,
}

/// Atomicity.
pub const HALF: &str = "all or nothing: the transaction is half there";
/// I8.
pub const LATER_LOST: &str = "I8: a later durable commit on the participant is lost";
/// I8.
pub const LOST: &str = "I8: reported committed, lost";
/// I8.
pub const BACK: &str = "I8: reported aborted, forward";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Prepare,
    SyncPrepared,
    Header,
    Sync,
    FinalLook,
    PublishA,
    PublishB,
    Done,
    Abort,
    SyncAbort,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Told {
    Nothing,
    Aborted,
    Committed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mark {
    Free,
    Prepared,
    Committed,
    /// Record of T2.
    Later,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Later {
    Idle,
    Appended,
    Synced,
    Reported,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RecoveredB {
    No,
    /// The decided part is done, the transaction is in doubt.
    InDoubt,
    Yes,
}

/// A's data and log; of the copy on disk only what was written back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Coordinator {
    a: u8,
    header: bool,
    abort: bool,
}

/// State of both file systems and all transactions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    now: Coordinator,
    disk: Coordinator,
    dropped: bool,
    b: u8,
    b_disk: u8,
    log: [(Mark, bool); 4],
    phase: Phase,
    told: Told,
    dead: bool,
    slot: bool,
    later: Later,
    later_before: u8,
    more: bool,
    recovering: bool,
    mounted_a: bool,
    mounted_b: bool,
    recovered_a: bool,
    recovered_b: RecoveredB,
    kills: u8,
    losses: u8,
}

impl State {
    fn len(&self) -> usize {
        self.log.iter().take_while(|(mark, _)| *mark != Mark::Free).count()
    }

    fn append(&mut self, mark: Mark) {
        let len = self.len();
        self.log[len] = (mark, false);
    }

    fn sync_b(&mut self) {
        let len = self.len();
        for (_, synced) in &mut self.log[..len] {
            *synced = true;
        }
    }

    fn has(&self, mark: Mark) -> bool {
        self.log.iter().any(|&(m, _)| m == mark)
    }

    /// Returns true if the coordinator's log says commit: header without ABORT. A dropped record says no
    /// more.
    fn coordinator_commits(&self) -> bool {
        self.now.header && !self.now.abort && !self.dropped
    }
}

impl Participants {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn run(&self, s: &State, go: &mut Go<'_>) {
        match s.phase {
            Phase::Prepare => go("P4: PREPARED appended in B", &|n| {
                n.append(Mark::Prepared);
                n.phase = Phase::SyncPrepared;
            }),
            Phase::SyncPrepared => go("P4: B's log synced", &|n| {
                if !self.is(Mutant::PreparedNotSynced) {
                    n.sync_b();
                }
                n.phase = Phase::Header;
            }),
            Phase::Header => go("V5, V7: header in A", &|n| {
                (n.now.header, n.slot, n.phase) = (true, true, Phase::Sync);
            }),
            Phase::Sync => go("S: A synced", &|n| {
                n.disk.header = true;
                if self.is(Mutant::PreparedNotSynced) {
                    n.sync_b(); // Only now, together with A: in between A alone may be on disk.
                }
                n.phase = Phase::FinalLook;
            }),
            Phase::FinalLook => {
                go("F: fine", &|n| n.phase = Phase::PublishA);
                go("F: conflict", &|n| n.phase = Phase::Abort);
            }
            Phase::PublishA => go("U: a", &|n| (n.now.a, n.phase) = (1, Phase::PublishB)),
            Phase::PublishB => go("U: b", &|n| (n.b, n.phase) = (1, Phase::Done)),
            Phase::Done => go("D: COMMITTED in B's log, slots free", &|n| {
                if !self.is(Mutant::NoCommittedMark) {
                    n.append(Mark::Committed);
                }
                (n.slot, n.phase) = (false, Phase::End);
                if !n.dead {
                    n.told = Told::Committed;
                }
            }),
            Phase::Abort => go("ABORT in A", &|n| {
                n.now.abort = true;
                n.phase = Phase::SyncAbort;
                if n.dead && self.is(Mutant::HelperAbortNotSynced) {
                    (n.slot, n.phase) = (false, Phase::End);
                }
            }),
            Phase::SyncAbort => go("ABORT synced, slots free", &|n| {
                (n.disk.abort, n.slot, n.phase) = (true, false, Phase::End);
                if !n.dead {
                    n.told = Told::Aborted;
                }
            }),
            Phase::End if s.now.header && !s.dropped => go("C: A and B synced, A's record dropped", &|n| {
                n.disk.a = n.now.a;
                if !self.is(Mutant::NoCoordinatorSync) {
                    n.b_disk = n.b;
                }
                n.dropped = true;
            }),
            Phase::End => {}
        }
        self.kill(s, go);
        self.later(s, go);
    }

    fn kill(&self, s: &State, go: &mut Go<'_>) {
        if s.kills > 0 && s.phase != Phase::End {
            go("KILL, helper", &|n| {
                n.kills -= 1;
                n.dead = true;
                n.phase = match n.phase {
                    Phase::Prepare | Phase::SyncPrepared | Phase::Header => Phase::End,
                    Phase::Sync | Phase::FinalLook | Phase::Abort | Phase::SyncAbort => Phase::Abort,
                    _ => Phase::PublishA,
                };
            });
        }
    }

    /// T2, which follows in B.
    fn later(&self, s: &State, go: &mut Go<'_>) {
        match s.later {
            Later::Idle if s.phase == Phase::End && !s.slot => go("T2: header in B", &|n| {
                n.later_before = n.b;
                n.append(Mark::Later);
                n.later = Later::Appended;
            }),
            Later::Appended => go("T2: B synced", &|n| {
                n.sync_b();
                n.later = Later::Synced;
            }),
            Later::Synced => go("T2: published, reported durable", &|n| {
                (n.b, n.later) = (n.later_before + 10, Later::Reported);
            }),
            _ => {}
        }
    }

    fn write_back(&self, s: &State, go: &mut Go<'_>) {
        if s.now.a != s.disk.a {
            go("write-back of a", &|n| n.disk.a = n.now.a);
        }
        if s.b != s.b_disk {
            go("write-back of b", &|n| n.b_disk = n.b);
        }
        if s.now.header && !s.disk.header {
            go("write-back of A's header", &|n| n.disk.header = true);
        }
        if s.now.abort && !s.disk.abort {
            go("write-back of A's ABORT", &|n| n.disk.abort = true);
        }
        for at in (0..s.len()).filter(|&at| !s.log[at].1) {
            go("write-back of a cell of B", &|n| n.log[at].1 = true);
        }
    }

    /// Redo of B's log; `decision` of the prepared one is `None` while its coordinator is away.
    fn redo_b(n: &mut State, decision: Option<bool>) {
        for (mark, _) in n.log {
            match mark {
                Mark::Prepared if decision == Some(true) && n.b == 0 => n.b = 1,
                Mark::Later if n.b == n.later_before => n.b = n.later_before + 10,
                _ => {}
            }
        }
        n.b_disk = n.b;
    }

    fn recover(&self, s: &State, go: &mut Go<'_>) {
        if !s.mounted_a {
            go("[recovery] A is mounted", &|n| n.mounted_a = true);
        }
        if !s.mounted_b {
            go("[recovery] B is mounted", &|n| n.mounted_b = true);
        }
        if s.mounted_a && !s.recovered_a {
            go("[recovery] A", &|n| {
                if n.coordinator_commits() {
                    n.now.a = 1;
                }
                n.disk.a = n.now.a;
                // The record waits for a sync of every file system it names, also here.
                n.dropped |= self.is(Mutant::NoCoordinatorSync);
                n.recovered_a = true;
            });
        }
        let known = s.has(Mark::Committed) || s.mounted_a || !s.has(Mark::Prepared);
        if s.mounted_b && s.recovered_b == RecoveredB::No {
            go("[recovery] B", &|n| {
                let commits = n.has(Mark::Committed) || (n.mounted_a && n.coordinator_commits());
                Participants::redo_b(n, known.then_some(commits));
                n.recovered_b = if known { RecoveredB::Yes } else { RecoveredB::InDoubt };
            });
        }
        if s.recovered_b == RecoveredB::InDoubt && s.mounted_a {
            go("[recovery] B: the doubt is resolved from A", &|n| {
                if n.coordinator_commits() && n.b == 0 {
                    n.b = 1;
                }
                (n.b_disk, n.recovered_b) = (n.b, RecoveredB::Yes);
            });
        }
        let open = s.recovered_b == RecoveredB::Yes
            || (s.recovered_b == RecoveredB::InDoubt && self.is(Mutant::InDoubtNotBlocked));
        if open && !s.more {
            go("T4 on B commits", &|n| {
                n.b += 20;
                (n.b_disk, n.more) = (n.b, true);
            });
        }
    }
}

type Go<'a> = dyn FnMut(&str, &dyn Fn(&mut State)) + 'a;

impl Model for Participants {
    type State = State;

    fn initial(&self) -> State {
        let coordinator = Coordinator { a: 0, header: false, abort: false };
        State {
            now: coordinator,
            disk: coordinator,
            dropped: false,
            b: 0,
            b_disk: 0,
            log: [(Mark::Free, false); 4],
            phase: Phase::Prepare,
            told: Told::Nothing,
            dead: false,
            slot: false,
            later: Later::Idle,
            later_before: 0,
            more: false,
            recovering: false,
            mounted_a: false,
            mounted_b: false,
            recovered_a: false,
            recovered_b: RecoveredB::No,
            kills: self.kills,
            losses: self.losses,
        }
    }

    fn successors(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, format_args!("{label}"));
        };
        if s.recovering {
            self.recover(s, &mut go);
        } else {
            self.run(s, &mut go);
            if s.losses > 0 {
                self.write_back(s, &mut go);
            }
        }
        if s.losses > 0 && !(s.recovered_a && s.recovered_b == RecoveredB::Yes) {
            go("POWER LOSS", &|n| {
                n.losses -= 1;
                (n.now, n.b) = (n.disk, n.b_disk);
                let kept = n.log.iter().take_while(|(_, synced)| *synced).count();
                for cell in &mut n.log[kept..] {
                    *cell = (Mark::Free, false);
                }
                (n.recovering, n.mounted_a, n.mounted_b) = (true, false, false);
                (n.recovered_a, n.recovered_b) = (false, RecoveredB::No);
            });
        }
    }

    fn violation(&self, s: &State) -> Option<&'static str> {
        if !s.recovering || s.recovered_b == RecoveredB::No {
            return None;
        }
        let has_later = s.b / 10 % 2 == 1;
        if s.later == Later::Reported && !has_later {
            return Some(LATER_LOST);
        }
        if !s.recovered_a || s.recovered_b != RecoveredB::Yes {
            return None;
        }
        let (on_a, on_b) = (s.now.a == 1, s.b % 10 == 1);
        if on_a != on_b {
            return Some(HALF);
        }
        match s.told {
            Told::Committed if !on_a => Some(LOST),
            Told::Aborted if on_a => Some(BACK),
            _ => None,
        }
    }

    fn is_final(&self, s: &State) -> bool {
        if s.recovering {
            s.recovered_a && s.recovered_b == RecoveredB::Yes
        } else {
            s.phase == Phase::End && s.later == Later::Reported
        }
    }
}
