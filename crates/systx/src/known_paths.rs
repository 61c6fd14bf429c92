//! Paths that this process knows, its working directory's among them, and the one look that a transaction has had.
//!
//! Owns: these, the look itself, and the comparison of what was seen. Does not: decide when such a look counts (`alone`).

use crate::error::Error;
use crate::kernel::Kernel;
use crate::mutant::{self, Mutant};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use systx_engine::domain::Domain;
use systx_engine::outcome::{self, ConflictKind, Party};
use systx_engine::transaction::Attr;
use systx_os::outside::{self, Key};
use systx_os::{LinkAtEnd, Stat, Timestamp};

/// Most paths that a process knows.
const PATHS_MAX: usize = 4096;

/// A path, and whether a link at its end is followed.
pub(crate) type Path = (Box<[u8]>, LinkAtEnd);

/// Objects that walks have found, by path.
#[derive(Default)]
pub(crate) struct Paths {
    known: Mutex<HashMap<Path, Known>>,
    /// The working directory from which the last of them began, and its path then.
    working_directory: Mutex<Option<(Key, Arc<[u8]>)>>,
}

#[derive(Clone)]
pub(crate) struct Known {
    /// Those on the way, the last one's included.
    pub domains: Vec<Weak<Domain<Kernel>>>,
    /// By which a walk names the file system.
    pub device_and_mount: (u64, u64),
    pub stat: Stat,
}

impl Paths {
    pub fn get(&self, path: &Path) -> Option<Known> {
        held(&self.known).get(path).cloned()
    }

    /// One too many, and all others are forgotten.
    pub fn put(&self, path: Path, known: Known) {
        let mut paths = held(&self.known);
        if paths.len() >= PATHS_MAX {
            paths.clear();
        }
        paths.insert(path, known);
    }

    /// Where this directory was when a walk began in it.
    pub fn working_directory(&self, key: Key) -> Option<Arc<[u8]>> {
        held(&self.working_directory)
            .as_ref()
            .filter(|(known, _)| *known == key)
            .map(|(_, path)| path.clone())
    }

    pub fn set_working_directory(&self, key: Key, path: &[u8]) {
        *held(&self.working_directory) = Some((key, path.into()));
    }
}

/// Each value is complete at any time.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that a transaction has seen so far.
pub(crate) struct Alone {
    pub path: Path,
    /// Set if that was relative.
    pub stands: Option<Stands>,
    pub stat: Stat,
}

pub(crate) fn look(path: &Path) -> Option<Stat> {
    outside::stat_at(&path.0, path.1).ok()
}

/// The attributes that are facts. Blocks and the time of the last use are none.
pub(crate) fn facts(stat: &Stat) -> Stat {
    let never = Timestamp { sec: 0, nsec: 0 };
    Stat { blocks: 0, atime: never, immutable: false, append_only: false, ..*stat }
}

/// The same without the stamp, which also moves when nothing of that has changed.
pub(crate) fn values(stat: &Stat) -> Stat {
    Stat { ctime: Timestamp { sec: 0, nsec: 0 }, ..facts(stat) }
}

/// Returns true if a walk and the kernel have found the same.
pub(crate) fn agree(attr: &Attr, stat: &Stat) -> bool {
    let of_stat = Attr::from(stat);
    Attr { atime: of_stat.atime, blocks: of_stat.blocks, ctime: of_stat.ctime, ..*attr } == of_stat
}

/// A working directory, and the path at which it was.
#[derive(Clone)]
pub(crate) struct Stands {
    pub key: Key,
    pub path: Arc<[u8]>,
}

impl Stands {
    /// Returns true if it is there.
    pub fn still(&self) -> bool {
        outside::key_at(&self.path) == Ok(self.key) || mutant::on(Mutant::DirectoryStands)
    }
}

impl Alone {
    /// Returns true if the directory from which it was looked is elsewhere: the path leads to another object, or did.
    pub fn has_moved(&self) -> bool {
        self.stands.as_ref().is_some_and(|stands| !stands.still())
    }

    /// Asks once more: whether the transaction can end with this.
    pub fn still_holds(&self) -> bool {
        !self.has_moved() && look(&self.path).is_some_and(|now| values(&now) == values(&self.stat))
    }

    pub fn conflict(&self) -> Error {
        let (path, what, with) = (self.path.0.to_vec(), ConflictKind::ContentsChanged, Party::Unknown);
        Error::conflict(Box::new(outcome::Conflict { path, what, with }))
    }
}
