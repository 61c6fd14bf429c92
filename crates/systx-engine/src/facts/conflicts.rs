//! Every conflict at once: a look at the present for a user who asks before the commit.
//!
//! Owns: the comparison of all facts without an end at the first that differs, and the party of each. Guarantees: it
//! changes nothing: no snapshot moves, nothing becomes a fact, the transaction is not doomed, and no other one is
//! waited for or helped. Does not: say what the commit will find, which compares again; or tell what a commit in flight has not
//! published yet, unless that may take any time.

use super::compare::{Difference, OpenFiles};
use super::{Facts, Which};
use crate::domain::Who;
use crate::id::{ObjectId, Objects};
use crate::outcome::{Conflict, ConflictKind, Conflicts, Party, Verb};
use std::collections::{HashMap, HashSet};
use systx_os::Os;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The commits since the snapshot of one domain, by what they may have changed; of several the first.
struct Suspects {
    facts: HashMap<Which, Who>,
    /// By place in `Facts::watched`.
    files: HashMap<usize, Who>,
    /// There were so many that the ring does not show which.
    overrun: bool,
}

/// Conflicts that are found one by one, and listed once each.
struct Differing {
    listed: Vec<(By, Vec<u8>, ConflictKind)>,
    /// Hashes of file system, path and kind: a directory may have been listed many times, and each time is a fact.
    known: HashSet<u128>,
    most: usize,
}

/// How the other party of a difference is found.
enum By {
    Fact(Which),
    Known(Party),
}

impl Differing {
    fn add(&mut self, by: By, d: usize, (path, what): Difference) {
        let seed = (d as u64) << 8 | what as u64;
        if self.known.insert(xxh3_128_with_seed(&path, seed)) && self.listed.len() < self.most {
            self.listed.push((by, path, what));
        }
    }
}

impl<O: Os> Facts<O> {
    /// Compares every fact with the present, and lists at most so many of those that differ.
    pub(crate) fn conflicts(&self, most: usize) -> Verb<Conflicts> {
        let mut differing = Differing { listed: Vec::new(), known: HashSet::new(), most };
        self.compare_all(&mut differing)?;
        // Behind the comparison: what it has met of another transaction is in the ring by now.
        let suspects: Vec<Suspects> = (0..self.domains.len()).map(|d| self.suspects(d)).collect();
        for (d, suspects) in suspects.iter().enumerate() {
            self.add_open_files(d, suspects, &mut differing)?;
            self.add_held(d, &mut differing)?;
        }
        let more = differing.known.len() - differing.listed.len();
        let conflict = |(by, path, what)| {
            let with = match by {
                By::Fact(which) => self.party_of(which, &suspects),
                By::Known(with) => with,
            };
            Conflict { path, what, with }
        };
        let mut listed: Vec<Conflict> = differing.listed.into_iter().map(conflict).collect();
        listed.sort_by(|a, b| (&a.path, a.what).cmp(&(&b.path, b.what)));
        Ok(Conflicts { listed, more })
    }

    /// Of one that is lost, only what it had seen until then: later looks answer from the present and prove nothing.
    fn compare_all(&self, differing: &mut Differing) -> Verb<()> {
        let (seen, listings) = self.until_lost.unwrap_or((self.seen.len(), self.listings.len()));
        let (open, mut unmoved) = (OpenFiles::<O>::new(), HashMap::new());
        let claimed = (0..seen).filter(|n| self.seen[*n].claimed);
        let all = claimed.map(|n| Which::Seen(n as u32));
        for which in all.chain((0..listings).map(|n| Which::Listing(n as u32))) {
            if let Which::Seen(n) = which {
                if self.is_missing_still(n as usize, &mut unmoved)? {
                    continue;
                }
            }
            if let Some(difference) = self.compare(which, &open)? {
                differing.add(By::Fact(which), self.domain_of(which), difference);
            }
        }
        // A commit fills it anew.
        self.fixed.borrow_mut().clear();
        Ok(())
    }

    fn suspects(&self, d: usize) -> Suspects {
        let domain = &self.domains[d];
        let (mut facts, mut files) = (HashMap::new(), HashMap::new());
        let (ids, watched) = (&self.ids[d], &self.watched);
        let overrun = domain.scan_ring(self.snapshots[d], domain.table.next(), |changed, who| {
            ids.hits(changed, |n| {
                facts.entry(ids.get(n).1).or_insert(who);
            });
            for (n, file) in watched.iter().enumerate().filter(|(_, file)| file.domain == d) {
                if changed.may_contain(file.data) {
                    files.entry(n).or_insert(who);
                }
            }
        });
        Suspects { facts, files, overrun }
    }

    /// The party that a refresh would name: by the ring, and else an outsider.
    fn party_of(&self, which: Which, suspects: &[Suspects]) -> Party {
        let d = self.domain_of(which);
        match suspects[d].facts.get(&which) {
            _ if suspects[d].overrun => Party::Unknown,
            Some(who) => self.domains[d].party(who.tx, who.pid),
            None => Party::Outsider,
        }
    }

    fn domain_of(&self, which: Which) -> usize {
        match which {
            Which::Seen(n) => self.seen[n as usize].dir.domain,
            Which::Listing(n) => self.listings[n as usize].dir.domain,
        }
    }

    /// Files that are open without being facts: of these only commits count, outsiders' bytes are read as they come.
    fn add_open_files(&self, d: usize, suspects: &Suspects, differing: &mut Differing) -> Verb<()> {
        for (n, _) in self.watched.iter().enumerate().filter(|(_, file)| file.domain == d) {
            let who = suspects.files.get(&n).filter(|_| !suspects.overrun);
            if who.is_none() && !suspects.overrun {
                continue;
            }
            if let Some(path) = self.open_file_differs(n)? {
                let with = who.map_or(Party::Unknown, |who| self.domains[d].party(who.tx, who.pid));
                differing.add(By::Known(with), d, (path, ConflictKind::ContentsChangedWhileOpen));
            }
        }
        Ok(())
    }

    /// Objects that another transaction holds, whose end may take any time: a commit would not wait for it.
    fn add_held(&self, d: usize, differing: &mut Differing) -> Verb<()> {
        let domain = &self.domains[d];
        if domain.is_quiet()? {
            return Ok(());
        }
        let read: Vec<ObjectId> = self.read_set(d).collect();
        let ours = Objects { read, ..Objects::default() };
        for stuck in domain.held(&ours)? {
            let changed = stuck.footprint.changed();
            let held = ours.read.iter().find(|object| changed.may_contain(**object));
            let path = held.and_then(|object| self.path_of(d, *object));
            let path = path.unwrap_or_else(|| domain.shown(b""));
            differing.add(By::Known(stuck.with), d, (path, stuck.what));
        }
        Ok(())
    }
}
