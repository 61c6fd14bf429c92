//! System transactions for stock Linux: the file calls of a program take effect all or not at all.
//!
//! A [`Transaction`] is an explicit value. Its calls are those of [`std::fs`]; what they change is private
//! until [`Transaction::commit`], which makes all of it public at once, if nothing that the transaction has
//! read was changed meanwhile by anybody. Dropping a transaction aborts it.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let systx = systx::Systx::new()?;
//! systx.atomically(&systx::Options::new(), |tx| {
//!     let from: i64 = tx.read_to_string("/srv/accounts/a")?.trim().parse().unwrap_or(0);
//!     let to: i64 = tx.read_to_string("/srv/accounts/b")?.trim().parse().unwrap_or(0);
//!     tx.write("/srv/accounts/a", (from - 5).to_string())?;
//!     tx.write("/srv/accounts/b", (to + 5).to_string())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! Transactions of this library, of other processes and of `systx run` on the same files are serializable
//! among each other, and none overwrites what a program that knows nothing of them has changed. Contract:
//! docs/guarantees.md.
//!
//! A transaction may be used by several threads, one call at a time (`read`, `write`, `copy` and the `_all` calls are
//! several), and spans file systems. Files on file
//! systems that are not served (and, for an ordinary user, outside of the user's own directories) can be
//! read: as they are, without being compared at commit.
//!
//! # What a host process notices
//!
//! No signal handler, no child that wait(2) finds, no changed limit. Descriptors stand from 2048 on; a program that
//! closes them loses the transactions that are open, and the next ones open what they need anew. A thread named
//! `systx-upkeep` makes the checkpoint a second after the last durable commit. The first commit starts a process of pid
//! 1's, if there is none and the program is found, that finishes if this one is killed ([`Watcher`]).
#![forbid(unsafe_code)]

mod actions;
mod alone;
mod calls;
mod descriptors;
mod dir;
mod dir_entry;
mod error;
mod file;
mod handles;
mod kernel;
mod known_paths;
mod metadata;
mod mutant;
mod noted;
mod open_options;
mod options;
mod order;
mod outcome;
mod participants;
mod paused;
mod permission;
mod place;
#[doc(hidden)]
pub mod posix;
mod retry;
mod served;
mod shared;
mod state;
mod sub;
mod systx;
mod transaction;
mod upkeep;
mod walk;
mod watcher;

pub use dir::{Dir, ReadDir};
pub use dir_entry::DirEntry;
pub use error::{Conflict, Error, Failed};
pub use file::File;
pub use metadata::{FileType, Metadata};
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use mutant::Mutant;
#[doc(hidden)]
pub use noted::unfinished;
pub use noted::Unfinished;
pub use open_options::OpenOptions;
pub use options::{Durability, Isolation, Options, Policy, Unsupported};
pub use order::OrderError;
pub use outcome::{Committed, Displaced};
pub use paused::Token;
pub use sub::Sub;
pub use systx::{Builder, Systx};
pub use transaction::Transaction;
#[doc(hidden)]
pub use watcher::watch;
pub use watcher::Watcher;
