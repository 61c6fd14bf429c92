//! Bytes of regular files.
//!
//! A staged file has its own. A lower file is in one of six states: *base* (the committed file's bytes),
//! *pages* (some were overwritten: pages.rs), *appended* (some come behind them: appended.rs), *memory* (a small file
//! that is to be changed: memory.rs), *private* (a file in a slot has them all: made by the first wish to change a file
//! of middle size, or by truncation to nothing), *overlay* (a large file: a sparse file in a slot has what changed, at
//! the same offsets). Guarantees: the committed file is never
//! written to; its bytes come from facts. A private file has the modification time of the committed one until
//! it is written to.

use super::extents::{Extent, Extents};
use super::Workset;
use crate::bytes::{copy_from, next_data, read_up_to};
use crate::facts::LowerFile;
use crate::outcome::Verb;
use crate::types::Access;
use crate::workset::node::{Data, Ix, Overlay, Private, NO_SLOT};
use std::sync::Arc;
use systx_os::{Errno, Open, Os};

/// Up to this size a lower file is copied whole before it is changed.
pub(crate) const COPY_BYTES_MAX: u64 = 128 << 10;
/// Bytes moved at a time.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;
/// So far a search for data goes: a part with very many extents is listed once, not once for each.
const SEARCH_BYTES: u64 = 64 << 20;

impl<O: Os> Workset<O> {
    /// Returns true if it was made here, or has bytes of its own.
    pub(crate) fn is_private(&self, ix: Ix) -> bool {
        let object = self.object(ix);
        (object.is_staged() && !object.names.is_empty()) || !matches!(object.data, Data::Base(_))
    }

    /// Closes the files of the committed tree; they are opened again when they are needed.
    pub(crate) fn close_committed_files(&mut self) {
        for object in self.nodes.iter_mut().filter(|object| object.lower.is_some()) {
            match &mut object.data {
                Data::Base(file) => {
                    (*file, object.file) = (None, None);
                }
                Data::Pages(pages) => pages.lower = None,
                Data::Overlay(overlay) => overlay.lower = None,
                Data::Appended(_) | Data::Private(_) | Data::Memory(_) => {}
            }
        }
    }

    /// Files whose private bytes, by slot and mount, were found to be those of the committed tree have these again.
    pub(crate) fn forget_slots(&mut self, slots: &[std::collections::HashSet<u32>]) {
        for object in &mut self.nodes {
            let gone = slots.get(usize::from(object.mount)).is_some_and(|s| s.contains(&object.data.slot()));
            if gone && object.data.slot() != NO_SLOT {
                (object.file, object.data) = (None, Data::Base(None));
            }
        }
    }

    /// The committed file, open. Its bytes become a fact.
    pub(crate) fn lower_file(&mut self, ix: Ix) -> Verb<Arc<LowerFile<O>>> {
        let object = self.object(ix);
        let known = match &object.data {
            Data::Base(file) => file,
            Data::Pages(pages) => &pages.lower,
            Data::Overlay(overlay) => &overlay.lower,
            Data::Appended(_) | Data::Private(_) | Data::Memory(_) => &None,
        };
        if let Some(file) = known {
            return Ok(file.clone());
        }
        let Some(lower) = &object.lower else { return Err(Errno::BADF.into()) };
        let fact = lower.fact;
        if self.is_unclaimed(ix) {
            return self.lower_file_now(ix, fact);
        }
        let file = Arc::new(self.facts.open(fact)?);
        self.know_again(ix);
        let object = self.object_mut(ix);
        let keep = object.opens > 0;
        match &mut object.data {
            Data::Base(known) if keep => *known = Some(file.clone()),
            Data::Pages(pages) => pages.lower = Some(file.clone()),
            Data::Overlay(overlay) => overlay.lower = Some(file.clone()),
            _ => return Ok(file),
        }
        self.hold(ix);
        Ok(file)
    }

    /// The committed file for a caller that reads it now and keeps it no longer than its call.
    pub(crate) fn lower_file_for_a_moment(&mut self, ix: Ix) -> Verb<Arc<LowerFile<O>>> {
        let object = self.object(ix);
        match (&object.data, &object.lower) {
            (Data::Base(None), Some(lower)) if !self.is_unclaimed(ix) => {
                let fact = lower.fact;
                let file = self.facts.open_for_a_moment(fact)?;
                self.know_again(ix);
                Ok(Arc::new(file))
            }
            _ => self.lower_file(ix),
        }
    }

    /// Descriptor of the file in a lower file's slot; what is in memory moves there.
    pub(crate) fn private_fd(&mut self, ix: Ix) -> Verb<Arc<O::Fd>> {
        self.spill(ix)?;
        if let Some(fd) = &self.object(ix).file {
            return Ok(fd.clone());
        }
        let (mount, slot) = (usize::from(self.object(ix).mount), self.object(ix).data.slot());
        let spot = self.slot_spot(mount, slot)?;
        let fd = Arc::new(self.os.open(&spot.dir, &spot.name, Open::ReadWrite)?);
        if self.object(ix).opens > 0 {
            self.object_mut(ix).file = Some(fd.clone());
            self.hold(ix);
        }
        Ok(fd)
    }

    /// Descriptor of a staged regular file.
    pub(crate) fn staged_fd(&mut self, ix: Ix, access: Access) -> Verb<Arc<O::Fd>> {
        let object = self.object(ix);
        if let Some(fd) = object.file.as_ref().filter(|_| access == Access::Read || !object.read_only) {
            return Ok(fd.clone());
        }
        let spot = self.spot(ix)?;
        let mut read_only = false;
        let opened = match self.os.open(&spot.dir, &spot.name, Open::ReadWrite) {
            // Without privileges the owner's own permission bits count.
            Err(Errno::ACCESS) if access == Access::Read => {
                read_only = true;
                self.os.open(&spot.dir, &spot.name, Open::Read)
            }
            Err(Errno::ACCESS) if access == Access::Write => self.os.open(&spot.dir, &spot.name, Open::Write),
            opened => opened,
        };
        let fd = Arc::new(opened?);
        let object = self.object_mut(ix);
        if object.opens > 0 {
            (object.file, object.read_only) = (Some(fd.clone()), read_only);
            self.hold(ix);
        }
        Ok(fd)
    }

    /// The file that has all bytes of a node, if there is one; bytes of a small or large changed file and of
    /// an unchanged one are elsewhere.
    pub(crate) fn whole_fd(&mut self, ix: Ix, access: Access) -> Verb<Option<Arc<O::Fd>>> {
        let object = self.object(ix);
        match (object.is_staged(), &object.data) {
            (true, _) => self.staged_fd(ix, access).map(Some),
            (false, Data::Private(_)) => self.private_fd(ix).map(Some),
            _ => Ok(None),
        }
    }

    /// Makes a slot with an empty file for a lower file's bytes.
    pub(crate) fn private_file(&mut self, ix: Ix) -> Verb<(u32, Arc<O::Fd>)> {
        let mount = usize::from(self.object(ix).mount);
        let slot = self.new_slot(mount)?;
        let spot = self.slot_spot(mount, slot)?;
        let fd = Arc::new(self.os.create(&spot.dir, &spot.name, 0o600)?);
        Ok((slot, fd))
    }

    /// Gives a lower file a private copy of its first `keep` bytes; its size is `keep` then.
    pub(crate) fn make_private(&mut self, ix: Ix, keep: u64) -> Verb<()> {
        if self.keep_in_memory(ix, keep)? {
            return Ok(());
        }
        let Some(lower) = &self.object(ix).lower else { return Ok(()) };
        let size = lower.stat.size;
        let source = match keep.min(size) {
            0 => None,
            _ => Some(self.lower_file(ix)?),
        };
        let (slot, fd) = self.private_file(ix)?;
        if let Some(source) = source {
            let mut buf = vec![0; keep.min(size).min(CHUNK_BYTES as u64) as usize];
            let mut at = 0;
            while at < keep.min(size) {
                let len = buf.len().min((keep.min(size) - at) as usize);
                let got = self.facts.read(&source, &mut buf[..len], at)?;
                if got == 0 {
                    break;
                }
                crate::bytes::write_all(&self.os, &fd, &buf[..got], at)?;
                at += got as u64;
            }
        }
        if keep != size || size > 0 {
            self.os.truncate(&fd, keep)?;
        }
        if keep != size {
            // A change: the time is that of the truncation.
            self.object_mut(ix).over.as_mut().and_then(|o| o.mtime.take());
            let now = self.now();
            self.object_mut(ix).over_mut().mtime = Some(now);
        }
        self.become_private(ix, fd, Private { slot, replaced: keep == 0 && size > 0 })
    }

    /// Marks that a file in a staging entry has all bytes from here on, and the time that the program sees.
    ///
    /// A later change is found by comparing it: no stamp shows it. A store through a shared mapping whose
    /// page was read before moves no time on tmpfs.
    pub(crate) fn become_private(&mut self, ix: Ix, fd: Arc<O::Fd>, private: Private) -> Verb<()> {
        let object = self.object_mut(ix);
        let time = object.over.as_mut().and_then(|o| o.mtime.take());
        let time = time.or(object.lower.as_ref().map(|l| l.stat.mtime));
        self.os.utimens(&fd, None, time)?;
        let object = self.object_mut(ix);
        object.file = (object.opens > 0).then_some(fd);
        object.data = Data::Private(Box::new(private));
        self.hold(ix);
        Ok(())
    }

    /// Gives a large lower file a place for what changes.
    fn make_overlay(&mut self, ix: Ix) -> Verb<()> {
        let Some(size) = self.object(ix).lower.as_ref().map(|l| l.stat.size) else { return Ok(()) };
        let lower = self.lower_file(ix)?;
        let (slot, fd) = self.private_file(ix)?;
        let object = self.object_mut(ix);
        object.file = (object.opens > 0).then_some(fd);
        let overlay = Overlay { slot, lower: Some(lower), extents: Extents::default(), size };
        object.data = Data::Overlay(Box::new(overlay));
        self.hold(ix);
        Ok(())
    }

    /// Makes sure that bytes of a lower file can be changed.
    pub(crate) fn make_changeable(&mut self, ix: Ix) -> Verb<()> {
        self.may_change(ix)?;
        self.before_bytes(ix)?;
        self.whole(ix)?;
        self.leave_pages(ix)?;
        let object = self.object(ix);
        match (&object.lower, &object.data) {
            (Some(lower), Data::Base(_)) if lower.stat.size <= COPY_BYTES_MAX => {
                self.make_private(ix, lower.stat.size)
            }
            (Some(_), Data::Base(_)) => self.make_overlay(ix),
            _ => Ok(()),
        }
    }

    /// Bytes of a node at `offset`; short only at its end.
    pub(crate) fn read_bytes(&mut self, ix: Ix, buf: &mut [u8], offset: u64) -> Verb<usize> {
        if self.appended(ix).is_some() {
            self.whole(ix)?;
        }
        if let Some(fd) = self.whole_fd(ix, Access::Read)? {
            return Ok(read_up_to(&self.os, &fd, buf, offset)?);
        }
        if let Some(memory) = self.memory(ix) {
            return Ok(copy_from(&memory.bytes, buf, offset));
        }
        if self.changed_pages(ix).is_some() {
            return self.read_pages(ix, buf, offset);
        }
        let Data::Overlay(overlay) = &self.object(ix).data else {
            let file = self.lower_file(ix)?;
            return self.read_lower(ix, &file, buf, offset);
        };
        let end = overlay.size.min(offset.saturating_add(buf.len() as u64));
        if end <= offset {
            return Ok(0);
        }
        let pieces = overlay.extents.pieces(offset..end);
        buf[..(end - offset) as usize].fill(0);
        for (range, kind) in pieces {
            let part = (range.start - offset) as usize..(range.end - offset) as usize;
            match kind {
                Some(Extent::Hole) => {}
                Some(Extent::Data) => {
                    let fd = self.private_fd(ix)?;
                    read_up_to(&self.os, &fd, &mut buf[part], range.start)?;
                }
                None => {
                    let file = self.lower_file(ix)?;
                    self.read_lower(ix, &file, &mut buf[part], range.start)?;
                }
            }
        }
        Ok((end - offset) as usize)
    }

    /// Where the next bytes of a node stand that may be other than zeros, from an offset on.
    pub(crate) fn next_data(&mut self, ix: Ix, offset: u64) -> Verb<u64> {
        if let Some(fd) = self.whole_fd(ix, Access::Read)? {
            return Ok(next_data(&self.os, &fd, offset));
        }
        if self.memory(ix).is_some() || self.changed_pages(ix).is_some() {
            return Ok(offset);
        }
        let size = match &self.object(ix).data {
            Data::Overlay(overlay) => overlay.size,
            _ => return self.next_data_of_lower(ix, offset),
        };
        let (mut from, mut below) = (offset, None);
        while from < size {
            let end = size.min(from.saturating_add(SEARCH_BYTES));
            let Data::Overlay(overlay) = &self.object(ix).data else { break };
            for (range, kind) in overlay.extents.pieces(from..end) {
                match kind {
                    Some(Extent::Hole) => continue,
                    Some(Extent::Data) => return Ok(range.start),
                    None => {}
                }
                // A place that was found once is the next for all in front of it.
                let data = match below.filter(|data| *data >= range.start) {
                    Some(data) => data,
                    None => self.next_data_of_lower(ix, range.start)?,
                };
                if data < range.end {
                    return Ok(data);
                }
                below = Some(data);
            }
            from = end;
        }
        Ok(u64::MAX)
    }

    fn next_data_of_lower(&mut self, ix: Ix, offset: u64) -> Verb<u64> {
        let file = self.lower_file(ix)?;
        self.facts.next_data(&file, offset)
    }

    /// Writes at `offset`; may be short.
    pub(crate) fn write_bytes(&mut self, ix: Ix, bytes: &[u8], offset: u64) -> Verb<usize> {
        if self.write_pages(ix, bytes, offset)? {
            return Ok(bytes.len());
        }
        self.make_changeable(ix)?;
        let end =
            offset.checked_add(bytes.len() as u64).filter(|e| *e <= i64::MAX as u64).ok_or(Errno::FBIG)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.memory(ix).is_some() && self.write_memory(ix, bytes, offset)? {
            return Ok(bytes.len());
        }
        if let Some(fd) = self.whole_fd(ix, Access::Write)? {
            return Ok(self.os.pwrite(&fd, bytes, offset)?);
        }
        let fd = self.private_fd(ix)?;
        let written = self.os.pwrite(&fd, bytes, offset)?;
        let end = end.min(offset + written as u64);
        self.change_overlay(ix, |overlay| {
            overlay.extents.insert(offset..end, Extent::Data);
            overlay.size = overlay.size.max(end);
        });
        Ok(written)
    }

    /// Changes an overlay and moves the file's modification time.
    pub(crate) fn change_overlay(&mut self, ix: Ix, change: impl FnOnce(&mut Overlay<O>)) {
        let now = self.now();
        let object = self.object_mut(ix);
        if let Data::Overlay(overlay) = &mut object.data {
            change(overlay);
        }
        let over = object.over_mut();
        (over.mtime, over.ctime) = (Some(now), Some(now));
    }

    /// Sets the size.
    pub(crate) fn set_size(&mut self, ix: Ix, size: u64) -> Verb<()> {
        self.may_change(ix)?;
        if size > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        self.before_bytes(ix)?;
        self.whole(ix)?;
        self.leave_pages(ix)?;
        let object = self.object(ix);
        if let (Some(lower), Data::Base(_)) = (&object.lower, &object.data) {
            let same = lower.stat.size == size && size > 0;
            if same {
                let now = self.now();
                let over = self.object_mut(ix).over_mut();
                (over.mtime, over.ctime) = (Some(now), Some(now));
                return Ok(());
            }
            return if size <= COPY_BYTES_MAX {
                self.make_private(ix, size).and_then(|()| self.moved_time(ix))
            } else {
                self.make_overlay(ix)?;
                self.set_overlay_size(ix, size)
            };
        }
        if self.memory(ix).is_some() && self.resize_memory(ix, size)? {
            return Ok(());
        }
        match self.whole_fd(ix, Access::Write)? {
            Some(fd) => {
                self.os.truncate(&fd, size)?;
                self.object_mut(ix).cut |= size > 0;
                if let Data::Private(private) = &mut self.object_mut(ix).data {
                    private.replaced |= size == 0;
                }
                self.moved_time(ix)
            }
            None => self.set_overlay_size(ix, size),
        }
    }

    /// truncate to the same size moves the time, too, which not every file system does by itself.
    fn moved_time(&mut self, ix: Ix) -> Verb<()> {
        if let Some(size) = self.memory(ix).map(|m| m.bytes.len() as u64) {
            return self.resize_memory(ix, size).map(drop);
        }
        if let Some(fd) = self.whole_fd(ix, Access::Write)? {
            let now = self.now();
            self.os.utimens(&fd, None, Some(now))?;
        }
        Ok(())
    }

    /// Tries a size on the file that has the changes of a large one: one that the file system refuses is
    /// refused now, and not by publication. The file has no size of its own that matters.
    pub(crate) fn try_size(&mut self, ix: Ix, size: u64) -> Verb<()> {
        let fd = self.private_fd(ix)?;
        if self.os.stat(&fd)?.size < size {
            Ok(self.os.truncate(&fd, size)?)
        } else {
            Ok(())
        }
    }

    fn set_overlay_size(&mut self, ix: Ix, size: u64) -> Verb<()> {
        if size == 0 {
            let fd = self.private_fd(ix)?;
            self.os.truncate(&fd, 0)?;
            let object = self.object_mut(ix);
            let slot = object.data.slot();
            object.data = Data::Private(Box::new(Private { slot, replaced: true }));
            if let Some(over) = &mut object.over {
                over.mtime = None;
            }
            return self.moved_time(ix);
        }
        self.try_size(ix, size)?;
        let lower_size = self.object(ix).lower.as_ref().map_or(0, |l| l.stat.size);
        self.change_overlay(ix, |overlay| {
            if size < overlay.size {
                overlay.extents.remove(size..u64::MAX);
                // Bytes that are cut off must not come back when the file grows again.
                overlay.extents.insert(size..lower_size.max(size), Extent::Hole);
            }
            overlay.size = size;
        });
        Ok(())
    }

    /// Releases private bytes that no name or descriptor reaches any more.
    pub(crate) fn reap(&mut self, ix: Ix) {
        if self.object(ix).opens > 0 || !self.is_gone(ix) || self.may_be_undone() {
            return;
        }
        let (mount, slot) = (usize::from(self.object(ix).mount), self.object(ix).data.slot());
        if slot != NO_SLOT {
            if let Ok(spot) = self.slot_spot(mount, slot) {
                let _ = self.os.unlink(&spot.dir, &spot.name);
            }
        }
        let object = self.object_mut(ix);
        object.file = None;
        object.data = Data::Base(None);
    }
}
