//! A transaction as its users see it: nodes, and what is said of them.
//!
//! Owns: [`Transaction`], its beginning and its small accessors. The verbs are in [`crate::verbs`], one file a family; what
//! the transaction keeps in memory is in [`crate::workset`]; what it comes to at commit is in [`crate::plan`].
//! Guarantees: a verb answers exactly as the plain system call would. Does not: check permissions and sticky bits; that is
//! the caller's part (the kernel's, in a view).

use crate::contention::Contention;
use crate::domain::Domain;
use crate::facts::{Facts, Name};
use crate::id::TxId;
use crate::outcome::{Isolation, Options, Verb};
use crate::workset::held::Held;
use crate::workset::memory::Room;
use crate::workset::names::Entry;
use crate::workset::passing::Claim;
use crate::workset::staging::Staging;
use crate::workset::sub_area::SubUser;
use crate::workset::{Ix, Object};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use systx_os::{FileType, Handle, Os, Timestamp};

/// An object as a transaction sees it. Dense, from 1; `Node(1 + i)` is the root of mount `i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Node(pub u64);

/// On whose behalf an object is made.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Owner of what is made.
    pub uid: u32,
    /// Its group, unless the directory gives its own.
    pub gid: u32,
    /// Taken from the mode, unless the directory has a default ACL.
    pub umask: u32,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number: the committed tree's, or that of the staged object.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Status change time.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This.
    At(Timestamp),
}

/// Attributes to set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Drops setuid, setgid (of what the group may execute) and `security.capability`, as a change of bytes or owner by
    /// an unprivileged caller does.
    pub kill_priv: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileType,
    /// Its node, when there was one already.
    pub node: Option<Node>,
}

/// Deleting fewer objects takes less time than a person notices.
const MUCH_STAGED: usize = 500;

/// A transaction: private changes over the committed tree.
pub struct Transaction<O: Os> {
    pub(crate) os: O,
    pub(crate) mounts: Vec<Arc<Domain<O>>>,
    pub(crate) options: Options,
    /// Its number on each mount.
    pub(crate) ids: Vec<TxId>,
    /// How it competes.
    pub(crate) contention: Contention,
    /// What was seen of the committed tree.
    pub(crate) facts: Facts<O>,
    /// Why it can't commit.
    pub(crate) refusal: Option<String>,
    /// Its staging directory on each mount, if it has one.
    pub(crate) staging: Vec<Option<Staging<O>>>,
    /// Its nodes; the number of one is its place plus 1.
    pub(crate) nodes: Vec<Object<O>>,
    /// Numbers of nodes that are free again.
    pub(crate) vacant: Vec<Ix>,
    /// Nodes that were looked up last without being claimed, each held by a descriptor.
    pub(crate) recent: VecDeque<(Ix, Arc<O::Fd>)>,
    /// Bytes of files that are open, copied to memory.
    pub(crate) copied_bytes: u64,
    /// Nodes of lower files with several names; where nodes pass, of all lower objects.
    pub(crate) linked: HashMap<(u16, Handle), Ix>,
    /// Inode numbers of lower objects that became facts when they were met.
    pub(crate) met: HashSet<u32>,
    /// Areas of subtransactions: directory, name, and where it leads.
    pub(crate) sub_areas: Vec<(Ix, Name, Entry)>,
    /// Who has asked for the name of one.
    pub(crate) sub_users: Vec<SubUser>,
    /// Which of them have descriptors.
    pub(crate) held: Held,
    /// For bytes of small files.
    pub(crate) room: Room,
}

impl<O: Os> Transaction<O> {
    /// Begins a transaction over `mounts`. Nothing is written before it makes something.
    pub fn begin(os: O, mounts: Vec<Arc<Domain<O>>>, options: Options) -> Verb<Transaction<O>> {
        let facts = Facts::new(mounts.clone());
        let staging = mounts.iter().map(|_| None).collect();
        let ids: Vec<_> = mounts.iter().map(|domain| domain.new_tx()).collect();
        mounts.iter().zip(&ids).for_each(|(domain, id)| domain.announce(*id, &options.command));
        let contention = Contention::new(&mounts, &ids);
        let mut t = Transaction {
            os,
            mounts,
            options,
            ids,
            contention,
            facts,
            refusal: None,
            staging,
            nodes: Vec::new(),
            vacant: Vec::new(),
            recent: VecDeque::new(),
            copied_bytes: 0,
            linked: HashMap::new(),
            met: HashSet::new(),
            sub_areas: Vec::new(),
            sub_users: Vec::new(),
            held: Held::default(),
            room: Room::default(),
        };
        for mount in 0..t.mounts.len() {
            let passes = t.options.isolation == Isolation::Committed;
            let (found, dir) = if passes { t.facts.passing_root(mount)? } else { t.facts.root(mount)? };
            let ix = t.lower_node(mount, &found)?;
            if passes {
                t.object_mut(ix).claim = Claim::Passing;
            }
            if let Some(directory) = &mut t.object_mut(ix).dir {
                directory.base = Some(dir);
            }
        }
        Ok(t)
    }

    /// Its numbers: one in the domain of each mount.
    pub fn ids(&self) -> &[TxId] {
        &self.ids
    }

    /// The root of a mount.
    pub fn root(&self, mount: usize) -> Node {
        Node(mount as u64 + 1)
    }

    /// Its number in the domain of its first mount: the one it is known by. 0 when it has no mounts.
    pub fn id(&self) -> TxId {
        self.ids.first().copied().unwrap_or(TxId(0))
    }

    /// The mount of a node.
    pub fn mount_of(&self, node: Node) -> usize {
        usize::from(self.object(self.ix(node)).mount)
    }

    /// What was asked for at begin.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Makes the transaction one that can't commit, and says why. The first reason stays.
    pub fn refused(&mut self, why: String) {
        self.refusal.get_or_insert(why);
    }

    /// Its type.
    pub fn kind(&self, node: Node) -> FileType {
        self.object(self.ix(node)).kind
    }

    /// Its inode number.
    pub fn ino(&self, node: Node) -> u64 {
        self.object(self.ix(node)).ino
    }

    /// Some present path of a node, from the root of its mount, for messages.
    pub fn path_of(&self, node: Node) -> Vec<u8> {
        self.path(self.ix(node))
    }

    /// Forgets everything: nothing happened.
    pub fn abort(self) {
        self.contention.end(&self.mounts, &self.facts, None);
        self.forget();
    }

    /// As [`Transaction::abort`], by a process that ends now: where much is staged, it is left to whoever follows its owner to
    /// delete it. Whether it was.
    pub fn abandon(self) -> bool {
        let slots = self.staging.iter().flatten().filter(|s| s.shelf.is_none()).map(|s| s.next as usize);
        let staged = self.nodes.iter().filter(|object| object.is_staged() && !object.names.is_empty());
        let little = slots.sum::<usize>().max(staged.count()) < MUCH_STAGED;
        // Whoever looks why it failed must find the room that it took.
        if little || self.mounts.iter().any(|domain| domain.is_short_of_room()) {
            self.abort();
            return false;
        }
        self.contention.end(&self.mounts, &self.facts, None);
        true
    }

    pub(crate) fn forget(self) {
        for (domain, staging) in self.mounts.iter().zip(&self.staging) {
            if let Some(staging) = staging {
                domain.discard_staging(staging.id);
                if staging.shelf.is_some() {
                    domain.clear_shelf(staging.id);
                }
            }
        }
    }
}
