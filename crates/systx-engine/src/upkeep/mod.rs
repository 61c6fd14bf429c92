//! Upkeep of a domain: checkpoints, the sweeping behind the dead, and what is kept for parties that are away.
//!
//! Guarantees: nothing goes that a record, a living process or a party that has not answered may need. Does
//! not: run transactions, or decide what becomes of a dead owner's (`recovery` does).

mod awaited;
mod checkpoint;
mod cover;
mod covered;
mod decide;
mod sub;
pub mod tidy;

pub use sub::{finish_sub_areas, Remains, SubAreaError};
pub use tidy::Listed;
