//! Areas of subtransactions: directories of this transaction's tree that are found by name and are in no
//! list.
//!
//! Owns: their names, and where such a name leads. A subtransaction runs over the view of this one, and needs
//! an area in the directory that it has for a root. Guarantees: such a directory is in no listing, no
//! difference and no plan, it moves no time, and a commit is refused while there is one: it holds what a
//! subtransaction has put into place in part. Does not: know its contents; to a subtransaction it is an
//! ordinary directory.
//!
//! A name holds a number of 128 random bits that this transaction drew for one user, and shows to processes
//! of that user only: no archive can bring such a directory along, and no other user can make it. Any other
//! name is an ordinary one, whatever it looks like.

use super::names::Change;
use super::Workset;
use crate::facts::Name;
use crate::mutant::{self, Mutant};
use crate::objects::remove_all;
use crate::outcome::Verb;
use crate::types::Node;
use crate::workset::node::{Entry, Ix, NO_SLOT};
use systx_os::{Errno, Open, Os};

/// What the name begins with that a displaced object, or what can't be finished, gets when its area goes; a
/// number follows.
pub(crate) const DISPLACED: &str = "systx-displaced.";

/// The beginning of such a directory's name; its user's secret follows, in hexadecimal.
const PREFIX: &str = ".systx.sub-";

/// A user of subtransactions, and the name of the area in which that user's subtransactions of one directory meet.
pub(crate) struct SubUser {
    uid: u32,
    name: Name,
}

impl<O: Os> Workset<O> {
    /// Returns the name of areas of a user's subtransactions. To be shown to that user only.
    pub(crate) fn sub_area_name(&mut self, uid: u32) -> Vec<u8> {
        if let Some(user) = self.sub_users.iter().find(|user| user.uid == uid) {
            return user.name.to_vec();
        }
        let name = format!("{PREFIX}{:016x}{:016x}", self.os.random(), self.os.random());
        self.sub_users.push(SubUser { uid, name: Name::from(name.as_bytes()) });
        name.into_bytes()
    }

    /// Returns true for the name of an area of a subtransaction.
    pub(crate) fn is_sub_area(&self, name: &[u8]) -> bool {
        self.sub_area_user(name).is_some()
    }

    /// Returns the user whose areas have a name.
    pub(crate) fn sub_area_user(&self, name: &[u8]) -> Option<u32> {
        let secret = name.strip_prefix(PREFIX.as_bytes())?;
        if mutant::on(Mutant::AreaByItsName) {
            return Some(std::str::from_utf8(secret).ok().and_then(|user| user.parse().ok()).unwrap_or(0));
        }
        self.sub_users.iter().find(|user| *user.name == *name).map(|user| user.uid)
    }

    /// Where such a name leads in a directory.
    pub(super) fn sub_area(&self, dir: Ix, name: &[u8]) -> Option<Entry> {
        self.sub_areas.iter().find(|(at, known, _)| *at == dir && **known == *name).map(|(.., entry)| *entry)
    }

    pub(super) fn name_sub_area(&mut self, dir: Ix, name: &[u8], ix: Ix, slot: u32) {
        self.sub_areas.push((dir, Name::from(name), Entry { now: Some(ix), before: None, slot }));
        self.object_mut(ix).names.push((dir, name.into()));
    }

    pub(super) fn unname_sub_area(&mut self, dir: Ix, name: &[u8]) {
        let Some(n) = self.sub_areas.iter().position(|(at, known, _)| *at == dir && **known == *name) else {
            return;
        };
        let (.., entry) = self.sub_areas.swap_remove(n);
        if let Some(ix) = entry.now {
            self.object_mut(ix).names.clear();
        }
    }

    /// Removes such directories with the one that they are in. Subtransactions in there lose their work.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a committed object is in there, on its way to another place.
    pub(crate) fn drop_sub_areas(&mut self, dir: Ix) -> Verb<()> {
        while let Some((_, name, entry)) = self.sub_areas.iter().find(|(at, ..)| *at == dir).cloned() {
            let Some(area) = entry.now else { return Err(Errno::STALE.into()) };
            let inside: Vec<Ix> = self.all().filter(|ix| self.is_within(*ix, area)).collect();
            if inside.iter().any(|ix| !self.object(*ix).is_staged()) {
                return Err(Errno::BUSY.into());
            }
            let spot = self.spot_at(dir, &name)?;
            remove_all(&self.os, &self.os.open(&spot.dir, &spot.name, Open::Path)?)?;
            self.os.rmdir(&spot.dir, &spot.name)?;
            for ix in inside {
                let object = self.object_mut(ix);
                object.names.clear();
                object.dir.iter_mut().for_each(|dir| dir.names.clear());
            }
            self.unname_sub_area(dir, &name);
        }
        Ok(())
    }

    /// Returns true if an object is in such a directory, or is one.
    pub(crate) fn is_in_sub_area(&self, ix: Ix) -> bool {
        if self.sub_areas.is_empty() {
            return false;
        }
        let mut at = ix;
        while let Some((parent, name)) = self.object(at).names.first() {
            if self.is_sub_area(name) {
                return true;
            }
            at = *parent;
        }
        false
    }

    /// Returns true if an object stands directly in such a directory: its table, for instance.
    pub(crate) fn is_of_sub_area(&self, ix: Ix) -> bool {
        let holds = |dir: Ix| self.sub_areas.iter().any(|(.., entry)| entry.now == Some(dir));
        self.object(ix).names.first().is_some_and(|(dir, _)| holds(*dir))
    }

    /// Whether there is any.
    pub(crate) fn has_sub_areas(&self) -> bool {
        !self.sub_areas.is_empty()
    }

    /// Returns true if an object is such a directory.
    pub(crate) fn is_a_sub_area(&self, ix: Ix) -> bool {
        self.sub_areas.iter().any(|(.., entry)| entry.now == Some(ix))
    }

    /// The paths of such directories on a mount, from its root, as far as a user may know them: root all,
    /// others their own.
    pub(crate) fn sub_areas(&self, root: Node, uid: u32) -> Vec<Vec<u8>> {
        let mount = self.object(self.ix(root)).mount;
        let known = |name: &[u8]| uid == 0 || self.sub_area_user(name) == Some(uid);
        let here =
            self.sub_areas.iter().filter(|(_, name, _)| known(name)).filter_map(|(.., entry)| entry.now);
        here.filter(|ix| self.object(*ix).mount == mount).map(|ix| self.path(ix)).collect()
    }

    /// Makes areas that other users' subtransactions have left ordinary directories beside their places, so that they
    /// don't keep this transaction from committing. Returns the users and the new paths.
    ///
    /// To be called when no process of the transaction is left, and what could be finished is. Nothing in such an area
    /// is replayed or lost: it holds whatever a commit that was cut off has taken away and not put back.
    ///
    /// # Errors
    /// As of mkdir(2) in the directory that an area is in.
    pub(crate) fn set_aside_sub_areas(&mut self) -> Verb<Vec<(u32, Vec<u8>)>> {
        let me = self.os.uid();
        let areas: Vec<_> =
            self.sub_areas.iter().map(|(dir, name, entry)| (*dir, name.clone(), *entry)).collect();
        let mut set_aside = Vec::new();
        for (dir, name, entry) in areas {
            let (Some(uid), Some(area)) = (self.sub_area_user(&name), entry.now) else { continue };
            if uid == me && !mutant::on(Mutant::OwnAreaSetAside) {
                continue;
            }
            let free = self.name_to_set_aside(dir)?;
            self.may_create_in(dir, &free)?;
            self.unname_sub_area(dir, &name);
            let slot = self.lower_into(entry.slot, dir, &free)?;
            self.name(dir, &free, area, slot);
            self.touch(dir, if slot == NO_SLOT { Change::Real } else { Change::Remembered })?;
            let path = self.path(area);
            set_aside.push((uid, self.shown_path(usize::from(self.object(area).mount), &path)));
        }
        Ok(set_aside)
    }

    fn name_to_set_aside(&mut self, dir: Ix) -> Verb<Vec<u8>> {
        let mut number = 0u32;
        loop {
            number += 1;
            let name = format!("{DISPLACED}{number}").into_bytes();
            if self.find_to_change(dir, &name)?.is_none() {
                return Ok(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Bounds, Domain, Location};
    use crate::outcome::Options;
    use crate::transaction::Transaction;
    use crate::types::Caller;
    use std::sync::Arc;
    use systx_os::FsKind;
    use systx_sim::machine::{run_process, Machine};

    /// Root finishes it with the owner's and the group's rights: who made it must have had them.
    #[test]
    fn an_area_is_its_makers_own_also_in_a_directory_that_passes_its_group_on() {
        let os = Machine::with(FsKind::Ext4).spawn("makes");
        let done = run_process(&os, || {
            let root = Arc::new(os.root(0));
            os.mkdir(&root, b"shared", 0o777).unwrap();
            let shared = os.open(&root, b"shared", Open::Path).unwrap();
            os.chown(&shared, 0, 50).unwrap();
            os.chmod(&shared, 0o2777).unwrap();
            let site =
                Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".systx" };
            let domain = Domain::open(&os, site).unwrap();
            let mut tx = Transaction::begin(os.clone(), vec![domain], Options::default()).unwrap();
            let dir = tx.lookup(tx.root(0), b"shared").unwrap().unwrap().0;
            let caller = Caller { uid: 7, gid: 8, umask: 0 };
            let name = tx.sub_area_name(7);
            let made = tx.mkdir(dir, &name, 0o700, caller).unwrap().1;
            assert_eq!((made.uid, made.gid, made.mode & 0o7777), (7, 8, 0o700));
            let other = tx.mkdir(dir, b"other", 0o700, caller).unwrap().1;
            assert_eq!((other.uid, other.gid, other.mode & 0o7777), (7, 50, 0o2700));
            tx.abort();
        });
        done.expect("lives");
    }
}
