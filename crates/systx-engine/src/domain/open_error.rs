//! Why a domain can't be opened.

use super::identity::AreaError;
use super::owners::OwnersError;
use super::table::TableError;
use crate::id::TxId;
use crate::log::LogError;
use crate::shown::Shown;
use systx_os::Errno;

/// Why a domain can't be opened. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The area.
    Area(AreaError),
    /// The table.
    Table(TableError),
    /// The owners file.
    Owners(OwnersError),
    /// The log.
    Log(LogError),
    /// The file system lacks something that transactions need.
    Unsupported(&'static str),
    /// A committed transaction can't be published to its end.
    Pending {
        /// Which.
        id: TxId,
        /// Where it stopped.
        path: Vec<u8>,
        /// The kernel's answer.
        error: Errno,
    },
    /// The area of a subtransaction has a log without its table.
    NoTable,
    /// Its area has the identity of another one within reach: one is a copy, and it is unknown which.
    Copy {
        /// Index of that one among those to be opened.
        first: usize,
        /// The identity.
        id: [u8; 16],
    },
    /// The kernel.
    Os(&'static str, Errno),
}

impl OpenError {
    /// The kernel's answer, where that is the reason.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            OpenError::Os(_, e)
            | OpenError::Pending { error: e, .. }
            | OpenError::Area(AreaError::Os(_, e))
            | OpenError::Area(AreaError::Owners(OwnersError::Os(_, e)))
            | OpenError::Table(TableError::Os(_, e) | TableError::Owners(OwnersError::Os(_, e)))
            | OpenError::Owners(OwnersError::Os(_, e))
            | OpenError::Log(LogError::Os { error: e, .. } | LogError::Poisoned { error: e }) => Some(*e),
            _ => None,
        }
    }
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OpenError::Area(e) => e.fmt(f),
            OpenError::Table(e) => e.fmt(f),
            OpenError::Owners(e) => e.fmt(f),
            OpenError::Log(e) => e.fmt(f),
            OpenError::Unsupported(what) => write!(f, "this file system has no {what}; keep what is to be transactional on ext4, xfs, btrfs or tmpfs"),
            OpenError::Pending { id, path, error } => write!(
                f,
                "transaction {id} is committed, but its publication stops at {}: {error}; remove the cause and run `systx recover`",
                Shown(path)
            ),
            OpenError::NoTable => write!(
                f,
                "the area of a subtransaction has lost its table, without which its log is not replayed; run the outer transaction again"
            ),
            OpenError::Copy { .. } => f.write_str("the area has the same identity as another one: a copy of a file system is not used beside its original"),
            OpenError::Os(doing, e) => write!(f, "{doing}: {e}"),
        }
    }
}

impl std::error::Error for OpenError {}
