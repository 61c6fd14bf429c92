//! A child that this process does not notice: it shares memory and descriptors, and is gone when the call returns.
//!
//! Guarantees: no SIGCHLD (the child has no exit signal), no child for wait(2) without __WALL, nothing copied however
//! much memory the process has (CLONE_VM). CLONE_VFORK keeps the calling thread out of the way until the child has ended
//! or executed a program. Does not: keep other threads from running.

use super::raw::Blocked;
use crate::types::{Errno, Result};

/// Bytes of the child's stack: room for its few frames and the registers that a signal saves, with which the widest
/// machines fill 12 KiB.
const STACK: usize = 65_536;

/// The work of such a child; it returns its status.
pub(crate) type Child = extern "C" fn(*mut libc::c_void) -> libc::c_int;

// ThreadSanitizer takes the place of these in a host's program, and knows of no child that shares memory: it ends the
// program, and takes the child's handler for the host's. The C library has another name for each.
#[cfg(target_env = "gnu")]
extern "C" {
    #[link_name = "__clone"]
    pub(crate) fn clone(
        child: Child,
        stack: *mut libc::c_void,
        flags: libc::c_int,
        told: *mut libc::c_void,
        ...
    ) -> libc::c_int;
    #[link_name = "__sigaction"]
    pub(super) fn sigaction(
        signal: libc::c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> libc::c_int;
}
#[cfg(not(target_env = "gnu"))]
pub(crate) use libc::{clone, sigaction};

/// Memory for the stack of a child.
pub(crate) struct Stack(Vec<u128>);

impl Stack {
    pub fn new() -> Stack {
        // Touched at its end only. Aligned as every machine wants its stack.
        Stack(Vec::with_capacity(STACK / size_of::<u128>()))
    }

    /// The first address behind it, from which it grows down.
    pub fn top(&mut self) -> *mut libc::c_void {
        self.0.spare_capacity_mut().as_mut_ptr_range().end.cast()
    }
}

/// Runs `child` to its end, all signals blocked; its status, as wait(2) has it.
///
/// # Safety
/// `child` allocates nothing and takes no lock, which another thread may hold; `told` is good for it.
pub(crate) unsafe fn run(child: Child, told: *mut libc::c_void) -> Result<libc::c_int> {
    let mut stack = Stack::new();
    // A table of descriptors of its own would be closed at its end, which network file systems take for a close(2).
    // Valgrind, which ends a program that asks for anything but a thread or a process, makes a plain fork of the rest.
    let files = if valgrind() { 0 } else { libc::CLONE_FILES };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | files;
    // The child would run the handlers of this process, in its memory.
    let held = Blocked::all();
    // SAFETY: the child runs on a stack of its own and ends; until then the kernel keeps this thread in here
    // (CLONE_VFORK), so that `stack`, `told` and the registers that both have (thread-local memory) are the child's
    // alone. The rest is the caller's.
    let pid = unsafe { clone(child, stack.top(), flags, told) };
    // Before anything else can set it.
    let failed = last_error();
    drop(held);
    if pid < 0 {
        return Err(failed);
    }
    let mut status = 0;
    // A host that waits with __WALL may have taken it.
    // SAFETY: `status` is valid for the call.
    while unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } == -1 && last_error() == Errno::INTR {}
    Ok(status)
}

/// Returns true if valgrind runs this program: a client request, which is a run of instructions that do nothing
/// elsewhere.
///
/// Source: valgrind.h, VALGRIND_DO_CLIENT_REQUEST_EXPR with RUNNING_ON_VALGRIND.
#[cfg(target_arch = "x86_64")]
pub(crate) fn valgrind() -> bool {
    let request = [0x1001_u64, 0, 0, 0, 0, 0];
    let mut answer = 0_u64;
    // SAFETY: `rdi` is turned by 128 bits in all, and `rbx` exchanged with itself: no register has changed after it.
    // Valgrind reads `request` through `rax` and answers in `rdx`.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer != 0
}

/// Not known elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn valgrind() -> bool {
    false
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
