//! The checkpoint soon after the last commit (docs/protocol.md, C2).
//!
//! Owns: one thread, which is there from the first commit that owes a checkpoint until none is owed.
//! Guarantees: no commit waits for a checkpoint; in quiet times there is no thread, and behind
//! [`Upkeep::finish`] neither a thread nor a domain that it has held. Does not: report a failure; `systx status`
//! does. A host that ends without `finish` leaves the checkpoint to the next use of systx.

use crate::kernel::Kernel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use systx_engine::domain::Domain;
use systx_os::process::with_signals_blocked;
use systx_os::Os;

/// The thread, if there is one, and its work.
#[derive(Default)]
pub(crate) struct Upkeep {
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Checkpoints to make.
    promised: Vec<Promise>,
    /// `None`: there is no thread, or it is about to end and takes no more.
    thread: Option<JoinHandle<()>>,
    /// They are made at once.
    hurries: bool,
}

/// A checkpoint of a domain, at a time on the monotonic clock in nanoseconds.
struct Promise {
    domain: Arc<Domain<Kernel>>,
    at: u64,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Upkeep {
    /// Takes on the checkpoints that are owed in these domains.
    pub fn after_commit(&self, domains: impl IntoIterator<Item = Arc<Domain<Kernel>>>) {
        let promised = domains.into_iter().filter_map(|domain| match domain.promise() {
            Ok(Some(at)) => Some(Promise { domain, at }),
            // None is owed, or another process makes it. A table that makes no sense is reported by commits.
            _ => None,
        });
        let promised: Vec<_> = promised.collect();
        if promised.is_empty() {
            return;
        }
        let mut state = self.desk.state();
        state.promised.extend(promised);
        if state.thread.is_some() {
            self.desk.changed.notify_all();
            return;
        }
        let desk = self.desk.clone();
        let thread = std::thread::Builder::new().name("systx-upkeep".into());
        // Without a thread the next commit tries again; it is at most a redo more after a power loss.
        state.thread = with_signals_blocked(|| thread.spawn(move || keep_promises(&desk))).ok();
    }

    /// Makes the checkpoints that are waited with, and waits for the thread.
    pub fn finish(&self) {
        let mut state = self.desk.state();
        state.hurries = true;
        let thread = state.thread.take();
        drop(state);
        self.desk.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        // It may have ended before it saw the last of them.
        let mut state = self.desk.state();
        state.hurries = false;
        let left = std::mem::take(&mut state.promised);
        drop(state);
        left.into_iter().for_each(Promise::keep);
    }
}

impl Promise {
    fn keep(self) {
        let _ = self.domain.keep_promise(self.at);
    }
}

fn keep_promises(desk: &Desk) {
    let mut state = desk.state();
    loop {
        let now = |promise: &Promise| promise.at.saturating_sub(promise.domain.os.monotonic_ns());
        let Some(left_ns) = state.promised.iter().map(now).min() else {
            state.thread = None;
            return;
        };
        if left_ns > 0 && !state.hurries {
            let waited = desk.changed.wait_timeout(state, Duration::from_nanos(left_ns));
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            continue;
        }
        let hurries = state.hurries;
        let (due, later) =
            std::mem::take(&mut state.promised).into_iter().partition(|p| hurries || now(p) == 0);
        state.promised = later;
        drop(state);
        let due: Vec<Promise> = due;
        due.into_iter().for_each(Promise::keep);
        state = desk.state();
    }
}
