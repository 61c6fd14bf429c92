//! Calls by which a command reaches a peer outside of its transaction, and calls about files, seen from the process that
//! answers them.
//!
//! Owns: the meaning of a call, read from the memory of its caller ([`Asked`]), and the target of a path that
//! the caller names ([`find`]). Guarantees: memory that was read is checked before it is used, and is of the
//! process that asks, not of one that has got its number since. Does not: decide ([`super::watch`] has the
//! command's side). A call that goes on reads its arguments again: a thread that changes them meanwhile
//! reaches another peer than was read here.
//!
//! Source: seccomp_unotify(2), unix(7), ip(7).

use super::bind::undisturbed;
use super::watch::{FILE_SETATTR, NATIVE, OPEN_TREE_ATTR, X32};
use crate::process::last_errno;
use crate::sockets;
use crate::types::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

/// The socket at which watched commands hand over the descriptors that report their calls.
pub struct Reception(OwnedFd);

/// Reports the calls of one command and its descendants.
pub struct Listener(OwnedFd);

/// A call that waits for an answer.
pub struct Call {
    id: u64,
    /// The thread that makes it.
    pub pid: u32,
    /// The operation.
    pub asked: Asked,
}

/// The operation of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To reach these; none: who is connected already.
    To(Vec<Address>),
    /// A socket of this family.
    Family(u32),
    /// An io_uring, whose calls can't be seen.
    Ring,
    /// To be in another namespace: the descriptor's link in /proc.
    Namespace(Vec<u8>),
    /// Something by a call of another ABI.
    Foreign,
    /// Unknown: its memory can't be read.
    Unreadable(Errno),
    /// Something about files, whatever peers there are.
    Files(FileCall),
}

/// A call about files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// To remove a directory (one name), to move or link something (two).
    Names(Change, Vec<Name>),
    /// To have a directory as its place or its root.
    Goes(Name),
    /// To restrict itself by rules that no other process can read (Landlock).
    Confines,
    /// To have a tracer asked about calls (SECCOMP_RET_TRACE): it would not be asked about those that are asked about here.
    Traces,
    /// To make durable what is in a file or directory: the descriptor.
    Sync(i32),
    /// To set flags of an inode.
    Flags(Name),
    /// A request to the file system of a descriptor, which may change what no other call can.
    Request(i32),
    /// To open by a handle, on the file system of a descriptor, or of the working directory.
    Handle(Option<i32>),
    /// To make, copy or take away mounts, or a namespace of them; which one is to be taken away.
    Mounts(Option<Name>),
    /// Nothing of all this: a thread or process is started in the same namespaces, a request only looks.
    Nothing,
    /// To end the process.
    Ends,
}

/// What a call does to the names that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// renameat2(2), with its flags.
    Moves(u32),
    /// linkat(2).
    Links,
    /// rmdir(2).
    Removes,
}

/// A name that a call would change, as its caller has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The descriptor that the path begins at; `None`: the working directory.
    pub from: Option<i32>,
    /// The path.
    pub path: Vec<u8>,
}

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of IP.
    Inet(SocketAddr),
    /// A name in the file system.
    Path(Vec<u8>),
    /// A name of a network namespace.
    Abstract(Vec<u8>),
    /// Of another family.
    Family(u16),
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on.
    GoesOn,
    /// It has succeeded.
    Returns,
    /// It fails.
    Fails(Errno),
}

/// A socket that has a name in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Device of its file system, as stat has it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// The kind of file system, as statfs has it.
    pub fs: u64,
}

/// The addresses that one call may name: more are not sent by one sendmmsg.
const MESSAGES_MAX: u64 = 1024;
/// Longest path that the kernel takes, in bytes.
const PATH_MAX: usize = 4095;
/// _IOW('!', 4, u64) and its flag: linux/seccomp.h.
const NOTIF_SET_FLAGS: libc::c_ulong = 0x4008_2104;
const SYNC_WAKE_UP: libc::c_ulong = 1;

impl Reception {
    /// One, and the end for those who are watched.
    pub fn pair() -> Result<(Reception, OwnedFd)> {
        let (ours, theirs) = super::spawn::socket_pair()?;
        Ok((Reception(ours), theirs))
    }

    /// Returns the descriptors that have come; `None`: no sender is left.
    pub fn next(&self) -> Option<Vec<Listener>> {
        let mut fds = Vec::new();
        match sockets::receive(&self.0, &mut [0; 8], &mut fds) {
            Ok(1..) => {
                let all: Vec<_> = fds.into_iter().map(Listener).collect();
                all.iter().for_each(Listener::wake_beside);
                Some(all)
            }
            Ok(0) | Err(_) => None,
        }
    }
}

impl AsFd for Reception {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Returns the next call, if one waits. `Err`: no caller is left.
    pub fn next(&self) -> Result<Option<Call>> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
        // Asked without one it would wait for ever on some kernels.
        if !fds[0].revents().contains(PollFlags::IN) {
            return if fds[0].revents().is_empty() { Ok(None) } else { Err(Errno::PIPE) };
        }
        // SAFETY: a seccomp_notif is plain old data for which all zeroes is valid, and what the kernel wants to find.
        let mut told: libc::seccomp_notif = unsafe { core::mem::zeroed() };
        // SAFETY: `told` is what this request stores.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut told) } != 0 {
            // ENOENT: who called has been killed.
            return Ok(None);
        }
        let asked = asked(told.pid, &told.data);
        // Only now it is known to have been of that process. Who calls about files may be gone: then the answer is
        // nobody's; before a call is made for its caller that is asked for.
        let is_its_own = matches!(asked, Asked::Files(_)) || self.is_waiting(told.id);
        Ok(is_its_own.then_some(Call { id: told.id, pid: told.pid, asked }))
    }

    /// Has whoever answers run where the caller has just stopped, which takes half of the time.
    ///
    /// Minimum kernel version: 6.6 (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP); before that it changes nothing.
    fn wake_beside(&self) {
        // SAFETY: this request takes a number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Returns true if the caller of a call waits still: what was found out about it meanwhile was true of the caller.
    pub fn still_waits(&self, call: &Call) -> bool {
        self.is_waiting(call.id)
    }

    /// Returns true if the caller still waits, and its number is still its own.
    fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: this request reads an u64.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
    }

    /// Answers a call. Who has been killed meanwhile needs no answer.
    pub fn answer(&self, call: &Call, answer: Answer) {
        let (flags, error) = match answer {
            Answer::GoesOn => (libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32, 0),
            Answer::Returns => (0, 0),
            Answer::Fails(error) => (0, -error.raw_os_error()),
        };
        let mut told = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags };
        // SAFETY: `told` is what this request reads.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut told) };
    }
}

/// Reads the operation of a call.
fn asked(pid: u32, data: &libc::seccomp_data) -> Asked {
    let number = i64::from(data.nr);
    if data.arch != NATIVE || (cfg!(target_arch = "x86_64") && number >= i64::from(X32)) {
        return Asked::Foreign;
    }
    if let Some(call) = about_files(pid, number, &data.args) {
        return Asked::Files(call);
    }
    let [_, a, b, _, address, len] = data.args;
    let to = match number {
        libc::SYS_connect => read_address(pid, a, b, Use::Connects).map(|found| found.into_iter().collect()),
        libc::SYS_sendto => {
            read_address(pid, address, len, Use::Sends).map(|found| found.into_iter().collect())
        }
        libc::SYS_sendmsg => read_messages(pid, a, 1),
        libc::SYS_sendmmsg => read_messages(pid, a, u64::from(b as u32).min(MESSAGES_MAX)),
        libc::SYS_socket => return Asked::Family(data.args[0] as u32),
        // Of a kind that says nothing of networks.
        libc::SYS_setns if b != 0 && b & libc::CLONE_NEWNET as u64 == 0 => return Asked::To(Vec::new()),
        libc::SYS_setns => {
            let link = std::fs::read_link(format!("/proc/{pid}/fd/{}", data.args[0] as u32));
            return Asked::Namespace(
                link.map_or(Vec::new(), |link| link.into_os_string().into_encoded_bytes()),
            );
        }
        _ => return Asked::Ring,
    };
    match to {
        Ok(to) => Asked::To(to),
        // Also where there is no memory: the kernel may reach what this can't, and sends the messages before it.
        Err(e) => Asked::Unreadable(e),
    }
}

/// FS_IOC_GETFLAGS (of longs, of ints), FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FS_IOC_GETFSLABEL; and those that share blocks,
/// as a write does: FICLONE, FICLONERANGE, FIDEDUPERANGE. linux/fs.h.
const REQUESTS_THAT_LOOK: [u32; 8] =
    [0x8008_6601, 0x8004_6601, 0xc020_660b, 0x801c_581f, 0x8100_9431, 0x4004_9409, 0x4020_940d, 0xc018_9436];

/// Reads a call about files, if it is one.
fn about_files(pid: u32, number: i64, args: &[u64; 6]) -> Option<FileCall> {
    let at = |n: usize| Some(args[n] as i32).filter(|from| *from != libc::AT_FDCWD);
    let name = |from: Option<i32>, path: u64| read_path(pid, path).map(|path| Name { from, path });
    let names = |change: Change, all: &[(Option<i32>, u64)]| {
        let read = all.iter().map(|(from, path)| name(*from, *path)).collect::<Result<_>>();
        // Mostly the kernel can't read them either.
        FileCall::Names(change, read.unwrap_or_default())
    };
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_rename => return Some(names(Change::Moves(0), &[(None, args[0]), (None, args[1])])),
        libc::SYS_link => return Some(names(Change::Links, &[(None, args[0]), (None, args[1])])),
        libc::SYS_rmdir => return Some(names(Change::Removes, &[(None, args[0])])),
        _ => {}
    }
    #[cfg(not(target_arch = "riscv64"))]
    if number == libc::SYS_renameat {
        return Some(names(Change::Moves(0), &[(at(0), args[1]), (at(2), args[3])]));
    }
    let both = [(at(0), args[1]), (at(2), args[3])];
    Some(match number {
        libc::SYS_renameat2 => names(Change::Moves(args[4] as u32), &both),
        libc::SYS_linkat => names(Change::Links, &both),
        libc::SYS_unlinkat => names(Change::Removes, &both[..1]),
        libc::SYS_chdir | libc::SYS_chroot => FileCall::Goes(name(None, args[0]).unwrap_or_default()),
        libc::SYS_fchdir => FileCall::Goes(Name { from: at(0), path: Vec::new() }),
        libc::SYS_landlock_restrict_self => FileCall::Confines,
        libc::SYS_seccomp | libc::SYS_prctl if may_trace(pid, args[2]) => FileCall::Traces,
        libc::SYS_seccomp | libc::SYS_prctl => FileCall::Nothing,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs | libc::SYS_sync_file_range => {
            FileCall::Sync(args[0] as i32)
        }
        libc::SYS_ioctl if REQUESTS_THAT_LOOK.contains(&(args[1] as u32)) => FileCall::Nothing,
        libc::SYS_ioctl => FileCall::Request(args[0] as i32),
        libc::SYS_open_by_handle_at => FileCall::Handle(at(0)),
        FILE_SETATTR => {
            FileCall::Flags(Name { from: at(0), path: read_path(pid, args[1]).unwrap_or_default() })
        }
        libc::SYS_umount2 => FileCall::Mounts(name(None, args[0]).ok()),
        libc::SYS_mount
        | libc::SYS_pivot_root
        | libc::SYS_move_mount
        | libc::SYS_fsopen
        | libc::SYS_fspick
        | OPEN_TREE_ATTR
        | libc::SYS_open_tree
        | libc::SYS_unshare
        | libc::SYS_clone => FileCall::Mounts(None),
        libc::SYS_clone3 => {
            let mut flags = [0; 8];
            // Memory that can't be read is none of a call that succeeds.
            match read_exact(pid, args[0], &mut flags) {
                Ok(()) if u64::from_ne_bytes(flags) & libc::CLONE_NEWNS as u64 != 0 => FileCall::Mounts(None),
                _ => FileCall::Nothing,
            }
        }
        libc::SYS_exit_group => FileCall::Ends,
        _ => return None,
    })
}

/// Returns true if a filter of seccomp may have a tracer asked: of a `sock_fprog`, some `sock_filter` returns that, or what
/// is found out only then. Memory that can't be read is none of a filter.
fn may_trace(pid: u32, at: u64) -> bool {
    let mut program = [0; size_of::<libc::sock_fprog>()];
    if read_exact(pid, at, &mut program).is_err() {
        return false;
    }
    let count = usize::from(u16::from_ne_bytes([program[0], program[1]]));
    let address = program[size_of::<libc::sock_fprog>() - 8..].try_into().map_or(0, u64::from_ne_bytes);
    let mut all = vec![0; count * size_of::<libc::sock_filter>()];
    read_exact(pid, address, &mut all).is_ok() && all.chunks_exact(8).any(traces)
}

/// Code (u16), two offsets (u8 each), and a number (u32).
fn traces(instruction: &[u8]) -> bool {
    let code = u32::from(u16::from_ne_bytes([instruction[0], instruction[1]]));
    let k = instruction[4..8].try_into().map_or(0, u32::from_ne_bytes);
    match code {
        c if c == libc::BPF_RET | libc::BPF_K => k & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_TRACE,
        c => c == libc::BPF_RET | BPF_A,
    }
}

/// linux/bpf_common.h.
const BPF_A: u32 = 0x10;

/// Reads a path from the memory of a process.
fn read_path(pid: u32, at: u64) -> Result<Vec<u8>> {
    const PAGE: u64 = 4096;
    let (mut path, mut from) = (Vec::new(), at);
    while path.len() <= PATH_MAX {
        // What lies on the next page may not be there.
        let mut bytes = [0; PAGE as usize];
        let wanted = (PAGE - from % PAGE).min(256) as usize;
        read_exact(pid, from, &mut bytes[..wanted])?;
        if let Some(end) = bytes[..wanted].iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&bytes[..end]);
            return Ok(path);
        }
        path.extend_from_slice(&bytes[..wanted]);
        from = from.wrapping_add(wanted as u64);
    }
    Err(Errno::NAMETOOLONG)
}

/// The bytes at an address of a process; fewer where its memory ends.
fn read_memory(pid: u32, at: u64, bytes: &mut [u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: at as usize as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `local` is `bytes`, which may be overwritten; `remote` is not of this process, and the kernel checks it.
    let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    usize::try_from(n).map_err(|_| last_errno())
}

fn read_exact(pid: u32, at: u64, bytes: &mut [u8]) -> Result<()> {
    match read_memory(pid, at, bytes)? {
        n if n == bytes.len() => Ok(()),
        _ => Err(Errno::FAULT),
    }
}

/// The names in an array of `mmsghdr`, of which a `msghdr` is the beginning; ABIs of 32 bits are not read.
fn read_messages(pid: u32, at: u64, count: u64) -> Result<Vec<Address>> {
    let mut found = Vec::new();
    for n in 0..count {
        // msg_name, then msg_namelen.
        let (mut name, mut len) = ([0; 8], [0; 4]);
        let at = at.wrapping_add(n * size_of::<libc::mmsghdr>() as u64);
        read_exact(pid, at, &mut name)?;
        read_exact(pid, at.wrapping_add(8), &mut len)?;
        found.extend(read_address(
            pid,
            u64::from_ne_bytes(name),
            u32::from_ne_bytes(len).into(),
            Use::Sends,
        )?);
    }
    Ok(found)
}

/// The use of an address in a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Connects,
    /// An address of no family is one of IP.
    Sends,
}

/// Reads the address; `None`: there is none, or one without a peer.
fn read_address(pid: u32, at: u64, len: u64, how: Use) -> Result<Option<Address>> {
    let mut bytes = [0; size_of::<libc::sockaddr_storage>()];
    let len = (len as u32 as usize).min(bytes.len());
    if at == 0 || len < 2 {
        return Ok(None);
    }
    read_exact(pid, at, &mut bytes[..len])?;
    Ok(parse(&bytes[..len], how))
}

fn parse(bytes: &[u8], how: Use) -> Option<Address> {
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match (i32::from(family), bytes.len()) {
        (libc::AF_UNSPEC, _) if how == Use::Connects => None,
        (libc::AF_INET | libc::AF_UNSPEC, 16..) => {
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Some(Address::Inet(SocketAddr::new(IpAddr::V4(ip), port(bytes))))
        }
        (libc::AF_INET6, 24..) => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&bytes[8..24]);
            let ip = IpAddr::V6(Ipv6Addr::from(ip)).to_canonical();
            Some(Address::Inet(SocketAddr::new(ip, port(bytes))))
        }
        (libc::AF_UNIX, 2) => None,
        (libc::AF_UNIX, _) if bytes[2] == 0 => Some(Address::Abstract(bytes[3..].to_vec())),
        (libc::AF_UNIX, _) => {
            let path = &bytes[2..];
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            Some(Address::Path(path[..end].to_vec()))
        }
        _ => Some(Address::Family(family)),
    }
}

/// Returns the socket at a path, as the process sees it; `None`: there is none that could be reached.
///
/// # Errors
///
/// The reason why it can't be looked at; then it may be any socket.
pub fn find(pid: u32, path: &[u8]) -> Result<Option<Place>> {
    let found =
        open(pid, path).and_then(|socket| Ok((rustix::fs::fstat(&socket)?, rustix::fs::fstatfs(&socket)?)));
    match found {
        Ok((stat, fs)) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {
            Ok(Some(Place { dev: stat.st_dev, ino: stat.st_ino, fs: fs.f_type as u64 }))
        }
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
        Err(e) => Err(e),
    }
}

fn open(pid: u32, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let own = [&b"/proc/self/"[..], b"/proc/thread-self/"].iter().find_map(|own| path.strip_prefix(*own));
    let own = own.map(<[u8]>::to_vec).or_else(|| Some([b"fd/", path.strip_prefix(b"/dev/fd/")?].concat()));
    if let Some(own) = own {
        // Of the caller, not of this process: a short way to a long path.
        let path = [format!("/proc/{pid}/").as_bytes(), &own].concat();
        return rustix::fs::openat(CWD, path, flags, Mode::empty());
    }
    let path = match path.first() {
        Some(b'/') => path.to_vec(),
        _ => {
            let (root, cwd) = (
                std::fs::read_link(format!("/proc/{pid}/root")),
                std::fs::read_link(format!("/proc/{pid}/cwd")),
            );
            let error = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
            let (root, cwd) = (root.map_err(error)?, cwd.map_err(error)?);
            let cwd = cwd.strip_prefix(&root).map_err(|_| Errno::XDEV)?;
            let cwd = [b"/", cwd.as_os_str().as_bytes()].concat();
            if !leads_to_cwd(pid, &cwd)? {
                return Err(Errno::XDEV);
            }
            [&cwd[..], b"/", path].concat()
        }
    };
    match walk(pid, &path) {
        // The kernel walks from where the caller is, and has a shorter way.
        Err(Errno::NAMETOOLONG) if path.len() > PATH_MAX => Err(Errno::XDEV),
        walked => walked,
    }
}

/// Returns true if a process's working directory is where its name leads: not if it was removed, or something
/// is mounted on it.
fn leads_to_cwd(pid: u32, name: &[u8]) -> Result<bool> {
    let is = rustix::fs::stat(format!("/proc/{pid}/cwd"))?;
    match walk(pid, name) {
        Ok(there) => {
            rustix::fs::fstat(&there).map(|there| (there.st_dev, there.st_ino) == (is.st_dev, is.st_ino))
        }
        Err(_) => Ok(false),
    }
}

/// Opens a path as a process sees it, from its root.
fn walk(pid: u32, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root =
        rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    undisturbed(|| rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(family: i32, rest: &[u8]) -> Vec<u8> {
        [&(family as u16).to_ne_bytes(), rest].concat()
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let four = [&[0x1f, 0x90, 127, 0, 0, 1][..], &[0; 8]].concat();
        let inet = |text: &str| Some(Address::Inet(text.parse().unwrap()));
        assert_eq!(parse(&bytes(libc::AF_INET, &four), Use::Connects), inet("127.0.0.1:8080"));
        assert_eq!(parse(&bytes(libc::AF_UNSPEC, &four), Use::Connects), None);
        assert_eq!(parse(&bytes(libc::AF_UNSPEC, &four), Use::Sends), inet("127.0.0.1:8080"));
        let mapped = [&[0, 80, 0, 0, 0, 0][..], &[0; 10], &[255, 255, 10, 0, 0, 1], &[0; 4]].concat();
        assert_eq!(parse(&bytes(libc::AF_INET6, &mapped), Use::Connects), inet("10.0.0.1:80"));
        let unix = |rest: &[u8]| parse(&bytes(libc::AF_UNIX, rest), Use::Connects);
        assert_eq!(unix(b""), None);
        assert_eq!(unix(b"/run/a\0b"), Some(Address::Path(b"/run/a".to_vec())));
        assert_eq!(unix(b"\0name"), Some(Address::Abstract(b"name".to_vec())));
        // Cut off before its end: no address of IP.
        assert_eq!(
            parse(&bytes(libc::AF_INET, &[0; 4]), Use::Sends),
            Some(Address::Family(libc::AF_INET as u16))
        );
    }

    #[test]
    fn a_filter_that_may_have_a_tracer_asked_is_known() {
        let filter = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let ret = libc::BPF_RET | libc::BPF_K;
        let says = |last: libc::sock_filter| {
            let all = [filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::SECCOMP_RET_TRACE), last];
            let program = libc::sock_fprog { len: 2, filter: all.as_ptr().cast_mut() };
            may_trace(std::process::id(), &raw const program as u64)
        };
        assert!(says(filter(ret, libc::SECCOMP_RET_TRACE | 7)) && says(filter(libc::BPF_RET | BPF_A, 0)));
        for other in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | 1, libc::SECCOMP_RET_KILL_PROCESS] {
            assert!(!says(filter(ret, other)));
        }
        assert!(!may_trace(std::process::id(), 8));
    }

    #[test]
    fn memory_is_read_where_there_is_some() {
        let (there, mut found) = (*b"abc", [0; 3]);
        let at = there.as_ptr() as u64;
        assert_eq!((read_exact(std::process::id(), at, &mut found), &found), (Ok(()), b"abc"));
        assert_eq!(read_exact(std::process::id(), 8, &mut found), Err(Errno::FAULT));
    }

    #[test]
    fn a_socket_is_found_by_every_path_that_its_process_may_use() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("systx-calls-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (me, path) = (std::process::id(), dir.join("socket"));
        let _bound = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stat = std::fs::metadata(&path).unwrap();
        let fs = rustix::fs::statfs(&path).unwrap().f_type as u64;
        let place = Ok(Some(Place { dev: stat.dev(), ino: stat.ino(), fs }));
        assert_eq!(find(me, path.as_os_str().as_bytes()), place);
        let held = std::fs::File::open(&dir).unwrap();
        for way in ["/proc/self/fd/", "/dev/fd/", "/proc/thread-self/fd/"] {
            assert_eq!(find(me, format!("{way}{}/socket", held.as_raw_fd()).as_bytes()), place, "{way}");
        }
        assert_eq!(find(me, dir.join("none").as_os_str().as_bytes()), Ok(None));
        assert_eq!(find(me, dir.as_os_str().as_bytes()), Ok(None));
        assert_eq!(find(me, b"Cargo.toml"), Ok(None));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_dir(&dir).unwrap();
    }
}
