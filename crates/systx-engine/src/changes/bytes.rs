//! The bytes of both sides of a change.

use super::{Change, Side};
use crate::diff::bytes::Bytes;
use crate::outcome::{Verb, VerbError};
use crate::transaction::Transaction;
use crate::workset::node::Ix;
use crate::workset::Workset;
use systx_os::{Errno, FileType, Os};

impl<O: Os> Transaction<O> {
    /// Reads bytes of one side of a listed change, from `at` on: of a regular file its contents, of a
    /// symbolic link its target, of other types none. 0: the end, or there is no such side.
    pub fn contents(&mut self, change: &Change, side: Side, buf: &mut [u8], at: u64) -> Verb<usize> {
        self.ours()?;
        let Some(version) = change.version(side) else { return Ok(0) };
        let ix = self.workset.ix(version.node);
        match (self.workset.object(ix).kind, side) {
            (FileType::File, Side::After) => self.workset.read_bytes(ix, buf, at),
            (FileType::File, Side::Before) => match self.workset.lower_file(ix) {
                Err(VerbError::Os(Errno::STALE)) if self.workset.facts().are_lost() => Ok(0),
                file => self.workset.read_lower(ix, &*file?, buf, at),
            },
            (FileType::Symlink, _) => {
                let target = self.readlink(version.node)?;
                let rest = usize::try_from(at).ok().and_then(|at| target.get(at..)).unwrap_or(&[]);
                let got = rest.len().min(buf.len());
                buf[..got].copy_from_slice(&rest[..got]);
                Ok(got)
            }
            _ => Ok(0),
        }
    }
}

/// Returns true if an object of the committed tree and the one that takes its place, of these sizes, have
/// different bytes.
pub(super) fn bytes_differ<O: Os>(
    workset: &mut Workset<O>,
    old: Ix,
    new: Ix,
    (was, is): (u64, u64),
) -> Verb<bool> {
    match (workset.object(old).kind, workset.object(new).kind) {
        (FileType::File, FileType::File) => Bytes::whole(was, is).differ(workset, (old, new)),
        (FileType::Symlink, FileType::Symlink) => Ok(workset.link_target(old)? != workset.link_target(new)?),
        // Of two directories what is in them differs, not they themselves.
        (FileType::Directory, FileType::Directory) => Ok(false),
        (old, new) => Ok(old != new),
    }
}
