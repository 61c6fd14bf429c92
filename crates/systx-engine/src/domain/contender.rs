//! Asking for the priority, over one file system or several, and waiting for its holder.
//!
//! Guarantees: a transaction gets the priority in all of its domains at one instant or in none; one that is
//! refused holds it nowhere. So holders do not wait for each other in a circle: the one that asked last waits
//! for none of the others. Does not: decide which transaction asks.

use super::PROBE_NS;
use super::{waits, Domain, Held, Holder};
use crate::id::{Footprint, Objects, TxId};
use systx_os::{Os, Result};
use tracing::debug;

/// The share of one domain in what asks for priority.
pub(crate) struct Contender<'a, O: Os> {
    pub domain: &'a Domain<O>,
    /// The transaction as which it began there.
    pub age: TxId,
    pub footprint: Footprint,
}

/// When a priority ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// This many nanoseconds after it was first asked for.
    Once(u64),
    /// This many after now: another transaction has committed since.
    Anew(u64),
}

/// Asks for the priority: no younger transaction that overlaps commits before us for a while. The domains
/// come in the order of their keys, each once. Returns true if it is granted.
pub(crate) fn take_priority<O: Os>(asking: &[Contender<'_, O>], until: Until) -> Result<bool> {
    let mut held = Vec::with_capacity(asking.len());
    for one in asking {
        held.push(one.domain.lock()?);
    }
    let (Until::Once(length_ns) | Until::Anew(length_ns)) = until;
    for (Contender { domain, age, .. }, held) in asking.iter().zip(&held) {
        let now = domain.os.monotonic_ns();
        let place = domain.table.priority();
        if !domain.checked(place.is_open_to(held.proof(), *age, now, &|ix| domain.alive(ix)))? {
            asking.iter().for_each(|one| one.domain.table.priority().resign(one.age));
            return Ok(false);
        }
    }
    for (Contender { domain, age, footprint }, held) in asking.iter().zip(&held) {
        let (now, place) = (domain.os.monotonic_ns(), domain.table.priority());
        if let Until::Anew(_) = until {
            place.resign(*age);
        }
        let deadline_ns = now.saturating_add(length_ns);
        let wanted = Holder { age: *age, owner: domain.me(), deadline_ns, length_ns, footprint: *footprint };
        domain.checked(place.try_become(held.proof(), &wanted, now, &|ix| domain.alive(ix)))?;
    }
    Ok(true)
}

impl<O: Os> Domain<O> {
    /// Footprint of the holder of priority, if what has the rank `me` waits for it.
    pub(crate) fn holder_other_than(&self, held: &Held<'_, O>, me: TxId) -> Result<Option<Footprint>> {
        let now = self.os.monotonic_ns();
        let holder = self.checked(self.table.priority().current(held.proof(), now, &|ix| self.alive(ix)))?;
        Ok(holder.filter(|s| waits::waits_for_holder(s.age, me)).map(|s| s.footprint))
    }

    /// Waits until no better one than `me` holds the priority over these objects, or so long: what `me` does with them
    /// before that is likely to be in vain.
    pub(crate) fn stall(&self, me: TxId, objects: &Objects, until_ns: u64) -> Result<()> {
        loop {
            let held = self.lock()?;
            let now = self.os.monotonic_ns();
            let holder =
                self.checked(self.table.priority().current(held.proof(), now, &|ix| self.alive(ix)))?;
            drop(held);
            let stalls =
                |holder: &Holder| waits::stalls(holder.age, me) && objects.may_overlap(&holder.footprint);
            let Some(holder) = holder.filter(stalls) else { return Ok(()) };
            let left_ns = until_ns.min(holder.deadline_ns).saturating_sub(now);
            if left_ns == 0 {
                return Ok(());
            }
            self.table.priority().wait(holder.age, left_ns.min(PROBE_NS));
        }
    }

    /// Waits a while for the holder to get past its validation.
    pub(crate) fn await_holder(&self) -> Result<()> {
        let holder = {
            let held = self.lock()?;
            let now = self.os.monotonic_ns();
            self.checked(self.table.priority().current(held.proof(), now, &|ix| self.alive(ix)))?
        };
        if let Some(holder) = holder {
            debug!(age = holder.age.0, "waiting for an older transaction");
            self.table.priority().wait(holder.age, PROBE_NS);
        }
        Ok(())
    }
}
