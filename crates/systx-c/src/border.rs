//! The border between C and Rust: pointers, `errno`, panics and cancellation.
//!
//! Owns: all unsafe code of this crate. Guarantees: a null pointer is `EFAULT` wherever something is to be read or
//! written there. Does not: know a wild pointer from a good one; that is the calling program's promise, as with the
//! C library.

use libc::{c_char, c_int, c_void, iovec, size_t};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;
use systx::posix::Errno;

pub type Answer<T> = Result<T, Errno>;

/// Most bytes that one read or write moves (MAX_RW_COUNT in linux/fs).
pub const MOVED_BYTES_MAX: usize = 0x7fff_f000;
/// Most buffers of one readv(2) (UIO_MAXIOV).
const IOVECS_MAX: c_int = 1024;
/// Most bytes of a structure that is to grow.
const SIZED_BYTES_MAX: usize = 4096;

/// The value by which a function says that it has failed.
pub trait Fails {
    const FAILED: Self;
}

impl Fails for c_int {
    const FAILED: c_int = -1;
}

impl Fails for isize {
    const FAILED: isize = -1;
}

impl Fails for i64 {
    const FAILED: i64 = -1;
}

impl<T> Fails for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The value of pthread.h, in glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Keeps pthread_cancel(3) waiting.
struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    fn new() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the pointer is to a local variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: a null pointer asks for no answer.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

fn errno() -> c_int {
    // SAFETY: the pointer is to the calling thread's variable, always.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// The function that hears of a panic.
static TOLD: OnceLock<fn()> = OnceLock::new();

/// Has `told` called in a thread whose call has panicked.
pub fn on_panic(told: fn()) {
    TOLD.get_or_init(|| told);
}

/// Makes one call for C.
pub fn border<T: Fails>(call: impl FnOnce() -> Answer<T>) -> T {
    let _uncancelled = Uncancelled::new();
    let before = errno();
    let (errno, answer) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(answer)) => (before, answer),
        Ok(Err(error)) => (error.raw_os_error(), T::FAILED),
        Err(panic) => {
            // Its destructor may panic, too.
            std::mem::forget(panic);
            if let Some(told) = TOLD.get() {
                told();
            }
            (Errno::IO.raw_os_error(), T::FAILED)
        }
    };
    set_errno(errno);
    answer
}

/// A path or name that C gives.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A string of a structure that C gives.
    pub(crate) fn of(text: *const c_char) -> Text {
        Text(text)
    }

    pub(crate) fn bytes(&self) -> Answer<&[u8]> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises a string that ends in NUL and stays as it is during the call.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// A string that the call changes.
#[repr(transparent)]
pub struct TextMut(*mut c_char);

impl TextMut {
    /// The pointer, to give back.
    pub(crate) fn pointer(&self) -> *mut c_char {
        self.0
    }

    pub(crate) fn bytes(&mut self) -> Answer<&mut [u8]> {
        let len = Text(self.0).bytes()?.len();
        // SAFETY: C promises that so many bytes may be written, and that nothing else uses them during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}

/// Bytes that C gives.
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    pub(crate) fn of(&self, len: size_t) -> Answer<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || isize::try_from(len).is_err() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises so many bytes that stay as they are during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), len) })
    }
}

/// Room for bytes that C wants.
#[repr(transparent)]
pub struct Room(*mut c_void);

impl Room {
    pub(crate) fn of(&mut self, len: size_t) -> Answer<&mut [u8]> {
        if len == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() || isize::try_from(len).is_err() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises room for so many bytes, which nothing else uses during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) })
    }

    /// Copies what is asked for by its length alone, or by room for all of it (getxattr(2)).
    pub(crate) fn answer(&mut self, size: size_t, value: &[u8]) -> Answer<isize> {
        if size == 0 {
            return Ok(value.len() as isize);
        }
        if size < value.len() {
            return Err(Errno::RANGE);
        }
        self.of(value.len())?.copy_from_slice(value);
        Ok(value.len() as isize)
    }
}

/// Types of C for which all bit patterns are values.
///
/// # Safety
/// They are, zeros among them.
pub unsafe trait Plain: Copy {}

// SAFETY: integers and pointers, in structures.
unsafe impl Plain for libc::stat {}
// SAFETY: the same.
unsafe impl Plain for libc::statx {}
// SAFETY: the same.
unsafe impl Plain for libc::dirent {}
// SAFETY: the same.
unsafe impl Plain for libc::timespec {}
// SAFETY: the same.
unsafe impl Plain for crate::structures::systx_options {}
// SAFETY: the same.
unsafe impl Plain for crate::structures::systx_outcome {}
// SAFETY: the same.
unsafe impl Plain for crate::structures::systx_token {}

/// A value of zeros.
pub fn zeros<T: Plain>() -> T {
    // SAFETY: zeros are a value of plain types.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A value that C gives, or none.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Plain> In<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn get(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises a value, and any bytes are one.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The value at an index of an array.
    pub(crate) fn nth(&self, n: usize) -> Answer<T> {
        In(self.0.wrapping_add(n)).get()
    }

    /// A structure that begins with its size, which is larger or smaller in programs of other versions. What the
    /// program does not have is zeros.
    ///
    /// # Errors
    /// `EINVAL` if it is smaller than `least`; `E2BIG` if it says more than this version understands.
    pub(crate) fn sized(&self, least: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises that the structure begins with its size.
        let size = unsafe { self.0.cast::<size_t>().read_unaligned() };
        if size < least {
            return Err(Errno::INVAL);
        }
        if size > SIZED_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        // SAFETY: C promises so many bytes.
        let given = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), size) };
        let ours = size.min(size_of::<T>());
        if given[ours..].iter().any(|byte| *byte != 0) {
            return Err(Errno::TOOBIG);
        }
        let mut value = zeros::<T>();
        // SAFETY: `ours` is at most the size of either, and one of them is a local variable.
        unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut value).cast(), ours) };
        Ok(value)
    }
}

/// Room for a value that C wants.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Plain> Out<T> {
    /// # Errors
    /// `EFAULT`: there is none.
    pub(crate) fn is_there(&self) -> Answer<()> {
        (!self.0.is_null()).then_some(()).ok_or(Errno::FAULT)
    }

    pub(crate) fn put(&mut self, value: T) -> Answer<()> {
        self.is_there()?;
        // SAFETY: C promises room for a value.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// A structure that begins with its size, which the program sets.
    ///
    /// # Errors
    /// `EINVAL` if it is smaller than `least`.
    pub(crate) fn put_sized(&mut self, value: &T, least: usize) -> Answer<()> {
        self.is_there()?;
        // SAFETY: C promises that the structure begins with its size.
        let size = unsafe { self.0.cast::<size_t>().read_unaligned() };
        if size < least || size > SIZED_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        let after = size_of::<size_t>();
        let ours = size.min(size_of::<T>()) - after;
        // SAFETY: as above, and C promises so many bytes there.
        let (from, to) =
            unsafe { ((&raw const *value).cast::<u8>().add(after), self.0.cast::<u8>().add(after)) };
        // SAFETY: `ours` bytes are behind both, and one of them is ours.
        unsafe { std::ptr::copy_nonoverlapping(from, to, ours) };
        Ok(())
    }
}

/// A function of C to call later, with its argument.
pub(crate) struct Action {
    function: extern "C" fn(*mut c_void),
    with: *mut c_void,
}

// SAFETY: the pointer is only given back; that it may be used in the thread that ends the transaction is C's promise.
unsafe impl Send for Action {}

impl Action {
    /// # Errors
    /// `EFAULT`: there is none.
    pub(crate) fn new(function: Option<extern "C" fn(*mut c_void)>, with: *mut c_void) -> Answer<Action> {
        let function = function.ok_or(Errno::FAULT)?;
        Ok(Action { function, with })
    }

    pub(crate) fn run(self) {
        (self.function)(self.with)
    }
}

/// The buffers of readv(2) and writev(2).
#[repr(transparent)]
pub struct Iovecs(*const iovec);

impl Iovecs {
    /// The buffers up to `MOVED_BYTES_MAX` bytes, and their sum.
    fn all(&self, count: c_int) -> Answer<(Vec<iovec>, usize)> {
        if !(0..=IOVECS_MAX).contains(&count) {
            return Err(Errno::INVAL);
        }
        if count == 0 {
            return Ok((Vec::new(), 0));
        }
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: C promises so many.
        let mut all = unsafe { std::slice::from_raw_parts(self.0, count as usize) }.to_vec();
        let mut sum = 0;
        for buffer in &mut all {
            if isize::try_from(buffer.iov_len).is_err() {
                return Err(Errno::INVAL);
            }
            if buffer.iov_base.is_null() && buffer.iov_len > 0 {
                return Err(Errno::FAULT);
            }
            buffer.iov_len = buffer.iov_len.min(MOVED_BYTES_MAX - sum);
            sum += buffer.iov_len;
        }
        Ok((all, sum))
    }

    /// The bytes of all buffers.
    pub(crate) fn gather(&self, count: c_int) -> Answer<Vec<u8>> {
        let (buffers, sum) = self.all(count)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(sum).map_err(|_| Errno::NOMEM)?;
        for buffer in buffers {
            bytes.extend_from_slice(Bytes(buffer.iov_base).of(buffer.iov_len)?);
        }
        Ok(bytes)
    }

    /// Reads into one buffer, and copies to all.
    pub(crate) fn scatter(
        &self,
        count: c_int,
        read: impl FnOnce(&mut [u8]) -> Answer<usize>,
    ) -> Answer<usize> {
        let (buffers, sum) = self.all(count)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(sum).map_err(|_| Errno::NOMEM)?;
        bytes.resize(sum, 0);
        let read = read(&mut bytes)?;
        let mut rest = &bytes[..read];
        for buffer in buffers {
            let (now, later) = rest.split_at(buffer.iov_len.min(rest.len()));
            Room(buffer.iov_base).of(now.len())?.copy_from_slice(now);
            rest = later;
        }
        Ok(read)
    }
}

/// A value that was leaked, if it was.
pub fn leaked<T>(place: &'static AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: nothing but what came out of a box is ever stored there, and it is never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// A descriptor of the program's own.
pub fn descriptor(fd: &c_int) -> Answer<BorrowedFd<'_>> {
    if *fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: one that is not open is an error of each call on it; that the program does not close it meanwhile is its
    // promise.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(errno())
}

/// Takes what a call of the C library has made.
fn made(fd: c_int) -> Answer<OwnedFd> {
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor that stands for nothing: each plain call on it, or through it, is an error.
pub fn nothing() -> Answer<OwnedFd> {
    // SAFETY: the name is a constant.
    let memory = made(unsafe { libc::memfd_create(c"systx".as_ptr(), libc::MFD_CLOEXEC) })?;
    let path = format!("/proc/thread-self/fd/{}\0", memory.as_raw_fd());
    // SAFETY: the path ends in NUL.
    made(unsafe { libc::open(path.as_ptr().cast(), libc::O_PATH | libc::O_CLOEXEC) })
}

/// A copy of a descriptor at a number that no other has, above those of the standard streams.
pub fn copy(fd: &OwnedFd) -> Answer<c_int> {
    // SAFETY: no memory is involved.
    let number = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if number >= 0 {
        return Ok(number);
    }
    match last_error() {
        // So says the kernel where even the first number is above the limit.
        Errno::INVAL => Err(Errno::MFILE),
        error => Err(error),
    }
}

/// Device and inode of what is open there.
pub fn identity(fd: c_int) -> Answer<(u64, u64)> {
    let mut stat = zeros::<libc::stat>();
    // SAFETY: the pointer is to a local variable.
    if unsafe { libc::fstat(fd, &mut stat) } != 0 {
        return Err(last_error());
    }
    Ok((stat.st_dev, stat.st_ino))
}

/// Closes a number that [`copy`] gave.
pub fn close(number: c_int) {
    // SAFETY: the caller has seen that it is still ours, or never gave it away.
    unsafe { libc::close(number) };
}

/// Random bytes of the kernel.
pub fn random<const N: usize>() -> Answer<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the pointer is to a local variable of that many bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    // Up to 256 bytes come as a whole.
    if got == N as isize {
        Ok(bytes)
    } else {
        Err(last_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stops_at_the_border() {
        set_errno(7);
        assert_eq!(border(|| -> Answer<c_int> { panic!("planted") }), -1);
        assert_eq!(errno(), libc::EIO);
        assert_eq!(border(|| -> Answer<isize> { Err(Errno::NOENT) }), -1);
        assert_eq!(errno(), libc::ENOENT);
    }

    #[test]
    fn success_leaves_errno_alone() {
        set_errno(7);
        let answer = border(|| {
            set_errno(9);
            Ok(3)
        });
        assert_eq!((answer, errno()), (3, 7));
    }

    #[test]
    fn structures_of_other_versions_are_read_as_far_as_they_go() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        struct Ours {
            size: usize,
            one: u64,
            two: u64,
        }
        // SAFETY: integers.
        unsafe impl Plain for Ours {}
        let read = |words: &[u64]| In::<Ours>(words.as_ptr().cast()).sized(16);
        assert_eq!(read(&[16, 5]), Ok(Ours { size: 16, one: 5, two: 0 }));
        assert_eq!(read(&[24, 5, 6]), Ok(Ours { size: 24, one: 5, two: 6 }));
        assert_eq!(read(&[32, 5, 6, 0]), Ok(Ours { size: 32, one: 5, two: 6 }));
        assert_eq!(read(&[32, 5, 6, 7]), Err(Errno::TOOBIG));
        assert_eq!(read(&[8, 5]), Err(Errno::INVAL));
        assert_eq!(read(&[u64::MAX, 5]), Err(Errno::TOOBIG));
        let mut words = [16u64, 0, 99];
        Out::<Ours>(words.as_mut_ptr().cast()).put_sized(&Ours { size: 24, one: 1, two: 2 }, 16).unwrap();
        assert_eq!(words, [16, 1, 99], "no more is written than there is room for");
    }

    #[test]
    fn nothing_can_be_done_with_nothing() {
        let number = copy(&nothing().unwrap()).unwrap();
        let mut byte = 0u8;
        // SAFETY: the pointer is to a local variable.
        assert_eq!(unsafe { libc::read(number, (&raw mut byte).cast(), 1) }, -1);
        assert_eq!(last_error(), Errno::BADF);
        // SAFETY: the path is a constant.
        assert_eq!(unsafe { libc::openat(number, c"etc".as_ptr(), libc::O_RDONLY) }, -1);
        assert_eq!(last_error(), Errno::NOTDIR);
        assert_eq!(identity(number).unwrap(), identity(number).unwrap());
        close(number);
    }
}
