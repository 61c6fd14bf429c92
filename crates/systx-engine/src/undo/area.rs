//! `undo/` in the area: where images are, which of them belong to a commit, and how many are kept.
//!
//! ```text
//! undo/<id>~/   contents, manifest     of a transaction that is about to commit, or was when its process died
//! undo/<id>/    contents, manifest     of one that has committed
//! undo/<id>=                           of an undo: super::again
//! ```
//!
//! Owns: these names. Guarantees: whatever is called `<id>` belongs to a commit: it gets that name from the
//! process that has committed, or from whoever finds that one dead and `<id>` in the history; what is in
//! neither belongs to nobody, and goes. A transaction without durability has no history: when it is killed
//! right after its commit, it can't be undone. Numbers of kept images are not given out again after a reboot.
//! Does not: write images.

use super::again;
use super::image::{Image, Unreadable};
use crate::bytes::read_whole;
use crate::domain::history::Past;
use crate::domain::images::{parse, pending_name, DIR};
use crate::domain::Domain;
use crate::id::TxId;
use crate::log::LogError;
use crate::objects::remove_all;
use systx_os::{Errno, FileType, Open, Os, Rename, Result};

pub(crate) const MANIFEST: &[u8] = b"manifest";
pub(crate) const CONTENTS: &[u8] = b"contents";
/// This many committed transactions of a file system can be undone, unless fewer are asked for: those that
/// committed last.
pub const IMAGES_MAX: usize = 50;
/// No manifest is larger, as it is read into memory: a transaction that needs more can't be undoable.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// An image that is open.
pub struct OpenImage<O: Os> {
    /// The manifest.
    pub image: Image,
    /// Bytes of files; `None`: there were none.
    pub contents: Option<O::Fd>,
}

/// Why an image can't be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes.
    Unreadable(Unreadable),
    /// The kernel.
    Os(Errno),
}

impl From<Errno> for ImageError {
    fn from(e: Errno) -> ImageError {
        ImageError::Os(e)
    }
}

impl core::fmt::Display for ImageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ImageError::Unreadable(e) => e.fmt(f),
            ImageError::Os(e) => write!(f, "reading what was kept of it: {e}"),
        }
    }
}

/// Deletes `undo/<name>`. The manifest goes first: a directory without one belongs to no commit.
pub(crate) fn remove<O: Os>(os: &O, undo: &O::Fd, name: &[u8]) -> Result<()> {
    let Some(dir) = os.open_if_there(undo, name, Open::Directory)? else { return Ok(()) };
    match os.unlink(&dir, MANIFEST) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    remove_all(os, &dir)?;
    match os.rmdir(undo, name) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

impl<O: Os> Domain<O> {
    pub(crate) fn undo_dir(&self) -> Result<Option<O::Fd>> {
        self.os.open_if_there(&self.area.dir, DIR, Open::Directory)
    }

    /// The committed transactions that have an image, in the order of their commits. Numbers are given at the
    /// beginning, and one that has run for long commits last: it goes by when the manifest was written.
    pub fn images(&self) -> Result<Vec<TxId>> {
        let Some(undo) = self.undo_dir()? else { return Ok(Vec::new()) };
        let entries = self.os.read_dir(&undo)?;
        let found = entries.iter().filter(|entry| entry.kind == FileType::Directory);
        let committed = found.filter_map(|entry| parse(&entry.name)).filter(|(_, pending)| !pending);
        let mut ids = Vec::new();
        for (id, _) in committed {
            let name = id.to_string();
            let Some(dir) = self.os.open_if_there(&undo, name.as_bytes(), Open::Directory)? else { continue };
            // One that was cut off while it was removed comes first.
            let kept = match self.os.stat_at(&dir, MANIFEST) {
                Err(Errno::NOENT) => None,
                stat => Some(stat?.mtime),
            };
            ids.push((kept, id));
        }
        ids.sort_unstable();
        Ok(ids.into_iter().map(|(_, id)| id).collect())
    }

    /// Assigns images of dead processes to their commits, or deletes them; returns how many were deleted.
    /// Their active entries must have been [finished](Domain::finish_in_flight) before.
    ///
    /// # Errors
    ///
    /// Of the log.
    pub fn settle_images(&self) -> core::result::Result<usize, LogError> {
        let failed = |error| LogError::Os { doing: "looking into the directory undo/", segment: 0, error };
        let Some(undo) = self.undo_dir().map_err(failed)? else { return Ok(0) };
        let entries = self.os.read_dir(&undo).map_err(failed)?;
        let images = entries.iter().filter_map(|entry| parse(&entry.name));
        let (pending, settled): (Vec<_>, Vec<_>) = images.partition(|(_, pending)| *pending);
        let mut removed = 0;
        // Without its manifest one can't be put back: it was cut off while it was removed.
        for name in settled.into_iter().map(|(id, _)| id.to_string()) {
            let dir = self.os.open_if_there(&undo, name.as_bytes(), Open::Directory).map_err(failed)?;
            if dir.is_some_and(|dir| self.os.stat_at(&dir, MANIFEST) == Err(Errno::NOENT)) {
                remove(&self.os, &undo, name.as_bytes()).map_err(failed)?;
                removed += 1;
            }
        }
        if pending.is_empty() {
            return Ok(removed);
        }
        // In this order: who ends meanwhile has given its image a name, or has removed it.
        let at_work = self.transactions().map_err(failed)?;
        let history = self.history()?;
        for (id, _) in pending.into_iter().filter(|(id, _)| !at_work.iter().any(|other| other.tx == *id)) {
            let name = pending_name(id);
            if !self.is_committed(&undo, &name, id, &history) {
                remove(&self.os, &undo, &name).map_err(failed)?;
                removed += 1;
                continue;
            }
            let id = id.to_string();
            match self.os.rename((&undo, &name), (&undo, id.as_bytes()), Rename::NoReplace) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(removed)
    }

    /// Returns true if the history has the transaction of an image, and not an older one of that number.
    fn is_committed(&self, undo: &O::Fd, name: &[u8], id: TxId, history: &[Past]) -> bool {
        let Some(past) = history.iter().rev().find(|past| past.tx == id) else { return false };
        let image = self.os.open(undo, name, Open::Directory).map_err(ImageError::from);
        image.and_then(|dir| self.read_manifest(&dir)).is_ok_and(|image| image.at <= past.at)
    }

    fn read_manifest(&self, dir: &O::Fd) -> core::result::Result<Image, ImageError> {
        let fd = self.os.open(dir, MANIFEST, Open::Read)?;
        let damaged = ImageError::Unreadable(Unreadable::Damaged);
        let bytes = read_whole(&self.os, &fd, MANIFEST_BYTES_MAX)?.ok_or(damaged)?;
        Image::decode(&bytes).map_err(ImageError::Unreadable)
    }

    /// The image of a committed transaction; `None`: none was kept, or it is kept no more.
    pub fn image(&self, id: TxId) -> core::result::Result<Option<OpenImage<O>>, ImageError> {
        let Some(undo) = self.undo_dir()? else { return Ok(None) };
        let name = id.to_string();
        let Some(dir) = self.os.open_if_there(&undo, name.as_bytes(), Open::Directory)? else {
            return Ok(None);
        };
        let image = match self.read_manifest(&dir) {
            Err(ImageError::Os(Errno::NOENT)) => return Ok(None),
            image => image?,
        };
        let contents = self.os.open_if_there(&dir, CONTENTS, Open::Read)?;
        Ok(Some(OpenImage { image, contents }))
    }

    /// Removes the image of a committed transaction, which can't be undone any more.
    pub fn remove_image(&self, id: TxId) -> Result<()> {
        let Some(undo) = self.undo_dir()? else { return Ok(()) };
        remove(&self.os, &undo, id.to_string().as_bytes())?;
        let entries = self.os.read_dir(&undo)?;
        if entries.iter().all(|entry| parse(&entry.name).is_none()) {
            again::remove_all(&self.os, &undo)?;
        }
        Ok(())
    }

    /// Removes all images but those of the last `keep` commits, and never that of `new`, whatever the clock
    /// says; of which ones.
    pub fn keep_images(&self, keep: usize, new: TxId) -> Result<Vec<TxId>> {
        let mut ids = self.images()?;
        ids.truncate(ids.len().saturating_sub(keep));
        ids.retain(|id| *id != new);
        ids.iter().try_for_each(|id| self.remove_image(*id))?;
        Ok(ids)
    }

    /// Returns the identity of this domain in images.
    pub fn image_key(&self) -> [u8; 16] {
        self.key
    }
}
