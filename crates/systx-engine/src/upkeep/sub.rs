//! The end of a transaction's subtransactions: what was cut off is finished, and their areas go.
//!
//! Guarantees: afterwards each of them is committed into the transaction as a whole, or not at all, and
//! nothing of an area is left; else it is an error, and the transaction must not commit. What was displaced
//! stays, under a name beside the area. To be called when no process of any of them is left.

use crate::domain::{Location, OpenError};
use crate::objects::remove_all;
use crate::recovery::open_all;
use crate::workset::sub_area::DISPLACED;
use systx_os::{Errno, Open, Os, Rename};

/// Why what a subtransaction has left can't be finished. Its area stays.
#[derive(Debug)]
#[non_exhaustive]
pub enum SubAreaError {
    /// The area can't be opened.
    Open(OpenError),
    /// A commit can't be finished, by the reason that recovery gives.
    Unfinished(String),
    /// The kernel, while this was being done.
    Os(&'static str, Errno),
}

impl core::fmt::Display for SubAreaError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SubAreaError::Open(e) => e.fmt(f),
            SubAreaError::Unfinished(why) => f.write_str(why),
            SubAreaError::Os(doing, e) => write!(f, "{doing}: {e}"),
        }
    }
}

impl std::error::Error for SubAreaError {}

/// A displaced object that stays when its area goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Index of the area.
    pub area: usize,
    /// Its name beside the area.
    pub name: String,
}

/// Finishes what is in these areas, and removes them. Returns the displaced objects that stay.
///
/// # Errors
/// Why one of them can't be finished.
pub fn finish_sub_areas<O: Os>(os: &O, sites: &[Location<'_, O>]) -> Result<Vec<Remains>, SubAreaError> {
    let domains = open_all(os, sites).map_err(|(_, e)| SubAreaError::Open(e))?;
    for domain in &domains {
        let mut recovered = domain.recovered.clone();
        recovered.merge(domain.finish_dead().map_err(|e| SubAreaError::Os("finishing its commits", e))?);
        if let Some(why) = recovered.unfinished.into_iter().next() {
            return Err(SubAreaError::Unfinished(why));
        }
    }
    drop(domains);
    let mut kept = Vec::new();
    for (area, site) in sites.iter().enumerate() {
        let names = remove(os, site).map_err(|e| SubAreaError::Os("removing its area", e))?;
        kept.extend(names.into_iter().map(|name| Remains { area, name }));
    }
    Ok(kept)
}

fn remove<O: Os>(os: &O, site: &Location<'_, O>) -> Result<Vec<String>, Errno> {
    let area = os.open(site.parent, site.name, Open::Directory)?;
    let aside = os.open(&area, b"aside", Open::Directory)?;
    let (mut kept, mut number) = (Vec::new(), 0u32);
    for entry in os.read_dir(&aside)? {
        loop {
            number += 1;
            let name = format!("{DISPLACED}{number}");
            match os.rename((&aside, &entry.name), (site.parent, name.as_bytes()), Rename::NoReplace) {
                Err(Errno::EXIST) => {}
                renamed => {
                    renamed?;
                    kept.push(name);
                    break;
                }
            }
        }
    }
    remove_all(os, &area)?;
    os.rmdir(site.parent, site.name)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Bounds, Domain};
    use std::sync::Arc;
    use systx_os::FsKind;
    use systx_sim::machine::Machine;

    #[test]
    fn an_area_goes_and_what_it_keeps_for_others_stays() {
        let machine = Machine::with(FsKind::Tmpfs);
        let os = machine.spawn("ends");
        let root = Arc::new(os.root(0));
        let site =
            || Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &*root, name: b".area" };
        drop(Domain::open(&os, site()).expect("opens"));
        let aside =
            os.open(&os.open(&root, b".area", Open::Directory).unwrap(), b"aside", Open::Directory).unwrap();
        for name in [&b"1.0"[..], b"1.1"] {
            let file = os.create(&aside, name, 0o600).unwrap();
            os.pwrite(&file, name, 0).unwrap();
        }
        os.create(&root, b"systx-displaced.1", 0o600).unwrap();
        let kept = finish_sub_areas(&os, &[site()]).expect("finishes");
        let remains = |name: &str| Remains { area: 0, name: name.to_string() };
        assert_eq!(kept, [remains("systx-displaced.2"), remains("systx-displaced.3")]);
        let mut names: Vec<_> = os.read_dir(&root).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, [&b"systx-displaced.1"[..], b"systx-displaced.2", b"systx-displaced.3"]);
    }
}
