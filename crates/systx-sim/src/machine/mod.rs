//! The simulated machine: an implementation of [`systx_os::Os`] that can be killed, failed, interleaved and robbed of
//! its power at every call.
//!
//! Owns: [`Machine`] (several file systems, shared by processes), [`SimOs`] (one process), [`Schedule`] (several
//! processes, one at a time, by a seed), [`Crash`] (what a power loss leaves), [`Plant`] and [`Tree`] (building and
//! comparing contents). Guarantees: the errno of Linux (`tests/machine_agreement.rs` compares with the real one), and
//! that the same seed gives the same run. Does not: check directory permissions, deliver signals, or run programs.
//!
//! ```
//! use systx_os::{FsKind, Os};
//! use systx_sim::machine::{run_process, Crash, FsSpec, Machine};
//! let machine = Machine::new(1, &[FsSpec::new(FsKind::Ext4)]);
//! let os = machine.spawn("writer");
//! let root = os.root(0);
//! machine.kill_at(&os, 2); // the third call from now
//! let killed = run_process(&os, || -> systx_os::Result<()> {
//!     let file = os.create(&root, b"a", 0o644)?;
//!     os.pwrite(&file, b"contents", 0)?;
//!     os.fsync(&file)
//! });
//! assert!(killed.is_err());
//! machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
//! assert!(machine.tree(0).is_empty());
//! ```

mod attrs;
mod baton;
mod bytes;
mod data;
mod fork;
mod journal;
mod lost;
mod mapped;
mod mem;
mod meta;
mod names;
mod opening;
mod os;
mod plan;
mod power;
mod process;
mod schedule;
mod sparse;
mod state;
mod syncing;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use systx_os::{FileType, FsInfo, FsKind, Limit};

pub use fork::Parent;
pub use mem::{SimMem, SimOwned};
pub use plan::{Call, Effect, Fault, PointInfo, Traced};
pub use power::Crash;
pub use process::{run_process, Killed, SimFd, SimOs};
pub use schedule::{Ended, Report, Schedule};
pub use tree::{dump, Look, Plant, Tree};

use crate::machine::meta::Id;
use plan::Control;
use state::{FileSystem, Process, State};

/// Index of a file system of a machine, in the order of [`Machine::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FsId(pub(crate) usize);

/// Identity of a simulated process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcId(pub(crate) u32);

impl ProcId {
    /// The number that the process knows itself by.
    pub fn pid(self) -> u32 {
        1000 + self.0
    }
}

/// How much of the journal an fsync makes durable (ext4, xfs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRule {
    /// The guaranteed part: up to the last operation that touched the synced inode. The kernel's timer may
    /// have committed that one just before, and later operations are then not covered.
    Touched,
    /// The usual result: the whole journal, if the synced inode was touched since the last commit.
    Whole,
}

/// A file system to be made.
#[derive(Clone, Debug)]
pub struct FsSpec {
    /// Answer of [`systx_os::Os::fs_info`]; the machine behaves accordingly.
    pub info: FsInfo,
    /// Most links of a file, and of a directory with its subdirectories.
    pub links_max: u32,
    /// See [`CommitRule`].
    pub commit_rule: CommitRule,
    /// True if a random power loss may leave noise in files that were mapped.
    pub garble: bool,
}

impl FsSpec {
    /// A file system of a kind, with everything that kind can do.
    pub fn new(kind: FsKind) -> FsSpec {
        let info = FsInfo {
            kind,
            uuid: None,
            fsid: None,
            life: if kind == FsKind::Tmpfs { FsInfo::LIVES_ONCE } else { 1 },
            file_stamps: true,
            dir_stamps: kind != FsKind::Tmpfs,
            reflinks: matches!(kind, FsKind::Btrfs | FsKind::Xfs),
            rename_flags: true,
            leases: true,
            handles: true,
            open_by_handle: true,
        };
        FsSpec { info, links_max: 65000, commit_rule: CommitRule::Touched, garble: true }
    }
}

struct Inner {
    state: State,
    control: Control,
}

/// A simulated machine; clones are the same machine, [`Machine::fork`] makes another one.
#[derive(Clone)]
pub struct Machine {
    inner: Arc<Mutex<Inner>>,
}

impl Machine {
    /// Boots a machine with empty file systems; everything random in it derives from `seed`.
    pub fn new(seed: u64, systems: &[FsSpec]) -> Machine {
        let mut state = State {
            systems: Vec::new(),
            inodes: BTreeMap::new(),
            files: BTreeMap::new(),
            processes: Vec::new(),
            owned: BTreeMap::new(),
            mounts: BTreeMap::new(),
            next_id: 1,
            next_generation: 0,
            clock: 1_000_000_000,
            booted: 0,
            wall_offset: 0,
            locked: BTreeSet::new(),
            time_namespaces: false,
            boots: 1,
            rng: fastrand::Rng::with_seed(seed),
        };
        for (index, spec) in systems.iter().enumerate() {
            let mut spec = spec.clone();
            if spec.info.uuid.is_none() {
                spec.info.uuid = Some(state.rng.u128(..).to_le_bytes());
            }
            state.systems.push(FileSystem {
                spec,
                root: 0,
                journal: Default::default(),
                next_ino: 1,
                free_inos: Vec::new(),
                write_errors: 0,
                dirty: BTreeSet::new(),
            });
            state.systems[index].root = state.new_root(FsId(index));
            state.rebase(FsId(index));
        }
        // The hand that plants trees and looks at them.
        let (name, alive, buried) = ("world".into(), true, false);
        let world =
            Process { limited: Vec::new(), name, uid: 0, gid: 0, alive, buried, points: 0, lineage: 0 };
        state.processes.push(world);
        Machine::of(state, Control::default())
    }

    /// A machine with one file system of `kind`.
    pub fn with(kind: FsKind) -> Machine {
        Machine::new(1, &[FsSpec::new(kind)])
    }

    fn of(state: State, control: Control) -> Machine {
        Machine { inner: Arc::new(Mutex::new(Inner { state, control })) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing here leaves the state half changed by a panic: a poisoned lock is only a failed test elsewhere.
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Another machine in the same state: processes keep what they hold there but have no thread. Plans (kills, faults,
    /// hooks, trace) are not taken over.
    pub fn fork(&self) -> Machine {
        Machine::of(self.lock().state.clone(), Control::default())
    }

    /// Starts a process as root.
    pub fn spawn(&self, name: &str) -> SimOs {
        self.spawn_as(name, 0)
    }

    /// Starts a process of a user (group of the same number).
    pub fn spawn_as(&self, name: &str, uid: u32) -> SimOs {
        let mut inner = self.lock();
        let id = ProcId(inner.state.processes.len() as u32);
        let process = Process {
            limited: Vec::new(),
            name: name.into(),
            uid,
            gid: uid,
            alive: true,
            buried: false,
            points: 0,
            lineage: 0,
        };
        inner.state.processes.push(process);
        drop(inner);
        SimOs { machine: self.clone(), process: id, quiet: false }
    }

    /// A process of root that [is limited](systx_os::Os::is_limited). What it is refused is up to [faults](Machine::fault).
    pub fn spawn_limited(&self, name: &str, by: &[Limit]) -> SimOs {
        let os = self.spawn(name);
        self.lock().state.process_mut(os.process).limited = by.to_vec();
        os
    }

    /// A process whose calls are no points: never killed, failed, scheduled or hooked. For outsiders and for looking.
    pub fn outsider(&self, name: &str) -> SimOs {
        SimOs { quiet: true, ..self.spawn(name) }
    }

    /// Mounts file system `fs` on the directory at `path` of file system `on`.
    pub fn mount(&self, fs: usize, on: usize, path: &str) -> systx_os::Result<()> {
        let mut inner = self.lock();
        let dir = inner.state.resolve(FsId(on), path)?;
        inner.state.mounts.insert(dir, FsId(fs));
        Ok(())
    }

    /// Changes what `fs_info` answers from now on, as another kernel does.
    pub fn set_info(&self, fs: usize, change: impl FnOnce(&mut FsInfo)) {
        change(&mut self.lock().state.systems[fs].spec.info);
    }

    /// Sets or clears chattr +i and +a of the object at `path`.
    pub fn set_flags(
        &self,
        fs: usize,
        path: &str,
        immutable: bool,
        append_only: bool,
    ) -> systx_os::Result<()> {
        let mut inner = self.lock();
        let id = inner.state.resolve(FsId(fs), path)?;
        let meta = inner.state.meta_mut(id);
        (meta.immutable, meta.append_only) = (immutable, append_only);
        inner.state.log(FsId(fs), &[(id, false)], Vec::new());
        Ok(())
    }

    /// Inode flags of the object at `path`, chattr +i and +a left aside.
    pub fn inode_flags(&self, fs: usize, path: &str) -> systx_os::Result<u32> {
        let inner = self.lock();
        let id = inner.state.resolve(FsId(fs), path)?;
        Ok(inner.state.inode(id).meta.flags)
    }

    /// Sets them.
    pub fn set_inode_flags(&self, fs: usize, path: &str, flags: u32) -> systx_os::Result<()> {
        let mut inner = self.lock();
        let id = inner.state.resolve(FsId(fs), path)?;
        inner.state.meta_mut(id).flags = flags;
        inner.state.log(FsId(fs), &[(id, false)], Vec::new());
        Ok(())
    }

    /// Takes away the key of a directory, or gives it back. (Names are not found; all else stays possible.)
    pub fn lock_names(&self, fs: usize, path: &str, locked: bool) {
        let mut inner = self.lock();
        let Ok(id) = inner.state.resolve(FsId(fs), path) else { unreachable!("{path} is a directory") };
        match locked {
            true => drop(inner.state.locked.insert(id)),
            false => drop(inner.state.locked.remove(&id)),
        }
    }

    /// Ends a process at once, from outside; its thread unwinds at its next call.
    pub fn kill(&self, process: ProcId) {
        let mut inner = self.lock();
        inner.state.end(process);
        inner.wake_dead();
    }

    /// Ends every process at once; the machine stays up.
    pub fn kill_everybody(&self) {
        let mut inner = self.lock();
        // But for the hand that plants trees and looks at them.
        (1..inner.state.processes.len()).for_each(|n| inner.state.end(ProcId(n as u32)));
        inner.wake_dead();
    }

    /// Returns true if a process lives.
    pub fn alive(&self, process: ProcId) -> bool {
        self.lock().state.process(process).alive
    }

    /// Cuts the power and boots again: all processes are dead, unsynced state survives as `crash` says.
    pub fn power_loss(&self, crash: Crash, rng: &mut fastrand::Rng) {
        let mut inner = self.lock();
        inner.state.power_loss(crash, rng);
        inner.wake_dead();
    }

    /// A file system loses what was not synced, as when its disk is pulled out or it is shut down after an
    /// error, and is mounted again in the same boot. No process that has it open survives that: all processes
    /// are dead.
    pub fn lose_cache(&self, fs: usize, crash: Crash, rng: &mut fastrand::Rng) {
        let mut inner = self.lock();
        inner.state.lose_cache(FsId(fs), crash, rng);
        inner.wake_dead();
    }

    /// A file system gets the state back that it had on an older machine of which this one is a fork, as a
    /// disk that is rolled back to a snapshot; it is mounted again. No process that has it open survives
    /// that: all processes are dead.
    pub fn roll_back(&self, fs: usize, older: &Machine) {
        let older = older.lock().state.clone();
        let mut inner = self.lock();
        inner.state.roll_back(FsId(fs), older);
        inner.wake_dead();
    }

    /// File system `to` becomes a copy of the device of `from`, mounted beside it, with the same identity and numbers.
    pub fn copy_over(&self, from: usize, to: usize) {
        let mut inner = self.lock();
        inner.state.copy_over(FsId(from), FsId(to));
        inner.wake_dead();
    }

    /// Everything is durable as it is, without any call.
    pub fn settle(&self) {
        let mut inner = self.lock();
        let ids: Vec<Id> = inner.state.inodes.keys().copied().collect();
        ids.into_iter().for_each(|id| inner.state.fold(id));
        for fs in (0..inner.state.systems.len()).map(FsId) {
            if !inner.state.systems[fs.0].forgets() {
                inner.state.settle(fs);
            }
        }
    }

    /// Virtual time since the machine was made, nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.lock().state.clock
    }

    /// Sets the wall clock so many seconds beside the time that passes: as settimeofday(2) does, for files'
    /// stamps, too.
    pub fn set_wall_clock(&self, offset_s: i64) {
        self.lock().state.wall_offset = offset_s;
    }

    /// From now on the monotonic clocks of processes differ by days, as in time namespaces of their own.
    pub fn use_time_namespaces(&self) {
        self.lock().state.time_namespaces = true;
    }

    /// A file system seems to have been mounted anew to every process that opens it from now on, as in a
    /// container with a boot id of its own.
    pub fn seem_mounted_anew(&self, fs: usize) {
        self.lock().state.systems[fs].spec.info.life += 1;
    }

    /// Lets virtual time pass.
    pub fn advance_ns(&self, ns: u64) {
        self.lock().state.tick(ns);
    }
}

impl State {
    /// Makes the root directory of a file system.
    fn new_root(&mut self, fs: FsId) -> Id {
        let root = self.new_inode(fs, FileType::Directory.mode_bits() | 0o755, 0, 0);
        self.meta_mut(root).nlink = if self.spec(fs).info.kind == FsKind::Btrfs { 1 } else { 2 };
        root
    }

    /// Commits everything; objects that are open but have no name stay.
    fn settle(&mut self, fs: FsId) {
        self.sync_all(fs);
        for inode in self.inodes.values_mut().filter(|i| i.fs == fs && i.data.dirty()) {
            Arc::make_mut(inode).data.settle();
        }
        self.systems[fs.0].dirty.clear();
    }
}
