//! Data for messages: where a file system is mounted, its participants and their commands.
//!
//! Guarantees: no decision depends on it. Does not: print.

use super::records::Shown;
use super::{Domain, Record};
use crate::id::TxId;
use crate::outcome::{ConflictCopy, Party, Recovered};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::Os;
use tracing::debug;

impl<O: Os> Domain<O> {
    /// Says where the file system is mounted, for messages: an absolute path.
    pub fn mounted_at(&self, point: &[u8]) {
        debug!(owner = ?self.me(), mount = %crate::shown::Shown(point), "opened");
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

    /// The path of something in the area.
    pub(crate) fn path_in_area(&self, name: &[u8]) -> Vec<u8> {
        self.shown(&[&self.area.place.1, &b"/"[..], name].concat())
    }

    /// Completes the paths of conflict copies likewise.
    pub(crate) fn shown_all(&self, mut conflict_copies: Vec<ConflictCopy>) -> Vec<ConflictCopy> {
        conflict_copies.iter_mut().for_each(|d| d.path = self.shown(&d.path));
        conflict_copies
    }

    /// Returns what the opening has recovered. The mount point was not known then; here the paths have it.
    pub fn recovered_by_opening(&self) -> Recovered {
        let recovered = self.recovered.clone();
        Recovered { conflict_copies: self.shown_all(recovered.conflict_copies), ..recovered }
    }

    /// Says what this process does, for `systx list` and for messages to others, until the value is dropped.
    pub(crate) fn announce(self: &Arc<Self>, tx: TxId, command: &str) -> Announced<O> {
        let (pid, since, command) = (self.os.pid(), self.os.now(), command.as_bytes().to_vec());
        let record = Record { tx, pid, open: true, since, command };
        let (records, mut shown) = (self.table.records(), self.records_shown());
        let put = |shown: &Shown| records.put_further(self.me(), &record, shown.next);
        let further = match shown.first {
            Some(_) => put(&shown).or_else(|| {
                self.end_records_of_the_dead();
                put(&shown)
            }),
            None => None,
        };
        match further {
            Some(n) => shown.next = n + 1,
            // Where there are too many, the latest one is to be seen.
            None => {
                records.put(self.me(), &record);
                shown.first = Some(tx);
            }
        }
        drop(shown);
        Announced { domain: self.clone(), tx, further }
    }

    fn end_records_of_the_dead(&self) {
        let asked = RefCell::new(HashMap::new());
        let dead = |ix| *asked.borrow_mut().entry(ix).or_insert_with(|| !self.alive(ix));
        self.table.records().end_further_of(dead);
    }

    fn records_shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Describes a transaction as a party of a conflict. Its command is known until another process takes its
    /// owner's index.
    pub(crate) fn party(&self, id: TxId, pid: u32) -> Party {
        let record = self.table.records().all().find(|(_, record)| record.tx == id);
        Party::Transaction { id, pid, command: record.map_or_else(Vec::new, |(_, record)| record.command) }
    }
}

/// A transaction that others can see.
#[must_use = "others see it as long as this lives"]
pub(crate) struct Announced<O: Os> {
    domain: Arc<Domain<O>>,
    tx: TxId,
    /// Its record, if it is a further one.
    further: Option<usize>,
}

impl<O: Os> Drop for Announced<O> {
    fn drop(&mut self) {
        let domain = &self.domain;
        // In a forked child it goes on where it began.
        if !domain.is_ours() {
            return;
        }
        match self.further {
            Some(n) => domain.table.records().end_further(domain.me(), n),
            None => {
                let mut shown = domain.records_shown();
                if shown.first == Some(self.tx) {
                    domain.table.records().end(domain.me(), self.tx);
                    shown.first = None;
                }
            }
        }
    }
}
