//! Everything the simulated machine consists of: one value that can be cloned.
//!
//! Owns: inodes, open files, processes, clocks. Guarantees: identities (`Id`) are never reused, inode numbers are, as
//! on the file system in question. Does not: know system calls (`names`, `bytes`, `attrs`, `opening` do).

use super::meta::{Id, Meta};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use systx_os::{Errno, FileType, FsKind, Lease, Limit, Result, Timestamp};

use super::data::Data;
use super::journal::{EntryDelta, InodeDelta, Journal, Op};
use super::mapped::Mapped;
use super::{FsId, FsSpec, ProcId};

/// Identity of an open file description.
pub(super) type FileId = u64;

/// Set-user-id and set-group-id bits.
pub(super) const S_ISUID: u32 = 0o4000;
pub(super) const S_ISGID: u32 = 0o2000;
/// Wall clock at virtual time 0, seconds.
const EPOCH: i64 = 1_700_000_000;
/// Tick of a coarse clock (CONFIG_HZ=250).
const TICK_NS: u64 = 4_000_000;
/// Operations that wait for a commit at most; the older half is then written back, as the kernel does by time.
const JOURNAL_OPS_MAX: usize = 8192;

/// A file-system object.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) fs: FsId,
    pub(super) meta: Arc<Meta>,
    /// Directory that holds a directory.
    pub(super) parent: Id,
    /// A removed directory: nothing can be made in it.
    pub(super) dead: bool,
    /// Gone, but its end is not durable: a power loss may bring it back.
    pub(super) freed: bool,
    /// Made by O_TMPFILE: may be linked although it has no name.
    pub(super) linkable: bool,
    pub(super) entries: BTreeMap<Vec<u8>, Id>,
    pub(super) data: Data,
    /// The words of a file that has been mapped since the last boot.
    pub(super) mapped: Option<Mapped>,
}

impl Inode {
    pub(super) fn is_dir(&self) -> bool {
        self.meta.kind() == FileType::Directory
    }
}

/// A lease and who is breaking it down to what, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leased {
    pub(super) kind: Lease,
    pub(super) breaking: Option<(Lease, u64)>,
}

/// An open file description.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) process: ProcId,
    pub(super) id: Id,
    pub(super) read: bool,
    pub(super) write: bool,
    /// Descriptors and mappings that share it.
    pub(super) refs: u32,
    pub(super) lease: Option<Leased>,
    /// How many write errors of the file system a syncfs by it has told, or were told when it was opened.
    pub(super) told: u64,
}

impl OpenFile {
    /// O_PATH: identity only.
    pub(super) fn path_only(&self) -> bool {
        !self.read && !self.write
    }
}

/// A simulated process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Rights and resources that it lacks.
    pub(super) limited: Vec<Limit>,
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) alive: bool,
    /// The thread that ran it has noticed its death: no more unwinding.
    pub(super) buried: bool,
    /// Points it has passed.
    pub(super) points: u64,
    /// How often it was forked from what it was: see [`systx_os::Os::lineage`].
    pub(super) lineage: u64,
}

/// A file system.
#[derive(Clone, Debug)]
pub(super) struct FileSystem {
    pub(super) spec: FsSpec,
    pub(super) root: Id,
    pub(super) journal: Journal,
    pub(super) next_ino: u64,
    pub(super) free_inos: Vec<u64>,
    /// Writes that have failed.
    pub(super) write_errors: u64,
    /// Files with bytes that are not durable.
    pub(super) dirty: BTreeSet<Id>,
}

impl FileSystem {
    /// Returns true if nothing of it survives a power loss.
    pub(super) fn forgets(&self) -> bool {
        self.spec.info.kind == FsKind::Tmpfs
    }
}

/// The whole machine.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) systems: Vec<FileSystem>,
    pub(super) inodes: BTreeMap<Id, Arc<Inode>>,
    pub(super) files: BTreeMap<FileId, OpenFile>,
    /// By [`ProcId`].
    pub(super) processes: Vec<Process>,
    pub(super) owned: BTreeMap<(Id, u64), ProcId>,
    /// Directories that a file system is mounted on.
    pub(super) mounts: BTreeMap<Id, FsId>,
    /// Encrypted directories whose key is not there.
    pub(super) locked: BTreeSet<Id>,
    pub(super) next_id: u64,
    pub(super) next_generation: u32,
    /// Virtual time since the machine was made, nanoseconds.
    pub(super) clock: u64,
    /// Virtual time at the last boot.
    pub(super) booted: u64,
    /// Offset of the wall clock from that, in seconds.
    pub(super) wall_offset: i64,
    /// True if processes have different monotonic clocks.
    pub(super) time_namespaces: bool,
    pub(super) boots: u64,
    pub(super) rng: fastrand::Rng,
}

impl State {
    pub(super) fn inode(&self, id: Id) -> &Inode {
        match self.inodes.get(&id) {
            Some(inode) => inode,
            None => unreachable!("inode {id} is open or named, so it exists"),
        }
    }

    pub(super) fn inode_mut(&mut self, id: Id) -> &mut Inode {
        match self.inodes.get_mut(&id) {
            Some(inode) => Arc::make_mut(inode),
            None => unreachable!("inode {id} is open or named, so it exists"),
        }
    }

    pub(super) fn meta_mut(&mut self, id: Id) -> &mut Meta {
        Arc::make_mut(&mut self.inode_mut(id).meta)
    }

    pub(super) fn spec(&self, fs: FsId) -> &FsSpec {
        &self.systems[fs.0].spec
    }

    /// Passes some time.
    pub(super) fn tick(&mut self, ns: u64) {
        self.clock = self.clock.saturating_add(ns);
    }

    pub(super) fn timestamp(&self, ns: u64) -> Timestamp {
        Timestamp {
            sec: EPOCH + self.wall_offset + (ns / 1_000_000_000) as i64,
            nsec: (ns % 1_000_000_000) as u32,
        }
    }

    /// Time for a change: always a new one where the file system's stamps may be trusted.
    pub(super) fn stamp(&mut self, id: Id) -> Timestamp {
        self.clock += 1;
        let inode = self.inode(id);
        let info = &self.spec(inode.fs).info;
        let exact = if inode.is_dir() { info.dir_stamps } else { info.file_stamps };
        self.timestamp(if exact { self.clock } else { self.clock / TICK_NS * TICK_NS })
    }

    /// Moves ctime, and mtime too where contents changed.
    pub(super) fn touch(&mut self, id: Id, contents: bool) {
        let now = self.stamp(id);
        let meta = self.meta_mut(id);
        meta.ctime = now;
        if contents {
            meta.mtime = now;
        }
    }

    /// Makes an inode without a name.
    pub(super) fn new_inode(&mut self, fs: FsId, mode: u32, uid: u32, gid: u32) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.next_generation = self.next_generation.wrapping_add(0x9e37_79b1);
        let generation = self.next_generation;
        let system = &mut self.systems[fs.0];
        // ext4 and xfs hand out the number that was freed last; btrfs and tmpfs only count.
        let reuse = !matches!(system.spec.info.kind, FsKind::Btrfs | FsKind::Tmpfs);
        let ino = match system.free_inos.pop().filter(|_| reuse) {
            Some(ino) => ino,
            None => {
                system.next_ino += 1;
                system.next_ino
            }
        };
        let zero = Timestamp::default();
        let meta = Meta {
            ino,
            generation,
            mode,
            uid,
            gid,
            rdev: 0,
            nlink: 0,
            size: 0,
            size_out: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            made: self.timestamp(self.clock),
            reserved: None,
            xattrs: BTreeMap::new(),
            target: Vec::new(),
            immutable: false,
            append_only: false,
            flags: 0,
        };
        let inode = Inode {
            fs,
            meta: Arc::new(meta),
            parent: id,
            dead: false,
            freed: false,
            linkable: false,
            entries: BTreeMap::new(),
            data: Data::default(),
            mapped: None,
        };
        self.inodes.insert(id, Arc::new(inode));
        self.touch(id, true);
        let now = self.inode(id).meta.mtime;
        self.meta_mut(id).atime = now;
        id
    }

    /// Number of the metadata operation that comes next.
    pub(super) fn next_seq(&self, fs: FsId) -> u64 {
        self.systems[fs.0].journal.next_seq
    }

    /// Appends one metadata operation: inodes in their present state (with whether fdatasync cares), and names.
    pub(super) fn log(&mut self, fs: FsId, inodes: &[(Id, bool)], entries: Vec<EntryDelta>) {
        let inodes = inodes
            .iter()
            .map(|&(id, datasync)| {
                let inode = self.inode(id);
                InodeDelta { id, meta: (!inode.freed).then(|| inode.meta.clone()), datasync }
            })
            .collect();
        let system = &mut self.systems[fs.0];
        let seq = system.journal.next_seq;
        system.journal.next_seq += 1;
        if system.forgets() {
            return;
        }
        system.journal.ops.push_back(Arc::new(Op { seq, inodes, entries }));
        if system.journal.ops.len() > JOURNAL_OPS_MAX {
            let half = system.journal.ops[JOURNAL_OPS_MAX / 2].seq;
            self.commit(fs, half);
        }
    }

    /// Makes metadata below `end` durable.
    pub(super) fn commit(&mut self, fs: FsId, end: u64) {
        for id in self.systems[fs.0].journal.commit_to(end) {
            self.inodes.remove(&id);
            self.systems[fs.0].dirty.remove(&id);
        }
    }

    /// Frees an inode that has neither a name nor a descriptor.
    pub(super) fn reap(&mut self, id: Id) {
        let Some(inode) = self.inodes.get(&id) else { return };
        let named = if inode.is_dir() { !inode.dead } else { inode.meta.nlink > 0 };
        if named || inode.freed || self.files.values().any(|f| f.id == id) {
            return;
        }
        let (fs, ino) = (inode.fs, inode.meta.ino);
        self.inode_mut(id).freed = true;
        self.log(fs, &[(id, true)], Vec::new());
        self.owned.retain(|(owners, _), _| *owners != id);
        let system = &mut self.systems[fs.0];
        system.free_inos.push(ino);
        if system.forgets() {
            self.inodes.remove(&id);
        }
    }

    pub(super) fn file(&self, file: FileId) -> Result<&OpenFile> {
        self.files.get(&file).ok_or(Errno::BADF)
    }

    pub(super) fn process(&self, process: ProcId) -> &Process {
        &self.processes[process.0 as usize]
    }

    pub(super) fn process_mut(&mut self, process: ProcId) -> &mut Process {
        &mut self.processes[process.0 as usize]
    }

    /// The directory behind a descriptor.
    pub(super) fn dir(&self, file: FileId) -> Result<Id> {
        let id = self.file(file)?.id;
        if self.inode(id).is_dir() {
            Ok(id)
        } else {
            Err(Errno::NOTDIR)
        }
    }

    /// Drops one reference to an open file.
    pub(super) fn close(&mut self, file: FileId) {
        let Some(open) = self.files.get_mut(&file) else { return };
        open.refs -= 1;
        if open.refs == 0 {
            let id = open.id;
            self.files.remove(&file);
            self.reap(id);
        }
    }

    /// Ends a process: descriptors, leases, mappings and owner bytes are gone at once.
    pub(super) fn end(&mut self, process: ProcId) {
        self.process_mut(process).alive = false;
        let files: Vec<(FileId, Id)> =
            self.files.iter().filter(|(_, f)| f.process == process).map(|(n, f)| (*n, f.id)).collect();
        self.owned.retain(|_, owner| *owner != process);
        for (file, _) in &files {
            self.files.remove(file);
        }
        files.into_iter().for_each(|(_, id)| self.reap(id));
    }
}
