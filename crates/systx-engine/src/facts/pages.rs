//! Facts about pages of a file, and the way from there to the file as a whole.
//!
//! Owns: reads that claim no more than their pages, and the claim of size and times once they are shown. Guarantees:
//! bytes that were read by pages have a hash, as a commit of other pages moves the stamp, which then proves nothing of an
//! outsider; what is shown of a file is of one moment, and all that was read before still holds then. Does not: decide
//! what is shown (`verbs`), or write.

use super::compare::{OpenFiles, Place};
use super::decide;
use super::{DeliveredBytes, Depth, FactIx, Facts, Known};
use crate::bytes::read_up_to;
use crate::id::{ObjectId, PAGE_BYTES};
use crate::mutant::{self, Mutant};
use crate::outcome::{ConflictKind, Verb, Waiting};
use crate::paths::join;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use systx_os::{Errno, Os, Stat};

/// Pages of one file that are claimed one by one: of more, a filter is too full to tell them from others. (In tests few,
/// so that they have both.)
pub(crate) const PAGES_MAX: usize = if cfg!(test) { 4 } else { 16 };
/// Pages of all files of a transaction.
const ALL_PAGES_MAX: usize = 64;
/// Reads of one file that are kept one by one.
const READS_MAX: usize = 256;

/// Numbers of the pages of so many bytes.
fn pages_of(len: usize, offset: u64) -> Range<u64> {
    offset / PAGE_BYTES..offset.saturating_add(len as u64).div_ceil(PAGE_BYTES)
}

/// A first difference, found when a file becomes a fact as a whole.
type Look = Result<(Stat, bool), ConflictKind>;

impl<O: Os> Facts<O> {
    /// Goes on by pages with a file that has just been opened: how it was found, and how it is.
    pub(super) fn open_by_pages(
        &mut self,
        fact: FactIx,
        (first, now): (&Stat, &Stat),
        size: ObjectId,
    ) -> Verb<()> {
        if let Some(what) = decide::attributes(first, now, self.depth(fact)) {
            return Err(self.changed(self.shown(fact), what));
        }
        let seen = &mut self.seen[fact.0 as usize];
        if seen.depth == Depth::Name {
            seen.depth = Depth::Pages;
            if let Some(known) = &seen.object {
                seen.object = Some(Arc::new(Known { handle: known.handle, stat: *now }));
            }
            let domain = seen.dir.domain;
            if !mutant::on(Mutant::PagesTooFine) {
                self.claim(domain, size, fact);
            }
        }
        Ok(())
    }

    /// Returns the pages that a read would claim; `None`: the file has to be a fact as a whole, since the bytes do not lie
    /// before its end, as that is known, or are more than are claimed one by one.
    pub(super) fn new_pages(&self, fact: FactIx, len: usize, offset: u64) -> Option<Vec<u64>> {
        let data = self.seen[fact.0 as usize].data.as_ref()?;
        let some = pages_of(len, offset).take(PAGES_MAX + 1);
        let new: Vec<u64> = some.filter(|page| !data.pages.contains(page)).collect();
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= data.size);
        let is_little = data.pages.len() + new.len() <= PAGES_MAX && self.pages + new.len() <= ALL_PAGES_MAX;
        (is_inside && is_little && data.reads.len() < READS_MAX).then_some(new)
    }

    /// Most bytes that a read gives: as many as are asked for, or up to the end, which it makes a fact.
    fn up_to_end(&mut self, fact: FactIx, len: usize, offset: u64) -> Verb<usize> {
        let left = |facts: &Self| {
            let size = facts.seen[fact.0 as usize].data.as_ref().map_or(0, |data| data.size);
            usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX)
        };
        if self.depth(fact) < Depth::Sized && left(self) >= len {
            return Ok(len);
        }
        self.sized(fact)?;
        Ok(len.min(left(self)))
    }

    /// Keeps the hash of bytes that were read, and claims pages among theirs that were not.
    pub(super) fn keep_pages(&mut self, fact: FactIx, new: Vec<u64>, offset: u64, bytes: &[u8]) {
        let seen = &self.seen[fact.0 as usize];
        let (domain, handle) = (seen.dir.domain, seen.object.as_ref().map(|known| known.handle));
        for page in &new {
            let id = handle.map(|handle| ObjectId::page(&handle, *page));
            id.into_iter().for_each(|id| self.claim(domain, id, fact));
        }
        self.pages += new.len();
        if let Some(data) = &mut self.seen[fact.0 as usize].data {
            data.pages.extend(new);
            let hash = xxhash_rust::xxh3::xxh3_128(bytes);
            let read = DeliveredBytes { offset, asked: bytes.len(), hash };
            if !data.reads.contains(&read) && !mutant::on(Mutant::PageHashNotKept) {
                data.reads.push(read);
            }
        }
    }

    /// Reads bytes by pages; `None`: the file has to be a fact as a whole.
    pub(super) fn read_pages(
        &mut self,
        fact: FactIx,
        fd: &O::Fd,
        buf: &mut [u8],
        offset: u64,
    ) -> Verb<Option<usize>> {
        let wanted = self.up_to_end(fact, buf.len(), offset)?;
        let buf = &mut buf[..wanted];
        let Some(new) = self.new_pages(fact, wanted, offset) else { return Ok(None) };
        if buf.is_empty() {
            return Ok(Some(0));
        }
        let seen = &self.seen[fact.0 as usize];
        let Some(handle) = seen.object.as_ref().map(|known| known.handle) else {
            return Err(Errno::BADF.into());
        };
        let (domain, dir, name, os) =
            (seen.dir.domain, seen.dir.clone(), seen.name.clone(), self.os_of(fact).clone());
        let shared = RefCell::new(&mut *buf);
        let look = || read_up_to(&os, fd, &mut shared.borrow_mut(), offset);
        let got = match self.look_in_quiet(domain, look)? {
            Some(got) => got,
            None => {
                let pages = pages_of(wanted, offset).map(|page| ObjectId::page(&handle, page));
                let objects: Vec<_> = pages.chain([ObjectId::size(&handle)]).collect();
                self.touch(domain, &objects, &|| join(&dir.path, &name), |_| look())?
            }
        };
        // It has been cut.
        if got < wanted {
            return Ok(None);
        }
        self.keep_pages(fact, new, offset, buf);
        Ok(Some(got))
    }

    /// The conflict with a commit of other pages whose lease stays, as its process has been stopped. The end of one that
    /// never waits is no conflict to its program.
    pub(crate) fn kept_out(&self) -> ConflictKind {
        match self.waiting {
            Waiting::Waits => ConflictKind::HeldPending,
            Waiting::Never => ConflictKind::HeldNow,
        }
    }

    /// Makes a file a fact as a whole: its times are about to be shown, or relied on, or more of it to be read than is
    /// claimed by pages. What is known of it is that of this moment then.
    ///
    /// # Errors
    /// `Doomed`: what was read of it before has changed.
    pub(crate) fn whole(&mut self, fact: FactIx) -> Verb<()> {
        self.deepen(fact, Depth::Whole)
    }

    /// Makes a file's size a fact: it is about to be shown, or relied on. That is known as of this moment then.
    ///
    /// # Errors
    /// As [`Facts::whole`].
    pub(crate) fn sized(&mut self, fact: FactIx) -> Verb<()> {
        self.deepen(fact, Depth::Sized)
    }

    fn deepen(&mut self, fact: FactIx, to: Depth) -> Verb<()> {
        let seen = &self.seen[fact.0 as usize];
        if seen.depth >= to || self.lost {
            return Ok(());
        }
        let Some(known) = seen.object.clone() else { return Ok(()) };
        let id = match to {
            Depth::Whole => ObjectId::data(&known.handle),
            _ => ObjectId::size(&known.handle),
        };
        let (domain, at) = (seen.dir.domain, seen.dir.clone());
        let path = self.path(fact);
        let dir = self.opened_now(&at)?;
        let looked =
            self.touch(domain, &[id], &|| path.clone(), |facts| facts.look_again(fact, &dir, &known))?;
        let (now, unmoved) = match looked {
            Ok(looked) => looked,
            Err(what) => return Err(self.changed(self.shown(fact), what)),
        };
        let seen = &mut self.seen[fact.0 as usize];
        seen.depth = to;
        if !unmoved {
            seen.object = Some(Arc::new(Known { handle: known.handle, stat: now }));
            if let Some(data) = &mut seen.data {
                data.size = now.size;
                // A process that moved the stamp may have it mapped, and store from now on without moving it. (By pages
                // the old stamp stays, and with it that hashes decide.)
                if to == Depth::Whole {
                    (data.ctime, data.hot) = (now.ctime, true);
                }
            }
        }
        self.claim(domain, id, fact);
        Ok(())
    }

    /// How a file is now, and whether nothing at all has happened to it. The stamp comes before the bytes.
    fn look_again(&self, fact: FactIx, dir: &O::Fd, known: &Known) -> systx_os::Result<Look> {
        let (seen, os) = (&self.seen[fact.0 as usize], self.os_of(fact));
        let then = seen.data.as_ref().map_or(known.stat.ctime, |data| data.ctime);
        let now = match os.stat_at(dir, &seen.name) {
            Ok(now) => now,
            Err(Errno::NOENT | Errno::STALE) => return Ok(Err(ConflictKind::NameRemoved)),
            Err(error) => return Err(error),
        };
        let trusted = self.domains[seen.dir.domain].info.file_stamps;
        if trusted && (now.ino, now.ctime) == (known.stat.ino, then) && now.size == known.stat.size {
            return Ok(Ok((now, true)));
        }
        if os.handle_at(dir, &seen.name).ok() != Some(known.handle) {
            return Ok(Err(ConflictKind::NameReplaced));
        }
        if let Some(what) = decide::attributes(&known.stat, &now, seen.depth) {
            return Ok(Err(what));
        }
        let at = Place { seen, dir, handle: &known.handle };
        let differs = match &seen.data {
            Some(data) => self.data_differs(at, data, &now, &OpenFiles::<O>::new())?,
            None => None,
        };
        Ok(differs.map_or(Ok((now, false)), Err))
    }
}
