//! Answering on the CPU of the thread that asks, where that is chosen ([`Placing::Shared`]).
//!
//! Two threads that talk in turns are fastest on one CPU: waking another CPU, above all a virtual one that
//! has gone to sleep, takes longer than most of the work. The kernel wakes a thread on an idle CPU, though,
//! and FUSE has no hint. But a CPU that only threads of policy SCHED_IDLE want counts as idle. So the
//! answering thread takes this policy while it talks, on the CPU of the asking one: it runs when the asker
//! sleeps, and is no reason to move the asker. Nothing of the asking thread is changed.
//!
//! It pays where one thread asks thousands of times in a row on a loaded machine, and costs where programs ask now and
//! then: docs/benchmarks.md has both.
//!
//! Owns: policy and place of the answering thread ([`Beside`]). Guarantees: where other threads want the CPU
//! too, so that the answering one does not get it, its policy is restored after two ticks of a watcher. Does
//! not: work without the privilege to leave SCHED_IDLE (CAP_SYS_NICE, or RLIMIT_NICE): then nothing is
//! changed at all.
//!
//! Source: kernel/sched/fair.c (select_idle_sibling, sched_idle_cpu), kernel/sched/syscalls.c.

use rustix::thread::{gettid, sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// After this many requests in a row a thread is expected to go on asking. A compiler asks for less, and then
/// computes: it would keep the answering thread from all others for a moment.
const TALK: u32 = 256;
/// Upper bound of the same, after the answering thread was found without a CPU again and again.
const TALK_MAX: u32 = 1 << 20;
/// Requests after which it looks again where the other thread is.
const FOLLOW: u32 = 512;
/// Looks in vain before a request that are many: on one CPU who answers runs again when the next request is there.
const WAITS: u32 = 3;
/// After this many such requests in a row the two are apart.
const WAITED: u32 = 4;
/// Requests after which others are trusted again not to want the CPU.
const TRUST: u32 = 4096;
/// An answering thread that has no CPU before this many answers competes with other threads.
const SOON: u32 = 256;
/// Time between two looks of the watcher.
const TICK: Duration = Duration::from_millis(1);

/// The CPU on which a thread answers those who ask it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placing {
    /// Chosen by the kernel.
    #[default]
    Scheduled,
    /// That of a thread which asks again and again.
    Shared,
}

/// How a thread that answers stands to those who ask it. For one thread; ended by [`Beside::end`].
#[derive(Debug, Default)]
pub struct Beside {
    placing: Placing,
    asker: u32,
    in_a_row: u32,
    /// Requests in a row that it takes now.
    enough: u32,
    near: bool,
    answers: u32,
    /// Looks in vain since the last request.
    waits: u32,
    /// Requests in a row before which there were many of them.
    waited: u32,
    watched: Option<(Arc<Watched>, JoinHandle<()>)>,
    refused: bool,
}

#[derive(Debug)]
struct Watched {
    /// The thread that answers.
    thread: u32,
    /// It may be of policy SCHED_IDLE and back. Unknown at first.
    able: AtomicBool,
    unable: AtomicBool,
    near: AtomicBool,
    answers: AtomicU32,
    /// It did not get the CPU: its policy was given back.
    starved: AtomicBool,
    over: AtomicBool,
}

impl Beside {
    /// Makes one that nothing was asked yet.
    pub fn new(placing: Placing) -> Beside {
        let mut beside = Beside::default();
        beside.placing = placing;
        beside
    }

    /// Notes the asking thread, before the answer. 0: no thread waits for it.
    pub fn asked_by(&mut self, thread: u32) {
        if thread == 0 || self.placing == Placing::Scheduled {
            return;
        }
        if thread != self.asker {
            self.part();
            (self.asker, self.in_a_row) = (thread, 0);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.near {
            self.go_on();
        } else if self.in_a_row >= self.enough.max(TALK) && !self.refused {
            self.join();
        }
    }

    /// Notes a look in vain.
    pub fn not_asked(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// Returns true if the answering thread runs only where no other wants to.
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// Restores the state before all talk, since no thread asks for now.
    pub fn part(&mut self) {
        if !std::mem::take(&mut self.near) {
            return;
        }
        self.in_a_row = 0;
        set_policy(0, libc::SCHED_OTHER);
        if let Some((watched, _)) = &self.watched {
            watched.near.store(false, SeqCst);
        }
    }

    /// The thread that answers is about to end.
    pub fn end(&mut self) {
        self.part();
        if let Some((watched, watcher)) = self.watched.take() {
            watched.over.store(true, SeqCst);
            watcher.thread().unpark();
            // It can't panic, and if it did it would not matter any more.
            let _ = watcher.join();
        }
    }

    fn join(&mut self) {
        let Some((watched, watcher)) = &self.watched else { return self.start() };
        self.refused = watched.unable.load(SeqCst);
        if !watched.able.load(SeqCst) {
            return;
        }
        if !follow(self.asker) {
            self.in_a_row = 0;
            return;
        }
        // Watched from before it can starve.
        watched.starved.store(false, SeqCst);
        watched.answers.fetch_add(1, SeqCst);
        watched.near.store(true, SeqCst);
        watcher.thread().unpark();
        self.near = set_policy(0, libc::SCHED_IDLE);
        watched.near.store(self.near, SeqCst);
        self.answers = 0;
    }

    fn go_on(&mut self) {
        let Some((watched, _)) = &self.watched else { return };
        watched.answers.fetch_add(1, SeqCst);
        if watched.starved.load(SeqCst) {
            // At once: others want the CPU. Later: who asked had something else to do.
            if self.answers < SOON {
                self.enough = self.enough.max(TALK).saturating_mul(4).min(TALK_MAX);
            }
            return self.part();
        }
        self.answers = self.answers.wrapping_add(1);
        if self.answers % TRUST == 0 {
            self.enough /= 2;
        }
        if (self.is_apart() || self.answers % FOLLOW == 0) && !follow(self.asker) {
            self.part();
        }
    }

    /// Returns true if, at a request, the two threads seem to have come apart: the kernel wakes the asking
    /// one on another CPU if a third thread wants this one for an instant, and from then on there.
    fn is_apart(&mut self) -> bool {
        self.waited = if std::mem::take(&mut self.waits) < WAITS { 0 } else { self.waited + 1 };
        let apart = self.waited == WAITED;
        if apart {
            self.waited = 0;
        }
        apart
    }

    /// Starts the watcher, which finds out whether it may be done at all.
    fn start(&mut self) {
        let watched = Arc::new(Watched {
            thread: gettid().as_raw_pid().unsigned_abs(),
            able: AtomicBool::new(false),
            unable: AtomicBool::new(false),
            near: AtomicBool::new(false),
            answers: AtomicU32::new(0),
            starved: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let seen = watched.clone();
        match std::thread::Builder::new().name("systx-watch".into()).spawn(move || seen.watch()) {
            Ok(watcher) => self.watched = Some((watched, watcher)),
            Err(_) => self.refused = true,
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.end();
    }
}

impl Watched {
    fn watch(&self) {
        // On itself: who can't come back does not matter here.
        let able = policy() == Some(libc::SCHED_OTHER)
            && set_policy(0, libc::SCHED_IDLE)
            && set_policy(0, libc::SCHED_OTHER);
        self.unable.store(!able, SeqCst);
        self.able.store(able, SeqCst);
        // A thread of the ordinary policy counts for some time after it has gone to sleep (delayed dequeue in
        // kernel/sched/fair.c), and each look would part the two, on whose CPU it mostly is. Without the
        // privilege it does.
        if able {
            set_policy(0, libc::SCHED_FIFO);
        }
        let mut last = 0;
        while able && !self.over.load(SeqCst) {
            if !self.near.load(SeqCst) {
                std::thread::park();
                continue;
            }
            std::thread::park_timeout(TICK);
            let answers = self.answers.load(SeqCst);
            if answers == last && self.near.load(SeqCst) {
                self.starved.store(true, SeqCst);
                // Again at each look until it has noticed.
                set_policy(self.thread, libc::SCHED_OTHER);
            }
            last = answers;
        }
    }
}

/// Sets the policy of a thread of this process, of real-time ones with the lowest priority; 0 is the calling
/// one. Its nice value stays.
fn set_policy(thread: u32, policy: i32) -> bool {
    let param = libc::sched_param { sched_priority: i32::from(policy == libc::SCHED_FIFO) };
    // SAFETY: the call reads one `struct sched_param`, which `param` is, and keeps no pointer.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const param) };
    done == 0
}

/// Policy of the calling thread.
fn policy() -> Option<i32> {
    // SAFETY: takes and returns numbers only.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    i32::try_from(policy).ok().filter(|policy| *policy >= 0)
}

/// Moves the calling thread to the CPU where a thread ran last. What it may run on stays.
fn follow(thread: u32) -> bool {
    let Some(cpu) = last_cpu(thread).filter(|cpu| *cpu < CpuSet::MAX_CPU) else { return false };
    if cpu == sched_getcpu() {
        return true;
    }
    let Ok(mask) = sched_getaffinity(None) else { return false };
    let mut only = CpuSet::new();
    only.set(cpu);
    if !mask.is_set(cpu) || sched_setaffinity(None, &only).is_err() {
        return false;
    }
    sched_setaffinity(None, &mask).is_ok()
}

/// Field 39 of proc_pid_stat(5), counted behind the name, which may hold anything.
fn last_cpu(thread: u32) -> Option<usize> {
    let stat = std::fs::read(format!("/proc/{thread}/stat")).ok()?;
    let behind = stat.iter().rposition(|b| *b == b')')?;
    let field = stat.get(behind + 2..)?.split(|b| *b == b' ').nth(36)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// `struct sched_attr` of linux/sched/types.h, version 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest slice that the kernel gives, in nanoseconds.
const SHORT_SLICE: u64 = 100_000;

/// Asks for short time slices for the calling thread: it runs soon after it is woken, and for no more time
/// than others. Where other programs compute on each CPU, an asking thread would else wait up to three
/// milliseconds. Kernels before 6.12 take no notice.
pub fn ask_for_short_slices() {
    if let Some(attr) = attributes() {
        let attr = SchedAttr { runtime: SHORT_SLICE, ..attr };
        // SAFETY: the call reads `attr.size` bytes, which the kernel has set to no more than there are, and
        // keeps no pointer.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// How the calling thread is scheduled.
fn attributes() -> Option<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: the call writes at most the given number of bytes to `attr`, and keeps no pointer.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size_of::<SchedAttr>(), 0) };
    (done == 0).then_some(attr)
}

/// Lets others of this CPU run, if any want to.
pub fn let_others_run() {
    rustix::thread::sched_yield();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Starts a thread that asks nothing, until it is ended.
    fn asker() -> (u32, impl FnOnce()) {
        let ((end, wait), (tell, told)) = (channel::<()>(), channel());
        let thread = std::thread::spawn(move || {
            tell.send(gettid().as_raw_pid().unsigned_abs()).unwrap();
            wait.recv().unwrap_err();
        });
        (told.recv().unwrap(), move || {
            drop(end);
            thread.join().unwrap();
        })
    }

    /// Asks until both are on one CPU; `None`: not for this user.
    fn near(thread: u32) -> Option<Beside> {
        let mut beside = Beside::new(Placing::Shared);
        while !beside.is_near() {
            if beside.refused {
                println!("skipped: needs the privilege to leave SCHED_IDLE");
                return None;
            }
            beside.asked_by(thread);
        }
        Some(beside)
    }

    #[test]
    fn who_answers_is_of_low_priority_only_while_one_thread_asks() {
        let ((one, end_one), (two, end_two)) = (asker(), asker());
        if let Some(mut beside) = near(one) {
            beside.asked_by(0);
            beside.asked_by(two);
            assert!(!beside.is_near());
            assert_eq!(policy(), Some(libc::SCHED_OTHER));
            beside.end();
        }
        end_one();
        end_two();
    }

    #[test]
    fn who_answers_nothing_for_some_time_has_its_policy_back() {
        let (one, end_one) = asker();
        if let Some(mut beside) = near(one) {
            while policy() != Some(libc::SCHED_OTHER) {
                std::thread::yield_now();
            }
            beside.asked_by(one);
            assert!(!beside.is_near(), "it has noticed");
            assert!(beside.enough > TALK, "and asks for more the next time");
        }
        end_one();
    }

    #[test]
    fn without_the_choice_nothing_changes() {
        let (one, end_one) = asker();
        let mut beside = Beside::default();
        (0..2 * TALK).for_each(|_| beside.asked_by(one));
        assert!(!beside.is_near() && beside.watched.is_none());
        assert_eq!(policy(), Some(libc::SCHED_OTHER));
        end_one();
    }

    #[test]
    fn short_slices_are_all_that_changes() {
        let (before, after) = std::thread::spawn(|| {
            let before = attributes().unwrap();
            ask_for_short_slices();
            (before, attributes().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(after, SchedAttr { runtime: after.runtime, ..before });
        if after.runtime == 0 {
            println!("skipped: this kernel knows no slices of a thread's own");
        } else {
            assert_eq!(after.runtime, SHORT_SLICE);
        }
    }

    #[test]
    fn who_waits_for_each_of_several_requests_is_apart() {
        let mut beside = Beside::default();
        let mut requests = |waits: &[u32]| {
            let mut apart = |waits: &u32| {
                (0..*waits).for_each(|_| beside.not_asked());
                beside.is_apart()
            };
            waits.iter().map(&mut apart).collect::<Vec<_>>()
        };
        assert_eq!(requests(&[3, 9, 3]), [false; 3]);
        assert_eq!(requests(&[3, 0, 3, 3, 2]), [true, false, false, false, false]);
        assert_eq!(requests(&[3, 3, 3, 3, 3]), [false, false, false, true, false]);
    }

    #[test]
    fn where_a_thread_ran_last_is_known_of_threads_that_are() {
        assert!(last_cpu(gettid().as_raw_pid().unsigned_abs()).is_some());
        // Above the largest number that Linux gives.
        assert_eq!(last_cpu(1 << 30), None);
        assert!(!follow(1 << 30));
    }
}
