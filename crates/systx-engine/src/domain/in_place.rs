//! Noticing that the area was moved, or it or something in it removed, under processes that use it: by hand, or by what tidies `/tmp`.
//!
//! Owns: which objects the area's names were when it was opened. Guarantees: a commit that begins behind such a removal
//! changes nothing; it would stand in a log that nobody finds, and its staged objects could be gone. Does not: look below
//! `tx`, nor notice a removal between the look and the commit point.

use super::Domain;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Os, Result, Stat, Timestamp};

/// What a commit relies on.
const NAMES: [&[u8]; 5] = [b"table", b"owners", b"log", b"tx", b"aside"];

/// An answer, valid as long as the directory has not changed.
#[derive(Default)]
pub(crate) struct Seen {
    changed: Option<Timestamp>,
    /// Inode numbers; `None`: not made yet.
    names: [Option<u64>; NAMES.len()],
}

impl<O: Os> Domain<O> {
    /// Returns false if the area was removed or moved, or one of its names was removed or given to another object, since this
    /// domain was opened: it has to be opened anew. One fstat(2), unless names of the area have changed.
    ///
    /// # Errors
    /// Those of stat(2): the area can't be looked at.
    pub fn is_in_place(&self) -> Result<bool> {
        let area = self.os.stat(&self.area.dir)?;
        if mutant::on(Mutant::RemovedUnseen) {
            return Ok(true);
        }
        if area.nlink == 0 {
            return Ok(false);
        }
        let (parent, name) = &self.area.place;
        let is_here = |stat: Stat| (stat.dev, stat.ino) == (area.dev, area.ino);
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.changed == Some(area.ctime) {
            return Ok(true);
        }
        // Renaming it has changed it, too.
        if !self.os.stat_at(parent, name).is_ok_and(is_here) {
            return Ok(false);
        }
        for (name, before) in NAMES.iter().zip(&mut seen.names) {
            let now = match self.os.stat_at(&self.area.dir, name) {
                Ok(now) => Some(now.ino),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error),
            };
            if before.is_some() && *before != now {
                return Ok(false);
            }
            *before = now;
        }
        if self.log.is_gone() {
            return Ok(false);
        }
        seen.changed = Some(area.ctime);
        Ok(true)
    }
}
