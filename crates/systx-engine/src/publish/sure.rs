//! A lease, for as long as it is sure to be held.
//!
//! The kernel takes a lease from a process that stands still while another one waits in open(2): after
//! `fs.lease-break-time`, 45 s. A publisher may stand still in a debugger, a frozen container, a slow disk. Does not: see a
//! lease go between a look and the call behind it; who looks again after that call learns of it.

use crate::mutant::{self, Mutant};
use std::cell::Cell;
use systx_os::{Lease, Os};

/// For this long after a look no lease has been taken away, unless an administrator has made that time shorter.
const SURE_NS: u64 = 1_000_000_000;

/// When a lease was certainly held.
pub(super) struct Sure(Cell<u64>);

impl Sure {
    /// For a lease that is taken, or seen, right after this.
    pub fn now<O: Os>(os: &O) -> Sure {
        Sure(Cell::new(os.monotonic_ns()))
    }

    /// Returns true if it is held still, and nobody waits for it if that is not sure.
    pub fn is_held<O: Os>(&self, os: &O, fd: &O::Fd, kind: Lease) -> bool {
        let now = os.monotonic_ns();
        if now.saturating_sub(self.0.get()) < SURE_NS || mutant::on(Mutant::LeaseOutlived) {
            return true;
        }
        let held = os.lease_held(fd) == Ok(kind);
        if held {
            self.0.set(now);
        }
        held
    }
}
