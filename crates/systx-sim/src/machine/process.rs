//! A simulated process: its descriptors, its death, and the point before each of its calls.
//!
//! Guarantees: a killed process unwinds from its next call with [`Killed`] (no panic message), and calls that its
//! destructors make then have no effect and return `EIO`; whatever it held is released at the kill, not at the
//! unwinding. Does not: unwind a thread that is panicking already.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::MutexGuard;
use std::thread;

use systx_os::{Errno, Open, Result};

use super::plan::{Call, Effect, Fault, PointInfo};
use super::state::{FileId, State};
use super::{FsId, Inner, Machine, ProcId};
use crate::machine::meta::Id;

/// Virtual time that a call takes.
const CALL_NS: u64 = 1000;

/// Panic payload with which a killed process unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed(pub ProcId);

/// One process of a simulated machine; clones are the same process.
#[derive(Clone)]
pub struct SimOs {
    pub(super) machine: Machine,
    pub(super) process: ProcId,
    pub(super) quiet: bool,
}

/// A descriptor of a simulated process.
pub struct SimFd {
    pub(super) machine: Machine,
    pub(super) file: FileId,
}

impl Drop for SimFd {
    fn drop(&mut self) {
        self.machine.lock().state.close(self.file);
    }
}

/// Why a call does not take place.
pub(super) enum Stop {
    Fail(Errno),
    Dead,
}

/// A call that takes place: the machine, locked, and the most bytes it may handle.
pub(super) struct Entered<'a> {
    pub(super) inner: MutexGuard<'a, Inner>,
    pub(super) short: usize,
}

/// Runs `body` as `os`; `Err` when the process was killed in it. Panics pass through.
pub fn run_process<T>(os: &SimOs, body: impl FnOnce() -> T) -> core::result::Result<T, Killed> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| match payload.downcast::<Killed>() {
        Ok(killed) => {
            os.machine.lock().state.process_mut(os.process).buried = true;
            *killed
        }
        Err(panic) => resume_unwind(panic),
    })
}

impl Fault {
    /// Fails the `skip`-th call from now of `os`, whatever it is, once.
    pub fn fail_point(os: &SimOs, skip: u64, errno: Errno) -> Fault {
        Fault { process: Some(os.process()), call: None, skip, times: 1, effect: Effect::Fail(errno) }
    }
}

impl Machine {
    /// Kills `os` at its `point`-th call from now (0 is the next one).
    pub fn kill_at(&self, os: &SimOs, point: u64) {
        self.lock().control.kills.push((Some(os.process()), point));
    }
}

impl SimOs {
    /// Identity of this process.
    pub fn process(&self) -> ProcId {
        self.process
    }

    /// The machine it runs on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Number of calls it has made.
    pub fn points(&self) -> u64 {
        self.machine.lock().state.process(self.process).points
    }

    /// The root directory of file system `fs`; no point.
    pub fn root(&self, fs: usize) -> SimFd {
        let mut inner = self.machine.lock();
        let root = inner.state.systems[fs].root;
        self.fd(inner.state.describe(self.process, root, true, false))
    }

    /// Opens a path of several components on file system `fs`; no point.
    pub fn open_path(&self, fs: usize, path: &str, how: Open) -> Result<SimFd> {
        let mut inner = self.machine.lock();
        let id = inner.state.resolve(FsId(fs), path)?;
        inner.state.open(self.process, id, how).map(|file| self.fd(file))
    }

    /// Goes on with a write(2) that has begun: bytes change, and no time; no point.
    pub fn write_on(&self, fd: &SimFd, bytes: &[u8], offset: u64) -> Result<()> {
        self.machine.lock().state.write_on(fd.file, bytes, offset)
    }

    /// Ends the process as exit(2) does.
    pub fn exit(self) {
        let mut inner = self.machine.lock();
        inner.state.end(self.process);
        inner.state.process_mut(self.process).buried = true;
    }

    pub(super) fn fd(&self, file: FileId) -> SimFd {
        SimFd { machine: self.machine.clone(), file }
    }

    /// The point before a call; returns with the machine locked when the call may take place.
    pub(super) fn enter(
        &self,
        call: Call,
        name: &[u8],
        file: Option<FileId>,
    ) -> core::result::Result<Entered<'_>, Stop> {
        self.enter_at(self.machine.lock(), call, name, file, None)
    }

    /// Like `enter`, before a call on a shared word.
    pub(super) fn enter_word(&self, call: Call, word: usize) -> core::result::Result<Entered<'_>, Stop> {
        let mut inner = self.machine.lock();
        if self.pass(&mut inner, call) {
            return Ok(Entered { inner, short: usize::MAX });
        }
        self.enter_at(inner, call, b"", None, Some(word))
    }

    /// Passes the point of a call on a shared word, if nothing can happen at it; whether it did.
    fn pass(&self, inner: &mut Inner, call: Call) -> bool {
        if !inner.control.word_points || self.is_silent(inner) {
            // It is none.
            return inner.state.process(self.process).alive;
        }
        let Inner { state, control } = inner;
        let hooked = control.hook.is_some() || control.hooking.is_some();
        let noticed = hooked || control.baton.is_some() || control.trace.is_some();
        let fails = control.faults.iter().any(|fault| fault.call == Some(call));
        let mine = |whom: Option<ProcId>| whom.is_none_or(|whom| whom == self.process);
        let dies = control.kills.iter().any(|(whom, left)| mine(*whom) && *left == 0);
        if noticed || fails || dies || !state.process(self.process).alive {
            return false;
        }
        control.kills.iter_mut().filter(|(whom, _)| mine(*whom)).for_each(|(_, left)| *left -= 1);
        control.points += 1;
        state.process_mut(self.process).points += 1;
        state.tick(CALL_NS);
        true
    }

    fn enter_at<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        call: Call,
        name: &[u8],
        file: Option<FileId>,
        word: Option<usize>,
    ) -> core::result::Result<Entered<'a>, Stop> {
        if self.is_silent(&inner) || (call.is_word() && !inner.control.word_points) {
            return self.living(inner);
        }
        if inner.state.process(self.process).alive {
            inner.state.tick(CALL_NS);
            inner = self.machine.take_turn(inner);
        }
        inner = self.living(inner)?.inner;
        let info = self.count(&mut inner, (call, word), name, file);
        if let Some((mut hook, info)) = inner.control.hook.take().zip(info) {
            inner.control.hooking = Some(thread::current().id());
            drop(inner);
            hook(&self.machine, &info);
            inner = self.machine.lock();
            inner.control.hooking = None;
            inner.control.hook.get_or_insert(hook);
        }
        if inner.control.dies(self.process) && !thread::panicking() {
            inner.state.end(self.process);
            inner.wake_dead();
        }
        inner = self.living(inner)?.inner;
        match inner.control.fault(self.process, call) {
            Some(Effect::Fail(errno)) => {
                inner.state.sync_failed(call, file, errno);
                Err(Stop::Fail(errno))
            }
            Some(Effect::Short(short)) => Ok(Entered { inner, short: short.max(1) }),
            None => Ok(Entered { inner, short: usize::MAX }),
        }
    }

    /// Whether the calls of this thread are no points now.
    fn is_silent(&self, inner: &Inner) -> bool {
        self.quiet || inner.control.hooking.is_some_and(|hooking| hooking == thread::current().id())
    }

    /// Counts a call; says what it is if anybody wants to know.
    fn count(
        &self,
        inner: &mut Inner,
        (call, word): (Call, Option<usize>),
        name: &[u8],
        file: Option<FileId>,
    ) -> Option<PointInfo> {
        let process = inner.state.process_mut(self.process);
        let (point, global_point) = (process.points, inner.control.points);
        process.points += 1;
        inner.control.points += 1;
        if inner.control.hook.is_none() && inner.control.trace.is_none() {
            return None;
        }
        let ino = file.and_then(|f| inner.state.file(f).ok().map(|f| inner.state.inode(f.id).meta.ino));
        let info = PointInfo {
            process: self.process,
            process_name: inner.state.process(self.process).name.clone(),
            point,
            global_point,
            call,
            name: name.to_vec(),
            ino: ino.unwrap_or(0),
            word,
        };
        if let Some(trace) = &mut inner.control.trace {
            trace.push(info.clone());
        }
        Some(info)
    }

    /// Goes on if the process lives; else unwinds, or, where that was done or can't be, stops.
    pub(super) fn living<'a>(&self, inner: MutexGuard<'a, Inner>) -> core::result::Result<Entered<'a>, Stop> {
        let process = inner.state.process(self.process);
        if process.alive {
            return Ok(Entered { inner, short: usize::MAX });
        }
        let unwind = !process.buried && !thread::panicking();
        drop(inner);
        if unwind {
            resume_unwind(Box::new(Killed(self.process)));
        }
        Err(Stop::Dead)
    }

    /// One call: the point, then its effect.
    pub(super) fn call<R>(
        &self,
        call: Call,
        name: &[u8],
        file: Option<FileId>,
        effect: impl FnOnce(&mut State, usize) -> Result<R>,
    ) -> Result<R> {
        match self.enter(call, name, file) {
            Ok(mut entered) => effect(&mut entered.inner.state, entered.short),
            Err(Stop::Fail(errno)) => Err(errno),
            Err(Stop::Dead) => Err(Errno::IO),
        }
    }

    /// A sync: what is there when it begins reaches the disk, and others may act before it returns.
    pub(super) fn sync_call(
        &self,
        call: Call,
        file: FileId,
        effect: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        let done = self.call(call, b"", Some(file), |s, _| effect(s));
        let inner = self.machine.lock();
        if !self.is_silent(&inner) && inner.state.process(self.process).alive {
            drop(self.machine.take_turn(inner));
        }
        done
    }
}

impl State {
    /// The object at a path below the root of `fs`, across mounts.
    pub(super) fn resolve(&self, fs: FsId, path: &str) -> Result<Id> {
        let mut id = self.systems[fs.0].root;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            if !self.inode(id).is_dir() {
                return Err(Errno::NOTDIR);
            }
            id = self.lookup_across(id, name.as_bytes())?;
        }
        Ok(id)
    }

    /// A sync that fails: the kernel reports it once to each descriptor and calls the pages clean.
    fn sync_failed(&mut self, call: Call, file: Option<FileId>, errno: Errno) {
        let Some(file) = file.filter(|_| !matches!(errno, Errno::BADF | Errno::INTR | Errno::INVAL)) else {
            return;
        };
        let Ok(id) = self.syncable(file) else { return };
        let fs = self.inode(id).fs;
        match call {
            Call::Fsync | Call::Fdatasync | Call::WriteOut => self.lose(id),
            Call::Syncfs => self.lose_all(fs),
            _ => return,
        }
        self.systems[fs.0].write_errors += 1;
        if call == Call::Syncfs {
            let _ = self.write_error_of(file, fs);
        }
    }
}
