//! Bytes of regular files that the kernel does not reach by itself.

use super::attrs::{offset, Kill};
use crate::call::Call;
use crate::view::View;
use crate::wire::layout::*;
use crate::wire::{Opcode, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_os::{Errno, Os, Seek};

/// lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Bytes that one COPY_FILE_RANGE copies at most: others wait meanwhile.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn read(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: ReadIn = call.take()?;
        let read = self.tx.read_at(call.node, reply.room(args.size as usize), offset(args.offset)?)?;
        reply.filled(read);
        Ok(())
    }

    /// Writes. An append comes with the offset where the file ends: the kernel knows it, as no other program
    /// writes here.
    pub(super) fn write(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: WriteIn = call.take()?;
        let bytes = call.bytes(args.size)?;
        if self.files.is_privileged(call.node) {
            let all = args.write_flags & WRITE_KILL_SUIDGID != 0;
            self.kill_privileges(&call, call.node, if all { Kill::All } else { Kill::Capability })?;
        }
        let size = self.tx.write_at(call.node, bytes, offset(args.offset)?)? as u32;
        reply.put(&WriteOut { size, padding: 0 });
        Ok(())
    }

    pub(super) fn lseek(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: LseekIn = call.take()?;
        let to = match args.whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        reply.put(&LseekOut { offset: self.tx.seek(call.node, offset(args.offset)?, to)? });
        Ok(())
    }

    pub(super) fn fallocate(&mut self, mut call: Call<'_>) -> Verb<()> {
        let args: FallocateIn = call.take()?;
        let end = args.offset.checked_add(args.length).ok_or(Errno::FBIG)?;
        offset(end).map_err(|_| Errno::FBIG)?;
        if self.files.is_privileged(call.node) {
            self.kill_privileges(&call, call.node, Kill::by(call.uid))?;
        }
        self.tx.fallocate(call.node, args.mode as i32, args.offset, args.length)
    }

    pub(super) fn copy_file_range(
        &mut self,
        opcode: Opcode,
        mut call: Call<'_>,
        reply: &mut Reply,
    ) -> Verb<()> {
        let args: CopyFileRangeIn = call.take()?;
        let to = call.other(args.nodeid_out)?;
        if args.flags != 0 {
            return Err(Errno::INVAL.into());
        }
        if self.files.is_privileged(to) {
            self.kill_privileges(&call, to, Kill::by(call.uid))?;
        }
        let (from, at) = (offset(args.off_in)?, offset(args.off_out)?);
        let copied = self.tx.copy_range(call.node, from, to, at, args.len.min(COPY_BYTES_MAX))?;
        match opcode {
            Opcode::CopyFileRange64 => reply.put(&CopyFileRangeOut { bytes_copied: copied }),
            _ => reply.put(&WriteOut { size: copied as u32, padding: 0 }),
        }
        Ok(())
    }
}
