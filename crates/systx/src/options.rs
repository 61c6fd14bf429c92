//! Options that a transaction begins with.

use systx_engine::outcome;

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

    pub(crate) fn of_engine(&self) -> outcome::Options {
        let program = || {
            let name = std::env::args_os().next().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        outcome::Options {
            durability: match self.durability {
                Durability::Durable => outcome::Durability::Durable,
                Durability::None => outcome::Durability::None,
            },
            isolation: outcome::Isolation::Serializable,
            command: if self.label.is_empty() { program() } else { self.label.clone() },
        }
    }
}
