//! The sync of a checkpoint: the objects of its records where they are few, else the whole file system (C2).
//!
//! A sync of the file system writes the dirty data of all processes. As long as that takes, the helper
//! process that makes the checkpoint keeps an unmount from closing the file system: umount(2) returns before
//! the device is written.
//!
//! Owns: the list of files whose bytes are not synced yet. Guarantees: after the sync everything that the
//! covered records have changed is on the disk; in any doubt all of the file system is synced. Does not: sync
//! what others have written, unless it is in the same file.

use crate::domain::reports;
use crate::domain::Domain;
use crate::id::Lsn;
use crate::log::{Cell, Replay};
use crate::mutant::{self, Mutant};
use crate::objects::open_object;
use crate::record::{Act, At, Body};
use std::collections::BTreeSet;
use systx_os::{FileType, FsKind, Handle, Open, Os, Result, Writing};

/// Files that are opened and written out one by one; for more, a sync of everything costs less.
const FILES_MAX: usize = 64;

/// The extent of a checkpoint's sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole file system.
    Everything,
    /// The files that its records have changed, if they are few.
    Records,
}

/// Files whose bytes ride in the covered records; `None`: everything is to be synced.
pub(super) struct Covered(Option<Vec<(Handle, At)>>);

impl Covered {
    pub fn new<O: Os>(domain: &Domain<O>, scope: Scope) -> Covered {
        // Elsewhere the sync of one file does not carry the names and attributes of others.
        let ordered = matches!(domain.info.kind, FsKind::Ext4 | FsKind::Xfs);
        Covered((ordered && scope == Scope::Records).then(Vec::new))
    }

    /// Adds what one record has changed. Other bytes than these were on the disk before its header.
    pub fn add<O: Os>(&mut self, domain: &Domain<O>, body: &Body) {
        let Some(files) = &mut self.0 else { return };
        let alone = body.coordinator.is_none() && body.participants.is_empty() && body.companions.is_empty();
        // The bytes of a patch that was displaced are in a file of their own, like the report.
        if !alone || reports::are_there(&domain.os, &domain.area.dir, body.id) {
            self.0 = None;
            return;
        }
        for step in &body.steps {
            let file = match &step.act {
                Act::Patch(patch) => Some(patch.file),
                // The target of a symbolic link is metadata.
                Act::Place { small: Some(small) } => {
                    let is_file = FileType::from_mode(small.mode) == Some(FileType::File);
                    Some(small.handle).filter(|_| is_file && !small.content.is_empty())
                }
                _ => None,
            };
            let known = |file: &Handle| files.iter().any(|(known, _)| known == file);
            files.extend(file.filter(|file| !known(file)).map(|file| (file, step.at.clone())));
            if files.len() > FILES_MAX {
                self.0 = None;
                return;
            }
        }
    }

    /// Syncs it, `noted` included. The records are those of `replay` up to `bound`.
    pub fn sync<O: Os>(self, domain: &Domain<O>, replay: &Replay, bound: Lsn, noted: &[O::Fd]) -> Result<()> {
        let logged = || each_number_is_logged(replay, bound) || mutant::on(Mutant::GapsCovered);
        // On a full disk the file that closes the sync may not be had.
        let files = self.0.filter(|_| logged() && domain.barrier_file().is_ok());
        match files.and_then(|files| opened(domain, &files)) {
            Some(_) if mutant::on(Mutant::CoveredNotWritten) => domain.sync_files(noted.iter()),
            Some(files) if mutant::on(Mutant::CoveredUnordered) => {
                files.iter().chain(noted).try_for_each(|fd| domain.os.write_out(fd, Writing::Wait))
            }
            Some(files) => domain.sync_files(files.iter().chain(noted)),
            None => domain.sync_everything(),
        }
    }
}

/// Returns true if each number up to `bound` that no checkpoint covers is that of a record of this file system alone,
/// or of an abort. Else it may be that of a commit of durability `none`, whose changes are not known.
fn each_number_is_logged(replay: &Replay, bound: Lsn) -> bool {
    let uncovered = |lsn: &Lsn| *lsn > replay.checkpoint && *lsn <= bound;
    let logged = replay.records.iter().filter_map(|entry| match entry.cell {
        Cell::Commit { lsn, .. } | Cell::Abort { lsn } => Some(lsn),
        _ => None,
    });
    let numbers: BTreeSet<Lsn> = logged.chain(replay.aborted.iter().copied()).filter(uncovered).collect();
    numbers.len() as u64 == bound.0.saturating_sub(replay.checkpoint.0)
}

/// Opens the files; `None` if one is gone, is not to be found where handles can't be opened, or lets nobody read.
fn opened<O: Os>(domain: &Domain<O>, files: &[(Handle, At)]) -> Option<Vec<O::Fd>> {
    let open = |(handle, at): &(Handle, At)| {
        let (os, root) = (&domain.os, &domain.area.root);
        open_object(os, root, handle, &at.path, &at.name, Open::Read).ok().flatten()
    };
    files.iter().map(open).collect()
}
