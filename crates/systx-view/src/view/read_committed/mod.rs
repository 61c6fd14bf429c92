//! Read committed (`--isolation committed`, docs/protocol.md): what a view does otherwise where most of what programs
//! read stays out of the read set, so that the kernel must not keep it for ever.
//!
//! Owns: the nodes that the kernel is asked to forget ([`queue`]), the requests that come only here (directories that
//! are opened and closed, nodes that are forgotten), and the notifications to the kernel when a file is opened that may
//! have changed since it was looked at. Guarantees: in a serializable transaction nothing of it costs a request. Does
//! not: decide what is in the read set; the engine does.

mod queue;

use super::View;
use crate::call::Call;
use crate::nodes::{id_of, node_of};
use crate::wire::layout::{BatchForgetIn, ForgetIn, ForgetOne, OpenOut, ReleaseIn};
use crate::wire::{forget_unused, stale_attributes, Opcode, Reply, Request};
use std::collections::HashSet;
use std::os::fd::AsFd;
use systx_engine::outcome::{Isolation, Verb};
use systx_engine::transaction::{Access, Node};
use systx_os::{Errno, Os};

/// What a view keeps for read committed.
#[derive(Debug, Default)]
pub(crate) struct ReadCommitted {
    /// Nodes out of the read set that the kernel has got.
    queue: queue::Queue,
    /// Claimed nodes that were opened since they are.
    settled: HashSet<Node>,
}

/// A node before it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    /// The size that the kernel knows of it, if it is not in the read set and not open.
    size: Option<u64>,
    /// The pages that the kernel has of it are of what will be opened. Of what was out of the read set they
    /// are of another version, perhaps, also when it is in it by now.
    pub pages_stay: bool,
}

impl<O: Os<Fd: AsFd>> View<O> {
    /// Returns true if the transaction's isolation is read committed.
    pub(crate) fn is_read_committed(&self) -> bool {
        self.tx.options().isolation == Isolation::Committed
    }

    /// Notes that the kernel gets a node.
    pub(crate) fn kernel_gets(&mut self, connection: usize, node: Node) {
        if self.tx.told(node) && !self.tx.stays(node) {
            self.read_committed.queue.push(connection, node);
        }
    }

    /// Asks the kernel to forget nodes, if there are too many. Between two answers: no request of ours holds
    /// anything then.
    pub(crate) fn ask_to_forget(&mut self) {
        let mut due = self.read_committed.queue.due();
        due.retain(|(_, node)| self.tx.is_told(*node));
        for connection in 0..self.connections.len() {
            let mine = || due.iter().filter(|(c, _)| *c == connection).map(|(_, node)| *node);
            let root = self.root(connection);
            let closed = mine().filter(|node| self.tx.opens(*node) == 0);
            let ids: Vec<u64> = closed.map(|node| id_of(node, root)).collect();
            if !ids.is_empty() && self.agreed(connection).prunes {
                // The kernel leaves out nodes that it does not know any more; an error has no other
                // consequence than memory.
                let _ = self.device(connection).write(&forget_unused(&ids));
            }
        }
        due.into_iter().for_each(|(connection, node)| self.read_committed.queue.again(connection, node));
    }

    /// While a directory is open it stays as it is.
    pub(crate) fn opendir(&mut self, call: Call<'_>, reply: &mut Reply) -> Verb<()> {
        if !self.is_read_committed() {
            return Err(Errno::NOSYS.into());
        }
        let before = self.before_open(call.node);
        self.tx.open(call.node, Access::Read, false)?;
        self.after_open(&call, before, Access::Read, false)?;
        // Without FOPEN_CACHE_DIR: its listing is asked for each time.
        reply.put(&OpenOut { fh: 0, open_flags: 0, backing_id: 0 });
        Ok(())
    }

    pub(crate) fn releasedir(&mut self, mut call: Call<'_>) -> Verb<()> {
        let _: ReleaseIn = call.take()?;
        self.tx.close(call.node);
        if self.tx.opens(call.node) == 0 && !self.tx.stays(call.node) {
            self.listings.forget(call.node);
        }
        Ok(())
    }

    /// Handles FORGET and BATCH_FORGET, which no program waits for. What can't be understood is left.
    pub(crate) fn forget(&mut self, connection: usize, opcode: Opcode, mut request: Request<'_>) {
        match opcode {
            Opcode::Forget => {
                if let Ok(ForgetIn { nlookup }) = request.take() {
                    self.forget_one(connection, request.header.nodeid, nlookup);
                }
            }
            Opcode::BatchForget => {
                let Ok(BatchForgetIn { count, .. }) = request.take() else { return };
                for _ in 0..count {
                    let Ok(ForgetOne { nodeid, nlookup }) = request.take() else { return };
                    self.forget_one(connection, nodeid, nlookup);
                }
            }
            _ => {}
        }
    }

    fn forget_one(&mut self, connection: usize, id: u64, times: u64) {
        if let Some(node) = node_of(id, self.root(connection)).filter(|node| *node <= self.known) {
            self.natives.is_entered(node);
            self.tx.forget_node(node, times);
        }
    }

    pub(crate) fn before_open(&self, node: Node) -> Before {
        if !self.is_read_committed() {
            return Before { size: None, pages_stay: true };
        }
        let open = self.tx.opens(node) > 0;
        let size = (!open && !self.tx.stays(node)).then(|| self.tx.size_seen(node));
        Before { size, pages_stay: open || self.read_committed.settled.contains(&node) }
    }

    /// Drops what the kernel knows of a file, which may be older than what was opened.
    ///
    /// # Errors
    ///
    /// `ESTALE`, after undoing the open: to an appending program the kernel says by itself where the file
    /// ends. It looks the name up again, and keeps that answer, as a file that is opened for writing is in
    /// the read set.
    pub(crate) fn after_open(
        &mut self,
        call: &Call<'_>,
        before: Before,
        access: Access,
        truncate: bool,
    ) -> Verb<()> {
        if let Some(size) = before.size {
            // It waits for no lock that the request holds. A failure means that there is nothing to forget.
            let _ = self.device(call.connection).write(&stale_attributes(call.id(call.node)));
            if access != Access::Read && !truncate && self.tx.size_seen(call.node) != size {
                self.tx.close(call.node);
                return Err(Errno::STALE.into());
            }
        }
        if self.is_read_committed() && self.tx.stays(call.node) {
            self.read_committed.settled.insert(call.node);
        }
        Ok(())
    }
}
