//! The systx transaction engine.
//!
//! A [`Transaction`](transaction::Transaction) keeps its changes private on the file system that they belong to, remembers what it
//! read, and commits by the protocol of `docs/protocol.md`. Generic over [`systx_os::Os`], so that the same
//! code runs on Linux and on the simulated machine.
#![forbid(unsafe_code)]

pub mod acl;
mod bytes;
pub mod changes;
mod commit;
pub mod contention;
pub mod corrupt;
mod diff;
pub mod domain;
pub mod facts;
pub mod id;
mod invariant;
pub mod lock;
pub mod log;
mod mutant;
mod objects;
pub mod outcome;
mod paths;
pub mod plan;
mod publish;
pub mod record;
pub mod recovery;
pub mod shown;
pub mod transaction;
pub mod types;
pub mod undo;
pub mod upkeep;
pub mod verbs;
mod workset;
