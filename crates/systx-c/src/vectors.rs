//! Reads and writes with several buffers. Each is one call of the transaction.

use crate::border::{border, Iovecs};
use crate::files::{offset_of, with_file};
use libc::{c_int, off_t};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use systx::posix::Errno;

/// readv(2).
#[no_mangle]
pub extern "C" fn systx_readv(fd: c_int, iov: Iovecs, count: c_int) -> isize {
    border(|| {
        let read = iov.scatter(count, |buf| with_file(fd, Errno::ISDIR, |mut file| file.read(buf)))?;
        Ok(read as isize)
    })
}

/// preadv(2).
#[no_mangle]
pub extern "C" fn systx_preadv(fd: c_int, iov: Iovecs, count: c_int, offset: off_t) -> isize {
    border(|| {
        let offset = offset_of(offset)?;
        let read = iov.scatter(count, |buf| with_file(fd, Errno::ISDIR, |file| file.read_at(buf, offset)))?;
        Ok(read as isize)
    })
}

/// writev(2).
#[no_mangle]
pub extern "C" fn systx_writev(fd: c_int, iov: Iovecs, count: c_int) -> isize {
    border(|| {
        let bytes = iov.gather(count)?;
        with_file(fd, Errno::BADF, |mut file| file.write(&bytes)).map(|written| written as isize)
    })
}

/// pwritev(2).
#[no_mangle]
pub extern "C" fn systx_pwritev(fd: c_int, iov: Iovecs, count: c_int, offset: off_t) -> isize {
    border(|| {
        let (bytes, offset) = (iov.gather(count)?, offset_of(offset)?);
        with_file(fd, Errno::BADF, |file| file.write_at(&bytes, offset)).map(|written| written as isize)
    })
}
