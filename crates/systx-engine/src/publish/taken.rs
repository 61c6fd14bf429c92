//! Checks that a step takes out what was read, or keeps it (docs/protocol.md C5).
//!
//! Owns: the look at a file right before the rename that takes it out, and the comparison after it.
//! Guarantees: bytes that an outsider wrote to a file between the final look and its removal or replacement
//! are not deleted, if the transaction has read that file. A read lease keeps writers away from the look to
//! behind the rename; where none is given, the bytes are compared, as the rename itself moves the change
//! time. Does not: care for a file that keeps another name, nor for writes after the rename through an older
//! descriptor.

use super::site::{Pass, Site};
use super::written::Written;
use crate::bytes::read_up_to;
use crate::mutant::{self, Mutant};
use crate::objects::slot_name;
use crate::outcome::ConflictCopyKind;
use crate::record::{Read, Step, Was};
use systx_os::{Errno, FileType, Lease, Open, Os, Result, Stat};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are hashed at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file between the look at it and its rename.
pub(super) struct Looked<O: Os> {
    /// `None`: it can't be opened.
    fd: Option<O::Fd>,
    /// A lease: no process has it open for writing, and one that opens it waits.
    leased: bool,
    /// It is not as it was read.
    differs: bool,
    /// A hash of all its bytes, where nothing else shows whether they change from here on.
    hash: Option<u128>,
}

/// How the record says that the object which a step takes out was read, if it was.
pub(super) fn of_step(read: &[Read]) -> Option<&Read> {
    read.iter().find(|read| read.of.is_none()).filter(|_| !mutant::on(Mutant::TakenNotCompared))
}

/// Looks at the file that a step is about to take out.
pub(super) fn look<O: Os>(site: &Site<'_, O>, dir: &O::Fd, name: &[u8], read: &Read) -> Result<Looked<O>> {
    let (os, pass) = (site.os, site.pass);
    let nothing = Looked { fd: None, leased: false, differs: false, hash: None };
    let fd = match os.open(dir, name, Open::Read) {
        Ok(fd) => fd,
        // The rename shows it.
        Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => {
            return Ok(nothing);
        }
        // Under a foreign lease, or unreadable meanwhile.
        Err(_) => {
            return match os.stat_at(dir, name) {
                Ok(stat) => Ok(Looked { differs: !is_as_read(&stat, read, pass, &site.written), ..nothing }),
                Err(_) => Ok(nothing),
            };
        }
    };
    let leased = os.lease(&fd, Lease::Read).is_ok();
    let stat = os.stat(&fd)?;
    if stat.kind() != FileType::File {
        return Ok(nothing);
    }
    let mut hash = None;
    let mut differs = !is_as_read(&stat, read, pass, &site.written);
    if !leased && !differs && read.pieces.is_empty() {
        // A file that can't be read is not compared, but kept.
        hash = hash_of(os, &fd).ok();
        differs = hash.is_none() || !is_as_read(&os.stat(&fd)?, read, pass, &site.written);
    }
    Ok(Looked { fd: Some(fd), leased, differs, hash })
}

/// Compares what a rename has brought into the step's entry with the look before it, and keeps it if an
/// outsider came between.
pub(super) fn keep_if_changed<O: Os>(
    site: &mut Site<'_, O>,
    step: &Step,
    read: &Read,
    looked: Looked<O>,
) -> Result<()> {
    let (os, mut differs) = (site.os, looked.differs);
    // The rename has moved the change time.
    let moved_as_read = |stat: &Stat| is_as_read(stat, read, Pass::Redo, &site.written);
    let stat = match &looked.fd {
        Some(fd) if looked.leased => {
            // A process that waits in open(2) has found the name before the rename, and writes when the lease
            // is released.
            differs |= os.lease_held(fd) != Ok(Lease::Read);
            if !differs {
                // It may have another name, and a child that was forked meanwhile have it open.
                let _ = os.lease(fd, Lease::None);
                return Ok(());
            }
            os.stat(fd)?
        }
        Some(fd) => {
            let stat = os.stat(fd)?;
            differs |= !moved_as_read(&stat) || pieces_differ(os, fd, read).unwrap_or(true);
            differs |= looked.hash.is_some() && looked.hash != hash_of(os, fd).ok();
            stat
        }
        None => {
            let stat = os.stat_at(site.slots, &slot_name(step.slot))?;
            differs |= !moved_as_read(&stat);
            stat
        }
    };
    // With another name it is not gone.
    if differs && stat.nlink == 1 {
        site.set_aside(step, CHANGED)
    } else {
        Ok(())
    }
}

/// The text about a file that was changed.
pub(super) const CHANGED: ConflictCopyKind = ConflictCopyKind::ReadThenChanged;

/// Returns true if a file that is about to be deleted may be: it is as it was read, or has another name.
/// `dir` and `name`: where it lies. `pass`: `None` if the step that took it has moved its change time.
/// `written`: by records before.
pub(super) fn may_go<O: Os>(
    os: &O,
    dir: &O::Fd,
    name: &[u8],
    read: &Read,
    pass: Option<Pass>,
    written: &Written,
) -> Result<bool> {
    let stat = match os.stat_at(dir, name) {
        Err(Errno::NOENT) => return Ok(true),
        stat => stat?,
    };
    if stat.nlink > 1 {
        return Ok(true);
    }
    let same = is_as_read(&stat, read, pass.unwrap_or(Pass::Redo), written);
    if !same || read.pieces.is_empty() {
        return Ok(same);
    }
    match os.open(dir, name, Open::Read) {
        Ok(fd) => Ok(!pieces_differ(os, &fd, read).unwrap_or(true)),
        Err(Errno::NOENT) => Ok(true),
        Err(_) => Ok(false),
    }
}

/// In a redo earlier records may have moved the times once more: the change time, and the modification time of a file
/// whose bytes they wrote. What that was before may have been lost with the power, but is not later.
fn is_as_read(stat: &Stat, read: &Read, pass: Pass, written: &Written) -> bool {
    let was = Was::of(stat);
    let same = match written.found(stat) {
        Some(found) => Was { mtime: read.was.mtime, ..was } == read.was && found <= read.was.mtime,
        None => was == read.was,
    };
    same && read.ctime.filter(|_| pass == Pass::First).is_none_or(|ctime| stat.ctime == ctime)
}

fn pieces_differ<O: Os>(os: &O, fd: &O::Fd, read: &Read) -> Result<bool> {
    for piece in &read.pieces {
        let mut bytes = vec![0; piece.asked as usize];
        let got = read_up_to(os, fd, &mut bytes, piece.offset)?;
        if xxhash_rust::xxh3::xxh3_128(&bytes[..got]) != piece.hash {
            return Ok(true);
        }
    }
    Ok(false)
}

fn hash_of<O: Os>(os: &O, fd: &O::Fd) -> Result<u128> {
    let (mut hash, mut at, mut bytes) = (Xxh3::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let got = read_up_to(os, fd, &mut bytes, at)?;
        hash.update(&bytes[..got]);
        at += got as u64;
        if got < bytes.len() {
            return Ok(hash.digest128());
        }
    }
}
