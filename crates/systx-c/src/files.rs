//! Open files: `systx_openat`, `systx_read` and what else works with a descriptor.

use crate::border::{border, descriptor, Answer, Bytes, Room, Text, MOVED_BYTES_MAX};
use crate::errors::refusal;
use crate::numbers::Handle;
use crate::subject::{handle, Base};
use crate::world::World;
use libc::{c_int, mode_t, off_t, size_t};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use systx::posix::{self, Errno, Opened, Wanted};
use systx::OpenOptions;

/// The flags of open(2), understood.
fn options(flags: c_int, mode: mode_t) -> Answer<(OpenOptions, Wanted)> {
    let has = |flag: c_int| flags & flag == flag;
    let wanted = match () {
        () if has(libc::O_TMPFILE) => return Err(Errno::OPNOTSUPP),
        () if has(libc::O_PATH) && has(libc::O_DIRECTORY) => Wanted::Place,
        () if has(libc::O_PATH) => return Err(Errno::OPNOTSUPP),
        () if has(libc::O_DIRECTORY) && has(libc::O_CREAT) => return Err(Errno::INVAL),
        () if has(libc::O_DIRECTORY) => Wanted::Directory,
        () => Wanted::Any,
    };
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Errno::INVAL),
    };
    let options = OpenOptions::new()
        .as_posix()
        .read(reads)
        .write(writes)
        // Without writing it means nothing.
        .append(writes && has(libc::O_APPEND))
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT | libc::O_EXCL))
        .no_follow(has(libc::O_NOFOLLOW))
        .mode(mode & 0o7777);
    Ok((options, wanted))
}

/// Opens a path at a number.
pub(crate) fn open(dirfd: c_int, path: &[u8], flags: c_int, mode: mode_t) -> Answer<c_int> {
    let (options, wanted) = options(flags, mode)?;
    let base = Base::of(dirfd, path)?;
    let world = World::now().ok_or(Errno::INVAL)?;
    let number = world.numbers.take()?;
    let opened = match base.dir.posix_open(path, &options, wanted) {
        Ok(Opened::Dir(_)) if wanted == Wanted::Directory && flags & libc::O_ACCMODE != libc::O_RDONLY => {
            return Err(Errno::ISDIR)
        }
        opened => opened.map_err(refusal)?,
    };
    number.is(&base.running, opened)
}

/// openat(2).
///
/// For C it ends in `...`. The calling conventions of Linux pass a fourth integer in the same way then; where there is
/// none, the mode is something, and nothing looks at it.
#[no_mangle]
pub extern "C" fn systx_openat(dirfd: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int {
    border(|| open(dirfd, path.bytes()?, flags, mode))
}

/// open(2), in the same way.
#[no_mangle]
pub extern "C" fn systx_open(path: Text, flags: c_int, mode: mode_t) -> c_int {
    border(|| open(libc::AT_FDCWD, path.bytes()?, flags, mode))
}

/// creat(2).
#[no_mangle]
pub extern "C" fn systx_creat(path: Text, mode: mode_t) -> c_int {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    border(|| open(libc::AT_FDCWD, path.bytes()?, flags, mode))
}

/// A descriptor of the program's own, in the transaction: with its rights and its offset.
#[no_mangle]
pub extern "C" fn systx_adopt(fd: c_int) -> c_int {
    border(|| {
        let running = crate::thread::current()?;
        running.goes_on()?;
        let number = World::now().ok_or(Errno::INVAL)?.numbers.take()?;
        let fd = descriptor(&fd)?;
        let opened = match running.here.file_of(fd) {
            Ok(file) => Opened::File(file),
            // No regular file: it may be a directory.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Opened::Dir(running.here.dir_of(fd).map_err(refusal)?)
            }
            Err(error) => return Err(refusal(error)),
        };
        number.is(&running, opened)
    })
}

/// close(2).
#[no_mangle]
pub extern "C" fn systx_close(fd: c_int) -> c_int {
    border(|| World::now().ok_or(Errno::BADF)?.numbers.close(fd).map(|()| 0))
}

/// dup(2): the two have one offset.
#[no_mangle]
pub extern "C" fn systx_dup(fd: c_int) -> c_int {
    border(|| {
        let handle = handle(fd)?;
        let number = World::now().ok_or(Errno::BADF)?.numbers.take()?;
        let opened = match &handle.opened {
            Opened::File(file) => Opened::File(file.clone()),
            Opened::Dir(dir) => Opened::Dir(dir.clone()),
        };
        number.is(&handle.running, opened)
    })
}

/// Calls with the file of a number; of a directory the answer is an error.
pub(crate) fn with_file<T>(
    fd: c_int,
    directory: Errno,
    call: impl FnOnce(&systx::File) -> std::io::Result<T>,
) -> Answer<T> {
    let handle: Arc<Handle> = handle(fd)?;
    call(handle.file().ok_or(directory)?).map_err(refusal)
}

/// An offset, as it has to be.
///
/// # Errors
/// `EINVAL`: it is negative.
pub(crate) fn offset_of(offset: off_t) -> Answer<u64> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}

/// read(2).
#[no_mangle]
pub extern "C" fn systx_read(fd: c_int, mut buf: Room, count: size_t) -> isize {
    border(|| {
        let buf = buf.of(count.min(MOVED_BYTES_MAX))?;
        with_file(fd, Errno::ISDIR, |mut file| file.read(buf)).map(|read| read as isize)
    })
}

/// pread(2).
#[no_mangle]
pub extern "C" fn systx_pread(fd: c_int, mut buf: Room, count: size_t, offset: off_t) -> isize {
    border(|| {
        let (buf, offset) = (buf.of(count.min(MOVED_BYTES_MAX))?, offset_of(offset)?);
        with_file(fd, Errno::ISDIR, |file| file.read_at(buf, offset)).map(|read| read as isize)
    })
}

/// write(2).
#[no_mangle]
pub extern "C" fn systx_write(fd: c_int, buf: Bytes, count: size_t) -> isize {
    border(|| {
        let bytes = buf.of(count.min(MOVED_BYTES_MAX))?;
        with_file(fd, Errno::BADF, |mut file| file.write(bytes)).map(|written| written as isize)
    })
}

/// pwrite(2).
#[no_mangle]
pub extern "C" fn systx_pwrite(fd: c_int, buf: Bytes, count: size_t, offset: off_t) -> isize {
    border(|| {
        let (bytes, offset) = (buf.of(count.min(MOVED_BYTES_MAX))?, offset_of(offset)?);
        with_file(fd, Errno::BADF, |file| file.write_at(bytes, offset)).map(|written| written as isize)
    })
}

/// lseek(2).
#[no_mangle]
pub extern "C" fn systx_lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    border(|| {
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(offset as u64),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let content = if whence == libc::SEEK_DATA { posix::Seek::Data } else { posix::Seek::Hole };
                let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
                let at = with_file(fd, Errno::INVAL, |file| file.posix_seek_content(from, content))?;
                return Ok(at as off_t);
            }
            _ => return Err(handle(fd).err().unwrap_or(Errno::INVAL)),
        };
        with_file(fd, Errno::INVAL, |mut file| file.seek(to)).map(|at| at as off_t)
    })
}

/// ftruncate(2).
#[no_mangle]
pub extern "C" fn systx_ftruncate(fd: c_int, length: off_t) -> c_int {
    border(|| {
        let length = offset_of(length)?;
        with_file(fd, Errno::INVAL, |file| file.set_len(length)).map(|()| 0)
    })
}

/// truncate(2).
#[no_mangle]
pub extern "C" fn systx_truncate(path: Text, length: off_t) -> c_int {
    border(|| {
        let (path, length) = (path.bytes()?, offset_of(length)?);
        let base = Base::of(libc::AT_FDCWD, path)?;
        base.dir.posix_truncate(path, length).map(|()| 0).map_err(refusal)
    })
}

/// fallocate(2).
#[no_mangle]
pub extern "C" fn systx_fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    border(|| {
        let (offset, length) = (offset_of(offset)?, offset_of(length)?);
        with_file(fd, Errno::BADF, |file| file.posix_allocate(mode, offset, length)).map(|()| 0)
    })
}

/// fsync(2): the transaction is durable as a whole.
#[no_mangle]
pub extern "C" fn systx_fsync(fd: c_int) -> c_int {
    border(|| handle(fd).map(|_| 0))
}

/// fdatasync(2): the same.
#[no_mangle]
pub extern "C" fn systx_fdatasync(fd: c_int) -> c_int {
    border(|| handle(fd).map(|_| 0))
}
