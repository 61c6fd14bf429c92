//! What a server of a view asks of nodes besides system calls: how long an answer holds, what the kernel
//! knows, which names are those of subtransactions' areas.

use crate::outcome::Verb;
use crate::transaction::{Node, Transaction};
use systx_os::Os;

impl<O: Os> Transaction<O> {
    /// Returns true if the known properties of a node stay true as long as the transaction runs.
    pub fn stays(&self, node: Node) -> bool {
        self.workset.stays(node)
    }

    /// Returns true if the known object of a name stays true as long as the transaction runs.
    pub fn name_stays(&self, dir: Node, name: &[u8]) -> bool {
        self.workset.name_stays(dir, name)
    }

    /// Size of the committed object when it was looked at last, in bytes.
    pub fn size_seen(&self, node: Node) -> u64 {
        self.workset.size_seen(node)
    }

    /// Tells a node from those that had its number before.
    pub fn generation(&self, node: Node) -> u32 {
        self.workset.generation(node)
    }

    /// How often a node is open.
    pub fn opens(&self, node: Node) -> u32 {
        self.workset.opens(node)
    }

    /// Notes that the kernel got a node; returns true if it did not have it.
    pub fn told(&mut self, node: Node) -> bool {
        self.workset.told(node)
    }

    /// Returns true if the kernel has a node by number, of those that may be forgotten.
    pub fn is_told(&self, node: Node) -> bool {
        self.workset.is_told(node)
    }

    /// Subtracts from the lookup count of a node. At 0 its number may be given to another one.
    pub fn forget_node(&mut self, node: Node, times: u64) {
        // Deleting what has no name left is its parent's part.
        if self.ours().is_ok() {
            self.workset.forget_node(node, times);
        }
    }

    /// Sets how many files and directories it may keep open itself; there is no bound before. For callers
    /// that know the limit of the process.
    pub fn hold_files(&mut self, most: usize) {
        self.workset.hold_files(most);
    }

    /// Returns the name of areas of a user's subtransactions. To be shown to that user only.
    pub fn sub_area_name(&mut self, uid: u32) -> Vec<u8> {
        self.workset.sub_area_name(uid)
    }

    /// Returns true for the name of an area of a subtransaction.
    pub fn is_sub_area(&self, name: &[u8]) -> bool {
        self.workset.is_sub_area(name)
    }

    /// The paths of such directories on a mount, from its root, as far as a user may know them: root all,
    /// others their own.
    pub fn sub_areas(&self, root: Node, uid: u32) -> Vec<Vec<u8>> {
        self.workset.sub_areas(root, uid)
    }

    /// Makes areas that other users' subtransactions have left ordinary directories beside their places, so that they
    /// don't keep this transaction from committing. Returns the users and the new paths.
    ///
    /// To be called when no process of the transaction is left.
    ///
    /// # Errors
    /// As of mkdir(2) in the directory that an area is in.
    pub fn set_aside_sub_areas(&mut self) -> Verb<Vec<(u32, Vec<u8>)>> {
        self.ours()?;
        self.workset.set_aside_sub_areas()
    }
}
