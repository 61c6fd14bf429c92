//! The bytes of one regular file, as the page cache sees them and as a power loss may leave them.
//!
//! Owns: the volatile sectors, the durable sectors and every version written in between. Guarantees: a crash yields
//! for each 512-byte sector one of its versions since the last one that is known durable, never a mixture, and never a
//! version whose metadata (block allocation, truncation) did not survive. Does not: know the file's size.

use smallvec::{smallvec, SmallVec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use systx_os::Seek;

use super::sparse::{Sparse, SPAN};

/// Bytes of a sector: what a disk writes as a whole.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a block: what a file system allocates.
pub(super) const BLOCK: u64 = 4096;
/// Versions of one sector that are remembered; more only drop one in between.
const VERSIONS_MAX: usize = 6;

type Sector = Arc<[u8; SECTOR as usize]>;

/// A sector's bytes. Zeros, which are most of what is written to a table, share one place.
fn kept(bytes: [u8; SECTOR as usize]) -> Sector {
    const ZEROS: [u8; SECTOR as usize] = [0; SECTOR as usize];
    thread_local!(static SHARED: Sector = Arc::new(ZEROS));
    if bytes == ZEROS {
        SHARED.with(Arc::clone)
    } else {
        Arc::new(bytes)
    }
}

/// Contents of a sector at some time since it was last durable; `None` reads as zeros.
#[derive(Clone, Debug)]
struct Version {
    bytes: Option<Sector>,
    /// Journal operation without which this version cannot be seen (allocation, truncation).
    needs: Option<u64>,
    /// True if that operation, when it survives, excludes every earlier version.
    cuts: bool,
}

#[derive(Clone, Debug, Default)]
struct Pending {
    /// Mostly one: a new log segment has thousands of sectors.
    versions: SmallVec<[Version; 1]>,
    /// How many of them have reached the disk's cache.
    out: usize,
    /// A failed sync has marked the page clean: it is not written out until it is dirtied again.
    lost: bool,
}

impl Pending {
    /// Whether something of it is to be written out.
    fn waits(&self) -> bool {
        !self.lost && self.out < self.versions.len()
    }
}

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    now: Sparse<Sector>,
    durable: Sparse<Sector>,
    pending: Sparse<Pending>,
    /// Allocated blocks, written or not.
    blocks: BTreeSet<u64>,
    /// Operation that first made a block readable as something else than zeros.
    born: BTreeMap<u64, u64>,
}

impl Data {
    /// Fills `buf` from `offset`; holes read as zeros.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for (n, sector) in self.now.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            let (from, to) = ((n * SECTOR).max(offset), ((n + 1) * SECTOR).min(end));
            if from < to {
                let inside = (from - n * SECTOR) as usize..(to - n * SECTOR) as usize;
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(&sector[inside]);
            }
        }
    }

    /// Returns true if any of it has reached the disk or its cache. Else no earlier state can come there any more.
    pub(super) fn was_written_out(&mut self) -> bool {
        if self.durable.range(0..u64::MAX).next().is_some() || self.pending.iter().any(|(_, p)| p.out > 0) {
            return true;
        }
        for p in self.pending.values_mut() {
            p.versions.drain(..p.versions.len().saturating_sub(1));
        }
        false
    }

    /// Number and bytes of each sector that was written, in order.
    pub(super) fn sectors(&self) -> impl Iterator<Item = (u64, &[u8; SECTOR as usize])> {
        self.now.iter().map(|(n, sector)| (n, &**sector))
    }

    /// Writes `bytes`; `seq` is the journal operation that will hold new blocks. Returns whether there were any.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], seq: u64) -> bool {
        let (end, mut grew) = (offset + bytes.len() as u64, false);
        if bytes.is_empty() {
            return false;
        }
        let (mut block, last_block) = (offset / BLOCK, end.div_ceil(BLOCK));
        while block < last_block {
            let at = block * BLOCK;
            if at >= offset && end - at >= SPAN * SECTOR && self.is_new_span(at / SECTOR) {
                let from = (at - offset) as usize;
                self.write_new_span(at / SECTOR, &bytes[from..from + (SPAN * SECTOR) as usize], seq);
                (block, grew) = (block + SPAN * SECTOR / BLOCK, true);
                continue;
            }
            if !self.written(block) {
                self.born.insert(block, seq);
                grew = true;
            }
            self.blocks.insert(block);
            let needs = self.born.get(&block).copied();
            let (first, last) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
            for n in first / SECTOR..last.div_ceil(SECTOR) {
                let (from, to) = ((n * SECTOR).max(first), ((n + 1) * SECTOR).min(last));
                let new = &bytes[(from - offset) as usize..(to - offset) as usize];
                let sector = kept(new.try_into().unwrap_or_else(|_| {
                    let mut sector = self.now.get(n).map_or([0; SECTOR as usize], |s| **s);
                    sector[(from - n * SECTOR) as usize..(to - n * SECTOR) as usize].copy_from_slice(new);
                    sector
                }));
                self.now.insert(n, sector.clone());
                self.push(n, Version { bytes: Some(sector), needs, cuts: false });
            }
            block += 1;
        }
        grew
    }

    fn is_new_span(&self, n: u64) -> bool {
        n % SPAN == 0 && self.now.has_none(n) && self.pending.has_none(n)
    }

    /// Most of what is written are the zeros of new log segments.
    fn write_new_span(&mut self, n: u64, bytes: &[u8], seq: u64) {
        let blocks = n * SECTOR / BLOCK..(n + SPAN) * SECTOR / BLOCK;
        self.born.extend(blocks.clone().map(|block| (block, seq)));
        self.blocks.extend(blocks);
        let sectors =
            bytes.chunks_exact(SECTOR as usize).map(|bytes| kept(bytes.try_into().expect("a sector")));
        let version = |bytes| Version { bytes: Some(bytes), needs: Some(seq), cuts: false };
        let pending = |bytes| Pending { versions: smallvec![version(bytes)], ..Pending::default() };
        self.pending.fill(n, sectors.clone().map(pending));
        self.now.fill(n, sectors);
    }

    /// Makes `from..to` read as zeros by operation `seq`; blocks wholly inside become holes. `ordered`: what is left of
    /// a sector is written out before that operation is on the disk; else it may be an older state of the sector.
    pub(super) fn zero(&mut self, from: u64, to: u64, seq: u64, free: bool, ordered: bool) {
        let touched: Vec<u64> = self.now.range(from / SECTOR..to.div_ceil(SECTOR)).map(|(n, _)| n).collect();
        for n in touched {
            let (start, end) = ((n * SECTOR).max(from), ((n + 1) * SECTOR).min(to));
            if start >= end {
                continue;
            }
            let whole = end - start == SECTOR;
            let bytes = if whole {
                self.now.remove(n);
                None
            } else {
                let mut sector = self.now.get(n).map_or([0; SECTOR as usize], |s| **s);
                sector[(start - n * SECTOR) as usize..(end - n * SECTOR) as usize].fill(0);
                let sector = kept(sector);
                self.now.insert(n, sector.clone());
                Some(sector)
            };
            self.push(n, Version { bytes, needs: Some(seq), cuts: whole || ordered });
        }
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        if first < last {
            let inside: Vec<u64> = self.blocks.range(first..last).copied().collect();
            for block in inside {
                self.born.remove(&block);
                if free {
                    self.blocks.remove(&block);
                }
            }
        }
    }

    /// Allocates blocks without writing them; returns whether any was new.
    pub(super) fn allocate(&mut self, from: u64, to: u64) -> bool {
        let before = self.blocks.len();
        self.blocks.extend(from / BLOCK..to.div_ceil(BLOCK));
        self.blocks.len() > before
    }

    /// Number of allocated 512-byte units.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * (BLOCK / SECTOR)
    }

    /// Start of the next written block at or after `offset`, or of the next hole.
    pub(super) fn seek(&self, offset: u64, size: u64, to: Seek) -> Option<u64> {
        if offset >= size {
            return None;
        }
        let mut block = offset / BLOCK;
        if to == Seek::Hole {
            while self.written(block) {
                block += 1;
            }
            return Some((block * BLOCK).clamp(offset, size));
        }
        let next = self.now.range(block * BLOCK / SECTOR..u64::MAX).next()?.0 * SECTOR / BLOCK * BLOCK;
        (next < size).then_some(next.max(offset))
    }

    /// Returns true if any change is not known to be durable.
    pub(super) fn dirty(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Hands every dirty sector to the disk's cache.
    pub(super) fn write_out(&mut self) {
        if self.pending.iter().any(|(_, p)| p.waits()) {
            self.pending.values_mut().filter(|p| p.waits()).for_each(|p| p.out = p.versions.len());
        }
    }

    /// The disk's cache reaches the medium: what was written out and whose metadata is `committed` is durable.
    pub(super) fn flush(&mut self, committed: &dyn Fn(u64) -> bool) {
        let durable = &mut self.durable;
        self.pending.retain(|n, p| {
            let ready = p.versions[..p.out].iter().take_while(|v| v.needs.is_none_or(committed)).count();
            if let Some(last) = p.versions.drain(..ready).next_back() {
                match last.bytes {
                    Some(sector) => durable.insert(n, sector),
                    None => durable.remove(n),
                }
            }
            p.out -= ready;
            !p.versions.is_empty()
        });
    }

    /// A sync failed: the kernel calls the pages clean although it is unknown what is on the medium.
    pub(super) fn lose(&mut self) {
        self.pending.values_mut().for_each(|p| p.lost = p.out < p.versions.len());
    }

    /// Returns the bytes after a power loss; `survived` is true for journal operations that survived,
    /// `choose` picks one of n candidates (0 is the oldest). Bytes at and after `size` are gone.
    pub(super) fn crash(
        &self,
        size: u64,
        survived: &dyn Fn(u64) -> bool,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Data {
        let mut now = self.durable.clone();
        for (n, p) in self.pending.iter() {
            let mut candidates = vec![self.durable.get(n).cloned()];
            for v in &p.versions {
                if !v.needs.is_none_or(survived) {
                    break;
                }
                if v.cuts {
                    candidates.clear();
                }
                candidates.push(v.bytes.clone());
            }
            let pick = choose(candidates.len()).min(candidates.len() - 1);
            match candidates.swap_remove(pick) {
                Some(sector) => now.insert(n, sector),
                None => now.remove(n),
            }
        }
        now.truncate(size.div_ceil(SECTOR));
        if size % SECTOR != 0 {
            if let Some(last) = now.get_mut(size / SECTOR) {
                Arc::make_mut(last)[(size % SECTOR) as usize..].fill(0);
            }
        }
        let blocks = now.iter().map(|(n, _)| n * SECTOR / BLOCK).collect();
        Data { durable: now.clone(), now, pending: Sparse::default(), blocks, born: BTreeMap::new() }
    }

    /// Everything is durable as it is.
    pub(super) fn settle(&mut self) {
        self.durable = self.now.clone();
        self.pending.clear();
    }

    fn written(&self, block: u64) -> bool {
        self.now.range(block * BLOCK / SECTOR..(block + 1) * BLOCK / SECTOR).next().is_some()
    }

    fn push(&mut self, n: u64, version: Version) {
        let p = self.pending.made(n);
        p.lost = false;
        let fresh = p.versions.len() - p.out;
        if fresh >= VERSIONS_MAX && p.versions.last().is_some_and(|v| !v.cuts && v.needs == version.needs) {
            p.versions.pop();
        }
        p.versions.push(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &Data, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![1; len];
        data.read(offset, &mut buf);
        buf
    }

    #[test]
    fn far_offsets_cost_nothing_and_holes_read_as_zeros() {
        let mut data = Data::default();
        assert!(data.write(1 << 40, b"far", 0));
        assert_eq!(read(&data, (1 << 40) - 1, 5), b"\0far\0");
        assert_eq!(data.seek(0, (1 << 40) + 3, Seek::Data), Some(1 << 40));
        assert_eq!(data.seek(0, (1 << 40) + 3, Seek::Hole), Some(0));
        data.zero(0, 1 << 50, 1, true, true);
        assert_eq!((data.allocated(), read(&data, 1 << 40, 3)), (0, vec![0; 3]));
    }

    #[test]
    fn many_sectors_at_once_are_as_one_after_the_other() {
        let bytes: Vec<u8> = (0..150_000u32).map(|n| (n / 7) as u8).collect();
        for (offset, kept) in [(0, 0), (100, 0), (SPAN * SECTOR - 1, 0), (0, 40_000)] {
            let (mut at_once, mut piecewise) = (Data::default(), Data::default());
            for data in [&mut at_once, &mut piecewise] {
                data.write(kept, b"before", 1);
            }
            assert!(at_once.write(offset, &bytes, 2));
            for (n, part) in bytes.chunks(1000).enumerate() {
                piecewise.write(offset + n as u64 * 1000, part, 2);
            }
            assert_eq!(read(&at_once, offset, bytes.len()), bytes);
            let end = offset + bytes.len() as u64;
            let crashed = |data: &Data, seq, pick| {
                read(
                    &data.crash(end, &|needs| needs <= seq, &mut |n| if pick { n - 1 } else { 0 }),
                    0,
                    end as usize,
                )
            };
            for seq in 0..3 {
                assert_eq!(
                    crashed(&at_once, seq, true),
                    crashed(&piecewise, seq, true),
                    "{offset} {kept} {seq}"
                );
                assert_eq!(
                    crashed(&at_once, seq, false),
                    crashed(&piecewise, seq, false),
                    "{offset} {kept} {seq}"
                );
            }
            assert_eq!(at_once.allocated(), piecewise.allocated());
        }
    }

    #[test]
    fn a_sector_survives_old_or_new_but_a_lost_truncation_gives_back_the_old_one() {
        let mut data = Data::default();
        data.write(0, b"old", 0);
        data.settle();
        data.zero(0, 3, 7, true, true);
        data.write(0, b"new", 8);
        let at = |survives: bool, pick: usize| read(&data.crash(3, &|_| survives, &mut |_| pick), 0, 3);
        assert_eq!((at(false, 9), at(false, 0)), (b"old".to_vec(), b"old".to_vec()));
        assert_eq!((at(true, 0), at(true, 9)), (vec![0; 3], b"new".to_vec()));
    }

    #[test]
    fn written_out_is_durable_only_after_a_flush_and_a_failed_sync_is_not_repeated() {
        let mut data = Data::default();
        data.write(0, b"a", 0);
        data.write_out();
        assert_eq!(read(&data.crash(1, &|_| true, &mut |_| 0), 0, 1), b"\0");
        data.flush(&|_| true);
        assert_eq!(read(&data.crash(1, &|_| true, &mut |_| 0), 0, 1), b"a");
        data.write(0, b"b", 0);
        data.lose();
        data.write_out();
        data.flush(&|_| true);
        assert_eq!(read(&data.crash(1, &|_| true, &mut |_| 0), 0, 1), b"a");
        assert_eq!(read(&data, 0, 1), b"b");
    }
}
