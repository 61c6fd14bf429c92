//! The report of a commit.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use systx_engine::outcome;

/// A transaction that has committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// Number of changes that were made public.
    pub steps: u64,
    /// Objects whose place another program took after the last comparison: theirs is at the path, ours is
    /// kept.
    pub displaced: Vec<Displaced>,
    /// Why not all is public yet. It goes on by itself at the next use of systx.
    pub pending: Option<String>,
    /// Something else that a person should look at.
    pub warning: Option<String>,
    /// The calls that were made outside at once ([`Unsupported::Allow`](crate::Unsupported::Allow)).
    pub allowed: Vec<String>,
}

/// An object that could not be put in place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Displaced {
    /// Path at which it would be.
    pub path: PathBuf,
    /// Name below `aside/` of the area; `None`: nothing had to be kept.
    pub aside: Option<String>,
    /// The event, as a fragment of a sentence.
    pub what: String,
}

impl From<outcome::Committed> for Committed {
    fn from(committed: outcome::Committed) -> Committed {
        let displaced = committed.conflict_copies.into_iter().map(|displaced| Displaced {
            path: PathBuf::from(OsString::from_vec(displaced.path)),
            aside: displaced.aside,
            what: displaced.what.to_string(),
        });
        Committed {
            steps: committed.steps,
            displaced: displaced.collect(),
            pending: committed.pending,
            warning: committed.warning,
            allowed: Vec::new(),
        }
    }
}
