//! The thread that answers the calls of watched commands.
//!
//! Owns: its start and its end. Guarantees: every call is answered while it runs, but for one that ends the
//! transaction: its caller waits until it is killed, so that it does nothing more; the thread looks at paths
//! in the view, and has none of its connections ([`few`]). Does not: kill; it rings the alarm. A command has one such
//! thread, as the kernel gives it one listener: it answers for [`crate::native`], too.

use super::judge::Judge;
use crate::args::Policy;
use crate::failure::{Failure, Result};
use crate::native::{self, Asker, Natives};
use crate::report::{Attempt, Seen};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use systx_os::fuse::EventFd;
use systx_os::process;
use systx_os::sandbox::bind::process_of;
use systx_os::sandbox::calls::{Answer, Asked, Call, FileCall, Listener, Reception};
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
    thread: JoinHandle<Watched>,
}

/// The findings of a thread at its end.
#[derive(Default)]
pub struct Watched {
    /// The peers that were reached.
    pub seen: Seen,
    /// Why new directories could not be left, if so.
    pub in_use: Option<Failure>,
}

struct Lent {
    stop: EventFd,
    answering: Answering,
    network: Option<OwnedFd>,
    /// Pid 1 of the command.
    child: u32,
}

impl Lent {
    fn descriptors(&self) -> Vec<i32> {
        let Answering { reception, alarm, natives, .. } = &self.answering;
        let all = [Some(self.stop.as_fd()), Some(reception.as_fd()), Some(alarm.as_fd())];
        let network = self.network.as_ref().map(AsFd::as_fd);
        let own = all.into_iter().chain([network]).flatten().map(|fd| fd.as_raw_fd());
        own.chain(natives.iter().flat_map(native::Lent::descriptors)).collect()
    }
}

/// The thread's resources.
pub struct Answering {
    /// The fate of calls that would leave, if they are watched.
    policy: Option<Policy>,
    /// Where commands hand over the descriptors of their calls.
    reception: Reception,
    /// Devices of the served file systems.
    served: Vec<u64>,
    /// Rung when the transaction is to end.
    alarm: EventFd,
    /// Directories that the kernel serves by itself.
    natives: Option<native::Lent>,
}

impl Answering {
    /// For the views that are mounted by these.
    pub fn new(
        policy: Option<Policy>,
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
            natives: None,
        })
    }

    /// With directories that the kernel serves by itself.
    pub fn with(self, natives: Option<native::Lent>) -> Answering {
        Answering { natives, ..self }
    }
}

const WATCHING: &str = "watching the command's calls";

impl Watcher {
    /// Starts it, for the commands in the network of `child`.
    pub fn start(answering: Answering, child: &Child) -> Result<Watcher> {
        let failed = |e: Errno| Failure::new(WATCHING, e);
        let stop = EventFd::new().map_err(failed)?;
        let network = (place(answering.policy) == Network::Own)
            .then(|| inside::network_of(child))
            .transpose()
            .map_err(failed)?;
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let lent = Arc::new(Lent { stop, answering, network, child: child.pid() });
        let theirs = lent.clone();
        let work = move || {
            answer_all(&theirs, |entered| {
                let _ = ready.send(entered);
            })
        };
        let thread = std::thread::Builder::new().name("systx-watcher".into());
        let thread = thread.spawn(work).map_err(|e| Failure::new(WATCHING, e))?;
        let watcher = Watcher { lent, thread };
        match started.recv() {
            Ok(Ok(())) => Ok(watcher),
            Ok(Err(e)) => Err(failed(e)),
            Err(_) => Err(Failure::new(WATCHING, "the thread has ended")),
        }
    }

    /// Ends the thread, and returns what it has found. No watched program may run any more.
    pub fn stop(self) -> Watched {
        self.lent.stop.ring();
        self.thread.join().unwrap_or_default()
    }
}

/// The network of a command under a policy.
pub fn place(policy: Option<Policy>) -> Network {
    policy.map_or(Network::Shared, Policy::place)
}

fn answer_all(lent: &Lent, entered: impl FnOnce(Result<(), Errno>)) -> Watched {
    let Lent { stop: until, answering, network, child } = lent;
    let Answering { policy, reception, served, alarm, natives } = answering;
    let mut seen = Seen::new(*policy);
    let apart = few::keep_only(lent.descriptors());
    let inside = apart.and_then(|()| network.as_ref().map_or(Ok(()), inside::enter));
    let is_inside = inside.is_ok();
    let mut natives = natives.as_ref().filter(|_| is_inside).map(|natives| natives.begin(*child));
    entered(inside);
    if !is_inside {
        return Watched { seen, in_use: None };
    }
    let judge = Judge::new(place(*policy), served.clone());
    let mut reception = Some(reception);
    let mut listeners: Vec<Listener> = Vec::new();
    loop {
        let mut fds = vec![Some(until.as_fd()), reception.map(AsFd::as_fd)];
        fds.extend(listeners.iter().map(|listener| Some(listener.as_fd())));
        fds.extend(natives.iter().flat_map(Natives::waited_for).map(Some));
        let ready = process::wait_readable_of(&fds);
        if ready[0] {
            return Watched { seen, in_use: natives.and_then(Natives::end) };
        }
        let known = listeners.len();
        // First: an answer may take some of those away that were waited for.
        if let Some(natives) = &mut natives {
            natives.go_on(ready[known + 2..].iter().copied());
        }
        for n in (0..known).rev().filter(|n| ready[n + 2]) {
            match listeners[n].next() {
                Ok(Some(call)) => {
                    let asker = Asker { thread: call.pid, waits: &|| listeners[n].still_waits(&call) };
                    let answered = answer(*policy, &judge, natives.as_mut(), (&call, asker), &mut seen);
                    match answered {
                        Some(answer) => {
                            listeners[n].answer(&call, answer);
                            natives.iter_mut().for_each(Natives::has_answered);
                        }
                        None => alarm.ring(),
                    }
                }
                Ok(None) => {}
                Err(_) => drop(listeners.swap_remove(n)),
            }
        }
        if let Some(open) = reception.filter(|_| ready[1]) {
            match open.next() {
                Some(more) => {
                    listeners.extend(more);
                    natives.iter_mut().for_each(Natives::are_watched);
                }
                None => {
                    reception = None;
                    natives.iter_mut().for_each(Natives::is_all_watched);
                }
            }
        }
    }
}

/// Decides on a call; `None`: it is not answered any more.
fn answer(
    policy: Option<Policy>,
    judge: &Judge,
    natives: Option<&mut Natives<'_>>,
    (call, asker): (&Call, Asker<'_>),
    seen: &mut Seen,
) -> Option<Answer> {
    if let Some(natives) = natives {
        match &call.asked {
            Asked::Files(asked) => return Some(natives.answer(asker, asked)),
            // It may be one that copies mounts.
            Asked::Foreign => match natives.answer(asker, &FileCall::Mounts(None)) {
                Answer::GoesOn => {}
                refused => return Some(refused),
            },
            _ => {}
        }
    }
    let Some(policy) = policy else { return Some(Answer::GoesOn) };
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
    let pid = process_of(thread).unwrap_or(thread);
    let mut name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.truncate(name.trim_ascii_end().len());
    (name, pid)
}
