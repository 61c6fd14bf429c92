//! Paths as bytes.

/// The rest of `path` below `top`, without leading slash: empty when they are the same, `None` when it is
/// elsewhere.
pub fn is_below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    match path.strip_prefix(top)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// One path below another, which ends without a slash; either may be empty.
pub fn join(a: &[u8], b: &[u8]) -> Vec<u8> {
    match (a, b) {
        (a, []) => a.to_vec(),
        ([], b) => b.to_vec(),
        (a, b) => [a, b"/", b].concat(),
    }
}
