//! PLACE and PUT: the object in the slot gets a name that is missing.

use super::site::{identify, slot_name, Pass, Site};
use crate::record::{Small, Step};
use systx_os::{Errno, FileType, Handle, Open, Os, Rename, Result};

/// Renames slot → name, unless the slot is empty (taken already) or the name is taken (displaced).
pub(super) fn place<O: Os>(site: &mut Site<'_, O>, step: &Step, small: Option<&Small>) -> Result<()> {
    let slot = slot_name(step.slot);
    if identify(site.os, site.slots, &slot)?.is_some() {
        let Some(dir) = site.directory(&step.at)? else {
            return site.displace(step, "its directory is gone");
        };
        match site.os.rename((site.slots, &slot), (&dir, &step.at.name), Rename::NoReplace) {
            Ok(()) => {}
            Err(Errno::EXIST) => return site.displace(step, "the name was taken by somebody else"),
            // The directory was removed since it was opened, or a mount or a quota boundary came between.
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {
                return site.displace(step, "its directory is gone")
            }
            Err(Errno::XDEV) => return site.displace(step, "the name is on another mount now"),
            Err(e) => return Err(e),
        }
    }
    match (site.pass, small) {
        (Pass::Redo, Some(small)) => rewrite(site, step, small),
        _ => Ok(()),
    }
}

/// Writes a small object's contents again where the power loss took them: its name survived, its bytes were never synced.
///
/// Whoever changed it since left a modification time after the record was made.
fn rewrite<O: Os>(site: &mut Site<'_, O>, step: &Step, small: &Small) -> Result<()> {
    if FileType::from_mode(small.mode) != Some(FileType::File) {
        return Ok(());
    }
    let Some(dir) = site.directory(&step.at)? else { return Ok(()) };
    if identify(site.os, &dir, &step.at.name)? != Some(small.handle) {
        return Ok(());
    }
    restore(site.os, &dir, &step.at.name, &small.handle, small)
}

/// Gives the file `name`, if it is `handle` and untouched since the record, the contents of `small` again.
pub(super) fn restore<O: Os>(os: &O, dir: &O::Fd, name: &[u8], handle: &Handle, small: &Small) -> Result<()> {
    let found = os.open(dir, name, Open::Path)?;
    let stat = os.stat(&found)?;
    if os.handle(&found)? != *handle
        || stat.mtime > small.mtime.max(small.ctime)
        || stat.size > small.content.len() as u64
    {
        return Ok(());
    }
    let fd = open_for_writing(os, &found)?;
    let mut present = vec![0; stat.size as usize];
    let got = os.pread(&fd, &mut present, 0)?;
    if present[..got] == small.content[..] {
        return Ok(());
    }
    write_all(os, &fd, &small.content, 0)?;
    os.utimens(&fd, None, Some(small.mtime))
}

/// Opens a file for writing, also one that its owner himself may not write to (mode 0444).
pub(super) fn open_for_writing<O: Os>(os: &O, found: &O::Fd) -> Result<O::Fd> {
    match os.reopen(found, Open::ReadWrite) {
        Err(Errno::ACCESS) => {
            let perm = os.stat(found)?.perm();
            os.chmod(found, perm | 0o600)?;
            let opened = os.reopen(found, Open::ReadWrite);
            os.chmod(found, perm)?;
            opened
        }
        opened => opened,
    }
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all<O: Os>(os: &O, fd: &O::Fd, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        match os.pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
