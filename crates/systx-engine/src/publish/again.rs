//! Bytes of records once more, where a sync of theirs has failed: the kernel has called the pages clean, so that neither a
//! redo, which finds them written, nor a sync brings them to the disk.
//!
//! Guarantees: behind it a sync that succeeds has written the bytes that records gave to files, as they are by now.
//! Contents and modification times stay. Does not: judge them; the redo before it has.

use super::pieces::CHUNK_BYTES;
use super::place::open_for_writing;
use super::site::Site;
use super::{pending, Pending};
use crate::bytes::read_up_to;
use crate::record::{Act, Body, Step};
use std::sync::Arc;
use systx_os::{FileType, Handle, Open, Os, Result};

/// Dirties what a record has written to files.
///
/// # Errors
///
/// The file that can't be opened for writing, read, or stored to.
pub(crate) fn write_out<O: Os>(site: &mut Site<'_, O>, body: &Body) -> std::result::Result<(), Pending> {
    body.steps.iter().try_for_each(|step| {
        let (file, ranges) = match &step.act {
            Act::Patch(patch) => {
                (&patch.file, patch.ranges.iter().map(|range| (range.offset, range.len)).collect())
            }
            Act::Place { small: Some(small) } if FileType::from_mode(small.mode) == Some(FileType::File) => {
                (&small.handle, vec![(0, small.content.len() as u64)])
            }
            _ => return Ok(()),
        };
        dirty(site, step, file, &ranges).map_err(|error| pending(step, error))
    })
}

/// Stores what is there, unless the file is gone.
fn dirty<O: Os>(site: &Site<'_, O>, step: &Step, file: &Handle, ranges: &[(u64, u64)]) -> Result<()> {
    let os = site.os;
    let fd = match site.patch_targets.get(file) {
        Some(kept) => kept.clone(),
        None => match site.open(file, &step.at.path, &step.at.name, Open::Path)? {
            Some(found) => Arc::new(open_for_writing(os, &found)?),
            None => return Ok(()),
        },
    };
    let found = os.stat(&fd)?;
    for (offset, len) in ranges {
        let (mut at, end) = (*offset, (offset + len).min(found.size));
        while at < end {
            let mut present = vec![0; (end - at).min(CHUNK_BYTES as u64) as usize];
            let got = read_up_to(os, &fd, &mut present, at)?;
            // Cut by another process meanwhile: the rest is nobody's.
            if got == 0 {
                break;
            }
            // What somebody stores at this moment makes a page as dirty.
            os.compare_exchange(&fd, at, &present[..got], &present[..got])?;
            at += got as u64;
        }
    }
    if os.stat(&fd)?.mtime != found.mtime {
        // Of another user's file it can't be set.
        let _ = os.utimens(&fd, None, Some(found.mtime));
    }
    Ok(())
}
