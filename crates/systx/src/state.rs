//! A transaction of the library, behind its lock.
//!
//! Owns: [`State`], the join of an engine's transaction with the file systems that it has touched, and the
//! translation of its errors. Guarantees: once the engine finds that a transaction can't commit, each later
//! call says so. Does not: know paths (`walk`) or what a call answers (`calls`).

use crate::actions::{Actions, Ending};
use crate::error::Error;
use crate::handles::{Birth, Handles};
use crate::kernel::Kernel;
use crate::known_paths::Alone;
use crate::mutant::{self, Mutant};
use crate::options::{Options, Policy, Unsupported};
use crate::order::Turn;
use crate::participants::Participants;
use crate::place::Place;
use crate::served::Open;
use crate::shared::Shared;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use systx_engine::contention::{self, Age};
use systx_engine::id::Objects;
use systx_engine::outcome::{Isolation, Verb, VerbError};
use systx_engine::shown::Shown;
use systx_engine::transaction::{Attr, Grain, Node, Transaction};
use systx_os::caller::Caller;
use systx_os::guest::GuestFd;
use systx_os::outside::{self, Outside};
use systx_os::{Errno, Linux};
use systx_places::path::join;
use systx_places::site::{Site, Table};

/// The engine's transaction with its way into the file systems.
pub(crate) struct State {
    pub engine: Transaction<Kernel>,
    /// The mounts that it serves, in the engine's order.
    pub mounts: Vec<Open>,
    /// Directories that a walk has entered from outside: device, inode and mount to where they are.
    pub entered: HashMap<(u64, u64, u64), Place>,
    /// The node at which a mount of the process begins.
    pub tops: HashMap<u64, Node>,
    pub unsupported: Unsupported,
    /// Calls that were made outside.
    pub allowed: Vec<String>,
    /// The umask as of the first new object.
    umask: Option<u32>,
    /// Open files that it does not serve: they are closed with it, whatever handles there are.
    pub outside: Vec<(Birth, Arc<std::fs::File>)>,
    pub handles: Handles,
    /// Descriptors of the program whose offsets move when it commits.
    pub carried: Vec<Carried>,
    /// The place among ordered transactions.
    pub turn: Option<Turn>,
    pub participants: Participants,
    /// Until it is resumed no call is made in it.
    pub is_paused: bool,
    /// Its work can do nothing before something changes that was read.
    pub waits_for_change: bool,
    /// All that it has seen, as long as that is one look at one path.
    pub alone: Option<Alone>,
    /// The calls that only read on, as one.
    pub reads: u64,
    /// Why it can only end.
    pub doomed: Option<Error>,
    /// A try that loses has priority over younger transactions in the next one.
    pub keeps_age: bool,
    /// The longest that the next try waits before it begins, in nanoseconds.
    pub stall_ns: u64,
}

impl State {
    /// Begins it.
    fn begin(
        shared: &Shared,
        options: &Options,
        again: Option<Box<Again>>,
        then: Then,
    ) -> io::Result<Box<State>> {
        // One that is to touch nothing yet asks for no user.
        if again.is_some() || options.sequence.is_some() {
            shared.is_ours()?;
        } else if shared.is_forked() {
            return Err(Error::Forked.into());
        }
        let Again { mounts, age, stall, turn } = again.map_or_else(Again::default, |again| *again);
        // The place of another number is given up: it is not this transaction's.
        let kept = turn.filter(|turn| options.sequence.is_some_and(|sequence| turn.has(sequence.number)));
        let turn = match (kept, options.sequence) {
            (None, Some(sequence)) => {
                Some(shared.order()?.claim(sequence, options.stall_ordered()).map_err(Error::Order)?)
            }
            (kept, _) => kept,
        };
        // One that waits for its turn with priority would keep out those that it waits for.
        let keeps_age = options.policy != Policy::FirstCommitter && turn.is_none();
        let domains: Vec<_> = mounts.iter().map(|open| open.domain.clone()).collect();
        if let (Some(age), Some((objects, longest_ns))) = (&age, &stall) {
            contention::stall(&domains, age, objects, *longest_ns);
        }
        let engine = Transaction::begin(shared.os.clone(), domains, options.of_engine());
        let mut engine = engine.map_err(|error| io::Error::from(Fault::from(error)))?;
        if let Some(age) = age {
            engine.inherit(&age);
        }
        if then == Then::Again && keeps_age {
            // From here on the time counts for which the next try has priority.
            engine.will_be_tried_again();
        }
        engine.look_by(Grain::Pages);
        Ok(Box::new(State {
            engine,
            mounts,
            entered: HashMap::new(),
            tops: HashMap::new(),
            unsupported: options.unsupported,
            allowed: Vec::new(),
            umask: None,
            outside: Vec::new(),
            handles: Handles::default(),
            carried: Vec::new(),
            turn,
            participants: Participants::default(),
            is_paused: false,
            waits_for_change: false,
            alone: None,
            reads: 0,
            doomed: None,
            keeps_age,
            stall_ns: options.stall_ns(),
        }))
    }

    /// Closes what a part has opened that is undone.
    pub fn close_undone(&mut self) {
        let handles = &self.handles;
        self.outside.retain(|(birth, _)| handles.is_alive(*birth));
        self.carried.retain(|carried| handles.is_alive(carried.birth));
    }

    /// Ends a savepoint in a way, if it has not ended with one around it.
    pub fn ends_savepoint(
        &mut self,
        savepoint: u64,
        end: impl FnOnce(&mut Transaction<Kernel>, u64) -> Verb<()>,
    ) -> Answer<()> {
        match end(&mut self.engine, savepoint) {
            Err(VerbError::Os(Errno::INVAL)) => Err(Fault::Handle),
            ended => Ok(ended?),
        }
    }
}

/// A descriptor of the program, and the offset of the handle that stands for it in the transaction.
pub(crate) struct Carried {
    pub birth: Birth,
    pub fd: GuestFd<Linux>,
    pub offset: Arc<Mutex<u64>>,
}

/// The life of a transaction.
pub(crate) enum Stage {
    /// No call was made in it: there is nothing to end. The sequel is that of a try that loses.
    Begun(Options, Then),
    Open(Box<State>),
    Ended,
}

impl Stage {
    fn open(&mut self) -> Option<&mut State> {
        match self {
            Stage::Open(state) => Some(state),
            Stage::Begun(..) | Stage::Ended => None,
        }
    }

    fn take(&mut self) -> Stage {
        std::mem::replace(self, Stage::Ended)
    }
}

/// A transaction as its handles share it.
pub(crate) struct Tx {
    pub shared: Arc<Shared>,
    stage: Mutex<Stage>,
    /// What the program does behind its end. Apart from the state, which a panic of ours can take along.
    actions: Mutex<Actions>,
}

/// The mounts and the age that the next try of a transaction takes over.
#[derive(Default)]
pub(crate) struct Again {
    pub mounts: Vec<Open>,
    /// `None`: it does not compete by age.
    pub age: Option<Age>,
    /// The files that it has met, on each mount, and how long the next try waits for a better one that has.
    pub stall: Option<(Vec<Objects>, u64)>,
    pub turn: Option<Turn>,
}

/// The sequel of a try that loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Another try: for a while no younger transaction commits what would make it lose.
    Again,
    /// Nothing.
    Over,
}

impl Then {
    pub fn again(self, state: &mut State) -> Option<Box<Again>> {
        (self == Then::Again).then(|| {
            Box::new(Again {
                age: state.keeps_age.then(|| state.engine.will_be_tried_again()),
                stall: (state.stall_ns > 0).then(|| (state.engine.files(), state.stall_ns)),
                mounts: state.mounts.clone(),
                turn: state.turn.take(),
            })
        })
    }
}

/// An error of a call: the kernel's answer, or the transaction's end.
pub(crate) enum Fault {
    Os(Errno),
    Ends(Error),
    /// The handle is of a part that has ended.
    Handle,
}

pub(crate) type Answer<T> = Result<T, Fault>;

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Os(errno)
    }
}

impl From<VerbError> for Fault {
    fn from(error: VerbError) -> Fault {
        match error {
            VerbError::Os(errno) => Fault::Os(errno),
            VerbError::Doomed(conflict) => Fault::Ends(Error::conflict(conflict)),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Os(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault {
            Fault::Os(errno) => errno.into(),
            Fault::Ends(error) => error.into(),
            Fault::Handle => Error::Ended.into(),
        }
    }
}

impl Tx {
    /// Begins it; a further try serves what the one before has touched, in the same order.
    pub fn begin(
        shared: Arc<Shared>,
        options: &Options,
        again: Option<Box<Again>>,
        then: Then,
    ) -> io::Result<Arc<Tx>> {
        // The other two have something now: a place before others, and the nice value of this thread.
        let has_nothing = again.is_none() && options.sequence.is_none() && options.policy != Policy::Priority;
        let stage = if has_nothing && !shared.is_forked() {
            Stage::Begun(options.clone(), then)
        } else {
            Stage::Open(State::begin(&shared, options, again, then)?)
        };
        Ok(Arc::new(Tx { shared, stage: Mutex::new(stage), actions: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        let mut stage = match self.stage.lock() {
            Ok(stage) => return stage,
            Err(poisoned) => poisoned.into_inner(),
        };
        // A bug of ours has panicked under the lock. What it left in memory is not trusted, not even to
        // delete anything: the area's next user does.
        std::mem::forget(stage.take());
        self.stage.clear_poison();
        stage
    }
    /// One call, behind what was only looked at.
    pub fn call<T>(&self, call: impl FnOnce(&mut Calling<'_>) -> Answer<T>) -> io::Result<T> {
        self.first_call(|calling| {
            calling.settle()?;
            call(calling)
        })
    }

    /// One call: checks that it may be made, makes it, and remembers if it has doomed the transaction.
    pub fn first_call<T>(&self, call: impl FnOnce(&mut Calling<'_>) -> Answer<T>) -> io::Result<T> {
        self.shared.is_ours()?;
        let mut stage = self.lock();
        if let Stage::Begun(options, then) = &*stage {
            *stage = Stage::Open(State::begin(&self.shared, options, None, *then)?);
        }
        let Some(state) = stage.open() else { return Err(Error::Ended.into()) };
        if state.is_paused && !mutant::on(Mutant::PausedGoesOn) {
            return Err(Error::Paused.into());
        }
        state.participants.join();
        if let Some(doomed) = &state.doomed {
            return Err(doomed.clone().into());
        }
        let in_call = Kernel::in_call();
        let (lent, caller, table) = (Vec::new(), None, None);
        let mut calling = Calling { shared: &self.shared, state, caller, table, links: 0, lent };
        let answer = call(&mut calling);
        for node in std::mem::take(&mut calling.lent) {
            calling.state.engine.forget_node(node, 1);
        }
        drop(in_call);
        if let Err(Fault::Ends(error)) = &answer {
            state.doomed = Some(error.clone());
            self.shared.settle_after(error);
        }
        answer.map_err(io::Error::from)
    }

    /// Reads on in an open file, where that takes nothing but the kernel's read; `None`: a call has to be made. As with
    /// read(2), no rights are asked for.
    pub fn read_on(&self, birth: Birth, node: Node, buf: &mut [u8], offset: u64) -> Option<usize> {
        if self.shared.is_forked() {
            return None;
        }
        let mut stage = self.lock();
        let state = stage.open()?;
        let goes_on = !state.is_paused && state.doomed.is_none() && state.alone.is_none();
        if !goes_on || !state.handles.is_alive(birth) {
            return None;
        }
        state.participants.join();
        let _in_call = Kernel::in_call_of(&mut state.reads);
        state.engine.read_on(node, buf, offset)
    }

    /// One call on a handle.
    pub fn call_on<T>(
        &self,
        birth: Birth,
        call: impl FnOnce(&mut Calling<'_>) -> Answer<T>,
    ) -> io::Result<T> {
        self.call(|calling| calling.alive(birth).and_then(call))
    }

    /// Checks that a call on a handle may be made now: for one that the kernel answers, and that may wait.
    pub fn goes_on(&self, birth: Birth) -> io::Result<()> {
        self.call_on(birth, |_| Ok(()))
    }

    /// Takes it out to end it.
    pub fn take(&self) -> Result<Stage, Error> {
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        let mut stage = self.lock();
        // One that has touched nothing needs no rights for its end.
        if stage.open().is_some_and(|state| !state.mounts.is_empty() || state.alone.is_some()) {
            self.shared.is_ours()?;
        }
        Ok(stage.take())
    }

    /// The same of one in which a call was made, and that has not ended.
    pub fn take_open(&self) -> Option<Box<State>> {
        match self.take() {
            Ok(Stage::Open(state)) => Some(state),
            _ => None,
        }
    }

    /// The actions. Only for a moment: no other lock is taken meanwhile.
    pub fn actions(&self) -> MutexGuard<'_, Actions> {
        // It is pushed to and taken as a whole.
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the actions of its end, once. The state has been taken out and is gone.
    pub fn run_actions(&self, ending: Ending) {
        let actions = std::mem::take(&mut *self.actions());
        actions.run(ending);
    }

    /// Looks at the state, if a call was made in it and it has not ended.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.lock().open().map(look)
    }

    /// Closes such a file, whose handle is gone.
    pub fn close_outside(&self, file: &Weak<std::fs::File>) {
        if !self.shared.is_forked() {
            if let Some(state) = self.lock().open() {
                state.outside.retain(|(_, kept)| Arc::as_ptr(kept) != file.as_ptr());
            }
        }
    }

    /// The conflict that has doomed it.
    pub fn conflict(&self) -> Option<Error> {
        if self.shared.is_forked() {
            return None;
        }
        let doomed = self.lock().open().and_then(|state| state.doomed.clone());
        doomed.filter(Error::is_conflict)
    }

    /// Gives up a handle's open file. A transaction that has ended has none.
    pub fn close(&self, node: Node) {
        if !self.shared.is_forked() {
            let _in_call = Kernel::in_call();
            if let Some(state) = self.lock().open() {
                state.engine.close(node);
            }
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        // Without the lock, which in a child a thread may hold that is the parent's alone.
        let stage = match self.stage.get_mut() {
            Ok(stage) => stage.take(),
            Err(poisoned) => return std::mem::forget(poisoned.into_inner().take()),
        };
        let Stage::Open(state) = stage else { return };
        // In a child this changes nothing: what is staged is the parent's, which may go on.
        state.engine.abort();
        if !self.shared.is_forked() || mutant::on(Mutant::ActionsInChild) {
            self.run_actions(Ending::Aborted);
        }
    }
}

/// A directory that a handle stands for.
pub(crate) struct Kept {
    tx: Arc<Tx>,
    node: Node,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.tx.shared.is_ours().is_ok() {
            if let Some(state) = self.tx.lock().open() {
                state.engine.forget_node(self.node, 1);
            }
        }
    }
}

/// One call in progress.
pub(crate) struct Calling<'a> {
    pub shared: &'a Shared,
    pub state: &'a mut State,
    /// The thread, once its groups and capabilities were asked for; its user is `shared.uid`.
    caller: Option<Arc<Caller>>,
    /// The mounts, as of the first question in this call.
    table: Option<Arc<Table>>,
    /// Symbolic links that its present walk has followed.
    pub links: u32,
    /// Nodes that it holds, of a transaction that otherwise lets go of what it does not change.
    lent: Vec<Node>,
}

impl Calling<'_> {
    /// Checks that a handle may still be used.
    pub fn alive(&mut self, birth: Birth) -> Answer<&mut Self> {
        if self.state.handles.is_alive(birth) {
            Ok(self)
        } else {
            Err(Fault::Handle)
        }
    }

    /// Keeps a file that is not served open until the transaction's end.
    pub fn keep_outside(&mut self, file: std::fs::File) -> Weak<std::fs::File> {
        let file = Arc::new(file);
        let handle = Arc::downgrade(&file);
        self.state.outside.push((self.state.handles.birth(), file));
        handle
    }

    /// Looks up a name, whose node stays to the end of this call.
    pub fn lookup(&mut self, dir: Node, name: &[u8]) -> Answer<Option<(Node, Attr)>> {
        let found = self.state.engine.lookup(dir, name)?;
        if let Some((node, _)) = found {
            self.lend(node);
        }
        Ok(found)
    }

    /// Makes a call that shows size or times of the files that it looks at, so that they are facts at once.
    pub fn by_files<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.state.engine.look_by(Grain::Files);
        let answer = call(self);
        self.state.engine.look_by(Grain::Pages);
        answer
    }

    fn lend(&mut self, node: Node) {
        if self.state.engine.options().isolation == Isolation::Committed {
            self.state.engine.told(node);
            self.lent.push(node);
        }
    }

    /// Has a place stay a place as long as the result lives.
    pub fn keep(&mut self, tx: &Arc<Tx>, place: &Place) -> Option<Arc<Kept>> {
        let Place::Inside { node, .. } = place else { return None };
        let keeps = self.state.engine.options().isolation == Isolation::Committed;
        keeps.then(|| {
            self.state.engine.told(*node);
            Arc::new(Kept { tx: tx.clone(), node: *node })
        })
    }

    /// Has a place stay a place to the transaction's end.
    pub fn keep_for_good(&mut self, node: Node) {
        if self.state.engine.options().isolation == Isolation::Committed {
            self.state.engine.told(node);
        }
    }

    /// The calling thread.
    pub fn caller(&mut self) -> Answer<Arc<Caller>> {
        match &self.caller {
            Some(caller) => Ok(caller.clone()),
            None => {
                let mut caller = Caller::now()?;
                if mutant::on(Mutant::JudgedAsRoot) {
                    (caller.uid, caller.capabilities) = (0, u64::MAX);
                }
                Ok(self.caller.insert(Arc::new(caller)).clone())
            }
        }
    }

    /// The user that [`Calling::caller`] is, which takes no call to know.
    pub fn caller_uid(&self) -> u32 {
        self.caller.as_ref().map_or(self.shared.uid, |caller| caller.uid)
    }

    /// Goes on as another one than the thread.
    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = Some(Arc::new(caller));
    }

    /// The mounts.
    pub fn table(&mut self) -> Answer<Arc<Table>> {
        match &self.table {
            Some(table) => Ok(table.clone()),
            None => Ok(self.table.insert(self.shared.served.table()?).clone()),
        }
    }

    /// The index of a site's mount in the engine's transaction, which serves it from here on.
    ///
    /// `Ok(None)`: it is not what the mount table says, as something was mounted just now.
    pub fn serve(&mut self, site: &Site) -> Answer<Option<usize>> {
        let table = self.table()?;
        let key = outside::key_at(&site.top).ok().filter(|(_, _, mount)| *mount == site.mount);
        if let Some(open) = key.and_then(|key| self.shared.served.top(&table, key)) {
            return self.serve_open(open).map(Some);
        }
        match self.shared.served.open(site).map_err(Fault::Ends)? {
            Some(open) => self.serve_open(open).map(Some),
            None => Ok(None),
        }
    }

    /// The same of a domain that is open.
    pub fn serve_open(&mut self, open: Open) -> Answer<usize> {
        if let Some(mount) = self.state.mounts.iter().position(|known| known.is(&open)) {
            return Ok(mount);
        }
        let mount = self.state.engine.add_mount(open.domain.clone())?;
        self.state.mounts.push(open);
        Ok(mount)
    }

    /// The umask for new objects.
    pub fn umask(&mut self) -> Answer<u32> {
        match self.state.umask {
            Some(umask) => Ok(umask),
            None => Ok(*self.state.umask.insert(systx_os::caller::umask()?)),
        }
    }

    /// The object outside that a call may be made on at once. `None`: it may not, or the transaction sees another one.
    pub fn allowed(&mut self, what: &str, node: Node) -> Option<Outside> {
        let engine = &self.state.engine;
        let (mount, path) = (self.state.mounts.get(engine.mount_of(node))?, engine.path_of(node));
        let path = join(&mount.top, &path);
        let found = Outside::at(&path).ok().filter(|_| self.state.unsupported == Unsupported::Allow)?;
        if (found.kind(), found.stat().ino) != (engine.kind(node), engine.ino(node)) {
            return None;
        }
        self.state.allowed.push(format!("{what}: {}", Shown(&path)));
        Some(found)
    }

    /// The answer to a call that can neither be held back nor undone.
    pub fn unsupported(&mut self, what: &str) -> Fault {
        match self.state.unsupported {
            Unsupported::Deny => Fault::Os(Errno::PERM),
            // It is not outside, so that it can't be made there.
            Unsupported::Allow => Fault::Os(Errno::OPNOTSUPP),
            Unsupported::Abort => {
                self.state.engine.refused(format!("{what} can neither be held back nor undone"));
                Fault::Os(Errno::OPNOTSUPP)
            }
        }
    }
}
