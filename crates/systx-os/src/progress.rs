//! The progress of a publication of this process.
//!
//! Owns: two numbers. Does not: count several publications at a time; then the numbers are those of the one
//! that took the last step.

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
