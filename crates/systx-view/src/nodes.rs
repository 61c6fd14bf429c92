//! Numbers of nodes on a connection.
//!
//! A transaction numbers its nodes from 1 over all mounts; the kernel wants 1 for the root of each connection
//! and knows 0 as "none". The number of a read-committed node is given again when the kernel has forgotten it
//! (FORGET); its generation tells the two apart in file handles, which the kernel does not count.

use crate::wire::layout::ROOT_ID;
use systx_engine::transaction::Node;

/// Number of a node on the connection whose root is `root`.
pub fn id_of(node: Node, root: Node) -> u64 {
    if node == root {
        ROOT_ID
    } else {
        node.0 + 1
    }
}

/// The way back from [`id_of`].
pub fn node_of(id: u64, root: Node) -> Option<Node> {
    match id {
        0 => None,
        ROOT_ID => Some(root),
        id => Some(Node(id - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_numbers_are_one_to_one_on_each_connection() {
        for root in [Node(1), Node(3)] {
            let ids: Vec<u64> = (1..9).map(|n| id_of(Node(n), root)).collect();
            let back: Vec<_> = ids.iter().map(|id| node_of(*id, root)).collect();
            assert_eq!(back, (1..9).map(|n| Some(Node(n))).collect::<Vec<_>>());
            assert_eq!(ids.iter().filter(|id| **id == ROOT_ID).count(), 1);
        }
        assert_eq!(node_of(0, Node(1)), None);
    }
}
