//! The domain: one user on one file system, and how his processes cooperate there.
//!
//! Owns: the area on disk ([`Area`]), who takes part ([`Owners`]) and the table in shared memory ([`Table`]): commit
//! lock, in-flight slots, ring, `unsynced`, senior, owners' records. docs/protocol.md §1 says what they mean. Guarantees:
//! each part stays usable when processes die at any instruction; what stands in shared memory is checked before it is
//! used. Does not: run the protocol (`commit`, `recovery`), write the log.
//!
//! Lock order: there is one lock, the commit lock. Who holds it waits for nothing but its own disk.

pub mod area;
mod awaited;
mod begin;
mod checkpoint;
mod cover;
mod covered;
pub mod decisions;
mod exact;
mod held;
pub mod history;
mod identity;
mod journal;
pub mod layout;
pub mod lock;
pub(crate) mod on_disk;
pub mod open;
pub mod owners;
mod peers;
pub mod records;
pub mod ring;
pub mod sealed;
pub mod senior;
mod seniority;
pub(crate) mod shelf;
pub mod slots;
mod staging;
mod sub;
pub mod table;
pub mod tidy;
mod told;
pub mod unsynced;
mod wait;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod uniform;

pub use area::{Area, AreaError};
pub(crate) use exact::changed_by;
pub(crate) use held::Held;
pub(crate) use journal::place_of;
pub use layout::Corrupt;
pub use lock::{Locked, RobustLock};
pub use open::{open_all, open_all_doubting, open_existing, Domain, Location, OpenError};
pub use owners::{watch, Claim, Owners, OwnersError};
pub use peers::Peers;
pub use records::{Record, Records};
pub use ring::{Ring, Scan, Who};
pub(crate) use sealed::Sealed;
pub use senior::{Senior, SeniorPlace};
pub(crate) use seniority::{become_senior, Contender, Until};
pub use slots::{InFlight, Moved, Place, Seen, SlotInfo, SlotIx, SlotState, Slots};
pub use sub::finish_sub_areas;
pub use table::{Initializer, Opened, Table, TableError};
pub use tidy::Listed;
pub use unsynced::{Token, Unsynced};
#[cfg(test)]
pub(crate) use wait::MOMENT_NS;
pub(crate) use wait::{LEASE_PAUSE_NS, LEASE_ROUNDS};
