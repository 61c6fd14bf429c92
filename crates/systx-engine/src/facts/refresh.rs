//! R2: moves the snapshot forward over commits that did not touch what was seen.

use super::compare::OpenFiles;
use super::{Facts, Which};
use crate::id::ObjectId;
use crate::outcome::{Party, Verb};
use systx_os::Os;

impl<O: Os> Facts<O> {
    /// Brings every domain's snapshot to now. `objects` of `domain` are being looked at: whether the look still counts.
    ///
    /// # Errors
    /// `Doomed` when a fact is no longer true.
    pub(super) fn refresh(&mut self, domain: usize, objects: &[ObjectId]) -> Verb<bool> {
        let mut fresh = true;
        for d in 0..self.domains.len() {
            // One load a domain when nobody committed.
            if self.domains[d].table.next() != self.snapshots[d] {
                fresh &= self.refresh_domain(d, if d == domain { objects } else { &[] })?;
            }
        }
        Ok(fresh)
    }

    /// Brings every snapshot to now and finds all facts that commits since then may have changed unchanged.
    pub(crate) fn refresh_all(&mut self) -> Verb<()> {
        self.refresh(usize::MAX, &[]).map(|_| ())
    }

    fn refresh_domain(&mut self, d: usize, looking: &[ObjectId]) -> Verb<bool> {
        let domain = self.domains[d].clone();
        let mut fresh = true;
        loop {
            let now = domain.table.next();
            if now == self.snapshots[d] {
                return Ok(fresh);
            }
            let mut hits: Vec<(usize, Party)> = Vec::new();
            let mut look_hit = false;
            let ids = &self.ids[d];
            let overrun = domain.scan_ring(self.snapshots[d], now, |changed, party| {
                look_hit |= looking.iter().any(|o| changed.may_contain(*o));
                ids.hits(changed, |n| hits.push((n, party.clone())));
            });
            if overrun {
                look_hit = true;
                hits = (0..ids.len()).map(|n| (n, Party::Outsider)).collect();
            }
            if hits.is_empty() && !look_hit {
                self.snapshots[d] = now;
                continue;
            }
            // Whoever was numbered but has not published yet must be waited for, or the comparison reads half of it.
            let mut objects: Vec<ObjectId> = hits.iter().map(|(n, _)| self.ids[d].get(*n).0).collect();
            objects.extend_from_slice(looking);
            if let Err(party) = domain.await_slots(&objects)? {
                return Err(self.doomed(Vec::new(), "it belongs to a prepared transaction", party));
            }
            for (n, party) in hits {
                let which = self.ids[d].get(n).1;
                if let Some((path, what)) = self.compare(which, &OpenFiles::<O>::new())? {
                    return Err(self.doomed(path, what, party));
                }
            }
            self.snapshots[d] = now;
            fresh &= !look_hit;
        }
    }

    /// Compares every fact with the present. Files that the caller has `open` are not opened again.
    ///
    /// # Errors
    /// `Doomed` naming the first that is no longer true.
    pub(crate) fn check_all(&self, open: &OpenFiles<O>) -> Verb<()> {
        for n in 0..self.seen.len() {
            if let Some((path, what)) = self.compare(Which::Seen(n as u32), open)? {
                return Err(self.doomed(path, what, Party::Outsider));
            }
        }
        for n in 0..self.listings.len() {
            if let Some((path, what)) = self.compare(Which::Listing(n as u32), open)? {
                return Err(self.doomed(path, what, Party::Outsider));
            }
        }
        Ok(())
    }
}
