//! The watch: before every call of any process it looks at the table, the log, the public tree and the disk,
//! and asks every rule.
//!
//! When anything has changed since the look before, it also asks what would be found if all processes were
//! killed here, or the power failed, and another process recovered: on a copy of the machine. Its own looks
//! are no calls and change nothing.

use super::super::world::AREA;
use super::book::{Book, Told};
use super::crashes::{Aftermath, How};
use crate::domain::layout::{BOOT_WORD, INITIALISED, LOCK_WORD, STATE_WORD, WORDS};
use crate::domain::{InFlight, Slots};
use crate::id::{AreaId, Lsn, OwnerIx, TxId};
use crate::lock::RobustLock;
use crate::log::{self, Cell, LogPos, Raw};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use systx_os::{Open, Os, Words};
use systx_sim::machine::{Call, Crash, Machine, PointInfo, SimMem, SimOs, Tree};

/// One file system at one moment.
#[derive(Default)]
pub(super) struct Fs {
    /// Slots in flight; none while the table is being built.
    pub slots: Vec<InFlight>,
    /// Returns the holder of the commit lock.
    pub holder: Option<OwnerIx>,
    pub log: Records,
    /// The tree that all processes see.
    pub tree: Tree,
}

/// Contents of a log, bodies aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub cells: Vec<(LogPos, Cell)>,
    pub segments: BTreeSet<u64>,
    /// Up to here nothing is redone.
    pub checkpoint: Lsn,
}

impl Records {
    /// The log of an area; empty where there is none.
    fn of(os: &SimOs, fs: usize) -> Records {
        let mut found = Records::default();
        let Ok(area) = os.open_path(fs, ".systx", Open::Directory) else { return found };
        for line in log::raw(os, &area).unwrap_or_default() {
            match line {
                Raw::Segment(header) => {
                    found.segments.insert(header.number);
                    found.checkpoint = found.checkpoint.max(header.checkpoint);
                }
                Raw::Cell { pos, cell, .. } => {
                    if let Cell::Checkpoint { lsn } = cell {
                        found.checkpoint = found.checkpoint.max(lsn);
                    }
                    found.cells.push((pos, cell));
                }
                Raw::NoSegment { .. } | Raw::NoCell(_) | Raw::UnknownCell { .. } => {}
            }
        }
        found
    }

    pub(super) fn aborted(&self, lsn: Lsn) -> bool {
        self.cells.iter().any(|(_, cell)| *cell == Cell::Abort { lsn })
    }

    /// Headers of committed and prepared transactions, in log order.
    pub(super) fn headers(&self) -> impl Iterator<Item = (TxId, Lsn, bool)> + '_ {
        self.cells.iter().filter_map(|(_, cell)| match cell {
            Cell::Commit { lsn, id, .. } => Some((*id, *lsn, true)),
            Cell::Prepared { lsn, id, .. } => Some((*id, *lsn, false)),
            _ => None,
        })
    }

    /// Returns true if a recovery would take the transaction's steps (or ask its coordinator).
    pub(super) fn redoes(&self, id: TxId) -> bool {
        self.headers().any(|(found, lsn, _)| found == id && lsn > self.checkpoint && !self.aborted(lsn))
    }
}

/// The part of a file system that is on the disk for certain.
#[derive(Default)]
pub(super) struct Disk {
    pub log: Records,
    pub tree: Tree,
}

/// The state that the watch sees before one call.
pub(super) struct Moment<'a> {
    pub machine: &'a Machine,
    pub info: &'a PointInfo,
    pub fs: &'a [Fs],
    pub disk: &'a [Disk],
}

impl Moment<'_> {
    /// Returns the pid of the calling process, as it knows itself.
    pub(super) fn pid(&self) -> u32 {
        self.info.process.pid()
    }

    pub(super) fn trees(&self) -> Vec<Tree> {
        self.fs.iter().map(|fs| fs.tree.clone()).collect()
    }
}

/// True if there was anything to judge; or what is wrong.
pub(super) type Verdict = Result<bool, String>;

/// One invariant of docs/protocol.md.
pub(super) trait Rule: Send {
    /// Number there.
    fn name(&self) -> &'static str;
    /// Before a call.
    fn now(&mut self, _now: &Moment<'_>, _book: &Book) -> Verdict {
        Ok(false)
    }
    /// Judges what was found when everything had ended before that call.
    fn after(&mut self, _now: &Moment<'_>, _end: &Aftermath, _book: &Book) -> Verdict {
        Ok(false)
    }
}

/// Act of an outsider in a run, once: called before each call; returns true when it has acted.
pub(super) type Outsider = Box<dyn FnMut(&Moment<'_>, &Book) -> bool + Send>;

/// Faults of a rule after which it is not asked any more: one says enough.
const WRONG_MAX: usize = 2;

/// A watched run.
#[derive(Clone)]
pub(super) struct Watch(Arc<Mutex<Inner>>);

pub(super) struct Inner {
    pub book: Book,
    rules: Vec<Box<dyn Rule>>,
    /// How often each had something to judge.
    judged: BTreeMap<&'static str, u32>,
    wrong: Vec<String>,
    systems: usize,
    /// Ends that are tried, in turn: at each change the next one. Empty: none.
    ends: Vec<How>,
    /// Where all of them are tried instead.
    ending: Option<fn(&Moment<'_>) -> bool>,
    turn: usize,
    /// How many ends were tried.
    tried: u64,
    outsider: Option<Outsider>,
    /// Process that looks.
    eye: Option<SimOs>,
    /// Mappings of the tables, by the eye.
    tables: BTreeMap<usize, SimMem>,
    disk: Vec<Disk>,
    last: Option<Last>,
    /// Words are looked at, too.
    words: bool,
}

/// State at the look before this one.
struct Last {
    call: Call,
    slots: Vec<InFlight>,
    told: Vec<Vec<Told>>,
}

impl Watch {
    pub(super) fn new(systems: usize, book: Book, rules: Vec<Box<dyn Rule>>, ends: Vec<How>) -> Watch {
        Watch(Arc::new(Mutex::new(Inner {
            book,
            judged: rules.iter().map(|rule| (rule.name(), 0)).collect(),
            rules,
            wrong: Vec::new(),
            systems,
            ends,
            ending: None,
            turn: 0,
            tried: 0,
            outsider: None,
            eye: None,
            tables: BTreeMap::new(),
            disk: Vec::new(),
            last: None,
            words: false,
        })))
    }

    /// Looks at accesses to words, too.
    pub(super) fn words_too(self) -> Watch {
        self.inner().words = true;
        self
    }

    /// Tries all ends at such moments, and none at others.
    pub(super) fn ending(self, at: fn(&Moment<'_>) -> bool) -> Watch {
        self.inner().ending = Some(at);
        self
    }

    /// Lets an outsider act, once. It may change everything that stands in no chain.
    pub(super) fn with(self, outsider: impl FnMut(&Moment<'_>, &Book) -> bool + Send + 'static) -> Watch {
        self.inner().outsider = Some(Box::new(outsider));
        self
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// From now on, before every call.
    pub(super) fn begin(&self, machine: &Machine) {
        let shared = self.0.clone();
        machine.set_hook(move |machine, info| {
            shared.lock().unwrap_or_else(|e| e.into_inner()).look(machine, info);
        });
    }

    /// The machine went down and is up again: what its log says counts from now on.
    pub(super) fn rebooted(&self, machine: &Machine) {
        let mut inner = self.inner();
        let os = machine.outsider("reader");
        let logs: Vec<_> = (0..inner.systems).map(|fs| promised(&os, fs)).collect();
        inner.book.rebooted(&logs);
        (inner.eye, inner.last) = (None, None);
        inner.tables.clear();
        inner.disk.clear();
    }

    /// Nothing was wrong, and every rule had something to judge.
    pub(super) fn judge(&self, what: &str) {
        let inner = self.inner();
        assert!(inner.wrong.is_empty(), "{what}: {:#?}", inner.wrong);
        println!("{what}: {:?}, {} ends", inner.judged, inner.tried);
    }

    /// How often each rule had something to judge.
    pub(super) fn judged(&self) -> BTreeMap<&'static str, u32> {
        self.inner().judged.clone()
    }

    pub(super) fn wrong(&self) -> Vec<String> {
        self.inner().wrong.clone()
    }
}

/// Returns the transactions that are committed by a log that no process writes to.
fn promised(os: &SimOs, fs: usize) -> BTreeSet<TxId> {
    let Ok(area) = os.open_path(fs, ".systx", Open::Directory) else { return BTreeSet::new() };
    let Ok(Some(id)) = log::written_for(os, &area) else { return BTreeSet::new() };
    let replay = log::outline(os, &area, AreaId::new(id)).expect("readable").replay;
    let commits = replay.records.iter().filter_map(|entry| match entry.cell {
        Cell::Commit { lsn, id, .. } if !replay.aborted.contains(&lsn) => Some(id),
        _ => None,
    });
    commits.collect()
}

/// Without anything that was not synced.
fn on_disk(machine: &Machine, systems: usize) -> Vec<Disk> {
    let fork = machine.fork();
    fork.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
    let os = fork.outsider("reader");
    let look = |fs| Disk { log: Records::of(&os, fs), tree: fork.tree_of(fs, is_public) };
    (0..systems).map(look).collect()
}

/// Returns true if a path is public.
pub(super) fn is_public(path: &str) -> bool {
    path.as_bytes() != AREA
}

/// Returns true if a call can change what the others see or what a crash leaves.
fn changes(call: Call) -> bool {
    use Call::*;
    let looks = [
        Open, Reopen, OpenHandle, Dup, Stat, StatAt, Handle, HandleAt, ReadDir, ReadLink, StatFs, FsInfo,
        Pread, Seek, GetXattr, ListXattr, LeaseHeld, ByteOwned, BootId, Pause, Load, Wait, Wake, Lease,
    ];
    !looks.contains(&call)
}

impl Inner {
    fn look(&mut self, machine: &Machine, info: &PointInfo) {
        if info.call.is_word() && !self.words {
            return;
        }
        let eye = match &self.eye {
            Some(eye) if machine.alive(eye.process()) => eye.clone(),
            _ => {
                self.tables.clear();
                self.eye.insert(machine.outsider("eye")).clone()
            }
        };
        let fs: Vec<Fs> = (0..self.systems).map(|n| self.read(machine, &eye, n)).collect();
        let slots: Vec<InFlight> = fs.iter().flat_map(|fs| fs.slots.iter().copied()).collect();
        let synced = |call| matches!(call, Call::Fsync | Call::Fdatasync | Call::Syncfs | Call::WriteOut);
        if self.last.as_ref().is_none_or(|last| synced(last.call)) || self.disk.is_empty() {
            self.disk = on_disk(machine, self.systems);
        }
        let disk = std::mem::take(&mut self.disk);
        let now = Moment { machine, info, fs: &fs, disk: &disk };
        self.book.learn(&now);
        self.ask(&now, |rule, book| rule.now(&now, book));
        let told: Vec<_> = self.book.chains.iter().map(|chain| chain.told.clone()).collect();
        let same = |last: &Last| !changes(last.call) && last.slots == slots && last.told == told;
        let changed = !self.last.as_ref().is_some_and(same);
        if changed && !self.ends.is_empty() && !info.call.is_word() && self.ending.is_none_or(|at| at(&now)) {
            self.end_here(&now);
        }
        let mut acted = false;
        if let Some(mut outsider) = self.outsider.take() {
            acted = outsider(&now, &self.book);
            if acted {
                let trees: Vec<_> = (0..self.systems).map(|fs| machine.tree_of(fs, is_public)).collect();
                self.book.others = self.book.others_in(&trees);
            } else {
                self.outsider = Some(outsider);
            }
        }
        // After the outsider's act everything is new.
        self.last = (!acted).then_some(Last { call: info.call, slots, told });
        self.disk = disk;
    }

    /// The next of the ends; in a long run all of them.
    fn end_here(&mut self, now: &Moment<'_>) {
        let long = std::env::var_os("SYSTX_LONG").is_some_and(|value| value != "0");
        let (count, first) = (self.ends.len(), self.turn);
        let all = long || self.ending.is_some();
        let ends = (0..if all { count } else { 1 }).map(|n| self.ends[(first + n) % count]);
        self.turn += 1;
        for how in ends.collect::<Vec<_>>() {
            self.tried += 1;
            match Aftermath::of(now.machine, how, self.systems, self.tried) {
                Ok(end) => self.ask(now, |rule, book| rule.after(now, &end, book)),
                Err(why) => self.wrong.push(format!("recovery: {how:?} before {:?}: {why}", now.info.call)),
            }
        }
    }

    fn ask(&mut self, now: &Moment<'_>, mut question: impl FnMut(&mut dyn Rule, &Book) -> Verdict) {
        let info = now.info;
        for rule in &mut self.rules {
            if self.wrong.iter().filter(|why| why.starts_with(rule.name())).count() >= WRONG_MAX {
                continue;
            }
            match question(&mut **rule, &self.book) {
                Ok(judged) => *self.judged.entry(rule.name()).or_default() += u32::from(judged),
                Err(why) => self.wrong.push(format!(
                    "{}: {why}; before {:?} {}, call {} of {}",
                    rule.name(),
                    info.call,
                    String::from_utf8_lossy(&info.name),
                    info.point,
                    info.process_name
                )),
            }
        }
    }

    fn read(&mut self, machine: &Machine, eye: &SimOs, n: usize) -> Fs {
        let tree = machine.tree_of(n, is_public);
        let mut fs = Fs { log: Records::of(eye, n), tree, ..Fs::default() };
        if let std::collections::btree_map::Entry::Vacant(place) = self.tables.entry(n) {
            let table = eye.open_path(n, ".systx/table", Open::ReadWrite).ok();
            let whole = |fd: &_| eye.stat(fd).is_ok_and(|stat| stat.size == WORDS as u64 * 8);
            if let Some(mem) = table.filter(whole).and_then(|fd| eye.map(&fd, WORDS).ok()) {
                place.insert(mem);
            }
        }
        let Some(mem) = self.tables.get(&n) else { return fs };
        let boot = u128::from_le_bytes(eye.boot_id().expect("known"));
        let word = |at| mem.load(at, Ordering::Acquire);
        let ready = word(STATE_WORD) == INITIALISED
            && [word(BOOT_WORD), word(BOOT_WORD + 1)] == [boot as u64, (boot >> 64) as u64];
        if ready {
            fs.slots = Slots::new(mem).in_flight().map(|slot| slot.expect("sound")).collect();
            fs.holder = RobustLock { word: LOCK_WORD }.holder(mem).expect("sound");
        }
        fs
    }
}
