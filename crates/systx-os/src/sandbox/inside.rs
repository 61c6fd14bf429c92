//! The contents of a network namespace: sockets that are bound to files, and routes to addresses.
//!
//! Owns: the questions to the kernel, asked by a thread that goes into the namespace ([`enter`]). Guarantees:
//! what can't be found out counts as absent. Does not: decide what follows.
//!
//! Source: sock_diag(7), and udp(7): to connect a datagram socket sends nothing, and fails without a route.

use super::calls::Place;
use super::spawn::Child;
use crate::types::Result;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{netlink, AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use std::net::SocketAddr;

/// The network of a child.
pub fn network_of(child: &Child) -> Result<OwnedFd> {
    let path = format!("/proc/{}/ns/net", child.pid);
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Moves this thread into a network namespace.
pub fn enter(network: &OwnedFd) -> Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Returns true if a route leads to that address from here.
pub fn has_a_way_to(address: SocketAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    // Port 0 belongs to no socket, and not every protocol has ports.
    let port = address.port().max(1);
    socket.and_then(|socket| rustix::net::connect(socket, &SocketAddr::new(address.ip(), port))).is_ok()
}

/// Types and flags of linux/sock_diag.h, linux/unix_diag.h and linux/netlink.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_VFS: u32 = 2;
const UNIX_DIAG_VFS: u16 = 1;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_DONE: u16 = 3;
const NLMSG_ERROR: u16 = 2;
/// On btrfs a file does not show the device that the kernel's own tables have.
const BTRFS: u64 = 0x9123_683e;

/// Returns true if a socket of this thread's network namespace is bound to a file. Two files of one number on
/// btrfs are not told apart.
pub fn is_bound(place: Place) -> bool {
    let dev = (rustix::fs::major(place.dev) << 20) | rustix::fs::minor(place.dev);
    bound().is_ok_and(|all| {
        all.iter().any(|(d, ino)| *ino == place.ino as u32 && (*d == dev || place.fs == BTRFS))
    })
}

/// Device and inode number of all files that sockets are bound to.
fn bound() -> Result<Vec<(u32, u32)>> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    rustix::net::send(&socket, &question(), rustix::net::SendFlags::empty())?;
    let (mut found, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (n, _) =
            rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty()))?;
        if n == 0 || read(&bytes[..n], &mut found)? {
            return Ok(found);
        }
    }
}

/// A nlmsghdr and a unix_diag_req.
fn question() -> Vec<u8> {
    let mut all = Vec::with_capacity(40);
    all.extend(40u32.to_ne_bytes());
    all.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    all.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    all.extend([0; 8]);
    all.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    // In every state.
    all.extend(u32::MAX.to_ne_bytes());
    all.extend(0u32.to_ne_bytes());
    all.extend(UDIAG_SHOW_VFS.to_ne_bytes());
    all.extend([0; 8]);
    all
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads one datagram of answers; true: it was the last one.
fn read(mut bytes: &[u8], found: &mut Vec<(u32, u32)>) -> Result<bool> {
    while bytes.len() >= 16 {
        let (Some(len), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) else { break };
        let message = bytes.get(16..len as usize).ok_or(Errno::BADMSG)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(Errno::OPNOTSUPP),
            // Behind a unix_diag_msg.
            SOCK_DIAG_BY_FAMILY => found.extend(file_of(message.get(16..).unwrap_or_default())),
            _ => {}
        }
        bytes = bytes.get((len as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The file among a socket's attributes.
fn file_of(mut attributes: &[u8]) -> Option<(u32, u32)> {
    loop {
        let (len, kind) = (u16_at(attributes, 0)?, u16_at(attributes, 2)?);
        if kind == UNIX_DIAG_VFS {
            // unix_diag_vfs: the inode's number first.
            return Some((u32_at(attributes, 8)?, u32_at(attributes, 4)?));
        }
        attributes = attributes.get(usize::from(len).max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_bound_socket_is_known_by_its_file() {
        let path = std::env::temp_dir().join(format!("systx-bound-{}", std::process::id()));
        let bound = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stat = std::fs::metadata(&path).unwrap();
        let fs = rustix::fs::statfs(&path).unwrap().f_type as u64;
        let place = Place { dev: stat.dev(), ino: stat.ino(), fs };
        assert!(is_bound(place));
        drop(bound);
        assert!(!is_bound(place));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn answers_that_are_cut_off_are_not_believed() {
        let mut found = Vec::new();
        assert_eq!(read(&[0; 8], &mut found), Ok(false));
        let mut message = question();
        message.truncate(20);
        assert_eq!(read(&message, &mut found), Err(Errno::BADMSG));
        let mut endless = vec![0; 16];
        endless[4..6].copy_from_slice(&1u16.to_ne_bytes());
        assert!(read(&endless, &mut found).is_err());
        assert!(found.is_empty());
    }
}
