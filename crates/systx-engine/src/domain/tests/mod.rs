//! Tests of the domain: damaged words and areas, and the table's parts under a scheduler.

mod damaged;
mod interleavings;
pub(super) mod model;
mod uniform;
