//! The end of a transaction's subtransactions: what was cut off is finished, and their areas go.
//!
//! Guarantees: afterwards each of them is committed into the transaction as a whole, or not at all, and nothing of an area is left;
//! else it is an error, and the transaction must not commit. To be called when no process of any of them is left. Does not:
//! keep displaced objects: they go with the area.

use super::open::{open_all, Location};
use crate::publish::reclaim::remove_all;
use systx_os::{Errno, Open, Os};

/// Finishes what is in these areas, and removes them. An error is a fragment.
pub fn finish_sub_areas<O: Os>(os: &O, sites: &[Location<'_, O>]) -> Result<(), String> {
    let domains = open_all(os, sites).map_err(|(_, e)| e.to_string())?;
    for domain in &domains {
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().map_err(|e| e.to_string())?);
        if let Some(why) = recovered.unfinished.into_iter().next() {
            return Err(why);
        }
    }
    drop(domains);
    sites.iter().try_for_each(|site| remove(os, site)).map_err(|e| format!("removing its area: {e}"))
}

fn remove<O: Os>(os: &O, site: &Location<'_, O>) -> Result<(), Errno> {
    remove_all(os, &os.open(site.parent, site.name, Open::Directory)?)?;
    os.rmdir(site.parent, site.name)
}
