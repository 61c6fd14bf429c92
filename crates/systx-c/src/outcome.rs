//! The end of a transaction, as C reads it.

use crate::structures::systx_outcome;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx::{Committed, Error};

/// Size of the structure in the first version.
pub const LEAST_BYTES: usize = 56;

/// Codes, as of systx.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// It has not ended.
    #[default]
    Running = 0,
    Committed = 1,
    /// Committed, with objects of others at some of the paths.
    Displaced = 2,
    /// Committed, and not all is public yet.
    Pending = 3,
    /// By the program.
    Aborted = 4,
    Conflict = 5,
    /// A call of the commit has failed.
    Failed = 6,
    Refused = 7,
    InDoubt = 8,
    /// A number in a sequence keeps it from committing.
    Order = 9,
    /// It would have waited for another one.
    WouldWait = 10,
}

/// The report on a transaction. It owns the strings that C is given.
#[derive(Default)]
pub struct Outcome {
    pub code: Code,
    error: i32,
    /// Calls that were made outside.
    allowed: u32,
    steps: u64,
    displaced: u64,
    path: Option<CString>,
    message: CString,
}

/// A string for C; text of ours has no NUL in it.
fn text(bytes: impl Into<Vec<u8>>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

fn path(path: &Path) -> Option<CString> {
    let bytes = path.as_os_str().as_bytes();
    (!bytes.is_empty()).then(|| text(bytes))
}

impl Outcome {
    /// It goes on.
    pub fn running() -> Outcome {
        Outcome { message: text("the transaction has not ended"), ..Outcome::default() }
    }

    /// The program has ended it.
    pub fn aborted() -> Outcome {
        Outcome {
            code: Code::Aborted,
            message: text("the transaction was aborted: nothing was changed"),
            ..Outcome::default()
        }
    }

    /// A bug of ours.
    pub fn broken() -> Outcome {
        let message = text("a bug in systx: the transaction can't go on; nothing was changed");
        Outcome { code: Code::Refused, message, ..Outcome::default() }
    }

    pub fn of_commit(committed: &Committed) -> Outcome {
        let code = match committed {
            Committed { pending: Some(_), .. } => Code::Pending,
            Committed { displaced, .. } if !displaced.is_empty() => Code::Displaced,
            _ => Code::Committed,
        };
        let mut message = String::from("committed");
        for displaced in &committed.displaced {
            message += &format!("; {}: {}", displaced.path.to_string_lossy(), displaced.what);
            if let Some(aside) = &displaced.aside {
                message += &format!(", ours is kept as {aside}");
            }
        }
        for allowed in &committed.allowed {
            message += &format!("; made outside: {allowed}");
        }
        for more in [&committed.pending, &committed.warning].into_iter().flatten() {
            message += "; ";
            message += more;
        }
        Outcome {
            code,
            error: 0,
            allowed: u32::try_from(committed.allowed.len()).unwrap_or(u32::MAX),
            steps: committed.steps,
            displaced: committed.displaced.len() as u64,
            path: committed.displaced.first().and_then(|displaced| path(&displaced.path)),
            message: text(message),
        }
    }

    pub fn of_error(error: &Error) -> Outcome {
        let (code, number, at) = match error {
            Error::Conflict(conflict) => (Code::Conflict, 0, path(conflict.path())),
            Error::WouldWait(conflict) => (Code::WouldWait, 0, path(conflict.path())),
            Error::Failed(failed) => (Code::Failed, failed.raw_os_error(), path(failed.path())),
            Error::InDoubt(_) => (Code::InDoubt, 0, None),
            Error::Order(_) => (Code::Order, 0, None),
            Error::Ended | Error::Retry => return Outcome::aborted(),
            _ => (Code::Refused, 0, None),
        };
        Outcome { code, error: number, path: at, message: text(error.to_string()), ..Outcome::default() }
    }

    /// Fills the structure of C; the strings live as long as this value.
    pub fn for_c(&self) -> systx_outcome {
        systx_outcome {
            size: 0,
            code: self.code as u32,
            error: self.error,
            can_retry: u32::from(matches!(self.code, Code::Conflict | Code::WouldWait)),
            allowed: self.allowed,
            steps: self.steps,
            displaced: self.displaced,
            path: self.path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            message: self.message.as_ptr(),
        }
    }
}
