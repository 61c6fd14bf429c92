//! Names: directories, links, renames.

use crate::border::{border, Answer, Room, Text};
use crate::errors::refusal;
use crate::subject::{only, path_of, Base};
use libc::{c_int, c_uint, mode_t, size_t};
use std::os::unix::ffi::OsStrExt;
use systx::posix::{Errno, Link, Rename};
use systx::Dir;

/// Makes a call with a path and the directory where it begins.
fn call(dirfd: c_int, path: &Text, call: impl FnOnce(&Dir, &[u8]) -> std::io::Result<()>) -> Answer<c_int> {
    let path = path.bytes()?;
    let base = Base::of(dirfd, path)?;
    call(&base.dir, path).map(|()| 0).map_err(refusal)
}

/// mkdirat(2).
#[no_mangle]
pub extern "C" fn systx_mkdirat(dirfd: c_int, path: Text, mode: mode_t) -> c_int {
    border(|| call(dirfd, &path, |dir, path| dir.posix_mkdir(path, mode)))
}

/// mkdir(2).
#[no_mangle]
pub extern "C" fn systx_mkdir(path: Text, mode: mode_t) -> c_int {
    systx_mkdirat(libc::AT_FDCWD, path, mode)
}

/// unlinkat(2).
#[no_mangle]
pub extern "C" fn systx_unlinkat(dirfd: c_int, path: Text, flags: c_int) -> c_int {
    border(|| {
        only(flags, libc::AT_REMOVEDIR)?;
        call(dirfd, &path, |dir, path| match flags {
            0 => dir.remove_file(path_of(path)),
            _ => dir.remove_dir(path_of(path)),
        })
    })
}

/// unlink(2).
#[no_mangle]
pub extern "C" fn systx_unlink(path: Text) -> c_int {
    systx_unlinkat(libc::AT_FDCWD, path, 0)
}

/// rmdir(2).
#[no_mangle]
pub extern "C" fn systx_rmdir(path: Text) -> c_int {
    systx_unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
}

/// renameat2(2), but for RENAME_WHITEOUT.
#[no_mangle]
pub extern "C" fn systx_renameat2(
    old_dirfd: c_int,
    old: Text,
    new_dirfd: c_int,
    new: Text,
    flags: c_uint,
) -> c_int {
    border(|| {
        let how = match flags {
            0 => Rename::Replace,
            libc::RENAME_NOREPLACE => Rename::NoReplace,
            libc::RENAME_EXCHANGE => Rename::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let to = new.bytes()?;
        call(old_dirfd, &old, |dir, from| {
            let base = Base::of(new_dirfd, to)?;
            dir.posix_rename(from, (&base.dir, to), how)
        })
    })
}

/// renameat(2).
#[no_mangle]
pub extern "C" fn systx_renameat(old_dirfd: c_int, old: Text, new_dirfd: c_int, new: Text) -> c_int {
    systx_renameat2(old_dirfd, old, new_dirfd, new, 0)
}

/// rename(2).
#[no_mangle]
pub extern "C" fn systx_rename(old: Text, new: Text) -> c_int {
    systx_renameat2(libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0)
}

/// linkat(2), but for AT_EMPTY_PATH.
#[no_mangle]
pub extern "C" fn systx_linkat(
    old_dirfd: c_int,
    old: Text,
    new_dirfd: c_int,
    new: Text,
    flags: c_int,
) -> c_int {
    border(|| {
        only(flags, libc::AT_SYMLINK_FOLLOW)?;
        let link = if flags == 0 { Link::Kept } else { Link::Followed };
        let to = new.bytes()?;
        call(old_dirfd, &old, |dir, from| {
            let base = Base::of(new_dirfd, to)?;
            dir.posix_link(from, link, (&base.dir, to))
        })
    })
}

/// link(2).
#[no_mangle]
pub extern "C" fn systx_link(old: Text, new: Text) -> c_int {
    systx_linkat(libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0)
}

/// symlinkat(2).
#[no_mangle]
pub extern "C" fn systx_symlinkat(target: Text, dirfd: c_int, path: Text) -> c_int {
    border(|| {
        let target = target.bytes()?;
        call(dirfd, &path, |dir, path| dir.symlink(path_of(target), path_of(path)))
    })
}

/// symlink(2).
#[no_mangle]
pub extern "C" fn systx_symlink(target: Text, path: Text) -> c_int {
    systx_symlinkat(target, libc::AT_FDCWD, path)
}

/// readlinkat(2), but for an empty path.
#[no_mangle]
pub extern "C" fn systx_readlinkat(dirfd: c_int, path: Text, mut buf: Room, size: size_t) -> isize {
    border(|| {
        if size == 0 {
            return Err(Errno::INVAL);
        }
        let path = path.bytes()?;
        let base = Base::of(dirfd, path)?;
        let target = base.dir.read_link(path_of(path)).map_err(refusal)?;
        let target = target.as_os_str().as_bytes();
        let copied = target.len().min(size);
        buf.of(copied)?.copy_from_slice(&target[..copied]);
        Ok(copied as isize)
    })
}

/// readlink(2).
#[no_mangle]
pub extern "C" fn systx_readlink(path: Text, buf: Room, size: size_t) -> isize {
    systx_readlinkat(libc::AT_FDCWD, path, buf, size)
}
