//! The beginning of a new log after a recovery.
//!
//! Guarantees: the new log says what is published and synced, and what stays prepared, before anything of the
//! old one goes. Does not: recover ([`crate::recovery`] did).

use super::reboot::{sweep, After};
use super::stuck::Stuck;
use crate::domain::layout::{LOCK_WORD, LOG_BASE, SLOTS};
use crate::domain::{changed_by, place_of, Area, OpenError, Place, SlotInfo, SlotState, Slots};
use crate::id::{Lsn, OwnerIx};
use crate::lock::{Locked, RobustLock};
use crate::log::{say_at_end, Cell, Log, LogError};
use crate::mutant::{self, Mutant};
use crate::publish::Pending;
use std::sync::Arc;
use systx_os::{Errno, Os, Words};

/// After a recovery: a new log begins, which says what is published and synced, before anything of the old
/// one goes. What could not be published gets a slot of the owner `dead`.
pub(super) fn begin_log<O: Os>(
    os: &O,
    area: &Area<O>,
    mem: &Arc<O::Mem>,
    me: OwnerIx,
    dead: Option<OwnerIx>,
    after: &After,
) -> core::result::Result<(), OpenError> {
    let log = Log::open(os.clone(), &area.dir, mem.clone(), LOG_BASE, area.id).map_err(OpenError::Log)?;
    // No other process is there yet.
    let nobody = |_: OwnerIx| false;
    let lock = RobustLock { word: LOCK_WORD };
    let broken = |_| OpenError::Os("taking the commit lock", Errno::UCLEAN);
    let locked = lock.lock(&**mem, me, &nobody).map_err(broken)?;
    log.start(me, &nobody, after.replay.start(after.checkpoint)).map_err(OpenError::Log)?;
    let told = if after.replay.segments.is_empty() {
        None
    } else {
        // Without its decision a prepared record would be asked about, and taken again, at every boot.
        let cells = after.decided.iter().copied().chain([Cell::Checkpoint { lsn: after.checkpoint }]);
        let cells: Vec<_> = cells.collect();
        let append = |cell: &Cell| log.append_cell(&locked, me, &nobody, *cell);
        let told = cells.iter().map(append).last();
        let full = matches!(&told, Some(Err(LogError::Os { error: Errno::NOSPC | Errno::DQUOT, .. })));
        if full && !mutant::on(Mutant::FullForgets) {
            // Else each opening redid all of it until there is room, over what others have done since. Best effort:
            // where it can't be said, it is so.
            let _ = say_at_end(os, &area.dir, &area.id, &after.replay, &cells);
        }
        told
    };
    let slots = Slots::new(&**mem);
    fill(&slots, &locked, me, dead, after)?;
    lock.unlock(&**mem, locked).map_err(broken)?;
    if let Some(told) = told {
        let told = told.map_err(OpenError::Log)?;
        log.sync(me, &nobody, told).map_err(|e| OpenError::Os("syncing the log", e.error))?;
        log.drop_segments(me, &nobody, after.checkpoint, u64::MAX).map_err(OpenError::Log)?;
    }
    sweep(os, area, &after.kept).map_err(|e| OpenError::Os("clearing the area", e))
}

/// Gives an active entry to each transaction that is not at its end.
fn fill<M: Words>(
    slots: &Slots<'_, M>,
    locked: &Locked,
    me: OwnerIx,
    dead: Option<OwnerIx>,
    after: &After,
) -> core::result::Result<(), OpenError> {
    // Half of the entries stay for new transactions. More stuck ones than that can't be kept apart: the
    // domain stays closed.
    if let Some(first) = after.stuck.first().filter(|_| after.stuck.len() > SLOTS / 2) {
        return Err(pending(first));
    }
    let broken = |_| OpenError::Os("taking the commit lock", Errno::UCLEAN);
    // Prepared transactions that no party here can decide keep their objects: a transaction that meets them
    // conflicts at once.
    for (tx, body) in &after.undecided {
        let too_many = OpenError::Os("keeping prepared transactions: there are too many", Errno::AGAIN);
        let free = slots.find_free(locked).map_err(broken)?.ok_or(too_many)?;
        let info = SlotInfo {
            lsn: Lsn(0),
            tx: *tx,
            owner: me,
            pid: 0,
            durable: true,
            multi_domain: true,
            redo: false,
            body: Place::default(),
            footprint: changed_by(&body.steps).footprint(),
        };
        let filled = slots.fill(locked, free, &info, SlotState::Prepared);
        filled.map_err(|_| OpenError::Os("keeping a prepared transaction", Errno::UCLEAN))?;
    }
    for (stuck, owner) in after.stuck.iter().filter_map(|stuck| Some((stuck, dead?))) {
        let free = slots.find_free(locked).map_err(broken)?.ok_or_else(|| pending(stuck))?;
        let body = &stuck.body;
        let info = SlotInfo {
            lsn: stuck.lsn,
            tx: stuck.id,
            owner,
            pid: 0,
            durable: true,
            multi_domain: body.coordinator.is_some() || !body.participants.is_empty(),
            redo: true,
            body: place_of(stuck.at),
            footprint: changed_by(&body.steps).footprint(),
        };
        let filled = slots.fill(locked, free, &info, SlotState::Publishing);
        filled.map_err(|_| OpenError::Os("keeping a pending transaction", Errno::UCLEAN))?;
    }
    Ok(())
}

fn pending(stuck: &Stuck) -> OpenError {
    let Pending { path, error } = stuck.pending.clone();
    OpenError::Pending { id: stuck.id, path, error }
}
