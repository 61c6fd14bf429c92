//! Calls that are made for their callers: what they name lies on two sides of the border of a directory that is in use.
//!
//! Owns: which of them are made ([`may_be_made`]), and what is known of the mounts behind them. Guarantees: one is made
//! only where the kernel would refuse it for the mount alone, only for a process with all of this one's rights, and only
//! within one view. The view decides on it as on any other. Does not: make one whose effect on the mounts could not be
//! followed; the kernel refuses it.

use super::crossing::{itself, split};
use super::{Asker, Natives};
use std::os::fd::OwnedFd;
use systx_os::sandbox::across::{self, Place};
use systx_os::sandbox::bind::{Ground, Report};
use systx_os::sandbox::calls::{Answer, Change, Name};
use systx_os::Errno;

/// A name of such a call.
struct End {
    /// The view, and the path of the directory in it.
    view: usize,
    path: Vec<u8>,
    dir: Place,
    /// With slashes behind it.
    name: Vec<u8>,
    is_there: bool,
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

/// Returns true if the mounts are as they should be behind a call with such names.
///
/// A mount in a directory that is mounted over itself would be out of reach; one under a name that is replaced would be
/// taken away while it is in use; and what has names on both sides would be reached both ways.
fn may_be_made(change: Change, ends: &[Sides]) -> bool {
    match (change, ends) {
        (Change::Moves(flags), [from, to]) => {
            flags & EXCHANGE == 0 && to.root.is_none() && (from.root.is_none() || to.dir.is_none())
        }
        // It is empty: whoever uses it has nothing in it but what lies nowhere.
        (Change::Removes, [it]) => it.root.is_some(),
        _ => false,
    }
}

/// RENAME_EXCHANGE: linux/fs.h.
const EXCHANGE: u32 = 2;

impl Natives<'_> {
    /// Makes a call for its caller; `None`: it is none that is made.
    pub(super) fn make(&mut self, asker: Asker<'_>, change: Change, names: &[Name]) -> Option<Answer> {
        let thread = asker.thread;
        let is_inside = |ground: &Ground| ground.is_of(thread);
        if self.is_over || self.is_confined || !self.ground.as_ref().is_some_and(is_inside) {
            return None;
        }
        let ends = names.iter().map(|name| self.end_of(thread, name)).collect::<Option<Vec<_>>>()?;
        let sides: Vec<_> = ends.iter().map(|end| end.sides).collect();
        let view = ends.first()?.view;
        if !may_be_made(change, &sides) || ends.iter().any(|end| end.view != view) {
            return None;
        }
        if !ends.first()?.is_there {
            return Some(Answer::Fails(Errno::NOENT));
        }
        // What is open on one side would be another file to whoever opens it on the other: in locks, attributes, mappings.
        let moves_other = matches!(change, Change::Moves(_)) && sides.first()?.root.is_none();
        let first = names.first()?;
        let path = &first.path[..first.path.len() - slashes(&first.path)];
        let _lease = if moves_other { Some(across::alone(thread, first.from, path)?) } else { None };
        let copy = self.copy_of(view)?;
        let enter =
            |end: &'_ End| Some((across::enter(copy, &end.path, end.dir.ino).ok()?, end.name.clone()));
        let opened = ends.iter().map(enter).collect::<Option<Vec<_>>>()?;
        let opened: Vec<_> = opened.iter().map(|(dir, name)| (dir, name.as_slice())).collect();
        // In this order: what was read of a thread that waits still is its own.
        if !across::has_our_rights(thread) || !(asker.waits)() {
            return None;
        }
        let made = match (change, &opened[..], &sides[..]) {
            (Change::Moves(flags), [from, to], [Sides { dir: None, .. }, Sides { dir: Some(_), .. }]) => {
                across::move_into(flags, *from, *to)
            }
            _ => across::change(change, &opened),
        };
        Some(match made {
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
        let (dir, last) = split(&name.path);
        if matches!(last, b"" | b"." | b"..") {
            return None;
        }
        let dir = across::place_of(thread, name.from, &itself(dir))?;
        let found = across::place_of(thread, name.from, &name.path[..name.path.len() - slashes(&name.path)]);
        let is_bound = |mount: &u64| self.all.iter().any(|native| native.bound.mount == *mount);
        let root = found.as_ref().map(|found| found.mount).filter(|mount| *mount != dir.mount);
        let sides = Sides { dir: Some(dir.mount).filter(is_bound), root: root.filter(is_bound) };
        let inside = |(n, seen): (usize, &super::Seen)| {
            let (depth, path) = seen.inside(dir.path.strip_prefix(b"/")?)?;
            seen.is_in_one_place().then_some((depth, n, path))
        };
        let (_, view, path) = self.seen.iter().enumerate().filter_map(inside).max_by_key(|found| found.0)?;
        let name = [last, &b"/"[..slashes(&name.path).min(1)]].concat();
        Some(End { view, path, dir, name, is_there: found.is_some(), sides })
    }

    /// The mount of a directory has moved with it, or gone with it.
    fn note(&mut self, ends: &[End]) {
        let Some(mount) = ends.first().and_then(|end| end.sides.root) else { return };
        match ends.get(1) {
            Some(to) => {
                let name = &to.name[..to.name.len() - slashes(&to.name)];
                let moved = self.all.iter_mut().find(|native| native.bound.mount == mount);
                moved.into_iter().for_each(|native| native.name = name.to_vec());
            }
            None => {
                let gone = self.all.iter().position(|native| native.bound.mount == mount);
                if let Some(native) = gone.map(|n| self.all.remove(n)) {
                    self.work.report(Report::Left(native.node));
                }
            }
        }
    }
}

/// How many slashes a path ends in.
fn slashes(path: &[u8]) -> usize {
    path.iter().rev().take_while(|byte| **byte == b'/').count()
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
        assert!(may_be_made(moves, &[bound(7), outside]) && may_be_made(moves, &[outside, bound(7)]));
        assert!(may_be_made(moves, &[bound(7), bound(8)]) && may_be_made(moves, &[root, outside]));
        assert!(!may_be_made(moves, &[root, bound(8)]) && !may_be_made(moves, &[outside, root]));
        assert!(!may_be_made(Change::Moves(EXCHANGE), &[bound(7), outside]));
        assert!(!may_be_made(Change::Links, &[bound(7), outside]));
        assert!(may_be_made(Change::Removes, &[root]) && !may_be_made(Change::Removes, &[outside]));
        assert!(!may_be_made(moves, &[outside]) && !may_be_made(Change::Removes, &[]));
    }
}
