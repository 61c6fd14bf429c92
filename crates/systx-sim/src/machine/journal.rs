//! Which metadata survives a power loss.
//!
//! Owns: per file system the durable image, the ordered list of metadata operations since, and which of them a sync
//! has made durable out of order (btrfs, ext4 without a journal). Guarantees: every operation carries whole values, so
//! that any subset of operations, applied in order, is a state. Does not: decide what survives (`power` does).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::machine::meta::{Id, Meta};

/// Directory contents.
pub(super) type Entries = BTreeMap<Vec<u8>, Id>;

/// Metadata of a file system at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) metas: BTreeMap<Id, Arc<Meta>>,
    pub(super) dirs: BTreeMap<Id, Arc<Entries>>,
}

/// New attributes of an inode; `None` when it was freed.
#[derive(Clone, Debug)]
pub(super) struct InodeDelta {
    pub(super) id: Id,
    pub(super) meta: Option<Arc<Meta>>,
    /// Size, blocks or existence changed: fdatasync cares.
    pub(super) datasync: bool,
}

/// New value of a name; `None` when it was removed.
#[derive(Clone, Debug)]
pub(super) struct EntryDelta {
    pub(super) dir: Id,
    pub(super) name: Vec<u8>,
    pub(super) to: Option<Id>,
}

/// One metadata operation.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    pub(super) inodes: Vec<InodeDelta>,
    pub(super) entries: Vec<EntryDelta>,
}

/// Metadata operations of one file system.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    pub(super) base: Image,
    /// Every operation below is in `base`.
    pub(super) base_seq: u64,
    pub(super) next_seq: u64,
    pub(super) ops: VecDeque<Arc<Op>>,
    /// Durable beyond `base_seq`: attributes of an inode, names of a directory, single names (operation, index).
    pub(super) inode_cut: BTreeMap<Id, u64>,
    pub(super) dir_cut: BTreeMap<Id, u64>,
    pub(super) named: BTreeSet<(u64, usize)>,
}

impl Image {
    pub(super) fn set_inode(&mut self, delta: &InodeDelta) {
        match &delta.meta {
            Some(meta) => {
                self.metas.insert(delta.id, meta.clone());
            }
            None => {
                self.metas.remove(&delta.id);
                self.dirs.remove(&delta.id);
            }
        }
    }

    pub(super) fn set_entry(&mut self, delta: &EntryDelta) {
        let entries = Arc::make_mut(self.dirs.entry(delta.dir).or_default());
        match delta.to {
            Some(id) => entries.insert(delta.name.clone(), id),
            None => entries.remove(&delta.name),
        };
    }

    pub(super) fn apply(&mut self, op: &Op) {
        op.entries.iter().for_each(|e| self.set_entry(e));
        op.inodes.iter().for_each(|i| self.set_inode(i));
    }
}

impl Journal {
    /// Makes every operation below `end` durable; returns the inodes that are free for good.
    pub(super) fn commit_to(&mut self, end: u64) -> Vec<Id> {
        let mut freed = Vec::new();
        while self.ops.front().is_some_and(|op| op.seq < end) {
            let Some(op) = self.ops.pop_front() else { break };
            self.base.apply(&op);
            freed.extend(op.inodes.iter().filter(|i| i.meta.is_none()).map(|i| i.id));
        }
        self.base_seq = self.base_seq.max(end);
        self.inode_cut.retain(|_, cut| *cut > end);
        self.dir_cut.retain(|_, cut| *cut > end);
        self.named.retain(|(seq, _)| *seq >= end);
        freed
    }

    /// End of the shortest prefix with all that a sync of `id` promises.
    pub(super) fn end_of(&self, id: Id, datasync: bool) -> u64 {
        let touches = |op: &&Arc<Op>| op.inodes.iter().any(|i| i.id == id && (i.datasync || !datasync));
        self.ops.iter().rev().find(touches).map_or(self.base_seq, |op| op.seq + 1)
    }

    /// Returns true if the change of inode `id` by operation `seq` is durable.
    pub(super) fn committed(&self, id: Id, seq: u64) -> bool {
        seq < self.base_seq || self.inode_cut.get(&id).is_some_and(|cut| seq < *cut)
    }

    /// Returns true if entry `index` of operation `seq` in directory `dir` is durable.
    pub(super) fn entry_committed(&self, dir: Id, seq: u64, index: usize) -> bool {
        seq < self.base_seq
            || self.dir_cut.get(&dir).is_some_and(|cut| seq < *cut)
            || self.named.contains(&(seq, index))
    }

    /// Makes inode `id`, its names and the new directories above them durable by themselves (btrfs, ext4
    /// without a journal). `current` is true while a name still leads to an inode; names that it lost are not
    /// taken away.
    pub(super) fn force(&mut self, id: Id, is_dir: bool, current: &dyn Fn(&EntryDelta) -> bool) {
        let mut todo = vec![id];
        let mut seen = BTreeSet::new();
        if is_dir {
            self.dir_cut.insert(id, self.next_seq);
        }
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            self.inode_cut.insert(id, self.next_seq);
            for op in &self.ops {
                for (index, entry) in op.entries.iter().enumerate() {
                    if entry.to == Some(id) && current(entry) {
                        self.named.insert((op.seq, index));
                        let dir_is_new = !self.base.metas.contains_key(&entry.dir);
                        todo.extend(dir_is_new.then_some(entry.dir));
                    }
                }
            }
        }
    }

    /// Makes the directory's names durable with the inodes that they introduced (btrfs).
    pub(super) fn force_children(&mut self, dir: Id) {
        let new: Vec<Id> = self
            .ops
            .iter()
            .flat_map(|op| &op.entries)
            .filter(|e| e.dir == dir)
            .filter_map(|e| e.to)
            .filter(|id| !self.base.metas.contains_key(id))
            .collect();
        for id in new {
            self.inode_cut.entry(id).or_insert_with(|| {
                let born = self.ops.iter().find(|op| op.inodes.iter().any(|i| i.id == id));
                born.map_or(self.base_seq, |op| op.seq + 1)
            });
        }
    }
}
