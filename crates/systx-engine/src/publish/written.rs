//! The times that a redo moves by writing bytes again: no other process's.

use crate::mutant::{self, Mutant};
use std::collections::HashMap;
use systx_os::{Stat, Timestamp};

/// Modification times of files whose bytes records of the same redo wrote, by inode number.
#[derive(Default)]
pub(crate) struct Written(HashMap<u64, Moved>);

struct Moved {
    found: Timestamp,
    ours: Timestamp,
}

impl Written {
    /// Notes that a record was written again to a file that had the time `found`, and has this one since.
    pub fn note(&mut self, found: Timestamp, now: &Stat) {
        if !mutant::on(Mutant::TimesOfRedoUnknown) {
            self.0.entry(now.ino).or_insert(Moved { found, ours: now.mtime }).ours = now.mtime;
        }
    }

    /// The time before the first of them, if nobody has moved it since the last one.
    pub fn found(&self, stat: &Stat) -> Option<Timestamp> {
        self.0.get(&stat.ino).filter(|moved| moved.ours == stat.mtime).map(|moved| moved.found)
    }
}
