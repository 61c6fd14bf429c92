//! The FUSE protocol: bytes to requests, answers to bytes.
//!
//! Owns: layouts, opcodes, negotiation. Guarantees: no bytes from the device make it panic. Does not: know files; that
//! is [`crate::dispatch`].

pub mod init;
pub mod layout;
pub mod opcode;
pub mod reply;
pub mod request;

pub use init::{flag, negotiate, Agreed, Answer};
pub use opcode::Opcode;
pub use reply::{forget_unused, stale_attributes, Dirent, Id, Lasts, Plus, Reply};
pub use request::{Malformed, Request};
