//! The words of a mapped file.
//!
//! Owns: what was stored through mappings, and where it is newer than the file's sectors. Does not: know the sectors
//! (`bytes` brings the one to the other).

use std::ops::Range;
use std::sync::Arc;

use super::data::SECTOR;

/// Words of a sector.
const WORDS: usize = (SECTOR / 8) as usize;

/// The first words of a file, as its mappings show them.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    words: Arc<Vec<u64>>,
    /// By sector: whether one of its words was stored to since it was the same as in the file.
    newer: Vec<bool>,
}

impl Mapped {
    /// So many words of a file with these sectors.
    pub(super) fn of<'a>(
        len: usize,
        sectors: impl Iterator<Item = (u64, &'a [u8; SECTOR as usize])>,
    ) -> Mapped {
        let mut words = vec![0; len];
        for (n, bytes) in sectors.take_while(|(n, _)| (*n as usize) < len.div_ceil(WORDS)) {
            // Most of a table is zeros: memory that is never touched.
            if *bytes != [0; SECTOR as usize] {
                let there = &mut words[n as usize * WORDS..];
                for (word, bytes) in there.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = u64::from_le_bytes(core::array::from_fn(|n| bytes[n]));
                }
            }
        }
        Mapped { newer: vec![false; len.div_ceil(WORDS)], words: Arc::new(words) }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) fn word(&self, index: usize) -> Option<u64> {
        self.words.get(index).copied()
    }

    /// A word that is about to be stored to.
    pub(super) fn word_mut(&mut self, index: usize) -> Option<&mut u64> {
        let word = Arc::make_mut(&mut self.words).get_mut(index)?;
        self.newer[index / WORDS] = true;
        Some(word)
    }

    /// Stores zeros.
    pub(super) fn clear(&mut self, words: Range<usize>) {
        let Some(sectors) = words.end.checked_sub(1).map(|last| words.start / WORDS..last / WORDS + 1) else {
            return;
        };
        Arc::make_mut(&mut self.words)[words].fill(0);
        self.newer[sectors].fill(true);
    }

    /// Whether a word may differ from the file.
    pub(super) fn is_newer(&self) -> bool {
        self.newer.contains(&true)
    }

    /// Offset and bytes of each sector that may differ from the file; the caller makes them the same.
    pub(super) fn take_newer(&mut self) -> Vec<(u64, Vec<u8>)> {
        let newer = std::mem::replace(&mut self.newer, vec![false; self.words.len().div_ceil(WORDS)]);
        let sectors = self.words.chunks(WORDS).zip(newer).enumerate().filter(|(_, (_, newer))| *newer);
        let bytes = |words: &[u64]| {
            let mut bytes = Vec::with_capacity(SECTOR as usize);
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes
        };
        sectors.map(|(n, (words, _))| (n as u64 * SECTOR, bytes(words))).collect()
    }
}
