//! Facts: what a transaction saw of the committed tree, and whether it is still so (docs/protocol.md §2).
//!
//! Owns: the first touch of every object (R1: slots, look, refresh), the refresh of the snapshot (R2), and
//! the comparison of every fact with the present (V6, F). Guarantees: whenever a look is delivered, all facts
//! were true together at one LSN of each domain, as far as cooperating transactions go. Does not: know what
//! the transaction changed.

mod claims;
mod compare;
mod conflicts;
mod decide;
mod look;
mod lower_dir;
mod pages;
mod read_committed;
mod reads;
mod refresh;
#[cfg(test)]
mod tests;

use crate::paths::join;
pub(crate) use compare::OpenFiles;
#[cfg(test)]
pub(crate) use look::look_at;
pub use lower_dir::LowerDir;
pub(crate) use pages::PAGES_MAX;

use crate::domain::Domain;
use crate::id::{Lsn, ObjectId};
use crate::outcome::{Conflict, ConflictKind, Party, VerbError, Waiting};
use crate::record::{Piece, Read, Was};
use claims::Claims;
use lower_dir::LastOpened;
pub(crate) use read_committed::Room;
use read_committed::Watched;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use systx_os::{Errno, Handle, Os, Seek, Stat, Timestamp};

/// Number of an object fact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FactIx(pub u32);

/// An object of the committed tree as first seen. There may be millions: its fact and its other users share
/// what is known of it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its fact.
    pub fact: FactIx,
    known: Arc<Known>,
}

/// A name; what holds it may be many.
pub type Name = Arc<[u8]>;

/// Properties of an object that are known so far.
#[derive(Debug)]
pub struct Known {
    /// Identity.
    pub handle: Handle,
    /// Attributes at that moment.
    pub stat: Stat,
}

impl std::ops::Deref for Found {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.known
    }
}

/// A file of the committed tree, open for reading.
pub struct LowerFile<O: Os> {
    /// Where its bytes come from.
    pub(crate) bytes: Bytes<O>,
    /// Its fact.
    pub fact: FactIx,
    /// Size when it was opened, in bytes.
    pub size: u64,
    /// Set once bytes were read without a look at the descriptor.
    pub(crate) read_on: OnceLock<ReadOn<O>>,
}

/// Means to look at a descriptor when it is closed.
pub(crate) struct ReadOn<O> {
    os: O,
    /// It is to know if the descriptor was another's.
    lost: Arc<AtomicBool>,
}

impl<O: Os> Drop for LowerFile<O> {
    fn drop(&mut self) {
        if let (Some(ReadOn { os, lost }), Bytes::File(fd)) = (self.read_on.get(), &self.bytes) {
            lost.fetch_or(os.is_lost(fd), Ordering::Relaxed);
        }
    }
}

/// Where the bytes of a committed file come from.
pub(crate) enum Bytes<O: Os> {
    /// The file; what is delivered is compared.
    File(O::Fd),
    /// The file; it is no fact ([`read_committed`]).
    Unclaimed(Arc<O::Fd>),
    /// Memory: what it was when it was opened.
    Copied(Vec<u8>),
}

impl<O: Os> LowerFile<O> {
    /// Start of the next data or hole at or after `offset`; `ENXIO` past the end.
    pub(crate) fn seek(&self, os: &O, offset: u64, to: Seek) -> Result<u64, Errno> {
        match &self.bytes {
            Bytes::File(fd) => os.seek(fd, offset, to),
            Bytes::Unclaimed(fd) => os.seek(&**fd, offset, to),
            Bytes::Copied(_) if offset >= self.size => Err(Errno::NXIO),
            Bytes::Copied(_) => Ok(if to == Seek::Hole { self.size } else { offset }),
        }
    }
}

/// Properties of one name and the object behind it.
struct Seen<O: Os> {
    dir: Arc<LowerDir<O>>,
    /// Empty: the directory itself (root of a mount).
    name: Name,
    /// `None`: the name was missing.
    object: Option<Arc<Known>>,
    data: Option<Box<DataFact>>,
    xattrs: Option<Box<XattrFacts>>,
    /// The name was missing after the directory's stamp was taken: it is as long as that stands.
    stamped: bool,
    /// True for a fact. Otherwise only the place of the last look: it is never compared.
    claimed: bool,
    depth: Depth,
}

/// The part of an object that is a fact, beside name, mode, owner and links. Of all but regular files it is `Whole`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// No more than that: the program has not seen its size or times, nor bytes.
    Name,
    /// The bytes that were read.
    Pages,
    /// The size, too: the program knows where it ends.
    Sized,
    /// Size and times, too, and from here on bytes by the stamp where that proves something.
    Whole,
}

/// The part of a regular file that a look at its name makes a fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grain {
    /// All: the caller is told size and times with the name.
    #[default]
    Files,
    /// No more than its name: the caller asks for the rest ([`Transaction::getattr`](crate::transaction::Transaction)).
    Pages,
}

/// The parts of a file's bytes that were read.
struct DataFact {
    size: u64,
    ctime: Timestamp,
    /// A process can store into the file without moving its stamp (or stamps mean nothing here): the
    /// delivered bytes count.
    hot: bool,
    reads: Vec<DeliveredBytes>,
    /// Numbers of the pages that are claimed one by one.
    pages: Vec<u64>,
}

/// Hash of bytes that were delivered.
#[derive(PartialEq, Eq)]
struct DeliveredBytes {
    offset: u64,
    asked: usize,
    hash: u128,
}

impl DeliveredBytes {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.asked as u64)
    }
}

/// Identity and attributes of what a name held; `None`: it was missing.
type Look = Option<(Handle, Stat)>;

/// An extended attribute's name and value, if it had one.
type XattrFact = (Box<[u8]>, Option<Vec<u8>>);

#[derive(Default)]
struct XattrFacts {
    values: Vec<XattrFact>,
    names: Option<Vec<Vec<u8>>>,
}

/// The names of a directory, and the types of what they name, as hashes.
struct Listing<O: Os> {
    dir: Arc<LowerDir<O>>,
    /// Change time before the names were read, where stamps of directories can be trusted.
    ctime: Option<Timestamp>,
    names: u128,
    types: u128,
}

/// Which fact an object id belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Seen(u32),
    Listing(u32),
}

/// All facts of one transaction.
pub struct Facts<O: Os> {
    domains: Vec<Arc<Domain<O>>>,
    snapshots: Vec<Lsn>,
    /// R of each domain, object by object.
    ids: Vec<Claims>,
    seen: Vec<Seen<O>>,
    listings: Vec<Listing<O>>,
    last_opened: LastOpened<O>,
    /// Places in `seen` that are free again.
    vacant: Vec<u32>,
    /// Files that are open without being facts.
    watched: Vec<Watched<O>>,
    /// Of each domain: something that was looked at without becoming a fact may not be durable yet.
    met_unsynced: Vec<bool>,
    /// Immutable or append-only objects that a comparison has met.
    fixed: RefCell<HashSet<Handle>>,
    /// Nothing is held to be true any more: what is looked at is as it is now.
    lost: bool,
    /// How many names and listings it had seen when they were given up.
    until_lost: Option<(usize, usize)>,
    /// Of a file that was read, the program of this process has closed the descriptor.
    lost_files: Arc<AtomicBool>,
    /// How many pages are claimed one by one.
    pages: usize,
    /// How much of a file the next look at a name claims.
    pub(crate) grain: Grain,
    /// What it does where it would wait for another transaction.
    pub(crate) waiting: Waiting,
    /// Is called right behind the commit point, with nothing locked but the active entry.
    pub(crate) at_commit_point: Option<Told>,
}

/// Hears of a commit point.
pub(crate) type Told = Box<dyn FnOnce() + Send>;

impl<O: Os> Facts<O> {
    /// No facts yet; the snapshot is now.
    pub fn new(domains: Vec<Arc<Domain<O>>>) -> Facts<O> {
        let snapshots = domains.iter().map(|d| d.table.next()).collect();
        let ids = domains.iter().map(|_| Claims::default()).collect();
        let met_unsynced = vec![false; domains.len()];
        let (seen, listings) = (Vec::new(), Vec::new());
        let last_opened = LastOpened::default();
        let (vacant, watched, fixed) = (Vec::new(), Vec::new(), RefCell::default());
        let lost = false;
        Facts {
            domains,
            snapshots,
            ids,
            seen,
            listings,
            last_opened,
            vacant,
            watched,
            met_unsynced,
            fixed,
            lost,
            until_lost: None,
            lost_files: Arc::default(),
            pages: 0,
            grain: Grain::Files,
            waiting: Waiting::Waits,
            at_commit_point: None,
        }
    }

    /// Looks at one more domain from here on; its snapshot is now.
    pub(crate) fn add_domain(&mut self, domain: Arc<Domain<O>>) {
        self.snapshots.push(domain.table.next());
        self.ids.push(Claims::default());
        self.met_unsynced.push(false);
        self.domains.push(domain);
    }

    /// Takes the last one back, of which nothing was seen.
    pub(crate) fn remove_last_domain(&mut self) {
        (_, _, _, _) = (self.snapshots.pop(), self.ids.pop(), self.met_unsynced.pop(), self.domains.pop());
    }

    /// From here on nothing that was seen is held to be true, and looks answer from the tree as it is: of
    /// what is gone `ESTALE`. The transaction can't commit any more.
    pub(crate) fn give_up(&mut self) {
        self.lost = true;
        self.until_lost.get_or_insert((self.seen.len(), self.listings.len()));
        // Later looks are to stand behind those.
        self.vacant.clear();
    }

    /// Returns true if they were given up.
    pub(crate) fn are_lost(&self) -> bool {
        self.lost
    }

    /// Returns true if the bytes of a file that is closed by now may have been another's.
    pub(crate) fn have_lost_files(&self) -> bool {
        self.lost_files.load(Ordering::Relaxed)
    }

    /// R in one domain.
    pub(crate) fn read_set(&self, domain: usize) -> impl Iterator<Item = ObjectId> + '_ {
        self.ids[domain].iter()
    }

    /// LSN up to which the facts of a domain are known to hold together.
    pub(crate) fn snapshot(&self, domain: usize) -> Lsn {
        self.snapshots[domain]
    }

    /// Directory and name of an object's first touch.
    pub fn place(&self, fact: FactIx) -> (&Arc<LowerDir<O>>, &[u8]) {
        let seen = &self.seen[fact.0 as usize];
        (&seen.dir, &seen.name)
    }

    /// Path of a fact's object, for messages.
    pub fn path(&self, fact: FactIx) -> Vec<u8> {
        let (dir, name) = self.place(fact);
        join(&dir.path, name)
    }

    /// The object of a fact, as it is known by now.
    pub(crate) fn found(&self, fact: FactIx) -> Option<Found> {
        self.seen[fact.0 as usize].object.clone().map(|known| Found { fact, known })
    }

    /// Returns how much of a fact's object is one.
    pub(crate) fn depth(&self, fact: FactIx) -> Depth {
        self.seen[fact.0 as usize].depth
    }

    /// Returns the path as people know it.
    pub(crate) fn shown(&self, fact: FactIx) -> Vec<u8> {
        self.domains[self.seen[fact.0 as usize].dir.domain].shown(&self.path(fact))
    }

    /// Path of an object that was looked at, or changed, as people know it.
    pub(crate) fn path_of(&self, domain: usize, object: ObjectId) -> Option<Vec<u8>> {
        let path = self.seen.iter().filter(|seen| seen.dir.domain == domain).find_map(|seen| {
            let of =
                |handle: &Handle| [ObjectId::attr(handle), ObjectId::data(handle), ObjectId::listing(handle)];
            let page = |handle: &Handle| {
                let mut pages = seen.data.iter().flat_map(|data| &data.pages);
                ObjectId::size(handle) == object || pages.any(|page| ObjectId::page(handle, *page) == object)
            };
            let is = |known: &Arc<Known>| of(&known.handle).contains(&object) || page(&known.handle);
            let behind = seen.object.as_ref().is_some_and(is);
            if behind || ObjectId::entry(&seen.dir.handle, &seen.name) == object {
                Some(join(&seen.dir.path, &seen.name))
            } else {
                of(&seen.dir.handle).contains(&object).then(|| seen.dir.path.clone())
            }
        });
        path.map(|path| self.domains[domain].shown(&path))
    }

    /// How a file was read, for a record that takes it out; `None`: its bytes were not.
    pub(crate) fn read_of(&self, fact: FactIx) -> Option<Read> {
        let seen = &self.seen[fact.0 as usize];
        let (Some(known), Some(data)) = (&seen.object, seen.data.as_ref().filter(|_| seen.claimed)) else {
            return None;
        };
        let piece = |d: &DeliveredBytes| Piece { offset: d.offset, asked: d.asked as u64, hash: d.hash };
        let mut pieces: Vec<_> = data.reads.iter().map(piece).collect();
        pieces.sort_unstable();
        pieces.dedup();
        // The removal of one name moves the time of the others.
        let ctime = (!data.hot && known.stat.nlink == 1).then_some(data.ctime);
        Some(Read { of: None, was: Was::of(&known.stat), ctime, pieces })
    }

    fn doomed(&self, path: Vec<u8>, what: ConflictKind, with: Party) -> VerbError {
        if self.lost {
            Errno::STALE.into()
        } else {
            VerbError::Doomed(Box::new(Conflict { path, what, with }))
        }
    }
}
