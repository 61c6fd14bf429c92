//! A part of an open transaction: the paths that its user names, and the fate of the rest.
//!
//! Owns: the meaning of a path on the command line, the texts for a part that can't be committed, and the
//! commit of a part. Guarantees: a path at which nothing changes is an error that leaves the transaction open
//! as it is; the rest is given up only together with the commit, and reported name by name. Does not: decide
//! what goes together ([`systx_engine::changes::part`]).

use crate::args::{Paths, Undoable};
use crate::diff;
use crate::failure::{failed, verb_failed, Failure, Result};
use crate::life::{self, IfItFails, Stayed};
use crate::report::Ending;
use crate::words::shown;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use systx_engine::changes::part::{Choice, Part, Unfit};
use systx_engine::changes::Change;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::Transaction;
use systx_os::Linux;

/// Bound of the names that one command may give, in bytes: a session daemon hears no more at a time.
const NAMES_BYTES_MAX: usize = 512 << 10;

/// The paths that a command names, from `/`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Named {
    /// Only what is here; none: everything.
    only: Vec<Place>,
    /// Nothing of what is here.
    exclude: Vec<Place>,
}

/// A path, and the same with the symbolic links of the committed tree followed, where that is another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    path: Vec<u8>,
    followed: Option<Vec<u8>>,
}

impl Named {
    /// Resolves the paths from the working directory; `None`: everything is meant.
    pub fn of(only: &[PathBuf], exclude: &[PathBuf]) -> Result<Option<Named>> {
        if only.is_empty() && exclude.is_empty() {
            return Ok(None);
        }
        let here = std::env::current_dir().map_err(failed("the working directory"))?;
        let places = |paths: &[PathBuf]| paths.iter().map(|path| Place::of(&here, path)).collect::<Vec<_>>();
        let named = Named { only: places(only), exclude: places(exclude) };
        let bytes = |place: &Place| place.path.len() + place.followed.as_ref().map_or(0, Vec::len);
        if named.only.iter().chain(&named.exclude).map(bytes).sum::<usize>() > NAMES_BYTES_MAX {
            Err("too many paths are named: name directories".into())
        } else {
            Ok(Some(named))
        }
    }

    /// The paths of a command.
    pub fn of_args(paths: &Paths) -> Result<Option<Named>> {
        Named::of(&paths.only, &paths.exclude)
    }

    fn choice(&self) -> Choice {
        let paths = |places: &[Place]| places.iter().map(|place| place.path.clone()).collect();
        Choice { only: paths(&self.only), exclude: paths(&self.exclude) }
    }

    /// Takes the other way to say a path; whether there is one.
    fn follow(&mut self, path: &[u8]) -> bool {
        let mut followed = false;
        for place in self.only.iter_mut().chain(&mut self.exclude).filter(|place| place.path == path) {
            if let Some(other) = place.followed.take() {
                (place.path, followed) = (other, true);
            }
        }
        followed
    }
}

impl Place {
    fn of(here: &Path, path: &Path) -> Place {
        let path = plain(&here.join(path));
        // The last name is meant itself, also if it is a symbolic link.
        let followed = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => std::fs::canonicalize(dir).ok().map(|dir| dir.join(name)),
            _ => None,
        };
        Place { followed: followed.filter(|followed| *followed != path).map(bytes), path: bytes(path) }
    }
}

/// Without `.`, `..` and a `/` at the end, also of the root.
fn bytes(path: PathBuf) -> Vec<u8> {
    if path.as_os_str() == OsStr::new("/") {
        Vec::new()
    } else {
        path.into_os_string().into_vec()
    }
}

fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The chosen part of a transaction.
pub struct Chosen {
    /// All that it would change.
    changes: Vec<Change>,
    /// `None`: everything.
    part: Option<Part>,
}

impl Chosen {
    /// Changes that are meant.
    pub fn changes(self) -> Vec<Change> {
        let Chosen { mut changes, part } = self;
        changes.retain(|change| part.as_ref().is_none_or(|part| part.has(change)));
        changes
    }
}

/// Finds what is named. An inner error says, as a fragment, why there is no such part.
pub fn choose(tx: &mut Transaction<Linux>, named: Option<Named>) -> Verb<Result<Chosen>> {
    let changes = tx.changes()?;
    let Some(mut named) = named else { return Ok(Ok(Chosen { changes, part: None })) };
    loop {
        match tx.choose(&changes, &named.choice())? {
            Ok(part) => return Ok(Ok(Chosen { changes, part: Some(part) })),
            Err(Unfit::Unmatched(path)) if named.follow(&path) => {}
            Err(why) => return Ok(Err(words(&why, tx.id().0))),
        }
    }
}

fn words(why: &Unfit, id: u64) -> Failure {
    let name = |path: &[u8]| if path.is_empty() { "/".into() } else { shown(path) };
    match why {
        Unfit::Unmatched(path) => {
            let why = format!("transaction {id} changes nothing at or below {}", name(path));
            Failure::from(why).hint(format!("`systx diff {id}` shows what it would change"))
        }
        Unfit::Needs(path, needed) => format!(
            "{0} goes or is replaced only with all that was in it, and {1} was not named: name {0}, or neither",
            name(path),
            name(needed)
        )
        .into(),
        Unfit::Empty => {
            Failure::from("nothing would be left to commit").hint(format!("`systx abort {id}` gives up everything"))
        }
        _ => "this can't be committed alone".into(),
    }
}

/// Commits the named paths, and gives up the rest. If that fails and the transaction is to stay, all of it
/// stays, as far as the failure shows before the rest is given up.
pub fn commit(
    fails: IfItFails,
    mut tx: Transaction<Linux>,
    named: Named,
    undoable: Undoable,
) -> (Ending, Stayed) {
    let stays = fails == IfItFails::Stays;
    // Look before giving anything up: a part that can't commit leaves all of it, unless a conflict comes
    // right behind this look.
    let still = if stays { tx.still_true() } else { Ok(()) };
    let discarded = still.and_then(|()| choose(&mut tx, Some(named))).and_then(|chosen| {
        let Chosen { changes, part: Some(part) } = (match chosen {
            Ok(chosen) => chosen,
            Err(why) => return Ok(Err(why)),
        }) else {
            return Ok(Ok(Vec::new()));
        };
        let rest = changes.iter().filter(|change| !part.has(change));
        let discarded = rest.map(|change| diff::discarded(change, &tx)).collect();
        tx.keep_only(&part)?;
        Ok(Ok(discarded))
    });
    match discarded {
        Ok(Ok(discarded)) => life::commit(fails, tx, undoable, |done| {
            if discarded.is_empty() {
                Ending::Committed(done, 0)
            } else {
                Ending::Part(done, discarded)
            }
        }),
        // It was possible when it was asked for: a command inside has changed that before it was killed.
        Ok(Err(why)) => {
            let why = Ending::Failed(format!("a command inside was still at work, and then {why}").into());
            (why, life::give_up(tx, fails, None))
        }
        Err(VerbError::Doomed(conflict)) => {
            let left = life::give_up(tx, fails, Some(&conflict));
            (Ending::Conflict(*conflict), left)
        }
        Err(e) => {
            (Ending::Failed(verb_failed("giving up what was not chosen", e)), life::give_up(tx, fails, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_meant_from_here_and_without_dots() {
        let place =
            |path: &str| String::from_utf8(Place::of(Path::new("/no/where"), Path::new(path)).path).unwrap();
        assert_eq!(place("a"), "/no/where/a");
        assert_eq!(place("./a//b/."), "/no/where/a/b");
        assert_eq!(place("../a/"), "/no/a");
        assert_eq!(place("/a/../.."), "");
        assert_eq!(place("."), "/no/where");
    }
}
