//! Paths from the root of a mount: bytes, components between `/`, none in front.
//!
//! Does not: resolve anything; a path is for messages, for records, and for processes that can't open handles.

/// `dir/name`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The paths of the directories on the way to `path`, from the first name on, and itself.
pub fn on_the_way(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).map(move |end| &path[..end])
}

/// How many names lie between the root and the object of a path, its own included.
pub(crate) fn depth(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count()
}

/// The reverse of [`slice::escape_ascii`].
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digit = |byte: u8| char::from(byte).to_digit(16);
                    (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8
                }
                itself => itself,
            },
            byte => byte,
        });
    }
    Some(bytes)
}
