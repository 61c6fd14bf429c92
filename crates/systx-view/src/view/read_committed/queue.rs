//! Nodes that the kernel should forget soon, as they are not in the read set.
//!
//! The kernel keeps what it got until it needs memory. So it is asked, from time to time, to forget what no
//! program uses; each FORGET then frees a node here. Guarantees: the known nodes are those in use, and a
//! bounded number more. Kernels that can't be asked (before 6.18) forget when they need memory.

use std::collections::{HashSet, VecDeque};
use systx_engine::transaction::Node;

/// This many are left alone: a program comes back to what it looked at a moment ago.
const KEPT: usize = 2048;
/// This many are asked for at a time.
const BATCH: usize = 1024;

/// The nodes that the kernel should forget, in the order in which it got them; each with its connection.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    queue: VecDeque<(usize, Node)>,
    queued: HashSet<Node>,
    /// Number that the kernel got since it was asked last.
    fresh: usize,
}

impl Queue {
    /// Adds a node that the kernel gets.
    pub fn push(&mut self, connection: usize, node: Node) {
        // A number that was given again is in the queue still.
        self.fresh += 1;
        self.again(connection, node);
    }

    /// Those that it should forget now.
    pub fn due(&mut self) -> Vec<(usize, Node)> {
        if self.queue.len() < KEPT + BATCH || self.fresh < BATCH {
            return Vec::new();
        }
        self.fresh = 0;
        let due: Vec<_> = self.queue.drain(..BATCH).collect();
        for (_, node) in &due {
            self.queued.remove(node);
        }
        due
    }

    /// Adds a node again that the kernel may have kept, as a program uses it.
    pub fn again(&mut self, connection: usize, node: Node) {
        if self.queued.insert(node) {
            self.queue.push_back((connection, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_long_ago_is_asked_for_first_and_again_while_it_is_kept() {
        let mut queue = Queue::default();
        let (mut asked, mut told) = (Vec::new(), 0);
        for n in 0..(KEPT + 3 * BATCH) as u64 {
            queue.push(0, Node(n));
            told += 1;
            let due = queue.due();
            // The first one is in use for ever, and all others are forgotten.
            due.iter().filter(|(_, node)| node.0 == 0).for_each(|(c, node)| queue.again(*c, *node));
            asked.extend(due.into_iter().map(|(_, node)| node.0));
            assert!(told - asked.len() <= KEPT + BATCH);
        }
        assert_eq!(asked[..BATCH], (0..BATCH as u64).collect::<Vec<_>>());
    }
}
