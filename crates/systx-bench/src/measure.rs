//! Clocks and samples.

use rustix::time::{clock_gettime, ClockId};
use std::time::Instant;

/// Repeats of one measurement, in one unit.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// The latest; 0 of none.
    pub fn last(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
    /// The smallest; 0 of none.
    pub fn min(&self) -> f64 {
        self.sorted().first().copied().unwrap_or(0.0)
    }
    /// The one in the middle, or the mean of the two.
    pub fn median(&self) -> f64 {
        let s = self.sorted();
        match s.len() {
            0 => 0.0,
            n if n % 2 == 1 => s[n / 2],
            n => (s[n / 2 - 1] + s[n / 2]) / 2.0,
        }
    }
    /// The largest.
    pub fn max(&self) -> f64 {
        self.sorted().last().copied().unwrap_or(0.0)
    }
}

/// Milliseconds that `work` takes, and what it returns.
pub fn wall_ms<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = work();
    (begin.elapsed().as_secs_f64() * 1e3, result)
}

/// CPU time of this process so far, user and system, in microseconds.
pub fn cpu_us() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

/// Wall clock in microseconds, from anywhere.
pub fn monotonic_us() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}
