//! Names and directories of a file system, as a process knows them beyond its transactions.
//!
//! Owns: the handles that names had, open directories, and which files had no capability. Guarantees: nothing here is a fact. A name is looked at in
//! each transaction; where its object has not changed since (docs/protocol.md, R3) the handle needs no call of its own.
//! An open directory is the object that its handle says. Does not: keep files open, as others could get no lease on
//! them then; keep more than was asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use systx_os::{Handle, Os, Result, Stat, Timestamp};

/// Objects of the area that a process looks at again.
pub(crate) const SEEN: usize = 4;

/// The area when it was last looked at: an answer, valid as long as neither it nor its log has changed.
#[derive(Default)]
pub(crate) struct Seen {
    /// Change times of the area and of `log`, if that is there.
    pub changed: Option<(Timestamp, Option<Timestamp>)>,
    /// Inode numbers of what this process uses.
    pub names: [u64; SEEN],
}

/// Most names, and most directories that are kept open: for a process with one transaction, none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Names.
    pub names: usize,
    /// Open directories.
    pub open: usize,
}

/// Names and directories of one domain that are remembered.
pub(crate) struct Remembered<O: Os> {
    state: Mutex<State<O>>,
    root: OnceLock<Handle>,
}

/// Names and directories of one domain that are remembered.
type Names = HashMap<Arc<[u8]>, (Handle, Stat)>;

struct State<O: Os> {
    most: Most,
    /// By directory.
    names: HashMap<Handle, Names>,
    /// How many they are.
    count: usize,
    open: HashMap<Handle, Arc<O::Fd>>,
    /// Files that had no capability at a change time.
    incapable: HashMap<Handle, Timestamp>,
}

impl<O: Os> Default for Remembered<O> {
    fn default() -> Remembered<O> {
        let (names, open, incapable) = (HashMap::new(), HashMap::new(), HashMap::new());
        let state = Mutex::new(State { most: Most::default(), names, count: 0, open, incapable });
        Remembered { state, root: OnceLock::new() }
    }
}

impl<O: Os> Remembered<O> {
    fn state(&self) -> MutexGuard<'_, State<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how much is remembered.
    pub fn set_most(&self, most: Most) {
        self.state().most = most;
    }

    /// The handle of the root, which is open as long as the domain.
    pub fn root(&self, ask: impl FnOnce() -> Result<Handle>) -> Result<Handle> {
        match self.root.get() {
            Some(handle) => Ok(*handle),
            None => ask().map(|handle| *self.root.get_or_init(|| handle)),
        }
    }

    /// Returns true if names are worth remembering.
    pub fn takes_names(&self) -> bool {
        self.state().most.names > 0
    }

    /// The object that a name of a directory had, and its attributes then.
    pub fn name(&self, dir: &Handle, name: &[u8]) -> Option<(Handle, Stat)> {
        self.state().names.get(dir)?.get(name).copied()
    }

    /// Remembers the object of a name. One too many, and all others are forgotten: they are asked for again.
    pub fn set_name(&self, dir: &Handle, name: &Arc<[u8]>, object: (Handle, Stat)) {
        let state = &mut *self.state();
        if state.count >= state.most.names {
            state.names.clear();
            state.count = 0;
        }
        if state.names.entry(*dir).or_default().insert(name.clone(), object).is_none() {
            state.count += 1;
        }
    }

    /// Returns true if a file with this change time is known to have no capability.
    pub fn is_incapable(&self, file: &Handle, ctime: Timestamp) -> bool {
        self.state().incapable.get(file) == Some(&ctime)
    }

    /// Remembers that a file has none.
    pub fn set_incapable(&self, file: &Handle, ctime: Timestamp) {
        let state = &mut *self.state();
        if state.incapable.len() >= state.most.names {
            state.incapable.clear();
        }
        if state.most.names > 0 {
            state.incapable.insert(*file, ctime);
        }
    }

    /// A directory that is open.
    pub fn dir(&self, handle: &Handle) -> Option<Arc<O::Fd>> {
        self.state().open.get(handle).cloned()
    }

    /// Keeps a directory open. One too many, and all others are let go.
    pub fn set_dir(&self, handle: &Handle, fd: &Arc<O::Fd>) {
        let mut state = self.state();
        if state.most.open == 0 {
            return;
        }
        let full = state.open.len() >= state.most.open;
        let gone = if full { std::mem::take(&mut state.open) } else { HashMap::new() };
        state.open.insert(*handle, fd.clone());
        drop(state);
        // Closed without the lock.
        drop(gone);
    }
}
