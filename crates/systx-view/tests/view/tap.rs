//! A tap on a FUSE connection: what the kernel asks a view, counted.

use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{socketpair, sockopt, AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use systx_engine::transaction::Transaction;
use systx_os::fuse::Device;
use systx_os::{Errno, Linux};
use systx_view::wire::Opcode;
use systx_view::View;

/// Requests by number, since somebody looked last.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<BTreeMap<u32, usize>>>);

impl Asked {
    /// What was asked since the last call of this.
    pub fn take(&self) -> Counts {
        Counts(std::mem::take(&mut *self.0.lock().unwrap()))
    }

    fn note(&self, message: &[u8]) {
        // The second field of `fuse_in_header`.
        let opcode = u32::from_ne_bytes(message[4..8].try_into().unwrap());
        *self.0.lock().unwrap().entry(opcode).or_default() += 1;
    }
}

/// How often each request was made.
pub struct Counts(BTreeMap<u32, usize>);

impl Counts {
    /// How often one of them was.
    pub fn of(&self, opcode: Opcode) -> usize {
        self.0.get(&(opcode as u32)).copied().unwrap_or_default()
    }

    /// How many there were that somebody waited for.
    pub fn waited_for(&self) -> usize {
        let waited = |opcode: &u32| Opcode::from_wire(*opcode).is_none_or(Opcode::has_reply);
        self.0.iter().filter(|(opcode, _)| waited(opcode)).map(|(_, times)| times).sum()
    }
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named =
            |opcode: &u32| Opcode::from_wire(*opcode).map_or(opcode.to_string(), |o| format!("{o:?}"));
        f.debug_map().entries(self.0.iter().map(|(opcode, times)| (named(opcode), times))).finish()
    }
}

/// Makes a view whose requests pass a tap, and its mount. It can't use passthrough: a socket stands for its device.
pub fn view(mut tx: Transaction<Linux>) -> (View<Linux>, OwnedFd, Asked) {
    let (asked, device) = (Asked::default(), Device::open().unwrap());
    let root = tx.root(0);
    let mounted = device.mount(tx.getattr(root).unwrap().mode, "systx").unwrap();
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (inner, outer) = pair.unwrap();
    for end in [&inner, &outer] {
        // A message has to fit in whole.
        sockopt::set_socket_send_buffer_size_force(end, 4 << 20).unwrap();
    }
    rustix::io::ioctl_fionbio(&inner, true).unwrap();
    let counted = asked.clone();
    std::thread::spawn(move || pass_on(&device, &outer, &counted));
    let view = View::with_devices(tx, vec![Device::from_fd(inner)]);
    let view = view.unwrap_or_else(|failed| panic!("{}: {:?}", failed.doing, failed.error));
    (view.without_passthrough(), mounted, asked)
}

/// Passes requests and answers on until either end is closed.
fn pass_on(device: &Device, view: &OwnedFd, asked: &Asked) {
    let mut message = vec![0; (1 << 20) + 4096];
    loop {
        let mut both = [device.as_fd(), view.as_fd()].map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
        poll(&mut both, None).unwrap();
        let [from_kernel, from_view] = both.map(|end| !end.revents().is_empty());
        if from_view {
            match rustix::io::read(view, &mut message) {
                Ok(0) | Err(_) => return,
                // Who asked may have been killed meanwhile.
                Ok(len) => drop(device.write(&message[..len])),
            }
        }
        if from_kernel {
            match device.read(&mut message) {
                Ok(len) => {
                    asked.note(&message[..len]);
                    if rustix::io::write(view, &message[..len]).is_err() {
                        return;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => {}
                Err(_) => return,
            }
        }
    }
}
