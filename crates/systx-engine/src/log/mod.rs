//! The log of a domain: which transactions are committed, in which order, and how to publish them again.
//!
//! Owns: the directory `log/` of the area, its segments (`docs/log-format.md`), group commit, reading after a
//! crash, and dropping what is no longer needed. Guarantees: a record that [`Log::sync`] answered for is
//! found by [`outline`] after every later crash, together with everything before it; what [`outline`] finds is
//! a prefix of what was appended. Does not: know what a record means, decide who commits, or hold the commit
//! lock (the callers of [`Log::append_cell`] do).
//!
//! All state that processes share is in [`WORDS`] words of the domain table, lost with the boot;
//! [`Log::start`] sets them after each recovery. Lock order: commit lock (the caller's), then the *making*
//! latch or the *syncing* latch, never both of these at once but in `start`. Who holds a latch waits for the
//! disk only.

mod behind;
mod checkpoint;
mod dump;
mod error;
pub mod format;
mod group;
mod last_words;
mod latch;
mod reader;
mod segment;
mod shared;
mod writer;

pub use dump::{raw, Raw};
pub use error::{LogError, SyncError};
pub use format::{BodyAt, Cell, LogPos};
pub use last_words::say_at_end;
#[cfg(test)]
pub use reader::replay;
pub use reader::{outline, written_for, End, Entry, Outline, Replay, SegmentInfo, Understood};
pub use shared::{Start, WORDS};
pub use writer::{Alive, Log};

#[cfg(test)]
mod tests;
