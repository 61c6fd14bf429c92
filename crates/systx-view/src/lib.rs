//! A view: a mounted tree in which unmodified programs work inside a systx transaction.
//!
//! A [`View`] serves one [`Transaction`](systx_engine::transaction::Transaction) over FUSE, one connection for each mount
//! below it, so that devices, file-system totals and `EXDEV` are as they are outside. A request becomes a verb of the
//! transaction; what it has seen once, the kernel keeps, and asks no more. Private files the kernel reads and writes by
//! itself (passthrough), as soon as all of their bytes are private.
//!
//! Hops: [`serve`] reads requests → [`dispatch`] turns each into a verb → the engine. [`wire`] is the protocol, [`files`] the
//! rule for passthrough, [`listings`] that for directory offsets, [`habits`] that for what a listing tells.
//!
//! Guarantees: a program inside sees what the plain system call would give, permission checks included (the kernel makes
//! them, by the attributes told). Does not: touch files by paths, mount anything anywhere, or know processes.
#![forbid(unsafe_code)]

mod call;
pub mod dispatch;
pub mod files;
pub mod habits;
pub mod listings;
pub mod nodes;
mod passing;
pub mod serve;
pub mod view;
pub mod wire;

pub use dispatch::ShownAs;
pub use view::{Failed, Trouble, View, Written};

/// The extended attribute of every object of a view that holds the transaction's number: by its answer a program knows a
/// view. It is in no list, and no other file system takes a name like this one.
pub const ID_ATTRIBUTE: &str = "systx.id";
/// One that tells how many transactions deep this is: 1 for one that is in no other one. One that can have none in it has no such
/// attribute.
pub const DEPTH_ATTRIBUTE: &str = "systx.depth";
/// One that tells the user who asks how areas of that user's subtransactions are called in this transaction: nobody who is not inside, and
/// no other user, can make one.
pub const SUB_AREA_ATTRIBUTE: &str = "systx.sub-area";
/// One that tells where areas of subtransactions are: their paths from the root of the mount, with a NUL behind each.
pub const SUB_AREAS_ATTRIBUTE: &str = "systx.sub-areas";
