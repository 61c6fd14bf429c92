//! Objects of the tree that a commit without a record had taken out when its file system went: they stand in its staging
//! directory, between their two names, and nothing says where they belong.
//!
//! Guarantees: what is not known to be the transaction's own, or removed by it, is kept in `aside/` and reported, not
//! deleted ([`Moving`]). Does not: know where it belongs.

use crate::domain::moving::Moving;
use crate::domain::shared_staging::{first_slot, owner_of};
use crate::domain::{marks, reports, Area};
use crate::id::TxId;
use crate::objects::slot_number;
use crate::outcome::{ConflictCopy, ConflictCopyKind};
use crate::publish::site::free_name;
use systx_os::{Errno, Open, Os, Rename, Result};

/// The owners of a directory's entries: this transaction alone, or others, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum All {
    Are,
    Not,
}

/// Transactions that have noted it.
pub(super) fn moving<O: Os>(os: &O, area: &Area<O>) -> Result<Vec<TxId>> {
    let listed = os.read_dir(&area.tx)?;
    let id = |name: &[u8]| marks::owner_of(name).filter(|id| marks::name_of_moving(*id) == name);
    Ok(listed.iter().filter_map(|entry| id(&entry.name)).collect())
}

/// Keeps them, before the rest of a staging directory is deleted: those in entries of this transaction, `all` of which
/// are, or some, where it is a shared one.
pub(super) fn keep<O: Os>(os: &O, area: &Area<O>, dir: &O::Fd, id: TxId, all: All) -> Result<()> {
    let note = Moving::of(os, area, id)?;
    for entry in os.read_dir(dir)? {
        let Some(slot) = slot_number(&entry.name) else { continue };
        if all == All::Not && owner_of(&entry.name) != Some(first_slot(id)) {
            continue;
        }
        let object = os.open(dir, &entry.name, Open::Path)?;
        if note.may_go(os, &object, slot, entry.ino)? {
            continue;
        }
        let name = free_name(os, &area.aside, id, slot)?;
        let (path, what) = (Vec::new(), ConflictCopyKind::CutOff);
        reports::keep(os, &area.dir, id, &ConflictCopy { path, aside: Some(name.clone()), what })?;
        match os.rename((dir, &entry.name), (&area.aside, name.as_bytes()), Rename::NoReplace) {
            // An immutable one can't be deleted, either.
            Ok(()) | Err(Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
