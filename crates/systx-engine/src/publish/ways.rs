//! The places at which an object can be when it is not at the path in its record: for users who can't open
//! objects by handle.
//!
//! A step names an object by a path that holds at its turn. Other steps take that path away: the object is in
//! an entry then, or has moved with a directory; in a redo a later record may have moved it. Each step on a
//! name joins two places, of which a rename takes an object from one to the other. So an object is at a place
//! that can be reached over those of its record, and of the records behind that.
//!
//! Guarantees: no place is missing where no outsider renames anything. Does not: look whether the object is
//! there; the caller compares identities, so that a place too many does no harm.

use crate::domain::shared_staging::SlotsOf;
use crate::paths::join;
use crate::record::{Act, Body, Step};
use std::collections::{HashMap, HashSet};

/// Places looked at for one object: names that were given again and again lead to very many.
const PLACES_MAX: usize = 1024;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// The root of the mount.
    Root,
    /// A slot of the record that is published.
    Slot(u32),
    /// A slot of one of [`Ways::records`].
    SlotOf(usize, u32),
}

/// A place that an object may be at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub base: Base,
    pub path: Vec<u8>,
}

/// Pairs of places between which steps rename.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    to: HashMap<Place, Vec<Place>>,
    pub records: Vec<SlotsOf>,
}

impl Ways {
    /// Those of the record that is published.
    pub fn of(body: &Body) -> Ways {
        let mut ways = Ways::default();
        for step in &body.steps {
            let slot = || Place { base: Base::Slot(step.slot), path: Vec::new() };
            if renames(&step.act) {
                ways.join(slot(), name(step));
            }
            // Until it is linked into the entry the object has only the name that it had before.
            if let Act::Link { found, .. } = &step.act {
                ways.join(slot(), at_root(join(&found.path, &found.name)));
            }
        }
        ways
    }

    /// Adds those of another record of the log. `holds`: whether a slot of its holds something; most are empty by now.
    pub fn add(&mut self, body: &Body, holds: impl Fn(u32) -> bool) {
        let record = self.records.len();
        self.records.push(SlotsOf { id: body.id, table: body.table, shared_slots: body.shared_slots });
        let mut taken: HashMap<u32, Place> = HashMap::new();
        for step in body.steps.iter().filter(|step| renames(&step.act)) {
            match &step.act {
                Act::Take { .. } => drop(taken.insert(step.slot, name(step))),
                _ => {
                    // TAKE and PLACE share an entry, which is empty when both are done: it joins their names.
                    if let Some(from) = taken.get(&step.slot) {
                        self.join(from.clone(), name(step));
                    }
                }
            }
            if holds(step.slot) {
                let slot = Place { base: Base::SlotOf(record, step.slot), path: Vec::new() };
                self.join(slot, name(step));
            }
        }
    }

    fn join(&mut self, one: Place, other: Place) {
        self.to.entry(one.clone()).or_default().push(other.clone());
        self.to.entry(other).or_default().push(one);
    }
}

fn renames(act: &Act) -> bool {
    !matches!(act, Act::Patch(_) | Act::Attr { .. })
}

fn name(step: &Step) -> Place {
    at_root(join(&step.at.path, &step.at.name))
}

fn at_root(path: Vec<u8>) -> Place {
    Place { base: Base::Root, path }
}

/// Every place that something at `path` may be at, the near ones first: that one, then those that one rename leads to,
/// and so on.
pub(crate) struct Places<'w> {
    ways: &'w [&'w Ways],
    found: Vec<Place>,
    seen: HashSet<Place>,
    /// How many were given out, and how many of those were followed further.
    given: usize,
    followed: usize,
}

impl<'w> Places<'w> {
    pub fn of(ways: &'w [&'w Ways], path: Vec<u8>) -> Places<'w> {
        let found = vec![at_root(path)];
        Places { ways, seen: found.iter().cloned().collect(), found, given: 0, followed: 0 }
    }

    /// Finds the places to which one rename leads from one of those that were found.
    fn follow(&mut self, place: &Place) {
        let ends = place.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        // A directory on the way may have moved with all that is in it, so each beginning of the path is followed.
        for end in ends.chain([0, place.path.len()]) {
            let prefix = Place { base: place.base, path: place.path[..end].to_vec() };
            let rest = place.path[end..].strip_prefix(b"/").unwrap_or(&place.path[end..]);
            for to in self.ways.iter().filter_map(|ways| ways.to.get(&prefix)).flatten() {
                let to = Place { base: to.base, path: below(&to.path, rest) };
                // Pairs lead both ways: a place that was seen is not visited again, or the search would not end.
                if self.seen.insert(to.clone()) {
                    self.found.push(to);
                }
            }
        }
    }
}

impl Iterator for Places<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        while self.given == self.found.len() && self.found.len() < PLACES_MAX {
            let place = self.found.get(self.followed)?.clone();
            self.followed += 1;
            self.follow(&place);
        }
        let place = self.found.get(self.given)?.clone();
        self.given += 1;
        Some(place)
    }
}

fn below(path: &[u8], rest: &[u8]) -> Vec<u8> {
    match (path.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_vec(),
        (_, true) => path.to_vec(),
        _ => join(path, rest),
    }
}
