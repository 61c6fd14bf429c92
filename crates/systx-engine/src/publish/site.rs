//! Where steps act: the mount, the slots of one transaction, `aside/`, and the descriptors kept while publishing.

use super::patch::OldEnds;
use super::reports;
use super::targets::{self, Targets};
use super::tokens::TokenHandles;
use super::ways::{self, Base, Ways};
use crate::domain::shelf::slots_there;
use crate::facts::LowerDir;
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::outcome::Displaced;
use crate::record::{Act, At, Body, Step};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os, Rename, Result, Timestamp};

/// Directories kept open while steps are looked at or published; more are opened again by handle. Steps on one directory mostly
/// follow each other.
pub(crate) const DIRECTORIES_MAX: usize = 64;
/// So many slots have names that are only numbers.
const SHORT_NAMES: u32 = 64;
/// Bytes of the names of all others (73 fill a block), and what makes them so long.
const LONG_NAME: usize = 48;
const FILL: u8 = b'-';

/// Whether this publication is the first, by the owner or a helper of the same boot, or a redo after power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The record's effects, as far as taken, are all in memory.
    First,
    /// Contents may be lost, and later records may have built on this one.
    Redo,
}

/// The place in which one record is published.
pub(crate) struct Site<'a, O: Os> {
    pub os: &'a O,
    /// Root of the mount.
    pub root: &'a O::Fd,
    /// `tx/<id>`.
    pub slots: &'a O::Fd,
    /// `aside/`.
    pub aside: &'a O::Fd,
    /// The area: where it is noted what was displaced, for whoever asks later.
    pub area: Option<&'a O::Fd>,
    /// It publishes the commit of its own process, which somebody may wait for.
    pub is_own: bool,
    pub id: TxId,
    pub pass: Pass,
    /// Which slots' contents are tokens.
    pub tokens: TokenHandles,
    /// Files opened for writing before the commit point, or by an earlier record of a redo.
    pub patch_targets: Targets<O>,
    /// Files that are patched stay open under their leases, in `patch_targets`.
    pub keeps_targets: bool,
    pub displaced: Vec<Displaced>,
    /// What a redo sets the times of, as it found it.
    pub found: HashMap<Handle, Found<O>>,
    /// In a redo: files that records have let grow so far.
    pub old_ends: HashMap<Handle, OldEnds>,
    pub directories: Directories<O>,
    /// `tx/`, where marks prove something and the record may be redone.
    pub marks: Option<&'a O::Fd>,
    /// All attributes of the record were set by an earlier pass.
    pub are_set: bool,
    /// Objects of steps that were opened before the commit point, where handles can't be opened.
    pub held: HashMap<Handle, Arc<O::Fd>>,
    /// In a redo: whether a later record changes or removes an object, so that it may be as that one leaves it.
    pub changed_later: Option<&'a dyn Fn(&Handle) -> bool>,
    /// In a redo: whether a step is left out, since somebody has changed the same before a later record did.
    pub leaves: Option<&'a dyn Fn(&Act) -> bool>,
    /// In a redo: to what size later records cut a file.
    pub cut_later: Option<&'a dyn Fn(&Handle) -> u64>,
    /// What is published: where handles can't be opened, it tells to which places its steps take an object.
    pub body: Option<&'a Body>,
    /// In a redo: to which places the records of the log do.
    pub ways_of_log: Option<&'a dyn Fn() -> Rc<Ways>>,
    ways: OnceCell<Ways>,
}

/// An object before the steps of a redo.
pub(crate) struct Found<O: Os> {
    pub mtime: Timestamp,
    /// Of few of them.
    pub fd: Option<Arc<O::Fd>>,
}

/// Directories of steps, open: each is found by its handle once, for every look and for publication.
pub(crate) struct Directories<O: Os>(HashMap<Handle, Arc<O::Fd>>);

impl<O: Os> Default for Directories<O> {
    fn default() -> Directories<O> {
        Directories(HashMap::new())
    }
}

impl<O: Os> Directories<O> {
    /// Takes one over that a transaction has open. One that is removed since is told as in [`Directories::find`].
    pub fn keep(&mut self, dir: &LowerDir<O>) {
        if self.0.len() < DIRECTORIES_MAX {
            if let Some(fd) = dir.kept() {
                self.0.entry(dir.handle).or_insert(fd);
            }
        }
    }

    /// A directory, by its handle, or below `root` at `path`; `None` when it is gone.
    ///
    /// One that is removed while it is kept here is told by its link count, and by every call that would make a name in it.
    pub fn find(&mut self, os: &O, root: &O::Fd, dir: &Handle, path: &[u8]) -> Result<Option<Arc<O::Fd>>> {
        self.find_by(dir, || open_object(os, root, dir, path, b"", Open::Path))
    }

    fn find_by(
        &mut self,
        dir: &Handle,
        open: impl Fn() -> Result<Option<O::Fd>>,
    ) -> Result<Option<Arc<O::Fd>>> {
        if let Some(fd) = self.0.get(dir) {
            return Ok(Some(fd.clone()));
        }
        let mut found = open();
        if matches!(found, Err(Errno::MFILE | Errno::NFILE)) && !self.0.is_empty() {
            self.0.clear();
            found = open();
        }
        let Some(fd) = found? else { return Ok(None) };
        if self.0.len() >= DIRECTORIES_MAX {
            self.0.clear();
        }
        let fd = Arc::new(fd);
        self.0.insert(*dir, fd.clone());
        Ok(Some(fd))
    }
}

/// Name of a slot in `tx/<id>`: its number. Where there are many it is a long name: ext4 goes through a block of a directory entry by
/// entry, at each look and each change of a name, and of long names few fill one.
pub(crate) fn slot_name(slot: u32) -> Vec<u8> {
    let mut name = slot.to_string().into_bytes();
    if slot >= SHORT_NAMES {
        name.resize(LONG_NAME, FILL);
    }
    name
}

/// The number of a slot, by its name.
pub(crate) fn slot_number(name: &[u8]) -> Option<u32> {
    let digits = name.iter().position(|byte| *byte == FILL).map_or(name, |at| &name[..at]);
    let slot = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (slot_name(slot) == name).then_some(slot)
}

/// The object under a name, if any.
pub(crate) fn identify<O: Os>(os: &O, dir: &O::Fd, name: &[u8]) -> Result<Option<Handle>> {
    match os.handle_at(dir, name) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens an object by handle; where handles can't be opened, by walking `path` below `root` and comparing.
///
/// `Ok(None)`: the object is gone.
pub(crate) fn open_object<O: Os>(
    os: &O,
    root: &O::Fd,
    handle: &Handle,
    path: &[u8],
    name: &[u8],
    how: Open,
) -> Result<Option<O::Fd>> {
    match by_handle(os, root, handle, how)? {
        ByHandle::Found(fd) => Ok(Some(fd)),
        ByHandle::Gone => Ok(None),
        ByHandle::Forbidden => walk(os, root, handle, &crate::facts::join(path, name), how),
    }
}

enum ByHandle<Fd> {
    Found(Fd),
    Gone,
    /// Nothing can be opened that way.
    Forbidden,
}

fn by_handle<O: Os>(os: &O, root: &O::Fd, handle: &Handle, how: Open) -> Result<ByHandle<O::Fd>> {
    match os.open_handle(root, handle, how) {
        Ok(fd) => Ok(ByHandle::Found(fd)),
        Err(Errno::STALE | Errno::NOENT) => Ok(ByHandle::Gone),
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(ByHandle::Forbidden),
        Err(e) => Err(e),
    }
}

/// Opens the object at a path, if it is that one.
fn walk<O: Os>(os: &O, base: &O::Fd, handle: &Handle, path: &[u8], how: Open) -> Result<Option<O::Fd>> {
    let mut fd = os.dup(base)?;
    for component in path.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
        // No record of ours has one, and it would lead out of what may be reached.
        if component == b".." {
            return Ok(None);
        }
        fd = match os.open(&fd, component, Open::Path) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) => return Ok(None),
            Err(e) => return Err(e),
        };
    }
    // Compared before it is opened for real: a stranger's may not let itself be opened that way.
    match os.handle(&fd)? == *handle {
        true if how == Open::Path => Ok(Some(fd)),
        true => os.reopen(&fd, how).map(Some),
        false => Ok(None),
    }
}

impl<'a, O: Os> Site<'a, O> {
    /// A site for a first pass or a redo.
    pub fn new(
        os: &'a O,
        root: &'a O::Fd,
        slots: &'a O::Fd,
        aside: &'a O::Fd,
        id: TxId,
        pass: Pass,
    ) -> Site<'a, O> {
        Site {
            os,
            root,
            slots,
            aside,
            area: None,
            is_own: false,
            id,
            pass,
            tokens: TokenHandles::default(),
            patch_targets: Targets::<O>::new(),
            keeps_targets: false,
            displaced: Vec::new(),
            found: HashMap::new(),
            old_ends: HashMap::new(),
            directories: Directories::default(),
            held: HashMap::new(),
            marks: None,
            are_set: false,
            changed_later: None,
            leaves: None,
            cut_later: None,
            body: None,
            ways_of_log: None,
            ways: OnceCell::new(),
        }
    }

    /// The directory of a step; `None` when it is gone.
    pub fn directory(&mut self, at: &At) -> Result<Option<Arc<O::Fd>>> {
        let mut directories = std::mem::take(&mut self.directories);
        let found = directories.find_by(&at.dir, || self.open(&at.dir, &at.path, b"", Open::Path));
        self.directories = directories;
        found
    }

    /// Opens an object; where handles can't be opened, at the path that a step names, or wherever the steps of this record and of those
    /// behind it take it.
    ///
    /// `Ok(None)`: the object is gone.
    pub fn open(&self, object: &Handle, path: &[u8], name: &[u8], how: Open) -> Result<Option<O::Fd>> {
        match by_handle(self.os, self.root, object, how)? {
            ByHandle::Found(fd) => return Ok(Some(fd)),
            ByHandle::Gone => return Ok(None),
            ByHandle::Forbidden => {}
        }
        if let Some(held) = self.held.get(object) {
            return match self.os.stat(held)?.nlink {
                0 => Ok(None),
                _ if how == Open::Path => self.os.dup(held).map(Some),
                _ => self.os.reopen(held, how).map(Some),
            };
        }
        let path = crate::facts::join(path, name);
        let first = walk(self.os, self.root, object, &path, how);
        // What can't be entered may be elsewhere by now.
        if !matches!(first, Ok(None) | Err(Errno::ACCESS)) || mutant::on(Mutant::OneWay) {
            return first;
        }
        let own = self.body.map(|body| self.ways.get_or_init(|| Ways::of(body)));
        let log = self.ways_of_log.map(|ways| ways());
        let ways: Vec<&Ways> = own.into_iter().chain(log.as_deref()).collect();
        for place in ways::places(&ways, path).into_iter().skip(1) {
            let found = match place.base {
                Base::Root => walk(self.os, self.root, object, &place.path, how),
                Base::Slot(slot) => self.walk_slot(self.slots, slot, object, &place.path, how),
                Base::SlotOf(record, slot) => {
                    let of = log.as_deref().and_then(|log| log.records.get(record));
                    match (self.area, of) {
                        (Some(area), Some(of)) => match slots_there(self.os, area, of)? {
                            Some(slots) => self.walk_slot(&slots, slot, object, &place.path, how),
                            None => Ok(None),
                        },
                        _ => Ok(None),
                    }
                }
            };
            match found {
                Ok(None) | Err(Errno::ACCESS) => {}
                found => return found,
            }
        }
        first
    }

    fn walk_slot(
        &self,
        slots: &O::Fd,
        slot: u32,
        object: &Handle,
        path: &[u8],
        how: Open,
    ) -> Result<Option<O::Fd>> {
        walk(self.os, slots, object, &crate::facts::join(&slot_name(slot), path), how)
    }

    /// Whether objects are found by names alone.
    pub fn walks(&self) -> bool {
        let found = self.os.handle(self.slots).and_then(|h| by_handle(self.os, self.root, &h, Open::Path));
        matches!(found, Ok(ByHandle::Forbidden))
    }

    /// Whether an object that is not found, where it can't be opened by handle, may be one that this very record has removed: then all
    /// its steps were taken by a pass before this one, and what was left in the slots is gone.
    pub fn may_have_removed(&self, object: &Handle) -> bool {
        let removes = |step: &Step| match &step.act {
            Act::Remove { before, tree, .. } | Act::Replace { before, tree, .. } => {
                before == object || tree.contains(object)
            }
            _ => false,
        };
        self.walks() && self.body.is_some_and(|body| body.steps.iter().any(removes))
    }

    /// Path of a step's name, for messages.
    pub fn path_of(&self, at: &At) -> Vec<u8> {
        crate::facts::join(&at.path, &at.name)
    }

    /// Does part of a publication; where descriptors have run out, once more without those that are kept to save opening.
    ///
    /// A part that is cut off by an error goes on where it stopped, as one that is cut off by a kill does.
    pub fn with_room<T>(&mut self, act: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match act(self) {
            Err(Errno::MFILE | Errno::NFILE) if self.let_go() => act(self),
            done => done,
        }
    }

    /// Closes descriptors that can be had again; whether there were any. Files that are patched stay open: what they were opened
    /// for before the commit point may not be permitted any more.
    fn let_go(&mut self) -> bool {
        let found = self.found.values_mut().filter_map(|found| found.fd.take()).count();
        let directories = std::mem::take(&mut self.directories).0;
        let held = std::mem::take(&mut self.held);
        found > 0 || !directories.is_empty() || !held.is_empty()
    }

    /// Keeps a patched file open for the records that follow.
    pub fn keep_target(&mut self, object: Handle, fd: Arc<O::Fd>) {
        targets::keep::<O>(&mut self.patch_targets, object, fd);
    }

    /// Sets what the slot holds aside. That rename is the decision: a later redo finds the slot empty.
    pub fn displace(&mut self, step: &Step, what: &'static str) -> Result<()> {
        let slot = slot_name(step.slot);
        for n in 0u32.. {
            let name = if n == 0 {
                format!("{}.{}", self.id, step.slot)
            } else {
                format!("{}.{}.{n}", self.id, step.slot)
            };
            if identify(self.os, self.aside, name.as_bytes())?.is_some() {
                continue;
            }
            // Noted first: who is cut off right after the rename has told of it.
            let displaced = Displaced { path: self.path_of(&step.at), aside: Some(name.clone()), what };
            if !mutant::on(Mutant::DisplacedNotNoted) {
                self.note(&displaced);
            }
            match self.os.rename((self.slots, &slot), (self.aside, name.as_bytes()), Rename::NoReplace) {
                Ok(()) => {
                    if mutant::on(Mutant::DisplacedNotNoted) {
                        self.note(&displaced);
                    }
                    self.displaced.push(displaced);
                    return Ok(());
                }
                // A helper has done it, and noted it as we have.
                Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::EXIST)
    }

    /// Reports without anything to keep.
    pub fn report(&mut self, step: &Step, aside: Option<String>, what: &'static str) {
        let path = self.path_of(&step.at);
        let displaced = Displaced { path, aside, what };
        self.note(&displaced);
        self.displaced.push(displaced);
    }

    fn note(&self, displaced: &Displaced) {
        if let Some(area) = self.area {
            // On a full disk there is no line; what was kept is listed all the same.
            let _ = reports::keep(self.os, area, self.id, displaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::FsKind;
    use systx_sim::machine::{Call, Fault, Machine, Plant};

    #[test]
    fn a_directory_is_found_without_a_descriptor_to_spare() {
        let machine = Machine::with(FsKind::Ext4);
        machine.plant(0, &[("one", Plant::Dir), ("two", Plant::Dir)]).expect("planting");
        let os = machine.spawn("publisher");
        let root = os.root(0);
        let of = |name: &[u8]| os.handle_at(&root, name).expect("there");
        let mut directories = Directories::default();
        let mut find = |name: &[u8]| directories.find(&os, &root, &of(name), name).map(|dir| dir.is_some());
        assert_eq!(find(b"one"), Ok(true));
        machine.fault(Fault::fail(Call::OpenHandle, Errno::MFILE));
        assert_eq!(find(b"two"), Ok(true), "what is kept is let go of");
        machine.fault(Fault { times: 2, ..Fault::fail(Call::OpenHandle, Errno::MFILE) });
        assert_eq!(find(b"one"), Err(Errno::MFILE));
        os.exit();
    }
}
