//! Data for messages: where a file system is mounted, its participants and their commands.
//!
//! Guarantees: no decision depends on it. Does not: print.

use super::{Domain, Record};
use crate::id::{OwnerIx, TxId, OWNERS};
use crate::outcome::{Displaced, Party, Recovered};
use crate::shown::Shown;
use systx_os::Os;
use tracing::debug;

impl<O: Os> Domain<O> {
    /// Says where the file system is mounted, for messages: an absolute path.
    pub fn mounted_at(&self, point: &[u8]) {
        debug!(owner = ?self.me(), mount = %Shown(point), "opened");
        // The first caller wins.
        let _ = self.point.set(point.strip_suffix(b"/").unwrap_or(point).to_vec());
    }

    /// A path from the root of the mount as people know it.
    pub fn shown(&self, path: &[u8]) -> Vec<u8> {
        match self.point.get() {
            Some(point) => [point, &b"/"[..], path].concat(),
            None => path.to_vec(),
        }
    }

    /// Completes the paths of conflict copies likewise.
    pub(crate) fn shown_all(&self, mut displaced: Vec<Displaced>) -> Vec<Displaced> {
        displaced.iter_mut().for_each(|d| d.path = self.shown(&d.path));
        displaced
    }

    /// Returns what the opening has recovered. The mount point was not known then; here the paths have it.
    pub fn recovered_by_opening(&self) -> Recovered {
        let recovered = self.recovered.clone();
        Recovered { displaced: self.shown_all(recovered.displaced), ..recovered }
    }

    /// Says what this process does, for `systx list`.
    pub fn announce(&self, tx: TxId, command: &str) {
        if !self.is_ours() {
            return;
        }
        let record = Record {
            tx,
            pid: self.os.pid(),
            flags: 0,
            since: self.os.now(),
            command: command.as_bytes().to_vec(),
        };
        self.table.records().put(self.me(), &record);
    }

    /// Describes a transaction as a party of a conflict. Its command is known until another process takes its
    /// owner's index.
    pub(crate) fn party(&self, id: TxId, pid: u32) -> Party {
        let records = self.table.records();
        let record = (1..OWNERS).filter_map(|ix| records.get(OwnerIx(ix))).find(|record| record.tx == id);
        Party::Transaction { id, pid, command: record.map_or_else(Vec::new, |record| record.command) }
    }
}
