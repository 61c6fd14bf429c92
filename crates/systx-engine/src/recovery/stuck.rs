//! Records that can't be published to their end after a reboot, and those that build on them.
//!
//! Guarantees: one such record keeps back its own objects and no others; nothing is published before what it
//! builds on. A record that is kept back has an active entry, as one of a dead owner has: a transaction that
//! meets its objects tries it again, or conflicts. Does not: know read sets. A transaction that read
//! something of such a record is a commit like any other.

use crate::id::{Lsn, TxId};
use crate::log::BodyAt;
use crate::outcome::Recovered;
use crate::publish::Pending;
use crate::record::{Act, Body, Gone, Step};
use crate::shown::Shown;
use std::collections::HashSet;
use systx_os::Handle;

/// A committed record that waits.
pub(crate) struct Stuck {
    pub lsn: Lsn,
    pub id: TxId,
    pub body: Body,
    /// Where the log has it.
    pub at: BodyAt,
    /// Where it stopped, and why.
    pub pending: Pending,
}

/// Reports a record that can't be published now.
pub(super) fn tell_stuck(id: TxId, Pending { path, error }: &Pending, recovered: &mut Recovered) {
    recovered.unfinished.push(format!(
        "transaction {id} is committed, but its publication stops at {}: {error}; what it changes conflicts until it is done: remove the cause and run `systx recover`",
        Shown(path)
    ));
}

/// Reports a record that waits for another one.
pub(super) fn tell_waiting(id: TxId, first: TxId, recovered: &mut Recovered) {
    recovered.unfinished.push(format!(
        "transaction {id} is committed and builds on transaction {first}, whose publication waits: it waits, too"
    ));
}

/// Returns true if `later` changes something that `earlier` changes, or something in there.
pub(super) fn builds_on(earlier: &Body, later: &Body) -> bool {
    let mut objects: HashSet<Handle> = HashSet::new();
    let mut names: HashSet<(Handle, &[u8])> = HashSet::new();
    let mut paths: HashSet<Vec<u8>> = HashSet::new();
    for step in &earlier.steps {
        objects.extend(objects_of(step));
        names.insert((step.at.dir, &step.at.name));
        // Paths, too: a redo may make an object again, which then has another handle than later records name.
        paths.insert(crate::paths::join(&step.at.path, &step.at.name));
    }
    later.steps.iter().any(|step| {
        let path = crate::paths::join(&step.at.path, &step.at.name);
        let mut above = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(n, _)| &path[..n]);
        names.contains(&(step.at.dir, &step.at.name))
            || objects.contains(&step.at.dir)
            || objects_of(step).iter().any(|object| objects.contains(object))
            || paths.contains(&path)
            // Below a directory that is not in place yet, or is about to move, a step would not find its name.
            || above.any(|above| paths.contains(above))
    })
}

fn objects_of(step: &Step) -> Vec<Handle> {
    match &step.act {
        Act::Place { small } => small.iter().map(|small| small.handle).collect(),
        Act::Link { object, .. } | Act::Attr { object, .. } => vec![*object],
        Act::Replace { ours, before, tree, .. } => {
            [ours, before].into_iter().chain(Gone::handles(tree)).copied().collect()
        }
        Act::Remove { before, tree, .. } => {
            std::iter::once(before).chain(Gone::handles(tree)).copied().collect()
        }
        Act::Take { before, .. } => vec![*before],
        Act::Patch(patch) => vec![patch.file],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{At, BODY_VERSION};

    fn handle(n: u8) -> Handle {
        Handle::new(1, &[n]).expect("short")
    }

    fn body(dir: u8, path: &str, name: &str, act: Act) -> Body {
        let at = At { dir: handle(dir), path: path.into(), name: name.into() };
        Body {
            version: BODY_VERSION,
            id: TxId(1),
            nonce: 0,
            uid: 0,
            table: [0; 16],
            coordinator: None,
            participants: Vec::new(),
            companions: Vec::new(),
            command: String::new(),
            shared_slots: None,
            linked: false,
            steps: vec![Step { slot: 0, at, act }],
            times: Vec::new(),
        }
    }

    fn place() -> Act {
        Act::Place { small: None }
    }

    #[test]
    fn only_what_touches_the_same_names_objects_or_something_below_waits() {
        let made = body(1, "w", "dir", place());
        assert!(
            builds_on(&made, &body(1, "w", "dir", Act::Take { before: handle(9), directory: true })),
            "the same name"
        );
        assert!(
            builds_on(&made, &body(7, "w/dir/sub", "x", place())),
            "below a directory that isn't there yet"
        );
        assert!(!builds_on(&made, &body(1, "w", "dir2", place())), "another name of the directory");
        assert!(!builds_on(&body(7, "w/dir", "x", place()), &body(1, "w", "other", place())));
        let taken = body(1, "w", "a", Act::Take { before: handle(5), directory: false });
        let patch = Act::Attr { object: handle(5), changes: Vec::new(), power_over: None };
        assert!(builds_on(&taken, &body(2, "v", "b", patch)), "the same object by another name");
        assert!(builds_on(&taken, &body(5, "v/b", "c", place())), "in a directory that moves");
    }
}
