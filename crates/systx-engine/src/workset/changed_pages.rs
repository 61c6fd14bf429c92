//! The pages of a file that were written: what is kept of them.

use crate::facts::LowerFile;
use crate::id::PAGE_BYTES;
use crate::record::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use systx_os::Os;

/// The pages of a file that were written, in memory.
pub(crate) struct Pages<O: Os> {
    pub lower: Option<Arc<LowerFile<O>>>,
    pub changed: Changed,
}

/// They by their numbers.
pub(crate) type Changed = BTreeMap<u64, Page>;

/// A page as far as the file went when it was read, and as far as it goes now.
#[derive(Clone)]
pub(crate) struct Page {
    pub before: Vec<u8>,
    pub now: Vec<u8>,
}

/// Where they are in the file.
pub(crate) fn ranges(changed: &Changed) -> impl Iterator<Item = Range<u64>> + '_ {
    changed.iter().map(|(n, page)| n * PAGE_BYTES..n * PAGE_BYTES + page.now.len() as u64)
}

/// Returns true if the last sector is changed of a page that the file ended in, and that the end cuts, or if there are
/// bytes behind it.
pub(crate) fn write_end(changed: &Changed) -> bool {
    changed.values().any(|page| {
        let last = page.before.len() / SECTOR_BYTES * SECTOR_BYTES;
        page.now[last..] != page.before[last..]
    })
}
