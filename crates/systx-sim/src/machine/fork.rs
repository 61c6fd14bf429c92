//! fork(2): a process and its copy.
//!
//! Rust values can't be copied as memory is. So what runs on goes on as the *child*, with everything that it has in
//! hand, and the parent stands still, as a process of its own, until it is asked to end or to go on. Guarantees: owned
//! bytes stay the parent's, as their mapping is not copied; descriptors are shared, as they are. Does not: run both at
//! once.

use super::{Machine, ProcId, SimOs};
use crate::machine::state::State;

/// A process that was forked, and stands still.
#[must_use = "a parent that nobody asks stands still for ever"]
pub struct Parent {
    machine: Machine,
    /// Its number while it stands still.
    process: ProcId,
    /// The number that the running code has all the time.
    running: ProcId,
    lineage: u64,
}

impl Machine {
    /// Forks `os`: whoever calls goes on as the child.
    pub fn fork_process(&self, os: &SimOs) -> Parent {
        let name = format!("parent of {}", self.lock().state.process(os.process).name);
        let parent = self.spawn(&name).process;
        let mut inner = self.lock();
        let state = &mut inner.state;
        let lineage = state.process(os.process).lineage;
        // Above those of all its ancestors.
        let highest = state.processes.iter().map(|process| process.lineage).max().unwrap_or(0);
        state.process_mut(parent).lineage = lineage;
        state.process_mut(os.process).lineage = highest + 1;
        state.give_bytes(os.process, parent);
        Parent { machine: self.clone(), process: parent, running: os.process, lineage }
    }
}

impl Parent {
    /// The parent is killed: what it owned is free.
    pub fn kill(self) {
        self.machine.kill(self.process);
    }

    /// The child ends, and the caller goes on as the parent.
    pub fn go_on(self) {
        let mut inner = self.machine.lock();
        let state = &mut inner.state;
        state.owned.retain(|_, owner| *owner != self.running);
        state.give_bytes(self.process, self.running);
        state.process_mut(self.running).lineage = self.lineage;
        state.end(self.process);
    }
}

impl State {
    fn give_bytes(&mut self, from: ProcId, to: ProcId) {
        self.owned.values_mut().filter(|owner| **owner == from).for_each(|owner| *owner = to);
    }
}
