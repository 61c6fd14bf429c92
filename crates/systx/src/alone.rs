//! A transaction's first look at a path, answered by the kernel in one call.
//!
//! Owns: what this process knows of paths, and the look that a transaction has had instead of a walk. Guarantees: the
//! answer is the kernel's to the caller, at one instant at which no commit was under way; it is delivered only if the
//! object and its stamp are those that a walk has found at this path before. Before the transaction does anything else
//! the path is walked and has to lead to the same; if it does nothing else, the kernel is asked once more when it ends
//! (docs/protocol.md, R4). Does not: keep directories, whose stamps move with each name in them.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::state::{Answer, Calling, Fault, State};
use crate::walk::{Last, Object, Start};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use systx_engine::domain::Domain;
use systx_engine::outcome::{self, ConflictKind, Durability, Isolation, Party};
use systx_engine::transaction::Attr;
use systx_os::outside::{self, LinkAtEnd};
use systx_os::{FileType, Stat, Timestamp};

/// Most paths that a process knows.
const PATHS_MAX: usize = 4096;

/// A path, and whether a link at its end is followed.
type Path = (Box<[u8]>, Last);

/// Objects that walks have found, by path.
#[derive(Default)]
pub(crate) struct Paths(Mutex<HashMap<Path, Known>>);

#[derive(Clone)]
struct Known {
    /// Those on the way, the last one's included.
    domains: Vec<Weak<Domain<Kernel>>>,
    /// By which a walk names the file system.
    device_and_mount: (u64, u64),
    stat: Stat,
}

impl Paths {
    fn get(&self, path: &Path) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// One too many, and all others are forgotten.
    fn put(&self, path: Path, known: Known) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= PATHS_MAX {
            paths.clear();
        }
        paths.insert(path, known);
    }
}

/// All that a transaction has seen so far.
pub(crate) struct Alone {
    path: Path,
    stat: Stat,
}

/// The answer to a question for attributes.
pub(crate) enum Looked {
    Alone(Stat),
    Walked(Object),
}

fn look(path: &Path) -> Option<Stat> {
    let link = if path.1 == Last::Follow { LinkAtEnd::Followed } else { LinkAtEnd::Itself };
    outside::stat_at(&path.0, link).ok()
}

/// The attributes that are facts. Blocks and the time of the last use are none.
fn facts(stat: &Stat) -> Stat {
    let never = Timestamp { sec: 0, nsec: 0 };
    Stat { blocks: 0, atime: never, immutable: false, append_only: false, ..*stat }
}

/// The same without the stamp, which also moves when nothing of that has changed.
fn values(stat: &Stat) -> Stat {
    Stat { ctime: Timestamp { sec: 0, nsec: 0 }, ..facts(stat) }
}

/// Returns true if a walk and the kernel have found the same.
fn agree(attr: &Attr, stat: &Stat) -> bool {
    let of_stat = Attr::from(stat);
    Attr { atime: of_stat.atime, blocks: of_stat.blocks, ctime: of_stat.ctime, ..*attr } == of_stat
}

impl Alone {
    /// Asks once more: whether the transaction can end with this.
    pub fn still_holds(&self) -> bool {
        look(&self.path).is_some_and(|now| values(&now) == values(&self.stat))
    }

    pub fn conflict(&self) -> Error {
        let (path, what, with) = (self.path.0.to_vec(), ConflictKind::ContentsChanged, Party::Unknown);
        Error::conflict(Box::new(outcome::Conflict { path, what, with }))
    }
}

impl State {
    /// Returns true if it has seen nothing but this path, if anything.
    fn is_alone_with(&self, path: &Path) -> bool {
        match &self.alone {
            Some(alone) => alone.path == *path,
            None => self.mounts.is_empty(),
        }
    }
}

impl Calling<'_> {
    /// Looks at the end of a path: stat(2).
    pub fn look(&mut self, start: &Start, path: &[u8], last: Last) -> Answer<Looked> {
        let wanted: Path = (path.into(), last);
        // A durable one has to have on the disk what it has read; one of degree 2 may end when that has changed.
        let options = self.state.engine.options();
        let (durability, isolation) = (options.durability, options.isolation);
        let is_loose = durability == Durability::None && isolation == Isolation::Serializable;
        let may_be_alone = is_loose && path.starts_with(b"/") && self.state.is_alone_with(&wanted);
        if may_be_alone {
            if let Some(stat) = self.look_alone(&wanted)? {
                return Ok(Looked::Alone(stat));
            }
        }
        self.settle()?;
        let object = self.find(start, path, last)?;
        if let (true, Object::Inside { node, attr, .. }) = (may_be_alone, &object) {
            let open = &self.state.mounts[self.state.engine.mount_of(*node)];
            let is_directory = FileType::from_mode(attr.mode) == Some(FileType::Directory);
            let seen = look(&wanted).filter(|stat| agree(attr, stat) && stat.ctime == attr.ctime);
            if let (Some(stat), true, false) = (seen, open.domain.info.file_stamps, is_directory) {
                let device_and_mount = open.device_and_mount();
                // It has seen nothing but this path, so that these are all on the way.
                let domains = self.state.mounts.iter().map(|open| Arc::downgrade(&open.domain)).collect();
                self.shared.paths.put(wanted, Known { domains, device_and_mount, stat });
            }
        }
        Ok(Looked::Walked(object))
    }

    /// `None`: it has to be walked.
    fn look_alone(&mut self, path: &Path) -> Answer<Option<Stat>> {
        let Some(known) = self.shared.paths.get(path) else { return Ok(None) };
        let present = |domain: &Weak<Domain<Kernel>>| domain.upgrade().filter(|domain| !domain.is_spent());
        let Some(domains) = known.domains.iter().map(present).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        // A commit meanwhile may have published one name on the way and not the next one, and lead to what is nowhere before
        // or behind it; or something that goes with a change of the object.
        let seen = Domain::between_commits(&domains, || look(path))?.flatten();
        let Some(now) = seen.filter(|now| facts(now) == facts(&known.stat)) else { return Ok(None) };
        match &self.state.alone {
            Some(alone) if values(&alone.stat) != values(&now) => return Ok(None),
            Some(_) => {}
            None => self.state.alone = Some(Alone { path: path.clone(), stat: now }),
        }
        let (dev, mnt_id) = known.device_and_mount;
        Ok(Some(Stat { dev, mnt_id, immutable: false, append_only: false, ..now }))
    }

    /// Walks the path that was only looked at, so that all on the way is seen by the rules. It has to lead to the same.
    pub fn settle(&mut self) -> Answer<()> {
        let Some(alone) = self.state.alone.take() else { return Ok(()) };
        match self.find(&Start::WorkingDirectory, &alone.path.0, alone.path.1) {
            Ok(Object::Inside { attr, .. }) if agree(&attr, &alone.stat) => Ok(()),
            Err(Fault::Ends(error)) => Err(Fault::Ends(error)),
            _ => Err(Fault::Ends(alone.conflict())),
        }
    }
}
