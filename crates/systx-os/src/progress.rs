//! How far a publication of this process is, for whoever waits for it.
//!
//! Owns: two numbers. Does not: say anything when several publish at a time; then they are the ones of the last that took a step.

use std::sync::atomic::{AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static OF: AtomicUsize = AtomicUsize::new(0);

/// Notes it.
pub fn note(taken: usize, of: usize) {
    TAKEN.store(taken, Ordering::Relaxed);
    OF.store(of, Ordering::Relaxed);
}

/// Steps that are taken, and all of them; `None` before the commit point.
pub fn now() -> Option<(usize, usize)> {
    let of = OF.load(Ordering::Relaxed);
    (of > 0).then(|| (TAKEN.load(Ordering::Relaxed), of))
}
