//! A domain seen from outside of any transaction: who is at work, what is left, and the sweeping.
//!
//! Owns: the lists behind `systx list`, `recover` and `prune`. Guarantees: nothing of a living process is touched;
//! what the dead left is finished by the same code as by the next user. Does not: remove a displaced object that was
//! not asked for.

use crate::domain::reports;
use crate::domain::{Domain, SlotState};
use crate::id::{OwnerIx, TxId};
use crate::objects::remove_all;
use crate::outcome::Recovered;
use crate::recovery;
use systx_os::{FileType, Open, Os, Result, Timestamp};

pub use crate::domain::reports::Report;

/// Room is short when less than one of so many parts is free.
const ROOM_PART: u64 = 20;

/// Between two looks at what others publish, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 5_000_000;

/// A transaction of a living process, or one in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Number.
    pub tx: TxId,
    /// Process, as it knows itself.
    pub pid: u32,
    /// When it began; `None` when only its slot is left.
    pub since: Option<Timestamp>,
    /// Command; empty when unknown.
    pub command: Vec<u8>,
    /// State of its active entry; `None` while it runs.
    pub state: Option<SlotState>,
    /// True if its process lives.
    pub alive: bool,
}

impl<O: Os> Domain<O> {
    /// All transactions that run or are in flight, this process's own included.
    pub fn transactions(&self) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for (ix, record) in self.table.records().all() {
            if record.open && self.alive(ix) {
                listed.push(Listed {
                    tx: record.tx,
                    pid: record.pid,
                    since: Some(record.since),
                    command: record.command,
                    state: None,
                    alive: true,
                });
            }
        }
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            let state = Some(slot.seen.state());
            match listed.iter_mut().find(|l| l.tx == slot.info.tx) {
                Some(known) => known.state = state,
                None => listed.push(Listed {
                    tx: slot.info.tx,
                    pid: slot.info.pid,
                    since: None,
                    command: Vec::new(),
                    state,
                    alive: self.alive(slot.info.owner),
                }),
            }
        }
        listed.sort_by_key(|l| l.tx);
        Ok(listed)
    }

    /// Finishes what dead processes left in flight, and lets go of what the log keeps where room is short: a
    /// few loads and one call when there is nothing.
    pub fn finish_in_flight(&self) -> Result<Recovered> {
        let mut owners = Vec::new();
        for slot in self.table.slots().in_flight() {
            owners.push(self.checked(slot)?.info.owner);
        }
        owners.extend(self.dead_sealers());
        owners.sort_unstable_by_key(|ix| ix.0);
        owners.dedup();
        let mut recovered = Recovered::default();
        for owner in owners.into_iter().filter(|ix| !self.alive(*ix)) {
            recovered.merge(recovery::help(self, owner)?);
        }
        if self.is_short_of_room() && self.log.bytes_since_checkpoint() > 0 {
            // Without it the next commit, after which one is usually made, may never come.
            let _ = self.checkpoint();
        }
        Ok(recovered)
    }

    /// Returns true if the file system is nearly out of blocks or inodes, of which the entries of published
    /// records may have many.
    pub(crate) fn is_short_of_room(&self) -> bool {
        let short = |free: u64, all: u64| free < all / ROOM_PART;
        self.os.statfs(&self.area.dir).is_ok_and(|s| short(s.bavail, s.blocks) || short(s.ffree, s.files))
    }

    /// Finishes what dead processes left: slots in flight and staging directories.
    pub fn finish_dead(&self) -> Result<Recovered> {
        let mut owners = Vec::new();
        for slot in self.table.slots().in_flight() {
            owners.push(self.checked(slot)?.info.owner);
        }
        owners.extend(self.os.read_dir(&self.area.tx)?.iter().filter_map(|entry| staging_owner(&entry.name)));
        owners.extend(self.dead_shared_stagings()?);
        owners.extend(self.dead_sealers());
        owners.sort_unstable_by_key(|ix| ix.0);
        owners.dedup();
        let mut recovered = Recovered::default();
        for ix in owners {
            if !self.alive(ix) {
                recovered.merge(recovery::help(self, ix)?);
            }
        }
        recovered.merge(self.finish_mine()?);
        // Also what a kill left behind the end of an abort or of a checkpoint.
        self.discard_orphans(None)?;
        recovered.unfinished.extend(self.compare_by_hand()?);
        // Where publishers are killed again and again no other process does it.
        recovered.unfinished.extend(self.checkpoint_if_due());
        Ok(recovered)
    }

    /// Waits until no publication is under way, neither of the living nor by successors of the dead, but at
    /// most `limit_ns`: before that, half of one may be in the tree. Returns what is still being published,
    /// and whether its process can't go on with it.
    pub fn wait_for_publications(&self, limit_ns: u64) -> Result<Vec<(TxId, bool)>> {
        let began = self.os.monotonic_ns();
        loop {
            let mut at_it = Vec::new();
            for slot in self.table.slots().in_flight() {
                let slot = self.checked(slot)?;
                // This process, too, has tried to finish entries of a dead owner that are left.
                if slot.seen.state() == SlotState::Publishing && self.owners.alive(slot.info.owner) {
                    at_it.push((slot.info.tx, slot.left));
                }
            }
            let late = self.os.monotonic_ns().saturating_sub(began) >= limit_ns;
            if late || at_it.iter().all(|(_, left)| *left) {
                return Ok(at_it);
            }
            self.os.pause(LOOK_AGAIN_NS);
        }
    }

    /// Names of the displaced objects that are kept.
    pub fn kept_aside(&self) -> Result<Vec<Vec<u8>>> {
        let mut names: Vec<_> =
            self.os.read_dir(&self.area.aside)?.into_iter().map(|entry| entry.name).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the conflict copies, as they were noted when they were made, by any publisher; paths as people
    /// know them.
    pub fn reports(&self) -> Result<Vec<Report>> {
        let mut reports = reports::all(&self.os, &self.area.dir)?;
        reports.iter_mut().for_each(|report| report.path = self.shown(&report.path));
        Ok(reports)
    }

    /// Notes that the result of [`Domain::reports`] was reported. Where that can't be written it is reported
    /// again.
    pub fn reports_were_told(&self) {
        let _ = reports::all_told(&self.os, &self.area.dir);
    }

    /// Forgets the reports of one transaction.
    pub fn remove_reports(&self, tx: TxId) -> Result<()> {
        reports::remove(&self.os, &self.area.dir, tx)
    }

    /// Removes a displaced object for good.
    pub fn remove_aside(&self, name: &[u8]) -> Result<()> {
        let aside = &self.area.aside;
        if self.os.stat_at(aside, name)?.kind() != FileType::Directory {
            return self.os.unlink(aside, name);
        }
        remove_all(&self.os, &self.os.open(aside, name, Open::Directory)?)?;
        self.os.rmdir(aside, name)
    }
}

/// The owner that an unsealed staging directory `<id>.<owner>~` belongs to.
fn staging_owner(name: &[u8]) -> Option<OwnerIx> {
    let (id, owner) = core::str::from_utf8(name.strip_suffix(b"~")?).ok()?.split_once('.')?;
    id.parse::<u64>().ok()?;
    owner.parse().ok().map(OwnerIx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unsealed_staging_directories_have_an_owner_in_their_name() {
        assert_eq!(staging_owner(b"12.7~"), Some(OwnerIx(7)));
        for name in [&b"12"[..], b"12.7", b"12~", b"x.7~", b"12.x~", b"\xff.1~"] {
            assert_eq!(staging_owner(name), None);
        }
    }
}
