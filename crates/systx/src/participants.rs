//! Threads that have taken part in a transaction.
//!
//! Owns: what a thread is known by, and the look at a transaction's last thread when a thread ends. Guarantees: no
//! thread is taken for an earlier one that has ended. Does not: count threads that hold a transaction without calling it.

use crate::paused::Paused;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use systx_os::{Linux, Os};

/// A thread. As long as anything refers to it, no other one has its address.
struct Me {
    alive: Option<Arc<()>>,
    /// Of the process that the thread is in.
    lineage: u64,
}

thread_local! {
    static ME: Me = Me { alive: Some(Arc::new(())), lineage: Linux::new().lineage() };
}

/// What is paused in this process, one for each [`crate::Systx`].
static PAUSED: Mutex<Vec<Weak<Paused>>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<Weak<Paused>>> {
    PAUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the threads that end look into `paused`.
pub(crate) fn watch(paused: &Arc<Paused>) {
    let mut all = held();
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(paused));
}

impl Drop for Me {
    fn drop(&mut self) {
        // A forked child has a copy, and perhaps a lock of a thread that it does not have.
        if Linux::new().lineage() != self.lineage {
            return;
        }
        self.alive = None;
        let all: Vec<_> = held().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|paused| paused.a_thread_has_ended());
    }
}

/// The threads of one transaction.
#[derive(Default)]
pub(crate) struct Participants(Vec<Weak<()>>);

impl Participants {
    /// Takes in the calling thread.
    pub fn join(&mut self) {
        // A thread that is ending takes part in nothing that could be paused.
        let _ = ME.try_with(|me| {
            let Some(alive) = &me.alive else { return };
            if !self.0.iter().any(|known| known.as_ptr() == Arc::as_ptr(alive)) {
                self.0.retain(|known| known.strong_count() > 0);
                self.0.push(Arc::downgrade(alive));
            }
        });
    }

    /// Returns true if the calling thread is one.
    pub fn has_me(&self) -> bool {
        let is_me = |me: &Me| {
            me.alive
                .as_ref()
                .is_some_and(|alive| self.0.iter().any(|known| known.as_ptr() == Arc::as_ptr(alive)))
        };
        ME.try_with(is_me).unwrap_or(false)
    }

    /// Returns true if all of them have ended.
    pub fn are_gone(&self) -> bool {
        self.0.iter().all(|known| known.strong_count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_is_no_participant_any_more_and_none_takes_its_place() {
        let mut all = Participants::default();
        assert!(all.are_gone() && !all.has_me());
        std::thread::scope(|scope| scope.spawn(|| all.join()).join().unwrap());
        assert!(all.are_gone());
        for _ in 0..100 {
            std::thread::scope(|scope| {
                let others = &all;
                assert!(!scope.spawn(move || others.has_me()).join().unwrap());
            });
        }
        all.join();
        all.join();
        assert!(all.has_me() && !all.are_gone());
        assert_eq!(all.0.len(), 1, "each thread once");
    }
}
