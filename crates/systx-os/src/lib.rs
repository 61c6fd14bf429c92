//! The operating system boundary of systx.
//!
//! Owns: the trait [`Os`], its Linux implementation, and (with [`words`]) the shared memory that cooperating processes
//! meet in. Guarantees: every unsafe operation of the engine's and the view's way is here. Does not: decide anything;
//! policy is the engine's.

pub mod beside;
mod call;
pub mod caller;
mod error_text;
pub mod fuse;
pub mod guest;
#[cfg(feature = "host")]
pub mod host;
pub mod linux;
pub mod no_room;
pub mod notice;
pub mod os;
pub mod outside;
pub mod own_file;
pub mod process;
pub mod progress;
pub mod sandbox;
pub mod sockets;
pub mod stranger;
pub mod streams;
pub mod types;
pub mod words;

pub use call::InCall;
pub use error_text::error_text;
pub use guest::Guest;
pub use linux::Linux;
pub use os::Os;
pub use types::*;
pub use words::Words;
