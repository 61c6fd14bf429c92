//! Where steps act: the mount, the slots of one transaction, `aside/`, and the descriptors kept while publishing.

use super::targets::{self, Targets};
use super::tokens::TokenHandles;
use super::ways::{Base, Places, Ways};
use super::written::Written;
use crate::domain::reports;
use crate::domain::shared_staging::slots_there;
use crate::domain::{Area, Domain};
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::objects::{by_handle, identify, slot_name, walk, ByHandle, Directories, Top};
use crate::outcome::{ConflictCopy, ConflictCopyKind, Durability};
use crate::record::{Act, At, Body, Gone, Step};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use systx_os::{Errno, Handle, Open, Os, Rename, Result, Timestamp};

/// Sizes that a file had before records of the same redo let it grow.
pub(crate) type OldEnds = BTreeSet<u64>;

/// The pass of this publication: the first, by the owner or a successor of the same boot, or a redo after
/// power loss.
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
    /// Top directory of the domain.
    pub root: &'a Top<O>,
    /// `tx/<id>`.
    pub slots: &'a O::Fd,
    /// `aside/`.
    pub aside: &'a O::Fd,
    /// The area, where conflict copies are noted for later questions.
    pub area: Option<&'a O::Fd>,
    /// True if it publishes the commit of its own process, whose progress may be shown.
    pub is_own: bool,
    pub id: TxId,
    pub pass: Pass,
    /// Which slots' contents are tokens.
    pub tokens: TokenHandles,
    /// Files opened for writing before the commit point, or by an earlier record of a redo.
    pub patch_targets: Targets<O>,
    /// Of files without a lease since then: the modification time at the final look, or before it.
    pub shared: HashMap<Handle, Timestamp>,
    /// Files that are patched stay open under their leases, in `patch_targets`.
    pub keeps_targets: bool,
    pub conflict_copies: Vec<ConflictCopy>,
    /// Entries that steps of this pass have left empty without taking them.
    given_up: HashSet<u32>,
    /// Objects whose times a redo sets, as it found them.
    pub found: HashMap<Handle, Found<O>>,
    /// In a redo: files that records have let grow so far.
    pub old_ends: HashMap<Handle, OldEnds>,
    /// In a redo: of this record, too.
    pub written: Written,
    pub directories: Directories<O>,
    /// `tx/`, where marks prove something and the record may be redone.
    pub marks: Option<&'a O::Fd>,
    /// All attributes of the record were set by an earlier pass.
    pub are_set: bool,
    /// Objects of steps that were opened before the commit point, where handles can't be opened.
    pub held: HashMap<Handle, Arc<O::Fd>>,
    /// Files to which the program has appended without seeing their ends, for the process that has written to none yet:
    /// its bytes go behind whatever end there is.
    pub appends: HashSet<Handle>,
    /// That of a commit of its own process.
    pub durability: Durability,
    /// In a redo: whether a later record changes or removes an object, so that it may be as that one leaves it.
    pub changed_later: Option<&'a dyn Fn(&Handle) -> bool>,
    /// In a redo: the steps that are left out, since an outsider has changed the same before a later record
    /// did.
    pub leaves: Option<&'a dyn Fn(&Act) -> bool>,
    /// In a redo: whether one record alone changes the bytes of a file.
    pub only_change: Option<&'a dyn Fn(&Handle) -> bool>,
    /// In a redo: whether a later record writes that byte of a file.
    pub written_later: Option<&'a Writes<'a>>,
    /// The published record: where handles can't be opened, its steps show to which places they take an
    /// object.
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

/// Tells whether a byte of a file is written.
pub(crate) type Writes<'a> = dyn Fn(&Handle, u64) -> bool + 'a;

/// What the other records of a log say to one that is redone.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// See [`Site::changed_later`].
    pub later: &'a dyn Fn(&Handle) -> bool,
    /// See [`Site::leaves`].
    pub leaves: &'a dyn Fn(&Act) -> bool,
    /// See [`Site::only_change`].
    pub only: &'a dyn Fn(&Handle) -> bool,
    /// See [`Site::written_later`].
    pub written_later: &'a Writes<'a>,
    /// See [`Site::ways_of_log`].
    pub ways: &'a dyn Fn() -> Rc<Ways>,
}

/// What a process has open for a commit of its own since before the commit point.
pub(crate) struct Opened<O: Os> {
    /// See [`Site::patch_targets`].
    pub patch_targets: Targets<O>,
    /// See [`Site::shared`].
    pub shared: HashMap<Handle, Timestamp>,
    /// See [`Site::directories`].
    pub directories: Directories<O>,
    /// See [`Site::tokens`].
    pub tokens: TokenHandles,
    /// See [`Site::held`].
    pub held: HashMap<Handle, Arc<O::Fd>>,
    /// See [`Site::appends`].
    pub appends: HashSet<Handle>,
}

/// What a redo carries from one record to the next.
pub(crate) struct Carried<O: Os> {
    /// See [`Site::patch_targets`].
    pub targets: Targets<O>,
    /// See [`Site::keeps_targets`].
    pub keeps_targets: bool,
    /// See [`Site::old_ends`].
    pub old_ends: HashMap<Handle, OldEnds>,
    /// See [`Site::written`].
    pub written: Written,
}

impl<'a, O: Os> Site<'a, O> {
    /// For a commit of this process, which publishes it itself.
    pub fn living(
        domain: &'a Domain<O>,
        slots: &'a O::Fd,
        body: &'a Body,
        durability: Durability,
        opened: Opened<O>,
    ) -> Site<'a, O> {
        let (root, aside) = (&domain.area.root, &domain.area.aside);
        let Opened { patch_targets, shared, directories, tokens, held, appends } = opened;
        Site {
            area: Some(&domain.area.dir),
            is_own: true,
            marks: domain.marks().filter(|_| durability == Durability::Durable),
            body: Some(body),
            patch_targets,
            shared,
            directories,
            tokens,
            held,
            appends,
            durability,
            ..Site::new(&domain.os, root, slots, aside, body.id, Pass::First)
        }
    }

    /// For a commit whose owner is dead, or that a recovery could not publish to its end (`Pass::Redo`), from
    /// its slot in flight.
    pub fn helper(
        domain: &'a Domain<O>,
        slots: &'a O::Fd,
        body: &'a Body,
        durability: Durability,
        pass: Pass,
        leaves: &'a dyn Fn(&Act) -> bool,
    ) -> Site<'a, O> {
        let (root, aside) = (&domain.area.root, &domain.area.aside);
        Site {
            area: Some(&domain.area.dir),
            marks: domain.marks().filter(|_| durability == Durability::Durable),
            leaves: Some(leaves),
            body: Some(body),
            ..Site::new(&domain.os, root, slots, aside, body.id, pass)
        }
    }

    /// For a record of a log that is redone after a reboot. `marks`: they prove something there.
    pub fn redo(
        os: &'a O,
        area: &'a Area<O>,
        slots: &'a O::Fd,
        body: &'a Body,
        around: Around<'a>,
        marks: bool,
        carried: Carried<O>,
    ) -> Site<'a, O> {
        let Carried { targets, keeps_targets, old_ends, written } = carried;
        Site {
            area: Some(&area.dir),
            marks: marks.then_some(&area.tx),
            changed_later: Some(around.later),
            leaves: Some(around.leaves),
            only_change: Some(around.only),
            written_later: Some(around.written_later),
            ways_of_log: Some(around.ways),
            body: Some(body),
            keeps_targets,
            patch_targets: targets,
            old_ends,
            written,
            ..Site::new(os, &area.root, slots, &area.aside, body.id, Pass::Redo)
        }
    }

    /// A bare one, in which slots are emptied; each kind of publication has a constructor above.
    pub fn new(
        os: &'a O,
        root: &'a Top<O>,
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
            shared: HashMap::new(),
            keeps_targets: false,
            conflict_copies: Vec::new(),
            given_up: HashSet::new(),
            found: HashMap::new(),
            old_ends: HashMap::new(),
            written: Written::default(),
            directories: Directories::default(),
            held: HashMap::new(),
            appends: HashSet::new(),
            durability: Durability::None,
            marks: None,
            are_set: false,
            changed_later: None,
            leaves: None,
            only_change: None,
            written_later: None,
            body: None,
            ways_of_log: None,
            ways: OnceCell::new(),
        }
    }

    /// The directory of a step; `None` when it is gone.
    pub fn directory(&mut self, at: &At) -> Result<Option<Arc<O::Fd>>> {
        // Taken out for the call: opening one asks the rest of the site.
        let mut directories = std::mem::take(&mut self.directories);
        let found = directories.find_by(&at.dir, || self.open(&at.dir, &at.path, b"", Open::Path));
        self.directories = directories;
        found
    }

    /// Opens an object; where handles can't be opened, at the path that a step names, or wherever the steps
    /// of this record and of those behind it take it.
    ///
    /// `Ok(None)`: the object is gone.
    pub fn open(&self, object: &Handle, path: &[u8], name: &[u8], how: Open) -> Result<Option<O::Fd>> {
        match by_handle(self.os, self.root, object, how)? {
            ByHandle::Found(fd) => return Ok(Some(fd)),
            // The kernel knows no object of that handle any more, so no path leads to it.
            ByHandle::Gone => return Ok(None),
            ByHandle::Forbidden => {}
        }
        if let Some(held) = self.held.get(object) {
            return match self.os.stat(held)?.nlink {
                // The descriptor keeps it alive, but without a name it is as gone as by handle.
                0 => Ok(None),
                _ if how == Open::Path => self.os.dup(held).map(Some),
                _ => self.os.reopen(held, how).map(Some),
            };
        }
        let path = crate::paths::join(path, name);
        let first = walk(self.os, self.root, object, &path, how);
        // A directory that can't be entered may be elsewhere by now.
        if !matches!(first, Ok(None) | Err(Errno::ACCESS)) || mutant::on(Mutant::OneWay) {
            return first;
        }
        let own = self.body.map(|body| self.ways.get_or_init(|| Ways::of(body)));
        let log = self.ways_of_log.map(|ways| ways());
        let ways: Vec<&Ways> = own.into_iter().chain(log.as_deref()).collect();
        // The first place is the path in the record, where it was not found.
        for place in Places::of(&ways, path).skip(1) {
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
        // Found nowhere: a path that could not be searched is an error, and not an object that is gone.
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
        walk(self.os, slots, object, &crate::paths::join(&slot_name(slot), path), how)
    }

    /// Returns true if objects are found by names alone.
    pub fn walks(&self) -> bool {
        let found = self.os.handle(self.slots).and_then(|h| by_handle(self.os, self.root, &h, Open::Path));
        matches!(found, Ok(ByHandle::Forbidden))
    }

    /// Returns true if an object that is not found, where it can't be opened by handle, may be one that this
    /// very record has removed: then all its steps were taken by a pass before this one, and the rest in the
    /// entries is gone.
    pub fn may_have_removed(&self, object: &Handle) -> bool {
        let removes = |step: &Step| match &step.act {
            Act::Remove { before, tree, .. } | Act::Replace { before, tree, .. } => {
                before == object || Gone::handles(tree).any(|gone| gone == object)
            }
            _ => false,
        };
        self.walks() && self.body.is_some_and(|body| body.steps.iter().any(removes))
    }

    /// Path of a step's name, for messages.
    pub fn path_of(&self, at: &At) -> Vec<u8> {
        crate::paths::join(&at.path, &at.name)
    }

    /// Does part of a publication; where descriptors have run out, once more without those that are kept to
    /// save opening.
    ///
    /// A part that is cut off by an error goes on where it stopped, as one that is cut off by a kill does.
    pub fn with_room<T>(&mut self, act: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match act(self) {
            Err(Errno::MFILE | Errno::NFILE) if self.let_go() => act(self),
            done => done,
        }
    }

    /// Closes descriptors that can be had again; whether there were any. Files that are patched stay open:
    /// what they were opened for before the commit point may not be permitted any more.
    fn let_go(&mut self) -> bool {
        let found = self.found.values_mut().filter_map(|found| found.fd.take()).count();
        let directories = std::mem::take(&mut self.directories);
        let held = std::mem::take(&mut self.held);
        found > 0 || !directories.is_empty() || !held.is_empty()
    }

    /// Keeps a patched file open for the records that follow.
    pub fn keep_target(&mut self, object: Handle, fd: Arc<O::Fd>) {
        targets::keep::<O>(&mut self.patch_targets, object, fd);
    }

    /// Sets what the slot holds aside. That rename is the decision: a later redo finds the slot empty.
    pub fn set_aside(&mut self, step: &Step, what: ConflictCopyKind) -> Result<()> {
        let slot = slot_name(step.slot);
        loop {
            let name = free_name(self.os, self.aside, self.id, step.slot)?;
            // Noted first: a process that is cut off right after the rename has reported it.
            let conflict_copies =
                ConflictCopy { path: self.path_of(&step.at), aside: Some(name.clone()), what };
            if !mutant::on(Mutant::DisplacedNotNoted) {
                self.note(&conflict_copies);
            }
            match self.os.rename((self.slots, &slot), (self.aside, name.as_bytes()), Rename::NoReplace) {
                Ok(()) => {
                    self.give_up(step);
                    if mutant::on(Mutant::DisplacedNotNoted) {
                        self.note(&conflict_copies);
                    }
                    self.conflict_copies.push(conflict_copies);
                    return Ok(());
                }
                // A helper has done it, and noted it as we have.
                Err(Errno::NOENT) if identify(self.os, self.slots, &slot)?.is_none() => {
                    return self.meet_empty(step);
                }
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Says that nothing stands in a step's entry from here on, and why is told or known.
    pub fn give_up(&mut self, step: &Step) {
        self.given_up.insert(step.slot);
    }

    /// Comes upon an empty entry. An earlier pass has taken its step; but before the owner's there was none, so there somebody
    /// has removed what was staged.
    pub fn meet_empty(&mut self, step: &Step) -> Result<()> {
        if self.is_own && !self.given_up.contains(&step.slot) && !mutant::on(Mutant::EmptyIsTaken) {
            self.report(step, None, ConflictCopyKind::StagedRemoved);
        }
        Ok(())
    }

    /// Reports without anything to keep.
    pub fn report(&mut self, step: &Step, aside: Option<String>, what: ConflictCopyKind) {
        let path = self.path_of(&step.at);
        let conflict_copies = ConflictCopy { path, aside, what };
        self.note(&conflict_copies);
        self.conflict_copies.push(conflict_copies);
    }

    /// Writes a line of what is displaced into the area, once.
    pub fn note(&self, conflict_copy: &ConflictCopy) {
        if let Some(area) = self.area {
            // On a full disk there is no line; what was kept is listed all the same.
            let _ = reports::keep(self.os, area, self.id, conflict_copy);
        }
    }
}

/// A name in `aside/` for what stands in an entry. Looked for, since the note that is made before the rename has it.
pub(crate) fn free_name<O: Os>(os: &O, aside: &O::Fd, id: TxId, slot: u32) -> Result<String> {
    let mut name = format!("{id}.{slot}");
    for n in 1u32.. {
        if identify(os, aside, name.as_bytes())?.is_none() {
            break;
        }
        name = format!("{id}.{slot}.{n}");
    }
    Ok(name)
}
