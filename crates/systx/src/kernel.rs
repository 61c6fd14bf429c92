//! The kernel as the library reaches it.

use systx_os::{Guest, Linux};

/// The kernel for a process that may close descriptors which it does not know: each is looked at before it is used.
pub(crate) type Kernel = Guest<Linux>;
