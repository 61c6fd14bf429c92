//! Decides whether a call leaves its transaction.
//!
//! Guarantees: an unknown call counts as leaving. A call that nothing outside can answer does not leave: to a
//! path without a socket, or to a socket in a served directory, where no program from outside can listen.
//! Does not: act.
//!
//! If the command has a network of its own, an address is inside if a route leads there: its loopback device,
//! and the devices that it has made. So is a socket in the file system that a process of that network has
//! bound. If the command shares the machine's network, the listener at the loopback device is unknown, so it
//! is named like any other.

use crate::words::shown;
use systx_os::sandbox::calls::{find, Address, Asked, Call};
use systx_os::sandbox::inside;
use systx_os::sandbox::watch::Network;

/// Families that a network of its own keeps in: AF_UNIX, AF_INET, AF_INET6, AF_KEY, AF_NETLINK, AF_PACKET,
/// AF_ALG (the kernel's ciphers).
const KEPT_IN: [u32; 7] = [1, 2, 10, 15, 16, 17, 38];
const NETLINK: u32 = 16;
const ALG: u32 = 38;

/// Decides, in a thread that is in the command's network.
pub struct Judge {
    network: Network,
    /// Devices of the served file systems.
    served: Vec<u64>,
}

impl Judge {
    /// Of a command; `served`: the devices of what is served.
    pub fn new(network: Network, served: Vec<u64>) -> Judge {
        Judge { network, served }
    }

    /// Whom a call would reach outside, in words.
    pub fn outside(&self, call: &Call) -> Vec<String> {
        let one = |text: &str| vec![text.to_string()];
        match &call.asked {
            Asked::To(all) => all.iter().filter_map(|to| self.beyond(call.pid, to)).collect(),
            Asked::Family(family) if self.is_kept_in(*family) => Vec::new(),
            Asked::Family(family) => vec![by_family(*family)],
            Asked::Ring => one("whom io_uring reaches, which can't be seen"),
            Asked::Namespace(link) => {
                // A mounted namespace is known by its path; a process gives all of its namespaces.
                let kinds = ["mnt:", "pid:", "ipc:", "uts:", "user:", "cgroup:", "time:"];
                if kinds.iter().any(|kind| link.starts_with(kind.as_bytes())) {
                    Vec::new()
                } else {
                    one("another network namespace")
                }
            }
            Asked::Foreign => one("a peer by a call of another ABI, which can't be seen"),
            Asked::Files(_) => Vec::new(),
            Asked::Unreadable(e) => vec![format!("an unknown peer: its memory can't be read: {e}")],
        }
    }

    /// In the machine's network, opening a socket that sends without an address is reported.
    fn is_kept_in(&self, family: u32) -> bool {
        if self.network == Network::Own {
            KEPT_IN.contains(&family)
        } else {
            [NETLINK, ALG].contains(&family)
        }
    }

    fn beyond(&self, pid: u32, to: &Address) -> Option<String> {
        match to {
            Address::Inet(to) if self.network == Network::Own && inside::has_a_way_to(*to) => None,
            Address::Inet(to) => Some(to.to_string()),
            Address::Path(path) => match find(pid, path) {
                Ok(None) => None,
                Ok(Some(place)) if self.served.contains(&place.dev) => None,
                Ok(Some(place)) if self.network == Network::Own && inside::is_bound(place) => None,
                Ok(Some(_)) | Err(_) => Some(shown(path)),
            },
            Address::Abstract(_) if self.network == Network::Own => None,
            Address::Abstract(name) => Some(shown(&[b"@", name.as_slice()].concat())),
            Address::Family(family) if self.is_kept_in((*family).into()) => None,
            Address::Family(family) => Some(by_family((*family).into())),
        }
    }
}

fn by_family(family: u32) -> String {
    let name = match family {
        17 => "the wire (AF_PACKET)",
        21 => "a peer over RDS",
        29 => "a CAN bus",
        30 => "a peer over TIPC",
        31 => "a peer over Bluetooth",
        40 => "a virtual machine or its host (AF_VSOCK)",
        43 => "a peer over SMC",
        44 => "the wire (AF_XDP)",
        other => return format!("a peer over sockets of family {other}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_network_of_its_own_does_not_keep_in_leaves() {
        let (own, shared) = (Judge::new(Network::Own, Vec::new()), Judge::new(Network::Shared, Vec::new()));
        let beyond = |judge: &Judge, to| judge.beyond(std::process::id(), &to);
        let name = || Address::Abstract(b"x\n".to_vec());
        assert_eq!((beyond(&own, name()), beyond(&shared, name())), (None, Some("\"@x\\n\"".into())));
        let netlink = || Address::Family(16);
        assert_eq!((beyond(&own, netlink()), beyond(&shared, netlink())), (None, None));
        assert!(beyond(&own, Address::Family(40)).unwrap().contains("AF_VSOCK"));
        assert!(beyond(&shared, Address::Inet("127.0.0.1:1".parse().unwrap())).is_some());
        assert_eq!(beyond(&own, Address::Path(b"/no/such/socket".to_vec())), None);
    }
}
