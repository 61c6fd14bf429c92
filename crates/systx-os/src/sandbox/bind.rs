//! Directories of a view that the kernel serves by itself: a copy of the mount of their staged directory is mounted
//! over them in the command's mount namespace.
//!
//! Owns: the mounts that are made and taken away there, by a thread that goes in and comes back ([`Ground`]); what that
//! thread and the view tell each other ([`Binder`], [`Work`]). Guarantees: a directory is mounted over only where the
//! view's own object with the expected number is, no symbolic link is followed, and nothing but that mount is taken
//! away. Does not: choose directories.
//!
//! The view asks, and answers its own caller only when it is told: meanwhile that one's walk waits in the kernel's
//! check of the name, and goes on into the new mount. It holds no lock there; were it made to wait in a request about
//! something *in* the directory, it would hold the lock that move_mount(2) needs.
//!
//! Minimum kernel version: 5.12 (mount_setattr, RESOLVE_CACHED). Source: `handle_mounts` behind `d_revalidate` in
//! fs/namei.c, `do_lock_mount` in fs/namespace.c.

use super::mounts;
use super::root::set_like;
use super::spawn::socket_pair;
use crate::fuse::EventFd;
use crate::sockets;
use crate::types::Result;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The view's end: it asks for directories to be bound.
pub struct Binder {
    /// Each message is a mount, of the next job.
    trees: OwnedFd,
    shared: Arc<Shared>,
}

/// The thread's end.
pub struct Work {
    trees: OwnedFd,
    shared: Arc<Shared>,
}

/// A directory to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The view's number of it.
    pub node: u64,
    /// Index of the mount of the view.
    pub mount: u32,
    /// The process for which it is bound.
    pub user: u32,
    /// Inode number of the directory, as the view shows it.
    pub ino: u64,
    /// When it was asked for.
    pub asked: Instant,
    /// Its path from the root of that mount, without leading slash.
    pub path: Vec<u8>,
}

/// News from the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A directory is bound.
    Bound(u64),
    /// A directory that was to be bound is not.
    NotBound(u64),
    /// A directory is no longer bound, and nothing below it is open, mapped or anybody's place.
    Left(u64),
    /// None will be bound any more.
    Over,
}

struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    /// How many reports there are; looked at before each request.
    waiting: AtomicUsize,
    reports: Mutex<Vec<Report>>,
    bell: EventFd,
    /// The thread, 0 before it runs.
    thread: AtomicU32,
}

/// Two ends.
pub fn pair() -> Result<(Binder, Work)> {
    let (trees, theirs) = socket_pair()?;
    let (jobs, reports) = (Mutex::default(), Mutex::default());
    let (waiting, bell, thread) = (AtomicUsize::new(0), EventFd::new()?, AtomicU32::new(0));
    let shared = Arc::new(Shared { jobs, waiting, reports, bell, thread });
    rustix::io::ioctl_fionbio(&trees, true)?;
    Ok((Binder { trees, shared: shared.clone() }, Work { trees: theirs, shared }))
}

/// Nothing panics while it holds one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Binder {
    /// Asks for a directory to be bound, and says whether it could: if so, a report follows. `dir` is what is to be
    /// found under its name from then on.
    pub fn ask(&self, job: Job, dir: BorrowedFd<'_>) -> bool {
        mounts::detached(dir).and_then(|tree| self.hand_over(job, tree.as_fd())).is_ok()
    }

    fn hand_over(&self, job: Job, tree: BorrowedFd<'_>) -> Result<()> {
        // The thread takes a job for each message, and so none before this one's.
        locked(&self.shared.jobs).push_back(job);
        sockets::send(&self.trees, b"J", &[tree]).inspect_err(|_| {
            locked(&self.shared.jobs).pop_back();
        })
    }

    /// Returns true if a thread is the one that binds: what it looks up is for that.
    pub fn is_own(&self, thread: u32) -> bool {
        self.shared.thread.load(Ordering::Acquire) == thread
    }

    /// Takes the reports that have come. Without one it costs a look at memory.
    pub fn reports(&self) -> Vec<Report> {
        if self.shared.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.shared.bell.silence();
        let mut reports = locked(&self.shared.reports);
        self.shared.waiting.store(0, Ordering::Release);
        std::mem::take(&mut reports)
    }

    /// Readable when a report has come.
    pub fn bell(&self) -> &EventFd {
        &self.shared.bell
    }
}

impl Work {
    /// Says that this thread is the one that binds.
    pub fn begin(&self) {
        self.shared.thread.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    }

    /// The next job, with the mount if there was room for its descriptor; `None`: no view is left. Waits, if it is not
    /// [readable](AsFd::as_fd).
    pub fn next(&self) -> Option<(Job, Option<OwnedFd>)> {
        let mut fds = Vec::new();
        match sockets::receive(&self.trees, &mut [0; 1], &mut fds) {
            Ok(1..) => locked(&self.shared.jobs).pop_front().map(|job| (job, fds.pop())),
            Ok(0) | Err(_) => None,
        }
    }

    /// Tells the view.
    pub fn report(&self, report: Report) {
        let mut reports = locked(&self.shared.reports);
        reports.push(report);
        self.shared.waiting.store(reports.len(), Ordering::Release);
        self.shared.bell.ring();
    }

    /// Its descriptors, for the thread's own table.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.trees.as_fd(), self.shared.bell.as_fd()]
    }
}

impl AsFd for Work {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.trees.as_fd()
    }
}

/// A mount that was made.
#[derive(Debug)]
pub struct Bound {
    /// Number of the mount.
    pub mount: u64,
    /// Where, from the root of the namespace; it may have been moved since.
    at: Vec<u8>,
}

impl Bound {
    /// Where it was made, from the root of the namespace.
    pub fn path(&self) -> &[u8] {
        &self.at
    }
}

/// Has all directories left that can be, for the rest of the transaction that this process is inside of, if it is: before
/// it makes mounts that would keep them. It is a call that fails.
pub fn have_all_left() {
    let _ = rustix::mount::unmount(c"", UnmountFlags::empty());
}

/// The namespaces of mounts between which a thread goes to and fro. It sees the processes of the machine, not only those of
/// the command, while it is at home.
pub struct Ground {
    inside: OwnedFd,
    home: OwnedFd,
    root: OwnedFd,
    proc: OwnedFd,
}

impl Ground {
    /// Of this thread, and of the child with a number. The thread has a root and a working directory of its own from here on.
    pub fn of(child: u32) -> Result<Ground> {
        let open = |path: &str, flags: OFlags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let dir = OFlags::PATH | OFlags::DIRECTORY;
        // SAFETY: CLONE_FS copies root, working directory and umask; no memory is concerned.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(crate::process::last_errno());
        }
        Ok(Ground {
            inside: open(&format!("/proc/{child}/ns/mnt"), OFlags::RDONLY)?,
            home: open("/proc/thread-self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", dir)?,
            proc: open("/proc", dir)?,
        })
    }

    /// Does something in the command's namespace.
    fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        move_into_link_name_space(self.inside.as_fd(), Some(LinkNameSpaceType::Mount))?;
        let done = work();
        let home = move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Mount))
            .and_then(|()| rustix::process::fchdir(&self.root))
            .and_then(|()| rustix::process::chroot(c"."));
        home.and(done)
    }

    /// Mounts over the directory at a path, if that is one of the view with this device and number, with the options of the
    /// mount on which that is.
    pub fn bind(&self, tree: &OwnedFd, at: &[u8], (device, ino): (u64, u64)) -> Result<Bound> {
        let mount = mounts::mount_id(tree)?;
        let (parent, name) = split(at);
        self.inside(|| {
            let parent = walk(parent)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
            let found = look(&dir, b"", StatxFlags::INO)?;
            let device_of = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
            if (device_of, found.stx_ino) != (device, ino) || is_root(&found) {
                return Err(Errno::STALE);
            }
            set_like(tree, &parent)?;
            let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            rustix::mount::move_mount(tree, c"", &dir, c"", both)
        })?;
        Ok(Bound { mount, at: at.to_vec() })
    }

    /// Takes a mount away that nobody uses.
    ///
    /// # Errors
    /// `EBUSY`: something in it is open, mapped, or somebody's root or working directory. `ESTALE`: it is nowhere. `EPERM`: the directory has got a
    /// flag with which it can't be moved.
    pub fn unbind(&self, bound: &Bound) -> Result<()> {
        self.inside(|| match take(bound.mount, &bound.at) {
            Err(Errno::STALE | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                // A directory above it has another name by now.
                match self.place_of(bound.mount)? {
                    Some(at) => take(bound.mount, &at),
                    // Taken off its place, others may have it still.
                    None => Err(Errno::STALE),
                }
            }
            done => done,
        })
    }

    /// Returns true for a thread in the command's namespace.
    pub fn is_of(&self, thread: u32) -> bool {
        let theirs =
            rustix::fs::stat(format!("/proc/{thread}/ns/mnt")).map(|stat| (stat.st_dev, stat.st_ino));
        let ours = rustix::fs::fstat(&self.inside).map(|stat| (stat.st_dev, stat.st_ino));
        theirs.is_ok() && theirs == ours
    }

    /// A copy of the mount of a descriptor, which is in the command's namespace, without the mounts on it.
    pub fn detached(&self, mount: &OwnedFd) -> Result<OwnedFd> {
        self.inside(|| mounts::detached(mount))
    }

    /// Where a mount is in the namespace that this thread is in; `None`: it is nowhere.
    fn place_of(&self, mount: u64) -> Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let table = rustix::fs::openat(&self.proc, c"thread-self/mountinfo", flags, Mode::empty())?;
        let table = mounts::read_table(table)?;
        Ok(table.into_iter().find(|found| found.id == mount).map(|found| found.point))
    }
}

/// Takes away the mount with a number at a path.
fn take(mount: u64, at: &[u8]) -> Result<()> {
    let (parent, name) = split(at);
    let parent = walk(parent)?;
    let found = look(&parent, name, StatxFlags::MNT_ID)?;
    if found.stx_mnt_id != mount || !is_root(&found) {
        return Err(Errno::STALE);
    }
    if found.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
        return Err(Errno::PERM);
    }
    // Unmounting takes a path; one of a single name leads nowhere else.
    rustix::process::fchdir(&parent)?;
    rustix::mount::unmount(name, UnmountFlags::NOFOLLOW)
}

/// Opens a directory by a path from the root, without following symbolic links.
fn walk(path: &[u8]) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, c"/", flags, Mode::empty())?;
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
    rustix::fs::openat2(&root, path, flags, Mode::empty(), how)
}

fn look(dir: &OwnedFd, name: &[u8], what: StatxFlags) -> Result<rustix::fs::Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    rustix::fs::statx(dir, name, flags, what)
}

fn is_root(found: &rustix::fs::Statx) -> bool {
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// Directory and last name of a path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The purpose of a thread that looks a name up on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To move or link something, or to remove a directory.
    Renames,
    /// To remove something.
    Removes,
    /// To go there.
    Goes,
    /// To make something.
    Makes,
    /// To look at it or change its attributes: it does not keep it.
    Looks,
    /// Anything else.
    Uses,
    /// It is not waiting yet, or no longer.
    Unknown,
    /// There is no such thread any more, or it may not be looked at.
    Gone,
}

/// The purpose of a thread. One that runs is asked again for so long: who has just asked a question is on its way to
/// waiting for the answer.
pub fn intent(thread: u32, patience: Duration) -> Intent {
    let (path, since) = (format!("/proc/{thread}/syscall"), Instant::now());
    loop {
        let Ok(text) = std::fs::read(&path) else { return Intent::Gone };
        if !text.starts_with(b"running") {
            return intent_in(&text);
        }
        if since.elapsed() >= patience {
            return Intent::Unknown;
        }
        std::thread::yield_now();
    }
}

/// Reads `number 0xarg 0xarg …`: proc_pid_syscall(5).
fn intent_in(text: &[u8]) -> Intent {
    let mut words = std::str::from_utf8(text).unwrap_or_default().split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()).filter(|n| *n >= 0) else {
        return Intent::Unknown;
    };
    let mut arg = |n: usize| {
        let word = words.nth(n).and_then(|word| word.strip_prefix("0x"));
        word.and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or(0)
    };
    let makes = |flags: u64| if flags & libc::O_CREAT as u64 != 0 { Intent::Makes } else { Intent::Uses };
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_rename | libc::SYS_link | libc::SYS_rmdir => return Intent::Renames,
        libc::SYS_unlink => return Intent::Removes,
        libc::SYS_mkdir | libc::SYS_mknod | libc::SYS_symlink | libc::SYS_creat => return Intent::Makes,
        libc::SYS_open => return makes(arg(1)),
        libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_readlink
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_futimesat => return Intent::Looks,
        _ => {}
    }
    match number {
        libc::SYS_renameat2 | libc::SYS_linkat => Intent::Renames,
        libc::SYS_unlinkat => Intent::Removes,
        #[cfg(not(target_arch = "riscv64"))]
        libc::SYS_renameat => Intent::Renames,
        libc::SYS_chdir | libc::SYS_chroot | libc::SYS_mount | libc::SYS_pivot_root => Intent::Goes,
        libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_symlinkat => Intent::Makes,
        libc::SYS_openat => makes(arg(2)),
        libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlinkat
        | libc::SYS_statfs
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_utimensat => Intent::Looks,
        #[cfg(not(target_arch = "riscv64"))]
        libc::SYS_newfstatat => Intent::Looks,
        libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_setxattr
        | libc::SYS_lsetxattr => Intent::Looks,
        _ => Intent::Uses,
    }
}

/// The process that a thread is of.
pub fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let number = |line: &[u8]| std::str::from_utf8(line.strip_prefix(b"Tgid:")?).ok()?.trim().parse().ok();
    status.split(|byte| *byte == b'\n').find_map(number)
}

/// Number of the mount on which something is that a thread names by a path from a descriptor of it, or from where it is;
/// `None`: it can't be found out.
pub fn mount_of(thread: u32, from: Option<i32>, path: &[u8]) -> Option<u64> {
    mounts::mount_id(&open_as(thread, from, path).ok()?).ok()
}

/// A path that begins with a link of /proc to what its process has: it would be another one to this process.
fn of_its_own(path: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let after = |prefix: &str| path.strip_prefix(prefix.as_bytes());
    let name = after("/proc/self/").or_else(|| after("/dev/").filter(|name| name.starts_with(b"fd/")))?;
    let (first, rest) = match name.strip_prefix(b"fd/") {
        Some(name) => {
            let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            (Some(std::str::from_utf8(&name[..end]).ok()?.parse().ok()?), &name[end..])
        }
        None => (None, name.strip_prefix(b"cwd")?),
    };
    let is_whole = rest.is_empty() || rest[0] == b'/';
    let rest = rest.iter().position(|byte| *byte != b'/').map_or(&b""[..], |begin| &rest[begin..]);
    is_whole.then_some((first, rest))
}

/// How often a path is walked that others disturb.
const TRIES: usize = 32;

/// Walks a path until nobody has disturbed it. `EAGAIN`: a rename or mount happened somewhere on the machine while `..` was
/// walked.
pub(super) fn undisturbed<T>(walk: impl Fn() -> Result<T>) -> Result<T> {
    let walked = (1..TRIES).map(|_| walk()).find(|walked| !matches!(walked, Err(Errno::AGAIN)));
    walked.unwrap_or_else(walk)
}

/// Opens, for its place alone, what a thread names by a path from a descriptor of it, or from where it is. A file system is
/// asked only for what the kernel does not know, as it may not answer.
///
/// # Errors
/// As of the walk. `EXDEV`: it is not below the thread's root.
///
/// Minimum kernel version: 5.12 (RESOLVE_CACHED).
pub(super) fn open_as(thread: u32, from: Option<i32>, path: &[u8]) -> Result<OwnedFd> {
    let (thread, from, path) = match of_its_own(path) {
        Some((from, path)) => (process_of(thread).ok_or(Errno::SRCH)?, from, path),
        None => (thread, from, path),
    };
    let base = match from {
        Some(fd) => format!("/proc/{thread}/fd/{fd}"),
        None => format!("/proc/{thread}/cwd"),
    };
    let (flags, root) = (OFlags::PATH | OFlags::CLOEXEC, format!("/proc/{thread}/root"));
    let open = |path: &str| rustix::fs::openat(CWD, path, flags, Mode::empty());
    let link =
        |path: &str| std::fs::read_link(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
    let walk = |base: &OwnedFd, path: &[u8], how: ResolveFlags| {
        let walk = |how| rustix::fs::openat2(base, path, flags | OFlags::NOFOLLOW, Mode::empty(), how);
        match walk(how | ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => undisturbed(|| walk(how)),
            walked => walked,
        }
    };
    match path.first() {
        Some(b'/') => return walk(&open(&root)?, path, ResolveFlags::IN_ROOT),
        None => return open(&base),
        _ => {}
    }
    let goes_up = path.split(|byte| *byte == b'/').any(|name| name == b"..");
    let top = link(&root)?;
    // It may lead to the thread's root, which is not that of this thread.
    if !goes_up || top == Path::new("/") {
        match walk(&open(&base)?, path, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            walked => return walked,
        }
    }
    let from = link(&base)?;
    let from = from.strip_prefix(&top).map_err(|_| Errno::XDEV)?.as_os_str().as_bytes();
    walk(&open(&root)?, &[from, path].join(&b'/'), ResolveFlags::IN_ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_arrives_as_it_was_sent() {
        let (binder, work) = pair().unwrap();
        let job = Job {
            node: 1 << 40,
            mount: 2,
            user: 77,
            ino: 1 << 33,
            asked: Instant::now(),
            path: b"a/b c".to_vec(),
        };
        let null = std::fs::File::open("/dev/null").unwrap();
        binder.hand_over(job.clone(), null.as_fd()).unwrap();
        assert_eq!(work.next().map(|(job, _)| job), Some(job));
        assert!(binder.reports().is_empty());
        work.report(Report::Bound(3));
        work.report(Report::Left(3));
        assert_eq!(binder.reports(), [Report::Bound(3), Report::Left(3)]);
        assert!(binder.reports().is_empty() && !binder.bell().is_rung());
    }

    #[test]
    fn a_call_is_known_by_its_number_and_flags() {
        let says = |number: libc::c_long, flags: i32| {
            intent_in(format!("{number} 0xffffff9c 0x7f00 {flags:#x} 0x1b6 0x0 0x0 0x7f 0x7f").as_bytes())
        };
        assert_eq!(says(libc::SYS_renameat2, 0), Intent::Renames);
        assert_eq!(says(libc::SYS_unlinkat, 0), Intent::Removes);
        assert_eq!(says(libc::SYS_chdir, 0), Intent::Goes);
        assert_eq!(says(libc::SYS_openat, libc::O_CREAT | libc::O_WRONLY), Intent::Makes);
        assert_eq!(says(libc::SYS_openat, libc::O_DIRECTORY), Intent::Uses);
        assert_eq!(says(libc::SYS_statx, 0), Intent::Looks);
        assert_eq!(says(libc::SYS_mkdirat, 0), Intent::Makes);
        assert_eq!(says(libc::SYS_execve, 0), Intent::Uses);
        assert_eq!((intent_in(b"running\n"), intent_in(b"-1 0x0 0x0\n")), (Intent::Unknown, Intent::Unknown));
    }

    #[test]
    fn a_thread_is_of_its_process() {
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        assert_eq!(process_of(std::process::id()), Some(std::process::id()));
        // It may have gone by now.
        let ended = process_of(thread.join().unwrap());
        assert!(ended.is_none() || ended == Some(std::process::id()));
        assert_eq!(intent(0, Duration::ZERO), Intent::Gone);
    }

    #[test]
    fn a_path_by_a_link_to_what_its_thread_has_begins_there() {
        assert_eq!(of_its_own(b"/proc/self/cwd/a/b"), Some((None, &b"a/b"[..])));
        assert_eq!(of_its_own(b"/proc/self/fd/7//a"), Some((Some(7), &b"a"[..])));
        assert_eq!(of_its_own(b"/dev/fd/7"), Some((Some(7), &b""[..])));
        for other in ["/proc/self/cwdx", "/proc/self/fd/x/a", "/dev/null", "/proc/1/cwd", "proc/self/cwd"] {
            assert_eq!(of_its_own(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_path_has_a_last_name() {
        assert_eq!((split(b"a/b/c"), split(b"c")), ((&b"a/b"[..], &b"c"[..]), (&b""[..], &b"c"[..])));
    }
}
