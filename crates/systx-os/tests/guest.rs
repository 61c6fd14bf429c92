//! Promises to a process that is not ours: its signals, children, limits, masks and descriptors stay as they are.
//!
//! Without the test harness: its threads are a host of their own. Each case is a function; its name is the promise.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use systx_os::{stranger, Errno, Guest, Lease, Linux, Open, Os};
use systx_runner::{self as runner, Tried};

const ALL: &[(&str, Case)] = &[
    ("an_exchange_is_not_noticed_by_its_host", an_exchange_is_not_noticed_by_its_host),
    ("an_exchange_works_whatever_becomes_of_children", an_exchange_works_whatever_becomes_of_children),
    ("a_broken_lease_sends_its_host_no_signal", a_broken_lease_sends_its_host_no_signal),
    ("a_child_that_is_forked_meanwhile_shares_no_owned_byte", a_child_shares_no_owned_byte),
    ("an_exchange_copies_no_memory_of_many_threads", an_exchange_copies_no_memory_of_many_threads),
    ("a_program_that_is_started_is_no_child_and_has_nothing_of_its_hosts", a_program_is_a_stranger),
    ("a_lost_descriptor_is_noticed_at_the_next_call_and_by_each_change", a_lost_descriptor_is_noticed),
];

type Case = fn(&Scratch);

fn main() {
    let case = |&(name, case): &(&str, Case)| {
        runner::Case::new(name, move || {
            case(&Scratch::new());
            Tried::Passed
        })
    };
    runner::run(ALL.iter().map(case).collect(), || {});
}

/// A fresh directory.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("systx-guest-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn dir(&self) -> std::os::fd::OwnedFd {
        Linux::new().open_path(&self.0, Open::Directory).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn disposition(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: either a constant or a handler that adds to an atomic.
    assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
}

/// The errno of wait(2) for any child.
fn waited(flags: i32) -> i32 {
    // SAFETY: no status is asked for.
    let found = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | flags) };
    match found {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Exchanges the first bytes of a file to and fro.
fn exchange(scratch: &Scratch, times: u8) {
    let os = Linux::new();
    let file = os.tmpfile(&scratch.dir(), 0o600).unwrap();
    os.pwrite(&file, &[0; 512], 0).unwrap();
    for n in 0..times {
        assert_eq!(os.compare_exchange(&file, 0, &[n; 512], &[n + 1; 512]), Ok(true));
    }
    // What another process has cut off ends the exchange, and nobody.
    os.truncate(&file, 0).unwrap();
    assert_eq!(os.compare_exchange(&file, 0, &[times; 512], &[0; 512]), Ok(false));
    assert_eq!(os.stat(&file).unwrap().size, 0);
}

fn mask() -> Vec<bool> {
    // SAFETY: all zeros is a valid set, which the call fills.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: no new mask is set.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set) }, 0);
    // SAFETY: an initialised set.
    (1..65).map(|signal| unsafe { libc::sigismember(&set, signal) } == 1).collect()
}

fn handler_of(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks.
    assert_eq!(unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) }, 0);
    action.sa_sigaction
}

/// Tells its descriptors, session, terminal, directory and environment.
const TELL: &str =
    "echo \"$(ls /proc/$$/fd | tr '\\n' ' ')|$(cut -d' ' -f6,7 /proc/$$/stat)|$$ 0|$PWD|$GIVEN$HOME\" > $0";

fn a_program_is_a_stranger(scratch: &Scratch) {
    let handler: extern "C" fn(libc::c_int) = count;
    disposition(libc::SIGCHLD, handler as libc::sighandler_t);
    let (said, before) = (SIGNALS.load(Ordering::Relaxed), mask());
    // Without CLOEXEC: a program that is executed would have it.
    let null = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: numbers only; the copy is closed below.
    let inherited = unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD, 700) };
    assert!(inherited >= 700 && stranger::may_start());
    let fifo = scratch.0.join("fifo");
    let path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let words = [c"/bin/sh".to_owned(), c"-c".to_owned(), std::ffi::CString::new(TELL).unwrap(), path];
    stranger::start(&words, &[c"GIVEN=given".to_owned()]).unwrap();
    let told = std::fs::read_to_string(&fifo).unwrap();
    let told: Vec<&str> = told.trim().split('|').collect();
    // 3 is the shell's own, from which it reads the list.
    assert_eq!([told[0], told[3], told[4]], ["0 1 2 3 ", "/", "given"], "{told:?}");
    assert_eq!(told[1], told[2], "the session is its own, and there is no terminal");
    assert_eq!([waited(0), waited(libc::__WALL)], [libc::ECHILD; 2], "no child");
    assert_eq!((SIGNALS.load(Ordering::Relaxed), mask()), (said, before), "no signal");
    // One that can't be executed is an error, and leaves nothing.
    let missing = [c"/missing".to_owned()];
    assert_eq!(stranger::start(&missing, &[]), Err(Errno::NOENT));
    assert_eq!(waited(libc::__WALL), libc::ECHILD);
    // A process that takes orphans would get it as a child.
    // SAFETY: numbers only.
    let adopt = |adopts: libc::c_ulong| unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, adopts) };
    assert_eq!(adopt(1), 0);
    assert!(!stranger::may_start());
    assert_eq!(adopt(0), 0);
    disposition(libc::SIGCHLD, libc::SIG_DFL);
    // SAFETY: opened above.
    unsafe { libc::close(inherited) };
}

fn an_exchange_is_not_noticed_by_its_host(scratch: &Scratch) {
    let handler: extern "C" fn(libc::c_int) = count;
    disposition(libc::SIGCHLD, handler as libc::sighandler_t);
    disposition(libc::SIGBUS, handler as libc::sighandler_t);
    let before = mask();
    exchange(scratch, 100);
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0, "no signal");
    assert_eq!([waited(0), waited(libc::__WALL)], [libc::ECHILD; 2], "no child");
    assert_eq!(mask(), before);
    assert_eq!(handler_of(libc::SIGBUS), handler as libc::sighandler_t, "its handler of SIGBUS stays");
    disposition(libc::SIGCHLD, libc::SIG_DFL);
    disposition(libc::SIGBUS, libc::SIG_DFL);
}

fn an_exchange_works_whatever_becomes_of_children(scratch: &Scratch) {
    disposition(libc::SIGCHLD, libc::SIG_IGN);
    exchange(scratch, 100);
    disposition(libc::SIGCHLD, libc::SIG_DFL);
    // A host that takes every child it finds, those of threads too.
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                waited(libc::__WALL);
            }
        });
        for _ in 0..10 {
            exchange(scratch, 100);
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn an_exchange_copies_no_memory_of_many_threads(scratch: &Scratch) {
    let mebibytes = if std::env::var_os("SYSTX_LONG").is_some() { 1024 } else { 256 };
    let mut resident = vec![1u8; mebibytes << 20];
    let done = AtomicBool::new(false);
    // Each write after a copy of the page tables would be a fault.
    // SAFETY: all zeros is a valid rusage, which the call fills.
    let faults = || unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage.ru_minflt
    };
    std::thread::scope(|threads| {
        for part in resident.chunks_mut(mebibytes << 18) {
            let done = &done;
            threads.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    part.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
                }
            });
        }
        exchange(scratch, 1);
        let before = faults();
        exchange(scratch, 50);
        let during = faults() - before;
        done.store(true, Ordering::Relaxed);
        // Fifty copies would be fifty faults for each page.
        assert!(during < (mebibytes as i64) << 8, "{during} faults");
    });
}

fn a_broken_lease_sends_its_host_no_signal(scratch: &Scratch) {
    let handler: extern "C" fn(libc::c_int) = count;
    let before = SIGNALS.load(Ordering::Relaxed);
    for signal in [libc::SIGURG, libc::SIGIO] {
        disposition(signal, handler as libc::sighandler_t);
    }
    let (os, dir) = (Linux::new(), scratch.dir());
    let file = os.create(&dir, b"f", 0o600).unwrap();
    for _ in 0..10 {
        os.lease(&file, Lease::Write).unwrap();
        assert_eq!(os.open(&dir, b"f", Open::Read).err(), Some(Errno::AGAIN), "it breaks the lease");
        assert_eq!(os.lease_held(&file), Ok(Lease::Read));
        os.lease(&file, Lease::None).unwrap();
    }
    assert_eq!(SIGNALS.load(Ordering::Relaxed), before, "no signal");
    for signal in [libc::SIGURG, libc::SIGIO] {
        disposition(signal, libc::SIG_DFL);
    }
}

fn a_child_shares_no_owned_byte(scratch: &Scratch) {
    let os = Linux::new();
    let owners = os.create(&scratch.dir(), b"owners", 0o600).unwrap();
    let done = AtomicBool::new(false);
    let (here, there) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let children: Vec<_> = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(os.own_byte(&owners, 7).unwrap());
            }
        });
        let forked = (0..100).map(|_| {
            // SAFETY: the child closes and reads, which are system calls, and ends.
            match unsafe { libc::fork() } {
                0 => unsafe {
                    libc::close(std::os::fd::AsRawFd::as_raw_fd(&there));
                    libc::read(std::os::fd::AsRawFd::as_raw_fd(&here), [0u8; 1].as_mut_ptr().cast(), 1);
                    libc::_exit(0)
                },
                child => child,
            }
        });
        let forked = forked.collect();
        done.store(true, Ordering::Relaxed);
        forked
    });
    let owned = os.byte_owned(&owners, 7);
    drop(there);
    for child in children {
        // SAFETY: a child of ours; no status is asked for.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
    assert_eq!(owned, Ok(false), "its owner has given it back");
}

/// Within one call of the program what only looks is not looked after each time; what changes something is.
fn a_lost_descriptor_is_noticed(scratch: &Scratch) {
    let os = Guest::over(Linux::new());
    let (ours, theirs) = (scratch.0.join("ours"), scratch.0.join("theirs"));
    for (dir, name) in [(&ours, "a"), (&theirs, "a")] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join(name), "1").unwrap();
    }
    let dir = os.open_path(&ours, Open::Directory).unwrap();
    let before = os.stat_at(&dir, b"a").unwrap();
    let other = std::fs::File::open(&theirs).unwrap();
    let call = Guest::<Linux>::in_call();
    assert_eq!(os.stat_at(&dir, b"a").unwrap().ino, before.ino);
    // SAFETY: numbers only. What has the first one's number is another directory from here on: that is what is tested.
    let taken = unsafe { libc::dup2(other.as_raw_fd(), dir.as_raw_fd()) };
    assert_eq!(taken, dir.as_raw_fd());
    assert_eq!(os.mkdir(&dir, b"made", 0o700), Err(Errno::BADF));
    assert_eq!(os.unlink(&dir, b"a"), Err(Errno::BADF));
    drop(call);
    assert!(theirs.join("a").exists() && !theirs.join("made").exists());
    for looked in [os.stat_at(&dir, b"a"), os.stat_again(&dir, b"a", before.sight())] {
        assert_eq!(looked.map(|stat| stat.ino), Err(Errno::BADF));
    }
    let _call = Guest::<Linux>::in_call();
    assert_eq!(os.stat_at(&dir, b"a").map(|stat| stat.ino), Err(Errno::BADF));
    assert!(os.is_lost(&dir));
    // The number is the program's now: it is not closed.
    let number = dir.as_raw_fd();
    drop(dir);
    // SAFETY: asks for the flags of a number.
    assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
}
