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
mod current;
mod errors;
mod files;
mod listing;
mod names;
mod numbers;
mod options;
mod outcome;
mod running;
mod streams;
mod structures;
mod subject;
mod temporary;
mod thread;
mod transactions;
mod users;
mod vectors;
mod world;
mod xattrs;

pub use attributes::*;
pub use border::{Bytes, In, Iovecs, Out, Room, Text, TextMut};
pub use files::*;
pub use listing::*;
pub use names::*;
pub use structures::{systx_options, systx_outcome, systx_token};
pub use temporary::*;
pub use transactions::*;
pub use vectors::*;
pub use xattrs::*;
