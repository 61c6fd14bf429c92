//! Directory listings at stable offsets.
//!
//! There is no OPENDIR: the kernel caches listings, and a READDIR may begin anywhere, in a listing that
//! changed since. So each name that a directory ever had keeps its *place* (its offset in READDIR), new names
//! come last, and removed ones leave a gap: a program that reads on meets every name that was there all the
//! time exactly once.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;
use systx_engine::transaction::{DirEntry, Node};

/// Offset behind `..`.
pub const FIRST: u64 = 2;

/// The names of a directory at one moment, by place.
#[derive(Debug)]
pub struct Snapshot {
    entries: Arc<[DirEntry]>,
    order: Vec<(u64, u32)>,
}

impl Snapshot {
    /// The entries behind an offset, each with the offset behind it.
    pub fn after(&self, offset: u64) -> impl Iterator<Item = (&DirEntry, u64)> {
        let from = self.order.partition_point(|(place, _)| *place <= offset);
        self.order[from..].iter().map(|(place, ix)| (&self.entries[*ix as usize], *place))
    }
}

#[derive(Debug, Default)]
struct Listing {
    /// Hash of a name → place. Two names with one hash of 64 bits share a place: both are listed unless a buffer ends
    /// just between them.
    places: HashMap<u64, u64, BuildHasherDefault<Hashed>>,
    last: u64,
    snapshot: Option<Arc<Snapshot>>,
}

/// Of what is a hash already.
#[derive(Clone, Copy, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The listings that were read.
#[derive(Debug, Default)]
pub struct Listings {
    dirs: HashMap<Node, Listing>,
    hasher: RandomState,
}

impl Listings {
    /// The snapshot that a READDIR goes on with, if there is one. Reading from the start wants a new one.
    pub fn current(&self, dir: Node, offset: u64) -> Option<Arc<Snapshot>> {
        if offset == 0 {
            return None;
        }
        self.dirs.get(&dir)?.snapshot.clone()
    }

    /// Makes the directory's present names its snapshot.
    pub fn update(&mut self, dir: Node, entries: Arc<[DirEntry]>) -> Arc<Snapshot> {
        let listing = self.dirs.entry(dir).or_default();
        listing.last = listing.last.max(FIRST);
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(entries.len());
        for (entry, ix) in entries.iter().zip(0..) {
            let place = *listing.places.entry(self.hasher.hash_one(&entry.name)).or_insert_with(|| {
                listing.last += 1;
                listing.last
            });
            order.push((place, ix));
        }
        order.sort_unstable();
        let snapshot = Arc::new(Snapshot { entries, order });
        listing.snapshot = Some(snapshot.clone());
        snapshot
    }

    /// Drops the snapshot (not the places): its end was reached.
    pub fn ended(&mut self, dir: Node) {
        if let Some(listing) = self.dirs.get_mut(&dir) {
            listing.snapshot = None;
        }
    }

    /// Forgets a directory.
    pub fn forget(&mut self, dir: Node) {
        self.dirs.remove(&dir);
    }

    /// Returns true if a directory was listed.
    pub fn has(&self, dir: Node) -> bool {
        self.dirs.contains_key(&dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::FileType;

    const DIR: Node = Node(4);

    fn entries(names: &[&str]) -> Arc<[DirEntry]> {
        let entry =
            |n: &&str| DirEntry { name: n.as_bytes().into(), ino: 1, kind: FileType::File, node: None };
        names.iter().map(entry).collect()
    }

    fn names(snapshot: &Snapshot, offset: u64) -> Vec<(String, u64)> {
        let text = |e: &DirEntry| String::from_utf8_lossy(&e.name).into_owned();
        snapshot.after(offset).map(|(e, next)| (text(e), next)).collect()
    }

    #[test]
    fn names_that_stay_are_met_once_while_others_come_and_go() {
        let mut listings = Listings::default();
        let first = listings.update(DIR, entries(&["a", "b", "c", "d"]));
        let read: Vec<_> = names(&first, FIRST).into_iter().take(2).collect();
        assert_eq!(read[1].0, "b");
        // The reader removes what it has read; then a name is added, and the order below is another one.
        let second = listings.update(DIR, entries(&["new", "d", "c"]));
        let rest: Vec<_> = names(&second, read[1].1).into_iter().map(|(n, _)| n).collect();
        assert_eq!(rest, ["c", "d", "new"]);
    }

    #[test]
    fn a_snapshot_lasts_from_the_start_to_the_end_of_reading() {
        let mut listings = Listings::default();
        assert!(listings.current(DIR, 7).is_none());
        listings.update(DIR, entries(&["a"]));
        assert!(listings.current(DIR, 0).is_none());
        assert!(listings.current(DIR, FIRST).is_some());
        listings.ended(DIR);
        assert!(listings.current(DIR, FIRST).is_none());
    }
}
