//! Contents: open, read, write, fallocate, copy, seek.

use crate::outcome::Verb;
use crate::transaction::{Access, AppendedAt, Node, Transaction};
use crate::workset::data::{CHUNK_BYTES, COPY_BYTES_MAX};
use crate::workset::extents::Extent;
use crate::workset::node::{Data, Ix};
use crate::workset::Workset;
use systx_os::{Errno, Fallocate, FileType, Os, Seek};

/// Most bytes of one copy; copy_file_range(2) may be short.
const COPY_RANGE_BYTES_MAX: u64 = 4 << 20;

impl<O: Os> Transaction<O> {
    /// Counts an open; an unlinked file that is open keeps its bytes.
    pub fn open(&mut self, node: Node, access: Access, truncate: bool) -> Verb<()> {
        self.ours()?;
        let ix = self.workset.ix(node);
        if self.workset.object(ix).kind == FileType::Directory && (access != Access::Read || truncate) {
            return Err(Errno::ISDIR.into());
        }
        if self.workset.object(ix).kind == FileType::Directory {
            self.workset.renew(ix)?;
        }
        self.workset.object_mut(ix).opens += 1;
        let ready = match self.workset.object(ix).kind {
            FileType::File => prepare_open(&mut self.workset, ix, access, truncate),
            _ => Ok(()),
        };
        if ready.is_err() {
            self.workset.object_mut(ix).opens -= 1;
        }
        ready
    }

    /// Undoes one open.
    pub fn close(&mut self, node: Node) {
        if self.ours().is_err() {
            return;
        }
        let ix = self.workset.ix(node);
        let object = self.workset.object_mut(ix);
        object.opens = object.opens.saturating_sub(1);
        if object.opens > 0 {
            return;
        }
        if self.workset.keep_closed(ix) {
            return;
        }
        let object = self.workset.object_mut(ix);
        (object.file, object.read_only) = (None, false);
        if let Some(dir) = &mut object.dir {
            dir.listed = None;
        }
        self.workset.close_unclaimed(ix);
        match &mut self.workset.object_mut(ix).data {
            Data::Base(file) => *file = None,
            Data::Pages(pages) => pages.lower = None,
            Data::Overlay(overlay) => overlay.lower = None,
            Data::Appended(_) | Data::Private(_) | Data::Memory(_) => {}
        }
        self.workset.reap(ix);
        self.workset.let_go_unclaimed(ix);
    }

    /// The private file whose bytes are all of the node's: after an open, it may be read and written directly.
    pub fn backing(&mut self, node: Node) -> Option<&O::Fd> {
        let ix = self.workset.ix(node);
        self.ours().ok()?;
        // The lock that proves an owner alive hangs on a mapping, which would be one of the private file.
        if self.workset.is_of_sub_area(ix) {
            return None;
        }
        let object = self.workset.object(ix);
        match &object.data {
            Data::Overlay(_) | Data::Pages(_) | Data::Appended(_) | Data::Memory(_) => None,
            Data::Base(_) if !object.is_staged() => None,
            _ => object.file.as_deref(),
        }
    }

    /// Reads at `offset`; short only at the end of the file.
    pub fn read_at(&mut self, node: Node, buf: &mut [u8], offset: u64) -> Verb<usize> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        self.workset.read_bytes(ix, buf, offset)
    }

    /// Reads at `offset` from a committed file that is open, where nothing has to be asked but the bytes: no commit is
    /// under way. `None`: [`Transaction::read_at`] knows.
    ///
    /// The caller need not look at the descriptor: that is done when it is closed. If it was another's by then, the
    /// transaction can't commit.
    pub fn read_on(&mut self, node: Node, buf: &mut [u8], offset: u64) -> Option<usize> {
        self.ours().ok()?;
        let ix = regular(&self.workset, node).ok()?;
        match &self.workset.object(ix).data {
            Data::Base(Some(file)) if i64::try_from(offset).is_ok() => {
                let file = file.clone();
                self.workset.facts_mut().read_on(&file, buf, offset)
            }
            _ => None,
        }
    }

    /// Writes at `offset`.
    pub fn write_at(&mut self, node: Node, bytes: &[u8], offset: u64) -> Verb<usize> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        let mut done = 0;
        while done < bytes.len() {
            match self.workset.write_bytes(ix, &bytes[done..], offset + done as u64) {
                Ok(n) => done += n,
                // The bytes written so far are good; the next call meets the error again.
                Err(crate::outcome::VerbError::Os(_)) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes at the end, which need not be known: then it is found when it commits, and is no fact.
    pub fn append(&mut self, node: Node, bytes: &[u8]) -> Verb<(AppendedAt, usize)> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        if let Some(behind) = self.workset.append_unseen(ix, bytes)? {
            return Ok((AppendedAt::BehindEnd(behind), bytes.len()));
        }
        let end = self.size(node)?;
        Ok((AppendedAt::Offset(end), self.write_at(node, bytes, end)?))
    }

    /// Size in bytes. Of a file nothing else is a fact by that.
    pub fn size(&mut self, node: Node) -> Verb<u64> {
        self.ours()?;
        let ix = self.workset.ix(node);
        self.workset.renew(ix)?;
        self.workset.sized(ix)?;
        Ok(self.workset.attr(ix)?.size)
    }

    /// The end that [`AppendedAt::BehindEnd`] goes by. From here on it is a fact.
    pub fn end_before(&mut self, node: Node) -> Verb<u64> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        self.workset.whole(ix)?;
        self.workset.object(ix).lower.as_ref().map(|lower| lower.stat.size).ok_or(Errno::BADF.into())
    }

    /// fallocate(2) with its flags; `EOPNOTSUPP` for those that move bytes.
    pub fn fallocate(&mut self, node: Node, mode: i32, offset: u64, len: u64) -> Verb<()> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        let how = match mode {
            0 => Fallocate::Allocate,
            libc::FALLOC_FL_KEEP_SIZE => Fallocate::KeepSize,
            m if m == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::Zero,
            m if m == libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE => Fallocate::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let end = offset.checked_add(len).filter(|e| *e <= i64::MAX as u64).ok_or(Errno::FBIG)?;
        self.workset.make_changeable(ix)?;
        // Blocks without bytes, and bytes without blocks, are a file system's.
        self.workset.spill(ix)?;
        if let Some(fd) = self.workset.whole_fd(ix, Access::Write)? {
            self.workset.object_mut(ix).cut = true;
            return Ok(self.workset.os().fallocate(&fd, how, offset, len)?);
        }
        self.workset.try_size(ix, end)?;
        self.workset.change_overlay(ix, |overlay| {
            let grows = matches!(how, Fallocate::Allocate | Fallocate::Zero);
            if matches!(how, Fallocate::PunchHole | Fallocate::Zero | Fallocate::ZeroKeepSize) {
                let end = if grows { end } else { end.min(overlay.size) };
                overlay.extents.insert(offset..end.max(offset), Extent::Hole);
            }
            if grows {
                overlay.size = overlay.size.max(end);
            }
        });
        Ok(())
    }

    /// Copies bytes between files; may be short.
    pub fn copy_range(
        &mut self,
        from: Node,
        from_offset: u64,
        to: Node,
        to_offset: u64,
        len: u64,
    ) -> Verb<u64> {
        self.ours()?;
        let (source, target) = (regular(&self.workset, from)?, regular(&self.workset, to)?);
        let apart = from_offset.abs_diff(to_offset) >= len;
        if source == target && !apart {
            return Err(Errno::INVAL.into());
        }
        self.workset.whole(source)?;
        let size = self.workset.attr(source)?.size;
        let len = len.min(size.saturating_sub(from_offset)).min(COPY_RANGE_BYTES_MAX);
        if len == 0 {
            return Ok(0);
        }
        self.workset.make_changeable(target)?;
        let files =
            (self.workset.whole_fd(source, Access::Read)?, self.workset.whole_fd(target, Access::Write)?);
        if let (Some(source), Some(target)) = files {
            return Ok(self.workset.os().copy_range(&source, from_offset, &target, to_offset, len)?);
        }
        let mut buf = vec![0; (len as usize).min(CHUNK_BYTES)];
        let mut done = 0;
        while done < len {
            let want = buf.len().min((len - done) as usize);
            let got = self.workset.read_bytes(source, &mut buf[..want], from_offset + done)?;
            if got == 0 {
                break;
            }
            let put = self.write_at(to, &buf[..got], to_offset + done)?;
            done += put as u64;
            if put < got {
                break;
            }
        }
        Ok(done)
    }

    /// Start of the next data or hole at or after `offset`; `ENXIO` past the end.
    pub fn seek(&mut self, node: Node, offset: u64, to: Seek) -> Verb<u64> {
        self.ours()?;
        let ix = regular(&self.workset, node)?;
        if let Some(fd) = self.workset.whole_fd(ix, Access::Read)? {
            return Ok(self.workset.os().seek(&fd, offset, to)?);
        }
        self.workset.whole(ix)?;
        self.workset.leave_pages(ix)?;
        if let Some(size) = self.workset.memory(ix).map(|m| m.bytes.len() as u64) {
            return if offset < size {
                Ok(if to == Seek::Hole { size } else { offset })
            } else {
                Err(Errno::NXIO.into())
            };
        }
        let Data::Overlay(overlay) = &self.workset.object(ix).data else {
            let file = self.workset.lower_file(ix)?;
            return Ok(file.seek(self.workset.os(), offset, to)?);
        };
        if offset >= overlay.size {
            return Err(Errno::NXIO.into());
        }
        // Bytes of the committed file count as data: its layout is no fact.
        let wanted = |kind: &Option<Extent>| (*kind == Some(Extent::Hole)) == (to == Seek::Hole);
        let next = overlay.extents.pieces(offset..overlay.size).into_iter().find(|(_, kind)| wanted(kind));
        match next {
            Some((range, _)) => Ok(range.start),
            None if to == Seek::Hole => Ok(overlay.size),
            None => Err(Errno::NXIO.into()),
        }
    }
}

fn prepare_open<O: Os>(workset: &mut Workset<O>, ix: Ix, access: Access, truncate: bool) -> Verb<()> {
    if workset.object(ix).is_staged() {
        workset.staged_fd(ix, access)?;
    } else if workset.is_unclaimed(ix) && access == Access::Read && !truncate {
        return workset.open_unclaimed(ix);
    } else if access != Access::Read && !truncate {
        workset.may_change(ix)?;
        let small = workset.object(ix).lower.as_ref().is_some_and(|l| l.stat.size <= COPY_BYTES_MAX);
        if small && matches!(workset.object(ix).data, Data::Base(_)) && !workset.goes_by_pages(ix) {
            workset.make_changeable(ix)?;
        }
    }
    if truncate {
        workset.set_size(ix, 0)?;
    }
    if matches!(workset.object(ix).data, Data::Private(_)) {
        workset.private_fd(ix)?;
    }
    Ok(())
}

/// A node whose bytes can be had.
fn regular<O: Os>(workset: &Workset<O>, node: Node) -> Verb<Ix> {
    let ix = workset.ix(node);
    match workset.object(ix).kind {
        FileType::File => Ok(ix),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}
