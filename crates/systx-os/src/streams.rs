//! Standard output and standard error of a command whose output systx reads first.
//!
//! Owns: the pipes, the file that has no name, and the moment at which a command inherits them. Guarantees:
//! the standard streams of this process are its own again when [`Lent`] is dropped. Does not: know the fate
//! of the bytes.

use crate::types::Result;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;
use std::path::Path;

/// A pipe, closed on exec: where to read, and where to write.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

/// Returns the most bytes that a pipe holds at one time.
pub fn pipe_bytes_max(pipe: impl AsFd) -> Result<usize> {
    rustix::pipe::fcntl_getpipe_size(pipe)
}

/// A new file on the file system of `dir`, for reading and writing, that has no name there and goes with its last
/// descriptor.
pub fn unnamed_file(dir: &Path) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        // Not every file system has it: EISDIR is the answer of a kernel, EOPNOTSUPP that of a file system.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            rustix::fs::memfd_create(c"systx-output", rustix::fs::MemfdFlags::CLOEXEC)
        }
        made => made,
    }
}

/// Returns true if standard output and standard error lead to the same file or pipe.
pub fn are_one() -> bool {
    let seen = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    match (seen(rustix::stdio::stdout()), seen(rustix::stdio::stderr())) {
        (Ok(out), Ok(err)) => out == err && !rustix::termios::isatty(rustix::stdio::stdout()),
        _ => false,
    }
}

/// Other descriptors in place of our standard output and standard error, until dropped.
pub struct Lent {
    before: [OwnedFd; 2],
}

/// Puts descriptors in place of standard output and standard error, for a process that is started meanwhile.
pub fn lend(out: BorrowedFd<'_>, err: BorrowedFd<'_>) -> Result<Lent> {
    let keep = |fd: BorrowedFd<'static>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
    let before = [keep(rustix::stdio::stdout())?, keep(rustix::stdio::stderr())?];
    // From here on what fails is taken back.
    let lent = Lent { before };
    rustix::stdio::dup2_stdout(out)?;
    rustix::stdio::dup2_stderr(err)?;
    Ok(lent)
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Only EBUSY and EINTR are possible, neither of them on these numbers on Linux.
        let _ = rustix::stdio::dup2_stdout(&self.before[0]);
        let _ = rustix::stdio::dup2_stderr(&self.before[1]);
    }
}

/// Writes all of it, also where a write would have to wait and the descriptor is one that does not.
///
/// # Errors
/// What write(2) answers; a part may be written then.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
                // A signal can end it early; then it is tried again.
                let _ = rustix::event::poll(&mut fds, None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_file_without_a_name_keeps_what_is_written() {
        let dir = std::env::temp_dir();
        let mut file = std::fs::File::from(unnamed_file(&dir).unwrap());
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file.metadata().unwrap()), 0);
        file.write_all(b"kept").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
        assert_eq!(unnamed_file(&dir.join("systx-no-such-directory")).map(drop), Err(Errno::NOENT));
    }

    #[test]
    fn a_pipe_that_does_not_wait_gets_all_of_it() {
        let (read, write) = pipe().unwrap();
        let flags = rustix::fs::fcntl_getfl(&write).unwrap();
        rustix::fs::fcntl_setfl(&write, flags | OFlags::NONBLOCK).unwrap();
        let bytes = vec![7; 3 * pipe_bytes_max(&write).unwrap()];
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || write_all(&write, &sent));
        let mut came = Vec::new();
        std::fs::File::from(read).read_to_end(&mut came).unwrap();
        assert_eq!((writer.join().unwrap(), came == bytes), (Ok(()), true));
    }

    #[test]
    fn who_has_gone_is_told() {
        let (read, write) = pipe().unwrap();
        drop(read);
        assert_eq!(write_all(&write, b"x"), Err(Errno::PIPE));
    }
}
