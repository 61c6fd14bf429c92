//! Pages of a lower file that were written while its size is none of the transaction's business.
//!
//! Owns: the state *pages* of a file's bytes, and the way out of it. Guarantees: an overwrite reads and keeps its pages
//! and no others, so that transactions on different pages of a file do not conflict. Whatever else happens to the file
//! first makes it a fact as a whole, and its bytes take one of the other states. Does not: hold many pages.

use super::changed_pages::{ranges, write_end, Changed, Page, Pages};
use super::extents::{Extent, Extents};
use super::memory::FILE_BYTES_MAX;
use super::Workset;
use crate::facts::{Depth, Grain, LowerFile, PAGES_MAX};
use crate::id::PAGE_BYTES;
use crate::outcome::Verb;
use crate::workset::node::{Data, Ix, Overlay, NO_SLOT};
use systx_os::{FileType, Os};

impl<O: Os> Workset<O> {
    /// Makes a committed file a fact as a whole, before its times are shown or relied on, or more of it than pages.
    pub(crate) fn whole(&mut self, ix: Ix) -> Verb<()> {
        let object = self.object(ix);
        if let (FileType::File, Some(lower)) = (object.kind, &object.lower) {
            let fact = lower.fact;
            self.facts.whole(fact)?;
            self.know_again(ix);
            self.see_end(ix)?;
        }
        Ok(())
    }

    /// Makes the size of a committed file a fact, before it is shown or relied on.
    pub(crate) fn sized(&mut self, ix: Ix) -> Verb<()> {
        if self.appended(ix).is_some() {
            return self.whole(ix);
        }
        let object = self.object(ix);
        if let (FileType::File, Some(lower)) = (object.kind, &object.lower) {
            let fact = lower.fact;
            self.facts.sized(fact)?;
            self.know_again(ix);
        }
        Ok(())
    }

    /// Takes over what its fact knows of a committed file by now.
    pub(crate) fn know_again(&mut self, ix: Ix) {
        let Some(found) = self.object(ix).lower.as_ref().and_then(|lower| self.facts.found(lower.fact))
        else {
            return;
        };
        let moved = self.object(ix).lower.as_ref().is_some_and(|known| known.stat.mtime != found.stat.mtime);
        self.object_mut(ix).lower = Some(found);
        if moved {
            self.renew_written(ix);
        }
    }

    /// Reads the committed file, which may make it a fact as a whole.
    pub(crate) fn read_lower(&mut self, ix: Ix, file: &LowerFile<O>, buf: &mut [u8], at: u64) -> Verb<usize> {
        let read = self.facts.read(file, buf, at);
        self.know_again(ix);
        read
    }

    /// Returns true if a file's bytes, as far as it has read and changed any, are claimed by pages alone.
    pub(crate) fn goes_by_pages(&self, ix: Ix) -> bool {
        let object = self.object(ix);
        let depth = object.lower.as_ref().map(|lower| self.facts.depth(lower.fact));
        object.kind == FileType::File && depth.is_some_and(|depth| depth != Depth::Whole)
    }

    /// The pages that were written, if that is the state of the file.
    pub(crate) fn changed_pages(&self, ix: Ix) -> Option<&Changed> {
        match &self.object(ix).data {
            Data::Pages(pages) => Some(&pages.changed),
            _ => None,
        }
    }

    /// Returns true if a page is changed where the file ended when that was read, or behind it.
    pub(crate) fn writes_end(&self, ix: Ix) -> bool {
        self.changed_pages(ix).is_some_and(write_end)
    }

    /// Returns true if the size of a committed file is a fact.
    pub(crate) fn knows_size(&self, ix: Ix) -> bool {
        self.object(ix).lower.as_ref().is_none_or(|lower| self.facts.depth(lower.fact) >= Depth::Sized)
    }

    /// How long it is with the pages that were written.
    pub(crate) fn size_with_pages(&self, ix: Ix) -> u64 {
        let last = self.changed_pages(ix).and_then(|changed| ranges(changed).last());
        last.map_or(0, |range| range.end).max(self.lower_size(ix))
    }

    fn lower_size(&self, ix: Ix) -> u64 {
        self.object(ix).lower.as_ref().map_or(0, |lower| lower.stat.size)
    }

    /// Writes to pages that the file has, or right behind them; whether they could be kept.
    pub(crate) fn write_pages(&mut self, ix: Ix, bytes: &[u8], offset: u64) -> Verb<bool> {
        let end = offset.saturating_add(bytes.len() as u64);
        let none = Changed::new();
        let object = self.object(ix);
        let changed = match &object.data {
            Data::Base(_) if self.facts.grain == Grain::Pages && object.lower.is_some() => &none,
            Data::Pages(pages) => &pages.changed,
            _ => return Ok(false),
        };
        let numbers = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let new = numbers.clone().take(PAGES_MAX + 1).filter(|n| !changed.contains_key(n)).count();
        if bytes.is_empty() || changed.len() + new > PAGES_MAX || self.facts.are_lost() {
            return Ok(false);
        }
        self.may_change(ix)?;
        let grows = end > self.size_with_pages(ix);
        if grows {
            self.sized(ix)?;
            // Zeros between would be a hole.
            if offset > self.size_with_pages(ix) {
                return Ok(false);
            }
        }
        self.before_bytes(ix)?;
        for n in numbers.clone() {
            if !self.has_page(ix, n)? || (!grows && end > self.size_with_pages(ix)) {
                return Ok(false);
            }
        }
        let (now, lower) = (self.now(), self.lower_size(ix));
        let object = self.object_mut(ix);
        let Data::Pages(pages) = &mut object.data else { return Ok(false) };
        let part = |n: u64| {
            offset.max(n * PAGE_BYTES) - n * PAGE_BYTES..end.min((n + 1) * PAGE_BYTES) - n * PAGE_BYTES
        };
        // The file may have ended within one when that was read, and end later by now.
        let takes = |n: u64| {
            pages.changed.get(&n).is_some_and(|page| {
                let (at, len) = (n * PAGE_BYTES, page.now.len() as u64);
                part(n).end <= len
                    || (grows && part(n).start <= len && at + len >= lower.min(at + PAGE_BYTES))
            })
        };
        if !numbers.clone().all(takes) {
            return Ok(false);
        }
        for n in numbers {
            let Some(page) = pages.changed.get_mut(&n) else { continue };
            let (from, to) = (part(n).start as usize, part(n).end as usize);
            page.now.resize(to.max(page.now.len()), 0);
            let at = (n * PAGE_BYTES + part(n).start - offset) as usize;
            page.now[from..to].copy_from_slice(&bytes[at..at + (to - from)]);
        }
        let over = object.over_mut();
        (over.mtime, over.ctime) = (Some(now), Some(now));
        Ok(true)
    }

    /// Reads a page that is to be written to, unless it was before; false: it has been cut since.
    fn has_page(&mut self, ix: Ix, n: u64) -> Verb<bool> {
        if self.changed_pages(ix).is_some_and(|changed| changed.contains_key(&n)) {
            return Ok(true);
        }
        let at = n * PAGE_BYTES;
        let len = self.lower_size(ix).saturating_sub(at).min(PAGE_BYTES);
        let mut before = vec![0; len as usize];
        if len > 0 {
            let file = self.lower_file_for_a_moment(ix)?;
            if self.read_lower(ix, &file, &mut before, at)? < before.len() {
                return Ok(false);
            }
        }
        let page = Page { now: before.clone(), before };
        match &mut self.object_mut(ix).data {
            Data::Pages(pages) => drop(pages.changed.insert(n, page)),
            data => {
                let lower = if let Data::Base(lower) = data { lower.take() } else { None };
                *data = Data::Pages(Box::new(Pages { lower, changed: Changed::from([(n, page)]) }));
            }
        }
        Ok(true)
    }

    /// Bytes of a file of which pages were written; short only at its end.
    pub(crate) fn read_pages(&mut self, ix: Ix, buf: &mut [u8], offset: u64) -> Verb<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (n, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let rest = buf.len() - done;
            let Some(changed) = self.changed_pages(ix) else { break };
            if let Some(page) = changed.get(&n).filter(|page| within < page.now.len()) {
                let len = rest.min(page.now.len() - within);
                buf[done..done + len].copy_from_slice(&page.now[within..within + len]);
                done += len;
                continue;
            }
            let next = changed.range(n + 1..).next().map_or(u64::MAX, |(n, _)| n * PAGE_BYTES);
            let len = rest.min(usize::try_from(next - at).unwrap_or(usize::MAX));
            let file = self.lower_file(ix)?;
            let got = self.read_lower(ix, &file, &mut buf[done..done + len], at)?;
            done += got;
            if got < len {
                break;
            }
        }
        Ok(done)
    }

    /// Takes a file out of this state, before anything is done to it that is no overwrite of pages.
    pub(crate) fn leave_pages(&mut self, ix: Ix) -> Verb<()> {
        if self.changed_pages(ix).is_none() {
            return Ok(());
        }
        self.whole(ix)?;
        let size = self.size_with_pages(ix);
        if size > FILE_BYTES_MAX {
            return self.spill_pages(ix);
        }
        let Data::Pages(pages) = std::mem::replace(&mut self.object_mut(ix).data, Data::Base(None)) else {
            return Ok(());
        };
        let kept = self.keep_in_memory(ix, size);
        match &mut self.object_mut(ix).data {
            Data::Memory(memory) => {
                for (range, page) in ranges(&pages.changed).zip(pages.changed.values()) {
                    memory.bytes[range.start as usize..range.end as usize].copy_from_slice(&page.now);
                }
                kept.map(drop)
            }
            data => {
                *data = Data::Pages(pages);
                kept?;
                self.spill_pages(ix)
            }
        }
    }

    /// Moves them to a file in a slot.
    pub(crate) fn spill_pages(&mut self, ix: Ix) -> Verb<()> {
        let Some(changed) = self.changed_pages(ix).cloned() else { return Ok(()) };
        let (slot, fd) = self.private_file(ix)?;
        debug_assert_ne!(slot, NO_SLOT);
        let mut extents = Extents::default();
        for (range, page) in ranges(&changed).zip(changed.values()) {
            crate::bytes::write_all(&self.os, &fd, &page.now, range.start)?;
            extents.insert(range, Extent::Data);
        }
        let size = self.size_with_pages(ix);
        let object = self.object_mut(ix);
        object.file = (object.opens > 0).then_some(fd);
        object.data = Data::Overlay(Box::new(Overlay { slot, lower: None, extents, size }));
        self.hold(ix);
        Ok(())
    }
}
