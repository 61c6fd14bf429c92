//! Requests to verbs: one function an operation, each decode → verb → encode.
//!
//! Guarantees: whatever comes, the answer is an answer; an error of ours is `EIO`, never a panic. Does not: touch a file
//! system; what it knows of files it has from [`Transaction`](systx_engine::transaction::Transaction).
//!
//! Not answered, which the kernel takes as "never ask again" (`ENOSYS`): FSYNC, FSYNCDIR, FLUSH, because durability comes
//! with the commit; OPENDIR, because listings are cached; ACCESS, because the kernel checks permissions; STATX, because
//! the engine knows no times of birth; POLL. Locks and leases were not agreed on: they stay in the kernel, inside the
//! view.

mod attrs;
mod data;
mod listing;
mod names;
mod open;
mod xattrs;

use crate::call::Call;
use crate::view::View;
use crate::wire::layout::InitIn;
use crate::wire::{negotiate, Answer, Opcode, Reply, Request};
use std::os::fd::AsFd;
use systx_engine::outcome::{Verb, VerbError};
use systx_engine::transaction::{Attr, Node};
use systx_os::{Errno, Os};

impl<O: Os<Fd: AsFd>> View<O> {
    /// Answers one message of a connection; `None` when the kernel does not wait for an answer.
    pub(crate) fn answer<'r>(
        &mut self,
        connection: usize,
        message: &[u8],
        reply: &'r mut Reply,
    ) -> Option<&'r [u8]> {
        let request = Request::parse(message).ok()?;
        let unique = request.header.unique;
        reply.clear();
        let result = match Opcode::from_wire(request.header.opcode) {
            None => Err(Errno::NOSYS),
            Some(opcode) if !opcode.has_reply() => return None,
            Some(Opcode::Init) => self.init(connection, request, reply),
            Some(Opcode::Destroy) => Ok(()),
            Some(opcode) => {
                let call = Call::new(connection, self.root(connection), self.known, request);
                let result = call.map_err(VerbError::from).and_then(|call| self.perform(opcode, call, reply));
                result.map_err(|e| self.error_number(e))
            }
        };
        Some(reply.finish(unique, result))
    }

    fn perform(&mut self, opcode: Opcode, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        match opcode {
            Opcode::Lookup => self.lookup(call, reply),
            Opcode::Getattr => self.getattr(call, reply),
            Opcode::Setattr => self.setattr(call, reply),
            Opcode::Readlink => self.readlink(call, reply),
            Opcode::Symlink => self.symlink(call, reply),
            Opcode::Mknod => self.mknod(call, reply),
            Opcode::Mkdir => self.mkdir(call, reply),
            Opcode::Unlink => self.unlink(call),
            Opcode::Rmdir => self.rmdir(call),
            Opcode::Rename => self.rename(call),
            Opcode::Rename2 => self.rename2(call),
            Opcode::Link => self.link(call, reply),
            Opcode::Open => self.open(call, reply),
            Opcode::Create => self.create(call, reply),
            Opcode::Tmpfile => self.tmpfile(call, reply),
            Opcode::Release => self.release(call),
            Opcode::Read => self.read(call, reply),
            Opcode::Write => self.write(call, reply),
            Opcode::Lseek => self.lseek(call, reply),
            Opcode::Fallocate => self.fallocate(call),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => self.copy_file_range(opcode, call, reply),
            Opcode::Readdir => self.readdir(call, reply),
            Opcode::Readdirplus => self.readdirplus(call, reply),
            Opcode::Statfs => self.statfs(call, reply),
            Opcode::Getxattr => self.getxattr(call, reply),
            Opcode::Listxattr => self.listxattr(call, reply),
            Opcode::Setxattr => self.setxattr(call),
            Opcode::Removexattr => self.removexattr(call),
            // Asked for at every isatty(3). `ENOSYS` would not be remembered (fs/fuse/ioctl.c).
            Opcode::Ioctl => Err(Errno::NOTTY.into()),
            Opcode::Init | Opcode::Destroy | Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt => {
                Err(Errno::IO.into())
            }
        }
    }

    /// A node's number for the kernel, which may use it from now on.
    fn number(&mut self, call: &Call<'_>, node: Node) -> u64 {
        self.known = self.known.max(node);
        call.id(node)
    }

    /// Answers with a node.
    fn introduce(&mut self, call: &Call<'_>, node: Node, attr: &Attr, reply: &mut Reply) {
        reply.entry(self.number(call, node), attr);
    }

    /// The number that a program gets. A doomed transaction's owner is told at once, too.
    fn error_number(&mut self, error: VerbError) -> Errno {
        match error {
            VerbError::Os(number) => number,
            VerbError::Doomed(conflict) => {
                self.doom(*conflict);
                Errno::IO
            }
        }
    }

    fn init(&mut self, connection: usize, mut request: Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let asked: InitIn = request.take()?;
        match negotiate(&asked, self.stack_depth(connection)) {
            Answer::Again(out) => reply.put(&out),
            Answer::Ready(out, agreed) => {
                self.set_agreed(connection, agreed);
                reply.put(&out);
            }
            Answer::Unusable(missing) => {
                self.set_unusable(missing);
                return Err(Errno::PROTO);
            }
        }
        Ok(())
    }
}
