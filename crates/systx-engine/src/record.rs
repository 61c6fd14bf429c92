//! The body of a log record, and the steps that publish it.
//!
//! Owns the types; their bytes are postcard's encoding of them ([`Body::encode`]). A step says what it
//! expects to find (*before*) and what it leaves (*after*), so that it can be taken conditionally, twice, or
//! by another process (docs/protocol.md §3, U). Every step on names is one rename from or into its staging
//! entry `tx/<id>/<slot>`.

use crate::id::{ObjectId, Signature, TxId, PAGE_BYTES};
use crate::mutant::{self, Mutant};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use systx_os::{Handle, Stat, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Version of the body's encoding; another one is refused.
pub const BODY_VERSION: u16 = 12;
/// Bytes of a sector, the unit in which a patch is compared and applied.
pub const SECTOR_BYTES: usize = 512;

/// Encodes bytes as what they are for postcard one by one, at once.
fn at_once<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Decodes them at once.
fn all_at_once<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
}

/// A name in a removed tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The object.
    pub handle: Handle,
    /// Where it has the name: see [`TreePlace`].
    pub place: u32,
}

impl Gone {
    /// The objects of a removed tree.
    pub fn handles(tree: &[Gone]) -> impl Iterator<Item = &Handle> {
        tree.iter().map(|gone| &gone.handle)
    }
}

/// Where a name is in a tree: a hash of the names that lead there from the top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreePlace(u64);

impl TreePlace {
    /// A name in the directory at this place.
    pub fn of(self, name: &[u8]) -> TreePlace {
        TreePlace(xxh3_64_with_seed(name, self.0))
    }

    /// The part of it that a record keeps.
    pub fn short(self) -> u32 {
        self.0 as u32
    }
}

/// Everything that a recovery needs to know of one commit in one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// [`BODY_VERSION`].
    pub version: u16,
    /// The transaction, in this domain.
    pub id: TxId,
    /// Random, the same in all of the transaction's records: a number may be given again, by a disk that was
    /// rolled back.
    pub nonce: u64,
    /// User on whose behalf the steps are taken.
    pub uid: u32,
    /// Number of the table that it was written with: of one life of the file system.
    pub table: [u8; 16],
    /// Set in a participant's or companion's record: the coordinator.
    pub coordinator: Option<Share>,
    /// Set in a coordinator's record: those that have promised, each in its log.
    pub participants: Vec<Share>,
    /// Set in a coordinator's record: those on file systems that never come back. They promise nothing.
    pub companions: Vec<Share>,
    /// The command, for messages.
    pub command: String,
    /// Set if the slots are in a shared staging directory instead of in `tx/<id>`.
    pub shared_slots: Option<SharedSlots>,
    /// Something that is taken out has other names: what is left of it in the slots goes before the commit is
    /// done, as it counts as a link.
    pub linked: bool,
    /// In the order in which they are taken.
    pub steps: Vec<Step>,
    /// Times of directories in which steps change names, one each, to be set behind the last step.
    pub times: Vec<DirectoryTime>,
}

/// The modification time that the program saw of a committed directory in which it changed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryTime {
    /// The last step in it, by its place in the body.
    pub step: u32,
    /// The time to set, unless another process changes a name in it.
    pub mtime: Timestamp,
    /// Modification time before: another one comes from another process's change.
    pub before: Timestamp,
}

/// A transaction's share in another area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// Identity of the area.
    pub area: [u8; 16],
    /// The transaction's number there.
    pub id: TxId,
}

/// Where the slots of a small transaction are (docs/protocol.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSlots {
    /// The owner whose shared staging directory it is, of the body's table.
    pub owner: u32,
    /// The seal that says that all of them were made.
    pub seal: u64,
}

/// One conditional, idempotent change of one name or one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Slot of the step: `tx/<id>/<slot>`. TAKE and the PLACE or REPLACE that follows it share one. Steps
    /// that need none (ATTR, PATCH with all bytes inline) have `u32::MAX`.
    pub slot: u32,
    /// Where.
    pub at: At,
    /// The change to make.
    pub act: Act,
}

impl Step {
    /// Slot number of a step that has none.
    pub const NO_SLOT: u32 = u32::MAX;
}

/// A name in a directory, or (`name` empty) the object `dir` itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// The directory.
    pub dir: Handle,
    /// The directory's path from the root of the file system's mount as the transaction found it, without leading `/`:
    /// for messages, and to find it where handles can't be opened.
    pub path: Vec<u8>,
    /// The name.
    pub name: Vec<u8>,
}

/// Kinds of steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Puts the object in the slot under a name that is missing (PLACE; PUT after a TAKE).
    Place {
        /// How to make it again if a power loss took it: only in records without stage barrier.
        small: Option<Small>,
    },
    /// Gives an existing object one more name. It is linked into the slot before the first step of the
    /// record, and then placed.
    Link {
        /// The object.
        object: Handle,
        /// Where it is found before the first step, for messages and where handles can't be opened.
        found: Box<At>,
    },
    /// Puts the object in the slot in place of `before`, which ends in the slot.
    Replace {
        /// The object in the slot.
        ours: Handle,
        /// The object that the name held.
        before: Handle,
        /// If that was a directory: as in `Remove`.
        tree: Vec<Gone>,
        /// As in `Remove`.
        read: Vec<Read>,
        /// Set if the program wrote that file anew instead of renaming another one over it: then what others
        /// do with the old one must not be lost. How it was found.
        rewrites: Option<Was>,
    },
    /// Takes the object at the name into the slot, over the token, to be reclaimed.
    Remove {
        /// The object that the name held.
        before: Handle,
        /// For a directory: every name in its tree that may be deleted with it. Any other one in there is an
        /// outsider's, also if it is one of an object among these, and is set aside.
        tree: Vec<Gone>,
        /// The files among all these whose bytes were read: what comes out must be that.
        read: Vec<Read>,
        /// True for a directory, which needs a directory as token.
        directory: bool,
    },
    /// Takes the object at the name into the slot, over the token; a later Place or Replace with the same slot puts it
    /// where it belongs.
    Take {
        /// The object that the name held.
        before: Handle,
        /// As in `Remove`.
        directory: bool,
    },
    /// Changes bytes and size of an existing file in place. `at` is one of its names.
    Patch(Patch),
    /// Changes attributes of an existing object. `at` is one of its names.
    Attr {
        /// The object.
        object: Handle,
        /// The changes.
        changes: Vec<Change>,
        /// Set where one of them gives power to a file: SHA-256 of the bytes that it is given to.
        power_over: Option<[u8; 32]>,
    },
}

/// The stamps of a file that move when a process writes to it, or changes its mode or owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

impl Was {
    /// Returns the stamps as they are now.
    pub fn of(stat: &Stat) -> Was {
        Was { size: stat.size, mtime: stat.mtime, mode: stat.mode, owner: (stat.uid, stat.gid) }
    }
}

/// A file whose bytes the transaction has read before it takes the file out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Index in the step's `tree`; `None`: the object that the name held.
    pub of: Option<u32>,
    /// How it was.
    pub was: Was,
    /// Change time, where that proves something: the file has one name, and no process can store without
    /// moving it.
    pub ctime: Option<Timestamp>,
    /// Hashes of what was read of it, where its times prove nothing.
    pub pieces: Vec<Piece>,
}

/// Bytes of a file that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Piece {
    /// Offset in bytes.
    pub offset: u64,
    /// Number of bytes that were asked for; at the end there may be fewer.
    pub asked: u64,
    /// XXH3 of those that there were.
    pub hash: u128,
}

/// A small object, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Small {
    /// The staged object. A redo writes its contents again only into this one.
    pub handle: Handle,
    /// Change time when the record was made: a later modification time comes from an outsider's change.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Contents of a file or target of a symbolic link.
    #[serde(serialize_with = "at_once", deserialize_with = "all_at_once")]
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A change of a file's bytes, in whole sectors.
///
/// First the size is set (`size_before` → `size_after`), then sector by sector: equal to ours → applied; CRC
/// equal to the pre-image's → written; anything else is an outsider's later write and is left. A sector past
/// the end of the file reads as zeros, and one that the end cuts is compared as if zeros followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The file.
    pub file: Handle,
    /// Size before, in bytes.
    pub size_before: u64,
    /// Size after, in bytes.
    pub size_after: u64,
    /// The changed ranges: disjoint, ascending.
    pub ranges: Vec<PatchRange>,
    /// Where the size changes: CRC32C of the old file's sectors from [`Patch::ends_at`] on. Other bytes are
    /// an outsider's, even if there are as many of them. Of a file that is cut the first that go, of one that
    /// grows its last one; none where it can't be read.
    pub ends: Vec<u32>,
    /// Set if the file's size and times are none of the record's business: when the program wrote. Both sizes are the
    /// end of the last range then, and neither is expected or set; the file is at least that new afterwards.
    pub by_pages: Option<Timestamp>,
}

impl Act {
    /// The patch that it is.
    pub fn patch(&self) -> Option<&Patch> {
        match self {
            Act::Patch(patch) => Some(patch),
            _ => None,
        }
    }
}

impl Patch {
    /// Makes the file shorter or longer; one of single pages does neither.
    pub fn resizes(&self) -> Ordering {
        match self.by_pages {
            Some(_) => Ordering::Equal,
            None => self.size_after.cmp(&self.size_before),
        }
    }

    /// W and C of it: pages, and commutingly what is made of them; or all.
    pub fn objects(&self) -> (Vec<ObjectId>, Option<ObjectId>) {
        if self.by_pages.is_none() {
            return (ObjectId::whole(&self.file).into(), None);
        }
        let written = self.pages().map(|page| ObjectId::page(&self.file, page)).collect();
        (written, Some(ObjectId::data(&self.file)).filter(|_| !mutant::on(Mutant::PagesTooFine)))
    }

    /// Numbers of the pages that it changes; one may come twice.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        let of =
            |range: &PatchRange| range.offset / PAGE_BYTES..(range.offset + range.len).div_ceil(PAGE_BYTES);
        self.ranges.iter().flat_map(of)
    }

    /// Where the first sector begins that holds an end of the old file: the new one, or the old one itself if
    /// the file grows.
    pub fn ends_at(&self) -> u64 {
        let last = if self.size_after < self.size_before {
            self.size_after
        } else {
            self.size_before.saturating_sub(1)
        };
        last / SECTOR_BYTES as u64 * SECTOR_BYTES as u64
    }
}

/// Consecutive sectors of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchRange {
    /// Start in bytes, a multiple of [`SECTOR_BYTES`].
    pub offset: u64,
    /// Length in bytes: a multiple of [`SECTOR_BYTES`], but for the last sector of the file (cut at `size_after`).
    pub len: u64,
    /// The new bytes.
    pub source: Source,
    /// CRC32C of each sector's pre-image, one a sector. A single entry for the whole range when the pre-image
    /// was all zeros or past the end (`zeros` true): then every sector must have been zero.
    pub before: Before,
}

/// Where the bytes of a patch come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// They ride in the record.
    Inline(#[serde(serialize_with = "at_once", deserialize_with = "all_at_once")] Vec<u8>),
    /// At the same offset in the slot's file.
    Slot,
    /// Zeros, made by punching a hole.
    Hole,
}

/// Pre-image of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Before {
    /// CRC32C of each sector (512 bytes, zero-padded past the end of the file).
    Sectors(Vec<u32>),
    /// All zeros.
    Zeros,
}

/// A change of one attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Permission bits.
    Mode {
        /// Expected.
        old: u32,
        /// Wanted.
        new: u32,
    },
    /// Owner and group.
    Owner {
        /// Expected.
        old: (u32, u32),
        /// Wanted.
        new: (u32, u32),
    },
    /// An extended attribute; `None` is absent.
    Xattr {
        /// Name of the attribute.
        name: Vec<u8>,
        /// Expected.
        old: Option<Vec<u8>>,
        /// Wanted.
        new: Option<Vec<u8>>,
    },
    /// Access and modification time, set blindly. Always the last change of its object.
    Times {
        /// Wanted, if any.
        atime: Option<Timestamp>,
        /// Wanted, if any.
        mtime: Option<Timestamp>,
        /// Modification time before, for a redo: another one may come from an outsider's later change.
        before: Timestamp,
    },
}

impl Change {
    /// Returns true if it gives power to the author of a file's bytes: set-id bits, capabilities, root's
    /// ownership.
    pub fn gives_power(&self) -> bool {
        match self {
            Change::Mode { new, .. } => new & 0o6000 != 0,
            Change::Owner { old, new } => new.0 == 0 && old.0 != 0,
            Change::Xattr { name, new, .. } => name == b"security.capability" && new.is_some(),
            Change::Times { .. } => false,
        }
    }
}

/// Why bytes of the log were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not a body.
    Malformed,
    /// A body of another version.
    Version(u16),
}

impl Body {
    /// Returns true if a step of it has a staging entry. Without, there is no `tx/<id>`: the record carries
    /// everything.
    pub fn has_slots(&self) -> bool {
        self.steps.iter().any(|step| step.slot != Step::NO_SLOT)
    }

    /// Returns true if an entry of it starts as a token.
    pub fn has_tokens(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.act, Act::Link { .. } | Act::Remove { .. } | Act::Take { .. }))
    }

    /// The objects that the record carries whole.
    pub fn made(&self) -> Signature {
        let small = |step: &Step| match &step.act {
            Act::Place { small: Some(small) } => Some(ObjectId::made(&small.handle)),
            _ => None,
        };
        self.steps.iter().filter_map(small).collect()
    }

    /// Returns true if a step names one of these objects. After a power loss such a record finds it only if
    /// it was synced.
    pub fn names_one_of(&self, made: &Signature) -> bool {
        let one_of = |handle: &Handle| made.may_contain(ObjectId::made(handle));
        !made.is_empty()
            && self.steps.iter().any(|step| {
                one_of(&step.at.dir)
                    || match &step.act {
                        Act::Place { .. } => false,
                        Act::Link { object, found } => one_of(object) || one_of(&found.dir),
                        Act::Take { before, .. } => one_of(before),
                        Act::Replace { before, tree, .. } | Act::Remove { before, tree, .. } => {
                            one_of(before) || Gone::handles(tree).any(one_of)
                        }
                        Act::Patch(patch) => one_of(&patch.file),
                        Act::Attr { object, .. } => one_of(object),
                    }
            })
    }

    /// Bytes of the body.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain owned data into a growing vector has no failure; an error would be a bug of ours.
        postcard::to_extend(self, Vec::with_capacity(1024))
            .unwrap_or_else(|e| unreachable!("encoding a log body: {e}"))
    }

    /// Reads a body. The bytes are untrusted: their CRC was right, their author may be a newer systx.
    ///
    /// # Errors
    /// `Version` for a body of another version, `Malformed` for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Body, DecodeError> {
        let (version, _) = postcard::take_from_bytes::<u16>(bytes).map_err(|_| DecodeError::Malformed)?;
        if version != BODY_VERSION {
            return Err(DecodeError::Version(version));
        }
        postcard::from_bytes(bytes).map_err(|_| DecodeError::Malformed)
    }
}
