//! The checkpoint soon after the last commit (docs/protocol.md, C2).
//!
//! Owns: one thread, which is there from the first commit that owes a checkpoint until none is owed.
//! Guarantees: no commit waits for a checkpoint; in quiet times there is no thread. Does not: report a failure;
//! `systx status` does. A host that ends without [`Upkeep::finish`] leaves the checkpoint to the next use of
//! systx.

use crate::systx::Kernel;
use std::sync::{Arc, Mutex};
use systx_engine::domain::Domain;
use systx_os::process::with_signals_blocked;
use systx_os::{Linux, Os};

/// The thread, or none.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// The checkpoints that it is to make; `None`: there is no thread.
    asked: Arc<Mutex<Option<Vec<Promise>>>>,
}

/// A checkpoint of a domain at a time on the monotonic clock, in nanoseconds.
type Promise = (Arc<Domain<Kernel>>, u64);

impl Upkeep {
    /// Takes on the checkpoints that are owed in these domains.
    pub fn after_commit(&self, domains: impl IntoIterator<Item = Arc<Domain<Kernel>>>) {
        let promised = domains.into_iter().filter_map(|domain| match domain.promise() {
            Ok(Some(at)) => Some((domain, at)),
            // None is owed, or another process makes it. A table that makes no sense is reported by commits.
            _ => None,
        });
        let promised: Vec<_> = promised.collect();
        if promised.is_empty() {
            return;
        }
        let mut asked = self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(waiting) = &mut *asked {
            waiting.extend(promised);
            return;
        }
        *asked = Some(promised);
        let shared = self.asked.clone();
        let thread = std::thread::Builder::new().name("systx-upkeep".into());
        // Without a thread the next commit tries again; it is at most a redo more after a power loss.
        if with_signals_blocked(|| thread.spawn(move || keep_promises(&shared))).is_err() {
            *asked = None;
        }
    }

    /// Makes the checkpoints that are waited with.
    pub fn finish(&self) {
        let mut asked = self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let waiting: Vec<_> = asked.as_mut().map(std::mem::take).unwrap_or_default();
        drop(asked);
        for (domain, at) in waiting {
            let _ = domain.keep_promise(at);
        }
    }
}

fn keep_promises(asked: &Mutex<Option<Vec<Promise>>>) {
    let asked = || asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loop {
        // It stays in the list while its time is waited for, so that `finish` finds it.
        let first = asked()
            .iter()
            .flatten()
            .map(|(domain, at)| (at.saturating_sub(domain.os.monotonic_ns()), *at))
            .min();
        match first {
            Some((0, at)) => {
                let mut asked = asked();
                let waiting = asked.iter_mut().flatten();
                let due: Vec<_> =
                    waiting.filter(|(_, of)| *of == at).map(|(domain, _)| domain.clone()).collect();
                asked.iter_mut().for_each(|waiting| waiting.retain(|(_, of)| *of != at));
                drop(asked);
                for domain in due {
                    let _ = domain.keep_promise(at);
                }
            }
            Some((left_ns, _)) => Linux::new().pause(left_ns),
            None => {
                let mut asked = asked();
                if asked.as_ref().is_none_or(Vec::is_empty) {
                    *asked = None;
                    return;
                }
            }
        }
    }
}
