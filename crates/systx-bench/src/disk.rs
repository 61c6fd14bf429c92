//! A disk whose flushes take as long as is wished: a loop device over a file that a FUSE server of ours shows.
//!
//! The kernel reads and writes the file by itself (passthrough) and asks the server for each flush, which sleeps. Nothing
//! reaches a disk by that: it is for measurements, not for power losses.

use crate::world::ran;
use crate::{Outcome, Setup};
use rustix::mount::{move_mount, unmount, MoveMountFlags, UnmountFlags};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;
use systx_os::fuse::{wait, Backing, Device, EventFd};
use systx_os::Errno;
use systx_view::wire::layout::{fopen, AttrOut, EntryOut, InitIn, OpenOut, StatfsOut, WireAttr, ROOT_ID};
use systx_view::wire::{flag, negotiate, Answer, Opcode, Reply, Request};

const BYTES: u64 = 2 << 30;
/// Node of the one file.
const IMAGE: u64 = 2;
/// FUSE_FSYNC, which the view never gets.
const FSYNC: u32 = 20;
/// Seconds for which the kernel may keep what it was told.
const LASTS: u64 = 3600;

/// A mounted ext4 on such a disk.
pub struct SlowDisk {
    /// Where it is mounted.
    pub point: PathBuf,
    served: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl SlowDisk {
    /// # Errors
    /// Without FUSE and its passthrough (Linux 6.9), or a loop device.
    pub fn new(setup: &Setup, flush: Duration) -> Outcome<SlowDisk> {
        let dir = setup.dir.join("disk");
        let [served, point] = ["served", "point"].map(|name| dir.join(name));
        [&dir, &served, &point].into_iter().try_for_each(fs::create_dir)?;
        let file = File::options().read(true).write(true).create_new(true).open(dir.join("backing"))?;
        file.set_len(BYTES)?;
        let device = Device::open()?;
        // It ends with its mount.
        let never = EventFd::new()?;
        let mount = device.mount(0o40755, "disk")?;
        let server = std::thread::spawn(move || Server { device, file, backing: None, flush }.serve(&never));
        let disk = SlowDisk { point, served, server: Some(server) };
        move_mount(&mount, "", rustix::fs::CWD, &disk.served, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let image = disk.served.join("image");
        ran(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard"]).arg(&image))?;
        ran(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk.point))?;
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // The server answers until the loop device has closed its file.
        let _ = ran(Command::new("umount").arg(&self.point));
        let _ = unmount(&self.served, UnmountFlags::DETACH);
        let _ = self.server.take().map(JoinHandle::join);
        let _ = fs::remove_dir_all(self.point.parent().unwrap_or(Path::new("")));
    }
}

struct Server {
    device: Device,
    file: File,
    backing: Option<Backing>,
    flush: Duration,
}

impl Server {
    /// Until it is unmounted.
    fn serve(&mut self, until: &EventFd) {
        let (mut message, mut reply) = (vec![0; (1 << 20) + 4096], Reply::new());
        loop {
            let bytes = match self.device.read(&mut message) {
                Ok(length) => &message[..length],
                Err(Errno::AGAIN) => {
                    match wait(std::iter::once(&self.device), until, std::iter::empty(), None) {
                        Ok(false) => continue,
                        _ => return,
                    }
                }
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(_) => return,
            };
            let Ok(request) = Request::parse(bytes) else { return };
            let opcode = request.header.opcode;
            if opcode == Opcode::Forget as u32 || opcode == Opcode::BatchForget as u32 {
                continue;
            }
            reply.clear();
            let answer = self.answer(request, &mut reply);
            let _ = self.device.write(reply.finish(request.header.unique, answer));
        }
    }

    fn answer(&mut self, mut request: Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let node = request.header.nodeid;
        if request.header.opcode == FSYNC {
            std::thread::sleep(self.flush);
            return Ok(());
        }
        match Opcode::from_wire(request.header.opcode) {
            Some(Opcode::Init) => {
                let asked: InitIn = request.take().map_err(|_| Errno::PROTO)?;
                match negotiate(&asked, 0) {
                    Answer::Ready(out, agreed) if agreed.has(flag::PASSTHROUGH) => reply.put(&out),
                    Answer::Again(out) => reply.put(&out),
                    _ => return Err(Errno::PROTO),
                }
            }
            Some(Opcode::Lookup) if node == ROOT_ID && request.name() == Ok(b"image") => {
                reply.put(&EntryOut {
                    nodeid: IMAGE,
                    generation: 0,
                    entry_valid: LASTS,
                    attr_valid: LASTS,
                    entry_valid_nsec: 0,
                    attr_valid_nsec: 0,
                    attr: attributes(IMAGE),
                });
            }
            Some(Opcode::Lookup) => return Err(Errno::NOENT),
            Some(Opcode::Getattr | Opcode::Setattr) => {
                reply.put(&AttrOut {
                    attr_valid: LASTS,
                    attr_valid_nsec: 0,
                    dummy: 0,
                    attr: attributes(node),
                });
            }
            Some(Opcode::Open) if node == IMAGE => {
                if self.backing.is_none() {
                    self.backing = Some(self.device.open_backing(self.file.as_fd())?);
                }
                let backing_id = self.backing.as_ref().map_or(0, Backing::id);
                reply.put(&OpenOut { fh: 0, open_flags: fopen::PASSTHROUGH, backing_id });
            }
            Some(Opcode::Statfs) => reply.put(&StatfsOut::default()),
            Some(Opcode::Release) => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}

fn attributes(node: u64) -> WireAttr {
    let (mode, size) = if node == IMAGE { (0o100_600, BYTES) } else { (0o40_755, 0) };
    WireAttr { ino: node, mode, size, nlink: 1, blksize: 4096, ..Default::default() }
}
