//! Files that a redo patches, kept open under their leases from record to record.
//!
//! Most records of a long log change the same few files, and opening one by its handle, taking a lease and
//! giving both back costs more than the change. Guarantees: a record finds a file here only if it could open
//! it anew and no process waits for it. Does not: look into files; each step looks at its sectors or
//! attributes as ever.

use crate::record::{Act, Body};
use std::collections::HashMap;
use std::sync::Arc;
use systx_os::{Handle, Lease, Os};

/// Files open for writing, by handle.
pub(crate) type Targets<O> = HashMap<Handle, Arc<<O as Os>::Fd>>;

/// Files kept at a time.
const KEPT_MAX: usize = 16;

/// Keeps a file that was opened by its handle and is held under a write lease.
pub(super) fn keep<O: Os>(kept: &mut Targets<O>, object: Handle, fd: Arc<O::Fd>) {
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(object, fd);
}

/// Lets go, before a record, of what must not be kept through it; whether it may keep what it opens.
///
/// A step that isn't taken through the kept descriptor may open the file otherwise, and our own lease would
/// keep it out as it does everybody. So a record of other steps than PATCH and ATTR neither finds anything
/// kept nor keeps it.
pub(crate) fn before_record<O: Os>(os: &O, kept: &mut Targets<O>, body: &Body) -> bool {
    let in_place = body.steps.iter().all(|step| matches!(step.act, Act::Patch(_) | Act::Attr { .. }));
    if !in_place {
        kept.clear();
    }
    // Asked, not taken again: that succeeds while an open breaks it, which then waits on. Also for files that
    // this record doesn't change: an open is not to wait for the next one that does.
    kept.retain(|object, fd| {
        os.lease_held(fd) == Ok(Lease::Write) && (!changes(body, object) || opens_again(os, fd))
    });
    in_place
}

fn changes(body: &Body, file: &Handle) -> bool {
    body.steps.iter().any(|step| match &step.act {
        Act::Patch(patch) => patch.file == *file,
        Act::Attr { object, .. } => object == file,
        _ => false,
    })
}

/// Returns true if a file could be opened for writing once more. A removed one lives on as long as it is open
/// here.
fn opens_again<O: Os>(os: &O, fd: &O::Fd) -> bool {
    os.stat(fd).is_ok_and(|stat| stat.nlink > 0 && !stat.immutable && !stat.append_only)
}
