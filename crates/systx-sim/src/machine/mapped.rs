//! The words of a mapped file.
//!
//! Owns: what was stored through mappings, and where it is newer than the file's sectors. Does not: know the sectors
//! (`bytes` brings the one to the other).

use std::ops::Range;
use std::sync::Arc;

use super::data::SECTOR;

/// Words of a sector.
const WORDS: usize = (SECTOR / 8) as usize;
/// Words that are copied together when one of them changes.
const PAGE_WORDS: usize = 8 * WORDS;

/// The first words of a file, as its mappings show them.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    len: usize,
    /// `None`: zeros, as most of a table is. Shared with the copies of a machine.
    pages: Vec<Option<Arc<[u64; PAGE_WORDS]>>>,
    /// By sector: whether one of its words was stored to since it was the same as in the file.
    newer: Vec<bool>,
}

impl Mapped {
    /// So many words of a file with these sectors.
    pub(super) fn of<'a>(
        len: usize,
        sectors: impl Iterator<Item = (u64, &'a [u8; SECTOR as usize])>,
    ) -> Mapped {
        let newer = vec![false; len.div_ceil(WORDS)];
        let mut mapped = Mapped { len, pages: vec![None; len.div_ceil(PAGE_WORDS)], newer };
        for (n, bytes) in sectors.take_while(|(n, _)| (*n as usize) < len.div_ceil(WORDS)) {
            if *bytes != [0; SECTOR as usize] {
                let first = n as usize * WORDS;
                let there = &mut mapped.page_mut(first)[first % PAGE_WORDS..];
                for (word, bytes) in there.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = u64::from_le_bytes(core::array::from_fn(|n| bytes[n]));
                }
            }
        }
        mapped
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The page of a word.
    fn page_mut(&mut self, index: usize) -> &mut [u64; PAGE_WORDS] {
        let page = &mut self.pages[index / PAGE_WORDS];
        Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE_WORDS])))
    }

    pub(super) fn word(&self, index: usize) -> Option<u64> {
        let page = self.pages.get(index / PAGE_WORDS).filter(|_| index < self.len)?;
        Some(page.as_ref().map_or(0, |page| page[index % PAGE_WORDS]))
    }

    /// A word that is about to be stored to.
    pub(super) fn word_mut(&mut self, index: usize) -> Option<&mut u64> {
        *self.newer.get_mut(index / WORDS).filter(|_| index < self.len)? = true;
        Some(&mut self.page_mut(index)[index % PAGE_WORDS])
    }

    /// Stores zeros.
    pub(super) fn clear(&mut self, words: Range<usize>) {
        let Some(sectors) = words.end.checked_sub(1).map(|last| words.start / WORDS..last / WORDS + 1) else {
            return;
        };
        self.newer[sectors].fill(true);
        let mut from = words.start;
        while from < words.end {
            let to = words.end.min((from / PAGE_WORDS + 1) * PAGE_WORDS);
            if self.pages[from / PAGE_WORDS].is_some() {
                self.page_mut(from)[from % PAGE_WORDS..][..to - from].fill(0);
            }
            from = to;
        }
    }

    /// Whether a word may differ from the file.
    pub(super) fn is_newer(&self) -> bool {
        self.newer.contains(&true)
    }

    /// Offset and bytes of each sector that may differ from the file; the caller makes them the same.
    pub(super) fn take_newer(&mut self) -> Vec<(u64, Vec<u8>)> {
        let newer = std::mem::replace(&mut self.newer, vec![false; self.len.div_ceil(WORDS)]);
        let newer = newer.into_iter().enumerate().filter_map(|(n, newer)| newer.then_some(n));
        let bytes = |n: usize| {
            let first = n * WORDS;
            let mut bytes = vec![0; (self.len - first).min(WORDS) * 8];
            if let Some(page) = &self.pages[first / PAGE_WORDS] {
                let words = &page[first % PAGE_WORDS..];
                for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            }
            bytes
        };
        newer.map(|n| (n as u64 * SECTOR, bytes(n))).collect()
    }
}
