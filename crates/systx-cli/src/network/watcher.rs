//! The thread that answers the calls of watched commands.
//!
//! Owns: its start and its end. Guarantees: every call is answered while it runs, but for one that ends the
//! transaction: its caller waits until it is killed, so that it does nothing more; the thread looks at paths
//! in the view, and has none of its connections ([`few`]). Does not: kill; it rings the alarm.

use super::judge::Judge;
use crate::args::Policy;
use crate::failure::{Failure, Result};
use crate::report::{Attempt, Seen};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use systx_os::fuse::EventFd;
use systx_os::process;
use systx_os::sandbox::calls::{Answer, Call, Listener, Reception};
use systx_os::sandbox::few;
use systx_os::sandbox::inside;
use systx_os::sandbox::mounts;
use systx_os::sandbox::spawn::Child;
use systx_os::sandbox::watch::Network;
use systx_os::Errno;

/// A running one.
pub struct Watcher {
    /// The thread has copies of its descriptors; here they are closed.
    lent: Arc<Lent>,
    thread: JoinHandle<Seen>,
}

struct Lent {
    stop: EventFd,
    answering: Answering,
    network: Option<OwnedFd>,
}

impl Lent {
    fn descriptors(&self) -> Vec<i32> {
        let Answering { reception, alarm, .. } = &self.answering;
        let all = [Some(self.stop.as_fd()), Some(reception.as_fd()), Some(alarm.as_fd())];
        let network = self.network.as_ref().map(AsFd::as_fd);
        all.into_iter().chain([network]).flatten().map(|fd| fd.as_raw_fd()).collect()
    }
}

/// The thread's resources.
pub struct Answering {
    /// The fate of calls that would leave.
    policy: Policy,
    /// Where commands hand over the descriptors of their calls.
    reception: Reception,
    /// Devices of the served file systems.
    served: Vec<u64>,
    /// Rung when the transaction is to end.
    alarm: EventFd,
}

impl Answering {
    /// For the views that are mounted by these.
    pub fn new(
        policy: Policy,
        reception: Reception,
        views: &[OwnedFd],
        alarm: &EventFd,
    ) -> Result<Answering> {
        let failed = |e: Errno| Failure::new("looking at what is served", e);
        let served: Result<_, _> = views.iter().map(mounts::device).collect();
        Ok(Answering {
            policy,
            reception,
            served: served.map_err(failed)?,
            alarm: alarm.try_clone().map_err(failed)?,
        })
    }
}

const WATCHING: &str = "watching the command's calls";

impl Watcher {
    /// Starts it, for the commands in the network of `child`.
    pub fn start(answering: Answering, child: &Child) -> Result<Watcher> {
        let failed = |e: Errno| Failure::new(WATCHING, e);
        let stop = EventFd::new().map_err(failed)?;
        let policy = answering.policy;
        let network = (policy.place() == Network::Own)
            .then(|| inside::network_of(child))
            .transpose()
            .map_err(failed)?;
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let lent = Arc::new(Lent { stop, answering, network });
        let theirs = lent.clone();
        let work = move || {
            answer_all(&theirs, |entered| {
                let _ = ready.send(entered);
            })
        };
        let thread = std::thread::Builder::new().name("systx-network".into());
        let thread = thread.spawn(work).map_err(|e| Failure::new(WATCHING, e))?;
        let watcher = Watcher { lent, thread };
        match started.recv() {
            Ok(Ok(())) => Ok(watcher),
            Ok(Err(e)) => Err(failed(e)),
            Err(_) => Err(Failure::new(WATCHING, "the thread has ended")),
        }
    }

    /// Ends the thread, and returns the peers that it has seen. No watched program may run any more.
    pub fn stop(self) -> Seen {
        self.lent.stop.ring();
        self.thread.join().unwrap_or_default()
    }
}

fn answer_all(lent: &Lent, entered: impl FnOnce(Result<(), Errno>)) -> Seen {
    let Lent { stop: until, answering, network } = lent;
    let Answering { policy, reception, served, alarm } = answering;
    let mut seen = Seen::new(Some(*policy));
    let apart = few::keep_only(lent.descriptors());
    let inside = apart.and_then(|()| network.as_ref().map_or(Ok(()), inside::enter));
    let is_inside = inside.is_ok();
    entered(inside);
    if !is_inside {
        return seen;
    }
    let judge = Judge::new(policy.place(), served.clone());
    let mut reception = Some(reception);
    let mut listeners: Vec<Listener> = Vec::new();
    loop {
        let mut fds = vec![Some(until.as_fd()), reception.map(AsFd::as_fd)];
        fds.extend(listeners.iter().map(|listener| Some(listener.as_fd())));
        let ready = process::wait_readable_of(&fds);
        if ready[0] {
            return seen;
        }
        for n in (0..listeners.len()).rev().filter(|n| ready[n + 2]) {
            match listeners[n].next() {
                Ok(Some(call)) => match answer(*policy, &judge, &call, &mut seen) {
                    Some(answer) => listeners[n].answer(&call, answer),
                    None => alarm.ring(),
                },
                Ok(None) => {}
                Err(_) => drop(listeners.swap_remove(n)),
            }
        }
        if let Some(open) = reception.filter(|_| ready[1]) {
            match open.next() {
                Some(more) => listeners.extend(more),
                None => reception = None,
            }
        }
    }
}

/// Decides on a call; `None`: it is not answered any more.
fn answer(policy: Policy, judge: &Judge, call: &Call, seen: &mut Seen) -> Option<Answer> {
    let outside = judge.outside(call);
    if outside.is_empty() {
        return Some(Answer::GoesOn);
    }
    let (program, pid) = caller(call.pid);
    for to in outside {
        seen.add(Attempt { program: program.clone(), pid, to });
    }
    match policy {
        Policy::Allow => Some(Answer::GoesOn),
        Policy::Deny => Some(Answer::Fails(Errno::PERM)),
        Policy::Abort => None,
    }
}

/// Name and number of the process that a thread is of.
fn caller(thread: u32) -> (Vec<u8>, u32) {
    let status = std::fs::read(format!("/proc/{thread}/status")).unwrap_or_default();
    let number = |line: &[u8]| std::str::from_utf8(line.strip_prefix(b"Tgid:")?).ok()?.trim().parse().ok();
    let pid = status.split(|byte| *byte == b'\n').find_map(number).unwrap_or(thread);
    let mut name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.truncate(name.trim_ascii_end().len());
    (name, pid)
}
