//! Which name before belongs to which name after.
//!
//! An object that lost a name and got another one was renamed. What is left over is paired by path: a name
//! that loses one object for good and gets another one. All paths of *before* are those of the committed
//! tree, all of *after* those that the program sees.

use crate::changes::is_touched;
use crate::paths::join;
use crate::workset::node::Ix;
use crate::workset::Workset;
use std::collections::{HashMap, HashSet};
use systx_os::Os;

/// An object under a path.
type Named = (Ix, Vec<u8>);

/// The object that a path had and the one it gets, or where an object went.
pub(crate) struct Pair {
    pub before: Option<Named>,
    pub after: Option<Named>,
    /// The object got another name of its own, rather than that of a directory above it.
    pub moved: bool,
    /// Another name of a new name's object.
    pub link_to: Option<Vec<u8>>,
}

/// Names that an object lost and got, as paths.
#[derive(Default)]
struct Moves {
    lost: Vec<Vec<u8>>,
    gained: Vec<Vec<u8>>,
}

/// All pairs that may differ, in no order.
pub(crate) fn changed_pairs<O: Os>(workset: &Workset<O>) -> Vec<Pair> {
    let (mut pairs, mut paired) = (Vec::new(), HashSet::new());
    let mut pair = |before: Option<Named>, after: Option<Named>, moved| {
        paired.extend(before.iter().chain(&after).map(|(ix, _)| *ix));
        pairs.push(Pair { before, after, moved, link_to: None });
    };
    let mut goes: HashMap<(u16, Vec<u8>), Ix> = HashMap::new();
    let mut comes: Vec<Named> = Vec::new();
    for (ix, mut moves) in moves(workset) {
        // Its directory was moved, and moved back or made again: it is where it was.
        let gained: HashSet<&Vec<u8>> = moves.gained.iter().collect();
        let stayed: HashSet<Vec<u8>> =
            moves.lost.iter().filter(|path| gained.contains(path)).cloned().collect();
        for path in &stayed {
            pair(Some((ix, path.clone())), Some((ix, path.clone())), false);
        }
        for paths in [&mut moves.lost, &mut moves.gained] {
            paths.retain(|path| !stayed.contains(path));
            paths.sort_unstable();
        }
        let (mut lost, mut gained) = (moves.lost.into_iter(), moves.gained.into_iter());
        while let (1.., 1..) = (lost.len(), gained.len()) {
            pair(lost.next().map(|path| (ix, path)), gained.next().map(|path| (ix, path)), true);
        }
        let mount = workset.object(ix).mount;
        goes.extend(lost.map(|path| ((mount, path), ix)));
        comes.extend(gained.map(|path| (ix, path)));
    }
    let mut added = Vec::new();
    for (ix, path) in comes {
        match goes.remove(&(workset.object(ix).mount, path.clone())) {
            Some(before) => pair(Some((before, path.clone())), Some((ix, path)), false),
            None => added.push((ix, path)),
        }
    }
    for ((_, path), ix) in goes {
        pair(Some((ix, path)), None, false);
    }
    for ix in workset
        .all()
        .filter(|ix| is_touched(workset, *ix) && !workset.is_gone(*ix) && !workset.is_in_sub_area(*ix))
    {
        if !paired.contains(&ix) {
            let (before, after) = kept_name(workset, ix);
            pairs.push(Pair {
                before: Some((ix, before)),
                after: Some((ix, after)),
                moved: false,
                link_to: None,
            });
        }
    }
    let new: HashSet<Named> = added.iter().cloned().collect();
    let mut firsts: HashMap<Ix, Option<Vec<u8>>> = HashMap::new();
    for (ix, path) in added {
        let first = firsts.entry(ix).or_insert_with(|| first_name(workset, ix, &new));
        let link_to = first.clone().filter(|first| *first != path);
        pairs.push(Pair { before: None, after: Some((ix, path)), moved: false, link_to });
    }
    pairs
}

/// Names lost and got, object by object.
fn moves<O: Os>(workset: &Workset<O>) -> HashMap<Ix, Moves> {
    let mut moves: HashMap<Ix, Moves> = HashMap::new();
    for dir in workset.all() {
        let object = workset.object(dir);
        let Some(directory) = &object.dir else { continue };
        let hidden = workset.is_in_sub_area(dir);
        // A root's fact has the path of the root.
        let here = object.lower.as_ref().map(|lower| workset.facts().path(lower.fact));
        let mut now_here = None;
        for (name, entry) in directory.names.iter().filter(|(_, entry)| entry.now != entry.before) {
            if let (Some(before), Some(here)) = (entry.before, &here) {
                moves.entry(before).or_default().lost.push(join(here, name));
            }
            if let Some(now) = entry.now.filter(|_| !hidden) {
                let here = now_here.get_or_insert_with(|| workset.path(dir));
                moves.entry(now).or_default().gained.push(join(here, name));
            }
        }
    }
    moves
}

/// A name that an object had and has, as a path before and after.
fn kept_name<O: Os>(workset: &Workset<O>, ix: Ix) -> (Vec<u8>, Vec<u8>) {
    let kept = workset.object(ix).names.iter().filter_map(|(dir, name)| {
        let entry = workset.entry(*dir, name).filter(|entry| entry.before == Some(ix))?;
        let lower = workset.object(*dir).lower.as_ref()?;
        let before = join(&workset.facts().path(lower.fact), name);
        (entry.now == Some(ix)).then(|| (before, join(&workset.path(*dir), name)))
    });
    kept.min().unwrap_or_else(|| {
        // A root; or it lives on by names that the program never touched.
        let fact = workset.object(ix).lower.as_ref().map(|lower| lower.fact);
        let path = fact.map_or_else(Vec::new, |fact| workset.facts().path(fact));
        (path.clone(), path)
    })
}

/// By which of its names an object of several is known: an old one, else the first of the new ones.
fn first_name<O: Os>(workset: &Workset<O>, ix: Ix, new: &HashSet<Named>) -> Option<Vec<u8>> {
    let names = workset.object(ix).names.iter().filter(|_| workset.object(ix).names.len() > 1);
    let paths = names.map(|(dir, name)| join(&workset.path(*dir), name));
    paths.map(|path| (new.contains(&(ix, path.clone())), path)).min().map(|(_, first)| first)
}
