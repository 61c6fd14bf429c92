//! A directory, inside of a transaction or outside.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use systx_engine::transaction::Node;

/// A directory.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Of the transaction, reached by this mount of the process.
    Inside { node: Node, mount: u64 },
    /// Of a file system that the transaction does not serve.
    Outside(Arc<OwnedFd>),
}
