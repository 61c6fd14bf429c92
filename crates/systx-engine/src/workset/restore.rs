//! Giving changes up: the working set as if they had not been made.
//!
//! Guarantees: what is left is a working set as verbs make one, so that planning and committing it need to know nothing of this;
//! what was read stays a fact. A staged directory that stays keeps its times and its mode. Does not: decide what to give up
//! ([`Part`]); undo what only the program could see meanwhile (times of committed directories whose names changed).

use super::data::Data;
use super::staging::NO_SLOT;
use super::Ix;
use crate::changes::part::Part;
use crate::facts::Name;
use crate::objects::remove_all;
use crate::outcome::Verb;
use crate::transaction::Transaction;
use std::collections::{HashMap, HashSet};
use systx_os::{FileType, Open, Os, Stat};

const OWNER_ALL: u32 = 0o700;

impl<O: Os> Transaction<O> {
    /// Gives up everything that is not in a part, which must have been chosen after the last verb.
    ///
    /// # Errors
    /// Of the file system. Then the transaction can only be aborted.
    pub fn keep_only(&mut self, part: &Part) -> Verb<()> {
        let mut names: Vec<_> = part.other_names().map(|(dir, name)| (dir, Name::from(name))).collect();
        // What is inside before what it is in.
        names.sort_by_cached_key(|(dir, name)| (std::cmp::Reverse(self.depth(*dir)), *dir, name.clone()));
        let gone = self.staged_directories_among(&names);
        let opened = self.open_up(&names, &gone)?;
        for (dir, name) in &names {
            self.give_up_name(*dir, name, &gone)?;
        }
        // All that leaves has left.
        for (dir, name) in &names {
            if let Some(before) = self.entry(*dir, name).and_then(|entry| entry.before) {
                self.name(*dir, name, before, NO_SLOT);
            }
        }
        let objects: Vec<_> = part.other_objects().collect();
        for ix in objects {
            self.give_up_object(ix)?;
        }
        self.close_again(opened, &gone)?;
        names.iter().for_each(|(dir, _)| self.forget_time(*dir));
        Ok(())
    }

    fn depth(&self, ix: Ix) -> usize {
        let (mut at, mut depth) = (ix, 0);
        while let Some((parent, _)) = self.object(at).names.first() {
            (at, depth) = (*parent, depth + 1);
        }
        depth
    }

    fn staged_directories_among(&self, names: &[(Ix, Name)]) -> HashSet<Ix> {
        let now = names.iter().filter_map(|(dir, name)| self.entry(*dir, name)?.now);
        now.filter(|ix| self.object(*ix).is_staged() && self.object(*ix).dir.is_some()).collect()
    }

    /// Makes staged directories such that names can be taken from them; what they were.
    fn open_up(&mut self, names: &[(Ix, Name)], gone: &HashSet<Ix>) -> Verb<HashMap<Ix, Stat>> {
        let mut affected: HashSet<Ix> = HashSet::new();
        for dir in names.iter().map(|(dir, _)| *dir).chain(gone.iter().copied()) {
            let mut at = dir;
            while self.object(at).is_staged() && affected.insert(at) {
                match self.object(at).names.first() {
                    Some((parent, _)) => at = *parent,
                    None => break,
                }
            }
        }
        // Without leave to search one, what is in it can't be reached.
        let mut affected: Vec<_> = affected.into_iter().collect();
        affected.sort_by_cached_key(|ix| (self.depth(*ix), *ix));
        let mut were = HashMap::new();
        for ix in affected {
            let fd = self.staged_dir(ix)?;
            let stat = self.os.stat(&fd)?;
            if self.os.uid() != 0 && stat.perm() & OWNER_ALL != OWNER_ALL {
                self.os.chmod(&fd, stat.perm() | OWNER_ALL)?;
            }
            were.insert(ix, stat);
        }
        Ok(were)
    }

    /// Gives staged directories that stay their modes and times back.
    fn close_again(&mut self, were: HashMap<Ix, Stat>, gone: &HashSet<Ix>) -> Verb<()> {
        let mut stay: Vec<_> = were.into_iter().filter(|(ix, _)| !gone.contains(ix)).collect();
        stay.sort_by_cached_key(|(ix, _)| (std::cmp::Reverse(self.depth(*ix)), *ix));
        for (ix, was) in stay {
            let fd = self.staged_dir(ix)?;
            if self.os.stat(&fd)?.perm() != was.perm() {
                self.os.chmod(&fd, was.perm())?;
            }
            self.os.utimens(&fd, None, Some(was.mtime))?;
        }
        Ok(())
    }

    /// Takes away what a name has got. Of a staged tree only the outermost name is really removed, with all of it.
    fn give_up_name(&mut self, dir: Ix, name: &[u8], gone: &HashSet<Ix>) -> Verb<()> {
        let Some(now) = self.entry(dir, name).and_then(|entry| entry.now) else { return Ok(()) };
        if self.object(now).is_staged() && !gone.contains(&dir) {
            let spot = self.spot_at(dir, name)?;
            if self.object(now).kind == FileType::Directory {
                let tree = self.os.open(&spot.dir, &spot.name, Open::Path)?;
                remove_all(&self.os, &tree)?;
                self.os.rmdir(&spot.dir, &spot.name)?;
            } else {
                self.os.unlink(&spot.dir, &spot.name)?;
            }
        }
        self.unname(dir, name);
        let object = self.object_mut(now);
        if object.names.is_empty() && object.is_staged() {
            object.file = None;
        }
        Ok(())
    }

    /// Makes bytes and attributes of an object the committed ones.
    fn give_up_object(&mut self, ix: Ix) -> Verb<()> {
        let (mount, slot) = (usize::from(self.object(ix).mount), self.object(ix).data.slot());
        if slot != NO_SLOT {
            let spot = self.slot_spot(mount, slot)?;
            self.os.unlink(&spot.dir, &spot.name)?;
        }
        let object = self.object_mut(ix);
        (object.file, object.read_only, object.over, object.data) = (None, false, None, Data::Base(None));
        if let Some(dir) = &mut object.dir {
            dir.default_acl = None;
        }
        Ok(())
    }

    /// A committed directory in which nothing changes any more has the time that it had.
    fn forget_time(&mut self, ix: Ix) {
        if let Some(dir) = &mut self.object_mut(ix).dir {
            if dir.names.values().all(|entry| entry.now == entry.before) {
                dir.changed = None;
            }
        }
    }
}
