//! The log on a real file system, each test in a directory of its own.

mod appending;
mod bytes;
mod document;
mod dropping;
mod garbled;
mod sharing;

use super::*;
use crate::id::{AreaId, Lsn, OwnerIx, TxId};
use crate::lock::{Locked, RobustLock};
use crate::record::{Body, BODY_VERSION};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use systx_os::{Linux, Open, Os};

type MappedWords = <Linux as Os>::Mem;

pub const ME: OwnerIx = OwnerIx(7);
pub const UUID: [u8; 16] = [0xa5; 16];
/// Place of the log's words, and of the commit lock behind them.
pub const BASE: usize = 8;
const COMMIT_LOCK: RobustLock = RobustLock { word: BASE + WORDS };

pub fn alive(_: OwnerIx) -> bool {
    true
}

/// A log in a scratch directory.
pub struct Rig {
    pub path: PathBuf,
    pub os: Linux,
    pub area: OwnedFd,
    pub mem: Arc<MappedWords>,
    pub log: Log<Linux>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Rig {
    pub fn new() -> Rig {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("systx-log-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let os = Linux::new();
        let area = os.open_path(&path, Open::Directory).unwrap();
        let mem = Arc::new(os.map(&os.create(&area, b"table", 0o600).unwrap(), BASE + WORDS + 8).unwrap());
        let log = Log::open(os.clone(), &area, mem.clone(), BASE, AreaId::new(UUID)).unwrap();
        Rig { path, os, area, mem, log }
    }
    /// With an empty log, ready.
    pub fn started() -> Rig {
        let rig = Rig::new();
        rig.start(Lsn(0));
        rig
    }
    /// Opens the log like another process.
    pub fn another(&self) -> Log<Linux> {
        Log::open(self.os.clone(), &self.area, self.mem.clone(), BASE, AreaId::new(UUID)).unwrap()
    }
    pub fn start(&self, checkpoint: Lsn) -> Replay {
        let replay = self.replay().unwrap();
        self.log.start(ME, &alive, replay.start(checkpoint)).unwrap();
        replay
    }
    pub fn replay(&self) -> Result<Replay, LogError> {
        replay(&self.os, &self.area, AreaId::new(UUID))
    }
    pub fn lock(&self) -> Locked {
        COMMIT_LOCK.lock(&*self.mem, ME, &alive).unwrap()
    }
    pub fn unlock(&self, locked: Locked) {
        COMMIT_LOCK.unlock(&*self.mem, locked).unwrap();
    }
    pub fn cell(&self, cell: Cell) -> Result<LogPos, LogError> {
        let lock = self.lock();
        let result = self.log.append_cell(&lock, ME, &alive, cell);
        self.unlock(lock);
        result
    }
    pub fn body(&self, body: &Body) -> BodyAt {
        self.log.append_body(ME, &alive, body).unwrap()
    }
    /// Appends one commit, not synced.
    pub fn commit(&self, n: u64, bytes: usize) -> LogPos {
        let text = body(n, bytes);
        loop {
            let cell = Cell::Commit { lsn: Lsn(n), id: TxId(n), body: self.body(&text) };
            match self.cell(cell) {
                Err(LogError::Moved) => {}
                result => return result.unwrap(),
            }
        }
    }
    pub fn sync(&self, pos: LogPos) -> Result<(), SyncError> {
        self.log.sync(ME, &alive, pos)
    }
    pub fn segment_path(&self, number: u64) -> PathBuf {
        self.path.join("log").join(format!("{number:016x}"))
    }
    pub fn segments(&self) -> Vec<u64> {
        self.replay().unwrap().segments.iter().map(|s| s.number).collect()
    }
}

/// Body of transaction `n` with about so many bytes.
pub fn body(n: u64, bytes: usize) -> Body {
    Body {
        version: BODY_VERSION,
        id: TxId(n),
        nonce: n,
        uid: 0,
        table: [1; 16],
        coordinator: None,
        participants: Vec::new(),
        companions: Vec::new(),
        command: "x".repeat(bytes),
        shared_slots: None,
        linked: false,
        steps: Vec::new(),
        times: Vec::new(),
    }
}

/// Transactions whose commit has a body in a replay, in order.
pub fn redone(replay: &Replay) -> Vec<u64> {
    replay.redo().map(|(lsn, body)| (assert_eq!(lsn.0, body.id.0), lsn.0).1).collect()
}
