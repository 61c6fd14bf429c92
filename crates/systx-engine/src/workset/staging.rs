//! The staging directory: where new objects and private bytes really are.
//!
//! Owns: one private directory a mount, made at the first need, its slots, and the way from a name that the
//! program sees to the place where the object is.

use super::Workset;
use crate::domain::shared_staging::{first_slot, SharedStaging, SLOTS_MAX};
use crate::id::ObjectId;
use crate::id::TxId;
use crate::outcome::Verb;
use crate::workset::node::{Ix, Native, Reach, NO_SLOT};
use std::sync::Arc;
use systx_os::{Errno, FileType, Open, Os, Rename};

/// The staging directory of a transaction on one mount.
pub(crate) struct Staging<O: Os> {
    /// Number of the transaction in that domain.
    pub id: TxId,
    /// The directory.
    pub dir: Arc<O::Fd>,
    /// The next slot.
    pub next: u32,
    /// Set if it is the shared staging directory, which it shares with others.
    pub shared_staging: Option<Arc<SharedStaging<O>>>,
}

/// Where a staged object really is.
pub(crate) struct Spot<O: Os> {
    pub dir: Arc<O::Fd>,
    pub name: Box<[u8]>,
}

/// Name of a slot.
pub(crate) fn slot_name(slot: u32) -> Box<[u8]> {
    crate::objects::slot_name(slot).into()
}

impl<O: Os> Workset<O> {
    /// The staging directory of a mount; made now if there is none.
    pub(crate) fn staging(&mut self, mount: usize) -> Result<&mut Staging<O>, Errno> {
        if self.staging[mount].is_none() {
            let id = self.ids[mount];
            let domain = &self.mounts[mount];
            let staging = match domain.shared_staging() {
                Some(shared_staging) => Staging {
                    id,
                    dir: shared_staging.dir.clone(),
                    next: first_slot(id),
                    shared_staging: Some(shared_staging),
                },
                None => {
                    let dir = Arc::new(domain.begin_staging_of(id)?);
                    Staging { id, dir, next: 0, shared_staging: None }
                }
            };
            self.staging[mount] = Some(staging);
        }
        self.staging[mount].as_mut().ok_or(Errno::NOENT)
    }

    /// A slot that nothing uses.
    pub(crate) fn new_slot(&mut self, mount: usize) -> Result<u32, Errno> {
        let staging = self.staging(mount)?;
        if staging.shared_staging.is_some() && staging.next == first_slot(staging.id) + SLOTS_MAX {
            self.leave_shared_staging(mount)?;
        }
        let staging = self.staging(mount)?;
        staging.next += 1;
        Ok(staging.next - 1)
    }

    /// Gets a directory of its own, with the slots that are used, if it has none: there are too many for the
    /// shared staging directory, or their contents need a barrier.
    pub(crate) fn leave_shared_staging(&mut self, mount: usize) -> Result<(), Errno> {
        let Some(staging) = self.staging[mount].as_mut().filter(|s| s.shared_staging.is_some()) else {
            return Ok(());
        };
        let own = self.mounts[mount].begin_staging_of(staging.id)?;
        for slot in first_slot(staging.id)..staging.next {
            let name = slot_name(slot);
            match self.os.rename((&staging.dir, &name), (&own, &name), Rename::NoReplace) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => {
                    // Some are here now and some there.
                    self.spoiled.get_or_insert(format!("what was staged could not be moved: {error}"));
                    return Err(error);
                }
            }
        }
        (staging.dir, staging.shared_staging) = (Arc::new(own), None);
        Ok(())
    }

    /// Returns true if the transaction has met the token file of its shared staging directory under a public
    /// name: as a token it could not be told from an object that is taken out, and its seal would be a change
    /// of a fact.
    pub(crate) fn has_met_token(&self, mount: usize) -> bool {
        let Some(shared_staging) = self.staging[mount].as_ref().and_then(|s| s.shared_staging.as_ref())
        else {
            return false;
        };
        let token = ObjectId::attr(&shared_staging.token_handle);
        self.facts.read_set(mount).any(|object| object == token)
    }

    /// The place of a slot.
    pub(crate) fn slot_spot(&mut self, mount: usize, slot: u32) -> Result<Spot<O>, Errno> {
        Ok(Spot { dir: self.staging(mount)?.dir.clone(), name: slot_name(slot) })
    }

    /// A descriptor of a staged directory, as a base for names.
    pub(crate) fn staged_dir(&mut self, ix: Ix) -> Verb<Arc<O::Fd>> {
        let object = self.object(ix);
        let fd = match object.dir.as_ref().map(|dir| &dir.staged) {
            Some(Reach::Open(fd)) => return Ok(fd.clone()),
            Some(Reach::Handle(handle)) => {
                let domain = &self.mounts[usize::from(object.mount)];
                domain.area.root.open_handle(&self.os, handle, Open::Path)?
            }
            Some(Reach::Name) => {
                let spot = self.spot(ix)?;
                self.os.open(&spot.dir, &spot.name, Open::Path)?
            }
            Some(Reach::Gone(_)) => return Err(Errno::STALE.into()),
            None => return Err(Errno::NOTDIR.into()),
        };
        let fd = Arc::new(fd);
        if let Some(dir) = &mut self.object_mut(ix).dir {
            dir.staged = Reach::Open(fd.clone());
        }
        self.hold(ix);
        Ok(fd)
    }

    /// Returns true if an object staged under a name really has that name.
    fn is_in_place(&self, dir: Ix, name: &[u8]) -> bool {
        self.object(dir).is_staged() && !self.is_sub_area(name)
    }

    /// Where the staged object under a name is.
    pub(crate) fn spot_at(&mut self, dir: Ix, name: &[u8]) -> Verb<Spot<O>> {
        if self.is_in_place(dir, name) {
            return Ok(Spot { dir: self.staged_dir(dir)?, name: name.into() });
        }
        let slot = self.entry(dir, name).map_or(NO_SLOT, |e| e.slot);
        if slot == NO_SLOT {
            return Err(Errno::STALE.into());
        }
        let mount = usize::from(self.object(dir).mount);
        Ok(self.slot_spot(mount, slot)?)
    }

    /// Where a staged object is, by one of its names.
    pub(crate) fn spot(&mut self, ix: Ix) -> Verb<Spot<O>> {
        let Some((dir, name)) = self.object(ix).names.first().cloned() else {
            return Err(Errno::STALE.into());
        };
        if self.native(dir) != Native::No {
            return self.spot_beside_processes(ix);
        }
        self.spot_at(dir, &name)
    }

    /// Where a staged object goes that is to be made under a name: in place, or a new slot.
    pub(crate) fn new_spot(&mut self, dir: Ix, name: &[u8]) -> Verb<(Spot<O>, u32)> {
        if self.is_in_place(dir, name) {
            return Ok((Spot { dir: self.staged_dir(dir)?, name: name.into() }, NO_SLOT));
        }
        let mount = usize::from(self.object(dir).mount);
        let slot = self.new_slot(mount)?;
        Ok((self.slot_spot(mount, slot)?, slot))
    }

    /// Really removes the staged object under a name.
    pub(crate) fn discard(&mut self, dir: Ix, name: &[u8], ix: Ix) -> Verb<()> {
        let spot = self.spot_at(dir, name)?;
        match self.object(ix).kind {
            FileType::Directory => self.os.rmdir(&spot.dir, &spot.name)?,
            _ => self.os.unlink(&spot.dir, &spot.name)?,
        }
        Ok(())
    }

    /// Moves a staged object out of its directory into a slot; one that is in a slot already stays there.
    pub(crate) fn lift(&mut self, dir: Ix, name: &[u8]) -> Verb<u32> {
        if !self.object(dir).is_staged() {
            return Ok(self.entry(dir, name).map_or(NO_SLOT, |e| e.slot));
        }
        let mount = usize::from(self.object(dir).mount);
        let from = self.spot_at(dir, name)?;
        let slot = self.new_slot(mount)?;
        let to = self.slot_spot(mount, slot)?;
        self.os.rename((&from.dir, &from.name), (&to.dir, &to.name), Rename::NoReplace)?;
        Ok(slot)
    }

    /// Moves a staged object from a slot to where its new name has it; returns the slot that it keeps.
    pub(crate) fn lower_into(&mut self, slot: u32, dir: Ix, name: &[u8]) -> Verb<u32> {
        if !self.object(dir).is_staged() {
            return Ok(slot);
        }
        let mount = usize::from(self.object(dir).mount);
        let from = self.slot_spot(mount, slot)?;
        let to = self.staged_dir(dir)?;
        self.os.rename((&from.dir, &from.name), (&to, name), Rename::NoReplace)?;
        Ok(NO_SLOT)
    }

    /// The staging directory of a mount, if there is one.
    pub(crate) fn staging_there(&self, mount: usize) -> Option<&Staging<O>> {
        self.staging[mount].as_ref()
    }

    /// Deletes everything that is staged.
    pub(crate) fn discard_staging(&self) {
        for (domain, staging) in self.mounts.iter().zip(&self.staging) {
            if let Some(staging) = staging {
                domain.discard_staging(staging.id);
                if staging.shared_staging.is_some() {
                    domain.clear_shared_staging(staging.id);
                }
            }
        }
    }
}
