//! Bytes of files: whole reads and writes, and the checksums of sectors.
//!
//! Guarantees: a read ends at the end of the file only, a write when everything is written; interruptions are
//! not seen. Does not: decide what the bytes of a record mean.

use crate::record::SECTOR_BYTES;
use systx_os::{Errno, Os, Result, Seek};

/// Reads until `buf` is full or the file ends; the rest of `buf` stays zero.
pub(crate) fn read_up_to<O: Os>(os: &O, fd: &O::Fd, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match os.pread(fd, &mut buf[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// Where the next bytes of a file stand that may be other than zeros, from an offset on; the end of all numbers: there are
/// none.
pub(crate) fn next_data<O: Os>(os: &O, fd: &O::Fd, offset: u64) -> u64 {
    match os.seek(fd, offset, Seek::Data) {
        Ok(data) => data,
        Err(Errno::NXIO) => u64::MAX,
        // A file system that does not tell: all of it may be data.
        Err(_) => offset,
    }
}

/// CRC32C of a sector, as if zeros followed up to its full length.
pub(crate) fn sector_crc(bytes: &[u8]) -> u32 {
    match bytes.len() {
        SECTOR_BYTES => crc32c::crc32c(bytes),
        n => {
            let mut sector = [0; SECTOR_BYTES];
            sector[..n].copy_from_slice(bytes);
            crc32c::crc32c(&sector)
        }
    }
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_all<O: Os>(os: &O, fd: &O::Fd, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        match os.pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Bytes at `offset` of what is in memory; short only at its end.
pub(crate) fn copy_from(bytes: &[u8], buf: &mut [u8], offset: u64) -> usize {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let got = buf.len().min(bytes.len() - from);
    buf[..got].copy_from_slice(&bytes[from..from + got]);
    got
}

/// All bytes of a file; `None`: it is longer than this, in bytes.
pub(crate) fn read_whole<O: Os>(os: &O, fd: &O::Fd, max: u64) -> Result<Option<Vec<u8>>> {
    let size = os.stat(fd)?.size;
    if size > max {
        return Ok(None);
    }
    let mut bytes = vec![0; size as usize];
    let got = read_up_to(os, fd, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Longest file that is read; no person reads more.
const FILE_BYTES_MAX: usize = 1 << 20;

pub(crate) fn read_file<O: Os>(os: &O, fd: &O::Fd) -> Result<Vec<u8>> {
    let size = usize::try_from(os.stat(fd)?.size).unwrap_or(usize::MAX).min(FILE_BYTES_MAX);
    let mut bytes = vec![0; size];
    let got = read_up_to(os, fd, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}
