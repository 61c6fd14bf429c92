//! New directories that the kernel serves by itself: bound when the view asks, taken away in time.
//!
//! Owns: the mounts that exist, for whom, and when they go: with the process for which they were made, before a call that
//! would fail on them ([`crossing`]), before another process goes there, and at the end. Guarantees: at the end none is
//! left that anything outside still uses, or the transaction does not commit. A call that would fail on a mount that is in
//! use is made for its caller ([`making`]). Does not: answer programs that look at files; the view does.
//!
//! ```text
//! view ──job──► watcher: bind, in the command's namespace ──report──► view ──answer──► the walk goes on
//! ```

mod crossing;
mod making;

use crate::failure::Failure;
use crate::words::shown;
use crossing::{concerned, itself, Bind};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use systx_os::process;
use systx_os::sandbox::bind::{intent, mount_of, process_of, split, Bound, Ground, Intent, Report, Work};
use systx_os::sandbox::calls::{Answer, Change, FileCall, Name};
use systx_os::sandbox::root::{Base, Step};
use systx_os::Errno;

/// Why a transaction can't commit if a new directory could not be left.
fn in_use(path: &[u8], why: Errno) -> Failure {
    if why != Errno::BUSY {
        return Failure::new(format!("leaving the new directory {}", shown(path)), why)
            .hint("run with --no-native");
    }
    let why = format!(
        "a process outside has files of the new directory {} open, and could change them after the commit",
        shown(path)
    );
    Failure::from(why).hint("end it, or run with --no-native")
}

/// Where a view is seen in the command's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The device of the view.
    pub device: u64,
    /// For each mount of it: where, and which directory of the view is there; both without leading slash.
    pub at: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Says where the view with an index is seen.
pub fn seen(view: usize, device: u64, base: Base, steps: &[Step]) -> Seen {
    let mut at = Vec::new();
    if base == Base::Mount(view) {
        at.push((Vec::new(), Vec::new()));
    }
    for step in steps {
        match step {
            Step::Mount { mount, at: place } if *mount == view => {
                at.push((place.as_bytes().to_vec(), Vec::new()))
            }
            Step::Part { mount, part, at: place, .. } if *mount == view => {
                at.push((place.as_bytes().to_vec(), part.as_bytes().to_vec()));
            }
            _ => {}
        }
    }
    // A later mount lies on an earlier one.
    at.reverse();
    Seen { device, at }
}

impl Seen {
    /// Returns true if it is seen in one place only: in another one nothing is mounted over its directories.
    fn is_in_one_place(&self) -> bool {
        self.at.windows(2).all(|two| two[0].0 == two[1].0)
    }

    /// Path in the command's tree of the object that has this path in the view.
    fn path(&self, inside: &[u8]) -> Option<Vec<u8>> {
        self.at.iter().find_map(|(at, part)| {
            let rest = match part.as_slice() {
                b"" => inside,
                part => inside.strip_prefix(part)?.strip_prefix(b"/")?,
            };
            Some(if at.is_empty() { rest.to_vec() } else { [at, rest].join(&b'/') })
        })
    }

    /// The reverse: the path in the view, and how deep in the tree that view is seen.
    fn inside(&self, path: &[u8]) -> Option<(usize, Vec<u8>)> {
        self.at.iter().find_map(|(at, part)| {
            let rest = path.strip_prefix(at.as_slice())?;
            let rest = match rest.strip_prefix(b"/") {
                Some(rest) => rest,
                None if rest.is_empty() || at.is_empty() => rest,
                None => return None,
            };
            let both = [part.as_slice(), rest];
            Some((at.len(), both.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/')))
        })
    }
}

/// A directory that is bound.
struct Native {
    node: u64,
    bound: Bound,
    name: Vec<u8>,
    user: u32,
    /// `None`: it had ended already.
    process: Option<OwnedFd>,
    /// There may be copies of the mount: it is one until no program is left.
    copied: bool,
    /// Something has left it while it was in use.
    lent: bool,
}

/// How long a thread that runs may still be in a call that was answered before.
const UNDER_WAY: Duration = Duration::from_millis(10);
/// How many threads are kept of which the call may have ended.
const CALLING_MAX: usize = 64;
/// A job that is older is none: half of what the view waits.
const TOO_LATE: Duration = Duration::from_millis(200);
/// How long the kernel may take to release what the last process had open (a ring's files, a loop device).
const RELEASE: Duration = Duration::from_secs(2);
/// Between two tries to take away what others have in use.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// How many ended processes are known.
const ENDED_MAX: usize = 64;
/// How long one waits for a process that ends to let go of what it has open.
const LETTING_GO: Duration = Duration::from_millis(5);

/// The caller of a call that waits for its answer.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// The thread.
    pub thread: u32,
    /// Returns true if it waits still.
    pub waits: &'a dyn Fn() -> bool,
}

/// The descriptors and places that the binding thread is given.
pub struct Lent {
    work: Work,
    seen: Vec<Seen>,
    views: Arc<Vec<OwnedFd>>,
}

/// The directories that are bound, in the thread that binds.
pub struct Natives<'a> {
    work: &'a Work,
    seen: &'a [Seen],
    views: &'a [OwnedFd],
    ground: Option<Ground>,
    all: Vec<Native>,
    /// Threads whose call about names goes on, and since when.
    calling: HashMap<u32, Instant>,
    /// The latest processes to end. Directories that their threads still make are not bound.
    ended: VecDeque<u32>,
    /// When those of ended processes were tried last.
    retried: Instant,
    /// Calls are asked about: else no directory is bound.
    is_watched: bool,
    /// The command has mounts of its own making: no more directories are bound.
    is_over: bool,
    /// Some process has restricted itself: no call is made for another one.
    is_confined: bool,
    /// Copies of the views' mounts.
    copies: HashMap<usize, OwnedFd>,
    /// A process that is about to end, and has something open in directories that are bound for it.
    ending: Option<u32>,
}

impl Lent {
    /// Of views that are seen in these places, in their order.
    pub fn new(work: Work, seen: Vec<Seen>, views: Arc<Vec<OwnedFd>>) -> Lent {
        Lent { work, seen, views }
    }

    /// Its descriptors.
    pub fn descriptors(&self) -> Vec<i32> {
        let work = self.work.descriptors();
        work.iter().map(AsRawFd::as_raw_fd).chain(self.views.iter().map(AsRawFd::as_raw_fd)).collect()
    }

    /// Begins, in the thread that binds, for the command of `child`.
    pub fn begin(&self, child: u32) -> Natives<'_> {
        self.work.begin();
        let ground = Ground::of(child).inspect_err(|e| tracing::info!(?e, "directories can't be bound")).ok();
        Natives {
            work: &self.work,
            seen: &self.seen,
            views: &self.views,
            ground,
            all: Vec::new(),
            calling: HashMap::new(),
            ended: VecDeque::new(),
            retried: Instant::now(),
            is_watched: false,
            is_over: false,
            is_confined: false,
            copies: HashMap::new(),
            ending: None,
        }
    }
}

impl Natives<'_> {
    /// From here on calls are asked about.
    pub fn are_watched(&mut self) {
        self.is_watched = true;
    }

    /// No more calls than those will be asked about. Where none are, nothing is ever bound.
    pub fn is_all_watched(&mut self) {
        if !self.is_watched {
            self.work.report(Report::Over);
        }
    }

    /// To be waited for: jobs, and the ends of processes.
    pub fn waited_for(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ends = self.all.iter().filter_map(|native| native.process.as_ref());
        std::iter::once(self.work.as_fd()).chain(ends.map(AsFd::as_fd))
    }

    /// Does what is due, of what was waited for.
    pub fn go_on(&mut self, mut ready: impl Iterator<Item = bool>) {
        let is_job = ready.next().unwrap_or(false);
        let mut ended = Vec::new();
        for native in self.all.iter_mut().filter(|native| native.process.is_some()) {
            if ready.next().unwrap_or(false) {
                // It is tried again at later ends.
                native.process = None;
                ended.push(native.node);
            }
        }
        if !ended.is_empty() {
            self.unbind(|native| native.process.is_none());
        }
        if is_job {
            self.bind_next();
        }
    }

    fn bind_next(&mut self) {
        let Some((job, tree)) = self.work.next() else { return };
        let in_time = || job.asked.elapsed() < TOO_LATE;
        // Who moves or links something into it must not find a mount there that was none a moment before.
        self.forget_calls();
        let seen = self.seen.get(job.mount as usize);
        let seen = seen.filter(|seen| seen.is_in_one_place());
        let place = seen.and_then(|seen| Some((seen.device, seen.path(&job.path)?)));
        let may_be = self.is_watched
            && self.calling.is_empty()
            && !self.is_over
            && !self.ended.contains(&job.user)
            && in_time();
        let bound = match (&self.ground, place, tree) {
            (Some(ground), Some((device, at)), Some(tree)) if may_be => {
                ground.bind(&tree, &at, (device, job.ino)).and_then(|bound| {
                    // Else the view has let the walk go on.
                    if in_time() || ground.unbind(&bound).is_err() {
                        Ok(bound)
                    } else {
                        Err(Errno::TIMEDOUT)
                    }
                })
            }
            _ => Err(Errno::BUSY),
        };
        match bound {
            Ok(bound) => {
                let name = split(&job.path).1.to_vec();
                let process = process::watch(job.user).ok();
                let is_for_nobody = process.is_none();
                tracing::debug!(path = %String::from_utf8_lossy(&job.path), "a directory is bound");
                self.all.push(Native {
                    node: job.node,
                    bound,
                    name,
                    user: job.user,
                    process,
                    copied: false,
                    lent: false,
                });
                self.work.report(Report::Bound(job.node));
                if is_for_nobody {
                    self.unbind(|native| native.node == job.node);
                }
            }
            Err(e) => {
                tracing::debug!(?e, path = %String::from_utf8_lossy(&job.path), "a directory is not bound");
                self.work.report(Report::NotBound(job.node));
            }
        }
    }

    /// Forgets the threads whose call has come to its end.
    fn forget_calls(&mut self) {
        self.calling.retain(|thread, since| match intent(*thread, Duration::ZERO) {
            Intent::Renames => true,
            Intent::Unknown => since.elapsed() < UNDER_WAY,
            _ => false,
        });
    }

    /// Takes away the mounts that are meant and that nobody uses; returns true if none of them is left.
    fn unbind(&mut self, is_meant: impl Fn(&Native) -> bool) -> bool {
        let Some(ground) = &self.ground else { return true };
        let mut all_gone = true;
        let work = self.work;
        self.all.retain(|native| {
            if !is_meant(native) {
                return true;
            }
            if native.copied {
                all_gone = false;
                return true;
            }
            match ground.unbind(&native.bound) {
                Ok(()) => {
                    work.report(Report::Left(native.node));
                    false
                }
                Err(e) => {
                    tracing::trace!(?e, "a directory stays bound");
                    all_gone = false;
                    true
                }
            }
        });
        all_gone
    }

    /// After an answer. While a process ends, it lets go of what it has open, and only then its parent is told: so whoever
    /// waits for it finds its directories as they are for others.
    pub fn has_answered(&mut self) {
        let Some(process) = self.ending.take() else { return };
        let since = Instant::now();
        while !self.unbind(|native| native.user == process) && since.elapsed() < LETTING_GO {
            std::thread::yield_now();
        }
    }

    /// Answers a call about files, having taken out of its way what can be.
    pub fn answer(&mut self, asker: Asker<'_>, call: &FileCall) -> Answer {
        let (goes_on, thread) = (Answer::GoesOn, asker.thread);
        match call {
            FileCall::Ends if !self.all.is_empty() => {
                let process = process_of(thread);
                self.ended.truncate(ENDED_MAX - 1);
                process.into_iter().for_each(|process| self.ended.push_front(process));
                // Of processes that ended before, others hold something: not at each end anew.
                let again = self.retried.elapsed() >= BETWEEN_TRIES;
                self.retried = if again { Instant::now() } else { self.retried };
                let is_meant =
                    |native: &Native| Some(native.user) == process || (again && native.process.is_none());
                self.ending = process.filter(|_| !self.unbind(is_meant));
                goes_on
            }
            FileCall::Names(change, names) => self.names(asker, *change, names),
            // Its user alone sees it as a mount. Others have no place in it from which to look out.
            FileCall::Goes(Name { from, path }) if !self.all.is_empty() => {
                let (mount, process) = (mount_of(thread, *from, &itself(path)), process_of(thread));
                self.unbind(|native| Some(native.bound.mount) == mount && Some(native.user) != process);
                goes_on
            }
            FileCall::Traces => Answer::Fails(Errno::INVAL),
            FileCall::Confines => {
                self.is_confined = true;
                goes_on
            }
            // A copy of a mount would outlive it; and one that is mounted on it would keep it. Those in use stay to the end:
            // through a copy they can be reached after they have been taken away.
            FileCall::Mounts(taken) => {
                if !self.is_over {
                    self.is_over = true;
                    self.work.report(Report::Over);
                }
                self.unbind(|_| true);
                if taken.is_none() {
                    self.all.iter_mut().for_each(|native| native.copied = true);
                }
                match taken {
                    // It is none to whoever asks, nor is what lies in it.
                    Some(Name { from, path }) if self.is_in_native(thread, *from, &itself(path)) => {
                        Answer::Fails(Errno::INVAL)
                    }
                    _ => goes_on,
                }
            }
            // Durability comes with the commit.
            FileCall::Sync(fd) if self.is_in_native(thread, Some(*fd), b"") => Answer::Returns,
            // There it would lead to any file of the file system, as it is for others.
            FileCall::Handle(from) if self.is_in_native(thread, *from, b"") => Answer::Fails(Errno::STALE),
            FileCall::Request(fd) if self.is_in_native(thread, Some(*fd), b"") => {
                Answer::Fails(Errno::OPNOTSUPP)
            }
            // As in the view; an immutable directory could not be published.
            FileCall::Flags(Name { from, path }) if self.is_in_native(thread, *from, path) => {
                Answer::Fails(Errno::OPNOTSUPP)
            }
            _ => goes_on,
        }
    }

    /// A call about names goes on when nothing is in its way any more, or is made.
    fn names(&mut self, asker: Asker<'_>, change: Change, names: &[Name]) -> Answer {
        let thread = asker.thread;
        if !self.is_over {
            self.calling.insert(thread, Instant::now());
        }
        if self.calling.len() > CALLING_MAX {
            self.forget_calls();
        }
        if self.all.is_empty() {
            return Answer::GoesOn;
        }
        let binds: Vec<_> = self.all.iter().map(|n| Bind { mount: n.bound.mount, name: &n.name }).collect();
        let mount_of = |from, path: &[u8]| mount_of(thread, from, path);
        let concerned = concerned(names, &binds, &mount_of);
        if concerned.is_empty() || self.unbind(|native| concerned.contains(&native.bound.mount)) {
            return Answer::GoesOn;
        }
        self.make(asker, change, names).unwrap_or(Answer::GoesOn)
    }

    fn is_in_native(&self, thread: u32, from: Option<i32>, path: &[u8]) -> bool {
        let on = || mount_of(thread, from, path);
        !self.all.is_empty() && on().is_some_and(|mount| self.all.iter().any(|n| n.bound.mount == mount))
    }

    /// Takes all mounts away, when no program of the command is left; returns why one could not be, if so.
    pub fn end(mut self) -> Option<Failure> {
        let (since, work, ground) = (Instant::now(), self.work, self.ground.as_ref()?);
        loop {
            let mut why = None;
            self.all.retain(|native| match ground.unbind(&native.bound) {
                Err(e) if e != Errno::STALE || !native.copied => {
                    why = Some(in_use(native.bound.path(), e));
                    true
                }
                // Where it was copied, it went with its directory in another namespace.
                _ => {
                    work.report(Report::Left(native.node));
                    false
                }
            });
            if why.is_none() || since.elapsed() >= RELEASE {
                return why;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use systx_os::sandbox::mounts::Attributes;

    #[test]
    fn a_path_is_found_where_its_view_is_seen() {
        let whole = seen(0, 7, Base::Mount(0), &[]);
        assert_eq!(whole.path(b"a/b"), Some(b"a/b".to_vec()));
        let steps = [
            Step::Mount { mount: 1, at: c"srv/x".into() },
            Step::Part {
                mount: 1,
                part: c"d/x".into(),
                at: c"srv/x".into(),
                attributes: Attributes::default(),
            },
        ];
        let part = seen(1, 7, Base::Same, &steps);
        assert_eq!(part.path(b"d/x/new"), Some(b"srv/x/new".to_vec()));
        // Hidden by the other one, which has not this directory; there the number of the inode tells.
        assert_eq!(part.path(b"other/new"), Some(b"srv/x/other/new".to_vec()));
        assert_eq!(seen(0, 7, Base::Same, &steps).path(b"a"), None);
        assert_eq!(whole.inside(b"a/b"), Some((0, b"a/b".to_vec())));
        assert_eq!(part.inside(b"srv/x/new"), Some((5, b"d/x/new".to_vec())));
        assert_eq!((part.inside(b"srv/x"), part.inside(b"srv/xy")), (Some((5, b"d/x".to_vec())), None));
    }
}
