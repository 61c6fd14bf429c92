//! Planned events at calls: kills, faults, hooks, the trace.
//!
//! Guarantees: the order at one point is: turn (schedule), count, trace, hook, kill, fault, effect. A kill at
//! point k therefore leaves exactly the effects of the calls before k.

use std::thread::ThreadId;

use systx_os::Errno;

use super::{Machine, ProcId};
use crate::machine::baton::Baton;

/// A call of the trait `Os`, or of `Words` on a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named as the methods of systx_os::Os and systx_os::Words")]
pub enum Call {
    Open,
    Reopen,
    OpenHandle,
    Create,
    Tmpfile,
    Dup,
    Stat,
    StatAt,
    Handle,
    HandleAt,
    ReadDir,
    ReadLink,
    StatFs,
    FsInfo,
    Mkdir,
    Mknod,
    Symlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Pread,
    Pwrite,
    Truncate,
    Fallocate,
    CopyRange,
    Seek,
    Chmod,
    Chown,
    Utimens,
    GetXattr,
    SetXattr,
    RemoveXattr,
    ListXattr,
    WriteOut,
    Fsync,
    Fdatasync,
    Syncfs,
    Lease,
    LeaseHeld,
    Map,
    OwnByte,
    ByteOwned,
    BootId,
    Still,
    Pause,
    Load,
    Store,
    CompareExchange,
    FetchOr,
    FetchAdd,
    Wait,
    Wake,
}

impl Call {
    /// Returns true if it is a call on shared words.
    pub fn is_word(self) -> bool {
        self >= Call::Load
    }
}

/// A call that is about to happen.
#[derive(Clone, Debug)]
pub struct PointInfo {
    /// Calling process.
    pub process: ProcId,
    /// Name of the process.
    pub process_name: String,
    /// Number of the call in its process, from 0.
    pub point: u64,
    /// Number of the call on the machine, from 0.
    pub global_point: u64,
    /// Which call.
    pub call: Call,
    /// The (first) name it is given, if any.
    pub name: Vec<u8>,
    /// Inode number behind the (first) descriptor, 0 if there is none.
    pub ino: u64,
    /// Index of the word, of a call on shared words.
    pub word: Option<usize>,
}

/// One line of a trace.
pub type Traced = PointInfo;

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call fails without effect; a sync that fails with `EIO` also makes the kernel forget what was dirty.
    Fail(Errno),
    /// A pwrite or copy_range handles at most so many bytes; other calls are not affected.
    Short(usize),
}

/// A planned fault: from the `skip`-th matching call on, `times` times.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Only calls of this process.
    pub process: Option<ProcId>,
    /// Only this call; `None` matches every call of `Os` (not of `Words`).
    pub call: Option<Call>,
    /// Matching calls to let pass first.
    pub skip: u64,
    /// Matching calls to hit then.
    pub times: u64,
    /// Effect on those calls.
    pub effect: Effect,
}

impl Fault {
    /// Fails the next `call` of any process with `errno`, once.
    pub fn fail(call: Call, errno: Errno) -> Fault {
        Fault { process: None, call: Some(call), skip: 0, times: 1, effect: Effect::Fail(errno) }
    }
}

type Hook = Box<dyn FnMut(&Machine, &PointInfo) + Send>;

/// Everything planned; not part of the machine's state.
pub(super) struct Control {
    pub(super) points: u64,
    /// Process (`None`: any) and the number of calls it may still make.
    pub(super) kills: Vec<(Option<ProcId>, u64)>,
    pub(super) faults: Vec<Fault>,
    pub(super) hook: Option<Hook>,
    /// Thread that is inside the hook: its calls are no points.
    pub(super) hooking: Option<ThreadId>,
    pub(super) word_points: bool,
    pub(super) trace: Option<Vec<Traced>>,
    pub(super) baton: Option<Baton>,
}

impl Default for Control {
    fn default() -> Control {
        Control {
            points: 0,
            kills: Vec::new(),
            faults: Vec::new(),
            hook: None,
            hooking: None,
            word_points: true,
            trace: None,
            baton: None,
        }
    }
}

impl Control {
    /// Counts down the kills that `process` is in for; whether it dies now.
    pub(super) fn dies(&mut self, process: ProcId) -> bool {
        let mut dies = false;
        self.kills.retain_mut(|(whom, left)| {
            if whom.is_some_and(|w| w != process) {
                return true;
            }
            if *left == 0 {
                dies = true;
                return false;
            }
            *left -= 1;
            true
        });
        dies
    }

    /// Counts down the faults that match; the effect of the first that is due.
    pub(super) fn fault(&mut self, process: ProcId, call: Call) -> Option<Effect> {
        let mut due = None;
        self.faults.retain_mut(|fault| {
            let matches = fault.process.is_none_or(|p| p == process)
                && fault.call.map_or(!call.is_word(), |c| c == call);
            if !matches {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            if fault.times == 0 {
                return false;
            }
            fault.times -= 1;
            due = due.or(Some(fault.effect));
            fault.times > 0
        });
        due
    }
}

impl Machine {
    /// Kills the process that makes the `point`-th call from now.
    pub fn kill_anybody_at(&self, point: u64) {
        self.lock().control.kills.push((None, point));
    }

    /// Plans a fault.
    pub fn fault(&self, fault: Fault) {
        self.lock().control.faults.push(fault);
    }

    /// Forgets all planned kills and faults.
    pub fn clear_plans(&self) {
        let control = &mut self.lock().control;
        control.kills.clear();
        control.faults.clear();
    }

    /// Runs `hook` before every call; what it does itself is no point.
    pub fn set_hook(&self, hook: impl FnMut(&Machine, &PointInfo) + Send + 'static) {
        self.lock().control.hook = Some(Box::new(hook));
    }

    /// Removes the hook (not from within itself: there it stays).
    pub fn clear_hook(&self) {
        let hook = self.lock().control.hook.take();
        drop(hook);
    }

    /// Sets if calls on shared words are points (they are at first). Without them a schedule can't leave a
    /// process that spins on a word.
    pub fn set_word_points(&self, points: bool) {
        self.lock().control.word_points = points;
    }

    /// Records every call from now on.
    pub fn start_trace(&self) {
        self.lock().control.trace = Some(Vec::new());
    }

    /// The calls recorded so far; recording ends.
    pub fn take_trace(&self) -> Vec<Traced> {
        self.lock().control.trace.take().unwrap_or_default()
    }

    /// Number of calls so far.
    pub fn points(&self) -> u64 {
        self.lock().control.points
    }
}
