//! A transaction's first look at a path, answered by the kernel in one call.
//!
//! Owns: when that look counts, and the walk that follows it. Guarantees: the
//! answer is the kernel's to the caller, at one instant at which no commit was under way; it is delivered only if the
//! object and its stamp are those that a walk has found at this path before. Before the transaction does anything else
//! the path is walked and has to lead to the same; if it does nothing else, the kernel is asked once more when it ends
//! (docs/protocol.md, R4). Does not: keep directories, whose stamps move with each name in them.

use crate::kernel::Kernel;
use crate::known_paths::{agree, facts, look, values, Alone, Known, Path, Stands};
use crate::state::{Answer, Calling, Fault, State};
use crate::walk::{Last, Object, Start};
use std::sync::{Arc, Weak};
use systx_engine::domain::Domain;
use systx_engine::outcome::{Durability, Isolation};
use systx_os::{outside, FileType, LinkAtEnd, Stat};

/// The answer to a question for attributes.
pub(crate) enum Looked {
    Alone(Stat),
    Walked(Object),
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
        let link = if last == Last::Follow { LinkAtEnd::Followed } else { LinkAtEnd::Itself };
        // A durable one has to have on the disk what it has read; one of degree 2 may end when that has changed.
        let options = self.state.engine.options();
        let (durability, isolation) = (options.durability, options.isolation);
        let is_loose = durability == Durability::None && isolation == Isolation::Serializable;
        let is_first = self.state.alone.is_some() || self.state.mounts.is_empty();
        let known_path = if is_loose && is_first { self.path_from_root(start, path) } else { None };
        let wanted = known_path.map(|(path, stands)| ((path, link), stands));
        let wanted = wanted.filter(|(wanted, _)| self.state.is_alone_with(wanted));
        if let Some((wanted, stands)) = &wanted {
            if let Some(stat) = self.look_alone(wanted, stands.clone())? {
                return Ok(Looked::Alone(stat));
            }
        }
        self.settle()?;
        let mut object = self.by_files(|calling| calling.find(start, path, last))?;
        if let Object::Inside { node, attr, .. } = &mut object {
            *attr = self.state.engine.getattr(*node)?;
        }
        if let (Some((wanted, _)), Object::Inside { node, attr, .. }) = (wanted, &object) {
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

    /// A path from the root; `None`: none is known.
    fn path_from_root(&self, start: &Start, path: &[u8]) -> Option<(Box<[u8]>, Option<Stands>)> {
        match start {
            _ if path.starts_with(b"/") => Some((path.into(), None)),
            Start::WorkingDirectory if !path.is_empty() => {
                let key = outside::key_at(b".").ok()?;
                let stands = Stands { key, path: self.shared.paths.working_directory(key)? };
                // It may have moved, and another one be there.
                stands.still().then(|| ([&stands.path, &b"/"[..], path].concat().into(), Some(stands)))
            }
            _ => None,
        }
    }

    /// `None`: it has to be walked.
    fn look_alone(&mut self, path: &Path, stands: Option<Stands>) -> Answer<Option<Stat>> {
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
            None => self.state.alone = Some(Alone { path: path.clone(), stands, stat: now }),
        }
        let (dev, mnt_id) = known.device_and_mount;
        Ok(Some(Stat { dev, mnt_id, immutable: false, append_only: false, ..now }))
    }

    /// Walks the path that was only looked at, so that all on the way is seen by the rules. It has to lead to the same.
    pub fn settle(&mut self) -> Answer<()> {
        let Some(alone) = self.state.alone.take() else { return Ok(()) };
        if alone.has_moved() {
            return Err(Fault::Ends(alone.conflict()));
        }
        let last = if alone.path.1 == LinkAtEnd::Followed { Last::Follow } else { Last::Stay };
        match self.by_files(|calling| calling.find(&Start::WorkingDirectory, &alone.path.0, last)) {
            Ok(Object::Inside { attr, .. }) if agree(&attr, &alone.stat) => Ok(()),
            Err(Fault::Ends(error)) => Err(Fault::Ends(error)),
            _ => Err(Fault::Ends(alone.conflict())),
        }
    }
}
