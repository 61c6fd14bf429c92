#![forbid(unsafe_code)]
//! systx-sim

pub mod history;
pub mod model;
pub mod machine;
