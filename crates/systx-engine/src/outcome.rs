//! How a transaction ends, and on which side of the commit point (docs/guarantees.md).

mod kind;

pub use kind::{ConflictCopyKind, ConflictKind};

use crate::id::TxId;
use crate::shown::Shown;
use systx_os::Errno;

/// Durability of a transaction's effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage when commit returns.
    #[default]
    Durable,
    /// Atomic while the machine stays up; may be torn by power loss.
    None,
}

/// How long what a transaction has only read must stay as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// To the commit (degree 3).
    #[default]
    Serializable,
    /// While it is open (degree 2). What the transaction changes stays claimed to the commit all the same.
    Committed,
}

/// What a transaction does where it would wait for another one to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It waits.
    #[default]
    Waits,
    /// It ends at once, with a conflict that says so ([`ConflictKind::HeldNow`]).
    Never,
}

/// The options that a transaction begins with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Durability of the commit.
    pub durability: Durability,
    /// Isolation from others.
    pub isolation: Isolation,
    /// What it does where it would wait.
    pub waiting: Waiting,
    /// As of nice(1): of two that lose and try again the lower one has priority, before age counts.
    pub nice: i8,
    /// Command line, for messages to others.
    pub command: String,
}

/// The party whose change met ours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Party {
    /// A transaction.
    Transaction {
        /// Number.
        id: TxId,
        /// Process, as it knows itself; 0 when it belongs to an earlier boot.
        pid: u32,
        /// Command, cut off at [`crate::domain::records::COMMAND_BYTES_MAX`]; empty when it is forgotten
        /// already.
        command: Vec<u8>,
    },
    /// A program that knows nothing of transactions.
    Outsider,
    /// Either: so many commits came between that the ring does not show which.
    Unknown,
}

impl core::fmt::Display for Party {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Party::Transaction { id, pid: 0, .. } => write!(f, "transaction {id}"),
            Party::Transaction { id, pid, command } if command.is_empty() => {
                write!(f, "transaction {id} (pid {pid})")
            }
            Party::Transaction { id, pid, command } => {
                write!(f, "transaction {id} (pid {pid}: {})", Shown(command))
            }
            Party::Outsider => f.write_str("a program outside of any transaction"),
            Party::Unknown => f.write_str(
                "another transaction or a program outside of any (too many commits ago to be told apart)",
            ),
        }
    }
}

/// Why a transaction could not be serialised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Path of the object, as the transaction found it.
    pub path: Vec<u8>,
    /// The change.
    pub what: ConflictKind,
    /// The other party.
    pub with: Party,
}

impl core::fmt::Display for Conflict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "conflict on {}: {} by {}", Shown(&self.path), self.what, self.with)
    }
}

/// The conflicts that would keep a transaction from committing now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// By path.
    pub listed: Vec<Conflict>,
    /// How many more there are.
    pub more: usize,
}

impl Conflicts {
    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.listed.len() + self.more
    }
}

/// Why a verb did not give an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerbError {
    /// The answer is this error number; the transaction goes on.
    Os(Errno),
    /// The facts of the transaction no longer hold together; it can only abort.
    Doomed(Box<Conflict>),
}

impl From<Errno> for VerbError {
    fn from(e: Errno) -> VerbError {
        VerbError::Os(e)
    }
}

/// Result of a verb.
pub type Verb<T> = core::result::Result<T, VerbError>;

/// An object that could not go where it belongs because an outsider took the place after the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCopy {
    /// Where it would have gone (or was).
    pub path: Vec<u8>,
    /// Name of what was kept, below `aside/` of the area; `None` when nothing had to be kept.
    pub aside: Option<String>,
    /// Why it is there.
    pub what: ConflictCopyKind,
}

/// A commit that is past its commit point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Number of steps taken; 0 for a read-only transaction.
    pub steps: u64,
    /// Conflict copies: objects that outsiders displaced.
    pub conflict_copies: Vec<ConflictCopy>,
    /// Publication could not be finished yet (full disk and the like); it is retried by everybody who comes by.
    pub pending: Option<String>,
    /// Something else that the user should look at.
    pub warning: Option<String>,
}

/// A commit that did not happen, or whose fate is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// Aborted by a conflict: nothing was changed, a retry can help.
    Conflict(Box<Conflict>),
    /// Aborted by an error while preparing: nothing was changed.
    Failed {
        /// The operation that failed, as a fragment.
        doing: &'static str,
        /// On which path, if any.
        path: Vec<u8>,
        /// The kernel's answer.
        error: Errno,
    },
    /// Aborted because something of the transaction can't be committed (an open writer, an unsupported object).
    Refused(String),
    /// This process is a forked child of the one that began the transaction, which goes on there: nothing was changed.
    Forked,
    /// The journal could not be synced: whether it is committed shows after `recover`.
    InDoubt {
        /// The kernel's answer.
        error: Errno,
    },
}

impl core::fmt::Display for CommitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CommitError::Conflict(c) => write!(f, "{c}"),
            CommitError::Failed { doing, path, error } if path.is_empty() => write!(f, "{doing}: {error}"),
            CommitError::Failed { doing, path, error } => {
                write!(f, "{doing} {}: {error}", Shown(path))
            }
            CommitError::Refused(why) => f.write_str(why),
            CommitError::Forked => f.write_str(
                "the transaction belongs to the process that began it, of which this one is a forked child",
            ),
            CommitError::InDoubt { error } => write!(f, "in doubt: syncing the log failed: {error}"),
        }
    }
}

impl std::error::Error for CommitError {}

/// The work of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commits whose publication was finished or redone.
    pub finished: u64,
    /// Transactions of dead owners that were taken back before their commit point.
    pub aborted: u64,
    /// Conflict copies that it made.
    pub conflict_copies: Vec<ConflictCopy>,
    /// Transactions that could not be finished, each with its reason.
    pub unfinished: Vec<String>,
}

impl Recovered {
    /// Adds what another recovery did.
    pub fn merge(&mut self, other: Recovered) {
        self.finished += other.finished;
        self.aborted += other.aborted;
        self.conflict_copies.extend(other.conflict_copies);
        self.unfinished.extend(other.unfinished);
    }

    /// Returns true if there was nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Recovered::default()
    }
}
