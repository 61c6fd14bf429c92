//! Giving changes up: the working set as if they had not been made.
//!
//! Guarantees: what is left is a working set as verbs make one, so that planning and committing it need to
//! know nothing of this; what was read stays a fact. A staged directory that stays keeps its times and its
//! mode. Does not: decide what to give up ([`Part`]); undo what only the program could see meanwhile (times
//! of committed directories whose names changed).

use super::part::Part;
use crate::facts::Name;
use crate::objects::remove_all;
use crate::outcome::Verb;
use crate::paths::depth;
use crate::transaction::Transaction;
use crate::workset::node::{Data, Ix, NO_SLOT};
use crate::workset::Workset;
use std::collections::{HashMap, HashSet};
use systx_os::{FileType, Open, Os, Stat};

const OWNER_ALL: u32 = 0o700;

impl<O: Os> Transaction<O> {
    /// Gives up everything that is not in a part, which must have been chosen after the last verb.
    ///
    /// # Errors
    /// Of the file system. Then the transaction can only be aborted.
    pub fn keep_only(&mut self, part: &Part) -> Verb<()> {
        self.ours()?;
        let mut names: Vec<_> = part.other_names().map(|(dir, name)| (dir, Name::from(name))).collect();
        // Objects inside a directory before the directory.
        names.sort_by_cached_key(|(dir, name)| {
            (std::cmp::Reverse(depth(&self.workset.path(*dir))), *dir, name.clone())
        });
        let gone = staged_directories_among(&self.workset, &names);
        let opened = open_up(&mut self.workset, &names, &gone)?;
        for (dir, name) in &names {
            give_up_name(&mut self.workset, *dir, name, &gone)?;
        }
        // All that leaves has left.
        for (dir, name) in &names {
            if let Some(before) = self.workset.entry(*dir, name).and_then(|entry| entry.before) {
                self.workset.name(*dir, name, before, NO_SLOT);
            }
        }
        let objects: Vec<_> = part.other_objects().collect();
        for ix in objects {
            give_up_object(&mut self.workset, ix)?;
        }
        close_again(&mut self.workset, opened, &gone)?;
        names.iter().for_each(|(dir, _)| forget_time(&mut self.workset, *dir));
        Ok(())
    }
}

fn staged_directories_among<O: Os>(workset: &Workset<O>, names: &[(Ix, Name)]) -> HashSet<Ix> {
    let now = names.iter().filter_map(|(dir, name)| workset.entry(*dir, name)?.now);
    now.filter(|ix| workset.object(*ix).is_staged() && workset.object(*ix).dir.is_some()).collect()
}

/// Makes staged directories such that names can be taken from them; what they were.
fn open_up<O: Os>(
    workset: &mut Workset<O>,
    names: &[(Ix, Name)],
    gone: &HashSet<Ix>,
) -> Verb<HashMap<Ix, Stat>> {
    let mut affected: HashSet<Ix> = HashSet::new();
    for dir in names.iter().map(|(dir, _)| *dir).chain(gone.iter().copied()) {
        let mut at = dir;
        while workset.object(at).is_staged() && affected.insert(at) {
            match workset.object(at).names.first() {
                Some((parent, _)) => at = *parent,
                None => break,
            }
        }
    }
    // Without leave to search one, what is in it can't be reached.
    let mut affected: Vec<_> = affected.into_iter().collect();
    affected.sort_by_cached_key(|ix| (depth(&workset.path(*ix)), *ix));
    let mut were = HashMap::new();
    for ix in affected {
        let fd = workset.staged_dir(ix)?;
        let stat = workset.os().stat(&fd)?;
        if workset.os().uid() != 0 && stat.perm() & OWNER_ALL != OWNER_ALL {
            workset.os().chmod(&fd, stat.perm() | OWNER_ALL)?;
        }
        were.insert(ix, stat);
    }
    Ok(were)
}

/// Gives staged directories that stay their modes and times back.
fn close_again<O: Os>(workset: &mut Workset<O>, were: HashMap<Ix, Stat>, gone: &HashSet<Ix>) -> Verb<()> {
    let mut stay: Vec<_> = were.into_iter().filter(|(ix, _)| !gone.contains(ix)).collect();
    stay.sort_by_cached_key(|(ix, _)| (std::cmp::Reverse(depth(&workset.path(*ix))), *ix));
    for (ix, was) in stay {
        let fd = workset.staged_dir(ix)?;
        if workset.os().stat(&fd)?.perm() != was.perm() {
            workset.os().chmod(&fd, was.perm())?;
        }
        workset.os().utimens(&fd, None, Some(was.mtime))?;
    }
    Ok(())
}

/// Takes away what a name has got. Of a staged tree only the outermost name is really removed, with all of it.
fn give_up_name<O: Os>(workset: &mut Workset<O>, dir: Ix, name: &[u8], gone: &HashSet<Ix>) -> Verb<()> {
    let Some(now) = workset.entry(dir, name).and_then(|entry| entry.now) else { return Ok(()) };
    if workset.object(now).is_staged() && !gone.contains(&dir) {
        let spot = workset.spot_at(dir, name)?;
        if workset.object(now).kind == FileType::Directory {
            let tree = workset.os().open(&spot.dir, &spot.name, Open::Path)?;
            remove_all(workset.os(), &tree)?;
            workset.os().rmdir(&spot.dir, &spot.name)?;
        } else {
            workset.os().unlink(&spot.dir, &spot.name)?;
        }
    }
    workset.unname(dir, name);
    let object = workset.object_mut(now);
    if object.names.is_empty() && object.is_staged() {
        object.file = None;
    }
    Ok(())
}

/// Makes bytes and attributes of an object the committed ones.
fn give_up_object<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<()> {
    let (mount, slot) = (usize::from(workset.object(ix).mount), workset.object(ix).data.slot());
    if slot != NO_SLOT {
        let spot = workset.slot_spot(mount, slot)?;
        workset.os().unlink(&spot.dir, &spot.name)?;
    }
    let object = workset.object_mut(ix);
    (object.file, object.read_only, object.over, object.data) = (None, false, None, Data::Base(None));
    if let Some(dir) = &mut object.dir {
        dir.default_acl = None;
    }
    Ok(())
}

/// A committed directory in which nothing changes any more has the time that it had.
fn forget_time<O: Os>(workset: &mut Workset<O>, ix: Ix) {
    if let Some(dir) = &mut workset.object_mut(ix).dir {
        if dir.names.values().all(|entry| entry.now == entry.before) {
            dir.changed = None;
        }
    }
}
