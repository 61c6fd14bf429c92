//! Sectors that are exchanged word by word, as another process has their file open: a kill in between, or a page that is
//! written out meanwhile, leaves words of both states, and the record knows whole sectors only.
//!
//! Owns: the notes `tx/<id>-<nonce>.<step>w`: the old bytes at their places, in a file that is holes else. Guarantees: a
//! durable commit has one on the disk before its first exchange, one without a record before it exchanges more than a word
//! of a sector. By it any later pass knows a sector that was exchanged in part, also if others have stored words of it that
//! the step leaves: a page may be written out behind such a store. Notes go as marks do, those of a commit without a record
//! with the step. Does not: trust a note that the checksum of the record does not confirm.

use super::decide::{is_pre_image, Known, Sector, Sharing};
use super::site::Site;
use crate::bytes::{read_up_to, write_all};
use crate::domain::marks::name_of_words;
use crate::mutant::{self, Mutant};
use crate::record::{Before, SECTOR_BYTES};
use std::cell::OnceCell;
use systx_os::{Errno, Open, Os, Result};

const WORD: usize = 8;

/// The old bytes of sectors that are exchanged.
pub(super) struct Words<O: Os> {
    /// `tx/`, and the name there.
    at: Option<(O::Fd, Vec<u8>)>,
    note: OnceCell<O::Fd>,
    /// It is for a redo, too.
    is_synced: bool,
}

impl<O: Os> Words<O> {
    /// Those that a pass before this one has noted. The owner is the first, and notes nothing in a file that it has alone.
    pub fn of(site: &Site<'_, O>, step: usize, sharing: Sharing) -> Result<Words<O>> {
        let is_needed = !site.is_own || sharing == Sharing::Shared;
        let (Some(area), Some(body)) = (site.area.filter(|_| is_needed), site.body) else {
            return Ok(Words { at: None, note: OnceCell::new(), is_synced: false });
        };
        // Without durability there is no nonce, and nothing is redone.
        let is_synced = body.nonce != 0;
        let (tx, name) = (site.os.open(area, b"tx", Open::Directory)?, name_of_words(body, step));
        let found = if site.is_own { None } else { site.os.open_if_there(&tx, &name, Open::ReadWrite)? };
        let note = found.map_or_else(OnceCell::new, OnceCell::from);
        Ok(Words { at: Some((tx, name)), note, is_synced })
    }

    /// Notes the old bytes of some sectors, at their place in the file.
    pub fn note(&self, os: &O, old: &[u8], at: u64) -> Result<()> {
        let Some((tx, name)) = self.at.as_ref().filter(|_| !mutant::on(Mutant::WordsNotNoted)) else {
            return Ok(());
        };
        if let Some(note) = self.note.get() {
            return write_all(os, note, old, at);
        }
        let made = match os.create(tx, name, 0o600) {
            Err(Errno::EXIST) => os.open(tx, name, Open::ReadWrite)?,
            made => made?,
        };
        write_all(os, self.note.get_or_init(|| made), old, at)
    }

    /// Syncs what was noted.
    pub fn sync(&self, os: &O) -> Result<()> {
        match (self.note.get(), &self.at) {
            (Some(note), Some((tx, _))) if self.is_synced => {
                os.fsync(note)?;
                os.fsync(tx)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the old bytes of a sector are to be noted before it is exchanged.
    pub fn is_needed(&self, present: &[u8], after: &[u8]) -> bool {
        let exchanged = present.chunks(WORD).zip(after.chunks(WORD)).filter(|(now, new)| now != new).count();
        exchanged > 1 || (self.is_synced && exchanged > 0)
    }

    /// The state of a sector, and the bytes that it gets if it was exchanged in part. Then it counts as old.
    pub fn judge(&self, os: &O, known: &Known<'_>, present: &[u8]) -> Result<(Sector, Option<Vec<u8>>)> {
        let state = known.judge(present);
        let torn = match state {
            Sector::Lost | Sector::Foreign => self.torn(os, known.at, present, known.after, known.before)?,
            Sector::After | Sector::Before | Sector::Cut => None,
        };
        Ok(match torn {
            Some(bytes) if bytes == present => (Sector::After, None),
            Some(bytes) => (Sector::Before, Some(bytes)),
            None => (state, None),
        })
    }

    /// The bytes of a sector that was exchanged in part: new words, and as they are now those that the step leaves. `None`:
    /// it was not, as a word that the step changes is neither old nor new. `before`: its checksums, and which one.
    pub fn torn(
        &self,
        os: &O,
        at: u64,
        present: &[u8],
        after: &[u8],
        before: (&Before, usize),
    ) -> Result<Option<Vec<u8>>> {
        let Some(note) = self.note.get() else { return Ok(None) };
        let mut old = [0; SECTOR_BYTES];
        let old = &mut old[..present.len()];
        read_up_to(os, note, old, at)?;
        if !is_pre_image(before.0, before.1, old) {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(present.len());
        for ((now, new), old) in present.chunks(WORD).zip(after.chunks(WORD)).zip(old.chunks(WORD)) {
            let stays = old == new && !mutant::on(Mutant::WordsOfOthers);
            if !stays && now != old && now != new {
                return Ok(None);
            }
            bytes.extend_from_slice(if stays { now } else { new });
        }
        Ok(Some(bytes))
    }

    /// The step has been taken: a commit without a record needs no note any more.
    pub fn end(&self, os: &O) {
        if let (Some(_), Some((tx, name)), false) = (self.note.get(), &self.at, self.is_synced) {
            let _ = os.unlink(tx, name);
        }
    }
}
