//! Names that changed → TAKE, PLACE, REPLACE, LINK, REMOVE.
//!
//! An object of the committed tree that lost a name and got another one *moves*: TAKE into a slot, then PLACE
//! or REPLACE from it. As everything that moves is taken out first, swaps, cycles and inversions of ancestry
//! need no thought. A name that loses an object for good and gets another one is a REPLACE, whatever the
//! types; a removed tree is one REMOVE.

use super::{Draft, Ordered};
use crate::diff::{Diff, NameDiff};
use crate::facts::Name;
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::plan::at_before;
use crate::plan::at_now;
use crate::plan::first_place;
use crate::plan::handle_of;
use crate::publish::tokens::Token;
use crate::record::{Act, Gone, Read, Step, TreePlace};
use crate::workset::node::{Entry, Ix, NO_SLOT};
use crate::workset::Workset;
use std::collections::HashMap;
use systx_os::{FileType, Handle, Os};

/// The fate of the object that a changed name had or gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    /// It moves, through this slot.
    Slot(u32),
    /// One more name of it.
    Link,
}

/// How objects of the committed tree leave and reach changed names, which are known by their index.
struct Ways<'a> {
    diff: &'a Diff,
    /// The slots of objects that move: from the first name that one lost to the first that it got.
    slots: HashMap<Ix, u32>,
}

impl<'a> Ways<'a> {
    fn new<O: Os>(workset: &mut Workset<O>, mount: usize, diff: &'a Diff) -> Verb<Ways<'a>> {
        let mut slots = HashMap::new();
        for (n, now) in diff.names.iter().enumerate().filter_map(|(n, name)| Some((n, name.entry.now?))) {
            let moves = diff.moves.get(&now);
            if moves.is_some_and(|moves| !moves.lost.is_empty() && moves.gained[0] == n) {
                slots.insert(now, workset.new_slot(mount)?);
            }
        }
        Ok(Ways { diff, slots })
    }

    /// The slot through which an object leaves a name.
    fn leaves(&self, n: usize) -> Option<u32> {
        let before = self.diff.names[n].entry.before?;
        self.slots.get(&before).copied().filter(|_| self.diff.moves[&before].lost[0] == n)
    }

    fn reaches(&self, n: usize) -> Option<Via> {
        let now = self.diff.names[n].entry.now?;
        let first = *self.diff.moves.get(&now)?.gained.first()? == n;
        Some(self.slots.get(&now).filter(|_| first).map_or(Via::Link, |slot| Via::Slot(*slot)))
    }

    /// Returns true if an object leaves this name for another one.
    fn moves_from(&self, ix: Ix, dir: Ix, name: &Name) -> bool {
        let from = || &self.diff.names[self.diff.moves[&ix].lost[0]];
        self.slots.contains_key(&ix) && from().dir == dir && from().name == *name
    }
}

pub(super) fn plan_names<O: Os>(workset: &mut Workset<O>, diff: &Diff, draft: &mut Draft<O>) -> Verb<()> {
    let ways = Ways::new(workset, draft.mount, diff)?;
    for (n, NameDiff { dir, name, entry }) in diff.names.iter().enumerate() {
        match &workset.object(*dir).lower {
            Some(lower) => {
                draft.plan.written.push(ObjectId::entry(&lower.handle, name));
                if changes_listing(workset, entry) {
                    draft.plan.commuting.push(ObjectId::listing(&lower.handle));
                }
            }
            // An object that is staged in a staged directory is there already.
            None if ways.reaches(n).is_none() => continue,
            None => {}
        }
        if ways.leaves(n).is_none() {
            note_links(workset, draft, entry.before);
        }
        if ways.reaches(n) == Some(Via::Link) {
            note_links(workset, draft, entry.now);
        }
        plan_leaving(workset, draft, &ways, n)?;
        plan_arriving(workset, draft, &ways, n)?;
    }
    Ok(())
}

/// Returns true if a listing of the directory shows the change: another set of names, or another type under
/// the same name.
fn changes_listing<O: Os>(workset: &Workset<O>, entry: &Entry) -> bool {
    let kind = |ix: Ix| workset.object(ix).kind;
    if mutant::on(Mutant::TypesNotAnnounced) {
        return entry.before.is_none() != entry.now.is_none();
    }
    entry.before.map(kind) != entry.now.map(kind)
}

/// Notes that an object's link count changes, and that others see it.
fn note_links<O: Os>(workset: &Workset<O>, draft: &mut Draft<O>, ix: Option<Ix>) {
    let Some(object) = ix.map(|ix| workset.object(ix)).filter(|o| o.kind != FileType::Directory) else {
        return;
    };
    let Some(lower) = &object.lower else { return };
    // An object that goes with its only name is visible to no process.
    if lower.stat.nlink > 1 || object.links > 0 {
        draft.plan.written.push(ObjectId::attr(&lower.handle));
        draft.plan.linked |= lower.stat.nlink > 1;
    }
}

/// Returns what the name had.
fn plan_leaving<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ways: &Ways, n: usize) -> Verb<()> {
    let NameDiff { dir, name, entry } = &ways.diff.names[n];
    let Some(before) = entry.before else { return Ok(()) };
    let handle = handle_of(workset, before)?;
    let is_dir = workset.object(before).kind == FileType::Directory;
    if is_dir {
        draft.plan.written.push(ObjectId::listing(&handle));
    }
    let token = if is_dir { Token::Directory } else { Token::File };
    if let Some(slot) = ways.leaves(n) {
        let at = at_before(workset, draft, *dir, name)?;
        draft.plan.tokens.push((slot, token));
        draft.takes.push(Ordered::new(Step {
            slot,
            at,
            act: Act::Take { before: handle, directory: is_dir },
        }));
        return Ok(());
    }
    // Part of a tree that goes as a whole.
    if workset.is_gone(*dir) {
        return Ok(());
    }
    let early = match (entry.now, ways.reaches(n)) {
        (None, _) => false,
        (Some(_), Some(Via::Link)) => true,
        // It leaves by the REPLACE that brings the other one.
        _ => return Ok(()),
    };
    let slot = workset.new_slot(draft.mount)?;
    draft.plan.tokens.push((slot, token));
    let (tree, read) = removed_tree(workset, before, ways);
    let act = Act::Remove { before: handle, tree, read, directory: is_dir };
    if early {
        let at = at_before(workset, draft, *dir, name)?;
        draft.takes.push(Ordered::new(Step { slot, at, act }));
    } else {
        let at = at_now(workset, draft, *dir, name)?;
        draft.removes.push(Ordered::new(Step { slot, at, act }));
    }
    Ok(())
}

/// Returns what the name gets.
fn plan_arriving<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ways: &Ways, n: usize) -> Verb<()> {
    let NameDiff { dir, name, entry } = &ways.diff.names[n];
    let Some(now) = entry.now else { return Ok(()) };
    let at = at_now(workset, draft, *dir, name)?;
    let slot = match ways.reaches(n) {
        Some(Via::Link) => {
            let slot = workset.new_slot(draft.mount)?;
            let (object, found) = (handle_of(workset, now)?, Box::new(first_place(workset, now)?));
            draft.links.push(Ordered::new(Step { slot, at, act: Act::Link { object, found } }));
            return Ok(());
        }
        Some(Via::Slot(slot)) => slot,
        None => entry.slot,
    };
    let public = entry.before.filter(|_| ways.leaves(n).is_none());
    let act = match public {
        None => Act::Place { small: None },
        Some(before) => {
            let ours = match workset.object(now).lower.as_ref() {
                Some(lower) => lower.handle,
                None => handle_in_slot(workset, draft.mount, slot)?,
            };
            let (tree, read) = removed_tree(workset, before, ways);
            if workset.object(now).kind == FileType::Directory {
                draft.exchanged.insert(now);
            }
            Act::Replace { ours, before: handle_of(workset, before)?, tree, read, rewrites: None }
        }
    };
    draft.places.push(Ordered::new(Step { slot, at, act }));
    Ok(())
}

fn handle_in_slot<O: Os>(workset: &mut Workset<O>, mount: usize, slot: u32) -> Verb<Handle> {
    debug_assert_ne!(slot, NO_SLOT);
    let spot = workset.slot_spot(mount, slot)?;
    Ok(workset.os().handle_at(&spot.dir, &spot.name)?)
}

/// Every name that is removed with a directory: what it held when the transaction began to take it apart,
/// less what moved elsewhere. And which files among these, or that it is itself, were read.
fn removed_tree<O: Os>(workset: &Workset<O>, root: Ix, ways: &Ways) -> (Vec<Gone>, Vec<Read>) {
    if workset.object(root).kind != FileType::Directory {
        return (Vec::new(), read_of(workset, root, None).into_iter().collect());
    }
    let (mut gone, mut stack) = (Vec::new(), vec![(root, TreePlace::default())]);
    while let Some((dir, place)) = stack.pop() {
        let Some(directory) = &workset.object(dir).dir else { continue };
        for (name, entry) in &directory.names {
            let Some(child) = entry.before.filter(|ix| !ways.moves_from(*ix, dir, name)) else { continue };
            if let Some(lower) = &workset.object(child).lower {
                let place = place.of(name);
                gone.push((Gone { handle: lower.handle, place: place.short() }, child));
                stack.push((child, place));
            }
        }
    }
    gone.sort_unstable_by_key(|(gone, _)| (gone.handle, gone.place));
    let read = gone.iter().enumerate().filter_map(|(n, (_, ix))| read_of(workset, *ix, Some(n as u32)));
    let read = read.collect();
    (gone.into_iter().map(|(gone, _)| gone).collect(), read)
}

/// How an object of the committed tree was read, if its bytes were.
fn read_of<O: Os>(workset: &Workset<O>, ix: Ix, of: Option<u32>) -> Option<Read> {
    let lower = workset.object(ix).lower.as_ref()?;
    workset.facts().read_of(lower.fact).map(|read| Read { of, ..read })
}
