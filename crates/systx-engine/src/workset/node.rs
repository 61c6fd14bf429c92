//! One node of a working set: what is known of an object, its names, attributes and bytes as the program sees
//! them.
//!
//! Owns: the types that hang off a node. Does not: know how they come to be what they are; that is the rest
//! of this directory.

use super::changed_pages::Pages;
use super::extents::Extents;
use crate::acl;
use crate::facts::{Found, Known, LowerDir, LowerFile, Name};
use crate::types::Node;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use systx_os::{Dirent, FileType, Handle, Os, Stat, Timestamp};

/// Number of a node within the transaction.
pub(crate) type Ix = NonZeroU32;

/// One node.
pub(crate) struct Object<O: Os> {
    pub kind: FileType,
    pub mount: u16,
    /// How often it is open.
    pub opens: u32,
    /// `file` can't be written to.
    pub read_only: bool,
    /// It is in the queue of nodes with descriptors.
    pub held: bool,
    /// It was made here, and never got a capability: the kernel asks for it before the first write to each new file.
    pub incapable: bool,
    /// It was made here, with inode flags, of which a record knows nothing.
    pub flagged: bool,
    /// It was made here, or copied, and its size was set, or blocks were given to it or taken from it.
    pub cut: bool,
    /// True if its known properties are a fact.
    pub claim: Claim,
    /// How many nodes that passed had its number before.
    pub generation: u32,
    /// FUSE lookup count: LOOKUP replies minus FORGETs. Counted, as `below`, with read committed.
    pub told: u32,
    /// Unclaimed nodes whose name is in it.
    pub below: u32,
    /// Names added less names removed, of a lower object.
    pub links: i32,
    pub ino: u64,
    /// Names as far as they are known, as the program sees them. Empty: none is left, or it is a root. Most
    /// have one.
    pub names: SmallVec<[(Ix, Name); 1]>,
    /// `None`: staged.
    pub lower: Option<Lower>,
    /// An open descriptor of the staged file or of the private copy, while it is of use.
    pub file: Option<Arc<O::Fd>>,
    pub dir: Option<Box<Directory<O>>>,
    pub over: Option<Box<Overrides>>,
    /// Bytes of a lower regular file.
    pub data: Data<O>,
}

// A transaction may touch millions of objects: what is rare is boxed.
const _: () = assert!(size_of::<Object<systx_os::Linux>>() + size_of::<Known>() + size_of::<Entry>() <= 480);

/// The committed tree's side of a node.
pub(crate) type Lower = Found;

/// A directory's side of a node.
pub(crate) struct Directory<O: Os> {
    /// The committed directory, once it was needed.
    pub base: Option<Arc<LowerDir<O>>>,
    /// How the staged directory is reached.
    pub staged: Reach<O>,
    /// Every name that was touched; of a staged directory, every name, if it is not native.
    pub names: HashMap<Name, Entry>,
    /// Names of the committed directory, once they were asked for.
    pub listing: Option<Arc<[Dirent]>>,
    /// Its directory while that is open, as no fact.
    pub listed: Option<Arc<[Dirent]>>,
    /// Subdirectories added less subdirectories removed.
    pub subdirs: i32,
    /// When names of a lower directory changed last.
    pub changed: Option<Timestamp>,
    /// Default ACL, once it was needed.
    pub default_acl: Option<Option<Box<acl::Acl>>>,
    /// Inode flags, once they were needed.
    pub flags: Option<u32>,
    /// Of a staged directory.
    pub native: Native,
}

/// How much of the names in a staged directory is known (`native.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    /// All: verbs alone make them.
    No,
    /// What verbs have met: processes make and take names by themselves, at any time.
    Shared,
    /// The same; but no process does so any more.
    Left,
}

/// How a staged directory is reached.
pub(crate) enum Reach<O: Os> {
    /// By its name: it was not needed yet.
    Name,
    /// It is open.
    Open(Arc<O::Fd>),
    /// It was let go of.
    Handle(Box<Handle>),
    /// Not at all: it was let go of after it had been removed. This is what it was.
    Gone(Box<Stat>),
}

impl<O: Os> Directory<O> {
    pub(super) fn new() -> Box<Directory<O>> {
        Box::new(Directory {
            base: None,
            staged: Reach::Name,
            names: HashMap::new(),
            listing: None,
            listed: None,
            subdirs: 0,
            changed: None,
            default_acl: None,
            flags: None,
            native: Native::No,
        })
    }
}

impl<O: Os> Object<O> {
    pub(super) fn new(kind: FileType, mount: usize, ino: u64, lower: Option<Lower>) -> Object<O> {
        let dir = (kind == FileType::Directory).then(Directory::new);
        let data = Data::Base(None);
        let mount = mount as u16;
        Object {
            kind,
            mount,
            opens: 0,
            read_only: false,
            held: false,
            incapable: false,
            flagged: false,
            cut: false,
            claim: Claim::ToTheEnd,
            generation: 0,
            told: 0,
            below: 0,
            links: 0,
            ino,
            names: SmallVec::new(),
            lower,
            file: None,
            dir,
            over: None,
            data,
        }
    }

    pub fn is_staged(&self) -> bool {
        self.lower.is_none()
    }

    pub fn over_mut(&mut self) -> &mut Overrides {
        self.over.get_or_insert_default()
    }
}

/// The public number of a node.
pub(crate) fn node_of(ix: Ix) -> Node {
    Node(u64::from(ix.get()))
}

/// True if a node's state in the committed tree is a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// To the end of the transaction.
    ToTheEnd,
    /// No: it is what it was when it was looked at last, or opened.
    Unclaimed,
    /// There is no node with this number now.
    Vacant,
}

/// Slot number of a name that has none.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A touched name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The object that the program sees.
    pub now: Option<Ix>,
    /// The object of the committed tree.
    pub before: Option<Ix>,
    /// Slot of a staged object under a name of a lower directory.
    pub slot: u32,
}

/// A program's changes of a lower object's attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
    /// When any of these changed.
    pub ctime: Option<Timestamp>,
    /// Extended attributes.
    pub xattrs: Vec<XattrOverride>,
}

/// A changed extended attribute; `None` is absent.
#[derive(Clone, Debug)]
pub(crate) struct XattrOverride {
    pub name: Box<[u8]>,
    pub before: Option<Vec<u8>>,
    pub now: Option<Vec<u8>>,
}

impl Overrides {
    pub fn xattr(&self, name: &[u8]) -> Option<&XattrOverride> {
        self.xattrs.iter().find(|x| *x.name == *name)
    }
}

/// Where the bytes of a lower file are.
pub(crate) enum Data<O: Os> {
    /// In the committed file; its descriptor while the node is open.
    Base(Option<Arc<LowerFile<O>>>),
    /// Some pages in memory.
    Pages(Box<Pages<O>>),
    /// As in the committed file, and behind its end these, wherever that is.
    Appended(Vec<u8>),
    /// All in memory.
    Memory(Box<Memory>),
    /// All in a slot.
    Private(Box<Private>),
    /// The changed bytes are in a staging entry.
    Overlay(Box<Overlay<O>>),
}

/// A private copy.
#[derive(Clone)]
pub(crate) struct Private {
    pub slot: u32,
    /// It began empty: nothing of the committed file was copied.
    pub replaced: bool,
}

/// Changed ranges of a large file.
pub(crate) struct Overlay<O: Os> {
    pub slot: u32,
    pub lower: Option<Arc<LowerFile<O>>>,
    pub extents: Extents,
    /// Size that the program sees, in bytes.
    pub size: u64,
}

impl<O: Os> Data<O> {
    /// The slot that holds private bytes.
    pub fn slot(&self) -> u32 {
        match self {
            Data::Base(_) | Data::Pages(_) | Data::Appended(_) | Data::Memory(_) => NO_SLOT,
            Data::Private(p) => p.slot,
            Data::Overlay(o) => o.slot,
        }
    }
}

/// All bytes of a lower file, as the program sees them.
#[derive(Clone)]
pub(crate) struct Memory {
    pub bytes: Vec<u8>,
    /// The committed bytes, if all of them were read.
    pub before: Option<Vec<u8>>,
    /// It began empty, or was empty at some time: nothing of the committed file is left.
    pub replaced: bool,
}
