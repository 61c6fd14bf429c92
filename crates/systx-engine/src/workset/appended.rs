//! Bytes that are appended to a lower file whose end the transaction has not seen.
//!
//! Owns: the state *appended* of a file's bytes, and the way out of it. Guarantees: the file is no fact beyond its name,
//! so that transactions that append to it do not conflict. Whatever else is done to it, or asked of it, first makes it a
//! fact as a whole, with these bytes behind the end that it has then. Does not: find the end for the commit
//! (`commit::ends`).

use super::Workset;
use crate::facts::Grain;
use crate::outcome::Verb;
use crate::workset::node::{Data, Ix, NO_SLOT};
use systx_os::{Errno, Os};

/// Bytes of one file that are appended so: they ride in the record. (In tests few, so that there are more.)
const APPENDED_MAX: usize = if cfg!(test) { 6000 } else { 48 << 10 };

impl<O: Os> Workset<O> {
    /// The bytes that are appended, if that is the state of the file.
    pub(crate) fn appended(&self, ix: Ix) -> Option<&Vec<u8>> {
        match &self.object(ix).data {
            Data::Appended(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Appends to a file without a look at it; how far behind its end. `None`: the end has to be known.
    pub(crate) fn append_unseen(&mut self, ix: Ix, bytes: &[u8]) -> Verb<Option<u64>> {
        let object = self.object(ix);
        let behind = match &object.data {
            Data::Appended(before) => before.len(),
            // A mode or time that is set is that of a file that was looked at.
            Data::Base(_) if self.facts.grain == Grain::Pages && object.over.is_none() => 0,
            _ => return Ok(None),
        };
        let is_unseen = self.goes_by_pages(ix) && !self.is_gone(ix) && !self.facts.are_lost();
        let fits = !bytes.is_empty() && behind + bytes.len() <= APPENDED_MAX;
        // A savepoint keeps bytes that have a place.
        if !is_unseen || !fits || self.may_be_undone() {
            return Ok(None);
        }
        self.may_change(ix)?;
        match &mut self.object_mut(ix).data {
            Data::Appended(before) => before.extend_from_slice(bytes),
            data => {
                *data = Data::Appended(bytes.to_vec());
                self.unseen.push(ix);
            }
        }
        Ok(Some(behind as u64))
    }

    /// Makes all files facts as a whole that are appended to.
    pub(crate) fn see_ends(&mut self) -> Verb<()> {
        while let Some(ix) = self.unseen.last().copied() {
            if self.appended(ix).is_some() {
                self.whole(ix)?;
            }
            self.unseen.pop();
        }
        Ok(())
    }

    /// Puts what was appended behind the end of a file that has just become a fact as a whole.
    pub(super) fn see_end(&mut self, ix: Ix) -> Verb<()> {
        if self.appended(ix).is_none() {
            return Ok(());
        }
        let Data::Appended(bytes) = std::mem::replace(&mut self.object_mut(ix).data, Data::Base(None)) else {
            return Ok(());
        };
        let put = self.put_behind(ix, &bytes);
        if put.is_err() {
            // No room, for instance: what the program has written must not be missing from then on.
            let slot = self.object(ix).data.slot();
            if slot != NO_SLOT {
                self.clear_slot(usize::from(self.object(ix).mount), slot)?;
            }
            let object = self.object_mut(ix);
            (object.file, object.data) = (None, Data::Appended(bytes));
        }
        put
    }

    fn put_behind(&mut self, ix: Ix, bytes: &[u8]) -> Verb<()> {
        let mut end = self.object(ix).lower.as_ref().map_or(0, |lower| lower.stat.size);
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = self.write_bytes(ix, rest, end)?;
            if written == 0 {
                return Err(Errno::NOSPC.into());
            }
            (rest, end) = (&rest[written..], end + written as u64);
        }
        Ok(())
    }
}
