//! A directory of a transaction, and the calls by path that begin there.

use crate::alone::Looked;
use crate::calls::Whole;
use crate::dir_entry::DirEntry;
use crate::file::File;
use crate::handles::Birth;
use crate::metadata::Metadata;
use crate::open_options::OpenOptions;
use crate::place::Place;
use crate::state::{Answer, Calling, Kept, Tx};
use crate::walk::{Last, Object, Start};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use systx_os::{Errno, Rename};

/// A directory: relative paths begin there, absolute ones at the calling thread's root.
///
/// Each call is judged with the calling thread's user, groups and capabilities, and answers as the call of
/// [`std::fs`] with that name does. An error that is the transaction's own has an [`Error`](crate::Error)
/// inside; after it each call fails with the same.
#[derive(Clone)]
pub struct Dir {
    pub(crate) tx: Arc<Tx>,
    pub(crate) start: Start,
    pub(crate) birth: Birth,
    /// Of a transaction that lets go of what nothing stands for.
    _kept: Option<Arc<Kept>>,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Dir {
    /// The working directory, whatever it is at each call.
    pub(crate) fn working(tx: Arc<Tx>) -> Dir {
        Dir { tx, start: Start::WorkingDirectory, birth: Birth::default(), _kept: None }
    }

    /// Of a directory that was found in this call.
    pub(crate) fn new(tx: &Arc<Tx>, calling: &mut Calling<'_>, place: Place) -> Dir {
        let (birth, kept) = (calling.state.handles.birth(), calling.keep(tx, &place));
        Dir { tx: tx.clone(), start: Start::At(place), birth, _kept: kept }
    }

    pub(crate) fn call<T>(&self, call: impl FnOnce(&mut Calling<'_>, &Start) -> Answer<T>) -> io::Result<T> {
        self.tx.call_on(self.birth, |calling| call(calling, &self.start))
    }

    /// One that may be all that the transaction sees.
    pub(crate) fn first_call<T>(
        &self,
        call: impl FnOnce(&mut Calling<'_>, &Start) -> Answer<T>,
    ) -> io::Result<T> {
        self.tx.first_call(|calling| call(calling.alive(self.birth)?, &self.start))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As opendir(3).
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        self.call(|calling, start| {
            let object = calling.find(start, bytes(path.as_ref()), Last::Follow)?;
            let place = calling.directory(&object)?;
            Ok(Dir::new(&self.tx, calling, place))
        })
    }

    /// The directory behind a descriptor, which may have been opened before the transaction began.
    ///
    /// # Errors
    /// `ENOTDIR`; `ESTALE` if the transaction sees another object, or none, at the directory's path.
    pub fn dir_of(&self, fd: impl AsFd) -> io::Result<Dir> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        self.call(|calling, _| {
            let object = Object::Outside(Arc::new(systx_os::outside::Outside::of(&Arc::new(fd))?));
            let place = calling.directory(&object)?;
            Ok(Dir::new(&self.tx, calling, place))
        })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As open(2). `EROFS` for writing where the transaction serves nothing.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        self.call(|calling, start| {
            let opened = calling.open(start, bytes(path.as_ref()), options)?;
            Ok(File::new(&self.tx, calling, opened, options, Arc::default()))
        })
    }

    /// The file behind a descriptor, which may have been opened before the transaction began, or by another process: it
    /// is read and written as the descriptor may be. Its offset is the descriptor's, which moves to where this one is
    /// when the transaction commits, and only then.
    ///
    /// # Errors
    /// `EINVAL` if it is no regular file; `ESTALE` if the transaction sees another object, or none, at the file's path.
    pub fn file_of(&self, fd: impl AsFd) -> io::Result<File> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        self.call(|calling, _| {
            let (opened, options, offset) = calling.open_like(fd)?;
            Ok(File::new(&self.tx, calling, opened, &options, offset))
        })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, &OpenOptions::new().read(true))
    }

    /// Opens a file for writing, empties it, and makes it if it is missing.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, &OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        match self.call(|calling, start| calling.read_whole(start, bytes(path.as_ref())))? {
            Whole::Bytes(all) => Ok(all),
            Whole::Outside(fd) => {
                let mut all = Vec::new();
                std::fs::File::from(fd).read_to_end(&mut all)?;
                Ok(all)
            }
        }
    }

    /// Reads a whole file of UTF-8.
    ///
    /// # Errors
    /// As [`Dir::read`]; [`io::ErrorKind::InvalidData`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let all = String::from_utf8(self.read(path)?);
        all.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
        self.create(path)?.write_all(contents.as_ref())
    }

    /// Attributes of the object at a path.
    ///
    /// # Errors
    /// As stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.look(path.as_ref(), Last::Follow)
    }

    /// Attributes without following a symbolic link.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.look(path.as_ref(), Last::Stay)
    }

    fn look(&self, path: &Path, last: Last) -> io::Result<Metadata> {
        self.first_call(|calling, start| {
            Ok(match calling.look(start, bytes(path), last)? {
                Looked::Alone(stat) => (&stat).into(),
                Looked::Walked(Object::Inside { attr, .. }) => attr.into(),
                Looked::Walked(Object::Outside(outside)) => outside.stat().into(),
            })
        })
    }

    /// Returns true if there is an object at a path; that there is none is compared at commit, too.
    ///
    /// # Errors
    /// As stat(2), but for `ENOENT` and `ENOTDIR`.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory with mode 0o777 less the umask.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| calling.make_directory(start, bytes(path.as_ref()), 0o777))
    }

    /// Makes a directory and what is missing above it.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let is_there = |error: io::Error| match self.metadata(path) {
            Ok(found) if found.is_dir() => Ok(()),
            _ => Err(error),
        };
        match self.create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return is_there(error),
            Ok(()) => return Ok(()),
            Err(error) => match path.parent() {
                Some(above) if above.as_os_str().is_empty() => {}
                Some(above) => self.create_dir_all(above)?,
                None => return Err(error),
            },
        }
        self.create_dir(path).or_else(is_there)
    }

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| calling.unlink(start, bytes(path.as_ref())))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| calling.rmdir(start, bytes(path.as_ref())))
    }

    /// Removes a directory with everything in it; a symbolic link goes, not what it leads to.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2). What was removed before an error stays so in the transaction.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if self.symlink_metadata(path)?.is_symlink() {
            return self.remove_file(path);
        }
        for entry in self.read_dir(path)? {
            if entry.file_type().is_dir() {
                self.remove_dir_all(path.join(entry.file_name()))?
            } else {
                self.remove_file(path.join(entry.file_name()))?
            }
        }
        self.remove_dir(path)
    }

    /// Renames an object; what has the new name is replaced.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| {
            calling.rename((start, bytes(from.as_ref())), (start, bytes(to.as_ref())), Rename::Replace)
        })
    }

    /// Gives an object one more name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| {
            calling.make_link((start, bytes(original.as_ref())), Last::Stay, (start, bytes(link.as_ref())))
        })
    }

    /// Makes a symbolic link at `link` to `target`.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.call(|calling, start| calling.make_symlink(start, bytes(target.as_ref()), bytes(link.as_ref())))
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let target = self.call(|calling, start| calling.read_link(start, bytes(path.as_ref())))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside(start, bytes(path.as_ref()), Last::Follow)?;
            calling.set_mode(node, &attr, mode)
        })
    }

    /// Sets owner and group; `None` leaves one as it is. A symbolic link is followed.
    ///
    /// # Errors
    /// As chown(2).
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.call(|calling, start| {
            let (node, attr) = calling.inside(start, bytes(path.as_ref()), Last::Follow)?;
            calling.set_owner(node, &attr, uid, gid)
        })
    }

    /// Copies bytes and permission bits of a file; returns the number of bytes.
    ///
    /// # Errors
    /// As open(2), read(2), write(2) and chmod(2).
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        let mut source = self.open(from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            return Err(Errno::INVAL.into());
        }
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(metadata.mode() & 0o7777);
        let mut target = self.open_with(to, &options)?;
        let copied = io::copy(&mut source, &mut target)?;
        target.set_mode(metadata.mode() & 0o7777)?;
        Ok(copied)
    }

    /// The entries of a directory, without `.` and `..`, as of now.
    ///
    /// # Errors
    /// As opendir(3) and readdir(3).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        let entries = self.call(|calling, start| {
            let object = calling.find(start, bytes(path), Last::Follow)?;
            let place = calling.directory(&object)?;
            calling.list(&place)
        })?;
        Ok(ReadDir { entries: entries.into_iter() })
    }
}

/// Entries of a directory.
pub struct ReadDir {
    entries: std::vec::IntoIter<DirEntry>,
}

impl Iterator for ReadDir {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        self.entries.next()
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dir").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir").finish_non_exhaustive()
    }
}
