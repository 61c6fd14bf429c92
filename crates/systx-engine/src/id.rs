//! Identities: transactions, log sequence numbers, objects, and the signatures that stand for sets of objects.

use serde::{Deserialize, Serialize};
use systx_os::Handle;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of a transaction within one domain; never reused while anything of it is left on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TxId(pub u64);

impl core::fmt::Display for TxId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Which area this is: 128 random bits, the same for all that share it, in this process or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaId {
    /// The bits.
    pub id: [u8; 16],
    /// Identity in older segments of its log, of which nothing is redone: the one that it had, or that of its
    /// file system.
    pub was: Option<[u8; 16]>,
}

impl AreaId {
    /// One that never had another identity.
    pub const fn new(id: [u8; 16]) -> AreaId {
        AreaId { id, was: None }
    }

    /// Returns true if a segment with this identity belongs to this area.
    pub fn has(&self, written: &[u8; 16]) -> bool {
        *written == self.id || Some(*written) == self.was
    }
}

/// Log sequence number: the place of a commit in the serial order of its domain. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lsn(pub u64);

/// Index of a process in the owners file of a domain. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerIx(pub u32);

/// Owner indexes: 1..OWNERS. 0 is none; byte 0 of the owners file is the initialisation lock.
pub const OWNERS: u32 = 1024;

/// Which property of an object a transaction read or changed (docs/guarantees.md).
///
/// Extended attributes belong to `Attr`. What reads a regular file as a whole, as a view does, reads `Data`; what goes
/// by its pages reads these and `Size`, and writes these and, commutingly, `Data`. All other changes write both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// A name in a directory, also a missing one.
    Entry = 1,
    /// The set of names of a directory.
    Listing = 2,
    /// Bytes, size and times of a file.
    Data = 3,
    /// Mode, owner, group, extended attributes.
    Attr = 4,
    /// Which object it is, of one that a record carries whole: see [`ObjectId::made`].
    Made = 5,
    /// The end of a file, as far as its pages depend on it.
    Size = 6,
    /// [`PAGE_BYTES`] of a file.
    Page = 7,
    /// That a record makes a file shorter: see [`ObjectId::cut`].
    Cut = 8,
}

/// Bytes of a page, in which two transactions may change one file at the same time: a multiple of a sector.
pub const PAGE_BYTES: u64 = 4096;

/// A conflict object, hashed. Collisions cost a comparison of facts, never an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The entry `name` of the directory with handle `dir`.
    pub fn entry(dir: &Handle, name: &[u8]) -> ObjectId {
        Self::hash(Class::Entry, dir, name)
    }
    /// The listing of a directory.
    pub fn listing(dir: &Handle) -> ObjectId {
        Self::hash(Class::Listing, dir, b"")
    }
    /// A file as a whole.
    pub fn data(file: &Handle) -> ObjectId {
        Self::hash(Class::Data, file, b"")
    }
    /// The end of a file.
    pub fn size(file: &Handle) -> ObjectId {
        Self::hash(Class::Size, file, b"")
    }
    /// A page of a file, by its number.
    pub fn page(file: &Handle, number: u64) -> ObjectId {
        Self::hash(Class::Page, file, &number.to_le_bytes())
    }
    /// Objects that a change of a file writes that is no overwrite of pages.
    pub fn whole(file: &Handle) -> [ObjectId; 2] {
        [Self::data(file), Self::size(file)]
    }
    /// Mode, owner, group, extended attributes of an object.
    pub fn attr(object: &Handle) -> ObjectId {
        Self::hash(Class::Attr, object, b"")
    }

    /// An object that a record carries whole. Until a sync a power loss may take it, and redo makes another
    /// one in its place.
    pub fn made(object: &Handle) -> ObjectId {
        Self::hash(Class::Made, object, b"")
    }

    /// A file that a record makes shorter. No transaction reads or writes that: it is for those that let it grow again
    /// before a checkpoint covers the record.
    pub fn cut(file: &Handle) -> ObjectId {
        Self::hash(Class::Cut, file, b"")
    }

    fn hash(class: Class, handle: &Handle, name: &[u8]) -> ObjectId {
        const HEAD: usize = 5 + Handle::BYTES_MAX;
        const NAME_MAX: usize = 255;
        let mut bytes = [0; HEAD + NAME_MAX];
        let id = handle.as_bytes();
        bytes[..4].copy_from_slice(&handle.kind.to_le_bytes());
        bytes[4] = handle.len;
        bytes[5..5 + id.len()].copy_from_slice(id);
        let len = 5 + id.len();
        // In one piece: the state of a hash in pieces is larger than most of what is hashed here.
        match bytes.get_mut(len..len + name.len()) {
            Some(rest) => {
                rest.copy_from_slice(name);
                ObjectId(xxh3_64_with_seed(&bytes[..len + name.len()], class as u64))
            }
            None => ObjectId(xxh3_64_with_seed(&[&bytes[..len], name].concat(), class as u64)),
        }
    }
}

/// A set of objects as a Bloom filter of 1024 bits with four bits an object: of twenty objects, one other in 30,000 seems
/// to be in it; two bits would say so of one in 650.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(pub [u64; Signature::WORDS]);

impl Signature {
    /// 64-bit words of a signature.
    pub const WORDS: usize = 16;
    /// The empty set.
    pub const EMPTY: Signature = Signature([0; Self::WORDS]);

    fn bits(object: ObjectId) -> [usize; 4] {
        core::array::from_fn(|n| (object.0 >> (10 * n) & 1023) as usize)
    }
    /// One of an object's bits. What may be in a set is found among the objects whose bit is one of
    /// [`Signature::ones`].
    pub fn first_bit(object: ObjectId) -> usize {
        Self::bits(object)[0]
    }
    /// Numbers of the bits that are set.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64 * Self::WORDS).filter(|bit| self.0[bit / 64] >> (bit % 64) & 1 == 1)
    }
    /// Adds an object.
    pub fn insert(&mut self, object: ObjectId) {
        for bit in Self::bits(object) {
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }
    /// Returns true if the object may be in the set.
    pub fn may_contain(&self, object: ObjectId) -> bool {
        Self::may_contain_in(object, |word| self.0[word])
    }
    /// The same of a set of which only the words that count are had.
    pub fn may_contain_in(object: ObjectId, word: impl Fn(usize) -> u64) -> bool {
        Self::bits(object).iter().all(|bit| word(bit / 64) >> (bit % 64) & 1 == 1)
    }
    /// Union.
    pub fn merge(&mut self, other: &Signature) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
    /// Returns true if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
}

impl FromIterator<ObjectId> for Signature {
    fn from_iter<I: IntoIterator<Item = ObjectId>>(objects: I) -> Signature {
        let mut s = Signature::EMPTY;
        objects.into_iter().for_each(|o| s.insert(o));
        s
    }
}

/// Filters of what a transaction read (R), wrote (W) and commutingly wrote (C: listings through creations and
/// removals).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// R.
    pub read: Signature,
    /// W.
    pub written: Signature,
    /// C.
    pub commuting: Signature,
}

impl Footprint {
    /// Nothing.
    pub const EMPTY: Footprint =
        Footprint { read: Signature::EMPTY, written: Signature::EMPTY, commuting: Signature::EMPTY };

    /// Union.
    pub fn merge(&mut self, other: &Footprint) {
        self.read.merge(&other.read);
        self.written.merge(&other.written);
        self.commuting.merge(&other.commuting);
    }

    /// W ∪ C.
    pub fn changed(&self) -> Signature {
        let mut s = self.written;
        s.merge(&self.commuting);
        s
    }
}

/// The objects of a transaction, one by one, with their footprint.
///
/// Testing the objects of one side against the filters of the other is far more precise than meeting two filters.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// R.
    pub read: Vec<ObjectId>,
    /// W.
    pub written: Vec<ObjectId>,
    /// C.
    pub commuting: Vec<ObjectId>,
}

impl Objects {
    /// The filters to publish.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            read: self.read.iter().copied().collect(),
            written: self.written.iter().copied().collect(),
            commuting: self.commuting.iter().copied().collect(),
        }
    }
    /// The *overlap* of docs/protocol.md §1 with another transaction: false is certain.
    pub fn may_overlap(&self, other: &Footprint) -> bool {
        self.overlap(other).is_some()
    }
    /// One of the objects that may make two transactions overlap.
    pub fn overlap(&self, other: &Footprint) -> Option<ObjectId> {
        let (w, c, r) = (&other.written, &other.commuting, &other.read);
        let written = |o: &&ObjectId| w.may_contain(**o) || c.may_contain(**o) || r.may_contain(**o);
        let commuting = |o: &&ObjectId| w.may_contain(**o) || r.may_contain(**o);
        let read = |o: &&ObjectId| w.may_contain(**o) || c.may_contain(**o);
        let found = self.written.iter().find(written).or_else(|| self.commuting.iter().find(commuting));
        found.or_else(|| self.read.iter().find(read)).copied()
    }
}
