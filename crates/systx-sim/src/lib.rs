//! Proof of systx, not shipped: a simulated machine, an exhaustive model of the protocol, and a checker of
//! histories.
//!
//! [`machine`] implements [`systx_os::Os`], so that the engine itself runs on it and can be killed, failed,
//! interleaved and robbed of its power at every call. [`model`] checks the protocol apart from the engine.
//! [`history`] judges what processes, simulated or real, saw of each other.
#![forbid(unsafe_code)]

pub mod history;
pub mod machine;
pub mod model;
