//! The note of a commit without a record that takes objects out of the tree: until they are in place, or deleted, they
//! stand in its staging entries, and if the file system goes meanwhile, nothing else tells them from its own objects.
//!
//! `tx/<id>-0000000000000000` is the postcard encoding of [`Moving`]. Guarantees: an object is taken for the
//! transaction's own, or for one that it removed, only if the note says so; a note that can't be read says so of none.
//! Does not: know where an object belongs.

use super::{marks, Domain};
use crate::bytes::{read_file, write_all};
use crate::domain::shared_staging::{first_slot, owner_of};
use crate::domain::Area;
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::objects::slot_number;
use crate::record::{Act, Body};
use serde::{Deserialize, Serialize};
use systx_os::{Dirent, Errno, FileType, Handle, Open, Os, Result, Timestamp};

/// What stood in the entries before the first step, and what was to be deleted.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Moving {
    /// Inode numbers, by entry.
    ours: Vec<(u32, u64)>,
    going: Vec<(u32, Handle)>,
    /// When the note was made.
    #[serde(skip)]
    since: Option<Timestamp>,
}

/// Returns true if steps take objects out of the tree.
pub(crate) fn takes_out(body: &Body) -> bool {
    let takes = |act: &Act| matches!(act, Act::Take { .. } | Act::Replace { .. } | Act::Remove { .. });
    body.steps.iter().any(|step| takes(&step.act))
}

impl<O: Os> Domain<O> {
    /// Makes the note when all entries are there, and before the commit point: whoever takes the first step, it is there.
    pub(crate) fn begin_moving(&self, slots: &O::Fd, body: &Body) -> Result<()> {
        let mut entries = self.os.read_dir(slots)?;
        if body.shared_slots.is_some() {
            entries.retain(|entry| owner_of(&entry.name) == Some(first_slot(body.id)));
        }
        let numbered = |entry: &Dirent| Some((slot_number(&entry.name)?, entry.ino));
        let ours = entries.iter().filter_map(numbered).collect();
        let going = body.steps.iter().filter_map(|step| match &step.act {
            Act::Replace { before, .. } | Act::Remove { before, .. } => Some((step.slot, *before)),
            _ => None,
        });
        let note = Moving { ours, going: going.collect(), since: None };
        let fd = self.os.tmpfile(&self.area.tx, 0o600)?;
        let bytes = postcard::to_allocvec(&note).unwrap_or_default();
        write_all(&self.os, &fd, &bytes, 0)?;
        // Its name last: who is killed here leaves all of it or nothing. (A power loss may leave the name alone.)
        let named = || self.os.link(&fd, &self.area.tx, &marks::name_of_moving(body.id));
        match named() {
            // Of an earlier try.
            Err(Errno::EXIST) => {
                self.end_moving(body.id);
                named()
            }
            named => named,
        }
    }

    /// Takes it back.
    pub(crate) fn end_moving(&self, id: TxId) {
        let _ = self.os.unlink(&self.area.tx, &marks::name_of_moving(id));
    }
}

impl Moving {
    /// The note of a transaction that has made one.
    pub fn of<O: Os>(os: &O, area: &Area<O>, id: TxId) -> Result<Moving> {
        let note = os.open(&area.tx, &marks::name_of_moving(id), Open::Read)?;
        let since = Some(os.stat(&note)?.mtime);
        let read: Moving = postcard::from_bytes(&read_file(os, &note)?).unwrap_or_default();
        Ok(Moving { since, ..read })
    }

    /// Returns true if the object that was found in an entry is to be deleted with it.
    pub fn may_go<O: Os>(&self, os: &O, object: &O::Fd, slot: u32, ino: u64) -> Result<bool> {
        if mutant::on(Mutant::LiftedDeleted) || self.ours.contains(&(slot, ino)) {
            return Ok(true);
        }
        let going = self.going.iter().find(|(of, _)| *of == slot);
        if going.map(|(_, handle)| *handle) != Some(os.handle(object)?) {
            return Ok(false);
        }
        // Somebody may have written to it since, or made names in it.
        let stat = os.stat(object)?;
        let unwritten = self.since.is_some_and(|since| stat.mtime < since);
        Ok(unwritten && stat.kind() != FileType::Directory)
    }
}
