//! Marks: a file `tx/<id>-<nonce>` proves that all attributes of a record were set.
//!
//! A name's staging entry shows whether its step was taken; an attribute has nothing of the kind, so an
//! outsider who restores exactly the old value looks like a step that is still to be taken. The mark is made
//! behind the last step. Where metadata survive a power loss as a prefix of their order, a mark that is there
//! proves that the attributes were on the disk with it: a difference is then an outsider's later change,
//! whatever its value.
//!
//! Guarantees: a mark is never on the disk before the attributes. Does not: say anything of bytes, which are
//! written out in any order; nor is it needed: where there is none, as the disk was full, values alone
//! decide.

use super::site::Site;
use super::Pending;
use crate::domain::marks::{has_one, name_of};
use crate::mutant::{self, Mutant};
use crate::objects::identify;
use crate::record::Body;
use systx_os::Os;

/// Returns true if all attributes of a record were set by an earlier pass.
pub(super) fn is_there<O: Os>(site: &Site<'_, O>, body: &Body) -> Result<bool, Pending> {
    // The owner takes the steps for the first time: no pass before it can have made a mark.
    let Some(marks) = site.marks.filter(|_| !site.is_own && has_one(body)) else { return Ok(false) };
    let found = identify(site.os, marks, &name_of(body));
    let found = found.map_err(|error| Pending { path: Vec::new(), error })?.is_some();
    Ok(found && !mutant::on(Mutant::MarkIgnored))
}

/// Makes it. Where there is no room for it, a redo goes by values.
pub(super) fn make<O: Os>(site: &Site<'_, O>, body: &Body) {
    if let Some(marks) = site.marks.filter(|_| has_one(body)) {
        // Not synced: one that survives proves that the attributes did, and one that is lost does no harm.
        let _ = site.os.create(marks, &name_of(body), 0);
    }
}
