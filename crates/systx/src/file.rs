//! An open file of a transaction.

use crate::calls::Opened;
use crate::error::Error;
use crate::handles::Birth;
use crate::metadata::{stamp, Metadata};
use crate::open_options::OpenOptions;
use crate::permission;
use crate::state::{Answer, Calling, Tx};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;
use systx_engine::transaction::{AppendedAt, Node, SetAttr, SetTime};
use systx_os::Errno;

/// An open file. Clones share the offset, as descriptors made by dup(2) do.
#[derive(Clone)]
pub struct File {
    pub(crate) open: Arc<Open>,
}

pub(crate) struct Open {
    pub tx: Arc<Tx>,
    pub birth: Birth,
    pub target: Target,
    reads: bool,
    pub writes: bool,
    appends: bool,
    /// From [`BEHIND_END`] on it is so far behind the end that the file has before the transaction.
    offset: Arc<Mutex<u64>>,
}

/// No file is that long.
const BEHIND_END: u64 = 1 << 63;

pub(crate) enum Target {
    Inside(Node),
    /// Of a file system that the transaction does not serve. The transaction closes it.
    Outside(Weak<std::fs::File>),
}

impl Drop for Open {
    fn drop(&mut self) {
        match &self.target {
            Target::Inside(node) => self.tx.close(*node),
            Target::Outside(file) => self.tx.close_outside(file),
        }
    }
}

impl File {
    /// Of a file that was opened in this call.
    pub(crate) fn new(
        tx: &Arc<Tx>,
        calling: &mut Calling<'_>,
        opened: Opened,
        options: &OpenOptions,
        offset: Arc<Mutex<u64>>,
    ) -> File {
        let target = match opened {
            Opened::Inside(node) => Target::Inside(node),
            Opened::Outside(fd) => Target::Outside(calling.keep_outside(fd.into())),
        };
        calling.state.handles.watch(&offset);
        let open = Open {
            tx: tx.clone(),
            birth: calling.state.handles.birth(),
            target,
            reads: options.read,
            writes: options.write || options.append,
            appends: options.append,
            offset,
        };
        File { open: Arc::new(open) }
    }

    pub(crate) fn offset(&self) -> MutexGuard<'_, u64> {
        self.open.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset from the start of the file, which makes its end a fact where it goes by that.
    pub(crate) fn offset_from_start(&self) -> io::Result<MutexGuard<'_, u64>> {
        let mut offset = self.offset();
        if let (Some(behind), Target::Inside(node)) = (offset.checked_sub(BEHIND_END), &self.open.target) {
            let end = |calling: &mut Calling<'_>| Ok(calling.state.engine.end_before(*node)?);
            *offset = self.open.tx.call_on(self.open.birth, end)? + behind;
        }
        Ok(offset)
    }

    /// A call on the node, or its answer outside.
    pub(crate) fn call<T>(
        &self,
        inside: impl FnOnce(&mut Calling<'_>, Node) -> Answer<T>,
        outside: impl FnOnce(&std::fs::File) -> io::Result<T>,
    ) -> io::Result<T> {
        match &self.open.target {
            Target::Inside(node) => self.open.tx.call_on(self.open.birth, |calling| inside(calling, *node)),
            Target::Outside(file) => outside(&*self.outside(file)?),
        }
    }

    /// The file outside, as long as the transaction goes on. A thread that waits in it keeps it open so long.
    pub(crate) fn outside(&self, file: &Weak<std::fs::File>) -> io::Result<Arc<std::fs::File>> {
        self.open.tx.goes_on(self.open.birth)?;
        file.upgrade().ok_or_else(|| Error::Ended.into())
    }

    pub(crate) fn may_read(&self) -> io::Result<()> {
        self.open.reads.then_some(()).ok_or(Errno::BADF.into())
    }

    pub(crate) fn may_write(&self) -> io::Result<()> {
        self.open.writes.then_some(()).ok_or(Errno::BADF.into())
    }

    /// Attributes.
    ///
    /// # Errors
    /// Of a transaction that has ended or met a conflict.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let inside = |calling: &mut Calling<'_>, node| Ok(calling.state.engine.getattr(node)?.into());
        self.call(inside, |file| {
            let fd = Arc::new(file.try_clone()?.into());
            Ok(Metadata::from(systx_os::outside::Outside::of(&fd)?.stat()))
        })
    }

    /// Size in bytes, and nothing else that a later write to the file would change.
    fn len(&self) -> io::Result<u64> {
        let inside = |calling: &mut Calling<'_>, node| Ok(calling.state.engine.size(node)?);
        self.call(inside, |file| Ok(file.metadata()?.len()))
    }

    /// Sets the size in bytes; new bytes are zeros.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.open.writes.then_some(()).ok_or(Errno::INVAL)?;
        self.call(|calling, node| calling.set_size(node, size), |file| file.set_len(size))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let inside = |calling: &mut Calling<'_>, node| {
            let attr = calling.state.engine.rights(node)?;
            calling.set_mode(node, &attr, mode)
        };
        self.call(inside, |_| Err(Errno::ROFS.into()))
    }

    /// Sets the time of the last modification.
    ///
    /// # Errors
    /// As futimens(2).
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        let inside = |calling: &mut Calling<'_>, node| {
            let attr = calling.state.engine.getattr(node)?;
            if !permission::is_owner(&*calling.caller()?, &attr) {
                return Err(Errno::PERM.into());
            }
            let set = SetAttr { mtime: Some(SetTime::At(stamp(time))), ..SetAttr::default() };
            calling.state.engine.setattr(node, &set)?;
            Ok(())
        };
        self.call(inside, |_| Err(Errno::ROFS.into()))
    }

    /// Returns at once: what the transaction writes is durable when it has committed.
    ///
    /// # Errors
    /// None.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn read_from(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.may_read()?;
        match &self.open.target {
            Target::Inside(node) => match self.open.tx.read_on(self.open.birth, *node, buf, offset) {
                Some(got) => Ok(got),
                None => self.open.tx.call_on(self.open.birth, |calling| {
                    i64::try_from(offset).map_err(|_| Errno::INVAL)?;
                    Ok(calling.state.engine.read_at(*node, buf, offset)?)
                }),
            },
            Target::Outside(file) => self.outside(file)?.read_at(buf, offset),
        }
    }

    pub(crate) fn write_to(&self, bytes: &[u8], offset: u64) -> io::Result<(u64, usize)> {
        self.may_write()?;
        let appends = self.open.appends && !bytes.is_empty();
        let inside = |calling: &mut Calling<'_>, node| {
            if !appends {
                return Ok((offset, calling.write_at(node, bytes, offset)?));
            }
            let (at, written) = calling.append(node, bytes)?;
            let at = match at {
                AppendedAt::Offset(at) => at,
                AppendedAt::BehindEnd(behind) => BEHIND_END + behind,
            };
            Ok((at, written))
        };
        self.call(inside, |mut file| Ok((offset, file.write(bytes)?)))
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(bytes, offset).map(|(_, written)| written)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut offset = self.offset_from_start()?;
        let read = match &self.open.target {
            // A device has no offset of ours.
            Target::Outside(file) => {
                self.may_read()?;
                (&*self.outside(file)?).read(buf)?
            }
            Target::Inside(_) => self.read_from(buf, *offset)?,
        };
        *offset += read as u64;
        Ok(read)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut offset = self.offset();
        let (at, written) = self.write_to(bytes, *offset)?;
        *offset = at + written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut offset = match to {
            SeekFrom::Current(_) => self.offset_from_start()?,
            SeekFrom::Start(_) | SeekFrom::End(_) => self.offset(),
        };
        let target = match (to, &self.open.target) {
            (_, Target::Outside(file)) => (&*self.outside(file)?).seek(to)?,
            (SeekFrom::Start(at), _) => at,
            (SeekFrom::Current(by), _) => offset.checked_add_signed(by).ok_or(Errno::INVAL)?,
            (SeekFrom::End(by), _) => self.len()?.checked_add_signed(by).ok_or(Errno::INVAL)?,
        };
        i64::try_from(target).map_err(|_| Errno::INVAL)?;
        *offset = target;
        Ok(target)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").finish_non_exhaustive()
    }
}
