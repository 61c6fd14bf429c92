//! Where everything stands in the domain table: word indexes.
//!
//! Owns: the byte layout of the file `table` (64-bit words in native order; a table is valid for one life of
//! one superblock). The first line, the header, has the same layout in every version. Does not: access the
//! words of any part; each part has its own file and its own state table.
//!
//! | words | part | written |
//! |---|---|---|
//! | 0–7 | header: magic, version, boot id (2), state, life of the superblock, own number (2) | by the initialiser |
//! | 8 | `next`: LSN of the next commit | under the commit lock |
//! | 16 | commit lock | by whoever takes it |
//! | 24 | `next_tx`: number of the next transaction | by everybody, atomically |
//! | 25–28 | when the last checkpoint began, when one was tried, its error, when one is promised | by whoever makes one |
//! | 32 | bitmap of slots that may be in flight | under the commit lock |
//! | 40–79 | `unsynced` | see `unsynced.rs` |
//! | 80–135 | priority | under the commit lock; given up by its owner |
//! | 136–199 | the log writer's words | see `log/` |
//! | 200… | slots, ring, owners' records, what they have sealed, what is on the disk, further records | see their files |
//!
//! Words that different processes hammer on stand on different lines of 64 bytes (8 words).

use crate::id::{Footprint, Signature, OWNERS};
use crate::record::BODY_VERSION;
use std::sync::atomic::Ordering;
use systx_os::Words;

/// `systxtbl`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"systxtbl");
/// Version of everything below the header, of the objects that filters are over, and of their bits in these; and of the
/// records, since each of two versions of systx that shared a log could not redo what the other one has written.
pub const VERSION: u64 = 8 << 16 | BODY_VERSION as u64;
/// The state word of a table that is ready for use. Anything else: not (yet) usable.
pub const INITIALISED: u64 = 0x7265_6164_7921;

/// Magic.
pub const MAGIC_WORD: usize = 0;
/// Version.
pub const VERSION_WORD: usize = 1;
/// Boot id, two words.
pub const BOOT_WORD: usize = 2;
/// State.
pub const STATE_WORD: usize = 4;
/// Life of the superblock, see [`systx_os::FsInfo::life`].
pub const LIFE_WORD: usize = 5;
/// A number that no other table has, two words.
pub const ID_WORD: usize = 6;
/// `next`.
pub const NEXT_WORD: usize = 8;
/// Commit lock.
pub const LOCK_WORD: usize = 16;
/// `next_tx`.
pub const NEXT_TX_WORD: usize = 24;
/// When the last checkpoint that was made began, on the monotonic clock, in nanoseconds.
pub const CHECKPOINTED_WORD: usize = 25;
/// When the last checkpoint was tried, likewise.
pub const CHECKPOINT_TRIED_WORD: usize = 26;
/// Error number of the last checkpoint that was tried; 0: it was made.
pub const CHECKPOINT_FAILED_WORD: usize = 27;
/// When the last checkpoint that a process has promised begins, or began, likewise.
pub const CHECKPOINT_PROMISED_WORD: usize = 28;
/// Bitmap of the slots.
pub const BITMAP_WORD: usize = 32;
/// `unsynced`.
pub const UNSYNCED_BASE: usize = 40;
/// Words of `unsynced`: epoch on a line of its own, two signatures.
pub const UNSYNCED_LEN: usize = 8 + 2 * Signature::WORDS;
/// Priority.
pub const PRIORITY_BASE: usize = UNSYNCED_BASE + UNSYNCED_LEN;
/// Words of the holder: one line, three signatures.
pub const PRIORITY_LEN: usize = 8 + FOOTPRINT_WORDS;
/// The log writer's words.
pub const LOG_BASE: usize = PRIORITY_BASE + PRIORITY_LEN;
/// How many they are.
pub const LOG_LEN: usize = 64;
/// Slots.
pub const SLOTS_BASE: usize = LOG_BASE + LOG_LEN;
/// How many transactions can be between validation and done. At most 64: one bitmap word.
pub const SLOTS: usize = 64;
/// Words of a slot: one line of fields, three signatures, one line spare.
pub const SLOT_LEN: usize = 16 + FOOTPRINT_WORDS;
/// Ring of the last commits.
pub const RING_BASE: usize = SLOTS_BASE + SLOTS * SLOT_LEN;
/// How many commits the ring remembers.
pub const RING: usize = 1024;
/// Words of a ring entry: one line of fields, one signature.
pub const RING_ENTRY_LEN: usize = 8 + Signature::WORDS;
/// Owners' records.
pub const RECORDS_BASE: usize = RING_BASE + RING * RING_ENTRY_LEN;
/// Words of an owner's record.
pub const RECORD_LEN: usize = 16;
/// A word an owner: what it has sealed.
pub const SEALED_BASE: usize = RECORDS_BASE + OWNERS as usize * RECORD_LEN;
/// Objects known to be on the disk.
pub const ON_DISK_BASE: usize = SEALED_BASE + OWNERS as usize;
/// Places for an object, one beside the other: a line of the cache.
pub(super) const PLACES: usize = 4;
/// Lines.
pub(super) const LINES: usize = 256;
/// Words of all this.
pub(super) const ON_DISK_LEN: usize = 8 + 2 * PLACES * LINES;
/// One past the highest further record that was ever used.
pub const FURTHER_HIGH_WORD: usize = ON_DISK_BASE + ON_DISK_LEN;
/// A word an owner: how many further records it has.
pub const FURTHER_COUNT_BASE: usize = FURTHER_HIGH_WORD + 8;
/// Records of transactions beyond the one that each owner has room for, for all owners.
pub const FURTHER_BASE: usize = FURTHER_COUNT_BASE + OWNERS as usize;
/// How many.
pub const FURTHER: usize = 1024;
/// Words of the whole table.
pub const WORDS: usize = FURTHER_BASE + FURTHER * RECORD_LEN;

/// Words of a footprint.
pub(crate) const FOOTPRINT_WORDS: usize = 3 * Signature::WORDS;

const _: () = assert!(crate::log::WORDS <= LOG_LEN);
const _: () = assert!(UNSYNCED_BASE == 40 && PRIORITY_BASE == 80 && LOG_BASE == 136 && SLOTS_BASE == 200);
const _: () = assert!(RING_BASE % 8 == 0 && RECORDS_BASE % 8 == 0 && ON_DISK_BASE % 8 == 0 && SLOTS <= 64);

/// Stores a signature. Release: a reader who (Acquire) sees one of these words also sees what invalidated the place
/// before (pairs with [`load_signature`]).
pub(crate) fn store_signature<M: Words>(mem: &M, at: usize, s: &Signature) {
    s.0.iter().enumerate().for_each(|(i, w)| mem.store(at + i, *w, Ordering::Release));
}

/// Loads a signature (pairs with [`store_signature`]).
pub(crate) fn load_signature<M: Words>(mem: &M, at: usize) -> Signature {
    Signature(core::array::from_fn(|i| mem.load(at + i, Ordering::Acquire)))
}

/// Stores R, W, C one after the other.
pub(crate) fn store_footprint<M: Words>(mem: &M, at: usize, f: &Footprint) {
    for (i, s) in [&f.read, &f.written, &f.commuting].into_iter().enumerate() {
        store_signature(mem, at + i * Signature::WORDS, s);
    }
}

/// Loads R, W, C.
pub(crate) fn load_footprint<M: Words>(mem: &M, at: usize) -> Footprint {
    let [read, written, commuting] = core::array::from_fn(|i| load_signature(mem, at + i * Signature::WORDS));
    Footprint { read, written, commuting }
}
