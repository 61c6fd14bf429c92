//! Finds the transactions that have changed what is to be undone.
//!
//! Owns: the evidence that the history and the images of other transactions give for a path. Guarantees: a
//! transaction that is named for sure has changed that path, or a directory on the way to it, later on. Does
//! not: know outsiders, commits without durability, or what the history has forgotten: it keeps some changes
//! of each commit, an image keeps all.

use crate::failure::{failed, Result};
use crate::report::{Later, Obstacle, Overtaken};
use std::collections::HashSet;
use std::sync::Arc;
use systx_engine::domain::history::Past;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::undo::area::OpenImage;
use systx_engine::undo::{on_the_way, Differs, Image};
use systx_os::Linux;

/// The command of an undo begins so, and goes on with the number.
pub const UNDO_OF: &str = "undo of ";

/// One file system: its image, and what differs there.
type Part<'a> = ((&'a Arc<Domain<Linux>>, &'a OpenImage<Linux>), Vec<Differs>);

/// A later commit, with all that is known of its changes.
struct Candidate {
    past: Past,
    /// All paths that it is known to have changed.
    paths: HashSet<Vec<u8>>,
    /// True if not all of its changes are known.
    in_part: bool,
    undoable: bool,
}

/// Returns the obstacles to undoing a transaction.
pub fn overtaken(id: u64, parts: Vec<Part<'_>>) -> Result<Overtaken> {
    let mut overtaken = Overtaken { id, undone_by: None, obstacles: Vec::new(), later: Vec::new() };
    for ((domain, open), differs) in parts.into_iter().filter(|(_, differs)| !differs.is_empty()) {
        let all = candidates(domain, &open.image)?;
        let by =
            all.iter().find(|one| undone(&one.past) == Some(known_by(&open.image))).map(|one| one.past.tx.0);
        overtaken.undone_by = overtaken.undone_by.or(by);
        let mut named = HashSet::new();
        for Differs { path, what } in differs {
            let path = domain.shown(&path);
            let surely: Vec<_> = all.iter().filter(|one| one.touches(&path)).collect();
            let sure = !surely.is_empty();
            let by = if sure { surely } else { all.iter().filter(|one| one.in_part).collect() };
            let by: Vec<_> = by.into_iter().map(|one| one.past.tx.0).collect();
            named.extend(by.iter().copied());
            overtaken.obstacles.push(Obstacle { path, what, by, sure });
        }
        // One of several file systems has a number on each; that of the first one is known.
        overtaken.later.extend(all.iter().filter(|one| named.contains(&one.past.tx.0)).map(Candidate::told));
    }
    Ok(overtaken)
}

/// The number that an undo names.
fn known_by(image: &Image) -> u64 {
    image.parts.first().map_or(image.tx, |(_, id)| *id).0
}

/// Which transaction a commit has undone.
fn undone(past: &Past) -> Option<u64> {
    let command = std::str::from_utf8(past.command.strip_prefix(UNDO_OF.as_bytes())?);
    let digits = command.ok()?.split(':').next()?;
    digits.parse().ok()
}

/// Everything that committed after the transaction of an image, the youngest first, but for what was undone,
/// and its undo.
fn candidates(domain: &Domain<Linux>, image: &Image) -> Result<Vec<Candidate>> {
    let history = domain.history().map_err(failed("reading what has committed"))?;
    let itself =
        history.iter().rev().find(|past| past.tx == image.tx && past.at >= image.at).map(|past| past.lsn);
    let later = |past: &Past| match itself {
        Some(lsn) => past.lsn > lsn,
        None => past.at >= image.at && past.tx != image.tx,
    };
    let later: Vec<_> = history.into_iter().filter(later).collect();
    let known: HashSet<_> =
        domain.images().map_err(failed("looking for what is kept for undo"))?.into_iter().collect();
    let mut gone: HashSet<TxId> = HashSet::new();
    for past in later.iter().rev().filter(|past| undone(past) != Some(known_by(image))) {
        if gone.contains(&past.tx) {
            continue;
        }
        let Some(undone) = undone(past).map(TxId) else { continue };
        if later.iter().any(|other| other.tx == undone && other.lsn < past.lsn) {
            gone.extend([past.tx, undone]);
        }
    }
    let candidate = |past: Past| {
        let undoable = known.contains(&past.tx);
        let open = (undoable && past.more > 0).then(|| domain.image(past.tx).ok().flatten()).flatten();
        let mut paths: HashSet<_> = past.changes.iter().map(|changed| changed.path.clone()).collect();
        if let Some(open) = &open {
            let names = open.image.before.iter().chain(&open.image.after);
            paths.extend(names.map(|name| domain.shown(&name.path)));
        }
        Candidate { in_part: past.more > 0 && open.is_none(), past, paths, undoable }
    };
    Ok(later.into_iter().rev().filter(|past| !gone.contains(&past.tx)).map(candidate).collect())
}

impl Candidate {
    fn touches(&self, path: &[u8]) -> bool {
        on_the_way(path).any(|path| self.paths.contains(path))
    }

    fn told(&self) -> Later {
        let Past { tx, at, uid, command, .. } = &self.past;
        Later { id: tx.0, at: *at, uid: *uid, command: command.clone(), undoable: self.undoable }
    }
}
