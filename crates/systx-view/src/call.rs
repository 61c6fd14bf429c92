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
    /// Who asks: fsuid and fsgid.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    request: Request<'a>,
}

impl<'a> Call<'a> {
    /// Reads the header.
    pub fn new(connection: usize, root: Node, request: Request<'a>) -> Result<Call<'a>, Errno> {
        let node = node_of(request.header.nodeid, root).ok_or(Errno::IO)?;
        Ok(Call { connection, root, node, uid: request.header.uid, gid: request.header.gid, request })
    }

    /// Takes a structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        self.request.take()
    }
    /// Takes a name.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        self.request.name()
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
        node_of(id, self.root).ok_or(Errno::IO)
    }
    /// On whose behalf something is made.
    pub fn caller(&self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask }
    }
}

impl From<Malformed> for VerbError {
    fn from(m: Malformed) -> VerbError {
        VerbError::Os(m.into())
    }
}
