//! Extended attributes.

use crate::attributes::link_of;
use crate::border::{border, Answer, Bytes, Room, Text};
use crate::subject::Subject;
use libc::{c_int, size_t};
use systx::posix::{Errno, SetXattr};

const LINK: c_int = libc::AT_SYMLINK_NOFOLLOW;
/// The longest name (linux/limits.h).
const NAME_BYTES_MAX: usize = 255;

fn at(path: &Text, flags: c_int) -> Answer<Subject> {
    Subject::at(libc::AT_FDCWD, path, flags)
}

fn name(text: &Text) -> Answer<&[u8]> {
    let name = text.bytes()?;
    (1..=NAME_BYTES_MAX).contains(&name.len()).then_some(name).ok_or(Errno::RANGE)
}

fn get(subject: Answer<Subject>, text: &Text, mut value: Room, size: size_t, flags: c_int) -> Answer<isize> {
    let name = name(text)?;
    let found = subject?
        .call(|file| file.posix_getxattr(name), |dir, path| dir.posix_getxattr(path, link_of(flags), name))?;
    value.answer(size, &found)
}

/// getxattr(2).
#[no_mangle]
pub extern "C" fn systx_getxattr(path: Text, name: Text, value: Room, size: size_t) -> isize {
    border(|| get(at(&path, 0), &name, value, size, 0))
}

/// lgetxattr(2).
#[no_mangle]
pub extern "C" fn systx_lgetxattr(path: Text, name: Text, value: Room, size: size_t) -> isize {
    border(|| get(at(&path, LINK), &name, value, size, LINK))
}

/// fgetxattr(2).
#[no_mangle]
pub extern "C" fn systx_fgetxattr(fd: c_int, name: Text, value: Room, size: size_t) -> isize {
    border(|| get(Subject::of(fd), &name, value, size, 0))
}

fn list(subject: &Subject, mut list: Room, size: size_t, flags: c_int) -> Answer<isize> {
    let names =
        subject.call(|file| file.posix_listxattr(), |dir, path| dir.posix_listxattr(path, link_of(flags)))?;
    let all: Vec<u8> = names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect();
    list.answer(size, &all)
}

/// listxattr(2).
#[no_mangle]
pub extern "C" fn systx_listxattr(path: Text, names: Room, size: size_t) -> isize {
    border(|| list(&at(&path, 0)?, names, size, 0))
}

/// llistxattr(2).
#[no_mangle]
pub extern "C" fn systx_llistxattr(path: Text, names: Room, size: size_t) -> isize {
    border(|| list(&at(&path, LINK)?, names, size, LINK))
}

/// flistxattr(2).
#[no_mangle]
pub extern "C" fn systx_flistxattr(fd: c_int, names: Room, size: size_t) -> isize {
    border(|| list(&Subject::of(fd)?, names, size, 0))
}

/// The value of a call that sets an attribute.
struct Value {
    bytes: Bytes,
    size: size_t,
    flags: c_int,
}

/// Longest value (linux/limits.h).
const VALUE_BYTES_MAX: usize = 64 << 10;

fn set(subject: Answer<Subject>, text: &Text, value: &Value, flags: c_int) -> Answer<c_int> {
    let how = match value.flags {
        0 => SetXattr::Any,
        libc::XATTR_CREATE => SetXattr::Create,
        libc::XATTR_REPLACE => SetXattr::Replace,
        _ => return Err(Errno::INVAL),
    };
    let name = name(text)?;
    if value.size > VALUE_BYTES_MAX {
        return Err(Errno::TOOBIG);
    }
    let pair = (name, value.bytes.of(value.size)?);
    let path = |dir: &systx::Dir, path: &[u8]| dir.posix_setxattr(path, link_of(flags), pair, how);
    subject?.call(|file| file.posix_setxattr(pair, how), path).map(|()| 0)
}

/// setxattr(2).
#[no_mangle]
pub extern "C" fn systx_setxattr(path: Text, name: Text, value: Bytes, size: size_t, flags: c_int) -> c_int {
    border(|| set(at(&path, 0), &name, &Value { bytes: value, size, flags }, 0))
}

/// lsetxattr(2).
#[no_mangle]
pub extern "C" fn systx_lsetxattr(path: Text, name: Text, value: Bytes, size: size_t, flags: c_int) -> c_int {
    border(|| set(at(&path, LINK), &name, &Value { bytes: value, size, flags }, LINK))
}

/// fsetxattr(2).
#[no_mangle]
pub extern "C" fn systx_fsetxattr(fd: c_int, name: Text, value: Bytes, size: size_t, flags: c_int) -> c_int {
    border(|| set(Subject::of(fd), &name, &Value { bytes: value, size, flags }, 0))
}

fn remove(subject: Answer<Subject>, text: &Text, flags: c_int) -> Answer<c_int> {
    let name = name(text)?;
    let path = |dir: &systx::Dir, path: &[u8]| dir.posix_removexattr(path, link_of(flags), name);
    subject?.call(|file| file.posix_removexattr(name), path).map(|()| 0)
}

/// removexattr(2).
#[no_mangle]
pub extern "C" fn systx_removexattr(path: Text, name: Text) -> c_int {
    border(|| remove(at(&path, 0), &name, 0))
}

/// lremovexattr(2).
#[no_mangle]
pub extern "C" fn systx_lremovexattr(path: Text, name: Text) -> c_int {
    border(|| remove(at(&path, LINK), &name, LINK))
}

/// fremovexattr(2).
#[no_mangle]
pub extern "C" fn systx_fremovexattr(fd: c_int, name: Text) -> c_int {
    border(|| remove(Subject::of(fd), &name, 0))
}
