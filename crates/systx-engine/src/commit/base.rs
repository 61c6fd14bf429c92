//! The names, attributes and bytes that a commit's steps expect to find (C10).
//!
//! An outsider who has changed them and synced nothing loses them with the power. A redo would then find
//! neither *before* nor *after*, take the older state for a later one, and the commit would be lost. So all
//! of it is on the disk before the header, or known to be ([`OnDisk`](crate::domain::on_disk)).
//!
//! Guarantees: a change after the look is seen by V6 or F, or is ordered after the commit. Does not: sync
//! (`barrier`), or care for what was only read.

use super::{Change, Part};
use crate::domain::on_disk::{Began, Of};
use crate::domain::{Domain, Unsynced};
use crate::id::ObjectId;
use crate::mutant::{self, Mutant};
use crate::objects::open_object;
use crate::record::{Act, At, Body, Change as AttrChange, Small};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use systx_os::{Errno, FileType, FsKind, Handle, Lease, Open, Os, Result, Stat};

/// Objects that are looked at one by one; for more, a sync costs less than the looks.
const OBJECTS_MAX: usize = 64;

/// The state that the steps of one domain's record build on, as it was when the record was made.
pub(crate) struct Base<O: Os> {
    objects: Vec<Object<O>>,
    /// There is more than was looked at.
    more: bool,
}

/// Returns true if a part builds on something that no sync has covered: the result of a `none` commit, or an
/// object that another record carries whole and that its own record names. A redo might have to make that one
/// again, and would not find it under its old identity here.
pub(super) fn builds_on_unsynced<O: Os>(part: &Part<O>) -> bool {
    let all = part.domain.table.unsynced().signature();
    let named = part.change.as_ref().is_some_and(|change| change.body.names_one_of(&all));
    named || Unsynced::<O::Mem>::are_in(&part.objects, &all)
}

/// One object.
struct Object<O: Os> {
    handle: Handle,
    /// `None`: it was looked at under its name, and is opened where that is needed.
    fd: Option<Arc<O::Fd>>,
    at: At,
    stat: Stat,
    /// True if its bytes are built on.
    bytes: bool,
    names_known: bool,
    bytes_on_disk: OnDisk,
    /// True if no process was writing at the look or since.
    unwritten: bool,
    /// True if no process has changed it from the look to the first step.
    unchanged: bool,
}

/// How far the bytes of a file have come that it had at the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    Unknown,
    /// Synced since. A write(2) that was under way may have gone on behind the sync, with a time from before.
    Synced,
    /// And none was under way: as long as the change time stays, so do they.
    Settled,
}

impl<O: Os> Default for Base<O> {
    fn default() -> Base<O> {
        Base { objects: Vec::new(), more: false }
    }
}

/// Something to be looked at: which object, where it stands before any step, and how much of it counts.
struct Wanted {
    handle: Handle,
    at: At,
    counts: Counts,
    /// It is opened for writing later on anyway.
    in_place: bool,
}

/// How much of an object counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    Names,
    /// The names, too.
    Bytes,
}

impl<O: Os> Base<O> {
    /// Looks at everything that the steps expect.
    pub fn look(domain: &Domain<O>, change: &mut Change<O>) -> Result<Base<O>> {
        let mut base = Base::default();
        if domain.info.kind == FsKind::Tmpfs || mutant::on(Mutant::BaseNotSynced) {
            return Ok(base);
        }
        let (wanted, more) = wanted(change);
        base.more = more;
        let now = Began::now(&domain.os);
        match base.find(domain, change, &wanted, now) {
            // Too few descriptors for a look.
            Err(Errno::MFILE | Errno::NFILE) => {
                (base.more, base.objects) = (true, Vec::new());
                Ok(base)
            }
            found => found.map(|()| base),
        }
    }

    fn find(
        &mut self,
        domain: &Domain<O>,
        change: &mut Change<O>,
        wanted: &[Wanted],
        now: Began,
    ) -> Result<()> {
        let (os, root) = (&domain.os, &domain.area.root);
        for wanted @ Wanted { handle, at, in_place, .. } in wanted {
            if let Some(stat) = change.directories.kept(&at.dir).filter(|_| *in_place).and_then(|dir| {
                // Whatever comes between the two moves the object's time, and is found by the final look.
                let stat = os.stat_at(dir, &at.name).ok()?;
                (os.handle_at(dir, &at.name) == Ok(*handle)).then_some(stat)
            }) {
                self.add(domain, wanted, (None, stat), now);
                continue;
            }
            let found = if at.name.is_empty() {
                change.directories.find(os, root, handle, &at.path)?
            } else {
                open_object(os, root, handle, &at.path, &at.name, Open::Path)?.map(Arc::new)
            };
            // The final look reports an object that is gone.
            if let Some(fd) = found {
                let stat = os.stat(&fd)?;
                self.add(domain, wanted, (Some(fd), stat), now);
            }
        }
        if !domain.info.open_by_handle {
            // A redo will have to walk there.
            let mut seen = HashSet::new();
            for Wanted { at, .. } in wanted {
                self.way(domain, &at.path, &mut seen, now)?;
            }
        }
        Ok(())
    }

    /// The directories on the way to an object.
    fn way(
        &mut self,
        domain: &Domain<O>,
        path: &[u8],
        seen: &mut HashSet<Vec<u8>>,
        now: Began,
    ) -> Result<()> {
        let os = &domain.os;
        let (mut dir, mut so_far) = (Arc::new(os.dup(&domain.area.root)?), Vec::new());
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            dir = match os.open(&dir, name, Open::Path) {
                Ok(fd) => Arc::new(fd),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => return Ok(()),
                Err(e) => return Err(e),
            };
            so_far = crate::paths::join(&so_far, name);
            if seen.insert(so_far.clone()) {
                let handle = os.handle(&dir)?;
                if !self.objects.iter().any(|known| known.handle == handle) {
                    let at = At { dir: handle, path: so_far.clone(), name: Vec::new() };
                    let wanted = Wanted { handle, at, counts: Counts::Names, in_place: false };
                    self.add(domain, &wanted, (Some(dir.clone()), os.stat(&dir)?), now);
                }
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        domain: &Domain<O>,
        Wanted { handle, at, counts, .. }: &Wanted,
        (fd, stat): (Option<Arc<O::Fd>>, Stat),
        now: Began,
    ) {
        let (handle, at) = (*handle, at.clone());
        let known = domain.table.on_disk();
        // Of another machine's stamps nothing follows for our clock.
        let older = |of| is_local(domain.info.kind) && known.is_older(stat.ctime, now, of);
        let settled = older(Of::Bytes(stat.size)) || known.knows(ObjectId::data(&handle), stat.ctime);
        let bytes = *counts == Counts::Bytes && stat.kind() == FileType::File;
        self.objects.push(Object {
            names_known: older(Of::Names) || known.knows(ObjectId::attr(&handle), stat.ctime),
            bytes_on_disk: if settled { OnDisk::Settled } else { OnDisk::Unknown },
            unwritten: mutant::on(Mutant::WritesOnUnseen),
            handle,
            fd,
            at,
            stat,
            bytes,
            unchanged: false,
        });
    }

    /// Returns true if it needs a sync.
    pub fn is_unsynced(&self) -> bool {
        self.more || self.objects.iter().any(|object| !object.names_known || object.lacks_bytes())
    }

    /// The files whose bytes are to be written out, open; `None`: they can't be had, and everything is to be synced.
    pub fn files(&mut self, domain: &Domain<O>, change: &Change<O>) -> Result<Option<Vec<Arc<O::Fd>>>> {
        let mut files = Vec::new();
        if self.more && change.body.steps.iter().any(|step| has_bytes(&step.act)) {
            return Ok(None);
        }
        for object in self.objects.iter_mut().filter(|object| object.lacks_bytes()) {
            let open = || match &object.fd {
                Some(fd) => domain.os.reopen(fd, Open::Read),
                None => open_object(
                    &domain.os,
                    &domain.area.root,
                    &object.handle,
                    &object.at.path,
                    &object.at.name,
                    Open::Read,
                )?
                .ok_or(Errno::STALE),
            };
            match domain.open_past_leases(ObjectId::data(&object.handle), open) {
                Ok(fd) => {
                    // Whoever is writing has it open for that. A write that begins later moves the time.
                    if domain.info.leases && domain.os.lease(&fd, Lease::Read).is_ok() {
                        domain.os.lease(&fd, Lease::None)?;
                        object.unwritten = true;
                    }
                    files.push(Arc::new(fd));
                }
                // Not readable for us, or another process holds a lease on it.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(files))
    }

    /// Notes that all of it is on the disk now, as it was at the look.
    pub fn synced(&mut self, domain: &Domain<O>) {
        let exact = has_exact_stamps(domain);
        for object in &mut self.objects {
            let (names, bytes) = (!object.names_known, object.lacks_bytes());
            object.names_known = true;
            if bytes {
                object.bytes_on_disk = if object.unwritten { OnDisk::Settled } else { OnDisk::Synced };
            }
            // The time of the look is noted: what was changed since then may not have been synced.
            if exact && names {
                domain.table.on_disk().note(ObjectId::attr(&object.handle), object.stat.ctime);
            }
            if exact && bytes && object.unwritten {
                domain.table.on_disk().note(ObjectId::data(&object.handle), object.stat.ctime);
            }
        }
    }

    /// Goes on with the descriptors by which files are changed: their leases show what no other process did.
    pub fn look_through(&mut self, targets: &HashMap<Handle, Arc<O::Fd>>) {
        for object in &mut self.objects {
            if let Some(target) = targets.get(&object.handle) {
                object.fd = Some(target.clone());
            }
        }
    }

    /// Looks again, right before the first step.
    pub fn before_steps(&mut self, domain: &Domain<O>) {
        for object in self.objects.iter_mut().filter(|_| has_exact_stamps(domain)) {
            let now = object.fd.as_ref().map(|fd| domain.os.stat(fd));
            object.unchanged = now.is_some_and(|now| now.is_ok_and(|now| now.ctime == object.stat.ctime));
        }
    }

    /// Notes, when all steps are taken and leases still held, what this commit has left: a redo makes it
    /// again, so the next commit on it needs no sync.
    ///
    /// The stamp can't tell an outsider's change between the last step and this look from our own, so each
    /// kind of change is excluded in another way: a file's bytes are protected by the lease, or else have our
    /// time and size; mode and owner are compared with ours. Only a name removed in these microseconds, or an
    /// extended attribute, escapes (docs/guarantees.md, (c)).
    pub fn after_steps(&self, domain: &Domain<O>, body: &Body) {
        let os = &domain.os;
        for object in self.objects.iter().filter(|object| object.unchanged && object.names_known) {
            let Some(fd) = &object.fd else { continue };
            let Ok(now) = os.stat(fd) else { continue };
            let (note, id) = (domain.table.on_disk(), &object.handle);
            if now.kind() == FileType::Directory {
                note.note(ObjectId::attr(id), now.ctime);
                continue;
            }
            let is_patched =
                body.steps.iter().any(|step| matches!(&step.act, Act::Patch(p) if p.file == *id));
            // Without the lease an outsider's store may lie between our last write and this look.
            let ours_alone = os.lease_held(fd) == Ok(Lease::Write);
            if now.nlink == 0 || !object.has_attributes_of(&now, body) || (is_patched && !ours_alone) {
                continue;
            }
            note.note(ObjectId::attr(id), now.ctime);
            let untouched = (now.mtime, now.size) == (object.stat.mtime, object.stat.size);
            if object.bytes_on_disk == OnDisk::Settled && (ours_alone || untouched) {
                note.note(ObjectId::data(id), now.ctime);
            }
        }
        for step in &body.steps {
            if let Act::Place { small: Some(small) } = &step.act {
                self.note_made(domain, &step.at, small);
            }
        }
    }

    /// Notes an object that the record carries whole.
    fn note_made(&self, domain: &Domain<O>, at: &At, small: &Small) {
        let Some(dir) = self.objects.iter().find(|dir| dir.unchanged && dir.handle == at.dir) else { return };
        let (os, Some(dir)) = (&domain.os, &dir.fd) else { return };
        let (Ok(handle), Ok(now)) = (os.handle_at(dir, &at.name), os.stat_at(dir, &at.name)) else { return };
        let as_made = (now.mode, now.uid, now.gid, now.mtime, now.nlink)
            == (small.mode, small.uid, small.gid, small.mtime, 1);
        let whole = now.kind() != FileType::File || now.size == small.content.len() as u64;
        if handle == small.handle && as_made && whole && now.kind() != FileType::Directory {
            domain.table.on_disk().note(ObjectId::attr(&handle), now.ctime);
            domain.table.on_disk().note(ObjectId::data(&handle), now.ctime);
        }
    }
}

impl<O: Os> Object<O> {
    fn lacks_bytes(&self) -> bool {
        self.bytes && self.bytes_on_disk == OnDisk::Unknown
    }

    /// Returns true if it has now the mode and owner that it had, or that the steps gave it.
    fn has_attributes_of(&self, now: &Stat, body: &Body) -> bool {
        let (mut mode, mut owner) = (Some(self.stat.perm()), (self.stat.uid, self.stat.gid));
        for step in &body.steps {
            let Act::Attr { object, changes, .. } = &step.act else { continue };
            for change in changes.iter().filter(|_| *object == self.handle) {
                match change {
                    AttrChange::Mode { new, .. } => mode = Some(*new),
                    AttrChange::Owner { new, .. } => owner = *new,
                    // A list of rights has changed the mode.
                    AttrChange::Xattr { .. } => mode = None,
                    AttrChange::Times { .. } => {}
                }
            }
        }
        (now.uid, now.gid) == owner && mode.is_none_or(|mode| now.perm() == mode)
    }
}

/// Returns true if change times come from this machine's clock.
fn is_local(kind: FsKind) -> bool {
    matches!(kind, FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Xfs | FsKind::Btrfs)
}

fn has_bytes(act: &Act) -> bool {
    match act {
        Act::Patch(_) | Act::Take { .. } | Act::Link { .. } => true,
        Act::Replace { read, .. } | Act::Remove { read, .. } => !read.is_empty(),
        Act::Attr { power_over, .. } => power_over.is_some(),
        Act::Place { .. } => false,
    }
}

/// Where a change within a tick of another one has the same stamp, nothing can be known by it.
fn has_exact_stamps<O: Os>(domain: &Domain<O>) -> bool {
    domain.info.file_stamps && domain.info.dir_stamps
}

/// Each object once, and whether there are more.
fn wanted<O: Os>(change: &Change<O>) -> (Vec<Wanted>, bool) {
    let plan = &change.plan;
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut index: HashMap<Handle, usize> = HashMap::new();
    let mut more = false;
    let mut want = |handle: &Handle, at: &At, counts: Counts| {
        // Steps name the path at their turn; nothing has moved yet.
        let at = plan.places.get(handle).unwrap_or(at);
        let n = *index.entry(*handle).or_insert(wanted.len());
        match wanted.get_mut(n) {
            Some(there) => there.counts = there.counts.max(counts),
            None => wanted.push(Wanted { handle: *handle, at: at.clone(), counts, in_place: false }),
        }
    };
    for step in &change.body.steps {
        let at = &step.at;
        if !matches!(step.act, Act::Patch(_) | Act::Attr { .. }) && !plan.made.contains(&at.dir) {
            want(&at.dir, &At { name: Vec::new(), ..at.clone() }, Counts::Names);
        }
        // Where a name stands before anything moves.
        let here = || match plan.places.get(&at.dir) {
            Some(dir) => At { path: dir.path.clone(), ..at.clone() },
            None => at.clone(),
        };
        match &step.act {
            Act::Place { .. } => {}
            Act::Link { object, found } => want(object, found, Counts::Bytes),
            Act::Take { before, .. } => want(before, &here(), Counts::Bytes),
            Act::Replace { before, tree, read, .. } | Act::Remove { before, tree, read, .. } => {
                // A redo compares the bytes that were read.
                let is_read = read.iter().any(|read| read.of.is_none());
                want(before, &here(), if is_read { Counts::Bytes } else { Counts::Names });
                // Objects that go with it were looked at long ago.
                more |= !tree.is_empty();
            }
            Act::Patch(patch) => want(&patch.file, at, Counts::Bytes),
            // An object without a public name yet is ours.
            Act::Attr { object, power_over, .. } if plan.places.contains_key(object) => {
                want(object, at, power_over.as_ref().map_or(Counts::Names, |_| Counts::Bytes));
            }
            Act::Attr { .. } => {}
        }
    }
    for step in &change.body.steps {
        let Act::Patch(patch) = &step.act else { continue };
        index.get(&patch.file).into_iter().for_each(|n| wanted[*n].in_place = true);
    }
    more |= wanted.len() > OBJECTS_MAX;
    wanted.truncate(OBJECTS_MAX);
    (wanted, more)
}
