//! The root of a mount that is not the user's, but in which he may make names, as all may in /tmp.
//!
//! In his user namespace its owner is nobody, and the kernel lets nobody write below an object of nobody's in a file system that was
//! mounted there (fs/namei.c, `inode_permission`). So it is shown as his own. Guarantees: that gives him no owner's right. What
//! the kernel would let him do by it is refused here, as the sticky bit and the true owner refuse it outside.

use crate::call::Call;
use crate::view::View;
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_engine::transaction::{Attr, Node};
use systx_os::{Errno, Os};

/// Whom a root is shown to belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownAs {
    /// The user.
    pub uid: u32,
    /// His group.
    pub gid: u32,
}

impl<O: Os<Fd: AsFd>> View<O> {
    /// Attributes as they are told.
    pub(super) fn shown(&self, call: &Call<'_>, node: Node, attr: Attr) -> Attr {
        match self.shared(call.connection).filter(|_| node == call.root) {
            Some(ShownAs { uid, gid }) => Attr { uid, gid, ..attr },
            None => attr,
        }
    }

    /// Whether the attributes of a request's node may be changed by who is shown as their owner.
    pub(super) fn may_change_attributes(&self, call: &Call<'_>) -> Verb<()> {
        match self.shared(call.connection) {
            Some(_) if call.node == call.root => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }

    /// Whether a name may be taken from a directory, or given to another object: in a shared one only those of his own. One that
    /// is missing is nobody's.
    pub(super) fn may_take(&mut self, call: &Call<'_>, dir: Node, name: &[u8]) -> Verb<()> {
        let Some(shown) = self.shared(call.connection).filter(|_| dir == call.root) else { return Ok(()) };
        match self.tx.lookup(dir, name)? {
            Some((_, attr)) if attr.uid != shown.uid => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }
}
