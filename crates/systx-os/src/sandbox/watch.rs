//! Calls by which a command reaches a peer outside of its transaction, seen from its own side.
//!
//! Owns: the choice of the calls (a seccomp filter), handing the questions to the process that answers them
//! ([`super::calls`]), a network of its own, and the descriptors that are not passed on to it. Guarantees:
//! every descendant of the command is asked, too; while no process answers, a call waits; when none is left
//! that could, it fails with `ENOSYS`. The filter needs no no_new_privs, so setuid programs stay what they
//! are. Does not: know what is outside.
//!
//! Asked about peers are connect, and the sends that may name an address; socket of a family that no network namespace
//! keeps in; io_uring, whose calls no filter sees; setns; and all of these by another ABI (32 bits), whose
//! arguments are not read. Asked about files is what [`Calls::Files`] says, and by another ABI what could copy a mount.
//!
//! Minimum kernel version: 5.5 (SECCOMP_USER_NOTIF_FLAG_CONTINUE). Source: seccomp(2), seccomp_unotify(2).

use super::{clone3, exit_now, Side};
use crate::process::{last_errno, wait, Ended};
use crate::sockets;
use crate::types::Result;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;

/// The start of a watched command.
pub struct Watch {
    /// Destination of the descriptor that reports its calls: [`super::calls::Reception`].
    pub to: OwnedFd,
    /// The network of the command.
    pub network: Network,
    /// The calls.
    pub calls: Calls,
}

/// The calls that are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those by which it reaches peers outside.
    Peers,
    /// Those that fail, or take long, on the mount of a directory that the kernel serves by itself ([`super::bind`]).
    Files,
    /// Both.
    All,
}

/// The network of a watched command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One of its own, with nothing in it but the loopback device. The command gets no sockets either but for
    /// its standard streams.
    Own,
    /// The machine's.
    Shared,
}

/// A filter, and what else is found out before there is a second process.
pub(super) struct Prepared<'a> {
    to: BorrowedFd<'a>,
    calls: Calls,
    filter: Vec<libc::sock_filter>,
    withheld: Vec<RawFd>,
}

/// The ABI of this program, as seccomp calls it: AUDIT_ARCH_* of linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(super) const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const NATIVE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
pub(super) const NATIVE: u32 = 0xc000_00f3;
/// Of no call: all of them are asked about, and none is read.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) const NATIVE: u32 = 0;

/// AUDIT_ARCH_I386, and its numbers (arch/x86/entry/syscalls/syscall_32.tbl) of socketcall, sendmmsg, setns,
/// socket, connect, sendmsg, sendto, io_uring_setup.
const I386: u32 = 0x4000_0003;
const I386_CALLS: [u32; 8] = [102, 345, 346, 359, 362, 370, 369, 425];
/// And of mount, umount, umount2, ioctl, clone, pivot_root, unshare, open_by_handle_at, open_tree, move_mount, fsopen, fspick,
/// clone3, landlock_restrict_self, open_tree_attr, file_setattr.
const I386_FILE_CALLS: [u32; 16] =
    [21, 22, 52, 54, 120, 217, 310, 342, 428, 429, 430, 433, 435, 446, 467, 469];
/// And of prctl and seccomp, by which a filter is set.
const I386_PRCTL: u32 = 172;
const I386_SECCOMP: u32 = 354;
/// From here on numbers are those of the x32 ABI: asm/unistd.h.
pub(super) const X32: u32 = 0x4000_0000;

/// Families of sockets that stay where a network namespace keeps them; what they send to is asked about.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// open_tree_attr of Linux 6.15, and file_setattr of 6.17: one number for all architectures that we run on.
pub(super) const OPEN_TREE_ATTR: i64 = 467;
pub(super) const FILE_SETATTR: i64 = 469;
/// Types of the requests of file systems, in their second byte: all ('f'), those that xfs began with ('X'), btrfs.
const REQUESTS: [u32; 3] = [0x6600, 0x5800, 0x9400];

/// Returns the flags of clone for a network of its own.
pub(super) fn namespaces(watch: Option<&Watch>) -> i32 {
    match watch {
        Some(watch) if watch.network == Network::Own => libc::CLONE_NEWNET,
        _ => 0,
    }
}

/// Returns true if a filter may have a tracer of this process asked about calls: one of ours would go before it.
pub fn may_ask_a_tracer() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    value("TracerPid:") != Some("0") && value("Seccomp:") == Some("2")
}

/// To be called before any descriptor is made that is not to be closed.
pub(super) fn prepare(to: BorrowedFd<'_>, network: Network, calls: Calls) -> Prepared<'_> {
    let withheld = match network {
        Network::Own => inherited_sockets(),
        Network::Shared => Vec::new(),
    };
    Prepared { to, calls, filter: filter(calls), withheld }
}

/// Watches this process, and what it starts from here on. It must be allowed to: by CAP_SYS_ADMIN in its user
/// namespace. What watches for files alone is left out where the kernel does not do it, or another one does: then nobody
/// hears of a call, and binds anything.
pub(super) fn begin(prepared: &Prepared<'_>) -> Result<()> {
    for fd in &prepared.withheld {
        // SAFETY: it was inherited by `systx`, which has no owner for it; this copy of the process uses none of them.
        unsafe { libc::close(*fd) };
    }
    let told = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    // From then on sending is asked about, so a process that was started before, and shares our descriptors,
    // sends for us.
    // SAFETY: one thread, as everywhere between clone and exec; the child's side ends in `_exit`.
    match unsafe { clone3(libc::CLONE_FILES, None) }? {
        Side::Child => {
            let mut number = [0; 8];
            let sent = rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut number)).and_then(|_| {
                let fd = i32::try_from(u64::from_ne_bytes(number) - 1).map_err(|_| Errno::BADF)?;
                // SAFETY: the parent holds it open until this process has ended.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                sockets::send(prepared.to, b"L", &[fd])
            });
            exit_now(sent.is_err().into())
        }
        Side::Parent(helper, _) => {
            let listener = install(&prepared.filter);
            let number = listener.as_ref().map_or(u64::MAX - 1, |fd| fd.as_raw_fd() as u64 + 1);
            let written = rustix::io::write(&told, &number.to_ne_bytes());
            let ended = wait(&helper);
            if listener.is_err() && prepared.calls == Calls::Files {
                return Ok(());
            }
            listener.and(written)?;
            match ended {
                Ok(Ended::Exited(0)) | Err(Errno::CHILD) => Ok(()),
                _ => Err(Errno::PIPE),
            }
        }
    }
}

fn install(filter: &[libc::sock_filter]) -> Result<OwnedFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let set = |flags: libc::c_ulong| {
        // SAFETY: `program` and its instructions are valid for the call, which only reads them.
        let fd = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
        };
        match fd {
            // SAFETY: the call has returned this descriptor to us alone.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
            _ => Err(last_errno()),
        }
    };
    // Without it a signal lets a call that is being answered begin again. Since Linux 5.19.
    match set(listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(Errno::INVAL) => set(listener),
        other => other,
    }
}

/// Takes the loopback device of this network namespace into use.
pub(super) fn loopback_up() -> Result<()> {
    let kind = rustix::net::SocketType::DGRAM;
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        kind,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an ifreq is plain old data for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: `request` is a valid ifreq, which the kernel only reads.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Sockets and rings that this process was started with, and that what it executes would get: they lead
/// elsewhere already. Standard streams are not among them.
fn inherited_sockets() -> Vec<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = names.filter_map(|name| name.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.filter(|fd| *fd > 2 && leads_elsewhere(*fd) && is_passed_on(*fd)).collect()
}

fn leads_elsewhere(fd: RawFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let link = link.as_os_str().as_encoded_bytes();
    link.starts_with(b"socket:") || link == b"anon_inode:[io_uring]"
}

fn is_passed_on(fd: RawFd) -> bool {
    // SAFETY: F_GETFD of any number touches no memory; a wrong one is EBADF.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Offsets in seccomp_data: linux/seccomp.h.
const NUMBER: u32 = 0;
const ABI: u32 = 4;

/// A half of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Lower,
    Upper,
}

/// Where a half of an argument is.
fn argument(n: u32, half: Half) -> u32 {
    let second = if cfg!(target_endian = "little") { Half::Upper } else { Half::Lower };
    16 + 8 * n + if half == second { 4 } else { 0 }
}

/// The program. Every part is complete in itself: it ends the program, or goes on behind itself.
fn filter(calls: Calls) -> Vec<libc::sock_filter> {
    let mut all = vec![load(ABI)];
    all.extend(unless_equal(NATIVE, &foreign(calls)));
    all.push(load(NUMBER));
    if cfg!(target_arch = "x86_64") {
        all.extend([jump(libc::BPF_JGE, X32, 0, 1), asked()]);
    }
    if calls != Calls::Peers {
        all.extend(about_files());
    }
    if calls != Calls::Files {
        all.extend(about_peers());
    }
    all.push(allowed());
    all
}

fn asked() -> libc::sock_filter {
    give_back(libc::SECCOMP_RET_USER_NOTIF)
}

fn allowed() -> libc::sock_filter {
    give_back(libc::SECCOMP_RET_ALLOW)
}

/// Of calls by another ABI, which are not read: those that might matter.
fn foreign(calls: Calls) -> Vec<libc::sock_filter> {
    if !cfg!(target_arch = "x86_64") {
        return vec![asked()];
    }
    let mut foreign = Vec::new();
    foreign.extend(unless_equal(I386, &[asked()]));
    foreign.push(load(NUMBER));
    let peers = I386_CALLS.iter().filter(|_| calls != Calls::Files);
    let files = I386_FILE_CALLS.iter().filter(|_| calls != Calls::Peers);
    peers.chain(files).for_each(|call| foreign.extend(when_equal(*call, &[asked()])));
    if calls != Calls::Peers {
        // It may have a tracer asked, and is not read.
        let refused = give_back(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32);
        foreign.extend(when_equal(I386_SECCOMP, &[refused]));
        foreign.extend(when_equal(I386_PRCTL, &when_it_sets_a_filter(refused)));
    }
    foreign.push(allowed());
    foreign
}

/// In prctl: only PR_SET_SECCOMP.
fn when_it_sets_a_filter(then: libc::sock_filter) -> [libc::sock_filter; 4] {
    let is_it = jump(libc::BPF_JEQ, libc::PR_SET_SECCOMP as u32, 0, 1);
    [load(argument(0, Half::Lower)), is_it, then, allowed()]
}

/// Calls that move, link and remove directories or go there, make durable, request something of file systems, change or
/// copy mounts, confine a process or end it.
fn about_files() -> Vec<libc::sock_filter> {
    let mut all = Vec::new();
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_rename, libc::SYS_link, libc::SYS_rmdir] {
        all.extend(when_equal(call as u32, &[asked()]));
    }
    #[cfg(not(target_arch = "riscv64"))]
    all.extend(when_equal(libc::SYS_renameat as u32, &[asked()]));
    for call in [
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_syncfs,
        libc::SYS_sync_file_range,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        OPEN_TREE_ATTR,
        FILE_SETATTR,
        libc::SYS_open_by_handle_at,
        libc::SYS_chdir,
        libc::SYS_fchdir,
        libc::SYS_chroot,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
        // Its flags are in memory.
        libc::SYS_clone3,
        libc::SYS_exit_group,
    ] {
        all.extend(when_equal(call as u32, &[asked()]));
    }
    let copies_mounts = [
        load(argument(0, Half::Lower)),
        jump(libc::BPF_JSET, libc::CLONE_NEWNS as u32, 0, 1),
        asked(),
        allowed(),
    ];
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        all.extend(when_equal(call as u32, &copies_mounts));
    }
    all.extend(when_equal(libc::SYS_prctl as u32, &when_it_sets_a_filter(asked())));
    let removes_directory = [
        load(argument(2, Half::Lower)),
        jump(libc::BPF_JSET, libc::AT_REMOVEDIR as u32, 0, 1),
        asked(),
        allowed(),
    ];
    all.extend(when_equal(libc::SYS_unlinkat as u32, &removes_directory));
    let mut requests = vec![load(argument(1, Half::Lower)), and(0xff00)];
    REQUESTS.iter().for_each(|kind| requests.extend(when_equal(*kind, &[asked()])));
    requests.push(allowed());
    all.extend(when_equal(libc::SYS_ioctl as u32, &requests));
    all
}

/// Calls that reach peers outside.
fn about_peers() -> Vec<libc::sock_filter> {
    let mut all = Vec::new();
    let calls =
        [libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_io_uring_setup, libc::SYS_setns];
    calls.iter().for_each(|call| all.extend(when_equal(*call as u32, &[asked()])));
    // Of connected sockets: no address.
    let mut sends = vec![load(argument(4, Half::Lower))];
    sends.extend(unless_equal(0, &[asked()]));
    sends.push(load(argument(4, Half::Upper)));
    sends.extend(unless_equal(0, &[asked()]));
    sends.push(allowed());
    all.extend(when_equal(libc::SYS_sendto as u32, &sends));
    let mut sockets = vec![load(argument(0, Half::Lower))];
    FAMILIES.iter().for_each(|family| sockets.extend(when_equal(*family as u32, &[allowed()])));
    sockets.push(asked());
    all.extend(when_equal(libc::SYS_socket as u32, &sockets));
    all
}

fn load(at: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

fn and(mask: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16, jt: 0, jf: 0, k: mask }
}

fn give_back(what: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: what }
}

fn jump(kind: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | kind | libc::BPF_K) as u16, jt, jf, k }
}

fn when_equal(k: u32, then: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    [&[jump(libc::BPF_JEQ, k, 0, then.len() as u8)], then].concat()
}

fn unless_equal(k: u32, then: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    [&[jump(libc::BPF_JEQ, k, then.len() as u8, 0)], then].concat()
}

impl Watch {
    /// Prepares with its `to` and its choice of a network.
    pub(super) fn prepare(&self) -> Prepared<'_> {
        prepare(self.to.as_fd(), self.network, self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the filter's answer to a call: seccomp's view of it, interpreted.
    fn says(abi: u32, number: u32, args: [u64; 6]) -> u32 {
        says_of(Calls::Peers, abi, number, args)
    }

    fn says_of(calls: Calls, abi: u32, number: u32, args: [u64; 6]) -> u32 {
        let (filter, mut at, mut a) = (filter(calls), 0, 0u32);
        let word = |offset: u32| match offset {
            NUMBER => number,
            ABI => abi,
            _ => {
                let arg = args[((offset - 16) / 8) as usize];
                let upper = argument((offset - 16) / 8, Half::Upper) == offset;
                (if upper { arg >> 32 } else { arg }) as u32
            }
        };
        loop {
            let i = &filter[at];
            at += 1;
            match u32::from(i.code) {
                c if c == libc::BPF_RET | libc::BPF_K => return i.k,
                c if c == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => a = word(i.k),
                c if c == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if a == i.k { i.jt } else { i.jf })
                }
                c if c == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => a &= i.k,
                c if c == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += usize::from(if a & i.k != 0 { i.jt } else { i.jf })
                }
                c if c == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += usize::from(if a >= i.k { i.jt } else { i.jf })
                }
                c => panic!("code {c}"),
            }
        }
    }

    const ASKED: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

    #[test]
    fn calls_that_name_somebody_are_asked_about_and_no_others() {
        let native = |call: libc::c_long, args| says(NATIVE, call as u32, args);
        for call in [libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_io_uring_setup] {
            assert_eq!(native(call, [0; 6]), ASKED, "{call}");
        }
        for call in [libc::SYS_read, libc::SYS_write, libc::SYS_bind, libc::SYS_openat, libc::SYS_execve] {
            assert_eq!(native(call, [9; 6]), ALLOWED, "{call}");
        }
        assert_eq!(native(libc::SYS_sendto, [3, 1, 1, 0, 0, 16]), ALLOWED);
        assert_eq!(native(libc::SYS_sendto, [3, 1, 1, 0, 1 << 40, 16]), ASKED);
        assert_eq!(native(libc::SYS_sendto, [3, 1, 1, 0, 16, 16]), ASKED);
    }

    #[test]
    fn calls_about_files_are_asked_about_where_that_is_wanted() {
        let native = |calls, call: libc::c_long, args| says_of(calls, NATIVE, call as u32, args);
        let removes = |flags: u64| [3, 0, flags, 0, 0, 0];
        for calls in [Calls::Files, Calls::All] {
            for call in [
                libc::SYS_renameat2,
                libc::SYS_linkat,
                libc::SYS_fsync,
                libc::SYS_exit_group,
                libc::SYS_chdir,
            ] {
                assert_eq!(native(calls, call, [0; 6]), ASKED, "{call}");
                assert_eq!(native(Calls::Peers, call, [0; 6]), ALLOWED, "{call}");
            }
            assert_eq!(native(calls, libc::SYS_unlinkat, removes(libc::AT_REMOVEDIR as u64)), ASKED);
            assert_eq!(native(calls, libc::SYS_unlinkat, removes(0)), ALLOWED);
            // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, BTRFS_IOC_SUBVOL_CREATE.
            for request in [0x4008_6602, 0x401c_5820, 0x5000_940e] {
                assert_eq!(native(calls, libc::SYS_ioctl, [3, request, 0, 0, 0, 0]), ASKED);
            }
            assert_eq!(native(calls, libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0]), ALLOWED);
            assert_eq!(native(calls, libc::SYS_openat, [9; 6]), ALLOWED);
            let prctl = |what: i32| native(calls, libc::SYS_prctl, [what as u64, 2, 0, 0, 0, 0]);
            assert_eq!((prctl(libc::PR_SET_SECCOMP), prctl(libc::PR_SET_NAME)), (ASKED, ALLOWED));
            for call in [libc::SYS_clone, libc::SYS_unshare] {
                assert_eq!(native(calls, call, [libc::CLONE_NEWNS as u64, 0, 0, 0, 0, 0]), ASKED, "{call}");
                assert_eq!(native(calls, call, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0]), ALLOWED, "{call}");
            }
        }
        assert_eq!(native(Calls::Files, libc::SYS_connect, [0; 6]), ALLOWED);
        assert_eq!(native(Calls::All, libc::SYS_connect, [0; 6]), ASKED);
        if cfg!(target_arch = "x86_64") {
            assert!(I386_FILE_CALLS.iter().all(|call| says_of(Calls::All, I386, *call, [0; 6]) == ASKED));
            assert!(I386_CALLS.iter().all(|call| says_of(Calls::Files, I386, *call, [0; 6]) == ALLOWED));
            let refused = libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32;
            assert_eq!(says_of(Calls::Files, I386, I386_SECCOMP, [1, 0, 0, 0, 0, 0]), refused);
            assert_eq!(says_of(Calls::All, I386, I386_PRCTL, [22, 2, 0, 0, 0, 0]), refused);
            assert_eq!(says_of(Calls::Files, I386, I386_PRCTL, [15, 2, 0, 0, 0, 0]), ALLOWED);
            assert_eq!(says_of(Calls::Peers, I386, I386_SECCOMP, [1, 0, 0, 0, 0, 0]), ALLOWED);
            assert_eq!(says_of(Calls::Files, NATIVE, X32 + 165, [0; 6]), ASKED);
        }
    }

    #[test]
    fn a_socket_of_a_family_that_a_namespace_does_not_keep_in_is_asked_about() {
        let socket = |family: i32| says(NATIVE, libc::SYS_socket as u32, [family as u64, 1, 0, 0, 0, 0]);
        assert!(FAMILIES.iter().all(|family| socket(*family) == ALLOWED));
        assert!([libc::AF_VSOCK, libc::AF_PACKET, libc::AF_BLUETOOTH, 0].iter().all(|f| socket(*f) == ASKED));
    }

    #[test]
    fn calls_of_other_abis_are_asked_about() {
        assert_eq!(says(0x1234, 0, [0; 6]), ASKED);
        if cfg!(target_arch = "x86_64") {
            assert!(I386_CALLS.iter().all(|call| says(I386, *call, [0; 6]) == ASKED));
            assert_eq!(says(I386, 4, [0; 6]), ALLOWED);
            assert_eq!(says(NATIVE, X32 + 42, [0; 6]), ASKED);
        }
    }
}
