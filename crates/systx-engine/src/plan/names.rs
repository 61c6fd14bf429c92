//! Names that changed → TAKE, PLACE, REPLACE, LINK, REMOVE.
//!
//! An object of the committed tree that lost a name and got another one *moves*: TAKE into a slot, then PLACE
//! or REPLACE from it. As everything that moves is taken out first, swaps, cycles and inversions of ancestry
//! need no thought. A name that loses an object for good and gets another one is a REPLACE, whatever the
//! types; a removed tree is one REMOVE.

use super::{Draft, Ordered};
use crate::facts::Name;
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::outcome::Verb;
use crate::plan::at_before;
use crate::plan::at_now;
use crate::plan::first_place;
use crate::plan::handle_of;
use crate::publish::tokens::Token;
use crate::record::{Act, Read, Step};
use crate::workset::node::{Ix, NO_SLOT};
use crate::workset::staging::slot_name;
use crate::workset::Workset;
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

/// The fate of the object that a changed name had or gets.
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

pub(super) fn plan_names<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>) -> Verb<()> {
    let changes = changed_names(workset, draft.mount);
    let ways = ways(workset, draft.mount, &changes)?;
    for (n, change) in changes.iter().enumerate() {
        if let Some(lower) = &workset.object(change.dir).lower {
            let dir = lower.handle;
            draft.plan.written.push(ObjectId::entry(&dir, &change.name));
            if changes_listing(workset, change) {
                draft.plan.commuting.push(ObjectId::listing(&dir));
            }
        }
        if !ways.leaves.contains_key(&n) {
            note_links(workset, draft, change.before);
        }
        if ways.reaches.get(&n) == Some(&Via::Link) {
            note_links(workset, draft, change.now);
        }
        plan_leaving(workset, draft, &changes, &ways, n)?;
        plan_arriving(workset, draft, &changes, &ways, n)?;
    }
    Ok(())
}

/// Returns true if a listing of the directory shows the change: another set of names, or another type under
/// the same name.
fn changes_listing<O: Os>(workset: &Workset<O>, change: &Changed) -> bool {
    let kind = |ix: Ix| workset.object(ix).kind;
    match mutant::on(Mutant::TypesNotAnnounced) {
        true => change.before.is_none() != change.now.is_none(),
        false => change.before.map(kind) != change.now.map(kind),
    }
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

/// In a fixed order, so that the same transaction has the same plan.
fn changed_names<O: Os>(workset: &Workset<O>, mount: usize) -> Vec<Changed> {
    let mut changes = Vec::new();
    for dir in workset.all() {
        let object = workset.object(dir);
        let Some(directory) = object.dir.as_ref().filter(|_| usize::from(object.mount) == mount) else {
            continue;
        };
        let first = changes.len();
        for (name, e) in &directory.names {
            // An object that is staged in a staged directory is there already.
            let to_do = match object.is_staged() {
                true => e.now.is_some_and(|now| !workset.object(now).is_staged()),
                false => e.now != e.before,
            };
            if to_do {
                changes.push(Changed { dir, name: name.clone(), before: e.before, now: e.now, slot: e.slot });
            }
        }
        changes[first..].sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    changes
}

fn ways<O: Os>(workset: &mut Workset<O>, mount: usize, changes: &[Changed]) -> Verb<Ways> {
    let mut ways = Ways::default();
    let mut lost: HashMap<Ix, usize> = HashMap::new();
    for (n, change) in changes.iter().enumerate() {
        if let Some(before) = change.before {
            lost.entry(before).or_insert(n);
        }
    }
    for (n, change) in changes.iter().enumerate() {
        let Some(now) = change.now.filter(|now| !workset.object(*now).is_staged()) else { continue };
        match lost.remove(&now) {
            Some(from) => {
                let slot = workset.new_slot(mount)?;
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

/// Returns what the name had.
fn plan_leaving<O: Os>(
    workset: &mut Workset<O>,
    draft: &mut Draft<O>,
    changes: &[Changed],
    ways: &Ways,
    n: usize,
) -> Verb<()> {
    let change = &changes[n];
    let Some(before) = change.before else { return Ok(()) };
    let handle = handle_of(workset, before)?;
    let is_dir = workset.object(before).kind == FileType::Directory;
    if is_dir {
        draft.plan.written.push(ObjectId::listing(&handle));
    }
    let token = if is_dir { Token::Directory } else { Token::File };
    if let Some(&slot) = ways.leaves.get(&n) {
        let at = at_before(workset, draft, change.dir, &change.name)?;
        draft.plan.tokens.push((slot, token));
        draft.takes.push(Ordered::new(Step {
            slot,
            at,
            act: Act::Take { before: handle, directory: is_dir },
        }));
        return Ok(());
    }
    // Part of a tree that goes as a whole.
    if workset.is_gone(change.dir) {
        return Ok(());
    }
    let early = match (change.now, ways.reaches.get(&n)) {
        (None, _) => false,
        (Some(_), Some(Via::Link)) => true,
        // It leaves by the REPLACE that brings the other one.
        _ => return Ok(()),
    };
    let slot = workset.new_slot(draft.mount)?;
    draft.plan.tokens.push((slot, token));
    let (tree, read) = removed_tree(workset, before, changes, ways);
    let act = Act::Remove { before: handle, tree, read, directory: is_dir };
    if early {
        let at = at_before(workset, draft, change.dir, &change.name)?;
        draft.takes.push(Ordered::new(Step { slot, at, act }));
    } else {
        let at = at_now(workset, draft, change.dir, &change.name)?;
        draft.removes.push(Ordered::new(Step { slot, at, act }));
    }
    Ok(())
}

/// Returns what the name gets.
fn plan_arriving<O: Os>(
    workset: &mut Workset<O>,
    draft: &mut Draft<O>,
    changes: &[Changed],
    ways: &Ways,
    n: usize,
) -> Verb<()> {
    let change = &changes[n];
    let Some(now) = change.now else { return Ok(()) };
    let at = at_now(workset, draft, change.dir, &change.name)?;
    let slot = match ways.reaches.get(&n) {
        Some(Via::Link) => {
            let slot = workset.new_slot(draft.mount)?;
            let (object, found) = (handle_of(workset, now)?, Box::new(first_place(workset, now)?));
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
            let ours = match workset.object(now).is_staged() {
                true => handle_in_slot(workset, draft.mount, slot)?,
                false => handle_of(workset, now)?,
            };
            let (tree, read) = removed_tree(workset, before, changes, ways);
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
    let staging = workset.staging(mount)?;
    let dir = staging.dir.clone();
    Ok(workset.os().handle_at(&dir, &slot_name(slot))?)
}

/// Every object that is removed with a directory: what it held when the transaction began to take it apart,
/// less what moved elsewhere. And which files among these, or that it is itself, were read.
fn removed_tree<O: Os>(
    workset: &Workset<O>,
    root: Ix,
    changes: &[Changed],
    ways: &Ways,
) -> (Vec<Handle>, Vec<Read>) {
    if workset.object(root).kind != FileType::Directory {
        return (Vec::new(), read_of(workset, root, None).into_iter().collect());
    }
    let mut leaves: HashMap<(Ix, &[u8]), ()> = HashMap::new();
    for n in ways.leaves.keys() {
        leaves.insert((changes[*n].dir, &changes[*n].name), ());
    }
    let (mut gone, mut stack) = (Vec::new(), vec![root]);
    while let Some(dir) = stack.pop() {
        let Some(directory) = &workset.object(dir).dir else { continue };
        for (name, entry) in &directory.names {
            let Some(child) = entry.before.filter(|_| !leaves.contains_key(&(dir, &name[..]))) else {
                continue;
            };
            if let Some(lower) = &workset.object(child).lower {
                gone.push((lower.handle, child));
                stack.push(child);
            }
        }
    }
    gone.sort_unstable_by_key(|(handle, _)| *handle);
    let read = gone.iter().enumerate().filter_map(|(n, (_, ix))| read_of(workset, *ix, Some(n as u32)));
    let read = read.collect();
    (gone.into_iter().map(|(handle, _)| handle).collect(), read)
}

/// How an object of the committed tree was read, if its bytes were.
fn read_of<O: Os>(workset: &Workset<O>, ix: Ix, of: Option<u32>) -> Option<Read> {
    let lower = workset.object(ix).lower.as_ref()?;
    workset.facts().read_of(lower.fact).map(|read| Read { of, ..read })
}
