//! Noticing that the area was moved, or it or something in it removed, under processes that use it: by hand, or by what
//! tidies `/tmp`.
//!
//! Owns: which objects the area's names were when it was opened. Guarantees: a commit that begins behind such a removal
//! changes nothing; it would stand in a log that nobody finds, and its staged objects could be gone. Does not: look below
//! `tx`, nor notice a removal between the look and the commit point.

use super::remembered::{Seen, SEEN};
use super::Domain;
use crate::mutant::{self, Mutant};
use systx_os::{Errno, Os, Result, Stat, Timestamp};

/// Objects of the area, beside `log`, that a commit relies on.
const NAMES: [&[u8]; SEEN] = [b"table", b"owners", b"tx", b"aside"];

/// A change time that is younger than this may be that of a later change, too: the clock of file systems ticks.
const TICK_NS: i128 = 10_000_000;

impl<O: Os> Domain<O> {
    /// Notes what this process uses, when it has opened it.
    pub(super) fn note_names(&self) -> Result<()> {
        let fds = [self.owners.file(), &*self.area.tx, &self.area.aside];
        let [owners, tx, aside] = fds.map(|fd| self.os.stat(fd).map(|stat| stat.ino));
        let table = self.os.stat_at(&self.area.dir, NAMES[0]).map(|stat| stat.ino);
        self.seen().names = [table?, owners?, tx?, aside?];
        Ok(())
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns false if the area was removed or moved, or one of its names, or a segment that is written to, was removed or
    /// given to another object, since this domain was opened: it has to be opened anew. Two calls, unless names have changed.
    ///
    /// # Errors
    /// Those of stat(2): the area can't be looked at.
    pub fn is_in_place(&self) -> Result<bool> {
        if mutant::on(Mutant::RemovedUnseen) {
            return Ok(true);
        }
        let os = &self.os;
        let area = os.stat(&self.area.dir)?;
        let log = if_there(os.stat_at(&self.area.dir, b"log"))?.map(|log| log.ctime);
        let mut seen = self.seen();
        if seen.changed == Some((area.ctime, log)) {
            return Ok(true);
        }
        // Renaming it has changed it, too.
        let (parent, name) = &self.area.place;
        let here = if_there(os.stat_at(parent, name))?.map(|stat| (stat.dev, stat.ino));
        if area.nlink == 0 || here != Some((area.dev, area.ino)) {
            return Ok(false);
        }
        for (name, before) in NAMES.iter().zip(seen.names) {
            if if_there(os.stat_at(&self.area.dir, name))?.map(|stat| stat.ino) != Some(before) {
                return Ok(false);
            }
        }
        if self.log.is_gone() {
            return Ok(false);
        }
        let now = nanos(os.now());
        let is_old = |time: Timestamp| now - nanos(time) > TICK_NS;
        if is_old(area.ctime) && log.is_none_or(is_old) {
            seen.changed = Some((area.ctime, log));
        }
        Ok(true)
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

fn if_there(stat: Result<Stat>) -> Result<Option<Stat>> {
    match stat {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(None),
        stat => stat.map(Some),
    }
}
