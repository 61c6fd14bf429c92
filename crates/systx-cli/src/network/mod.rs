//! The peers outside of its transaction that a command reaches over sockets: by policy, and named.
//!
//! Owns: the thread that answers a watched command's calls ([`watcher`]), and the decision what leaves
//! ([`judge`]). Guarantees: without a policy nothing is watched, and nothing costs anything. With `deny` and
//! `abort` the command has a network of its own, so nothing over IP leaves even after a wrong decision;
//! sockets in the file system are decided call by call. Does not: see what goes through descriptors that the
//! command was given, or through files and devices.

mod judge;
mod watcher;

pub use watcher::{Answering, Watched, Watcher};

use crate::args::Policy;
use crate::failure::{Failure, Result};
use systx_os::sandbox::calls::Reception;
use systx_os::sandbox::watch::{Calls, Watch};

/// Why an inner run has none of its own.
pub const PART_OF_ANOTHER: &str =
    "--network and -x are for a transaction of its own, and this run is part of another one: give it to that";

/// Makes what a command is started with to be watched, and the socket at which these calls arrive.
pub fn watch(policy: Option<Policy>, calls: Calls) -> Result<(Watch, Reception)> {
    let (reception, to) =
        Reception::pair().map_err(|e| Failure::new("making sockets to watch the command with", e))?;
    Ok((Watch { to, network: watcher::place(policy), calls }, reception))
}
