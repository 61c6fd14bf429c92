//! The shared staging directory: one directory for the slots of all small transactions of an owner,
//! `slots.<table>.<owner>` in the area.
//!
//! To make, name and delete a directory costs more than everything else that a small commit does. So the
//! first [`SLOTS_MAX`] slots of a transaction stand in the shared staging directory, under numbers that no other
//! transaction has, and there is no `tx/<id>`. What the final name of `tx/<id>` proves is proved by a *seal* instead: a
//! number that the shared staging directory's token file gets as its modification time when all slots of a transaction
//! are made, before its record is written with that number. Metadata survive a power loss as a prefix: where the token
//! file has this number or a higher one, all these slots have been there, and one that is missing was emptied.
//!
//! Owns: the directory, its seals, and the way from a record to its slots there. Guarantees: seals ascend,
//! also from one process to the next with the same index; a shared staging directory is of one table, so that no seal
//! that a power loss took is given again. Does not: exist where metadata survive in any other way.

use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::objects::{remove_all, slot_number};

use crate::record::{Body, SharedSlots};
use std::sync::{Arc, Mutex, PoisonError};
use systx_os::{Dirent, Errno, FileType, Handle, Open, Os, Result, Timestamp};

/// Slots of one transaction in a shared staging directory; one with more has a directory of its own.
pub(crate) const SLOTS_MAX: u32 = 16;
/// Beginning of a shared staging directory's name.
const PREFIX: &str = "slots.";
pub(super) const TOKEN: &[u8] = b"token.0";
/// Seconds that every inode has room for: beyond that the kernel puts what fits, which would seal nothing.
pub(super) const SEAL_MAX: u64 = i32::MAX as u64;

/// The transaction that the entries belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotsOf {
    pub id: TxId,
    pub table: [u8; 16],
    pub shared_slots: Option<SharedSlots>,
}

/// A shared staging directory of this process.
pub(crate) struct SharedStaging<O: Os> {
    pub dir: Arc<O::Fd>,
    /// The file that all tokens on it are names of, and that has the seal.
    pub token: O::Fd,
    pub token_handle: Handle,
    /// The last one given.
    pub(super) seal: Mutex<u64>,
}

/// The first of the numbers that a transaction's slots have in a shared staging directory. They come round after 268
/// million transactions.
pub(crate) fn first_slot(id: TxId) -> u32 {
    let blocks = u64::from(u32::MAX / SLOTS_MAX);
    (id.0 % blocks) as u32 * SLOTS_MAX
}

pub(super) fn name_of(table: &[u8; 16], owner: impl std::fmt::Display) -> String {
    let table: String = table.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{table}.{owner}")
}

/// The first slot of the transaction that an entry of a shared staging directory belongs to; `None`: it belongs to all.
pub(crate) fn owner_of(name: &[u8]) -> Option<u32> {
    // The token of LINKs is a slot's name and `l`.
    let slot = slot_number(name.strip_suffix(b"l").unwrap_or(name))?;
    Some(slot / SLOTS_MAX * SLOTS_MAX)
}

pub(super) fn remove_slot<O: Os>(os: &O, dir: &O::Fd, name: &[u8], kind: FileType) -> Result<()> {
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

impl<O: Os> SharedStaging<O> {
    pub(super) fn sealed(&self) -> u64 {
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

/// The shared staging directory that a record's slots are on; `None`: on none, or it is gone.
pub(crate) fn shared_staging_of<O: Os>(os: &O, area: &O::Fd, body: &Body) -> Result<Option<O::Fd>> {
    let Some(SharedSlots { owner, .. }) = body.shared_slots else { return Ok(None) };
    os.open_if_there(area, name_of(&body.table, owner).as_bytes(), Open::Directory)
}

/// The directory of a record's slots, whatever is in it; `None`: it has none, or it is gone.
pub(crate) fn slots_there<O: Os>(os: &O, area: &O::Fd, of: &SlotsOf) -> Result<Option<O::Fd>> {
    if let Some(SharedSlots { owner, .. }) = of.shared_slots {
        let shared_staging = os.open_if_there(area, name_of(&of.table, owner).as_bytes(), Open::Directory)?;
        if shared_staging.is_some() {
            return Ok(shared_staging);
        }
    }
    // Where a recovery makes the slots of a shared staging directory again, too.
    let tx = os.open(area, b"tx", Open::Directory)?;
    os.open_if_there(&tx, of.id.to_string().as_bytes(), Open::Directory)
}

/// The shared staging directory of a record, where all its slots have been there; `None` if a power loss took them
/// before they were sealed.
pub(crate) fn sealed_shared_staging_of<O: Os>(os: &O, area: &O::Fd, body: &Body) -> Result<Option<O::Fd>> {
    let (Some(shared_slots), Some(dir)) = (&body.shared_slots, shared_staging_of(os, area, body)?) else {
        return Ok(None);
    };
    let seal = match os.stat_at(&dir, TOKEN) {
        Err(Errno::NOENT) => return Ok(None),
        stat => u64::try_from(stat?.mtime.sec),
    };
    let sealed = seal.is_ok_and(|seal| seal >= shared_slots.seal) || mutant::on(Mutant::NoSeal);
    Ok(sealed.then_some(dir))
}

fn is_one(entry: &&Dirent) -> bool {
    entry.kind == FileType::Directory && entry.name.starts_with(PREFIX.as_bytes())
}

/// The shared staging directories of an area, open.
pub(crate) fn shared_stagings<O: Os>(os: &O, area: &O::Fd) -> Result<Vec<O::Fd>> {
    let listed = os.read_dir(area)?;
    listed.iter().filter(is_one).map(|entry| os.open(area, &entry.name, Open::Directory)).collect()
}

/// Deletes the shared staging directories of tables before this one, when no record is left that may need one.
pub(crate) fn sweep_shared_stagings<O: Os>(os: &O, area: &O::Fd) -> Result<()> {
    for entry in os.read_dir(area)?.iter().filter(is_one) {
        // As in `clear_shared_staging_of`.
        let _ = remove_slot(os, area, &entry.name, entry.kind);
    }
    Ok(())
}
