//! Which changes go together when only a part of a transaction is committed.
//!
//! Owns: [`Choice`] (what the user names), [`Part`] (what comes of it), and the rules between. A *group* is
//! what can only happen as a whole: an object that moves leaves one name and takes another; a name that loses
//! one object and gets another does both. A group *needs* another one in two ways. Its names stand in
//! directories that are new or moved themselves: those come along, as `git add` brings the directories of a
//! file. And a directory can go only when all that was in it goes: that is never brought along unasked, but
//! refused. What is excluded takes along whatever needs it. Guarantees: what is chosen comes to a tree with
//! every chosen name as the transaction shows it; making a choice changes nothing. Does not: give the rest up
//! ([`Transaction::keep_only`]).

use super::Change;
use crate::diff::{Diff, NameDiff};
use crate::facts::Name;
use crate::outcome::Verb;
use crate::paths::{depth, join};
use crate::transaction::Transaction;
use crate::workset::node::{Entry, Ix};
use crate::workset::Workset;
use std::collections::{HashMap, HashSet};
use systx_os::{FileType, Os};

/// The paths that a user names, as people know them, without `.`, `..` and a `/` at the end. A directory
/// means everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only what is here; nothing named: everything.
    pub only: Vec<Vec<u8>>,
    /// Nothing of what is here.
    pub exclude: Vec<Vec<u8>>,
}

/// Why a choice is none. Paths are as people know them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// Nothing changes at this path or below it.
    Unmatched(Vec<u8>),
    /// The first can't happen without the second, which was not named.
    Needs(Vec<u8>, Vec<u8>),
    /// Nothing is left.
    Empty,
}

/// The changes that are chosen. Good until the transaction changes again.
#[derive(Clone, Debug)]
pub struct Part {
    /// Of every name that changes, by directory and name: its group.
    names: HashMap<(Ix, Name), usize>,
    /// The choice by the path before, and by the path after, in its mount.
    lost: HashMap<Place, usize>,
    gained: HashMap<Place, usize>,
    /// Objects of which more than names was changed.
    objects: HashMap<Ix, usize>,
    chosen: Vec<bool>,
}

/// A path from the root of a mount.
type Place = (u16, Vec<u8>);

impl Part {
    /// Returns true if one of the transaction's changes is in it.
    pub fn has(&self, change: &Change) -> bool {
        self.group_of(change).is_none_or(|group| self.chosen[group])
    }

    fn group_of(&self, change: &Change) -> Option<usize> {
        let mount = change.mount as u16;
        let place = |version: &super::Version| (mount, version.path.clone());
        let by_name = change.before.as_ref().and_then(|before| self.lost.get(&place(before)));
        let by_name = by_name.or_else(|| change.after.as_ref().and_then(|a| self.gained.get(&place(a))));
        let nodes = [&change.before, &change.after].into_iter().flatten().map(|version| version.node);
        let of_object = |node: crate::types::Node| {
            u32::try_from(node.0).ok().and_then(Ix::new).and_then(|ix| self.objects.get(&ix))
        };
        by_name.or_else(|| nodes.filter_map(of_object).next()).copied()
    }

    /// Names that are not in it.
    pub(crate) fn other_names(&self) -> impl Iterator<Item = (Ix, &[u8])> {
        self.names.iter().filter(|(_, group)| !self.chosen[**group]).map(|((dir, name), _)| (*dir, &name[..]))
    }

    /// Objects whose bytes and attributes are not in it.
    pub(crate) fn other_objects(&self) -> impl Iterator<Item = Ix> + '_ {
        self.objects.iter().filter(|(_, group)| !self.chosen[**group]).map(|(ix, _)| *ix)
    }
}

/// Something that changes: a name, or an object under names of its own.
struct Unit {
    mount: u16,
    what: What,
    /// Where it can be found, from the root of the mount: as committed, and as the program sees it.
    paths: Vec<Vec<u8>>,
}

enum What {
    Name { dir: Ix, name: Name, entry: Entry },
    Object(Ix),
}

/// Sets that are joined with each other: for each member, another one of the same set, or itself.
struct Sets(Vec<usize>);

impl Sets {
    fn find(&mut self, mut n: usize) -> usize {
        while self.0[n] != n {
            self.0[n] = self.0[self.0[n]];
            n = self.0[n];
        }
        n
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a] = b;
    }
}

/// Everything that changes, and what holds between.
struct Web {
    units: Vec<Unit>,
    /// The group of each unit.
    group: Vec<usize>,
    /// Directories that a group's new names stand in.
    above: Vec<Vec<usize>>,
    /// Objects in the directories that go with a group.
    inside: Vec<Vec<usize>>,
    part: Part,
}

impl<O: Os> Transaction<O> {
    /// Resolves a choice. `changes` are those that the transaction lists just now.
    ///
    /// # Errors
    ///
    /// Of the file system. An inner error says why there is no such part; nothing has changed.
    pub fn choose(&mut self, changes: &[Change], choice: &Choice) -> Verb<Result<Part, Unfit>> {
        self.workset.see_ends()?;
        self.workset.read_native_trees()?;
        let diffs = Diff::of(&mut self.workset).map_err(|(_, error)| error)?;
        Ok(choose(&self.workset, &diffs, changes, choice))
    }
}

fn choose<O: Os>(
    workset: &Workset<O>,
    diffs: &[Diff],
    changes: &[Change],
    choice: &Choice,
) -> Result<Part, Unfit> {
    let web = web(workset, diffs);
    let told: HashSet<usize> = changes.iter().filter_map(|change| web.part.group_of(change)).collect();
    let shown = shown_paths(workset, &web);
    let matched = |paths: &[Vec<u8>]| -> Result<HashSet<usize>, Unfit> {
        let mut all = HashSet::new();
        for path in paths {
            let found = groups_at(&shown, path);
            if found.is_disjoint(&told) {
                return Err(Unfit::Unmatched(path.clone()));
            }
            all.extend(found);
        }
        Ok(all)
    };
    let (only, excluded) = (matched(&choice.only)?, matched(&choice.exclude)?);
    let count = web.above.len();
    let above = |group: usize| web.above[group].iter().copied();
    let mut chosen = if choice.only.is_empty() { vec![true; count] } else { reached(only, count, above) };
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); count];
    for group in 0..count {
        for needed in web.above[group].iter().chain(&web.inside[group]) {
            needed_by[*needed].push(group);
        }
    }
    let out = reached(excluded, count, |group| needed_by[group].iter().copied());
    for group in 0..count {
        chosen[group] &= !out[group];
    }
    for group in (0..count).filter(|group| chosen[*group]) {
        if let Some(missing) = web.inside[group].iter().find(|needed| !chosen[**needed]) {
            return Err(Unfit::Needs(
                shown_group(workset, &web, group),
                shown_group(workset, &web, *missing),
            ));
        }
    }
    let part = Part { chosen, ..web.part };
    if changes.iter().any(|change| part.has(change)) {
        Ok(part)
    } else {
        Err(Unfit::Empty)
    }
}

/// All paths of all units as people know them, each with a `/` at its end, and the groups: sorted, so that
/// what is below a path stands together.
fn shown_paths<O: Os>(workset: &Workset<O>, web: &Web) -> Vec<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    for (unit, group) in web.units.iter().zip(&web.group) {
        for path in &unit.paths {
            let mut shown = workset.shown_path(usize::from(unit.mount), path);
            if !shown.ends_with(b"/") {
                shown.push(b'/');
            }
            all.push((shown, *group));
        }
    }
    all.sort_unstable();
    all
}

/// Some path of a group, as the program sees it: the outermost.
fn shown_group<O: Os>(workset: &Workset<O>, web: &Web, group: usize) -> Vec<u8> {
    let units = web.units.iter().zip(&web.group).filter(|(_, g)| **g == group);
    let paths = units.filter_map(|(unit, _)| Some((unit.paths.last()?, unit.mount)));
    let first = paths.min_by_key(|(path, _)| (depth(path), path.to_vec()));
    first.map_or_else(Vec::new, |(path, mount)| workset.shown_path(usize::from(mount), path))
}

fn web<O: Os>(workset: &Workset<O>, diffs: &[Diff]) -> Web {
    let mut units = units(workset, diffs);
    // So that the same transaction has the same answer.
    units.sort_by(|a, b| (a.mount, &a.paths).cmp(&(b.mount, &b.paths)));
    let mut sets = Sets((0..units.len()).collect());
    let mut lost: HashMap<Ix, Vec<usize>> = HashMap::new();
    let (mut left, mut taken): (HashMap<Place, usize>, HashMap<Place, usize>) = Default::default();
    for (n, unit) in units.iter().enumerate() {
        let What::Name { entry, .. } = &unit.what else { continue };
        if let Some(before) = entry.before {
            lost.entry(before).or_default().push(n);
            left.extend(unit.paths.first().map(|path| ((unit.mount, path.clone()), n)));
        }
        if entry.now.is_some() {
            taken.extend(unit.paths.last().map(|path| ((unit.mount, path.clone()), n)));
        }
    }
    // A name that loses one object and gets another one: also where its directory is another one by now.
    for (place, n) in &left {
        taken.get(place).into_iter().for_each(|other| sets.join(*n, *other));
    }
    // An object that moves takes a name for the one that it leaves. Further names of it stand for themselves.
    for (diff, mount) in diffs.iter().zip(0..) {
        let paths = diff.paths(workset);
        for moves in diff.moves.values() {
            for (from, to) in moves.renamed(&paths, |_| true).pairs {
                let ends = (left.get(&(mount, from.clone())), taken.get(&(mount, to.clone())));
                if let (Some(from), Some(to)) = ends {
                    sets.join(*from, *to);
                }
            }
        }
    }
    // Objects that were written to before they moved or went; an object that lives on by another name is
    // listed under the one that goes.
    for (n, unit) in units.iter().enumerate() {
        let What::Object(ix) = unit.what else { continue };
        lost.get(&ix).into_iter().flatten().for_each(|other| sets.join(n, *other));
    }
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    let mut group = Vec::with_capacity(units.len());
    for n in 0..units.len() {
        let (set, next) = (sets.find(n), numbers.len());
        group.push(*numbers.entry(set).or_insert(next));
    }
    let count = numbers.len();
    let in_groups = |places: HashMap<Place, usize>| {
        places.into_iter().map(|(place, n)| (place, group[n])).collect::<HashMap<_, _>>()
    };
    let (mut names, mut objects) = (HashMap::new(), HashMap::new());
    for (unit, group) in units.iter().zip(&group) {
        match &unit.what {
            What::Name { dir, name, .. } => drop(names.insert((*dir, name.clone()), *group)),
            What::Object(ix) => drop(objects.insert(*ix, *group)),
        }
    }
    let part = Part { names, lost: in_groups(left), gained: in_groups(taken), objects, chosen: Vec::new() };
    let (above, inside) = needs(workset, &units, &group, &part, count);
    Web { units, group, above, inside, part }
}

fn units<O: Os>(workset: &Workset<O>, diffs: &[Diff]) -> Vec<Unit> {
    let mut units = Vec::new();
    for (diff, mount) in diffs.iter().zip(0..) {
        for (NameDiff { dir, name, entry }, paths) in diff.names.iter().zip(diff.paths(workset)) {
            let what = What::Name { dir: *dir, name: name.clone(), entry: *entry };
            units.push(Unit { mount, what, paths: paths.before.into_iter().chain([paths.now]).collect() });
        }
        for ix in diff.objects.iter().map(|object| object.ix).chain(diff.gone.iter().copied()) {
            let object = workset.object(ix);
            let mut paths: Vec<_> =
                object.lower.iter().map(|lower| workset.facts().path(lower.fact)).collect();
            paths.extend(object.names.iter().map(|(dir, name)| join(&workset.path(*dir), name)));
            units.push(Unit { mount, what: What::Object(ix), paths });
        }
    }
    units
}

/// The needs of each group: directories above its new names, and the contents of directories that go.
fn needs<O: Os>(
    workset: &Workset<O>,
    units: &[Unit],
    group: &[usize],
    part: &Part,
    count: usize,
) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let (mut above, mut inside) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    let mut nearest: HashMap<Ix, Option<usize>> = HashMap::new();
    for (unit, group) in units.iter().zip(group) {
        let dirs = match &unit.what {
            What::Name { dir, .. } => vec![*dir],
            What::Object(ix) => workset.object(*ix).names.iter().map(|(dir, _)| *dir).collect(),
        };
        for dir in dirs {
            let found = *nearest.entry(dir).or_insert_with(|| nearest_changed(workset, part, dir));
            above[*group].extend(found.filter(|needed| needed != group));
        }
        let What::Name { entry: Entry { before: Some(before), .. }, .. } = &unit.what else { continue };
        if workset.object(*before).kind == FileType::Directory && workset.is_gone(*before) {
            let names = workset.object(*before).dir.iter().flat_map(|d| d.names.keys());
            let needed = names.filter_map(|name| part.names.get(&(*before, name.clone())));
            inside[*group].extend(needed.copied().filter(|needed| needed != group));
        }
    }
    (above, inside)
}

/// The group of the nearest name above that changes, the directory's own included.
fn nearest_changed<O: Os>(workset: &Workset<O>, part: &Part, dir: Ix) -> Option<usize> {
    let mut at = dir;
    while let Some((parent, name)) = workset.object(at).names.first() {
        if let Some(group) = part.names.get(&(*parent, name.clone())) {
            return Some(*group);
        }
        at = *parent;
    }
    None
}

/// Groups of which something is at a path, or below it.
fn groups_at(shown: &[(Vec<u8>, usize)], path: &[u8]) -> HashSet<usize> {
    let mut first = path.to_vec();
    if !first.is_empty() {
        first.push(b'/');
    }
    let start = shown.partition_point(|(path, _)| *path < first);
    shown[start..].iter().take_while(|(path, _)| path.starts_with(&first)).map(|(_, group)| *group).collect()
}

/// Everything that can be reached.
fn reached<I: Iterator<Item = usize>>(
    from: HashSet<usize>,
    count: usize,
    next: impl Fn(usize) -> I,
) -> Vec<bool> {
    let mut reached = vec![false; count];
    let mut left: Vec<usize> = from.into_iter().collect();
    while let Some(n) = left.pop() {
        if !std::mem::replace(&mut reached[n], true) {
            left.extend(next(n));
        }
    }
    reached
}
