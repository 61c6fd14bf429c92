//! Recovery after a reboot, from the log alone.
//!
//! Every committed record above the checkpoint is published again, in log order: each step finds "applied",
//! "mine to do" or "theirs is later". Then the file system is synced, and only then the log says so.
//! Participants of commits over several file systems ask the coordinator's log; no record there is an abort
//! (presumed abort).

use super::chains::Chains;
use super::lifted;
use super::logs::{by_hand, kept_for, Decision, Logs};
use super::owner::finish_coordinator;
use super::rebuild::{slots_of, SlotDir};
use super::stuck::{builds_on, Stuck};
use crate::domain::decisions::{self, Kept};
use crate::domain::history::{self, Past};
use crate::domain::marks;
use crate::domain::shared_staging::{shared_stagings, slots_there, sweep_shared_stagings, SlotsOf};
use crate::domain::{Area, Initializer, OpenError, Peers};
use crate::id::{Lsn, TxId};
use crate::invariant::invariant;
use crate::log;
use crate::log::{Cell, Entry, Replay, Understood};
use crate::mutant::{self, Mutant};
use crate::objects::{identify, remove_all, slot_name};
use crate::outcome::{ConflictCopy, Recovered};
use crate::publish::reclaim::reclaim;
use crate::publish::site::{Around, Carried, OldEnds, Site};
use crate::publish::targets::{self, Targets};
use crate::publish::ways::Ways;
use crate::publish::written::Written;
use crate::publish::{publish, Pending};
use crate::record::{Act, Body, Gone};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use systx_os::{Errno, FileType, FsInfo, Handle, Open, Os, Result};
use tracing::debug;

/// No transaction has such a number, however long an area lives: a name with one is a stray file.
const NUMBERS_MAX: u64 = 1 << 62;

/// Where a domain goes on.
pub(crate) struct After {
    pub next: Lsn,
    pub next_tx: TxId,
    /// The log as it was found, without bodies.
    pub replay: Replay,
    /// Everything up to here is published and synced.
    pub checkpoint: Lsn,
    /// Transactions of which a record is needed further on.
    pub kept: HashSet<TxId>,
    /// Prepared transactions that no party here can decide.
    pub undecided: Vec<(TxId, Body)>,
    /// Committed records that could not be published to their end.
    pub stuck: Vec<Stuck>,
    /// The fate of the other prepared ones.
    pub decided: Vec<Cell>,
}

/// Brings a domain into the state that its log promises.
pub(crate) fn after_reboot<O: Os>(
    os: &O,
    area: &Area<O>,
    info: &FsInfo,
    peers: &Peers<O>,
    table: &Initializer<O>,
    recovered: &mut Recovered,
) -> core::result::Result<After, OpenError> {
    let records = understood(os, area, info)?;
    let replay = records.replay();
    debug!(checkpoint = replay.checkpoint.0, highest = replay.highest_lsn.0, "redoing what is between");
    tell_damage(replay, recovered);
    let mut recovery = Recovery::new(os, area, info, peers, &records, recovered)?;
    // Of all records, before the first step: a difference near the end concerns the first record, too.
    let chains = recovery.chains()?;
    // Where handles can't be opened an object is looked for wherever a record of the log takes it. Seldom, so
    // bodies are read again.
    let ways: OnceCell<Rc<Ways>> = OnceCell::new();
    let ways_of_log = || ways.get_or_init(|| Rc::new(ways_of(os, area, &records))).clone();
    // Asked for where something is found as neither before nor after: seldom, so bodies are read again for it, once.
    let last_changes: OnceCell<HashMap<Handle, usize>> = OnceCell::new();
    let last_changes = || last_changes.get_or_init(|| last_changes_of(os, &records));
    for (n, entry) in records.replay().records.iter().enumerate() {
        let Some(body) = records.body(os, n).map_err(OpenError::Log)? else { continue };
        let later = |object: &Handle| last_changes().get(object).is_some_and(|last| *last > n);
        let leaves = |act: &Act| chains.leave(n, act);
        let only = |file: &Handle| chains.is_only(file);
        let written_later = |file: &Handle, at: u64| chains.is_written_later(n, file, at);
        let around = Around {
            later: &later,
            leaves: &leaves,
            only: &only,
            written_later: &written_later,
            ways: &ways_of_log,
        };
        match entry.cell {
            Cell::Commit { lsn, .. } => recovery.committed(&Record { lsn, entry, body: &body }, &around),
            Cell::Prepared { id, lsn, .. } => {
                let decision = recovery.decision(n, id, &body)?;
                recovery.prepared(&Record { lsn, entry, body: &body }, decision, &around);
            }
            _ => {}
        }
    }
    let Redone { checkpoint, kept, undecided, stuck, decided } = recovery.end(table)?;
    let next = Lsn(records.replay().highest_lsn.0 + 1);
    // Names with a number may outlive the log: a transaction that got it again would take them for its own.
    let next_tx = TxId(highest_number(os, area, records.replay().highest_id)?.0 + 1);
    Ok(After { next, next_tx, replay: records.into_replay(), checkpoint, kept, undecided, stuck, decided })
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> OpenError {
    move |error| OpenError::Os(doing, error)
}

/// Reads and understands all of the log, before the first step: else each opening would take the steps up to
/// what it can't read, and stop.
fn understood<O: Os>(
    os: &O,
    area: &Area<O>,
    info: &FsInfo,
) -> core::result::Result<Understood<O>, OpenError> {
    let outline = log::outline(os, &area.dir, area.id).map_err(OpenError::Log)?;
    let records = outline.understand(os).map_err(OpenError::Log)?;
    // The two are made and go together, so a log without its table is foreign, or the table was removed.
    if info.is_view() && !records.replay().records.is_empty() && !mutant::on(Mutant::ReplayWithoutTable) {
        return Err(OpenError::NoTable);
    }
    Ok(records)
}

/// Reports records that are left out because the log is damaged before them.
fn tell_damage(replay: &Replay, recovered: &mut Recovered) {
    let Some(at) = replay.damaged else { return };
    recovered.unfinished.push(format!(
        "the log is damaged at {at}: {} behind it that were synced once are left out; what they changed may be incomplete",
        match replay.skipped.len() {
            0 => "records".to_owned(),
            n => format!("records of {n} transactions"),
        }
    ));
}

/// The highest number that a transaction of this area has had, as far as anything shows it.
fn highest_number<O: Os>(os: &O, area: &Area<O>, in_log: TxId) -> core::result::Result<TxId, OpenError> {
    let mut given = Vec::new();
    for dir in [&area.tx, &area.aside] {
        for entry in os.read_dir(dir).map_err(failed("reading the area"))? {
            let digits: Vec<u8> = entry.name.iter().copied().take_while(u8::is_ascii_digit).collect();
            given.extend(std::str::from_utf8(&digits).ok().and_then(|d| d.parse::<u64>().ok()));
        }
    }
    given.push(decisions::highest(os, area).map_err(failed("reading decided/ of the area"))?);
    // An image for undo is known by its number alone.
    let images = crate::domain::images::numbers(os, &area.dir).map_err(failed("reading the area"))?;
    given.extend(images.iter().map(|id| id.0));
    Ok(TxId(given.into_iter().filter(|id| *id < NUMBERS_MAX).fold(in_log.0, u64::max)))
}

/// A committed or prepared record of the log.
struct Record<'r> {
    lsn: Lsn,
    entry: &'r Entry,
    body: &'r Body,
}

/// A recovery from the records of one domain's log, and what it has come to so far.
struct Recovery<'a, O: Os> {
    os: &'a O,
    area: &'a Area<O>,
    peers: &'a Peers<O>,
    records: &'a Understood<O>,
    recovered: &'a mut Recovered,
    /// Decisions that are kept beside the log.
    decisions: Vec<Kept>,
    boot: [u8; 16],
    logs: Logs<'a, O>,
    redo: Redo<'a, O>,
    past: Vec<Past>,
    /// Committed records that participants may still ask about.
    unanswered: Vec<(Lsn, decisions::Decision)>,
    undecided: Vec<(TxId, Body)>,
    stuck: Vec<Stuck>,
    decided: Vec<Cell>,
    checkpoint: Lsn,
}

/// The result of a [`Recovery`]; see [`After`].
struct Redone {
    checkpoint: Lsn,
    kept: HashSet<TxId>,
    undecided: Vec<(TxId, Body)>,
    stuck: Vec<Stuck>,
    decided: Vec<Cell>,
}

impl<'a, O: Os> Recovery<'a, O> {
    fn new(
        os: &'a O,
        area: &'a Area<O>,
        info: &FsInfo,
        peers: &'a Peers<O>,
        records: &'a Understood<O>,
        recovered: &'a mut Recovered,
    ) -> core::result::Result<Recovery<'a, O>, OpenError> {
        let decisions = decisions::all(os, &area.dir).map_err(failed("reading decided/ of the area"))?;
        let boot = os.boot_id().map_err(failed("learning which boot this is"))?;
        let redo = Redo {
            os,
            area,
            // Found by handle alone, so that a name that leads elsewhere since says nothing; and root may open
            // whatever is there.
            keeps_targets: info.open_by_handle && os.uid() == 0,
            marks: marks::prove_on(info.kind),
            targets: Targets::<O>::new(),
            old_ends: HashMap::new(),
            written: Written::default(),
            met: Vec::new(),
        };
        Ok(Recovery {
            os,
            area,
            peers,
            records,
            recovered,
            decisions,
            boot,
            logs: Logs::new(os, peers),
            redo,
            past: Vec::new(),
            unanswered: Vec::new(),
            undecided: Vec::new(),
            stuck: Vec::new(),
            decided: Vec::new(),
            checkpoint: records.replay().highest_lsn,
        })
    }

    /// The chains of all records that are to be redone, as far as that is known by now.
    fn chains(&mut self) -> core::result::Result<Chains, OpenError> {
        let (records, decisions, logs) = (self.records, &self.decisions, &mut self.logs);
        let goes = &mut |n: usize, body: &Body| match records.replay().records[n].cell {
            Cell::Commit { .. } => true,
            Cell::Prepared { id, .. } => {
                let decided = by_hand(decisions, body).unwrap_or_else(|| logs.decision(body));
                says_committed(records.replay(), n, id) || matches!(decided, Decision::Forward)
            }
            _ => false,
        };
        Chains::of(self.os, self.area, records, goes).map_err(OpenError::Log)
    }

    /// Publishes a committed record again, and keeps what participants may ask for.
    fn committed(&mut self, record: &Record<'_>, around: &Around<'_>) {
        let body = record.body;
        self.publish(record, around);
        let answered = self.logs.settled(body) && body.companions.is_empty();
        if !answered && decisions::of(&self.decisions, body.id, body.nonce).is_none() {
            self.unanswered.push((record.lsn, kept_for(body, &body.companions, self.boot)));
        }
    }

    /// The decision on a prepared record, which is the `n`th.
    fn decision(&mut self, n: usize, id: TxId, body: &Body) -> core::result::Result<Decision, OpenError> {
        if says_committed(self.records.replay(), n, id) {
            return Ok(Decision::Forward);
        }
        // It may live on, with a share of a dead one that was not taken back yet.
        finish_coordinator(self.peers, body, self.recovered).map_err(failed("finishing what decides"))?;
        Ok(by_hand(&self.decisions, body).unwrap_or_else(|| self.logs.decision(body)))
    }

    /// Ends a prepared record as it was decided.
    fn prepared(&mut self, record: &Record<'_>, decision: Decision, around: &Around<'_>) {
        let (lsn, id) = (record.lsn, record.body.id);
        match decision {
            Decision::Forward => {
                self.publish(record, around);
                self.decided.push(Cell::Committed { id });
            }
            Decision::Abort => {
                debug!(tx = id.0, lsn = lsn.0, "aborted: its coordinator has no record of a commit");
                self.recovered.aborted += 1;
                self.decided.push(Cell::Abort { lsn });
            }
            Decision::Unknown => {
                debug!(tx = id.0, lsn = lsn.0, "in doubt: its coordinator is not here");
                self.recovered.unfinished.push(format!(
                    "transaction {id} is in doubt: the file system that decides is not mounted; what it changes conflicts until it is, or if it never comes back, until `systx recover --commit {id}` or `--abort {id}`"
                ));
                self.undecided.push((id, record.body.clone()));
            }
        }
    }

    fn publish(&mut self, record: &Record<'_>, around: &Around<'_>) {
        let Record { lsn, entry, body } = *record;
        self.past.push(Past::of(lsn, entry.written, body));
        let reclaimed = self.redo.or_keep(record, around, &mut self.stuck, self.recovered);
        // A record that is not reclaimed must not be forgotten.
        if reclaimed == Reclaimed::Not {
            self.checkpoint = self.checkpoint.min(Lsn(lsn.0.saturating_sub(1)));
        }
    }

    /// Keeps what others may ask for, then syncs all that was recovered.
    fn end(mut self, table: &Initializer<O>) -> core::result::Result<Redone, OpenError> {
        let (os, dir) = (self.os, &self.area.dir);
        // Its leases end here.
        drop(self.redo);
        // The participants that have not answered ask for what became of it; the log is not kept for them.
        let answered = |(lsn, _): &&(Lsn, decisions::Decision)| *lsn <= self.checkpoint;
        let decided_here: Vec<_> = self.unanswered.iter().filter(answered).map(|(_, d)| d.clone()).collect();
        if decisions::keep(os, dir, &decided_here).is_err() {
            let first = self.unanswered.iter().map(|(lsn, _)| lsn.0).min().unwrap_or(1);
            self.checkpoint = self.checkpoint.min(Lsn(first.saturating_sub(1)));
        }
        // Whatever may be redone once more needs its slots, which say that it was taken already.
        let again = self.records.replay().records.iter().filter(|e| e.cell.lsn() > Some(self.checkpoint));
        let again = again.filter(|e| e.needed).filter_map(|e| e.cell.id());
        let kept = again.chain(self.undecided.iter().map(|(id, _)| *id)).collect();
        let _ = history::keep(os, dir, &self.past);
        // The new log says that all of this is on the disk, so it is synced before that log begins (I7).
        os.syncfs(dir).map_err(|error| {
            // The next try would find everything written, and nothing to sync.
            table.lose(error);
            failed("syncing what was recovered")(error)
        })?;
        let Recovery { checkpoint, undecided, stuck, decided, .. } = self;
        let highest = self.records.replay().highest_lsn;
        invariant!("I7", checkpoint <= highest, "a checkpoint covers records of this log only");
        // A forged log may have the number 0, below which nothing is.
        let above = |stuck: &Stuck| stuck.lsn > checkpoint || stuck.lsn.0 == 0;
        invariant!("I8", stuck.iter().all(above), "a record that waits is redone by the next opening, too");
        Ok(Redone { checkpoint, kept, undecided, stuck, decided })
    }
}

/// Returns true if a prepared record, the `n`th, is decided by a later one of the same log.
fn says_committed(replay: &Replay, n: usize, id: TxId) -> bool {
    replay.records[n..].iter().any(|e| e.cell == Cell::Committed { id })
}

/// Returns true if the fate of a prepared transaction of this area is known by now.
pub(crate) fn can_be_decided<O: Os>(os: &O, area: &Area<O>, peers: &Peers<O>) -> bool {
    let (Ok(outline), Ok(kept)) = (log::outline(os, &area.dir, area.id), decisions::all(os, &area.dir))
    else {
        return false;
    };
    let mut logs = Logs::new(os, peers);
    let prepared = outline.replay.records.iter().filter(|e| matches!(e.cell, Cell::Prepared { .. }));
    let mut bodies = prepared.filter_map(|entry| outline.body(os, entry).ok().flatten());
    bodies.any(|body| by_hand(&kept, &body).is_some() || !matches!(logs.decision(&body), Decision::Unknown))
}

/// The last record, by its place in the log, that changes the attributes of each object or takes it from its name.
fn last_changes_of<O: Os>(os: &O, records: &Understood<O>) -> HashMap<Handle, usize> {
    let mut last = HashMap::new();
    for n in 0..records.replay().records.len() {
        let Ok(Some(body)) = records.body(os, n) else { continue };
        for step in &body.steps {
            let (object, tree) = match &step.act {
                Act::Attr { object, .. } => (object, &[][..]),
                Act::Replace { before, tree, .. } | Act::Remove { before, tree, .. } => (before, &tree[..]),
                Act::Take { before, .. } => (before, &[][..]),
                Act::Place { .. } | Act::Link { .. } | Act::Patch(_) => continue,
            };
            last.extend(Gone::handles(tree).chain([object]).map(|object| (*object, n)));
        }
    }
    last
}

/// To which places the records of a log take what they rename.
fn ways_of<O: Os>(os: &O, area: &Area<O>, records: &Understood<O>) -> Ways {
    let mut ways = Ways::default();
    for n in 0..records.replay().records.len() {
        let Ok(Some(body)) = records.body(os, n) else { continue };
        let of = SlotsOf { id: body.id, table: body.table, shared_slots: body.shared_slots };
        let slots = slots_there(os, &area.dir, &of).ok().flatten();
        let holds = |slot| {
            slots
                .as_ref()
                .is_some_and(|slots| identify(os, slots, &slot_name(slot)).is_ok_and(|h| h.is_some()))
        };
        ways.add(&body, holds);
    }
    ways
}

/// The state of a record's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reclaimed {
    All,
    /// It is not published, or something is left.
    Not,
}

/// Publishes records again, one after the other.
struct Redo<'a, O: Os> {
    os: &'a O,
    area: &'a Area<O>,
    keeps_targets: bool,
    /// See [`marks::prove_on`].
    marks: bool,
    /// Files that records patch, open from one to the next.
    targets: Targets<O>,
    /// See [`Site::old_ends`].
    old_ends: HashMap<Handle, OldEnds>,
    /// See [`Site::written`].
    written: Written,
    /// Conflict copies of a try of this record that was cut off: the next one may find it done.
    met: Vec<ConflictCopy>,
}

impl<O: Os> Redo<'_, O> {
    /// Publishes one record again, or keeps it for later.
    fn or_keep(
        &mut self,
        record: &Record<'_>,
        around: &Around<'_>,
        stuck: &mut Vec<Stuck>,
        recovered: &mut Recovered,
    ) -> Reclaimed {
        let Record { lsn, entry, body } = *record;
        // The next opening of the domain tries it once more, and reports it.
        let earlier = stuck.iter().find(|earlier| builds_on(&earlier.body, body));
        let pending = match earlier {
            Some(earlier) => earlier.pending.clone(),
            None => match self.with_room(body, around, recovered) {
                Ok(reclaimed) => {
                    debug!(
                        tx = body.id.0,
                        lsn = lsn.0,
                        steps = body.steps.len(),
                        ?reclaimed,
                        "published again"
                    );
                    return reclaimed;
                }
                Err(pending) => pending,
            },
        };
        let path = || crate::shown::Shown(&pending.path).to_string();
        debug!(tx = body.id.0, lsn = lsn.0, error = ?pending.error, path = path(), "kept for later");
        // A record has a body, or it would not be here.
        if let Some(at) = entry.cell.body() {
            stuck.push(Stuck { lsn, id: body.id, body: body.clone(), at, pending });
        }
        Reclaimed::Not
    }

    /// Publishes one record again, if need be with the descriptors of what is kept open.
    fn with_room(
        &mut self,
        body: &Body,
        around: &Around<'_>,
        recovered: &mut Recovered,
    ) -> core::result::Result<Reclaimed, Pending> {
        self.met.clear();
        match self.publish(body, around, recovered) {
            Err(pending)
                if matches!(pending.error, Errno::MFILE | Errno::NFILE) && !self.targets.is_empty() =>
            {
                self.targets.clear();
                self.publish(body, around, recovered)
            }
            done => done,
        }
    }

    /// Publishes one record again, and deletes what its steps left in the slots.
    fn publish(
        &mut self,
        body: &Body,
        around: &Around<'_>,
        recovered: &mut Recovered,
    ) -> core::result::Result<Reclaimed, Pending> {
        let (os, area) = (self.os, self.area);
        let failed = |error| Pending { path: Vec::new(), error };
        let in_place = targets::before_record(os, &mut self.targets, body);
        let SlotDir { dir: slots, lost } = slots_of(os, area, body).map_err(failed)?;
        if lost {
            recovered.unfinished.push(format!(
                "transaction {}: the file system lost objects that were synced; it is incomplete",
                body.id
            ));
        }
        let slots = slots.as_ref().unwrap_or(&area.tx);
        let old_ends = if mutant::on(Mutant::OldEndsForgotten) {
            HashMap::new()
        } else {
            std::mem::take(&mut self.old_ends)
        };
        let carried = Carried {
            targets: std::mem::take(&mut self.targets),
            keeps_targets: self.keeps_targets && in_place,
            old_ends,
            written: std::mem::take(&mut self.written),
        };
        let mut site = Site::redo(os, area, slots, body, *around, self.marks, carried);
        let published = publish(&mut site, body);
        // Taken back whether or not it failed: the next try, and later records, go on with them.
        self.targets = std::mem::take(&mut site.patch_targets);
        self.old_ends = std::mem::take(&mut site.old_ends);
        self.met.append(&mut site.conflict_copies);
        let reclaimed = published.is_ok().then(|| reclaim(&mut site, body));
        self.written = std::mem::take(&mut site.written);
        let conflict_copies = published?;
        self.met.retain(|met| !conflict_copies.contains(met));
        recovered.conflict_copies.extend(self.met.drain(..).chain(conflict_copies));
        recovered.conflict_copies.append(&mut site.conflict_copies);
        recovered.finished += 1;
        Ok(if reclaimed.is_some_and(|done| done.is_ok()) { Reclaimed::All } else { Reclaimed::Not })
    }
}

/// Deletes slot directories and staging that no record needs any more. After a recovery nothing else uses them.
pub(crate) fn sweep<O: Os>(os: &O, area: &Area<O>, kept: &HashSet<TxId>) -> Result<()> {
    let moving = lifted::moving(os, area)?;
    for dir in shared_stagings(os, &area.dir)? {
        moving.iter().try_for_each(|id| lifted::keep(os, area, &dir, *id, lifted::All::Not))?;
    }
    let listed = os.read_dir(&area.tx)?;
    for entry in &listed {
        let id = std::str::from_utf8(&entry.name).ok().and_then(|n| n.parse().ok()).map(TxId);
        if entry.kind != FileType::Directory || id.is_some_and(|id| kept.contains(&id)) {
            continue;
        }
        let dir = os.open(&area.tx, &entry.name, Open::Directory)?;
        if let Some(id) = id.filter(|id| moving.contains(id)) {
            lifted::keep(os, area, &dir, id, lifted::All::Are)?;
        }
        remove_all(os, &dir)?;
        match os.rmdir(&area.tx, &entry.name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
    // Behind what they say.
    for entry in &listed {
        if marks::owner_of(&entry.name).is_some_and(|id| !kept.contains(&id)) {
            os.unlink(&area.tx, &entry.name)?;
        }
    }
    // A record that is kept may have its slots there still. As its shared staging directory is of another table, its
    // seal does not move.
    if kept.is_empty() {
        sweep_shared_stagings(os, &area.dir)?;
    }
    Ok(())
}
