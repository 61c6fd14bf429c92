//! Options that a transaction begins with.

use std::sync::OnceLock;
use std::time::Duration;
use systx_engine::outcome;

/// How long an ordered transaction waits for those before it, unless it is told.
const STALL: Duration = Duration::from_secs(60);

/// When the effects of a transaction are on stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When commit returns.
    #[default]
    Durable,
    /// Sometime. The transaction is atomic as long as the machine stays up; a power loss may leave a part of
    /// it.
    None,
}

/// The answer to a call that a transaction can neither hold back nor undo, such as opening a FIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsupported {
    /// `EOPNOTSUPP`, and the transaction can't commit any more.
    #[default]
    Abort,
    /// `EPERM`; the transaction goes on.
    Deny,
    /// The call is made at once, outside: what it does stays after an abort. Of a new object, which is not outside yet,
    /// `EOPNOTSUPP`. [`Committed::allowed`](crate::Committed::allowed) names the calls.
    Allow,
}

/// How long what a transaction has only read must stay as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// To the commit.
    #[default]
    Serializable,
    /// As long as it is open: each look finds what has committed, and none keeps others from changing it. What the
    /// transaction changes, and the directories on the way, must stay to the commit all the same. For backups and
    /// other long readers.
    Committed,
}

/// The winner of two transactions that change what the other one reads, when both are tried again. Two with different
/// policies compete by what both have: an `Oldest` one has the nice value 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The one that began its first try earlier. A try that loses has priority in the next one, for a bounded time, so
    /// that each gets through.
    #[default]
    Oldest,
    /// The one whose thread had the lower nice value when the first try began; of two with the same, the older. A nicer
    /// one may lose as often as there are others.
    Priority,
    /// The one that commits first. No try has priority, and one that is long may lose as often as it is tried.
    FirstCommitter,
}

/// A number among the ordered transactions of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub number: u64,
    /// The counter is set to this number first.
    pub counts_from_here: bool,
}

/// Options of a transaction.
///
/// ```
/// use systx::{Durability, Options};
/// let options = Options::new().durability(Durability::None).label("mail delivery").retries(10);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) unsupported: Unsupported,
    pub(crate) label: String,
    pub(crate) retries: u32,
    pub(crate) policy: Policy,
    pub(crate) sequence: Option<Sequence>,
    /// The longest that it waits for others; `None`: it was not told.
    pub(crate) stall: Option<Duration>,
    pub(crate) isolation: Isolation,
    pub(crate) waiting: outcome::Waiting,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// A durable transaction without a label.
    pub fn new() -> Options {
        Options {
            durability: Durability::Durable,
            unsupported: Unsupported::Abort,
            label: String::new(),
            retries: 100,
            policy: Policy::Oldest,
            sequence: None,
            stall: None,
            isolation: Isolation::Serializable,
            waiting: outcome::Waiting::Waits,
        }
    }

    /// Sets the durability.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Sets the answer to unsupported calls.
    pub fn unsupported(mut self, unsupported: Unsupported) -> Options {
        self.unsupported = unsupported;
        self
    }

    /// Sets the words by which `systx list` and the conflict messages of others know the transaction; by
    /// default the name of the program.
    pub fn label(mut self, label: impl Into<String>) -> Options {
        self.label = label.into();
        self
    }

    /// Sets how often [`Systx::atomically`](crate::Systx::atomically) tries again after a conflict; 100 by
    /// default.
    pub fn retries(mut self, retries: u32) -> Options {
        self.retries = retries;
        self
    }

    /// Sets who wins.
    pub fn policy(mut self, policy: Policy) -> Options {
        self.policy = policy;
        self
    }

    /// Makes it an ordered transaction, with this number: those of one process group commit one after the other, by
    /// number, while they run in parallel. The first number is 0.
    ///
    /// Its commit waits until all before it have committed. It fails with [`Error::Order`](crate::Error::Order) if one
    /// of them can't come any more, and after [`Options::stall`] in any case. The begin fails if the number has been
    /// used, or another transaction has it. With [`Systx::atomically`](crate::Systx::atomically) the tries keep it.
    pub fn sequence(mut self, number: u64) -> Options {
        self.sequence = Some(Sequence { number, counts_from_here: false });
        self
    }

    /// As [`Options::sequence`], and the begin sets the counter to this number first: for a program that goes on from
    /// a checkpoint. Transactions with lower numbers that are still open can't commit any more.
    pub fn sequence_from(mut self, number: u64) -> Options {
        self.sequence = Some(Sequence { number, counts_from_here: true });
        self
    }

    /// Sets the longest that the commit of an ordered transaction waits for those before it; a minute by default.
    /// Zero: it never waits.
    ///
    /// Of an unordered one, the longest that a try which has lost waits before the next one, until a better one that
    /// has priority over the same objects has ended; by default it does not wait, and its work may be in vain.
    pub fn stall(mut self, longest: Duration) -> Options {
        self.stall = Some(longest);
        self
    }

    /// Sets the isolation from others.
    pub fn isolation(mut self, isolation: Isolation) -> Options {
        self.isolation = isolation;
        self
    }

    /// Makes it one that never waits for another transaction: a call or commit that would is
    /// [`Error::WouldWait`](crate::Error::WouldWait), and ends it. Nor does it wait for a number before its own.
    pub fn non_blocking(mut self) -> Options {
        self.waiting = outcome::Waiting::Never;
        self
    }

    /// The longest that its commit waits for lower numbers.
    pub(crate) fn stall_ordered(&self) -> Duration {
        match self.waiting {
            outcome::Waiting::Waits => self.stall.unwrap_or(STALL),
            outcome::Waiting::Never => Duration::ZERO,
        }
    }

    /// The longest that a further try waits before it begins.
    pub(crate) fn stall_ns(&self) -> u64 {
        match (self.waiting, self.stall) {
            (outcome::Waiting::Waits, Some(longest)) => u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX),
            _ => 0,
        }
    }

    pub(crate) fn of_engine(&self) -> outcome::Options {
        static PROGRAM: OnceLock<String> = OnceLock::new();
        let name = || std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
        let program = || PROGRAM.get_or_init(name).clone();
        outcome::Options {
            durability: match self.durability {
                Durability::Durable => outcome::Durability::Durable,
                Durability::None => outcome::Durability::None,
            },
            isolation: match self.isolation {
                Isolation::Serializable => outcome::Isolation::Serializable,
                Isolation::Committed => outcome::Isolation::Committed,
            },
            waiting: self.waiting,
            nice: if self.policy == Policy::Priority { systx_os::process::nice() } else { 0 },
            command: if self.label.is_empty() { program() } else { self.label.clone() },
        }
    }
}
