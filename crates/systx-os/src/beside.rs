//! Waking a thread on the CPU of whoever wakes it.
//!
//! Two threads that talk in turns are fastest on one CPU: waking another CPU, above all a virtual one that has gone to
//! sleep, takes longer than most of the work. The kernel prefers an idle CPU, though, and lets nobody wish otherwise
//! (pipes and seccomp notifications have a hint, FUSE has none). What can be done from here: for the instant of the
//! wake-up the sleeper may run on this CPU only. Its own mask is back before it runs, so neither it nor its children
//! ever see the narrow one, save when this thread is preempted right between.
//!
//! Source: kernel/sched/fair.c (select_task_rq_fair), sched_setaffinity(2).

use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};

/// Runs `wake`, which wakes thread `tid`, so that the thread goes on on this CPU. Where that can't be had, only runs it.
///
/// The thread must be asleep and wait for `wake`. Costs three system calls.
pub fn woken_here<T>(tid: u32, wake: impl FnOnce() -> T) -> T {
    let narrowed = narrow(tid);
    let woken = wake();
    if let Some((thread, mask)) = narrowed {
        // It can have died meanwhile.
        let _ = sched_setaffinity(Some(thread), &mask);
    }
    woken
}

/// Lets a thread run here only; what it was allowed before.
fn narrow(tid: u32) -> Option<(Pid, CpuSet)> {
    let thread = Pid::from_raw(i32::try_from(tid).ok()?)?;
    let (here, mask) = (sched_getcpu(), sched_getaffinity(Some(thread)).ok()?);
    if here >= CpuSet::MAX_CPU || !mask.is_set(here) || mask.count() == 1 {
        return None;
    }
    let mut only = CpuSet::new();
    only.set(here);
    sched_setaffinity(Some(thread), &only).ok().map(|()| (thread, mask))
}

/// Lets others of this CPU run, if any want to.
pub fn let_others_run() {
    rustix::thread::sched_yield();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// A thread that waits for a word, and the number it has.
    fn sleeper() -> (u32, std::sync::mpsc::Sender<()>, std::thread::JoinHandle<CpuSet>) {
        let ((word, wait), (tell, told)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            wait.recv().unwrap();
            sched_getaffinity(None).unwrap()
        });
        (told.recv().unwrap().as_raw_pid() as u32, word, thread)
    }

    #[test]
    fn who_is_woken_has_its_own_mask_afterwards() {
        let (tid, word, thread) = sleeper();
        let before = sched_getaffinity(Pid::from_raw(tid as i32)).unwrap();
        // Here it is still asleep: nothing wakes it inside.
        woken_here(tid, || {
            let inside = sched_getaffinity(Pid::from_raw(tid as i32)).unwrap();
            assert_eq!(inside.count(), 1);
        });
        word.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), before);
    }

    #[test]
    fn who_may_not_run_here_or_is_gone_is_left_alone() {
        assert_eq!(woken_here(0, || 1), 1);
        assert_eq!(woken_here(u32::MAX, || 2), 2);
        // Above the largest number that Linux gives.
        assert_eq!(woken_here(1 << 30, || 3), 3);
    }
}
