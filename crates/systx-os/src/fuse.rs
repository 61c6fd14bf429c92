//! The kernel's side of a view: FUSE connections, their mounts, passthrough, and waiting.
//!
//! Owns: the descriptors of /dev/fuse. Guarantees: nothing here blocks but [`wait`]; a mount is detached
//! until a caller moves it somewhere. Does not: know the protocol; that is the view's. Minimum kernel
//! version: 5.2 (fsopen); 6.9 for passthrough.
//!
//! Source: fuse(4), include/uapi/linux/fuse.h, fs/fuse/{inode,dev,backing}.c.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{eventfd, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, FsMountFlags, FsOpenFlags,
    MountAttrFlags,
};

use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};

use crate::types::{Errno, Result};

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// _IOW(229, 1, struct fuse_backing_map)
const FUSE_DEV_IOC_BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// _IOW(229, 2, u32)
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// A file that the kernel reads and writes by itself, as registered with one connection. It stays registered until
/// [`Device::close_backing`] or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Backing(i32);

impl Backing {
    /// The number that goes into the reply to an OPEN.
    pub fn id(&self) -> i32 {
        self.0
    }
}

/// One connection to the kernel's FUSE. Dropping it ends the connection: programs inside get `ENOTCONN`.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens /dev/fuse, non-blocking.
    ///
    /// # Errors
    /// `ENOENT`, `ENODEV`: no FUSE here. `EACCES`, `EPERM`: not for this user.
    pub fn open() -> Result<Device> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Device(rustix::fs::open("/dev/fuse", flags, Mode::empty())?))
    }

    /// Takes a /dev/fuse descriptor that another process opened. It must be non-blocking.
    pub fn from_fd(fd: OwnedFd) -> Device {
        Device(fd)
    }

    /// Makes the file system that this connection serves and returns a detached mount of it.
    ///
    /// `root_mode` has the type bits of the root; `source` is what the mount table shows. Every user may use
    /// it, and the kernel checks permissions by the attributes that the server reports. Must be called in the
    /// user namespace in which the device was opened.
    pub fn mount(&self, root_mode: u32, source: &str) -> Result<OwnedFd> {
        let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let ids = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        fsconfig_set_string(&fs, "source", source)?;
        fsconfig_set_string(&fs, "subtype", "systx")?;
        // As a number: kernels before 6.11 do not take a descriptor here.
        fsconfig_set_string(&fs, "fd", self.0.as_raw_fd().to_string())?;
        fsconfig_set_string(&fs, "rootmode", format!("{root_mode:o}"))?;
        fsconfig_set_string(&fs, "user_id", ids.0.to_string())?;
        fsconfig_set_string(&fs, "group_id", ids.1.to_string())?;
        fsconfig_set_flag(&fs, "allow_other")?;
        fsconfig_set_flag(&fs, "default_permissions")?;
        fsconfig_create(&fs)?;
        fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    }

    /// Takes one request. `buf` must hold the largest WRITE and 4096 bytes.
    ///
    /// # Errors
    /// `EAGAIN`: none is there. `ENODEV`: unmounted. `ENOENT`: it was withdrawn meanwhile.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        rustix::io::read(&self.0, buf)
    }

    /// Writes an answer. A program that was killed meanwhile, or whose mount is gone, needs none.
    pub fn answer(&self, bytes: &[u8]) -> Result<()> {
        match self.write(bytes) {
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            written => written,
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// `ENOENT`: its caller does not wait any more.
    pub fn write(&self, message: &[u8]) -> Result<()> {
        rustix::io::write(&self.0, message).map(drop)
    }

    /// Returns true if a thread of this process has the descriptor of this connection in its table.
    pub fn is_held_by(&self, thread: u32) -> bool {
        let fd = format!("/proc/self/task/{thread}/fd/{}", self.0.as_raw_fd());
        rustix::fs::readlink(fd, Vec::new()).is_ok_and(|link| link.as_bytes().ends_with(b"/fuse"))
    }

    /// Registers a file for passthrough. The kernel opens it anew for each handle, with the rights of this
    /// thread now.
    ///
    /// # Errors
    /// `EPERM`: without CAP_SYS_ADMIN. `EOPNOTSUPP`: not agreed on. `ELOOP`: the file's file system is
    /// stacked too deep.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> Result<Backing> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        let now = capabilities(None)?;
        // Whoever writes by this file does so with what this thread has now, also when the view is long gone. To write
        // into a set-id file that keeps its bits (CAP_FSETID) is for root alone.
        let writers = CapabilitySets { effective: now.effective - CapabilitySet::FSETID, ..now };
        set_capabilities(None, writers)?;
        // SAFETY: the request reads one `struct fuse_backing_map`, which `map` is, and keeps no pointer.
        let id = unsafe { libc::ioctl(self.0.as_raw_fd(), FUSE_DEV_IOC_BACKING_OPEN, &raw const map) };
        let opened = if id > 0 { Ok(Backing(id)) } else { Err(last_error()) };
        set_capabilities(None, now)?;
        opened
    }

    /// Unregisters a file. Handles that use it go on.
    pub fn close_backing(&self, backing: Backing) {
        let id: u32 = backing.0.unsigned_abs();
        // SAFETY: the request reads one u32, which `id` is, and keeps no pointer.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), FUSE_DEV_IOC_BACKING_CLOSE, &raw const id) };
        // It can fail for an unknown number only (or a dead connection, which has dropped all of them).
        debug_assert!(result == 0 || last_error() != Errno::NOENT, "a backing file is closed once");
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A flag that others can wait for: once rung, it stays rung.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A flag that is not rung.
    pub fn new() -> Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings it. From any thread, any number of times.
    pub fn ring(&self) {
        // EAGAIN means that the counter is full: rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the ringing back, for a flag that is rung again and again.
    pub fn silence(&self) {
        // EAGAIN means that it was not rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Another descriptor of the same flag.
    pub fn try_clone(&self) -> Result<EventFd> {
        Ok(EventFd(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }

    /// Returns true if it was rung.
    pub fn is_rung(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    /// Waits until it is rung, at most so many milliseconds, or until a signal comes; whether it is rung.
    pub fn wait(&self, limit_ms: u32) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&milliseconds(limit_ms))) == Ok(1)
    }
}

fn milliseconds(n: u32) -> Timespec {
    Timespec { tv_sec: i64::from(n / 1000), tv_nsec: i64::from(n % 1000) * 1_000_000 }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `until` is rung (true), or a request may be there on one of `devices`, one of the `bells` is rung or
/// so many milliseconds are over (false).
pub fn wait<'a>(
    devices: impl Iterator<Item = &'a Device>,
    until: &'a EventFd,
    bells: impl Iterator<Item = &'a EventFd>,
    limit_ms: Option<u32>,
) -> Result<bool> {
    let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(until, PollFlags::IN)];
    fds.extend(devices.map(|d| PollFd::from_borrowed_fd(d.as_fd(), PollFlags::IN)));
    fds.extend(bells.map(|bell| PollFd::new(bell, PollFlags::IN)));
    let limit = limit_ms.map(milliseconds);
    match rustix::event::poll(&mut fds, limit.as_ref()) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e),
    }
}
