//! R2: moves the snapshot forward over commits that did not touch what was seen.

use super::compare::OpenFiles;
use super::{FactIx, Facts, Which};
use crate::domain::Who;
use crate::id::ObjectId;
use crate::outcome::{ConflictKind, Party, Verb, VerbError};
use std::collections::{HashMap, HashSet};
use systx_os::{Handle, Os};

impl<O: Os> Facts<O> {
    /// Brings every domain's snapshot to now. `objects` of `domain` are being looked at: whether the look still counts.
    ///
    /// # Errors
    /// `Doomed` when a fact is no longer true.
    pub(super) fn refresh(&mut self, domain: usize, objects: &[ObjectId]) -> Verb<bool> {
        let mut fresh = true;
        if self.lost {
            return Ok(fresh);
        }
        for d in 0..self.domains.len() {
            // One load a domain when no transaction committed.
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
            // Without a name where the ring was overrun.
            let mut hits: Vec<(usize, Option<Who>)> = Vec::new();
            let mut look_hit = false;
            let mut open_hits: Vec<(usize, Option<Who>)> = Vec::new();
            let (ids, watched) = (&self.ids[d], &self.watched);
            let open = || watched.iter().enumerate().filter(|(_, file)| file.domain == d);
            let overrun = domain.scan_ring(self.snapshots[d], now, |changed, who| {
                look_hit |= looking.iter().any(|o| changed.may_contain(*o));
                ids.hits(changed, |n| hits.push((n, Some(who))));
                let hit = open().filter(|(_, file)| changed.may_contain(file.data));
                open_hits.extend(hit.map(|(n, _)| (n, Some(who))));
            });
            if overrun {
                look_hit = true;
                hits = (0..ids.len()).map(|n| (n, None)).collect();
                open_hits = open().map(|(n, _)| (n, None)).collect();
            }
            if hits.is_empty() && open_hits.is_empty() && !look_hit {
                self.snapshots[d] = now;
                continue;
            }
            // A transaction that was numbered but has not published yet must be waited for, or the comparison
            // reads half of it.
            let mut objects: Vec<ObjectId> = hits.iter().map(|(n, _)| self.ids[d].get(*n).0).collect();
            objects.extend(open_hits.iter().map(|(n, _)| self.watched[*n].data));
            objects.extend_from_slice(looking);
            if let Err(stuck) = domain.await_slots(&objects, self.waiting)? {
                let changed = stuck.footprint.changed();
                let held = objects.iter().find(|o| changed.may_contain(**o));
                // The object that is being looked at has no fact yet: the looking code knows its path.
                let path = held.and_then(|o| self.path_of(d, *o)).unwrap_or_default();
                return Err(self.doomed(path, stuck.what, stuck.with));
            }
            for (n, who) in hits {
                let which = self.ids[d].get(n).1;
                if let Some((path, what)) = self.compare(which, &OpenFiles::<O>::new())? {
                    let with = who.map_or(Party::Unknown, |who| domain.party(who.tx, who.pid));
                    return Err(self.doomed(path, what, with));
                }
            }
            for (n, who) in open_hits {
                if let Some(path) = self.open_file_differs(n)? {
                    let with = who.map_or(Party::Unknown, |who| domain.party(who.tx, who.pid));
                    return Err(self.doomed(path, ConflictKind::ContentsChangedWhileOpen, with));
                }
            }
            self.snapshots[d] = now;
            fresh &= !look_hit;
        }
    }

    /// Compares one fact with the present.
    ///
    /// # Errors
    /// `Doomed` when it is no longer true.
    pub(crate) fn check(&mut self, fact: FactIx) -> Verb<()> {
        if !self.seen[fact.0 as usize].claimed || self.lost {
            return Ok(());
        }
        match self.compare(Which::Seen(fact.0), &OpenFiles::<O>::new())? {
            Some((path, what)) => Err(self.changed(path, what)),
            None => Ok(()),
        }
    }

    /// The error that `what` is no longer true: another transaction's doing if the ring says so, else an outsider's.
    pub(crate) fn changed(&mut self, path: Vec<u8>, what: ConflictKind) -> VerbError {
        match self.refresh_all() {
            Err(named) => named,
            Ok(()) => self.doomed(path, what, Party::Outsider),
        }
    }

    /// Compares every fact with the present, as [`Facts::check_all`], while other transactions may commit.
    pub(crate) fn check_all_named(&mut self) -> Verb<()> {
        match self.check_all(&OpenFiles::<O>::new()) {
            Err(doomed @ VerbError::Doomed(_)) => self.refresh_all().and(Err(doomed)),
            checked => checked.map(drop),
        }
    }

    /// Compares every fact with the present, while no overlapping transaction can commit. Files that the
    /// caller has `open` are not opened again. Returns which of the objects are immutable or append-only now.
    ///
    /// # Errors
    ///
    /// `Doomed` naming the first that is no longer true.
    pub(crate) fn check_all(&self, open: &OpenFiles<O>) -> Verb<HashSet<Handle>> {
        self.fixed.borrow_mut().clear();
        let mut unmoved = HashMap::new();
        for n in 0..self.seen.len() {
            if !self.seen[n].claimed {
                continue;
            }
            if self.is_missing_still(n, &mut unmoved)? {
                continue;
            }
            if let Some((path, what)) = self.compare(Which::Seen(n as u32), open)? {
                return Err(self.doomed(path, what, Party::Outsider));
            }
        }
        for n in 0..self.listings.len() {
            if let Some((path, what)) = self.compare(Which::Listing(n as u32), open)? {
                return Err(self.doomed(path, what, Party::Outsider));
            }
        }
        Ok(self.fixed.take())
    }

    /// Returns true if a name must be missing still because nothing at all has happened in its directory.
    /// Each directory is asked once in a comparison, however many names were missed there: `unmoved`.
    pub(super) fn is_missing_still(
        &self,
        n: usize,
        unmoved: &mut HashMap<(usize, Handle), bool>,
    ) -> Verb<bool> {
        let seen = &self.seen[n];
        if !seen.stamped {
            return Ok(false);
        }
        let key = (seen.dir.domain, seen.dir.handle);
        if let Some(known) = unmoved.get(&key) {
            return Ok(*known);
        }
        let now = match self.opened(&seen.dir)? {
            Some(fd) => Some(self.domains[seen.dir.domain].os.stat(&*fd)?.ctime),
            None => None,
        };
        let still = now.is_some() && now == seen.dir.stamp();
        unmoved.insert(key, still);
        Ok(still)
    }
}
