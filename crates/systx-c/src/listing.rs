//! Listings: `systx_opendir` and its relatives.
//!
//! Guarantees: a pointer that is none of them is an error, and never looked at.

use crate::border::{border, Answer, Text};
use crate::errors::{held, refusal};
use crate::files::open;
use crate::numbers::Handle;
use crate::streams::Stream;
use crate::subject::handle;
use crate::world::World;
use libc::{c_char, c_int, dirent};
use std::sync::{Arc, Mutex};
use systx::posix::Errno;

fn stream(name: *mut Stream) -> Answer<Arc<Mutex<Stream>>> {
    let world = World::now().ok_or(Errno::BADF)?;
    world.streams.get(name).ok_or(Errno::BADF)
}

/// opendir(3).
#[no_mangle]
pub extern "C" fn systx_opendir(path: Text) -> *mut Stream {
    border(|| {
        let number = open(libc::AT_FDCWD, path.bytes()?, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        of(number)
    })
}

fn of(number: c_int) -> Answer<*mut Stream> {
    let handle = handle(number)?;
    if handle.dir().is_none() {
        return Err(Errno::NOTDIR);
    }
    Ok(World::now().ok_or(Errno::BADF)?.streams.add(number, handle))
}

/// fdopendir(3): the descriptor is the listing's from here on.
#[no_mangle]
pub extern "C" fn systx_fdopendir(fd: c_int) -> *mut Stream {
    border(|| of(fd))
}

/// dirfd(3).
#[no_mangle]
pub extern "C" fn systx_dirfd(dir: *mut Stream) -> c_int {
    border(|| {
        let stream = stream(dir)?;
        let number = held(&stream).number;
        Ok(number)
    })
}

/// readdir(3).
#[no_mangle]
pub extern "C" fn systx_readdir(dir: *mut Stream) -> *mut dirent {
    border(|| {
        let stream = stream(dir)?;
        let mut stream = held(&stream);
        stream.handle.running.goes_on()?;
        let dir = stream.handle.dir().ok_or(Errno::NOTDIR)?;
        dir.posix_goes_on().map_err(refusal)?;
        if stream.entries.is_none() {
            stream.entries = Some(dir.posix_entries().map_err(refusal)?.into_iter());
        }
        let Some(entry) = stream.entries.as_mut().and_then(Iterator::next) else {
            return Ok(std::ptr::null_mut());
        };
        let given = &mut *stream.given;
        given.d_ino = entry.ino;
        given.d_off += 1;
        given.d_reclen = size_of::<dirent>() as u16;
        given.d_type = (entry.kind.mode_bits() >> 12) as u8;
        // A name has at most 255 bytes, and there is room for 256.
        for (to, from) in given.d_name.iter_mut().zip(entry.name.iter().chain([&0])) {
            *to = *from as c_char;
        }
        Ok(&raw mut *given)
    })
}

/// rewinddir(3); 0, or -1 if it is no listing.
#[no_mangle]
pub extern "C" fn systx_rewinddir(dir: *mut Stream) -> c_int {
    border(|| {
        let stream = stream(dir)?;
        let mut stream = held(&stream);
        stream.entries = None;
        stream.given.d_off = 0;
        Ok(0)
    })
}

/// closedir(3).
#[no_mangle]
pub extern "C" fn systx_closedir(dir: *mut Stream) -> c_int {
    border(|| {
        let world = World::now().ok_or(Errno::BADF)?;
        let stream = world.streams.remove(dir).ok_or(Errno::BADF)?;
        let stream = held(&stream);
        // Its transaction may have ended, and the number be another's.
        let is_its = |handle: &Arc<Handle>| Arc::ptr_eq(handle, &stream.handle);
        if world.numbers.get(stream.number).as_ref().is_some_and(is_its) {
            world.numbers.close(stream.number)?;
        }
        Ok(0)
    })
}
