//! Ends of what runs beside a case.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Kills a child after some time, if it has not ended.
///
/// # Panics
/// It can't be killed or waited for.
pub fn kill_after(child: &mut Child, instant: Duration) {
    let began = Instant::now();
    while began.elapsed() < instant {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Ends a thread beside the test, also where the test panics: the scope would wait for it.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
