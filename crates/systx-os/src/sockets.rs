//! Words and descriptors between two processes of one machine.
//!
//! Owns: how descriptors travel, and who is at the other end. Guarantees: what arrives is closed on exec.
//! Does not: know what is said.
//!
//! Source: unix(7).

use crate::types::Result;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Limit of descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 8;

/// The process at the other end, as this process's namespaces call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process that connected, or began to listen; 0: it is in another pid namespace.
    pub pid: u32,
    /// User of the process when it connected.
    pub uid: u32,
}

/// Sends all of these bytes, with the descriptors beside the first of them; there must be at least one byte.
///
/// # Errors
///
/// `EPIPE`: the other end is closed. `EAGAIN`: not now, or not in the time that was set; a part may be sent
/// then.
pub fn send(socket: impl AsFd, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut left = fds;
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !left.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(left)) {
            return Err(Errno::INVAL);
        }
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL) {
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                left = &[];
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Receives some bytes, and the descriptors beside them; 0: the other end is closed.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut beside, flags))?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(received.bytes)
}

/// Returns the process at the other end of a connected socket.
pub fn peer(socket: impl AsFd) -> Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `found` and `len` are valid for what the option stores, a ucred of this size.
    let asked = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len)
    };
    match asked {
        0 => Ok(Peer { pid: found.pid.unsigned_abs(), uid: found.uid }),
        _ => Err(crate::process::last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_beside_the_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let (read, write) = crate::streams::pipe().unwrap();
        send(&one, b"abc", &[write.as_fd()]).unwrap();
        drop(write);
        let (mut bytes, mut fds) = ([0; 8], Vec::new());
        assert_eq!(receive(&other, &mut bytes, &mut fds), Ok(3));
        crate::streams::write_all(&fds[0], b"x").unwrap();
        drop(fds);
        assert_eq!((rustix::io::read(&read, &mut bytes), bytes[0]), (Ok(1), b'x'));
        drop(one);
        assert_eq!(receive(&other, &mut bytes, &mut Vec::new()), Ok(0));
        assert_eq!(send(&other, b"x", &[]), Err(Errno::PIPE));
    }

    #[test]
    fn who_is_there_is_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(peer(&one), Ok(Peer { pid: std::process::id(), uid }));
    }
}
