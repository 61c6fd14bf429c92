//! Opening and closing regular files.

use super::attrs::Kill;
use crate::call::Call;
use crate::files::{Handle, Use, FH_EXECUTING};
use crate::view::View;
use crate::wire::layout::{fopen, CreateIn, OpenIn, OpenOut, ReleaseIn, OPEN_KILL_SUIDGID};
use crate::wire::Reply;
use std::os::fd::AsFd;
use systx_engine::outcome::Verb;
use systx_engine::transaction::{Access, Attr, Node};
use systx_os::{Errno, Os};

/// open(2) flags, as on every architecture that we run on.
const O_ACCMODE: u32 = 0o3;
const O_WRONLY: u32 = 0o1;
const O_TRUNC: u32 = 0o1000;
/// Flags that count for each call as they are at that moment: fcntl(2) changes them, RWF_NOAPPEND overrides
/// one. (O_DIRECT has two numbers, of which the other one is that of O_DIRECTORY, which no regular file is
/// opened with.)
const EACH_CALL: u32 = 0o2000 | 0o40_000 | 0o200_000;
/// __FMODE_EXEC of the kernel (include/linux/fs.h): opened by execve(2).
const FMODE_EXEC: u32 = 0o40;

impl<O: Os<Fd: AsFd>> View<O> {
    pub(super) fn open(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: OpenIn = call.take()?;
        let (access, truncate) = (access(args.flags), args.flags & O_TRUNC != 0);
        // The kernel refuses writers of a running program before it asks us, but O_RDONLY | O_TRUNC only after we have
        // truncated it (fs/namei.c, handle_truncate). Writers that come here have been let through.
        if truncate && access == Access::Read && self.files.is_executing(call.node) {
            return Err(Errno::TXTBSY.into());
        }
        let before = self.before_open(call.node);
        self.tx.open(call.node, access, truncate)?;
        self.after_open(&call, before, access, truncate)?;
        let handle = self.admit(&call, access, truncate, args.open_flags);
        let handle = handle.inspect_err(|_| self.tx.close(call.node))?;
        let mut out = open_out(if before.pages_stay { handle } else { handle.without_pages() }, args.flags);
        if args.flags & FMODE_EXEC != 0 {
            self.files.execute(call.node);
            out.fh |= FH_EXECUTING;
        }
        reply.put(&out);
        Ok(())
    }

    pub(super) fn create(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: CreateIn = call.take()?;
        let (node, attr) = self.tx.create(call.node, call.name()?, args.mode, call.caller(args.umask))?;
        self.opened(&call, node, &attr, &args, reply)
    }

    pub(super) fn tmpfile(&mut self, mut call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        let args: CreateIn = call.take()?;
        let (node, attr) = self.tx.tmpfile(call.node, args.mode, call.caller(args.umask))?;
        self.opened(&call, node, &attr, &args, reply)
    }

    pub(super) fn release(&mut self, mut call: Call<'_>) -> Verb<()> {
        let args: ReleaseIn = call.take()?;
        if let Some(backing) = self.files.close(call.node, args.fh) {
            self.device(call.connection).close_backing(backing);
        }
        self.tx.close(call.node);
        Ok(())
    }

    /// Opens and answers with a file that was just made.
    fn opened(
        &mut self,
        call: &Call<'_>,
        node: Node,
        attr: &Attr,
        args: &CreateIn,
        reply: &mut Reply,
    ) -> Verb<()> {
        let access = access(args.flags);
        self.tx.open(node, access, false)?;
        let how = if attr.mode & 0o6000 != 0 { Use::WritePrivileged } else { Use::Write };
        let handle = self.handle(call.connection, node, if access == Access::Read { Use::Read } else { how });
        self.introduce(call, node, attr, reply);
        reply.put(&open_out(handle, args.flags));
        Ok(())
    }

    /// Gives an opened file its handle, after taking the privileges that must go at once.
    fn admit(&mut self, call: &Call<'_>, access: Access, truncate: bool, open_flags: u32) -> Verb<Handle> {
        let node = call.node;
        if access == Access::Read && !truncate {
            return Ok(self.handle(call.connection, node, Use::Read));
        }
        let mut privileged = self.is_privileged(node)?;
        // Direct handles write without asking, so this one can't wait for its first write.
        let unseen = self.files.is_direct(node);
        if privileged && (truncate || unseen) {
            let all = open_flags & OPEN_KILL_SUIDGID != 0 || (unseen && call.uid != 0);
            self.kill_privileges(call, node, if all { Kill::All } else { Kill::Capability })?;
            privileged = self.is_privileged(node)?;
        }
        let how = if privileged { Use::WritePrivileged } else { Use::Write };
        Ok(self.handle(call.connection, node, how))
    }

    /// Counts a handle and says of which kind it is.
    fn handle(&mut self, connection: usize, node: Node, how: Use) -> Handle {
        if how != Use::Read {
            self.written.set();
        }
        let (tx, link) = (&mut self.tx, &mut self.connections[connection]);
        self.files.open(node, how, || {
            if !link.passthrough {
                return None;
            }
            match link.device.open_backing(tx.backing(node)?.as_fd()) {
                Ok(backing) => {
                    let id = backing.id();
                    Some((backing, id))
                }
                Err(e) => {
                    // Not for this user or not on this file system: it stays so, and the page cache does it, too.
                    link.passthrough = matches!(e, Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC);
                    None
                }
            }
        })
    }
}

fn access(flags: u32) -> Access {
    match flags & O_ACCMODE {
        0 => Access::Read,
        O_WRONLY => Access::Write,
        _ => Access::ReadWrite,
    }
}

fn open_out(handle: Handle, flags: u32) -> OpenOut {
    let (open_flags, backing_id) = match handle {
        Handle::Cached { keep: true } => (fopen::KEEP_CACHE, 0),
        Handle::Cached { keep: false } => (0, 0),
        // With KEEP_CACHE the kernel would refuse it.
        // The kernel opens the backing file with the flags of this moment, for good (fs/fuse/passthrough.c,
        // backing_file_open). With DIRECT_IO reads and writes are requests, at the offset that the flags of each make;
        // mappings still pass through.
        Handle::Direct { backing_id } if flags & EACH_CALL != 0 => {
            (fopen::PASSTHROUGH | fopen::DIRECT_IO, backing_id)
        }
        Handle::Direct { backing_id } => (fopen::PASSTHROUGH, backing_id),
    };
    OpenOut { fh: handle.fh(), open_flags, backing_id }
}
