//! The kernel as the library reaches it.

use systx_engine::outcome::Durability;
use systx_os::{Guest, InCall, Linux};

/// The kernel for a process that may close descriptors which it does not know: each is looked at before it is used.
pub(crate) type Kernel = Guest<Linux>;

/// Begins the call that commits; with a sync it is a long one.
pub(crate) fn committing(durability: Durability) -> InCall {
    match durability {
        Durability::None => Kernel::in_call(),
        Durability::Durable => Kernel::in_long_call(),
    }
}
