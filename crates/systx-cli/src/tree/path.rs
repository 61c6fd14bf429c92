//! Paths of mount points: absolute, and from the base of the new tree.

use crate::failure::{Failure, Result};
use crate::words::shown;
use std::ffi::CString;

/// The rest of `path` below `top`, without leading slash: empty when they are the same, `None` when it is elsewhere.
pub fn is_below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    match path.strip_prefix(top)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

pub fn join(a: &[u8], b: &[u8]) -> Vec<u8> {
    match (a, b) {
        (a, []) => a.to_vec(),
        ([], b) => b.to_vec(),
        (a, b) => [a, b"/", b].concat(),
    }
}

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
