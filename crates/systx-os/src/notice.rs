//! Notices of changes to files and directories, from the kernel (inotify).
//!
//! Owns: one queue and its watches. Guarantees: what is done through system calls to a watched object, or to the names of
//! a watched directory, makes the queue readable. Does not: say what has happened; who waits looks again.

use crate::types::{Errno, Result};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// A queue of notices.
#[derive(Debug)]
pub struct Notices(OwnedFd);

/// Everything but reads, opens and closes.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF);

impl Notices {
    /// Makes an empty one.
    ///
    /// # Errors
    /// `EMFILE`: the user has as many as are allowed (fs.inotify.max_user_instances).
    pub fn new() -> Result<Notices> {
        Ok(Notices(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches the object behind a descriptor, also one of O_PATH.
    ///
    /// # Errors
    /// `ENOSPC`: the user has as many watches as are allowed (fs.inotify.max_user_watches).
    pub fn watch(&self, fd: &impl AsRawFd) -> Result<()> {
        let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
        inotify::add_watch(&self.0, path, CHANGES).map(drop)
    }

    /// Watches a file for opens, and for closes of what could write. The close comes a moment before the locks of the
    /// open file go.
    ///
    /// # Errors
    /// As of [`Notices::watch`].
    pub fn watch_use(&self, fd: &impl AsRawFd) -> Result<()> {
        let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
        inotify::add_watch(&self.0, path, WatchFlags::OPEN.union(WatchFlags::CLOSE_WRITE)).map(drop)
    }

    /// Waits for a notice, and takes all that are there.
    ///
    /// # Errors
    /// Of read(2).
    pub fn wait(&self) -> Result<()> {
        crate::process::wait_readable([self.0.as_fd()]);
        self.take()
    }

    /// Takes all notices that are there.
    ///
    /// # Errors
    /// Of read(2).
    pub fn take(&self) -> Result<()> {
        let mut buf = Vec::with_capacity(4096);
        loop {
            match rustix::io::read(&self.0, spare_capacity(&mut buf)) {
                Ok(_) => buf.clear(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_change_is_noticed_and_a_look_is_none() {
        let dir = std::env::temp_dir().join(format!("systx-notice-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("file");
        std::fs::write(&file, "x").unwrap();
        let held = [&dir, &file].map(|path| std::fs::File::open(path).unwrap());
        let acts: [&dyn Fn(); 5] = [
            &|| std::fs::write(&file, "y").unwrap(),
            &|| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap(),
            &|| std::fs::write(dir.join("new"), "").unwrap(),
            &|| std::fs::rename(dir.join("new"), dir.join("other")).unwrap(),
            &|| std::fs::remove_file(dir.join("other")).unwrap(),
        ];
        for act in acts {
            let notices = Notices::new().unwrap();
            held.iter().for_each(|fd| notices.watch(fd).unwrap());
            std::fs::read(&file).unwrap();
            std::fs::read_dir(&dir).unwrap().for_each(drop);
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut fds =
                [rustix::event::PollFd::from_borrowed_fd(notices.0.as_fd(), rustix::event::PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut fds, Some(&now)).unwrap(), 0, "a look is no change");
            act();
            notices.wait().unwrap();
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
