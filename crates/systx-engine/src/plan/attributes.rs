//! Attributes that changed → ATTR. Times come last in every step, and children before their parents.

use super::{Draft, Ordered};
use crate::acl;
use crate::diff::{Diff, Edit, ObjectDiff};
use crate::id::ObjectId;
use crate::outcome::{Verb, VerbError};
use crate::plan::at_object;
use crate::plan::handle_of;
use crate::publish::power::{block_of, BytesHash};
use crate::record::{Act, Change, Step};
use crate::workset::node::Ix;
use crate::workset::Workset;
use systx_os::{Errno, FileType, FsKind, Os};

const PRIVILEGES: u32 = 0o6000;
const OWNER_WRITE: u32 = 0o200;

pub(super) fn plan_attributes<O: Os>(
    workset: &mut Workset<O>,
    diff: &Diff,
    draft: &mut Draft<O>,
) -> Verb<()> {
    for names in diff.names.chunk_by(|a, b| a.dir == b.dir) {
        let dir = names[0].dir;
        let changed = workset.object(dir).dir.as_ref().and_then(|dir| dir.changed);
        if changed.is_some() && !workset.is_gone(dir) {
            renew_time(workset, draft, dir);
        }
    }
    let mut all: Vec<Ix> = diff.objects.iter().map(|object| object.ix).collect();
    all.extend(diff.made.iter().filter(|ix| workset.object(**ix).dir.is_some()));
    all.extend(&draft.exchanged);
    all.sort_unstable();
    all.dedup();
    for ix in all {
        if draft.replaced.contains(&ix) || workset.is_gone(ix) {
            continue;
        }
        let staged =
            workset.object(ix).is_staged().then(|| staged_changes(workset, draft, ix)).transpose()?;
        let changes = staged.unwrap_or_else(|| lower_changes(workset, draft, ix, diff.object(ix)));
        if changes.is_empty() {
            continue;
        }
        let (at, handle) = (at_object(workset, draft, ix)?, handle_of(workset, ix)?);
        let is_file = workset.object(ix).kind == FileType::File;
        let gives_power = is_file && changes.iter().any(Change::gives_power);
        let power_over = if gives_power { hash_of(workset, draft, ix)? } else { None };
        let act = Act::Attr { object: handle, changes, power_over };
        draft.attrs.push(Ordered::new(Step { slot: Step::NO_SLOT, at, act }));
    }
    Ok(())
}

fn lower_changes<O: Os>(
    workset: &Workset<O>,
    draft: &mut Draft<O>,
    ix: Ix,
    diff: Option<&ObjectDiff>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let object = workset.object(ix);
    let Some(lower) = &object.lower else { return changes };
    let (stat, handle) = (lower.stat, lower.handle);
    let owner = diff.and_then(|diff| diff.owner);
    changes.extend(owner.map(|Edit { old, new }| Change::Owner { old, new }));
    let mut listed = false;
    let mut xattrs: Vec<_> = diff.into_iter().flat_map(|diff| &diff.xattrs).collect();
    // Changes that make room come first: a list that fits before and after fits at every moment between.
    let bytes = |value: &Option<Vec<u8>>| value.as_ref().map_or(-1, |v| v.len() as i64);
    xattrs.sort_by_key(|x| bytes(&x.now) - bytes(&x.before));
    for x in xattrs {
        listed |= *x.name == *acl::ACCESS && x.now.is_some();
        changes.push(Change::Xattr { name: x.name.to_vec(), old: x.before.clone(), new: x.now.clone() });
    }
    let new = diff.and_then(|diff| diff.mode).map_or(stat.perm(), |mode| mode.new);
    // A list that was set has changed the mode already.
    let old = if listed { stat.perm() & 0o7000 | new & 0o777 } else { stat.perm() };
    // chown(2) drops setuid and setgid, as does a patch by who may not set them.
    let dropped = owner.is_some() || (draft.patched.contains(&ix) && workset.os().uid() != 0);
    if new != old || (dropped && new & PRIVILEGES != 0) {
        changes.push(Change::Mode { old, new });
    }
    if !changes.is_empty() {
        draft.plan.written.push(ObjectId::attr(&handle));
    }
    // A directory that takes another one's place keeps its time, or has that at which the program changed names in it.
    let shown = object.dir.as_ref().and_then(|dir| dir.changed).unwrap_or(stat.mtime);
    let kept = draft.exchanged.contains(&ix).then_some(shown);
    // Writing the bytes moves the time, also where the program has set it back.
    let kept = kept.or_else(|| draft.patched.contains(&ix).then_some(stat.mtime));
    let mtime = diff.and_then(|diff| diff.mtime).map(|mtime| mtime.new).or(kept);
    // By pages it moves by itself: others that write to the file meanwhile move it, too.
    let mtime = mtime.filter(|_| !draft.by_pages.contains(&ix));
    let atime = diff.and_then(|diff| diff.atime).map(|atime| atime.new);
    if atime.is_some() || mtime.is_some() {
        changes.push(Change::Times { atime, mtime, before: stat.mtime });
        if object.kind == FileType::File && mtime.is_some() {
            draft.plan.written.extend(ObjectId::whole(&handle));
        }
    }
    changes
}

/// Notes the time that the program saw of a committed directory, for the case that a step changes a name in
/// it. One that it has set itself is an attribute.
pub(super) fn renew_time<O: Os>(workset: &Workset<O>, draft: &mut Draft<O>, ix: Ix) {
    let object = workset.object(ix);
    let (Some(lower), Some(dir)) = (&object.lower, &object.dir) else { return };
    let set = object.over.as_ref().is_some_and(|over| over.mtime.is_some()) || draft.exchanged.contains(&ix);
    // The time of another user's can't be set. In a view it would count as set by the program, whatever others do.
    let mine = [0, lower.stat.uid].contains(&workset.os().uid());
    let view = matches!(workset.mounts()[draft.mount].info.kind, FsKind::Other(_));
    if !set && mine && !view {
        let shown = dir.changed.unwrap_or(lower.stat.mtime);
        draft.renewed.insert(lower.handle, (shown, lower.stat.mtime));
    }
}

/// Hash of a file's bytes as the program sees them: what stands in the committed file is read by that, and
/// compared. `None`: they can't be read, by a user who owns the file.
fn hash_of<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ix: Ix) -> Verb<Option<[u8; 32]>> {
    draft.now = Some(ix);
    workset.whole(ix)?;
    let size = workset.attr(ix)?.size;
    let hash = BytesHash::of(size, |bytes, at| {
        let at = block_of(workset.next_data(ix, at)?).min(size);
        let len = bytes.len().min((size - at) as usize);
        Ok((at, workset.read_bytes(ix, &mut bytes[..len], at)?))
    });
    draft.now = None;
    match hash {
        Err(VerbError::Os(Errno::ACCESS)) => Ok(None),
        hash => hash.map(Some),
    }
}

/// Returns what publishing itself would change of a staged directory, or what would keep it from being
/// published.
fn staged_changes<O: Os>(workset: &mut Workset<O>, draft: &Draft<O>, ix: Ix) -> Verb<Vec<Change>> {
    let object = workset.object(ix);
    let Some(dir) = &object.dir else { return Ok(Vec::new()) };
    let gets_lower = dir.names.values().any(|e| e.now.is_some_and(|now| !workset.object(now).is_staged()));
    let in_slot = object.names.first().is_some_and(|(parent, _)| !workset.object(*parent).is_staged());
    let remembered = object.over.as_ref().and_then(|o| o.mode);
    let mut changes = Vec::new();
    let times = gets_lower || draft.exchanged.contains(&ix);
    if !times && (!in_slot || workset.os().uid() == 0) {
        return Ok(changes);
    }
    let stat = workset.staged_stat(ix)?;
    let wanted = remembered.unwrap_or(stat.perm());
    // To move a directory from one to another its owner must be able to write to it.
    if workset.os().uid() != 0 && wanted & OWNER_WRITE == 0 {
        let old = wanted | OWNER_WRITE;
        let fd = workset.staged_dir(ix)?;
        workset.os().chmod(&fd, old)?;
        workset.object_mut(ix).over_mut().mode = Some(wanted);
        changes.push(Change::Mode { old, new: wanted });
    }
    if times {
        changes.push(Change::Times { atime: None, mtime: Some(stat.mtime), before: stat.mtime });
    }
    Ok(changes)
}
