//! Compare-and-exchange on the bytes of a file that another process may be storing into.
//!
//! The file is mapped shared, so that our exchange and the other store meet in the same page. If the other
//! process truncates the file meanwhile, touching the page is SIGBUS: so a child process does it, which
//! shares the mapping and nothing else that matters. One fork a range; such files are rare.

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{Errno, Result};

const WORD: usize = 8;
/// Where a mapping starts: a multiple of every page size.
const ALIGN: u64 = 65_536;
const ALL: i32 = 0;
const SOME: i32 = 1;

/// See [`crate::Os::compare_exchange`].
pub(super) fn compare_exchange(fd: BorrowedFd<'_>, offset: u64, before: &[u8], after: &[u8]) -> Result<bool> {
    if offset % WORD as u64 != 0 || before.len() != after.len() {
        return Err(Errno::INVAL);
    }
    if before.is_empty() {
        return Ok(true);
    }
    let start = offset / ALIGN * ALIGN;
    let skip = (offset - start) as usize;
    // The kernel maps whole pages.
    let len = skip + before.len();
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
    let map = unsafe { mmap(core::ptr::null_mut(), len, flags, MapFlags::SHARED, fd, start)? };
    let exchanged = in_child(|| exchange(map.cast::<u8>().wrapping_add(skip), before, after));
    // SAFETY: the mapping made above, which no reference outlives.
    unsafe { munmap(map, len)? };
    exchanged
}

/// Runs in the child: no allocation, no lock.
fn exchange(bytes: *mut u8, before: &[u8], after: &[u8]) -> i32 {
    let mut verdict = ALL;
    for (n, (old, new)) in before.chunks(WORD).zip(after.chunks(WORD)).enumerate() {
        // Past the end of the file the last page holds zeros, which stay.
        let word = |part: &[u8]| {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        let at = bytes.wrapping_add(n * WORD).cast::<u64>();
        // SAFETY: in the mapping, which is a whole number of pages, and aligned, because `offset` is. Other
        // processes use these bytes, too: hence atomic. A page that a truncation took away ends this child,
        // not the caller.
        let cell = unsafe { AtomicU64::from_ptr(at) };
        let (old, new) = (word(old), word(new));
        if old != new && cell.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            verdict = SOME;
        }
    }
    verdict
}

fn in_child(work: impl FnOnce() -> i32) -> Result<bool> {
    // SAFETY: the child calls nothing but `work`, which neither allocates nor locks, and _exit.
    match unsafe { libc::fork() } {
        -1 => Err(last_error()),
        0 => {
            let verdict = work();
            // SAFETY: ends the child at once; destructors and exit handlers are the parent's.
            unsafe { libc::_exit(verdict) }
        }
        child => loop {
            let mut status = 0;
            // SAFETY: `status` is valid for the call; `child` is ours and not yet waited for.
            match unsafe { libc::waitpid(child, &mut status, 0) } {
                -1 if last_error() == Errno::INTR => {}
                -1 => break Err(last_error()),
                // A signal is SIGBUS: the other process cut the file, so its state now is that process's.
                _ => break Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == ALL),
            }
        },
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
    use rustix::io::{pread, pwrite};
    use std::os::fd::AsFd;

    fn read(fd: BorrowedFd<'_>, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        pread(fd, &mut bytes, 0).expect("reads");
        bytes
    }

    #[test]
    fn words_that_changed_meanwhile_are_left() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        pwrite(&fd, &[1; 100], 0).expect("writes");
        assert_eq!(compare_exchange(fd.as_fd(), 0, &[1; 100], &[2; 100]), Ok(true));
        assert_eq!(read(fd.as_fd(), 100), [2; 100]);
        pwrite(&fd, &[9], 17).expect("writes");
        assert_eq!(compare_exchange(fd.as_fd(), 8, &[2; 92], &[3; 92]), Ok(false));
        let now = read(fd.as_fd(), 100);
        assert_eq!((now[7], now[8], now[16], now[17], now[24], now[99]), (2, 3, 2, 9, 3, 3));
    }

    #[test]
    fn a_file_that_was_cut_meanwhile_is_left() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        pwrite(&fd, &[1; 9000], 0).expect("writes");
        ftruncate(&fd, 100).expect("cuts");
        assert_eq!(compare_exchange(fd.as_fd(), 4096, &[1; 4096], &[2; 4096]), Ok(false));
        assert_eq!(rustix::fs::fstat(&fd).expect("stats").st_size, 100);
    }
}
