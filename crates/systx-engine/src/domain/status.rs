//! What goes on in a domain, for people: running and in-flight transactions, displaced objects; and finishing on request.

use super::open::Domain;
use super::{Record, SlotState};
use crate::id::{Lsn, OwnerIx, TxId};
use crate::publish::reclaim::remove_all;
use crate::recovery::{self, Recovered};
use systx_os::{Errno, FileType, Open, Os, Result, Timestamp};

/// A transaction that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its process among the owners.
    pub owner: OwnerIx,
    /// What it said when it began.
    pub record: Record,
}

/// A transaction between validation and done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightReport {
    /// Number.
    pub id: TxId,
    /// Place in the order.
    pub lsn: Lsn,
    /// How far it is.
    pub state: SlotState,
    /// Process, as it knows itself.
    pub pid: u32,
    /// Whether its owner lives.
    pub alive: bool,
}

/// An object that a commit or an outsider displaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideEntry {
    /// Its name below `aside/`: `<transaction>.<slot>`.
    pub name: String,
    /// Its type.
    pub kind: FileType,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time.
    pub mtime: Timestamp,
}

impl<O: Os> Domain<O> {
    /// Transactions that have announced themselves and whose process lives.
    pub fn running(&self) -> Vec<Running> {
        let indexes = 1..super::layout::OWNERS;
        let records =
            indexes.filter_map(|ix| self.table.records().get(OwnerIx(ix)).map(|r| (OwnerIx(ix), r)));
        let alive = records.filter(|(ix, record)| record.tx.0 != 0 && self.alive(*ix));
        alive.map(|(owner, record)| Running { owner, record }).collect()
    }

    /// Transactions in flight.
    pub fn in_flight(&self) -> Result<Vec<InFlightReport>> {
        let mut found = Vec::new();
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            found.push(InFlightReport {
                id: slot.info.tx,
                lsn: slot.info.lsn,
                state: slot.seen.state(),
                pid: slot.info.pid,
                alive: self.alive(slot.info.owner),
            });
        }
        Ok(found)
    }

    /// Finishes what dead owners left in flight.
    pub fn recover(&self) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        let slots: Vec<_> = self.table.slots().in_flight().collect();
        for slot in slots {
            let slot = self.checked(slot)?;
            if slot.seen.state() != SlotState::Prepared && !self.alive(slot.info.owner) {
                recovered.merge(recovery::help(self, slot.info.owner)?);
            }
        }
        Ok(recovered)
    }

    /// Displaced objects.
    pub fn aside(&self) -> Result<Vec<AsideEntry>> {
        let mut found = Vec::new();
        for entry in self.os.read_dir(&self.area.aside)? {
            let stat = self.os.stat_at(&self.area.aside, &entry.name)?;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            found.push(AsideEntry { name, kind: entry.kind, size: stat.size, mtime: stat.mtime });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Deletes one displaced object for good.
    pub fn forget_aside(&self, name: &str) -> Result<()> {
        let (dir, name) = (&self.area.aside, name.as_bytes());
        if self.os.stat_at(dir, name)?.kind() != FileType::Directory {
            return self.os.unlink(dir, name);
        }
        remove_all(&self.os, &self.os.open(dir, name, Open::Directory)?)?;
        self.os.rmdir(dir, name)
    }

    /// Deletes staging of transactions whose process is dead; returns how many there were.
    pub fn prune_staging(&self) -> Result<u64> {
        let mut pruned = 0;
        for entry in self.os.read_dir(&self.area.tx)? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let owner =
                name.strip_suffix('~').and_then(|n| n.split_once('.')).and_then(|(_, ix)| ix.parse().ok());
            let Some(owner) = owner.map(OwnerIx) else { continue };
            // Holding the dead owner's byte keeps a new process from taking its place meanwhile.
            let Ok(Some(_claim)) = self.owners.claim_of(owner) else { continue };
            let dir = self.os.open(&self.area.tx, &entry.name, Open::Directory)?;
            remove_all(&self.os, &dir)?;
            match self.os.rmdir(&self.area.tx, &entry.name) {
                Ok(()) | Err(Errno::NOENT) => pruned += 1,
                Err(e) => return Err(e),
            }
        }
        Ok(pruned)
    }
}
