//! Files and directories with names that no one else has.

use crate::border::{border, random, Answer, TextMut};
use crate::errors::refusal;
use crate::files::open;
use crate::subject::Base;
use libc::{c_char, c_int};
use systx::posix::Errno;

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WANTED: &[u8; 6] = b"XXXXXX";
/// The number that glibc makes.
const TRIES: usize = 62 * 62 * 62;

/// Puts names in place of the six X until `make` finds one that is free.
fn unused<T>(mut template: TextMut, make: impl Fn(&[u8]) -> Answer<T>) -> Answer<T> {
    let path = template.bytes()?;
    let Some(begin) = path.len().checked_sub(WANTED.len()).filter(|begin| path[*begin..] == *WANTED) else {
        return Err(Errno::INVAL);
    };
    for _ in 0..TRIES {
        let random = u64::from_ne_bytes(random()?);
        let mut rest = random;
        for byte in &mut path[begin..] {
            *byte = LETTERS[(rest % 62) as usize];
            rest /= 62;
        }
        match make(path) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
    Err(Errno::EXIST)
}

/// mkostemp(3).
#[no_mangle]
pub extern "C" fn systx_mkostemp(template: TextMut, flags: c_int) -> c_int {
    border(|| {
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        unused(template, |path| open(libc::AT_FDCWD, path, flags, 0o600))
    })
}

/// mkstemp(3).
#[no_mangle]
pub extern "C" fn systx_mkstemp(template: TextMut) -> c_int {
    systx_mkostemp(template, 0)
}

/// mkdtemp(3).
#[no_mangle]
pub extern "C" fn systx_mkdtemp(template: TextMut) -> *mut c_char {
    border(|| {
        let pointer = template.pointer();
        let made = |path: &[u8]| {
            let base = Base::of(libc::AT_FDCWD, path)?;
            base.dir.posix_mkdir(path, 0o700).map_err(refusal)
        };
        unused(template, made).map(|()| pointer)
    })
}
