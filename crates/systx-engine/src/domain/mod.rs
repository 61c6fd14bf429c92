//! The domain: one user on one file system, and how his processes cooperate there.
//!
//! Owns: the area on disk ([`Area`]), who takes part ([`Owners`]) and the table in shared memory ([`Table`]):
//! commit lock, in-flight slots, ring, `unsynced`, priority, owners' records. docs/protocol.md §1 says what
//! they mean. Guarantees: each part stays usable when processes die at any instruction; what stands in shared
//! memory is checked before it is used. Does not: run the protocol (`commit`), open itself or wait for others
//! (`recovery`), make checkpoints (`upkeep`).
//!
//! Lock order: there is one lock, the commit lock. Who holds it waits for nothing but its own disk.

pub mod area;
mod contender;
pub mod decisions;
mod exact;
mod held;
pub mod history;
mod identity;
pub(crate) mod images;
mod in_place;
mod journal;
pub mod layout;
pub(crate) mod marks;
pub(crate) mod moving;
pub(crate) mod on_disk;
mod open_error;
mod opened;
pub(crate) mod own_file;
mod own_slots;
pub mod owners;
pub mod priority;
pub mod records;
mod remembered;
pub mod reports;
pub mod ring;
pub mod sealed;
mod sealing;
pub(crate) mod shared_staging;
pub mod slots;
mod staging;
mod staging_by_owner;
mod syncing;
pub mod table;
mod told;
pub mod unsynced;
pub(crate) mod waits;

#[cfg(test)]
mod tests;

pub use crate::objects::Bounds;
pub use area::{Area, Location, Make};
pub(crate) use contender::{take_priority, Contender, Until};
pub(crate) use exact::changed_by;
pub(crate) use held::Held;
pub use identity::{said_at, AreaError};
pub(crate) use journal::place_of;
pub use open_error::OpenError;
pub use opened::{Domain, Peers};
pub(crate) use opened::{Owned, PeerArea};
pub(crate) use own_slots::PROBE_NS;
pub use owners::{watch, Attendant, Claim, Owners, OwnersError};
pub use priority::{Holder, PriorityPlace};
pub use records::{Record, Records};
pub use remembered::Most;
pub use ring::{Ring, Scan, Who};
pub(crate) use sealed::Sealed;
pub use slots::{InFlight, Moved, Place, Seen, SlotInfo, SlotIx, SlotState, Slots};
pub use table::{Initializer, Opened, Table, TableError};
pub(crate) use told::Announced;
pub use unsynced::{Token, Unsynced};
