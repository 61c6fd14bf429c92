//! Compare-and-exchange on the bytes of a file that another process may be storing into.
//!
//! The file is mapped shared, so that our exchange and the other store meet in the same page. If the other process
//! truncates the file meanwhile, touching the page is SIGBUS, which no setting of a thread can turn into an error. So
//! a child does it that shares this process's memory ([`super::borrowed`]) and nothing of its signals: it has a
//! handler of its own, which ends it. The process that this runs in notices nothing, and has no core of a child.

use rustix::fs::fstat;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::borrowed;
use crate::types::{Errno, Result};

const WORD: usize = 8;
/// Where a mapping starts: a multiple of every page size.
const ALIGN: u64 = 65_536;

/// No verdict yet: the child was ended before its last store.
const NONE: u32 = 0;
/// Every word was exchanged.
const ALL: u32 = 1;
/// A word held something else.
const SOME: u32 = 2;

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
    let bytes = map.cast::<u8>().wrapping_add(skip);
    let mut work = Work { bytes, before, after, is_second: false, verdict: AtomicU32::new(NONE) };
    let is_cut = || Ok(fstat(fd)?.st_size.unsigned_abs() < offset + before.len() as u64);
    let exchanged = match in_child(&work) {
        // Only a file that ends sooner is cut: it may have been for a moment, or a store finds no block for a hole or a
        // copy on write.
        Ok(Ended::Fault) if !is_cut()? => {
            work.is_second = true;
            in_child(&work)
        }
        ended => ended,
    };
    // SAFETY: the mapping made above, which no reference outlives: the child has ended.
    unsafe { munmap(map, len)? };
    match exchanged? {
        Ended::Told(all) => Ok(all),
        Ended::Fault if is_cut()? => Ok(false),
        Ended::Fault => Err(Errno::NOSPC),
        Ended::Killed => Err(Errno::INTR),
    }
}

/// The end of the child.
enum Ended {
    /// With this answer: whether every word was exchanged.
    Told(bool),
    /// By SIGBUS.
    Fault,
    Killed,
}

/// What the child is told, and what it answers.
struct Work<'a> {
    bytes: *mut u8,
    before: &'a [u8],
    after: &'a [u8],
    /// A child before this one may have stored some words.
    is_second: bool,
    verdict: AtomicU32,
}

/// Runs in the child: no allocation, no lock.
fn exchange(work: &Work<'_>) -> u32 {
    let mut verdict = ALL;
    for (n, (old, new)) in work.before.chunks(WORD).zip(work.after.chunks(WORD)).enumerate() {
        // Past the end of the file the last page holds zeros, which stay.
        let word = |part: &[u8]| {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        let at = work.bytes.wrapping_add(n * WORD).cast::<u64>();
        // SAFETY: in the mapping, which is a whole number of pages, and aligned, because `offset` is. Other
        // processes use these bytes, too: hence atomic. A page that a truncation took away ends this child,
        // not the caller.
        let cell = unsafe { AtomicU64::from_ptr(at) };
        let (old, new) = (word(old), word(new));
        let exchanged = || cell.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        let is_ours = |found| work.is_second && found == new;
        if old != new && exchanged().is_err_and(|found| !is_ours(found)) {
            verdict = SOME;
        }
    }
    verdict
}

/// The child. What it does to signals stays its own: it has no CLONE_SIGHAND.
extern "C" fn child(work: *mut libc::c_void) -> libc::c_int {
    let handler: extern "C" fn(libc::c_int) = cut;
    // SAFETY: all zeros is a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `action` lives until the call returns. A handler, since the default would write a core, for which
    // kernels before 5.17 kill everybody who shares the memory.
    let handled = unsafe { borrowed::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    let only = crate::process::set_of(&[libc::SIGBUS]);
    // SAFETY: a valid set; of all signals, which this child was born with blocked, one is let in.
    let open = unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut()) };
    if handled == 0 && open == 0 {
        // SAFETY: the caller's, which waits in clone(2) until this child has ended.
        let work = unsafe { &*work.cast::<Work<'_>>() };
        let verdict = exchange(work);
        work.verdict.store(verdict, Ordering::Release);
        return verdict as libc::c_int;
    }
    NONE as libc::c_int
}

/// SIGBUS of the child: another process has cut the file, or there is no room.
extern "C" fn cut(_signal: libc::c_int) {
    // SAFETY: ends the child at once; destructors and exit handlers are the caller's.
    unsafe { libc::_exit(NONE as libc::c_int) }
}

fn in_child(work: &Work<'_>) -> Result<Ended> {
    let told = std::ptr::from_ref(work).cast_mut().cast::<libc::c_void>();
    // SAFETY: `child` allocates nothing and takes no lock, and `work` outlives the call.
    let status = unsafe { borrowed::run(child, told) }?;
    Ok(match work.verdict.load(Ordering::Acquire) {
        NONE if libc::WIFEXITED(status) => Ended::Fault,
        NONE => Ended::Killed,
        verdict => Ended::Told(verdict == ALL),
    })
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
    fn what_another_process_has_stored_is_its_own_also_if_it_is_the_same() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        pwrite(&fd, &[2; 16], 0).expect("writes");
        assert_eq!(compare_exchange(fd.as_fd(), 0, &[1; 16], &[2; 16]), Ok(false));
    }

    #[test]
    fn a_file_that_was_cut_meanwhile_is_left() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        pwrite(&fd, &[1; 9000], 0).expect("writes");
        ftruncate(&fd, 100).expect("cuts");
        assert_eq!(compare_exchange(fd.as_fd(), 4096, &[1; 4096], &[2; 4096]), Ok(false));
        assert_eq!(rustix::fs::fstat(&fd).expect("stats").st_size, 100);
    }

    #[test]
    fn a_file_that_is_cut_at_any_moment_costs_nobody_his_life() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    ftruncate(&fd, 100).expect("cuts");
                    ftruncate(&fd, 1 << 20).expect("grows");
                }
            });
            for _ in 0..200 {
                // What was cut off is zeros again, or gone: all answers are right, and this process lives.
                let told = compare_exchange(fd.as_fd(), 4096, &[0; 1 << 19], &[1; 1 << 19]);
                assert!(told.is_ok() || told == Err(Errno::NOSPC), "{told:?}");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
