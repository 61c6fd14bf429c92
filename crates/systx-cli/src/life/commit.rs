//! The commit of a transaction in which no program is left.
//!
//! Owns: what becomes of a transaction that can't commit, and the order of its image for `systx undo` and its
//! commit. Guarantees: an image is there before the commit point of its transaction, and is dropped with a
//! transaction that did not commit. Does not: know why a commit is wanted.

use crate::args::Undoable;
use crate::failure::{verb_failed, Failure};
use crate::labels;
use crate::report::Ending;
use systx_engine::outcome::{CommitError, Committed, Conflict, VerbError};
use systx_engine::transaction::Transaction;
use systx_engine::undo::area::IMAGES_MAX;
use systx_engine::undo::Kept;
use systx_os::no_room::{self, Stage};
use systx_os::{Errno, Linux};

const KEEPING: &str = "keeping what it could be undone with";
const TOO_LARGE: &str = "that is more than systx keeps of one transaction, or a file can hold. \
    It can be committed without --undoable";

/// The fate of a transaction that can't commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfItFails {
    /// It is gone.
    Goes,
    /// It stays, to be looked at.
    Stays,
}

/// A transaction that could not commit and stays.
pub type Stayed = Option<Box<Transaction<Linux>>>;

/// Commits a transaction, with an image for `systx undo` if that is asked for. It comes back if it has failed
/// before the commit point and is to stay.
pub fn commit(
    fails: IfItFails,
    mut tx: Transaction<Linux>,
    undoable: Undoable,
    ending: impl FnOnce(Committed) -> Ending,
) -> (Ending, Stayed) {
    let image = match undoable.undoable.then(|| tx.keep_image()).transpose() {
        Ok(image) => image,
        Err(VerbError::Doomed(conflict)) => {
            let stayed = give_up(tx, fails, Some(&conflict));
            return (Ending::Conflict(*conflict), stayed);
        }
        Err(VerbError::Os(Errno::FBIG)) => {
            let why = Failure::new(KEEPING, TOO_LARGE);
            return (Ending::Failed(why), give_up(tx, fails, None));
        }
        Err(e) => {
            let why = verb_failed(KEEPING, e);
            return (Ending::Failed(why), give_up(tx, fails, None));
        }
    };
    let committed = match fails {
        IfItFails::Stays => tx.commit_or_stay(),
        IfItFails::Goes => tx.commit().map_err(|error| (error, None)),
    };
    no_room::stage(match &committed {
        Ok(_) => Stage::Committed,
        Err((CommitError::InDoubt { .. }, _)) => Stage::Commit,
        Err(_) => Stage::Before,
    });
    match committed {
        Ok(mut done) => {
            if let Some(Err(e)) = image.map(|image| image.committed(IMAGES_MAX)) {
                done.warning.get_or_insert(format!("what it could be undone with is not all in place: {e}"));
            }
            if labels::decide() {
                done.warning.get_or_insert_with(|| labels::NEW_LABELS.into());
            }
            (ending(done), None)
        }
        Err((e, stayed)) => {
            // Recovery finds out the fate of a commit in doubt, and needs the image for it.
            if let Some(image) = image.filter(|_| !matches!(e, CommitError::InDoubt { .. })) {
                Kept::aborted(image);
            }
            (Ending::from(e), stayed)
        }
    }
}

/// Ends a transaction that can't commit, because of `conflict` if there is one.
pub fn give_up(mut tx: Transaction<Linux>, fails: IfItFails, conflict: Option<&Conflict>) -> Stayed {
    match (fails, conflict) {
        (IfItFails::Stays, conflict) => {
            tx.give_up(conflict);
            return Some(Box::new(tx));
        }
        (IfItFails::Goes, Some(conflict)) => tx.lose(conflict),
        (IfItFails::Goes, None) => tx.abort(),
    }
    None
}
