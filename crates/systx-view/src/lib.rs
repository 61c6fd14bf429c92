//! A view: a mounted tree in which unmodified programs work inside a systx transaction.
//!
//! A [`View`] serves one [`Transaction`](systx_engine::transaction::Transaction) over FUSE, one connection
//! for each mount below it, so that devices, file-system totals and `EXDEV` are as they are outside. A
//! request becomes a verb of the transaction; the kernel keeps each answer, and asks no more. It reads and
//! writes private files by itself (passthrough), as soon as all of their bytes are private.
//!
//! Hops: [`serve`] reads requests → [`dispatch`] turns each into a verb → the engine. [`wire`] is the
//! protocol, [`files`] the rule for passthrough, [`listings`] that for directory offsets, [`readahead`] that for
//! the contents of a listing.
//!
//! Guarantees: a program inside sees what the plain system call would give, permission checks included (the
//! kernel makes them, by the attributes that it got). Does not: touch files by paths, mount anything
//! anywhere, or know processes.
#![forbid(unsafe_code)]

mod call;
pub mod dispatch;
pub mod files;
pub mod listings;
pub mod nodes;
pub mod readahead;
pub mod serve;
pub mod view;
pub mod wire;

pub use view::{Failed, ShownAs, Trouble, View, Written};

/// The extended attribute of every object of a view that holds the transaction's number: by its answer a
/// program knows a view. It is in no list, and no other file system takes a name like this one.
pub const ID_ATTRIBUTE: &str = "systx.id";
/// The attribute with the number of transactions around and including this one: 1 for a transaction that is
/// in no other. A transaction that can have none in it has no such attribute.
pub const DEPTH_ATTRIBUTE: &str = "systx.depth";
/// The attribute with the name of areas of the asking user's subtransactions in this transaction: no program
/// outside, and no other user, can make one.
pub const SUB_AREA_ATTRIBUTE: &str = "systx.sub-area";
/// With a number behind it, the attribute with the places of areas of subtransactions from the one of that index
/// on: as many paths from the root of the mount as an attribute can hold, with a NUL behind each. Root gets all
/// areas, other users get their own. A path that is too long for an attribute is an empty one.
pub const SUB_AREAS_ATTRIBUTE: &str = "systx.sub-areas.";
