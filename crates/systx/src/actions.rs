//! Actions: what a program does when a transaction has ended, outside of it.
//!
//! Owns: the two lists of a transaction, and their end. Guarantees: each action runs at most once: one of a commit when
//! everything is public, in the order in which they were given; one of an abort when nothing is left of what was done,
//! the last one first. No lock of a transaction is held then, so an action may begin another one. Does not: run any
//! where it is unknown how the transaction has ended (in doubt, a dead process, a forked child), or remember them beyond
//! the process, but for the names of some (`noted`).

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

type Action = Box<dyn FnOnce() + Send>;

/// The actions that a transaction was given.
#[derive(Default)]
pub(crate) struct Actions {
    on_commit: Vec<Action>,
    on_abort: Vec<Action>,
    /// Those of a commit that are noted in the area, with their places among all of them.
    names: Vec<(usize, String)>,
}

/// How many there were at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    on_commit: usize,
    on_abort: usize,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Committed,
    Aborted,
    /// Nobody knows.
    InDoubt,
}

impl Actions {
    pub fn on_commit(&mut self, action: impl FnOnce() + Send + 'static) {
        self.on_commit.push(Box::new(action));
    }

    /// One that is noted.
    pub fn on_commit_named(&mut self, name: String, action: impl FnOnce() + Send + 'static) {
        self.names.push((self.on_commit.len(), name));
        self.on_commit(action);
    }

    /// The names of those that are noted.
    pub fn names(&self) -> Vec<String> {
        self.names.iter().map(|(_, name)| name.clone()).collect()
    }

    pub fn on_abort(&mut self, action: impl FnOnce() + Send + 'static) {
        self.on_abort.push(Box::new(action));
    }

    pub fn mark(&self) -> Mark {
        Mark { on_commit: self.on_commit.len(), on_abort: self.on_abort.len() }
    }

    /// Takes those that were given since.
    pub fn since(&mut self, mark: Mark) -> Actions {
        let (commit, abort) =
            (mark.on_commit.min(self.on_commit.len()), mark.on_abort.min(self.on_abort.len()));
        let names = self.names.split_off(self.names.partition_point(|(place, _)| *place < commit));
        let on_commit = self.on_commit.split_off(commit);
        Actions { on_commit, on_abort: self.on_abort.split_off(abort), names }
    }

    /// Runs those of this ending and forgets the others.
    ///
    /// An action that panics keeps none of the others from running. The first panic goes on behind the last action,
    /// unless the thread is unwinding already.
    pub fn run(self, ending: Ending) {
        let due: Vec<Action> = match ending {
            Ending::Committed => self.on_commit,
            Ending::Aborted => self.on_abort.into_iter().rev().collect(),
            Ending::InDoubt => return,
        };
        let mut first = None;
        for action in due {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(action)) {
                first.get_or_insert(panic);
            }
        }
        if let Some(panic) = first.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn given(said: &Arc<Mutex<String>>) -> Actions {
        let mut actions = Actions::default();
        for (commit, abort) in [("a", "x"), ("b", "y"), ("c", "z")] {
            let (one, other) = (said.clone(), said.clone());
            actions.on_commit(move || one.lock().unwrap().push_str(commit));
            actions.on_abort(move || other.lock().unwrap().push_str(abort));
        }
        actions
    }

    #[test]
    fn actions_run_in_order_after_a_commit_and_in_reverse_after_an_abort() {
        for (ending, expected) in
            [(Ending::Committed, "abc"), (Ending::Aborted, "zyx"), (Ending::InDoubt, "")]
        {
            let said = Arc::default();
            given(&said).run(ending);
            assert_eq!(*said.lock().unwrap(), expected, "{ending:?}");
        }
    }

    #[test]
    fn those_since_a_mark_are_apart() {
        let said = Arc::default();
        let mut all = given(&said);
        let mark = all.mark();
        let later = said.clone();
        all.on_abort(move || later.lock().unwrap().push('!'));
        all.since(mark).run(Ending::Aborted);
        all.run(Ending::Aborted);
        assert_eq!(*said.lock().unwrap(), "!zyx");
    }

    #[test]
    fn one_that_panics_keeps_none_of_the_others_from_running() {
        let said = Arc::default();
        let mut all = given(&said);
        all.on_commit(|| panic!("planted"));
        let last = said.clone();
        all.on_commit(move || last.lock().unwrap().push('d'));
        assert!(catch_unwind(AssertUnwindSafe(|| all.run(Ending::Committed))).is_err());
        assert_eq!(*said.lock().unwrap(), "abcd");
    }
}
