//! The stage barrier: staged objects, and what the commit builds on, are on stable storage before the record
//! that promises them.
//!
//! Recipes and what they cost: docs/decisions.md, "Measured". On a journaling file system names and
//! attributes go to the disk in order, so that one sync after the last write-out carries everything that came
//! before it.

use super::base::Base;
use super::Change;
use crate::domain::Domain;
use crate::mutant::{self, Mutant};
use crate::publish::tokens;
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Open, Os, Result};

/// Up to here files are written out one by one; beyond, the whole file system is synced at once.
const FILES_ONE_BY_ONE_MAX: u64 = 500;

/// Makes everything staged durable, and what is built on: names, attributes, contents.
pub(super) fn stage_barrier<O: Os>(domain: &Domain<O>, change: &Change<O>, base: &mut Base<O>) -> Result<()> {
    let mut staged = change.plan.staged;
    if mutant::on(Mutant::NoStageBarrier) {
        (staged.files, staged.others) = (0, 0);
    }
    let needed = staged.files + staged.others > 0 || base.is_unsynced();
    // Tmpfs itself does not survive a power loss, so there is nothing to promise.
    if !needed || domain.info.kind == FsKind::Tmpfs {
        return Ok(());
    }
    let files = base.files(domain, change)?;
    sync(domain, change, staged.files, files.as_deref())?;
    // Only after the sync: a commit that finds these times noted goes without one of its own.
    base.synced(domain);
    Ok(())
}

/// `others`: files that aren't staged; `None`: all there are.
fn sync<O: Os>(
    domain: &Domain<O>,
    change: &Change<O>,
    staged_files: u64,
    others: Option<&[Arc<O::Fd>]>,
) -> Result<()> {
    let os = &domain.os;
    let ordered = matches!(domain.info.kind, FsKind::Ext4 | FsKind::Xfs);
    // Syncing single files is enough only where names and attributes follow them in order (ext4, xfs).
    let (Some(others), true) = (others, staged_files <= FILES_ONE_BY_ONE_MAX && ordered) else {
        domain.sync_everything()?;
        if domain.info.kind != FsKind::Btrfs && staged_files <= FILES_ONE_BY_ONE_MAX {
            // Without a journal syncfs has been seen to lose names once in 200 files; fsync of each has not.
            if staged_files > 0 {
                each_file(os, &change.slots, &mut |fd| domain.closing(os.fsync(fd)))?;
            }
            others.into_iter().flatten().try_for_each(|fd| domain.closing(os.fsync(fd)))?;
        }
        return Ok(());
    };
    let mut files = Vec::new();
    if staged_files > 0 {
        match each_file_opened(os, &change.slots, &mut files) {
            // Too many files, or too deep a tree, for the descriptors at hand.
            Err(Errno::MFILE | Errno::NFILE) => return domain.sync_everything(),
            opened => opened?,
        }
    }
    domain.sync_files(files.iter().chain(others.iter().map(|fd| &**fd)))
}

fn each_file_opened<O: Os>(os: &O, dir: &O::Fd, files: &mut Vec<O::Fd>) -> Result<()> {
    each_file_by(os, dir, &mut |fd| {
        files.push(fd);
        Ok(())
    })
}

fn each_file<O: Os>(os: &O, dir: &O::Fd, act: &mut dyn FnMut(&O::Fd) -> Result<()>) -> Result<()> {
    each_file_by(os, dir, &mut |fd| act(&fd))
}

/// Every regular file below a directory of ours, but for tokens that an ordinary user has no right to open: they have no
/// bytes, and the sync of what comes with them carries their names.
fn each_file_by<O: Os>(os: &O, dir: &O::Fd, act: &mut dyn FnMut(O::Fd) -> Result<()>) -> Result<()> {
    let entries = os.read_dir(dir)?;
    let is_token_file =
        |ino: u64| entries.iter().any(|entry| entry.ino == ino && tokens::is_base(&entry.name));
    for entry in &entries {
        match entry.kind {
            FileType::File => match os.open(dir, &entry.name, Open::Read) {
                Err(Errno::ACCESS) if is_token_file(entry.ino) => {}
                file => act(file?)?,
            },
            // An ordinary user can't enter a token, as it has mode 0; nothing is in it.
            FileType::Directory if tokens::is_directory(&os.stat_at(dir, &entry.name)?) => {}
            FileType::Directory => each_file_by(os, &os.open(dir, &entry.name, Open::Path)?, act)?,
            _ => {}
        }
    }
    Ok(())
}
