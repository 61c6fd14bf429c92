//! How a transaction fails, and on which side of its commit point.
//!
//! Owns: [`Error`] and its way into and out of [`io::Error`]. File calls give `io::Error`, as in [`std::fs`]:
//! the kernel's answers with their number, everything that is a transaction's own with an [`Error`] inside.

use crate::order::OrderError;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_engine::outcome::{self, CommitError};
use systx_engine::shown::Shown;

/// Why a transaction can't go on or did not commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Something that it had read or written was changed by another transaction or program. Nothing was
    /// changed; trying again can help.
    Conflict(Conflict),
    /// It would have to wait for another transaction, and was told not to. Nothing was changed; trying again can help.
    WouldWait(Conflict),
    /// A system call failed while the commit was prepared. Nothing was changed.
    Failed(Failed),
    /// The transaction cannot commit, for this reason. Nothing was changed.
    Refused(String),
    /// The log could not be synced: whether the transaction has committed shows after `systx recover`.
    InDoubt(String),
    /// The transaction has ended already.
    Ended,
    /// The transaction is paused: it goes on when it is resumed.
    Paused,
    /// Nothing is paused under this token: it was never given, was used, or what it named is aborted.
    NotPaused,
    /// The calling thread has not taken part in the transaction that it wants to resume.
    NoParticipant,
    /// The transaction's number in the sequence of its process group keeps it from committing. Nothing was changed.
    Order(OrderError),
    /// The transaction waits for a change of what it has read: see [`Transaction::retry`](crate::Transaction::retry).
    Retry,
    /// The transaction belongs to the parent of this process.
    Forked,
    /// The calling thread acts for another user than the one that the transactions of this process are for.
    OtherUser,
}

/// A change that met a transaction.
#[derive(Clone, Debug)]
pub struct Conflict(Box<outcome::Conflict>);

impl Conflict {
    /// Path of the object that was changed.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0.path))
    }

    pub(crate) fn of_engine(&self) -> &outcome::Conflict {
        &self.0
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A failed system call of a commit.
#[derive(Clone, Debug)]
pub struct Failed {
    doing: String,
    path: Vec<u8>,
    errno: i32,
}

impl Failed {
    pub(crate) fn new(doing: impl Into<String>, path: &[u8], errno: systx_os::Errno) -> Failed {
        Failed { doing: doing.into(), path: path.to_vec(), errno: errno.raw_os_error() }
    }

    /// The path at which it failed; empty where there is none.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The kernel's error number.
    pub fn raw_os_error(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        if !self.path.is_empty() {
            write!(f, " {}", Shown(&self.path))?;
        }
        write!(f, ": {}", io::Error::from_raw_os_error(self.errno))
    }
}

impl Error {
    /// The error of a transaction inside of an [`io::Error`]; `None`: it is the kernel's answer to one call.
    pub fn of(error: &io::Error) -> Option<&Error> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns true if the transaction met a conflict, so that trying again can help.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }

    pub(crate) fn conflict(conflict: Box<outcome::Conflict>) -> Error {
        match conflict.what {
            outcome::ConflictKind::HeldNow => Error::WouldWait(Conflict(conflict)),
            _ => Error::Conflict(Conflict(conflict)),
        }
    }

    pub(crate) fn of_commit(error: CommitError) -> Error {
        match error {
            CommitError::Conflict(conflict) => Error::conflict(conflict),
            CommitError::Failed { doing, path, error } => Error::Failed(Failed::new(doing, &path, error)),
            CommitError::Refused(why) => Error::Refused(why),
            CommitError::Forked => Error::Forked,
            error => Error::InDoubt(error.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict(conflict) => write!(f, "{conflict}: nothing was changed, try again"),
            Error::WouldWait(conflict) => write!(f, "{conflict}: nothing was changed"),
            Error::Failed(failed) => write!(f, "{failed}: nothing was changed"),
            Error::Refused(why) => write!(f, "{why}: nothing was changed"),
            Error::InDoubt(why) => write!(f, "{why}; run `systx recover`"),
            Error::Ended => f.write_str("the transaction has ended"),
            Error::Paused => f.write_str("the transaction is paused"),
            Error::NotPaused => f.write_str("no transaction is paused under this token"),
            Error::NoParticipant => f.write_str("this thread has not taken part in the paused transaction"),
            Error::Order(error) => write!(f, "{error}: nothing was changed"),
            Error::Retry => f.write_str("the transaction waits for a change of what it has read"),
            Error::Forked => f.write_str("the transaction belongs to the parent of this process"),
            Error::OtherUser => f.write_str(
                "this thread acts for another user (setfsuid, seteuid) than the one whose transactions these are",
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Conflict(_) => io::ErrorKind::ResourceBusy,
            Error::WouldWait(_) => io::ErrorKind::WouldBlock,
            Error::Failed(failed) => io::Error::from_raw_os_error(failed.errno).kind(),
            Error::OtherUser | Error::Forked | Error::NoParticipant => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_through_io_whole() {
        let failed = Failed::new("reserving space", b"a\nb", systx_os::Errno::NOSPC);
        let io: io::Error = Error::Failed(failed).into();
        assert_eq!(io.kind(), io::ErrorKind::StorageFull);
        let Some(Error::Failed(failed)) = Error::of(&io) else { panic!("{io:?}") };
        assert_eq!(failed.raw_os_error(), systx_os::Errno::NOSPC.raw_os_error());
        assert!(io.to_string().ends_with("nothing was changed") && !io.to_string().contains('\n'), "{io}");
        assert!(Error::of(&io::Error::from_raw_os_error(2)).is_none());
    }
}
