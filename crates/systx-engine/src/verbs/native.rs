//! Directories that processes share: [`crate::workset::native`].

use crate::outcome::Verb;
use crate::transaction::{Node, Transaction};
use std::sync::Arc;
use systx_os::Os;

impl<O: Os> Transaction<O> {
    /// Shares a directory that was made in this transaction, and is empty, with processes that reach it without asking:
    /// from here on verbs find in it what these make. Returns the directory itself, to be bound where they look for it.
    ///
    /// `None`: it stays as it is, being another directory than that.
    ///
    /// # Errors
    /// As of open(2).
    pub fn share(&mut self, dir: Node) -> Verb<Option<Arc<O::Fd>>> {
        self.ours()?;
        self.workset.share(self.workset.ix(dir))
    }

    /// No process reaches a directory any more that was shared. Whoever had a file or directory below it open, or
    /// mapped, or as its working directory, has it no more: an unmount that was not lazy has shown that.
    pub fn leave(&mut self, dir: Node) {
        let dir = self.workset.ix(dir);
        self.workset.leave_native(dir);
    }

    /// Returns true if what verbs say of an object may be another thing in a moment: it is such a directory, or has a name
    /// in one.
    pub fn is_within_shared(&self, node: Node) -> bool {
        self.workset.is_within_shared(self.workset.ix(node))
    }

    /// Returns true if what verbs say of the names in a directory may be another thing in a moment.
    pub fn is_shared(&self, dir: Node) -> bool {
        self.workset.is_shared(self.workset.ix(dir))
    }
}
