//! The shared staging directories of a domain: this process's own, and what the dead have left on theirs.
//!
//! Guarantees: nothing goes that a slot in flight or a record may need.

use super::shared_staging::{first_slot, name_of, owner_of, remove_slot, SharedStaging, SEAL_MAX, TOKEN};
use super::Domain;
use crate::id::{OwnerIx, TxId, OWNERS};
use crate::log::Entry;
use crate::objects::remove_all;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use systx_os::{Errno, FsKind, Open, Os, Rename, Result, Timestamp};

impl<O: Os> Domain<O> {
    /// The shared staging directory of this process, made at the first need; `None` where there is none, or it can't be
    /// made.
    pub(crate) fn shared_staging(&self) -> Option<Arc<SharedStaging<O>>> {
        if !matches!(self.info.kind, FsKind::Ext4 | FsKind::Xfs) || !self.is_ours() {
            return None;
        }
        let mut shared_staging = self.shared_staging.lock().unwrap_or_else(PoisonError::into_inner);
        // A person may have deleted it by hand.
        let there = |shared_staging: &Arc<SharedStaging<O>>| {
            shared_staging.sealed() < SEAL_MAX
                && self.os.stat(&shared_staging.token).is_ok_and(|stat| stat.nlink > 0)
        };
        if !shared_staging.as_ref().is_some_and(there) {
            *shared_staging = self.open_shared_staging().ok().map(Arc::new);
        }
        shared_staging.clone()
    }

    fn open_shared_staging(&self) -> Result<SharedStaging<O>> {
        let (os, area) = (&self.os, &self.area.dir);
        let name = name_of(&self.table.id(), self.me().0);
        let dir = match os.open(area, name.as_bytes(), Open::Directory) {
            Err(Errno::NOENT) => self.make_shared_staging(&name)?,
            dir => dir?,
        };
        let token = os.open(&dir, TOKEN, Open::Path)?;
        let seal = u64::try_from(os.stat(&token)?.mtime.sec).map_err(|_| Errno::UCLEAN)?;
        if seal >= SEAL_MAX {
            return Err(Errno::OVERFLOW);
        }
        let token_handle = os.handle(&token)?;
        Ok(SharedStaging { dir: Arc::new(dir), token, token_handle, seal: Mutex::new(seal) })
    }

    /// It gets its name when its token file says that nothing is sealed.
    fn make_shared_staging(&self, name: &str) -> Result<O::Fd> {
        let (os, area) = (&self.os, &self.area.dir);
        let temporary = format!("{name}~");
        match os.mkdir(area, temporary.as_bytes(), 0o700) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        let dir = os.open(area, temporary.as_bytes(), Open::Directory)?;
        // Of a process that was killed in here.
        remove_all(os, &dir)?;
        let token = os.create(&dir, TOKEN, 0)?;
        let never = Timestamp { sec: 0, nsec: 0 };
        os.utimens(&token, Some(never), Some(never))?;
        os.rename((area, temporary.as_bytes()), (area, name.as_bytes()), Rename::NoReplace)?;
        Ok(dir)
    }

    /// Deletes what a transaction of this process has in the shared staging directory and no record promises.
    pub(crate) fn clear_shared_staging(&self, id: TxId) {
        if !self.is_ours() {
            return;
        }
        let shared_staging = self.shared_staging.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(shared_staging) = shared_staging else { return };
        let Ok(listed) = self.os.read_dir(&shared_staging.dir) else { return };
        for entry in listed.iter().filter(|entry| owner_of(&entry.name) == Some(first_slot(id))) {
            let _ = remove_slot(&self.os, &shared_staging.dir, &entry.name, entry.kind);
        }
    }

    /// The dead in whose shared staging directories something is left.
    pub(crate) fn dead_shared_stagings(&self) -> Result<Vec<OwnerIx>> {
        let (os, area) = (&self.os, &self.area.dir);
        let ours = name_of(&self.table.id(), "");
        let mut left = Vec::new();
        for entry in os.read_dir(area)? {
            let ix = entry.name.strip_prefix(ours.as_bytes()).and_then(|ix| std::str::from_utf8(ix).ok());
            let Some(ix) = ix.and_then(|ix| ix.parse().ok()).map(OwnerIx) else { continue };
            if !(1..OWNERS).contains(&ix.0) || self.alive(ix) {
                continue;
            }
            let Ok(dir) = os.open(area, &entry.name, Open::Directory) else { continue };
            if os.read_dir(&dir)?.iter().any(|slot| owner_of(&slot.name).is_some()) {
                left.push(ix);
            }
        }
        Ok(left)
    }

    /// Deletes what a dead owner, whose index this process holds, left in its shared staging directory: all that
    /// belongs to no slot in flight and to no record that is needed.
    pub(crate) fn clear_shared_staging_of(&self, dead: OwnerIx) -> Result<()> {
        let os = &self.os;
        let name = name_of(&self.table.id(), dead.0);
        let dir = match os.open(&self.area.dir, name.as_bytes(), Open::Directory) {
            Err(Errno::NOENT) => return Ok(()),
            dir => dir?,
        };
        let mut left = os.read_dir(&dir)?;
        left.retain(|entry| owner_of(&entry.name).is_some());
        for slot in self.table.slots().in_flight() {
            let first = Some(first_slot(self.checked(slot)?.info.tx));
            left.retain(|entry| owner_of(&entry.name) != first);
        }
        if left.is_empty() || self.log.is_poisoned() {
            return Ok(());
        }
        // A log that can't be read to its end may name any of them.
        let Ok(outline) = crate::log::outline(os, &self.area.dir, self.area.id) else { return Ok(()) };
        if outline.replay.damaged.is_some() {
            return Ok(());
        }
        let first = |entry: &Entry| entry.cell.id().filter(|_| entry.needed).map(first_slot);
        let needed: HashSet<Option<u32>> = outline.replay.records.iter().map(first).collect();
        left.retain(|entry| !needed.contains(&owner_of(&entry.name)));
        // An object that can't be deleted, as it was made immutable, stays: it must not keep the domain shut.
        for entry in left {
            let _ = remove_slot(os, &dir, &entry.name, entry.kind);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::shared_staging::SLOTS_MAX;
    use crate::domain::{Bounds, Location};
    use crate::objects::slot_name;
    use systx_sim::machine::{run_process, Machine};

    /// An inode of 128 bytes has room for 31 bits of seconds: the kernel would put the highest instead.
    #[test]
    fn seals_end_before_times_do() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("owner");
        let done = run_process(&os, || {
            let (root, name) = (os.root(0), b".systx");
            let site =
                Location { root: Arc::new(os.root(0)), bounds: Bounds::FileSystem, parent: &root, name };
            let domain = Domain::open(&os, site).expect("opens");
            let shared_staging = domain.shared_staging().expect("there is one");
            let sec = SEAL_MAX as i64 - 1;
            os.utimens(&shared_staging.token, None, Some(Timestamp { sec, nsec: 0 })).expect("works");
            // The next owner of the index finds it in this state.
            *domain.shared_staging.lock().expect("nobody panicked") = None;
            let shared_staging = domain.shared_staging().expect("one more");
            assert_eq!(shared_staging.seal(&os), Ok(SEAL_MAX));
            assert_eq!(shared_staging.seal(&os), Err(Errno::OVERFLOW));
            assert!(domain.shared_staging().is_none(), "there are no more seals");
        });
        done.expect("lives");
    }

    #[test]
    fn slots_of_transactions_that_follow_each_other_have_numbers_of_their_own() {
        for id in [0, 1, 2, 268_435_454, 268_435_455, u64::MAX] {
            let first = first_slot(TxId(id));
            assert!(first.checked_add(SLOTS_MAX).is_some_and(|end| end < crate::record::Step::NO_SLOT));
            assert_ne!(first, first_slot(TxId(id.wrapping_add(1))));
            let last = slot_name(first + SLOTS_MAX - 1);
            for name in [last.clone(), [&last[..], b"l"].concat(), slot_name(first)] {
                assert_eq!(owner_of(&name), Some(first));
            }
        }
        for name in [TOKEN, b"target", b"l", b"4000", b"4-", b"-"] {
            assert_eq!(owner_of(name), None);
        }
    }
}
