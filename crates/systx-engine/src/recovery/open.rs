//! The opening of domains, which recovers first: after a reboot or another mount the whole domain from its
//! log, else what the last owner of this process's index left behind. So nobody ever works in a domain that
//! has unfinished business of the dead in his way.

use super::begin::begin_log;
use super::owner::finish_owner;
use super::reboot::{after_reboot, can_be_decided};
use crate::domain::layout::LOG_BASE;
use crate::domain::on_disk::Began;
use crate::domain::table::{LOOKS_AT_OWNERS, LOOK_AGAIN_NS};
use crate::domain::{
    Area, Domain, InFlight, Location, Make, OpenError, Opened, Owned, Owners, PeerArea, Peers, SlotState,
    Table, TableError,
};
use crate::log::Log;
use crate::mutant::{self, Mutant};
use crate::outcome::Recovered;
use std::sync::Arc;
use systx_os::{Errno, FsInfo, Os, Result};
use tracing::{debug, debug_span};

/// The domains of several places, `None` where there is none; or the place that failed, and why.
pub type Existing<O> = core::result::Result<Vec<Option<Arc<Domain<O>>>>, (usize, OpenError)>;

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

/// Opens all, where two areas have each of these identities, one of which is left out: neither answers for
/// it.
///
/// # Errors
///
/// As of [`open_all`].
pub fn open_all_doubting<O: Os>(
    os: &O,
    sites: &[Location<'_, O>],
    doubted: &[[u8; 16]],
) -> core::result::Result<Vec<Arc<Domain<O>>>, (usize, OpenError)> {
    let opened = open_each(os, sites, doubted, Make::IfMissing)?.into_iter().enumerate();
    opened.map(|(n, domain)| domain.ok_or((n, OpenError::Os("making the area", Errno::NOENT)))).collect()
}

/// Opens those that have an area, and makes none. `None`: there is none, or one that was never used.
///
/// # Errors
///
/// As of [`open_all`].
pub fn open_existing<O: Os>(os: &O, sites: &[Location<'_, O>], doubted: &[[u8; 16]]) -> Existing<O> {
    open_each(os, sites, doubted, Make::Never)
}

fn open_each<O: Os>(os: &O, sites: &[Location<'_, O>], doubted: &[[u8; 16]], make: Make) -> Existing<O> {
    let peers = Peers::doubting(doubted);
    let mut areas: Vec<Option<(Area<O>, FsInfo)>> = Vec::new();
    for (n, site) in sites.iter().enumerate() {
        let found = Domain::area(os, site, &peers, make).map_err(|e| (n, e))?;
        // Several mounts may lead to one area.
        let place = |area: &Area<O>| os.stat(&area.dir).map(|stat| (stat.dev, stat.ino));
        if let Some((area, _)) = &found {
            let is_copy = |other: &Area<O>| other.id.id == area.id.id && place(other) != place(area);
            let copy = areas.iter().position(|other| other.as_ref().is_some_and(|(other, _)| is_copy(other)));
            if let Some(first) = copy.filter(|_| !mutant::on(Mutant::TwinsWelcome)) {
                return Err((n, OpenError::Copy { first, id: area.id.id }));
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
    /// [`OpenError`]; nothing was changed.
    pub fn open(os: &O, site: Location<'_, O>) -> core::result::Result<Arc<Domain<O>>, OpenError> {
        let peers = Peers::default();
        let found = Self::area(os, &site, &peers, Make::IfMissing)?;
        let (area, info) = found.ok_or(OpenError::Os("making the area", Errno::NOENT))?;
        Self::open_in(os, area, info, &peers)
    }

    /// Opens one more domain, making its area if need be: it and `others`, which were opened like this, are
    /// parties of each other's commits.
    ///
    /// # Errors
    /// [`OpenError`], with the index among `others` of a copy; nothing was changed.
    pub fn open_beside(
        os: &O,
        site: Location<'_, O>,
        others: &[Arc<Domain<O>>],
    ) -> core::result::Result<Arc<Domain<O>>, OpenError> {
        let peers = others.first().map_or_else(Peers::default, |domain| domain.peers.clone());
        let alone = Peers::default();
        let found = Self::area(os, &site, &alone, Make::IfMissing)?;
        let (area, info) = found.ok_or(OpenError::Os("making the area", Errno::NOENT))?;
        // Several mounts may lead to one area.
        let place = |area: &Area<O>| os.stat(&area.dir).map(|stat| (stat.dev, stat.ino));
        let is_copy = |other: &Area<O>| other.id.id == area.id.id && place(other) != place(&area);
        if let Some(first) = others.iter().position(|other| is_copy(&other.area)) {
            return Err(OpenError::Copy { first, id: area.id.id });
        }
        let dir = os.dup(&area.dir).map_err(|e| OpenError::Os("opening the area", e))?;
        peers.add_area(area.id.id, PeerArea::new(dir, area.id, info.life));
        Self::open_in(os, area, info, &peers)
    }

    fn area(
        os: &O,
        site: &Location<'_, O>,
        peers: &Peers<O>,
        make: Make,
    ) -> core::result::Result<Option<(Area<O>, FsInfo)>, OpenError> {
        let area = Area::open(os, site, make).map_err(OpenError::Area)?;
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
        let _opening = debug_span!("open", file_system = ?info.kind, life = ?info.life).entered();
        let area_handle = os.handle(&area.dir).map_err(|e| OpenError::Os("identifying the area", e))?;
        let owners = Owners::open(os, &area.dir).map_err(OpenError::Owners)?;
        let mut recovered = Recovered::default();
        let (table, claim) = loop {
            let initializer = match Self::table(os, &area, &info, &owners, peers)? {
                Opened::Ready(table) => {
                    let claim = owners.claim().map_err(OpenError::Owners)?;
                    // A process that has found it stale meanwhile did not see this one.
                    if table.condemned() && !mutant::on(Mutant::StaleFirst) {
                        continue;
                    }
                    break (table, claim);
                }
                Opened::Stale(initializer) => initializer,
            };
            debug!("no table of this mount: recovering from the log");
            // Before the sync that ends it.
            let began = Began::now(os);
            let after = after_reboot(os, &area, &info, peers, &initializer, &mut recovered)?;
            let claim = owners.claim().map_err(OpenError::Owners)?;
            // No process lives under this index once the table is there: it is for what could not be
            // published.
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
        let mut domain =
            Domain::new(area, area_handle, table, log, Owned { owners, claim }, peers.clone(), recovered);
        let failed = |e| OpenError::Os("finishing what a dead process left", e);
        loop {
            let left = domain.inherit().map_err(failed)?;
            domain.recovered.merge(left);
            if !domain.has_slots(domain.me()).map_err(failed)? {
                break;
            }
            domain.change_place().map_err(OpenError::Owners)?;
        }
        let found = &domain.recovered;
        debug!(owner = ?domain.me(), finished = found.finished, aborted = found.aborted, unfinished = ?found.unfinished, "recovered");
        let domain = Arc::new(domain);
        peers.add(&domain);
        Ok(domain)
    }

    /// Opens the table. One whose log has seen a sync fail, was deleted, or is younger than the table, or
    /// where a doubt can end, is given up as soon as no process uses it: the recovery that follows learns
    /// what the disk holds. Without a log nothing can be done meanwhile.
    fn table(
        os: &O,
        area: &Area<O>,
        info: &FsInfo,
        owners: &Owners<O>,
        peers: &Peers<O>,
    ) -> core::result::Result<Opened<O>, OpenError> {
        // A recovery decides prepared transactions: when the coordinator is there again, or a person has
        // decided.
        let doubt_ends = |table: &Table<O>| {
            let states: Vec<_> = table.slots().in_flight().map(|s| s.map(|s| s.seen.state())).collect();
            let prepared = states.iter().all(|state| *state == Ok(SlotState::Prepared));
            prepared && !states.is_empty() && can_be_decided(os, area, peers)
        };
        // What publishes without a record is in the table alone: whoever opens that finishes it first.
        let is_needed = |table: &Table<O>| {
            let without_record =
                |seen: &InFlight| !seen.info.durable && seen.seen.state() == SlotState::Publishing;
            !mutant::on(Mutant::UnloggedForgotten)
                && table.slots().in_flight().flatten().any(|seen| without_record(&seen))
        };
        let useless = |table: &Table<O>| {
            let log = Log::open(os.clone(), &area.dir, table.mem().clone(), LOG_BASE, area.id);
            let is_useless =
                |log: Log<O>| log.is_poisoned() || log.is_gone() || log.is_ahead_of(|| table.next());
            // In this life no recovery would learn what the disk lacks.
            let useless = |log: Log<O>| log.lost().is_none() && (is_useless(log) || doubt_ends(table));
            log.map(|log| !is_needed(table) && useless(log)).map_err(OpenError::Log)
        };
        // Those who use it can't commit any more, and let go of it.
        let is_gone = |table: &Table<O>| {
            let log = Log::open(os.clone(), &area.dir, table.mem().clone(), LOG_BASE, area.id);
            log.is_ok_and(|log| log.is_gone())
        };
        let open = || Table::open(os, area, owners, info.life).map_err(OpenError::Table);
        let table = match open()? {
            Opened::Ready(table) if useless(&table)? => table,
            opened => return Ok(opened),
        };
        for _ in 0..LOOKS_AT_OWNERS {
            // Byte 0: no process rebuilds it meanwhile.
            if let Some(_byte) = owners.initialiser().map_err(OpenError::Owners)? {
                if useless(&table)? && !owners.anybody() {
                    table.condemn();
                }
            }
            if table.condemned() || !is_gone(&table) {
                return open();
            }
            os.pause(LOOK_AGAIN_NS);
        }
        Err(OpenError::Table(TableError::InUse))
    }

    /// Finishes what the last owner of my index left, and takes its place.
    fn inherit(&self) -> Result<Recovered> {
        self.inherit_lock_of(self.me())?;
        let recovered = finish_owner(self, self.me())?;
        self.table.records().clear(self.me());
        Ok(recovered)
    }
}
