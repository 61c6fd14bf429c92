//! Errors of a log: the operation, the place, and what to do.

use super::format::{BodyAt, LogPos};
use crate::record::DecodeError;
use systx_os::Errno;

/// Why the log could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// The kernel refused; nothing was appended.
    Os {
        /// The operation, as a fragment; with the file of the area, where it is no segment.
        doing: &'static str,
        /// To which segment; 0 for another file.
        segment: u64,
        /// The kernel's answer.
        error: Errno,
    },
    /// A sync failed earlier: nothing is appended until a recovery has begun a new segment.
    Poisoned {
        /// The kernel's answer to that sync.
        error: Errno,
    },
    /// A sync of what records change has failed since the file system was mounted: the kernel may have dropped some.
    Lost {
        /// The kernel's answer.
        error: Errno,
    },
    /// No recovery has run since the shared table was made.
    NotStarted,
    /// The body stands in a segment that takes no more cells: append the body again, then its cell.
    Moved,
    /// A body longer than a cell can say.
    TooLarge {
        /// Length in bytes.
        bytes: u64,
    },
    /// The shared words say what cannot be.
    Confused {
        /// The reason, as a fragment.
        what: &'static str,
    },
    /// A segment in the middle is gone.
    Missing {
        /// Which.
        segment: u64,
        /// The segment that says that it goes on there.
        after: u64,
    },
    /// A segment of another area.
    Foreign {
        /// Which.
        segment: u64,
        /// The area that it was written in.
        found: [u8; 16],
        /// The area that it is in.
        expected: [u8; 16],
    },
    /// A segment in a format that this systx does not know.
    Version {
        /// Which.
        segment: u64,
        /// Format version.
        found: u32,
    },
    /// A cell whose checksum is right and whose kind or fields this systx does not know.
    UnknownCell {
        /// Where.
        pos: LogPos,
        /// Number of its kind.
        kind: u8,
    },
    /// A record whose checksum is right and whose contents make no sense to this systx.
    Unreadable {
        /// Segment.
        segment: u64,
        /// Where its body is, in bytes from the start of the segment.
        offset: u64,
        /// Why.
        why: DecodeError,
    },
}

impl core::fmt::Display for LogError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            // The number of no segment: what is done names its file itself.
            LogError::Os { doing, segment: 0, error } => write!(f, "{doing}: {error}"),
            LogError::Os { doing, segment, error } => write!(f, "{doing} log/{segment:016x}: {error}"),
            LogError::Poisoned { error } => {
                write!(f, "the log is closed since syncing it failed ({error}): run systx recover when nothing is open there")
            }
            LogError::Lost { error } => write!(
                f,
                "a write to the disk has failed since it was mounted ({error}), and may be lost: nothing is \
                 committed there before it is mounted again (open transactions keep it mounted: systx list), or the \
                 next boot; see the kernel's log (dmesg)"
            ),
            LogError::NotStarted => f.write_str("the log is not open: run systx recover"),
            LogError::Moved => f.write_str("the log went on to another segment: write the body again"),
            LogError::TooLarge { bytes } => {
                write!(f, "a record of {bytes} bytes does not fit the log: split the transaction")
            }
            LogError::Confused { what } => {
                write!(f, "the shared table is damaged ({what}): stop all systx processes and run systx recover")
            }
            LogError::Missing { segment, after } => write!(
                f,
                "log/{segment:016x} is missing, log/{after:016x} goes on there: restore the file, or give up what it \
                 held by moving the whole log/ away"
            ),
            LogError::Foreign { segment, found, expected } => write!(
                f,
                "log/{segment:016x} belongs to area {}, this is {}: the log of another area is not replayed, move it away",
                Hex(found),
                Hex(expected)
            ),
            LogError::Version { segment, found } => write!(
                f,
                "log/{segment:016x} has format {found}, this systx knows {} to {}: recover with the systx that wrote it",
                super::format::VERSION_LEAST,
                super::format::VERSION
            ),
            LogError::UnknownCell { pos, kind } => write!(
                f,
                "cell {} of log/{:016x} is of kind {kind}, in a form that this systx does not know: recover with the systx that wrote it",
                pos.cell, pos.segment
            ),
            LogError::Unreadable { segment, offset, why: DecodeError::Version(v) } => write!(
                f,
                "the record at {offset:#x} of log/{segment:016x} has version {v}, this systx knows {}: recover with the systx that wrote it",
                crate::record::BODY_VERSION
            ),
            LogError::Unreadable { segment, offset, why } => write!(
                f,
                "the record at {offset:#x} of log/{segment:016x} has a right checksum and no meaning ({why:?}): keep a copy of \
                 log/ and report it"
            ),
        }
    }
}

impl std::error::Error for LogError {}

impl LogError {
    /// The kernel's answer, where there was one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            LogError::Os { error, .. } | LogError::Poisoned { error } | LogError::Lost { error } => {
                Some(*error)
            }
            _ => None,
        }
    }

    pub(super) fn unreadable(at: BodyAt, why: DecodeError) -> LogError {
        LogError::Unreadable { segment: at.segment, offset: at.offset, why }
    }

    /// Adapter for `map_err`.
    pub(super) fn os(doing: &'static str, segment: u64) -> impl Fn(Errno) -> LogError {
        move |error| LogError::Os { doing, segment, error }
    }
}

/// The record is appended and may or may not survive: *in doubt* until a recovery has read the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncError {
    /// The kernel's answer to the failed sync.
    pub error: Errno,
}

impl SyncError {
    /// The kernel's answer.
    pub fn errno(&self) -> Option<Errno> {
        Some(self.error)
    }
}

impl core::fmt::Display for SyncError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "syncing the log failed ({}): run systx recover", self.error)
    }
}

impl std::error::Error for SyncError {}

/// An area's identity.
pub(super) struct Hex<'a>(pub &'a [u8; 16]);

impl core::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
