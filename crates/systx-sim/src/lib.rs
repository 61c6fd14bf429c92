#![forbid(unsafe_code)]
//! systx-sim

pub mod model;
pub mod machine;
