//! Sectors that are exchanged word by word, as another process has their file open: a kill in between, or a page that is
//! written out meanwhile, leaves words of both states, and the record knows whole sectors only.
//!
//! Owns: the notes `tx/<id>-<nonce>.<step>w`: the old bytes at their places, in a file that is holes else. Guarantees: a
//! durable commit has one on the disk before its first exchange of more than a word in a sector; any later pass knows by
//! it each sector whose words are all old or new. Notes go as marks do, those of a commit without a record with the
//! step. Does not: trust a note that the checksum of the record does not confirm.

use super::decide::{is_pre_image, Sharing};
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

    /// Returns true if a sector has old and new words, and no others. `before`: its checksums, and which one.
    pub fn is_torn(
        &self,
        os: &O,
        at: u64,
        present: &[u8],
        after: &[u8],
        before: (&Before, usize),
    ) -> Result<bool> {
        let Some(note) = self.note.get() else { return Ok(false) };
        let mut old = [0; SECTOR_BYTES];
        let old = &mut old[..present.len()];
        read_up_to(os, note, old, at)?;
        let mut words = present.chunks(WORD).zip(after.chunks(WORD)).zip(old.chunks(WORD));
        Ok(is_pre_image(before.0, before.1, old) && words.all(|((now, new), old)| now == new || now == old))
    }

    /// The step has been taken: a commit without a record needs no note any more.
    pub fn end(&self, os: &O) {
        if let (Some(_), Some((tx, name)), false) = (self.note.get(), &self.at, self.is_synced) {
            let _ = os.unlink(tx, name);
        }
    }
}

/// Returns true if more than a word of a sector is exchanged.
pub(super) fn is_noted(present: &[u8], after: &[u8]) -> bool {
    present.chunks(WORD).zip(after.chunks(WORD)).filter(|(now, new)| now != new).count() > 1
}
