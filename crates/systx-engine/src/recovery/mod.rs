//! Recovery: what the dead left is finished by whoever comes first (docs/protocol.md §4).
//!
//! Two cases. In the same boot the slots of a dead owner say how far it was: [`help`]. After a reboot the log
//! alone says what is committed: [`reboot::after_reboot`]. Both end in the code that publishes for the
//! living, so recovery may be cut anywhere and run again. Opening a domain recovers first ([`open`]), and
//! whoever waits for a slot helps its dead owner ([`wait`]), so both are here. Does not: let go of what the
//! log keeps (`upkeep` does).

mod begin;
mod chains;
mod decide;
mod lifted;
mod logs;
mod open;
mod owner;
mod reboot;
mod rebuild;
mod stuck;
mod undecided;
mod wait;

pub use crate::outcome::Recovered;
pub(crate) use logs::{kept_for, Decision, Logs};
pub use open::{open_all, open_all_doubting, open_existing, Existing};
pub(crate) use owner::help;
#[cfg(test)]
pub(crate) use wait::MOMENT_NS;
