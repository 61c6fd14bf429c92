//! The rule of chains: the steps that a redo leaves out because an outsider came between two records that
//! change the same.
//!
//! Where a record's *after* is not the *before* of the next one on the same file or attributes, an outsider
//! has changed them between the two commits, and the later one has synced what it built on (C10). So the disk
//! has the outsider's state or a later one, and the steps of the earlier record, and of all before it, can
//! only be mistaken: the outsider may have restored just what they expect. (Names need no such rule: their
//! staging entries, synced with them, show that the steps were taken.)
//!
//! Guarantees: a step is left out only where the difference is certain; whatever the records don't show
//! counts as no difference. Does not: notice what an outsider restored if no later record has changed it.

use crate::acl;
use crate::bytes::{read_up_to, sector_crc};
use crate::domain::Area;
use crate::log::{LogError, Understood};
use crate::mutant::{self, Mutant};
use crate::objects::slot_name;
use crate::record::{Act, Before, Body, Change, Patch, PatchRange, Small, Source, SECTOR_BYTES};
use std::collections::HashMap;
use systx_os::{Errno, Handle, Open, Os};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Sectors of which is remembered what a later record expects; of more, it is not known.
const SECTORS_MAX: usize = 1 << 20;

/// Up to which record, by its place in the log, steps are left out.
#[derive(Default)]
pub(super) struct Chains {
    bytes: HashMap<Handle, Vec<(usize, Span)>>,
    attributes: HashMap<Handle, usize>,
    /// How many records change the bytes of a file, or make it.
    changes: HashMap<Handle, usize>,
    /// Bytes that records write to a file: the record, and from where to where.
    written: HashMap<Handle, Vec<(usize, std::ops::Range<u64>)>>,
}

impl Chains {
    /// Whether one record alone changes the bytes of a file.
    pub fn is_only(&self, file: &Handle) -> bool {
        self.changes.get(file) == Some(&1)
    }

    /// Returns true if a record behind the `n`th writes the byte of a file that is at this place.
    pub fn is_written_later(&self, n: usize, file: &Handle, at: u64) -> bool {
        let written = self.written.get(file).map(Vec::as_slice).unwrap_or_default();
        written.iter().any(|(by, bytes)| *by > n && bytes.contains(&at))
    }

    /// Returns true if the `n`th record leaves what a step of it would change as it is.
    ///
    /// All records before the break are, not only the last one: the state that one found may be there again.
    pub fn leave(&self, n: usize, act: &Act) -> bool {
        let reaches = |until: usize| n == until || (n < until && !mutant::on(Mutant::ShortChains));
        match act {
            Act::Patch(patch) => {
                let ends = self.bytes.get(&patch.file).map(Vec::as_slice).unwrap_or_default();
                ends.iter().any(|(until, span)| reaches(*until) && span.meets(&Span::of(patch)))
            }
            Act::Attr { object, .. } => self.attributes.get(object).is_some_and(|until| reaches(*until)),
            _ => false,
        }
    }

    /// Of all records that are to be redone, from the last to the first. `goes`: whether a record with a body
    /// is one of them.
    pub fn of<O: Os>(
        os: &O,
        area: &Area<O>,
        records: &Understood<O>,
        goes: &mut dyn FnMut(usize, &Body) -> bool,
    ) -> Result<Chains, LogError> {
        let mut chains = Chains::default();
        // Looking for chains reads all records, too.
        if mutant::on(Mutant::NoChains) || mutant::on(Mutant::RedoBeforeUnderstood) {
            return Ok(chains);
        }
        let mut next = Next::default();
        // From the last to the first: each record is compared with what those behind it expect to find.
        for n in (0..records.replay().records.len()).rev() {
            let Some(body) = records.body(os, n)?.filter(|body| goes(n, body)) else { continue };
            for step in &body.steps {
                match &step.act {
                    Act::Patch(patch) => {
                        let slot = || {
                            let name = body.id.to_string();
                            let dir = os.open(&area.tx, name.as_bytes(), Open::Directory)?;
                            os.open(&dir, &slot_name(step.slot), Open::Read)
                        };
                        // A record before one that is left out is left out, too: that one may have restored what it expects.
                        if chains.leave(n, &step.act) {
                            chains.bytes.entry(patch.file).or_default().push((n, Span::of(patch)));
                        } else if next.patch_differs(os, patch, slot) {
                            chains.end_bytes(n, patch);
                        }
                        // After the comparison: from here on this record's *before* is what an earlier one must leave.
                        next.expects_patch(patch);
                        let bytes =
                            patch.ranges.iter().map(|range| (n, range.offset..range.offset + range.len));
                        chains.written.entry(patch.file).or_default().extend(bytes);
                        *chains.changes.entry(patch.file).or_default() += 1;
                    }
                    Act::Place { small: Some(Small { handle, .. }) } | Act::Replace { ours: handle, .. } => {
                        *chains.changes.entry(*handle).or_default() += 1;
                    }
                    Act::Attr { object, changes, .. } => {
                        if next.attributes_differ(object, changes) {
                            chains.end_attributes(n, *object);
                        }
                        next.expects_attributes(object, changes);
                    }
                    _ => {}
                }
            }
        }
        Ok(chains)
    }

    fn end_bytes(&mut self, n: usize, patch: &Patch) {
        self.bytes.entry(patch.file).or_default().push((n, Span::of(patch)));
        // An outsider that changed the bytes may have changed the attributes between the same two records.
        self.end_attributes(n, patch.file);
    }

    fn end_attributes(&mut self, n: usize, object: Handle) {
        // The first that is met is the last one of the log.
        self.attributes.entry(object).or_insert(n);
    }
}

/// The part of a file that a patch is about. A record of other pages may be published after one behind it in the log has
/// found the file changed, and need not be on the disk.
enum Span {
    All,
    Pages(Vec<u64>),
}

impl Span {
    fn of(patch: &Patch) -> Span {
        match patch.by_pages {
            Some(_) if !mutant::on(Mutant::ChainsOfFiles) => Span::Pages(patch.pages().collect()),
            _ => Span::All,
        }
    }

    fn meets(&self, other: &Span) -> bool {
        match (self, other) {
            (Span::Pages(pages), Span::Pages(others)) => pages.iter().any(|page| others.contains(page)),
            _ => true,
        }
    }
}

/// The expectation of the next record, as far as one has been met.
#[derive(Default)]
struct Next {
    sizes: HashMap<Handle, u64>,
    sectors: HashMap<Handle, HashMap<u64, u32>>,
    known: usize,
    modes: HashMap<Handle, u32>,
    owners: HashMap<Handle, (u32, u32)>,
    xattrs: HashMap<(Handle, Vec<u8>), Option<Vec<u8>>>,
}

impl Next {
    /// Returns true if a later record has found other bytes, or another size, than this one left.
    fn patch_differs<O: Os>(&self, os: &O, patch: &Patch, slot: impl Fn() -> Result<O::Fd, Errno>) -> bool {
        let sized = patch.by_pages.is_none();
        if sized && self.sizes.get(&patch.file).is_some_and(|size| *size != patch.size_after) {
            return true;
        }
        let Some(expected) = self.sectors.get(&patch.file).filter(|sectors| !sectors.is_empty()) else {
            return false;
        };
        let mut from = None;
        patch.ranges.iter().any(|range| {
            sectors(range).any(|sector| {
                let Some(expected) = expected.get(&sector) else { return false };
                let skip = (sector * SECTOR - range.offset) as usize;
                let len = SECTOR_BYTES.min(range.len as usize - skip);
                let left = match &range.source {
                    Source::Hole => Some(sector_crc(&[])),
                    Source::Inline(bytes) => bytes.get(skip..skip + len).map(sector_crc),
                    Source::Slot => {
                        let slot = from.get_or_insert_with(|| slot().ok()).as_ref();
                        let mut bytes = [0; SECTOR_BYTES];
                        slot.filter(|slot| {
                            read_up_to(os, slot, &mut bytes[..len], sector * SECTOR) == Ok(len)
                        })
                        .map(|_| sector_crc(&bytes[..len]))
                    }
                };
                left.is_some_and(|left| left != *expected)
            })
        })
    }

    fn expects_patch(&mut self, patch: &Patch) {
        if patch.by_pages.is_none() {
            self.sizes.insert(patch.file, patch.size_before);
        }
        let sectors_of = self.sectors.entry(patch.file).or_default();
        for range in &patch.ranges {
            for (n, sector) in sectors(range).enumerate() {
                let expected = match &range.before {
                    Before::Zeros => Some(sector_crc(&[])),
                    Before::Sectors(crcs) => crcs.get(n).copied(),
                };
                match expected.filter(|_| self.known < SECTORS_MAX) {
                    Some(crc) => self.known += usize::from(sectors_of.insert(sector, crc).is_none()),
                    None => self.known -= usize::from(sectors_of.remove(&sector).is_some()),
                }
            }
        }
        // The bytes that it cuts off may have been anything, and of the sector at the end only the rest is
        // known.
        if patch.size_after < patch.size_before {
            let before = sectors_of.len();
            sectors_of.retain(|sector, _| (sector + 1) * SECTOR <= patch.size_after);
            self.known -= before - sectors_of.len();
        }
    }

    fn attributes_differ(&self, object: &Handle, changes: &[Change]) -> bool {
        // An access control list changes the mode with it, so each shows less than it seems.
        let listed = sets_list(changes);
        changes.iter().any(|change| match change {
            // chown(2) and writes drop the bits above.
            Change::Mode { new, .. } if !listed => {
                self.modes.get(object).is_some_and(|mode| mode & 0o1777 != new & 0o1777)
            }
            Change::Owner { new, .. } => self.owners.get(object).is_some_and(|owner| owner != new),
            Change::Xattr { name, new, .. } if is_plain(name) => {
                self.xattrs.get(&(*object, name.clone())).is_some_and(|value| value != new)
            }
            Change::Mode { .. } | Change::Xattr { .. } | Change::Times { .. } => false,
        })
    }

    fn expects_attributes(&mut self, object: &Handle, changes: &[Change]) {
        let listed = sets_list(changes);
        if listed {
            // The list has set the mode on its way, so a mode that a later record expects shows nothing any more.
            self.modes.remove(object);
        }
        for change in changes {
            match change {
                Change::Mode { old, .. } if !listed => drop(self.modes.insert(*object, *old)),
                Change::Owner { old, .. } => drop(self.owners.insert(*object, *old)),
                Change::Xattr { name, old, .. } if is_plain(name) => {
                    self.xattrs.insert((*object, name.clone()), old.clone());
                }
                Change::Mode { .. } | Change::Xattr { .. } | Change::Times { .. } => {}
            }
        }
    }
}

/// Returns true if the kernel changes an extended attribute only on request.
fn is_plain(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

fn sets_list(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::Xattr { name, .. } if **name == *acl::ACCESS))
}

/// Numbers of the sectors of a range, in the file.
fn sectors(range: &PatchRange) -> impl Iterator<Item = u64> {
    range.offset / SECTOR..(range.offset + range.len).div_ceil(SECTOR)
}
