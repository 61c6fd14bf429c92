//! A step that the file system refuses, where waiting doesn't help: an outsider made its directory immutable,
//! mounted something on it, used up its links after the last look.
//!
//! Guarantees: the object that the step would have put there is kept in `aside/` and reported, the object
//! that it would have taken away stays, and the rest of the record goes on. As in any other displacing, the
//! staging entry shows that the step was decided. Does not: judge reasons that may pass (disk full, no
//! descriptors, …); those leave the record pending.

use super::attr::is_left;
use super::decide::{Known, Sector, Sharing};
use super::pieces::{after_image, chunks};
use super::remove::drop_token;
use super::site::{OldEnds, Pass, Site};
use super::words::Words;
use super::{pending, Pending};
use crate::bytes::{read_up_to, write_all};
use crate::mutant::{self, Mutant};
use crate::objects::{identify, slot_name};
use crate::outcome::{ConflictCopy, ConflictCopyKind};
use crate::record::{Act, Change, Patch, Source, Step, SECTOR_BYTES};
use systx_os::{Errno, FileType, Handle, Limit, Open, Os, Result};

/// Free space with which a refusal for lack of space is about the object and not about the disk, in bytes.
const ROOM_BYTES: u64 = 4 << 20;

/// Sets a failed step aside if it would fail forever.
///
/// # Errors
/// It may pass.
pub(super) fn set_aside_or_wait<O: Os>(
    site: &mut Site<'_, O>,
    n: usize,
    step: &Step,
    error: Errno,
) -> std::result::Result<(), Pending> {
    let set_aside = match reason(site, step, error) {
        Some(why) => set_aside(site, n, step, why),
        None => Err(error),
    };
    set_aside.map_err(|error| pending(step, error))
}

/// Returns the meaning of the kernel's answer; `None`: it may pass.
fn reason<O: Os>(site: &Site<'_, O>, step: &Step, error: Errno) -> Option<ConflictCopyKind> {
    // The committer had these rights. A later recovery that has them, too, can take the step.
    let limit = match error {
        Errno::PERM if sets_trusted(step) => Some(Limit::Trusted),
        Errno::PERM | Errno::ACCESS => Some(Limit::Rights),
        Errno::FBIG => Some(Limit::Size),
        _ => None,
    };
    let lacks = limit.is_some_and(|limit| {
        let all = [Limit::Rights, Limit::Trusted, Limit::Size];
        site.os.is_limited(limit)
            || limit == Limit::Trusted && site.os.is_limited(Limit::Rights)
            || mutant::on(Mutant::LimitsAlike) && all.into_iter().any(|limit| site.os.is_limited(limit))
    });
    if lacks && !site.is_own && !mutant::on(Mutant::RightsUnasked) {
        return None;
    }
    Some(match error {
        Errno::PERM => ConflictCopyKind::NotPermitted,
        Errno::ACCESS => ConflictCopyKind::NoPermission,
        Errno::MLINK => ConflictCopyKind::TooManyLinks,
        Errno::BUSY => ConflictCopyKind::MountedOn,
        Errno::FBIG => ConflictCopyKind::TooLarge,
        Errno::TXTBSY => ConflictCopyKind::Running,
        Errno::XDEV => ConflictCopyKind::OtherMountOrProject,
        Errno::OPNOTSUPP | Errno::TOOBIG | Errno::RANGE => ConflictCopyKind::RefusedByFileSystem,
        // An inode has room for so many extended attributes, whatever is free.
        Errno::NOSPC if sets_xattr(step) && has_room(site) => ConflictCopyKind::NoRoomForAttributes,
        _ => return None,
    })
}

fn sets_xattr(step: &Step) -> bool {
    let Act::Attr { changes, .. } = &step.act else { return false };
    changes.iter().any(|change| matches!(change, Change::Xattr { new: Some(_), .. }))
}

/// Returns true if an attribute is set that root alone may set.
fn sets_trusted(step: &Step) -> bool {
    let Act::Attr { changes, .. } = &step.act else { return false };
    let trusted = |name: &[u8]| name.starts_with(b"trusted.") || name.starts_with(b"security.");
    changes.iter().any(|change| matches!(change, Change::Xattr { name, .. } if trusted(name)))
}

fn has_room<O: Os>(site: &Site<'_, O>) -> bool {
    site.os.statfs(site.root).is_ok_and(|s| s.bavail.saturating_mul(u64::from(s.frsize)) > ROOM_BYTES)
}

/// Sets a patch aside that would cut off what an outsider has written since the final look: a fact that only the owner
/// knows. It is on the disk before it is reported, or a redo would take the step after all.
pub(super) fn set_aside_for_good<O: Os>(site: &mut Site<'_, O>, n: usize, step: &Step) -> Result<()> {
    set_aside(site, n, step, ConflictCopyKind::ContentsLeft)?;
    if mutant::on(Mutant::CutForgotten) {
        return Ok(());
    }
    site.os.syncfs(site.slots)
}

/// Keeps what the step would have published, and reports it.
///
/// # Errors
/// It can't be kept either, now: the step stays to be done.
fn set_aside<O: Os>(site: &mut Site<'_, O>, n: usize, step: &Step, why: ConflictCopyKind) -> Result<()> {
    if site.pass == Pass::Redo {
        // Opened here once more: a lease of our own would keep us out.
        site.patch_targets.clear();
        // An object that has been made immutable, or runs, since it was published can't be opened for
        // writing.
        if is_done(site, n, step)? {
            return Ok(());
        }
    }
    let slot = slot_name(step.slot);
    let held = |site: &Site<'_, O>| identify(site.os, site.slots, &slot);
    let is_token = |site: &Site<'_, O>, held: &Handle| site.tokens.is_token(site.os, site.slots, &slot, held);
    match &step.act {
        Act::Place { .. } | Act::Link { .. } => match held(site)? {
            Some(_) => return site.set_aside(step, why),
            // It is in place, and what a power loss has taken of its contents can't be written there.
            None => match contents(&step.act) {
                Some(content) if !mutant::on(Mutant::RefusedContentsDropped) => {
                    keep_bytes(site, n, step, why, |os, fd| write_all(os, fd, content, 0))?
                }
                _ => {
                    site.give_up(step);
                    site.report(step, None, why);
                }
            },
        },
        Act::Replace { before, .. } => match held(site)? {
            Some(held) if held != *before => return site.set_aside(step, why),
            // Taken: whatever failed came after it.
            _ => {}
        },
        Act::Remove { before, .. } | Act::Take { before, .. } => match held(site)? {
            Some(held) if held == *before => {}
            // An outsider's object came out and could not be put back: it is kept and reported (I6).
            Some(held) if !is_token(site, &held)? => return site.set_aside(step, why),
            Some(_) => {
                // Without its token the step is decided: a later pass must not take the object out after all.
                drop_token(site.os, site.slots, &slot)?;
                site.give_up(step);
                site.report(step, None, why);
            }
            None => {}
        },
        Act::Patch(patch) if in_slot(patch) => {
            if held(site)?.is_some() {
                return site.set_aside(step, why);
            }
        }
        Act::Patch(patch) => keep_patch(site, n, step, patch, why)?,
        Act::Attr { .. } => site.report(step, None, why),
    }
    Ok(())
}

/// Returns true if nothing of a step is left to do: everything is as the step leaves it, or an outsider's
/// later change. Times are not looked at.
fn is_done<O: Os>(site: &Site<'_, O>, n: usize, step: &Step) -> Result<bool> {
    let os = site.os;
    let open = |object: &Handle, how| site.open(object, &step.at.path, &step.at.name, how);
    match &step.act {
        Act::Place { small: Some(small) } if identify(os, site.slots, &slot_name(step.slot))?.is_none() => {
            let read = |fd: Option<O::Fd>| fd.map(|fd| os.reopen(&fd, Open::Read)).transpose();
            let fd = match open(&small.handle, Open::Path).and_then(read) {
                Ok(Some(fd)) => fd,
                Ok(None) => return Ok(true),
                // It has been shut to this user.
                Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
                Err(error) => return Err(error),
            };
            let mut present = vec![0; small.content.len() + 1];
            let got = read_up_to(os, &fd, &mut present, 0)?;
            // A power loss leaves zeros for bytes that were never synced, or nothing.
            let theirs = present.iter().zip(&small.content).any(|(p, ours)| *p != 0 && p != ours);
            Ok(theirs || present.get(..got) == Some(&small.content))
        }
        Act::Patch(patch) => match open(&patch.file, Open::Read)? {
            Some(fd) => nothing_is_as_before(site, n, step, patch, &fd),
            None => Ok(true),
        },
        Act::Attr { object, changes, .. } => {
            let Some(fd) = open(object, Open::Path)? else { return Ok(true) };
            for change in changes {
                if is_left(os, &fd, change)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Returns true if no sector of a file is one that a patch would write, nor its size one that it would set.
fn nothing_is_as_before<O: Os>(
    site: &Site<'_, O>,
    n: usize,
    step: &Step,
    patch: &Patch,
    file: &O::Fd,
) -> Result<bool> {
    let os = site.os;
    let size = os.stat(file)?.size;
    if size == patch.size_before && size != patch.size_after {
        return Ok(false);
    }
    let slot =
        if in_slot(patch) { Some(os.open(site.slots, &slot_name(step.slot), Open::Read)?) } else { None };
    let words = Words::of(site, n, Sharing::Shared)?;
    // Only old sectors count here, and those are recognized without the ends that a power loss cuts at.
    let ends = OldEnds::new();
    for range in &patch.ranges {
        for chunk in chunks(range, patch.size_after) {
            let mut present = vec![0; chunk.len];
            read_up_to(os, file, &mut present, chunk.at)?;
            let after = after_image(os, slot.as_ref(), range, chunk)?;
            let sectors = present.chunks(SECTOR_BYTES).zip(after.chunks(SECTOR_BYTES)).enumerate();
            for (n, (present, after)) in sectors {
                let before = (&range.before, chunk.skip / SECTOR_BYTES + n);
                let known = Known { before, after, at: chunk.at + (n * SECTOR_BYTES) as u64, ends: &ends };
                if words.judge(os, &known, present)?.0 == Sector::Before {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// Returns true if an earlier pass has set a patch without entry aside: the file with its bytes is the mark.
pub(super) fn was_set_aside<O: Os>(site: &Site<'_, O>, n: usize, step: &Step) -> Result<bool> {
    match &step.act {
        Act::Patch(patch) if in_slot(patch) => Ok(false),
        Act::Place { .. } if contents(&step.act).is_none() => Ok(false),
        Act::Patch(_) | Act::Place { .. } if !site.is_own => {
            Ok(identify(site.os, site.aside, patch_name(site, n).as_bytes())?.is_some())
        }
        _ => Ok(false),
    }
}

/// The contents of a file that a step carries whole.
fn contents(act: &Act) -> Option<&[u8]> {
    match act {
        Act::Place { small: Some(small) } if FileType::from_mode(small.mode) == Some(FileType::File) => {
            Some(&small.content)
        }
        _ => None,
    }
}

fn in_slot(patch: &Patch) -> bool {
    patch.ranges.iter().any(|range| range.source == Source::Slot)
}

fn patch_name<O: Os>(site: &Site<'_, O>, n: usize) -> String {
    format!("{}.patch{n}", site.id)
}

/// Keeps bytes that can't be written to a file in one in `aside/`, and reports it.
pub(super) fn keep_bytes<O: Os>(
    site: &mut Site<'_, O>,
    n: usize,
    step: &Step,
    why: ConflictCopyKind,
    write: impl Fn(&O, &O::Fd) -> Result<()>,
) -> Result<()> {
    let (os, name) = (site.os, patch_name(site, n));
    let copy = ConflictCopy { path: site.path_of(&step.at), aside: Some(name.clone()), what: why };
    // Noted first, as any other: a later pass finds the file, and asks no more.
    site.note(&copy);
    let fd = os.tmpfile(site.aside, 0o600)?;
    write(os, &fd)?;
    // It has its name last, as that says that all of it is there.
    os.fsync(&fd)?;
    match os.link(&fd, site.aside, name.as_bytes()) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    site.conflict_copies.push(copy);
    Ok(())
}

/// Keeps the bytes of a patch, whose file stays as it is. Those in a slot stay in their entry until a checkpoint.
pub(super) fn keep_patch<O: Os>(
    site: &mut Site<'_, O>,
    n: usize,
    step: &Step,
    patch: &Patch,
    why: ConflictCopyKind,
) -> Result<()> {
    if in_slot(patch) {
        site.report(step, None, why);
        return Ok(());
    }
    keep_bytes(site, n, step, why, |os, fd| write_patch(os, fd, patch))
}

/// Writes the bytes of a patch to their places.
fn write_patch<O: Os>(os: &O, fd: &O::Fd, patch: &Patch) -> Result<()> {
    // The size is set by itself, since holes are not written, also where one is the end.
    os.truncate(fd, patch.size_after)?;
    for range in patch.ranges.iter().filter(|range| range.source != Source::Hole) {
        for chunk in chunks(range, patch.size_after) {
            write_all(os, fd, &after_image(os, None, range, chunk)?, chunk.at)?;
        }
    }
    Ok(())
}
