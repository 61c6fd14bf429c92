//! The object of a call: a descriptor, or a path and where it begins.
//!
//! A call belongs to the transaction of its descriptor, if that is of one, and else to the one that the thread is in.

use crate::border::{descriptor, Answer, Text};
use crate::errors::refusal;
use crate::numbers::Handle;
use crate::running::Running;
use crate::thread;
use crate::world::World;
use libc::c_int;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use systx::posix::Errno;
use systx::{Dir, File};

/// The open file or directory of a number.
///
/// # Errors
/// `EBADF`: it is no number of a transaction. `ECANCELED`: the transaction can only end.
pub fn handle(number: c_int) -> Answer<Arc<Handle>> {
    let handle = World::now().and_then(|world| world.numbers.get(number)).ok_or(Errno::BADF)?;
    handle.running.goes_on()?;
    Ok(handle)
}

/// A directory, and the transaction that it is of.
pub struct Base {
    pub running: Arc<Running>,
    pub dir: Dir,
}

impl Base {
    /// The directory in which a path begins: a number of ours, a descriptor of the program's own, or AT_FDCWD.
    ///
    /// # Errors
    /// `EINVAL`: the thread is in no transaction. `ECANCELED`: it can only end. Those of openat(2).
    pub fn of(dirfd: c_int, path: &[u8]) -> Answer<Base> {
        let absolute = path.starts_with(b"/");
        if let Some(handle) = World::now().and_then(|world| world.numbers.get(dirfd)) {
            let running = handle.running.clone();
            running.goes_on()?;
            let dir = match handle.dir() {
                Some(dir) => dir.clone(),
                None if absolute => running.here.clone(),
                None => return Err(Errno::NOTDIR),
            };
            return Ok(Base { running, dir });
        }
        let running = thread::current()?;
        running.goes_on()?;
        let dir = match dirfd {
            libc::AT_FDCWD => running.here.clone(),
            _ if absolute => running.here.clone(),
            fd => running.here.dir_of(descriptor(&fd)?).map_err(refusal)?,
        };
        Ok(Base { running, dir })
    }
}

/// The object of a call.
pub enum Subject {
    File(Arc<Handle>),
    /// An empty path: the directory itself.
    Path(Base, Vec<u8>),
}

impl Subject {
    /// Of a call with a descriptor.
    pub fn of(number: c_int) -> Answer<Subject> {
        let handle = handle(number)?;
        Ok(match handle.dir() {
            None => Subject::File(handle),
            Some(dir) => {
                let base = Base { running: handle.running.clone(), dir: dir.clone() };
                Subject::Path(base, Vec::new())
            }
        })
    }

    /// Of a call with a path; AT_EMPTY_PATH among the flags lets an empty one stand for the descriptor.
    pub fn at(dirfd: c_int, path: &Text, flags: c_int) -> Answer<Subject> {
        let path = path.bytes()?;
        match path {
            [] if flags & libc::AT_EMPTY_PATH == 0 => Err(Errno::NOENT),
            [] if dirfd != libc::AT_FDCWD => match Subject::of(dirfd) {
                Err(Errno::BADF) => Ok(Subject::Path(Base::of(dirfd, path)?, Vec::new())),
                subject => subject,
            },
            path => Ok(Subject::Path(Base::of(dirfd, path)?, path.to_vec())),
        }
    }

    /// The file, if it is one by a descriptor.
    pub fn file(&self) -> Option<&File> {
        match self {
            Subject::File(handle) => handle.file(),
            Subject::Path(..) => None,
        }
    }

    /// Makes the call that fits.
    pub fn call<T>(
        &self,
        file: impl FnOnce(&File) -> std::io::Result<T>,
        path: impl FnOnce(&Dir, &[u8]) -> std::io::Result<T>,
    ) -> Answer<T> {
        let answer = match (self, self.file()) {
            (_, Some(open)) => file(open),
            (Subject::Path(base, at), _) => path(&base.dir, at),
            (Subject::File(_), None) => return Err(Errno::BADF),
        };
        answer.map_err(refusal)
    }
}

/// A path as Rust has it.
pub fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Checks flags of a call.
///
/// # Errors
/// `EINVAL`: there are others than these.
pub fn only(flags: c_int, known: c_int) -> Answer<()> {
    (flags & !known == 0).then_some(()).ok_or(Errno::INVAL)
}
