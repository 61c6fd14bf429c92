//! Whether this process was forked since.
//!
//! Guarantees: a number that was noted is the present one exactly as long as no fork made this process a copy of the
//! one that noted it; asking is a load, without a call. A child has a number that none of its ancestors had. A child
//! that shares memory (vfork(2), the child of an exchange) has its parent's, as it can't do anything of its own.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of the mapping: the kernel takes whole pages.
const MAPPED_BYTES: usize = 4096;

/// Words of this process, on a page that fork(2) leaves empty.
#[repr(C)]
struct Words {
    /// Its number.
    lineage: AtomicU64,
    /// Its id, once it was asked for.
    pid: AtomicU64,
}

static WORDS: AtomicPtr<Words> = AtomicPtr::new(std::ptr::null_mut());

/// The numbers that this process and its ancestors have had. A fork copies it.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// See [`crate::Os::lineage`].
pub(super) fn lineage() -> u64 {
    let Some(Words { lineage, .. }) = words() else { return u64::from(std::process::id()) };
    match lineage.load(Ordering::Acquire) {
        0 => {
            let next = GIVEN.fetch_add(1, Ordering::Relaxed) + 1;
            lineage
                .compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|seen| seen, |_| next)
        }
        number => number,
    }
}

/// See [`crate::Os::pid`]. One call a process.
pub(super) fn pid() -> u32 {
    let Some(Words { pid, .. }) = words() else { return std::process::id() };
    match pid.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            pid.store(id.into(), Ordering::Relaxed);
            id
        }
        id => id as u32,
    }
}

fn words() -> Option<&'static Words> {
    let mut words = WORDS.load(Ordering::Acquire);
    if words.is_null() {
        // No lock: a thread that forks meanwhile would leave it locked in the child for ever.
        let made = make()?;
        words = match WORDS.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: made above, and nobody else has seen it.
                let _ = unsafe { rustix::mm::munmap(made.cast(), MAPPED_BYTES) };
                first
            }
        };
    }
    // SAFETY: the mapping is never taken back, and a fork leaves one of zeros in its place.
    Some(unsafe { &*words })
}

/// `None`: there is no memory, or no such advice. Then the process id has to do.
///
/// Source: madvise(2), MADV_WIPEONFORK.
/// Minimum kernel version: 4.14
fn make() -> Option<*mut Words> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), MAPPED_BYTES, protection, MapFlags::PRIVATE)
    }
    .ok()?;
    // SAFETY: the range is exactly the mapping just made, and the advice changes what fork does with it only.
    match unsafe { rustix::mm::madvise(mapped, MAPPED_BYTES, Advice::LinuxWipeOnFork) } {
        Ok(()) => Some(mapped.cast()),
        Err(_) => {
            // SAFETY: as above.
            let _ = unsafe { rustix::mm::munmap(mapped, MAPPED_BYTES) };
            None
        }
    }
}
