//! Listings: the committed names, without those that went, with those that came.

use crate::outcome::Verb;
use crate::transaction::{DirEntry, Node, Transaction};
use crate::workset::node::{node_of, Ix};
use crate::workset::Workset;
use std::collections::HashSet;
use std::sync::Arc;
use systx_os::{Dirent, Errno, Os, StatFs};

impl<O: Os> Transaction<O> {
    /// The names of a directory: a snapshot for one open directory.
    pub fn readdir(&mut self, dir: Node) -> Verb<Arc<[DirEntry]>> {
        self.ours()?;
        let ix = self.workset.ix(dir);
        let object = self.workset.object(ix);
        if object.dir.is_none() {
            return Err(Errno::NOTDIR.into());
        }
        if self.workset.is_gone(ix) {
            return Ok(Arc::from([]));
        }
        self.workset.read_names(ix)?;
        let committed: Arc<[Dirent]> = if self.workset.object(ix).is_staged() {
            Arc::from([])
        } else if self.workset.reads_committed() {
            self.workset.names_now(ix)?
        } else {
            self.workset.listing(ix)?
        };
        let mut out = Vec::with_capacity(committed.len());
        let names = self.workset.object(ix).dir.as_ref().map(|d| &d.names);
        for entry in committed.iter() {
            match names.and_then(|n| n.get(&entry.name[..])) {
                None => out.push(DirEntry {
                    name: entry.name.clone().into(),
                    ino: entry.ino,
                    kind: entry.kind,
                    node: None,
                }),
                Some(known) => out.extend(known.now.map(|now| dir_entry(&self.workset, &entry.name, now))),
            }
        }
        if names.is_none_or(|names| names.is_empty()) {
            return Ok(out.into());
        }
        let listed: HashSet<&[u8]> = committed.iter().map(|d| &d.name[..]).collect();
        let first_new = out.len();
        let mut unchanged = false;
        for (name, entry) in names.into_iter().flatten() {
            if let Some(now) = entry.now.filter(|_| !listed.contains(&name[..])) {
                unchanged |= entry.before == entry.now;
                out.push(dir_entry(&self.workset, name, now));
            }
        }
        // Found under a name that is not listed: one of those above, spelled otherwise. Nothing is new in such a directory.
        if unchanged && self.workset.folds_case(ix)? {
            out.truncate(first_new);
        }
        out[first_new..].sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(out.into())
    }

    /// File-system totals.
    pub fn statfs(&mut self, node: Node) -> Verb<StatFs> {
        self.ours()?;
        let domain = &self.workset.mounts()[self.mount_of(node)];
        Ok(domain.os.statfs(&domain.area.dir)?)
    }
}

fn dir_entry<O: Os>(workset: &Workset<O>, name: &[u8], ix: Ix) -> DirEntry {
    let object = workset.object(ix);
    DirEntry { name: name.into(), ino: object.ino, kind: object.kind, node: Some(node_of(ix)) }
}
