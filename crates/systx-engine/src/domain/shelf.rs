//! The shelf: one directory for the slots of all small transactions of an owner, `slots.<table>.<owner>` in the area.
//!
//! To make, name and delete a directory costs more than everything else that a small commit does. So the first [`SLOTS_MAX`] slots
//! of a transaction stand on the shelf, under numbers that no other transaction has, and there is no `tx/<id>`. What the final
//! name of `tx/<id>` proves is proved by a *seal* instead: a number that the shelf's token file gets as its modification time when
//! all slots of a transaction are made, before its record is written with that number. Metadata survive a power loss as a prefix:
//! where the token file has this number or a higher one, all these slots have been there, and one that is missing was emptied.
//!
//! Owns: the directory, its seals, and the way from a record to its slots there. Guarantees: seals ascend, also from one process
//! to the next with the same index; a shelf is of one table, so that no seal that a power loss took is given again. Does not: exist
//! where metadata survive in any other way.

use super::layout::OWNERS;
use super::Domain;
use crate::id::{OwnerIx, TxId};
use crate::log::Entry;
use crate::mutant::{self, Mutant};
use crate::objects::{remove_all, slot_number};
use crate::publish::ways::SlotsOf;
use crate::record::{Body, Shelved};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use systx_os::{Errno, FileType, FsKind, Handle, Open, Os, Rename, Result, Timestamp};

/// Slots of one transaction on a shelf; one with more has a directory of its own.
pub(crate) const SLOTS_MAX: u32 = 16;
/// Beginning of a shelf's name.
const PREFIX: &str = "slots.";
const TOKEN: &[u8] = b"token.0";
/// Seconds that every inode has room for: beyond that the kernel puts what fits, which would seal nothing.
const SEAL_MAX: u64 = i32::MAX as u64;

/// A shelf of this process.
pub(crate) struct Shelf<O: Os> {
    pub dir: Arc<O::Fd>,
    /// The file that all tokens on it are names of, and that has the seal.
    pub token: O::Fd,
    pub token_handle: Handle,
    /// The last one given.
    seal: Mutex<u64>,
}

/// The first of the numbers that a transaction's slots have on a shelf. They come round after 268 million transactions.
pub(crate) fn first_slot(id: TxId) -> u32 {
    let blocks = u64::from(u32::MAX / SLOTS_MAX);
    (id.0 % blocks) as u32 * SLOTS_MAX
}

fn name_of(table: &[u8; 16], owner: impl std::fmt::Display) -> String {
    let table: String = table.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{table}.{owner}")
}

/// The first slot of the transaction that an entry of a shelf belongs to; `None`: it belongs to all.
fn owner_of(name: &[u8]) -> Option<u32> {
    // The token of LINKs is a slot's name and `l`.
    let slot = slot_number(name.strip_suffix(b"l").unwrap_or(name))?;
    Some(slot / SLOTS_MAX * SLOTS_MAX)
}

fn remove_slot<O: Os>(os: &O, dir: &O::Fd, name: &[u8], kind: FileType) -> Result<()> {
    let gone = |done| match done {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    };
    if kind != FileType::Directory {
        return gone(os.unlink(dir, name));
    }
    remove_all(os, &os.open(dir, name, Open::Path)?)?;
    gone(os.rmdir(dir, name))
}

impl<O: Os> Shelf<O> {
    fn sealed(&self) -> u64 {
        *self.seal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that all slots of a transaction are made. Whatever was sealed before has a lower number.
    pub fn seal(&self, os: &O) -> Result<u64> {
        let mut seal = self.seal.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *seal + 1;
        if next > SEAL_MAX {
            return Err(Errno::OVERFLOW);
        }
        os.utimens(&self.token, None, Some(Timestamp { sec: next as i64, nsec: 0 }))?;
        *seal = next;
        Ok(next)
    }
}

impl<O: Os> Domain<O> {
    /// The shelf of this process, made at the first need; `None` where there is none, or it can't be made.
    pub(crate) fn shelf(&self) -> Option<Arc<Shelf<O>>> {
        if !matches!(self.info.kind, FsKind::Ext4 | FsKind::Xfs) {
            return None;
        }
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have deleted it by hand.
        let there = |shelf: &Arc<Shelf<O>>| {
            shelf.sealed() < SEAL_MAX && self.os.stat(&shelf.token).is_ok_and(|stat| stat.nlink > 0)
        };
        if !shelf.as_ref().is_some_and(there) {
            *shelf = self.open_shelf().ok().map(Arc::new);
        }
        shelf.clone()
    }

    fn open_shelf(&self) -> Result<Shelf<O>> {
        let (os, area) = (&self.os, &self.area.dir);
        let name = name_of(&self.table.id(), self.me().0);
        let dir = match os.open(area, name.as_bytes(), Open::Directory) {
            Err(Errno::NOENT) => self.make_shelf(&name)?,
            dir => dir?,
        };
        let token = os.open(&dir, TOKEN, Open::Path)?;
        let seal = u64::try_from(os.stat(&token)?.mtime.sec).map_err(|_| Errno::UCLEAN)?;
        if seal >= SEAL_MAX {
            return Err(Errno::OVERFLOW);
        }
        let token_handle = os.handle(&token)?;
        Ok(Shelf { dir: Arc::new(dir), token, token_handle, seal: Mutex::new(seal) })
    }

    /// It gets its name when its token file says that nothing is sealed.
    fn make_shelf(&self, name: &str) -> Result<O::Fd> {
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

    /// Deletes what a transaction of this process has on the shelf and no record promises.
    pub(crate) fn clear_shelf(&self, id: TxId) {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(shelf) = shelf else { return };
        let Ok(listed) = self.os.read_dir(&shelf.dir) else { return };
        for entry in listed.iter().filter(|entry| owner_of(&entry.name) == Some(first_slot(id))) {
            let _ = remove_slot(&self.os, &shelf.dir, &entry.name, entry.kind);
        }
    }

    /// The dead on whose shelves something is left.
    pub(super) fn dead_shelves(&self) -> Result<Vec<OwnerIx>> {
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

    /// Deletes what a dead owner, whose index this process holds, left on its shelf: all that belongs to no slot in flight and to
    /// no record that is needed.
    pub(crate) fn clear_shelf_of(&self, dead: OwnerIx) -> Result<()> {
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
        // What can't be deleted, as somebody made it immutable, stays: it must not keep the domain shut.
        for entry in left {
            let _ = remove_slot(os, &dir, &entry.name, entry.kind);
        }
        Ok(())
    }
}

/// The shelf that a record's slots are on; `None`: on none, or it is gone.
pub(crate) fn shelf_of<O: Os>(os: &O, area: &O::Fd, body: &Body) -> Result<Option<O::Fd>> {
    let Some(Shelved { owner, .. }) = body.shelved else { return Ok(None) };
    os.open_if_there(area, name_of(&body.table, owner).as_bytes(), Open::Directory)
}

/// The directory of a record's slots, whatever is in it; `None`: it has none, or it is gone.
pub(crate) fn slots_there<O: Os>(os: &O, area: &O::Fd, of: &SlotsOf) -> Result<Option<O::Fd>> {
    if let Some(Shelved { owner, .. }) = of.shelved {
        let shelf = os.open_if_there(area, name_of(&of.table, owner).as_bytes(), Open::Directory)?;
        if shelf.is_some() {
            return Ok(shelf);
        }
    }
    // Where a recovery makes the slots of a shelf again, too.
    let tx = os.open(area, b"tx", Open::Directory)?;
    os.open_if_there(&tx, of.id.to_string().as_bytes(), Open::Directory)
}

/// The shelf of a record, where all its slots have been there; `None` if a power loss took them before they were sealed.
pub(crate) fn sealed_shelf_of<O: Os>(os: &O, area: &O::Fd, body: &Body) -> Result<Option<O::Fd>> {
    let (Some(shelved), Some(dir)) = (&body.shelved, shelf_of(os, area, body)?) else { return Ok(None) };
    let seal = match os.stat_at(&dir, TOKEN) {
        Err(Errno::NOENT) => return Ok(None),
        stat => u64::try_from(stat?.mtime.sec),
    };
    let sealed = seal.is_ok_and(|seal| seal >= shelved.seal) || mutant::on(Mutant::NoSeal);
    Ok(sealed.then_some(dir))
}

/// Deletes the shelves of tables before this one, when no record is left that may need one.
pub(crate) fn sweep_shelves<O: Os>(os: &O, area: &O::Fd) -> Result<()> {
    for entry in os.read_dir(area)? {
        if entry.kind == FileType::Directory && entry.name.starts_with(PREFIX.as_bytes()) {
            // As in `clear_shelf_of`.
            let _ = remove_slot(os, area, &entry.name, entry.kind);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Location;
    use crate::objects::slot_name;
    use systx_sim::machine::{run_process, Machine};

    /// An inode of 128 bytes has room for 31 bits of seconds: the kernel would put the highest instead.
    #[test]
    fn seals_end_before_times_do() {
        let machine = Machine::with(FsKind::Ext4);
        let os = machine.spawn("owner");
        let done = run_process(&os, || {
            let (root, name) = (os.root(0), b".systx");
            let site = Location { root: Arc::new(os.root(0)), parent: &root, name };
            let domain = Domain::open(&os, site).expect("opens");
            let shelf = domain.shelf().expect("there is one");
            let sec = SEAL_MAX as i64 - 1;
            os.utimens(&shelf.token, None, Some(Timestamp { sec, nsec: 0 })).expect("works");
            // As the next owner of the index finds it.
            *domain.shelf.lock().expect("nobody panicked") = None;
            let shelf = domain.shelf().expect("one more");
            assert_eq!(shelf.seal(&os), Ok(SEAL_MAX));
            assert_eq!(shelf.seal(&os), Err(Errno::OVERFLOW));
            assert!(domain.shelf().is_none(), "there are no more seals");
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
