//! The grammar of what a command may reach outside.

use crate::network::Policy;
use clap::Args;

/// A policy for what can't be held back or taken back.
#[derive(Clone, Debug, Default, Args)]
pub struct Network {
    /// What becomes of what the command would do outside over the network, or by a server that it reaches over a socket. Without this
    /// option it is done and not watched. With deny and abort the command has a network of its own, with a loopback device
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
