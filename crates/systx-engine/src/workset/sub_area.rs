//! Areas of subtransactions: directories of this transaction's tree that are found by name and are in no list.
//!
//! Owns: which names they have, and where such a name leads. A subtransaction runs over the view of this one, and needs an area in
//! the directory that it has for a root. Guarantees: such a directory is in no listing, no difference and no plan, it moves no time,
//! and a commit is refused while there is one: what a subtransaction has put into place in part is in it. Does not: know what is
//! in one; to a subtransaction it is an ordinary directory.

use super::names::Entry;
use super::Ix;
use crate::facts::Name;
use crate::outcome::Verb;
use crate::publish::reclaim::remove_all;
use crate::transaction::{Node, Transaction};
use systx_os::{Errno, Open, Os};

/// What the name of such a directory begins with; the number of its user follows.
pub const PREFIX: &str = ".systx.sub-";

/// Whether a name is one of an area of a subtransaction.
pub fn is_sub_area(name: &[u8]) -> bool {
    let user = name.strip_prefix(PREFIX.as_bytes());
    user.is_some_and(|user| !user.is_empty() && user.iter().all(u8::is_ascii_digit))
}

impl<O: Os> Transaction<O> {
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

    /// Such directories go with the one that they are in. Whoever works in there has lost all that he works on.
    ///
    /// # Errors
    /// `EBUSY` while something of the committed tree is in there, on its way to somewhere else.
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

    /// Whether an object is in such a directory, or is one.
    pub(crate) fn is_in_sub_area(&self, ix: Ix) -> bool {
        if self.sub_areas.is_empty() {
            return false;
        }
        let mut at = ix;
        while let Some((parent, name)) = self.object(at).names.first() {
            if is_sub_area(name) {
                return true;
            }
            at = *parent;
        }
        false
    }

    /// Whether an object stands directly in such a directory: its table, for instance.
    pub(crate) fn is_of_sub_area(&self, ix: Ix) -> bool {
        let holds = |dir: Ix| self.sub_areas.iter().any(|(.., entry)| entry.now == Some(dir));
        self.object(ix).names.first().is_some_and(|(dir, _)| holds(*dir))
    }

    /// The paths of such directories on a mount, from its root.
    pub fn sub_areas(&self, root: Node) -> Vec<Vec<u8>> {
        let mount = self.object(self.ix(root)).mount;
        let here = self.sub_areas.iter().filter_map(|(.., entry)| entry.now);
        here.filter(|ix| self.object(*ix).mount == mount).map(|ix| self.path(ix)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Domain, Location};
    use crate::outcome::Options;
    use crate::transaction::Caller;
    use std::sync::Arc;
    use systx_os::FsKind;
    use systx_sim::machine::{run_process, Machine};

    #[test]
    fn the_name_of_an_area_has_a_users_number() {
        assert!(is_sub_area(b".systx.sub-0") && is_sub_area(b".systx.sub-1000"));
        for other in [&b".systx.sub-"[..], b".systx.sub", b".systx.sub-0x", b".systx", b"a.systx.sub-0"] {
            assert!(!is_sub_area(other));
        }
    }

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
            let site = Location { root: root.clone(), parent: &*root, name: b".systx" };
            let domain = Domain::open(&os, site).unwrap();
            let mut tx = Transaction::begin(os.clone(), vec![domain], Options::default()).unwrap();
            let dir = tx.lookup(tx.root(0), b"shared").unwrap().unwrap().0;
            let caller = Caller { uid: 7, gid: 8, umask: 0 };
            let made = tx.mkdir(dir, b".systx.sub-7", 0o700, caller).unwrap().1;
            assert_eq!((made.uid, made.gid, made.mode & 0o7777), (7, 8, 0o700));
            let other = tx.mkdir(dir, b"other", 0o700, caller).unwrap().1;
            assert_eq!((other.uid, other.gid, other.mode & 0o7777), (7, 50, 0o2700));
            tx.abort();
        });
        done.expect("lives");
    }
}
