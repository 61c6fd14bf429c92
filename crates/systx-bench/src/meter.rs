//! The kernel with a meter: counts every call of [`Os`], times those that sync, and marks where publication
//! begins and ends.
//!
//! Guarantees: every call goes through unchanged. Costs one relaxed addition a call.

use crate::measure::{cpu_us, monotonic_us};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use systx_os::{
    Dirent, Errno, Fallocate, FsInfo, Handle, Lease, Linux, Open, Os, Phase, Rename, Result, Seek, SetXattr,
    Stat, StatFs, Timestamp, Writing,
};

type Fd = <Linux as Os>::Fd;

/// [`Linux`], counted.
#[derive(Clone)]
pub struct Meter {
    os: Linux,
    read: Arc<Read>,
}

struct Read {
    counts: [AtomicU64; CALLS.len()],
    syncs: Mutex<Spent>,
    /// `None`: not asked for.
    marks: Mutex<Option<Vec<Mark>>>,
}

impl Read {
    fn zero() -> Read {
        let counts = [const { AtomicU64::new(0) }; CALLS.len()];
        Read { counts, syncs: Mutex::default(), marks: Mutex::default() }
    }
}

/// Time spent in calls that sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Wall clock, in microseconds.
    pub wall_us: f64,
    /// CPU of the caller.
    pub cpu_us: f64,
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// CPU time of the process, in microseconds.
    pub cpu_us: f64,
    /// CPU time in syncs so far.
    pub sync_cpu_us: f64,
}

impl Meter {
    /// A meter at zero.
    pub fn new() -> Meter {
        Meter { os: Linux::new(), read: Arc::new(Read::zero()) }
    }

    /// Sets counts and times to zero.
    pub fn reset(&self) {
        self.read.counts.iter().for_each(|n| n.store(0, Ordering::Relaxed));
        *self.read.syncs.lock().unwrap_or_else(PoisonError::into_inner) = Spent::default();
    }

    /// Calls of one name so far.
    pub fn count(&self, name: &str) -> u64 {
        let at = CALLS.iter().position(|call| *call == name);
        at.map_or(0, |at| self.read.counts[at].load(Ordering::Relaxed))
    }

    /// Flushes asked for: syncs of files and of file systems.
    pub fn flushes(&self) -> u64 {
        ["fsync", "fdatasync", "syncfs"].iter().map(|name| self.count(name)).sum()
    }

    /// All calls that were made, most frequent first.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let counts = self.read.counts.iter().map(|n| n.load(Ordering::Relaxed));
        let mut calls: Vec<_> = CALLS.iter().copied().zip(counts).filter(|(_, n)| *n > 0).collect();
        calls.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        calls
    }

    /// Time in syncs so far.
    pub fn spent(&self) -> Spent {
        *self.read.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moments marked since the last call; none before the first, which asks for them. A mark costs
    /// reading a clock.
    pub fn take_marks(&self) -> Vec<Mark> {
        let mut marks = self.read.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.replace(Vec::new()).unwrap_or_default()
    }

    /// This moment.
    pub fn now_mark(&self) -> Mark {
        Mark { cpu_us: cpu_us(), sync_cpu_us: self.spent().cpu_us }
    }

    fn counted(&self, call: Call) {
        self.read.counts[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn timed<T>(&self, call: Call, sync: impl FnOnce() -> T) -> T {
        self.counted(call);
        let (cpu, wall) = (cpu_us(), monotonic_us());
        let done = sync();
        let mut spent = self.read.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        spent.cpu_us += cpu_us() - cpu;
        spent.wall_us += monotonic_us() - wall;
        done
    }
}

/// Passes calls through; `syncs` are timed, `by_hand` are written out.
macro_rules! through {
    (
        calls { $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)* }
        syncs { $(fn $sync:ident($($sync_arg:ident: $sync_type:ty),*);)* }
        by_hand { $(fn $hand:ident;)* }
        $($rest:item)*
    ) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Call { $($name,)* $($sync,)* $($hand,)* }
        const CALLS: &[&str] = &[$(stringify!($name),)* $(stringify!($sync),)* $(stringify!($hand),)*];

        impl Os for Meter {
            type Fd = Fd;
            type Mem = <Linux as Os>::Mem;
            type Owned = <Linux as Os>::Owned;
            $(fn $name(&self, $($arg: $type),*) $(-> $out)? {
                self.counted(Call::$name);
                self.os.$name($($arg),*)
            })*
            $(fn $sync(&self, $($sync_arg: $sync_type),*) -> Result<()> {
                self.timed(Call::$sync, || self.os.$sync($($sync_arg),*))
            })*
            $($rest)*
        }
    };
}

through! {
    calls {
        fn open(dir: &Fd, name: &[u8], how: Open) -> Result<Fd>;
        fn reopen(fd: &Fd, how: Open) -> Result<Fd>;
        fn open_handle(mount: &Fd, handle: &Handle, how: Open) -> Result<Fd>;
        fn create(dir: &Fd, name: &[u8], mode: u32) -> Result<Fd>;
        fn tmpfile(dir: &Fd, mode: u32) -> Result<Fd>;
        fn dup(fd: &Fd) -> Result<Fd>;
        fn stat(fd: &Fd) -> Result<Stat>;
        fn stat_at(dir: &Fd, name: &[u8]) -> Result<Stat>;
        fn handle(fd: &Fd) -> Result<Handle>;
        fn made(fd: &Fd) -> Result<Option<Timestamp>>;
        fn reserved_at(fd: &Fd, offset: u64) -> Result<bool>;
        fn was_written_out(fd: &Fd) -> Result<bool>;
        fn read_dir(fd: &Fd) -> Result<Vec<Dirent>>;
        fn read_link(fd: &Fd) -> Result<Vec<u8>>;
        fn statfs(fd: &Fd) -> Result<StatFs>;
        fn may_change_names(dir: &Fd) -> Result<()>;
        fn project_passed_on(dir: &Fd) -> Result<Option<u32>>;
        fn set_project(dir: &Fd, name: &[u8], project: u32) -> Result<bool>;
        fn fs_info(scratch: &Fd) -> Result<FsInfo>;
        fn mkdir(dir: &Fd, name: &[u8], mode: u32) -> Result<()>;
        fn mknod(dir: &Fd, name: &[u8], mode: u32, rdev: u64) -> Result<()>;
        fn symlink(dir: &Fd, name: &[u8], target: &[u8]) -> Result<()>;
        fn link(fd: &Fd, dir: &Fd, name: &[u8]) -> Result<()>;
        fn unlink(dir: &Fd, name: &[u8]) -> Result<()>;
        fn rmdir(dir: &Fd, name: &[u8]) -> Result<()>;
        fn rename(from: (&Fd, &[u8]), to: (&Fd, &[u8]), mode: Rename) -> Result<()>;
        fn pread(fd: &Fd, buf: &mut [u8], offset: u64) -> Result<usize>;
        fn pwrite(fd: &Fd, buf: &[u8], offset: u64) -> Result<usize>;
        fn truncate(fd: &Fd, size: u64) -> Result<()>;
        fn fallocate(fd: &Fd, mode: Fallocate, offset: u64, len: u64) -> Result<()>;
        fn copy_range(from: &Fd, from_offset: u64, to: &Fd, to_offset: u64, len: u64) -> Result<u64>;
        fn compare_exchange(fd: &Fd, offset: u64, before: &[u8], after: &[u8]) -> Result<bool>;
        fn append(fd: &Fd, bytes: &[u8]) -> Result<(u64, usize)>;
        fn seek(fd: &Fd, offset: u64, to: Seek) -> Result<u64>;
        fn chmod(fd: &Fd, mode: u32) -> Result<()>;
        fn chown(fd: &Fd, uid: u32, gid: u32) -> Result<()>;
        fn utimens(fd: &Fd, atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Result<()>;
        fn getxattr(fd: &Fd, name: &[u8]) -> Result<Vec<u8>>;
        fn setxattr(fd: &Fd, name: &[u8], value: &[u8], mode: SetXattr) -> Result<()>;
        fn removexattr(fd: &Fd, name: &[u8]) -> Result<()>;
        fn listxattr(fd: &Fd) -> Result<Vec<Vec<u8>>>;
        fn lease(fd: &Fd, lease: Lease) -> Result<()>;
        fn lease_held(fd: &Fd) -> Result<Lease>;
        fn map(fd: &Fd, words: usize) -> Result<<Linux as Os>::Mem>;
        fn own_byte(owners: &Fd, byte: u64) -> Result<<Linux as Os>::Owned>;
        fn byte_owned(owners: &Fd, byte: u64) -> Result<bool>;
        fn boot_id() -> Result<[u8; 16]>;
        fn now() -> Timestamp;
        fn monotonic_ns() -> u64;
        fn random() -> u64;
        fn uid() -> u32;
        fn pid() -> u32;
        fn pause(ns: u64);
    }
    syncs {
        fn write_out(fd: &Fd, writing: Writing);
        fn fsync(fd: &Fd);
        fn fdatasync(fd: &Fd);
        fn syncfs(fd: &Fd);
    }
    by_hand {
        fn handle_at;
    }
    fn handle_at(&self, dir: &Fd, name: &[u8]) -> core::result::Result<Handle, Errno> {
        self.counted(Call::handle_at);
        self.os.handle_at(dir, name)
    }
    fn lineage(&self) -> u64 {
        self.os.lineage()
    }
    fn phase(&self, phase: Phase) {
        if matches!(phase, Phase::Decide | Phase::Withdrawn) {
            return;
        }
        if let Some(marks) = &mut *self.read.marks.lock().unwrap_or_else(PoisonError::into_inner) {
            marks.push(self.now_mark());
        }
    }
}
