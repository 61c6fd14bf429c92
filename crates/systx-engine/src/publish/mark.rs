//! Marks: a file `tx/<id>-<nonce>` says that all attributes of a record were set.
//!
//! Names tell by their slots whether a step was taken; an attribute has nothing of the kind, so an outsider who puts back exactly
//! the old value looks like a step that is still to be taken. The mark is made behind the last step. Where metadata survive a power
//! loss as a prefix of their order, a mark that is there proves that the attributes were on the disk with it: what is found
//! otherwise now is somebody's later change, whatever its value.
//!
//! Guarantees: a mark is never on the disk before what it says. Does not: say anything of bytes, which are written out in any
//! order; nor is it needed: where there is none, as the disk was full, values alone decide.

use super::site::Site;
use super::Pending;
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::objects::identify;
use crate::record::{Act, Body, Change};
use systx_os::{FsKind, Os};

/// Name of a record's mark, in `tx/`.
pub(crate) fn name_of(body: &Body) -> Vec<u8> {
    format!("{}-{:016x}", body.id, body.nonce).into_bytes()
}

/// The transaction whose mark has that name.
pub(crate) fn owner_of(name: &[u8]) -> Option<TxId> {
    let (id, nonce) = std::str::from_utf8(name).ok()?.split_once('-')?;
    u64::from_str_radix(nonce, 16).ok().filter(|_| nonce.len() == 16)?;
    id.parse().ok().map(TxId)
}

/// Whether a mark proves something on a file system of this kind. (btrfs keeps the order within one directory only.)
pub(crate) fn prove_on(kind: FsKind) -> bool {
    matches!(kind, FsKind::Ext4 | FsKind::Xfs)
}

/// Whether a record gets one: times have a rule of their own.
pub(crate) fn has_one(body: &Body) -> bool {
    let sets = |change: &Change| !matches!(change, Change::Times { .. });
    body.steps.iter().any(|step| matches!(&step.act, Act::Attr { changes, .. } if changes.iter().any(sets)))
}

/// Whether all attributes of a record were set by an earlier pass.
pub(super) fn is_there<O: Os>(site: &Site<'_, O>, body: &Body) -> Result<bool, Pending> {
    let Some(marks) = site.marks.filter(|_| !site.is_own && has_one(body)) else { return Ok(false) };
    let found = identify(site.os, marks, &name_of(body));
    let found = found.map_err(|error| Pending { path: Vec::new(), error })?.is_some();
    Ok(found && !mutant::on(Mutant::MarkIgnored))
}

/// Makes it. Where there is no room for it, a redo goes by values.
pub(super) fn make<O: Os>(site: &Site<'_, O>, body: &Body) {
    if let Some(marks) = site.marks.filter(|_| has_one(body)) {
        let _ = site.os.create(marks, &name_of(body), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_have_such_names() {
        assert_eq!(owner_of(b"12-00000000000000ff"), Some(TxId(12)));
        for name in [&b"12"[..], b"12.7~", b"12-ff", b"-00000000000000ff", b"x-00000000000000ff", b"12.r~"] {
            assert_eq!(owner_of(name), None);
        }
    }
}
