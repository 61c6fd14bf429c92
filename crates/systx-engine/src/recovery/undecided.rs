//! Entries of the dead that wait for the domain that decides.
//!
//! Owns: which areas have to be open so that they can be finished. Does not: look for these (who knows places does), or
//! finish anything ([`Domain::finish_in_flight`] does, once they are open).

use crate::domain::Domain;
use systx_os::{Os, Result};

impl<O: Os> Domain<O> {
    /// Identities of areas that decide on what dead processes have left here, and are not open in this process.
    ///
    /// # Errors
    /// `EUCLEAN` for a table that makes no sense.
    pub fn undecided(&self) -> Result<Vec<[u8; 16]>> {
        let mut areas = Vec::new();
        for slot in self.table.slots().in_flight() {
            let slot = self.checked(slot)?;
            if self.alive(slot.info.owner) {
                continue;
            }
            // One that can't be read is in nobody's power here.
            let Ok(Some(body)) = self.body_of(&slot) else { continue };
            areas.extend(
                body.coordinator.map(|share| share.area).filter(|area| self.peers.get(area).is_none()),
            );
        }
        areas.sort_unstable();
        areas.dedup();
        Ok(areas)
    }
}
