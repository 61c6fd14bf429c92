//! A domain, open in this process: area, table, log and this process's place among the owners.
//!
//! Opening recovers first: after a reboot the whole domain from its log, in the same boot what the last owner of this
//! process's index left behind. So nobody ever works in a domain that has unfinished business of the dead in his way.

use super::layout::{LOCK_WORD, LOG_BASE};
use super::{
    Area, AreaError, Claim, Corrupt, Locked, Opened, Owners, OwnersError, Place, Record, RobustLock,
    SlotInfo, SlotState, Slots, Table, TableError,
};
use crate::facts::LowerDir;
use crate::id::{Footprint, Lsn, ObjectId, OwnerIx, TxId};
use crate::log::{Cell, Log, LogError, Replay};
use crate::mutant::{self, Mutant};
use crate::outcome::Displaced;
use crate::publish::reclaim::remove_all;
use crate::record::{Act, Body};
use crate::recovery::{self, Recovered};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use systx_os::{Dirent, Errno, FileType, FsInfo, Handle, Open, Os, Rename, Result};

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
    barrier: Mutex<Option<Arc<O::Fd>>>,
    /// Where the file system is mounted, for messages.
    point: OnceLock<Vec<u8>>,
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
            OpenError::Unsupported(what) => write!(f, "this file system has no {what}"),
            OpenError::Pending { id, path, error } => write!(
                f,
                "transaction {id} is committed, but its publication stops at {}: {error}; remove the cause and run `systx recover`",
                String::from_utf8_lossy(path)
            ),
            OpenError::Os(doing, e) => write!(f, "{doing}: {e}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The other domains, by [`Domain::key`]: parties of commits over several of them.
pub struct Peers<O: Os>(Arc<Mutex<Known<O>>>);

struct Known<O: Os> {
    domains: HashMap<[u8; 16], Weak<Domain<O>>>,
    areas: HashMap<[u8; 16], PeerArea<O>>,
}

/// A domain's area, as others see it.
pub(crate) struct PeerArea<O: Os> {
    dir: Arc<O::Fd>,
    uuid: [u8; 16],
}

impl<O: Os> PeerArea<O> {
    /// What its log says.
    pub fn replay(&self, os: &O) -> core::result::Result<Replay, LogError> {
        crate::log::replay(os, &self.dir, self.uuid)
    }
}

impl<O: Os> Clone for PeerArea<O> {
    fn clone(&self) -> Self {
        PeerArea { dir: self.dir.clone(), uuid: self.uuid }
    }
}

/// What tells a domain from all others: several mounts of one file system may have an area each.
fn key_of(uuid: &[u8; 16], area: &Handle) -> [u8; 16] {
    let mut h = xxhash_rust::xxh3::Xxh3::new();
    h.update(uuid);
    h.update(&area.kind.to_le_bytes());
    h.update(area.as_bytes());
    h.digest128().to_le_bytes()
}

impl<O: Os> Clone for Peers<O> {
    fn clone(&self) -> Self {
        Peers(self.0.clone())
    }
}

impl<O: Os> Default for Peers<O> {
    fn default() -> Self {
        Peers(Arc::new(Mutex::new(Known { domains: HashMap::new(), areas: HashMap::new() })))
    }
}

impl<O: Os> Peers<O> {
    fn known(&self) -> std::sync::MutexGuard<'_, Known<O>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// The domain of that key, if it is open in this process.
    pub fn get(&self, key: &[u8; 16]) -> Option<Arc<Domain<O>>> {
        self.known().domains.get(key).and_then(Weak::upgrade)
    }
    /// The area of that key, if it is at hand.
    pub(crate) fn area(&self, key: &[u8; 16]) -> Option<PeerArea<O>> {
        self.known().areas.get(key).cloned()
    }
}

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
    let peers = Peers::default();
    let mut areas = Vec::new();
    for (n, site) in sites.iter().enumerate() {
        areas.push(Domain::area(os, site, &peers).map_err(|e| (n, e))?);
    }
    let opened = areas.into_iter().enumerate();
    opened.map(|(n, (area, info))| Domain::open_in(os, area, info, &peers).map_err(|e| (n, e))).collect()
}

impl<O: Os> Domain<O> {
    /// Opens one domain, making its area if need be.
    ///
    /// # Errors
    /// [`OpenError`]; nothing happened.
    pub fn open(os: &O, site: Location<'_, O>) -> core::result::Result<Arc<Domain<O>>, OpenError> {
        let peers = Peers::default();
        let (area, info) = Self::area(os, &site, &peers)?;
        Self::open_in(os, area, info, &peers)
    }

    fn area(
        os: &O,
        site: &Location<'_, O>,
        peers: &Peers<O>,
    ) -> core::result::Result<(Area<O>, FsInfo), OpenError> {
        let area =
            Area::open(os, site.root.clone(), site.parent, site.name, true).map_err(OpenError::Area)?;
        let area = area.ok_or(OpenError::Os("making the area", Errno::NOENT))?;
        let info = os.fs_info(&area.tx).map_err(|e| OpenError::Os("probing the file system", e))?;
        if !info.handles {
            return Err(OpenError::Unsupported("file handles (name_to_handle_at)"));
        }
        if !info.rename_flags {
            return Err(OpenError::Unsupported("RENAME_EXCHANGE and RENAME_NOREPLACE"));
        }
        let dir = os.dup(&area.dir).map_err(|e| OpenError::Os("opening the area", e))?;
        let handle = os.handle(&area.dir).map_err(|e| OpenError::Os("identifying the area", e))?;
        let peer = PeerArea { dir: Arc::new(dir), uuid: info.uuid };
        peers.known().areas.insert(key_of(&info.uuid, &handle), peer);
        Ok((area, info))
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
        let found = Self::table(os, &area, &info, &owners)?;
        let (table, claim) = match found {
            Opened::Ready(table) => (table, owners.claim().map_err(OpenError::Owners)?),
            Opened::Stale(initializer) => {
                let after = recovery::after_reboot(os, &area, &info, peers, &mut recovered)?;
                let claim = owners.claim().map_err(OpenError::Owners)?;
                let table = initializer.finish(after.next, after.next_tx, |mem| {
                    begin_log(os, &area, &info, mem, claim.ix, &after)
                });
                let table = table?;
                table.set_checkpointed_ns(os.monotonic_ns());
                (table, claim)
            }
        };
        let mem = table.mem().clone();
        let log = Log::open(os.clone(), &area.dir, mem, LOG_BASE, info.uuid).map_err(OpenError::Log)?;
        let mut domain = Domain {
            os: os.clone(),
            area,
            info,
            recovered,
            table,
            owners,
            log,
            peers: peers.clone(),
            key: key_of(&info.uuid, &area_handle),
            area_handle,
            barrier: Mutex::new(None),
            point: OnceLock::new(),
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
        peers.known().domains.insert(domain.key, Arc::downgrade(&domain));
        Ok(domain)
    }

    /// Opens the table. One whose log has seen a sync fail is given up as soon as nobody uses it: the recovery that
    /// follows learns what the disk holds.
    fn table(
        os: &O,
        area: &Area<O>,
        info: &FsInfo,
        owners: &Owners<O>,
    ) -> core::result::Result<Opened<O>, OpenError> {
        let poisoned = |table: &Table<O>| {
            let log = Log::open(os.clone(), &area.dir, table.mem().clone(), LOG_BASE, info.uuid);
            log.map(|log| log.is_poisoned()).map_err(OpenError::Log)
        };
        let open = || Table::open(os, area, owners).map_err(OpenError::Table);
        let table = match open()? {
            Opened::Ready(table) if poisoned(&table)? => table,
            opened => return Ok(opened),
        };
        // Byte 0: nobody rebuilds it meanwhile.
        if let Some(_byte) = owners.initialiser().map_err(OpenError::Owners)? {
            if poisoned(&table)? && !owners.anybody() {
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

    /// Lets go of the commit lock if the last owner of an index that this process holds now died with it.
    pub(crate) fn inherit_lock_of(&self, ix: OwnerIx) -> Result<()> {
        self.log.inherit(ix).map_err(|_| Errno::UCLEAN)?;
        match self.checked(self.table.inherit_lock(ix))? {
            Some(locked) => self.repair(&Held { domain: self, locked: Some(locked) }),
            None => Ok(()),
        }
    }

    /// Says where the file system is mounted, for messages: an absolute path.
    pub fn mounted_at(&self, point: &[u8]) {
        // Whoever says it first is believed.
        let _ = self.point.set(point.strip_suffix(b"/").unwrap_or(point).to_vec());
    }

    /// A path from the root of the mount as people know it.
    pub fn shown(&self, path: &[u8]) -> Vec<u8> {
        match self.point.get() {
            Some(point) => [point, &b"/"[..], path].concat(),
            None => path.to_vec(),
        }
    }

    /// The same for the paths of what was displaced.
    pub(crate) fn shown_all(&self, mut displaced: Vec<Displaced>) -> Vec<Displaced> {
        displaced.iter_mut().for_each(|d| d.path = self.shown(&d.path));
        displaced
    }

    /// This process among the owners.
    pub fn me(&self) -> OwnerIx {
        self.claim.ix
    }

    /// Whether that owner lives.
    pub(crate) fn alive(&self, ix: OwnerIx) -> bool {
        ix == self.me() || self.owners.alive(ix)
    }

    /// Takes the commit lock. It is let go when the value is dropped, but not by a panic: then a successor repairs.
    pub(crate) fn lock(&self) -> Result<Held<'_, O>> {
        let locked = self.checked(self.table.lock(self.me(), &|ix| self.alive(ix)))?;
        let taken_over = locked.taken_over.is_some();
        let held = Held { domain: self, locked: Some(locked) };
        if taken_over {
            self.repair(&held)?;
        }
        Ok(held)
    }

    /// After a takeover: a slot that its dead owner made visible before `next` moved gets its place in the ring now,
    /// so that no LSN is given twice. The slot itself is finished by whoever meets it.
    fn repair(&self, held: &Held<'_, O>) -> Result<()> {
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            let next = self.table.next();
            if slot.info.lsn == next {
                let who = super::Who { tx: slot.info.tx, pid: slot.info.pid };
                self.table.ring().put(held.proof(), next, who, &slot.info.footprint.changed());
                self.table.advance_next(held.proof());
            } else if slot.info.lsn > next {
                self.table.condemn();
                return Err(Errno::UCLEAN);
            }
        }
        Ok(())
    }

    /// Shared memory that makes no sense: nobody goes on with it.
    pub(crate) fn checked<T>(&self, result: core::result::Result<T, Corrupt>) -> Result<T> {
        result.map_err(|_| {
            self.table.condemn();
            Errno::UCLEAN
        })
    }

    /// Says what this process does, for `systx list`.
    pub fn announce(&self, tx: TxId, command: &str) {
        let record = Record {
            tx,
            pid: self.os.pid(),
            flags: 0,
            since: self.os.now(),
            command: command.as_bytes().to_vec(),
        };
        self.table.records().put(self.me(), &record);
    }

    /// A number for a new transaction.
    pub fn new_tx(&self) -> TxId {
        self.table.new_tx()
    }

    // ---- staging ---------------------------------------------------------------------------------------------------

    /// Makes the private staging directory of a new transaction: `tx/<id>.<owner>~`.
    pub fn begin_staging(&self) -> Result<(TxId, O::Fd)> {
        let id = self.new_tx();
        Ok((id, self.begin_staging_of(id)?))
    }

    /// The same for a transaction that has its number already.
    pub(crate) fn begin_staging_of(&self, id: TxId) -> Result<O::Fd> {
        let name = self.staging_name(id);
        self.os.mkdir(&self.area.tx, &name, 0o700)?;
        self.os.open(&self.area.tx, &name, Open::Directory)
    }

    /// Stands for the slots of a record that has none.
    pub(crate) fn no_slots(&self) -> Result<O::Fd> {
        self.os.dup(&self.area.tx)
    }

    /// Gives the staging directory its final name `tx/<id>`: the last act before the record is written.
    pub(crate) fn seal_staging(&self, id: TxId) -> Result<()> {
        if mutant::on(Mutant::NoSeal) {
            return Ok(());
        }
        let (from, to) = (self.staging_name(id), id.to_string());
        self.os.rename((&self.area.tx, &from), (&self.area.tx, to.as_bytes()), Rename::NoReplace)
    }

    fn staging_name(&self, id: TxId) -> Vec<u8> {
        if mutant::on(Mutant::NoSeal) {
            return id.to_string().into_bytes();
        }
        format!("{id}.{}~", self.me().0).into_bytes()
    }

    /// Deletes the staging directory of a transaction that does not happen, sealed or not. What can't be deleted is
    /// left to `systx prune`.
    pub fn discard_staging(&self, id: TxId) {
        let (unsealed, sealed) = (self.staging_name(id), id.to_string().into_bytes());
        for name in [&unsealed[..], &sealed[..]] {
            if let Ok(dir) = self.os.open(&self.area.tx, name, Open::Directory) {
                let _ = remove_all(&self.os, &dir);
                let _ = self.os.rmdir(&self.area.tx, name);
            }
        }
    }

    /// Deletes the unsealed staging directories of an owner that is dead.
    pub(crate) fn discard_unsealed_of(&self, ix: OwnerIx) -> Result<()> {
        let suffix = format!(".{}~", ix.0);
        for entry in self.os.read_dir(&self.area.tx)? {
            if entry.name.ends_with(suffix.as_bytes()) && entry.kind == FileType::Directory {
                let dir = self.os.open(&self.area.tx, &entry.name, Open::Directory)?;
                remove_all(&self.os, &dir)?;
                self.os.rmdir(&self.area.tx, &entry.name)?;
            }
        }
        Ok(())
    }

    /// The file whose sync closes a stage barrier.
    pub(crate) fn barrier_file(&self) -> Result<Arc<O::Fd>> {
        let mut barrier = self.barrier.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(fd) = &*barrier {
            return Ok(fd.clone());
        }
        let fd = match self.os.create(&self.area.dir, b"barrier", 0o600) {
            Err(Errno::EXIST) => self.os.open(&self.area.dir, b"barrier", Open::ReadWrite)?,
            made => made?,
        };
        Ok(barrier.insert(Arc::new(fd)).clone())
    }

    // ---- what is hidden --------------------------------------------------------------------------------------------

    /// Whether an object is our own area, which no transaction sees.
    pub fn is_area(&self, handle: &Handle) -> bool {
        *handle == self.area_handle
    }

    /// Names of a directory, without our area.
    pub(crate) fn visible_names(&self, dir: &LowerDir<O>) -> Result<Vec<Dirent>> {
        let mut names = self.os.read_dir(&dir.fd)?;
        if dir.path.is_empty() {
            names.retain(|d| !self.os.handle_at(&dir.fd, &d.name).is_ok_and(|h| self.is_area(&h)));
        }
        Ok(names)
    }
}

/// After a recovery: a new log begins, which says what is published and synced, before anything of the old one goes.
fn begin_log<O: Os>(
    os: &O,
    area: &Area<O>,
    info: &FsInfo,
    mem: &Arc<O::Mem>,
    me: OwnerIx,
    after: &recovery::After,
) -> core::result::Result<(), OpenError> {
    let log = Log::open(os.clone(), &area.dir, mem.clone(), LOG_BASE, info.uuid).map_err(OpenError::Log)?;
    // Nobody else is there yet.
    let nobody = |_: OwnerIx| false;
    let lock = RobustLock { word: LOCK_WORD };
    let broken = |_| OpenError::Os("taking the commit lock", Errno::UCLEAN);
    let locked = lock.lock(&**mem, me, &nobody).map_err(broken)?;
    log.start(me, &nobody, after.replay.start(after.checkpoint)).map_err(OpenError::Log)?;
    let told = match after.replay.segments.is_empty() {
        true => None,
        false => {
            // Without its decision a prepared record would be asked about, and taken again, at every boot.
            let cells = after.decided.iter().copied().chain([Cell::Checkpoint { lsn: after.checkpoint }]);
            cells.map(|cell| log.append_cell(&locked, me, &nobody, cell)).last()
        }
    };
    // Prepared transactions that nobody here can decide keep their objects: whoever meets them conflicts at once.
    let slots = Slots::new(&**mem);
    for (tx, body) in &after.undecided {
        let free = slots
            .find_free(&locked)
            .map_err(broken)?
            .ok_or(OpenError::Os("keeping prepared transactions: there are too many", Errno::AGAIN))?;
        let info = SlotInfo {
            lsn: Lsn(0),
            tx: *tx,
            owner: me,
            pid: 0,
            durable: true,
            multi_domain: true,
            body: Place::default(),
            footprint: footprint_of(body),
        };
        let filled = slots.fill(&locked, free, &info, SlotState::Prepared);
        filled.map_err(|_| OpenError::Os("keeping a prepared transaction", Errno::UCLEAN))?;
    }
    lock.unlock(&**mem, locked).map_err(broken)?;
    if let Some(told) = told {
        let told = told.map_err(OpenError::Log)?;
        log.sync(me, &nobody, told).map_err(|e| OpenError::Os("syncing the log", e.error))?;
        log.drop_segments(me, &nobody, after.checkpoint).map_err(OpenError::Log)?;
    }
    recovery::sweep(os, area, &after.kept).map_err(|e| OpenError::Os("clearing the area", e))
}

/// What a prepared record will change.
fn footprint_of(body: &Body) -> Footprint {
    let mut footprint = Footprint::EMPTY;
    for step in &body.steps {
        let written = &mut footprint.written;
        if !step.at.name.is_empty() {
            written.insert(ObjectId::entry(&step.at.dir, &step.at.name));
            written.insert(ObjectId::listing(&step.at.dir));
        }
        match &step.act {
            Act::Patch(patch) => written.insert(ObjectId::data(&patch.file)),
            Act::Attr { object, .. } => written.insert(ObjectId::attr(object)),
            Act::Replace { before, .. } | Act::Remove { before, .. } | Act::Take { before } => {
                written.insert(ObjectId::listing(before));
            }
            Act::Place { .. } | Act::Link { .. } => {}
        }
    }
    footprint
}

/// The commit lock, held.
pub(crate) struct Held<'d, O: Os> {
    domain: &'d Domain<O>,
    locked: Option<Locked>,
}

impl<O: Os> Held<'_, O> {
    /// What the parts of the table ask for.
    pub fn proof(&self) -> &Locked {
        self.locked.as_ref().unwrap_or_else(|| unreachable!("the lock is given back only by drop"))
    }
}

impl<O: Os> Drop for Held<'_, O> {
    fn drop(&mut self) {
        // A panic may have left what the lock protects half-changed: it stays held until this process is gone.
        if std::thread::panicking() {
            return;
        }
        if let Some(locked) = self.locked.take() {
            let _ = self.domain.checked(self.domain.table.unlock(locked));
        }
    }
}
