//! A file of this user's that is named by its path, and may be in a directory of another one.
//!
//! Guarantees: no symbolic link is followed, opening waits for nobody, and a file that another user owns, or that has
//! other names, is left alone. Does not: keep the path from leading elsewhere, as its directories' owners may rename
//! them.

use rustix::fs::{openat2, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Opens a file to append to, or makes it for its owner alone.
///
/// # Errors
/// Of the kernel, or why the file is none to write to.
pub fn append(file: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let (flags, mode) = (flags | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR);
    let opened = openat2(CWD, file, flags, mode, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS);
    let opened = File::from(opened.map_err(|e| match e {
        Errno::LOOP => io::Error::other("a symbolic link, or behind one"),
        Errno::NXIO => io::Error::other("a FIFO that nobody reads, or a socket"),
        e => e.into(),
    })?);
    let found = opened.metadata()?;
    match () {
        () if !found.is_file() && !found.file_type().is_fifo() => {
            Err(io::Error::other("no file to write lines to"))
        }
        () if found.uid() != geteuid().as_raw() => Err(io::Error::other("another user's file")),
        () if found.nlink() != 1 => Err(io::Error::other("a file with other names")),
        () => {
            // A reader of one's own may be slow.
            rustix::fs::fcntl_setfl(&opened, OFlags::APPEND)?;
            Ok(opened)
        }
    }
}
