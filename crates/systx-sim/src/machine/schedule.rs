//! Several simulated processes, one running at a time, in an order that a seed decides.
//!
//! Guarantees: the same seed and the same bodies give the same interleaving; a process that waits is not run until it
//! is woken, killed, or virtual time passes its timeout; time jumps only when everybody waits (beyond the microsecond
//! each call takes). Everybody waiting without a timeout is a deadlock: reported, and the waiters are killed.
//! Does not: schedule threads that a process starts itself.

use super::baton::{Baton, Slot, Status, Turns};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::MutexGuard;
use std::thread::{self, Thread};

use super::process::{run_process, SimOs};
use super::{Inner, Machine, ProcId};
use crate::machine::meta::Id;

/// Calls of a run before it counts as endless.
const POINTS_MAX: u64 = 2_000_000;
/// Turn that no process has.
const NOBODY: usize = usize::MAX;

/// How a process of a schedule ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The body returned.
    Finished,
    /// It was killed.
    Killed,
    /// It panicked with this message.
    Panicked(String),
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How each process ended, in the order given.
    pub ended: Vec<Ended>,
    /// Everybody waited without a timeout: the names of the processes that did.
    pub deadlock: Option<Vec<String>>,
    /// The run was cut off after 2 million calls.
    pub endless: bool,
    /// Number of turns that went to another process.
    pub switches: u64,
    /// Digest of all turns: equal for equal runs.
    pub digest: u64,
}

/// Runs processes by turns.
pub struct Schedule;

impl Inner {
    /// Everybody who was killed may run, to unwind.
    pub(super) fn wake_dead(&mut self) {
        let Some(baton) = &mut self.control.baton else { return };
        for slot in &mut baton.slots {
            let dead = !self.state.process(slot.process).alive;
            if dead && matches!(slot.status, Status::Waiting { .. }) {
                slot.status = Status::Ready;
            }
        }
    }

    /// Wakes every waiter on a word.
    pub(super) fn wake(&mut self, id: Id, index: usize) {
        let Some(baton) = &mut self.control.baton else { return };
        for slot in &mut baton.slots {
            if matches!(&slot.status, Status::Waiting { word: Some(w), .. } if *w == (id, index)) {
                slot.status = Status::Ready;
            }
        }
    }

    /// Decides whose turn it is next.
    fn pass_on(&mut self) {
        let Some(baton) = &mut self.control.baton else { return };
        let mut ready = baton.ready(self.state.clock);
        if ready.is_empty() {
            if let Some(deadline) = baton.earliest() {
                self.state.clock = self.state.clock.max(deadline);
            } else {
                let stuck = |s: &&Slot| matches!(s.status, Status::Waiting { .. });
                let stuck: Vec<ProcId> = baton.slots.iter().filter(stuck).map(|s| s.process).collect();
                if stuck.is_empty() {
                    baton.turn = NOBODY;
                    return;
                }
                let names = stuck.iter().map(|p| self.state.process(*p).name.clone()).collect();
                baton.deadlock = Some(names);
                stuck.into_iter().for_each(|p| self.state.end(p));
                self.wake_dead();
            }
            let Some(baton) = &mut self.control.baton else { return };
            ready = baton.ready(self.state.clock);
        }
        let Some(baton) = &mut self.control.baton else { return };
        baton.points_left = baton.points_left.saturating_sub(1);
        if baton.points_left == 0 {
            let all: Vec<ProcId> = baton.slots.iter().map(|s| s.process).collect();
            all.into_iter().for_each(|p| self.state.end(p));
        }
        let next = match &mut baton.turns {
            Turns::Restless(percent) => {
                if ready.contains(&baton.turn) && baton.rng.u8(0..100) >= *percent {
                    baton.turn
                } else {
                    ready[baton.rng.usize(0..ready.len())]
                }
            }
            Turns::Ranked { ranks, points, falls } => {
                *points += 1;
                if falls.contains(points) && baton.turn != NOBODY {
                    ranks[baton.turn] = -(*points as i64);
                }
                ready.into_iter().max_by_key(|n| ranks[*n]).unwrap_or(NOBODY)
            }
        };
        baton.switches += u64::from(next != baton.turn);
        baton.turn = next;
        baton.digest = (baton.digest ^ baton.turn as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
    }
}

impl Machine {
    /// At a point: perhaps lets another process run.
    pub(super) fn take_turn<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        match inner.control.baton.as_ref().and_then(|b| b.slot(thread::current().id())) {
            Some(slot) => self.hand_over(inner, slot),
            None => inner,
        }
    }

    /// Waits until woken or until `timeout_ns` of virtual time has passed; `u64::MAX` is for ever.
    pub(super) fn block<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        word: Option<(Id, usize)>,
        timeout_ns: u64,
    ) -> MutexGuard<'a, Inner> {
        let me = thread::current().id();
        let hooking = inner.control.hooking == Some(me);
        let deadline = inner.state.clock.checked_add(timeout_ns).filter(|_| timeout_ns != u64::MAX);
        match inner.control.baton.as_mut().and_then(|b| Some((b.slot(me)?, b))) {
            Some((slot, baton)) if !hooking => {
                baton.slots[slot].status = Status::Waiting { word, deadline };
                self.hand_over(inner, slot)
            }
            // No other process runs that could wake this one: the time passes at once, or the wait ends
            // early, as it may.
            _ => {
                inner.state.clock = deadline.unwrap_or(inner.state.clock);
                inner
            }
        }
    }

    fn hand_over<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, slot: usize) -> MutexGuard<'a, Inner> {
        inner.pass_on();
        match &inner.control.baton {
            Some(baton) if baton.turn != slot => {
                let next = baton.next();
                self.wait_for_turn(inner, slot, next)
            }
            _ => inner,
        }
    }

    /// Wakes `next`, and waits until the turn is that of `slot`.
    fn wait_for_turn<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        slot: usize,
        next: Option<Thread>,
    ) -> MutexGuard<'a, Inner> {
        // Not while the machine is locked: `next` would only wait again.
        drop(inner);
        next.inspect(Thread::unpark);
        loop {
            let inner = self.lock();
            if inner.control.baton.as_ref().is_none_or(|b| b.turn == slot) {
                return inner;
            }
            drop(inner);
            thread::park();
        }
    }

    fn start(&self, slot: usize) {
        let mut inner = self.lock();
        let Some(baton) = inner.control.baton.as_mut() else { return };
        baton.slots[slot].thread = Some(thread::current());
        // The first turn is given when all are there: else the start of threads would decide.
        if baton.slots.iter().all(|s| s.thread.is_some()) {
            inner.pass_on();
        }
        let next = inner.control.baton.as_ref().and_then(Baton::next);
        drop(self.wait_for_turn(inner, slot, next));
    }

    fn finish(&self, slot: usize) {
        let mut inner = self.lock();
        if let Some(baton) = inner.control.baton.as_mut() {
            baton.slots[slot].status = Status::Done;
        }
        inner.pass_on();
        let next = inner.control.baton.as_ref().and_then(Baton::next);
        drop(inner);
        next.inspect(Thread::unpark);
    }
}

impl Schedule {
    /// Runs each body on a thread of its own as its process, one at a time, and waits for all.
    ///
    /// All processes are of one machine, which runs no other schedule at that time.
    pub fn run<'a>(seed: u64, processes: Vec<(SimOs, Box<dyn FnOnce() + Send + 'a>)>) -> Report {
        let mut rng = fastrand::Rng::with_seed(seed);
        let turns = Turns::Restless([100, 50, 20, 5][rng.usize(0..4)]);
        Self::run_by(turns, rng, seed, processes)
    }

    /// Like [`Schedule::run`], but the process with the highest of random ranks runs until it waits, ends, or
    /// falls to the lowest rank, which happens at `falls` random points within the first `span`. So one
    /// process stands still while others do all of their work: what needs few switches at the right places is
    /// found in few runs.
    ///
    /// Source: Burckhardt et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs,
    /// ASPLOS 2010.
    pub fn run_ranked<'a>(
        seed: u64,
        falls: usize,
        span: u64,
        processes: Vec<(SimOs, Box<dyn FnOnce() + Send + 'a>)>,
    ) -> Report {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ranks: Vec<i64> = (1..=processes.len() as i64).collect();
        rng.shuffle(&mut ranks);
        let falls = (0..falls).map(|_| rng.u64(0..span.max(1))).collect();
        Self::run_by(Turns::Ranked { ranks, points: 0, falls }, rng, seed, processes)
    }

    /// Like [`Schedule::run_ranked`], with ranks in the order in which the processes are given, and one fall,
    /// at a point of choice.
    pub fn run_until<'a>(fall: u64, processes: Vec<(SimOs, Box<dyn FnOnce() + Send + 'a>)>) -> Report {
        let ranks = (1..=processes.len() as i64).rev().collect();
        let turns = Turns::Ranked { ranks, points: 0, falls: vec![fall] };
        Self::run_by(turns, fastrand::Rng::with_seed(fall), fall, processes)
    }

    /// Like [`Schedule::run_until`], with falls at several points of choice.
    pub fn run_falling<'a>(falls: &[u64], processes: Vec<(SimOs, Box<dyn FnOnce() + Send + 'a>)>) -> Report {
        let ranks = (1..=processes.len() as i64).rev().collect();
        let turns = Turns::Ranked { ranks, points: 0, falls: falls.to_vec() };
        Self::run_by(turns, fastrand::Rng::with_seed(0), 0, processes)
    }

    fn run_by<'a>(
        turns: Turns,
        rng: fastrand::Rng,
        seed: u64,
        processes: Vec<(SimOs, Box<dyn FnOnce() + Send + 'a>)>,
    ) -> Report {
        let Some(machine) = processes.first().map(|(os, _)| os.machine().clone()) else {
            return Report { ended: Vec::new(), deadlock: None, endless: false, switches: 0, digest: 0 };
        };
        let slot = |os: &SimOs| Slot { process: os.process(), thread: None, status: Status::Ready };
        let baton = Baton {
            rng,
            turns,
            turn: NOBODY,
            slots: processes.iter().map(|(os, _)| slot(os)).collect(),
            points_left: POINTS_MAX,
            deadlock: None,
            switches: 0,
            digest: seed,
        };
        machine.lock().control.baton = Some(baton);
        let ended = thread::scope(|scope| {
            let threads: Vec<_> = processes
                .into_iter()
                .enumerate()
                .map(|(n, (os, body))| {
                    scope.spawn(move || {
                        os.machine().start(n);
                        let ended = end_of(&os, body);
                        os.machine().finish(n);
                        ended
                    })
                })
                .collect();
            let join = |t: thread::ScopedJoinHandle<'_, Ended>| {
                t.join().unwrap_or_else(|_| Ended::Panicked("outside of its body".into()))
            };
            threads.into_iter().map(join).collect()
        });
        let baton = machine.lock().control.baton.take();
        let Some(baton) = baton else { unreachable!("only a schedule takes its baton") };
        Report {
            ended,
            deadlock: baton.deadlock,
            endless: baton.points_left == 0,
            switches: baton.switches,
            digest: baton.digest,
        }
    }
}

fn end_of(os: &SimOs, body: Box<dyn FnOnce() + Send + '_>) -> Ended {
    match catch_unwind(AssertUnwindSafe(|| run_process(os, body))) {
        Ok(Ok(())) => Ended::Finished,
        Ok(Err(_)) => Ended::Killed,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Ended::Panicked(text.unwrap_or_default())
        }
    }
}
