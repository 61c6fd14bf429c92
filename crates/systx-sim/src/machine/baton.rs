//! Whose turn it is among the processes of a schedule.

use std::thread::{Thread, ThreadId};

use super::meta::Id;
use super::ProcId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Waiting { word: Option<(Id, usize)>, deadline: Option<u64> },
    Done,
}

pub(super) struct Slot {
    pub(super) process: ProcId,
    pub(super) thread: Option<Thread>,
    pub(super) status: Status,
}

/// How turns are given.
pub(super) enum Turns {
    /// At this percent of points the turn may go elsewhere: some faults need long stretches, some short ones.
    Restless(u8),
    /// The ready process of the highest rank has it, until it falls behind everybody else.
    Ranked { ranks: Vec<i64>, points: u64, falls: Vec<u64> },
}

/// State of the turns: which process runs, and which may run next.
pub(super) struct Baton {
    pub(super) rng: fastrand::Rng,
    pub(super) turns: Turns,
    pub(super) turn: usize,
    pub(super) slots: Vec<Slot>,
    pub(super) points_left: u64,
    pub(super) deadlock: Option<Vec<String>>,
    pub(super) switches: u64,
    pub(super) digest: u64,
}

impl Baton {
    pub(super) fn slot(&self, thread: ThreadId) -> Option<usize> {
        self.slots.iter().position(|s| s.thread.as_ref().is_some_and(|t| t.id() == thread))
    }

    /// The thread that has the turn.
    pub(super) fn next(&self) -> Option<Thread> {
        self.slots.get(self.turn)?.thread.clone()
    }

    pub(super) fn ready(&mut self, clock: u64) -> Vec<usize> {
        let mut ready = Vec::new();
        for (n, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.status, Status::Waiting { deadline: Some(at), .. } if at <= clock) {
                slot.status = Status::Ready;
            }
            if slot.status == Status::Ready {
                ready.push(n);
            }
        }
        ready
    }

    pub(super) fn earliest(&self) -> Option<u64> {
        let deadline = |s: &Slot| match s.status {
            Status::Waiting { deadline, .. } => deadline,
            _ => None,
        };
        self.slots.iter().filter_map(deadline).min()
    }
}
