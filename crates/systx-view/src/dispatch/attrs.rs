//! Attributes, and the privileges that a change takes away.

use crate::call::Call;
use crate::view::View;
use crate::wire::layout::{fattr, SetattrIn, StatfsOut};
use crate::wire::{stale_attributes, Reply};
use std::os::fd::AsFd;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::{Node, SetAttr, SetTime};
use systx_os::{Errno, FileType, Os, Timestamp};

const SETUID_SETGID: u32 = 0o6000;
/// The changes that a SETATTR can ask for.
const CHANGES: u32 = fattr::MODE
    | fattr::UID
    | fattr::GID
    | fattr::SIZE
    | fattr::ATIME
    | fattr::MTIME
    | fattr::ATIME_NOW
    | fattr::MTIME_NOW
    | fattr::KILL_SUIDGID;
const CAPABILITY: &[u8] = b"security.capability";

/// The privileges that a change of a file's bytes or owner takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    /// `security.capability`, at any change.
    Capability,
    /// setuid and setgid bits, too.
    All,
}

impl Kill {
    /// What a change by this user takes: root keeps its programs' bits.
    pub(super) fn by(uid: u32) -> Kill {
        match uid {
            0 => Kill::Capability,
            _ => Kill::All,
        }
    }
}

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn getattr(&mut self, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let attr = self.tx.getattr(call.node)?;
        reply.attr(&self.shown(&call, call.node, attr), self.lasts(call.node));
        Ok(())
    }

    pub(super) fn setattr(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: SetattrIn = call.take()?;
        self.may_change_attributes(&call)?;
        let mut set = wanted(&args);
        if set.uid.is_some() || set.gid.is_some() {
            // chown(2) of anything but a directory clears them, also for root (fs/open.c, chown_common).
            set.kill_priv |= self.tx.kind(call.node) != FileType::Directory;
        } else if args.valid & CHANGES == 0 {
            // This is the rest of chown(2) with neither owner nor group, and of a write through a passthrough
            // handle to a file that got setuid or setgid since it was opened: the kernel leaves out what
            // HANDLE_KILLPRIV_V2 has the server do (fs/fuse/dir.c, fuse_setattr), and asks for nothing else.
            if self.tx.kind(call.node) != FileType::Directory {
                self.may_clear(&call)?;
                self.kill_privileges(&call, call.node, Kill::All)?;
            }
        } else if set.size.is_some() && !set.kill_priv && self.is_privileged(call.node)? {
            self.kill_privileges(&call, call.node, Kill::Capability)?;
        }
        let attr = self.tx.setattr(call.node, &set)?;
        reply.attr(&attr, self.lasts(call.node));
        if set.mode.is_some_and(|mode| mode & SETUID_SETGID != 0) {
            self.files.has_privileges(call.node);
        }
        Ok(())
    }

    pub(super) fn statfs(&mut self, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let s = self.tx.statfs(call.node)?;
        reply.put(&StatfsOut {
            blocks: s.blocks,
            bfree: s.bfree,
            bavail: s.bavail,
            files: s.files,
            ffree: s.ffree,
            bsize: s.bsize,
            namelen: s.namelen,
            frsize: s.frsize,
            ..Default::default()
        });
        Ok(())
    }

    /// Returns true if writing to a file must take something from it: setuid, setgid or a capability.
    ///
    /// The kernel leaves that to the server (HANDLE_KILLPRIV_V2), which saves it a question at every write.
    pub(super) fn is_privileged(&mut self, node: Node) -> Verb<bool> {
        Ok(self.tx.getattr(node)?.mode & SETUID_SETGID != 0 || self.has_capability(node)?)
    }

    fn has_capability(&mut self, node: Node) -> Verb<bool> {
        match self.tx.getxattr(node, CAPABILITY) {
            Ok(_) => Ok(true),
            Err(VerbError::Os(_)) => Ok(false),
            Err(doomed) => Err(doomed),
        }
    }

    /// Checks that the caller may have setuid and setgid cleared: by chown(2) the owner and root, which the
    /// kernel checks as a change of the mode (fs/attr.c, setattr_prepare) and leaves out here together with
    /// the mode; by a write every process that has the file open. The two requests are the same, so the
    /// thread's call is looked at: it waits for the answer.
    ///
    /// # Errors
    ///
    /// `EPERM` for others, if there is anything to be cleared.
    fn may_clear(&mut self, call: &Call<'_>) -> Verb<()> {
        let attr = self.tx.getattr(call.node)?;
        let may = attr.mode & SETUID_SETGID == 0
            || call.uid == 0
            || call.uid == attr.uid
            || systx_os::process::is_writing(call.thread);
        may.then_some(()).ok_or(Errno::PERM.into())
    }

    /// Takes privileges from a file whose bytes change.
    pub(super) fn kill_privileges(&mut self, call: &Call<'_>, node: Node, kill: Kill) -> Verb<()> {
        if self.has_capability(node)? {
            self.tx.removexattr(node, CAPABILITY)?;
        }
        if kill == Kill::All {
            self.tx.setattr(node, &SetAttr { kill_priv: true, ..Default::default() })?;
            self.files.lost_privileges(node);
            // The kernel leaves the mode to us, but not its cache of it. A failure means that it has none.
            let _ = self.device(call.connection).write(&stale_attributes(call.id(node)));
        }
        Ok(())
    }
}

fn wanted(args: &SetattrIn) -> SetAttr {
    let has = |flag| args.valid & flag != 0;
    let time = |flag, now, sec: u64, nsec| {
        if has(now) {
            Some(SetTime::Now)
        } else {
            has(flag).then_some(SetTime::At(Timestamp { sec: sec as i64, nsec }))
        }
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(args.mode & 0o7777),
        uid: has(fattr::UID).then_some(args.uid),
        gid: has(fattr::GID).then_some(args.gid),
        size: has(fattr::SIZE).then_some(args.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtimensec),
        kill_priv: has(fattr::KILL_SUIDGID),
    }
}

/// Checks what the kernel should never send, too: a size that no file can have.
pub(super) fn offset(value: u64) -> Result<u64, Errno> {
    i64::try_from(value).map(|_| value).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_fields_are_set() {
        let args =
            SetattrIn { mode: 0o104755, uid: 5, gid: 6, size: 7, atime: 8, mtime: 9, ..Default::default() };
        let none = wanted(&args);
        assert!(none.mode.is_none() && none.uid.is_none() && none.gid.is_none() && none.size.is_none());
        assert!(none.atime.is_none() && none.mtime.is_none() && !none.kill_priv);
        let valid =
            fattr::MODE | fattr::SIZE | fattr::ATIME | fattr::MTIME_NOW | fattr::MTIME | fattr::KILL_SUIDGID;
        let some = wanted(&SetattrIn { valid, ..args });
        assert_eq!((some.mode, some.size, some.uid), (Some(0o4755), Some(7), None));
        assert_eq!(some.atime, Some(SetTime::At(Timestamp { sec: 8, nsec: 0 })));
        assert_eq!((some.mtime, some.kill_priv), (Some(SetTime::Now), true));
    }
}
