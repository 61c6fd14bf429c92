//! The plan of a commit in one domain: the contract between the working set and the commit protocol.
//!
//! Owns: [`Plan`], and the planner that makes one of the changes: names (`names`), bytes (`data`), attributes
//! (`attributes`), and the choice of staged objects that ride in the record (`small`). Guarantees: planning
//! changes nothing that a program can see, and may be repeated. The path in each step's
//! [`At`] is the one at which the directory stands when the step's turn comes: TAKEs name
//! the paths of the committed tree, all others those that the program sees.

mod attributes;
mod data;
mod names;
mod small;

use crate::diff::Diff;
use crate::id::ObjectId;
use crate::objects::Directories;
use crate::outcome::{CommitError, Verb, VerbError};
use crate::paths::depth;
use crate::plan::attributes::plan_attributes;
use crate::plan::data::plan_data;
use crate::plan::names::plan_names;
use crate::plan::small::plan_small;
use crate::publish::times::changes_a_name;
use crate::publish::tokens::Token;
use crate::record::{At, DirectoryTime, Step, SECTOR_BYTES};
use crate::workset::node::{Ix, Reach};
use crate::workset::Workset;
use std::collections::{HashMap, HashSet};
use systx_os::{Errno, Handle, Os, Timestamp};

/// Bytes of patches that may ride in the records of one transaction.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Everything the commit protocol has to know of one domain's part of a transaction.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In publication order (docs/protocol.md §3, U).
    pub steps: Vec<Step>,
    /// W.
    pub written: Vec<ObjectId>,
    /// C.
    pub commuting: Vec<ObjectId>,
    /// Slots that start as a token, and of which type.
    pub tokens: Vec<(u32, Token)>,
    /// Objects in slots that must survive a power loss before the record may be written, i.e. all staged
    /// objects but those whose step carries them whole.
    pub staged: Staged,
    /// Where the committed directories and files that steps name stand before anything is published. (A
    /// step's own path is the one at its turn, when what moves has moved.) A directory's name is empty.
    pub places: HashMap<Handle, At>,
    /// Staged directories that steps name: they stand nowhere yet.
    pub made: HashSet<Handle>,
    /// Times that committed directories get in which steps change names.
    pub times: Vec<DirectoryTime>,
    /// Bytes appended to files whose ends were not seen: their PATCHes get their ranges when the ends are known.
    pub appends: HashMap<Handle, Vec<u8>>,
    /// Slots with private bytes that no step needs. They may be unlinked when the outcome is known.
    pub unused: Vec<u32>,
    /// Something that is taken out had more names than one.
    pub linked: bool,
}

/// How much is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Regular files whose contents are needed from the slots.
    pub files: u64,
    /// Other objects: directories, links, nodes.
    pub others: u64,
}

/// A plan on its way: steps by phase, each with what it is ordered by.
struct Draft<O: Os> {
    mount: usize,
    plan: Plan,
    /// The committed directories of steps that are open already.
    directories: Directories<O>,
    /// TAKEs, and REMOVEs of names that a LINK gets: deepest first.
    takes: Vec<Ordered>,
    /// PLACEs and REPLACEs: outermost first.
    places: Vec<Ordered>,
    /// LINKs, when all directories are in place.
    links: Vec<Ordered>,
    patches: Vec<Step>,
    removes: Vec<Ordered>,
    /// Deepest first.
    attrs: Vec<Ordered>,
    /// Bytes that may still be inlined.
    inline_left: usize,
    /// Patches and replacements that take bytes from slots.
    slot_patches: Staged,
    /// Files changed in place.
    patched: HashSet<Ix>,
    /// Those of which single pages are, whatever becomes of the rest.
    by_pages: HashSet<Ix>,
    /// Files whose private copy takes their place: it has their attributes already.
    replaced: HashSet<Ix>,
    /// Directories that come by a REPLACE: xfs moves the time of what is exchanged between directories.
    exchanged: HashSet<Ix>,
    /// Times that the program saw of committed directories whose names change, perhaps: as it is to be, and as it was.
    renewed: HashMap<Handle, (Timestamp, Timestamp)>,
    /// The object whose data are being planned, for messages.
    now: Option<Ix>,
}

/// A step with the depth of its directory.
struct Ordered {
    depth: usize,
    step: Step,
}

impl Ordered {
    fn new(step: Step) -> Ordered {
        Ordered { depth: depth(&step.at.path), step }
    }
}

impl<O: Os> Draft<O> {
    fn new(mount: usize, inline_left: usize) -> Draft<O> {
        Draft {
            mount,
            plan: Plan::default(),
            directories: Directories::default(),
            takes: Vec::new(),
            places: Vec::new(),
            links: Vec::new(),
            patches: Vec::new(),
            removes: Vec::new(),
            attrs: Vec::new(),
            inline_left,
            slot_patches: Staged::default(),
            patched: HashSet::new(),
            by_pages: HashSet::new(),
            replaced: HashSet::new(),
            exchanged: HashSet::new(),
            renewed: HashMap::new(),
            now: None,
        }
    }

    fn finish(mut self) -> (Plan, Directories<O>) {
        let by_place = |a: &Ordered, b: &Ordered| {
            (&a.step.at.path, &a.step.at.name).cmp(&(&b.step.at.path, &b.step.at.name))
        };
        self.takes.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| by_place(a, b)));
        self.places.sort_by(|a, b| a.depth.cmp(&b.depth).then_with(|| by_place(a, b)));
        self.links.sort_by(by_place);
        self.removes.sort_by(by_place);
        self.attrs.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| by_place(a, b)));
        if let Some(first) = self.links.first() {
            self.plan.tokens.push((first.step.slot, Token::Links));
        }
        let steps = &mut self.plan.steps;
        steps.extend(self.takes.into_iter().chain(self.places).chain(self.links).map(|o| o.step));
        steps.append(&mut self.patches);
        steps.extend(self.removes.into_iter().chain(self.attrs).map(|o| o.step));
        // Of the last step in each, as that names where it stands in the end.
        let mut renewed = self.renewed;
        for (n, step) in steps.iter().enumerate().rev().filter(|(_, step)| changes_a_name(step)) {
            if let Some((mtime, before)) = renewed.remove(&step.at.dir) {
                self.plan.times.push(DirectoryTime { step: n as u32, mtime, before });
            }
        }
        self.plan.times.reverse();
        for ids in [&mut self.plan.written, &mut self.plan.commuting] {
            ids.sort_unstable();
            ids.dedup();
        }
        (self.plan, self.directories)
    }
}

/// Returns the changes to publish, one plan a mount, and which of its directories are open.
///
/// # Errors
///
/// `Conflict` when the committed tree is seen to have changed, `Failed` when it can't be read or something
/// can't be staged; nothing was changed.
pub(crate) fn plan<O: Os>(workset: &mut Workset<O>) -> Result<Vec<(Plan, Directories<O>)>, CommitError> {
    if workset.has_sub_areas() {
        return Err(CommitError::Refused("a subtransaction was not finished".into()));
    }
    workset.forget_unread_names();
    let mut inline_left = INLINE_BYTES_MAX;
    let mut plans = Vec::with_capacity(workset.mounts().len());
    let mut diffs = Diff::of(workset).map_err(|(ix, error)| failed(workset, Some(ix), error))?;
    if makes_whole(workset, &diffs).map_err(|error| failed(workset, None, error))? {
        diffs = Diff::of(workset).map_err(|(ix, error)| failed(workset, Some(ix), error))?;
    }
    for (mount, diff) in diffs.iter().enumerate() {
        let mut draft = Draft::new(mount, inline_left);
        fill(workset, diff, &mut draft).map_err(|error| failed(workset, draft.now, error))?;
        inline_left = draft.inline_left;
        plans.push(draft.finish());
    }
    Ok(plans)
}

/// Makes the files that are moved or removed facts as a whole: the steps compare them as such; and those that are
/// appended to unseen and changed otherwise, too, or by more than records carry. Of those whose last sector is written
/// that the end cuts the size: the record knows it as far as the file goes. Returns true if one was none.
fn makes_whole<O: Os>(workset: &mut Workset<O>, diffs: &[Diff]) -> Verb<bool> {
    let moves = diffs.iter().flat_map(|diff| &diff.moves);
    let moved = moves.filter(|(_, moves)| !moves.lost.is_empty()).map(|(ix, _)| *ix);
    let objects = || diffs.iter().flat_map(|diff| &diff.objects).map(|object| object.ix);
    let ends: Vec<Ix> = objects().filter(|ix| workset.writes_end(*ix) && !workset.knows_size(*ix)).collect();
    let mut room = INLINE_BYTES_MAX;
    let appended = objects().filter(|ix| {
        let Some(bytes) = workset.appended(*ix) else { return false };
        let left = room.checked_sub(bytes.len() + SECTOR_BYTES);
        room = left.unwrap_or(room);
        left.is_none() || workset.object(*ix).over.is_some()
    });
    let by_pages: Vec<Ix> = moved.chain(appended).filter(|ix| workset.goes_by_pages(*ix)).collect();
    by_pages.iter().try_for_each(|ix| workset.whole(*ix))?;
    ends.iter().try_for_each(|ix| workset.sized(*ix))?;
    Ok(!by_pages.is_empty() || !ends.is_empty())
}

fn failed<O: Os>(workset: &Workset<O>, at: Option<Ix>, error: VerbError) -> CommitError {
    let error = match error {
        VerbError::Os(error) => error,
        VerbError::Doomed(conflict) => return CommitError::Conflict(conflict),
    };
    let lower = at.and_then(|ix| workset.object(ix).lower.as_ref());
    match lower.map(|lower| workset.facts().shown(lower.fact)) {
        Some(path) => CommitError::Failed { doing: "preparing the commit of", path, error },
        None => CommitError::Failed { doing: "preparing the commit", path: Vec::new(), error },
    }
}

/// Plans everything of one mount.
fn fill<O: Os>(workset: &mut Workset<O>, diff: &Diff, draft: &mut Draft<O>) -> Verb<()> {
    plan_names(workset, diff, draft)?;
    plan_data(workset, diff, draft)?;
    plan_attributes(workset, diff, draft)?;
    plan_small(workset, diff, draft)
}

/// A name as it will be.
fn at_now<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, dir: Ix, name: &[u8]) -> Verb<At> {
    let handle = handle_of(workset, dir)?;
    if workset.object(dir).is_staged() {
        draft.plan.made.insert(handle);
    } else {
        placed_dir(workset, draft, dir)?;
    }
    Ok(At { dir: handle, path: workset.path(dir), name: name.to_vec() })
}

/// A name of the committed tree.
fn at_before<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, dir: Ix, name: &[u8]) -> Verb<At> {
    placed_dir(workset, draft, dir)?;
    let base = workset.lower_dir(dir)?;
    Ok(At { dir: base.handle, path: base.path.clone(), name: name.to_vec() })
}

/// Notes where a committed directory stands.
fn placed_dir<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, dir: Ix) -> Verb<()> {
    let base = workset.lower_dir(dir)?;
    let place = || At { dir: base.handle, path: base.path.clone(), name: Vec::new() };
    draft.plan.places.entry(base.handle).or_insert_with(place);
    if let Some(fd) = base.kept() {
        draft.directories.keep(base.handle, fd);
    }
    Ok(())
}

/// Notes where a committed object stands.
fn placed_object<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ix: Ix) -> Verb<()> {
    let object = workset.object(ix);
    let Some(lower) = &object.lower else { return Ok(()) };
    if object.dir.is_some() {
        return placed_dir(workset, draft, ix);
    }
    let (dir, name) = workset.facts().place(lower.fact);
    let place = || At { dir: dir.handle, path: dir.path.clone(), name: name.to_vec() };
    draft.plan.places.entry(lower.handle).or_insert_with(place);
    Ok(())
}

/// One name of an object as it will be when all names are published.
fn at_object<O: Os>(workset: &mut Workset<O>, draft: &mut Draft<O>, ix: Ix) -> Verb<At> {
    placed_object(workset, draft, ix)?;
    if workset.is_root(ix) {
        return at_now(workset, draft, ix, b"");
    }
    if let Some((dir, name)) = workset.object(ix).names.first().cloned() {
        return at_now(workset, draft, dir, &name);
    }
    // It lives on by names that the program never touched; found by handle, or under the name that goes last.
    first_place(workset, ix)
}

/// The name under which a committed object was first touched: it stands there before any step is taken.
fn first_place<O: Os>(workset: &Workset<O>, ix: Ix) -> Verb<At> {
    let Some(lower) = &workset.object(ix).lower else { return Err(Errno::STALE.into()) };
    let (dir, name) = workset.facts().place(lower.fact);
    Ok(At { dir: dir.handle, path: dir.path.clone(), name: name.to_vec() })
}

/// Identity of an object, staged or not.
fn handle_of<O: Os>(workset: &mut Workset<O>, ix: Ix) -> Verb<Handle> {
    if let Some(lower) = &workset.object(ix).lower {
        return Ok(lower.handle);
    }
    let object = workset.object(ix);
    match (&object.file, object.dir.as_ref().map(|dir| &dir.staged)) {
        (Some(fd), _) | (_, Some(Reach::Open(fd))) => return Ok(workset.os().handle(fd)?),
        (_, Some(Reach::Handle(handle))) => return Ok(**handle),
        _ => {}
    }
    let spot = workset.spot(ix)?;
    Ok(workset.os().handle_at(&spot.dir, &spot.name)?)
}
