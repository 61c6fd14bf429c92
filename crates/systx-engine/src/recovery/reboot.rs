//! Recovery after a reboot, from the log alone.
//!
//! Every committed record above the checkpoint is published again, in log order: each step finds "applied", "mine to do" or
//! "theirs is later". Then the file system is synced, and only then the log says so. Participants of commits over several file
//! systems ask the coordinator's log; no record there is an abort (presumed abort).

use super::rebuild::slots_of;
use super::Recovered;
use crate::domain::{Area, OpenError, Peers};
use crate::id::{Lsn, TxId};
use crate::log::{self, Cell, Replay};
use crate::publish::publish;
use crate::publish::reclaim::{reclaim, remove_all};
use crate::publish::site::{Pass, Site};
use crate::record::Body;
use std::collections::HashSet;
use systx_os::{Errno, FileType, FsInfo, Open, Os, Result};

/// Where a domain goes on.
pub(crate) struct After {
    pub next: Lsn,
    pub next_tx: TxId,
    /// The log as it was found.
    pub replay: Replay,
    /// Everything up to here is published and synced.
    pub checkpoint: Lsn,
    /// Transactions of which a record is needed further on.
    pub kept: HashSet<TxId>,
    /// Prepared transactions that nobody here can decide.
    pub undecided: Vec<(TxId, Body)>,
}

/// A coordinator's decision, as a participant can learn it.
enum Decision {
    Forward,
    Abort,
    Unknown,
}

/// Brings a domain into the state that its log promises.
pub(crate) fn after_reboot<O: Os>(
    os: &O,
    area: &Area<O>,
    info: &FsInfo,
    peers: &Peers<O>,
    recovered: &mut Recovered,
) -> core::result::Result<After, OpenError> {
    let failed = |doing| move |e| OpenError::Os(doing, e);
    let replay = log::replay(os, &area.dir, info.uuid).map_err(OpenError::Log)?;
    if let Some(at) = replay.damaged {
        recovered.unfinished.push(format!(
            "the log is damaged at {at}: records behind it that were synced once can't be read; what they changed may be incomplete"
        ));
    }
    let mut kept = HashSet::new();
    let mut undecided = Vec::new();
    let mut checkpoint = replay.highest_lsn;
    for entry in &replay.records {
        let Some(body) = &entry.body else { continue };
        match entry.cell {
            Cell::Commit { lsn, .. } => {
                redo(os, area, body, recovered)?;
                if !settled(os, peers, body) {
                    // The participants ask this record: it stays until they have.
                    checkpoint = checkpoint.min(Lsn(lsn.0.saturating_sub(1)));
                    kept.insert(body.id);
                }
            }
            Cell::Prepared { id, .. } => match decision(os, peers, body) {
                Decision::Forward => redo(os, area, body, recovered)?,
                Decision::Abort => recovered.aborted += 1,
                Decision::Unknown => {
                    kept.insert(id);
                    recovered.unfinished.push(format!(
                        "transaction {id} is prepared and its coordinator is not mounted: its objects conflict until it is"
                    ));
                    undecided.push((id, body.clone()));
                }
            },
            _ => {}
        }
    }
    os.syncfs(&area.dir).map_err(failed("syncing what was recovered"))?;
    let mut highest = replay.highest_id.0;
    for dir in [&area.tx, &area.aside] {
        for entry in os.read_dir(dir).map_err(failed("reading the area"))? {
            let digits: Vec<u8> = entry.name.iter().copied().take_while(u8::is_ascii_digit).collect();
            let id = std::str::from_utf8(&digits).ok().and_then(|d| d.parse().ok()).unwrap_or(0);
            highest = highest.max(id);
        }
    }
    let (next, next_tx) = (Lsn(replay.highest_lsn.0 + 1), TxId(highest + 1));
    Ok(After { next, next_tx, replay, checkpoint, kept, undecided })
}

/// Publishes one record again.
fn redo<O: Os>(
    os: &O,
    area: &Area<O>,
    body: &Body,
    recovered: &mut Recovered,
) -> core::result::Result<(), OpenError> {
    let failed = |e| OpenError::Os("publishing a committed transaction again", e);
    let (slots, lost) = slots_of(os, area, body).map_err(failed)?;
    if lost {
        recovered.unfinished.push(format!(
            "transaction {}: the file system lost objects that were synced; it is incomplete",
            body.id
        ));
    }
    let mut site = Site::new(os, &area.root, &slots, &area.aside, body.id, Pass::Redo).map_err(failed)?;
    let displaced = publish(&mut site, body).map_err(|pending| OpenError::Pending {
        id: body.id,
        path: pending.path,
        error: pending.error,
    })?;
    recovered.displaced.extend(displaced);
    // What can't be deleted now goes with the slot directory.
    let _ = reclaim(&mut site, body);
    recovered.displaced.append(&mut site.displaced);
    recovered.finished += 1;
    Ok(())
}

/// What the coordinator of a prepared record decided.
fn decision<O: Os>(os: &O, peers: &Peers<O>, body: &Body) -> Decision {
    let Some((uuid, id)) = &body.coordinator else { return Decision::Unknown };
    let Some(area) = peers.area(uuid) else { return Decision::Unknown };
    let Ok(replay) = log::replay(os, &area, *uuid) else { return Decision::Unknown };
    let forward = replay.records.iter().any(|entry| match &entry.cell {
        Cell::Commit { lsn, id: found, .. } => found == id && !replay.aborted.contains(lsn),
        _ => false,
    });
    if forward {
        Decision::Forward
    } else {
        Decision::Abort
    }
}

/// Whether no participant of a coordinator's record can still ask for it.
pub(crate) fn settled<O: Os>(os: &O, peers: &Peers<O>, body: &Body) -> bool {
    body.participants.iter().all(|(uuid, id)| {
        let Some(area) = peers.area(uuid) else { return false };
        let Ok(replay) = log::replay(os, &area, *uuid) else { return false };
        // An undecided PREPARED is found with its body; a decided or dropped one is not.
        !replay
            .records
            .iter()
            .any(|e| matches!(&e.cell, Cell::Prepared { id: found, .. } if found == id) && e.body.is_some())
    })
}

/// Deletes slot directories and staging that no record needs any more. After a recovery nothing else uses them.
pub(crate) fn sweep<O: Os>(os: &O, area: &Area<O>, kept: &HashSet<TxId>) -> Result<()> {
    for entry in os.read_dir(&area.tx)? {
        let id = std::str::from_utf8(&entry.name).ok().and_then(|n| n.parse().ok()).map(TxId);
        if entry.kind != FileType::Directory || id.is_some_and(|id| kept.contains(&id)) {
            continue;
        }
        let dir = os.open(&area.tx, &entry.name, Open::Directory)?;
        remove_all(os, &dir)?;
        match os.rmdir(&area.tx, &entry.name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
