//! The obstacles that publication can meet, checked in P and once more in F: flags, permissions, mount
//! points, links, space.
//!
//! Guarantees: an obstacle that can be known before the commit point fails there, and names its object. Does
//! not: keep it away. A step that an outsider makes impossible after the last check is set aside by
//! publication.

use super::decide::{Ask, Look, Shown, Subject};
use super::Change;
use crate::domain::Domain;
use crate::id::ObjectId;
use crate::objects::{identify, links_max, open_object, slot_name, Directories, Top};
use crate::outcome::{CommitError, Conflict, ConflictKind, Party};
use crate::plan::Plan;
use crate::publish::tokens::Token;
use crate::record::{Act, At, Patch, Source, Step};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Handle, Open, Os, Rename};

/// Free space that a publication leaves beyond the bytes that it writes, for blocks that describe them.
const SPACE_MARGIN_BYTES: u64 = 1 << 20;
/// Free space for blocks of directories that get names, in bytes.
const NAMES_MARGIN_BYTES: u64 = 64 << 10;
/// Objects that stay open from here to their step where handles can't be opened; more are found by their names.
const HELD_MAX: usize = 256;

/// Makes a staged object one of a project, with all that is in it if it is a directory. Directories among it.
fn adopt<O: Os>(
    os: &O,
    root: &Top<O>,
    slots: &O::Fd,
    slot: &[u8],
    project: u32,
) -> systx_os::Result<Vec<Handle>> {
    let mut found = Vec::new();
    let one = |dir: &O::Fd, name: &[u8], found: &mut Vec<Handle>| -> systx_os::Result<bool> {
        let changed = os.set_project(dir, name, project)?;
        if os.stat_at(dir, name)?.kind() == FileType::Directory {
            found.push(os.handle_at(dir, name)?);
        }
        Ok(changed)
    };
    // Where it is one already, what was made in it is, too.
    if !one(slots, slot, &mut found)? {
        return Ok(found);
    }
    let mut next = 0;
    while let Some(dir) = found.get(next).copied() {
        next += 1;
        let dir = root.open_handle(os, &dir, Open::Directory)?;
        for entry in os.read_dir(&dir)? {
            one(&dir, &entry.name, &mut found)?;
        }
    }
    Ok(found)
}

/// The directory in `tx/<id>` that directories are tried on.
const TARGET: &[u8] = b"target";

/// Makes it, with an entry.
fn make_target<O: Os>(os: &O, slots: &O::Fd) -> systx_os::Result<()> {
    // In P, with its entry: nothing is sealed with half of it. On a shared staging directory a process may
    // have been killed in here.
    let made = |made| match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    };
    made(os.mkdir(slots, TARGET, 0o700))?;
    made(os.mkdir(&os.open(slots, TARGET, Open::Path)?, b"entry", 0o700))
}

/// What the comparison of facts, right before a look in F, has shown of the same objects: they need no calls
/// of their own.
pub(super) struct Compared {
    /// R: what was compared.
    pub objects: HashSet<ObjectId>,
    /// Immutable or append-only objects among them.
    pub fixed: HashSet<Handle>,
}

impl Compared {
    /// Returns true if an object was compared and may be changed.
    fn is_free(&self, object: &Handle) -> bool {
        !self.fixed.contains(object) && self.objects.contains(&ObjectId::attr(object))
    }
}

/// The look for obstacles, and what is known already.
#[derive(Clone, Copy)]
pub(super) enum Moment<'a> {
    /// P.
    Prepare,
    /// F, where the facts have been compared.
    Final(&'a Compared),
}

impl Moment<'_> {
    /// Decides whether the kernel is asked about an object.
    fn asks(&self, subject: Subject, object: &Handle) -> bool {
        let (look, free) = match self {
            Moment::Prepare => (Look::Prepare, false),
            Moment::Final(compared) => (Look::Final, compared.is_free(object)),
        };
        look.asks(subject, if free { Shown::ByFacts } else { Shown::Not }) == Ask::Kernel
    }
}

/// One search for obstacles.
struct Search<'a, O: Os> {
    domain: &'a Domain<O>,
    plan: &'a Plan,
    directories: &'a mut Directories<O>,
    /// Directories that were looked at, and whether they are append-only.
    looked: HashMap<Handle, bool>,
    /// Projects that directories pass on to what comes into them.
    projects: HashMap<Handle, u32>,
    /// Names that were asked for of existing objects.
    links: HashMap<Handle, u32>,
    /// `tx/<id>`; without it there is no step on a name.
    slots: Option<&'a O::Fd>,
    target_made: bool,
    /// Objects that the steps change in place or link.
    held: HashMap<Handle, Arc<O::Fd>>,
    moment: Moment<'a>,
    /// Slots whose token is a file's: no directory comes into them.
    files: HashSet<u32>,
    /// Slots into which something comes that stands in the tree.
    tokens: HashSet<u32>,
}

/// Checks every object that `steps` change. Objects that this commit itself makes are left out: no other
/// process can reach them. In P, where handles can't be opened, returns objects to be kept open.
///
/// # Errors
///
/// `Failed`, with the kernel's future answer; `Conflict` where a directory has vanished. Other vanished
/// objects are reported elsewhere.
pub(super) fn check<O: Os>(
    domain: &Domain<O>,
    plan: &Plan,
    steps: &[Step],
    slots: Option<&O::Fd>,
    directories: &mut Directories<O>,
    moment: Moment<'_>,
) -> Result<HashMap<Handle, Arc<O::Fd>>, CommitError> {
    let (looked, projects, links) = (HashMap::new(), HashMap::new(), HashMap::new());
    let files =
        plan.tokens.iter().filter(|(_, token)| *token == Token::File).map(|(slot, _)| *slot).collect();
    let tokens = plan.tokens.iter().map(|(slot, _)| *slot).collect();
    let mut look = Search {
        domain,
        plan,
        directories,
        looked,
        projects,
        links,
        slots,
        target_made: false,
        held: HashMap::new(),
        moment,
        files,
        tokens,
    };
    // For a file that is written to, this replaces its opening in P: an immutable or append-only one can't be
    // opened for that.
    let mut attributed: HashSet<Handle> = HashSet::new();
    let patched = |step: &Step| match &step.act {
        Act::Patch(patch) => Some(patch.file),
        _ => None,
    };
    let opened = steps.iter().filter_map(patched).filter(|file| !moment.asks(Subject::Patched, file));
    attributed.extend(opened);
    for step in steps {
        match &step.act {
            Act::Place { .. } => {
                look.names(step)?;
                look.adopt(step)?;
            }
            Act::Link { object, found } => {
                look.names(step)?;
                look.link(object, found)?;
            }
            Act::Replace { before, .. } | Act::Remove { before, .. } | Act::Take { before, .. } => {
                look.names(step)?;
                look.leaving(step, before)?;
                if matches!(step.act, Act::Replace { .. }) {
                    look.adopt(step)?;
                }
            }
            Act::Patch(Patch { file: object, .. }) | Act::Attr { object, .. } => {
                if attributed.insert(*object) {
                    look.attributes(object)?;
                }
            }
        }
    }
    Ok(look.held)
}

/// Free space that no other process uses up in [`ASKED_NS`], as far as can be foreseen.
const MUCH_BYTES: u64 = 128 << 20;
/// The answer is used so long, where there is as much, by a process of many transactions.
const ASKED_NS: u64 = 10_000_000;

/// Checks that there is room for what publication adds. Staged objects have theirs already.
pub(super) fn space<O: Os>(domain: &Domain<O>, plan: &Plan, steps: &[Step]) -> Result<(), CommitError> {
    let os = &domain.os;
    let fail = |doing| move |error| CommitError::Failed { doing, path: Vec::new(), error };
    let mut bytes = plan.appends.values().map(|bytes| bytes.len() as u64).sum();
    let mut adds = bytes > 0;
    for step in steps {
        match &step.act {
            Act::Patch(patch) => {
                let written = patch.ranges.iter().filter(|range| range.source != Source::Hole);
                bytes += written.map(|range| range.len).sum::<u64>();
                adds |= bytes > 0;
            }
            Act::Place { .. } | Act::Link { .. } => adds = true,
            // Over a token, in place of something, or in an inode that is there.
            Act::Replace { .. } | Act::Remove { .. } | Act::Take { .. } | Act::Attr { .. } => {}
        }
    }
    if !adds {
        return Ok(());
    }
    let known = || domain.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let now = if domain.remembered.takes_names() { os.monotonic_ns() } else { 0 };
    let (free, asked) = *known();
    let is_young = now.checked_sub(asked).is_some_and(|age| age < ASKED_NS);
    if now > 0 && is_young && free >= MUCH_BYTES + bytes {
        *known() = (free - bytes, asked);
        return Ok(());
    }
    let total = os.statfs(&domain.area.tx).map_err(fail("asking for free space"))?;
    // Root may use what is kept for it, but not what ext4 keeps for itself (fs/ext4/super.c,
    // ext4_calculate_resv_clusters).
    let own = match domain.info.kind {
        FsKind::Ext4 | FsKind::Ext4NoJournal => (total.blocks / 50).min(4096),
        _ => 0,
    };
    let free = match os.uid() {
        0 => total.bfree.saturating_sub(own).max(total.bavail),
        _ => total.bavail,
    };
    let margin = if bytes > 0 { SPACE_MARGIN_BYTES } else { NAMES_MARGIN_BYTES };
    let free = free.saturating_mul(u64::from(total.frsize));
    *known() = (free.saturating_sub(bytes), now);
    if free < bytes + margin {
        return Err(fail("reserving space")(Errno::NOSPC));
    }
    Ok(())
}

impl<O: Os> super::Commit<'_, O> {
    /// Checks once more, in F.
    pub(super) fn still_possible(&mut self, compared: &[Compared]) -> Result<(), CommitError> {
        for (part, compared) in self.parts.iter_mut().zip(compared) {
            if let Some(Change { plan, body, slots, directories, .. }) = &mut part.change {
                let slots = body.has_slots().then_some(&**slots);
                check(&part.domain, plan, &body.steps, slots, directories, Moment::Final(compared))?;
            }
        }
        Ok(())
    }
}

impl<O: Os> Search<'_, O> {
    fn failed(&self, doing: &'static str, at: &At, error: Errno) -> CommitError {
        let path = self.domain.shown(&crate::paths::join(&at.path, &at.name));
        CommitError::Failed { doing, path, error }
    }

    /// Where a directory or file stands now: steps name the path at their turn.
    fn place<'s>(&'s self, handle: &Handle, at: &'s At) -> &'s At {
        self.plan.places.get(handle).unwrap_or(at)
    }

    /// The directory of a step.
    fn names(&mut self, step: &Step) -> Result<(), CommitError> {
        let dir = step.at.dir;
        if self.plan.made.contains(&dir) || self.looked.contains_key(&dir) {
            return Ok(());
        }
        if !self.moment.asks(Subject::Directory, &dir) {
            self.looked.insert(dir, false);
            return Ok(());
        }
        let os = &self.domain.os;
        let at = At { name: Vec::new(), ..self.place(&dir, &step.at).clone() };
        let vanished = || {
            let path = self.domain.shown(&at.path);
            CommitError::Conflict(Box::new(Conflict {
                path,
                what: ConflictKind::DirectoryRemoved,
                with: Party::Outsider,
            }))
        };
        let opened = self.directories.find(os, &self.domain.area.root, &dir, &at.path);
        let Some(fd) = opened.map_err(|error| self.failed("opening the directory", &at, error))? else {
            return Err(vanished());
        };
        let stat = os.stat(&fd).map_err(|error| self.failed("looking at the directory", &at, error))?;
        if stat.nlink == 0 {
            return Err(vanished());
        }
        os.may_change_names(&fd).map_err(|error| match error {
            Errno::PERM => self.failed("changing names in the immutable directory", &at, error),
            _ => self.failed("changing names in the directory", &at, error),
        })?;
        self.looked.insert(dir, stat.append_only);
        let may_pass_on = matches!(
            self.domain.info.kind,
            FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Xfs | FsKind::Other(_)
        );
        if self.moment.asks(Subject::Project, &dir) && may_pass_on {
            let project = os.project_passed_on(&fd);
            let project = project.map_err(|error| self.failed("looking at the directory", &at, error))?;
            self.projects.extend(project.map(|project| (dir, project)));
        }
        Ok(())
    }

    /// Makes what comes into a directory that passes its project on one of that project, as it would have
    /// been made there: the kernel moves nothing else into it. What stands in the tree already is left as it
    /// is.
    ///
    /// Source: fs/ext4/namei.c, ext4_rename; fs/xfs/xfs_inode.c, xfs_rename.
    fn adopt(&mut self, step: &Step) -> Result<(), CommitError> {
        let Some(project) = self.projects.get(&step.at.dir).copied() else { return Ok(()) };
        let Some(slots) = self.slots.filter(|_| !self.tokens.contains(&step.slot)) else { return Ok(()) };
        let (os, slot) = (&self.domain.os, slot_name(step.slot));
        let at = At { name: step.at.name.clone(), ..self.place(&step.at.dir, &step.at).clone() };
        let failed = |error| self.failed("giving it the project of its directory", &at, error);
        let adopted = adopt(os, &self.domain.area.root, slots, &slot, project).map_err(failed)?;
        // The next check covers objects that come into these by a step of their own.
        self.projects.extend(adopted.into_iter().map(|dir| (dir, project)));
        Ok(())
    }

    /// The object that leaves its name, or is replaced.
    fn leaving(&mut self, step: &Step, before: &Handle) -> Result<(), CommitError> {
        let Some(append_only) = self.looked.get(&step.at.dir).copied() else { return Ok(()) };
        let os = &self.domain.os;
        let here = self.place(&step.at.dir, &step.at);
        let at = At { name: step.at.name.clone(), ..here.clone() };
        if append_only {
            return Err(self.failed("taking out of an append-only directory", &at, Errno::PERM));
        }
        let subject =
            if self.files.contains(&step.slot) { Subject::LeavingForFile } else { Subject::Leaving };
        if !self.moment.asks(subject, before) {
            return Ok(());
        }
        let found = self.directories.find(os, &self.domain.area.root, &at.dir, &at.path);
        let Some(dir) = found.map_err(|error| self.failed("opening the directory", &at, error))? else {
            return Ok(());
        };
        let failed = |error| self.failed("moving or removing", &at, error);
        let stat = match os.stat_at(&dir, &step.at.name) {
            // Vanished: the check of every *before* reports it.
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => return Ok(()),
            stat => stat.map_err(failed)?,
        };
        if stat.immutable || stat.append_only {
            return Err(self.failed("moving or removing the immutable or append-only", &at, Errno::PERM));
        }
        if stat.kind() != FileType::Directory
            || identify(os, &dir, &step.at.name).map_err(failed)? != Some(*before)
        {
            return Ok(());
        }
        self.try_to_move(&dir, &at)
    }

    /// Checks that a directory may be moved: the kernel is asked by a rename that can't succeed, onto a
    /// directory of ours that has an entry. Nothing else shows a mount on it, as all our descriptors are on a
    /// copy of the mount.
    ///
    /// Source: fs/namei.c, vfs_rename: permissions and mounts first, then the file system, which sees the
    /// entry.
    fn try_to_move(&mut self, dir: &O::Fd, at: &At) -> Result<(), CommitError> {
        let Some(slots) = self.slots else { return Ok(()) };
        let os = &self.domain.os;
        let doing = "moving or removing the directory";
        if !self.target_made {
            make_target(os, slots).map_err(|error| self.failed("staging", at, error))?;
            self.target_made = true;
        }
        match os.rename((dir, &at.name), (slots, TARGET), Rename::Replace) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            // Vanished, or of another type now: the check of every *before* reports it.
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::ISDIR) => Ok(()),
            Err(Errno::BUSY) => Err(self.failed("moving or removing the mount point", at, Errno::BUSY)),
            Err(error) => Err(self.failed(doing, at, error)),
            // A person has deleted what was staged, in this very moment.
            Ok(()) => {
                let back = os.rename((slots, TARGET), (dir, &at.name), Rename::NoReplace);
                Err(self.failed("finding what was staged for", at, back.err().unwrap_or(Errno::NOENT)))
            }
        }
    }

    /// An object that gets one more name.
    fn link(&mut self, object: &Handle, found: &At) -> Result<(), CommitError> {
        let at = self.place(object, found).clone();
        let Some(stat) = self.stat(object, &at)? else { return Ok(()) };
        if stat.immutable || stat.append_only {
            return Err(self.failed("linking the immutable or append-only", &at, Errno::PERM));
        }
        let links = self.links.entry(*object).or_default();
        *links += 1;
        if stat.nlink.saturating_add(*links) > links_max(self.domain.info.kind) {
            return Err(self.failed("linking once more", &at, Errno::MLINK));
        }
        Ok(())
    }

    /// An object whose attributes or bytes change.
    fn attributes(&mut self, object: &Handle) -> Result<(), CommitError> {
        if !self.moment.asks(Subject::Attributes, object) {
            return Ok(());
        }
        // An object without a public name yet is ours.
        let Some(at) = self.plan.places.get(object).cloned() else { return Ok(()) };
        match self.stat(object, &at)? {
            Some(stat) if stat.immutable || stat.append_only => {
                Err(self.failed("changing the immutable or append-only", &at, Errno::PERM))
            }
            _ => Ok(()),
        }
    }

    fn stat(&mut self, object: &Handle, at: &At) -> Result<Option<systx_os::Stat>, CommitError> {
        let (os, root) = (&self.domain.os.for_a_moment(), &self.domain.area.root);
        let open = || open_object(os, root, object, &at.path, &at.name, Open::Path);
        let mut opened = open();
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) && !self.held.is_empty() {
            self.held.clear();
            opened = open();
        }
        let failed = |error| self.failed("looking at", at, error);
        let Some(fd) = opened.map_err(failed)? else { return Ok(None) };
        let stat = os.stat(&fd).map_err(failed)?;
        // A rename of a directory on the way to it, from here on, doesn't take it away.
        if self.moment.asks(Subject::Descriptor, object)
            && !self.domain.info.open_by_handle
            && self.held.len() < HELD_MAX
        {
            self.held.insert(*object, Arc::new(fd));
        }
        Ok(Some(stat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_without_a_known_maximum_are_asked_at_the_step() {
        assert_eq!(links_max(FsKind::Tmpfs), u32::MAX);
        assert_eq!(links_max(FsKind::Other(0x1234)), u32::MAX);
        assert!(links_max(FsKind::Ext4) >= 60_000, "tokens fit");
    }
}
