//! A program that is started by a process and has nothing to do with it: no child of it, in a session of its own,
//! without its descriptors, directory and environment.
//!
//! Owns: the start. Guarantees: the process that starts it notices nothing: no signal, no child, no descriptor, nothing
//! copied. Does not: know the program, or wait for it.
//!
//! Between the two is a child that ends at once, so that the program becomes one of pid 1's.

use crate::caller::fs_uid;
use crate::linux::borrowed::{self, Stack};
use crate::process::last_errno;
use crate::types::{Errno, Result};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI32, Ordering};

/// Returns true if a program may be started for the user that this thread acts for, and would not become this
/// process's child: it is one user's alone, was not given rights by its program file (set-id, capabilities), and takes
/// no orphans.
pub fn may_start() -> bool {
    let [mut user, mut group] = [[0; 3]; 2];
    let mut adopts: libc::c_int = 0;
    // SAFETY: getauxval takes a number; the others fill the variables that they get.
    let asked = unsafe {
        libc::getauxval(libc::AT_SECURE) == 0
            && libc::getresuid(&mut user[0], &mut user[1], &mut user[2]) == 0
            && libc::getresgid(&mut group[0], &mut group[1], &mut group[2]) == 0
            && libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &mut adopts) == 0
    };
    let one = |ids: [u32; 3]| ids[0] == ids[1] && ids[1] == ids[2];
    asked && one(user) && one(group) && fs_uid() == user[0] && adopts == 0 && std::process::id() != 1
}

/// All that the two children need: they allocate nothing.
struct Start {
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    stack: *mut libc::c_void,
    /// Why it has failed; 0: it has not.
    failed: AtomicI32,
}

impl Start {
    fn fails(&self) -> libc::c_int {
        self.failed.store(last_errno().raw_os_error(), Ordering::Release);
        1
    }
}

/// The one in between.
extern "C" fn between(told: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the caller's, which waits until this child has ended.
    let start = unsafe { &*told.cast::<Start>() };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
    // SAFETY: as of `borrowed::run`: a stack of its own, and this child waits in here until the other has executed.
    match unsafe { borrowed::clone(become_it, start.stack, flags, told) } {
        -1 => start.fails(),
        _ => 0,
    }
}

/// The one that becomes the program.
extern "C" fn become_it(told: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as above.
    let start = unsafe { &*told.cast::<Start>() };
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // Before the first descriptor is opened: until then the table is the host's.
    // SAFETY: numbers only; what is closed are copies, if the call succeeds.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } != 0 {
        return start.fails();
    }
    // SAFETY: constant strings.
    let stands = unsafe {
        let null = || libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::chdir(c"/".as_ptr()) == 0 && [null(), null(), null()] == [0, 1, 2]
    };
    if stands {
        // All signals stay blocked: until execve(2) this child would run the host's handlers.
        // SAFETY: both end with a null pointer, and their strings outlive this child's use of this memory.
        unsafe { libc::execve(start.argv[0], start.argv.as_ptr(), start.envp.as_ptr()) };
    }
    start.fails()
}

/// Starts a program by its path, `argv[0]`, with this environment, all signals blocked and the umask, limits and
/// priority of this process.
///
/// # Errors
/// Of clone(2), close_range(2) and execve(2). `ENOSYS` under valgrind, which has no such children.
pub fn start(argv: &[CString], envp: &[CString]) -> Result<()> {
    if borrowed::valgrind() {
        return Err(Errno::NOSYS);
    }
    let pointers = |strings: &[CString]| {
        strings.iter().map(|string| CStr::as_ptr(string)).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let mut stack = Stack::new();
    let start =
        Start { argv: pointers(argv), envp: pointers(envp), stack: stack.top(), failed: AtomicI32::new(0) };
    let told = std::ptr::from_ref(&start).cast_mut().cast::<libc::c_void>();
    // SAFETY: `between` and `become_it` make system calls alone, and `start`, `stack` and the strings outlive the call.
    unsafe { borrowed::run(between, told) }?;
    match start.failed.load(Ordering::Acquire) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
