#![forbid(unsafe_code)]
//! systx-engine
