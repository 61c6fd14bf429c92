//! The holder of priority: the one transaction that nobody may commit against, so that it does not starve.
//!
//! It is known by its *age*: the number of its first try, which its later tries keep. Who is older takes the
//! place of who is younger, so the oldest of those who lose is never overtaken.
//!
//! Owns: one record. Guarantees: at most one holder; it ends at its deadline, with its owner, when it
//! resigns, or when somebody older comes. Does not: decide who asks (`commit/validate.rs`, `contention.rs`).
//!
//! | age word | means | by |
//! |---|---|---|
//! | 0 | nobody | `resign` (its owner, any time); `try_become` while it writes |
//! | id | what began as that transaction, if its deadline is ahead and its owner lives | `try_become`, last |
//!
//! Written and looked at under the commit lock; only `resign` may come at any time.

use super::layout::{load_footprint, store_footprint, PRIORITY_BASE};
use super::waits::{self, Priority};
use crate::corrupt::{owner_from, Corrupt};
use crate::id::{Footprint, OwnerIx, TxId};
use crate::lock::Locked;
use crate::mutant::{self, Mutant};
use std::sync::atomic::Ordering;
use systx_os::Words;

/// How long a holder of priority may keep others out that is in its commit, in nanoseconds.
pub const PRIORITY_NS: u64 = 2_000_000_000;

/// The bounds of the same for one that begins again, in nanoseconds: twice the time that it ran before it
/// lost, within these.
pub const PRIORITY_AGAIN_NS: [u64; 2] = [5_000_000_000, 60_000_000_000];

/// The holder of the priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The transaction as which it began.
    pub age: TxId,
    /// Owner of the transaction.
    pub owner: OwnerIx,
    /// When it ends, on the monotonic clock, in nanoseconds.
    pub deadline_ns: u64,
    /// How long that is altogether, in nanoseconds.
    pub length_ns: u64,
    /// Objects that it touches, as far as known.
    pub footprint: Footprint,
}

/// The place of the holder of priority in a table.
#[derive(Debug)]
pub struct PriorityPlace<'m, M: Words> {
    mem: &'m M,
    base: usize,
}

impl<'m, M: Words> PriorityPlace<'m, M> {
    /// At its place in the table.
    pub fn new(mem: &'m M) -> PriorityPlace<'m, M> {
        Self::at(mem, PRIORITY_BASE)
    }

    /// At word `base`.
    pub fn at(mem: &'m M, base: usize) -> PriorityPlace<'m, M> {
        PriorityPlace { mem, base }
    }

    /// The holder of priority at `now_ns`; `None` when there is none, its time is over or its owner is dead.
    ///
    /// # Errors
    /// [`Corrupt`]: its owner cannot exist.
    pub fn current(
        &self,
        _lock: &Locked,
        now_ns: u64,
        alive: &dyn Fn(OwnerIx) -> bool,
    ) -> Result<Option<Holder>, Corrupt> {
        // Pairs with the Release store in `try_become`.
        let age = self.mem.load(self.base, Ordering::Acquire);
        let deadline_ns = self.mem.load(self.base + 2, Ordering::Acquire);
        let length_ns = self.mem.load(self.base + 3, Ordering::Acquire).min(PRIORITY_AGAIN_NS[1]);
        if !waits::counts(TxId(age), deadline_ns, length_ns, now_ns) {
            return Ok(None);
        }
        let owner = self.mem.load(self.base + 1, Ordering::Acquire);
        let owner = owner_from("the holder's owner", self.base + 1, owner)?;
        if !alive(owner) {
            return Ok(None);
        }
        let footprint = load_footprint(self.mem, self.base + 8);
        Ok(Some(Holder { age: TxId(age), owner, deadline_ns, length_ns, footprint }))
    }

    /// Returns true if a transaction of that age may hold the priority now: no older one holds it.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: as [`PriorityPlace::current`].
    pub fn is_open_to(
        &self,
        lock: &Locked,
        age: TxId,
        now_ns: u64,
        alive: &dyn Fn(OwnerIx) -> bool,
    ) -> Result<bool, Corrupt> {
        let holder = self.current(lock, now_ns, alive)?.map(|holder| holder.age);
        Ok(waits::priority(holder, age) != Priority::Refused)
    }

    /// Takes the priority unless an older transaction holds it; the holder itself may renew its footprint,
    /// but not its deadline.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: as [`PriorityPlace::current`].
    pub fn try_become(
        &self,
        lock: &Locked,
        wanted: &Holder,
        now_ns: u64,
        alive: &dyn Fn(OwnerIx) -> bool,
    ) -> Result<bool, Corrupt> {
        let (mut deadline_ns, mut length_ns) = (wanted.deadline_ns, wanted.length_ns);
        let holder = self.current(lock, now_ns, alive)?;
        match waits::priority(holder.as_ref().map(|holder| holder.age), wanted.age) {
            Priority::Refused => return Ok(false),
            Priority::Kept => {
                holder.inspect(|now| (deadline_ns, length_ns) = (now.deadline_ns, now.length_ns));
            }
            Priority::Given => {}
        }
        // First none, the id last: if this process dies in between, no transaction holds the priority.
        self.mem.store(self.base, 0, Ordering::Release);
        self.mem.store(self.base + 1, u64::from(wanted.owner.0), Ordering::Release);
        self.mem.store(self.base + 2, deadline_ns, Ordering::Release);
        self.mem.store(self.base + 3, length_ns, Ordering::Release);
        store_footprint(self.mem, self.base + 8, &wanted.footprint);
        self.mem.store(self.base, wanted.age.0, Ordering::Release);
        Ok(true)
    }

    /// Ends the priority of `age`, if it is the holder. Needs no lock. Who waits for the holder waits with a
    /// timeout on [`PriorityPlace::wait`] and is woken here.
    pub fn resign(&self, age: TxId) {
        let resigned = age.0 != 0 && self.mem.compare_exchange(self.base, age.0, 0).is_ok();
        if resigned && !mutant::on(Mutant::ResignUnheard) {
            self.mem.wake(self.base);
        }
    }

    /// Waits, holding nothing, until `age` has resigned or `timeout_ns` have passed; may return early.
    pub fn wait(&self, age: TxId, timeout_ns: u64) {
        if self.mem.load(self.base, Ordering::Acquire) == age.0 {
            self.mem.wait(self.base, age.0, timeout_ns);
        }
    }
}
