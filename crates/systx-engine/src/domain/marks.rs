//! Names of marks in `tx/` of the area, and which records get one (`publish/mark.rs` makes them and says what
//! they prove).

use crate::id::TxId;
use crate::record::{Act, Body, Change};
use systx_os::FsKind;

/// Name of a record's mark, in `tx/`.
pub(crate) fn name_of(body: &Body) -> Vec<u8> {
    format!("{}-{:016x}", body.id, body.nonce).into_bytes()
}

/// Name of the note that one step of a record must not be redone, there, too.
pub(crate) fn name_of_step(body: &Body, step: usize) -> Vec<u8> {
    [name_of(body), format!(".{step}").into_bytes()].concat()
}

/// Name of the note of what one step exchanges word by word.
pub(crate) fn name_of_words(body: &Body, step: usize) -> Vec<u8> {
    [name_of_step(body, step), b"w".to_vec()].concat()
}

/// Name of the note that a commit without a record is moving objects, there, too: no record has that nonce.
pub(crate) fn name_of_moving(id: TxId) -> Vec<u8> {
    format!("{id}-{:016x}", 0).into_bytes()
}

/// The transaction whose mark or note has that name.
pub(crate) fn owner_of(name: &[u8]) -> Option<TxId> {
    let (id, rest) = std::str::from_utf8(name).ok()?.split_once('-')?;
    let (nonce, step) = rest.split_once('.').unwrap_or((rest, "0"));
    step.strip_suffix('w').unwrap_or(step).parse::<usize>().ok()?;
    u64::from_str_radix(nonce, 16).ok().filter(|_| nonce.len() == 16)?;
    id.parse().ok().map(TxId)
}

/// Returns true if a mark proves something on a file system of this kind. (btrfs keeps the order within one
/// directory only.)
pub(crate) fn prove_on(kind: FsKind) -> bool {
    matches!(kind, FsKind::Ext4 | FsKind::Xfs)
}

/// Returns true if a record gets one: times have a rule of their own.
pub(crate) fn has_one(body: &Body) -> bool {
    let sets = |change: &Change| !matches!(change, Change::Times { .. });
    body.steps.iter().any(|step| matches!(&step.act, Act::Attr { changes, .. } if changes.iter().any(sets)))
}

/// Returns true if a record may have a mark or a note: of attributes, or of a file that it changed in place.
pub(crate) fn may_be(body: &Body) -> bool {
    has_one(body) || body.steps.iter().any(|step| step.act.patch().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_have_such_names() {
        assert_eq!(owner_of(b"12-00000000000000ff"), Some(TxId(12)));
        assert_eq!(owner_of(b"12-00000000000000ff.3"), Some(TxId(12)));
        assert_eq!(owner_of(b"12-00000000000000ff.3w"), Some(TxId(12)));
        for name in [
            &b"12"[..],
            b"12.7~",
            b"12-ff",
            b"-00000000000000ff",
            b"x-00000000000000ff",
            b"12.r~",
            b"12-00000000000000ff.x",
        ] {
            assert_eq!(owner_of(name), None);
        }
    }
}
