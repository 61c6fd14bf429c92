//! `undo/` of the area: names of the images that undoing needs, of which only the numbers count here. What is
//! in one: `crate::undo`.

use crate::id::TxId;
use systx_os::{Open, Os, Result};

/// The directory of the area that has them.
pub(crate) const DIR: &[u8] = b"undo";

/// The name while its transaction is still to commit.
pub(crate) fn pending_name(id: TxId) -> Vec<u8> {
    format!("{id}~").into_bytes()
}

/// Number, and whether the transaction was still to commit.
pub(crate) fn parse(name: &[u8]) -> Option<(TxId, bool)> {
    let text = core::str::from_utf8(name).ok()?;
    let (digits, pending) = match text.strip_suffix('~') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    // No other spelling of a number.
    let id: u64 = digits.parse().ok().filter(|id: &u64| id.to_string() == digits)?;
    Some((TxId(id), pending))
}

/// The name of the file in which an undo notes the objects that it made again.
pub(crate) fn again_name(id: TxId) -> Vec<u8> {
    format!("{id}=").into_bytes()
}

/// The number of the undo in such a name.
pub(crate) fn parse_again(name: &[u8]) -> Option<TxId> {
    let (id, pending) = parse(name.strip_suffix(b"=")?)?;
    (!pending).then_some(id)
}

/// Numbers of everything that is kept.
pub(crate) fn numbers<O: Os>(os: &O, area: &O::Fd) -> Result<Vec<TxId>> {
    let Some(dir) = os.open_if_there(area, DIR, Open::Directory)? else { return Ok(Vec::new()) };
    let number = |name| parse(name).map(|(id, _)| id).or_else(|| parse_again(name));
    Ok(os.read_dir(&dir)?.iter().filter_map(|entry| number(&entry.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_and_nothing_else() {
        assert_eq!(parse(b"12"), Some((TxId(12), false)));
        assert_eq!(parse(b"12~"), Some((TxId(12), true)));
        assert_eq!(parse_again(b"12="), Some(TxId(12)));
        for wrong in [&b""[..], b"~", b"012", b"+1", b"12~~", b"a", b"1.2", b"12=", b"\xff"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        for wrong in [&b"="[..], b"12", b"12~=", b"12==", b"012="] {
            assert_eq!(parse_again(wrong), None, "{wrong:?}");
        }
    }
}
