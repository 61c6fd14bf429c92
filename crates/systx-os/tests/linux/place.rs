//! Where tests work and how they fork.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::{CapabilitySet, CapabilitySets};
use systx_os::{Linux, Open};

/// A fresh directory, removed with everything below it on drop.
pub struct Place {
    pub path: PathBuf,
    pub dir: OwnedFd,
}

impl Place {
    pub fn below(parent: &Path) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("systx-os-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let dir = Linux::new().open_path(&path, Open::Directory).unwrap();
        Place { path, dir }
    }

    /// One on the temp dir's file system and, where there is one, one on tmpfs.
    pub fn all() -> Vec<Place> {
        let mut places = vec![Place::below(&std::env::temp_dir())];
        match Path::new("/dev/shm") {
            shm if shm.is_dir() => places.push(Place::below(shm)),
            _ => println!("skipped on tmpfs: no /dev/shm"),
        }
        places
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}

/// Held by every test that forks or owns a byte: a child forked in between would share descriptors of another test.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` in a thread without any capability; whether that differs from before depends on who runs the tests.
pub fn without_capabilities(f: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            f()
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `child` in a forked process, which then exits with what it returns; it must not allocate or panic.
pub fn fork(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child makes system calls only, as the closure's contract says, and leaves by _exit.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let code = child();
            // SAFETY: never returns, runs no handlers of the parent's copy.
            unsafe { libc::_exit(code) }
        }
        pid => pid,
    }
}

/// Waits for a child; its exit code, or minus the signal that killed it.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` takes an int; the pid is a child of ours that nobody else waits for.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -libc::WTERMSIG(status)
    }
}

/// Kills a child of ours that was not waited for yet.
pub fn kill(pid: libc::pid_t) {
    // SAFETY: takes numbers only; the pid is not reused before it is waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

/// Blocks until a byte or the end arrives; whether it was a byte.
pub fn receive(pipe: &OwnedFd) -> bool {
    let mut byte = [0; 1];
    rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut byte[..])).unwrap_or(0) == 1
}
