//! `libsystx`: transactions of programs in C, and in languages that call C.
//!
//! Owns: the functions that `include/systx.h` declares, what the calling thread is in, and the numbers by which C
//! knows files. Guarantees: no panic, no unwinding and no thread cancellation crosses the border; `errno` is
//! changed by failures only; a number of a transaction is no other descriptor's of the process. Does not: decide
//! what a call answers; that is crate `systx`.
//!
//! Unsafe code is in `border`, but for the attribute `no_mangle`.

mod attributes;
mod border;
mod files;
mod listing;
mod names;
mod numbers;
mod options;
mod outcome;
mod running;
mod subject;
mod temporary;
mod thread;
mod transactions;
mod vectors;
mod world;
mod xattrs;

pub use attributes::*;
pub use border::{Bytes, In, Iovecs, Out, Room, Text, TextMut};
pub use files::*;
pub use listing::*;
pub use names::*;
pub use options::systx_options;
pub use outcome::systx_outcome;
pub use temporary::*;
pub use thread::systx_token;
pub use transactions::*;
pub use vectors::*;
pub use xattrs::*;
