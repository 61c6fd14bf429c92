//! The handles of a transaction, as its parts are undone.
//!
//! Owns: which of them are of a part that was undone, and the offsets that undoing resets.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

/// When a handle was opened, in begins and ends of subtransactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Birth(u64);

/// State of a transaction's parts and handles.
#[derive(Default)]
pub(crate) struct Handles {
    now: Birth,
    /// Handles opened then are of a part that was undone.
    undone: Vec<Range<Birth>>,
    offsets: Vec<Weak<Mutex<u64>>>,
    /// Length of `offsets` from which on those of dropped handles are looked for.
    purge_at: usize,
}

impl Handles {
    /// Of a handle that is opened now.
    pub fn birth(&self) -> Birth {
        self.now
    }

    /// Returns true if the part of the transaction in which a handle was opened was not undone.
    pub fn is_alive(&self, birth: Birth) -> bool {
        !self.undone.iter().any(|part| part.contains(&birth))
    }

    /// Has undoing reset an offset.
    pub fn watch(&mut self, offset: &Arc<Mutex<u64>>) {
        if self.offsets.len() >= self.purge_at {
            self.offsets.retain(|known| known.strong_count() > 0);
            self.purge_at = 2 * self.offsets.len().max(32);
        }
        self.offsets.push(Arc::downgrade(offset));
    }

    /// The offsets of handles that there are.
    pub fn offsets(&self) -> Vec<Arc<Mutex<u64>>> {
        self.offsets.iter().filter_map(Weak::upgrade).collect()
    }

    /// A part begins or ends now.
    pub fn step(&mut self) -> Birth {
        self.now.0 += 1;
        self.now
    }

    /// The part that began then is undone.
    pub fn undo_since(&mut self, begin: Birth) {
        let end = self.step();
        self.undone.retain(|part| part.start < begin);
        self.undone.push(begin..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_die_with_the_part_that_they_are_of() {
        let mut handles = Handles::default();
        let outer = handles.birth();
        let one = handles.step();
        let inner = handles.step();
        handles.undo_since(inner);
        let later = handles.birth();
        assert_eq!(
            [outer, one, inner, later].map(|birth| handles.is_alive(birth)),
            [true, true, false, true]
        );
        handles.undo_since(one);
        let last = handles.birth();
        assert_eq!(
            [outer, one, inner, later].map(|birth| handles.is_alive(birth)),
            [true, false, false, false]
        );
        assert!(handles.is_alive(last) && handles.undone.len() == 1);
    }

    #[test]
    fn offsets_of_dropped_handles_are_forgotten() {
        let mut handles = Handles::default();
        let kept = Arc::default();
        handles.watch(&kept);
        for _ in 0..1000 {
            handles.watch(&Arc::default());
        }
        assert!(handles.offsets.len() <= 65, "{}", handles.offsets.len());
        assert!(handles.offsets.iter().any(|known| known.strong_count() > 0));
    }
}
