#![forbid(unsafe_code)]
//! systx-sim
