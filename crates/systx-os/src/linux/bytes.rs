//! Contents: reading, writing, sizes, allocation, block sharing. Every transfer names its offset; the position of the
//! open file is never relied on.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::retry_on_intr;

use super::durability;
use super::raw::check_int;
use crate::call::AsOfCall;
use crate::types::{Errno, Fallocate, Result, Seek, Writing};

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
/// FIEMAP_EXTENT_UNWRITTEN. What a file system plans to allocate, or does for what may be appended, has not this flag.
const UNWRITTEN: u32 = 0x800;
/// FIEMAP_EXTENT_DELALLOC: nothing is allocated yet.
const PLANNED: u32 = 0x4;
/// A small file has hardly more extents that are planned.
const PLANNED_MAX: usize = 32;

pub(super) const EXT4_MAGIC: u64 = 0xef53;
/// EXT4_EXTENTS_FL: not a map of blocks, as of ext3.
const HAS_EXTENTS: u32 = 0x8_0000;

/// struct fiemap of linux/fiemap.h with room for one struct fiemap_extent.
#[repr(C)]
#[derive(Default)]
struct Extents {
    start: u64,
    length: u64,
    flags: u32,
    found: u32,
    room: u32,
    reserved: u32,
    of_first: [u64; 5],
    flags_of_first: u32,
    rest_of_first: [u32; 3],
}

/// Most bytes that one copy through our memory moves.
const COPY_BYTES: usize = 256 << 10;

pub(super) fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let at = offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
        match retry_on_intr(|| rustix::io::pread(fd, &mut buf[done..], at)) {
            Ok(0) => break,
            Ok(n) => done += n,
            // The bytes read so far are good; the next call meets the error again.
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Refuses what the kernel would refuse with a signal that ends the process, SIGXFSZ: a write, or an end of a file,
/// beyond the limit on the size of files (RLIMIT_FSIZE). A process of our own ignores that signal.
///
/// Source: generic_write_checks() and inode_newsize_ok() of the kernel. A write that begins below it is cut there.
fn below_limit(end: impl FnOnce() -> Result<u64>) -> Result<()> {
    if super::umask::is_ours() {
        return Ok(());
    }
    let present = || rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match LIMIT.with(|limit| limit.get(present)) {
        Some(limit) if end()? > limit => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

thread_local! {
    static LIMIT: AsOfCall<Option<u64>> = const { AsOfCall::never_asked() };
}

/// The first byte that is written.
fn first(offset: u64) -> Result<u64> {
    offset.checked_add(1).ok_or(Errno::FBIG)
}

/// The end of a file that grows to `size`. One that is longer may be cut, and may stay, however large it is.
fn grown(fd: BorrowedFd<'_>, size: u64) -> Result<u64> {
    Ok(if rustix::fs::fstat(fd)?.st_size as u64 >= size { 0 } else { size })
}

pub(super) fn pwrite(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> Result<usize> {
    below_limit(|| first(offset))?;
    match retry_on_intr(|| rustix::io::pwrite(fd, buf, offset))? {
        0 if !buf.is_empty() => Err(Errno::IO),
        n => Ok(n),
    }
}

pub(super) fn truncate(fd: BorrowedFd<'_>, size: u64) -> Result<()> {
    below_limit(|| grown(fd, size))?;
    retry_on_intr(|| rustix::fs::ftruncate(fd, size))
}

/// Up to here every file system has files.
const EVERYWHERE: u64 = (1 << 31) - 1;

pub(super) fn may_end_at(fd: BorrowedFd<'_>, size: u64) -> Result<()> {
    below_limit(|| Ok(size))?;
    if size <= EVERYWHERE {
        return Ok(());
    }
    // Nothing of ours reads or writes at a descriptor's own offset.
    match rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(size)) {
        Err(Errno::INVAL) => Err(Errno::FBIG),
        moved => moved.map(drop),
    }
}

pub(super) fn fallocate(fd: BorrowedFd<'_>, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
    if matches!(mode, Fallocate::Allocate | Fallocate::Zero) {
        below_limit(|| grown(fd, offset.checked_add(len).ok_or(Errno::FBIG)?))?;
    }
    let flags = match mode {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Fallocate::Zero => FallocateFlags::ZERO_RANGE,
        Fallocate::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    };
    retry_on_intr(|| rustix::fs::fallocate(fd, flags, offset, len))
}

pub(super) fn reserved_at(fd: BorrowedFd<'_>, offset: u64) -> Result<bool> {
    match first_extent(fd, offset, 1) {
        // Behind the end of the longest file that the file system can have.
        Err(Errno::FBIG) => Ok(false),
        found => found.map(|extents| extents.found == 1 && extents.flags_of_first & UNWRITTEN != 0),
    }
}

pub(super) fn was_written_out(fd: BorrowedFd<'_>) -> Result<bool> {
    let mut at = 0;
    for _ in 0..PLANNED_MAX {
        let extents = match first_extent(fd, at, u64::MAX - at) {
            // tmpfs has none.
            Err(Errno::OPNOTSUPP) => return Ok(false),
            found => found?,
        };
        if extents.found == 0 {
            return Ok(false);
        }
        if extents.flags_of_first & PLANNED == 0 {
            return Ok(true);
        }
        let [start, _, length, ..] = extents.of_first;
        at = start.saturating_add(length).max(at + 1);
    }
    Ok(true)
}

/// The first extent of a part of a file.
fn first_extent(fd: BorrowedFd<'_>, start: u64, length: u64) -> Result<Extents> {
    let mut extents = Extents { start, length, room: 1, ..Extents::default() };
    // SAFETY: the descriptor is open, and the request fills the struct and as many extents behind it as it has room for.
    let returned =
        unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP as _, std::ptr::from_mut(&mut extents)) };
    check_int(returned).map(|_| extents)
}

pub(super) fn copy_range(
    from: BorrowedFd<'_>,
    from_offset: u64,
    to: BorrowedFd<'_>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    below_limit(|| first(to_offset))?;
    let wanted = usize::try_from(len).unwrap_or(usize::MAX);
    let copied = retry_on_intr(|| {
        let (mut read_at, mut write_at) = (from_offset, to_offset);
        rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), wanted)
    });
    match copied {
        Ok(n) => Ok(n as u64),
        // Two kinds of file system, or one that cannot: through our memory.
        Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let mut buf = vec![0; wanted.min(COPY_BYTES)];
            let n = pread(from, &mut buf, from_offset)?;
            pwrite(to, &buf[..n], to_offset).map(|n| n as u64)
        }
        Err(e) => Err(e),
    }
}

/// The descriptor's own position shows where the bytes went: no other code has this open file description.
pub(super) fn append(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(u64, usize)> {
    below_limit(|| first(rustix::fs::fstat(fd)?.st_size as u64))?;
    let parts = [std::io::IoSlice::new(bytes)];
    // An offset of -1 writes at, and moves, the position.
    let written =
        retry_on_intr(|| rustix::io::pwritev2(fd, &parts, u64::MAX, rustix::io::ReadWriteFlags::APPEND))?;
    let end = rustix::fs::seek(fd, SeekFrom::Current(0))?;
    Ok((end - written as u64, written))
}

/// ext4 counts bytes that were written behind a hole, and have no place on the disk yet, to that hole, in files without
/// extents (seen with 6.18): there they get one first.
pub(super) fn seek(fd: BorrowedFd<'_>, offset: u64, to: Seek) -> Result<u64> {
    let Seek::Data = to else { return rustix::fs::seek(fd, SeekFrom::Hole(offset)) };
    let found = rustix::fs::seek(fd, SeekFrom::Data(offset));
    if found == Ok(offset) || !has_blind_holes(fd)? {
        return found;
    }
    durability::write_out(fd, Writing::Wait)?;
    rustix::fs::seek(fd, SeekFrom::Data(offset))
}

fn has_blind_holes(fd: BorrowedFd<'_>) -> Result<bool> {
    let is_ext4 = rustix::fs::fstatfs(fd)?.f_type as u64 == EXT4_MAGIC;
    Ok(is_ext4 && super::flags::get(fd)? & HAS_EXTENTS == 0)
}
