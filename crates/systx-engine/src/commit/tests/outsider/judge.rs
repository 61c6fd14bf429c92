//! Checks a tree after a commit, and after an outsider that acted once during it.
//!
//! A path that the outsider did not change is as the transaction leaves it, or its conflict copy is reported.
//! An object that the outsider changed is found as the outsider left it: at its name, where the transaction
//! moved it, or in `aside/`. Hard-link groups and times are not compared here.

use super::super::world::Kind;
use super::acts::{Act, HIS};
use std::collections::{BTreeMap, BTreeSet};
use systx_sim::machine::{Look, Tree};

/// Observations of a run.
pub(super) struct Seen<'a> {
    pub(super) act: Act,
    pub(super) target: &'static str,
    /// The act succeeded.
    pub(super) done: bool,
    pub(super) kind: Kind,
    /// The tree that the transaction alone leaves.
    pub(super) after: &'a Tree,
    /// Just before and just after the outsider's act.
    pub(super) around: (&'a Tree, &'a Tree),
    /// In the end.
    pub(super) end: &'a Tree,
    /// Contents of `aside/`, below the names there.
    pub(super) aside: &'a Tree,
    /// Paths of reports, and names in `aside/` that were reported.
    pub(super) reported: (BTreeSet<String>, BTreeSet<String>),
    /// The act came between the comparison and the change of a step (residue d).
    pub(super) in_the_gap: bool,
    /// Who goes on finds objects by path, and he has moved the directory: what is to be done in it is told
    /// instead (docs/limits.md).
    pub(super) out_of_reach: bool,
}

/// Where the object in a slot of the transaction belongs.
pub(super) fn path_of_slot(name: &str) -> Option<&'static str> {
    Some(match name.split('.').nth(1)? {
        "0" => "w/new",
        "1" => "w/newdir",
        "2" => "w/replaced",
        "4" => "w/dst/moved",
        "5" => "w/dirmovedto",
        "6" => "w/link",
        "9" => "w/removed",
        "10" => "w/tree",
        _ => return None,
    })
}

/// Where the transaction takes what stood at a path.
fn moved(path: &str, kind: Kind) -> Option<String> {
    if kind == Kind::Small {
        return None;
    }
    if path == "w/moved" {
        return Some("w/dst/moved".into());
    }
    path.strip_prefix("w/dirmoved")
        .filter(|r| r.is_empty() || r.starts_with('/'))
        .map(|r| format!("w/dirmovedto{r}"))
}

/// Where the transaction took what it leaves at a path.
fn source(path: &str, kind: Kind) -> Option<String> {
    match path {
        "w/link" => Some("w/linked".into()),
        "w/dst/moved" if kind == Kind::Everything => Some("w/moved".into()),
        _ if kind == Kind::Everything => path
            .strip_prefix("w/dirmovedto")
            .filter(|r| r.is_empty() || r.starts_with('/'))
            .map(|r| format!("w/dirmoved{r}")),
        _ => None,
    }
}

/// The outsider may have renamed `w`: that is undone, so that paths can be compared.
pub(super) fn at_old_names(tree: &Tree) -> Tree {
    if tree.contains_key("w") {
        return tree.clone();
    }
    let back = |path: &String| match path.strip_prefix('v') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("w{rest}"),
        _ => path.clone(),
    };
    tree.iter().map(|(path, look)| (back(path), look.clone())).collect()
}

impl Seen<'_> {
    /// Everything that is wrong if the transaction is committed.
    pub(super) fn wrong_if_committed(&self) -> Vec<String> {
        let (before, then) = self.around;
        let paths: BTreeSet<&String> =
            [before, then, self.after, self.end].iter().flat_map(|t| t.keys()).collect();
        let mut wrong: Vec<String> = paths.into_iter().filter_map(|path| self.wrong_at(path)).collect();
        for name in self.aside.keys().filter(|name| !name.contains('/')) {
            if !self.reported.1.contains(name) {
                wrong.push(format!("aside/{name}: not reported"));
            }
        }
        wrong
    }

    fn wrong_at(&self, path: &str) -> Option<String> {
        let (before, then) = (self.around.0.get(path), self.around.1.get(path));
        let (after, end) = (self.after.get(path), self.end.get(path));
        // A directory of the outsider's looks like any other one.
        let replaced = self.done && matches!(self.act, Act::ReplaceByDir | Act::RenameDirOver);
        if same(before, then) && !(replaced && path.strip_prefix("w/") == Some(self.target)) {
            if same(end, after) || self.is_reported(path) || self.went_along(path, after) {
                return None;
            }
            // Two names of one object, or a name that it has got. An object that the outsider took away
            // before is not there to be moved.
            if let Some(source) = source(path, self.kind) {
                let (before, then) = (self.around.0.get(&source), self.around.1.get(&source));
                match (before, then, after, end) {
                    (None, Some(t), _, Some(e)) if plain(t) == plain(e) => return None,
                    (Some(b), Some(t), Some(a), Some(e)) if merged(b, t, a, e) => return None,
                    (b, t, _, None) if replaced || !same(b, t) => return None,
                    _ => {}
                }
            }
            // Written while the object stood in its slot, at neither name.
            let moved_to = moved(&format!("w/{}", self.target), self.kind);
            let on_the_way = self.act == Act::WriteOpenSinceBefore && moved_to.as_deref() == Some(path);
            if on_the_way && end.is_some_and(|e| e.content.ends_with(HIS)) {
                return None;
            }
            return Some(format!("{path}: not his, and {}", told(after, end)));
        }
        let Some(theirs) = then else {
            // An object that the outsider took away does not come back.
            return end.map(|_| format!("{path}: removed by him, and {}", told(None, end)));
        };
        let places = [Some(path.to_owned()), moved(path, self.kind)];
        for place in places.iter().flatten() {
            let (after, end) = (self.after.get(place), self.end.get(place));
            let Some(end) = end else { continue };
            if merged(before.unwrap_or(theirs), theirs, after.unwrap_or(theirs), end) {
                return None;
            }
        }
        // Wherever the outsider takes an object, its patch and its attributes follow.
        let object = format!("w/{}", self.target);
        if let (true, Some(b), Some(a), Some(e)) =
            (path.starts_with("o/"), self.around.0.get(&object), self.after.get(&object), end)
        {
            if merged(b, theirs, a, e) {
                return None;
            }
        }
        if self.kept_aside(theirs) || self.gone_with_its_object(path) {
            return None;
        }
        if self.in_the_gap && self.act.in_place() && same(end, after) {
            return None;
        }
        // In the moment before ours is appended: both are whole.
        if let (Some(before), Some(after), Some(end), Act::WriteOpenSinceBefore) =
            (before, after, end, self.act)
        {
            if appended_behind(before, theirs, after, end) {
                return None;
            }
        }
        Some(format!("{path}: his {}, and {}", told(Some(theirs), Some(theirs)), told(after, end)))
    }

    fn is_reported(&self, path: &str) -> bool {
        let mut names = vec![path.to_owned()];
        names.extend(source(path, self.kind));
        names.extend(moved(path, self.kind));
        if self.out_of_reach {
            // The other name of what is changed in there.
            names.extend(path.strip_prefix("o/old/").map(|leaf| format!("w/{leaf}")));
        }
        let covers = |told: &String, name: &String| {
            name.strip_prefix(told.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        };
        names.iter().any(|name| self.reported.0.iter().any(|told| covers(told, name)))
    }

    /// Returns true if what the transaction puts into a directory follows it, wherever the outsider has taken
    /// it.
    fn went_along(&self, path: &str, after: Option<&Look>) -> bool {
        let object = format!("w/{}/", self.target);
        ["o/away/", "o/mine/"].iter().any(|to| {
            let missed = path.strip_prefix(&object).map(|rest| (self.end.get(&format!("{to}{rest}")), after));
            let found = path
                .strip_prefix(to)
                .map(|rest| (self.end.get(path), self.after.get(&format!("{object}{rest}"))));
            missed.or(found).is_some_and(|(end, after)| same(end, after))
        })
    }

    fn kept_aside(&self, theirs: &Look) -> bool {
        self.aside.iter().any(|(path, look)| {
            let name = path.split('/').next().unwrap_or_default();
            plain(look) == plain(theirs) && self.reported.1.contains(name)
        })
    }

    /// Returns true if the outsider set an extended attribute of a file that the transaction removes or
    /// replaces, or an attribute of a directory: that is ordered before. Bytes, modes and owners of files are
    /// never lost so: all of these were read.
    fn gone_with_its_object(&self, path: &str) -> bool {
        let gone = ["w/removed", "w/replaced", "w/tree"];
        let below = |of: &str| path.strip_prefix(of).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let of_a_directory = ["w/tree", "w/tree/sub"].contains(&path);
        self.act.in_place()
            && (self.act == Act::SetXattr || of_a_directory)
            && (self.kind == Kind::Everything || path == "w/removed")
            && gone.into_iter().any(below)
            && same(self.end.get(path), self.after.get(path))
    }
}

fn plain(look: &Look) -> Look {
    Look { same_as: None, ..look.clone() }
}

fn same(a: Option<&Look>, b: Option<&Look>) -> bool {
    a.map(plain) == b.map(plain)
}

fn told(after: Option<&Look>, end: Option<&Look>) -> String {
    let short = |look: Option<&Look>| {
        look.map(|l| {
            let text = String::from_utf8_lossy(&l.content[..l.content.len().min(12)]).into_owned();
            (l.kind, l.mode, l.owner, l.size, text)
        })
    };
    format!("is {:?} instead of {:?}", short(end), short(after))
}

/// Returns true if each property is the outsider's where the outsider changed it, and else the outsider's or
/// the transaction's.
fn merged(before: &Look, theirs: &Look, after: &Look, end: &Look) -> bool {
    fn part<T: PartialEq>(before: T, theirs: T, after: T, end: T) -> bool {
        end == theirs || (before == theirs && end == after)
    }
    let xattr = |look: &Look| look.xattrs.get(&b"user.k"[..]).cloned();
    let with_data = before.kind == theirs.kind && theirs.kind == systx_os::FileType::File;
    let bytes = if with_data {
        part(before.size, theirs.size, after.size, end.size)
            && (0..end.content.len()).all(|n| {
                let at = |look: &Look| look.content.get(n).copied().unwrap_or(0);
                part(at(before), at(theirs), at(after), at(end))
            })
    } else {
        end.content == theirs.content
    };
    end.kind == theirs.kind
        && bytes
        // chown and a patch drop setuid, in whatever order they come.
        && part(before.mode & 0o777, theirs.mode & 0o777, after.mode & 0o777, end.mode & 0o777)
        && part(before.owner, theirs.owner, after.owner, end.owner)
        && part(xattr(before), xattr(theirs), xattr(after), xattr(end))
}

/// Returns true if what the transaction appends to a file stands behind what the outsider has written there,
/// and that is whole. A redo after a power loss patches the sectors before, which are as they were.
fn appended_behind(before: &Look, theirs: &Look, after: &Look, end: &Look) -> bool {
    let Some(tail) = after.content.strip_prefix(&before.content[..]) else { return false };
    let (len, his) = (theirs.content.len(), theirs.content.len().saturating_sub(HIS.len()));
    let either = |n: usize| [theirs, after].iter().any(|look| look.content.get(n) == end.content.get(n));
    !tail.is_empty()
        && end.content.len() == len + tail.len()
        && end.content.ends_with(tail)
        && end.content[his..len] == theirs.content[his..]
        && (0..his).all(either)
        && (end.mode, end.owner, &end.xattrs) == (theirs.mode, theirs.owner, &theirs.xattrs)
}

/// Differences between two trees, for messages.
pub(super) fn differences(expected: &Tree, found: &Tree) -> BTreeMap<String, String> {
    let paths: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differs = |path: &&String| !same(expected.get(*path), found.get(*path));
    paths.into_iter().filter(differs).map(|p| (p.clone(), told(expected.get(p), found.get(p)))).collect()
}
