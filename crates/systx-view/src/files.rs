//! Open files: which of them the kernel reads and writes by itself.
//!
//! An open handle is *direct* (passthrough to a private file) or *cached* (page cache, READ and WRITE
//! requests). The kernel refuses with `EIO` to mix the two on one inode, and wants one backing file for all
//! direct handles of it (fs/fuse/iomode.c). It counts a handle from the answer to OPEN until just before it
//! sends RELEASE, so what is live here covers what is live there.
//!
//! | live handles | all bytes private | answer |
//! |---|---|---|
//! | direct | any | direct, same backing file |
//! | cached | any | cached |
//! | none | yes | direct |
//! | none | no | cached |
//!
//! Pages stay cached between opens, as nobody outside can change what the transaction sees; they are dropped
//! at the first cached open after direct ones, which the page cache knows nothing of.

use std::collections::HashMap;
use systx_engine::transaction::Node;

/// A handle of the kernel's: what kind it is, in RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    /// Page cache and requests.
    Cached {
        /// The pages of earlier opens are still right.
        keep: bool,
    },
    /// Passthrough to the backing file with this number.
    Direct {
        /// Number of the backing file.
        backing_id: i32,
    },
}

/// Bit of `fh` of direct handles.
const FH_DIRECT: u64 = 1;
/// Bit of `fh` of handles that programs run from.
pub(crate) const FH_EXECUTING: u64 = 2;

impl Handle {
    /// Returns the same handle for a file whose pages of earlier opens may be wrong.
    pub fn without_pages(self) -> Handle {
        match self {
            Handle::Cached { .. } => Handle::Cached { keep: false },
            direct => direct,
        }
    }

    /// The number that comes back with RELEASE.
    pub fn fh(self) -> u64 {
        match self {
            Handle::Cached { .. } => 0,
            Handle::Direct { .. } => FH_DIRECT,
        }
    }
}

#[derive(Debug)]
struct File<B> {
    cached: u32,
    direct: u32,
    /// Of both kinds, those that programs run from.
    executing: u32,
    backing: Option<(B, i32)>,
    /// Direct handles may have changed bytes that the page cache still has.
    stale: bool,
    /// Bits or a capability are there that writing takes away.
    privileged: bool,
}

impl<B> Default for File<B> {
    fn default() -> Self {
        File { cached: 0, direct: 0, executing: 0, backing: None, stale: false, privileged: false }
    }
}

/// The purpose of an open, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reading only.
    Read,
    /// Writing.
    Write,
    /// Writing, and there are bits or a capability that writing takes away: its writers have to ask each time.
    WritePrivileged,
}

/// The open files of a view. `B` is a registered backing file, kept beside its number.
#[derive(Debug)]
pub struct Files<B>(HashMap<Node, File<B>>);

impl<B> Default for Files<B> {
    fn default() -> Self {
        Files(HashMap::new())
    }
}

impl<B> Files<B> {
    /// Counts a handle. `backing` is asked for when a direct handle is possible.
    pub fn open(&mut self, node: Node, how: Use, backing: impl FnOnce() -> Option<(B, i32)>) -> Handle {
        let file = self.0.entry(node).or_default();
        file.privileged |= how == Use::WritePrivileged;
        if file.cached == 0 && file.backing.is_none() && !(how != Use::Read && file.privileged) {
            file.backing = backing();
        }
        match &file.backing {
            Some((_, backing_id)) => {
                file.direct += 1;
                file.stale |= how != Use::Read;
                Handle::Direct { backing_id: *backing_id }
            }
            None => {
                file.cached += 1;
                Handle::Cached { keep: !std::mem::take(&mut file.stale) }
            }
        }
    }

    /// Uncounts a handle. Returns the backing file when no handle uses it any more.
    ///
    /// It is not kept for the next open: the transaction may give the node another one then.
    pub fn close(&mut self, node: Node, fh: u64) -> Option<B> {
        let file = self.0.get_mut(&node)?;
        if fh & FH_EXECUTING != 0 {
            file.executing = file.executing.saturating_sub(1);
        }
        match fh & FH_DIRECT {
            FH_DIRECT => file.direct = file.direct.saturating_sub(1),
            _ => file.cached = file.cached.saturating_sub(1),
        }
        let backing = if file.direct == 0 { file.backing.take() } else { None };
        if file.cached + file.direct == 0 && !file.stale {
            self.0.remove(&node);
        }
        backing.map(|(backing, _)| backing)
    }

    /// Notes that a program runs from a handle that was just counted; [`Files::close`] gets it by
    /// [`FH_EXECUTING`].
    pub(crate) fn execute(&mut self, node: Node) {
        if let Some(file) = self.0.get_mut(&node) {
            file.executing += 1;
        }
    }

    /// Returns true if a program runs from the file.
    pub(crate) fn is_executing(&self, node: Node) -> bool {
        self.0.get(&node).is_some_and(|file| file.executing > 0)
    }

    /// Notes that writing must take privileges from this file, if it is open.
    pub fn has_privileges(&mut self, node: Node) {
        if let Some(file) = self.0.get_mut(&node) {
            file.privileged = true;
        }
    }

    /// Notes that the privileges of this file were taken.
    pub fn lost_privileges(&mut self, node: Node) {
        if let Some(file) = self.0.get_mut(&node) {
            file.privileged = false;
        }
    }

    /// Returns true if writing must take privileges from this file.
    pub fn is_privileged(&self, node: Node) -> bool {
        self.0.get(&node).is_some_and(|file| file.privileged)
    }

    /// Returns true if the node has direct handles, whose writes are not seen here.
    pub fn is_direct(&self, node: Node) -> bool {
        self.0.get(&node).is_some_and(|file| file.direct > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Node = Node(9);

    fn none() -> Option<(&'static str, i32)> {
        None
    }

    fn seven() -> Option<(&'static str, i32)> {
        Some(("seven", 7))
    }

    fn unasked() -> Option<(&'static str, i32)> {
        panic!("a backing file is not wanted here")
    }

    #[test]
    fn handles_of_one_file_are_never_mixed() {
        let mut files = Files::default();
        assert_eq!(files.open(F, Use::Read, none), Handle::Cached { keep: true });
        // Private by now, but a cached handle is live.
        assert_eq!(files.open(F, Use::Write, unasked), Handle::Cached { keep: true });
        assert!(files.close(F, 0).is_none() && files.close(F, 0).is_none());
        assert_eq!(files.open(F, Use::Write, seven), Handle::Direct { backing_id: 7 });
        assert_eq!(files.open(F, Use::Read, unasked), Handle::Direct { backing_id: 7 });
        assert_eq!(files.open(F, Use::WritePrivileged, unasked), Handle::Direct { backing_id: 7 });
        assert_eq!(files.close(F, 1), None);
        assert_eq!(files.close(F, 1), None);
        assert_eq!(files.close(F, 1), Some("seven"));
    }

    #[test]
    fn pages_are_dropped_once_after_direct_writes_and_only_then() {
        let mut files = Files::default();
        files.open(F, Use::Read, seven);
        files.close(F, 1);
        assert_eq!(files.open(F, Use::Read, none), Handle::Cached { keep: true });
        files.close(F, 0);
        files.open(F, Use::Write, seven);
        files.close(F, 1);
        assert_eq!(files.open(F, Use::Read, none), Handle::Cached { keep: false });
        assert_eq!(files.open(F, Use::Write, none), Handle::Cached { keep: true });
    }

    #[test]
    fn a_writer_of_a_privileged_file_is_cached() {
        let mut files = Files::default();
        assert_eq!(files.open(F, Use::WritePrivileged, unasked), Handle::Cached { keep: true });
        assert!(files.is_privileged(F));
        files.close(F, 0);
        assert!(!files.is_privileged(F), "nothing is kept of a closed file");
        files.has_privileges(F);
        assert!(!files.is_privileged(F));
    }

    #[test]
    fn a_program_runs_until_its_last_handle_is_closed() {
        let mut files = Files::default();
        files.open(F, Use::Read, seven);
        assert!(!files.is_executing(F));
        files.open(F, Use::Read, unasked);
        files.execute(F);
        assert_eq!(files.close(F, FH_DIRECT), None);
        assert!(files.is_executing(F));
        assert_eq!(files.close(F, FH_DIRECT | FH_EXECUTING), Some("seven"));
        assert!(!files.is_executing(F));
    }

    #[test]
    fn closing_what_is_not_open_changes_nothing() {
        let mut files = Files::default();
        assert_eq!(files.close(F, 1), None);
        files.open(F, Use::Read, none);
        assert_eq!(files.close(F, 77), None);
        assert_eq!(files.close(F, 0), None);
    }
}
