//! A scheduler for shuttle under which every interleaving is about as likely: uniform random walk.
//!
//! A thread is chosen with a probability in proportion to the accesses that it still has to make, its future children's
//! included. A trial run with equal chances counts them. Source: Zhao et al., Selectively Uniform Concurrency Testing,
//! ASPLOS 2025. shuttle has it from 0.9.0 on, which the oldest Rust that we support does not compile.
//!
//! Guarantees: the same seed makes the same choices. Does not: know grandchildren; only the first thread starts others.

use shuttle::scheduler::{DataSource, RandomDataSource, Schedule, Scheduler, Task, TaskId};

pub struct Uniform {
    schedules_left: usize,
    choice: fastrand::Rng,
    data: RandomDataSource,
    /// Accesses by thread, as counted in the trial run.
    counted: Vec<usize>,
    /// Accesses by thread that are left in this execution; empty in the trial run.
    left: Vec<usize>,
    trial: bool,
}

impl Uniform {
    pub fn new(seed: u64, schedules: usize) -> Uniform {
        Uniform {
            schedules_left: schedules,
            choice: fastrand::Rng::with_seed(seed),
            data: RandomDataSource::initialize(seed),
            counted: Vec::new(),
            left: Vec::new(),
            trial: true,
        }
    }
}

fn index(task: &Task) -> usize {
    task.id().into()
}

impl Scheduler for Uniform {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.schedules_left = self.schedules_left.checked_sub(1)?;
        self.trial = self.counted.is_empty();
        self.left.clear();
        let seed = self.data.reinitialize();
        Some(Schedule::new(seed))
    }

    fn next_task(&mut self, runnable: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        if self.trial {
            let task = runnable[self.choice.usize(..runnable.len())];
            self.counted.resize(self.counted.len().max(index(task) + 1), 0);
            self.counted[index(task)] += 1;
            return Some(task.id());
        }
        for task in runnable {
            while self.left.len() <= index(task) {
                let own = |ix: usize| self.counted.get(ix).copied().unwrap_or(1).max(1);
                match self.left.len() {
                    0 => self.left.push(self.counted.iter().sum()),
                    new => {
                        // The accesses of a thread are its parent's until it starts.
                        self.left[0] = self.left[0].saturating_sub(own(new)).max(1);
                        self.left.push(own(new));
                    }
                }
            }
        }
        let all: usize = runnable.iter().map(|task| self.left[index(task)]).sum();
        let mut chosen = self.choice.usize(..all);
        let task = runnable.iter().find(|task| {
            let weight = self.left[index(task)];
            let here = chosen < weight;
            chosen = chosen.saturating_sub(weight);
            here
        })?;
        let left = &mut self.left[index(task)];
        // Estimates: a thread that makes more accesses than in the trial run stays runnable.
        *left = (*left - 1).max(1);
        Some(task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.data.next_u64()
    }
}

/// All interleavings of two threads that make two and six accesses are met, each about as often.
#[test]
fn every_interleaving_is_about_as_likely() {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};
    let seen: Arc<Mutex<HashMap<Vec<u8>, usize>>> = Arc::default();
    let all = seen.clone();
    let body = move || {
        let order = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        let thread = |who: u8, accesses: usize| {
            let order = order.clone();
            shuttle::thread::spawn(move || {
                (0..accesses).for_each(|_| order.lock().unwrap().push(who));
            })
        };
        let threads = [thread(1, 2), thread(2, 6)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let order = order.lock().unwrap().clone();
        *all.lock().unwrap().entry(order).or_default() += 1;
    };
    shuttle::Runner::new(Uniform::new(1, 28_000), Default::default()).run(body);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 28, "6 + 2 over 2");
    let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
    // Equal chances for the threads at each access would make it 64 to 1.
    assert!(most / least < 8, "{least} to {most}");
}
