//! Power loss: which of the possible states the next boot finds.
//!
//! Guarantees, by kind of file system: ext4 and xfs keep a prefix of the metadata operations, btrfs a prefix per
//! directory and inode, ext4 without a journal any subset (a name in both directories, two names for a reused number),
//! tmpfs nothing; unsynced sectors are old or new in any subset, independent of that; the size of
//! what was written and not written out is an older one, or not. What then has no name is
//! gone, as after the file system's own check. Does not: keep a lost+found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use systx_os::{FsInfo, FsKind};

use super::journal::{Image, Journal};
use super::state::{Inode, State};
use super::FsId;
use crate::machine::meta::{Id, Meta};

/// Virtual time that a reboot takes.
const REBOOT_NS: u64 = 30_000_000_000;

/// State after a power loss of the things that no sync has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Any state that the rules allow.
    Random,
    /// None of it.
    NothingUnsynced,
    /// All of it.
    Everything,
    /// All metadata, no contents: new files have their size and read as zeros.
    NamesWithoutData,
    /// All contents, no metadata.
    DataWithoutNames,
    /// All metadata but the sizes of what was not written out.
    NamesWithoutSizes,
}

impl Crash {
    /// Every kind of crash but [`Crash::Random`].
    pub const WORST: [Crash; 5] = [
        Crash::NothingUnsynced,
        Crash::Everything,
        Crash::NamesWithoutData,
        Crash::DataWithoutNames,
        Crash::NamesWithoutSizes,
    ];
}

struct Chooser<'a> {
    crash: Crash,
    rng: &'a mut fastrand::Rng,
    /// Percent of unsynced things that survive in this crash.
    keep: u8,
}

impl Chooser<'_> {
    fn metadata(&self) -> Option<bool> {
        match self.crash {
            Crash::Random => None,
            Crash::NothingUnsynced | Crash::DataWithoutNames => Some(false),
            Crash::Everything | Crash::NamesWithoutData | Crash::NamesWithoutSizes => Some(true),
        }
    }

    /// The size of a file that was written to behind the end that the disk knows, and that comes there behind the bytes.
    fn size(&mut self, out: u64, now: u64) -> u64 {
        let between = (out / 4096 + 1) * 4096;
        match self.crash {
            Crash::Random => [now, now, out, now.min(between)][self.rng.usize(0..4)],
            Crash::NamesWithoutSizes => out,
            _ => now,
        }
    }

    fn cut(&mut self, low: u64, high: u64) -> u64 {
        match self.metadata() {
            Some(all) => [low, high][usize::from(all)],
            None => match self.rng.u8(0..4) {
                0 => low,
                1 => high,
                _ => self.rng.u64(low..=high),
            },
        }
    }

    fn keep(&mut self) -> bool {
        self.metadata().unwrap_or_else(|| self.rng.u8(0..100) < self.keep)
    }

    fn version(&mut self, candidates: usize) -> usize {
        match self.crash {
            Crash::Random if self.rng.u8(0..100) < self.keep => candidates - 1,
            Crash::Random => self.rng.usize(0..candidates),
            Crash::NothingUnsynced | Crash::NamesWithoutData | Crash::NamesWithoutSizes => 0,
            Crash::Everything | Crash::DataWithoutNames => candidates - 1,
        }
    }
}

/// The metadata that survives, and through which operation (exclusive) each inode does.
struct Survivor {
    image: Image,
    through: BTreeMap<Id, u64>,
    floor: u64,
}

impl State {
    /// Cuts the power, chooses what survives, and boots again.
    pub(super) fn power_loss(&mut self, crash: Crash, rng: &mut fastrand::Rng) {
        let mapped = self.everybody_ends();
        for fs in (0..self.systems.len()).map(FsId) {
            self.lose_unsynced(fs, crash, rng);
        }
        self.garble(&mapped, crash, rng);
        let inodes = &self.inodes;
        self.mounts.retain(|dir, _| inodes.contains_key(dir));
        self.tick(REBOOT_NS);
        self.boots += 1;
        self.booted = self.clock;
    }

    /// Ends all processes, with everything that they have open; returns the files that were mapped.
    fn everybody_ends(&mut self) -> Vec<Id> {
        let mapped: Vec<Id> =
            self.inodes.iter().filter(|(_, i)| i.mapped.is_some()).map(|(id, _)| *id).collect();
        mapped.iter().for_each(|id| self.fold(*id));
        self.files.clear();
        self.owned.clear();
        self.processes.iter_mut().for_each(|p| p.alive = false);
        mapped
    }

    /// One file system loses what was not synced.
    fn lose_unsynced(&mut self, fs: FsId, crash: Crash, rng: &mut fastrand::Rng) {
        let keep = [0, 10, 50, 90, 100][rng.usize(0..5)];
        let mut chooser = Chooser { crash, rng, keep };
        if self.systems[fs.0].forgets() {
            self.forget(fs, chooser.rng);
        } else {
            self.lose_power(fs, &mut chooser);
        }
    }

    /// One file system loses what was not synced and is mounted again; the boot goes on.
    pub(super) fn lose_cache(&mut self, fs: FsId, crash: Crash, rng: &mut fastrand::Rng) {
        let mut mapped = self.everybody_ends();
        mapped.retain(|id| self.inodes.get(id).is_some_and(|inode| inode.fs == fs));
        self.lose_unsynced(fs, crash, rng);
        self.garble(&mapped, crash, rng);
        let life = &mut self.systems[fs.0].spec.info.life;
        if ![0, FsInfo::LIVES_ONCE].contains(life) {
            *life += 1;
        }
        let inodes = &self.inodes;
        self.mounts.retain(|dir, _| inodes.contains_key(dir));
    }

    /// One file system is as it was in `older`.
    pub(super) fn roll_back(&mut self, fs: FsId, mut older: State) {
        self.everybody_ends();
        older.everybody_ends();
        self.inodes.retain(|_, inode| inode.fs != fs);
        self.inodes.extend(older.inodes.into_iter().filter(|(_, inode)| inode.fs == fs));
        let life = self.systems[fs.0].spec.info.life;
        self.systems[fs.0] = older.systems.swap_remove(fs.0);
        let info = &mut self.systems[fs.0].spec.info;
        info.life = if [0, FsInfo::LIVES_ONCE].contains(&life) { life } else { life + 1 };
        self.rebase(fs);
        let inodes = &self.inodes;
        self.mounts.retain(|dir, _| inodes.contains_key(dir));
    }

    /// One file system is as another one is now, on the disk.
    pub(super) fn copy_over(&mut self, from: FsId, to: FsId) {
        self.everybody_ends();
        self.inodes.retain(|_, inode| inode.fs != to);
        let originals: Vec<_> = self.inodes.iter().filter(|(_, inode)| inode.fs == from).collect();
        let first = self.next_id;
        let ids: BTreeMap<Id, Id> = originals.iter().map(|(id, _)| **id).zip(first..).collect();
        let copied = |id: &Id| ids.get(id).copied().unwrap_or(*id);
        let copies: Vec<_> = originals
            .into_iter()
            .map(|(id, inode)| {
                let mut copy = (**inode).clone();
                (copy.fs, copy.parent) = (to, copied(&inode.parent));
                copy.entries.values_mut().for_each(|id| *id = copied(id));
                (copied(id), Arc::new(copy))
            })
            .collect();
        let root = copied(&self.systems[from.0].root);
        self.next_id += ids.len() as Id;
        self.inodes.extend(copies);
        let life = self.systems[to.0].spec.info.life;
        self.systems[to.0] = self.systems[from.0].clone();
        let system = &mut self.systems[to.0];
        (system.root, system.spec.info.life) = (root, life + 1);
        self.rebase(to);
    }

    /// A tmpfs comes back empty and is another file system.
    fn forget(&mut self, fs: FsId, rng: &mut fastrand::Rng) {
        self.inodes.retain(|_, i| i.fs != fs);
        let root = self.new_root(fs);
        let system = &mut self.systems[fs.0];
        system.root = root;
        system.spec.info.uuid = Some(rng.u128(..).to_le_bytes());
        system.dirty.clear();
    }

    fn lose_power(&mut self, fs: FsId, chooser: &mut Chooser<'_>) {
        let journal = std::mem::take(&mut self.systems[fs.0].journal);
        let kind = self.spec(fs).info.kind;
        let mut survivor = match kind {
            FsKind::Btrfs => survive_btrfs(&journal, chooser),
            FsKind::Ext4NoJournal => survive_subset(&journal, chooser),
            _ => survive_prefix(&journal, chooser),
        };
        let root = self.systems[fs.0].root;
        if kind == FsKind::Ext4NoJournal {
            merge_numbers(&mut survivor.image, root, chooser);
        }
        let reached = reach(&mut survivor.image, root, chooser);
        let subdirectories = kind != FsKind::Btrfs;
        let mut inodes = BTreeMap::new();
        for (id, (parent, names)) in &reached {
            let (Some(old), Some(meta)) = (self.inodes.get(id), survivor.image.metas.get(id)) else {
                continue;
            };
            let entries = survivor.image.dirs.get(id).map(|e| (**e).clone()).unwrap_or_default();
            let mut meta = meta.clone();
            let is_dir = systx_os::FileType::from_mode(meta.mode) == Some(systx_os::FileType::Directory);
            let below =
                entries.values().filter(|e| reached.contains_key(e) && is_directory(&survivor.image, **e));
            let nlink = match (is_dir, subdirectories) {
                (false, _) => *names,
                (true, true) => 2 + below.count() as u32,
                (true, false) => 1,
            };
            if meta.nlink != nlink {
                Arc::make_mut(&mut meta).nlink = nlink;
            }
            if meta.size_out < meta.size {
                let size = chooser.size(meta.size_out, meta.size);
                let meta = Arc::make_mut(&mut meta);
                (meta.size, meta.size_out) = (size, size);
            }
            let through = survivor.through.get(id).copied().unwrap_or(survivor.floor);
            let data = if old.data.dirty() {
                old.data.crash(meta.size, &|seq| seq < through, &mut |n| chooser.version(n))
            } else {
                // Nothing to choose, but the size may be an older one.
                old.data.crash(meta.size, &|_| true, &mut |_| 0)
            };
            inodes.insert(
                *id,
                Arc::new(Inode {
                    fs,
                    meta,
                    parent: *parent,
                    dead: false,
                    freed: false,
                    linkable: false,
                    entries,
                    data,
                    mapped: None,
                }),
            );
        }
        self.inodes.retain(|_, i| i.fs != fs);
        self.inodes.extend(inodes);
        self.systems[fs.0].journal.next_seq = journal.next_seq;
        self.rebase(fs);
    }

    /// Declares the present state of a file system durable.
    pub(super) fn rebase(&mut self, fs: FsId) {
        let mut image = Image::default();
        let mut used = BTreeSet::new();
        self.inodes.retain(|_, i| i.fs != fs || !i.freed);
        for (&id, inode) in self.inodes.iter_mut().filter(|(_, i)| i.fs == fs) {
            if inode.data.dirty() {
                Arc::make_mut(inode).data.settle();
            }
            used.insert(inode.meta.ino);
            if inode.meta.size_out != inode.meta.size {
                let meta = Arc::make_mut(&mut Arc::make_mut(inode).meta);
                meta.size_out = meta.size;
            }
            image.metas.insert(id, inode.meta.clone());
            if inode.is_dir() {
                image.dirs.insert(id, Arc::new(inode.entries.clone()));
            }
        }
        let system = &mut self.systems[fs.0];
        system.free_inos = (1..=system.next_ino).rev().filter(|ino| !used.contains(ino)).collect();
        let seq = system.journal.next_seq;
        system.journal = Journal { base: image, base_seq: seq, next_seq: seq, ..Journal::default() };
        system.dirty.clear();
    }

    /// Replaces pages of files that were mapped by noise, where the file system is set to do so.
    fn garble(&mut self, mapped: &[Id], crash: Crash, rng: &mut fastrand::Rng) {
        for id in mapped {
            let Some(inode) = self.inodes.get_mut(id) else { continue };
            if crash != Crash::Random || !self.systems[inode.fs.0].spec.garble {
                continue;
            }
            let inode = Arc::make_mut(inode);
            let size = inode.meta.size;
            for page in 0..size.div_ceil(4096) {
                if rng.u8(0..4) == 0 {
                    let len = (size - page * 4096).min(4096) as usize;
                    let mut noise = vec![0; len];
                    rng.fill(&mut noise);
                    inode.data.write(page * 4096, &noise, 0);
                }
            }
            inode.data.settle();
        }
    }
}

fn is_directory(image: &Image, id: Id) -> bool {
    let kind = image.metas.get(&id).map(|m: &Arc<Meta>| m.kind());
    kind == Some(systx_os::FileType::Directory)
}

fn survive_prefix(journal: &Journal, chooser: &mut Chooser<'_>) -> Survivor {
    let floor = chooser.cut(journal.base_seq, journal.next_seq);
    let mut image = journal.base.clone();
    journal.ops.iter().take_while(|op| op.seq < floor).for_each(|op| image.apply(op));
    Survivor { image, through: BTreeMap::new(), floor }
}

fn survive_btrfs(journal: &Journal, chooser: &mut Chooser<'_>) -> Survivor {
    let floor = chooser.cut(journal.base_seq, journal.next_seq);
    let mut image = journal.base.clone();
    let (mut through, mut names_through) = (BTreeMap::new(), BTreeMap::new());
    let mut cut = |forced: Option<&u64>| {
        let low = forced.map_or(floor, |c| floor.max(*c));
        if chooser.crash == Crash::Random && chooser.rng.bool() {
            return low;
        }
        chooser.cut(low, journal.next_seq)
    };
    for op in &journal.ops {
        for (index, e) in op.entries.iter().enumerate() {
            let end = *names_through.entry(e.dir).or_insert_with(|| cut(journal.dir_cut.get(&e.dir)));
            if op.seq < end || journal.entry_committed(e.dir, op.seq, index) {
                image.set_entry(e);
            }
        }
        for i in &op.inodes {
            let end = *through.entry(i.id).or_insert_with(|| cut(journal.inode_cut.get(&i.id)));
            // A name may have survived that an inode's end came after, or before its beginning: such an inode is.
            if i.meta.is_some() && (op.seq < end || !image.metas.contains_key(&i.id)) {
                image.set_inode(i);
            }
        }
    }
    Survivor { image, through, floor }
}

fn survive_subset(journal: &Journal, chooser: &mut Chooser<'_>) -> Survivor {
    let mut image = journal.base.clone();
    let mut through = BTreeMap::new();
    for op in &journal.ops {
        for (index, e) in op.entries.iter().enumerate() {
            if journal.entry_committed(e.dir, op.seq, index) || chooser.keep() {
                image.set_entry(e);
            }
        }
        for i in op.inodes.iter().filter(|i| i.meta.is_some()) {
            if journal.committed(i.id, op.seq) || chooser.keep() {
                image.set_inode(i);
                through.insert(i.id, op.seq + 1);
            }
        }
    }
    Survivor { image, through, floor: journal.base_seq }
}

/// Without a journal a name holds a number only: names of a number's old and new inode lead to the one that is there.
fn merge_numbers(image: &mut Image, root: Id, chooser: &mut Chooser<'_>) {
    let named: BTreeSet<Id> = image.dirs.values().flat_map(|e| e.values().copied()).chain([root]).collect();
    let mut by_number: BTreeMap<u64, Vec<Id>> = BTreeMap::new();
    for (id, meta) in image.metas.iter().filter(|(id, _)| named.contains(id)) {
        by_number.entry(meta.ino).or_default().push(*id);
    }
    for ids in by_number.values().filter(|ids| ids.len() > 1) {
        let newest = ids.len() - 1;
        let winner = ids[if chooser.keep() { newest } else { chooser.rng.usize(0..ids.len()) }];
        for entries in image.dirs.values_mut() {
            Arc::make_mut(entries).values_mut().filter(|id| ids.contains(id)).for_each(|id| *id = winner);
        }
    }
}

/// Everything that has a name, with the directory above and the number of names; drops names that lead nowhere and
/// second names of directories.
fn reach(image: &mut Image, root: Id, chooser: &mut Chooser<'_>) -> BTreeMap<Id, (Id, u32)> {
    let mut reached = BTreeMap::from([(root, (root, 1))]);
    let mut todo = vec![root];
    while !todo.is_empty() {
        let at =
            if chooser.crash == Crash::Random { chooser.rng.usize(0..todo.len()) } else { todo.len() - 1 };
        let dir = todo.swap_remove(at);
        let Some(entries) = image.dirs.get(&dir).cloned() else { continue };
        let mut kept = (*entries).clone();
        kept.retain(|_, id| {
            if !image.metas.contains_key(id) {
                return false;
            }
            let directory = is_directory(image, *id);
            match reached.get_mut(id) {
                Some(_) if directory => return false,
                Some((_, names)) => *names += 1,
                None => {
                    reached.insert(*id, (dir, 1));
                    todo.extend(directory.then_some(*id));
                }
            }
            true
        });
        image.dirs.insert(dir, Arc::new(kept));
    }
    reached
}
