//! The domains that are open in this process: area, table, log and the process's place among the owners, each
//! known to the others as a party of commits over several of them.
//!
//! Owns: [`Domain`] and what every part of it asks; [`Peers`], which says by key who is open and whose area
//! is at hand. Guarantees: shared memory that makes no sense condemns the table, and nobody goes on with it;
//! an area is known before any domain recovers, so that each recovery finds the others' logs. Does not: open
//! a domain ([`Domain::open`] does, since opening recovers first), or keep one open.

use super::decisions::{self, Kept};
use super::exact::KnownRecords;
use super::owners::{Claim, Owners, OwnersError};
use super::records::Shown;
use super::remembered::{Most, Remembered, Seen};
use super::shared_staging::SharedStaging;
use super::slots::SlotState;
use super::table::Table;
use super::Area;
use crate::corrupt::Corrupt;
use crate::id::{AreaId, OwnerIx, TxId};
use crate::log::{Log, LogError, Outline};
use crate::mutant::{self, Mutant};
use crate::outcome::Recovered;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use systx_os::{Errno, FsInfo, Handle, Os, Result};

/// One user's transactions on one file system.
pub struct Domain<O: Os> {
    /// The kernel.
    pub os: O,
    /// Where everything of ours is.
    pub area: Area<O>,
    /// Properties of the file system.
    pub info: FsInfo,
    /// The work that the opening has done for dead processes.
    pub recovered: Recovered,
    pub(crate) table: Table<O>,
    pub(crate) owners: Owners<O>,
    pub(crate) log: Log<O>,
    pub(crate) peers: Peers<O>,
    /// State that all users of the area share, in this process or another.
    pub(crate) key: [u8; 16],
    area_handle: Handle,
    pub(super) barrier: Mutex<Option<Arc<O::Fd>>>,
    pub(super) shared_staging: Mutex<Option<Arc<SharedStaging<O>>>>,
    /// Where the file system is mounted, for messages.
    pub(super) point: OnceLock<Vec<u8>>,
    /// What of this process's transactions others see.
    pub(super) shown: Mutex<Shown>,
    /// Decoded records of active entries that a transaction has waited for.
    pub(super) known: KnownRecords,
    /// Held by the thread that goes on with what this process has left.
    pub(crate) finishing: Mutex<()>,
    pub(crate) remembered: Remembered<O>,
    /// Free bytes and when they were asked for, on the monotonic clock in nanoseconds.
    pub(crate) free: Mutex<(u64, u64)>,
    /// The area's names when it was last looked at.
    pub(super) seen: Mutex<Seen>,
    claim: Claim<O>,
    /// Of the process that owns it: see [`Domain::is_ours`].
    lineage: u64,
}

/// A process among the owners of a domain.
pub(crate) struct Owned<O: Os> {
    pub owners: Owners<O>,
    /// The index that it has.
    pub claim: Claim<O>,
}

impl<O: Os> Domain<O> {
    /// Of an area whose table and log are open, as the owner of `claim`.
    pub(crate) fn new(
        area: Area<O>,
        area_handle: Handle,
        table: Table<O>,
        log: Log<O>,
        owned: Owned<O>,
        peers: Peers<O>,
        recovered: Recovered,
    ) -> Domain<O> {
        let Owned { owners, claim } = owned;
        let domain = Domain {
            lineage: owners.os().lineage(),
            os: owners.os().clone(),
            key: area.id.id,
            info: area.info,
            area,
            recovered,
            table,
            owners,
            log,
            peers,
            area_handle,
            barrier: Mutex::new(None),
            shared_staging: Mutex::new(None),
            point: OnceLock::new(),
            shown: Mutex::default(),
            known: KnownRecords::default(),
            finishing: Mutex::new(()),
            remembered: Remembered::default(),
            free: Mutex::default(),
            seen: Mutex::default(),
            claim,
        };
        // Where that fails nothing is in place.
        let _ = domain.note_names();
        domain
    }

    /// Takes another place among the owners: what can't be finished now must look dead to others, not alive
    /// through this process.
    pub(crate) fn change_place(&mut self) -> core::result::Result<(), OwnersError> {
        let other = self.owners.claim()?;
        drop(std::mem::replace(&mut self.claim, other));
        Ok(())
    }

    /// Returns true if an owner has active entries: what is prepared, too, must look as what it is, left by the dead.
    pub(crate) fn has_slots(&self, ix: OwnerIx) -> Result<bool> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.owner == ix {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if the file system comes back after a power loss or another mount.
    pub(crate) fn comes_back(&self) -> bool {
        self.info.life != FsInfo::LIVES_ONCE
    }

    /// This process among the owners.
    pub fn me(&self) -> OwnerIx {
        self.claim.ix
    }

    /// Returns true if that owner lives.
    pub(crate) fn alive(&self, ix: OwnerIx) -> bool {
        (ix == self.me() && self.is_ours()) || self.owners.alive(ix)
    }

    /// Returns true if some process finishes for this one if it dies ([`super::Attendant`]).
    pub fn is_attended(&self) -> bool {
        self.owners.are_attended()
    }

    /// Returns true in the process that opened it. In a forked child the place among the owners is the parent's, or,
    /// when that is dead, its successor's: a child opens the domain for itself.
    pub fn is_ours(&self) -> bool {
        self.os.lineage() == self.lineage || mutant::on(Mutant::ForkUnseen)
    }

    /// Refuses a forked child. `ECHILD`, as other libraries say it: sd_bus_new(3), sd_event_new(3).
    pub(crate) fn ours(&self) -> Result<()> {
        if self.is_ours() {
            Ok(())
        } else {
            Err(Errno::CHILD)
        }
    }

    /// Shared memory that makes no sense: all work on it ends.
    pub(crate) fn checked<T>(&self, result: core::result::Result<T, Corrupt>) -> Result<T> {
        result.map_err(|_| {
            self.table.condemn();
            Errno::UCLEAN
        })
    }

    /// A number for a new transaction.
    pub fn new_tx(&self) -> TxId {
        self.table.new_tx()
    }

    /// Sets how much this process remembers between transactions.
    pub fn remember(&self, most: Most) {
        self.remembered.set_most(most);
    }

    /// Returns true if nothing durable can be committed here any more: the table was condemned, or a sync of the log has
    /// failed. Opening it once more recovers first, when this one is closed.
    pub fn is_spent(&self) -> bool {
        self.table.condemned() || (self.log.is_poisoned() && self.log.lost().is_none())
    }

    /// Why nothing can be committed here now, if that is so.
    pub fn log_closed(&self) -> Option<LogError> {
        self.log.check_ready().err()
    }

    /// Returns true for our own area, which no transaction sees.
    pub fn is_area(&self, handle: &Handle) -> bool {
        *handle == self.area_handle
    }
}

/// The other domains, by [`Domain::key`]: parties of commits over several of them.
pub struct Peers<O: Os>(Arc<Mutex<Known<O>>>);

struct Known<O: Os> {
    /// Identities that two areas within reach have: neither answers for them.
    doubted: Vec<[u8; 16]>,
    domains: HashMap<[u8; 16], Weak<Domain<O>>>,
    areas: HashMap<[u8; 16], PeerArea<O>>,
}

/// A domain's area, as others see it.
pub(crate) struct PeerArea<O: Os> {
    dir: Arc<O::Fd>,
    id: AreaId,
    life: u64,
}

impl<O: Os> PeerArea<O> {
    pub fn new(dir: O::Fd, id: AreaId, life: u64) -> Self {
        PeerArea { dir: Arc::new(dir), id, life }
    }

    /// Returns what its log says.
    pub fn outline(&self, os: &O) -> core::result::Result<Outline<O>, LogError> {
        crate::log::outline(os, &self.dir, self.id)
    }

    /// Returns the transactions that are active there before their commit point: on them its log has not the last
    /// word. `None`: its table can't be looked at, and may have any.
    pub fn undecided(&self, os: &O) -> Option<Vec<TxId>> {
        let owners = Owners::open(os, &self.dir).ok()?;
        let Some(table) = Table::of_this_life(os, &self.dir, &owners, self.life).ok()? else {
            return Some(Vec::new());
        };
        let before = |state| matches!(state, SlotState::Validated | SlotState::Aborting);
        let slots = table.slots();
        Some(slots.in_flight().flatten().filter(|s| before(s.seen.state())).map(|s| s.info.tx).collect())
    }

    /// Returns what is kept beside its log.
    pub fn decisions(&self, os: &O) -> Result<Vec<Kept>> {
        decisions::all(os, &self.dir)
    }
}

impl<O: Os> Clone for PeerArea<O> {
    fn clone(&self) -> Self {
        PeerArea { dir: self.dir.clone(), id: self.id, life: self.life }
    }
}

impl<O: Os> Clone for Peers<O> {
    fn clone(&self) -> Self {
        Peers(self.0.clone())
    }
}

impl<O: Os> Default for Peers<O> {
    fn default() -> Self {
        Peers(Arc::new(Mutex::new(Known {
            doubted: Vec::new(),
            domains: HashMap::new(),
            areas: HashMap::new(),
        })))
    }
}

impl<O: Os> Peers<O> {
    /// Makes one that knows these identities to be doubtful.
    pub(crate) fn doubting(doubted: &[[u8; 16]]) -> Peers<O> {
        let peers = Peers::default();
        peers.known().doubted = doubted.to_vec();
        peers
    }
    pub(crate) fn add_area(&self, key: [u8; 16], area: PeerArea<O>) {
        self.known().areas.insert(key, area);
    }
    pub(crate) fn add(&self, domain: &Arc<Domain<O>>) {
        self.known().domains.insert(domain.key, Arc::downgrade(domain));
    }
    fn known(&self) -> std::sync::MutexGuard<'_, Known<O>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// The domain of that key, if it is open in this process.
    pub fn get(&self, key: &[u8; 16]) -> Option<Arc<Domain<O>>> {
        self.known().domains.get(key).and_then(Weak::upgrade)
    }
    /// The area of that key, if it is at hand.
    pub(crate) fn area(&self, key: &[u8; 16]) -> Option<PeerArea<O>> {
        let known = self.known();
        known.areas.get(key).filter(|_| !known.doubted.contains(key)).cloned()
    }
}
