//! The root of a mount that is not the user's, but in which the user may make names, as all may in /tmp.
//!
//! In the user's namespace its owner has no number, and the kernel lets no program write below such an object
//! in a file system that was mounted there (fs/namei.c, `inode_permission`). So it is shown as the user's
//! own. Guarantees: that gives no owner's right. What the kernel would let the user do by it is refused here,
//! as the sticky bit and the true owner refuse it outside.

use crate::call::Call;
use crate::view::{ShownAs, View};
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_engine::transaction::{Attr, Node};
use systx_os::{Errno, Os};

impl<O: Os<Fd: AsFd>> View<O> {
    /// Returns the attributes as they are shown.
    pub(super) fn shown(&self, call: &Call<'_>, node: Node, attr: Attr) -> Attr {
        match self.shared(call.connection).filter(|_| node == call.root) {
            Some(ShownAs { uid, gid }) => Attr { uid, gid, ..attr },
            None => attr,
        }
    }

    /// Checks that the attributes of a request's node may be changed by the user that is shown as their
    /// owner.
    pub(super) fn may_change_attributes(&self, call: &Call<'_>) -> Verb<()> {
        match self.shared(call.connection) {
            Some(_) if call.node == call.root => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }

    /// Checks that a name may be removed from a directory, or given to another object: in a shared one only
    /// the user's own. A missing one belongs to no user.
    pub(super) fn may_take(&mut self, call: &Call<'_>, dir: Node, name: &[u8]) -> Verb<()> {
        let Some(shown) = self.shared(call.connection).filter(|_| dir == call.root) else { return Ok(()) };
        match self.tx.lookup(dir, name)? {
            Some((_, attr)) if attr.uid != shown.uid => Err(Errno::PERM.into()),
            _ => Ok(()),
        }
    }
}
