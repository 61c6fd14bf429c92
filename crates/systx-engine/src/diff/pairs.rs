//! Which name before belongs to which name after.
//!
//! An object that lost a name and got another one was renamed. What is left over is paired by path: a name
//! that loses one object for good and gets another one. All paths of *before* are those of the committed
//! tree, all of *after* those that the program sees.

use super::{Diff, Moves, NameDiff};
use crate::paths::join;
use crate::workset::node::Ix;
use crate::workset::Workset;
use std::collections::{HashMap, HashSet};
use systx_os::Os;

/// An object under a path.
pub(crate) type Named = (Ix, Vec<u8>);

/// The object that a path had and the one it gets, or where an object went.
pub(crate) struct Pair {
    pub before: Option<Named>,
    pub after: Option<Named>,
    /// The object got another name of its own, rather than that of a directory above it.
    pub moved: bool,
    /// Another name of a new name's object.
    pub link_to: Option<Vec<u8>>,
}

/// Where a changed name stands.
pub(crate) struct Paths {
    /// In the committed tree, if it had an object there.
    pub before: Option<Vec<u8>>,
    /// As the program sees it.
    pub now: Vec<u8>,
}

/// The paths that an object lost and got.
pub(crate) struct Renamed<'a> {
    /// One for one. Both are the same where its directory was moved, and moved back or made again.
    pub pairs: Vec<(&'a Vec<u8>, &'a Vec<u8>)>,
    /// Left over: of these two, one is empty.
    pub lost: Vec<&'a Vec<u8>>,
    pub gained: Vec<&'a Vec<u8>>,
}

impl Moves {
    /// Pairs what was lost with what was got, of the names that are `seen`.
    pub fn renamed<'a>(&self, paths: &'a [Paths], seen: impl Fn(&usize) -> bool) -> Renamed<'a> {
        let mut lost: Vec<_> = self.lost.iter().filter_map(|n| paths[*n].before.as_ref()).collect();
        let mut gained: Vec<_> = self.gained.iter().filter(|n| seen(n)).map(|n| &paths[*n].now).collect();
        let there: HashSet<_> = gained.iter().copied().collect();
        let stayed: HashSet<_> = lost.iter().copied().filter(|path| there.contains(path)).collect();
        let mut pairs: Vec<_> = stayed.iter().map(|path| (*path, *path)).collect();
        for paths in [&mut lost, &mut gained] {
            paths.retain(|path| !stayed.contains(path));
            paths.sort_unstable();
        }
        let moved = lost.len().min(gained.len());
        pairs.extend(lost.drain(..moved).zip(gained.drain(..moved)));
        Renamed { pairs, lost, gained }
    }
}

impl Diff {
    /// The paths of all changed names, in their order.
    pub fn paths<O: Os>(&self, workset: &Workset<O>) -> Vec<Paths> {
        let mut paths = Vec::with_capacity(self.names.len());
        for names in self.names.chunk_by(|a, b| a.dir == b.dir) {
            let dir = names[0].dir;
            // A root's fact has the path of the root.
            let before = workset.object(dir).lower.as_ref().map(|lower| workset.facts().path(lower.fact));
            let now = workset.path(dir);
            for NameDiff { name, entry, .. } in names {
                let before = before.as_ref().filter(|_| entry.before.is_some());
                paths.push(Paths { before: before.map(|dir| join(dir, name)), now: join(&now, name) });
            }
        }
        paths
    }

    /// All pairs that may differ, in no order.
    pub fn pairs<O: Os>(&self, workset: &Workset<O>) -> Vec<Pair> {
        let (mut pairs, mut paired) = (Vec::new(), HashSet::new());
        let mut pair = |before: Option<Named>, after: Option<Named>, moved| {
            // An object's fate is told where it was; where it comes to, only how it differs from its predecessor.
            paired.extend(before.iter().map(|(ix, _)| *ix));
            pairs.push(Pair { before, after, moved, link_to: None });
        };
        let paths = self.paths(workset);
        let seen = |n: &usize| !workset.is_in_sub_area(self.names[*n].dir);
        let mut goes: HashMap<Vec<u8>, Ix> = HashMap::new();
        let mut comes: Vec<Named> = Vec::new();
        for (n, name) in self.names.iter().enumerate() {
            let made = name.entry.now.filter(|now| workset.object(*now).is_staged() && seen(&n));
            comes.extend(made.map(|ix| (ix, paths[n].now.clone())));
        }
        for (ix, moves) in &self.moves {
            let named = |path: &Vec<u8>| (*ix, path.clone());
            let Renamed { pairs, lost, gained } = moves.renamed(&paths, seen);
            for (from, to) in pairs {
                pair(Some(named(from)), Some(named(to)), from != to);
            }
            goes.extend(lost.into_iter().map(|path| (path.clone(), *ix)));
            comes.extend(gained.into_iter().map(named));
        }
        let mut added = Vec::new();
        for (ix, path) in comes {
            match goes.remove(&path) {
                Some(before) => pair(Some((before, path.clone())), Some((ix, path)), false),
                None => added.push((ix, path)),
            }
        }
        goes.into_iter().for_each(|(path, ix)| pair(Some((ix, path)), None, false));
        let stay = self.objects.iter().map(|object| object.ix).filter(|ix| !paired.contains(ix));
        for ix in stay.filter(|ix| !workset.is_in_sub_area(*ix)) {
            let (before, after) = kept_name(workset, ix);
            let (before, after) = (Some((ix, before)), Some((ix, after)));
            pairs.push(Pair { before, after, moved: false, link_to: None });
        }
        let new: HashSet<&Named> = added.iter().collect();
        let mut firsts: HashMap<Ix, Option<Vec<u8>>> = HashMap::new();
        for named in &added {
            let first = firsts.entry(named.0).or_insert_with(|| first_name(workset, named.0, &new));
            let link_to = first.clone().filter(|first| *first != named.1);
            pairs.push(Pair { before: None, after: Some(named.clone()), moved: false, link_to });
        }
        pairs
    }
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
fn first_name<O: Os>(workset: &Workset<O>, ix: Ix, new: &HashSet<&Named>) -> Option<Vec<u8>> {
    let names = workset.object(ix).names.iter().filter(|_| workset.object(ix).names.len() > 1);
    let paths = names.map(|(dir, name)| join(&workset.path(*dir), name));
    let named = paths.map(|path| (ix, path));
    named.map(|named| (new.contains(&named), named.1)).min().map(|(_, first)| first)
}
