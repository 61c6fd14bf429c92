//! A file as shared words.
//!
//! Guarantees: an index is within the mapping or panics; every access is atomic. Does not: validate what it
//! reads (any process of this user can store there), nor survive a truncation of the file (SIGBUS): the file
//! is in our area.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::LazyLock;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;

use super::bytes;
use crate::types::{Errno, Fallocate, Result};
use crate::words::Words;

#[cfg(target_endian = "big")]
compile_error!("a futex is the low half of a word, which is taken to come first");

/// Looks at a word for a moment: some 40 µs of them. To wake a sleeper takes longer where its CPU, a virtual one, has gone
/// idle.
const LOOKS_MAX: u32 = 1000;

/// The first words of a file, shared with every process that maps it.
#[derive(Debug)]
pub struct MappedWords {
    words: NonNull<AtomicU64>,
    len: usize,
    /// The file system writes pages elsewhere each time, so that allocated blocks are not enough.
    moves: bool,
}

// SAFETY: the memory is reached through atomics only, and stays mapped until the one owner drops it.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

pub(super) fn map(fd: BorrowedFd<'_>, words: usize) -> Result<MappedWords> {
    let len_bytes = words.checked_mul(size_of::<u64>()).filter(|&n| n > 0).ok_or(Errno::INVAL)?;
    if rustix::fs::fstat(fd)?.st_size < len_bytes as i64 {
        // Allocated, not only longer: a store into a hole of a full disk is a SIGBUS. Never shortens, so two who do
        // it at once agree.
        match bytes::fallocate(fd, Fallocate::Allocate, 0, len_bytes as u64) {
            Err(Errno::OPNOTSUPP) => bytes::truncate(fd, len_bytes as u64)?,
            result => result?,
        }
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, fd, 0) }?;
    // Mappings start at a page, so words are aligned.
    let words_at = NonNull::new(mapped.cast()).ok_or(Errno::NOMEM)?;
    let moves = rustix::fs::fstatfs(fd)?.f_type as u64 == super::probe::BTRFS_MAGIC;
    let mapped = MappedWords { words: words_at, len: words, moves };
    mapped.reserve()?;
    Ok(mapped)
}

impl MappedWords {
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len, "word {index} of {}", self.len);
        // SAFETY: the sum stays within the mapping, by the assertion.
        let word = unsafe { self.words.add(index) };
        // SAFETY: mapped, aligned and initialised (a file's bytes) as long as `self`; everyone uses it atomically.
        unsafe { word.as_ref() }
    }

    /// The half of a word that the kernel compares.
    fn low_half(&self, index: usize) -> &AtomicU32 {
        let word: NonNull<AtomicU32> = NonNull::from(self.word(index)).cast();
        // SAFETY: the first four bytes of a live, aligned word. It is only handed to futex(2), which loads it
        // atomically; nothing here loads or stores through it, so no access is of mixed size.
        unsafe { word.as_ref() }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; references into it borrow `self`, so there are none.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.len * size_of::<u64>()) };
    }
}

impl Words for MappedWords {
    fn len(&self) -> usize {
        self.len
    }
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.word(index).load(order)
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.word(index).store(value, order);
    }
    fn compare_exchange(&self, index: usize, current: u64, new: u64) -> core::result::Result<u64, u64> {
        self.word(index).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn fetch_or(&self, index: usize, bits: u64) -> u64 {
        self.word(index).fetch_or(bits, Ordering::AcqRel)
    }
    fn fetch_add(&self, index: usize, n: u64) -> u64 {
        self.word(index).fetch_add(n, Ordering::AcqRel)
    }
    fn wait(&self, index: usize, seen: u64, timeout_ns: u64) {
        let timeout = futex::Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        // Shared, not private: the waker is another process. Every outcome (woken, changed before, time over, signal)
        // means the same to the caller: look again.
        let _ = futex::wait(self.low_half(index), futex::Flags::empty(), seen as u32, Some(&timeout));
        crate::call::waited();
    }
    /// Source: madvise(2), MADV_POPULATE_WRITE: a page is writable until it is written back.
    /// Minimum kernel version: 5.14; before, there is no warning.
    fn reserve(&self) -> Result<()> {
        if !self.moves {
            return Ok(());
        }
        let (at, len_bytes) = (self.words.as_ptr().cast(), self.len * size_of::<u64>());
        // SAFETY: exactly the range that is mapped; the advice changes no byte of it.
        match unsafe { rustix::mm::madvise(at, len_bytes, Advice::LinuxPopulateWrite) } {
            Err(Errno::FAULT) => Err(Errno::NOSPC),
            Err(Errno::INVAL) => Ok(()),
            done => done,
        }
    }
    fn changes_soon(&self, index: usize, seen: u64) -> bool {
        // Alone on its CPU, it would look in vain.
        static LOOKS: LazyLock<u32> = LazyLock::new(|| {
            LOOKS_MAX * u32::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
        });
        (0..*LOOKS).any(|_| {
            std::hint::spin_loop();
            self.load(index, Ordering::Acquire) != seen
        })
    }
    fn wake(&self, index: usize) {
        // Fails only for a bad address.
        let _ = futex::wake(self.low_half(index), futex::Flags::empty(), i32::MAX as u32);
    }
}
