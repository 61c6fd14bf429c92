//! Bytes of small lower files, kept in memory once they change.
//!
//! Owns: the state *memory* of a file's bytes, and the way out of it. Guarantees: a transaction that changes
//! a few small files makes nothing in the staging directory for them: their bytes go from here into the
//! record. What grows too large, or is wanted as a file, moves to a slot and stays there. Does not: keep new
//! files.

use super::data::CHUNK_BYTES;
use super::Workset;
use crate::outcome::Verb;
use crate::workset::node::{Data, Ix, Memory, Private};
use systx_os::{Errno, Os};

/// Up to this size a file's changed bytes stay in memory: from about here on a file of its own is the faster place.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 10;
/// Room for all such files of a transaction, in bytes.
const ALL_BYTES_MAX: u64 = 64 << 20;

/// How much memory the files of a transaction may still take, in bytes. What was taken is not given back
/// before its end.
pub(crate) struct Room(u64);

impl Default for Room {
    fn default() -> Room {
        Room(ALL_BYTES_MAX)
    }
}

impl Room {
    /// Takes room for a file of this size, or doesn't.
    fn take(&mut self, size: u64) -> bool {
        match self.0.checked_sub(size).filter(|_| size <= FILE_BYTES_MAX) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

impl<O: Os> Workset<O> {
    /// Keeps the first `keep` bytes of a lower file in memory; whether there was room for it.
    pub(crate) fn keep_in_memory(&mut self, ix: Ix, keep: u64) -> Verb<bool> {
        let Some(size) = self.object(ix).lower.as_ref().map(|l| l.stat.size) else { return Ok(false) };
        // A program that writes a large file anew will hardly make it a small one. The copy of the committed
        // bytes counts, too.
        if size > FILE_BYTES_MAX || !self.room.take(keep) || (keep == size && !self.room.take(keep)) {
            return Ok(false);
        }
        let mut bytes = vec![0; keep as usize];
        let from_lower = keep.min(size) as usize;
        if from_lower > 0 {
            let source = self.lower_file_for_a_moment(ix)?;
            let mut at = 0;
            while at < from_lower {
                match self.facts.read(&source, &mut bytes[at..from_lower], at as u64)? {
                    0 => break,
                    got => at += got,
                }
            }
        }
        let before = (keep == size).then(|| bytes.clone());
        let replaced = keep == 0 && size > 0;
        self.object_mut(ix).data = Data::Memory(Box::new(Memory { bytes, before, replaced }));
        Ok(true)
    }

    /// The bytes of a node that are in memory.
    pub(crate) fn memory(&self, ix: Ix) -> Option<&Memory> {
        match &self.object(ix).data {
            Data::Memory(memory) => Some(memory),
            _ => None,
        }
    }

    /// Sets the size of a file in memory, and its time; whether it could stay there.
    pub(crate) fn resize_memory(&mut self, ix: Ix, size: u64) -> Verb<bool> {
        let grows = self.memory(ix).map_or(0, |m| size.saturating_sub(m.bytes.len() as u64));
        if size > FILE_BYTES_MAX || !self.room.take(grows) {
            self.spill(ix)?;
            return Ok(false);
        }
        self.change_memory(ix, |memory| {
            memory.bytes.resize(size as usize, 0);
            memory.replaced |= size == 0;
        });
        Ok(true)
    }

    /// Writes to a file in memory; whether it could stay there.
    pub(crate) fn write_memory(&mut self, ix: Ix, bytes: &[u8], offset: u64) -> Verb<bool> {
        let end = offset + bytes.len() as u64;
        let grows = self.memory(ix).map_or(0, |m| end.saturating_sub(m.bytes.len() as u64));
        if end > FILE_BYTES_MAX || !self.room.take(grows) {
            self.spill(ix)?;
            return Ok(false);
        }
        self.change_memory(ix, |memory| {
            let (start, end) = (offset as usize, end as usize);
            if memory.bytes.len() < end {
                memory.bytes.resize(end, 0);
            }
            memory.bytes[start..end].copy_from_slice(bytes);
        });
        Ok(true)
    }

    fn change_memory(&mut self, ix: Ix, change: impl FnOnce(&mut Memory)) {
        let now = self.now();
        let object = self.object_mut(ix);
        if let Data::Memory(memory) = &mut object.data {
            change(memory);
        }
        let over = object.over_mut();
        (over.mtime, over.ctime) = (Some(now), Some(now));
    }

    /// Moves bytes from memory to a file in a slot.
    pub(crate) fn spill(&mut self, ix: Ix) -> Verb<()> {
        self.spill_pages(ix)?;
        let Some(memory) = self.memory(ix) else { return Ok(()) };
        let (size, replaced) = (memory.bytes.len(), memory.replaced);
        let (slot, fd) = self.private_file(ix)?;
        for at in (0..size).step_by(CHUNK_BYTES) {
            let memory = self.memory(ix).ok_or(Errno::STALE)?;
            let chunk = &memory.bytes[at..size.min(at + CHUNK_BYTES)];
            crate::bytes::write_all(&self.os, &fd, chunk, at as u64)?;
        }
        self.become_private(ix, fd, Private { slot, replaced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_small_files_and_bounded_in_all() {
        let mut room = Room::default();
        assert!(!room.take(FILE_BYTES_MAX + 1));
        for _ in 0..ALL_BYTES_MAX / FILE_BYTES_MAX {
            assert!(room.take(FILE_BYTES_MAX));
        }
        assert!(!room.take(1));
        assert!(room.take(0));
    }
}
