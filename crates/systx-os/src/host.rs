//! Changes that a program may make to its own process, for tests of what a library in it must bear and must not do.
//!
//! Owns: [`State`], everything of a process that others of its parts rely on. Does not: belong to what is shipped; it is
//! there with the feature `host` alone.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};

use rustix::process::{getrlimit, setrlimit, Rlimit};

pub use rustix::process::Resource;

/// What a library leaves as it is: umask, limits, signals, children, directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    umask: String,
    limits: Vec<(u64, u64)>,
    /// Signal, handler, flags and mask, of each signal that has others than at the start.
    dispositions: Vec<(i32, usize, i32, Vec<i32>)>,
    /// Of this thread.
    blocked: Vec<i32>,
    pending: Vec<i32>,
    /// The errno of wait(2) for any child.
    children: [i32; 2],
    directory: std::path::PathBuf,
    root: std::path::PathBuf,
    /// Of a timer that sends SIGALRM, and the address of the other stack for signals.
    alarm: (i64, i64),
    stack: usize,
}

fn members(set: &libc::sigset_t) -> Vec<i32> {
    // SAFETY: an initialised set.
    (1..65).filter(|signal| unsafe { libc::sigismember(set, *signal) } == 1).collect()
}

fn filled(fill: impl FnOnce(&mut libc::sigset_t) -> i32) -> Vec<i32> {
    let mut set = crate::process::set_of(&[]);
    assert_eq!(fill(&mut set), 0);
    members(&set)
}

impl State {
    /// The present one.
    pub fn now() -> State {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let umask = status.lines().find(|line| line.starts_with("Umask:")).unwrap_or_default().to_owned();
        let limit = |resource: u32| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a number, and a struct that lives until the call returns.
            assert_eq!(unsafe { libc::getrlimit(resource as _, &mut limit) }, 0);
            (limit.rlim_cur, limit.rlim_max)
        };
        let disposition = |signal: i32| {
            // SAFETY: all zeros is a valid sigaction.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: only asks. It fails for the two that the C library keeps to itself.
            unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
            let found = (signal, action.sa_sigaction, action.sa_flags, members(&action.sa_mask));
            (found != (signal, libc::SIG_DFL, 0, vec![])).then_some(found)
        };
        // SAFETY: no new mask is set; the set lives until the call returns.
        let blocked = filled(|set| unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set) });
        // SAFETY: as above.
        let pending = filled(|set| unsafe { libc::sigpending(set) });
        // SAFETY: all zeros is valid for numbers, and the call fills them.
        let mut timer: libc::itimerval = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::getitimer(libc::ITIMER_REAL, &mut timer) }, 0);
        // SAFETY: all zeros is a valid stack_t, which the call fills.
        let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
        // SAFETY: only asks.
        assert_eq!(unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) }, 0);
        State {
            umask,
            limits: (0..16).map(limit).collect(),
            dispositions: (1..65).filter_map(disposition).collect(),
            blocked,
            pending,
            children: [0, libc::__WALL].map(no_child),
            directory: std::env::current_dir().unwrap_or_default(),
            root: std::fs::read_link("/proc/self/root").unwrap_or_default(),
            alarm: (timer.it_value.tv_sec, timer.it_interval.tv_sec),
            stack: stack.ss_sp as usize,
        }
    }
}

/// The errno of a wait(2) for any child, of that kind; 0: there is one.
fn no_child(kind: i32) -> i32 {
    // SAFETY: all zeros is valid, and the call fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | kind;
    // SAFETY: `info` lives until the call returns; WNOWAIT takes no child away.
    match unsafe { libc::waitid(libc::P_ALL, 0, &mut info, how) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// Runs `child` in a forked process, which ends with what it returns, or with 101 if it panics.
pub fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child has one thread, and what it does with locks of others is the test's.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let status = catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: ends the child at once; exit handlers are its parent's.
            unsafe { libc::_exit(status) }
        }
        pid => pid,
    }
}

/// Waits for a child of [`fork`]: its status, or minus the signal that killed it.
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` lives until the call returns.
    while unsafe { libc::waitpid(pid, &mut status, 0) } != pid {}
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -libc::WTERMSIG(status)
    }
}

/// Kills a child of [`fork`] that was not waited for yet.
pub fn kill(pid: i32) {
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

/// closefrom(3), whoever has them open.
pub fn close_from(first: u32) {
    // SAFETY: numbers only. What Rust values stand for them is closed under their hands: that is what is tested.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }, 0);
}

/// Opens `file` under every number in `numbers` that is free, as a program does with files of its own.
pub fn open_as(file: &impl AsRawFd, numbers: std::ops::Range<i32>) {
    for number in numbers {
        // SAFETY: numbers only; a free one is nobody's.
        unsafe {
            if libc::fcntl(number, libc::F_GETFD) == -1 {
                libc::dup2(file.as_raw_fd(), number);
            }
        }
    }
}

/// Sets the umask; returns the one before.
pub fn umask(mask: u32) -> u32 {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask)).as_raw_mode()
}

/// Lowers a limit of this process while `work` runs.
pub fn limited<T>(resource: Resource, to: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).expect("lowers a limit");
    let done = work();
    setrlimit(resource, before).expect("raises it again");
    done
}

/// Handlers that count, of the signals that a library might cause.
pub fn count_signals() {
    extern "C" fn count(_signal: libc::c_int) {
        COUNTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = count;
    for signal in [libc::SIGCHLD, libc::SIGURG, libc::SIGIO, libc::SIGBUS, libc::SIGXFSZ, libc::SIGPIPE] {
        // SAFETY: the handler adds to an atomic.
        assert_ne!(unsafe { libc::signal(signal, handler as libc::sighandler_t) }, libc::SIG_ERR);
    }
}

static COUNTED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// How many of them came.
pub fn signals() -> u64 {
    COUNTED.load(std::sync::atomic::Ordering::Relaxed)
}

/// Descriptors of this process, by number.
pub fn descriptors() -> BTreeMap<u32, std::path::PathBuf> {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let named = |entry: std::fs::DirEntry| {
        Some((entry.file_name().to_str()?.parse().ok()?, std::fs::read_link(entry.path()).ok()?))
    };
    listed.filter_map(named).collect()
}

impl State {
    /// The same, whatever children there are: those of other threads may be seen.
    pub fn apart_from_children(self) -> State {
        State { children: [0; 2], ..self }
    }
}
