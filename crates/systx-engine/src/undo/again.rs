//! Objects that undos have made again: which one each of them stands for.
//!
//! ```text
//! undo/<id>=    CRC32C of the rest (u32, lowest byte first), and for each of them what was gone, and what was made for it
//! ```
//!
//! Owns: these files. What an undo makes again has a new inode, and is what an older image calls by its old one; how it
//! looks does not tell it from another one that somebody has put in its place. Guarantees: where such a file is damaged or
//! was removed, an older transaction can't be undone. An undo that did not commit leaves pairs that fit nothing, as no two
//! objects of a file system have the same handle. Does not: follow what was rebuilt after a power loss.

use crate::bytes::{read_whole, write_all};
use crate::domain::images::{again_name, parse_again};
use crate::domain::Domain;
use crate::id::TxId;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os, Result};

/// None is longer, as it is read into memory.
const BYTES_MAX: u64 = 1 << 30;
/// Only the last ones are kept, several for each image: an image can be put back more than once.
const NOTES_MAX: usize = 200;

/// The handle of an object that was gone; inode number and handle of the one made for it.
pub(super) type Pair = (Handle, (u64, Handle));

/// By what it was made for, all that was made; by what was made, what it was made for, with 0 as the number. Of all that
/// stand for each other one is there.
type Made = HashMap<Handle, Vec<(u64, Handle)>>;

/// All that was made again on a file system. Read when something is not what it was.
pub(super) struct Again<O: Os> {
    domain: Arc<Domain<O>>,
    made: OnceCell<Made>,
}

impl<O: Os> Again<O> {
    pub fn on(domain: &Arc<Domain<O>>) -> Again<O> {
        Again { domain: domain.clone(), made: OnceCell::new() }
    }

    /// All that an object may be by now, with inode numbers: itself, and what was made for it or for one that was.
    pub fn all(&self, ino: u64, then: Handle) -> Result<Vec<(u64, Handle)>> {
        let made = match self.made.get() {
            Some(made) => made,
            None => {
                let read = read(&self.domain)?;
                self.made.get_or_init(|| read)
            }
        };
        Ok(all(made, ino, then))
    }

    /// Returns true if an object is what another one was, or was made again for it.
    pub fn is(&self, now: Handle, then: Handle) -> Result<bool> {
        Ok(now == then || self.all(0, then)?.iter().any(|(_, handle)| *handle == now))
    }
}

fn all(made: &Made, ino: u64, then: Handle) -> Vec<(u64, Handle)> {
    let (mut all, mut seen) = (vec![(ino, then)], HashSet::from([then]));
    let mut next = 0;
    while next < all.len() {
        let others = made.get(&all[next].1).into_iter().flatten();
        let new: Vec<_> = others.filter(|(_, handle)| seen.insert(*handle)).copied().collect();
        all.extend(new);
        next += 1;
    }
    all
}

fn by_handle(pairs: impl IntoIterator<Item = Pair>) -> Made {
    let mut made = Made::new();
    for (then, now) in pairs {
        made.entry(then).or_default().push(now);
        made.entry(now.1).or_default().push((0, then));
    }
    made
}

fn read<O: Os>(domain: &Domain<O>) -> Result<Made> {
    let mut pairs = Vec::new();
    let Some(undo) = domain.undo_dir()? else { return Ok(Made::new()) };
    for id in numbers(&domain.os, &undo)? {
        let Some(fd) = domain.os.open_if_there(&undo, &again_name(id), Open::Read)? else { continue };
        let bytes = read_whole(&domain.os, &fd, BYTES_MAX)?;
        pairs.extend(bytes.and_then(|bytes| decode(&bytes)).unwrap_or_default());
    }
    Ok(by_handle(pairs))
}

/// Notes what a transaction has made again.
pub(super) fn write<O: Os>(domain: &Domain<O>, id: TxId, pairs: &[Pair]) -> Result<()> {
    let os = &domain.os;
    let Some(undo) = domain.undo_dir()? else { return Ok(()) };
    let bytes = encode(pairs)?;
    // One may be left of a transaction that no log tells of.
    remove(os, &undo, id)?;
    let fd = os.create(&undo, &again_name(id), 0o600)?;
    write_all(os, &fd, &bytes, 0)?;
    // Also without durability: images that were durable count on it.
    os.fsync(&fd)?;
    os.fsync(&undo)?;
    let mut kept = numbers(os, &undo)?;
    kept.retain(|other| *other != id);
    kept.sort_unstable();
    kept.truncate((kept.len() + 1).saturating_sub(NOTES_MAX));
    kept.into_iter().try_for_each(|old| remove(os, &undo, old))
}

fn remove<O: Os>(os: &O, undo: &O::Fd, id: TxId) -> Result<()> {
    match os.unlink(undo, &again_name(id)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes all, when there is no image left that could be put back.
pub(super) fn remove_all<O: Os>(os: &O, undo: &O::Fd) -> Result<()> {
    numbers(os, undo)?.into_iter().try_for_each(|id| remove(os, undo, id))
}

fn numbers<O: Os>(os: &O, undo: &O::Fd) -> Result<Vec<TxId>> {
    Ok(os.read_dir(undo)?.iter().filter_map(|entry| parse_again(&entry.name)).collect())
}

fn encode(pairs: &[Pair]) -> Result<Vec<u8>> {
    let body = postcard::to_allocvec(pairs).map_err(|_| Errno::FBIG)?;
    let bytes = [&crc32c::crc32c(&body).to_le_bytes()[..], &body].concat();
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Errno::FBIG);
    }
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<Vec<Pair>> {
    let (crc, body) = bytes.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*crc) == crc32c::crc32c(body)).then(|| postcard::from_bytes(body).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(n: u8) -> Handle {
        Handle::new(1, &[n]).unwrap()
    }

    fn pair(then: u8, now: u8) -> Pair {
        (handle(then), (now.into(), handle(now)))
    }

    fn are(made: &Made, now: u8, then: u8) -> bool {
        all(made, 0, handle(then)).iter().any(|(_, other)| *other == handle(now))
    }

    #[test]
    fn what_was_made_again_twice_is_what_it_was() {
        let made = by_handle([pair(1, 2), pair(2, 3), pair(1, 5), pair(7, 8)]);
        // Also what was made for the same one by two undos, of which one was undone.
        for (now, then) in [(1, 1), (2, 1), (3, 1), (5, 1), (3, 2), (8, 7), (5, 2), (5, 3)] {
            assert!(are(&made, now, then), "{now} for {then}");
        }
        for (now, then) in [(4, 1), (8, 1), (1, 7)] {
            assert!(!are(&made, now, then), "{now} for {then}");
        }
    }

    #[test]
    fn a_circle_has_an_end() {
        let made = by_handle([pair(1, 2), pair(2, 1), pair(2, 2)]);
        assert!(!are(&made, 3, 1));
    }

    #[test]
    fn a_damaged_file_is_none() {
        let pairs = vec![pair(1, 2), pair(3, 4)];
        let bytes = encode(&pairs).unwrap();
        assert_eq!(decode(&bytes), Some(pairs));
        for n in 0..bytes.len() {
            let mut other = bytes.clone();
            other[n] ^= 1;
            assert_eq!(decode(&other), None, "{n}");
            assert_eq!(decode(&bytes[..n]), None, "{n}");
        }
    }
}
