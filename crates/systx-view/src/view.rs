//! A transaction as a tree that programs can live in: its mounts, its connections, its end.

mod natives;
mod read_committed;

use crate::files::Files;
use crate::listings::Listings;
use crate::readahead::Readahead;
use crate::wire::{flag, Agreed};
use natives::Natives;
use read_committed::ReadCommitted;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use systx_engine::outcome::{Conflict, VerbError};
use systx_engine::transaction::{Node, Transaction};
use systx_os::beside::{Beside, Placing};
use systx_os::fuse::{Backing, Device, EventFd};
use systx_os::sandbox::bind::Binder;
use systx_os::{Errno, Os};

/// Whom a root is shown to belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownAs {
    /// The user.
    pub uid: u32,
    /// Group of the user.
    pub gid: u32,
}

/// One mount of the view.
pub(crate) struct Connection {
    pub(crate) device: Device,
    pub(crate) root: Node,
    pub(crate) alive: bool,
    pub(crate) passthrough: bool,
    /// Its root is not the user's.
    shared: Option<ShownAs>,
    agreed: Agreed,
    stack_depth: u32,
}

/// Why a view ended the transaction, or could not serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// The facts of the transaction no longer hold together. The programs inside get `EIO`
    /// ([`View::speak_after`]).
    Doomed(Conflict),
    /// The kernel's FUSE lacks these capabilities (bits as in `fuse_init_in`; 0: its protocol is too old).
    Unusable(u64),
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Trouble::Doomed(conflict) => conflict.fmt(f),
            Trouble::Unusable(0) => {
                f.write_str("the kernel's FUSE protocol is older than 7.33; use Linux 5.12 or later")
            }
            Trouble::Unusable(missing) => {
                write!(f, "the kernel's FUSE lacks capabilities {missing:#x}; use Linux 5.12 or later")
            }
        }
    }
}

/// A [`Transaction`], served over one FUSE connection for each of its mounts.
///
/// [`View::serve`] answers until it is stopped; [`View::finish`] gives the transaction back. The serving
/// process must not look into its own view: it would wait for itself.
pub struct View<O: Os> {
    pub(crate) tx: Transaction<O>,
    pub(crate) connections: Vec<Connection>,
    /// The last node that the kernel has got.
    pub(crate) known: Node,
    pub(crate) files: Files<Backing>,
    pub(crate) listings: Listings,
    pub(crate) read_committed: ReadCommitted,
    pub(crate) readahead: Readahead,
    pub(crate) natives: Natives,
    direct: bool,
    trouble: Option<Trouble>,
    alarm: EventFd,
    silenced: Option<EventFd>,
    /// No thread that holds the devices may ask.
    pub(crate) for_others: bool,
    pub(crate) beside: Beside,
    pub(crate) written: Written,
    /// Rung when a subtransaction makes its area.
    pub(crate) divided: EventFd,
    /// How many transactions deep it is.
    pub(crate) depth: u32,
}

/// Records that a file was opened for writing in a view since it was made. Without that there is no mapping
/// to store through.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<AtomicBool>);

impl Written {
    /// Now. Who has seen the processes of a view end hears of all that they opened.
    pub fn yet(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// From now on. Before the answer to OPEN goes out.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A view and its detached mounts, in the transaction's order.
pub type Mounted<O> = (View<O>, Vec<OwnedFd>);

/// A view that could not be made; the transaction is unharmed.
pub struct Failed<O: Os> {
    /// The transaction.
    pub tx: Transaction<O>,
    /// The operation that failed, as a fragment.
    pub doing: &'static str,
    /// Why it failed.
    pub error: VerbError,
}

impl<O: Os<Fd: AsFd>> View<O> {
    /// Sets how many files and directories the view may keep open itself, whatever the programs inside have open.
    pub fn hold_files(&mut self, most: usize) {
        self.tx.hold_files(most);
    }

    /// Makes a view of the first `mounts` mounts of a transaction, and a detached mount for each.
    ///
    /// Nothing is answered before [`View::serve`] runs: a program that touches the mounts waits for it.
    pub fn new(tx: Transaction<O>, mounts: usize) -> Result<Mounted<O>, Box<Failed<O>>> {
        let mut devices = Vec::with_capacity(mounts);
        for _ in 0..mounts {
            match Device::open() {
                Ok(device) => devices.push(device),
                Err(e) => return Err(Box::new(Failed { tx, doing: "opening /dev/fuse", error: e.into() })),
            }
        }
        let mut view = View::with_devices(tx, devices)?;
        match view.mount() {
            Ok(mounted) => Ok((view, mounted)),
            Err((doing, error)) => Err(Box::new(Failed { tx: view.tx, doing, error })),
        }
    }

    /// Makes a view over devices that are opened already, one for each mount, such as those of another user namespace.
    /// The caller mounts them: [`Device::mount`].
    pub fn with_devices(mut tx: Transaction<O>, devices: Vec<Device>) -> Result<View<O>, Box<Failed<O>>> {
        let (alarm, divided) = match EventFd::new().and_then(|alarm| Ok((alarm, EventFd::new()?))) {
            Ok(both) => both,
            Err(e) => return Err(Box::new(Failed { tx, doing: "making an eventfd", error: e.into() })),
        };
        let mut connections = Vec::with_capacity(devices.len());
        for (index, device) in devices.into_iter().enumerate() {
            let root = tx.root(index);
            let stack_depth = match tx.statfs(root) {
                Ok(totals) => u32::from(STACKED.contains(&totals.magic)),
                Err(error) => return Err(Box::new(Failed { tx, doing: "asking the file system", error })),
            };
            let agreed = Agreed::default();
            connections.push(Connection {
                device,
                root,
                alive: true,
                passthrough: false,
                shared: None,
                agreed,
                stack_depth,
            });
        }
        let (files, listings, readahead) = (Files::default(), Listings::default(), Readahead::default());
        let known = Node(connections.len() as u64);
        let (direct, beside) = (true, Beside::default());
        let (trouble, silenced, written) = (None, None, Written::default());
        Ok(View {
            tx,
            connections,
            known,
            files,
            listings,
            read_committed: ReadCommitted::default(),
            readahead,
            natives: Natives::default(),
            direct,
            trouble,
            alarm,
            silenced,
            for_others: false,
            beside,
            written,
            divided,
            depth: 1,
        })
    }

    fn mount(&mut self) -> Result<Vec<OwnedFd>, (&'static str, VerbError)> {
        let tx = &mut self.tx;
        let mounted = self.connections.iter().map(|link| {
            let mode = tx.getattr(link.root).map_err(|e| ("looking at the root of a mount", e))?.mode;
            link.device.mount(mode, "systx").map_err(|e| ("mounting a view", e.into()))
        });
        mounted.collect()
    }

    /// Rung as soon as [`View::trouble`] has something to say: the owner should end all programs inside.
    pub fn alarm(&self) -> Result<EventFd, Errno> {
        self.alarm.try_clone()
    }

    /// Once there is trouble, no program gets an answer before `silenced` is rung, or a second is over: its
    /// owner rings it when all programs are being killed, so that none of them complains of what is not its
    /// fault.
    pub fn speak_after(&mut self, silenced: EventFd) {
        self.silenced = Some(silenced);
    }

    /// From now on a request of a thread that holds the devices is a bug of this process: killed while it
    /// waits, it could never end. Such a request ends a debug build; a release build does not look.
    pub fn is_for_others(&mut self) {
        self.for_others = true;
    }

    /// Rung as soon as there are subtransactions: those that were cut off have to be finished before [`View::finish`].
    pub fn divided(&self) -> Result<EventFd, Errno> {
        self.divided.try_clone()
    }

    /// Says how many transactions deep this one is.
    pub fn lies_at(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Has the kernel serve directories by itself that programs make, bound by `binder`. There are no subtransactions
    /// then. To be called before [`View::serve`].
    pub fn binds_by(&mut self, binder: Binder) {
        self.natives = Natives::by(binder);
    }

    /// Returns the flag that there may be bytes to wait for before [`View::finish`].
    pub fn written(&self) -> Written {
        self.written.clone()
    }

    /// Shows the root of a mount as owned by this user, and refuses what only its true owner may do. For a
    /// root in which all may make names, in a user namespace where its owner has no number. To be called
    /// before [`View::serve`].
    pub fn share(&mut self, mount: usize, shown_as: ShownAs) {
        self.connections[mount].shared = Some(shown_as);
    }

    /// The descriptors from which it answers: no process that asks it may have copies of them.
    pub fn answers_from(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().map(|link| link.device.as_fd())
    }

    /// Returns what ended the transaction from inside the view, if anything did.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Keeps all bytes in requests, as without privileges: for finding out whether passthrough is to blame
    /// for something. To be called before [`View::serve`].
    pub fn without_passthrough(mut self) -> View<O> {
        self.direct = false;
        self
    }

    /// Chooses the CPU of the thread that answers. To be called before [`View::serve`].
    pub fn answers_on(&mut self, placing: Placing) {
        self.beside = Beside::new(placing);
    }

    /// Returns true if the kernel reads and writes private files by itself, on all mounts so far.
    pub fn is_direct(&self) -> bool {
        self.connections.iter().all(|link| link.passthrough)
    }

    /// Returns the transaction, while no thread serves: programs that ask in the view wait.
    pub fn transaction(&mut self) -> &mut Transaction<O> {
        &mut self.tx
    }

    /// Ends all connections and gives the transaction back, to commit or abort it.
    ///
    /// All programs must have left, and if they could [write](Written), what they wrote through mappings must
    /// have arrived (syncfs(2) of each mount while [`View::serve`] runs). The mounts are dead afterwards.
    /// Their connections end first, so that the kernel does not send a FORGET for each node that it knows.
    pub fn finish(self) -> Transaction<O> {
        let View { tx, connections, files, .. } = self;
        drop(connections);
        // Their numbers ended with the connections.
        drop(files);
        tx
    }

    pub(crate) fn root(&self, connection: usize) -> Node {
        self.connections[connection].root
    }
    pub(crate) fn shared(&self, connection: usize) -> Option<ShownAs> {
        self.connections[connection].shared
    }
    pub(crate) fn device(&self, connection: usize) -> &Device {
        &self.connections[connection].device
    }
    pub(crate) fn stack_depth(&self, connection: usize) -> u32 {
        self.connections[connection].stack_depth
    }
    pub(crate) fn agreed(&self, connection: usize) -> Agreed {
        self.connections[connection].agreed
    }
    pub(crate) fn set_agreed(&mut self, connection: usize, agreed: Agreed) {
        let link = &mut self.connections[connection];
        link.agreed = agreed;
        link.passthrough = self.direct && agreed.has(flag::PASSTHROUGH);
    }
    pub(crate) fn set_unusable(&mut self, missing: u64) {
        self.raise(Trouble::Unusable(missing));
    }
    pub(crate) fn doom(&mut self, conflict: Conflict) {
        self.raise(Trouble::Doomed(conflict));
    }

    /// The first trouble counts; what follows is mostly its consequence.
    fn raise(&mut self, trouble: Trouble) {
        self.trouble.get_or_insert(trouble);
        self.alarm.ring();
        if let Some(silenced) = self.silenced.take() {
            silenced.wait(SILENCE_LIMIT_MS);
        }
    }
}

/// Much more than killing takes; an owner that does not come to it must not hang what waits for an answer.
const SILENCE_LIMIT_MS: u32 = 1000;

/// File systems that stand on others themselves: overlayfs, ecryptfs, FUSE.
const STACKED: [u64; 3] = [0x794c_7630, 0xf15f, 0x6573_5546];
