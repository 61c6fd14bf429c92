//! One request on its way through the dispatcher.

use crate::nodes::{id_of, node_of};
use crate::wire::{Malformed, Request};
use systx_engine::outcome::VerbError;
use systx_engine::transaction::{Caller, Node};
use systx_os::Errno;
use zerocopy::FromBytes;

/// A request, and what its connection makes of node numbers.
pub struct Call<'a> {
    /// Index of the connection.
    pub connection: usize,
    /// Root of the connection's mount.
    pub root: Node,
    /// The node that the request is about.
    pub node: Node,
    /// The caller: fsuid and fsgid.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// The thread that asks.
    pub thread: u32,
    /// The number that the answer is to have.
    pub unique: u64,
    known: Node,
    request: Request<'a>,
}

impl<'a> Call<'a> {
    /// Reads the header. `known` is the last node that the kernel has got.
    pub fn new(connection: usize, root: Node, known: Node, request: Request<'a>) -> Result<Call<'a>, Errno> {
        let header = &request.header;
        let node = told(header.nodeid, root, known)?;
        let (uid, gid, thread) = (header.uid, header.gid, header.pid);
        let unique = header.unique;
        Ok(Call { connection, root, node, uid, gid, thread, unique, known, request })
    }

    /// Takes a structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        self.request.take()
    }
    /// Takes a name.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        self.request.name()
    }
    /// Takes a name, or `.` or `..`.
    pub fn name_or_dots(&mut self) -> Result<&'a [u8], Errno> {
        self.request.name_or_dots()
    }
    /// Takes a string that is no name.
    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        self.request.text()
    }
    /// Takes data.
    pub fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        self.request.bytes(len as usize)
    }

    /// A node's number on this connection.
    pub fn id(&self, node: Node) -> u64 {
        id_of(node, self.root)
    }
    /// The node with a number on this connection.
    pub fn other(&self, id: u64) -> Result<Node, Errno> {
        told(id, self.root, self.known)
    }
    /// On whose behalf something is made.
    pub fn caller(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

/// Returns the node with a number; one that the kernel never got would be an answer to another caller's
/// question.
fn told(id: u64, root: Node, known: Node) -> Result<Node, Errno> {
    node_of(id, root).filter(|node| *node <= known).ok_or(Errno::IO)
}

impl From<Malformed> for VerbError {
    fn from(m: Malformed) -> VerbError {
        VerbError::Os(m.into())
    }
}
