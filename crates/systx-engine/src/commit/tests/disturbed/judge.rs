//! The state that a transaction and one act of an outsider must have left, whatever came between.
//!
//! Everything that the outsider did not touch is as the transaction leaves it, all of it, or as it was, all
//! of it. An object that the outsider touched, wherever the transaction took it, is judged by the outsider's
//! claim alone: its object at its name, its bytes in their file, or aside and reported.

use super::acts::{Claim, Done, HIS, HIS_MODE};
use std::collections::{BTreeMap, BTreeSet};
use systx_os::{Handle, Open, Os};
use systx_sim::machine::{Look, Machine, SimFd, Tree};

/// A whole file system at one moment: how everything looks, and which object it is.
#[derive(Clone)]
pub(super) struct Shot {
    pub all: Tree,
    pub handles: BTreeMap<String, Handle>,
    root: Handle,
}

const AREA: &str = ".systx";

fn walk(os: &impl Os<Fd = SimFd>, dir: &SimFd, prefix: &str, handles: &mut BTreeMap<String, Handle>) {
    for entry in os.read_dir(dir).expect("readable") {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        handles.insert(path.clone(), os.handle_at(dir, &entry.name).expect("is there"));
        if let Ok(below) = os.open(dir, &entry.name, Open::Directory) {
            walk(os, &below, &format!("{path}/"), handles);
        }
    }
}

impl Shot {
    pub(super) fn of(machine: &Machine) -> Shot {
        let os = machine.outsider("looker");
        let (mut handles, root) = (BTreeMap::new(), os.root(0));
        walk(&os, &root, "", &mut handles);
        Shot { all: machine.tree(0), handles, root: os.handle(&root).expect("has one") }
    }

    /// Returns what all processes see.
    pub(super) fn public(&self) -> BTreeMap<&str, Look> {
        let all = self.all.iter().map(|(path, look)| (path.as_str(), plain(look)));
        all.filter(|(path, _)| !within(path, AREA)).collect()
    }

    /// Returns what is kept aside, by the names there.
    pub(super) fn aside(&self) -> BTreeMap<&str, Look> {
        let below = |path: &'_ str| path.len() > 13 && path.starts_with(".systx/aside/");
        let all = self.all.iter().filter(|(path, _)| below(path));
        all.map(|(path, look)| (&path[13..], plain(look))).collect()
    }

    fn paths_of(&self, object: &Handle) -> impl Iterator<Item = &str> + use<'_> {
        let object = *object;
        self.handles.iter().filter(move |(_, h)| **h == object).map(|(path, _)| path.as_str())
    }

    fn dir_of(&self, path: &str) -> Option<Handle> {
        match path.rsplit_once('/') {
            Some((above, _)) => self.handles.get(above).copied(),
            None => Some(self.root),
        }
    }
}

fn plain(look: &Look) -> Look {
    // The names themselves show how many names an object has.
    Look { same_as: None, ..look.clone() }
}

fn within(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Everything that is known of a run.
pub(super) struct Seen<'a> {
    /// Before any act, and what the transaction alone leaves.
    pub before: &'a Shot,
    pub after: &'a Shot,
    /// Just before and just after the outsider's act.
    pub around: Option<(&'a Shot, &'a Shot, &'a Done)>,
    pub end: &'a Shot,
    /// The outsider's act came right before a call that changes what was just compared (residue d).
    pub in_the_gap: bool,
    /// A process that finds objects by path went on after the outsider had moved a directory: what belongs in
    /// it is set aside, and what was to change in it stays (docs/limits.md).
    pub out_of_reach: bool,
}

impl Seen<'_> {
    /// Wrong, if nothing of the transaction happened.
    pub(super) fn if_aborted(&self) -> Vec<String> {
        let expected = self.around.map_or(self.before, |(_, then, _)| then).public();
        let mut wrong = differences(&expected, &self.end.public());
        wrong.extend(self.end.aside().keys().map(|name| format!("aside/{name} is there")));
        wrong
    }

    /// Wrong, if all of it happened.
    pub(super) fn if_committed(&self) -> Vec<String> {
        let touched = self.touched();
        let counts = |path: &&str| !touched.iter().any(|top| within(path, top));
        let renamed = self.around.and_then(|(_, _, done)| done.renamed.as_ref());
        let back = |path: &'_ str| match renamed {
            Some((new, old)) if within(path, new) => format!("{old}{}", &path[new.len()..]),
            _ => path.to_owned(),
        };
        let (end, after) = (self.end.public(), self.after.public());
        let end: BTreeMap<String, Look> = end.iter().map(|(path, look)| (back(path), look.clone())).collect();
        let (before, aside) = (self.before.public(), self.end.aside());
        let moved = renamed.filter(|_| self.out_of_reach).map(|(_, old)| old.as_str());
        let excused = |path: &str| {
            moved.is_some_and(|old| within(path, old))
                && match (after.get(path), end.get(path)) {
                    (Some(ours), None) => aside.values().any(|kept| kept == ours),
                    (_, Some(found)) => before.get(path) == Some(found),
                    (None, None) => false,
                }
        };
        let counts = |path: &&str| counts(path) && !excused(path);
        let end =
            end.iter().map(|(path, look)| (path.as_str(), look.clone())).filter(|(p, _)| counts(p)).collect();
        let after =
            after.iter().map(|(path, look)| (*path, look.clone())).filter(|(p, _)| counts(p)).collect();
        let mut wrong = differences(&after, &end);
        wrong.extend(self.claim());
        wrong
    }

    /// Returns the paths that the outsider touched, and all at which the objects there stand before or after
    /// the transaction.
    fn touched(&self) -> BTreeSet<String> {
        let Some((was, then, done)) = self.around else { return BTreeSet::new() };
        let mut touched: BTreeSet<String> = done.touched.iter().cloned().collect();
        let moves = |path: &String| {
            let of = |shot: &Shot| shot.handles.get(path).copied();
            of(self.before).is_some_and(|h| self.after.handles.get(path) != Some(&h))
        };
        if let Some((new, old)) = &done.renamed {
            // Only the directory's own name is the outsider's; what is below is found below the other one.
            if !moves(old) {
                touched.remove(old);
                touched.remove(new);
                return touched;
            }
        }
        loop {
            let mut more = BTreeSet::new();
            for shot in [self.before, was, then, self.after] {
                let objects =
                    shot.handles.iter().filter(|(path, _)| touched.iter().any(|top| within(path, top)));
                for (_, object) in objects {
                    for other in [self.before, was, then, self.after, self.end] {
                        more.extend(other.paths_of(object).filter(|p| !within(p, AREA)).map(str::to_owned));
                    }
                }
            }
            let known = touched.len();
            touched.extend(more);
            if touched.len() == known {
                return touched;
            }
        }
    }

    /// Returns what is wrong with the outsider's claim.
    pub(super) fn claim(&self) -> Option<String> {
        let (_, _, done) = self.around?;
        let end = self.end;
        let aside = |path: &str| path.starts_with(".systx/aside/");
        let left = |path: &str| within(path, AREA) && !aside(path);
        let has_his = |path: &str| end.all[path].content.windows(HIS.len()).any(|w| w == HIS);
        match &done.claim {
            Claim::There { object, dir, name, bytes } => {
                let paths: Vec<&str> = end.paths_of(object).collect();
                if paths.iter().any(|p| *bytes && !has_his(p)) {
                    return Some(format!("his {paths:?} has not his bytes"));
                }
                let at_home = |p: &&str| {
                    p.rsplit('/').next().map(str::as_bytes) == Some(name) && end.dir_of(p) == Some(*dir)
                };
                let found = paths.iter().any(|p| at_home(p) || aside(p));
                let where_ = String::from_utf8_lossy(name);
                (!found).then(|| format!("his {where_} is neither there nor aside, but at {paths:?}"))
            }
            Claim::Bytes(object) => {
                let paths: Vec<&str> = end.paths_of(object).collect();
                if paths.is_empty() {
                    // The outsider changed what the transaction removes: before it.
                    let removed = self.after.paths_of(object).all(|p| within(p, AREA));
                    return (!removed).then(|| "the file that he wrote to is gone".to_owned());
                }
                let lost = !paths.iter().any(|p| has_his(p)) && !self.in_the_gap;
                let only_left = paths.iter().all(|p| left(p));
                (lost && !only_left).then(|| format!("his bytes are not in {paths:?}"))
            }
            Claim::Mode(object) => {
                let paths = end.paths_of(object).filter(|p| !left(p));
                let other: Vec<_> = paths.filter(|p| end.all[*p].mode & 0o777 != HIS_MODE).collect();
                (!other.is_empty() && !self.in_the_gap).then(|| format!("his mode is not that of {other:?}"))
            }
            Claim::Gone { object, dir, name } => {
                let back = end.paths_of(object).find(|p| {
                    p.rsplit('/').next().map(str::as_bytes) == Some(name) && end.dir_of(p) == Some(*dir)
                });
                back.map(|path| format!("{path} was removed by him, and is there"))
            }
            Claim::Nothing => None,
        }
    }
}

/// Differences between two trees, for messages.
pub(super) fn differences(expected: &BTreeMap<&str, Look>, found: &BTreeMap<&str, Look>) -> Vec<String> {
    let paths: BTreeSet<&&str> = expected.keys().chain(found.keys()).collect();
    let short = |look: Option<&Look>| {
        look.map(|l| {
            let text = String::from_utf8_lossy(&l.content[..l.content.len().min(8)]).into_owned();
            (l.kind, l.mode, l.owner, l.size, text, l.xattrs.len())
        })
    };
    let differ = paths.into_iter().filter(|path| expected.get(**path) != found.get(**path));
    differ.map(|p| format!("{p}: is {:?}, not {:?}", short(found.get(*p)), short(expected.get(*p)))).collect()
}
