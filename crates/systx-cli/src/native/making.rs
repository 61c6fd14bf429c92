//! Calls that are made for their callers: what they name lies on two sides of the border of a directory that is in use.
//!
//! Owns: which of them are made ([`may_be_made`]), and what is known of the mounts behind them. Guarantees: nothing is
//! looked at, and none is made, but for a process with all of this one's rights, and only within one view, which decides
//! on it as on any other. Does not: make one whose effect on the mounts could not be followed; the kernel refuses it. A
//! caller that is killed while its call is made has made it.

use super::crossing::{itself, split, without_slashes};
use super::{Asker, Natives};
use std::os::fd::OwnedFd;
use systx_os::sandbox::across::{self, Named};
use systx_os::sandbox::bind::Report;
use systx_os::sandbox::calls::{Answer, Change, Name};
use systx_os::Errno;

/// A name of such a call.
struct End {
    /// The view, and the path of the directory in it.
    view: usize,
    path: Vec<u8>,
    dir: Named,
    /// With a slash behind it, if the caller has put some there.
    name: Vec<u8>,
    /// The object, if there is one.
    object: Option<Named>,
    sides: Sides,
}

/// The sides of a border on which a name and its object are.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    /// The mount that the name's directory is on, if that is a bound one.
    dir: Option<u64>,
    /// The mount of which the object is the root.
    root: Option<u64>,
}

/// Returns true if the mounts are as they should be behind a call with such names. `is_lent`: something has left the
/// directory of that mount while it was in use.
///
/// Only what leaves moves: the kernel keeps what it knows of a name for the one that this gets, and in a directory whose
/// names others change without a request it must know nothing. A mount in a directory that is mounted over itself would be
/// out of reach; one under a name that is replaced would be taken away while it is in use; and what has names on both sides
/// would be reached both ways.
fn may_be_made(change: Change, ends: &[Sides], is_lent: impl Fn(u64) -> bool) -> bool {
    match (change, ends) {
        (Change::Moves(flags), [from, to]) => {
            flags & EXCHANGE == 0 && to.root.is_none() && (to.dir.is_none() || from.dir.is_some())
        }
        // The directory is empty, or the view refuses. A process that uses it has only removed things open there.
        (Change::Removes, [it]) => it.root.is_some_and(|mount| !is_lent(mount)),
        _ => false,
    }
}

/// RENAME_EXCHANGE: linux/fs.h.
const EXCHANGE: u32 = 2;

impl Natives<'_> {
    /// Makes a call for its caller; `None`: it is none that is made.
    pub(super) fn make(&mut self, asker: Asker<'_>, change: Change, names: &[Name]) -> Option<Answer> {
        let thread = asker.thread;
        let is_inside = self.ground.as_ref().is_some_and(|ground| ground.is_of(thread));
        if self.is_over || self.is_confined || !is_inside || !across::has_our_rights(thread) {
            return None;
        }
        let ends = names.iter().map(|name| self.end_of(thread, name)).collect::<Option<Vec<_>>>()?;
        let sides: Vec<_> = ends.iter().map(|end| end.sides).collect();
        let is_lent = |mount| self.all.iter().any(|native| native.bound.mount == mount && native.lent);
        let first = ends.first()?;
        if !may_be_made(change, &sides, is_lent) || ends.iter().any(|end| end.view != first.view) {
            return None;
        }
        let Some(object) = &first.object else { return Some(Answer::Fails(Errno::NOENT)) };
        // What is open on one side would be another file to whoever opens it on the other: in locks, attributes, mappings.
        let _lease = if first.sides.root.is_none() { Some(across::alone(object)?) } else { None };
        let copy = self.copy_of(first.view)?;
        let dirs = ends.iter().map(|end| across::enter(copy, &end.path, end.dir.id.1).ok());
        let dirs = dirs.collect::<Option<Vec<_>>>()?;
        let opened: Vec<_> = dirs.iter().zip(&ends).map(|(dir, end)| (dir, &end.name[..])).collect();
        // What was read of a thread that waits still is its own.
        if !(asker.waits)() {
            return None;
        }
        Some(match across::change(change, &opened) {
            Ok(()) => {
                self.note(&ends);
                Answer::Returns
            }
            Err(e) => Answer::Fails(e),
        })
    }

    /// A copy of the mount of a view. It is made at the first need, in the command's namespace.
    fn copy_of(&mut self, view: usize) -> Option<&OwnedFd> {
        if !self.copies.contains_key(&view) {
            let copy = self.ground.as_ref()?.detached(self.views.get(view)?);
            let copy = copy.inspect_err(|e| tracing::debug!(?e, "a view can't be copied")).ok()?;
            self.copies.insert(view, copy);
        }
        self.copies.get(&view)
    }

    fn end_of(&self, thread: u32, name: &Name) -> Option<End> {
        let (path, slash) = match without_slashes(&name.path) {
            path if path.len() < name.path.len() => (path, &b"/"[..]),
            path => (path, &b""[..]),
        };
        let (dir, last) = split(path);
        if matches!(last, b"" | b"." | b"..") {
            return None;
        }
        let dir = across::named(thread, name.from, &itself(dir)).ok()?;
        let object = match across::named(thread, name.from, path) {
            Ok(object) => Some(object),
            Err(Errno::NOENT) => None,
            Err(_) => return None,
        };
        let is_bound = |mount: u64| self.all.iter().any(|native| native.bound.mount == mount);
        let root = object.as_ref().map(|object| object.mount).filter(|mount| *mount != dir.mount);
        // What another mount covers is not what the caller sees.
        if root.is_some_and(|mount| !is_bound(mount)) {
            return None;
        }
        let inside = |(n, seen): (usize, &super::Seen)| {
            let (depth, path) = seen.inside(dir.path.strip_prefix(b"/")?)?;
            seen.is_in_one_place().then_some((depth, n, path))
        };
        let (_, view, path) = self.seen.iter().enumerate().filter_map(inside).max_by_key(|found| found.0)?;
        let sides = Sides { dir: Some(dir.mount).filter(|mount| is_bound(*mount)), root };
        if sides.dir.is_none() && dir.id.0 != self.seen.get(view)?.device {
            return None;
        }
        Some(End { view, path, dir, name: [last, slash].concat(), object, sides })
    }

    /// Notes what a call has done to a mount: it has moved or gone with its directory, or something has left that.
    fn note(&mut self, ends: &[End]) {
        let Some(Sides { dir, root }) = ends.first().map(|end| end.sides) else { return };
        let at = |mount: Option<u64>| self.all.iter().position(|native| Some(native.bound.mount) == mount);
        match (at(root), at(dir), ends.get(1)) {
            (Some(n), _, Some(to)) => self.all[n].name = without_slashes(&to.name).to_vec(),
            (Some(n), _, None) => {
                let native = self.all.remove(n);
                self.work.report(Report::Left(native.node));
            }
            (None, Some(n), _) => self.all[n].lent = true,
            (None, None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_only_where_the_mounts_can_be_followed() {
        let outside = Sides::default();
        let bound = |mount| Sides { dir: Some(mount), ..outside };
        let root = Sides { root: Some(7), ..outside };
        let moves = Change::Moves(0);
        let may = |change, ends: &[Sides]| may_be_made(change, ends, |mount| mount == 8);
        assert!(may(moves, &[bound(7), outside]) && may(moves, &[bound(7), bound(8)]));
        assert!(may(moves, &[root, outside]) && !may(moves, &[outside, bound(7)]));
        assert!(!may(moves, &[root, bound(8)]) && !may(moves, &[outside, root]));
        assert!(!may(Change::Moves(EXCHANGE), &[bound(7), outside]));
        assert!(!may(Change::Links, &[bound(7), outside]));
        assert!(may(Change::Removes, &[root]) && !may(Change::Removes, &[outside]));
        assert!(!may(Change::Removes, &[Sides { root: Some(8), ..outside }]));
        assert!(!may(moves, &[outside]) && !may(Change::Removes, &[]));
    }
}
