//! The verbs.
#![allow(unused_variables)]

use crate::outcome::Verb;
use crate::transaction::{Access, Attr, Caller, DirEntry, Node, SetAttr, Transaction};
use std::sync::Arc;
use systx_os::{Errno, Os, Rename, SetXattr, StatFs};

impl<O: Os> Transaction<O> {
    /// The root of a mount.
    pub fn root(&self, mount: usize) -> Node {
        Node(1)
    }
    /// The mount of a node.
    pub fn mount_of(&self, node: Node) -> usize {
        0
    }
    /// Looks a name up; `None`: it does not exist, which is a fact.
    pub fn lookup(&mut self, dir: Node, name: &[u8]) -> Verb<Option<(Node, Attr)>> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// The directory that holds a directory; of a root, itself.
    pub fn parent(&mut self, dir: Node) -> Node {
        Node(1)
    }
    /// Attributes.
    pub fn getattr(&mut self, node: Node) -> Verb<Attr> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Changes attributes and returns what they are then.
    pub fn setattr(&mut self, node: Node, set: &SetAttr) -> Verb<Attr> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// The names of a directory: a snapshot for one open directory.
    pub fn readdir(&mut self, dir: Node) -> Verb<Arc<[DirEntry]>> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Counts an open; an unlinked file that is open keeps its bytes.
    pub fn open(&mut self, node: Node, access: Access, truncate: bool) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Undoes one open.
    pub fn close(&mut self, node: Node) {}
    /// The private file whose bytes are all of the node's: after an open, it may be read and written directly.
    pub fn backing(&mut self, node: Node) -> Option<&O::Fd> {
        None
    }
    /// Reads at `offset`; short only at the end of the file.
    pub fn read_at(&mut self, node: Node, buf: &mut [u8], offset: u64) -> Verb<usize> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Writes at `offset`.
    pub fn write_at(&mut self, node: Node, bytes: &[u8], offset: u64) -> Verb<usize> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Writes at the end; returns where that was.
    pub fn append(&mut self, node: Node, bytes: &[u8]) -> Verb<(u64, usize)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// fallocate(2) with its flags; EOPNOTSUPP for those that move bytes.
    pub fn fallocate(&mut self, node: Node, mode: i32, offset: u64, len: u64) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Copies bytes between files; may be short.
    pub fn copy_range(
        &mut self,
        from: Node,
        from_offset: u64,
        to: Node,
        to_offset: u64,
        len: u64,
    ) -> Verb<u64> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Start of the next data or hole at or after `offset`; `ENXIO` past the end.
    pub fn seek(&mut self, node: Node, offset: u64, hole: bool) -> Verb<u64> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes a regular file; `EEXIST` when the name is taken.
    pub fn create(&mut self, dir: Node, name: &[u8], mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes a nameless regular file; [`Transaction::link`] may name it later.
    pub fn tmpfile(&mut self, dir: Node, mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes a directory.
    pub fn mkdir(&mut self, dir: Node, name: &[u8], mode: u32, caller: Caller) -> Verb<(Node, Attr)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes a FIFO, socket, device or regular file; `mode` includes the type bits.
    pub fn mknod(
        &mut self,
        dir: Node,
        name: &[u8],
        mode: u32,
        rdev: u64,
        caller: Caller,
    ) -> Verb<(Node, Attr)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes a symbolic link.
    pub fn symlink(&mut self, dir: Node, name: &[u8], target: &[u8], caller: Caller) -> Verb<(Node, Attr)> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Gives an object one more name.
    pub fn link(&mut self, node: Node, dir: Node, name: &[u8]) -> Verb<Attr> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Removes a name that is no directory.
    pub fn unlink(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Node, name: &[u8]) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// renameat2(2).
    pub fn rename(
        &mut self,
        dir: Node,
        name: &[u8],
        new_dir: Node,
        new_name: &[u8],
        how: Rename,
    ) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Target of a symbolic link.
    pub fn readlink(&mut self, node: Node) -> Verb<Vec<u8>> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Value of an extended attribute.
    pub fn getxattr(&mut self, node: Node, name: &[u8]) -> Verb<Vec<u8>> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Names of the extended attributes.
    pub fn listxattr(&mut self, node: Node) -> Verb<Vec<Vec<u8>>> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Sets an extended attribute.
    pub fn setxattr(&mut self, node: Node, name: &[u8], value: &[u8], mode: SetXattr) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Removes an extended attribute.
    pub fn removexattr(&mut self, node: Node, name: &[u8]) -> Verb<()> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// File-system totals.
    pub fn statfs(&mut self, node: Node) -> Verb<StatFs> {
        Err(Errno::OPNOTSUPP.into())
    }
    /// Makes the transaction one that can't commit, and says why. The first reason stays.
    pub fn refused(&mut self, why: String) {}
    /// Some present path of a node, for messages.
    pub fn path_of(&self, node: Node) -> Vec<u8> {
        Vec::new()
    }
    /// Whether there is anything to commit.
    pub fn changes(&self) -> bool {
        false
    }
    /// Forgets everything: nothing happened.
    pub fn abort(self) {}
}
