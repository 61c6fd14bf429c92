//! Paths of mount points: absolute, and from the base of the new tree.

use crate::failure::{Failure, Result};
use crate::words::shown;
use std::ffi::CString;
use systx_places::path::is_below;

pub fn depth(point: &[u8]) -> usize {
    if point == b"/" {
        0
    } else {
        point.iter().filter(|b| **b == b'/').count()
    }
}

pub fn relative(path: &[u8], top: &[u8]) -> Result<CString> {
    let rest = is_below(path, top).filter(|rest| !rest.is_empty());
    let none = || Failure::from(format!("{} is no mount point below {}", shown(path), shown(top)));
    c_string(rest.ok_or_else(none)?)
}

pub fn c_string(path: &[u8]) -> Result<CString> {
    CString::new(path).map_err(|_| format!("{} has a NUL byte", shown(path)).into())
}
