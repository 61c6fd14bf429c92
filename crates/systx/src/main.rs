//! systx
#![forbid(unsafe_code)]
fn main() {}
