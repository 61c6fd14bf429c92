//! A domain, open in this process: area, table, log and this process's place among the owners.
//!
//! Opening recovers first: after a reboot or another mount the whole domain from its log, else what the last owner of this
//! process's index left behind. So nobody ever works in a domain that has unfinished business of the dead in his way.

use super::begin::begin_log;
use super::layout::LOG_BASE;
use super::on_disk::Began;
use super::peers::{PeerArea, Peers};
use super::{Area, AreaError, Claim, Corrupt, Opened, Owners, OwnersError, SlotIx, SlotState};
use super::{Table, TableError};
use crate::facts::LowerDir;
use crate::id::{OwnerIx, TxId};
use crate::log::{Log, LogError};
use crate::mutant::{self, Mutant};
use crate::recovery::{self, Recovered};
use crate::shown::Shown;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use systx_os::{Dirent, Errno, FsInfo, Handle, Os, Result};

/// One user's transactions on one file system.
pub struct Domain<O: Os> {
    /// The kernel.
    pub os: O,
    /// Where everything of ours is.
    pub area: Area<O>,
    /// What may be relied on here.
    pub info: FsInfo,
    /// What opening recovered.
    pub recovered: Recovered,
    pub(crate) table: Table<O>,
    pub(crate) owners: Owners<O>,
    pub(crate) log: Log<O>,
    pub(crate) peers: Peers<O>,
    /// The same for all that share the area, in this process or another.
    pub(crate) key: [u8; 16],
    area_handle: Handle,
    pub(super) barrier: Mutex<Option<Arc<O::Fd>>>,
    pub(super) shelf: Mutex<Option<Arc<super::shelf::Shelf<O>>>>,
    /// Where the file system is mounted, for messages.
    pub(super) point: OnceLock<Vec<u8>>,
    /// What was read of the records of slots for which somebody has waited.
    pub(super) known: Mutex<HashMap<SlotIx, super::exact::Known>>,
    /// Held by the thread that goes on with what this process has left.
    pub(crate) finishing: Mutex<()>,
    claim: Claim<O>,
}

/// Why a domain can't be opened. Nothing happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The area.
    Area(AreaError),
    /// The table.
    Table(TableError),
    /// The owners file.
    Owners(OwnersError),
    /// The log.
    Log(LogError),
    /// The file system lacks something that transactions need.
    Unsupported(&'static str),
    /// A committed transaction can't be published to its end.
    Pending {
        /// Which.
        id: TxId,
        /// Where it stopped.
        path: Vec<u8>,
        /// The kernel's answer.
        error: Errno,
    },
    /// The area of a subtransaction has a log without its table.
    NoTable,
    /// Its area has the identity of another one within reach: one is a copy, and nobody knows which.
    Twin {
        /// Index of that one among those to be opened.
        first: usize,
        /// The identity.
        id: [u8; 16],
    },
    /// The kernel.
    Os(&'static str, Errno),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Area(e) => e.fmt(f),
            OpenError::Table(e) => e.fmt(f),
            OpenError::Owners(e) => e.fmt(f),
            OpenError::Log(e) => e.fmt(f),
            OpenError::Unsupported(what) => write!(f, "this file system has no {what}; keep what is to be transactional on ext4, xfs, btrfs or tmpfs"),
            OpenError::Pending { id, path, error } => write!(
                f,
                "transaction {id} is committed, but its publication stops at {}: {error}; remove the cause and run `systx recover`",
                Shown(path)
            ),
            OpenError::NoTable => write!(
                f,
                "the area of a subtransaction has lost its table, without which its log is not replayed; run the outer transaction again"
            ),
            OpenError::Twin { .. } => f.write_str("the area has the same identity as another one: a copy of a file system is not used beside its original"),
            OpenError::Os(doing, e) => write!(f, "{doing}: {e}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The domains of several places, `None` where there is none; or the place that failed, and why.
pub type Existing<O> = core::result::Result<Vec<Option<Arc<Domain<O>>>>, (usize, OpenError)>;

/// Where a domain is to be opened.
pub struct Location<'a, O: Os> {
    /// Root of the mount.
    pub root: Arc<O::Fd>,
    /// Directory of the area.
    pub parent: &'a O::Fd,
    /// Name of the area.
    pub name: &'a [u8],
}

/// Opens several domains that may share transactions: first all areas, so that each recovery finds the others' logs.
///
/// # Errors
/// [`OpenError`] of the first that can't be opened, with its index.
pub fn open_all<O: Os>(
    os: &O,
    sites: &[Location<'_, O>],
) -> core::result::Result<Vec<Arc<Domain<O>>>, (usize, OpenError)> {
    open_all_doubting(os, sites, &[])
}

/// As [`open_all`], where two areas have each of these identities, one of which is left out: neither answers for it.
///
/// # Errors
/// As of [`open_all`].
pub fn open_all_doubting<O: Os>(
    os: &O,
    sites: &[Location<'_, O>],
    doubted: &[[u8; 16]],
) -> core::result::Result<Vec<Arc<Domain<O>>>, (usize, OpenError)> {
    let opened = open_each(os, sites, doubted, true)?.into_iter().enumerate();
    opened.map(|(n, domain)| domain.ok_or((n, OpenError::Os("making the area", Errno::NOENT)))).collect()
}

/// The same of those that have an area; no area is made. `None`: there is none, or one that nobody has ever used.
///
/// # Errors
/// As of [`open_all`].
pub fn open_existing<O: Os>(os: &O, sites: &[Location<'_, O>], doubted: &[[u8; 16]]) -> Existing<O> {
    open_each(os, sites, doubted, false)
}

fn open_each<O: Os>(os: &O, sites: &[Location<'_, O>], doubted: &[[u8; 16]], make: bool) -> Existing<O> {
    let peers = Peers::doubting(doubted);
    let mut areas: Vec<Option<(Area<O>, FsInfo)>> = Vec::new();
    for (n, site) in sites.iter().enumerate() {
        let found = Domain::area(os, site, &peers, make).map_err(|e| (n, e))?;
        // Several mounts may lead to one area.
        let place = |area: &Area<O>| os.stat(&area.dir).map(|stat| (stat.dev, stat.ino));
        if let Some((area, _)) = &found {
            let is_twin = |other: &Area<O>| other.id.id == area.id.id && place(other) != place(area);
            let twin = areas.iter().position(|other| other.as_ref().is_some_and(|(other, _)| is_twin(other)));
            if let Some(first) = twin.filter(|_| !mutant::on(Mutant::TwinsWelcome)) {
                return Err((n, OpenError::Twin { first, id: area.id.id }));
            }
        }
        areas.push(found);
    }
    // A coordinator before its participants: what they find depends on what has become of it.
    let mut order: Vec<_> = (0..areas.len()).collect();
    order.sort_by_key(|n| areas[*n].as_ref().map(|(area, _)| area.id.id));
    let mut domains: Vec<_> = areas.iter().map(|_| None).collect();
    for n in order {
        let found = areas[n].take();
        let opened = found.map(|(area, info)| Domain::open_in(os, area, info, &peers));
        domains[n] = opened.transpose().map_err(|e| (n, e))?;
    }
    Ok(domains)
}

impl<O: Os> Domain<O> {
    /// Opens one domain, making its area if need be.
    ///
    /// # Errors
    /// [`OpenError`]; nothing happened.
    pub fn open(os: &O, site: Location<'_, O>) -> core::result::Result<Arc<Domain<O>>, OpenError> {
        let peers = Peers::default();
        let found = Self::area(os, &site, &peers, true)?;
        let (area, info) = found.ok_or(OpenError::Os("making the area", Errno::NOENT))?;
        Self::open_in(os, area, info, &peers)
    }

    fn area(
        os: &O,
        site: &Location<'_, O>,
        peers: &Peers<O>,
        make: bool,
    ) -> core::result::Result<Option<(Area<O>, FsInfo)>, OpenError> {
        let area =
            Area::open(os, site.root.clone(), site.parent, site.name, make).map_err(OpenError::Area)?;
        let Some(area) = area else { return Ok(None) };
        let info = area.info;
        if !info.handles {
            return Err(OpenError::Unsupported("file handles (name_to_handle_at)"));
        }
        if !info.rename_flags {
            return Err(OpenError::Unsupported("RENAME_EXCHANGE and RENAME_NOREPLACE"));
        }
        let dir = os.dup(&area.dir).map_err(|e| OpenError::Os("opening the area", e))?;
        peers.add_area(area.id.id, PeerArea::new(dir, area.id, info.life));
        Ok(Some((area, info)))
    }

    fn open_in(
        os: &O,
        area: Area<O>,
        info: FsInfo,
        peers: &Peers<O>,
    ) -> core::result::Result<Arc<Domain<O>>, OpenError> {
        let area_handle = os.handle(&area.dir).map_err(|e| OpenError::Os("identifying the area", e))?;
        let owners = Owners::open(os, &area).map_err(OpenError::Owners)?;
        let mut recovered = Recovered::default();
        let (table, claim) = loop {
            let initializer = match Self::table(os, &area, &info, &owners, peers)? {
                Opened::Ready(table) => {
                    let claim = owners.claim().map_err(OpenError::Owners)?;
                    // Whoever has found it stale meanwhile did not see this process.
                    if table.condemned() && !mutant::on(Mutant::StaleFirst) {
                        continue;
                    }
                    break (table, claim);
                }
                Opened::Stale(initializer) => initializer,
            };
            // Before the sync that ends it.
            let began = Began::now(os);
            let after = recovery::after_reboot(os, &area, &info, peers, &mut recovered)?;
            let claim = owners.claim().map_err(OpenError::Owners)?;
            // Nobody lives under this index once the table is there: it is for what could not be published.
            let dead = after.stuck.first().map(|_| owners.claim()).transpose().map_err(OpenError::Owners)?;
            let table = initializer.finish(after.next, after.next_tx, |mem| {
                begin_log(os, &area, mem, claim.ix, dead.as_ref().map(|claim| claim.ix), &after)
            });
            let table = table?;
            table.set_checkpointed_ns(os.monotonic_ns());
            table.on_disk().store_synced(began);
            break (table, claim);
        };
        let mem = table.mem().clone();
        let log = Log::open(os.clone(), &area.dir, mem, LOG_BASE, area.id).map_err(OpenError::Log)?;
        let mut domain = Domain {
            os: os.clone(),
            key: area.id.id,
            area,
            info,
            recovered,
            table,
            owners,
            log,
            peers: peers.clone(),
            area_handle,
            barrier: Mutex::new(None),
            shelf: Mutex::new(None),
            point: OnceLock::new(),
            known: Mutex::default(),
            finishing: Mutex::new(()),
            claim,
        };
        let failed = |e| OpenError::Os("finishing what a dead process left", e);
        loop {
            let left = domain.inherit().map_err(failed)?;
            domain.recovered.merge(left);
            if !domain.has_slots(domain.me()).map_err(failed)? {
                break;
            }
            // What can't be finished now must look dead to others, not alive through me.
            let other = domain.owners.claim().map_err(OpenError::Owners)?;
            drop(std::mem::replace(&mut domain.claim, other));
        }
        let domain = Arc::new(domain);
        peers.add(&domain);
        Ok(domain)
    }

    /// Opens the table. One whose log has seen a sync fail, was deleted, or is younger than the table, or where a doubt can end, is given up as soon
    /// as nobody uses it: the recovery that follows learns what the disk holds.
    fn table(
        os: &O,
        area: &Area<O>,
        info: &FsInfo,
        owners: &Owners<O>,
        peers: &Peers<O>,
    ) -> core::result::Result<Opened<O>, OpenError> {
        // What is prepared is decided by a recovery: when its coordinator is there again, or a person has.
        let doubt_ends = |table: &Table<O>| {
            let states: Vec<_> = table.slots().in_flight().map(|s| s.map(|s| s.seen.state())).collect();
            let prepared = states.iter().all(|state| *state == Ok(SlotState::Prepared));
            prepared && !states.is_empty() && recovery::can_be_decided(os, area, peers)
        };
        let useless = |table: &Table<O>| {
            let log = Log::open(os.clone(), &area.dir, table.mem().clone(), LOG_BASE, area.id);
            let is_useless =
                |log: Log<O>| log.is_poisoned() || log.is_gone() || log.is_ahead_of(|| table.next());
            log.map(|log| is_useless(log) || doubt_ends(table)).map_err(OpenError::Log)
        };
        let open = || Table::open(os, area, owners, info.life).map_err(OpenError::Table);
        let table = match open()? {
            Opened::Ready(table) if useless(&table)? => table,
            opened => return Ok(opened),
        };
        // Byte 0: nobody rebuilds it meanwhile.
        if let Some(_byte) = owners.initialiser().map_err(OpenError::Owners)? {
            if useless(&table)? && !owners.anybody() {
                table.condemn();
            }
        }
        open()
    }

    /// Finishes what the last owner of my index left, and takes its place.
    fn inherit(&self) -> Result<Recovered> {
        self.inherit_lock_of(self.me())?;
        let recovered = recovery::finish_owner(self, self.me())?;
        self.table.records().clear(self.me());
        Ok(recovered)
    }

    /// Whether an owner has transactions in flight that it (or its helper) has to finish.
    pub(crate) fn has_slots(&self, ix: OwnerIx) -> Result<bool> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if slot.info.owner == ix && slot.seen.state() != SlotState::Prepared {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the file system comes back after a power loss or another mount.
    pub(crate) fn comes_back(&self) -> bool {
        self.info.life != FsInfo::LIVES_ONCE
    }

    /// This process among the owners.
    pub fn me(&self) -> OwnerIx {
        self.claim.ix
    }

    /// Whether that owner lives.
    pub(crate) fn alive(&self, ix: OwnerIx) -> bool {
        ix == self.me() || self.owners.alive(ix)
    }

    /// Shared memory that makes no sense: nobody goes on with it.
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

    /// Whether an object is our own area, which no transaction sees.
    pub fn is_area(&self, handle: &Handle) -> bool {
        *handle == self.area_handle
    }

    /// Names of a directory that is open as `fd`, without our area.
    pub(crate) fn visible_names(&self, dir: &LowerDir<O>, fd: &O::Fd) -> Result<Vec<Dirent>> {
        let mut names = self.os.read_dir(fd)?;
        if dir.path.is_empty() {
            names.retain(|d| !self.os.handle_at(fd, &d.name).is_ok_and(|h| self.is_area(&h)));
        }
        Ok(names)
    }
}
