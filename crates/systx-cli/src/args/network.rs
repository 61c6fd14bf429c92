//! The grammar of what a command may reach outside.

use clap::{Args, ValueEnum};
use systx_os::sandbox::watch;

/// The fate of calls that would reach outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// It does, and the outcome names it
    Allow,
    /// It fails with EPERM, and the command goes on
    Deny,
    /// The first attempt ends the command, and nothing was changed
    Abort,
}

impl Policy {
    /// Returns the network that the command has under it.
    pub fn place(self) -> watch::Network {
        match self {
            Policy::Allow => watch::Network::Shared,
            Policy::Deny | Policy::Abort => watch::Network::Own,
        }
    }
}

/// A policy for what can't be held back or taken back.
#[derive(Clone, Debug, Default, Args)]
pub struct Network {
    /// Choose the fate of the command's calls over the network, or to a server behind a socket. Without this
    /// option they are made and not watched. With deny and abort the command has a network of its own, with a
    /// loopback device
    #[arg(long, value_enum, value_name = "POLICY")]
    pub network: Option<Policy>,
    /// No network: as --network deny
    #[arg(short = 'x', conflicts_with = "network")]
    pub no_network: bool,
}

impl Network {
    /// The policy, if there is one.
    pub fn policy(&self) -> Option<Policy> {
        self.network.or(self.no_network.then_some(Policy::Deny))
    }
}
