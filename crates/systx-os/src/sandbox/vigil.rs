//! A wait that ends early when the machine goes down, or mounts come or go.
//!
//! Owns: the descriptors that report it. Guarantees: an event after [`Vigil::begin`] ends the wait, also one
//! before the wait itself. Does not: hold anything of a file system but proc.
//!
//! Source: proc_pid_mountinfo(5) (poll), signalfd(2).

use crate::notice::Notices;
use crate::process::Signals;
use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time has come.
    InTime,
    /// A signal asks this process to end.
    ToEnd,
    /// Something was mounted or unmounted.
    Mounts,
    /// There is a notice.
    Noticed,
}

/// See [`Vigil::wait`].
pub struct Vigil {
    mounts: OwnedFd,
    signals: Signals,
}

impl Vigil {
    /// From here on nothing is missed.
    pub fn begin() -> Result<Vigil> {
        let signals = Signals::hold()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mounts = rustix::fs::openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty())?;
        Ok(Vigil { mounts, signals })
    }

    /// Waits for so many nanoseconds, or less.
    pub fn wait(&self, ns: u64) -> Woken {
        self.wait_for(None, ns)
    }

    /// Waits for a notice, too.
    pub fn wait_for(&self, notices: Option<&Notices>, ns: u64) -> Woken {
        let time = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
        let mut fds =
            vec![PollFd::new(&self.mounts, PollFlags::PRI), PollFd::new(self.signals.fd(), PollFlags::IN)];
        fds.extend(notices.map(|notices| PollFd::new(notices, PollFlags::IN)));
        let polled = rustix::event::poll(&mut fds, Some(&time));
        let came = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        match polled {
            Err(Errno::INTR) => Woken::Mounts,
            Ok(_) if came(1) => Woken::ToEnd,
            Ok(_) if came(0) => Woken::Mounts,
            Ok(_) if came(2) => Woken::Noticed,
            _ => Woken::InTime,
        }
    }
}
