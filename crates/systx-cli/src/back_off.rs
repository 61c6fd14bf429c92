//! How long a run waits before its next try, when it keeps losing to programs outside of any transaction.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
/// 1.28 s at most.
const DOUBLINGS: u32 = 7;

/// The wait after so many losses in a row: none after the first, then twice as long each time. `random` takes
/// up to half of it away, so that two runs which a third program throws out together come back at different
/// times.
pub fn after(losses: u32, random: u64) -> Duration {
    let Some(doubled) = losses.checked_sub(2) else { return Duration::ZERO };
    let longest = FIRST * (1 << doubled.min(DOUBLINGS));
    longest - longest.mul_f64((random % 1024) as f64 / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_differ_by_chance() {
        assert_eq!((after(0, 0), after(1, 7)), (Duration::ZERO, Duration::ZERO));
        for (losses, longest_ms) in [(2, 10), (3, 20), (8, 640), (9, 1280), (10, 1280), (u32::MAX, 1280)] {
            let longest = Duration::from_millis(longest_ms);
            assert_eq!(after(losses, 1024), longest);
            assert!(after(losses, 1023) > longest / 2 && after(losses, 1023) < longest);
        }
    }
}
