//! Names that changed → TAKE, PLACE, REPLACE, LINK, REMOVE.
//!
//! An object of the committed tree that lost a name and got another one *moves*: TAKE into a slot, then PLACE or REPLACE from it.
//! As everything that moves is taken out first, swaps, cycles and inversions of ancestry need no thought. A name that loses an
//! object for good and gets another one is a REPLACE, whatever the types; a removed tree is one REMOVE.

use super::{Draft, Ordered};
use crate::facts::Name;
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::publish::tokens::Token;
use crate::record::{Act, Read, Step};
use crate::transaction::Transaction;
use crate::workset::staging::{slot_name, NO_SLOT};
use crate::workset::Ix;
use std::collections::HashMap;
use systx_os::{FileType, Handle, Os};

/// One changed name.
struct Changed {
    dir: Ix,
    name: Name,
    before: Option<Ix>,
    now: Option<Ix>,
    /// Of a staged object.
    slot: u32,
}

/// What becomes of the object that a changed name had or gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    /// It moves, through this slot.
    Slot(u32),
    /// One more name of it.
    Link,
}

/// How lower objects leave and reach changed names; keys are indexes of the changes.
#[derive(Default)]
struct Ways {
    leaves: HashMap<usize, u32>,
    reaches: HashMap<usize, Via>,
}

impl<O: Os> Transaction<O> {
    pub(super) fn plan_names(&mut self, draft: &mut Draft<O>) -> Verb<()> {
        let changes = self.changed_names(draft.mount);
        let ways = self.ways(draft.mount, &changes)?;
        for (n, change) in changes.iter().enumerate() {
            if let Some(lower) = &self.object(change.dir).lower {
                let dir = lower.handle;
                draft.plan.written.push(ObjectId::entry(&dir, &change.name));
                if self.changes_listing(change) {
                    draft.plan.commuting.push(ObjectId::listing(&dir));
                }
            }
            if !ways.leaves.contains_key(&n) {
                self.note_links(draft, change.before);
            }
            if ways.reaches.get(&n) == Some(&Via::Link) {
                self.note_links(draft, change.now);
            }
            self.plan_leaving(draft, &changes, &ways, n)?;
            self.plan_arriving(draft, &changes, &ways, n)?;
        }
        Ok(())
    }

    /// Whether a listing of the directory shows the change: another set of names, or another type under the same name.
    fn changes_listing(&self, change: &Changed) -> bool {
        let kind = |ix: Ix| self.object(ix).kind;
        match mutant::on(Mutant::TypesNotAnnounced) {
            true => change.before.is_none() != change.now.is_none(),
            false => change.before.map(kind) != change.now.map(kind),
        }
    }

    /// Notes that an object's link count changes, and that others see it.
    fn note_links(&self, draft: &mut Draft<O>, ix: Option<Ix>) {
        let Some(object) = ix.map(|ix| self.object(ix)).filter(|o| o.kind != FileType::Directory) else {
            return;
        };
        let Some(lower) = &object.lower else { return };
        // One that goes with its only name is seen by nobody.
        if lower.stat.nlink > 1 || object.links > 0 {
            draft.plan.written.push(ObjectId::attr(&lower.handle));
            draft.plan.linked |= lower.stat.nlink > 1;
        }
    }

    /// In a fixed order, so that the same transaction has the same plan.
    fn changed_names(&self, mount: usize) -> Vec<Changed> {
        let mut changes = Vec::new();
        for dir in self.all() {
            let object = self.object(dir);
            let Some(directory) = object.dir.as_ref().filter(|_| usize::from(object.mount) == mount) else {
                continue;
            };
            let first = changes.len();
            for (name, e) in &directory.names {
                // What is staged in a staged directory is there already.
                let to_do = match object.is_staged() {
                    true => e.now.is_some_and(|now| !self.object(now).is_staged()),
                    false => e.now != e.before,
                };
                if to_do {
                    changes.push(Changed {
                        dir,
                        name: name.clone(),
                        before: e.before,
                        now: e.now,
                        slot: e.slot,
                    });
                }
            }
            changes[first..].sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        changes
    }

    fn ways(&mut self, mount: usize, changes: &[Changed]) -> Verb<Ways> {
        let mut ways = Ways::default();
        let mut lost: HashMap<Ix, usize> = HashMap::new();
        for (n, change) in changes.iter().enumerate() {
            if let Some(before) = change.before {
                lost.entry(before).or_insert(n);
            }
        }
        for (n, change) in changes.iter().enumerate() {
            let Some(now) = change.now.filter(|now| !self.object(*now).is_staged()) else { continue };
            match lost.remove(&now) {
                Some(from) => {
                    let slot = self.new_slot(mount)?;
                    ways.leaves.insert(from, slot);
                    ways.reaches.insert(n, Via::Slot(slot));
                }
                None => {
                    ways.reaches.insert(n, Via::Link);
                }
            }
        }
        Ok(ways)
    }

    /// What the name had.
    fn plan_leaving(&mut self, draft: &mut Draft<O>, changes: &[Changed], ways: &Ways, n: usize) -> Verb<()> {
        let change = &changes[n];
        let Some(before) = change.before else { return Ok(()) };
        let handle = self.handle_of(before)?;
        let is_dir = self.object(before).kind == FileType::Directory;
        if is_dir {
            draft.plan.written.push(ObjectId::listing(&handle));
        }
        let token = if is_dir { Token::Directory } else { Token::File };
        if let Some(&slot) = ways.leaves.get(&n) {
            let at = self.at_before(draft, change.dir, &change.name)?;
            draft.plan.tokens.push((slot, token));
            draft.takes.push(Ordered::new(Step {
                slot,
                at,
                act: Act::Take { before: handle, directory: is_dir },
            }));
            return Ok(());
        }
        // Part of a tree that goes as a whole.
        if self.is_gone(change.dir) {
            return Ok(());
        }
        let early = match (change.now, ways.reaches.get(&n)) {
            (None, _) => false,
            (Some(_), Some(Via::Link)) => true,
            // It leaves by the REPLACE that brings the other one.
            _ => return Ok(()),
        };
        let slot = self.new_slot(draft.mount)?;
        draft.plan.tokens.push((slot, token));
        let (tree, read) = self.removed_tree(before, changes, ways);
        let act = Act::Remove { before: handle, tree, read, directory: is_dir };
        if early {
            let at = self.at_before(draft, change.dir, &change.name)?;
            draft.takes.push(Ordered::new(Step { slot, at, act }));
        } else {
            let at = self.at_now(draft, change.dir, &change.name)?;
            draft.removes.push(Ordered::new(Step { slot, at, act }));
        }
        Ok(())
    }

    /// What the name gets.
    fn plan_arriving(
        &mut self,
        draft: &mut Draft<O>,
        changes: &[Changed],
        ways: &Ways,
        n: usize,
    ) -> Verb<()> {
        let change = &changes[n];
        let Some(now) = change.now else { return Ok(()) };
        let at = self.at_now(draft, change.dir, &change.name)?;
        let slot = match ways.reaches.get(&n) {
            Some(Via::Link) => {
                let slot = self.new_slot(draft.mount)?;
                let (object, found) = (self.handle_of(now)?, Box::new(self.first_place(now)?));
                draft.links.push(Ordered::new(Step { slot, at, act: Act::Link { object, found } }));
                return Ok(());
            }
            Some(Via::Slot(slot)) => *slot,
            None => change.slot,
        };
        let displaced = change.before.filter(|_| !ways.leaves.contains_key(&n));
        let act = match displaced {
            None => Act::Place { small: None },
            Some(before) => {
                let ours = match self.object(now).is_staged() {
                    true => self.handle_in_slot(draft.mount, slot)?,
                    false => self.handle_of(now)?,
                };
                let (tree, read) = self.removed_tree(before, changes, ways);
                if self.object(now).kind == FileType::Directory {
                    draft.exchanged.insert(now);
                }
                Act::Replace { ours, before: self.handle_of(before)?, tree, read, rewrites: None }
            }
        };
        draft.places.push(Ordered::new(Step { slot, at, act }));
        Ok(())
    }

    fn handle_in_slot(&mut self, mount: usize, slot: u32) -> Verb<Handle> {
        debug_assert_ne!(slot, NO_SLOT);
        let staging = self.staging(mount)?;
        let dir = staging.dir.clone();
        Ok(self.os.handle_at(&dir, &slot_name(slot))?)
    }

    /// Every object that is removed with a directory: what it held when the transaction began to take it apart, less what moved
    /// elsewhere. And which files among these, or that it is itself, were read.
    fn removed_tree(&self, root: Ix, changes: &[Changed], ways: &Ways) -> (Vec<Handle>, Vec<Read>) {
        if self.object(root).kind != FileType::Directory {
            return (Vec::new(), self.read_of(root, None).into_iter().collect());
        }
        let mut leaves: HashMap<(Ix, &[u8]), ()> = HashMap::new();
        for n in ways.leaves.keys() {
            leaves.insert((changes[*n].dir, &changes[*n].name), ());
        }
        let (mut gone, mut stack) = (Vec::new(), vec![root]);
        while let Some(dir) = stack.pop() {
            let Some(directory) = &self.object(dir).dir else { continue };
            for (name, entry) in &directory.names {
                let Some(child) = entry.before.filter(|_| !leaves.contains_key(&(dir, &name[..]))) else {
                    continue;
                };
                if let Some(lower) = &self.object(child).lower {
                    gone.push((lower.handle, child));
                    stack.push(child);
                }
            }
        }
        gone.sort_unstable_by_key(|(handle, _)| *handle);
        let read = gone.iter().enumerate().filter_map(|(n, (_, ix))| self.read_of(*ix, Some(n as u32)));
        let read = read.collect();
        (gone.into_iter().map(|(handle, _)| handle).collect(), read)
    }

    /// How an object of the committed tree was read, if its bytes were.
    fn read_of(&self, ix: Ix, of: Option<u32>) -> Option<Read> {
        let lower = self.object(ix).lower.as_ref()?;
        self.facts.read_of(lower.fact).map(|read| Read { of, ..read })
    }
}
