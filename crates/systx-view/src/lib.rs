#![forbid(unsafe_code)]
//! systx-view
