//! Recovery: what the dead left is finished by whoever comes first (docs/protocol.md §4).
//!
//! Two cases. In the same boot the slots of a dead owner say how far it was: [`help`]. After a reboot the log alone
//! says what is committed: [`after_reboot`]. Both end in the code that publishes for the living, so recovery may be cut anywhere
//! and run again.

mod chains;
mod decide;
mod owner;
mod reboot;
mod rebuild;
mod stuck;

pub(crate) use owner::{finish, finish_owner, help};
pub(crate) use reboot::{after_reboot, can_be_decided, kept_for, sweep, After, Decision, Logs};

use crate::outcome::Displaced;

/// What a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commits whose publication was finished or redone.
    pub finished: u64,
    /// Transactions of dead owners that were taken back before their commit point.
    pub aborted: u64,
    /// What outsiders displaced meanwhile.
    pub displaced: Vec<Displaced>,
    /// What could not be finished, each with its reason.
    pub unfinished: Vec<String>,
}

impl Recovered {
    /// Adds what another recovery did.
    pub fn merge(&mut self, other: Recovered) {
        self.finished += other.finished;
        self.aborted += other.aborted;
        self.displaced.extend(other.displaced);
        self.unfinished.extend(other.unfinished);
    }

    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Recovered::default()
    }
}
