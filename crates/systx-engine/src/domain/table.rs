//! The table of a domain: shared memory in which cooperating processes meet.
//!
//! Owns: the file `table` of the area, its header, `next` and `next_tx`. Guarantees: a ready table was built
//! in this life of its superblock, by one process, whole. Does not: know the log; whoever gets a stale table
//! recovers and says where to go on.
//!
//! Byte 0 of the owners file is held from before the look that finds the table stale until it is ready, so
//! there is one initialiser at a time, and one that dies is followed by the next. Order of every opening:
//! area, owners, table, and only then [`Owners::claim`]: nobody owns an index while there is no table.
//!
//! A *life* is a boot id and what the kernel numbers each mount of a superblock with. Another one proves
//! nothing while somebody lives who has the table mapped: a container may have a boot id of its own and see
//! no sysfs.
//!
//! | state word | life | owners | means |
//! |---|---|---|---|
//! | INITIALISED | this one | any | ready |
//! | INITIALISED | another, or not known | one lives | ready |
//! | INITIALISED | another, or not known | none lives | stale: from before a reboot or another mount |
//! | else | any | any | stale: new, half-built or condemned |
//!
//! One of another layout is used by nobody here: refused while somebody lives, who may have it mapped, and
//! stale when nobody does.
//!
//! Who finds it stale says so in the state word and then asks once more whether somebody lives; who claims an
//! index asks afterwards whether the table is still ready. So one of the two sees the other.

use super::area::Area;
use super::layout::*;
use super::on_disk::OnDisk;
use super::owners::{Owners, OwnersError};
use super::priority::PriorityPlace;
use super::records::Records;
use super::ring::Ring;
use super::sealing::Sealing;
use super::slots::Slots;
use super::unsynced::Unsynced;
use crate::corrupt::Corrupt;
use crate::id::{Lsn, OwnerIx, TxId};
use crate::lock::{Locked, RobustLock};
use crate::log::{Log, LogError};
use crate::mutant::{self, Mutant};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use systx_os::{Errno, Fallocate, Open, Os, Words};

const NAME: &[u8] = b"table";
const LOCK: RobustLock = RobustLock { word: LOCK_WORD };
/// Pause between two looks at a table that another process builds, in nanoseconds.
pub(crate) const LOOK_AGAIN_NS: u64 = 2_000_000;
/// Looks before giving up on the owners of a table that is gone. An opener that failed may take a moment to leave.
pub(crate) const LOOKS_AT_OWNERS: u32 = 100;

/// A ready table.
pub struct Table<O: Os> {
    mem: Arc<O::Mem>,
}

/// The life that a table is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    boot: [u64; 2],
    /// See [`systx_os::FsInfo::life`].
    superblock: u64,
}

/// The header of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It is of this life.
    Fits,
    /// It was ready in another one, or in one that is not known.
    Foreign,
    /// It is not ready.
    Nothing,
}

/// The state that an opening found.
pub enum Opened<O: Os> {
    /// Use it.
    Ready(Table<O>),
    /// Recover from the log, then [`Initializer::finish`]. Everybody else who opens waits.
    Stale(Initializer<O>),
}

/// The right and the duty to build the table; dropping it leaves both to the next opener.
pub struct Initializer<O: Os> {
    mem: Arc<O::Mem>,
    life: Life,
    id: [u64; 2],
    _byte: O::Owned,
}

/// Why a table cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// Built by another version of systx, of which something runs.
    Version(u64),
    /// The table is gone or condemned while processes that have it mapped live.
    InUse,
    /// The file is no table: a foreign file stands in its place, or one that others may change.
    NotAFile,
    /// A sync of a recovery has failed since the file system was mounted.
    Lost(Errno),
    /// The owners file could not be used.
    Owners(OwnersError),
    /// An operation on the table failed.
    Os(&'static str, Errno),
}

impl core::fmt::Display for TableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            TableError::Version(v) => {
                write!(
                    f,
                    "the domain table has layout {v}: programs run under another version of \
                    systx; end them, or use that version until they have ended"
                )
            }
            TableError::InUse => {
                write!(
                    f,
                    "the domain table was removed or found damaged while programs run under \
                    systx; end them, then run `systx recover`"
                )
            }
            TableError::NotAFile => write!(
                f,
                "the file `table` of the area is no regular file of yours with mode 0600; remove it"
            ),
            TableError::Lost(error) => write!(f, "{}", LogError::Lost { error: *error }),
            TableError::Owners(e) => e.fmt(f),
            TableError::Os(what, e) => write!(f, "could not {what} the file `table` of the area: {e}"),
        }
    }
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TableError::Owners(e) => Some(e),
            TableError::Os(_, e) => Some(e),
            _ => None,
        }
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> TableError {
    move |e| TableError::Os(what, e)
}

impl<O: Os> Table<O> {
    /// Opens the table of an area, waiting while another living process builds it.
    ///
    /// # Errors
    /// [`TableError`]; the table is as before.
    pub fn open(os: &O, area: &Area<O>, owners: &Owners<O>, life: u64) -> Result<Opened<O>, TableError> {
        let life = Life { boot: boot_words(os)?, superblock: life };
        loop {
            if let Some(table) = Self::look(os, area, owners, life)? {
                return Ok(Opened::Ready(table));
            }
            match owners.initialiser().map_err(TableError::Owners)? {
                Some(byte) => return Self::open_alone(os, area, owners, life, byte),
                None => os.pause(LOOK_AGAIN_NS),
            }
        }
    }

    /// Holding byte 0, as the only process that may build it.
    fn open_alone(
        os: &O,
        area: &Area<O>,
        owners: &Owners<O>,
        life: Life,
        byte: O::Owned,
    ) -> Result<Opened<O>, TableError> {
        // The last holder of the byte may have built it between this look and the lock.
        if let Some(table) = Self::look(os, area, owners, life)? {
            return Ok(Opened::Ready(table));
        }
        // Living owners have mapped a table that is not this one: two tables would be two commit locks.
        for _ in 0..LOOKS_AT_OWNERS {
            if !owners.anybody() {
                let mem = Arc::new(allocate(os, area)?);
                let was = mem.load(STATE_WORD, Ordering::Acquire);
                if let Some(error) = Log::<O>::lost_in(&mem, LOG_BASE).filter(|_| Life::of(&*mem) == life) {
                    return Err(TableError::Lost(error));
                }
                if !mutant::on(Mutant::StaleFirst) {
                    mem.store(STATE_WORD, 0, Ordering::SeqCst);
                    if owners.anybody() {
                        // Another process, which has ended since, kept it ready for a third one.
                        mem.store(STATE_WORD, was, Ordering::SeqCst);
                        os.pause(LOOK_AGAIN_NS);
                        continue;
                    }
                }
                return Ok(Opened::Stale(Initializer {
                    mem,
                    life,
                    id: [os.random(), os.random()],
                    _byte: byte,
                }));
            }
            os.pause(LOOK_AGAIN_NS);
        }
        Err(TableError::InUse)
    }

    /// The table of the area behind `dir`, if an opening would use it as it is.
    pub(super) fn of_this_life(
        os: &O,
        dir: &O::Fd,
        owners: &Owners<O>,
        life: u64,
    ) -> Result<Option<Table<O>>, TableError> {
        Self::look_in(os, dir, owners, Life { boot: boot_words(os)?, superblock: life })
    }

    /// The table, if it is ready.
    fn look(os: &O, area: &Area<O>, owners: &Owners<O>, life: Life) -> Result<Option<Table<O>>, TableError> {
        Self::look_in(os, &area.dir, owners, life)
    }

    fn look_in(os: &O, dir: &O::Fd, owners: &Owners<O>, life: Life) -> Result<Option<Table<O>>, TableError> {
        let file = os.open_if_there(dir, NAME, Open::ReadWrite).map_err(failed("open"))?;
        let Some(file) = file else { return Ok(None) };
        let stat = os.stat(&file).map_err(failed("look at"))?;
        // Others could write to it.
        let is_open = stat.uid != os.uid() || stat.perm() & 0o077 != 0;
        if stat.kind() != systx_os::FileType::File || is_open {
            return Err(TableError::NotAFile);
        }
        // The version may have another size, but each has a header.
        let words = (stat.size / 8).min(WORDS as u64) as usize;
        if words <= STATE_WORD.max(LIFE_WORD) {
            return Ok(None);
        }
        let mem = os.map(&file, words).map_err(failed("map"))?;
        match says(&mem, life) {
            Says::Fits => {}
            // The state once more: see above.
            Says::Foreign if owners.anybody() && says(&mem, life) != Says::Nothing => {}
            Says::Foreign | Says::Nothing => return Ok(None),
        }
        match mem.load(VERSION_WORD, Ordering::Acquire) {
            VERSION if words == WORDS => Ok(Some(Table { mem: Arc::new(mem) })),
            VERSION => Ok(None),
            version if owners.anybody() => Err(TableError::Version(version)),
            // Left by a systx that was replaced meanwhile. No process has it mapped, and the log is the
            // truth.
            _ => Ok(None),
        }
    }

    /// Returns true if an opening would use the table as it is.
    #[cfg(test)]
    pub(crate) fn is_ready(
        os: &O,
        area: &Area<O>,
        owners: &Owners<O>,
        life: u64,
    ) -> Result<bool, TableError> {
        let life = Life { boot: boot_words(os)?, superblock: life };
        Ok(Self::look(os, area, owners, life)?.is_some())
    }

    /// The words.
    pub fn mem(&self) -> &Arc<O::Mem> {
        &self.mem
    }

    /// The commit lock.
    pub fn lock(&self, me: OwnerIx, alive: &dyn Fn(OwnerIx) -> bool) -> Result<Locked, Corrupt> {
        LOCK.lock(&*self.mem, me, alive)
    }

    /// Returns the holder of the commit lock.
    #[cfg(test)]
    pub fn lock_holder(&self) -> Result<Option<OwnerIx>, Corrupt> {
        LOCK.holder(&*self.mem)
    }

    /// The commit lock, if it is free.
    pub fn try_lock(&self, me: OwnerIx) -> Result<Option<Locked>, Corrupt> {
        LOCK.try_lock(&*self.mem, me)
    }

    /// The commit lock, if the last owner of my index died with it: see [`RobustLock::inherit`].
    pub fn inherit_lock(&self, me: OwnerIx) -> Result<Option<Locked>, Corrupt> {
        LOCK.inherit(&*self.mem, me)
    }

    /// Lets go of the commit lock.
    pub fn unlock(&self, locked: Locked) -> Result<(), Corrupt> {
        LOCK.unlock(&*self.mem, locked)
    }

    /// The number of this table; no other has it, before or after. What is left from an earlier life is known by it.
    pub fn id(&self) -> [u8; 16] {
        let word = |n| self.mem.load(ID_WORD + n, Ordering::Acquire).to_le_bytes();
        core::array::from_fn(|n| word(n / 8)[n % 8])
    }

    /// Returns the LSN of the next commit. Acquire: a process that sees it sees the active entry and the ring
    /// entry of every LSN below (pairs with [`Table::advance_next`]).
    pub fn next(&self) -> Lsn {
        Lsn(self.mem.load(NEXT_WORD, Ordering::Acquire))
    }

    /// Moves `next` by one, after slot and ring entry were written; returns what it was. Release: pairs with
    /// [`Table::next`].
    pub fn advance_next(&self, _lock: &Locked) -> Lsn {
        let lsn = self.mem.load(NEXT_WORD, Ordering::Relaxed);
        self.mem.store(NEXT_WORD, lsn.wrapping_add(1), Ordering::Release);
        Lsn(lsn)
    }

    /// A number for a new transaction.
    pub fn new_tx(&self) -> TxId {
        TxId(self.mem.fetch_add(NEXT_TX_WORD, 1))
    }

    /// When the last checkpoint that was made began, on the monotonic clock, in nanoseconds. A hint: any
    /// value is harmless.
    pub fn checkpointed_ns(&self) -> u64 {
        self.mem.load(CHECKPOINTED_WORD, Ordering::Relaxed)
    }

    /// Says that a checkpoint was made that began at `now`.
    pub fn set_checkpointed_ns(&self, now: u64) {
        self.mem.store(CHECKPOINTED_WORD, now, Ordering::Relaxed);
        self.mem.store(CHECKPOINT_FAILED_WORD, 0, Ordering::Relaxed);
    }

    /// Says that a checkpoint is tried, unless one was within the last `pause_ns`; whether it is the caller's now.
    pub fn try_checkpoint(&self, now: u64, pause_ns: u64) -> bool {
        let tried = self.mem.load(CHECKPOINT_TRIED_WORD, Ordering::Relaxed);
        now.checked_sub(tried).is_none_or(|past| past >= pause_ns)
            && self.mem.compare_exchange(CHECKPOINT_TRIED_WORD, tried, now) == Ok(tried)
    }

    /// Returns when the last promised checkpoint begins, or began. A hint: the time may be of another time
    /// namespace, or the process may have died.
    pub fn checkpoint_promised_ns(&self) -> u64 {
        self.mem.load(CHECKPOINT_PROMISED_WORD, Ordering::SeqCst)
    }

    /// Changes that; whether it was as `seen`.
    pub fn promise_checkpoint(&self, seen: u64, at: u64) -> bool {
        self.mem.compare_exchange(CHECKPOINT_PROMISED_WORD, seen, at) == Ok(seen)
    }

    /// Says that a checkpoint failed.
    pub fn set_checkpoint_failed(&self, error: Errno) {
        self.mem.store(CHECKPOINT_FAILED_WORD, error.raw_os_error() as u64, Ordering::Relaxed);
    }

    /// Why the last checkpoint failed, if it did. A hint.
    pub fn checkpoint_failed(&self) -> Option<Errno> {
        let word = self.mem.load(CHECKPOINT_FAILED_WORD, Ordering::Relaxed);
        i32::try_from(word).ok().filter(|n| (1..4096).contains(n)).map(Errno::from_raw_os_error)
    }

    /// The in-flight slots.
    pub fn slots(&self) -> Slots<'_, O::Mem> {
        Slots::new(&*self.mem)
    }

    /// The ring of the last commits.
    pub fn ring(&self) -> Ring<'_, O::Mem> {
        Ring::new(&*self.mem)
    }

    /// Returns the part with unsynced objects.
    pub fn unsynced(&self) -> Unsynced<'_, O::Mem> {
        Unsynced::new(&*self.mem)
    }

    /// Returns the part with objects known to be on the disk.
    pub(crate) fn on_disk(&self) -> OnDisk<'_, O::Mem> {
        OnDisk::new(&*self.mem)
    }

    /// The holder of priority.
    pub fn priority(&self) -> PriorityPlace<'_, O::Mem> {
        PriorityPlace::new(&*self.mem)
    }

    /// The owners' records.
    pub fn records(&self) -> Records<'_, O::Mem> {
        Records::new(&*self.mem)
    }

    /// Returns the part with sealed and not numbered directories.
    pub fn sealing(&self) -> Sealing<'_, O::Mem> {
        Sealing::new(&*self.mem)
    }

    /// Declares the table unusable, after [`Corrupt`]: the next opener, once all present users have ended, rebuilds
    /// it from the log.
    pub fn condemn(&self) {
        self.mem.store(STATE_WORD, 0, Ordering::Release);
    }

    /// Returns true if a process has condemned the table.
    pub fn condemned(&self) -> bool {
        self.mem.load(STATE_WORD, Ordering::Acquire) != INITIALISED
    }
}

impl Life {
    /// That of a table.
    fn of<M: Words>(mem: &M) -> Life {
        let word = |w| mem.load(w, Ordering::Acquire);
        Life { boot: [word(BOOT_WORD), word(BOOT_WORD + 1)], superblock: word(LIFE_WORD) }
    }

    fn store<M: Words>(self, mem: &M) {
        mem.store(BOOT_WORD, self.boot[0], Ordering::Release);
        mem.store(BOOT_WORD + 1, self.boot[1], Ordering::Release);
        mem.store(LIFE_WORD, self.superblock, Ordering::Release);
    }
}

impl<O: Os> Initializer<O> {
    /// Says that the sync of a recovery has failed: in this life there is no other.
    pub(crate) fn lose(&self, error: Errno) {
        self.life.store(&*self.mem);
        Log::<O>::lose_in(&self.mem, LOG_BASE, error);
    }

    /// Empties the table and makes it ready: the log ends before `next`, and no number from `next_tx` on was
    /// ever used. `prepare` sets the words of other parts; no process uses the table before that.
    ///
    /// # Errors
    ///
    /// What `prepare` returns; the table stays stale.
    pub fn finish<E>(
        self,
        next: Lsn,
        next_tx: TxId,
        prepare: impl FnOnce(&Arc<O::Mem>) -> Result<(), E>,
    ) -> Result<Table<O>, E> {
        empty(&*self.mem, self.life, self.id, next, next_tx);
        prepare(&self.mem)?;
        // Pairs with the Acquire loads of `says`: who sees the state sees all of the above.
        self.mem.store(STATE_WORD, INITIALISED, Ordering::Release);
        Ok(Table { mem: self.mem })
    }
}

fn empty<M: Words>(mem: &M, life: Life, id: [u64; 2], next: Lsn, next_tx: TxId) {
    mem.store(STATE_WORD, 0, Ordering::Release);
    mem.clear(0..STATE_WORD);
    mem.clear(STATE_WORD + 1..WORDS);
    mem.store(MAGIC_WORD, MAGIC, Ordering::Release);
    mem.store(VERSION_WORD, VERSION, Ordering::Release);
    mem.store(NEXT_WORD, next.0, Ordering::Release);
    mem.store(NEXT_TX_WORD, next_tx.0, Ordering::Release);
    life.store(mem);
    mem.store(ID_WORD, id[0], Ordering::Release);
    mem.store(ID_WORD + 1, id[1], Ordering::Release);
}

fn says<M: Words>(mem: &M, life: Life) -> Says {
    let word = |w| mem.load(w, Ordering::Acquire);
    // The state first and last: an initialiser at work between the two has stored something else there.
    if word(STATE_WORD) != INITIALISED || word(MAGIC_WORD) != MAGIC {
        return Says::Nothing;
    }
    let its = Life::of(mem);
    let same_mount =
        (life.superblock != 0 && its.superblock == life.superblock) || mutant::on(Mutant::TableOutlivesMount);
    match word(STATE_WORD) {
        INITIALISED if its.boot == life.boot && same_mount => Says::Fits,
        INITIALISED => Says::Foreign,
        _ => Says::Nothing,
    }
}

fn allocate<O: Os>(os: &O, area: &Area<O>) -> Result<O::Mem, TableError> {
    let file = match os.create(&area.dir, NAME, 0o600) {
        Err(Errno::EXIST) => os.open(&area.dir, NAME, Open::ReadWrite),
        file => file,
    };
    let file = file.map_err(failed("make"))?;
    // Blocks now: a store to a mapped hole on a full disk kills the process.
    let bytes = WORDS as u64 * 8;
    match os.fallocate(&file, Fallocate::Allocate, 0, bytes) {
        Err(Errno::OPNOTSUPP) => os.truncate(&file, bytes),
        allocated => allocated,
    }
    .map_err(failed("allocate"))?;
    os.map(&file, WORDS).map_err(failed("map"))
}

fn boot_words<O: Os>(os: &O) -> Result<[u64; 2], TableError> {
    let id = u128::from_le_bytes(os.boot_id().map_err(failed("learn which boot this is, for"))?);
    Ok([id as u64, (id >> 64) as u64])
}
