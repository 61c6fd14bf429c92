//! x
use super::machine::Case;
pub const ALL: &[(&str, Case)] = &[];
