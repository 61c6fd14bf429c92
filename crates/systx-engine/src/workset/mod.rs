//! Private state of a transaction: its nodes, the names and attributes it changed, where its new objects
//! are staged.
//!
//! Owns: [`Object`] (one a node) and everything that hangs off it. A node is *lower* (an object of the
//! committed tree, with its fact) or *staged* (made here, for real, in the staging directory, in its final
//! shape). Nothing of a lower object is touched before commit. A staged object's name in a staged directory
//! is where it really is; its name in a lower directory stands for a slot. Guarantees: two names of one lower
//! file are one node; its fields are changed in this directory only. Does not: decide what a system call
//! answers (`verbs`), know of commits, of the log, or how the transaction competes.

pub(crate) mod appended;
pub(crate) mod attributes;
pub(crate) mod changed_pages;
pub(crate) mod data;
pub(crate) mod extents;
pub(crate) mod held;
mod inherited;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod native;
pub(crate) mod node;
pub(crate) mod pages;
pub(crate) mod read_committed;
pub(crate) mod savepoint;
pub(crate) mod staging;
pub(crate) mod sub_area;

use crate::domain::Domain;
use crate::facts::{Facts, Found, Name};
use crate::id::TxId;
use crate::outcome::{Isolation, Options, Verb};
use crate::types::Node;
use crate::workset::node::{Entry, Ix, Object};
use held::Held;
use memory::Room;
use savepoint::Savepoints;
use staging::Staging;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use sub_area::SubUser;
use systx_os::{FileType, Handle, Os, Stat};

/// Private state of a transaction, over the facts that it stands on.
pub(crate) struct Workset<O: Os> {
    os: O,
    mounts: Vec<Arc<Domain<O>>>,
    /// Numbers of the transaction, one a mount, which its staging directories have.
    ids: Vec<TxId>,
    isolation: Isolation,
    /// Facts about the committed tree.
    facts: Facts<O>,
    /// Why it can't become public any more: a part of it is lost.
    spoiled: Option<String>,
    /// The staging directory on each mount, if there is one.
    staging: Vec<Option<Staging<O>>>,
    /// Nodes; the number of one is its place plus 1.
    nodes: Vec<Object<O>>,
    /// The node of each mount's root. Those of the mounts that it began with are the first ones.
    roots: Vec<Ix>,
    /// Numbers of nodes that are free again.
    vacant: Vec<Ix>,
    /// Nodes that were looked up last without being claimed, each held by a descriptor.
    recent: VecDeque<(Ix, Arc<O::Fd>)>,
    /// Bytes of files that are open, copied to memory.
    copied_bytes: u64,
    /// Nodes of lower files with several names; under read committed, of all lower objects. And of what was met in
    /// native directories.
    linked: HashMap<(u16, Handle), Ix>,
    /// Inode numbers of lower objects that became facts when they were met.
    met: HashSet<u32>,
    /// Areas of subtransactions: directory, name, and where it leads.
    sub_areas: Vec<(Ix, Name, Entry)>,
    /// Threads that have asked for the name of one.
    sub_users: Vec<SubUser>,
    /// Which nodes have descriptors.
    held: Held,
    /// For bytes of small files.
    room: Room,
    savepoints: Savepoints,
    /// Files that are, or were, in the state *appended*.
    unseen: Vec<Ix>,
    /// Processes have made names by themselves, perhaps.
    shares: bool,
}

/// Deleting fewer objects takes less time than a person notices.
const MUCH_STAGED: usize = 500;

/// An inode number of a mount, folded, as there is one for each object. Two of them may meet, which costs a
/// look at all nodes.
fn number(mount: usize, ino: u64) -> u32 {
    (ino ^ ino >> 32) as u32 ^ (mount as u32) << 24
}

impl<O: Os> Workset<O> {
    /// One that holds the roots of `mounts` and nothing else. Nothing is written before something is made.
    pub(crate) fn begin(
        os: O,
        mounts: Vec<Arc<Domain<O>>>,
        ids: Vec<TxId>,
        options: &Options,
    ) -> Verb<Workset<O>> {
        let mut facts = Facts::new(mounts.clone());
        facts.waiting = options.waiting;
        let isolation = options.isolation;
        let staging = mounts.iter().map(|_| None).collect();
        let mut workset = Workset {
            os,
            mounts,
            ids,
            isolation,
            facts,
            spoiled: None,
            staging,
            nodes: Vec::new(),
            roots: Vec::new(),
            vacant: Vec::new(),
            recent: VecDeque::new(),
            copied_bytes: 0,
            linked: HashMap::new(),
            met: HashSet::new(),
            sub_areas: Vec::new(),
            sub_users: Vec::new(),
            held: Held::default(),
            room: Room::default(),
            savepoints: Savepoints::default(),
            unseen: Vec::new(),
            shares: false,
        };
        for mount in 0..workset.mounts.len() {
            workset.add_root(mount)?;
        }
        Ok(workset)
    }

    fn add_root(&mut self, mount: usize) -> Verb<()> {
        let (found, dir) = self.look_at_root(mount)?;
        let ix = self.lower_node(mount, &found)?;
        self.object_mut(ix).claim = self.first_claim();
        if let Some(directory) = &mut self.object_mut(ix).dir {
            directory.base = Some(dir);
        }
        self.roots.push(ix);
        Ok(())
    }

    /// Serves one more mount, with this number there, and returns its index.
    pub(crate) fn add_mount(&mut self, domain: Arc<Domain<O>>, id: TxId) -> Verb<usize> {
        let mount = self.mounts.len();
        self.facts.add_domain(domain.clone());
        self.mounts.push(domain);
        self.ids.push(id);
        self.staging.push(None);
        let added = self.add_root(mount);
        if added.is_err() {
            self.facts.remove_last_domain();
            (_, _, _) = (self.mounts.pop(), self.ids.pop(), self.staging.pop());
        }
        added.map(|()| mount)
    }

    /// The root of a mount.
    pub(crate) fn root(&self, mount: usize) -> Ix {
        self.roots[mount]
    }

    /// The kernel.
    pub(crate) fn os(&self) -> &O {
        &self.os
    }

    /// The domains of the mounts.
    pub(crate) fn mounts(&self) -> &[Arc<Domain<O>>] {
        &self.mounts
    }

    /// Number on each mount.
    pub(crate) fn ids(&self) -> &[TxId] {
        &self.ids
    }

    /// Facts about the committed tree.
    pub(crate) fn facts(&self) -> &Facts<O> {
        &self.facts
    }

    /// Facts about the committed tree, to add to.
    pub(crate) fn facts_mut(&mut self) -> &mut Facts<O> {
        &mut self.facts
    }

    /// Returns true if it can't become public any more.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled.is_some()
    }

    /// Makes it one that can't become public any more. The first reason stays.
    pub(crate) fn spoil(&mut self, why: String) {
        self.spoiled.get_or_insert(why);
    }

    /// Takes the reason why it can't become public any more, if so.
    pub(crate) fn take_spoiled(&mut self) -> Option<String> {
        self.spoiled.take()
    }

    /// Forgets all nodes, and so closes everything; what is staged stays.
    pub(crate) fn forget_nodes(&mut self) {
        self.nodes.clear();
    }

    /// Returns true if so much is staged that deleting it takes a while.
    pub(crate) fn has_much_staged(&self) -> bool {
        let slots =
            self.staging.iter().flatten().filter(|s| s.shared_staging.is_none()).map(|s| s.next as usize);
        let staged = self.nodes.iter().filter(|object| object.is_staged() && !object.names.is_empty());
        self.shares || slots.sum::<usize>().max(staged.count()) >= MUCH_STAGED
    }

    /// A path from the root of a mount as people know it.
    pub(crate) fn shown_path(&self, mount: usize, path: &[u8]) -> Vec<u8> {
        self.mounts.get(mount).map_or_else(|| path.to_vec(), |domain| domain.shown(path))
    }

    /// The node behind a public number. Numbers that were never given out are a bug of the caller's.
    pub(crate) fn ix(&self, node: Node) -> Ix {
        let ix = u32::try_from(node.0).ok().and_then(Ix::new);
        match ix {
            Some(ix) if ix.get() as usize <= self.nodes.len() => ix,
            _ => unreachable!("a node number that this transaction never gave out"),
        }
    }

    pub(crate) fn object(&self, ix: Ix) -> &Object<O> {
        &self.nodes[ix.get() as usize - 1]
    }

    pub(crate) fn object_mut(&mut self, ix: Ix) -> &mut Object<O> {
        &mut self.nodes[ix.get() as usize - 1]
    }

    /// Numbers of all nodes. One that is vacant is nothing that has no name.
    pub(crate) fn all(&self) -> impl Iterator<Item = Ix> {
        (1..=self.nodes.len() as u32).filter_map(Ix::new)
    }

    /// The files of the committed tree that it has met on a mount.
    pub(crate) fn committed_files(&self, mount: usize) -> impl Iterator<Item = Handle> + '_ {
        let there =
            move |object: &&Object<O>| object.kind == FileType::File && usize::from(object.mount) == mount;
        self.nodes.iter().filter(there).filter_map(|object| object.lower.as_ref().map(|lower| lower.handle))
    }

    pub(crate) fn push(&mut self, object: Object<O>) -> Ix {
        if let Some(ix) = self.vacant.pop() {
            let generation = self.object(ix).generation;
            *self.object_mut(ix) = Object { generation, ..object };
            return ix;
        }
        self.nodes.push(object);
        Ix::new(self.nodes.len() as u32).unwrap_or_else(|| unreachable!("one was pushed"))
    }

    /// A node for an object of the committed tree: the one that stands for it already, if it is a file of
    /// several names.
    pub(crate) fn lower_node(&mut self, mount: usize, found: &Found) -> Verb<Ix> {
        let shared = found.stat.nlink > 1 && found.stat.kind() != FileType::Directory;
        if shared {
            if let Some(ix) = self.linked.get(&(mount as u16, found.handle)) {
                return Ok(*ix);
            }
        }
        self.tell_apart(mount, found.stat.ino)?;
        if !self.met.insert(number(mount, found.stat.ino)) {
            if let Some(ix) = self.spelled_otherwise(mount, found) {
                return Ok(ix);
            }
        }
        let ix = self.push(Object::new(found.stat.kind(), mount, found.stat.ino, Some(found.clone())));
        if shared {
            self.linked.insert((mount as u16, found.handle), ix);
        }
        Ok(ix)
    }

    /// A node for a new object.
    pub(crate) fn staged_node(&mut self, mount: usize, stat: &Stat) -> Verb<Ix> {
        self.tell_apart(mount, stat.ino)?;
        let new = Object::new(stat.kind(), mount, stat.ino, None);
        Ok(self.push(Object { incapable: true, ..new }))
    }

    /// Looks again at whatever was met under an inode number that another object has now: programs take two
    /// objects with one number for one, and `mv` or `cp` fail for it, with a status of theirs.
    ///
    /// # Errors
    /// `Doomed`: what was met is gone, and its number was given away.
    fn tell_apart(&mut self, mount: usize, ino: u64) -> Verb<()> {
        if !self.met.contains(&number(mount, ino)) {
            return Ok(());
        }
        let same = |object: &Object<O>| usize::from(object.mount) == mount && object.ino == ino;
        let met = self.nodes.iter().filter(|object| same(object));
        let facts: Vec<_> = met.filter_map(|object| object.lower.as_ref().map(|lower| lower.fact)).collect();
        facts.into_iter().try_for_each(|fact| self.facts.check(fact))
    }

    /// The node of an object that has only one name, which was met under it and still has it: the directory folds case, and
    /// the name was spelled otherwise.
    fn spelled_otherwise(&self, mount: usize, found: &Found) -> Option<Ix> {
        let same = |object: &Object<O>| {
            usize::from(object.mount) == mount
                && !object.names.is_empty()
                && object.lower.as_ref().is_some_and(|lower| lower.handle == found.handle)
        };
        self.all().find(|ix| same(self.object(*ix)))
    }

    pub(crate) fn is_root(&self, ix: Ix) -> bool {
        self.roots.contains(&ix)
    }

    /// Returns true if no name refers to the object any more.
    pub(crate) fn is_gone(&self, ix: Ix) -> bool {
        let object = self.object(ix);
        if self.is_root(ix) || !object.names.is_empty() {
            return false;
        }
        match &object.lower {
            Some(lower) if object.kind != FileType::Directory => {
                i64::from(lower.stat.nlink) + i64::from(object.links) <= 0
            }
            _ => true,
        }
    }
}
